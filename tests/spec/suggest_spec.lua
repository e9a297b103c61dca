-- Names that heed does not have: what the error says.
local heed = require "heed"
local suggest = require "heed.suggest"
local raises = require "tests.raises"
local support = require "tests.support"
local nn = heed.nn

describe("the distance of two names", function()
  it("counts letters that are inserted, removed, changed or exchanged", function()
    for _, case in ipairs {
      { "", "", 0 }, { "a", "", 1 }, { "", "abc", 3 }, { "softmax", "softmax", 0 }, { "softmx", "softmax", 1 },
      { "sofmtax", "softmax", 1 }, { "shpae", "shape", 1 }, { "zeros", "ones", 4 }, { "abc", "xyz", 3 },
    } do
      assert.are.equal(case[3], suggest.distance(case[1], case[2]))
      assert.are.equal(case[3], suggest.distance(case[2], case[1]))
    end
  end)
end)

describe("the nearest names", function()
  local KNOWN = "zeros ones softmax log_softmax arange range cat cos dim Linear LayerNorm repeat_interleave sum std"

  local function nearest(name) return table.concat(suggest.nearest(name, KNOWN), " ") end

  it("are those with the fewest changes", function()
    assert.are.equal("softmax", nearest "sofmax")
    assert.are.equal("arange", nearest "arrange")
    assert.are.equal("Linear", nearest "Linaer")
  end)

  it("ignore capitals and underscores", function()
    assert.are.equal("LayerNorm", nearest "layer_norm")
    assert.are.equal("zeros", nearest "Zeros")
  end)

  it("contain a longer part of a name", function()
    assert.are.equal("repeat_interleave", nearest "interleave")
  end)

  it("are never silly", function()
    for _, name in ipairs { "x", "to", "cuda", "cpu", "numpy", "data", "device", "backward", "conv2d", "relu" } do
      assert.are.equal("", nearest(name))
    end
    assert.are.equal("", nearest(("softmax"):rep(100)))
  end)
end)

describe("an unknown name", function()
  local x, m = heed.ones(2, 3), nn.Linear(2, 2)

  it("of heed or heed.nn is an error with the nearest names", function()
    raises("heed has no function or field 'softmx'; did you mean 'softmax'?", function() return heed.softmx end)
    raises("heed.nn has no function or field 'Linaer'; did you mean 'Linear'?", function() return nn.Linaer end)
    raises("heed has no function or field 'nothing_like_it'", function() return heed.nothing_like_it end)
    raises("heed has no function or field 'tan'; heed has sin, cos and tanh; for single numbers, Lua's math has the "
      .. "others", function() return heed.tan end)
    raises("Tensor has no field or method 'fill_diagonal_'; write x:diagonal():fill_(value): the diagonal is a view",
      function() return x.fill_diagonal_ end)
    raises("heed has no function or field 'plot'; it is a module of its own: require \"heed.plot\"",
      function() return heed.plot end)
    raises("heed has no function or field ''", function() return heed[""] end)
  end)

  it("is nil for rawget, and where libraries look for names that begin with _", function()
    assert.is_nil(rawget(heed, "softmx"))
    assert.is_nil(heed._VERSION)
    assert.is_nil(heed.__index)
    assert.is_nil(heed[1])
    assert.is_nil(nn._anything)
  end)

  it("can be set, and is then known", function()
    assert.is_false(pcall(function() return heed.mine end))
    heed.mine = 1
    assert.are.equal(1, heed.mine)
    heed.mine = nil
    assert.is_false(pcall(function() return heed.mine end))
  end)

  it("does not become an option that is nil", function()
    assert.is_false(pcall(function() return heed.zeros(2, { dtype = heed.flaot32 }) end))
  end)

  it("says where a name is that another table has", function()
    raises("heed has no function or field 'Linear'; did you mean 'linear' or heed.nn.Linear?",
      function() return heed.Linear end)
    raises("heed.nn has no function or field 'linear'; did you mean 'Linear' or heed.linear?",
      function() return nn.linear end)
    raises("heed has no function or field 'Sequential'; it is heed.nn.Sequential",
      function() return heed.Sequential end)
    raises("heed.nn has no function or field 'zeros'; it is heed.zeros", function() return nn.zeros end)
    raises("Tensor has no field or method 'manual_seed'; it is heed.manual_seed",
      function() return x:manual_seed(1) end)
  end)

  it("of PyTorch says what to write", function()
    local leave = "; heed computes on the processor: leave it out"
    raises("Tensor has no field or method 'cuda'" .. leave, function() return x:cuda() end)
    raises("heed has no function or field 'device'" .. leave, function() return heed.device end)
    raises("Linear has no field 'cuda'; it has weight, bias, in_features, out_features, training" .. leave,
      function() return m:cuda() end)
    raises("sum: there is no option 'device'; the options are dim, keepdim" .. leave,
      function() return x:sum { device = "cuda" } end)
    raises("sum: there is no option 'axis'; the options are dim, keepdim; did you mean 'dim'?",
      function() return x:sum { axis = 1 } end)
    raises("Tensor has no field or method 'int'; write x:long()", function() return x:int() end)
  end)

  it("of a module names its fields and methods", function()
    local has = "; it has weight, bias, in_features, out_features, training"
    raises("Linear has no field 'parmeters'" .. has .. "; did you mean 'parameters'?",
      function() return m:parmeters() end)
    raises("Linear has no field 'wieght'" .. has .. "; did you mean 'weight'?", function() return m.wieght end)
  end)

  it("among dtypes says which one to take", function()
    raises("to: dtype is a string ('float64'); it must be 'bool', 'int64', 'float32', 'bfloat16', 'float16', 'int8', "
      .. "'q4_0', 'q4_1', 'q5_0', 'q5_1', 'q8_0', 'q4_k', 'q5_k' or 'q6_k'; write \"float32\"",
      function() return x:to "float64" end)
  end)

  it("is an error where a script has removed a table", function()
    local optim = heed.optim
    finally(function() heed.optim = optim end)
    heed.optim = nil
    raises("heed has no function or field 'foo'", function() return heed.foo end)
    raises("heed has no function or field 'optim'", function() return heed.optim end)
  end)

  it("in a table with a guard is an error, too", function()
    local t = suggest.guard({ known = 1 }, "mine")
    assert.are.equal(1, t.known)
    raises("mine has no function or field 'knwon'; did you mean 'known'?", function() return t.knwon end)
    assert.is_nil(t._name)
    assert.is_nil(t[1])
    local optimizer = heed.optim.SGD(nn.Linear(1, 1):parameters())
    raises("heed.optim.SGD: the field 'lr' cannot be set; the rate is a group's: optimizer.param_groups[1].lr",
      function() optimizer.lr = 1 end)
    raises("heed.optim.SGD: there is no method or field 'lr'; the rate is a group's: optimizer.param_groups[1].lr",
      function() return optimizer.lr end)
    raises("heed.optim.lr_scheduler.StepLR: there is no method or field 'get_lr'; write schedule:get_last_lr()",
      function() return heed.optim.lr_scheduler.StepLR(optimizer, 1):get_lr() end)
    raises("heed.nn.utils has no function or field 'clip_grad_norm'; did you mean 'clip_grad_norm_'?",
      function() return heed.nn.utils.clip_grad_norm end)
  end)
end)

