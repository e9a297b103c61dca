--- The entries of a module (parameters, buffers, submodules), for built-in modules and those written in Lua alike;
--- error messages; and helpers that the other files of lua/heed share.
--
-- An entry is {name =, kind =, value =}; kind is "parameter", "buffer" (which may have persistent = false) or
-- "module". A module written in Lua is an object with one raw field, its record, under a private key:
--   class     its class
--   fields    all of its fields by name
--   list      its entries, in the order in which they were first set
--   named     its entries by name
--   parts     its entries of kind "module"; nil until E.parts computes them
--   inside    true once it was assigned to another module
--   attached  its hooks and listeners (heed.nn.attached); nil before the first

local compat = require "heed.compat"
local core = require "heed.core"
local primitives = core.modules

local RECORD = {}

--- E.check_cancel(method) raises if a limit is exceeded or the host has cancelled the call. Loops whose length depends
--- on the script must call it.
local E = { RECORD = RECORD, check_cancel = core.check_cancel }

-- The key under which objects of heed.utils.data and heed.optim hold their class, {name =}.
E.OBJECT_CLASS = {}

-- ---- Errors -------------------------------------------------------------------------------------

--- Raises an error located at the line of the user's call. Further arguments are formatted into the message.
function E.fail(message, ...)
  core.raise(select("#", ...) == 0 and message or message:format(...))
end

--- Raises "method: argument is <description of value>; it must be <needed>". A fix may end `needed`, after "; ".
--- Further arguments are formatted into `needed`.
function E.reject(method, argument, value, needed, ...)
  if select("#", ...) > 0 then needed = needed:format(...) end
  local what = E.what(value)
  local library = what:match "^the table ([%w.]+)$"
  if library then -- heed:f(x) passes heed itself
    E.fail("%s: argument 1 is %s; write %s.%s(...), with a dot instead of a colon", method, what, library, method)
  end
  E.fail("%s: %s is %s; it must be %s", method, argument, what, needed)
end

--- Raises unless the value has that type ("boolean", "string", "function", "table").
function E.check_type(value, wanted, method, argument)
  if type(value) ~= wanted then E.reject(method, argument, value, "a " .. wanted) end
end

--- The value of a boolean option, or `default` if it is nil. Raises for values of other types.
function E.boolean(value, default, method, argument)
  if value == nil then return default end
  E.check_type(value, "boolean", method, argument)
  return value
end

--- The value of a numeric option, or `default` if it is nil. Raises for values of other types, and for those that
--- `fits`, if given, refuses; `needed` then describes what it accepts.
function E.number(value, default, method, argument, fits, needed)
  if value == nil and default ~= nil then return default end
  if type(value) ~= "number" or fits and not fits(value) then
    E.reject(method, argument, value, needed or "a number")
  end
  return value
end

--- The value of an integer option, or `default` if it is nil. Whole floats up to 2^53, such as 12 / 2, are integers.
function E.integer(value, default, method, argument, needed)
  if value == nil and default ~= nil then return default end
  if not compat.is_integer(value) then E.reject(method, argument, value, needed or "an integer") end
  return math.floor(value)
end

--- The same for an integer that is at least 1.
function E.size(value, default, method, argument)
  value = E.integer(value, default, method, argument, "an integer, at least 1")
  if value < 1 then E.reject(method, argument, value, "an integer, at least 1") end
  return value
end

--- Whether a value is a probability, and what E.number says of others.
function E.is_probability(value) return value >= 0 and value <= 1 end
E.PROBABILITY = "a number from 0 to 1"

