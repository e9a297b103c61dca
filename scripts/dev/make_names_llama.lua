-- Trains the Llama of scripts/examples/names.lua, which invents first names:
--   build/heed scripts/dev/make_names_llama.lua [FOLDER]
-- It reads build/texts/names.txt (make texts), takes a minute, and writes a model of 240 kB into the folder
-- (scripts/examples/names_llama). A character is a token; a dot begins and ends each name.
local heed = require "heed"
local Llama = require "heed.models.llama"
local F = heed.nn.functional

local STEPS, BATCH, RATE, WARM_UP = 1500, 64, 3e-3, 100
local HELD = 20 -- one of so many names is not trained on
local IGNORED = -100

local folder = arg and arg[1] or "scripts/examples/names_llama"

-- ---- Names as ids -------------------------------------------------------------------------------

local characters = { "." }
for _, first in ipairs { "A", "a" } do
  for k = 0, 25 do characters[#characters + 1] = string.char(first:byte() + k) end
end
local id_of = {}
for id, character in ipairs(characters) do id_of[character] = id end

local names, longest = {}, 0
for name in assert(io.lines "build/texts/names.txt") do
  names[#names + 1] = name
  longest = math.max(longest, #name)
end

-- Inputs and targets [names, longest + 1]: ".Ada" and "Ada.", then ids without a loss.
local function tensors(list)
  local inputs, targets = {}, {}
  for i, name in ipairs(list) do
    local x, y = { 1 }, {}
    for k = 1, longest do
      local id = id_of[name:sub(k, k)]
      x[k + 1] = id or 1
      y[k] = id or (k == #name + 1 and 1 or IGNORED)
    end
    y[longest + 1] = #name == longest and 1 or IGNORED
    inputs[i], targets[i] = x, y
  end
  return heed.tensor(inputs):long(), heed.tensor(targets):long()
end

local trained, held = {}, {}
for i, name in ipairs(names) do table.insert(i % HELD == 0 and held or trained, name) end
local inputs, targets = tensors(trained)
local held_inputs, held_targets = tensors(held)

-- ---- Training -----------------------------------------------------------------------------------

heed.manual_seed(7)
local model = Llama {
  vocab_size = #characters, hidden_size = 64, intermediate_size = 128, num_hidden_layers = 3, num_attention_heads = 4,
  num_key_value_heads = 2, max_position_embeddings = 32, tie_word_embeddings = false, bos_token_id = 0,
  eos_token_id = 0,
}
local matrices, vectors, parameters = {}, {}, {}
for parameter in model:parameters() do
  table.insert(parameter.ndim > 1 and matrices or vectors, parameter)
  parameters[#parameters + 1] = parameter
end
local optimizer = heed.optim.AdamW({
  { params = matrices, weight_decay = 0.3 }, { params = vectors, weight_decay = 0 },
}, { lr = RATE, betas = { 0.9, 0.99 } })
local scheduler = heed.optim.lr_scheduler.LambdaLR(optimizer, { lr_lambda = function(step)
  return math.min((step + 1) / WARM_UP, 0.02 + 0.49 * (1 + math.cos(math.pi * step / STEPS)))
end })

local function loss_of(x, y) return F.cross_entropy(model(x):flatten(1, 2), y:flatten()) end

heed.set_grad_enabled(true)
local generator, sum = heed.Generator(7), 0
for step = 1, STEPS do
  local rows = heed.randint(1, #trained, { BATCH }, { generator = generator })
  local loss = loss_of(inputs:index_select(1, rows), targets:index_select(1, rows))
  optimizer:zero_grad()
  loss:backward()
  heed.nn.utils.clip_grad_norm_(parameters, 1)
  optimizer:step()
  scheduler:step()
  sum = sum + loss:item()
  if step % 500 == 0 then
    local validation = heed.no_grad(function() return loss_of(held_inputs, held_targets):item() end)
    print(("step %d: loss %.3f, of other names %.3f"):format(step, sum / 500, validation))
    sum = 0
  end
end
heed.set_grad_enabled(false)

-- ---- Files --------------------------------------------------------------------------------------

local function write(name, text)
  local file = assert(io.open(folder .. "/" .. name, "wb"))
  assert(file:write(text))
  assert(file:close())
end

os.execute(("mkdir -p '%s'"):format((folder:gsub("'", "'\\''"))))
assert(model:to("float16"):save_pretrained(folder))
local vocabulary = {}
for id, character in ipairs(characters) do vocabulary[id] = ('"%s": %d'):format(character, id - 1) end
write("tokenizer.json", ([[
{
  "version": "1.0",
  "added_tokens": [
    {"id": 0, "content": ".", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
     "special": true}
  ],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
  "post_processor": {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": ".", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"SpecialToken": {"id": ".", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
             {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {".": {"id": ".", "ids": [0], "tokens": ["."]}}
  },
  "decoder": {"type": "ByteLevel"},
  "model": {
    "type": "BPE", "unk_token": ".", "merges": [],
    "vocab": {%s}
  }
}
]]):format(table.concat(vocabulary, ", ")))
write("tokenizer_config.json", '{"bos_token": ".", "eos_token": ".", "unk_token": "."}\n')