describe("the advice", function()
  it("is for names that heed does not have", function()
    local advice = require "heed.advice"
    local x = heed.ones(1)
    for name in pairs(advice.names.Tensor) do
      assert.is_false(pcall(function() return x[name] end), "Tensor." .. name)
    end
    for name in pairs(advice.names.heed) do assert.is_nil(rawget(heed, name), "heed." .. name) end
    for name in pairs(advice.names["heed.nn"]) do assert.is_nil(rawget(nn, name), "heed.nn." .. name) end
    for name in pairs(advice.everywhere) do
      assert.is_nil(rawget(heed, name), "heed." .. name)
      assert.is_false(pcall(function() return x[name] end), "Tensor." .. name)
    end
  end)
end)

describe("a message of Lua itself, in a script", function()
  -- Older Luas word it differently.
  local function says(code, name, hint)
    it(("says what to write instead of %s"):format(name), function()
      support.with_script(code, function(path)
        local result = support.run(support.heed .. " " .. support.quote(path) .. " 2>&1")
        assert.are.equal(1, result.code)
        local line = result.out:match "^[^\n]*"
        assert.is_truthy(line:find("nil value", 1, true), line)
        assert.is_truthy(line:find("'" .. name .. "'", 1, true), line)
        assert.are.equal(hint, line:sub(-#hint))
      end)
    end)
  end

  local own = "local o = require('heed').nn.Module.class 'Mine'()\n"
  says(own .. "o:foward(1)", "foward", "; did you mean 'forward'?")
  says(own .. "o:cuda()", "cuda", "; heed computes on the processor: leave it out")
  says(own .. "softmax(o)", "softmax", "; it is heed.softmax")
  says(own .. "Linear(2, 3)", "Linear", "; it is heed.nn.Linear")
  says(own .. "print(torch.zeros(2))", "torch", '; write local heed = require "heed", and heed instead of torch')
  says("local x = heed.rand(2)", "heed", '; write local heed = require "heed"')
  says(own .. "print(len(o))", "len", "; write #x")
  says(own .. "local t = {}\nt:append(1)", "append",
    "; write list[#list + 1] = value, or container:append(m) for nn.ModuleList")

  it("says how Lua writes what is Python", function()
    for code, hint in pairs {
      ["x = a @ b"] = "; write a:matmul(b)", ["if a != b then end"] = "; Lua writes ~= for !=",
      ["x = 1; x += 1"] = "; write x = x + 1", ["y = x[:, 0]"] = "; slices are tables: x[{ {}, 1 }] or x[{ {2, 4} }]",
      ["x = 2 ** 3"] = ", and ^ for powers", ["x = [1, 2]"] = "; lists are written {1, 2}",
      ["import torch"] = '; write local heed = require "heed"', ["x = 3 # three"] = "; comments begin with --",
      ["y = nn.Dropout(p=0.5)"] = "; options by name are a table: f(x, {dim = -1}), or f{p = 0.5}",
      ["y = x[..., 1]"] = '; several indices are a table: x[{ 1, 2 }] or x[{ "...", 1 }]',
      ["x = 2; x *= 2"] = "; Lua writes x = x * 2 for x *= 2, and ^ for powers",
      ["local x = heed.rand(3); print(x[1]:item())"] = "; an element of a tensor is a number already: write x[1], "
        .. "without :item()",
      ["print(f'{x}')"] = '; for formatted text, write ("%.2f"):format(number), or "text " .. x',
      ["y = math.exp(heed.rand(1))"] = "; for a tensor, write x:item() for its number, and x:exp(), x:max() and so on "
        .. "for math's functions",
      ["x = {'a': 1}"] = "; fields are written {name = value}",
    } do
      local result = support.run(support.heed .. " -e " .. support.quote(code) .. " 2>&1")
      assert.are.equal(1, result.code)
      assert.are.equal(hint, result.out:match("^[^\n]*"):sub(-#hint))
    end
  end)
end)
