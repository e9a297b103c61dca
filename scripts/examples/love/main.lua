-- Attention drawn live, in LÖVE: 600 fish attend to each other while they swim. A click chooses a fish, 1 to 4
-- a head. The forward pass runs in slices of a few milliseconds of each frame, so that no frame waits for it.
--   make LUA=luajit && love scripts/examples/love
local BUDGET = tonumber(os.getenv "HEED_BUDGET") or 2 -- milliseconds of each frame

local here = love.filesystem.getSource()
package.cpath = here .. "/../../../build/luajit/?.so;" .. package.cpath
local has_heed, problem = pcall(require, "heed")
local scenes = has_heed and require "scene"

local COLOURS = { { 1.00, 0.48, 0.40 }, { 1.00, 0.78, 0.34 }, { 0.22, 0.80, 0.75 }, { 0.66, 0.55, 1.00 } }
local BACK, PANEL, LINE = { 0.035, 0.050, 0.085 }, { 0.060, 0.080, 0.125 }, { 0.15, 0.19, 0.27 }
local TEXT, FAINT, GLOW = { 0.93, 0.95, 0.98 }, { 0.55, 0.61, 0.71 }, { 1, 0.96, 0.80 }
local WIDE, MARGIN = 320, 24 -- of the panel
local SHOWN = 8 -- weights in the panel's list

local game = { query = 1, head = 1, paused = false, budget = BUDGET, thoughts = 0, frames = 0 }
local fonts = {}

-- ---- Weights ------------------------------------------------------------------------------------

local function begin_thought() game.thought = scenes.think(game.scene, game.query, game.head) end

local function entropy(weights)
  local sum = 0
  for _, weight in ipairs(weights) do
    if weight > 0 then sum = sum - weight * math.log(weight) end
  end
  return sum
end

local function take_result()
  local thought = game.thought
  local weights, x, y = thought.finish()
  local order = {}
  for i in ipairs(weights) do order[i] = i end
  table.sort(order, function(a, b) return weights[a] > weights[b] end)
  game.shown = {
    query = thought.query, head = thought.head, weights = weights, order = order, x = x, y = y,
    slices = thought.slices, spread = math.exp(entropy(weights)),
  }
  game.thoughts = game.thoughts + 1
end

--- Another query or head: the thought that is under way is of no more use.
local function choose(query, head)
  game.query, game.head = query, (head - 1) % #scenes.HEADS + 1
  begin_thought()
end

-- ---- LÖVE's functions ----------------------------------------------------------------------------

function love.load()
  for name, size in pairs { title = 26, normal = 15, small = 12 } do fonts[name] = love.graphics.newFont(size) end
  if not has_heed then return end
  game.scene = scenes.new(scenes.COUNT, (love.graphics.getWidth() - WIDE) / love.graphics.getHeight())
  choose(17, 1)
end

function love.update(dt)
  if not has_heed then return end
  if not game.paused then scenes.move(game.scene, math.min(dt, 1 / 20)) end
  game.frames = game.frames + 1
  if game.thought.advance(game.budget) then
    take_result()
    begin_thought()
  end
end

function love.keypressed(key)
  if key == "escape" then love.event.quit() end
  if not has_heed then return end
  if tonumber(key) and scenes.HEADS[tonumber(key)] then choose(game.query, tonumber(key)) end
  if key == "tab" then choose(game.query, game.head + 1) end
  if key == "left" then choose((game.query - 2) % scenes.COUNT + 1, game.head) end
  if key == "right" then choose(game.query % scenes.COUNT + 1, game.head) end
  if key == "up" then game.budget = math.min(game.budget + 0.5, 8) end
  if key == "down" then game.budget = math.max(game.budget - 0.5, 0) end
  if key == "space" then game.paused = not game.paused end
end

local function scale() return love.graphics.getHeight() end

function love.mousepressed(x, y)
  if not has_heed then return end
  local left = love.graphics.getWidth() - WIDE
  if x >= left then -- one of the heads in the panel
    local head = math.floor((y - 112) / 52) + 1
    if scenes.HEADS[head] then choose(game.query, head) end
    return
  end
  local best, nearest = math.huge, game.query
  for i, fish in ipairs(game.scene.fish) do
    local distance = (fish.x * scale() - x) ^ 2 + (fish.y * scale() - y) ^ 2
    if distance < best then best, nearest = distance, i end
  end
  choose(nearest, game.head)
end

-- ---- Drawing ------------------------------------------------------------------------------------

local function colour(c, alpha) love.graphics.setColor(c[1], c[2], c[3], alpha or 1) end

local function write(text, font, c, x, y, width, align)
  colour(c)
  love.graphics.setFont(fonts[font])
  love.graphics.printf(text, x, y, width or 1000, align or "left")
end

