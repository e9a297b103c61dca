-- The annotations in lua/heed/meta declare everything public, and nothing else.
local heed = require "heed"
local support = require "tests.support"
local nn = heed.nn

--- The declared names: documented["Tensor"]["exp"] = true.
local documented = {}
local function document(owner, name)
  documented[owner] = documented[owner] or {}
  documented[owner][name] = true
end

local FILES = {
  "heed", "tensor", "elementwise", "ops", "views", "random", "nn", "built_in", "attention", "attention_functions",
  "steps", "models", "decoders", "encoders", "layers", "transformers", "functional", "losses", "hooks",
  "wordpiece", "bert", "roberta", "distilbert", "gpt2", "llama", "load_models", "tokenizers", "mask", "plot",
  "interpret", "interrupt", "data", "optim", "progress", "grad", "distributed", "parallel", "context_parallel",
}
for _, name in ipairs(FILES) do
  local class
  local path = "lua/heed/meta/" .. name .. ".lua"
  for line in io.lines(path) do
    local owner, member = line:match("^function (%w+)[.:]([%w_]+)%(")
    if not owner then owner, member = line:match("^(%w+)%.([%w_]+) = ") end
    if owner then document(owner, member) end
    if owner == "Tensor" then document("heed", member) end -- heed and heed.Tensor inherit the same classes
    class = line:match("^%-%-%-@class heed%.?([%w]*)") or (line:match("^%-%-%-") and class)
    local field = class and line:match("^%-%-%-@field ([%w_]+)")
    if field then document(class == "" and "heed" or class, field) end
    if class == "Views" and field then document("Tensor", field) document("heed", field) end -- a word of Lua
  end
end

