-- heed.autograd and what tensors know of gradients: modes, leaves, hooks, functions of one's own, checks, errors.
local heed = require "heed"
local compat = require "heed.compat"
local fails = require "tests.fails"
local raises = require "tests.raises"
local support = require "tests.support"
local autograd = heed.autograd

local function list(x) return x:tolist() end
local function leaf(values) return heed.tensor(values, { requires_grad = true }) end

local function collect() for _ = 1, 3 do collectgarbage() end end

describe("with recording on", function()
  local before
  before_each(function() before = heed.set_grad_enabled(true) end)
  after_each(function() heed.set_grad_enabled(before) end)

  describe("a mode", function()
    it("is off at first, and set_grad_enabled returns what it was", function()
      local script = support.run(support.heed .. [[ -e "print(heed.is_grad_enabled(), heed.set_grad_enabled(true))"]])
      assert.are.equal("false\tfalse\n", script.out)
      assert.is_true(heed.set_grad_enabled(true))
      assert.is_true(heed.is_grad_enabled())
    end)

    it("lasts as long as a function, whose arguments and results pass through", function()
      local function f(...) return heed.is_grad_enabled(), select("#", ...), ... end
      assert.are.same({ false, 3, 1, nil, 3 }, { heed.no_grad(f, 1, nil, 3) })
      assert.are.same({ false, 0 }, { heed.inference_mode(f) })
      heed.no_grad(function()
        assert.are.same({ true, 0 }, { heed.enable_grad(f) })
        assert.is_false(heed.is_grad_enabled())
      end)
      assert.is_true(heed.is_grad_enabled())
    end)

    it("takes modules and functions of heed", function()
      local m = heed.nn.Linear(2, 1)
      assert.is_false(heed.no_grad(m, heed.ones(1, 2)).requires_grad)
      assert.is_true(m(heed.ones(1, 2)).requires_grad)
      assert.are.equal(3, heed.no_grad(heed.numel, heed.ones(3)))
    end)

    it("ends with an error, which arrives as it was", function()
      local object = {}
      local ok, err = pcall(heed.no_grad, function() error(object) end)
      assert.is_false(ok)
      assert.are.equal(object, err)
      assert.is_true(heed.is_grad_enabled())
      raises("add: b is nil; it must be a tensor or a number", function() heed.no_grad(function() heed.add(1) end) end)
    end)

    it("is another one while its function has yielded, and leaves nothing behind when that never returns", function()
      local thread = coroutine.create(function(...)
        return heed.no_grad(function(...)
          local seen = { coroutine.yield(heed.is_grad_enabled(), ...) }
          heed.set_grad_enabled(true)
          coroutine.yield(seen[1])
          return heed.is_grad_enabled()
        end, ...)
      end)
      assert.are.same({ true, false, "a" }, { coroutine.resume(thread, "a") })
      assert.is_true(heed.is_grad_enabled())
      heed.set_grad_enabled(false)
      assert.are.same({ true, "b" }, { coroutine.resume(thread, "b") })
      assert.is_false(heed.is_grad_enabled())
      heed.set_grad_enabled(true)
      local dropped = coroutine.wrap(function() heed.no_grad(coroutine.yield) end)
      dropped()
      dropped = nil -- luacheck: ignore
      collect()
      assert.is_true(heed.is_grad_enabled())
    end)

    it("passes errors out of a coroutine", function()
      local object = {}
      local thread = coroutine.create(function()
        local ok, err = pcall(heed.no_grad, function() error(object) end)
        return ok, err, heed.is_grad_enabled()
      end)
      local _, ok, err, mode = coroutine.resume(thread)
      assert.are.same({ false, true }, { ok, mode })
      assert.are.equal(object, err)
    end)

    it("refuses what is no function", function()
      raises("no_grad: f is nil; it must be a function: heed.no_grad(function() ... end)", function()
        heed.no_grad()
      end)
      raises("enable_grad: f is a boolean (true); it must be a function: heed.enable_grad(function() ... end)",
        function() heed.enable_grad(true) end)
      raises("set_grad_enabled: mode is nil; it must be a boolean", function() heed.set_grad_enabled() end)
    end)
  end)

  describe("a tensor", function()
    it("wants a gradient if its maker is asked", function()
      local g = heed.Generator(1)
      local x = heed.ones(2, { requires_grad = true })
      local made = {
        heed.tensor({ 1 }, { requires_grad = true }), heed.zeros(2, { requires_grad = true }), x,
        heed.empty({ 2 }, { requires_grad = true }), heed.full({ 2 }, 3, { requires_grad = true }),
        heed.rand(2, { requires_grad = true, generator = g }), heed.randn(2, { requires_grad = true }),
        heed.zeros_like(x, { requires_grad = true }), heed.ones_like(x, { requires_grad = true }),
        heed.empty_like(x, { requires_grad = true }), heed.full_like(x, 1, { requires_grad = true }),
        heed.rand_like(x, { requires_grad = true }), heed.randn_like(x, { requires_grad = true }),
        x:new_zeros(2, { requires_grad = true }), x:new_ones(2, { requires_grad = true }),
        x:new_empty(2, { requires_grad = true }), x:new_full({ 2 }, 1, { requires_grad = true }),
        x:new_tensor({ 1 }, { requires_grad = true }), heed.eye(2, { requires_grad = true }),
        heed.range(1, 3, { requires_grad = true }), heed.linspace(0, 1, 3, { requires_grad = true }),
        heed.logspace(0, 1, 3, { requires_grad = true }),
        heed.arange(3, { dtype = "float32", requires_grad = true }),
      }
      for i, y in ipairs(made) do
        assert.is_true(y.requires_grad, "number " .. i)
        assert.is_true(y.is_leaf)
        assert.is_nil(y.grad_fn)
      end
      assert.is_false(heed.ones(2).requires_grad)
      assert.is_false(heed.zeros_like(x).requires_grad)
    end)

    it("says of which dtype it must be", function()
      raises("zeros: requires_grad is true and dtype is int64; only float32 tensors have gradients", function()
        heed.zeros(2, { dtype = "int64", requires_grad = true })
      end)
      raises("tensor: requires_grad is true and dtype is bool; only float32 tensors have gradients", function()
        heed.tensor({ true }, { requires_grad = true })
      end)
      raises("requires_grad_: x is int64; it must be float32 to have a gradient", function()
        heed.arange(3):requires_grad_()
      end)
      raises("zeros: requires_grad is the number 1; it must be a boolean", function()
        heed.zeros(2, { requires_grad = 1 })
      end)
    end)

    it("can be asked later, and no more", function()
      local x = heed.ones(2)
      assert.are.equal(x, x:requires_grad_())
      assert.is_true(x.requires_grad)
      x.requires_grad = false
      assert.is_false(x.requires_grad)
      x.requires_grad = true
      local y = x * 2
      raises("requires_grad: x is the result of a recorded operation (MulBackward0); it must be a leaf to require no "
        .. "gradient; use x:detach()",
        function() y.requires_grad = false end)
      raises("index: fields of a tensor cannot be set ('grad_fn')", function() y.grad_fn = nil end)
    end)

    it("is a parameter that requires a gradient by default", function()
      assert.is_true(heed.nn.Parameter(heed.ones(2)).requires_grad)
      local frozen = heed.nn.Parameter(heed.ones(2), false)
      assert.is_false(frozen.requires_grad)
      assert.are.equal("Parameter containing:\ntensor([1., 1.])", tostring(frozen))
      assert.is_false(heed.nn.Parameter(heed.ones(2), { requires_grad = false }).requires_grad)
      local y = leaf { 1 } * 2
      assert.is_true(heed.nn.Parameter(y).is_leaf)
    end)

    it("has a gradient of its own, however many others share its elements", function()
      local x = leaf { { 1, 2, 3 }, { 4, 5, 6 } }
      local turned = heed.no_grad(function() return x:t() end):requires_grad_()
      local w = heed.tensor { { 1, 2 }, { 3, 4 }, { 5, 6 } };
      (turned * w):sum():backward()
      assert.is_nil(x.grad)
      assert.are.same(list(w), list(turned.grad))
      local flat = x:detach():view(6):requires_grad_();
      (x:sum() + flat:sum() * 2):backward()
      assert.are.same({ { 1, 1, 1 }, { 1, 1, 1 } }, list(x.grad))
      assert.are.same({ 2, 2, 2, 2, 2, 2 }, list(flat.grad))
      for _ = 1, 2 do
        local again = x:detach():requires_grad_();
        (again * 3):sum():backward()
        assert.are.same({ { 3, 3, 3 }, { 3, 3, 3 } }, list(again.grad))
      end
      assert.are.same({ { 1, 1, 1 }, { 1, 1, 1 } }, list(x.grad))
      local m = heed.nn.Linear(3, 2)
      m.weight = heed.nn.Parameter(x)
      m(heed.ones(3)):sum():backward()
      assert.are.same({ { 1, 1, 1 }, { 1, 1, 1 } }, list(m.weight.grad))
      assert.is_false(m:state_dict().weight.requires_grad)
      local square = heed.nn.Parameter(heed.tensor { { 1, 2 }, { 3, 4 } })
      local other = heed.nn.Parameter(square:t());
      (other * heed.tensor { { 1, 2 }, { 3, 4 } }):sum():backward()
      assert.is_nil(square.grad)
      assert.are.same({ { 1, 2 }, { 3, 4 } }, list(other.grad))
    end)

    it("is freed with its last alias", function()
      local x = heed.zeros(1000)
      local function many()
        for _ = 1, 100 do x:detach():requires_grad_():sum():backward() end
        collect()
        return heed.info().memory_in_use
      end
      local first = many()
      assert.is_true(many() <= first)
    end)

    it("prints what computed it", function()
      local x = leaf { 1, 2 }
      assert.are.equal("tensor([1., 2.], requires_grad=True)", tostring(x))
      assert.are.equal("tensor([2., 4.], grad_fn=<MulBackward0>)", tostring(x * 2))
      assert.are.equal("<MulBackward0>", (x * 2).grad_fn)
      assert.are.equal("tensor([], size=(0, 3), requires_grad=True)",
        tostring(heed.zeros(0, 3, { requires_grad = true })))
      local long = heed.full({ 13 }, 0.5, { requires_grad = true })
      assert.are.equal("tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000,\n"
        .. "        0.5000, 0.5000, 0.5000, 0.5000], requires_grad=True)", tostring(long))
      local wide = heed.full({ 7 }, 0.5, { requires_grad = true })
      assert.are.equal("tensor([0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000, 0.5000],\n       requires_grad=True)",
        tostring(wide))
      assert.are.equal("tensor([1., 2.])", heed.no_grad(tostring, x))
    end)

    it("forgets what computed it", function()
      local x = leaf { 1, 2 }
      local y = x * 2
      local z = y:detach()
      assert.is_false(z.requires_grad)
      assert.are.equal(2, z[1])
      assert.are.equal(y, y:detach_())
      assert.is_false(y.requires_grad)
      assert.is_true(y.is_leaf)
    end)
  end)

  describe("a backward pass", function()
    it("adds to the gradients of leaves", function()
      local x = leaf { 1, 2, 3 }
      assert.is_nil(x.grad)
      local y = (x * x):sum()
      y:backward { retain_graph = true }
      assert.are.same({ 2, 4, 6 }, list(x.grad))
      y:backward()
      assert.are.same({ 4, 8, 12 }, list(x.grad))
      x.grad = heed.ones(3)
      assert.are.same({ 1, 1, 1 }, list(x.grad))
      x.grad = nil
      assert.is_nil(x.grad);
      (x * x):backward(heed.tensor { 1, 0, 2 })
      assert.are.same({ 2, 0, 12 }, list(x.grad))
    end)

    it("keeps the gradient of what was computed, if asked", function()
      local x = leaf { 1, 2 }
      local y = x * 3
      y:retain_grad();
      (y * y):sum():backward()
      assert.are.same({ 6, 12 }, list(y.grad))
      assert.are.same({ 18, 36 }, list(x.grad))
    end)

    it("goes through several tensors at once", function()
      local x = leaf { 1, 2 }
      local y, z = x * 2, (x * x):sum()
      autograd.backward({ y, z }, { heed.ones(2) })
      assert.are.same({ 4, 6 }, list(x.grad))
      autograd.backward((x * x):sum())
      assert.are.same({ 6, 10 }, list(x.grad))
    end)

    it("refuses what it cannot do", function()
      local x = leaf { 1, 2 }
      local y = x * x
      raises("backward: the tensor does not require a gradient; it must be computed, while recording is on, from a "
        .. "tensor with requires_grad", function() heed.ones(1):backward() end)
      raises("backward: the tensor does not require a gradient, and recording is off; turn it on (set_grad_enabled) "
        .. "before the tensor is computed", function() heed.no_grad(function() (x * x):sum():backward() end) end)
      raises("backward: tensor 2 does not require a gradient; it must be computed, while recording is on, from a "
        .. "tensor with requires_grad", function() autograd.backward { (x * x):sum(), heed.ones(1) } end)
      raises("backward: the tensor is [2]; without a gradient it must have one element: take its sum or mean, or give "
        .. "a gradient", function() y:backward() end)
      raises("backward: the gradient is [3] and the tensor is [2]; the shapes must be equal", function()
        y:backward(heed.ones(3))
      end)
      raises("backward: the gradient is int64; it must be float32", function() y:backward(heed.arange(2)) end)
      raises("backward: gradient is the number 1; it must be a tensor", function() y:backward(1) end)
      raises("backward: there is no option 'create_graph'; the options are gradient, retain_graph; heed has first "
        .. "derivatives only: heed.autograd.grad(y, x), or y:backward()", function()
          y:backward { create_graph = true }
        end)
      raises("backward: retain_graph is the number 1; it must be a boolean", function()
        y:backward(heed.ones(2), 1)
      end)
      y:sum():backward()
      local ok, err = pcall(y.backward, y, heed.ones(2))
      assert.is_false(ok)
      assert.truthy(tostring(err):find("the tensors that mul saved were freed by an earlier backward pass", 1,
        true))
      raises("backward: tensors is a string ('x'); it must be a tensor or a table of tensors", function()
        autograd.backward "x"
      end)
      raises("backward: tensors has no tensors; it must have at least 1", function() autograd.backward {} end)
      raises("backward: grad_tensors has an element 2; it must have one gradient for each of 1 tensor, nil for 1",
        function() autograd.backward({ (x * 1):sum() }, { grad_tensors = { [2] = x } }) end)
    end)

    it("cannot begin inside another one", function()
      local x = leaf { 1, 2 }
      local y = (x * x):sum()
      x:register_hook(function() (x * 1):sum():backward() end)
      local ok, err = pcall(y.backward, y)
      assert.is_false(ok)
      assert.truthy(tostring(err):find("backward: a backward pass is running", 1, true))
      local z = (leaf { 1 } * 2):sum()
      x = leaf { 1, 2 }
      x:register_hook(function() z:backward() end)
      fails("backward: a backward pass is running; a hook or a function must not begin another one", function()
        (x * x):sum():backward()
      end)
      assert.is_nil(x.grad)
    end)
  end)

  describe("autograd.grad", function()
    it("gives gradients and changes none", function()
      local x, w = leaf { 1, 2 }, leaf { 3, 4 }
      local y = x * w
      assert.are.same({ 3, 4 }, list(autograd.grad(y:sum(), x, { retain_graph = true })))
      local gradients = autograd.grad(y, { x, w }, { grad_outputs = heed.tensor { 1, 10 } })
      assert.are.same({ 3, 40 }, list(gradients[1]))
      assert.are.same({ 1, 20 }, list(gradients[2]))
      assert.is_nil(x.grad)
      local z = x * 2
      local first = autograd.grad((z * z):sum(), z)
      assert.are.same({ 4, 8 }, list(first))
    end)

    it("says which inputs are not used", function()
      local x, w = leaf { 1, 2 }, leaf { 3, 4 }
      raises("grad: outputs do not depend on input 2; with {allow_unused = true} its gradient is nil", function()
        autograd.grad((x * 2):sum(), { x, w })
      end)
      local gradients = autograd.grad((x * 2):sum(), { x, w }, { allow_unused = true })
      assert.are.same({ 2, 2 }, list(gradients[1]))
      assert.is_nil(gradients[2])
      raises("grad: input 1 does not require a gradient; call requires_grad_ before it is used", function()
        autograd.grad((x * 2):sum(), heed.ones(2))
      end)
      raises("grad: inputs is nil; it must be a tensor or a table of tensors", function() autograd.grad(x:sum()) end)
    end)
  end)

  describe("a hook", function()
    it("gets the gradient, and may change it", function()
      local x, seen = leaf { 1, 2 }, {}
      local first = x:register_hook(function(g) seen[#seen + 1] = list(g) end)
      local second = x:register_hook(function(g) return g * 10 end)
      local y = x * 3
      y:register_hook(function(g) return g + 1 end)
      y:sum():backward()
      assert.are.same({ { 6, 6 } }, seen)
      assert.are.same({ 60, 60 }, list(x.grad))
      second:remove()
      first:remove()
      first:remove()
      x.grad = nil;
      (x * 3):sum():backward()
      assert.are.same({ 3, 3 }, list(x.grad))
      assert.are.equal(1, #seen)
    end)

    it("may remove itself and others", function()
      local x, calls, handles = leaf { 1 }, 0, {}
      for i = 1, 3 do
        handles[i] = x:register_hook(function()
          calls = calls + 1
          for k = 1, 3 do handles[k]:remove() end
          collect()
        end)
      end
      (x * 2):sum():backward();
      (x * 2):sum():backward()
      assert.are.equal(1, calls)
    end)

    it("is in messages that begin with the called function", function()
      local y = leaf({ 1, 2 }) * 2
      y:register_hook(function() return heed.ones(3) end)
      local text = ": register_hook: the result of the hook is float32 [3]; it must be float32 [2], as the gradient"
      raises("backward" .. text, function() y:sum():backward() end)
      local w = leaf { 1, 2 }
      local z = w * 2
      z:register_hook(function() return heed.ones(3) end)
      raises("grad" .. text, function() autograd.grad(z:sum(), w) end)
      local square = (w * w):sum()
      heed.no_grad(function() w:add_(1) end)
      local changed = ": input 1, [2] of mul, was changed in place by add, and its gradient needs the old elements; "
        .. "use the operation that makes a new tensor, or change a clone"
      raises("backward" .. changed, function() square:backward() end)
      raises("grad" .. changed, function() autograd.grad(square, w) end)
      raises("backward_steps" .. changed, function() for _ in square:backward_steps() do end end)
    end)

    it("is the one that its handle removes, whatever was written in place since", function()
      local x, seen = leaf { 1, 2 }, {}
      local y = x * 2
      local first = y:register_hook(function() seen[#seen + 1] = 1 end)
      y:add_(1)
      y:register_hook(function() seen[#seen + 1] = 2 end)
      first:remove()
      y:sum():backward()
      assert.are.same({ 2 }, seen)
    end)

    it("may cut tensors whose gradients are asked for from their history", function()
      local x = leaf { 1, 2 }
      local a, b, c = x * 2, x * 3, x * 4
      local z = a:sum() + b:sum()
      z:register_hook(function()
        for _, each in ipairs { a, b, c, z } do each:detach_() end
        collect()
      end)
      local found = autograd.grad(z, { a, c, b }, { allow_unused = true })
      assert.are.same({ 1, 1 }, list(found[1]))
      assert.is_nil(found[2])
      assert.are.same({ 1, 1 }, list(found[3]))
    end)

    it("ends the pass with an error, which arrives as it was; nothing has changed, and the pass can be repeated",
      function()
        local x, object, is_bad = leaf { 1, 2 }, {}, true
        local y = (x * x):sum()
        local z = x * x
        z:register_hook(function() if is_bad then error(object) end end)
        y = y + z:sum()
        local ok, err = pcall(y.backward, y)
        assert.is_false(ok)
        assert.are.equal(object, err)
        assert.is_nil(x.grad)
        is_bad = false
        y:backward()
        assert.are.same({ 4, 8 }, list(x.grad))
      end)

    it("must neither yield nor give something else", function()
      local function hooked(f)
        local x = leaf { 1, 2 }
        x:register_hook(f)
        return (x * x):sum()
      end
      local thread = coroutine.create(function() hooked(coroutine.yield):backward() end)
      local ok, err = coroutine.resume(thread)
      assert.is_false(ok)
      assert.truthy(tostring(err):find("has yielded; in a backward pass it must return", 1, true))
      raises("register_hook: the result of the hook is the number 1; it must be a tensor", function()
        local y = hooked(function() return 1 end)
        y:backward()
      end)
      local other_shape = "backward: register_hook: the result of the hook is float32 [3]; it must be float32 [2], "
        .. "as the gradient"
      raises(other_shape, function()
        local y = hooked(function() return heed.ones(3) end)
        y:backward()
      end)
      raises("register_hook: f is nil; it must be a function", function() leaf({ 1 }):register_hook() end)
      raises("register_hook: x does not require a gradient; it must be computed, while recording is on, from a tensor "
        .. "with requires_grad", function()
        heed.ones(1):register_hook(print)
      end)
    end)

    it("goes with its graph", function()
      local weak = setmetatable({}, { __mode = "k" })
      local x = leaf { 1 }
      do
        local value = {}
        weak[value] = true
        local y = x * 2
        y:register_hook(function() return value and nil end)
        y:sum():backward()
      end
      collect()
      assert.is_nil(next(weak))
    end)
  end)

  describe("a function of one's own", function()
    local Clip = autograd.Function("Clip", {
      forward = function(ctx, x, low, high)
        ctx:save(x)
        ctx.low, ctx.high = low, high
        return x:clamp(low, high)
      end,
      backward = function(ctx, dy)
        local x = ctx:saved()
        return dy * x:ge(ctx.low):logical_and(x:le(ctx.high)):float()
      end,
    })

    it("has the gradient that it says", function()
      local x = leaf { -2, 0.5, 3 }
      local y = Clip(x, -1, 1)
      assert.are.same({ -1, 0.5, 1 }, list(y))
      assert.are.equal("<ClipBackward>", y.grad_fn);
      (y * heed.tensor { 1, 2, 3 }):sum():backward()
      assert.are.same({ 0, 2, 0 }, list(x.grad))
      assert.are.equal("heed.autograd.Function(Clip)", tostring(Clip))
      assert.are.same({ 0, 1 }, list(Clip.apply(heed.tensor { 0, 2 }, 0, 1)))
      assert.is_nil(Clip(heed.ones(1), 0, 1).grad_fn)
      assert.is_nil(heed.no_grad(Clip, x, -1, 1).grad_fn)
    end)

    it("takes and gives several tensors, and knows which gradients are wanted", function()
      local needed, given
      local Both = autograd.Function("Both", {
        forward = function(ctx, a, b, k)
          needed = ctx.needs_input_grad
          ctx:save(a, b, k)
          return a * b, a + b, k
        end,
        backward = function(ctx, dp, ds)
          local a, b = ctx:saved()
          given = { dp, ds }
          return dp * b + ds, dp * a + ds
        end,
      })
      local a, b = leaf { 2 }, heed.tensor { 5 }
      local p, s, k = Both(a, b, 7)
      assert.are.same({ true, false, false }, needed)
      assert.are.equal(7, k);
      (p * 1):sum():backward { retain_graph = true }
      assert.are.same({ 0 }, list(given[2])) -- what has no gradient is 0
      assert.are.same({ 5 }, list(a.grad))
      autograd.backward({ p, s }, { heed.ones(1), heed.ones(1) })
      assert.are.same({ 11 }, list(a.grad))
    end)

    it("may give its argument itself, or results without a gradient", function()
      local Same = autograd.Function("Same", {
        forward = function(ctx, x)
          local mask = x:gt(0):float()
          ctx:mark_non_differentiable(mask)
          return x, mask
        end,
        backward = function(_, dy) return dy * -1 end,
      })
      local x = leaf { 1, -2 }
      local y, mask = Same(x)
      assert.is_false(mask.requires_grad)
      assert.is_true(x.is_leaf)
      y:sum():backward()
      assert.are.same({ -1, -1 }, list(x.grad))
    end)

    local function with_backward(f)
      return autograd.Function("Mine", { forward = function(_, a, b) return a + b end, backward = f })
    end

    it("says what is wrong with its gradients", function()
      local a, b = leaf { 1, 2 }, leaf { 3, 4 }
      local function backward(f)
        local y = with_backward(f)(a, b):sum()
        y:backward()
      end
      fails("Mine: backward gave 1 gradient; it must give 2 gradients, one for each argument of forward, nil for those "
        .. "without one", function() backward(function(_, dy) return dy end) end)
      fails("Mine: backward gave 3 gradients; it must give 2 gradients, one for each argument of forward, nil for "
        .. "those without one", function() backward(function(_, dy) return dy, dy, dy end) end)
      fails("Mine: gradient 2 of backward is float32 [1]; it must be float32 [2], as argument 2 of forward",
        function() backward(function(_, dy) return dy, heed.ones(1) end) end)
      fails("Mine: gradient 1 of backward is the number 1; it must be a tensor", function()
        backward(function(_, dy) return 1, dy end)
      end)
      assert.is_nil(a.grad)
      assert.is_nil(b.grad)
      backward(function(_, dy) return nil, dy end)
      assert.is_nil(a.grad)
      assert.are.same({ 1, 1 }, list(b.grad))
    end)

    it("passes errors of forward and backward on, and refuses to yield in backward", function()
      local object = {}
      local Bad = autograd.Function("Bad", {
        forward = function(_, x, is_bad) return is_bad and error(object) or x * 2 end,
        backward = function() error(object) end,
      })
      local x = leaf { 1 }
      local ok, err = pcall(Bad, x, true)
      assert.are.same({ false, true }, { ok, heed.is_grad_enabled() })
      assert.are.equal(object, err)
      local y = Bad(x)
      ok, err = pcall(y.backward, y)
      assert.is_false(ok)
      assert.are.equal(object, err)
      local thread = coroutine.create(function()
        with_backward(function(_, dy) coroutine.yield() return dy, dy end)(x, x):backward()
      end)
      ok, err = coroutine.resume(thread)
      assert.is_false(ok)
      assert.truthy(tostring(err):find("has yielded", 1, true))
      assert.is_true(heed.is_grad_enabled())
      y = with_backward(function(_, dy) return dy, dy end)(x, x)
      y:backward()
      assert.are.same({ 2 }, list(x.grad))
    end)

    it("may yield in forward", function()
      local Waits = autograd.Function("Waits", {
        forward = function(_, x)
          coroutine.yield "waiting"
          return x * 2
        end,
        backward = function(_, dy) return dy * 2 end,
      })
      local x = leaf { 3 }
      local thread = coroutine.create(function() return Waits(x) end)
      local _, what = coroutine.resume(thread)
      assert.are.same({ "waiting", true }, { what, heed.is_grad_enabled() })
      local _, y = coroutine.resume(thread)
      y:sum():backward()
      assert.are.same({ 2 }, list(x.grad))
    end)

    it("notices that what it saved has changed", function()
      local Square = autograd.Function("Square", {
        forward = function(ctx, x)
          ctx:save(x)
          return x * x
        end,
        backward = function(ctx, dy) return dy * 2 * ctx:saved() end,
      })
      local x = leaf { 1, 2 }
      local a = x * 1
      local y = Square(a):sum()
      a:add_(1)
      local ok, err = pcall(y.backward, y)
      assert.is_false(ok)
      assert.truthy(tostring(err):find("Square has saved a tensor of shape [2] and dtype float32 (number 1), which was "
        .. "changed in place by add", 1, true))
      y = Square(x):sum()
      y:backward()
      ok, err = pcall(y.backward, y)
      assert.is_false(ok)
      assert.truthy(tostring(err):find "retain_graph = true")
    end)

    it("goes with its graph, also when nothing went backward", function()
      local weak = setmetatable({}, { __mode = "k" })
      local Keeps = autograd.Function("Keeps", {
        forward = function(ctx, x)
          ctx.value = {}
          weak[ctx.value] = true
          local y = x * 2
          ctx:save(x, y)
          return y
        end,
        backward = function(_, dy) return dy * 2 end,
      })
      local x = leaf { 1 }
      for _ = 1, 3 do Keeps(Keeps(x)) end
      collect()
      collect()
      assert.is_nil(next(weak))
      Keeps(x):sum():backward()
      collect()
      assert.is_nil(next(weak))
    end)

    it("refuses what cannot be one", function()
      local both = { forward = print, backward = print }
      raises('Function: name is a table; it must be a string, as in Function("Clip", {forward = ..., backward = ...})',
        function() autograd.Function(both) end)
      local twice = autograd.Function("Twice", { forward = function(ctx, x, field)
        return ctx[field] and x * 2
      end, backward = function(_, dy) return dy * 2 end })
      raises("apply: it is called with a colon; write Twice.apply(x)", function()
        local y = twice:apply(leaf { 1 })
        return y
      end)
      fails("heed.autograd.Function: ctx has no 'save_for_backward'; write ctx:save(x, ...)", twice, leaf { 1 },
        "save_for_backward")
      fails("heed.autograd.Function: ctx has no 'saved_tensors'; write ctx:saved(), which gives all of them", twice,
        leaf { 1 }, "saved_tensors")
      raises("Function: name is a string ('a b'); it must be a name of at most 50 letters, digits and underscores",
        function() autograd.Function("a b", both) end)
      raises("Function: backward is nil; it must be a function", function()
        autograd.Function("F", { forward = print })
      end)
      raises("Function: there is no field forwards; there are forward and backward", function()
        autograd.Function("F", { forwards = print })
      end)
      local Nothing = autograd.Function("Nothing", { forward = function() end, backward = print })
      raises("Nothing: forward gave nothing; it must give a tensor", function()
        local y = Nothing(1)
        return y
      end)
      raises("heed.autograd.Function has no field setup; it has apply, name, forward and backward", function()
        return Nothing.setup
      end)
    end)
  end)

  describe("detect_anomaly", function()
    it("names the operation that made the first nan", function()
      local x = leaf { 0, 1 }
      local function backward()
        local y = (x:sqrt() * 0):sum()
        y:backward()
      end
      backward()
      assert.is_true(list(x.grad)[1] ~= list(x.grad)[1])
      x.grad = nil
      local ok, err = pcall(autograd.detect_anomaly, backward)
      assert.is_false(ok)
      assert.truthy(tostring(err):find("the gradient of input 1 of sqrt (SqrtBackward0) contains nan", 1, true))
      assert.is_nil(x.grad)
      backward()
      assert.is_false(autograd.detect_anomaly(true))
      assert.is_true(autograd.detect_anomaly(false))
      assert.are.equal(5, autograd.detect_anomaly(function(n) return n end, 5))
    end)
  end)

  describe("gradcheck", function()
    it("compares gradients with differences", function()
      heed.manual_seed(1)
      local function f(x, w) return (x:matmul(w)):tanh():sum(1), x * 2 end
      assert.is_true(autograd.gradcheck(f, { heed.randn(2, 3), heed.randn(3, 2) }))
      local m = heed.nn.Linear(3, 2)
      assert.is_true(autograd.gradcheck(m, heed.randn(2, 3)))
      assert.is_true(autograd.gradcheck(function(x, n) return x * n end, { leaf { 1 }, 3 }))
      local Wrong = autograd.Function("Wrong", {
        forward = function(_, x) return x * 3 end, backward = function(_, dy) return dy * 2 end,
      })
      local ok, message = autograd.gradcheck(Wrong, { leaf { 1, 2 } }, { raise_exception = false })
      assert.is_false(ok)
      assert.truthy(message:find "^gradcheck: element 1 of input 1 has the gradient ")
      assert.has_error(function() autograd.gradcheck(Wrong, { leaf { 1, 2 } }) end)
      raises("gradcheck: inputs has no float32 tensor; it must have one", function()
        autograd.gradcheck(Wrong, { heed.arange(3) })
      end)
      raises("gradcheck: f is nil; it must be a function", function() autograd.gradcheck(nil, { heed.ones(1) }) end)
    end)
  end)

  it("goes through the softplus of large numbers, and logsigmoid", function()
    local F, x = heed.nn.functional, leaf { -30, -1, 0, 2, 25, 200 }
    F.softplus(x):sum():backward()
    local sigmoid = heed.no_grad(function() return x:sigmoid() end)
    assert.is_true(x.grad:allclose(sigmoid, 1e-6, 1e-7))
    local y = leaf { -30, -1, 0.5, 2, 25 }
    F.logsigmoid(y):sum():backward()
    local rest = heed.no_grad(function() return (-y):sigmoid() end)
    assert.is_true(y.grad:allclose(rest, 1e-6, 1e-7))
  end)

  describe("a limit", function()
    after_each(function() heed.limit { seconds = math.huge, memory = math.huge } end)

    it("counts the time of hooks and functions as that of the pass", function()
      local x = leaf { 1, 2 }
      local y = (x * x):sum()
      y:register_hook(function()
        for _ = 1, 1e7 do heed.ones(10):sum() end
      end)
      heed.limit { seconds = 0.2 }
      local start = heed.clock()
      local ok, err = pcall(y.backward, y)
      local took = heed.clock() - start
      heed.limit { seconds = math.huge }
      assert.is_false(ok)
      assert.truthy(tostring(err):find "limit")
      assert.is_true(took < 5)
      assert.is_nil(x.grad)
    end)

    it("of memory leaves every gradient as it was", function()
      local x = heed.ones(1000, { requires_grad = true })
      local y = (x * x):sum()
      local big = (x:unsqueeze(1) * heed.ones(1000, 1)):sum()
      local z = y + big
      collect()
      heed.limit { memory = heed.info().memory_in_use + 2e6 }
      local ok = pcall(z.backward, z)
      heed.limit { memory = math.huge }
      assert.is_false(ok)
      assert.is_nil(x.grad)
      z:backward()
      assert.are.equal(1002, x.grad[1])
    end)
  end)

  it("a coroutine's own no_grad does not see another's", function()
    assert.is_true(compat.yields_in_pcall() ~= nil)
    local a = coroutine.wrap(function()
      heed.no_grad(function() coroutine.yield() assert(not heed.is_grad_enabled()) end)
      assert(heed.is_grad_enabled())
    end)
    local b = coroutine.wrap(function()
      heed.enable_grad(function() coroutine.yield() assert(heed.is_grad_enabled()) end)
    end)
    a() b() a() b()
    assert.is_true(heed.is_grad_enabled())
  end)
end)
