-- A character in a game speaks: a model generates its line in slices of 2 ms in each of sixty frames a second.
--   heed npc.lua [FRAMES] [FOLDER]   (300, and the tests' small Llama, whose words have no meaning)
local heed = require "heed"

local FRAME, GAME, SLICE = 1 / 60, 0.006, 0.002 -- seconds: a frame, the game's own work in it, the character's share
local frames = tonumber(arg and arg[1] or 300)
if not frames or frames < 1 or frames % 1 ~= 0 then error("npc: frames must be a number from 1 up", 0) end

local top = arg[0]:match "^(.*/)scripts/examples/[^/]*$" or ""
local Llama = require "heed.models.llama"
local model, problem
if arg[2] then
  model, problem = Llama.load(arg[2])
else
  model, problem = Llama.load(top .. "tests/golden/tiny_llama.safetensors", {
    vocab_size = 197, hidden_size = 64, intermediate_size = 112, num_hidden_layers = 3, num_attention_heads = 8,
    num_key_value_heads = 2, max_position_embeddings = 128,
  })
end
if not model then error("npc: " .. problem, 0) end

-- Represents the game's own work and the wait for the next frame (Lua cannot sleep).
local function work_until(moment)
  while heed.clock() < moment do end
end

-- What the player says, as ids: the tests' model has printable ASCII characters as its first tokens.
local heard = {}
for i, byte in ipairs { ("Where is the key?"):byte(1, -1) } do heard[i] = byte - 31 end

local words, said, sentences, tokens = {}, nil, 0, 0
local function speak()
  return model:generate_steps(heard, {
    max_new_tokens = 24, temperature = 0.8, min_p = 0.05, generator = heed.Generator(sentences + 1),
    on_token = function(id)
      tokens = tokens + 1
      words[#words + 1] = id <= 95 and string.char(id + 31) or "·"
    end,
  })
end

local speech = speak()
local worst, worst_slice, late = 0, 0, 0
local start = heed.clock()
for frame = 1, frames do
  local frame_start = heed.clock()
  work_until(frame_start + GAME)
  local slice_start = heed.clock()
  if speech:advance(SLICE * 1000) then -- the line is complete; the character thinks of another one
    said, sentences, words = table.concat(words), sentences + 1, {}
    speech = speak()
  end
  local now = heed.clock()
  worst, worst_slice = math.max(worst, now - frame_start), math.max(worst_slice, now - slice_start)
  late = late + (now - frame_start > FRAME and 1 or 0)
  work_until(start + frame * FRAME)
end

print(("%d frames in %.2f s; the game and its slice took %.2f ms in the worst one, of %.2f; %d were late"):format(
  frames, heed.clock() - start, worst * 1000, FRAME * 1000, late))
print(("%d tokens, %d whole lines; the worst slice took %.2f ms, of %.0f"):format(tokens, sentences,
  worst_slice * 1000, SLICE * 1000))
if said then print("the last line: " .. said) end
