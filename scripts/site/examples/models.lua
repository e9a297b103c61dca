-- Models, tokenizers, analyses and charts. The models are small and have random weights. See ../examples.lua.

--## heed.models.load
local Llama = require "heed.models.llama"
local config = { vocab_size = 10, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
  num_attention_heads = 2 }
assert(Llama(config):save_pretrained "tiny.gguf")
local model = assert(heed.models.load "tiny.gguf") -- or a folder of Hugging Face
print(model:class_name(), model { 1, 2, 3 }.shape)

--## GPT2
local GPT2 = require "heed.models.gpt2"
local model = GPT2 { vocab_size = 10, n_embd = 8, n_layer = 1, n_head = 2 }
print(model { 1, 2, 3 }.shape) -- logits [tokens, vocab_size]

--## Llama
local Llama = require "heed.models.llama"
local model = Llama { vocab_size = 10, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
  num_attention_heads = 2 }
print(model)

--## Decoder:forward
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
local logits, info = model({ 1, 2, 3 }, { need_weights = true })
print(logits.shape, #info.layers)
print(info.layers[1].weights[1])

--## Decoder:new_cache
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
local cache = model:new_cache { capacity = 16 }
model({ 1, 2, 3 }, { cache = cache })
print(model({ 4 }, { cache = cache }).shape, cache.length) -- one more token

--## Decoder:load_cache, ModelCache:save
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
local cache = model:new_cache()
model({ 1, 2, 3 }, { cache = cache })
assert(cache:save "chat.safetensors")
print(assert(model:load_cache "chat.safetensors").length)

--## Decoder:generate
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
local tokens, cache = model:generate({ 1, 2, 3 }, { max_new_tokens = 5, temperature = 1, top_k = 4 })
print(table.concat(tokens, " "), cache.length)

--## Decoder:generate_steps
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
local steps = model:generate_steps({ 1, 2, 3 }, { max_new_tokens = 3, ms = 2 })
while not steps:advance() do end -- a frame of a game between two slices
print(table.concat(steps.result, " "))

--## Decoder:save_pretrained
local Llama = require "heed.models.llama"
local model = Llama { vocab_size = 10, hidden_size = 32, intermediate_size = 64, num_hidden_layers = 1,
  num_attention_heads = 2 }
assert(model:save_pretrained("small.gguf", { dtype = "q8_0" }))
print(assert(heed.load "small.gguf")["blk.0.ffn_up.weight"].dtype)

--## ModelSteps:advance, ModelSteps:release
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
local steps = model:generate_steps({ 1, 2, 3 }, { max_new_tokens = 100 })
steps:advance(0) -- the smallest slice
print(steps.finished)
steps:release() -- gives up

--## ModelCache:truncate
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
local _, cache = model:generate({ 1, 2, 3 }, { max_new_tokens = 4 })
print(cache.length, cache:truncate(3).length) -- another answer to the same prompt

--## ModelCache:reorder
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
local cache = model:new_cache { batch = 2 }
model({ { 1, 2 }, { 3, 4 } }, { cache = cache })
cache:reorder { 2, 2 }
local logits = model({ { 5 }, { 5 } }, { cache = cache })
print(logits[1]:equal(logits[2]))

--## ModelCache:clone, ModelCache:release
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
local cache = model:new_cache()
model({ 1, 2, 3 }, { cache = cache })
local copy = cache:clone()
cache:release()
print(copy.length)

--## GPT2.load
local GPT2 = require "heed.models.gpt2"
assert(GPT2({ vocab_size = 10, n_embd = 8, n_layer = 1, n_head = 2 }):save_pretrained ".")
local model = assert(GPT2.load ".") -- a folder with config.json and model.safetensors
print(model.config.n_embd, model.training)

--## Llama.load
local Llama = require "heed.models.llama"
local config = { vocab_size = 10, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
  num_attention_heads = 2 }
assert(Llama(config):save_pretrained ".")
print(assert(Llama.load ".") { 1, 2, 3 }.shape)

--## Qwen2.load
local Qwen2 = require "heed.models.qwen2"
local config = { vocab_size = 10, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
  num_attention_heads = 2 }
assert(Qwen2(config):save_pretrained ".")
print(assert(Qwen2.load ".") { 1, 2, 3 }.shape)

--## Qwen3.load
local Qwen3 = require "heed.models.qwen3"
local config = { vocab_size = 10, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
  num_attention_heads = 2 }
assert(Qwen3(config):save_pretrained ".")
print(assert(Qwen3.load ".") { 1, 2, 3 }.shape)

--## Qwen3Moe.load
local Qwen3Moe = require "heed.models.qwen3_moe"
local config = { vocab_size = 10, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
  num_attention_heads = 2, num_key_value_heads = 2, num_experts = 4, num_experts_per_tok = 2,
  moe_intermediate_size = 8 }
assert(Qwen3Moe(config):save_pretrained ".")
print(assert(Qwen3Moe.load ".") { 1, 2, 3 }.shape)

--## Gemma3.load
local Gemma3 = require "heed.models.gemma3"
local config = { vocab_size = 10, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
  num_attention_heads = 2, num_key_value_heads = 1, head_dim = 4 }
assert(Gemma3(config):save_pretrained ".")
print(assert(Gemma3.load ".") { 1, 2, 3 }.shape)

--## Phi3.load
local Phi3 = require "heed.models.phi3"
local config = { vocab_size = 10, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
  num_attention_heads = 2 }
assert(Phi3(config):save_pretrained ".")
print(assert(Phi3.load ".") { 1, 2, 3 }.shape)

--## SmolLM3.load
local SmolLM3 = require "heed.models.smollm3"
local config = { vocab_size = 10, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
  num_attention_heads = 2, num_key_value_heads = 2 }
assert(SmolLM3(config):save_pretrained ".")
print(assert(SmolLM3.load ".") { 1, 2, 3 }.shape)

--## Mixtral.load
local Mixtral = require "heed.models.mixtral"
local config = { vocab_size = 10, hidden_size = 8, intermediate_size = 16, num_hidden_layers = 1,
  num_attention_heads = 2, num_key_value_heads = 2, num_local_experts = 4 }
assert(Mixtral(config):save_pretrained ".")
print(assert(Mixtral.load ".") { 1, 2, 3 }.shape)

--## Encoder:forward
local Bert = require "heed.models.bert"
local model = Bert { vocab_size = 10, hidden_size = 8, num_hidden_layers = 2, num_attention_heads = 2,
  intermediate_size = 16 }
print(model:eval() { 1, 2, 3 }.shape) -- hidden states [tokens, hidden_size]

--## Encoder:pooled
local Bert = require "heed.models.bert"
local model = Bert { vocab_size = 10, hidden_size = 8, num_hidden_layers = 2, num_attention_heads = 2,
  intermediate_size = 16 }
print(model:pooled(model:eval() { 1, 2, 3 }).shape)

--## Encoder:logits
local Bert = require "heed.models.bert"
local model = Bert { vocab_size = 10, hidden_size = 8, num_hidden_layers = 2, num_attention_heads = 2,
  intermediate_size = 16, architectures = { "BertForSequenceClassification" }, num_labels = 3 }
print(model:logits(model:eval() { 1, 2, 3 }).shape)

--## wordpiece.load, WordPiece:encode, WordPiece:tokenize, WordPiece:decode
local file = io.open("vocab.txt", "w")
file:write "[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\ncat\nsat\n##s\n"
file:close()
local tokenizer = assert(require("heed.tokenizers.wordpiece").load "vocab.txt")
print(table.concat(tokenizer:tokenize "The cats sat", " "))
local ids = tokenizer:encode "The cats sat"
print(table.concat(ids, " "), tokenizer:decode(ids, { skip_special_tokens = true }))

--## heed.tokenizers.load, Tokenizer:encode, Tokenizer:decode, Tokenizer:token, Tokenizer:id
local file = io.open("tokenizer.json", "w")
file:write [[{"model": {"type": "BPE", "vocab": {"l": 0, "o": 1, "w": 2, "lo": 3, "low": 4},
  "merges": ["l o", "lo w"]}}]]
file:close()
local tokenizer = assert(heed.tokenizers.load "tokenizer.json")
local ids = tokenizer:encode "lowlo" -- those of Hugging Face plus 1
print(table.concat(ids, " "), tokenizer:decode(ids), tokenizer:token(5), tokenizer:id "low")

--## Tokenizer:decoder, TextDecoder:add, TextDecoder:finish
local file = io.open("tokenizer.json", "w")
file:write [[{"model": {"type": "BPE", "vocab": {"Ã": 0, "©": 1, "t": 2}, "merges": []},
  "decoder": {"type": "ByteLevel"}}]]
file:close()
local decoder = assert(heed.tokenizers.load "tokenizer.json"):decoder()
for _, id in ipairs { 1, 2, 3, 1, 2 } do io.write("[", decoder:add(id), "] ") end -- é is two tokens
print(decoder:finish())

--## Tokenizer:apply_chat_template
local file = io.open("tokenizer.json", "w")
file:write [[{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}]]
file:close()
local tokenizer = assert(heed.tokenizers.load "tokenizer.json")
print(tokenizer:apply_chat_template({ { role = "user", content = "Hello" } }, { add_generation_prompt = true,
  chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    .. "{% if add_generation_prompt %}<assistant>{% endif %}" }))

--## interpret.entropy
local interpret = require "heed.interpret"
print(interpret.entropy(heed.tensor { { 1, 0 }, { 0.5, 0.5 } }, { base = 2 }))

--## interpret.distance
local interpret = require "heed.interpret"
print(interpret.distance(heed.tensor { { 1, 0 }, { 1, 0 } }))

--## interpret.sink_share
local interpret = require "heed.interpret"
print(interpret.sink_share(heed.tensor { { 1, 0 }, { 0.9, 0.1 } }))

--## interpret.agreement
local interpret = require "heed.interpret"
local heads = heed.tensor { { { 1, 0 }, { 0.5, 0.5 } }, { { 1, 0 }, { 0, 1 } } }
print(interpret.agreement(heads))

--## interpret.rollout
local interpret = require "heed.interpret"
local weights = heed.tensor { { { 1, 0 }, { 0.5, 0.5 } } } -- one head
print(interpret.rollout { weights, weights })

--## interpret.previous_token_score
local interpret = require "heed.interpret"
print(interpret.previous_token_score(heed.tensor { { 1, 0, 0 }, { 1, 0, 0 }, { 0, 1, 0 } }))

--## interpret.induction_score
local interpret = require "heed.interpret"
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 1, n_head = 2 }:eval()
local _, cache = model:run_with_cache { 1, 2, 3, 1, 2, 3 }
print(interpret.induction_score(cache, { period = 3 })) -- [layers, heads]

