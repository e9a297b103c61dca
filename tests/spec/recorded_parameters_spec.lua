-- What changes parameters while gradients are recorded, without being recorded itself.
local heed = require "heed"
local nn = heed.nn

local arguments = {
  constant_ = { 3 }, uniform_ = { -1, 1 }, normal_ = { 0, 2 }, kaiming_uniform_ = { { a = 2 } },
}

describe("while gradients are recorded", function()
  local before
  before_each(function() before = heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(before) end)

  -- The parameter is still a leaf that wants a gradient.
  local function check(parameter)
    assert.is_true(parameter.requires_grad)
    assert.is_true(parameter.is_leaf)
    assert.is_true(heed.is_grad_enabled())
  end

  for name, f in pairs(nn.init) do
    if name:find "_$" then
      it(("nn.init.%s changes a parameter"):format(name), function()
        local given = arguments[name] or {}
        heed.manual_seed(3)
        local m = nn.Linear(4, 3)
        f(m.weight, table.unpack(given))
        heed.set_grad_enabled(false)
        heed.manual_seed(3)
        local other = nn.Linear(4, 3)
        f(other.weight, table.unpack(given))
        heed.set_grad_enabled(true)
        assert.is_true(m.weight:equal(other.weight))
        check(m.weight)
      end)
    end
  end

  it("a failing nn.init leaves recording on", function()
    assert.is_false(pcall(nn.init.eye_, heed.ones(3)))
    assert.is_true(heed.is_grad_enabled())
  end)

  it("load_state_dict and vector_to_parameters change parameters", function()
    local m, other = nn.Linear(4, 3), nn.Linear(4, 3)
    m:load_state_dict(other:state_dict())
    assert.is_true(m.weight:equal(other.weight))
    nn.utils.vector_to_parameters(heed.ones(15), m:parameters())
    assert.equal(12, m.weight:sum():item())
    check(m.weight)
  end)

  it("a checkpoint can be saved and loaded", function()
    local base = os.tmpname()
    local path = base .. ".safetensors"
    local m, other = nn.Linear(4, 3), nn.Linear(4, 3)
    assert.is_true(heed.save(path, { model = m, step = 1 }))
    assert(heed.utils.load_checkpoint(path, { model = other }))
    assert.is_true(m.weight:equal(other.weight))
    check(other.weight)
    os.remove(base)
    os.remove(path)
  end)
end)
