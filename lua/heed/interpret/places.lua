--- Where activation_patching replaces activations: positions of the residual stream, or heads of attention.

local E = require "heed.nn.entries"
local models = require "heed.interpret.models"

local places = {}

-- The dimensions of heads and positions at the points of attention; other points are [.., n, d].
local HEADS = { attn_scores = { -3, -2 }, pattern = { -3, -2 } }
for _, name in ipairs { "q", "k", "v", "rot_q", "rot_k", "z", "result" } do HEADS[name] = { -2, -3 } end

--- The names of the point in these layers, a number or a list of them, by default all.
function places.names(model, point, layers, method)
  if point == nil then point = "resid_pre" end
  E.check_type(point, "string", method, "point")
  if not point:find "hook_[^.]*$" then point = point:gsub("[^.]*$", "hook_%0", 1) end
  local all, names = models.names(model, point, method), {}
  for i, layer in ipairs(models.positions(layers, #all, method, "layers")) do names[i] = all[layer] end
  return names
end

--- A list of functions copy(x, source): each returns x with a part of `source`: one position (of those in `positions`),
--- or, at the points of attention, one head (of those in `heads`) at these positions.
function places.of(name, x, positions, heads, method)
  local dims = HEADS[name:match "hook_([^.]*)$"]
  local along, across = dims and dims[1] or -2, dims and dims[2]
  if heads ~= nil and not dims then
    E.fail("%s: heads are given and the point is '%s'; it must be one with heads, such as z", method, name)
  end
  local function size(dim) return x.shape[x.ndim + 1 + dim] end
  local given = heads
  if not dims then given = positions end
  local rows = across and positions ~= nil and models.positions(positions, size(across), method)
  local list = {}
  for i, at in ipairs(models.positions(given, size(along), method, dims and "heads" or "positions")) do
    list[i] = function(into, source)
      into = into:clone()
      local to, from = into:narrow(along, at, 1), source:narrow(along, at, 1)
      if not rows then to:copy_(from) end
      for _, row in ipairs(rows or {}) do to:narrow(across, row, 1):copy_(from:narrow(across, row, 1)) end
      return into
    end
  end
  return list
end

return places
