-- Long calls on modules and models.
local heed = require "heed"
local nn = heed.nn

return function(inputs)
  local call, copies, doubled, chain, long_list =
    inputs.call, inputs.copies, inputs.doubled, inputs.chain, inputs.long_list

  -- ---- Modules ----------------------------------------------------------------------------------

  call("tostring of a shared module", function()
    local module = doubled(40)
    return function() return tostring(module) end
  end)
  call("state_dict of a shared module", function()
    local module = doubled(40)
    return function() return module:state_dict() end
  end)
  call("state_dict of a shared module without parameters", function()
    local module = doubled(40, nn.ReLU())
    return function() return module:state_dict() end
  end)
  call("load_state_dict into a shared module", function()
    local module = doubled(40)
    return function() return module:load_state_dict({}, { strict = false }) end
  end)
  call("apply to a shared module", function()
    local module = doubled(30, nil, nn.Residual)
    return function() return module:apply(heed.is_tensor) end
  end)
  call("parameters of a deep module", function()
    local module = chain(50000)
    return function() return module:parameters() end
  end)
  call("Sequential", function()
    local module = doubled(40, nn.Sequential())
    return function() return module(heed.zeros(1)) end
  end).frames = true
  call("Sequential of a long list", function()
    local list = copies(nn.ReLU(), 500000)
    return function() return nn.Sequential(list) end
  end).frames = true
  call("extend", function()
    local list = copies(nn.ReLU(), 500000)
    return function() return nn.ModuleList():extend(list) end
  end)
  call("a field of a module", function()
    local inner, outer = nn.Sequential(), nn.Sequential()
    local long = nn.ModuleList()
    for _ = 1, 100000 do long:append(nn.Residual(inner)) end
    outer.part = nn.Sequential()
    return function() outer.part.field = long end
  end)
  call("Linear", function()
    return function() return nn.Linear(20000, 10000) end
  end)
  call("Embedding", function()
    return function() return nn.Embedding(1000000, 100) end
  end)
  call("MultiHeadAttention", function()
    return function() return nn.MultiHeadAttention(8192, 8192, 16, 0, 8) end
  end)
  call("MultiHeadAttention with slopes for many heads", function()
    local heads = 50000000
    return function()
      return nn.utils.skip_init(nn.MultiHeadAttention, { d_in = 1, d_out = heads, context_length = 1, dropout = 0,
        num_heads = heads, alibi = true, out_proj = false })
    end
  end)
  call("m:to", function()
    local m = nn.Linear(10000, 10000)
    return function() return m:to "bfloat16" end
  end)
  call("forward of a MultiHeadAttention", function()
    local m, x = nn.MultiHeadAttention(768, 768, 8192, 0, 12), heed.rand(1, 8192, 768)
    return function() return m(x) end
  end)
  call("forward with weights", function()
    local m, x = nn.MultiHeadAttention(64, 64, 8192, 0, 4), heed.rand(1, 8192, 64)
    return function() return m(x, { need_weights = true }) end
  end)
  call("forward with a dropout of one's own", function()
    local Keep = nn.Module.class "Keep"
    function Keep:forward(weights) return weights end -- luacheck: ignore 212
    local m, x = nn.MultiHeadAttention(64, 64, 8192, 0, 4), heed.rand(1, 8192, 64)
    m.dropout = Keep()
    return function() return m(x) end
  end)
  call("cache:clone", function()
    local m = nn.MultiHeadAttention(8, 128, 16, 0, 1):eval()
    local cache = m:new_cache { batch = 25600 }
    m(heed.rand(25600, 8, 8), { cache = cache })
    return function() return cache:clone() end
  end).seconds = 0.005

  -- ---- Modules of PyTorch ------------------------------------------------------------------------

  call("clone of a long list", function()
    local list = long_list()
    return function() return list:clone() end
  end)
  call("clone of a deep module", function()
    local module = chain(50000)
    return function() return module:clone() end
  end)
  call("clone of large parameters", function()
    local module = nn.Sequential(nn.Linear(10000, 10000), nn.Linear(10000, 10000))
    return function() return module:clone() end
  end)
  call("clone of a large table", function()
    local Own = nn.Module.class "Own"
    local module = Own()
    module.list = copies(0, 2000000)
    return function() return module:clone() end
  end)
  call("ModuleDict", function()
    local items, relu = {}, nn.ReLU()
    for i = 1, 300000 do items["m" .. i] = relu end
    return function() return nn.ModuleDict(items) end
  end).frames = true
  call("ParameterList", function()
    local list = copies(heed.zeros(1), 500000)
    return function() return nn.ParameterList(list) end
  end).frames = true
  call("TransformerEncoder of many layers", function()
    local layer = nn.TransformerEncoderLayer(2, 1, 2)
    return function() return nn.TransformerEncoder(layer, 2 ^ 40) end
  end).frames = true
  call("TransformerEncoder", function()
    local layer, x = nn.TransformerEncoderLayer(512, 8, 2048), heed.rand(2048, 1, 512)
    local module = nn.TransformerEncoder(layer, 4):eval()
    return function() return module(x) end
  end).frames = true
  call("forward of a MultiheadAttention with weights", function()
    local m, x = nn.MultiheadAttention(64, 4), heed.rand(4096, 1, 64)
    return function() return m(x, x, x) end
  end).frames = true
  call("generate_square_subsequent_mask", function()
    return function() return nn.Transformer.generate_square_subsequent_mask(20000) end
  end)
  call("cross_entropy", function()
    local x = heed.rand(4000, 20000)
    local targets = heed.ones(4000, { dtype = "int64" })
    return function() return nn.functional.cross_entropy(x, targets, { label_smoothing = 0.1 }) end
  end).seconds = 0.005
  call("linear_cross_entropy", function()
    local x, weight = heed.rand(2000, 64), heed.rand(20000, 64)
    local targets = heed.ones(2000, { dtype = "int64" })
    return function() return nn.functional.linear_cross_entropy(x, weight, targets) end
  end).seconds = 0.005
  call("trunc_normal_", function()
    local x = heed.empty(10000, 3000)
    return function() return nn.init.trunc_normal_(x) end
  end)
  call("parameters_to_vector", function()
    local list = copies(heed.zeros(1), 1000000)
    return function() return nn.utils.parameters_to_vector(list) end
  end)

  -- ---- Models -----------------------------------------------------------------------------------

  local function tiny(class, settings)
    settings.vocab_size, settings.hidden_size, settings.num_attention_heads, settings.intermediate_size = 1, 2, 1, 1
    settings.max_position_embeddings = settings.max_position_embeddings or 1
    return require("heed.models." .. class)(settings)
  end

  local function gpt2(layers, positions)
    return tiny("gpt2", { num_hidden_layers = layers, max_position_embeddings = positions, layer_norm_epsilon = 1e-5,
      hidden_act = "relu", attn_pdrop = 0, resid_pdrop = 0, embd_pdrop = 0 })
  end

  call("GPT2 of many layers", function()
    return function() return gpt2(2 ^ 40) end
  end).frames = true
  call("Bert of many layers", function()
    return function()
      return tiny("bert", { num_hidden_layers = 2 ^ 40, layer_norm_eps = 1e-5, hidden_act = "relu", type_vocab_size = 1,
        hidden_dropout_prob = 0, attention_probs_dropout_prob = 0 })
    end
  end).frames = true
  call("generate", function()
    local model = gpt2(4, 100000):eval()
    return function() return model:generate({ 1 }, { max_new_tokens = 90000, stop = {} }) end
  end).frames = true
  call("generate_steps", function()
    local model = gpt2(4, 100000):eval()
    return function() return model:generate_steps({ 1 }, { max_new_tokens = 90000, stop = {} }):advance(1e6) end
  end).frames = true
  call("a chat template that ends late", function()
    local template = "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"
    local tok = { chat_template = template }
    return function() return require "heed.tokenizers.chat"(tok, { { role = "user", content = "a" } }) end
  end)
  call("a model's cache:clone", function()
    local model = gpt2(2000, 10000):eval()
    local cache = model:new_cache()
    return function() return cache:clone() end
  end).seconds = 0.002

  -- ---- A long list --------------------------------------------------------------------------------

  call("tostring of a long ModuleList", function()
    local list = long_list()
    return function() return tostring(list) end
  end)
  for _, name in ipairs { "state_dict", "parameters" } do
    call(name .. " of many heads", function()
      local wrapper = nn.MultiHeadAttentionWrapper(1, 1, 1, 0, 65536)
      return function() return wrapper[name](wrapper) end
    end)
  end
  call("state_dict of many buffers", function()
    local Many = nn.Module.class "Many"
    local many, x = Many(), heed.zeros(1)
    for i = 1, 300000 do many:register_buffer("buffer" .. i, x) end
    return function() return many:state_dict() end
  end)
  call("train of a long list", function()
    local list = long_list()
    return function() return list:train() end
  end)
  for _, name in ipairs { "parameters", "named_parameters", "buffers", "modules", "named_modules" } do
    call(name .. " of a long list", function()
      local list = long_list()
      return function() return list[name](list) end
    end)
  end
end
