--- model:run_with_cache and model:run_with_hooks: forward passes that store or change what points see. Also
--- model:add_hook, model:on_weights and model:hook_names.

local compat = require "heed.compat"
local core = require "heed.core"
local activations = require "heed.nn.activation_cache"
local E = require "heed.nn.entries"
local handle = require "heed.nn.handle"
local named = require "heed.nn.named_points"
local points = require "heed.nn.points"
local pack, unpack = compat.pack, compat.unpack

local run = {}

function run.hook_names(self)
  E.check_self(self, "hook_names")
  local names = {}
  for i, each in ipairs((named.list(self, "hook_names"))) do names[i] = each.name end
  return names
end

-- ---- Listeners ----------------------------------------------------------------------------------

--- A listener that calls f(x, hook), and refuses results of another shape.
local function changing(f, point, method)
  local hook = { name = point.name, layer = point.layer, module = point.module }
  return function(x, context)
    hook.context = context
    local y = f(x, hook)
    if y ~= nil and not points.is_like(y, x) then
      E.reject(method, ("the result of the hook at '%s'"):format(point.name), y, "nil or a tensor [%s] of dtype %s",
        table.concat(x.shape, ", "), x.dtype)
    end
    return y
  end
end

--- Listeners that end together: when the run is done, or when the coroutine that runs it is collected.
local Group = {}

function Group.__gc(group)
  local own = compat.raw(group, Group)
  for i = #own, 1, -1 do own[i]:remove() end
end