--## interpret.logit_lens
local interpret = require "heed.interpret"
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
print(interpret.logit_lens(model, { 1, 2, 3 }, { top = 1 }))

--## interpret.direct_logit_attribution
local interpret = require "heed.interpret"
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 1, n_head = 2 }:eval()
local result = interpret.direct_logit_attribution(model, { 1, 2, 3 }, { token = 4 })
for i, label in ipairs(result.labels) do print(("%-12s %7.4f"):format(label, result.values[i])) end

--## interpret.activation_patching
local interpret = require "heed.interpret"
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
local metrics, runs = interpret.activation_patching(model, { 1, 2, 3 }, { 1, 5, 3 }, {
  metric = function(logits) return logits[{ -1, 4 }] end, normalized = true })
print(metrics) -- [layers, positions]; 1 is the clean run
print(("%.4f %.4f"):format(runs.clean, runs.corrupted))

--## interpret.attribution_patching
local interpret = require "heed.interpret"
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 2, n_head = 2 }:eval()
local metrics = interpret.attribution_patching(model, { 1, 2, 3 }, { 1, 5, 3 }, {
  metric = function(logits) return logits:select(1, -1):select(1, 4) end, normalized = true })
print(metrics)

--## interpret.integrated_gradients
local interpret = require "heed.interpret"
local model = require "heed.models.gpt2" { vocab_size = 10, n_embd = 8, n_layer = 1, n_head = 2 }:eval()
local attributions, info = interpret.integrated_gradients(model, { 1, 2, 3 }, {
  metric = function(logits) return logits:select(1, -1):select(1, 4) end })
