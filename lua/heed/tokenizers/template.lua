--- Chat templates: render(text, variables) runs the Jinja that they are written in. What it does not know is refused
--- with its line; work, size and nesting are bounded, for templates come with the files of models.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local lists = require "heed.tokenizers.template_filters"
local parse = require "heed.tokenizers.template_statements"
local V = require "heed.tokenizers.template_values"

local DEEPEST = 60 -- nested calls of macros

local evaluators, runners = {}, {}

-- A scope is {vars, parent}; `state` has the root scope, the parts of the output, and the depth of macros.

local function lookup(scope, name)
  while scope do
    local value = scope.vars[name]
    if value ~= nil then return value end
    scope = scope.parent
  end
  return V.UNDEFINED
end

local function evaluate(node, scope, state)
  V.step()
  V.line = node.line
  return evaluators[node[1]](node, scope, state)
end

local function refuse(node, ...)
  V.line = node.line
  V.fail(...)
end

--- Runs nodes. Returns "break" or "continue" where a loop ends or goes on early.
local function run(nodes, scope, state)
  for _, node in ipairs(nodes) do
    V.step()
    V.line = node.line
    local signal = runners[node[1]](node, scope, state)
    if signal then return signal end
  end
end

--- The output of nodes as a string.
local function captured(nodes, scope, state)
  local before = state.output
  state.output = {}
  run(nodes, scope, state)
  local text = V.concat(state.output)
  state.output = before
  return text
end

-- ---- Expressions --------------------------------------------------------------------------------

function evaluators.constant(node) return node[2] end
evaluators["float"] = function(node) return { node[2], kind = "float" } end
function evaluators.none() return V.NONE end

function evaluators.name(node, scope) return lookup(scope, node[2]) end

function evaluators.list(node, scope, state)
  local items = {}
  for i, each in ipairs(node[2]) do items[i] = evaluate(each, scope, state) end
  return V.list(items, node[3])
end

function evaluators.dict(node, scope, state)
  local dict = V.dict()
  for i = 2, #node do
    V.set(dict, V.key(evaluate(node[i][1], scope, state)), evaluate(node[i][2], scope, state))
  end
  return dict
end

function evaluators.attribute(node, scope, state)
  local of, name = evaluate(node[2], scope, state), node[3]
  if of == V.UNDEFINED then refuse(node, "'%s' of an undefined value is used", name) end
  local method = lists.method(of, name) -- goes before a key of that name; of["items"] is the key
  if method then
    return function(values) return method(of, compat.unpack(values)) end
  end
  return lists.get(of, name)
end

function evaluators.item(node, scope, state)
  local of, key = evaluate(node[2], scope, state), evaluate(node[3], scope, state)
  if of == V.UNDEFINED then refuse(node, "an item of an undefined value is used") end
  if V.kind(key) == "float" or key == V.UNDEFINED then return V.UNDEFINED end
  return lists.get(of, key)
end

--- First and last index, counted from 0 with last excluded, and step, as Python computes them.
local function slice_bounds(parts, n)
  local step = parts[3] or 1
  if step == 0 then return end
  local least, most = step < 0 and -1 or 0, step < 0 and n - 1 or n
  local function bound(value, otherwise)
    if not value then return otherwise end
    return math.max(least, math.min(most, value < 0 and value + n or value))
  end
  if step < 0 then return bound(parts[1], most), bound(parts[2], least), step end
  return bound(parts[1], least), bound(parts[2], most), step
end

