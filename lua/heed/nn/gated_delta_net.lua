--- nn.GatedDeltaNet: the linear attention of Qwen3-Next, a gated delta rule between projections, a causal convolution
--- and a gated norm. Parameters have the names and shapes of transformers' Qwen3NextGatedDeltaNet. arXiv:2412.06464.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local F = require "heed.nn.functional"
local Module = require "heed.nn.module"
local caches = require "heed.nn.state_cache"
local options, python_number, Parameter = core.modules.options, core.modules.python_number, core.nn.Parameter
local Linear, RMSNorm = core.nn.Linear, core.nn.RMSNorm

-- ---- The convolution ----------------------------------------------------------------------------

local CausalConv = Module.class "CausalConv1d"

-- The weight is drawn as that of PyTorch's Conv1d with a group for each channel.
function CausalConv:init(channels, size, generator)
  local bound = 1 / math.sqrt(size)
  self.weight = Parameter((core.rand(channels, 1, size, { generator = generator }) * 2 - 1) * bound)
end

--- x [b, channels, n] → silu of the filtered channels, and the state for the next call.
function CausalConv:forward(x, past_state)
  local weight = self.weight
  if weight.dtype ~= "float32" then weight = weight:float() end
  return x:causal_conv(weight, { past_state = past_state, activation = "silu" })
end

function CausalConv:extra_repr() return ("%d, kernel_size=%d"):format(self.weight:size(1), self.weight:size(-1)) end

-- ---- The module ---------------------------------------------------------------------------------

local GatedDeltaNet = Module.class "GatedDeltaNet"
local CLASS = "GatedDeltaNet"
local NAMES = {
  "hidden_size", "num_value_heads", "num_key_heads", "key_head_dim", "value_head_dim", "conv_kernel_size", "eps",
  "generator",
}

function GatedDeltaNet:init(...)
  E.check_self(self, "init")
  local hidden, value_heads, key_heads, key_dim, value_dim, kernel, eps, generator = options(CLASS, NAMES, 1, ...)
  hidden = E.size(hidden, nil, CLASS, "hidden_size")
  value_heads = E.size(value_heads, nil, CLASS, "num_value_heads")
  key_heads = E.size(key_heads, value_heads, CLASS, "num_key_heads")
  if value_heads % key_heads ~= 0 then
    E.fail("%s: num_value_heads is %d and num_key_heads is %d; the second must divide the first", CLASS, value_heads,
      key_heads)
  end
  if key_dim == nil and hidden % value_heads ~= 0 then
    E.fail("%s: hidden_size is %d and num_value_heads is %d; give key_head_dim, or a size that is a multiple", CLASS,
      hidden, value_heads)
  end
  key_dim = E.size(key_dim, hidden / value_heads, CLASS, "key_head_dim")
  value_dim = E.size(value_dim, key_dim, CLASS, "value_head_dim")
  kernel = E.size(kernel, 4, CLASS, "conv_kernel_size")
  eps = E.number(eps, 1e-6, CLASS, "eps", function(value) return value >= 0 end, "a number, at least 0")
  if generator ~= nil and not E.is_generator(generator) then
    E.reject(CLASS, "generator", generator, "a heed.Generator")
  end
  self.hidden_size, self.num_value_heads, self.num_key_heads = hidden, value_heads, key_heads
  self.key_head_dim, self.value_head_dim, self.conv_kernel_size, self.eps = key_dim, value_dim, kernel, eps
  local keys, values = key_heads * key_dim, value_heads * value_dim
  self.conv1d = CausalConv(2 * keys + values, kernel, generator)
  self.in_proj_qkvz = Linear(hidden, 2 * keys + 2 * values, { bias = false, generator = generator })
  self.in_proj_ba = Linear(hidden, 2 * value_heads, { bias = false, generator = generator })
  self.dt_bias = Parameter(core.ones(value_heads))
  self.A_log = Parameter((core.rand(value_heads, { generator = generator }) * 16):log())
  self.norm = RMSNorm(value_dim, { eps = eps })
  self.out_proj = Linear(values, hidden, { bias = false, generator = generator })
end

--- The projections of x [b, n, hidden]: q, k and v side by side for the convolution [b, channels, n]; z [b, n, values];
--- and the inputs of beta and the decay [b, n, heads]. The columns of a key head with its value heads are adjacent.
local function project(self, x)
  local b, n, key_heads, key_dim = x:size(1), x:size(2), self.num_key_heads, self.key_head_dim
  local group = self.num_value_heads / key_heads
  local wide = group * self.value_head_dim
  local joined = (self.in_proj_qkvz(x)):view(b, n, key_heads, 2 * key_dim + 2 * wide)
  local function columns(first, count) return joined:narrow(-1, first, count):reshape(b, n, key_heads * count) end
  local q, k = columns(1, key_dim), columns(key_dim + 1, key_dim)
  local v, z = columns(2 * key_dim + 1, wide), columns(2 * key_dim + wide + 1, wide)
  local ba = (self.in_proj_ba(x)):view(b, n, key_heads, 2 * group)
  local function gates(first) return ba:narrow(-1, first, group):reshape(b, n, self.num_value_heads) end
  return core.cat({ q, k, v }, -1):transpose(2, 3), z, gates(1), gates(group + 1)
end

--- The rows of x [b, n, heads, d] divided by √(Σ x² + 1e-6).
local function normalized(x)
  local d = x:size(-1)
  return x:rms_norm(core.full({ d }, 1 / math.sqrt(d)), 1e-6 / d)
