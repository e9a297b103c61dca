--- How a module is divided among ranks: Heads, ColwiseParallel, RowwiseParallel. A style has
---   name                    for messages
---   check(module, place)    nil, or the problem: "has ...; it must ..."
---   divide(module, place)   the part of this rank: a new module of the same class, which ends with a collective
--- Shapes: weights of Linear are [out_features, in_features]; a column of a product is a row of its weight.

local compat = require "heed.compat"
local core = require "heed.core"
local draws = require "heed.parallel.draws"
local E = require "heed.nn.entries"
local exchange = require "heed.parallel.exchange"
local place_of = require "heed.parallel.place"
local shards = require "heed.parallel.shards"
local nn, primitives, split = require "heed.nn", core.modules, place_of.split
local skip_init = primitives.skip_init

local styles = {}

local STYLE = {} -- the key of a style's definition
local Style = { __name = "heed.ParallelStyle" }
Style.__tostring = function(self) return rawget(self, STYLE).name .. "()" end

local function new_style(definition) return setmetatable({ [STYLE] = definition }, Style) end

--- The definition of a style, else nil.
function styles.definition(value) return type(value) == "table" and rawget(value, STYLE) or nil end

local function is_linear(module) return E.is_module(module) and E.class_name(module) == "Linear" end

--- The problem of a module that is no plain Linear with weights that can be cut, or nil.
local function linear_problem(module)
  if not is_linear(module) then return ("is %s; it must be a Linear"):format(E.what(module)) end
  if module.weight.dtype == "int8" then return "has int8 weights; divide the module first, then call m:to('int8')" end
  return nil
end

local function copy_mode(new, old)
  new:train(old.training)
  return new
end

-- ---- Linear -------------------------------------------------------------------------------------

--- The Linear with these outputs of `old`.
local function some_outputs(old, place, first, count)
  local new = skip_init(nn.Linear, old.in_features, count, old.bias ~= nil)
  shards.take(new, old, "weight", place, 1, first, count)
  if old.bias then shards.take(new, old, "bias", place, 1, first, count) end
  return copy_mode(new, old)
end

--- The Linear with these inputs of `old`. Its results are added over the ranks, so that only one has the bias.
local function some_inputs(old, place, first, count)
  local new = skip_init(nn.Linear, count, old.out_features, old.bias ~= nil and place.rank == 1)
  shards.take(new, old, "weight", place, 2, first, count)
  if old.bias then shards.take_once(new, old, "bias", place) end
  return copy_mode(new, old)
end

--- Registers the collectives before and after the forward pass of a part; hooks() makes them.
local function connect(module, place, hooks)
  return shards.connect(module, place, function(each)
    local before, after = hooks()
    if before then each:register_forward_pre_hook(before) end
    if after then each:register_forward_hook(after) end
  end)
end

local function too_few(what, count, place)
  return ("has %s; %d ranks need at least %d"):format(E.count(count, what), place.size, place.size)
end

--- ColwiseParallel{gather = false}: each rank computes some columns of a Linear's result, and keeps them, as the input
--- of a RowwiseParallel; with gather, all ranks get the whole result.
function styles.ColwiseParallel(...)
  local gathers = E.boolean(primitives.options("ColwiseParallel", { "gather" }, 1, ...), false, "ColwiseParallel",
    "gather")
  return new_style {
    name = "ColwiseParallel",
    check = function(module, place)
      local problem = linear_problem(module)
      if problem then return problem end
      return module.out_features < place.size and too_few("output", module.out_features, place) or nil
    end,
    divide = function(module, place)
      local size = module.out_features
      local new = some_outputs(module, place, split(size, place.rank, place.size))
      return connect(new, place, function()
        return function(_, x) return exchange.enter(x, place) end,
          gathers and function(_, _, y) return exchange.gather(y, size, place) end
      end)
    end,
  }
end

