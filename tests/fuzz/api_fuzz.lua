-- Calls every function of heed with values of all kinds in random order:
--   build/heed tests/fuzz/api_fuzz.lua [seed [count]]
-- The process must not crash, and every error must be a message that begins with the function's name and is located
-- at the caller's line. Prints other messages, and fails if there are any. The same seed
-- gives the same calls. With HEED_FUZZ_TRACE, each call is named on standard error before it is made.
require "tests.older_lua"
local finalized = require("tests.support").finalized
local heed = require "heed"
local core = require "heed.core"
local nn = heed.nn

local seed, count = tonumber(arg[1]) or 1, tonumber(arg[2]) or 3000
local trace = os.getenv "HEED_FUZZ_TRACE"
math.randomseed(seed)
local random = math.random

local function one_of(list) return list[random(#list)] end

-- ---- Functions ----------------------------------------------------------------------------------

local targets = {} -- {name, function}, in an order independent of addresses

local function add(name, value)
  if type(value) ~= "function" then return end
  targets[#targets + 1] = { name, value }
end

local function add_all(prefix, functions)
  local names = {}
  for name in pairs(functions) do
    if type(name) == "string" then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    if type(functions[name]) == "function" then add(prefix .. name, functions[name]) end
  end
end

-- Operations that a script can perform without calling a function of heed by name.
local function index(a, b) local value = a[b] return value end
local function assign(a, b, c) a[b] = c end
local function call(f, ...) local a, b = f(...) return a, b end
local function length(a) local n = #a return n end
local function text(a) local s = tostring(a) return s end
local function join(a, b) local s = a .. b return s end
local function walk(a)
  for _, value in heed.ipairs(a) do
    if value == nil then break end
  end
  for _, value in heed.pairs(a) do
    if value == nil then break end
  end
end
local function iterate(a)
  for _, row in a:iter() do
    if row == nil then break end
  end
end
-- Compiles syntax that older Luas cannot read; on them, a function that does nothing.
local load_text = loadstring or load -- luacheck: ignore 113
local function compile(code) return load_text(code, "@" .. arg[0]) or function() end end
local close = compile "local a = ... local x <close> = a return x"
local function method(a, name, ...) local x, y = a[name](a, ...) return x, y end
local operators = {
  { "a + b", function(a, b) local x = a + b return x end },
  { "a - b", function(a, b) local x = a - b return x end },
  { "a * b", function(a, b) local x = a * b return x end },
  { "a / b", function(a, b) local x = a / b return x end },
  { "a % b", function(a, b) local x = a % b return x end },
  { "a ^ b", function(a, b) local x = a ^ b return x end },
  { "-a", function(a) local x = -a return x end },
  { "a & b", compile "local a, b = ... local x = a & b return x" },
  { "~a", compile "local a = ... local x = ~a return x" },
  { "a == b", function(a, b) return a == b end },
  { "a < b", function(a, b) local x = a < b return x end },
}

local function metatable_of(value) return debug.getmetatable(value) end

add_all("heed.", heed)
add_all("heed.nn.", nn)
add_all("heed.nn.utils.", nn.utils)
add_all("heed.utils.", heed.utils)
add_all("data.", heed.utils.data)
add_all("core.", core)
add_all("files.", core.files)
add_all("modules.", core.modules)
for _, value in ipairs { heed.zeros(2), nn.Linear(2, 2), heed.Generator(1), heed.zeros(2).shape } do
  add_all("metamethod ", metatable_of(value))
end
local linear = nn.Linear(2, 2)
local method_names = { "forward", "head", "split", "parameters", "named_parameters", "buffers", "named_buffers",
  "children", "named_children", "modules", "named_modules", "train", "eval", "apply", "state_dict",
  "load_state_dict", "class_name", "extra_repr", "register_buffer", "append", "extend", "insert", "pop", "get_state",
  "set_state", "manual_seed", "numel", "init" }
for _, name in ipairs(method_names) do
  add("Module." .. name, nn.Module[name])
  add("Sequential." .. name, nn.Sequential[name])
  if name == "forward" or name == "head" or name == "split" then add("Linear." .. name, linear[name]) end
end
add_all("Generator.", metatable_of(heed.Generator(1)).__index)
for _, operator in ipairs(operators) do add(operator[1], operator[2]) end
for name, f in pairs { index = index, assign = assign, call = call, length = length, text = text, join = join,
  walk = walk, iterate = iterate, close = close } do
  operators[#operators + 1] = { name, f }
end
table.sort(operators, function(a, b) return a[1] < b[1] end)
for _ = 1, 4 do
  for _, operator in ipairs(operators) do add(operator[1], operator[2]) end
end
for _, name in ipairs(method_names) do
  add("method " .. name, function(a, ...) local x, y = method(a, name, ...) return x, y end)
end
for _, name in ipairs { "iter", "next", "get", "len" } do -- of datasets, samplers and loaders
  add("method " .. name, function(a, ...) local x, y = method(a, name, ...) return x, y end)
end

-- ---- Arguments ----------------------------------------------------------------------------------

-- No medium sizes: they would be allocated, and take a long time.
local extremes = { 0x10000000000, -0x10000000000, 0x20000000000000, 0x4000000000000000, 2 ^ 53, 2 ^ 63,
  math.maxinteger, math.mininteger,
  -2 ^ 63, 1e308, math.huge, -math.huge, 0 / 0, 0.5, -1.5, 1e-30 }
local strings = { "", "float32", "int64", "bool", "bfloat16", "int8", "weight_scale", "weight", "bias", "W_query",
  "heads", "dropout", "training", "shape", "T", "0", "native", "mkl", "tanh", "a.b", "\0", ("x"):rep(1000), "%s%n",
  "out_proj", "d_in", "__index",
  "/dev/null/x.npy", "/dev/null/x.npz", "/dev/null/x.safetensors" }
local option_names = { "dim", "keepdim", "dtype", "generator", "min", "max", "attn_mask", "is_causal", "scale",
  "dropout_p", "need_weights", "key_padding_mask", "strict", "bias", "d_in", "d_out", "num_heads",
  "context_length", "dropout",
  "softmax_dim", "num_kv_heads", "head_dim", "correction", "recurse", "prefix", "diagonal", "wrong", "assign", "eps",
  "normalized_shape", "padding_idx", "approximate", "base", "style", "dims", "scaling", "type", "factor",
  "batch_size", "shuffle", "sampler", "batch_sampler", "collate_fn", "drop_last", "context", "batch", "first_id",
  "replacement", "num_samples" }
local dtypes, stored = { "float32", "int64", "bool", "bfloat16", "float16", "int8" }, { "float32", "bfloat16", "int8" }

local pool = {} -- results of calls, reused as arguments
local keep = 60

local function hostile_metatable()
  local function fail() error({ "an error object" }, 0) end
  local meta = {}
  for _, name in ipairs { "index", "newindex", "len", "call", "eq", "tostring", "pairs" } do
    meta["__" .. name] = fail
  end
  return meta
end

local make -- a value of any kind

local function small() return random(-3, 5) end

local function list(n, f)
  local result = {}
  for i = 1, n do result[i] = f() end
  return result
end

local function sizes() return list(random(0, 4), function() return random(0, 4) end) end

local function new_tensor()
  local x = heed.rand(table.unpack(list(random(0, 3), function() return random(1, 4) end)))
  local kind = random(9)
  if kind == 9 then return (x * 200 - 100):to(one_of { "bfloat16", "float16", "int8" }) end
  if kind == 1 then return (x * 4 - 2):long() end
  if kind == 2 then return x:gt(0.5) end
  if kind == 3 and x.ndim > 1 then return x:transpose(1, -1) end
  if kind == 4 then return x:unsqueeze(1):expand(3, table.unpack(list(x.ndim, function() return -1 end))) end
  if kind == 5 then
    x:release()
  elseif kind == 6 then
    return heed.zeros(table.unpack(sizes()))
  elseif kind == 7 then
    return nn.Parameter(x)
  end
  return x
end

local function new_module()
  local kind = random(14)
  if kind == 1 then return nn.Linear(random(4), random(4), random(2) == 1):to(one_of(stored)) end
  if kind == 2 then return nn.Dropout(random()) end
  if kind == 3 then return nn.SelfAttention(3, random(4)) end
  if kind == 4 then return nn.CausalAttention(3, 2, 4, 0.5, { softmax_dim = random(3) }) end
  if kind == 5 then return nn.MultiHeadAttentionWrapper(3, 2, 4, 0.1, random(3)) end
  if kind == 6 then return nn.MultiHeadAttention(3, 4, 4, 0.1, 2) end
  if kind == 7 then return nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 2)) end
  if kind == 8 then return nn.ModuleList { nn.Linear(2, 2), nn.Linear(2, 2) } end
  if kind == 9 then return nn.Embedding(random(4), random(4), random(2) == 1 and -1 or nil) end
  if kind == 10 then return nn.LayerNorm(random(2) == 1 and random(3) or { random(3), random(3) }) end
  if kind == 11 then return nn.RMSNorm(random(3), nil, random(2) == 1) end
  if kind == 12 then return nn.Residual(nn.GELU()) end
  if kind == 13 then return nn.utils.skip_init(nn.MultiHeadAttention, 4, 4, 3, 0, 2) end
  local Own = nn.Module.class "Own"
  function Own:init() -- luacheck: ignore 432
    self.weight, self.part = nn.Parameter(heed.rand(2, 3)), nn.Linear(3, 2)
    self:register_buffer("mask", heed.ones(2, 2))
  end
  function Own:forward(x) -- luacheck: ignore 432
    local y = self.part(x)
    return y
  end
  return Own()
end

local function new_table()
  local kind = random(9)
  if kind == 1 then return sizes() end
  if kind == 2 then return list(random(0, 4), new_tensor) end
  if kind == 3 then return list(random(0, 3), function() return list(random(0, 3), random) end) end
  if kind == 4 then
    local t = { 1, 2 }
    t[random(2)] = t
    return t
  end
  if kind == 5 then return { 1, nil, 3, [random(4, 9)] = make() } end
  if kind == 6 then return setmetatable({ 1, 2 }, hostile_metatable()) end
  if kind == 7 then return list(random(0, 3), make) end
  local options = {}
  for _ = 1, random(0, 3) do options[one_of(option_names)] = make() end
  return options
end

local kinds = {
  small, small, small, small,
  new_tensor, new_tensor, new_tensor, new_tensor,
  new_module,
  new_table, new_table, new_table,
  function() return nil end,
  function() return one_of(extremes) end,
  function() return one_of(strings) end,
  function() return one_of(dtypes) end,
  function() return random(2) == 1 end,
  function() return random() end,
  function() return heed.Generator(random(100)) end,
  function() return io.stdout end,
  function() return coroutine.create(function() end) end,
  function() return make end,
  function() return nn.Sequential end,
  function() return linear:state_dict() end,
  function() return heed.Size(table.unpack(sizes())) end,
}

function make()
  if #pool > 0 and random(4) == 1 then return one_of(pool) end
  return one_of(kinds)()
end

-- Large results are not kept, since they would slow down all later calls.
local function remember(value)
  if value == nil then return end
  if heed.is_tensor(value) and not value:is_released() and value:numel() > 4096 then return end
  if #pool < keep then
    pool[#pool + 1] = value
  else
    pool[random(keep)] = value
  end
end

-- ---- One call -----------------------------------------------------------------------------------

local script = debug.getinfo(1, "S").short_src
local wrong = {}

-- Patterns of Lua's own messages, for operations on values that do not involve heed.
local of_lua = { "^attempt to ", "^bad argument #%d+ to 'for ", "^variable 'x' got a non%-closable value",
  "^table index is ", "has no integer representation$" }

local function check_message(name, arguments, message)
  if type(message) ~= "string" then return end -- an error object raised by a hostile metamethod
  if message:find "^attempt to index a " then return end -- Lua's ipairs
  if message:find "^attempt to perform 'n%%+0'$" then return end -- 5 % "0", Lua's arithmetic on strings
  local where, what = message:match "^(.-:%d+: )(.*)$"
  for _, pattern in ipairs(of_lua) do
    if what and what:find(pattern) and where:find(script, 1, true) == 1 then return end
  end
  local good = where and where:find(script, 1, true) == 1
    and (what:find "^[%w_&|~ .]+: ." and not what:find "[%.\n]$" or what:find "^%u%w* .*[^.]$"
      or what:find "^heed%.%a+ ha[sv]e? no .*[^.]$")
  if not good then wrong[#wrong + 1] = ("%s(%d arguments): %s"):format(name, arguments.n, message) end
end

-- Internal functions, whose callers are responsible for the messages.
local never = {
  ["core.open"] = true, ["core.raise"] = true, ["core.frame"] = true, ["modules.install"] = true,
  ["modules.guard"] = true, ["modules.redirect"] = true,
}
-- Internal functions that take the name with which their messages begin, here a random one; and functions that call
-- their argument, whose errors pass through.
local unjudged = {
  ["modules.indices"] = true, ["heed.enable_grad"] = true, ["heed.no_grad"] = true,
  ["heed.inference_mode"] = true,
}
for name in ([[optimizer_step find_twice forget_grads total_norm clip_norm clip_value]]):gmatch "%S+" do
  unjudged["modules." .. name] = true
end

local function step()
  local target = one_of(targets)
  if never[target[1]] then return end
  local arguments = { n = random(0, 5) }
  for i = 1, arguments.n do arguments[i] = make() end
  -- Most methods are called with a suitable object.
  if arguments.n > 0 and random(3) > 1 then
    arguments[1] = target[1]:find "^Module" and new_module()
      or target[1]:find "^Generator" and heed.Generator(1)
      or new_tensor()
  end
  -- Any string may come here, also numbers, which Lua's C functions accept as such: none must name a file to write.
  local path = target[1]:find "^files%." and arguments[1]
  if type(path) == "string" or type(path) == "number" then arguments[1] = "/dev/null/" .. path end
  if trace then io.stderr:write(target[1], " ", arguments.n, "\n") end
  local f = target[2]
  local limits = target[1]:find "limit$"
  if limits then arguments.n = math.min(arguments.n, 4) end -- a fifth argument would make them final
  local results = table.pack(pcall(function()
    local a, b = f(table.unpack(arguments, 1, arguments.n))
    return a, b
  end))
  if limits then pcall(heed.limit, { memory = math.huge, seconds = math.huge, threads = math.huge, files = true }) end
  if results[1] then
    remember(results[2])
    remember(results[3])
  elseif not unjudged[target[1]] then
    check_message(target[1], arguments, results[2])
  end
end

-- Creates garbage whose finalizer makes random calls in the middle of other calls.
local function plant()
  finalized(function()
    local victim = #pool > 0 and one_of(pool)
    if heed.is_tensor(victim) and random(2) == 1 then pcall(heed.release, victim) end
    if random(4) == 1 then pcall(metatable_of(heed.zeros(1)).__gc, victim) end
    pcall(step)
  end)
end

for i = 1, count do
  if i % 10 == 0 then plant() end
  if i % 200 == 0 then collectgarbage() end
  if i % 50 == 0 then
    coroutine.wrap(function() step() end)()
  else
    step()
  end
end

-- Everything still works.
assert(heed.equal(heed.ones(2, 3):matmul(heed.ones(3, 2)), heed.full({ 2, 2 }, 3)))
pool = {}
collectgarbage()
collectgarbage()

for _, message in ipairs(wrong) do print(message) end
print(("%d calls, %d poor messages"):format(count, #wrong))
os.exit(#wrong == 0 and 0 or 1, true)