local function new_group(method)
  local group = compat.object({ [Group] = {} }, Group)
  local own = compat.raw(group, Group)
  return group, function(point, listener, reads)
    E.check_cancel(method)
    own[#own + 1] = named.listen(point, listener, reads)
  end
end

--- add(listen) starts listeners; then self(...) runs, and whatever happens, the listeners end. Returns the list of
--- results.
local function listening(method, add, self, ...)
  local group, listen = new_group(method)
  local results = pack(pcall(function(...)
    add(listen)
    return self(...)
  end, ...))
  Group.__gc(group)
  if not results[1] then error(results[2], 0) end
  return results
end

-- ---- Hooks --------------------------------------------------------------------------------------

--- {[name] = f, …} or {{names, f}, …} as a list of {point, f}.
local function read_hooks(hooks, self, method)
  local list, by_name = named.list(self, method)
  local given, found = {}, {}
  if not E.is_list(hooks) then E.reject(method, "hooks", hooks, "a table of functions by name") end
  for key, value in next, hooks do given[#given + 1] = { key, value } end
  E.sort(given, method, function(a, b) -- numbers first, in order
    local x, y = a[1], b[1]
    if type(x) ~= type(y) then return type(x) == "number" end
    return type(x) == "number" and x < y or tostring(x) < tostring(y)
  end)
  for _, pair in ipairs(given) do
    local names, f, what = pair[1], pair[2], nil
    if type(names) == "number" then
      what = ("hooks[%s]"):format(tostring(names))
      if not E.is_list(f) then E.reject(method, what, f, "{names, function}") end
      names, f = f[1], f[2]
    end
    local chosen = named.choose(names, list, by_name, method, what or "a name in hooks")
    E.check_type(f, "function", method, what and what .. "[2]" or ("hooks['%s']"):format(tostring(names)))
    for _, point in ipairs(chosen) do found[#found + 1] = { point, f } end
  end
  return found
end

--- Returns what self(input, ...) does while f(x, hook) may change the tensors at points.
function run.run_with_hooks(self, input, hooks, ...)
  E.check_self(self, "run_with_hooks")
  local found = read_hooks(hooks, self, "run_with_hooks")
  local results = listening("run_with_hooks", function(listen)
    for _, each in ipairs(found) do listen(each[1], changing(each[2], each[1], "run_with_hooks")) end
  end, self, input, ...)
  return unpack(results, 2, results.n)
end

local function joined(handles)
  return handle.new(function()
    for i = #handles, 1, -1 do handles[i]:remove() end
  end)
end

--- Calls f(x, hook) at these points of every forward pass, until the handle that it returns is removed.
function run.add_hook(self, names, f)
  E.check_self(self, "add_hook")
  local list, by_name = named.list(self, "add_hook")
  local chosen = named.choose(names, list, by_name, "add_hook", "name")
  E.check_type(f, "function", "add_hook", "f")
  local handles = {}
  for i, point in ipairs(chosen) do handles[i] = named.listen(point, changing(f, point, "add_hook")) end
  return joined(handles)
end

--- mha:on_weights(f) for every attention module of a model; context.layer is the number of its layer.
function run.on_weights(self, f)
  E.check_self(self, "on_weights")
  E.check_type(f, "function", "on_weights", "f")
  local handles = {}
  for _, point in ipairs((named.list(self, "on_weights"))) do
    if point.kind == "attention" and point.point == "pattern" then
      handles[#handles + 1] = points.add(point.module, "pattern", function(weights, context)
        context.layer = point.layer
        return f(weights, context)
      end)
    end
  end
  if #handles == 0 then E.reject("on_weights", "self", self, "a module with attention modules of heed in it") end
  return joined(handles)
end

-- ---- Caches -------------------------------------------------------------------------------------

local OPTIONS = { "names", "remove_batch_dim" }

--- Splits the arguments of run_with_cache into those of the forward and its own options, which are in the same table.
local function split(...)
  local given, own = pack(...), {}
  local last = given[given.n]
  if not E.is_list(last) then return given, own end
  local rest = {}
  for key, value in next, last do rest[key] = value end
  for _, name in ipairs(OPTIONS) do
    own[name], rest[name] = rest[name], nil
    if own[name] ~= nil then own.given = true end
  end
  if not own.given then return given, own end
  local empty = next(rest) == nil
  given[given.n] = not empty and rest or nil
  if empty then given.n = given.n - 1 end
  return given, own
end

--- Whether the input is ids without a batch: a list of numbers, or a tensor of one dimension.
local function lacks_batch(input)
  local kind = E.kind(input)
  if kind == "tensor" or kind == "parameter" then return input.ndim == 1 end
  return E.is_list(input) and type(input[1]) == "number"
end

--- What the cache stores of x: without a first size of 1, and a copy, where the forward may change x later.
local function stored(x, point, removes_batch, copies)
  if removes_batch then
    if x.ndim == 0 or x.shape[1] ~= 1 then
      E.fail("run_with_cache: '%s' is [%s]; its first size must be 1 for remove_batch_dim", point.name,
        table.concat(x.shape, ", "))
    end
    x = x:squeeze(1)
  end
  return copies and x:clone() or x
end

--- Whether the class declares that its forward does not change the tensors of its points.
local function is_constant(point)
  local own = E.record(point.module)
  return not own or own.class.points ~= nil and own.class.points.constant == true
end

--- Stores in the cache what a point sees. A wrapper's heads come one by one, and are joined.
local function storing(cache, point, removes_batch, copies)
  local along = (point.point == "attn_scores" or point.point == "pattern") and -3 or -2
  return function(x, context)
    x = stored(x, point, removes_batch, copies)
    local before = context.heads and context.heads[1] > 1 and activations.peek(cache, point.name)
    activations.put(cache, point.name, before and core.cat({ before, x }, along) or x)
  end
end

--- Returns what self(...) does, and the activations at its points. The last table of options may also have `names`
--- (a name, a list or a function; by default all but hook_result) and `remove_batch_dim`.
function run.run_with_cache(self, ...)
  local method = "run_with_cache"
  E.check_self(self, method)
  local given, own = split(...)
  local removes_batch = E.boolean(own.remove_batch_dim, false, method, "remove_batch_dim") and not lacks_batch(given[1])
  local list, by_name = named.list(self, method)
  local chosen = {}
  if own.names == nil then
    for _, point in ipairs(list) do
      if point.point ~= "result" then chosen[#chosen + 1] = point end
    end
  else
    chosen = named.choose(own.names, list, by_name, method, "names")
  end
  local cache = activations.new()
  local results = listening(method, function(listen)
    for _, point in ipairs(chosen) do
      listen(point, storing(cache, point, removes_batch, not is_constant(point)), true)
    end
  end, self, unpack(given, 1, given.n))
  results[results.n + 1] = cache
  return unpack(results, 2, results.n + 1)
end

return E.with_frames(run, "run_with_hooks", "run_with_cache", "add_hook")