print(attributions)
print(("%.4f - %.4f"):format(info.metric, info.baseline)) -- what they add up to

--## plot.heatmap
local plot = require "heed.plot"
local weights = heed.tensor { { 1, 0, 0 }, { 0.4, 0.6, 0 }, { 0.2, 0.2, 0.6 } }
io.write(plot.heatmap(weights, { labels = { "the", "cat", "sat" }, values = true, to = "string" }))

--## plot.line
local plot = require "heed.plot"
io.write(plot.line(heed.range(0, 6, 0.2):sin(), { width = 40, height = 7, to = "string" }))

--## plot.bars
local plot = require "heed.plot"
io.write(plot.bars(heed.tensor { 3, 1, 2 }, { labels = { "the", "cat", "sat" }, width = 40, to = "string" }))

--## plot.hist
local plot = require "heed.plot"
io.write(plot.hist(heed.randn(1000), { bins = 6, width = 60, to = "string" }))

--## plot.attention
local plot = require "heed.plot"
local weights = heed.tensor { { { 1, 0, 0 }, { 0.4, 0.6, 0 }, { 0.2, 0.2, 0.6 } } } -- a layer of one head
io.write(plot.attention(weights, { "the", "cat", "sat" }, { top = 2, to = "string", format = "txt" }))
print(plot.attention(weights, { "the", "cat", "sat" }, { file = "attention.html" })) -- a page for a browser