--- RowwiseParallel(): each rank has the weights for some inputs of a Linear, which are the columns that it got from a
--- ColwiseParallel; the results are added.
function styles.RowwiseParallel(...)
  primitives.options("RowwiseParallel", {}, 1, ...)
  return new_style {
    name = "RowwiseParallel",
    check = function(module, place)
      local problem = linear_problem(module)
      if problem then return problem end
      return module.in_features < place.size and too_few("input", module.in_features, place) or nil
    end,
    divide = function(module, place)
      local new = some_inputs(module, place, split(module.in_features, place.rank, place.size))
      return connect(new, place, function()
        return nil, function(_, _, y) return exchange.add(y, place) end
      end)
    end,
  }
end

-- ---- Heads --------------------------------------------------------------------------------------

local PROJECTIONS = { "W_query", "W_key", "W_value" }

local function heads_problem(m, place)
  if not E.is_module(m) or E.class_name(m) ~= "MultiHeadAttention" then
    return ("is %s; it must be a MultiHeadAttention"):format(E.what(m))
  end
  if not m.out_proj then return "has no out_proj; it must have one, which joins the heads of the ranks" end
  if m.alibi then return "has alibi, whose slopes depend on the number of heads; divide only layers around it" end
  for _, name in ipairs { "W_query", "W_key", "W_value", "out_proj" } do
    local problem = linear_problem(m[name])
    if problem then return ("has a part %s that %s"):format(name, problem) end
  end
  for _, name in ipairs { "dropout", "q_norm", "k_norm" } do
    local part = (name == "dropout" or m.qk_norm) and m[name]
    if part and E.record(part) then
      return ("has a part %s that is %s; it must be the one that it was made with"):format(name, E.what(part))
    end
  end
  for _, name in ipairs { "num_heads", "num_kv_heads" } do
    local count = m[name]
    if count % place.size ~= 0 then
      return ("has %s = %d, and there %s %s; it must be a multiple of that%s"):format(name, count,
        place.size == 1 and "is" or "are", E.count(place.size, "rank"),
        count < place.size and (", so at most %s"):format(E.count(count, "rank")) or "")
    end
  end
  return nil
end

--- attn_mask, if it is a tensor with a mask for each head, for the heads of this rank.
local function cut_mask(mask, heads, place)
  if not E.is_tensor(mask) or mask.ndim < 3 or mask.shape[mask.ndim - 2] ~= heads or heads == 1 then return mask end
  local count = compat.divide(heads, place.size)
  return mask:narrow(-3, (place.rank - 1) * count + 1, count)
end

-- The options of attention that can have gradients, in the order in which all ranks record them.
local DIFFERENTIABLE = { "attn_mask", "key", "value" }

--- The generator of the dropout of this rank's heads, which draws their part of all [b, heads, l, s] weights, and the
--- one that it is a part of.
local function part_of_generator(m, x, options, heads, place)
  local whole = draws.generator(options.generator, m.dropout.p, "MultiHeadAttention",
    " and its heads are divided among ranks", "set m.dropout.p = 0")
  if options.lengths or options.cache then
    E.fail("MultiHeadAttention: dropout is %g, its heads are divided among ranks, and %s given; call eval(), or set "
      .. "m.dropout.p = 0", m.dropout.p, options.lengths and "lengths are" or "cache is")
  end
  local keys = options.key or x
  local dims, first = { heads, x.shape[x.ndim - 1], keys.shape[keys.ndim - 1] }, { 1, 1, 1 }
  first[1] = (place.rank - 1) * compat.divide(heads, place.size) + 1
  if x.ndim == 3 then
    table.insert(dims, 1, x.shape[1])
    table.insert(first, 1, 1)
  end
  return whole:part(dims, first), whole
end

--- A function that a module whose heads are divided calls before each recorded pass: the gradients of its norms, which
--- all heads share, are added over the ranks. Loading a state may have replaced the parameters since the last pass.
local function sharing(place)
  local shared = {} -- by name of the norm: its parameter
  local function add(gradient)
    return require "heed.distributed".all_reduce(gradient:clone(), "sum", { group = place.group })
  end
  return function(m)
    if not (m.qk_norm and core.is_grad_enabled()) then return end
    for _, name in ipairs { "q_norm", "k_norm" } do
      local weight = m[name].weight
      if weight and weight ~= shared[name] and weight.requires_grad then
        weight:register_hook(add)
        shared[name] = weight
      end
    end
  end
