-- For specs of sequences of different lengths, one after another.
local sequences = {}

function sequences.sum(lengths)
  local total = 0
  for _, n in ipairs(lengths) do total = total + n end
  return total
end

--- Calls f(i, first query, first key) for each sequence that is not empty.
function sequences.each(lengths, keys, f)
  local query, key = 1, 1
  for i, n in ipairs(lengths) do
    if n > 0 then f(i, query, key) end
    query, key = query + n, key + keys[i]
  end
end

return sequences
