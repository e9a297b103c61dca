--- meshgrid.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"

local grids = {}

local OPTIONS = { "indexing" }

--- meshgrid(tensors…, {indexing = "ij"}): a list of views of one shape, with tensor i along dimension i. "xy"
--- exchanges the first two dimensions.
function grids.meshgrid(...)
  local given = { n = select("#", ...), ... }
  local indexing
  if given.n > 1 and type(given[given.n]) == "table" then
    indexing = A.options("meshgrid", OPTIONS, 1, given[given.n])
    given.n = given.n - 1
  end
  if indexing == nil then indexing = "ij" end
  if indexing ~= "ij" and indexing ~= "xy" then E.reject("meshgrid", "indexing", indexing, "'ij' or 'xy'") end
  local list, count = A.tensors(given, "meshgrid")
  if count > A.MAX_DIMS then
    E.fail("meshgrid: %d tensors are given; a tensor has at most %d dimensions", count, A.MAX_DIMS)
  end
  local shape, swapped = {}, indexing == "xy" and count > 1
  for i = 1, count do
    if list[i].ndim > 1 then
      E.reject("meshgrid", ("tensors[%d]"):format(i), list[i], "a tensor of at most 1 dimension")
    end
    if list[i].dtype ~= list[1].dtype then
      E.fail("meshgrid: tensors[%d] is %s and the first is %s; the dtypes must be equal", i, list[i].dtype,
        list[1].dtype)
    end
    shape[i] = list[i]:numel()
  end
  if swapped then shape[1], shape[2] = shape[2], shape[1] end
  local result = {}
  for i = 1, count do
    local own = {}
    for d = 1, count do own[d] = 1 end
    own[swapped and i <= 2 and 3 - i or i] = list[i]:numel()
    result[i] = list[i]:view(own):expand(shape)
  end
  return result
end

return E.with_frames(grids)