--- Raises unless the value is one of a list of strings.
function E.check_choice(value, choices, method, argument)
  for _, choice in ipairs(choices) do
    if value == choice then return end
  end
  local last = choices[#choices]
  local others = table.concat(choices, "', '", 1, #choices - 1)
  E.reject(method, argument, value, "'%s' or '%s'", others, last)
end

local NO_OPTIONS = {}

--- Raises if a module that takes one input was called with more than that and an empty table of options.
function E.check_single(self, ...)
  local others, class = select("#", ...), E.class_name(self)
  if others == 0 then return end
  primitives.refuse_second_result(class, (select(others, ...)))
  local kind = primitives.kind((...))
  if kind == "tensor" or kind == "parameter" then
    E.fail("%s: the second argument is %s; there must be only one tensor, the input x", class, E.what((...)))
  elseif others > 1 or type((...)) ~= "table" then
    E.fail("%s: %d arguments are given; it takes one input", class, others + 1)
  end
  primitives.options(class, NO_OPTIONS, 2, self, ...)
end

--- Raises unless a module was called with one tensor, x; further arguments may be an empty table of options.
function E.check_input(self, x, ...)
  E.check_self(self, "forward")
  E.check_tensor(x, E.class_name(self), "x")
  E.check_single(self, ...)
end

--- Whether tensors have a method of that name.
local function is_method(name) return (pcall(function() return core.zeros(0)[name] end)) end

local colon = "a tensor; call it as x:NAME(...), with a colon, or as heed.NAME(x, ...)"

--- Raises unless the value is a tensor, with so many dimensions if `ndim` is given.
function E.check_tensor(value, method, argument, ndim)
  local kind = primitives.kind(value)
  if kind ~= "tensor" and kind ~= "parameter" then
    local dot = argument == "x" and type(value) ~= "userdata" and type(value) ~= "table"
    E.reject(method, argument, value, dot and is_method(method) and (colon:gsub("NAME", method))
      or "a tensor")
  end
  if ndim and value.ndim ~= ndim then
    E.reject(method, argument, value, "a tensor of %s", E.count(ndim, "dimension"))
  end
end

local COMPUTED = { float32 = true, int64 = true, bool = true }

--- The same for tensors that are computed with: dtypes for storage alone are rejected, too.
function E.check_operand(value, method, argument, ndim)
  E.check_tensor(value, method, argument)
  if not COMPUTED[value.dtype] then
    E.fail("%s: %s is %s; it must be float32, int64 or bool: convert with %s:float()", method, argument, value.dtype,
      argument)
  end
  E.check_tensor(value, method, argument, ndim)
end

function E.is_tensor(value)
  local kind = primitives.kind(value)
  return kind == "tensor" or kind == "parameter"
end

local DIFFERENTIABLE = { float32 = true, bfloat16 = true, float16 = true }

--- Whether the value is a tensor that can lead to a gradient.
function E.is_differentiable(value) return E.is_tensor(value) and DIFFERENTIABLE[value.dtype] == true end

--- The name of an object's class, such as "heed.DataLoader"; nil for anything else.
function E.object_name(value)
  local class = compat.raw(value, E.OBJECT_CLASS)
  return class and class.meta.__name or nil
end

local GENERATOR = getmetatable(core.default_generator)
--- Whether a value is a heed.Generator.
function E.is_generator(value) return type(value) == "userdata" and getmetatable(value) == GENERATOR end

--- Whether a value is a table that is neither a module nor a class nor an object of heed.utils.data and heed.optim.
function E.is_list(value) return type(value) == "table" and not E.record(value) and not E.object_name(value) end

--- Raises unless the value is a module.
function E.check_module(value, method, argument)
  if E.is_module(value) then return end
  local own = E.record(value)
  E.reject(method, argument, value, own and "a module; %s(…) makes one" or "a module", own and own.name)
end

--- Raises unless `self` is a module. A method called with a dot instead of a colon receives something else.
function E.check_self(self, method)
  if not E.is_module(self) then E.reject(method, "self", self, "a module; call the method with a colon") end
end

--- "1 token", "2 tokens".
function E.count(n, noun) return ("%d %s%s"):format(n, noun, n == 1 and "" or "s") end

-- ---- Entries ------------------------------------------------------------------------------------

--- The record of a module written in Lua, else nil. Classes have records too: {name =, metatable =}.
local function record(value) return compat.raw(value, RECORD) end
E.record = record

--- "parameter", "tensor" or "module"; nil for everything else, including classes.
function E.kind(value)
  local own = record(value)
  if own then return own.fields and "module" end
  return primitives.kind(value)
end

function E.is_module(value) return E.kind(value) == "module" end

--- The module's entries, in order. The caller must not change the list.
function E.entries(module)
  local own = record(module)
  return own and own.list or primitives.entries(module)
end

--- The module's entries of kind "module", in order. `entries`, if the caller has them already, saves computing them.
--- The caller must not change the list.
function E.parts(module, entries)
  local own = record(module)
  if own and own.parts then return own.parts end
  local parts = {}
  for _, entry in ipairs(entries or E.entries(module)) do
    if entry.kind == "module" then parts[#parts + 1] = entry end
  end
  if own then own.parts = parts end
  return parts
end

--- Calls visit(module, prefix) for `module` and all modules in it, depth first. `prefix` is the path: "", or names that
--- each end in a dot. `seen`, a table, makes it visit a module that is shared several times only once; without it, n
--- levels of sharing can mean 2^n visits. If visit returns true, the module's parts are skipped; its second result may
--- be the module's entries, which saves computing them again. Iterative, so that depth is unbounded.
function E.walk(module, prefix, method, seen, visit)
  local lists, paths, at, depth = {}, {}, {}, 0 -- by depth: parts, path, and the number of parts visited
  while true do
    E.check_cancel(method)
    if not (seen and seen[module]) then
      if seen then seen[module] = true end
      local leave_out, entries = visit(module, prefix)
      if not leave_out then
        depth = depth + 1
        lists[depth], paths[depth], at[depth] = E.parts(module, entries), prefix, 0
      end
    end
    while depth > 0 and at[depth] >= #lists[depth] do -- greater, if a finalizer removed some parts
      lists[depth], paths[depth], at[depth] = nil, nil, nil
      depth = depth - 1
    end
    if depth == 0 then return end
    at[depth] = at[depth] + 1
    local part = lists[depth][at[depth]]
    module, prefix = part.value, paths[depth] .. part.name .. "."
  end
end

--- table.sort(list, less) with cancellation checks.
function E.sort(list, method, less)
  local compared = 0
  table.sort(list, function(a, b)
    compared = compared + 1
    if compared % 4096 == 0 then E.check_cancel(method) end
    if less then return less(a, b) end
    return a < b
  end)
end

--- The name of the module's class, such as "Linear".
function E.class_name(module)
  local own = record(module)
  return own and own.class[RECORD].name or primitives.class_name(module)
end

--- A description of a value for messages: "a string ('abc')", "a module (Mine)".
function E.what(value)
  local own, name = record(value), E.object_name(value)
  if name then return "a " .. name end
  if not own then return primitives.what(value) end
  return own.fields and ("a module (%s)"):format(E.class_name(value)) or ("the class %s"):format(own.name)
end

--- Wraps functions of a table that are composed of operations, so that the grad_fn of their (first) result has
--- PyTorch's name. `names`: by function; the first argument of each is its input. Returns the table.
function E.with_names(methods, names)
  for method, name in pairs(names) do
    local f = methods[method]
    methods[method] = function(x, ...) return primitives.noted(name, x, f(x, ...)) end
  end
  return methods
end

E.unframed = setmetatable({}, { __mode = "k" }) -- the functions that frames call

--- Wraps the functions of a table, except metamethods, in frames: errors are then located correctly even if the caller
--- made a tail call, and limits.seconds applies to the whole call. Further arguments name the functions that call user
--- code, which may yield. Returns the table.
function E.with_frames(methods, ...)
  local yields = {}
  for _, name in ipairs { ... } do yields[name] = true end
  for name, f in pairs(methods) do
    -- not name:sub: LuaJIT corrupts its stack when string.sub runs out of memory
    if type(f) == "function" and not name:find "^__" then
      methods[name] = core.frame(f, yields[name])
      E.unframed[methods[name]] = f
    end
  end
  return methods
end

return E
