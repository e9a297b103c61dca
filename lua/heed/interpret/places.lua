--- Where activations are patched, or attributed to: positions of the residual stream, or heads of attention.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local core = require "heed.core"
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

--- Raises unless the activations of both texts have the same shape.
function places.check_same(name, clean, corrupted, method)
  if A.text(clean.shape) == A.text(corrupted.shape) then return end
  E.fail("%s: '%s' is %s for clean_ids and %s for corrupted_ids; both must have the same number of tokens", method,
    name, A.text(clean.shape), A.text(corrupted.shape))
end

--- Raises if the metrics of both texts are equal, so that no scale leads from one to the other.
function places.check_distinct(clean, corrupted, method)
  if clean ~= corrupted then return end
  E.fail("%s: metric is %.6g for clean_ids and corrupted_ids; it must differ if normalized is true", method, clean)
end

--- What is patched of x: the dimension that the places count, the places in it, and, if only some positions of a head
--- are patched, their dimension and positions.
local function chosen(name, x, positions, heads, method)
  local dims = HEADS[name:match "hook_([^.]*)$"]
  local along, across = dims and dims[1] or -2, dims and dims[2]
  if heads ~= nil and not dims then
    E.fail("%s: heads are given and the point is '%s'; it must be one with heads, such as z", method, name)
  end
  local function size(dim) return x.shape[x.ndim + 1 + dim] end
  local given = heads
  if not dims then given = positions end
  local rows = across and positions ~= nil and models.positions(positions, size(across), method) or nil
  return along, models.positions(given, size(along), method, dims and "heads" or "positions"), across, rows
end

--- A list of functions copy(x, source): each returns x with a part of `source`: one position (of those in `positions`),
--- or, at the points of attention, one head (of those in `heads`) at these positions.
function places.of(name, x, positions, heads, method)
  local along, at, across, rows = chosen(name, x, positions, heads, method)
  local list = {}
  for i, each in ipairs(at) do
    list[i] = function(into, source)
      into = into:clone()
      local to, from = into:narrow(along, each, 1), source:narrow(along, each, 1)
      if not rows then to:copy_(from) end
      for _, row in ipairs(rows or {}) do to:narrow(across, row, 1):copy_(from:narrow(across, row, 1)) end
      return into
    end
  end
  return list
end

local function indices(list) return core.tensor(list, { dtype = "int64" }) end

--- The sum of x over each of these places: [places].
function places.sums(name, x, positions, heads, method)
  local along, at, across, rows = chosen(name, x, positions, heads, method)
  if rows then x = x:index_select(across, indices(rows)) end
  x = x:index_select(along, indices(at)):movedim(along, 1)
  return x:reshape(#at, -1):sum(2)
end

return places
