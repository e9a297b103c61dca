-- State dicts in memory: creating them, and loading them completely or not at all.
local heed = require "heed"
local fails = require "tests.fails"
local tensors = require "tests.tensors"
local copy_of = tensors.copy_of
local nn = heed.nn

local function names_of(state) return tensors.names_of(heed.pairs(state)) end

describe("load_state_dict with assign", function()
  it("makes leaves, also of what was computed, and leaves frozen parameters frozen", function()
    local before = heed.set_grad_enabled(true)
    local m = heed.nn.Linear(2, 2)
    m.weight:requires_grad_(false)
    local w = heed.nn.Parameter(heed.ones(2, 2))
    m:load_state_dict({ weight = w * 2, bias = w[1] * 3 }, { assign = true })
    heed.set_grad_enabled(before)
    assert.is_false(m.weight.requires_grad)
    assert.is_true(m.bias.requires_grad and m.bias.is_leaf)
    assert.are.same({ { 2, 2 }, { 2, 2 } }, m.weight:tolist())
  end)
end)

describe("a state dict", function()
  it("contains the parameters by name, in order", function()
    local m = nn.CausalAttention(3, 2, 6, 0, true)
    local state = m:state_dict()
    assert.are.equal("W_query.weight W_query.bias W_key.weight W_key.bias W_value.weight W_value.bias", names_of(state))
    assert.are.equal(6, #state)
    assert.is_true(state["W_key.weight"] == m.W_key.weight)
    assert.is_nil(state.W_key)
  end)

  it("shares the module's memory, as plain tensors", function()
    local m = nn.Linear(2, 1, false)
    local state = m:state_dict()
    state.weight:fill_(2)
    assert.are.equal("tensor([[2., 2.]])", tostring(state.weight))
    assert.are.equal("Parameter containing:\ntensor([[2., 2.]])", tostring(m.weight))
  end)

  it("can be modified by name", function()
    local state = nn.Linear(2, 1):state_dict()
    state.more, state.weight = heed.zeros(1), heed.ones(1)
    assert.are.equal("weight bias more", names_of(state))
    state.bias, state.nothing = nil, nil
    assert.are.equal("weight more", names_of(state))
    assert.are.equal(2, #state)
    fails("state_dict: a name is the number 1; it must be a string", function() state[1] = heed.zeros(1) end)
  end)

  it("prints its contents", function()
    assert.are.equal("StateDict(\n  weight: a tensor of shape [1, 2] and dtype float32\n)",
      tostring(nn.Linear(2, 1, false):state_dict()))
    assert.are.equal("StateDict()", tostring(nn.Dropout():state_dict()))
  end)

  it("accepts no arguments", function()
    local m = nn.Linear(1, 1)
    assert.has_error(function() m:state_dict("x") end)
  end)
end)

describe("load_state_dict", function()
  it("copies the tensors into the module", function()
    local a, b = nn.MultiHeadAttention(3, 4, 6, 0, 2), nn.MultiHeadAttention(3, 4, 6, 0, 2)
    local weight, x = b.W_query.weight, heed.rand(2, 6, 3)
    local result = b:load_state_dict(a:state_dict())
    assert.are.same({ missing_keys = {}, unexpected_keys = {} }, result)
    assert.is_true(a(x):equal(b(x)))
    assert.is_true(weight == b.W_query.weight)
    b.W_query.weight:fill_(0)
    assert.is_false(a(x):equal(b(x)))
  end)

  it("accepts a plain table, and views", function()
    local m, w = nn.Linear(2, 3, false), heed.rand(2, 3)
    m:load_state_dict { weight = w.T }
    assert.is_true(m.weight:equal(w.T))
  end)

  it("loads user-defined modules and their buffers", function()
    local Mine = nn.Module.class "Mine"
    function Mine:init(value)
      self:register_buffer("steps", heed.full({ 1 }, value, { dtype = "int64" }))
      self.layers = nn.ModuleList { nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 2)) }
      self.w = nn.Parameter(heed.full({ 2 }, value))
    end
    local a, b = Mine(1), Mine(2)
    assert.are.equal("w steps layers.0.weight layers.0.bias layers.1.0.weight layers.1.0.bias",
      names_of(a:state_dict()))
    a:load_state_dict(b:state_dict())
    assert.are.equal(2, a.steps[1])
    assert.are.equal(2, a.w[1])
    assert.is_true(a.layers[2][1].weight:equal(b.layers[2][1].weight))
  end)

  it("lists all problems in one message, sorted, and changes nothing", function()
    local m = nn.MultiHeadAttention(3, 4, 6, 0, 2)
    local state = copy_of(m:state_dict())
    state["W_key.weight"] = heed.zeros(4, 4)
    state["W_query.weight"] = heed.zeros(4, 3)
    state["W_value.weight"] = heed.zeros(4, 3, { dtype = "int64" })
    state["out_proj.bias"] = nil
    state["out_proj.weight"] = "no"
    state.zzz = heed.zeros(1)
    state[1] = heed.zeros(1)
    local before = copy_of(m:state_dict())
    fails([[
load_state_dict: the state does not fit MultiHeadAttention:
  1 is not a name; names must be strings
  W_key.weight is [4, 4]; it must be [4, 3]
  W_value.weight is int64; it must be float32
  out_proj.bias is missing
  out_proj.weight is a string ('no'); it must be a tensor
  zzz is not part of the module]], m.load_state_dict, m, state)
    for name, tensor in heed.pairs(m:state_dict()) do assert.is_true(tensor:equal(before[name])) end
  end)

  it("ignores missing and unexpected names if strict is false", function()
    local m = nn.Linear(2, 1)
    local state = { weight = heed.ones(1, 2), b = heed.ones(1), a = heed.ones(1) }
    local result = m:load_state_dict(state, { strict = false })
    assert.are.same({ missing_keys = { "bias" }, unexpected_keys = { "a", "b" } }, result)
    assert.are.equal(1, m.weight[1][1])
    m:load_state_dict({}, false)
    fails("load_state_dict: the state does not fit Linear:\n  weight is [2, 2]; it must be [1, 2]",
      m.load_state_dict, m, { weight = heed.ones(2, 2) }, { strict = false })
  end)

  it("ignores buffers with causal masks, for built-in modules", function()
    local m = nn.MultiHeadAttentionWrapper(3, 2, 6, 0, 2)
    local state = copy_of(m:state_dict())
    state["heads.0.mask"], state["heads.1.mask"], state.causal_mask = heed.ones(6, 6), heed.ones(6, 6), heed.ones(6, 6)
    m:load_state_dict(state)
    nn.Sequential(nn.CausalAttention(3, 2, 6, 0)):load_state_dict({ ["0.mask"] = heed.ones(6, 6) }, { strict = false })
    state["heads.2.mask"] = heed.ones(6, 6)
    fails("load_state_dict: the state does not fit MultiHeadAttentionWrapper:\n"
      .. "  heads.2.mask is not part of the module", m.load_state_dict, m, state)
    local own = nn.Sequential()
    fails("load_state_dict: the state does not fit Sequential:\n  mask is not part of the module", own.load_state_dict,
      own, { mask = heed.ones(1) })
  end)

  it("reads everything before it writes anything", function()
    local m = nn.Sequential(nn.Linear(2, 2, false), nn.Linear(2, 2, false))
    local first, second = m[1].weight:clone(), m[2].weight:clone()
    m:load_state_dict { ["0.weight"] = m[2].weight, ["1.weight"] = m[1].weight.T }
    assert.is_true(m[1].weight:equal(second))
    assert.is_true(m[2].weight:equal(first.T))
  end)

  it("rejects an expanded parameter before it writes anything", function()
    local m = nn.Linear(2, 2)
    m.weight = heed.zeros(1, 2):expand(2, 2)
    m.bias:fill_(3)
    fails("load_state_dict: the state does not fit Linear:\n"
      .. "  weight cannot be written in the module, where it is an expanded view", m.load_state_dict, m,
      { weight = heed.ones(2, 2), bias = heed.ones(2) })
    assert.are.equal(3, m.bias[1])
  end)

  it("names released tensors", function()
    local m, w = nn.Linear(2, 2, false), heed.zeros(2, 2)
    w:release()
    fails("load_state_dict: the state does not fit Linear:\n  weight is a released tensor; it must be a tensor",
      m.load_state_dict, m, { weight = w })
  end)

  it("names wrong arguments of load_state_dict", function()
    local m = nn.Linear(1, 1)
    fails("load_state_dict: state is nil; it must be a state dict or a table of tensors by name", m.load_state_dict, m)
    fails("load_state_dict: state is a module (Linear); it must be a state dict or a table of tensors by name",
      m.load_state_dict, m, m)
    fails("load_state_dict: state is a module (Sequential); it must be a state dict or a table of tensors by name",
      m.load_state_dict, m, nn.Sequential())
    fails("load_state_dict: there is no option 'strickt'; the options are strict, assign", m.load_state_dict, m, {},
      { strickt = true })
    fails("load_state_dict: strict is the number 1; it must be a boolean", m.load_state_dict, m, {}, 1)
  end)
end)
