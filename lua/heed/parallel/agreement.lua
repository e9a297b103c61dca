--- How many tokens all ranks have, from the numbers of each. Every rank finds the same mistakes.

local core = require "heed.core"
local division = require "heed.parallel.division"
local E = require "heed.nn.entries"

local agreement = {}

--- What a rank sends about a tensor: the tokens in a dimension, and how many elements belong to each.
function agreement.of(name, x, dim)
  local elements = 1
  for d = 1, x.ndim do elements = elements * (d == dim and 1 or x.shape[d]) end
  return { name = name, count = x.shape[dim], elements = elements }
end

--- A setting as a number; equal settings have equal ones.
local function number_of(value)
  local text, sum = type(value) == "number" and ("%.17g"):format(value) or tostring(value or nil), 0
  for i = 1, #text do sum = (sum * 257 + text:byte(i)) % 2 ^ 40 end
  return sum
end

--- The numbers of tokens of all ranks, for a list of {name =, count =, elements =}: one gather. Raises, as the function
--- `method`, unless each rank has the shard that belongs to it, and other sizes and the settings {name, value}, if they
--- are given, are the same.
function agreement.totals(link, method, list, settings)
  local mine, totals = {}, {}
  for i, each in ipairs(list) do
    mine[2 * i - 1], mine[2 * i], totals[i] = each.count, each.elements, 0
  end
  for i, setting in ipairs(settings or {}) do mine[2 * #list + i] = number_of(setting[2]) end
  local all = link.gather(core.tensor(mine, { dtype = "int64" }))
  for rank, row in ipairs(all) do
    all[rank] = row:tolist()
    for i = 1, #list do totals[i] = totals[i] + all[rank][2 * i - 1] end
  end
  for i, each in ipairs(list) do
    for rank, row in ipairs(all) do
      local needed = division.count(totals[i], link.size, rank)
      if row[2 * i - 1] ~= needed then
        E.fail("%s: %s has %s on rank %d, and %d on all ranks; cut by shard(x, dim) it would have %d there", method,
          each.name, E.count(row[2 * i - 1], "token"), rank, totals[i], needed)
      end
      if row[2 * i] ~= each.elements then
        E.fail("%s: %s has %s for each token here, and %d on rank %d; the other sizes must be the same", method,
          each.name, E.count(each.elements, "element"), row[2 * i], rank)
      end
    end
  end
  for i, setting in ipairs(settings or {}) do
    for rank, told in ipairs(all) do
      if told[2 * #list + i] ~= mine[2 * #list + i] then
        E.fail("%s: %s is %s here, and has another value on rank %d; it must be the same on all ranks", method,
          setting[1], tostring(setting[2]), rank)
      end
    end
  end
  return totals
end

return agreement
