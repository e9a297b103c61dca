-- Tests scripts/examples/love: plays it with keys and the mouse, checks what it computes and, in a screenshot, what it
-- draws. Ends with "N passed, N failed". LÖVE runs it in a display:
--   love tests/love
-- In the environment: MODULE, the pattern for package.cpath with heed.so for LuaJIT; PICTURE, a file for a screenshot.

function love.errorhandler(problem)
  io.stdout:write(debug.traceback(problem, 2), "\n0 passed, 1 failed\n")
  io.stdout:flush()
  os.exit(1)
end

local example = love.filesystem.getSource() .. "/../../scripts/examples/love/"
package.path = example .. "?.lua;" .. package.path
package.cpath = os.getenv "MODULE" .. ";" .. package.cpath
love.filesystem.getSource = function() return example end
local game = assert(loadfile(example .. "main.lua"))()
local heed, scenes = require "heed", require "scene"
local update, draw = love.update, love.draw

local passed, failed, picture = 0, 0, nil
local function out(...) io.stdout:write(string.format(...), "\n") end

-- ---- Steps of the test: a coroutine that yields once for each frame ---------------------------------

local function frames(n) for _ = 1, n do coroutine.yield() end end

-- Waits until another result is shown, for at most 2000 frames; returns their number.
local function next_result()
  local before, count = game.thoughts, 0
  while game.thoughts == before do
    coroutine.yield()
    count = count + 1
    assert(count < 2000, "no result after 2000 frames")
  end
  return count
end

-- The weights of the shown head by a plain softmax of the scores as scene.lua explains them.
local function expected(query, head)
  local fish, scores, sum = game.scene.fish, {}, 0
  local from = fish[query]
  local vx, vy = math.cos(from.angle), math.sin(from.angle)
  for i, to in ipairs(fish) do
    local reach = head == 4 and 0.25 or 0
    local x, y = from.x + reach * vx, from.y + reach * vy
    local score = -220 * ((x - to.x) ^ 2 + (y - to.y) ^ 2)
    if head == 2 then score = from.colour == to.colour and 4 or 0 end
    if head == 3 then score = 6 * math.cos(from.angle - to.angle) end
    scores[i] = i == query and 0 or math.exp(score)
    sum = sum + scores[i]
  end
  for i in ipairs(scores) do scores[i] = scores[i] / sum end
  return scores
end

