-- Expressions for grammar.lua that random arguments seldom reach: objects of a class, and arguments that a function
-- accepts. Only these are written by hand; what can be called comes from the annotations.
local samples = {}

local gpt2 = 'T.loaded "heed.models.gpt2" "decoders/gpt2"'
local encoder = 'T.loaded "heed.models.bert" "encoders/sentence"'
local dist = 'T.ranks()'
local mha = "heed.nn.MultiHeadAttention(4, 4, 8, 0, 2)"
local sgd = "heed.optim.SGD(heed.nn.Linear(4, 4):parameters(), { lr = 0.1 })"
local ids = "{ 1, 2, 3 }"

samples.objects = {
  Module = { "heed.nn.Linear(4, 4)", mha, "T.own()", "heed.nn.Sequential(heed.nn.Linear(4, 4), heed.nn.GELU())" },
  Optimizer = { sgd, "heed.optim.AdamW(heed.nn.Linear(4, 4):parameters())" },
  Scheduler = { ("heed.optim.lr_scheduler.StepLR(%s, 2)"):format(sgd) },
  Cache = { mha .. ":new_cache()", mha .. ":new_cache { dtype = 'int8', capacity = 4 }" },
  Steps = { mha .. ":steps(heed.randn(2, 4, 4), { ms = 0 })" },
  StateCache = { "heed.nn.GatedDeltaNet(4, 2):new_cache()" },
  Decoder = { gpt2, 'T.loaded "heed.models.llama" "decoders/llama"', 'T.loaded "heed.models.qwen3" "decoders/qwen3"' },
  GPT2 = { gpt2 }, Llama = { 'T.loaded "heed.models.llama" "decoders/llama"' },
  Qwen2 = { 'T.loaded "heed.models.qwen2" "decoders/qwen2"' },
    Qwen3 = { 'T.loaded "heed.models.qwen3" "decoders/qwen3"' },
  Gemma3 = { 'T.loaded "heed.models.gemma3" "decoders/gemma3"' },
    Phi3 = { 'T.loaded "heed.models.phi3" "decoders/phi3"' },
  Mixtral = { 'T.loaded "heed.models.mixtral" "decoders/mixtral"' },
  Qwen3Moe = { 'T.loaded "heed.models.qwen3_moe" "decoders/qwen3_moe"' },
  SmolLM3 = { 'T.loaded "heed.models.smollm3" "decoders/smollm3"' },
  Encoder = { encoder }, Bert = { encoder }, Roberta = { 'T.loaded "heed.models.roberta" "encoders/roberta"' },
  DistilBert = { 'T.loaded "heed.models.distilbert" "encoders/distilbert"' },
  ModelSteps = { gpt2 .. ":generate_steps({ 1, 2 }, { max_new_tokens = 2, ms = 0 })" },
  ModelCache = { gpt2 .. ":new_cache()" },
  WordPiece = { "(require 'heed.tokenizers.wordpiece').load 'encoders/sentence/vocab.txt'" },
  Tokenizer = { "heed.tokenizers.load 'tokenizers/gpt2.json'", "heed.tokenizers.load 'tokenizers/unigram.model'",
    "heed.tokenizers.load 'tokenizers/smollm.gguf'", "heed.tokenizers.load 'tokenizers/bert.json'" },
  TextDecoder = { "heed.tokenizers.load 'tokenizers/gpt2.json':decoder()" },
  BackwardSteps = { "T.loss():backward_steps { ms = 0 }" },
  Handle = { "heed.nn.Linear(4, 4):register_forward_hook(function() end)" },
  ActivationCache = { ("select(2, %s:run_with_cache(%s))"):format(gpt2, ids) },
  DataLoader = { "heed.utils.data.DataLoader(heed.range(1, 9), { batch_size = 2 })" },
  Tokens = { "heed.utils.data.Tokens(heed.range(1, 20):long(), 4, { generator = heed.Generator(1) })" },
  Sampler = { "heed.utils.data.RandomSampler(heed.range(1, 9))" },
  Items = { "heed.utils.data.TensorDataset(heed.randn(4, 4), heed.randn(4))" },
  Progress = { "heed.utils.progress(4, { write = function() end })" },
  Group = { dist .. ".new_group { 1 }" }, Work = { dist .. ".isend(heed.ones(4), 1)" },
  DeviceMesh = { dist .. ".init_device_mesh({ 1 }, { 'tp' })" },
  ContextCache = { ("%s.context_cache(%s.new_group { 1 })"):format(dist, dist) },
  Shard = { "T.shard()" }, FunctionContext = { "T.context()" },
  Mask = { "heed.mask.causal()", "heed.mask.window(1, 1)", "heed.mask.documents { 2, 2 }" },
  ModuleDict = { "heed.nn.ModuleDict { a = heed.nn.Linear(4, 4) }" },
    ModuleList = { "heed.nn.ModuleList { heed.nn.GELU() }" },
  StateDict = { "heed.nn.Linear(4, 4):state_dict()" },
  Generator = { "heed.Generator(1)", "heed.Generator(1, 'philox')" },
}

