-- What the programs of grammar.lua run in: each call is judged, and at the end everything must be given back.
require "tests.older_lua"
local support = require "tests.support"
local heed = require "heed"
local nn = heed.nn

local T = { heed = heed }
local limit = heed.limit

-- A call that does not end at its limit of time uses more processor time than this.
local LIMIT, LONGEST = 1, tonumber(os.getenv "HEED_FUZZ_LONGEST") or 4

-- Without a limit of time a program's own endless iterators would take all memory.
function heed.limit(...)
  local options = ...
  if type(options) == "table" and rawget(options, "final") then options.final = nil end -- for all later programs
  local results = limit(...)
  if limit().seconds > LIMIT then limit { seconds = LIMIT } end
  return results
end

T.reached, T.refused, T.count = {}, {}, 0 -- by label: calls that returned; that raised a message of heed
T.wrong = {} -- what is not as it must be
local v

local function wrong(...) T.wrong[#T.wrong + 1] = ("%s: %s"):format(...) end

-- ---- Messages -----------------------------------------------------------------------------------

-- Lua's own messages about the program's own operations, not about heed's.
local of_lua = { "^attempt to ", "^bad argument #%d+ to 'for ", "has no integer representation$", "^table index is ",
  "^cannot use ", "^bad argument #%d+ to 'rep'", "^bad argument #%d+ to 'sub' %(number", "^invalid order function",
  "^variable '%w+' got a non%-closable", "'__index' chain too long" }
local of_coroutines = { "attempt to yield", "cannot resume", "stack overflow", "C stack", "not enough memory",
  "error in error handling",
  "cannot close" }

--- Whether a message follows the grammar: the place of the caller in the program, the function, what is wrong.
function T.judge(label, message)
  if type(message) ~= "string" or message == "E!" then return end -- raised by the program's own functions
  for _, pattern in ipairs(of_coroutines) do
    if message:find(pattern) then return "lua" end
  end
  local where, what = message:match "^([^\n]-:%d+: )(.*)$"
  if not where then
    if message:find "^attempt to " then return "lua" end -- raised in a C function of Lua
    if message:find "^tostring: " then return end -- through Lua's tostring there is no place
    wrong(label, message)
    return
  end
  local inside = where:find(T.chunk, 1, true) == 1 or where:find("trials.lua", 1, true)
  if inside then
    for _, pattern in ipairs(of_lua) do
      if what:find(pattern) then return "lua" end
    end
  end
  local good = inside and (what:find "^[%w_&|~ .]+: ." and not what:find "[.\n]$"
    or what:find "^a?n? ?heed[%w.]* ha[sv]e? no .*[^.]$"
    or what:find "^%u%w* .*[^.]$" or what:find " takes no arguments; define `"
    or what:find "^the fields? .*of a? ?heed%.%w+ cannot be set" or what:find "interrupted")
  if not good then wrong(label, message) end
end

local function judged(label, f, ...)
  T.count = T.count + 1
  local begin = os.clock()
  local results = table.pack(pcall(f, ...))
  local seconds = os.clock() - begin
  if seconds > LONGEST then wrong(label, ("took %.1f s of processor time"):format(seconds)) end
  if results[1] then
    T.reached[label] = (T.reached[label] or 0) + 1
    local value, problem = results[2], results[3]
    if value == nil and type(problem) == "string" and problem:find "[.\n]$" then wrong(label, problem) end
  elseif T.judge(label, results[2]) ~= "lua" then
    T.refused[label] = (T.refused[label] or 0) + 1
  end
  return table.unpack(results, 1, results.n)
end

function T.try(label, f) return judged(label, f) end

-- ---- Values -------------------------------------------------------------------------------------

function T.variables() return v end

function T.call(f, ...)
  local a, b = f(...)
  return a, b
end

--- As f.name(…), but of an object: x:name(…).
function T.method(name, x, ...)
  local a, b = x[name](x, ...)
  return a, b
end

function T.loaded(module)
  return function(path)
    local model = assert(require(module).load(path))
    return model
  end
end

function T.ranks()
  local dist = require "heed.distributed"
  if not dist.is_initialized() then pcall(dist.init_process_group) end
  return dist
end

--- A loss, recorded, and what it depends on.
function T.loss_and_leaf()
  local leaf = heed.randn(4, 4, { requires_grad = true })
  return heed.enable_grad(function() return (leaf * 2):tanh():sum() end), leaf
end

function T.loss()
  local loss = T.loss_and_leaf()
  return loss
end

function T.partial()
  local q = heed.randn(1, 2, 4, 4)
  return { q:attention_partial(q, q) }
end

function T.sequential()
  local schedules = heed.optim.lr_scheduler
  local optimiser = heed.optim.SGD(nn.Linear(4, 4):parameters())
  return optimiser, { schedules.ConstantLR(optimiser), schedules.StepLR(optimiser, 2) }, { 2 }
end

function T.shard() -- one that has ended
  local dist, kept = T.ranks(), nil
  dist.context_parallel(dist.new_group { 1 }, function(shard) kept = shard end)
  return kept
end

function T.context() -- likewise
  local kept
  local f = heed.autograd.Function("Kept", {
    forward = function(context, x) kept = context return x * 2 end,
    backward = function(_, dy) return dy end,
  })
  heed.enable_grad(f, heed.randn(2, { requires_grad = true }))
  return kept
end

function T.released()
  local x = heed.ones(2, 2)
  x:release()
  return x
end

function T.gone() -- a module whose parts were taken away
  local m = nn.MultiHeadAttention(4, 4, 8, 0, 2)
  pcall(function() m.W_query = nil end)
  return m
end

local Half = nn.Module.class "Half"
function Half:init()
  self.weight = nn.Parameter(heed.ones(4, 4))
  T.half = self
  error("E!", 0)
end

function T.half_built()
  pcall(Half)
  return T.half
end

local function fail() error({ "an error object" }, 0) end

function T.hostile()
  local meta = { __name = "Hostile" }
  for _, name in ipairs { "index", "newindex", "len", "call", "eq", "tostring", "pairs", "close", "unm", "add",
    "lt" } do
    meta["__" .. name] = fail
  end
  return setmetatable({ 1, 2 }, meta)
end

function T.named() return setmetatable({}, { __name = ("name"):rep(40), __tostring = function() return 5 end }) end

function T.cyclic()
  local t = { 1, 2 }
  t[2], t.dim = t, t
  return t
end

--- The same table behind metamethods, which change something now and then.
function T.proxy(t)
  local reads = 0
  return setmetatable({}, {
    __index = function(_, key)
      reads = reads + 1
      if reads == 3 then collectgarbage() t[reads] = reads end
      if reads == 5 then T.release(v[1]) end
      return t[key]
    end,
    __len = function() return #t + reads % 2 end,
    __pairs = function() return next, t, nil end,
    __name = "Proxy", __tostring = function() return "proxy" end,
  })
end

local Own = nn.Module.class "Own"
function Own:init(part, kind)
  self.weight, self.part, self.kind = nn.Parameter(heed.randn(4, 4)), part or nn.Linear(4, 4), kind
  self:register_buffer("mask", heed.ones(4, 4))
  if kind == "half" then self.part = nil end
end
function Own:forward(x, ...)
  if self.kind == "raising" then error("E!", 0) end
  if self.kind == "yielding" and coroutine.running() then pcall(coroutine.yield, x) end
  if self.kind == "changing" then
    self.part, self.weight = nn.Linear(4, 4), nil
    if heed.is_tensor(x) and not x:is_released() then pcall(x.release, x) end
  end
  local part = self.part
  if not part then return x end
  local y = part(x, ...)
  return y
end

function T.own(part, kind)
  if not nn.is_module(part) then part = nil end
  return Own(part, kind)
end

-- ---- Deeds --------------------------------------------------------------------------------------

function T.release(x)
  if heed.is_tensor(x) then pcall(x.release, x) return end
  pcall(function() x:release() end)
end

--- Calls a callback's first argument again, if that is possible.
function T.again(f) pcall(f) end

--- Another object's metamethod.
function T.steal(a, b, name)
  local meta = debug.getmetatable(a)
  local f = type(meta) == "table" and rawget(meta, name)
  if type(f) ~= "function" then return end
  pcall(f, b, 1, 2) -- those of classes written in Lua raise Lua's own messages for what is not theirs
  pcall(f, b)
end

function T.printed(x)
  local text = tostring(x)
  return text
end

function T.drain(x)
  local count = 0
  local function one() count = count + 1 return count > 30 end
  if nn.is_module(x) then
    for _ in x:named_modules() do if one() then break end end
    for _ in x:named_parameters() do if one() then break end end
  elseif heed.is_tensor(x) then
    for _, row in heed.ipairs(x) do if row == nil or one() then break end end
  elseif type(x) == "table" then
    for _ in heed.pairs(x) do if one() then break end end
  else
    for _ in function() return T.call(x) end do if one() then break end end
  end
end

--- f, while the collector runs without pause and finalizers call change(), n times at most.
--- (finalizer_fuzz.lua tries each allocation of a call; with programs this would take hours.)
function T.during(n, change, f)
  local idle = true
  local function once()
    if idle then
      idle = false
      pcall(change)
      idle = true
    end
  end
  for _ = 1, n do support.finalized(once) end
  local fine, pause = pcall(collectgarbage, "setpause", 0) -- 5.5 has another name for it
  f()
  idle = false -- those that are left come after the program
  if fine then collectgarbage("setpause", pause) end
end

--- f, while a debug hook calls change() once after n instructions.
function T.hooked(n, change, f)
  if not support.has.hooks then return f() end
  local done = false
  debug.sethook(function()
    if done then return end
    done = true
    pcall(change)
  end, "", n)
  pcall(f)
  debug.sethook()
end

--- f in a coroutine that is resumed n times, then dropped.
function T.resumed(n, f)
  local co = coroutine.create(f)
  for _ = 1, n do
    if coroutine.status(co) == "suspended" then
      local fine, message = coroutine.resume(co, v[1])
      if not fine then T.judge("coroutine", message) end
    end
  end
  if n == 1 and coroutine.close then pcall(coroutine.close, co) end -- luacheck: ignore 143
end

--- f(x) with x as a leaf, then a backward pass.
function T.recorded(x, f, how)
  T.try("recorded", function()
    heed.enable_grad(function()
      local leaf = heed.is_tensor(x) and x:dtype_is_float() and x or nil
      if not leaf then leaf = heed.randn(4, 4) end
      leaf = leaf:detach():clone():requires_grad_()
      v[0] = leaf
      local y = leaf * 2
      f(y)
      local z = y.tanh and y:tanh() or y
      if how == "in place" then pcall(y.add_, y, 1) end
      if how == "raising" then pcall(function() z:register_hook(function() error("E!", 0) end) end) end
      for i = math.max(1, #v - 3), #v do
        local other = v[i]
        if heed.is_tensor(other) and not other:is_released() and other.requires_grad then
          pcall(function() z = z + other:sum() end)
        end
      end
      local loss = z:sum()
      if how == "steps" then
        local steps = loss:backward_steps { ms = 0 }
        steps()
        T.release(leaf)
        for _ = 1, 3 do steps() end
      elseif how == "retained" then
        loss:backward { retain_graph = true }
        loss:backward()
      else
        loss:backward()
        if how == "twice" then loss:backward() end
      end
    end)
  end)
end

--- f with one limit set low.
function T.limited(name, amount, f)
  local value = amount
  if name == "memory" then value = heed.info().memory_in_use + amount end
  if name == "files" then value = false end
  if name == "seconds" then value = amount / 1e5 end
  pcall(limit, { [name] = value })
  pcall(f)
  T.reset()
end

-- ---- Programs -----------------------------------------------------------------------------------

function T.reset()
  pcall(limit, { memory = 2 ^ 28, seconds = LIMIT, work = math.huge, threads = 4, files = true })
end

local function begin_program(chunk)
  T.chunk, v, T.wrong, T.half = chunk, {}, {}, nil
  heed.manual_seed(1)
  heed.set_grad_enabled(false)
  T.reset()
end

local function end_program()
  debug.sethook()
  T.reset()
  for i in pairs(v) do v[i] = nil end -- a function that refers to them may be kept by a hook of one of them
  v, T.half = nil, nil
  heed.set_grad_enabled(false)
  local dist = package.loaded["heed.distributed"]
  if dist and dist.is_initialized() then pcall(dist.destroy_process_group) end
  heed.set_num_threads(1) -- the threads keep memory
  heed.set_printoptions { profile = "default" }
  heed.set_matmul_precision "highest"
  heed.set_dropout_stream "native"
  for _ = 1, 4 do collectgarbage() end
end

local baseline

--- Runs a program. Returns what was wrong, a list of texts.
function T.run(text, chunk)
  if not baseline then
    collectgarbage()
    collectgarbage()
    baseline = heed.info().memory_in_use
  end
  begin_program(chunk)
  local f, problem = (loadstring or load)(text, "=" .. chunk) -- luacheck: ignore 113
  if not f then
    wrong("grammar", problem)
  else
    local fine, message = pcall(f)
    if not fine then T.judge("program", message) end
  end
  f = nil -- luacheck: ignore 311
  end_program()
  local kept = heed.info().memory_in_use - baseline
  if kept ~= 0 then wrong("memory", ("%d bytes are not given back"):format(kept)) baseline = baseline + kept end
  return T.wrong
end

return T
