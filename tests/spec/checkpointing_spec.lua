-- heed.utils.checkpoint (forward again in the backward pass) and x:backward_steps (a backward pass in slices).
local heed = require "heed"
local fails = require "tests.fails"
local raises = require "tests.raises"
local checkpoint = heed.utils.checkpoint
local nn = heed.nn

local function leaf(values) return heed.tensor(values, { requires_grad = true }) end
local function list(x) return x:tolist() end
local function collect() for _ = 1, 3 do collectgarbage() end end

--- The gradients of a module's parameters, as strings of bytes.
local function gradients_of(m)
  local bytes = {}
  for name, parameter in m:named_parameters() do bytes[name] = parameter.grad and parameter.grad:to_string() end
  return bytes
end

describe("with recording on", function()
  local before
  before_each(function() before = heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(before) end)

  describe("checkpoint", function()
    it("gives the same values and gradients, bit for bit, and keeps less", function()
      heed.manual_seed(3)
      local m = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.5), nn.Linear(16, 8))
      local x = heed.randn(4, 8, { requires_grad = true })
      heed.manual_seed(5)
      local plain = m(x)
      plain:sum():backward()
      local next_plain = heed.rand(1)[1]
      local dx, expected = x.grad:to_string(), gradients_of(m)
      x.grad = nil
      m:zero_grad()
      heed.manual_seed(5)
      local y = checkpoint(m, x)
      assert.are.equal("<CheckpointBackward>", y.grad_fn)
      assert.are.equal(plain:to_string(), y:to_string())
      local state = heed.default_generator:get_state()
      y:sum():backward()
      assert.are.equal(state, heed.default_generator:get_state()) -- as if nothing had been drawn again
      assert.are.equal(next_plain, heed.rand(1)[1])
      assert.are.equal(dx, x.grad:to_string())
      assert.are.same(expected, gradients_of(m))
    end)

    it("calls the function once in each direction, with recording only in backward", function()
      local x, seen = leaf { 1, 2 }, {}
      local y = checkpoint(function(a, k)
        seen[#seen + 1] = heed.is_grad_enabled()
        return a * a * k, k, a * 2
      end, x, 3)
      assert.are.same({ false }, seen)
      y:sum():backward()
      assert.are.same({ false, true }, seen)
      assert.are.same({ 6, 12 }, list(x.grad))
    end)

    it("is a plain call while nothing is recorded", function()
      local y = heed.no_grad(checkpoint, function(a) return a * 2 end, leaf { 1 })
      assert.is_nil(y.grad_fn)
    end)

    it("works where the arguments were computed, within others, and with weights used on both sides", function()
      local w = leaf { 2, 3 }
      local function block(a) return a * w end
      local function pair(a) return checkpoint(block, checkpoint(block, a)) end
      local function total(call)
        w.grad = nil
        local x = leaf { 1, 2 }
        local a = x * w
        local y = call(a) * w + a
        y:sum():backward { retain_graph = true }
        local once = list(w.grad)
        w.grad = nil
        x.grad = nil
        y:sum():backward()
        assert.are.same(once, list(w.grad))
        return { list(x.grad), once }
      end
      local expected = total(function(a) return block(block(a)) end)
      assert.are.same(expected, total(pair))
      assert.are.same(expected, total(function(a) return checkpoint(pair, a) end))
    end)

    it("gives the function's own tensors from outside their gradients", function()
      local x = leaf { 1, 2 }
      local outside = x * 3 -- recorded, and not an argument
      local y = checkpoint(function(a) return a * outside end, x)
      y:sum():backward()
      assert.are.same({ 6, 12 }, list(x.grad))
    end)

    it("sees the same draws of a generator among the arguments", function()
      local g = heed.Generator(4)
      local x = leaf { 1, 2, 3, 4 }
      local masks = {}
      local y = checkpoint(function(a, options)
        local mask = heed.rand(4, options)
        masks[#masks + 1] = mask:to_string()
        return a * mask
      end, x, { generator = g })
      local state = g:get_state()
      y:sum():backward()
      assert.are.equal(masks[1], masks[2])
      assert.are.equal(state, g:get_state())
    end)

    it("passes errors on; then nothing has changed", function()
      local x, object, fail = leaf { 1 }, {}, false
      local y = checkpoint(function(a)
        heed.rand(3)
        if fail then error(object) end
        return a * a
      end, x)
      fail = true
      local state = heed.default_generator:get_state()
      local total = y:sum()
      local ok, err = pcall(total.backward, total)
      assert.is_false(ok)
      assert.are.equal(object, err)
      assert.are.equal(state, heed.default_generator:get_state())
      assert.is_true(heed.is_grad_enabled())
      assert.is_nil(x.grad)
      fail = false
      total:backward()
      assert.are.same({ 2 }, list(x.grad))
    end)

    it("notices that an argument has changed, and refuses what is no function", function()
      local a = leaf { 1 } * 1
      local y = checkpoint(function(x) return x * x end, a)
      a:add_(1)
      fails("checkpoint: argument 1, a tensor of shape [1] and dtype float32, was changed in place by add, and the "
        .. "function is computed again; pass a clone", function() y:sum():backward() end)
      raises("checkpoint: f is the number 1; it must be a function or a module", function() checkpoint(1) end)
    end)

    it("keeps no memory of what it computes", function()
      local x = heed.ones(256, 256, { requires_grad = true })
      local function deep(a)
        for _ = 1, 20 do a = a * a end
        return a
      end
      collect()
      local start = heed.info().memory_in_use
      local y = checkpoint(deep, x)
      collect()
      assert.is_true(heed.info().memory_in_use - start < 3 * 256 * 256 * 4)
      y:sum():backward()
      collect()
      assert.is_true(heed.info().memory_in_use - start < 5 * 256 * 256 * 4)
    end)
  end)

  describe("backward_steps", function()
    local function model()
      heed.manual_seed(1)
      local m = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))
      return m, m(heed.randn(5, 4)):sum()
    end

    it("gives the gradients of backward, bit for bit, all at the end", function()
      local m, loss = model()
      loss:backward()
      local expected = gradients_of(m)
      for _, ms in ipairs { 0, 2, math.huge } do
        m, loss = model()
        local slices, last_done, last_total = 0, 0, nil
        local steps = loss:backward_steps { ms = ms }
        for done, total in steps do
          assert.is_true(done > last_done and done <= total)
          last_done, last_total = done, total
          slices = slices + 1
          assert.are.equal(done == total, m[1].weight.grad ~= nil)
        end
        assert.are.equal(last_done, last_total)
        assert.is_true(ms > 0 or slices == last_total)
        assert.is_true(ms < math.huge or slices == 1)
        assert.are.same(expected, gradients_of(m))
        assert.are.equal(last_total, steps.done)
        assert.are.equal(("heed.BackwardSteps(done=%d, total=%d)"):format(last_total, last_total), tostring(steps))
        assert.is_nil(steps())
      end
    end)

    it("lets other passes through the same graph between slices", function()
      local x = leaf { 1, 2 }
      local y = x * x
      local a, b = (y * 3):sum(), (y * 5):sum()
      local options = { ms = 0, retain_graph = true }
      local first, second = a:backward_steps(options), b:backward_steps(options)
      first()
      second()
      b:backward { retain_graph = true }
      assert.are.same({ 10, 20 }, list(x.grad))
      first:advance(math.huge)
      assert.are.same({ 16, 32 }, list(x.grad))
      while second() do end -- luacheck: ignore
      assert.are.same({ 26, 52 }, list(x.grad))
    end)

    it("changes nothing when it is left in the middle", function()
      local m, loss = model()
      local steps = loss:backward_steps { ms = 0 }
      steps()
      steps:release()
      steps:release()
      fails("backward_steps: the pass was released; begin a new one with x:backward_steps()", function() steps() end)
      steps = loss:backward_steps { ms = 0 }
      steps()
      steps = nil -- luacheck: ignore
      collect()
      assert.is_nil(m[1].weight.grad)
      loss:backward()
      assert.is_not_nil(m[1].weight.grad)
    end)

    it("ends with an error in a hook, and can begin again", function()
      local x, object, fail = leaf { 1, 2 }, {}, true
      local y = x * x
      y:register_hook(function() if fail then error(object) end end)
      local loss = y:sum()
      local steps = loss:backward_steps { ms = math.huge }
      local ok, err = pcall(steps)
      assert.is_false(ok)
      assert.are.equal(object, err)
      fails("backward_steps: an earlier slice has failed; begin a new pass", steps)
      fail = false
      for _ in loss:backward_steps() do end -- luacheck: ignore
      assert.are.same({ 2, 4 }, list(x.grad))
    end)

    it("goes through checkpoints and takes a gradient", function()
      local x = leaf { 1, 2 }
      local y = checkpoint(function(a) return a * a end, x)
      for _ in y:backward_steps { gradient = heed.tensor { 1, 10 }, ms = 0 } do end -- luacheck: ignore
      assert.are.same({ 2, 40 }, list(x.grad))
    end)

    it("refuses what backward refuses", function()
      raises("backward_steps: the tensor does not require a gradient; it must be computed, while recording is on, from "
        .. "a tensor with requires_grad", function() local s = heed.ones(1):backward_steps() return s end)
      raises("backward_steps: ms is the number -1; it must be a number, 0 or more", function()
        local s = (leaf { 1 } * 2):backward_steps { ms = -1 }
        return s
      end)
      local steps = (leaf { 1 } * 2):sum():backward_steps()
      raises("heed.BackwardSteps have no field result; they have done, total, advance and release", function()
        return steps.result
      end)
    end)
  end)
end)
