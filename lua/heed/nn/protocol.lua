--- The methods of all modules, built in or written in Lua. They access a module only through its entries
--- (heed.nn.entries), its own methods and `training`.

local core = require "heed.core"
local clone = require "heed.nn.clone"
local E = require "heed.nn.entries"
local hooks = require "heed.nn.hooks"
local repr = require "heed.nn.repr"
local state_dict = require "heed.nn.state_dict"
local primitives = core.modules
local entries = E.entries

local P = {}

--- The tensors of a kind in a module as two lists, names and tensors. A shared tensor is listed once.
local function members(module, kind, method, prefix, recurse)
  local names, values, seen = {}, {}, {}
  local function visit(each, at)
    local list = entries(each)
    for i, entry in ipairs(list) do
      if i % 1024 == 0 then E.check_cancel(method) end
      if entry.kind == kind then
        local _, identity = primitives.identity(entry.value)
        if not seen[identity] then
          seen[identity] = true
          names[#names + 1], values[#values + 1] = at .. entry.name, entry.value
        end
      end
    end
    return false, list
  end
  local at = prefix == "" and "" or prefix .. "."
  if recurse then
    E.walk(module, at, method, {}, visit)
  else
    visit(module, at)
  end
  return names, values
end

--- The direct parts of a module as two lists, names and modules. A shared part is listed once.
local function parts(module)
  local names, values, seen = {}, {}, {}
  for _, entry in ipairs(E.parts(module)) do
    if not seen[entry.value] then
      seen[entry.value] = true
      names[#names + 1], values[#values + 1] = entry.name, entry.value
    end
  end
  return names, values
end

-- ---- Iterating ----------------------------------------------------------------------------------

--- An iterator over the pairs names[i], values[i].
local function pairs_of(names, values)
  local i = 0
  return function()
    i = i + 1
    return names[i], values[i]
  end
end

--- A list that is also an iterator, so that `for p in m:parameters()` and `ipairs(m:parameters())` both work. A loop
--- begins with the first element, a call without arguments gives the next: `local next_p = m:parameters()`.
local function list_of(values)
  local at = 0
  return setmetatable(values, {
    __name = "heed.List",
    __call = function(list, ...)
      local _, last = ...
      at = last == nil and select("#", ...) > 0 and 1 or at + 1
      return list[at]
    end,
  })
end

local MEMBER_OPTIONS, RECURSE_OPTION = { "prefix", "recurse" }, { "recurse" }

local function named_members(kind, method)
  return function(self, ...)
    E.check_self(self, method)
    local prefix, recurse = primitives.options(method, MEMBER_OPTIONS, 2, self, ...)
    if prefix == nil then prefix = "" end
    E.check_type(prefix, "string", method, "prefix")
    recurse = E.boolean(recurse, true, method, "recurse")
    return pairs_of(members(self, kind, method, prefix, recurse))
  end
end

local function listed_members(kind, method)
  return function(self, ...)
    E.check_self(self, method)
    local recurse = E.boolean(primitives.options(method, RECURSE_OPTION, 2, self, ...), true, method, "recurse")
    local _, values = members(self, kind, method, "", recurse)
    return list_of(values)
  end
end

P.named_parameters = named_members("parameter", "named_parameters")
P.parameters = listed_members("parameter", "parameters")
P.named_buffers = named_members("buffer", "named_buffers")
P.buffers = listed_members("buffer", "buffers")

function P:named_children()
  E.check_self(self, "named_children")
  return pairs_of(parts(self))
end

function P:children()
  E.check_self(self, "children")
  local _, values = parts(self)
  return list_of(values)
end

--- `for i, part in m:iter() do`, for lists of modules, built in or written in Lua.
function P:iter()
  E.check_self(self, "iter")
  local own = E.record(self)
  if not (own and own.class.__len or not own and E.class_name(self) == "ModuleList") then
    E.reject("iter", "self", self, "a list of modules")
  end
  local i = 0
  return function()
    i = i + 1
    local part = self[i]
    if part ~= nil then return i, part end
  end
end

local function all_modules(module, method)
  local names, values = {}, {}
  E.walk(module, "", method, {}, function(each, prefix)
    names[#names + 1], values[#values + 1] = prefix:sub(1, -2), each
  end)
  return names, values
end

function P:named_modules()
  E.check_self(self, "named_modules")
  return pairs_of(all_modules(self, "named_modules"))
end

function P:modules()
  E.check_self(self, "modules")
  local _, values = all_modules(self, "modules")
  return list_of(values)
end

--- The module at a dotted path; an error, if there is none.
local function module_at(self, path, method)
  E.check_self(self, method)
  E.check_type(path, "string", method, "target")
  local found = state_dict.at_path(self, path)
  if not found then E.fail("%s: %s has no module '%s'", method, E.class_name(self), path) end
  return found
end

function P:get_submodule(target) return module_at(self, target, "get_submodule") end

--- The tensor of a kind at a dotted path.
local function tensor_at(kind, method)
  return function(self, target)
    E.check_self(self, method)
    E.check_type(target, "string", method, "target")
    local path, name = target:match "^(.*)%.([^.]*)$"
    local owner = module_at(self, path or "", method)
    for _, entry in ipairs(entries(owner)) do
      if entry.kind == kind and entry.name == (name or target) then return entry.value end
    end
    E.fail("%s: %s has no %s '%s'", method, E.class_name(self), kind, target)
  end
end

P.get_parameter = tensor_at("parameter", "get_parameter")
P.get_buffer = tensor_at("buffer", "get_buffer")

-- ---- Copies -------------------------------------------------------------------------------------

--- A deep copy; what is shared inside the module is shared inside the copy.
function P:clone()
  E.check_self(self, "clone")
  return clone(self)
end

-- ---- Modes --------------------------------------------------------------------------------------

--- Sets the mode of each module once. A part whose class overrides `train` handles its own parts. The modules are
--- collected first, so that a call that is cancelled during the walk changes none of them.
function P:train(mode)
  E.check_self(self, "train")
  mode = E.boolean(mode, true, "train", "mode")
  local list = {}
  E.walk(self, "", "train", {}, function(module)
    list[#list + 1] = module
    if not E.record(module) then return not primitives.holds_own(module) end
    return module ~= self and module.train ~= P.train
  end)
  for _, module in ipairs(list) do
    local own = E.record(module)
    if not own then
      primitives.train(module, mode)
    elseif module ~= self and module.train ~= P.train then
      module:train(mode)
    else
      own.fields.training = mode
    end
  end
  return self
end

function P:eval()
  E.check_self(self, "eval")
  return self:train(false)
end

local function apply(module, f)
  E.check_cancel "apply"
  for _, child in ipairs(select(2, parts(module))) do
    if child.apply == P.apply then apply(child, f) else child:apply(f) end
  end
  f(module)
end

function P:apply(f)
  E.check_self(self, "apply")
  E.check_type(f, "function", "apply", "f")
  apply(self, f)
  return self
end

-- ---- Gradients ----------------------------------------------------------------------------------

--- requires_grad_(requires_grad = true): whether gradients of all parameters are wanted.
function P:requires_grad_(...)
  E.check_self(self, "requires_grad_")
  local on = E.boolean(primitives.options("requires_grad_", { "requires_grad" }, 2, self, ...), true, "requires_grad_",
    "requires_grad")
  local names, list = members(self, "parameter", "requires_grad_", "", true)
  for i, parameter in ipairs(list) do
    if on and parameter.dtype ~= "float32" then E.reject("requires_grad_", names[i], parameter, "float32") end
  end
  for _, parameter in ipairs(list) do
    if parameter.requires_grad ~= on then parameter:requires_grad_(on) end
  end
  return self
end

--- zero_grad(set_to_none = true): forgets the gradients of all parameters, or sets them to 0.
function P:zero_grad(...)
  E.check_self(self, "zero_grad")
  local forget = E.boolean(primitives.options("zero_grad", { "set_to_none" }, 2, self, ...), true, "zero_grad",
    "set_to_none")
  for _, parameter in ipairs(select(2, members(self, "parameter", "zero_grad", "", true))) do
    if forget then
      parameter.grad = nil
    elseif parameter.grad then
      parameter.grad:zero_()
    end
  end
end

-- ---- Dtypes -------------------------------------------------------------------------------------

--- The outermost built-in modules in a module, and those in modules written in Lua that these hold.
local function built_in(module)
  local list = {}
  E.walk(module, "", "to", {}, function(each)
    if E.record(each) then return false end
    list[#list + 1] = each
    return not primitives.holds_own(each)
  end)
  return list
end

local TO_OPTIONS = { "dtype" }

function P:to(...)
  E.check_self(self, "to")
  local dtype = primitives.options("to", TO_OPTIONS, 2, self, ...)
  primitives.store(built_in(self), dtype)
  return self
end

function P:float()
  E.check_self(self, "float")
  return self:to "float32"
end

function P:half()
  E.check_self(self, "half")
  return self:to "float16"
end

function P:bfloat16()
  E.check_self(self, "bfloat16")
  return self:to "bfloat16"
end

-- ---- State --------------------------------------------------------------------------------------

local NO_OPTIONS, LOAD_OPTIONS = {}, { "strict", "assign" }

function P:state_dict(...)
  E.check_self(self, "state_dict")
  primitives.options("state_dict", NO_OPTIONS, 2, self, ...)
  return state_dict.of(self)
end

function P:load_state_dict(state, ...)
  E.check_self(self, "load_state_dict")
  if state == nil and type((...)) == "string" then -- both results of heed.load
    E.fail("load_state_dict: state is nil; it must be a state dict or a table of tensors by name; %s", (...))
  end
  local strict, assign = primitives.options("load_state_dict", LOAD_OPTIONS, 3, self, state, ...)
  strict = E.boolean(strict, true, "load_state_dict", "strict")
  assign = E.boolean(assign, false, "load_state_dict", "assign")
  return state_dict.load(self, state, strict, assign)
end

-- ---- Hooks --------------------------------------------------------------------------------------

P.register_forward_pre_hook = hooks.register_forward_pre_hook
P.register_forward_hook = hooks.register_forward_hook

for _, name in ipairs { "hook_names", "add_hook", "on_weights", "run_with_hooks", "run_with_cache" } do
  P[name] = function(...) return require("heed.nn.run")[name](...) end
end

-- ---- Text ---------------------------------------------------------------------------------------

function P:class_name()
  E.check_self(self, "class_name")
  return E.class_name(self)
end

P.__tostring = repr.method(function(self) return not E.record(self) and E.class_name(self) == "ModuleList" end)

E.with_frames(P)
P.extra_repr = repr.extra

return P