--- Compares the sets of declared and of public names; a failure shows the names in only one of them.
local function compare(owner, public)
  local undocumented, unknown = {}, {}
  for name in pairs(public) do
    if not documented[owner][name] then undocumented[#undocumented + 1] = name end
  end
  for name in pairs(documented[owner]) do
    if not public[name] then unknown[#unknown + 1] = name end
  end
  table.sort(undocumented)
  table.sort(unknown)
  assert.are.same({ undocumented = {}, unknown = {} }, { undocumented = undocumented, unknown = unknown })
end

local function names_of(...)
  local names = {}
  for _, list in ipairs { ... } do
    for name in pairs(list) do
      if type(name) == "string" and not name:find("^__") then names[name] = true end
    end
  end
  return names
end

describe("the annotations", function()
  it("name the functions of heed", function() compare("heed", names_of(heed)) end)

  it("name the contents of heed.nn", function() compare("nn", names_of(nn)) end)

  it("name the fields and methods of tensors", function()
    local methods = support.tensor_methods()
    local fields = { shape = true, dtype = true, ndim = true, T = true, mT = true, is_parameter = true,
      requires_grad = true, is_leaf = true, grad = true, grad_fn = true }
    local x = heed.enable_grad(function()
      local x = heed.ones(1, 1, { requires_grad = true }) * 2
      x:retain_grad()
      x:backward()
      return x
    end)
    for name in pairs(fields) do assert.is_not_nil(x[name]) end
    local public = names_of(methods, fields)
    for _, name in ipairs { "cat", "concat", "concatenate", "stack", "attention_merge" } do
      public[name] = nil -- they take a table
    end
    compare("Tensor", public)
  end)

  it("name the contents of heed.autograd", function() compare("autograd", names_of(heed.autograd)) end)

  it("name the methods of generators", function()
    compare("Generator", names_of(getmetatable(heed.Generator(1)).__index))
  end)

  it("name the methods of modules", function()
    local built_in = names_of((require "heed.nn.protocol"))
    built_in.forward = true -- implemented in C, like the modules' own methods
    for name in pairs(documented.MultiHeadAttention) do
      if built_in[name] then documented.Module[name] = true end
    end
    built_in.training = true
    compare("Module", built_in)
  end)

  it("name the additional methods of user-defined classes", function()
    local own = names_of(nn.Module)
    for name in pairs(documented.Module) do own[name] = nil end
    compare("Class", own)
    local container = names_of(getmetatable(nn.ModuleList).__index)
    container.init = nil
    compare("ModuleList", container)
    local function own_of(class)
      local methods = names_of(getmetatable(class).__index == nn.Module and class)
      for _, name in ipairs { "init", "forward", "extra_repr" } do methods[name] = nil end
      return methods
    end
    compare("ModuleDict", own_of(nn.ModuleDict))
    compare("ParameterList", own_of(nn.ParameterList))
  end)

  it("name the contents of nn.functional, nn.init and nn.utils", function()
    compare("F", names_of(nn.functional))
    compare("init", names_of(nn.init))
    compare("utils", names_of(nn.utils))
  end)

  it("name the fields of built-in modules", function()
    local modules = {
      nn.Linear(2, 2), nn.Dropout(), nn.SelfAttention(2, 2), nn.CausalAttention(2, 2, 2, 0),
      nn.MultiHeadAttentionWrapper(2, 2, 2, 0, 1), nn.MultiHeadAttention {
        d_in = 2, d_out = 2, context_length = 2, dropout = 0, num_heads = 1, window = { left = 1 }, softcap = 1,
        rope = {}, sinks = true, qk_norm = true,
      },
      nn.Embedding(2, 2, 1), nn.LayerNorm(2), nn.RMSNorm(2, 1e-6), nn.GELU(), nn.SiLU(), nn.ReLU(),
      nn.Residual(nn.ReLU()), nn.Flatten(), nn.Unflatten(2, { 2, 2 }), nn.Softmax(1), nn.LogSoftmax(1),
      nn.Softplus(), nn.LeakyReLU(), nn.ELU(), nn.GLU(), nn.SwiGLU(2, 2), nn.BatchNorm1d(2), nn.GatedDeltaNet(2, 1),
      nn.TransformerEncoderLayer(2, 1), nn.TransformerDecoderLayer(2, 1), nn.Transformer(2, 1, 1, 1, 2),
    }
    for _, m in ipairs(modules) do
      for name in pairs(documented[m:class_name()] or {}) do assert.is_not_nil(m[name]) end
      for name in m:named_children() do assert.is_not_nil(m[name]) end
    end
  end)

  it("name the fields and methods of caches", function()
    local cache = nn.MultiHeadAttention(2, 2, 2, 0, 1):new_cache()
    local public = {}
    local _, message = pcall(function() return cache.unknown end)
    for name in message:match("; it has (.*)$"):gsub(" and ", ", "):gmatch "[%w_]+" do public[name] = true end
    for name in pairs(public) do assert.is_not_nil(cache[name]) end
    compare("Cache", public)
  end)

  it("name the kinds and methods of masks", function()
    compare("mask", names_of(heed.mask))
    local public = {}
    local _, message = pcall(function() return heed.mask.causal().unknown end)
    for name in message:match("; it has (.*)$"):gsub(" and ", ", "):gmatch "[%w_]+" do public[name] = true end
    compare("Mask", public)
  end)

  it("name the fields and methods of state caches", function()
    local cache = nn.GatedDeltaNet(2, 1):new_cache()
    local public = {}
    local _, message = pcall(function() return cache.unknown end)
    for name in message:match("; it has (.*)$"):gsub(" and ", ", "):gmatch "[%w_]+" do public[name] = true end
    compare("StateCache", public)
  end)

  it("name the fields and methods of steps", function()
    local steps = nn.MultiHeadAttention(2, 2, 2, 0, 1):steps(heed.ones(1, 2))
    local public = {}
    local _, message = pcall(function() return steps.unknown end)
    for name in message:match("; they have (.*)$"):gsub(" and ", ", "):gmatch "[%w_]+" do public[name] = true end
    compare("Steps", public)
  end)

  it("name the fields and methods of tokenizers and models", function()
    compare("wordpiece", names_of((require "heed.tokenizers.wordpiece")))
    local bert = assert(require("heed.models.bert").load "tests/golden/encoders/sentence")
    for owner, object in pairs { Encoder = bert, WordPiece = bert.tokenizer } do
      for name in pairs(documented[owner]) do assert.is_not_nil(object[name], owner .. "." .. name) end
    end
  end)

  it("name the charts", function()
    local plot = require "heed.plot"
    local names = names_of(plot)
    names.attention = plot.attention ~= nil -- loaded when it is first used
    compare("plot", names)
  end)
  it("name the contents of heed.interrupt", function() compare("interrupt", names_of((require "heed.interrupt"))) end)
  it("name the contents of heed.distributed", function()
    local dist = require "heed.distributed"
    compare("distributed", names_of(dist))
    dist.init_process_group()
    local objects = {
      Work = dist.isend(heed.ones(1), 1), Group = dist.new_group { 1 },
      DeviceMesh = dist.init_device_mesh({ 1 }, { "tp" }),
    }
    for owner, object in pairs(objects) do
      for name in pairs(documented[owner]) do assert.is_not_nil(object[name], owner .. "." .. name) end
    end
    dist.irecv(heed.empty(1), 1):wait()
    dist.destroy_process_group()
  end)
  it("name the contents of heed.utils", function()
    local data = heed.utils.data
    compare("Utils", names_of(heed.utils))
    compare("data", names_of(data))
    local x = heed.range(1, 9):long()
    local function collate_fn(samples) return samples end
    local objects = {
      Progress = heed.utils.progress(1),
      TensorDataset = data.TensorDataset(x), Subset = data.Subset(x, { 1 }), ConcatDataset = data.ConcatDataset { x },
      Items = data.TensorDataset(x), Sampler = data.RandomSampler(x), Tokens = data.Tokens(x, 2, {
        generator = heed.Generator(1),
      }),
      DataLoader = data.DataLoader(x, { generator = heed.Generator(1), collate_fn = collate_fn }),
    }
    for owner, object in pairs(objects) do
      for name in pairs(documented[owner]) do
        if name ~= "batch_sampler" then assert.is_not_nil(object[name], owner .. "." .. name) end
      end
    end
  end)
  it("name the contents of heed.optim", function()
    local schedules = heed.optim.lr_scheduler
    compare("optim", names_of(heed.optim))
    compare("schedules", names_of(schedules))
    local optimiser = heed.optim.SGD { nn.Parameter(heed.ones(1)) }
    for owner, object in pairs { Optimizer = optimiser, Scheduler = schedules.StepLR(optimiser, 1) } do
      for name in pairs(documented[owner]) do assert.is_not_nil(object[name], owner .. "." .. name) end
    end
  end)
  it("name the contents of heed.interpret", function() compare("interpret", names_of((require "heed.interpret"))) end)

  it("name the fields and methods of decoders", function()
    local gpt2 = assert(require("heed.models.gpt2").load "tests/golden/decoders/gpt2")
    local llama = assert(require("heed.models.llama").load "tests/golden/decoders/llama")
    local of_files = { tokenizer = true, tokenizer_problem = true, chat_template = true }
    for owner, object in pairs { Decoder = gpt2, GPT2 = gpt2, Llama = llama, ModelCache = llama:new_cache() } do
      for name in pairs(documented[owner]) do
        assert.is_true(object[name] ~= nil or of_files[name], owner .. "." .. name)
      end
    end
  end)
end)