end

local function repeated(x, count)
  return count == 1 and x or x:repeat_interleave(count, 3)
end

local function check_cache(self, cache, batch)
  if not caches.is_cache(cache) then
    E.reject(CLASS, "cache", cache, "a heed.StateCache, which new_cache makes")
  end
  if cache.batch ~= batch then
    E.fail("%s: x has %s and the cache %d; these numbers must be equal", CLASS, E.count(batch, "sequence"), cache.batch)
  end
  local state = cache.state
  if not state then return end
  local sizes = { batch, self.num_value_heads, self.key_head_dim, self.value_head_dim }
  local same = cache.conv_state:size(2) == self.conv1d.weight:size(1)
  for i = 1, 4 do same = same and state:size(i) == sizes[i] end
  if not same then E.fail("%s: cache is one of a module with other sizes; use this module's new_cache", CLASS) end
end

--- x [b, n, hidden] or [n, hidden] → the same shape. Options: cache, which this call continues.
function GatedDeltaNet:forward(x, ...)
  E.check_self(self, "forward")
  local cache = options(CLASS, { "cache" }, 3, self, x, ...)
  E.check_tensor(x, CLASS, "x")
  if x.ndim ~= 2 and x.ndim ~= 3 or x:size(-1) ~= self.hidden_size then
    E.reject(CLASS, "x", x, "[b, n, %d] or [n, %d]", self.hidden_size, self.hidden_size)
  end
  local rows = x.ndim == 2 and x:unsqueeze(1) or x
  local b, n = rows:size(1), rows:size(2)
  local past_conv, past
  if cache ~= nil then
    check_cache(self, cache, b)
    past_conv, past = cache.conv_state, cache.state
  end
  local joined, z, write, forget = project(self, rows)
  local mixed, conv_state = self.conv1d(joined, past_conv)
  mixed = mixed:transpose(2, 3)
  local keys = self.num_key_heads * self.key_head_dim
  local values, group = self.num_value_heads * self.value_head_dim, self.num_value_heads / self.num_key_heads
  local function heads(first, count, number)
    return mixed:narrow(-1, first, count):view(b, n, number, count / number)
  end
  local q = repeated(normalized(heads(1, keys, self.num_key_heads)), group)
  local k = repeated(normalized(heads(keys + 1, keys, self.num_key_heads)), group)
  local v = heads(2 * keys + 1, values, self.num_value_heads)
  local decay = -self.A_log:exp() * F.softplus(forget + self.dt_bias)
  local y, state = q:transpose(2, 3):linear_attention(k:transpose(2, 3), v:transpose(2, 3), {
    rule = "gated_delta", decay = decay:transpose(2, 3), beta = write:sigmoid():transpose(2, 3),
    past_state = past,
  })
  y = (self.norm(y:transpose(2, 3))) * z:view(b, n, self.num_value_heads, self.value_head_dim):silu()
  y = self.out_proj(y:reshape(b, n, values))
  if x.ndim == 2 then y = y:squeeze(1) end
  if cache ~= nil then
    if cache.batch ~= b or not rawequal(cache.state, past) then
      E.fail("%s: the cache was used by another call during the forward pass; give each call a cache of its own", CLASS)
    end
    caches.advance(cache, n, conv_state:detach(), state:detach())
  end
  return y
end

local function check_state(name, state, ...)
  if E.kind(state) ~= "tensor" then
    E.reject("new_cache", name, state, "a tensor; conv_state and state are given together, as another cache has them")
  end
  local sizes = { ... }
  local same = state.ndim == #sizes and state.dtype == "float32"
  for i = 1, #sizes do same = same and state:size(i) == sizes[i] end
  if not same then
    E.reject("new_cache", name, state, "float32 [" .. ("%d, "):rep(#sizes - 1) .. "%d]", compat.unpack(sizes))
  end
end

--- A cache for `batch` sequences, with which forward continues them token by token. conv_state and state are those of a
--- cache that it goes on with, after `length` tokens.
function GatedDeltaNet:new_cache(...)
  E.check_self(self, "new_cache")
  local names = { "batch", "conv_state", "state", "length" }
  local batch, conv_state, state, length = options("new_cache", names, 2, self, ...)
  local given = conv_state ~= nil or state ~= nil
  local first = E.kind(state) == "tensor" and state.ndim > 0 and state:size(1) or 1
  batch = E.size(batch, first, "new_cache", "batch")
  if not given then
    if length ~= nil then E.fail "new_cache: length is given without conv_state and state; give all three, or none" end
    return caches.new(batch)
  end
  local weight = self.conv1d.weight
  check_state("conv_state", conv_state, batch, weight:size(1), weight:size(-1) - 1)
  check_state("state", state, batch, self.num_value_heads, self.key_head_dim, self.value_head_dim)
  return caches.new(batch, conv_state:detach(), state:detach(), E.size(length, nil, "new_cache", "length"))
end

function GatedDeltaNet:extra_repr()
  return ("%d, num_value_heads=%d, num_key_heads=%d, key_head_dim=%d, value_head_dim=%d, eps=%s"):format(
    self.hidden_size, self.num_value_heads, self.num_key_heads, self.key_head_dim, self.value_head_dim,
    python_number(self.eps))
end

return E.with_frames(GatedDeltaNet, "forward", "new_cache")
