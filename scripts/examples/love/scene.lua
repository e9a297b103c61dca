-- A scene that attends to itself: fish that swim, each a token of ten numbers, and an attention with four heads whose
-- weights are set by hand, so that each head answers a question that one can see.
local heed = require "heed"

local M = {}

M.COUNT = 600
M.HEADS = {
  { name = "near", question = "who is close to me?" },
  { name = "kin", question = "who has my colour?" },
  { name = "heading", question = "who swims in my direction?" },
  { name = "ahead", question = "who is in front of me?" },
}

-- A fish's numbers: place, its square, direction, four that are 1 for its colour, and 1.
local X, Y, SQUARE, VX, VY, COLOUR, ONE, SIZE = 1, 2, 3, 4, 5, 6, 10, 10
local HEAD = 4 -- numbers of a query, a key and a value
local SHARP, REACH = 220, 0.25 -- in units of the scene's height

-- The rows of a matrix from entries { row, column, value }.
local function matrix(entries)
  local rows = {}
  for i = 1, #M.HEADS * HEAD do
    rows[i] = {}
    for j = 1, SIZE do rows[i][j] = 0 end
  end
  for _, entry in ipairs(entries) do rows[entry[1]][entry[2]] = entry[3] end
  return heed.tensor(rows)
end

--- The attention. A score is the product of a query and a key; scale is 1, so these are the scores:
---   near     -SHARP |p - p'|², without what is the same for all keys: SHARP (2 p·p' - |p'|²)
---   kin      4 if the colours are equal
---   heading  6 times the cosine of the directions
---   ahead    as near, from a point in front: p + REACH v instead of p
--- Values are places, so that the result of a head is the place that it reads on average.
local function make_attention(count)
  local near, kin, heading, ahead = 0, HEAD, 2 * HEAD, 3 * HEAD
  local query, key, value = {}, {}, {}
  local function add(list, row, column, number) list[#list + 1] = { row, column, number } end
  for _, head in ipairs { near, ahead } do
    for i, column in ipairs { X, Y } do
      add(query, head + i, column, 2 * SHARP)
      add(key, head + i, column, 1)
    end
    add(query, head + 3, ONE, -SHARP)
    add(key, head + 3, SQUARE, 1)
  end
  add(query, ahead + 1, VX, 2 * SHARP * REACH)
  add(query, ahead + 2, VY, 2 * SHARP * REACH)
  for i = 1, 4 do
    add(query, kin + i, COLOUR + i - 1, 4)
    add(key, kin + i, COLOUR + i - 1, 1)
  end
  for i, column in ipairs { VX, VY } do
    add(query, heading + i, column, 6)
    add(key, heading + i, column, 1)
  end
  for head = 0, #M.HEADS - 1 do
    add(value, head * HEAD + 1, X, 1)
    add(value, head * HEAD + 2, Y, 1)
  end
  local attention = heed.nn.MultiHeadAttention {
    d_in = SIZE, d_out = #M.HEADS * HEAD, num_heads = #M.HEADS, context_length = count, dropout = 0, scale = 1,
    causal = false, out_proj = false,
  }
  assert(attention:load_state_dict {
    ["W_query.weight"] = matrix(query), ["W_key.weight"] = matrix(key), ["W_value.weight"] = matrix(value),
  })
  return attention:eval()
end

--- A scene of `count` fish in a space of `width` × `height`, in units of its height.
function M.new(count, width)
  local self = { fish = {}, width = width, height = 1, time = 0 }
  local random = love.math.newRandomGenerator(7)
  for i = 1, count do
    self.fish[i] = {
      x = width * random:random(), y = random:random(), angle = 2 * math.pi * random:random(),
      colour = random:random(4), speed = 0.03 + 0.05 * random:random(), seed = 100 * random:random(),
    }
  end
  self.attention = make_attention(count)
  self.others = heed.eye(count):eq(0) -- the mask: nobody attends to itself
  return self
end

--- Moves all fish by dt seconds: a smooth, random change of direction, and away from the walls.
function M.move(self, dt)
  self.time = self.time + dt
  for _, fish in ipairs(self.fish) do
    fish.angle = fish.angle + (love.math.noise(fish.seed, 0.3 * self.time) - 0.5) * 3 * dt
    local vx, vy = math.cos(fish.angle), math.sin(fish.angle)
    fish.x, fish.y = fish.x + vx * fish.speed * dt, fish.y + vy * fish.speed * dt
    if fish.x < 0.02 then vx = math.abs(vx) elseif fish.x > self.width - 0.02 then vx = -math.abs(vx) end
    if fish.y < 0.02 then vy = math.abs(vy) elseif fish.y > 0.98 then vy = -math.abs(vy) end
    fish.angle = math.atan2(vy, vx)
  end
end

--- Begins a forward pass over the fish as they are now, for one query. advance(milliseconds) of the object that it
--- returns runs a slice of it; finish() then gives the head's weights, one for each fish, and the place that it reads.
function M.think(self, query, head)
  local rows = {}
  for i, fish in ipairs(self.fish) do
    local row = { fish.x, fish.y, fish.x ^ 2 + fish.y ^ 2, math.cos(fish.angle), math.sin(fish.angle), 0, 0, 0, 0, 1 }
    row[COLOUR + fish.colour - 1] = 1
    rows[i] = row
  end
  local steps = self.attention:steps(heed.tensor(rows), {
    attn_mask = self.others, need_weights = { "weights", heads = { head }, queries = { query, query } },
  })
  local thought = { query = query, head = head, slices = 0 }
  function thought.advance(ms)
    local done, total = steps:advance(ms)
    thought.slices = thought.slices + 1
    return done == total
  end
  function thought.finish()
    local place = steps.result[query]:tolist()
    local weights = steps.info.weights:flatten():tolist()
    steps:release()
    return weights, place[(head - 1) * HEAD + 1], place[(head - 1) * HEAD + 2]
  end
  return thought
end

return M
