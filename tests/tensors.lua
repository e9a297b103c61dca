-- Shared by the specs: making and comparing tensors and modules.
local assert = require "luassert"
local heed = require "heed"

local tensors = {}

function tensors.int64(list) return heed.tensor(list, { dtype = "int64" }) end

--- The tensor of a record of reference values: {data = a flat list, shape = …, dtype = … or nil for float32}.
function tensors.golden(record)
  return heed.tensor(record.data, { dtype = record.dtype or "float32" }):view(record.shape)
end

--- Shapes must be equal, and each element of `got` within atol + rtol · |wanted| of that of `wanted`. A nan or an inf
--- must meet the same value. atol is 1e-6 by default, rtol 0.
function tensors.close(wanted, got, atol, rtol)
  atol, rtol = atol or 1e-6, rtol or 0
  assert.are.equal(tostring(wanted.shape), tostring(got.shape))
  local a, b = wanted:flatten():tolist(), got:flatten():tolist()
  for i = 1, #a do
    local same = a[i] == b[i] or a[i] ~= a[i] and b[i] ~= b[i]
    local near = math.abs(a[i] - b[i]) <= atol + rtol * math.abs(a[i]) -- false if one of them is nan
    if not same and not near then
      error(("element %d is %.9g; it must be %.9g"):format(i, b[i], a[i]), 2)
    end
  end
end

--- The names that an iterator gives, joined by spaces: names_of(m:named_parameters()), names_of(heed.pairs(state)).
function tensors.names_of(...)
  local names = {}
  for name in ... do names[#names + 1] = name end
  return table.concat(names, " ")
end

--- A table with clones of the tensors of a state dict.
function tensors.copy_of(state)
  local copy = {}
  for name, tensor in heed.pairs(state) do copy[name] = tensor:clone() end
  return copy
end

--- A copy of a table with the fields of another.
function tensors.merged(base, more)
  local all = {}
  for name, value in pairs(base) do all[name] = value end
  for name, value in pairs(more or {}) do all[name] = value end
  return all
end

--- A small MultiHeadAttention for inputs [b, n, 6]; `more` changes its options.
tensors.SMALL = { d_in = 6, d_out = 8, context_length = 12, dropout = 0, num_heads = 4 }
function tensors.small_mha(more) return heed.nn.MultiHeadAttention(tensors.merged(tensors.SMALL, more)) end

return tensors
