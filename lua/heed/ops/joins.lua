--- PyTorch's other names for joining: hstack, vstack, dstack, column_stack.

local A = require "heed.ops.arguments"
local E = require "heed.nn.entries"
local core = require "heed.core"

local joins = {}

-- The views that are joined.
local function at_least_1d(x) return x.ndim == 0 and x:unsqueeze(1) or x end
local function at_least_2d(x) return x.ndim < 2 and at_least_1d(x):unsqueeze(1) or x end
local function at_least_3d(x) return x.ndim < 3 and at_least_2d(x):unsqueeze(3) or x end
local function as_column(x) return x.ndim < 2 and at_least_1d(x):unsqueeze(2) or x end

local function join(method, each, dim_of, ...)
  local list, count = A.tensors({ n = select("#", ...), ... }, method)
  local views = {}
  for i = 1, count do
    if i % 1024 == 0 then E.check_cancel(method) end
    views[i] = each(list[i])
  end
  return core.cat(views, dim_of(views[1]))
end

local function first() return 1 end
local function second() return 2 end
local function third() return 3 end

--- hstack(tensors): along dimension 2; tensors of one dimension along that.
function joins.hstack(...)
  return join("hstack", at_least_1d, function(x) return x.ndim == 1 and 1 or 2 end, ...)
end

--- vstack(tensors): along dimension 1; tensors of one dimension become rows.
function joins.vstack(...) return join("vstack", at_least_2d, first, ...) end

--- dstack(tensors): along dimension 3, after [n] became [1, n, 1] and [n, m] became [n, m, 1].
function joins.dstack(...) return join("dstack", at_least_3d, third, ...) end

--- column_stack(tensors): along dimension 2; tensors of one dimension become columns.
function joins.column_stack(...) return join("column_stack", as_column, second, ...) end

return E.with_frames(joins)