local function draw_fish(fish, strength)
  local size = 7 + 6 * strength
  love.graphics.push()
  love.graphics.translate(fish.x * scale(), fish.y * scale())
  love.graphics.rotate(fish.angle)
  if strength > 0.15 then
    colour(COLOURS[fish.colour], 0.13 * strength)
    love.graphics.circle("fill", 0, 0, 1.9 * size)
  end
  colour(COLOURS[fish.colour], 0.36 + 0.64 * strength)
  love.graphics.polygon("fill", size, 0, -0.7 * size, 0.5 * size, -0.35 * size, 0, -0.7 * size, -0.5 * size)
  love.graphics.pop()
end

local function draw_scene()
  local shown, fish = game.shown, game.scene.fish
  local most = shown and shown.weights[shown.order[1]] or 1
  local from = fish[shown and shown.query or game.query]
  local function strength(i) return shown and math.sqrt(shown.weights[i] / most) or 0 end
  for i, each in ipairs(fish) do -- rays under the fish
    local s = strength(i)
    if s > 0.12 then
      colour(GLOW, 0.55 * s ^ 1.5)
      love.graphics.setLineWidth(0.6 + 2.2 * s)
      love.graphics.line(from.x * scale(), from.y * scale(), each.x * scale(), each.y * scale())
    end
  end
  for i, each in ipairs(fish) do
    if each ~= from then draw_fish(each, strength(i)) end
  end
  draw_fish(from, 1)
  colour(TEXT)
  love.graphics.setLineWidth(2)
  love.graphics.circle("line", from.x * scale(), from.y * scale(), 19)
  if shown then -- the place that the head reads
    local x, y = shown.x * scale(), shown.y * scale()
    colour(GLOW)
    love.graphics.setLineWidth(1.5)
    love.graphics.line(x - 11, y, x + 11, y)
    love.graphics.line(x, y - 11, x, y + 11)
    love.graphics.circle("line", x, y, 6)
  end
end

local function draw_heads(left, width)
  for i, head in ipairs(scenes.HEADS) do
    local y = 112 + 52 * (i - 1)
    local chosen = i == game.head
    colour(chosen and LINE or PANEL)
    love.graphics.rectangle("fill", left - 10, y, width + 20, 46, 8)
    if chosen then
      colour(GLOW)
      love.graphics.rectangle("fill", left - 10, y + 8, 3, 30, 1.5)
    end
    write(tostring(i), "normal", chosen and GLOW or FAINT, left + 4, y + 14)
    write(head.name, "normal", chosen and TEXT or FAINT, left + 30, y + 5)
    write(head.question, "small", FAINT, left + 30, y + 25)
  end
end

local function draw_weights(left, width, top)
  local shown = game.shown
  write("largest weights, then the sum of the rest", "small", FAINT, left, top)
  local rest, most = 1, math.max(shown.weights[shown.order[1]], 1e-9)
  local function bar(row, c, weight)
    local y = top + 22 + 19 * row
    colour(LINE)
    love.graphics.rectangle("fill", left, y + 3, width - 62, 9, 4)
    colour(c)
    love.graphics.rectangle("fill", left, y + 3, math.max(math.min(weight / most, 1) * (width - 62), 3), 9, 4)
    write(("%.3f"):format(weight), "small", TEXT, left, y, width, "right")
  end
  for row = 1, SHOWN do
    local i = shown.order[row]
    rest = rest - shown.weights[i]
    bar(row - 1, COLOURS[game.scene.fish[i].colour], shown.weights[i])
  end
  bar(SHOWN, FAINT, math.max(rest, 0))
end

local function draw_panel()
  local left = love.graphics.getWidth() - WIDE
  colour(PANEL)
  love.graphics.rectangle("fill", left, 0, WIDE, love.graphics.getHeight())
  colour(LINE)
  love.graphics.rectangle("fill", left, 0, 1, love.graphics.getHeight())
  left = left + MARGIN
  local width, shown = WIDE - 2 * MARGIN, game.shown
  write("Attention, live", "title", TEXT, left, 26)
  write(("%d fish, each a token of 10 numbers"):format(scenes.COUNT), "small", FAINT, left, 62)
  write("which head?", "small", FAINT, left, 92)
  draw_heads(left, width)
  if shown then
    draw_weights(left, width, 336)
    write(("as wide as %.1f equal weights"):format(shown.spread), "small", FAINT, left, 536)
    write(("%.1f ms of each frame for heed:\na forward pass takes %d frame%s"):format(game.budget, shown.slices,
      shown.slices == 1 and "" or "s"), "small", FAINT, left, 558)
  end
  write("click, left, right: another fish\n1 2 3 4, tab: another head\nup, down: milliseconds of a frame\nspace: " ..
    (game.paused and "go on" or "pause"), "small", FAINT, left, love.graphics.getHeight() - 96)
end

function love.draw()
  love.graphics.clear(BACK)
  if not has_heed then
    write("heed.so for LuaJIT is not found", "title", TEXT, 60, 60)
    write("Build it in heed's folder with\n\n    make LUA=luajit\n\nand start again, or set LUA_CPATH to its path.\n\n"
      .. tostring(problem), "normal", FAINT, 60, 110, love.graphics.getWidth() - 120)
    return
  end
  draw_scene()
  draw_panel()
end

return game
