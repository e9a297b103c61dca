-- Operations on views, and gradients:
--   build/heed tests/fuzz/operation_fuzz.lua [seed [cases [seconds]]]
-- Every method of tensors that the annotations name gets random arguments twice: tensors with strides, offsets and
-- broadcast dimensions, and contiguous copies of them. The results, or the messages, must be the same. And random
-- graphs
-- of operations with a gradient: the derivative in a random direction must be that of differences. The same seed gives
-- the same case. The last line counts both and the methods.
require "tests.older_lua"
local chances = require "tests.fuzz.chances"
local grammar = require "tests.fuzz.grammar"
local operations = require "tests.operations"
local heed = require "heed"
local random, chance, one_of = chances.random, chances.chance, chances.one_of

local seed, count, seconds = tonumber(arg[1]) or 1, tonumber(arg[2]) or 2000, tonumber(arg[3]) or math.huge
local problems = 0

local function problem(...)
  problems = problems + 1
  print(("seed %d: %s"):format(seed, (...):format(select(2, ...))))
end

-- ---- Views --------------------------------------------------------------------------------------

-- Methods whose results depend on the layout, by their definition: they describe it, draw in its order, or demand one.
local OF_LAYOUT = {}
for name in ([[is_contiguous stride view release is_released rand_like randn_like randint_like empty_like new_empty
  bernoulli multinomial uniform_ normal_ dropout view_as iter register_hook backward backward_steps to_string
  retain_grad]]):gmatch "%S+" do
  OF_LAYOUT[name] = true
end

