--- Hooks of modules: m:register_forward_pre_hook(f) and m:register_forward_hook(f). They run in m(x), not in
--- m:forward(x). A hook that is added during a call runs from the next call on, one that is removed never again.

local compat = require "heed.compat"
local core = require "heed.core"
local attached = require "heed.nn.attached"
local E = require "heed.nn.entries"
local handle = require "heed.nn.handle"
local primitives, pack, unpack = core.modules, compat.pack, compat.unpack

local hooks = {}

-- ---- Lists --------------------------------------------------------------------------------------
-- A list is replaced, not changed, so that a call may go through it while hooks are added and removed.

--- Adds `item` to attached(m)[kind][name], at the front if `first`. Returns a handle that removes it. Built-in modules
--- are watched as long as they have one.
function hooks.add(m, kind, name, item, first)
  local store = attached(m, true)
  local built_in = not E.record(m)
  local entry = { item = item }

  --- The list without the entry, or with it; nil if it is empty.
  local function set(present)
    local lists, list = {}, {}
    for each, value in pairs(store[kind] or lists) do lists[each] = value end
    if present and first then list[1] = entry end
    for _, each in ipairs(lists[name] or {}) do
      if each ~= entry then list[#list + 1] = each end
    end
    if present and not first then list[#list + 1] = entry end
    lists[name] = #list > 0 and list or nil
    store[kind] = next(lists) and lists
  end

  local made = handle.new(function()
    entry.item = nil -- first, since `set` may run out of memory
    if built_in then primitives.watch(m, -1) end
    set(false)
  end)
  set(true)
  if built_in then primitives.watch(m, 1) end
  return made
end

--- The list of that kind and name, of {item =}, where a nil is removed; nil if it is empty.
function hooks.list(m, kind, name)
  local store = attached(m)
  local lists = store and store[kind]
  return lists and lists[name]
end

--- Whether the module has any of that kind.
function hooks.any(m, kind)
  local store = attached(m)
  return store ~= nil and store[kind] ~= nil
end

-- ---- Registering --------------------------------------------------------------------------------

local OPTIONS = { "prepend" }

local function register(method, name)
  return function(self, hook, ...)
    E.check_self(self, method)
    local prepend = primitives.options(method, OPTIONS, 3, self, hook, ...)
    E.check_type(hook, "function", method, "hook")
    return hooks.add(self, "hooks", name, hook, E.boolean(prepend, false, method, "prepend"))
  end
end

hooks.register_forward_pre_hook = register("register_forward_pre_hook", "before")
hooks.register_forward_hook = register("register_forward_hook", "after")

-- ---- Calling ------------------------------------------------------------------------------------

--- Replaces the first of `values` by what a hook returned; a nil leaves its value unchanged.
local function replace(values, ...)
  local returned = pack(...)
  for i = 1, returned.n do
    if returned[i] ~= nil then values[i] = returned[i] end
  end
  values.n = math.max(values.n, returned.n)
end

--- f(m, ...), after the pre-hooks of m, which may change the arguments.
function hooks.before(m, f, ...)
  local given = pack(...)
  for _, hook in ipairs(hooks.list(m, "hooks", "before") or {}) do
    if hook.item then replace(given, hook.item(m, unpack(given, 1, given.n))) end
  end
  return f(m, unpack(given, 1, given.n))
end

--- The results of m for the input x, which its hooks may change.
function hooks.after(m, x, ...)
  local results = pack(...)
  for _, hook in ipairs(hooks.list(m, "hooks", "after") or {}) do
    if hook.item then replace(results, hook.item(m, x, unpack(results, 1, results.n))) end
  end
  return unpack(results, 1, results.n)
end

--- forward(m, ...), with the hooks of m before and after.
function hooks.call(m, forward, ...)
  return hooks.before(m, function(_, ...) return hooks.after(m, (...), forward(m, ...)) end, ...)
end

return hooks