function evaluators.slice(node, scope, state)
  local of, parts = evaluate(node[2], scope, state), {}
  for i = 1, 3 do
    local part = node[3][i] and evaluate(node[3][i], scope, state)
    parts[i] = part and part ~= V.NONE and V.number(part) or nil
  end
  local kind = V.kind(of)
  if kind ~= "list" and kind ~= "string" then refuse(node, "%s has no slices", V.what(of)) end
  local items, taken = lists.items_of(of), {}
  local first, last, step = slice_bounds(parts, #items)
  if not first then refuse(node, "the step of a slice is 0") end
  for i = first, last + (step > 0 and -1 or 1), step do taken[#taken + 1] = items[i + 1] end
  return kind == "string" and V.concat(taken) or V.list(taken, of.tuple)
end

evaluators["not"] = function(node, scope, state) return not V.truth(evaluate(node[2], scope, state)) end

evaluators["and"] = function(node, scope, state)
  local value
  for _, each in ipairs(node[2]) do
    value = evaluate(each, scope, state)
    if not V.truth(value) then break end
  end
  return value
end

evaluators["or"] = function(node, scope, state)
  local value
  for _, each in ipairs(node[2]) do
    value = evaluate(each, scope, state)
    if V.truth(value) then break end
  end
  return value
end

function evaluators.choice(node, scope, state)
  if V.truth(evaluate(node[2], scope, state)) then return evaluate(node[3], scope, state) end
  if node[4] then return evaluate(node[4], scope, state) end
  return V.UNDEFINED
end

function evaluators.negative(node, scope, state)
  local value = evaluate(node[2], scope, state)
  local number = V.number(value)
  if not number then refuse(node, "- is applied to %s; it must be a number", V.what(value)) end
  return V.kind(value) == "float" and { -number, kind = "float" } or -number
end

local ARITHMETIC = {
  ["+"] = function(a, b) return a + b end,
  ["-"] = function(a, b) return a - b end,
  ["*"] = function(a, b) return a * b end,
  ["/"] = function(a, b) return a / b end,
  ["//"] = function(a, b) return math.floor(a / b) end,
  ["%"] = function(a, b) return a - math.floor(a / b) * b end,
  ["**"] = function(a, b) return a ^ b end,
}

local function appended(a, b)
  local items = {}
  for _, list in ipairs { a, b } do
    for _, each in ipairs(list) do
      items[#items + 1] = each
      V.step()
    end
  end
  return V.list(items, a.tuple)
end

local function repeated(text, count)
  local parts = {}
  for i = 1, count do
    V.step()
    parts[i] = text
  end
  return V.concat(parts)
end

function evaluators.binary(node, scope, state)
  local operator, a, b = node[2], evaluate(node[3], scope, state), evaluate(node[4], scope, state)
  if operator == "~" then return V.concat { V.string(a), V.string(b) } end
  if operator == "+" and V.is_string(a) and V.is_string(b) then return V.concat { a, b } end
  if operator == "+" and V.kind(a) == "list" and V.kind(b) == "list" then return appended(a, b) end
  local x, y = V.number(a), V.number(b)
  if operator == "*" and V.is_string(a) and y then return repeated(a, y) end
  if not x or not y then
    refuse(node, "'%s' is applied to %s and %s%s", operator, V.what(a), V.what(b),
      operator == "+" and (V.is_string(a) or V.is_string(b)) and "; '~' joins values of all kinds" or "")
  end
  if (operator == "/" or operator == "//" or operator == "%") and y == 0 then refuse(node, "a division by 0") end
  local result = ARITHMETIC[operator](x, y)
  local floats = operator == "/" or V.kind(a) == "float" or V.kind(b) == "float" or result % 1 ~= 0
  return floats and { result, kind = "float" } or result
end

local COMPARISONS = {
  ["=="] = V.equal,
  ["!="] = function(a, b) return not V.equal(a, b) end,
  ["<"] = lists.less,
  [">"] = function(a, b) return lists.less(b, a) end,
  ["<="] = function(a, b) return not lists.less(b, a) end,
  [">="] = function(a, b) return not lists.less(a, b) end,
  ["in"] = function(a, b) return lists.contains(b, a) end,
  ["not in"] = function(a, b) return not lists.contains(b, a) end,
}

function evaluators.compare(node, scope, state)
  local left = evaluate(node[2], scope, state)
  for _, link in ipairs(node[3]) do
    local right = evaluate(link[2], scope, state)
    if not COMPARISONS[link[1]](left, right) then return false end
    left = right
  end
  return true
end

local function arguments_of(items, named, scope, state)
  local values, by_name = {}, {}
  for i, each in ipairs(items) do values[i] = evaluate(each, scope, state) end
  for _, each in ipairs(named or {}) do by_name[each[1]] = evaluate(each[2], scope, state) end
  return values, by_name
end

function evaluators.test(node, scope, state)
  local value, name = evaluate(node[2], scope, state), node[3]
  if name == "defined" then return value ~= V.UNDEFINED end
  if not lists.tests[name] then refuse(node, "the test '%s' is not supported", name) end
  return lists.test(name, value, (arguments_of(node[4], nil, scope, state)))
end

function evaluators.filter(node, scope, state)
  local value = evaluate(node[2], scope, state)
  local values, named = arguments_of(node[4], node[5], scope, state)
  local function call(name, of, arguments, by_name)
    local filter = lists.filters[name]
    if not filter then refuse(node, "the filter '%s' is not supported", name) end
    return filter(of, arguments, by_name, call)
  end
  return call(node[3], value, values, named)
end

function evaluators.call(node, scope, state)
  local called = node[2]
  local f = evaluate(called, scope, state)
  if type(f) ~= "function" then
    local name = called[1] == "attribute" and called[3] or called[1] == "name" and called[2]
    if name and called[1] == "attribute" then
      refuse(node, "%s has no method '%s' that is supported; mappings and lists cannot be changed",
        V.what(evaluate(called[2], scope, state)), name)
    end
    refuse(node, "%s is called; it must be a macro or a known function", name and ("'%s'"):format(name) or V.what(f))
  end
  local values, named = arguments_of(node[3], node[4], scope, state)
  local result = f(values, named, state, node)
  if result == nil then return V.UNDEFINED end
  return result
end

-- ---- Statements ---------------------------------------------------------------------------------

function runners.data(node, _, state) state.output[#state.output + 1] = node[2] end

function runners.output(node, scope, state)
  state.output[#state.output + 1] = V.string(evaluate(node[2], scope, state))
end

runners["if"] = function(node, scope, state)
  for _, branch in ipairs(node) do
    if type(branch) == "table" and (branch[1] == nil or V.truth(evaluate(branch[1], scope, state))) then
      return run(branch[2], scope, state)
    end
  end
end

local function assign(node, targets, value, scope)
  local values = { value }
  if #targets > 1 then
    values = lists.items_of(value, "what is unpacked")
    if #values ~= #targets then refuse(node, "%d values are unpacked to %d names", #values, #targets) end
  end
  for i, target in ipairs(targets) do
    if target[2] then
      local object = lookup(scope, target[1])
      if V.kind(object) ~= "dict" or not object.namespace then
        refuse(node, "'%s' is not a namespace; only fields of a namespace can be set", target[1])
      end
      V.set(object, target[2], values[i])
    else
      scope.vars[target[1]] = values[i]
    end
  end
end

function runners.set(node, scope, state)
  local value = node.body and captured(node.body, { vars = {}, parent = scope }, state)
    or evaluate(node.value, scope, state)
  assign(node, node.targets, value, scope)
end

runners["for"] = function(node, scope, state)
  local items = lists.items_of(evaluate(node.from, scope, state))
  if node.filter then
    local kept = {}
    for _, item in ipairs(items) do
      local inner = { vars = {}, parent = scope }
      assign(node, node.targets, item, inner)
      if V.truth(evaluate(node.filter, inner, state)) then kept[#kept + 1] = item end
    end
    items = kept
  end
  if #items == 0 and node.otherwise then return run(node.otherwise, { vars = {}, parent = scope }, state) end
  local outer = V.message
  for i, item in ipairs(items) do
    V.step()
    if type(item) == "table" and item.message then V.message = item.message end
    local loop = V.dict()
    local before, after = items[i - 1], items[i + 1]
    loop.values = {
      index = i, index0 = i - 1, first = i == 1, last = i == #items, length = #items, revindex = #items - i + 1,
      revindex0 = #items - i, previtem = before == nil and V.UNDEFINED or before,
      nextitem = after == nil and V.UNDEFINED or after,
      cycle = function(values) return values[(i - 1) % #values + 1] end,
    }
    local inner = { vars = { loop = loop }, parent = scope }
    assign(node, node.targets, item, inner)
    if run(node.body, inner, state) == "break" then break end
  end
  V.message = outer
end

function runners.macro(node, scope)
  scope.vars[node.name] = function(values, named, state, call)
    state.depth = state.depth + 1
    if state.depth > DEEPEST then refuse(call, "macros are nested more than %d levels deep", DEEPEST) end
    local inner = { vars = {}, parent = scope }
    for i, parameter in ipairs(node.parameters) do
      local value = values[i]
      if value == nil then value = named[parameter[1]] end
      if value == nil and parameter[2] then value = evaluate(parameter[2], inner, state) end
      if value == nil then value = V.UNDEFINED end
      inner.vars[parameter[1]] = value
    end
    if #values > #node.parameters then
      refuse(call, "the macro '%s' takes %s", node.name, E.count(#node.parameters, "argument"))
    end
    local text = captured(node.body, inner, state)
    state.depth = state.depth - 1
    return text
  end
end

function runners.generation(node, scope, state)
  state.output[#state.output + 1] = captured(node[2], { vars = {}, parent = scope }, state)
end

runners["break"] = function() return "break" end
runners["continue"] = function() return "continue" end

-- ---- Functions ----------------------------------------------------------------------------------

local globals = {}

function globals.raise_exception(values)
  local problem = V.text(V.string(values[1] or "the template refuses the messages"))
  E.fail("apply_chat_template: %s%s", V.message and V.message .. ": " or "", problem)
end

function globals.strftime_now(values, _, state, node)
  local form = V.text(values[1])
  if form:gsub("%%[aAbBcdHIjmMpSUwWxXyYZ%%]", ""):find("%", 1, true) then
    refuse(node, "strftime_now: '%s' has a field that is not supported", form)
  end
  return os.date(form, state.now)
end

function globals.range(values, _, _, node)
  local first, last, step = V.number(values[1]), V.number(values[2]), V.number(values[3]) or 1
  if not last then first, last = 0, first end
  if not first or not last or step == 0 then refuse(node, "range needs numbers, and a step that is not 0") end
  local items = {}
  for i = first, last - (step > 0 and 1 or -1), step do
    V.step()
    items[#items + 1] = i
  end
  return V.list(items)
end

local function dict_of(is_namespace)
  return function(values, named, _, node)
    local dict = V.dict(is_namespace)
    if values[1] ~= nil then
      if V.kind(values[1]) ~= "dict" then
        refuse(node, "the argument is %s; it must be a mapping", V.what(values[1]))
      end
      for _, key in ipairs(values[1].keys) do V.set(dict, key, values[1].values[key]) end
    end
    local call = node[4] or {}
    for _, each in ipairs(call) do V.set(dict, each[1], named[each[1]]) end -- in the order of the call
    return dict
  end
end
globals.namespace, globals.dict = dict_of(true), dict_of()

--- The text of a template with the variables (values of V by name): a string, marked where it comes from a message.
--- `now` is the time of strftime_now, by default the current one.
return function(text, variables, now)
  V.begin()
  local wrong = core.text.invalid(text)
  if wrong then E.fail("apply_chat_template: the template is not valid UTF-8 at byte %d", wrong) end
  local tree = parse(text)
  local state = { output = {}, depth = 0, now = now }
  local root = { vars = {}, parent = { vars = globals } }
  for name, value in pairs(variables) do root.vars[name] = value end
  run(tree, root, state)
  return V.concat(state.output)
end