local q4 = "heed.randn(2, 2, 4, 4)"
local qqq = ("%s, %s, %s"):format(q4, q4, q4)
local attended = "heed.randn(2, 2, 4, 4):softmax(-1)"
local labels = "heed.tensor { 1, 2, 3, 4 }:long()"
local square, row = "heed.randn(4, 4)", "heed.randn(4)"
local trained, words = sgd, "heed.randn(4, 2, 4)"

-- By the function: its arguments; of a method the receiver comes first.
samples.arguments = {
  ["heed.from_string"] = "('x'):rep(64), 'float32', 4, 4", ["heed.einsum"] = ("'ij,jk->ik', %s, %s"):format(square,
    square),
  ["heed.attention_merge"] = "{ T.partial(), T.partial() }", ["heed.hstack"] = ("{ %s, %s }"):format(square, square),
  ["heed.column_stack"] = ("{ %s, %s }"):format(square, row), ["heed.save"] = "'x.npz', { a = heed.ones(2) }",
  ["heed.autograd.backward"] = "T.loss()", ["heed.autograd.grad"] = "T.loss_and_leaf()",
  ["heed.autograd.gradcheck"] = "function(x) return x:tanh() end, heed.randn(2, 2)",
  ["heed.nn.MultiheadAttention"] = "4, 2", ["heed.nn.functional.linear"] = ("%s, %s, %s"):format(square, square, row),
  ["heed.nn.functional.pad"] = square .. ", { 1, 1 }", ["heed.nn.functional.scaled_dot_product_attention"] = qqq,
  ["heed.nn.functional.rms_norm"] = square .. ", { 4 }", ["heed.nn.functional.layer_norm"] = square .. ", { 4 }",
  ["heed.nn.functional.cross_entropy"] = ("%s, %s"):format(square, labels),
  ["heed.nn.functional.linear_cross_entropy"] = ("%s, %s, %s"):format(square, square, labels),
  ["heed.nn.functional.nll_loss"] = ("%s, %s"):format(square, labels),
  ["heed.nn.functional.binary_cross_entropy"] = "heed.rand(4, 4), heed.rand(4, 4)",
  ["heed.nn.functional.binary_cross_entropy_with_logits"] = "heed.randn(4, 4), heed.rand(4, 4)",
  ["heed.nn.utils.vector_to_parameters"] = "heed.randn(20), heed.nn.Linear(4, 4):parameters()",
  ["heed.optim.SGD"] = "heed.nn.Linear(4, 4):parameters()", ["heed.optim.Adam"] = "heed.nn.Linear(4, 4):parameters()",
  ["heed.optim.AdamW"] = "heed.nn.Linear(4, 4):parameters()",
    ["heed.optim.RMSprop"] = "heed.nn.Linear(4, 4):parameters()",
  ["heed.utils.data.Subset"] = "heed.range(1, 9), { 1, 2 }",
  ["heed.utils.data.Tokens"] = "heed.range(1, 20):long(), 4", ["heed.mask.tree"] = "{ 0, 1, 1, 2 }",
  ["heed.mask.intervals"] = "{ { { 1, 1 } }, { { 1, 2 } }, { { 1, 3 } }, { { 2, 4 } } }",
  ["heed.nn.Module"] = nil,
  ["Tensor:scaled_dot_product_attention"] = qqq, ["Tensor:linear_attention"] = qqq, ["Tensor:attention_partial"] = qqq,
  ["Tensor:causal_conv"] = "heed.randn(2, 4, 4), heed.randn(4, 2)",
  ["Tensor:varlen_attention"] = "heed.randn(4, 2, 4), heed.randn(4, 2, 4), heed.randn(4, 2, 4), { lengths = { 2, 2 } }",
  ["Tensor:quantile"] = square .. ", 0.5", ["Tensor:bmm"] = "heed.randn(2, 4, 4), heed.randn(2, 4, 4)",
  ["Tensor:mv"] = ("%s, %s"):format(square, row), ["Tensor:addmm"] = ("%s, %s, %s"):format(square, square, square),
  ["Tensor:addmv"] = ("%s, %s, %s"):format(row, square, row),
  ["Tensor:baddbmm"] = "heed.randn(2, 4, 4), heed.randn(2, 4, 4), heed.randn(2, 4, 4)",
  ["Tensor:tensordot"] = ("%s, %s, 1"):format(square, square), ["Tensor:cross"] = "heed.randn(4, 3), heed.randn(4, 3)",
  ["Tensor:dot"] = ("%s, %s"):format(row, row), ["Tensor:outer"] = ("%s, %s"):format(row, row),
  ["Tensor:dequantize_int8"] = "heed.ones(4, 4):to 'int8', heed.ones(4)",
  ["Tensor:linear_int8"] = square .. ", heed.ones(4, 4):to 'int8', heed.ones(4)",
  ["Tensor:embedding"] = square .. ", " .. labels, ["Tensor:backward"] = "T.loss()",
    ["Tensor:backward_steps"] = "T.loss()",
  ["Tensor:register_hook"] = "T.loss(), function() end", ["Tensor:item"] = "heed.tensor(2.5)",
  ["Tensor:where"] = "heed.randn(4, 4), heed.ones(4, 4):gt(0), heed.zeros(4, 4)",
  ["Tensor:expand"] = row .. ", 4, 4", ["Tensor:view_as"] = ("%s, %s"):format(square, square),
  ["Tensor:permute"] = square .. ", 2, 1", ["Tensor:movedim"] = square .. ", 1, 2", ["Tensor:moveaxis"] = square
    .. ", 1, 2",
  ["Tensor:narrow"] = square .. ", 1, 2, 2", ["Tensor:unflatten"] = square .. ", 1, { 2, 2 }",
  ["Tensor:masked_select"] = "heed.randn(4, 4), heed.ones(4, 4):gt(0)",
    ["Tensor:pack"] = "heed.randn(2, 4, 4), { 2, 3 }",
  ["Tensor:unpack"] = "heed.randn(5, 4), { 2, 3 }",
  ["Tensor:scatter"] = "heed.zeros(4, 4), 1, heed.ones(1, 4):long(), heed.randn(1, 4)",
  ["Tensor:scatter_"] = "heed.zeros(4, 4), 1, heed.ones(1, 4):long(), heed.randn(1, 4)",
  ["Tensor:scatter_add_"] = "heed.zeros(4, 4), 1, heed.ones(1, 4):long(), heed.randn(1, 4)",
  ["Tensor:scatter_add"] = "heed.zeros(4, 4), 1, heed.ones(1, 4):long(), heed.randn(1, 4)",
  ["Tensor:index_add"] = "heed.zeros(4, 4), 1, { 1, 2 }, heed.randn(2, 4)",
  ["Tensor:index_add_"] = "heed.zeros(4, 4), 1, { 1, 2 }, heed.randn(2, 4)",
  ["Tensor:index_copy"] = "heed.zeros(4, 4), 1, { 1, 2 }, heed.randn(2, 4)",
  ["Tensor:index_copy_"] = "heed.zeros(4, 4), 1, { 1, 2 }, heed.randn(2, 4)",
  ["Tensor:index_fill_"] = "heed.zeros(4, 4), 1, { 1, 2 }, 3",
  ["Tensor:index_put_"] = "heed.zeros(4, 4), { heed.tensor { 1, 2 }:long() }, heed.randn(2, 4)",
  ["Tensor:index_put"] = "heed.zeros(4, 4), { heed.tensor { 1, 2 }:long() }, heed.randn(2, 4)",
  ["Tensor:addcdiv_"] = ("%s, %s, heed.rand(4, 4)"):format(square, square),
  ["Linear()"] = "heed.nn.Linear(4, 4), " .. square, ["SelfAttention()"] = "heed.nn.SelfAttention(4, 4), " .. square,
  ["MultiHeadAttention()"] = mha .. ", " .. square, ["MultiHeadAttention:steps"] = mha .. ", " .. square,
  ["MultiHeadAttentionWrapper()"] = "heed.nn.MultiHeadAttentionWrapper(4, 2, 8, 0, 2), " .. square,
  ["GatedDeltaNet()"] = "heed.nn.GatedDeltaNet(4, 2), " .. square, ["SwiGLU()"] = "heed.nn.SwiGLU(4, 4), " .. square,
  ["BatchNorm1d()"] = "heed.nn.BatchNorm1d(4), " .. square,
    ["Sequential()"] = "heed.nn.Sequential(heed.nn.Linear(4, 4)), " .. square,
  ["MultiheadAttention()"] = ("heed.nn.MultiheadAttention(4, 2), %s, %s, %s"):format(words, words, words),
  ["TransformerEncoderLayer()"] = "heed.nn.TransformerEncoderLayer(4, 2), heed.randn(4, 2, 4)",
  ["TransformerDecoderLayer()"] = "heed.nn.TransformerDecoderLayer(4, 2), heed.randn(4, 2, 4), heed.randn(4, 2, 4)",
  ["TransformerDecoder()"] = ("%s, %s, %s"):format(
    "heed.nn.TransformerDecoder(heed.nn.TransformerDecoderLayer(4, 2), 1)", words, words),
  ["Transformer()"] = "heed.nn.Transformer(4, 2, 1, 1, 4), heed.randn(4, 2, 4), heed.randn(4, 2, 4)",
  ["Module:forward"] = "heed.nn.Linear(4, 4), " .. square, ["Module:get_submodule"] = mha .. ", 'W_query'",
  ["Module:get_parameter"] = mha .. ", 'W_query.weight'", ["Module:get_buffer"] = "T.own(), 'mask'",
  ["Module:add_hook"] = gpt2 .. ", 'blocks.*.hook_resid_post', function() end",
  ["Module:on_weights"] = gpt2 .. ", function() end", ["Module:run_with_cache"] = ("%s, %s"):format(gpt2, ids),
  ["Inspected:verify"] = ("%s, %s"):format(mha, square),
    ["Inspected:explain"] = ("%s, %s, { head = 1, query = 1 }"):format(mha, square),
  ["ModuleClass:init"] = "T.own()", ["ModuleClass:register_buffer"] = "T.own(), 'other', heed.ones(2)",
  ["ModuleClass:add_module"] = "T.own(), 'more', heed.nn.GELU()",
    ["ModuleClass:register_module"] = "T.own(), 'more', heed.nn.GELU()",
  ["ModuleClass:register_parameter"] = "T.own(), 'more', heed.nn.Parameter(heed.ones(2))",
  ["ModuleClass:point"] = "T.own(), 'hook_x', heed.ones(2)",
    ["ModuleDict:pop"] = "heed.nn.ModuleDict { a = heed.nn.GELU() }, 'a'",
  ["Cache:truncate"] = mha .. ":new_cache(), 0", ["Cache:reorder"] = mha .. ":new_cache(), { 1 }",
    ["Cache:save"] = mha .. ":new_cache(), 'c.safetensors'",
  ["ModelCache:truncate"] = gpt2 .. ":new_cache(), 0", ["ModelCache:reorder"] = gpt2 .. ":new_cache(), { 1 }",
  ["StateCache:reorder"] = "heed.nn.GatedDeltaNet(4, 2):new_cache(), { 1 }",
  ["ContextCache:truncate"] = samples.objects.ContextCache[1] .. ", 0",
  ["Decoder:generate"] = ("%s, %s, { max_new_tokens = 2 }"):format(gpt2, ids),
    ["Decoder:forward"] = ("%s, %s"):format(gpt2, ids),
  ["Decoder()"] = ("%s, %s"):format(gpt2, ids), ["GPT2()"] = ("%s, %s"):format(gpt2, ids),
  ["Decoder:save_pretrained"] = gpt2 .. ", 'saved'", ["Encoder:forward"] = ("%s, { %s }"):format(encoder, ids),
  ["Encoder()"] = ("%s, { %s }"):format(encoder, ids), ["Encoder:encode"] = encoder .. ", { 'the cat' }",
  ["Encoder:score"] = 'T.loaded "heed.models.bert" "encoders/bert_cross", { { "a", "b" } }',
  ["Encoder:classify"] = 'T.loaded "heed.models.bert" "encoders/bert_labels", { "a b" }',
  ["Encoder:logits"] = ('T.loaded "heed.models.bert" "encoders/bert_labels", { %s }'):format(ids),
  ["DistilBert()"] = ('T.loaded "heed.models.distilbert" "encoders/distilbert", { %s }'):format(ids),
  ["Optimizer:add_param_group"] = trained .. ", { params = { heed.nn.Parameter(heed.ones(2)) } }",
  ["Optimizer:load_state_dict"] = trained .. ", " .. trained .. ":state_dict()",
  ["Scheduler:load_state_dict"] = samples.objects.Scheduler[1] .. ", " .. samples.objects.Scheduler[1]
    .. ":state_dict()",
  ["DataLoader:load_state_dict"] = samples.objects.DataLoader[1] .. ", " .. samples.objects.DataLoader[1]
    .. ":state_dict()",
  ["Tokens:load_state_dict"] = samples.objects.Tokens[1] .. ", " .. samples.objects.Tokens[1] .. ":state_dict()",
  ["Generator:part"] = "heed.Generator(1, 'philox'), { whole = { 4, 4 }, first = { 1, 1 } }",
  ["Generator:set_offset"] = "heed.Generator(1, 'philox'), 4",
    ["Generator:set_state"] = "heed.Generator(1), heed.Generator(2):get_state()",
  ["Generator:get_offset"] = "heed.Generator(1, 'philox')",
  ["Tokenizer:apply_chat_template"] = samples.objects.Tokenizer[1]
    .. ", { { role = 'user', content = 'hi' } }, { chat_template = '{{ messages[0].content }}' }",
  ["FunctionContext:mark_non_differentiable"] = "T.context(), heed.ones(2)",
    ["FunctionContext:save"] = "T.context(), heed.ones(2)",
  ["Shard:gather"] = "T.shard(), heed.ones(2, 2), 1", ["Shard()"] = "T.shard(), heed.ones(2, 2), 1",
    ["Shard:positions"] = "T.shard(), 4",
  ["ActivationCache:get"] = samples.objects.ActivationCache[1] .. ", 'ln_final.hook_scale'",
  ["ActivationCache:stack"] = samples.objects.ActivationCache[1] .. ", 'hook_resid_post'",
}