local methods = {}
for _, call in ipairs(grammar.calls) do
  if call.class == "heed.Tensor" and not OF_LAYOUT[call.name] then methods[#methods + 1] = call end
end

--- The same elements with other strides and an offset.
local function disguised(x)
  if x:is_released() or x.requires_grad then return x end
  local fine, view = pcall(function()
    if x.ndim == 0 then return heed.stack({ x, x }):select(1, 2) end
    local kind = random(4)
    if kind == 1 and x.ndim > 1 then
      local a, b = random(x.ndim), random(x.ndim)
      return x:transpose(a, b):contiguous():transpose(a, b)
    elseif kind == 2 then
      local d, shape = random(x.ndim), x:size()
      local wide = {}
      for i = 1, #shape do wide[i] = shape[i] end
      wide[d] = wide[d] + 3
      local whole = heed.ones(wide):to(x.dtype)
      local part = whole:narrow(d, 3, shape[d])
      part:copy_(x)
      return part
    elseif kind == 3 then
      local index = {}
      for i = 1, x.ndim do index[i] = {} end
      local twice = heed.stack({ x, x }, -1):flatten(-2)
      index[x.ndim] = { 1, math.max(twice.shape[-1], 1), 2 }
      return twice[index]
    end
    local d = random(x.ndim)
    return x:flip(d):contiguous():flip(d)
  end)
  return fine and view.shape == x.shape and view or x
end

local function copies(values, change)
  local list = { n = values.n }
  for i = 1, values.n do
    local value = values[i]
    if heed.is_tensor(value) then
      value = change(value)
    elseif type(value) == "table" and getmetatable(value) == nil then
      local inner = {}
      for k, each in pairs(value) do inner[k] = heed.is_tensor(each) and change(each) or each end
      value = inner
    end
    list[i] = value
  end
  return list
end

local function contiguous(x)
  if x:is_released() or x.requires_grad then return x end
  local fine, copy = pcall(function() return x:clone():contiguous() end)
  return fine and copy or x
end

local same

local function same_tensors(a, b)
  if a:is_released() or b:is_released() then return a:is_released() == b:is_released() end
  if a.dtype ~= b.dtype or a.shape ~= b.shape then return false end
  local fine, x, y = pcall(function() return a:float(), b:float() end)
  if not fine then return true end
  return heed.allclose(x, y, { rtol = 1e-5, atol = 1e-6, equal_nan = true }) -- sums may be in another order
end

function same(a, b, depth)
  if heed.is_tensor(a) then return heed.is_tensor(b) and same_tensors(a, b) end
  if type(a) == "number" and type(b) == "number" then
    return a == b or a ~= a and b ~= b or math.abs(a - b) <= 1e-5 * math.abs(a) + 1e-6
  end
  if type(a) == "string" then return type(b) == "string" end
  if type(a) == "table" and type(b) == "table" and depth < 3 and getmetatable(a) == nil then
    for k, value in pairs(a) do
      if not same(value, b[k], depth + 1) then return false end
    end
    return true
  end
  return type(a) == type(b)
end

local reached = {}

local function views()
  local call = methods[seed % #methods + 1]
  local text = grammar.arguments(call)
  local make = assert((loadstring or load)("local heed, T = ... return " .. text)) -- luacheck: ignore 113
  heed.manual_seed(seed)
  local values = table.pack(pcall(make, heed, require "tests.fuzz.trials"))
  if not values[1] then return end
  table.remove(values, 1)
  values.n = values.n - 1
  if not heed.is_tensor(values[1]) then return end
  local a, b = copies(values, disguised), copies(values, contiguous)
  local function run(list)
    heed.manual_seed(1)
    return table.pack(pcall(function() return list[1][call.name](table.unpack(list, 1, list.n)) end))
  end
  local x, y = run(a), run(b)
  if x[1] ~= y[1] or x.n ~= y.n then
    problem("%s(%s): a view gives %s, and a copy %s", call.label, text, tostring(x[2]), tostring(y[2]))
  elseif x[1] then
    reached[call.label] = true
    for i = 2, x.n do
      if not same(x[i], y[i], 0) then
        problem("%s(%s): result %d of a view is %s, and of a copy %s", call.label, text, i - 1, tostring(x[i]),
          tostring(y[i]))
      end
    end
    for i = 1, a.n do -- what is changed in place
      if heed.is_tensor(a[i]) and not same(a[i], b[i], 0) then
        problem("%s(%s): argument %d of a view is %s afterwards, and of a copy %s", call.label, text, i, tostring(a[i]),
          tostring(b[i]))
      end
    end
  end
end

-- ---- Gradients ----------------------------------------------------------------------------------

-- With jumps or corners, where differences are not gradients; or with gradients only where x is positive.
local CORNERS, POSITIVE = {}, {}
for name in ("abs floor ceil trunc round sign relu logical_not"):gmatch "%S+" do CORNERS[name] = true end
for name in ("log sqrt rsqrt reciprocal log2 log10 log1p"):gmatch "%S+" do POSITIVE[name] = true end

local unary = {}
for _, name in ipairs(operations.of_kinds("UNARY")) do
  if not CORNERS[name] then unary[#unary + 1] = name end
end

local steps = { -- x and y are earlier nodes; a step whose shapes do not fit is left out
  function(x, y) return x + y end, function(x, y) return x * y end, function(x, y) return x - y end,
  function(x, y) return x / (y * y + 1) end, function(x, y) return x:matmul(y) end,
    function(x, y) return x:matmul(y.mT) end,
  function(x) return x.mT end, function(x) return x:sum(1, true) end, function(x) return x:mean(-1, true) end,
  function(x) return x:var(-1, true) end, function(x) return x:softmax(-1) end, function(x) return x:log_softmax(1) end,
  function(x) return x:logsumexp(-1, true) end, function(x) return x:cumsum(1) end,
    function(x, y) return heed.cat({ x, y }, 1) end,
  function(x) return x:narrow(1, 2, 2) end, function(x) return x[{ { 1, 3, 2 } }] end,
    function(x) return x:reshape(-1, 2) end,
  function(x) return x:flip(1) end, function(x) return x:expand(3, -1, -1):sum(1) end,
    function(x) return x:index_select(1, { 2, 1, 2 }) end,
  function(x) return heed.nn.functional.layer_norm(x, { x.shape[-1] }) end,
    function(x, y) return heed.nn.functional.linear(x, y) end,
  function(x) return heed.nn.functional.rms_norm(x, { x.shape[-1] }) end, function(x) return x:roll(1, 1) end,
  -- the condition is constant: elsewhere the function would jump
  function(x, y) return heed.where(heed.ones_like(x):cumsum(-1):remainder(2):gt(0), y, y * 2) end,
    function(x) return x:tril() end,
    function(x) return x:pad { 1, 1 } end,
  function(x, y) return x:scaled_dot_product_attention(y, y) end, function(x) return x:rope() end,
  function(x, y) return x:scaled_dot_product_attention(y, x, { is_causal = true, softcap = 3 }) end,
  function(x) return x:pow(2) end, function(x) return x:diagonal() end,
    function(x) return x:unsqueeze(1):squeeze(1) end,
  function(x) return x:prod(-1, true) end, function(x) return x:tile(2, 1) end,
    function(x) return x:repeat_interleave(2, 1) end,
  function(x, y) return x:lerp(y, 0.3) end, function(x, y) return x:addmm(y, y) end,
    function(x) return x:norm() + 0 * x end,
}

local function graph()
  local plan, heads = {}, 2
  for _ = 1, random(8) + 1 do
    local kind = random(3)
    local step = kind == 1 and one_of(unary) or one_of(steps)
    heads = heads + 1
    plan[#plan + 1] = { step = step, x = random(heads - 1), y = random(heads - 1) }
  end
  heed.manual_seed(seed)
  local n, m = one_of { 2, 3, 4 }, one_of { 2, 4 }
  local inputs = { heed.randn(n, m), heed.randn(chance(50) and n or m, m) }
  local weights = {}
  local function f(a, b)
    local nodes = { a, b }
    for i, each in ipairs(plan) do
      local x, y = nodes[each.x], nodes[each.y]
      local fine, z = pcall(function()
        if type(each.step) == "function" then return each.step(x, y) end
        if POSITIVE[each.step] then return (x * x + 0.5)[each.step](x * x + 0.5) end
        return x[each.step](x)
      end)
      nodes[i + 2] = fine and z:tanh() or x -- tanh keeps the numbers small
    end
    local loss = heed.zeros(1):sum()
    for i = 3, #nodes do
      weights[i] = weights[i] or heed.randn(nodes[i].shape)
      loss = loss + (nodes[i] * weights[i]):sum()
    end
    return loss
  end
  f(inputs[1], inputs[2]) -- draws the weights
  local direction, expected, allowed = {}, 0, 0
  local leaves = {}
  for i = 1, 2 do
    leaves[i] = inputs[i]:clone():requires_grad_()
    direction[i] = heed.randn(inputs[i].shape)
  end
  local passes = random(2) -- a second pass adds the same gradients
  heed.enable_grad(function()
    local loss = f(leaves[1], leaves[2])
    if passes == 2 then loss:backward { retain_graph = true } end
    loss:backward()
  end)
  for i = 1, 2 do
    if leaves[i].grad then
      local product = leaves[i].grad * direction[i] / passes
      expected, allowed = expected + product:sum():item(), allowed + product:abs():sum():item()
    end
  end
  local function slope(h)
    local function at(t) return f(inputs[1] + direction[1] * t, inputs[2] + direction[2] * t):item() end
    return (at(h) - at(-h)) / (2 * h)
  end
  -- Differences of two widths, by Richardson's extrapolation. Where the function bends too much for them, narrower ones
  -- decide, which are less exact.
  local estimate, bound
  for _, h in ipairs { 0.04, 0.01, 0.0025 } do
    local wide, middle, near = slope(h), slope(h / 2), slope(h / 4)
    estimate = (4 * near - middle) / 3
    if math.abs(estimate) > 1e8 or estimate ~= estimate then return end -- infinite
    bound = 4 * math.abs((4 * middle - wide) / 3 - estimate) + (2e-3 + 2e-5 / h) * (1 + allowed + math.abs(expected))
    if math.abs(expected - estimate) <= bound then return end
  end
  local names = {}
  for i, each in ipairs(plan) do
    names[i] = type(each.step) == "string" and each.step or "step " .. debug.getinfo(each.step, "S").linedefined
    names[i] = ("%s(%d, %d)"):format(names[i], each.x, each.y)
  end
  problem("the derivative is %g; it must be %g, ± %g; %s", expected, estimate, bound, table.concat(names, " "))
end

local done, graphs, begin = 0, 0, os.time()
while done < count and os.time() - begin < seconds and problems < 20 do
  chances.seed(seed)
  local is_graph = seed % 4 == 0
  local fine, message = pcall(is_graph and graph or views)
  if not fine then problem("%s", tostring(message)) end
  if is_graph then graphs = graphs + 1 end
  done, seed = done + 1, seed + 1
  if done % 100 == 0 then collectgarbage() end
end
local successful = 0
for _ in pairs(reached) do successful = successful + 1 end
local counts = "%d calls on views of %d methods, %d with success, and %d graphs of gradients on %s, %d problems"
print(counts:format(done - graphs, #methods, successful, graphs, heed.info().kernels, problems))
os.exit(problems == 0 and 0 or 1, true)
