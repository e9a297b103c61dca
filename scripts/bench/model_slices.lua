--- Text generation in slices of time: the longest slices, and what they cost in all.
---   heed scripts/bench/model_slices.lua [FILE.gguf] [PROMPT] [TOKENS]   (random weights of SmolLM2's shape; 512, 32)
--- The longest slices are shown, since on a computer with other work some wait for the processor.
local heed = require "heed"

local MS = 2
local file, count, tokens = arg[1], tonumber(arg[2] or 512), tonumber(arg[3] or 32)
local function note(...) print(string.format(...)) end

local model
local begun = heed.clock()
if file then
  model = assert(heed.models.load(file))
else
  model = require("heed.models.llama") {
    vocab_size = 49152, hidden_size = 576, intermediate_size = 1536, num_hidden_layers = 30, num_attention_heads = 9,
    num_key_value_heads = 3, max_position_embeddings = 2048, tie_word_embeddings = true,
  }:to "q8_0"
end
note("loaded in %.3f s; %d threads", heed.clock() - begun, heed.get_num_threads())

local ids = {}
for i = 1, count do ids[i] = i * 7919 % 40000 + 100 end

local function options(more)
  local all = { max_new_tokens = tokens, stop = {} }
  for name, value in pairs(more) do all[name] = value end
  return all
end

for _, case in ipairs { { "greedy", {} }, { "sampled", { temperature = 0.8, top_p = 0.9, min_p = 0.02 } } } do
  local function given(ms)
    local all = options(case[2])
    if all.temperature then all.generator = heed.Generator(7) end
    all.ms = ms
    return all
  end
  model:generate(ids, given())
  local whole, sliced, longest = math.huge, math.huge, nil
  for _ = 1, 3 do
    local start = heed.clock()
    local want = model:generate(ids, given())
    whole = math.min(whole, heed.clock() - start)
    local steps, slices, total = model:generate_steps(ids, given(MS)), {}, 0
    repeat
      start = heed.clock()
      local done = steps:advance()
      slices[#slices + 1] = heed.clock() - start
      total = total + slices[#slices]
    until done
    table.sort(slices, function(a, b) return a > b end)
    if total < sliced then sliced = total end
    if not longest or slices[1] < longest[1] then longest = slices end
    local same = #want == #steps.result
    for i, id in ipairs(want) do same = same and id == steps.result[i] end
    if not same then note "the tokens differ from generate's" end
  end
  note("%s: %d + %d tokens: %.3f s whole, %.3f s in %d slices of %d ms (%+.1f %%); the longest: %.2f %.2f %.2f ms, "
    .. "of 99 %%: %.2f", case[1], count, tokens, whole, sliced, #longest, MS, (sliced / whole - 1) * 100,
    longest[1] * 1e3, longest[2] * 1e3, longest[3] * 1e3, longest[math.ceil(#longest / 100)] * 1e3)
end
