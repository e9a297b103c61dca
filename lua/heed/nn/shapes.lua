--- nn.Identity, nn.Flatten and nn.Unflatten.

local core = require "heed.core"
local E = require "heed.nn.entries"
local Module = require "heed.nn.module"
local options = core.modules.options

-- ---- Identity -----------------------------------------------------------------------------------

local Identity = Module.class "Identity"

--- Arguments are accepted and ignored, as in PyTorch, so that it can take the place of any module.
function Identity:init() E.check_self(self, "init") end

function Identity:forward(...)
  E.check_self(self, "forward")
  return ...
end

-- ---- Flatten ------------------------------------------------------------------------------------

local Flatten = Module.class "Flatten"

function Flatten:init(...)
  E.check_self(self, "init")
  local first, last = options("Flatten", { "start_dim", "end_dim" }, 1, ...)
  self.start_dim = E.integer(first, 2, "Flatten", "start_dim")
  self.end_dim = E.integer(last, -1, "Flatten", "end_dim")
end

function Flatten:forward(x, ...)
  E.check_input(self, x, ...)
  return x:flatten(self.start_dim, self.end_dim)
end

function Flatten:extra_repr() return ("start_dim=%d, end_dim=%d"):format(self.start_dim, self.end_dim) end

-- ---- Unflatten ----------------------------------------------------------------------------------

local Unflatten = Module.class "Unflatten"

function Unflatten:init(...)
  E.check_self(self, "init")
  local dim, sizes = options("Unflatten", { "dim", "unflattened_size" }, 1, ...)
  dim = E.integer(dim, nil, "Unflatten", "dim")
  local kept = {}
  if not E.is_list(sizes) or #sizes == 0 then
    E.reject("Unflatten", "unflattened_size", sizes, "a list of sizes")
  end
  for i = 1, #sizes do
    E.check_cancel "Unflatten"
    kept[i] = E.integer(sizes[i], nil, "Unflatten", "a size")
  end
  self.dim, self.unflattened_size = dim, kept
end

function Unflatten:forward(x, ...)
  E.check_input(self, x, ...)
  local ndim, dim = x.ndim, self.dim
  if dim < 0 then dim = ndim + 1 + dim end
  if dim < 1 or dim > ndim then
    E.fail("Unflatten: dim is %d and x has %s", self.dim, E.count(ndim, "dimension"))
  end
  local sizes = {}
  for i = 1, dim - 1 do sizes[i] = x.shape[i] end
  for _, size in ipairs(self.unflattened_size) do sizes[#sizes + 1] = size end
  for i = dim + 1, ndim do sizes[#sizes + 1] = x.shape[i] end
  return x:reshape(sizes)
end

function Unflatten:extra_repr()
  local sizes = self.unflattened_size
  local text = table.concat(sizes, ", ") .. (#sizes == 1 and "," or "")
  return ("dim=%d, unflattened_size=(%s)"):format(self.dim, text)
end

return {
  Identity = E.with_frames(Identity), Flatten = E.with_frames(Flatten), Unflatten = E.with_frames(Unflatten),
}
