--- How the tokens of a sequence are divided among ranks: into two chunks for each rank, of which rank r has chunk r and
--- chunk 2P + 1 - r. With causality, chunks that see little and chunks that see much then add up to the same work.
--- Sizes differ by at most one between chunks, and by at most one between ranks.

local core = require "heed.core"
local compat = require "heed.compat"

local division = {}

--- The chunk's tokens: how many are before it, and its size. Chunks that are one token longer are the first ones of
--- ranks 1, 2, …, then the second ones of ranks 1, 2, ….
local function chunk(n, ranks, c)
  local size = compat.divide(n, 2 * ranks)
  local longer = n - 2 * ranks * size
  local first = 3 * ranks + 1 - longer -- of the second ones that are longer
  local before = math.min(longer, c - 1, ranks) + (longer > ranks and math.max(c - math.max(first, ranks + 1), 0) or 0)
  local long = c <= longer and c <= ranks or longer > ranks and c >= first
  return (c - 1) * size + before, size + (long and 1 or 0)
end

--- A rank's segments of a sequence of n tokens: {first =, size =, at =}: how many tokens are before it, its size, and
--- how many are before it in the rank's shard. Chunks that touch are one segment, empty ones none.
function division.segments(n, ranks, rank)
  local list, at = {}, 0
  for _, c in ipairs { rank, 2 * ranks + 1 - rank } do
    local first, size = chunk(n, ranks, c)
    local last = list[#list]
    if last and last.first + last.size == first then
      last.size = last.size + size
    elseif size > 0 then
      list[#list + 1] = { first = first, size = size, at = at }
    end
    at = at + size
  end
  return list
end

--- How many tokens a rank has.
function division.count(n, ranks, rank)
  local _, low = chunk(n, ranks, rank)
  local _, high = chunk(n, ranks, 2 * ranks + 1 - rank)
  return low + high
end

--- The segments of a tensor's dimension joined: its shard.
function division.cut(x, dim, segments)
  local list = {}
  for i, each in ipairs(segments) do list[i] = x:narrow(dim, each.first + 1, each.size) end
  if #list == 0 then return x:narrow(dim, 1, 0) end
  return #list == 1 and list[1] or core.cat(list, dim)
end

--- The whole of a list of shards by rank.
function division.join(shards, dim, n)
  local pieces = {}
  for rank, shard in ipairs(shards) do
    for _, each in ipairs(division.segments(n, #shards, rank)) do
      pieces[#pieces + 1] = { first = each.first, x = shard:narrow(dim, each.at + 1, each.size) }
    end
  end
  table.sort(pieces, function(a, b) return a.first < b.first end)
  local list = {}
  for i, piece in ipairs(pieces) do list[i] = piece.x end
  if #list == 0 then return shards[1]:narrow(dim, 1, 0) end
  return core.cat(list, dim)
end

--- The positions of a rank's tokens, int64, from 1.
function division.positions(n, ranks, rank)
  local list = {}
  for i, each in ipairs(division.segments(n, ranks, rank)) do
    list[i] = core.range(each.first + 1, each.first + each.size, { dtype = "int64" })
  end
  if #list == 0 then return core.zeros({ 0 }, { dtype = "int64" }) end
  return #list == 1 and list[1] or core.cat(list, 1)
end

return division
