-- What the grammar of grammar.lua chooses from where the annotations say no more than "integer" or "string": Lua
-- expressions. Small equal sizes make shapes fit together often.
local words = {}

words.integers = { "4", "4", "4", "4", "2", "2", "2", "1", "1", "3", "0", "-1" }
words.numbers = { "0.5", "0.1", "1", "2", "0", "1e-5", "3.25", "-1", "4" }
words.extremes = { "2 ^ 40", "-2 ^ 40", "2 ^ 53", "2 ^ 62", "2 ^ 63", "-2 ^ 63", "1e308", "math.huge", "-math.huge",
  "0 / 0", "0.5", "-1.5", "1e-30", "100000" }
words.strings = { '""', '"weight"', '"bias"', '"float32"', '"int64"', '"bool"', '"bfloat16"', '"int8"', '"a.b"',
  '"0"', '"W_query"', '"sum"', '"mean"', '"none"', '"relu"', '"\\0"', '"%s%n"', '("x"):rep(1000)', '"\\255"',
  '"__index"', '"é日本"', '"the cat"' }
words.texts = { '"hello world"', '"the cat sat"', '"a\\nb"', '""', '"é日本 🎉"', '"\\255\\254"', '("ab "):rep(100)',
  '"<|endoftext|> [CLS] <s>"' }
-- Names in the folder of the run, which is removed afterwards: copies of golden files, files of earlier statements.
words.paths = { '"x.npy"', '"x.npz"', '"x.safetensors"', '"x.gguf"', '"y.npz"', '"missing.npy"', '"decoders/gpt2"',
  '"decoders/llama"', '"decoders/qwen3"', '"encoders/sentence"', '"tokenizers"', '"files"', '""', '"/dev/null/x.npy"',
  '"x.pt"', '"out.html"', '"tiny_gpt2.safetensors"', '"vocab.txt"' }

words.tensors = { "heed.randn(4, 4)", "heed.randn(4, 4)", "heed.randn(4, 4)", "heed.randn(2, 4, 4)",
  "heed.randn(2, 2, 4, 4)", "heed.randn(2, 2, 4, 4)", "heed.randn(4)", "heed.randn(4)",
    "heed.tensor { 1, 2, 3, 4 }:long()",
  "heed.tensor { { 1, 2, 3, 4 }, { 4, 3, 2, 1 } }:long()", "heed.randn(4, 4):gt(0)", "heed.randn(4, 4):to 'bfloat16'",
  "heed.randn(4, 4, { requires_grad = true })", "heed.randn(4, 4, { requires_grad = true })", "heed.zeros(0, 4)",
  "heed.tensor(2.5)", "heed.nn.Parameter(heed.randn(4, 4))", "heed.randn(4, 4).T",
    "heed.randn(8, 8)[{ { 2, 5 }, { 3, 6 } }]",
  "heed.randn(4):expand(4, 4)", "heed.ones(4, 4)", "heed.randn(2, 2, 4, 4):transpose(2, 3)", "heed.randn(1)",
  "heed.rand(4, 4)", "heed.randn(4, 64)", "heed.randn(64, 32):to 'q8_0'", "heed.randn(4, 4):to 'int8'" }

-- By the name of a parameter or field, or by its ending.
words.by_name = {
  path = words.paths, text = words.texts, token = words.texts, prompt = words.texts, content = words.texts,
  dim = { "1", "-1", "2", "1", "3" }, dim0 = { "1" }, dim1 = { "2", "-1" },
    dtype = { '"float32"', '"int64"', '"bool"', '"bfloat16"', '"float16"', '"int8"' },
  num_heads = { "2", "2", "1", "4" }, num_kv_heads = { "2", "1" }, nhead = { "2" }, heads = { "2", "{ 1, 2 }" },
  num_hidden_layers = { "1", "2" }, num_layers = { "1", "2" }, vocab_size = { "8" }, capacity = { "8", "4" },
  dropout = { "0", "0.1", "0.5" }, p = { "0.5", "0", "1" }, dropout_p = { "0", "0.5" }, eps = { "1e-5" },
    seed = { "1", "7" },
  context_length = { "8", "4" }, momentum = { "0.9", "0" }, lr = { "0.1", "1e-3" }, mask = { "heed.ones(4, 4):gt(0)" },
  condition = { "heed.randn(4, 4):gt(0)" }, attn_mask = { "heed.ones(4, 4):tril():gt(0)", "heed.mask.causal()" },
  q = { "heed.randn(2, 2, 4, 4)" }, k = { "heed.randn(2, 2, 4, 4)", "2" }, v = { "heed.randn(2, 2, 4, 4)" },
  targets = { "heed.tensor { 1, 2, 3, 4 }:long()", "heed.rand(4, 4)" },
    target = { "heed.tensor { 1, 2, 3, 4 }:long()", "heed.rand(4, 4)" },
  ms = { "0" }, bytes = { '("x"):rep(64)' }, shape = { "{ 4, 4 }", "{ 2, 2, 4 }", "16" },
    sizes = { "{ 2, 2 }", "2", "{ 4, 4 }" },
  equation = { '"ij,jk->ik"', '"ii->i"', '"bhij->bij"' }, num_threads = { "1", "2" },
  seconds = { "1", "0.5", "math.huge" },
  work = { "1e9", "1e6", "math.huge" },
  memory = { "1e8", "1e7", "math.huge" }, threads = { "1", "2", "math.huge" }, max_new_tokens = { "2", "1" },
    num_workers = { "0" },
  write = { "function() end" }, num_samples = { "2", "4" }, rank = { "1" }, hidden_size = { "4", "8" },
    final = { "false" },
  timeout = { "1" }, key = { "heed.randn(2, 4, 4)" }, value = { "heed.randn(2, 4, 4)", "0.5", "1" },
    count = { "4", "10" },
  messages = { '{ { role = "user", content = "hi" } }' }, steps = { "4", "10" }, file = { '"x.npy"' },
}

words.dtypes = words.by_name.dtype

-- Anything, where something else is needed.
words.hostile = { "nil", "true", "{}", "heed", "heed.zeros", "io.stdout", "T.released()", "T.half_built()",
  "T.hostile()",
  "T.proxy { 1, 2 }", "T.proxy { dim = 1, dtype = 'float32' }", "T.named()", "T.cyclic()",
    "setmetatable({}, { __gc = 1 })", "T.gone()",
  "coroutine.create(function() end)", "heed.nn.Module", "heed.Size(2, 2)", "function() error('E!', 0) end", "'x'",
    "-1" }

return words