end

--- The hooks before and after an attention module with some of `heads` heads.
local function around_heads(heads, place)
  local share = sharing(place)
  local drawn -- the generator of the pass that runs
  local function before(m, x, options)
    share(m)
    local changed = {}
    for name, value in pairs(E.is_list(options) and options or {}) do changed[name] = value end
    drawn = nil
    if m.training and m.dropout.p > 0 and E.is_tensor(x) and x.ndim > 1 then
      changed.generator, drawn = part_of_generator(m, x, changed, heads, place)
    end
    changed.attn_mask = cut_mask(changed.attn_mask, heads, place)
    for _, name in ipairs(DIFFERENTIABLE) do changed[name] = exchange.enter(changed[name], place) end
    if next(changed) == nil then return exchange.enter(x, place) end
    return exchange.enter(x, place), changed
  end
  local function after(_, _, y)
    if drawn then draws.move_on(drawn) end
    drawn = nil
    return exchange.add(y, place)
  end
  return before, after
end

local function divide_heads(m, place)
  local heads = m.num_heads
  local function part_of(count) return compat.divide(count, place.size) end
  local out_bias = m.out_proj.bias ~= nil and place.rank == 1
  local new = skip_init(nn.MultiHeadAttention, {
    d_in = m.d_in, d_out = m.d_out, context_length = m.context_length, dropout = m.dropout.p,
    num_heads = part_of(m.num_heads), num_kv_heads = part_of(m.num_kv_heads), head_dim = m.head_dim,
    qkv_bias = m.W_query.bias ~= nil, out_bias = out_bias, causal = m.causal, scale = m.scale, kdim = m.kdim,
    vdim = m.vdim, window = m.window, softcap = m.softcap, rope = m.rope, sinks = m.sinks ~= nil,
    qk_norm = m.qk_norm and { eps = m.q_norm.eps } or nil,
  })
  for i, name in ipairs(PROJECTIONS) do
    local count = part_of(i == 1 and m.num_heads or m.num_kv_heads) * m.head_dim
    shards.take(new[name], m[name], "weight", place, 1, (place.rank - 1) * count + 1, count)
    if m[name].bias then shards.take(new[name], m[name], "bias", place, 1, (place.rank - 1) * count + 1, count) end
  end
  local width = part_of(m.num_heads) * m.head_dim
  shards.take(new.out_proj, m.out_proj, "weight", place, 2, (place.rank - 1) * width + 1, width)
  if m.out_proj.bias then shards.take_once(new.out_proj, m.out_proj, "bias", place) end
  if m.sinks then
    local count = part_of(m.num_heads)
    shards.take(new, m, "sinks", place, 1, (place.rank - 1) * count + 1, count)
  end
  copy_mode(new, m)
  for _, name in ipairs { "q_norm", "k_norm" } do
    if m.qk_norm and m[name].weight then
      shards.take(new[name], m[name], "weight", place)
    end
  end
  return connect(new, place, function() return around_heads(heads, place) end)
end

--- Heads(): each rank has some heads of a MultiHeadAttention, with the columns of out_proj's weight for them.
function styles.Heads(...)
  primitives.options("Heads", {}, 1, ...)
  return new_style { name = "Heads", check = heads_problem, divide = divide_heads }
end

E.with_frames(styles)

-- The names in the plans that classes have, `tp_plan`.
local OF_CLASSES = {
  heads = styles.Heads(), rowwise = styles.RowwiseParallel(), colwise = styles.ColwiseParallel(),
  colwise_gather = styles.ColwiseParallel { gather = true },
}

--- The style of a name in a class's plan.
function styles.of_class(name) return OF_CLASSES[name] end

return styles