local tests = {
  { "each head gives the weights that its question describes", function()
    game.paused = true
    for head = 1, #scenes.HEADS do
      love.keypressed(tostring(head))
      next_result()
      assert(game.shown.head == head)
      local wanted, x, y = expected(game.query, head), 0, 0
      for i, weight in ipairs(wanted) do
        local got = game.shown.weights[i]
        assert(math.abs(weight - got) < 1e-4, ("head %d, fish %d: %g, expected %g"):format(head, i, got, weight))
        x, y = x + weight * game.scene.fish[i].x, y + weight * game.scene.fish[i].y
      end
      assert(math.abs(game.shown.x - x) < 1e-3 and math.abs(game.shown.y - y) < 1e-3, "the place that the head reads")
    end
  end },
  { "keys and clicks choose fish, head and budget", function()
    game.paused = false
    love.keypressed "tab"
    assert(game.head == 1)
    love.keypressed "right"
    assert(game.query == 18)
    love.keypressed "left"
    love.keypressed "left"
    assert(game.query == 16)
    local fish = game.scene.fish[200]
    love.mousepressed(fish.x * love.graphics.getHeight(), fish.y * love.graphics.getHeight())
    assert(game.query == 200)
    love.mousepressed(love.graphics.getWidth() - 100, 112 + 52 + 20)
    assert(game.head == 2 and game.query == 200)
    love.mousepressed(love.graphics.getWidth() - 100, love.graphics.getHeight() - 5)
    love.keypressed "x"
    assert(game.head == 2 and game.query == 200)
    for _ = 1, 40 do love.keypressed "up" end
    assert(game.budget == 8)
    for _ = 1, 40 do love.keypressed "down" end
    assert(game.budget == 0)
    love.keypressed "space"
    assert(game.paused)
    love.keypressed "space"
  end },
  { "with a budget of 0 ms a forward pass takes many frames, which go on meanwhile", function()
    love.keypressed "1"
    local x = game.scene.fish[1].x
    local count = next_result()
    assert(count > 3, ("only %d frames"):format(count))
    assert(game.shown.slices == count, "one slice for each frame")
    assert(game.scene.fish[1].x ~= x, "the fish stand still")
    out("  %d frames for a forward pass", count)
  end },
  { "the fish stay in the water for ten minutes", function()
    for _ = 1, 10 * 60 * 20 do scenes.move(game.scene, 1 / 20) end
    for i, fish in ipairs(game.scene.fish) do
      assert(fish.x > -0.05 and fish.x < game.scene.width + 0.05 and fish.y > -0.05 and fish.y < 1.05, i)
    end
  end },
  { "memory does not grow", function()
    game.budget = 8
    local function used()
      collectgarbage()
      collectgarbage()
      return heed.info().memory_in_use
    end
    for _ = 1, 5 do next_result() end
    local before = used()
    for _ = 1, 30 do next_result() end
    assert(used() <= before + 64 * 1024, ("%d bytes, then %d"):format(before, used()))
  end },
  { "the picture shows the fish in four colours, rays, the panel and its texts", function()
    love.keypressed "1"
    game.paused = true
    next_result()
    frames(2)
    love.graphics.captureScreenshot(function(image) picture = image end)
    while not picture do coroutine.yield() end
    local path = os.getenv "PICTURE"
    if path then
      local file = assert(io.open(path, "wb"))
      file:write(picture:encode("png"):getString())
      file:close()
    end
    -- Counts pixels by what they show: bright ones of each of the fish's hues, text, the dark water.
    local hues, water, text, all = { 0, 0, 0, 0 }, 0, 0, picture:getWidth() * picture:getHeight()
    local panel = picture:getWidth() * (1 - 320 / love.graphics.getWidth())
    for y = 0, picture:getHeight() - 1 do
      for x = 0, picture:getWidth() - 1 do
        local r, g, b = picture:getPixel(x, y)
        local most, least = math.max(r, g, b), math.min(r, g, b)
        if most < 0.12 then water = water + 1 end
        if x > panel and least > 0.7 then text = text + 1 end
        if x < panel and most > 0.5 and most - least > 0.25 then
          local hue = r == most and (g > 0.62 * r and 2 or 1) or g == most and 3 or 4
          hues[hue] = hues[hue] + 1
        end
      end
    end
    out("  pixels: water %d, text %d, hues %s", water, text, table.concat(hues, " "))
    assert(water > 0.4 * all and water < 0.97 * all, "water")
    assert(text > 300 and text < 0.1 * all, "text")
    for i, count in ipairs(hues) do assert(count > 100, ("hue %d"):format(i)) end
    -- The ring of the query, all around it.
    local fish, found = game.scene.fish[game.query], 0
    local size = picture:getHeight()
    for step = 0, 35 do
      local bright = 0
      for radius = 16, 22 do
        local x, y = fish.x * size + radius * math.cos(step / 36 * 2 * math.pi), fish.y * size + radius * math.sin(step
          / 36 * 2 * math.pi)
        if x >= 0 and y >= 0 and x < picture:getWidth() and y < size then
          bright = math.max(bright, (picture:getPixel(math.floor(x), math.floor(y))))
        end
      end
      if bright > 0.6 then found = found + 1 end
    end
    assert(found >= 24, ("%d of 36 points of the ring"):format(found))
  end },
}

local function run()
  for _, test in ipairs(tests) do
    local thread, fine, why = coroutine.create(test[2]), true, nil
    while fine and coroutine.status(thread) ~= "dead" do
      fine, why = coroutine.resume(thread)
      if fine and coroutine.status(thread) ~= "dead" then coroutine.yield() end
    end
    if fine then passed = passed + 1 else failed = failed + 1 end
    out("%s: %s", test[1], fine and "passed" or "FAILED\n" .. debug.traceback(thread, tostring(why)))
  end
  out("%d passed, %d failed", passed, failed)
  love.event.quit(failed == 0 and passed > 0 and 0 or 1)
end

local body = coroutine.create(run)
function love.update()
  update(1 / 60)
  if coroutine.status(body) ~= "dead" then assert(coroutine.resume(body)) end
end
love.draw = draw
