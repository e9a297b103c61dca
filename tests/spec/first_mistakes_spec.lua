-- Mistakes that someone makes who knows PyTorch and a little Lua: what each of them says. Every message names the
-- function, the argument, what came, what is needed and, where there is one, the fix. In the messages below, * stands
-- for any text: lists that grow.
local heed = require "heed"
local support = require "tests.support"
local nn = heed.nn

-- What the mistakes use: x [2, 3], q [2, 3, 4], a Linear layer, an attention module with d_in 4 and context_length 8.
local NAMES = "local heed, nn, F, x, q, m, a = ... "
local x, q = heed.ones(2, 3), heed.ones(2, 3, 4)

local function message_of(code)
  local compiled, run = pcall(support.compile, NAMES .. "local result = " .. code .. "\nreturn result") -- no tail call
  if not compiled then run = support.compile(NAMES .. code) end
  local ok, message = pcall(run, heed, nn, nn.functional, x:clone(), q, nn.Linear(3, 4),
    nn.MultiHeadAttention(4, 4, 8, 0, 2))
  assert.is_false(ok, "no error was raised")
  return (message:gsub("^%[string.-%]:%d+: ", ""))
end

local function matches(message, expected)
  local pattern = expected:gsub("[%^%$%(%)%%%.%[%]%+%-%?]", "%%%0"):gsub("%*", ".-")
  return message:find("^" .. pattern .. "$") ~= nil
end

