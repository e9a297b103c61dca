-- m:check: warnings before a forward pass.
local heed = require "heed"
local cases = require "tests.mha_cases"
local decoders = require "tests.decoder_cases"
local support = require "tests.support"
local fails = require "tests.raises"
local Bert = require "heed.models.bert"

local nn = heed.nn

local function module(more)
  local config = { d_in = 4, d_out = 4, num_heads = 2, context_length = 8, dropout = 0 }
  for name, value in pairs(more or {}) do config[name] = value end
  return nn.MultiHeadAttention(config)
end

local function warns(text, m, x, options)
  local warnings = m:check(x, options)
  assert.are.equal(1, #warnings, text .. ": " .. table.concat(warnings, "\n"))
  assert.is_truthy(warnings[1]:find(text, 1, true), warnings[1])
end

local function silent(m, x, options) assert.are.same({}, m:check(x, options)) end

local ATTENTION = { SelfAttention = true, CausalAttention = true, MultiHeadAttentionWrapper = true,
  MultiHeadAttention = true }

-- A value of tests/golden/modules.lua: tensors are {shape =, dtype =, data =}.
local function build(value)
  if type(value) ~= "table" then return value end
  if value.data then return heed.tensor(value.data, { dtype = value.dtype }):view(value.shape) end
  local built = {}
  for name, each in pairs(value) do built[name] = build(each) end
  return built
end

-- Checks all attention modules of a model with the inputs that they have in model(ids).
local function check_model(model, ids)
  local inputs, handles = {}, {}
  for _, m in model:named_modules() do
    if ATTENTION[tostring(m):match "^%w+"] then
      handles[#handles + 1] = m:register_forward_pre_hook(function(each, x) inputs[#inputs + 1] = { each, x } end)
    end
  end
  model(ids)
  for _, handle in ipairs(handles) do handle:remove() end
  assert.is_true(#inputs > 0)
  for _, input in ipairs(inputs) do silent(input[1], input[2]) end
end

describe("check", function()
  it("is silent about golden's modules, but for softmax over another dimension", function()
    local count = 0
    for _, case in ipairs(dofile "tests/golden/modules.lua") do
      if ATTENTION[case.class] then
        heed.manual_seed(case.seed)
        local m, x, options = nn[case.class](case.config), build(case.x), build(case.options)
        count = count + 1
        local dim = case.config.softmax_dim
        if dim == nil or dim == -1 then silent(m, x, options) else warns("softmax_dim is", m, x, options) end
      end
    end
    assert.is_true(count > 0)
  end)

  it("says of golden's options only what is so", function()
    for _, case in ipairs(dofile "tests/golden/mha.lua") do
      local m, x, options = cases.build(case)
      local window, wanted = case.config.window, {}
      local least = math.huge
      for _, count in ipairs(case.padding or {}) do least = math.min(least, count) end
      if case.padding and least > 0 then wanted[#wanted + 1] = "padding in every batch item" end
      if options.kv_lengths and options.kv_lengths:eq(0):any():item() then wanted[#wanted + 1] = "kv_lengths has 0" end
      if m.causal and case.s and case.s ~= case.n and not options.kv_lengths then
        wanted[#wanted + 1] = "the module is causal, and x has"
      end
      if window and window.left == 0 then wanted[#wanted + 1] = "window.left is 0" end
      local warnings = m:check(x, options)
      assert.are.equal(#wanted, #warnings, case.name .. ": " .. table.concat(warnings, "\n"))
      for i, text in ipairs(wanted) do assert.is_truthy(warnings[i]:find(text, 1, true), warnings[i]) end
    end
  end)

  it("is silent about golden's decoders", function()
    for name, case in pairs(decoders.golden) do check_model(decoders.load(name), decoders.from_one(case.prompt)) end
  end)

  it("is silent about MiniLM", function()
    local folder = support.model()
    if not folder then
      pending "is not here; `make model` fetches it"
      return
    end
    local model = assert(Bert.load(folder))
    for _, case in ipairs(dofile "tests/golden/minilm.lua") do check_model(model, model.tokenizer:encode(case.text)) end
  end)

  it("warns of masks that do something else than was meant", function()
    local x = heed.randn(1, 3, 4)
    warns("attn_mask:bool()", module(), x, { attn_mask = heed.ones(3, 3):tril() })
    warns("hides every key", module(), x, { attn_mask = heed.zeros(3, 3):bool() })
    warns("rows that hide every key", module(), x, { attn_mask = heed.ones(3, 3):tril(-1):bool() })
    warns("nan or +inf", module(), x, { attn_mask = heed.full({ 3, 3 }, math.huge) })
    warns("query 1 of batch item 1 sees no key", module(), x,
      { attn_mask = heed.tensor { { false, true, true }, { true, true, true }, { true, true, true } } })
    warns("key_padding_mask:logical_not()", module(), x, { key_padding_mask = heed.ones(1, 3):bool() })
    local padding = heed.tensor { { false, true, true }, { true, false, true } }
    warns("the last key is padding in every batch item; cut x (or key and value) to 2 tokens", module(),
      heed.randn(2, 3, 4), { key_padding_mask = padding })
  end)

  it("warns of values", function()
    local x = heed.randn(1, 3, 4)
    warns("x has nan or inf", module(), x / 0)
    local m = module()
    m.W_key.weight:copy_(m.W_key.weight / 0)
    warns("W_key.weight has nan or inf", m, x)
    warns("all tokens of x are equal", module(), heed.ones(2, 3, 4))
    m = module()
    m.scale = 1e6
    warns("softmax gives all weight to one key", m, x)
    m.scale = 1e-9
    warns("softmax gives all keys the same weight", m, x)
    silent(module(), x)
  end)

  it("warns of sizes and their order", function()
    local x = heed.randn(2, 3, 4)
    warns("x has 9 tokens and context_length is 8", module(), heed.randn(1, 9, 4))
    warns("x:transpose(1, 2)", module(), x, { key_padding_mask = heed.zeros(3, 2):bool() })
    warns("x:transpose(1, 2)", module(), x, { attn_mask = heed.ones(2, 2):tril():bool() })
    warns("kv_lengths has 4 and there are 3 keys", module(), x, { kv_lengths = { 2, 4 } })
    warns("kv_lengths has 0", module(), x, { kv_lengths = heed.tensor({ 0, 2 }, { dtype = "int64" }) })
    warns("the module is causal, and x has 3 tokens and key 5", module(), x, { key = heed.randn(2, 5, 4) })
    silent(module { causal = false }, x, { key = heed.randn(2, 5, 4) })
  end)

  it("stops when the time of limits is over, and refuses what is no attention module", function()
    local m, x = module { context_length = 2 ^ 21 }, heed.randn(1, 2 ^ 20, 4)
    heed.limit { seconds = 0.002 }
    local ok, problem = pcall(m.check, m, x)
    heed.limit { seconds = math.huge }
    assert.is_false(ok)
    assert.is_truthy(tostring(problem):find("time limit exceeded", 1, true), tostring(problem))
    fails("check: self is a module (Linear); it must be an attention module", function() nn.Linear(2, 2):check(x) end)
    fails("check: options is the number 1; it must be a table of options", function() m:check(x, 1) end)
  end)

  it("warns of settings", function()
    local x = heed.randn(1, 7, 8)
    warns("m:eval()", module { d_in = 8, dropout = 0.5 }, x, { need_weights = true })
    silent(module { d_in = 8, dropout = 0.5 }:eval(), x, { need_weights = true })
    warns("rope is scaled for 6 positions", module { d_in = 8, rope = { scaling = { type = "llama3", factor = 2,
      original_context_length = 3 } } }, x)
    warns("softmax_dim is 1", nn.CausalAttention { d_in = 8, d_out = 8, context_length = 8, dropout = 0,
      softmax_dim = 1 }, x)
    warns("window.left is 0", module { d_in = 8, window = { left = 0 } }, x)
  end)

  it("warns of an x that the module does not take", function()
    warns("x is [5, 7]; it must be [n, 8] or [b, n, 8], since d_in is 8: the forward pass will raise an error",
      module { d_in = 8 }, heed.randn(5, 7))
    warns("x is [8]; it must be [n, 8]", module { d_in = 8 }, heed.randn(8))
  end)
end)
