--- Products of tensors, composed of other operations.

local E = require "heed.nn.entries"

local products = {}

--- outer(a, b): a [n] and b [m] give [n, m], the products of all pairs.
function products.outer(a, b)
  E.check_operand(a, "outer", "a", 1)
  E.check_operand(b, "outer", "b", 1)
  return a:unsqueeze(2) * b
end

return E.with_frames(products)
