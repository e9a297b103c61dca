-- A character in a game speaks: a model generates its line in slices of 2 ms in each of sixty frames a second.
--   heed npc.lua [FRAMES] [MODEL]   (300, and the tests' small Llama, whose words have no meaning)
-- MODEL: a folder or a GGUF file with a tokenizer and a chat template, such as that of
-- make model NAME=SmolLM2-135M-Instruct.
local heed = require "heed"

local FRAME, GAME, SLICE = 1 / 60, 0.006, 0.002 -- seconds: a frame, the game's own work in it, the character's share
local frames = tonumber(arg and arg[1] or 300)
if not frames or frames < 1 or frames % 1 ~= 0 then error("npc: frames must be a number from 1 up", 0) end

local top = arg[0]:match "^(.*/)scripts/examples/[^/]*$" or ""
local model, problem
if arg[2] then
  model, problem = heed.models.load(arg[2])
else
  model, problem = require("heed.models.llama").load(top .. "tests/golden/tiny_llama.safetensors", {
    vocab_size = 197, hidden_size = 64, intermediate_size = 112, num_hidden_layers = 3, num_attention_heads = 8,
    num_key_value_heads = 2, max_position_embeddings = 128,
  })
end
if not model then error("npc: " .. problem, 0) end
heed.set_matmul_precision "high" -- reads the player's words several times as fast where the processor can
local tok = model.tokenizer
if arg[2] and not model.chat_template then
  error("npc: the model has no chat template: " .. (model.tokenizer_problem or "give a model for chats"), 0)
end

-- Represents the game's own work and the wait for the next frame (Lua cannot sleep).
local function work_until(moment)
  while heed.clock() < moment do end
end

-- What the player says, as ids; and the text of the character's ids. The tests' model has no tokenizer: its first
-- tokens are the printable ASCII characters.
local QUESTION, heard = "Where is the key?", {}
if tok then
  heard = tok:apply_chat_template({
    { role = "system", content = "You are an old innkeeper. Answer in one short sentence." },
    { role = "user", content = QUESTION },
  }, { add_generation_prompt = true, tokenize = true })
else
  for i, byte in ipairs { QUESTION:byte(1, -1) } do heard[i] = byte - 31 end
end
local function decoder()
  if tok then return tok:decoder { skip_special_tokens = true } end
  return { add = function(_, id) return id <= 95 and string.char(id + 31) or "·" end }
end

-- The line that is spoken, token by token.
local sentences, tokens, within = 0, 0, false
local function speak()
  local pieces = decoder()
  return model:generate_steps(heard, {
    max_new_tokens = 24, temperature = 0.8, min_p = 0.05, generator = heed.Generator(sentences + 1),
    on_token = function(id)
      io.write(within and "" or "character: ", pieces:add(id))
      io.flush()
      tokens, within = tokens + 1, true
    end,
  })
end

model:generate(heard, { max_new_tokens = 1 }) -- reads the weights from the file, which would make frames late

local speech = speak()
local worst, worst_slice, late = 0, 0, 0
local start = heed.clock()
for frame = 1, frames do
  local frame_start = heed.clock()
  work_until(frame_start + GAME)
  local slice_start = heed.clock()
  if speech:advance(SLICE * 1000) then -- the line is complete; the character thinks of another one
    io.write "\n"
    sentences, within = sentences + 1, false
    speech = speak()
  end
  local now = heed.clock()
  worst, worst_slice = math.max(worst, now - frame_start), math.max(worst_slice, now - slice_start)
  late = late + (now - frame_start > FRAME and 1 or 0)
  work_until(start + frame * FRAME)
end

local seconds = heed.clock() - start
if within then print " …" end
print(("%d frames in %.2f s; the game and its slice took %.2f ms in the worst one, of %.2f; %d were late"):format(
  frames, seconds, worst * 1000, FRAME * 1000, late))
print(("%d tokens, %d whole lines, %.1f tokens a second; the worst slice took %.2f ms, of %.0f"):format(tokens,
  sentences, tokens / seconds, worst_slice * 1000, SLICE * 1000))
