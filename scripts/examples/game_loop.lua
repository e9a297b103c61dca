-- A game with sixty frames a second that runs a forward pass of 1024 tokens × 768 in the remaining time of the frames.
--   heed game_loop.lua [frames]   (300)
local heed = require "heed"

local FRAME, GAME, SPARE = 1 / 60, 0.006, 0.002 -- seconds: a frame, the game's own work in it, spare time
local frames = tonumber(arg and arg[1] or 300)
if not frames or frames < 1 or frames % 1 ~= 0 then error("game_loop: frames must be a number from 1 up", 0) end

-- Represents the game's own work and the wait for the next frame (Lua cannot sleep).
local function work_until(moment)
  while heed.clock() < moment do end
end

heed.manual_seed(1)
local brain = heed.nn.MultiHeadAttention(768, 768, 1024, 0.0, 12):eval()
local view = heed.randn(1024, 768)
local thought = brain:steps(view)

local worst, late, thoughts, began, waited, slices = 0, 0, 0, 1, 0, 0
local start = heed.clock()
for frame = 1, frames do
  local frame_start = heed.clock()
  work_until(frame_start + GAME)
  local left = start + frame * FRAME - SPARE - heed.clock()
  if left > 0 then
    local done, total = thought:advance(left * 1000)
    slices = slices + 1
    if done == total then -- the game would use thought.result here
      thoughts, waited, began = thoughts + 1, waited + frame - began + 1, frame + 1
      thought:release()
      thought = brain:steps(view)
    end
  end
  local taken = heed.clock() - frame_start
  worst, late = math.max(worst, taken), late + (taken > FRAME and 1 or 0)
  work_until(start + frame * FRAME)
end

print(("%d frames in %.2f s; the game and its slice took %.2f ms in the worst one, of %.2f; %d were late"):format(
  frames, heed.clock() - start, worst * 1000, FRAME * 1000, late))
if thoughts > 0 then
  print(("%d forwards of 1024 × 768, each in %.1f frames"):format(thoughts, waited / thoughts))
else
  print(("no forward of 1024 × 768 came to its end in %d slices"):format(slices))
end
