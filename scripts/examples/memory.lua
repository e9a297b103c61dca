-- Characters of a game that share what the world is, remember what each has heard, and go on after a restart. The model
-- has random weights: what it says is noise, but its memory is not.
--   heed memory.lua [file]   (memory.safetensors; the second run continues where the first one ended)
local heed = require "heed"
local Llama = require "heed.models.llama"

local path = arg and arg[1] or "memory.safetensors"
heed.manual_seed(1) -- the same weights in each run
local model = Llama {
  vocab_size = 64, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 2, num_attention_heads = 4,
  num_key_value_heads = 2, max_position_embeddings = 512,
}:eval()

local WORLD = { 5, 17, 3, 42, 8, 8, 21, 60, 1, 33, 12, 9 } -- tokens; a tokenizer would make them of a text
local NAMES = { "smith", "guard", "child" }

local cache, problem = model:load_cache(path)
if cache then
  print(("restored %s: the %s have heard %s tokens"):format(path, table.concat(NAMES, ", "),
    table.concat(cache.lengths, ", ")))
else
  print("a new world: " .. (problem:find("No such file", 1, true) and "there is no file yet" or problem))
  local world = model:new_cache { dtype = "int8" }
  model(WORLD, { cache = world, logits_to_keep = 1 })
  cache = model:new_cache { batch = #NAMES, prefix = world } -- the world is computed and stored once
end

-- One pass with as many new tokens for each character as it hears; the answers are the most probable next tokens.
local heard = { { 7, 7, 30 }, { 11 }, { 2, 50, 51, 52, 4 } }
local ids, lengths = {}, {}
for i, tokens in ipairs(heard) do
  lengths[i] = #tokens
  for _, id in ipairs(tokens) do ids[#ids + 1] = id end
end
local logits = model(ids, { cache = cache, lengths = lengths, logits_to_keep = 1 })
for i, name in ipairs(NAMES) do
  print(("the %s has heard %d tokens and says %d"):format(name, cache.lengths[i], logits[i]:argmax():item()))
end
assert(cache:save(path))