--## heed.save
assert(heed.save("weights.safetensors", nn.Linear(2, 3):state_dict()))
assert(heed.save("x.npy", heed.rand(2, 3)))
assert(heed.save("run.safetensors", { model = nn.Linear(2, 3), step = 12 })) -- a checkpoint
print(heed.load "x.npy")

--## heed.load
heed.save("weights.safetensors", { a = heed.ones(2), b = heed.zeros(3) }, { metadata = { format = "pt" } })
local state, metadata = heed.load "weights.safetensors"
for name, t in heed.pairs(state) do print(name, t) end
print(metadata.format)
print(heed.load "missing.npy")

--## StateDict
local state = nn.Linear(2, 1):state_dict()
state.bias = nil
state.scale = heed.ones(1)
for name in heed.pairs(state) do print(name) end

--## heed.set_num_threads, heed.get_num_threads
heed.set_num_threads(2) -- results do not depend on it
print(heed.get_num_threads() <= 2)

--## heed.set_matmul_precision, heed.get_matmul_precision
heed.set_matmul_precision "high" -- bfloat16 and int8 weights by the processor's own instructions
print(heed.get_matmul_precision())

--## heed.limit
heed.limit { memory = 10e6, seconds = 1 } -- bytes; seconds of one call
print(select(2, pcall(heed.zeros, 5000, 5000)):match "^[^,]*")

--## heed.clock
local start = heed.clock()
heed.rand(100, 100):matmul(heed.rand(100, 100))
print(heed.clock() - start < 1) -- seconds

--## heed.info
local info = heed.info()
print(info.version, info.memory_in_use >= 0)

--## interrupt.hold
local interrupt = require "heed.interrupt"
print(interrupt.hold(function(pressed)
  for step = 1, 1000 do
    if pressed() then return step end -- Ctrl-C: save, then stop
  end
  return "done"
end))

--## Encoder:encode, Encoder:encode_steps
local file = io.open("vocab.txt", "w")
file:write "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\ncat\ndog\n"
file:close()
local Bert = require "heed.models.bert"
local model = Bert { vocab_size = 7, hidden_size = 8, num_hidden_layers = 1,
  num_attention_heads = 2, intermediate_size = 16 }:eval()
model.tokenizer = assert(require("heed.tokenizers.wordpiece").load "vocab.txt") -- load finds it beside the weights
model.pooling, model.normalize, model.max_seq_length = "mean", true, 16
local vectors = model:encode { "a cat", "a dog" }
print(vectors.shape, vectors[1]:dot(vectors[1]))
local steps = model:encode_steps { "a cat", "a dog" }
while not steps:advance() do end
print(steps.result:equal(vectors))

--## Encoder:score, Encoder:classify
local file = io.open("vocab.txt", "w")
file:write "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\ncat\ndog\n"
file:close()
local Bert = require "heed.models.bert"
local model = Bert { vocab_size = 7, hidden_size = 8, num_hidden_layers = 1,
  num_attention_heads = 2, intermediate_size = 16, architectures = { "BertForSequenceClassification" },
  id2label = { ["0"] = "bad", ["1"] = "good" } }:eval()
model.tokenizer = assert(require("heed.tokenizers.wordpiece").load "vocab.txt")
model.max_seq_length = 16
print(model:classify({ "a cat" })[1].label)
print(model:score({ { "a cat", "a dog" } }, { activation = "softmax" }):sum(-1)) -- of pairs
