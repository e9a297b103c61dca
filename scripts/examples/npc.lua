-- A character in a game speaks: a model generates its lines in slices of 2 ms in each of sixty frames a second.
--   heed npc.lua [FRAMES] [MODEL]   (300, and the tests' small Llama, whose words have no meaning)
-- MODEL is a .gguf file or a folder, such as those that `make model NAME=SmolLM2-135M-Instruct` fetches.
local heed = require "heed"

local FRAME, GAME, SLICE = 1 / 60, 0.006, 0.002 -- seconds: a frame, the game's own work in it, the character's share
local PERSONA = "You are a gruff lighthouse keeper in a game. You answer in one short sentence."
local QUESTIONS = { "Where is the key?", "Have you seen a ship tonight?", "Why is the lamp dark?" }

local frames = tonumber(arg and arg[1] or 300)
if not frames or frames < 1 or frames % 1 ~= 0 then error("npc: frames must be a number from 1 up", 0) end

-- ---- Before the game begins: the model, and what the player will say, as ids --------------------

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
local tok = model.tokenizer
if arg[2] and not (tok and tok.chat_template) then
  error(("npc: '%s' has no tokenizer with a chat template"):format(arg[2]), 0)
end

local prompts = {}
for i, question in ipairs(QUESTIONS) do
  if tok then
    local messages = { { role = "system", content = PERSONA }, { role = "user", content = question } }
    prompts[i] = tok:apply_chat_template(messages, { add_generation_prompt = true, tokenize = true })
  else -- the tests' model has printable ASCII characters as its first tokens
    prompts[i] = {}
    for at, byte in ipairs { question:byte(1, -1) } do prompts[i][at] = byte - 31 end
  end
end

-- ---- The character ------------------------------------------------------------------------------

local words, lines, tokens = {}, 0, 0

--- Begins the answer to the next question.
local function speak()
  local text = tok and require("heed.tokenizers.stream")(tok)
  words = {}
  return model:generate_steps(prompts[lines % #prompts + 1], {
    max_new_tokens = 24, temperature = 0.8, min_p = 0.05, generator = heed.Generator(lines + 1),
    on_token = function(id)
      tokens = tokens + 1
      words[#words + 1] = text and text:add(id) or not text and (id <= 95 and string.char(id + 31) or "·") or nil
    end,
  })
end

-- Represents the game's own work and the wait for the next frame (Lua cannot sleep).
local function work_until(moment)
  while heed.clock() < moment do end
end

-- ---- The game -----------------------------------------------------------------------------------

local said
local speech = speak()
local worst, worst_slice, late = 0, 0, 0
local start = heed.clock()
for frame = 1, frames do
  local frame_start = heed.clock()
  work_until(frame_start + GAME)
  local slice_start = heed.clock()
  if speech:advance(SLICE * 1000) then -- the line is complete; the character thinks of another one
    said, lines = table.concat(words), lines + 1
    speech = speak()
  end
  local now = heed.clock()
  worst, worst_slice = math.max(worst, now - frame_start), math.max(worst_slice, now - slice_start)
  late = late + (now - frame_start > FRAME and 1 or 0)
  work_until(start + frame * FRAME)
end

local seconds = heed.clock() - start
print(("%d frames in %.2f s; the game and its slice took %.2f ms in the worst one, of %.2f; %d were late"):format(
  frames, seconds, worst * 1000, FRAME * 1000, late))
print(("%d tokens, %d whole lines, %.1f tokens a second; the worst slice took %.2f ms, of %.0f"):format(tokens, lines,
  tokens / seconds, worst_slice * 1000, SLICE * 1000))
if said then print("the last line: " .. said) end