local mistakes = {
  ["attention and caches"] = {
    { "(function() for i, row in x do end end)()",
      "Tensor: a tensor of shape [2, 3] and dtype float32 is not an iterator; write for i, row in x:iter() do, or "
        .. "ipairs(x)" },
    { "nn.MultiHeadAttention(4, 5, 10, 0, 2)",
      "MultiHeadAttention: d_out is 5 and num_heads is 2; num_heads must divide d_out" },
    { "nn.MultiHeadAttention(4, 4, 10, 0, 2)(heed.ones(1, 11, 4))",
      "MultiHeadAttention: x has 11 tokens; it must have at most 10, the context_length" },
    { "nn.MultiHeadAttention(4, 4, 10, 0, 2)(heed.ones(1, 3, 4), {mask = 1})",
      "MultiHeadAttention: there is no option 'mask'; the options are *; did you mean 'attn_mask'?" },
    { "nn.MultiHeadAttention(4, 4, 10, 0, 2)(heed.ones(1, 3, 4), {attn_mask = heed.ones(4,4)})",
      "MultiHeadAttention: attn_mask is [4, 4] and must broadcast to [1, 2, 3, 3]; its size 4 of "
        .. "dimension 2 must be 1 or 3" },
    { "nn.MultiHeadAttention(4, 4)", "MultiHeadAttention: context_length is nil; it must be an integer" },
    { "nn.MultiHeadAttention{embed_dim = 4, num_heads = 2}",
      "MultiHeadAttention: there is no option 'embed_dim'; the options are *; did you mean 'd_in'?" },
    { "nn.MultiHeadAttention{d_in = 4, d_out = 4, context_length = 8, dropout = 0, n_heads = 2}",
      "MultiHeadAttention: there is no option 'n_heads'; the options are *; did you mean 'num_heads'?" },
    { "nn.MultiHeadAttention{d_in = 4, d_out = 4, context_length = 8, dropout = 0, num_heads = 2, window = 3}",
      "MultiHeadAttention: window is the number 3; it must be a table {left =, right =}" },
    { "nn.MultiHeadAttention{d_in = 4, d_out = 4, context_length = 8, dropout = 0, num_heads = 2, rope = true}",
      "MultiHeadAttention: rope is a boolean (true); it must be a table of options" },
    { "nn.MultiHeadAttention{d_in = 4, d_out = 4, context_length = 8, dropout = 0, num_heads = 2, num_kv_heads = 3}",
      "MultiHeadAttention: num_heads is 2 and num_kv_heads is 3; num_kv_heads must divide num_heads" },
    { "nn.MultiHeadAttention(4, 4, 8, 2, 2)", "MultiHeadAttention: dropout is 2; it must be from 0 to 1" },
    { "nn.CausalAttention(4, 4, 8)", "CausalAttention: dropout is nil; it must be a number" },
    { "nn.SelfAttention(4)", "SelfAttention: d_out is nil; it must be an integer" },
    { "a(heed.ones(4))",
      "MultiHeadAttention: x is [4]; it must be [n, 4] or [b, n, 4], since d_in is 4" },
    { "a(heed.ones(1, 3, 5))",
      "MultiHeadAttention: x is [1, 3, 5]; it must be [n, 4] or [b, n, 4], since d_in is 4" },
    { "a(heed.ones(1, 3, 4), {need_weight = true})",
      "MultiHeadAttention: there is no option 'need_weight'; the options are *; did you mean "
        .. "'need_weights'?" },
    { "a(heed.ones(1, 3, 4), {key_padding_mask = heed.ones(1, 3)})",
      "MultiHeadAttention: key_padding_mask is float32; it must be bool: convert with "
        .. "key_padding_mask:bool(), or compare, as x:gt(0) does" },
    { "a(heed.ones(1, 3, 4), heed.ones(1, 3, 4))",
      "MultiHeadAttention: the second argument is a tensor of shape [1, 3, 4] and dtype float32; it "
        .. "must be a table of options: {key = y} to attend to other tokens, {attn_mask = y} for a mask" },
    { "a:head(3)",
      "head: i is 3; it must be from 1 to 2, or from -2 to -1" },
    { "a.heads",
      "MultiHeadAttention has no field 'heads'; it has *; did you mean 'num_heads'?" },
    { "a.W_q",
      "MultiHeadAttention has no field 'W_q'; it has *" },
    { "a:new_cache{batch_size = 2}",
      "new_cache: there is no option 'batch_size'; the options are batch, capacity, dtype, prefix; "
        .. "did you mean 'batch'?" },
    { "a:new_cache{capacity = \"a\"}",
      "new_cache: capacity is a string ('a'); it must be an integer" },
    { "a:new_cache{dtype = \"fp16\"}",
      "new_cache: dtype is a string ('fp16'); it must be *; write \"float16\"" },
    { "a:new_cache():truncate(5)",
      "truncate: n is 5; it must be from 0 to 0, the length" },
    { "a:new_cache().len",
      "a heed.Cache has no field 'len'; it has *" },
    { "a:new_cache():reorder{2}",
      "reorder: element 1 of indices is 2; it must be from 1 to 1, the batch size" },
    { "a(heed.ones(2, 3, 4), {cache = a:new_cache()})",
      "MultiHeadAttention: the cache has a batch of 1; it must be 2, that of x" },
    { "a(heed.ones(1, 3, 4), {cache = {}})",
      "MultiHeadAttention: cache is a table; it must be a heed.Cache" },
    { "heed.scaled_dot_product_attention(x, x)", "scaled_dot_product_attention: v is nil; it must be a tensor" },
    { "heed.scaled_dot_product_attention(q, heed.ones(2,3,5), q)",
      "scaled_dot_product_attention: q is [2, 3, 4] and k is [2, 3, 5]; their last sizes must be equal" },
    { "heed.scaled_dot_product_attention(q, q, q, {causal = true})",
      "scaled_dot_product_attention: there is no option 'causal'; the options are *; did you mean "
        .. "'is_causal'?" },
    { "heed.scaled_dot_product_attention(q, q, q, {attn_mask = heed.ones(2,2):long()})",
      "scaled_dot_product_attention: attn_mask is int64; it must be bool (true is visible) or float32 "
        .. "(added)" },
    { "heed.scaled_dot_product_attention(q, q, q, {dropout_p = 2})",
      "scaled_dot_product_attention: dropout_p is 2; it must be from 0 to 1" },
    { "heed.rope(x, 1)", "rope: positions is the number 1; it must be a tensor or a table of integers" },
    { "nn.MultiheadAttention(4, 3)",
      "MultiheadAttention: embed_dim is 4 and num_heads is 3; embed_dim must be a multiple of num_heads" },
    { "nn.MultiheadAttention(4, 2)(heed.ones(3, 1, 4))",
      "MultiheadAttention: key is nil; it must be a tensor; for self-attention, write m(x, x, x)" },
    { "heed.relu(nn.MultiHeadAttention(4, 4, 8, 0, 2)(heed.ones(1, 3, 4), {need_weights = true}))",
      "relu: the last argument is the second result of a call with need_weights; put parentheses "
        .. "around that call, which then has one result: (m(x, {need_weights = true}))" },
  },
  ["models and tokenizers"] = {
    { "require(\"heed.models.gpt2\").load()", "GPT2.load: path is nil; it must be a string" },
    { "require(\"heed.models.gpt2\"){}",
      "GPT2: unsupported configuration: n_embd is missing; n_head is missing; n_layer is missing; "
        .. "vocab_size is missing" },
    { "require(\"heed.models.gpt2\"){vocab_size = 10}",
      "GPT2: unsupported configuration: n_embd is missing; n_head is missing; n_layer is missing" },
    { "heed.models.load {}", "models.load: path is a table; it must be a string" },
    { "require(\"heed.tokenizers.wordpiece\").load(3)", "load: path is the number 3; it must be a string" },
    { "require(\"heed.models.gpt2\"){n_layer = 2, n_head = 3, n_embd = 8, vocab_size = 10, n_positions = 8}",
      "GPT2: unsupported configuration: n_head is 3; it must divide n_embd (8)" },
    { "require(\"heed.models.llama\"){hidden = 2}",
      "Llama: unsupported configuration: there is no setting 'hidden', did you mean 'hidden_act', *?; "
        .. "the settings are *" },
  },
  ["files"] = {
    { "heed.load()", "load: path is nil; it must be a string" },
    { "heed.save(\"x.foo\", x)", "save: path is 'x.foo'; it must end in .npy to hold one tensor without a name" },
    { "heed.save(x, \"x.npy\")",
      "save: path is a tensor of shape [2, 3] and dtype float32; it must be a string; the path comes first" },
    { "heed.load(3)", "load: path is the number 3; it must be a string" },
    { "heed.save(x)", "save: path is a tensor of shape [2, 3] and dtype float32; it must be a string" },
    { "heed.save(\"x.npy\")", "save: what is nil; it must be a tensor or a table of tensors" },
    { "heed.save(\"x.npy\", {a = x})",
      "save: path is 'x.npy'; it must end in .safetensors, .npz or .gguf to hold tensors by name" },
    { "heed.save(\"x.safetensors\", x)",
      "save: path is 'x.safetensors'; it must end in .npy to hold one tensor without a name" },
    { "heed.save(\"x.npz\", {a = 1})",
      "save: 'a' is the number 1; it must be a tensor; a .safetensors file can hold other values, too" },
    { "heed.save(\"x.pt\", {a = x})",
      "save: path is 'x.pt'; it must end in .safetensors, .npz or .gguf to hold tensors by name" },
    { "heed.save(\"x.safetensors\", {a = x}, {meta = {}})",
      "save: there is no option 'meta'; the options are metadata; did you mean 'metadata'?" },
    { "heed.save(\"x.safetensors\", m)",
      "save: what is a module (Linear); it must be a tensor or a table of tensors; use m:state_dict()" },
  },
  ["modules of one's own"] = {
    { "nn.Module.class()", "class: name is nil; it must be a string" },
    { "nn.Parameter(1)", "Parameter: data is the number 1; it must be a tensor" },
    { "local Mine = nn.Module.class \"Mine\"; return Mine()(x)",
      "Mine has no forward; define `function Mine:forward(x) ... end`" },
    { "local Mine = nn.Module.class \"Mine\"; function Mine.init(d) end; return Mine.forward(x)",
      "forward: self is a tensor of shape [2, 3] and dtype float32; it must be a module; call the "
        .. "method with a colon" },
    { "local Mine = nn.Module.class(Mine); return Mine", "class: name is nil; it must be a string" },
    { "local Mine = nn.Module.class \"Mine\"; function Mine:init(d) self.w = nn.Parameter(d) end; return Mine(3)",
      "Parameter: data is the number 3; it must be a tensor" },
    { "local Mine = nn.Module.class \"Mine\"; local o = Mine(); o.w = nn.Parameter(x); o.w = 1",
      "Mine: w is the number 1; it must be a parameter, which it was before, or nil" },
    { "local Mine = nn.Module.class \"Mine\"; local o = Mine(); o:register_buffer(\"mask\")",
      "register_buffer: tensor is nil; it must be a tensor" },
    { "local Mine = nn.Module.class \"Mine\"; local o = Mine(); o:register_buffer(x, \"mask\")",
      "register_buffer: name is a tensor of shape [2, 3] and dtype float32; it must be a string" },
    { "local Mine = nn.Module.class \"Mine\"; local o = Mine(); o.training = 1",
      "Mine: training is the number 1; it must be a boolean" },
    { "nn.Parameter()", "Parameter: data is nil; it must be a tensor" },
    { "nn.Parameter({1, 2})", "Parameter: data is a table; it must be a tensor; heed.tensor makes one from a table" },
  },
  ["functions of nn.functional and nn.init"] = {
    { "heed.nn.functional.sofmax(x, 1)",
      "heed.nn.functional has no function or field 'sofmax'; did you mean 'softmax'?" },
    { "F.sofmax(x, 1)", "heed.nn.functional has no function or field 'sofmax'; did you mean 'softmax'?" },
    { "F.cross_entropy(x, heed.tensor{1, 9})",
      "cross_entropy: target has the class 9; classes must be from 1 to 3, the size of input's class "
        .. "dimension" },
    { "F.cross_entropy(x)", "cross_entropy: target is nil; it must be a tensor or a table of integers" },
    { "F.mse_loss(x, heed.ones(5))",
      "mse_loss: input is [2, 3] and target is [5]; the shapes must be equal, or broadcast" },
    { "F.relu(1)", "relu: input is the number 1; it must be a tensor" },
    { "F.matmul(x, x)", "heed.nn.functional has no function or field 'matmul'; it is heed.matmul" },
    { "nn.init.xavier_unifrom_(x)",
      "heed.nn.init has no function or field 'xavier_unifrom_'; did you mean 'xavier_uniform_'?" },
  },
  ["random numbers"] = {
    { "heed.randn(2,3,{seed=1})",
      "randn: there is no option 'seed'; the options are generator, dtype, requires_grad; did you mean 'generator'?" },
    { "heed.manual_seed()", "manual_seed: seed is nil; it must be an integer" },
    { "heed.manual_seed(\"a\")", "manual_seed: seed is a string ('a'); it must be an integer" },
    { "heed.Generator(\"x\")", "Generator: seed is a string ('x'); it must be an integer" },
    { "heed.rand(2, {generator = 1})", "rand: generator is the number 1; it must be a heed.Generator" },
    { "heed.randint(5)",
      "randint: the shape is missing; it must be the last argument, as a table if low is left out" },
    { "heed.randint(0, 10)",
      "randint: the shape is missing; it must be the last argument, as a table if low is left out" },
    { "heed.randperm()", "randperm: n is nil; it must be an integer" },
    { "heed.rand(\"2\")", "rand: a size is a string ('2'); it must be an integer" },
    { "heed.manual_seed(1.5)", "manual_seed: seed is the number 1.5; it must be an integer" },
    { "heed.manual_seed(heed.tensor(1))",
      "manual_seed: seed is a tensor of shape [] and dtype float32; it must be an integer" },
    { "heed.Generator(1):seed()", "heed.Generator has no function or field 'seed'" },
    { "heed.randn{2, 3, generator = heed.Generator(1)}",
      "randn: the table of sizes has the key 'generator'; options must be in a table of their own" },
    { "heed.randint(10, 0, {3})", "randint: high is 0 and low is 10; high must be at least low" },
    { "heed.randperm(-1)", "randperm: the shape is [-1]; its sizes must not be negative" },
    { "x:uniform_(\"a\")", "uniform_: from is a string ('a'); it must be a number" },
    { "x:normal_(0, -1)", "normal_: std is -1; it must be 0 or more" },
    { "x:dropout(2)", "dropout: p is 2; it must be from 0 to 1" },
    { "heed.bernoulli(0.5)",
      "bernoulli: p is the number 0.5; it must be a tensor; call it as x:bernoulli(...), with a "
        .. "colon, or as heed.bernoulli(x, ...)" },
    { "heed.multinomial(x, 5)",
      "multinomial: num_samples is 5 and there are 3 weights; without replacement it must be at most "
        .. "their number: set replacement = true" },
  },
  ["modules"] = {
    { "nn:Linear(2, 3)", "Linear: argument 1 is the table nn; write nn.Linear(...), with a dot instead of a colon" },
    { "m.forward(x)",
      "forward: self is a tensor of shape [2, 3] and dtype float32; it must be a built-in module "
        .. "(methods are called with a colon)" },
    { "nn.Linear(3)", "Linear: d_out is nil; it must be an integer" },
    { "nn.Linear()", "Linear: d_in is nil; it must be an integer" },
    { "nn.Linear(\"3\", 4)", "Linear: d_in is a string ('3'); it must be an integer" },
    { "m:forward()", "Linear: x is nil; it must be a tensor" },
    { "m()", "Linear: x is nil; it must be a tensor" },
    { "m(1)", "Linear: x is the number 1; it must be a tensor" },
    { "m(heed.ones(2, 7))",
      "Linear: x is [2, 7] and weight is [4, 3]; the last size of x (7) must equal the last size of "
        .. "weight (3)" },
    { "nn.Linear(3,4){1}", "Linear: x is a table; it must be a tensor; heed.tensor makes one from a table" },
    { "nn.Linaer(3,4)", "heed.nn has no function or field 'Linaer'; did you mean 'Linear'?" },
    { "nn.Dropout(2)", "Dropout: p is 2; it must be from 0 to 1" },
    { "nn.Embedding(3, 2)(heed.tensor{0})",
      "Embedding: id 0 is out of range; weight has rows 1 to 3 (element [1] of ids); ids count from 1*" },
    { "nn.Embedding(3, 2)(heed.tensor{0}:long())",
      "Embedding: id 0 is out of range; weight has rows 1 to 3 (element [1] of ids); ids count from 1*" },
    { "nn.LayerNorm(5)(x)", "LayerNorm: x is [2, 3]; its last sizes must be [5], the normalized_shape" },
    { "nn.Sequential(1)", "Sequential: the appended value is the number 1; it must be a module" },
    { "nn.ModuleList{1}", "ModuleList: the appended value is the number 1; it must be a module" },
    { "m:load_state_dict(1)",
      "load_state_dict: state is the number 1; it must be a state dict or a table of tensors by name" },
    { "m:load_state_dict{weight = x}",
      "load_state_dict: the state does not fit Linear:\n  bias is missing\n  weight is [2, 3]; it must "
        .. "be [4, 3]" },
    { "m.weigth", "Linear has no field 'weigth'; it has *; did you mean 'weight'?" },
    { "m.weight = 1", "Linear: weight is the number 1; it must be a tensor" },
    { "m.foo = 1", "Linear: 'foo' cannot be set; the fields that can be set are weight, bias, training" },
    { "m:parmeters()", "Linear has no field 'parmeters'; it has *; did you mean 'parameters'?" },
    { "nn.Linear{3, 4}",
      "Linear: d_in is a table; it must be an integer; write nn.Linear(...) with round brackets, or "
        .. "names in the table: nn.Linear{d_in = ...}" },
    { "nn.Linear{in_features = 3}", "Linear: d_out is nil; it must be an integer" },
    { "nn.Linear(3, 4, 5)", "Linear: bias is the number 5; it must be a boolean" },
    { "nn.Linear(3, 4, {bais = false})",
      "Linear: there is no option 'bais'; the options are *; did you mean 'bias'?" },
    { "nn.Linear(-3, 4)", "Linear: d_in is -3; it must be at least 1" },
    { "nn.linear(3, 4)", "heed.nn has no function or field 'linear'; did you mean 'Linear' or heed.linear?" },
    { "nn.Dropout(\"0.5\")", "Dropout: p is a string ('0.5'); it must be a number" },
    { "nn.Embedding(10)", "Embedding: embedding_dim is nil; it must be an integer" },
    { "nn.Embedding(10, 4)(\"a\")", "Embedding: ids is a string ('a'); it must be a tensor or a table of integers" },
    { "nn.Embedding(10, 4)(heed.tensor{{11}}:long())",
      "Embedding: id 11 is out of range; weight has rows 1 to 10 (element [1, 1] of ids)" },
    { "nn.LayerNorm()", "LayerNorm: normalized_shape is nil; it must be an integer or a table of sizes" },
    { "nn.LayerNorm(3)(heed.ones(2, 4))",
      "LayerNorm: x is [2, 4]; its last sizes must be [3], the normalized_shape" },
    { "nn.LayerNorm(3, \"a\")", "LayerNorm: eps is a string ('a'); it must be a number" },
    { "nn.GELU(\"thanh\")", "GELU: approximate is a string ('thanh'); it must be 'none' or 'tanh'" },
    { "nn.GELU{approximation = \"tanh\"}",
      "GELU: there is no option 'approximation'; the options are approximate; did you mean 'approximate'?" },
    { "nn.Conv2d(1, 2, 3)",
      "heed.nn has no function or field 'Conv2d'; heed has no convolutions, pooling or images" },
    { "nn.LSTM(3, 4)", "heed.nn has no function or field 'LSTM'; heed has no recurrent networks" },
    { "nn.Sequential(nn.Linear(3, 4), \"relu\")",
      "Sequential: the appended value is a string ('relu'); it must be a module" },
    { "nn.Sequential(nn.Linear(3, 4), heed.relu)",
      "Sequential: the appended value is a function; it must be a module; a constructor is called: nn.ReLU()" },
    { "nn.Sequential(nn.Linear(3, 4), nn.Linear(5, 2))(x)",
      "Linear: x is [2, 4] and weight is [2, 5]; the last size of x (4) must equal the last size of "
        .. "weight (5)" },
    { "nn.ModuleList{m}[0]", "ModuleList: index 0 is out of range; there is 1 module, counted from 1" },
    { "nn.ModuleList{m}(x)", "ModuleList has no forward; call its modules one by one" },
    { "m:forward(x, x)",
      "Linear: the second argument is a tensor of shape [2, 3] and dtype float32; there must be only "
        .. "one tensor, the input x" },
    { "m(x, x)",
      "Linear: the second argument is a tensor of shape [2, 3] and dtype float32; there must be only "
        .. "one tensor, the input x" },
    { "m.foward(x)", "Linear has no field 'foward'; it has *; did you mean 'forward'?" },
    { "m:cuda()", "Linear has no field 'cuda'; it has *; heed computes on the processor: leave it out" },
    { "m.weight.data",
      "Tensor has no field or method 'data'; write x:detach(), or heed.no_grad(function() x:copy_(value) "
        .. "end) to overwrite it" },
    { "m.weights", "Linear has no field 'weights'; it has *; did you mean 'weight'?" },
    { "m.eval()", "eval: self is nil; it must be a module; call the method with a colon" },
    { "m.requires_grad",
      "Linear has no field 'requires_grad'; it has *; write m:requires_grad_(false) to freeze all "
        .. "parameters; m.weight.requires_grad tells" },
    { "m.grad",
      "Linear has no field 'grad'; it has *; the gradients are those of its parameters: m.weight.grad" },
    { "m:backward()",
      "Linear has no field 'backward'; it has *; write loss:backward(): the gradients are in p.grad of "
        .. "m:parameters()" },
    { "m.bias = heed.ones(3)", "Linear: bias is [3]; it must be [4]" },
    { "m.weight = heed.ones(3)", "Linear: weight is [3]; it must be [4, 3]" },
    { "m.in_features = 5",
      "Linear: 'in_features' cannot be set; the fields that can be set are weight, bias, training" },
    { "m:to(\"cuda\")",
      "to: dtype is a string ('cuda'); it must be *; heed computes on the processor: leave it out" },
    { "m:train(\"yes\")", "train: mode is a string ('yes'); it must be a boolean" },
    { "m:load_state_dict()", "load_state_dict: state is nil; it must be a state dict or a table of tensors by name" },
    { "m:load_state_dict(heed.load 'none.safetensors')",
      "load_state_dict: state is nil; it must be a state dict or a table of tensors by name; load: "
        .. "'none.safetensors': *" },
    { "m:load_state_dict{}",
      "load_state_dict: the state does not fit Linear:\n  bias is missing\n  weight is missing" },
    { "m:load_state_dict({weight = m.weight}, {strct = false})",
      "load_state_dict: there is no option 'strct'; the options are strict, assign; did you mean "
        .. "'strict'?" },
    { "m:load_state_dict(\"model.pt\")",
      "load_state_dict: state is a string ('model.pt'); it must be a state dict or a table of tensors "
        .. "by name" },
    { "m:apply()", "apply: f is nil; it must be a function" },
    { "nn.CrossEntropyLoss()(x, heed.ones(3))",
      "cross_entropy: input is [2, 3] and target is [3]; target must have the shape of input without "
        .. "dimension 2, the classes" },
    { "nn.CrossEntropyLoss{reduction = \"avg\"}",
      "CrossEntropyLoss: reduction is a string ('avg'); it must be 'none', 'mean' or 'sum'" },
    { "nn.BatchNorm2d(3)",
      "heed.nn has no function or field 'BatchNorm2d'; heed has no convolutions, pooling or images" },
    { "nn.TransformerEncoderLayer(4)", "TransformerEncoderLayer: nhead is nil; it must be an integer, at least 1" },
  },
  ["reading and writing elements"] = {
    { "x.shape[0]", "shape: index 0 is out of range for 2 sizes; they count from 1, or from -1 for the last" },
    { "x[0]", "index: index 0 is out of range for dimension 1 of size 2; it must be from 1 to 2, or from -1 to -2" },
    { "x[{0}]",
      "index: index 0 is out of range for dimension 1 of size 2; it must be from 1 to 2, or from -1 to -2" },
    { "x[{1,2,3}]", "index: 3 indices are given; x has 2 dimensions; a list of indices for one is written "
      .. "x[{ {{1, 2, …}} }]" },
    { "x['1:3']", "Tensor has no field or method '1:3'; slices are tables that include both ends: "
      .. "x[{ {first, last}, {} }]" },
    { "x[5]", "index: index 5 is out of range for dimension 1 of size 2; it must be from 1 to 2, or from -1 to -2" },
    { "x[3] = heed.ones(9)",
      "index: index 3 is out of range for dimension 1 of size 2; it must be from 1 to 2, or from -1 to -2" },
    { "x[1.5]", "index: an index is the number 1.5; it must be an integer" },
    { "x[\"1\"]", "Tensor has no field or method '1'" },
    { "x[nil]", "index: the index is nil; it must be an integer, a table or a tensor" },
    { "x[{ {1, 5} }]",
      "index: the slice {1, 5} does not fit dimension 1 of size 2; it must be within the dimension "
        .. "(both ends are included; {i, i - 1} is empty)" },
    { "x[{ {1} }]",
      "index: the slice of dimension 1 must be {first, last}, {first, last, step} or {} for all; a "
        .. "list of indices is written {{1, 2, …}}" },
    { "x[{1, 9}]",
      "index: index 9 is out of range for dimension 2 of size 3; it must be from 1 to 3, or from -1 to -3" },
    { "x[true]", "index: the index is a boolean (true); it must be an integer, a table or a tensor" },
    { "x[heed.tensor{true, false, true}]",
      "index: mask is [3] and x is [2, 3]; mask must have the first sizes of x, or all of them" },
    { "x[heed.tensor{0.5}]",
      "index: the index contains 0.5; it must have whole numbers: convert with x:long(), which "
        .. "drops fractions (element [1] of the index)" },
    { "x[-3]",
      "index: index -3 is out of range for dimension 1 of size 2; it must be from 1 to 2, or from -1 "
        .. "to -2" },
    { "x[1] = \"a\"", "index: the value is a string ('a'); it must be a tensor or a number" },
    { "x[1] = heed.ones(7)",
      "index: the value is [7] and must broadcast to [3]; its size 7 of dimension 1 must be 1 or 3" },
    { "x[{1, 4}] = 0",
      "index: index 4 is out of range for dimension 2 of size 3; it must be from 1 to 3, or from -1 to -3" },
    { "x[0] = 1",
      "index: index 0 is out of range for dimension 1 of size 2; it must be from 1 to 2, or from -1 to -2" },
    { "x[1][9]",
      "index: index 9 is out of range for dimension 1 of size 3; it must be from 1 to 3, or from -1 to -3" },
    { "for i = 0, 2 do local y = x[i] end",
      "index: index 0 is out of range for dimension 1 of size 2; it must be from 1 to 2, or from -1 to -2" },
    { "x[{x:gt(0), 1, 2}]", "index: 4 indices are given; x has 2 dimensions" },
    { "x[{heed.tensor{9}, 1}]",
      "index: index 9 is out of range for dimension 1 of size 2; it must be from 1 to 2, or from -1 "
        .. "to -2 (element [1] of indices[1])" },
    { "x[\"...\"]", "Tensor has no field or method '...'; write x[{\"...\", i}]" },
  },
  ["names"] = {
    { "x:numpy()",
      "Tensor has no field or method 'numpy'; x:tolist() gives nested tables, and heed.save(\"x.npy\", "
        .. "x) a file for NumPy" },
    { "heed.arrange(3)", "heed has no function or field 'arrange'; did you mean 'arange'?" },
    { "heed.array{1, 2}", "heed has no function or field 'array'; write heed.tensor(nested table)" },
    { "heed.Tensor(2, 3)",
      "heed has no function or field 'Tensor'; heed.tensor{1, 2} makes a tensor, and "
        .. "heed.is_tensor(x) tests for one" },
    { "heed.LongTensor{1}", "heed has no function or field 'LongTensor'; write heed.tensor({1, 2}, \"int64\")" },
    { "heed.zeros(2, 3).cuda()",
      "Tensor has no field or method 'cuda'; heed computes on the processor: leave it out" },
    { "heed.tensor({1, 2}, heed.flaot32)", "heed has no function or field 'flaot32'; did you mean 'float32'?" },
    { "heed.grad(x)", "heed has no function or field 'grad'; write heed.autograd.grad(y, x)" },
    { "heed.DataLoader(x)", "heed has no function or field 'DataLoader'; it is heed.utils.data.DataLoader" },
    { "nn.AdamW(m:parameters())", "heed.nn has no function or field 'AdamW'; it is heed.optim.AdamW" },
    { "nn.lr_scheduler", "heed.nn has no function or field 'lr_scheduler'; it is heed.optim.lr_scheduler" },
    { "heed.device(\"cuda\")",
      "heed has no function or field 'device'; heed computes on the processor: leave it out" },
    { "heed.cuda.is_available()",
      "heed has no function or field 'cuda'; heed computes on the processor: leave it out" },
    { "x.Shape", "Tensor has no field or method 'Shape'; did you mean 'shape'?" },
    { "x.shpae", "Tensor has no field or method 'shpae'; did you mean 'shape'?" },
    { "x:len()", "Tensor has no field or method 'len'; write #x, or x:size(1)" },
    { "heed.print(x)", "heed has no function or field 'print'; write print(x)" },
    { "x:long():exp():foo()", "Tensor has no field or method 'foo'" },
    { "heed.is_tensr(x)", "heed has no function or field 'is_tensr'; did you mean 'is_tensor'?" },
    { "x:to(heed.int)",
      "heed has no function or field 'int'; int64 is heed's only integer dtype for arithmetic: "
        .. "\"int64\", or x:long()" },
    { "x:type()", "Tensor has no field or method 'type'; x.dtype is the dtype, and x:to \"int64\" converts" },
    { "x:copy()", "Tensor has no field or method 'copy'; write x:clone()" },
    { "heed.flaot32", "heed has no function or field 'flaot32'; did you mean 'float32'?" },
    { "heed.int",
      "heed has no function or field 'int'; int64 is heed's only integer dtype for arithmetic: "
        .. "\"int64\", or x:long()" },
    { "x:repeat_(2)", "Tensor has no field or method 'repeat_'; did you mean 'repeat'?" },
  },
  ["making tensors"] = {
    { "heed:zeros(2, 3)",
      "zeros: argument 1 is the table heed; write heed.zeros(...), with a dot instead of a colon" },
    { "heed:tensor{1}",
      "tensor: argument 1 is the table heed; write heed.tensor(...), with a dot instead of a colon" },
    { "heed.zeros(2)(1)",
      "Tensor: a tensor of shape [2] and dtype float32 is called; write x[i] for an element or row, "
        .. "and fields (x.T, x.shape) without ()" },
    { "heed.tensor()", "tensor: data is nil; it must be a table, a number, a boolean or a tensor" },
    { "heed.tensor(\"abc\")", "tensor: data is a string ('abc'); it must be a number, a boolean or a tensor" },
    { "heed.zeros(\"a\")", "zeros: a size is a string ('a'); it must be an integer" },
    { "heed.zeros(2.5)", "zeros: a size is the number 2.5; it must be an integer" },
    { "heed.zeros(-1)", "zeros: the shape is [-1]; its sizes must not be negative" },
    { "heed.zeros(2, 3, \"int64\")",
      "zeros: a size is a string ('int64'); it must be an integer; name the dtype: {dtype = 'int64'}" },
    { "heed.zeros(2, 3, {dtype = \"int32\"})", "zeros: dtype is a string ('int32'); it must be *; write \"int64\"" },
    { "heed.zeros(2, 3, {dtype = \"double\"})",
      "zeros: dtype is a string ('double'); it must be *; write \"float32\"" },
    { "heed.zeros(2,3,{device = \"cuda\"})",
      "zeros: there is no option 'device'; the options are dtype, requires_grad; heed computes on the processor: "
        .. "leave it out" },
    { "heed.cat{x, heed.ones(4,5)}",
      "cat: tensor 2 is [4, 5] and the first is [2, 3]; all sizes but that of the dimension to join "
        .. "must be equal" },
    { "heed.stack{x, heed.ones(3,2)}", "stack: tensor 2 is [3, 2] and the first is [2, 3]; all sizes must be equal" },
    { "heed.range(1)", "range: last is nil; it must be a number" },
    { "heed.linspace(0, 1)", "linspace: count is nil; it must be an integer" },
    { "heed.eye(\"a\")", "eye: n is a string ('a'); it must be an integer" },
    { "heed.full(2)", "full: value is nil; it must be a number" },
    { "heed.full({2,2})", "full: value is nil; it must be a number" },
    { "x:copy_(heed.ones(5))",
      "copy_: the source is [5] and must broadcast to [2, 3]; its size 5 of dimension 1 must be 1 or 3" },
    { "heed.tensor{1, 2, dtype = \"int64\"}",
      "tensor: data has the key 'dtype'; options must be in a table of their own" },
    { "heed.tensor{{1, 2}, {3}}", "tensor: data[2] has 1 element; it must have 2, like the others" },
    { "heed.tensor({1, 2}, \"long\")", "tensor: dtype is a string ('long'); it must be *; write \"int64\"" },
    { "heed.zeros{2, \"3\"}", "zeros: a size is a string ('3'); it must be an integer" },
    { "heed.zeros(x)",
      "zeros: a size is a tensor of shape [2, 3] and dtype float32; it must be an integer; x.shape is "
        .. "the shape of a tensor" },
    { "heed.zeros(nil, 3)", "zeros: a size is nil; it must be an integer" },
    { "heed.ones(2, 3, true)", "ones: a size is a boolean (true); it must be an integer" },
    { "heed.eye()", "eye: n is nil; it must be an integer" },
    { "heed.full(3, \"a\")", "full: value is a string ('a'); it must be a number" },
    { "heed.linspace(0, 1, 2.5)", "linspace: count is the number 2.5; it must be an integer" },
    { "heed.ones(2, 2, 2):t()", "t: x is [2, 2, 2]; it must have at most 2 dimensions (transpose takes more)" },
    { "x + heed.ones(4)",
      "add: a is [2, 3] and b is [4]; to broadcast, sizes counted from the last must be equal or 1" },
    { "x * heed.ones(3, 2)",
      "mul: a is [2, 3] and b is [3, 2]; to broadcast, sizes counted from the last must be equal or 1" },
    { "x + heed.ones(2, 3):to(\"bfloat16\")",
      "add: b is bfloat16; it must be float32, int64 or bool: convert with b:float()" },
    { "x:add_(heed.ones(5, 2, 3))",
      "add_: the result is [5, 2, 3] and the tensor that is written is [2, 3]; the shapes must be equal" },
    { "x:mm(heed.ones(4, 4))",
      "mm: a is [2, 3] and b is [4, 4]; the last size of a (3) must equal the first size of b (4)" },
    { "heed.dot(heed.ones(3), heed.ones(4))",
      "dot: a is [3] and b is [4]; the last size of a (3) must equal the first size of b (4)" },
    { "heed.Size(\"a\")", "Size: a size is a string ('a'); it must be an integer" },
    { "x:gather(3, heed.ones(2, 3):long())",
      "gather: dim is 3 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2" },
    { "x:index_select(1, heed.tensor({5}, \"int64\"))",
      "index_select: index 5 is out of range for dimension 1 of size 2; it must be from 1 to 2, or "
        .. "from -1 to -2 (element [1] of index)" },
    { "x:masked_fill(heed.ones(4):bool(), 0)",
      "masked_fill: mask is [4] and x is [2, 3]; to broadcast, sizes counted from the last must be "
        .. "equal or 1" },
    { "heed.ones(3):tril()", "tril: x has 1 dimension; it must have at least 2" },
    { "heed.arange(\"a\")", "arange: end is a string ('a'); it must be a number" },
    { "heed.arange()", "arange: end is nil; it must be a number" },
    { "heed.arange(0, 5, 0)", "arange: step is 0; it must not be 0" },
    { "x:scatter_(1, heed.tensor{5}, 1)",
      "scatter_: index is [1] and x is [2, 3]; they must have the same number of dimensions" },
    { "heed.one_hot(heed.tensor{0, 3}, 2)", "one_hot: ids contains 0; it must contain integers from 1 on" },
    { "heed.zeros(x.shape, \"int64\")",
      "zeros: a size is a string ('int64'); it must be an integer; name the dtype: {dtype = 'int64'}" },
    { "heed.zeros(2, heed.int64)",
      "zeros: a size is a string ('int64'); it must be an integer; name the dtype: {dtype = 'int64'}" },
  },
  ["limits and information"] = {
    { "heed.limit{mem = 1}", "limit: there is no option 'mem'; the options are *; did you mean 'memory'?" },
    { "heed.limit{memory = \"1GB\"}",
      "limit: memory is a string ('1GB'); it must be a number of bytes above 0, or math.huge" },
    { "heed.set_num_threads(0)", "set_num_threads: n is 0; it must be from 1 to 1024" },
    { "heed.set_num_threads(\"4\")", "set_num_threads: n is a string ('4'); it must be an integer" },
  },
  ["joining and selecting"] = {
    { "heed.cat(x, x)",
      "cat: tensors is a tensor of shape [2, 3] and dtype float32; it must be a table of tensors, as "
        .. "in {a, b}" },
    { "heed.cat({x, x}, 0)", "cat: dim is 0; it must be at least 1, or at most -1 (the last)" },
    { "x:masked_fill(x:gt(0))", "masked_fill: value is nil; it must be a tensor or a number" },
    { "x:masked_fill(x, 1)",
      "masked_fill: mask is float32; it must be bool: convert with mask:bool(), or compare, as "
        .. "x:gt(0) does" },
    { "heed.where(x, 1, 0)",
      "where: condition is float32; it must be bool: convert with condition:bool(), or compare, as "
        .. "x:gt(0) does" },
    { "x:split(0)", "split: size is 0; it must be at least 1" },
    { "x:chunk(0)", "chunk: chunks is 0; it must be at least 1" },
    { "x:index_select(1, {0})",
      "index_select: index 0 is out of range for dimension 1 of size 2; it must be from 1 to 2, or "
        .. "from -1 to -2 (element [1] of index)" },
    { "x:repeat_interleave()", "repeat_interleave: repeats is nil; it must be an integer" },
    { "x:chunk()", "chunk: chunks is nil; it must be an integer" },
    { "x:split({1, 5}, 2)", "split: size[2] is 5; it must be from 0 to 2, the rest of dimension 2" },
    { "x:narrow(1, 2, 5)",
      "narrow: start 2 and length 5 do not fit dimension 1 of size 2; there must be length elements "
        .. "from start (from 1) on" },
    { "x:select(1, 3)",
      "select: index 3 is out of range for dimension 1 of size 2; it must be from 1 to 2, or from -1 "
        .. "to -2" },
    { "heed.cat()", "cat: tensors is nil; it must be a table of tensors, as in {a, b}" },
    { "heed.cat{}", "cat: tensors is empty; it must have at least 1 tensor" },
    { "heed.cat{x, 1}", "cat: tensors[2] is the number 1; it must be a tensor" },
    { "heed.stack(x, x)",
      "stack: tensors is a tensor of shape [2, 3] and dtype float32; it must be a table of tensors, "
        .. "as in {a, b}" },
    { "heed.stack{}", "stack: tensors is empty; it must have at least 1 tensor" },
    { "x:masked_select(x)",
      "masked_select: mask is float32; it must be bool: convert with mask:bool(), or compare, as "
        .. "x:gt(0) does" },
    { "x:repeat_interleave(\"a\")", "repeat_interleave: repeats is a string ('a'); it must be an integer" },
    { "heed.where(x:gt(0), \"a\", 1)", "where: a is a string ('a'); it must be a tensor or a number" },
    { "x:masked_fill(x:gt(0), \"-inf\")",
      "masked_fill: value is a string ('-inf'); it must be a tensor or a number" },
    { "x:tril(\"a\")", "tril: diagonal is a string ('a'); it must be an integer" },
    { "heed.cat{x:max(-1)}",
      "cat: tensors[2] is the second result of the call that gave tensors[1], the indices of these "
        .. "values; for the values alone, put the call in parentheses: {(x:max(1))}" },
  },
  ["shapes"] = {
    { "x:view(2,3,7)",
      "view: x is [2, 3] with 6 elements and the shape [2, 3, 7] has 42; the numbers must be equal" },
    { "x.shape()", "shape: a heed.Size is called; shape is a field: write x.shape, or x:size(dim)" },
    { "x:shape()", "shape: a heed.Size is called; shape is a field: write x.shape, or x:size(dim)" },
    { "x:reshape(4)", "reshape: x is [2, 3] with 6 elements and the shape [4] has 4; the numbers must be equal" },
    { "x:transpose(0, 1)",
      "transpose: dim is 0 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2" },
    { "x:transpose(1)", "transpose: dim2 is nil; it must be an integer" },
    { "x:permute(0, 1)",
      "permute: dim is 0 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2" },
    { "x:unsqueeze(0)",
      "unsqueeze: dim is 0 and the tensor has 2 dimensions; it must be from 1 to 3, or from -1 to -3" },
    { "x:unsqueeze()", "unsqueeze: dim is nil; it must be an integer" },
    { "x:squeeze(0)", "squeeze: dim is 0; it must be at least 1, or at most -1 (the last)" },
    { "x:expand(5, 3)",
      "expand: x is [2, 3] and must broadcast to [5, 3]; its size 2 of dimension 1 must be 1 or 5" },
    { "x:shape(1)", "shape: a heed.Size is called; shape is a field: write x.shape, or x:size(dim)" },
    { "x:size(0)", "size: dim is 0 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2" },
    { "x:size(3)", "size: dim is 3 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2" },
    { "x:reshape(\"a\")", "reshape: a size is a string ('a'); it must be an integer" },
    { "x:view(-1, -1)", "view: shape is [-1, -1]; it must have at most one size of -1" },
    { "x:view(4, -1)",
      "view: x is [2, 3] with 6 elements; for the shape [4, -1] their number must be a multiple of 4" },
    { "x.T:view(6)",
      "view: x is [3, 2] with strides [1, 3], which cannot be read as [6] without a copy; use "
        .. "reshape, which copies" },
    { "x:flatten(3)", "flatten: dim is 3 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2" },
    { "x:unsqueeze(5)",
      "unsqueeze: dim is 5 and the tensor has 2 dimensions; it must be from 1 to 3, or from -1 to -3" },
    { "x:permute(1)", "permute: 1 dim is given and x has 2 dimensions; each must be named once" },
    { "x:permute(1, 1)", "permute: dimension 1 is named twice; each must be named once" },
    { "x:t(1)", "t: 2 arguments were given; it takes at most 1" },
    { "x:transpose(1, 3)",
      "transpose: dim is 3 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2" },
    { "x:expand(2)", "expand: x is [2, 3]; it must broadcast to [2], which has fewer dimensions" },
    { "x:pad({1})", "pad: pad has 1 number; it must have two for each dimension" },
  },
  ["a dot instead of a colon, or the other way round"] = {
    { "x.tolist()", "tolist: x is nil; it must be a tensor; call it as x:tolist(...), with a colon, or as "
      .. "heed.tolist(x, ...)" },
    { "x.softmax(-1)", "softmax: dim is nil; it must be an integer; call it as x:softmax(...), with a colon, or as "
      .. "heed.softmax(x, ...)" },
    { "x.view(3, 2)", "view: x is the number 3; it must be a tensor; call it as x:view(...), with a colon, or as "
      .. "heed.view(x, ...)" },
    { "x.unbind()", "unbind: x is nil; it must be a tensor; call it as x:unbind(...), with a colon, or as "
      .. "heed.unbind(x, ...)" },
    { "x.add(1)", "add: b is nil; it must be a tensor or a number; call it as x:add(...), with a colon, or as "
      .. "heed.add(x, ...)" },
    { "heed:outer(x, x)", "outer: argument 1 is the table heed; write heed.outer(...), with a dot instead of a colon" },
    { "heed:einsum('ij->ji', x)",
      "einsum: argument 1 is the table heed; write heed.einsum(...), with a dot instead of a colon" },
    { "nn:Sequential(m)",
      "Sequential: argument 1 is the table nn; write nn.Sequential(...), with a dot instead of a colon" },
    { "F:softmax(x)", "softmax: argument 1 is the table nn.functional; write nn.functional.softmax(...), with a dot "
      .. "instead of a colon" },
  },
  ["reductions"] = {
    { "x.sum(1)",
      "sum: x is the number 1; it must be a tensor; call it as x:sum(...), with a colon, or as "
        .. "heed.sum(x, ...)" },
    { "x.sum()", "sum: x is nil; it must be a tensor; call it as x:sum(...), with a colon, or as heed.sum(x, ...)" },
    { "heed.sum(1)",
      "sum: x is the number 1; it must be a tensor; call it as x:sum(...), with a colon, or as "
        .. "heed.sum(x, ...)" },
    { "heed:sum(x)", "sum: argument 1 is the table heed; write heed.sum(...), with a dot instead of a colon" },
    { "x:sum(0)", "sum: dim is 0; it must be at least 1, or at most -1 (the last)" },
    { "x:sum{axis = 1}", "sum: there is no option 'axis'; the options are dim, keepdim; did you mean 'dim'?" },
    { "x:sum{dims = 1}", "sum: there is no option 'dims'; the options are dim, keepdim; did you mean 'dim'?" },
    { "x:mean(3)", "mean: dim is 3 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2" },
    { "x:softmax()", "softmax: dim is nil; it must be an integer" },
    { "x:softmax{dim=0}",
      "softmax: dim is 0 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2" },
    { "x:argmax(0)", "argmax: dim is 0; it must be at least 1, or at most -1 (the last)" },
    { "x:max(0)", "max: dim is 0; it must be at least 1, or at most -1 (the last)" },
    { "x:topk()", "topk: k is nil; it must be an integer" },
    { "x:topk(9)", "topk: k is 9; dimension 2 has size 3, so it must be from 0 to 3" },
    { "x.softmax(x, -1, 3)", "softmax: 3 arguments were given; it takes at most 2" },
    { "heed.maximum(1, 2)", "maximum: a and b are both numbers; one of them must be a tensor" },
    { "x:sum(1, 2)", "sum: keepdim is the number 2; it must be a boolean" },
    { "x:sum{dim = \"1\"}", "sum: dim is a string ('1'); it must be an integer" },
    { "x:mean{1, 1}", "mean: dim names dimension 1 twice; it must name it once" },
    { "x:argmax(5)", "argmax: dim is 5 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2" },
    { "x:var{ddof = 1}", "var: there is no option 'ddof'; the options are *" },
    { "x:std(1, true, \"a\")", "std: correction is a string ('a'); it must be a number" },
    { "x:max(\"a\")", "max: dim is a string ('a'); it must be an integer" },
    { "x:softmax(\"1\")", "softmax: dim is a string ('1'); it must be an integer" },
    { "x:softmax(2, \"float32\")", "softmax: 3 arguments were given; it takes at most 2" },
    { "x:cumsum()", "cumsum: dim is nil; it must be an integer" },
    { "x:topk(2, 5)", "topk: dim is 5 and the tensor has 2 dimensions; it must be from 1 to 2, or from -1 to -2" },
    { "x:sort(\"a\")", "sort: dim is a string ('a'); it must be an integer" },
    { "x:all(1, 2, 3)", "all: 4 arguments were given; it takes at most 3" },
    { "heed.einsum(\"ij,jk\", x, x)",
      "einsum: letter 'j' is 3 in operand 1 and 2 in operand 2; the sizes must be equal, or one of them 1" },
    { "heed.einsum(x, x)",
      "einsum: equation is a tensor of shape [2, 3] and dtype float32; it must be a string such as "
        .. "'ij,jk->ik'" },
    { "x:norm(\"fro2\")", "norm: p is a string ('fro2'); it must be a number, heed.inf, -heed.inf or 'fro'" },
    { "x:quantile(2)", "quantile: q is the number 2; it must be from 0 to 1" },
  },
  ["arithmetic and products"] = {
    { "x + \"a\"", "add: b is a string ('a'); it must be a tensor or a number" },
    { "x + nil", "add: b is nil; it must be a tensor or a number" },
    { "x + {1}", "add: b is a table; it must be a tensor or a number; heed.tensor makes one from a table" },
    { "x .. nil",
      "concat: a tensor cannot be joined with nil; it must be a string, a number or a value with "
        .. "__tostring" },
    { "x:to(\"cuda\")",
      "to: dtype is a string ('cuda'); it must be *; heed computes on the processor: leave it out" },
    { "x:to(\"float64\")", "to: dtype is a string ('float64'); it must be *; write \"float32\"" },
    { "x:matmul(x)",
      "matmul: a is [2, 3] and b is [2, 3]; the last size of a (3) must equal the first size of b (2)" },
    { "heed.matmul(x)", "matmul: b is nil; it must be a tensor" },
    { "x:dot(x)", "dot: a is [2, 3] and b is [2, 3]; both must have 1 dimension" },
    { "x:item()", "item: x has 6 elements (shape [2, 3]); it must have exactly one" },
    { "x.data = 1",
      "index: fields of a tensor cannot be set ('data'); write x:detach(), or heed.no_grad(function() "
        .. "x:copy_(value) end) to overwrite it" },
    { "x.foo = 1", "index: fields of a tensor cannot be set ('foo')" },
    { "x:clamp()", "clamp: min and max are both nil; one of them must be given" },
    { "x:pow()", "pow: b is nil; it must be a tensor or a number" },
    { "x:add()", "add: b is nil; it must be a tensor or a number" },
    { "heed.relu()",
      "relu: x is nil; it must be a tensor; call it as x:relu(...), with a colon, or as heed.relu(x, ...)" },
    { "\"a\" + x", "add: a is a string ('a'); it must be a tensor or a number" },
    { "x ^ \"2\"", "pow: b is a string ('2'); it must be a tensor or a number" },
    { "x:pow(\"2\")", "pow: b is a string ('2'); it must be a tensor or a number" },
    { "x:exp(1)", "exp: 2 arguments were given; it takes at most 1" },
    { "heed.exp(\"2\")",
      "exp: x is a string ('2'); it must be a tensor; call it as x:exp(...), with a colon, or as "
        .. "heed.exp(x, ...)" },
    { "heed.exp{1, 2}", "exp: x is a table; it must be a tensor; heed.tensor makes one from a table" },
    { "x:clamp{mn = 0}", "clamp: there is no option 'mn'; the options are min, max" },
    { "x:clamp(\"a\")", "clamp: min is a string ('a'); it must be a tensor or a number" },
    { "heed.matmul(x, 2)", "matmul: b is the number 2; it must be a tensor" },
    { "x:matmul()", "matmul: b is nil; it must be a tensor" },
    { "x * nil", "mul: b is nil; it must be a tensor or a number" },
    { "heed.ipairs(3)", "ipairs: t is the number 3; it must be a table or something with elements" },
    { "x:iter(1)()", "iter: x is nil; it must be a tensor" },
    { "x:allclose(1)", "allclose: b is the number 1; it must be a tensor" },
    { "x:equal(2)", "equal: b is the number 2; it must be a tensor" },
    { "x:to()", "to: dtype is nil; it must be *" },
  },
}

