-- The modules that are written in Lua, nn.functional and nn.init, compared with PyTorch
-- (scripts/dev/make_module_values.py).
local heed = require "heed"
local nn, F = heed.nn, heed.nn.functional

local support = require "tests.support"
local tensors = require "tests.tensors"
local golden, close = tensors.golden, tensors.close

--- A value of a case: records become tensors, everything else stays.
local function value(given)
  if type(given) == "table" and given.data then return golden(given) end
  return given
end

local function values(given)
  local list = {}
  for key, each in pairs(given) do list[key] = value(each) end
  return list
end

describe("a module of PyTorch", function()
  for i, case in ipairs(dofile "tests/golden/torch_modules.lua") do
    describe(("%s, case %d,"):format(case.class, i), function()
      heed.manual_seed(case.seed)
      local m = nn[case.class](case.arguments)

      if case.text then
        it("prints the same text", function() assert.are.equal(case.text, tostring(m)) end)
      end

      it("starts with the same state, in the same order", function()
        local state, names = m:state_dict(), {}
        for name in heed.pairs(state) do names[#names + 1] = name end
        assert.are.equal(#case.drawn, #names)
        for at, pair in ipairs(case.drawn) do
          assert.are.equal(pair[1], names[at])
          close(golden(pair[2]), state[pair[1]], 1e-6)
        end
      end)

      it("gives the same results", function()
        for p in m:parameters() do p:add_(heed.linspace(-0.3, 0.4, p:numel()):view(p.shape)) end
        m:train(case.train)
        local inputs, results = values(case.inputs), nil
        for _ = 1, case.calls do
          if next(case.options) then
            inputs[#case.inputs + 1] = values(case.options)
          end
          results = { m(support.unpack(inputs)) }
        end
        assert.are.equal(#case.outputs, #results)
        for at, output in ipairs(case.outputs) do close(golden(output), results[at], 2e-6, 2e-6) end
        for _, pair in ipairs(case.buffers) do close(golden(pair[2]), m:get_buffer(pair[1]), 1e-6) end
      end)
    end)
  end
end)

describe("a function of PyTorch", function()
  for i, case in ipairs(dofile "tests/golden/functional.lua") do
    if case.name then
      it(("%s, case %d, gives the same results"):format(case.name, i), function()
        local inputs = values(case.inputs)
        local count = #case.inputs
        for at = 1, count do inputs[at] = inputs[at] or nil end
        if next(case.options) then
          count = count + 1
          inputs[count] = values(case.options)
        end
        close(golden(case.y), F[case.name](support.unpack(inputs, 1, count)), 2e-6, 2e-6)
      end)
    end
  end
end)

describe("an initializer of PyTorch", function()
  for i, case in ipairs(dofile "tests/golden/functional.lua") do
    if case.init then
      it(("%s, case %d, draws the same numbers"):format(case.init, i), function()
        local x = heed.full(case.shape, 7)
        heed.manual_seed(case.seed)
        assert.are.equal(x, nn.init[case.init](x, next(case.options) and case.options or nil))
        close(golden(case.y), x, 1e-6)
      end)
    end
  end
end)

-- Dropout draws in the order of memory, so the layout of an attention's result matters: [l, b, e] in PyTorch. Values of
-- nn.TransformerEncoderLayer(4, 2, 4, 0.5, batch_first = false and true)(x) in PyTorch 2.13 ("native" dropout).
describe("nn.TransformerEncoderLayer in training mode", function()
  local expected = {
    [false] = {
      { -1.544, 1.0099, -0.2092, 0.7433 }, { 0.1571, -1.5067, 1.3051, 0.0445 }, { -0.442, -0.8862, 1.6978, -0.3696 },
      { -1.1823, -0.7883, 1.1255, 0.8451 }, { 1.1848, -0.7809, 0.774, -1.1779 }, { -1.4284, 1.3978, -0.036, 0.0666 },
    },
    [true] = {
      { -0.3064, -1.474, 0.6175, 1.1628 }, { 0.3875, -1.6725, 0.9793, 0.3057 }, { 0.2388, -1.367, 1.412, -0.2838 },
      { 0.1945, -1.6208, 1.1119, 0.3143 }, { 0.8562, -0.8465, 1.1243, -1.1341 }, { -1.5494, 1.1408, 0.5317, -0.1231 },
    },
  }
  for batch_first, rows in pairs(expected) do
    it("draws PyTorch's dropout, batch_first = " .. tostring(batch_first), function()
      heed.manual_seed(1)
      local m = nn.TransformerEncoderLayer(4, 2, 4, 0.5, { batch_first = batch_first })
      local x = heed.randn(2, 3, 4)
      heed.manual_seed(2)
      close(heed.tensor(rows), m(x):reshape(6, 4), 1e-4)
    end)
  end
end)