local distributed = {
  context_parallel = dist .. ".new_group { 1 }, function(shard) return shard(heed.ones(4, 4), 1) end",
  context_cache = dist .. ".new_group { 1 }", all_reduce = "heed.ones(4)", all_gather = "heed.ones(4)",
  all_gather_into_tensor = "heed.zeros(4), heed.ones(4)", reduce_scatter = "heed.zeros(4), { heed.ones(4) }",
    broadcast = "heed.ones(4), 1",
  isend = "heed.ones(4), 1", irecv = "heed.ones(4), 1", new_group = "{ 1 }", init_device_mesh = "{ 1 }, { 'tp' }",
  tensor_parallel = gpt2, data_parallel = "heed.nn.Linear(4, 4)",
    clip_grad_norm_ = "heed.nn.Linear(4, 4):parameters(), 1",
  full_state_dict = "heed.nn.Linear(4, 4)", get_rank = "", get_world_size = "", counted = "", barrier = "",
    destroy_process_group = "",
  load = "'tiny_gpt2.safetensors'", no_sync = "(" .. dist .. ").data_parallel(heed.nn.Linear(4, 4)), function() end",
}
for name, text in pairs(distributed) do
  samples.arguments[('require "heed.distributed".%s'):format(name)] = text
end

local interpreted = {
  entropy = attended, rollout = ("%s, %s"):format(gpt2, ids), induction_score = attended .. ", { period = 2 }",
  logit_lens = ("%s, %s"):format(gpt2, ids), direct_logit_attribution = ("%s, %s"):format(gpt2, ids),
  activation_patching = ("%s, %s, { 1, 3, 2 }, { metric = function(x) return x:sum() end }"):format(gpt2, ids),
  attribution_patching = ("%s, %s, { 1, 3, 2 }, { metric = function(x) return x:sum() end }"):format(gpt2, ids),
  integrated_gradients = ("%s, %s, { metric = function(x) return x:sum() end, steps = 2 }"):format(gpt2, ids),
}
for name, text in pairs(interpreted) do samples.arguments[('require "heed.interpret".%s'):format(name)] = text end

for name, more in pairs { StepLR = "2", MultiStepLR = "{ 1, 2 }", ConstantLR = "0.5, 2", LinearLR = "0.5, 1, 2",
  ExponentialLR = "0.9",
  PolynomialLR = "4", LambdaLR = "function() return 1 end", MultiplicativeLR = "function() return 1 end",
    CosineAnnealingLR = "4",
  CosineAnnealingWarmRestarts = "4", OneCycleLR = "0.1, { total_steps = 4 }", ReduceLROnPlateau = "{}" } do
  samples.arguments["heed.optim.lr_scheduler." .. name] = ("%s, %s"):format(sgd, more)
end
samples.arguments["heed.optim.lr_scheduler.SequentialLR"] = "T.sequential()"
samples.arguments['require "heed.plot".attention'] = attended .. "[1]"

return samples