describe("a first mistake", function()
  for group, list in pairs(mistakes) do
    describe("with " .. group, function()
      for _, case in ipairs(list) do
        it("such as " .. case[1], function()
          local message = message_of(case[1])
          if not matches(message, case[2]) then assert.are.equal(case[2], message) end
        end)
      end
    end)
  end

  it("is one of at least 120", function()
    local count = 0
    for _, list in pairs(mistakes) do count = count + #list end
    assert.is_true(count >= 120)
  end)

  it("is explained at the line of the call", function()
    local ok, message = pcall(support.compile "local heed = ...\nlocal y = heed.zeros(2)\ny = y.sum(1)", heed)
    assert.is_false(ok)
    assert.is_truthy(message:find(":3: sum: x is the number 1; it must be a tensor; call it as x:sum(...)", 1, true))
  end)
end)

-- Lua 5.1 and LuaJIT compare values of different types without asking them.
describe("comparing a tensor with < and its like", function()
  local mixed = pcall(function() return setmetatable({}, { __lt = function() return true end }) < 1 end)
  local tensor = "x is a tensor of shape [2, 3] and dtype float32; "
  local one = " give one boolean in Lua, so write x:"
  local all = " for a tensor of booleans"

  it("says which method to call", function()
    assert.are.equal("compare: " .. tensor .. "< and >" .. one .. "lt(y)" .. all, message_of "x < x")
    assert.are.equal("compare: " .. tensor .. "<= and >=" .. one .. "le(y)" .. all, message_of "x <= x")
  end)

  local where = mixed and it or pending
  where("says so for numbers, too", function()
    assert.are.equal("compare: " .. tensor .. "< and >" .. one .. "gt(0)" .. all, message_of "x > 0")
    assert.are.equal("compare: " .. tensor .. "< and >" .. one .. "lt(0.5)" .. all, message_of "x < 0.5")
    assert.are.equal("compare: " .. tensor .. "<= and >=" .. one .. "ge(2)" .. all, message_of "x >= 2")
    assert.are.equal("compare: " .. tensor .. "<= and >=" .. one .. "le(-1)" .. all, message_of "x <= -1")
  end)
end)
