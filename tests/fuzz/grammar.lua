-- Programs of random calls of heed's public interface, as texts in Lua, made from the annotations alone: a new
-- function, method, field or option takes part as soon as it is annotated. The same seed gives the same program on
-- every Lua.
-- v[i] are the results of statements; T is tests/fuzz/trials.lua.
local annotations = require "tests.fuzz.annotations"
local chances = require "tests.fuzz.chances"
local samples = require "tests.fuzz.samples"
local words = require "tests.fuzz.words"

local grammar = {}
local api = annotations.read()
grammar.api = api

local random, chance, one_of = chances.random, chances.chance, chances.one_of

-- ---- The list of what can be called -------------------------------------------------------------

local calls = {} -- {label =, parameters =, returns =, path = "heed.nn.Linear"} or {…, class =, name =} for a method
local makers = {} -- by class: the calls that return it or a class derived from it
local is_options = {} -- classes that are plain tables: fields, and neither methods nor a call

local function first_class(type)
  if not type then return nil end
  if type.kind == "name" then
    if api.aliases[type.name] then return first_class(api.aliases[type.name]) end
    return api.classes[type.name] and type.name
  end
  if type.kind == "union" then
    for _, each in ipairs(type.of) do
      local name = first_class(each)
      if name then return name end
    end
  end
end

local function add(call)
  calls[#calls + 1] = call
  local class = first_class(call.returns[1])
  call.result = class
  if class then
    annotations.each_ancestor(api, class, function(ancestor)
      makers[ancestor.name] = makers[ancestor.name] or {}
      table.insert(makers[ancestor.name], call)
    end)
  end
end

local function add_path(path, class, seen)
  if seen[class.name] then return end
  seen[class.name] = true
  for _, f in ipairs(class.methods) do
    if not f.method then
      add { label = path .. "." .. f.name, path = path .. "." .. f.name, parameters = f.parameters, returns = f.returns,
        overloads = f.overloads }
    end
  end
  if class.call then
    add { label = path, path = path, parameters = class.call.parameters, returns = class.call.returns, overloads = {} }
  end
  for _, field in ipairs(class.fields) do
    local name = field.type.kind == "name" and field.type.name
    local of = name and api.classes[name]
    if field.type.kind == "function" then
      add { label = path .. "." .. field.name, path = path .. "." .. field.name, parameters = field.type.parameters,
        returns = field.type.returns, overloads = {} }
    elseif of and (#of.methods > 0 or of.name:find "^heed%.%l") then
      add_path(path .. "." .. field.name, of, seen)
    end
  end
end

local function inherits(name, ancestor)
  local found = false
  annotations.each_ancestor(api, name, function(class) found = found or class.name == ancestor end)
  return found
end

local function list_calls()
  local seen = {}
  table.sort(api.modules, function(a, b) return a.path < b.path end)
  for _, module in ipairs(api.modules) do
    add_path(module.path == "heed" and "heed" or ("require %q"):format(module.path), module.class, seen)
  end
  local of_tensor = {}
  annotations.each_ancestor(api, "heed.Tensor", function(class) of_tensor[class.name] = true end)
  for _, name in ipairs(api.class_names) do
    local class = api.classes[name]
    for _, f in ipairs(class.methods) do
      if f.method then
        local owner = of_tensor[name] and "heed.Tensor" or name
        add { label = owner:gsub("^heed%.", "") .. ":" .. f.name, class = owner, name = f.name,
          parameters = f.parameters,
          returns = f.returns, overloads = f.overloads }
      end
    end
    if class.call and not name:find "Class$" then
      add { label = name:gsub("^heed%.", "") .. "()", class = name, call = true, parameters = class.call.parameters,
        returns = class.call.returns, overloads = {} }
    end
    is_options[name] = #class.methods == 0 and not class.call and not makers[name] and #class.fields > 0
  end
  for _, name in ipairs(api.class_names) do is_options[name] = is_options[name] and not makers[name] end
end
list_calls()
grammar.calls = calls

local function common_divisor(a, b) return b == 0 and a or common_divisor(b, a % b) end
local stride = 7 -- neighbours in the list are alike; programs take them from afar
while common_divisor(stride, #calls) > 1 do stride = stride + 1 end

-- ---- Values -------------------------------------------------------------------------------------

local variables, hostility -- of the program that is made: {index =, class =}…; percent
local value, arguments_of, statement

local function variable_of(class)
  local fitting = {}
  for i = math.max(1, #variables - 30), #variables do
    if inherits(variables[i].class, class) then fitting[#fitting + 1] = variables[i].index end
  end
  return #fitting > 0 and ("v[%d]"):format(one_of(fitting))
end

local function call_text(call, depth)
  local sample = samples.arguments[call.label]
  if sample and chance(40) then
    if call.path then return ("%s(%s)"):format(call.path:gsub("^(require %b\"\")", "(%1)"), sample) end
    if call.call then return ("T.call(%s)"):format(sample) end
    return ("T.method(%q, %s)"):format(call.name, sample)
  end
  if not call.class then return ("%s(%s)"):format(call.path:gsub("^(require %b\"\")", "(%1)"),
    arguments_of(call, depth)) end
  local receiver = value({ kind = "name", name = call.class }, depth + 1)
  if call.call then return ("T.call(%s, %s)"):format(receiver, arguments_of(call, depth)):gsub(", %)$", ")") end
  if call.class == "heed.Tensor" and chance(30) and call.name ~= "iter" then
    return ("heed.%s(%s, %s)"):format(call.name, receiver, arguments_of(call, depth)):gsub(", %)$", ")")
  end
  if not receiver:find "^v%b[]$" then receiver = "(" .. receiver .. ")" end
  return ("%s:%s(%s)"):format(receiver, call.name, arguments_of(call, depth))
end

local function object(name, depth)
  if name == "heed.Tensor" then return one_of(words.tensors) end
  local list, sample = makers[name], samples.objects[name:gsub("^heed%.", "")]
  if sample and (chance(60) or depth > 4) then return one_of(sample) end
  if not list or depth > 4 then return "nil" end
  local call = one_of(list)
  for _ = 1, 6 do -- functions rather than methods, which need another object
    if not call.class and not call.label:find "load$" or call.class and not inherits(call.class, name)
      and chance(50) then break end
    call = one_of(list)
  end
  if sample and call.label:find "load$" then return one_of(sample) end -- most files are of other kinds
  return call_text(call, depth + 1)
end

local function fields_of(name)
  local fields = {}
  annotations.each_ancestor(api, name, function(class)
    for _, field in ipairs(class.fields) do fields[#fields + 1] = field end
  end)
  return fields
end

local function record(fields, depth)
  local parts = {}
  for _, field in ipairs(fields) do
    if chance(field.optional and 200 / (#fields + 2) or 99) then
      parts[#parts + 1] = ("[%q] = %s"):format(field.name, value(field.type, depth + 1, field.name))
    end
  end
  local text = "{ " .. table.concat(parts, ", ") .. " }"
  return chance(hostility) and ("T.proxy(%s)"):format(text) or text
end

local function list_of(item, depth, name)
  local parts = {}
  for i = 1, one_of { 0, 1, 2, 2, 2, 3, 4 } do parts[i] = value(item, depth + 1, name) end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

local function callback(type, depth)
  local body = ""
  if depth < 4 and chance(25) then body = statement(depth + 2, true) .. " " end
  if chance(hostility) then
    body = body .. one_of { "coroutine.yield() ", "collectgarbage() ", "error({}) ", "error('E!', 0) ",
      "T.release(...) ",
      "T.again(...) ", "coroutine.yield(...) " }
  end
  if not type.returns or #type.returns == 0
    or chance(40) then return ("function(...) %sreturn ... end"):format(body) end
  local results = {}
  for i, each in ipairs(type.returns) do results[i] = value(each, depth + 2) end
  return ("function(...) %sreturn %s end"):format(body, table.concat(results, ", "))
end

local plain = {}
function plain.integer() return chance(hostility) and one_of(words.extremes) or one_of(words.integers) end
function plain.number()
  if chance(hostility) then return one_of(words.extremes) end
  return chance(60) and one_of(words.numbers) or one_of(words.integers)
end
function plain.boolean() return chance(50) and "true" or "false" end
function plain.string() return one_of(words.strings) end
plain["function"] = function(depth) return callback({ returns = { { kind = "name", name = "heed.Tensor" } } },
  depth) end
function plain.table(depth) return list_of({ kind = "name", name = "any" }, depth) end
function plain.any(depth)
  local kind = one_of { "heed.Tensor", "heed.Tensor", "integer", "number", "string", "heed.Module", "function",
    "boolean" }
  return value({ kind = "name", name = kind }, depth + 1)
end
plain.T = plain.any

--- An expression of this type; depth bounds the nesting, name is that of the parameter or field.
function value(type, depth, name)
  if chance(hostility) and chance(40) then return one_of(words.hostile) end
  local known = name and words.by_name[name]
  if known and chance(65) then return one_of(known) end
  if type.kind == "union" then
    if chance(60) then return value(type.of[1], depth, name) end
    return value(one_of(type.of), depth, name)
  elseif type.kind == "literal" then
    return type.text
  elseif type.kind == "list" then
    return list_of(type.item, depth, name)
  elseif type.kind == "record" then
    return record(type.fields, depth)
  elseif type.kind == "table" then
    return ("{ [%s] = %s }"):format(value(type.key, depth + 1):gsub("^nil$", "1"):gsub("^0 / 0$", "1"),
      value(type.value, depth + 1))
  elseif type.kind == "function" then
    return callback(type, depth)
  end
  local class = type.name
  if plain[class] then return plain[class](depth) end
  if class == "heed.Indices" and chance(50) then
    return one_of { "{ 1, 2 }", "heed.tensor { 1, 2, 3, 4 }:long()", "{ 2, 2 }", "{ { 1, 2, 3, 4 }, { 4, 3, 2, 1 } }" }
  end
  if api.aliases[class] then return value(api.aliases[class], depth, name) end
  if is_options[class] then return record(fields_of(class), depth) end
  if class == "heed.StateDict" and chance(50) then
    return ("(%s):state_dict()"):format(value({ kind = "name", name = "heed.Module" }, depth + 1))
  end
  local variable = chance(50) and variable_of(class)
  return variable or object(class, depth)
end

function arguments_of(call, depth)
  local parameters = call.parameters
  local overload = #call.overloads > 0 and chance(30) and one_of(call.overloads)
  if overload then
    parameters = {}
    for _, each in ipairs(overload.parameters or {}) do
      if each.name ~= "self" then parameters[#parameters + 1] = each end
    end
  end
  local list, given = {}, 0
  for i, each in ipairs(parameters) do
    if each.name == "..." then
      for _ = 1, random(3) do list[#list + 1] = value(each.type, depth + 1) end
      given = #list
    else
      local present = chance(each.optional and 40 or 99)
      list[i] = present and value(each.type, depth + 1, each.name) or "nil"
      if present then given = i end
    end
  end
  if chance(hostility) then given = random(#list + 1) - 1 end
  return table.concat(list, ", ", 1, math.min(given, #list))
end

-- ---- Statements ---------------------------------------------------------------------------------

local function call_statement(call, depth)
  local text = call_text(call, depth)
  local index = #variables + 1
  variables[index] = { index = index, class = call.result or "any" }
  return ("T.try(%q, function() v[%d] = %s end)"):format(call.label, index, text)
end

local function object_text(depth)
  local class = one_of { "heed.Tensor", "heed.Tensor", "heed.Module", "heed.MultiHeadAttention", "heed.Cache",
    "heed.Generator" }
  return value({ kind = "name", name = class }, depth + 1), class
end

local function target() -- what may stand on the left of a dot
  if #variables == 0 then return "v[1]", "any" end
  local variable = one_of(variables)
  return ("v[%d]"):format(variable.index), variable.class
end

local others = {}

function others.field(depth)
  local text, class = target()
  local fields = api.classes[class] and fields_of(class) or {}
  if #fields == 0 then return ("T.try('read', function() return %s.weight end)"):format(text) end
  local field = one_of(fields)
  local name = chance(90) and field.name or one_of { "no_such", "weight", "part", "mask", "training" }
  if chance(50) then return ("T.try('read', function() return %s[%q] end)"):format(text, name) end
  return ("T.try('assign', function() %s[%q] = %s end)"):format(text, name, value(field.type, depth + 1, name))
end
function others.part(depth) -- shared and cyclic modules
  local name = one_of { "part", "weight", "W_query", "out_proj", "other" }
  local whole, part = variable_of "heed.Module" or "T.own()", variable_of "heed.Module" or object_text(depth)
  return ("T.try('assign', function() %s[%q] = %s end)"):format(whole, name, part)
end
function others.operator(depth)
  local a, b = object_text(depth), value({ kind = "name", name = "heed.Operand" }, depth + 1)
  local operator = one_of { "+", "-", "*", "/", "%", "^", "==", "<", "..", "<=" }
  return ("T.try('operator', function() return (%s) %s (%s) end)"):format(a, operator, b)
end
function others.index(depth)
  local a = variable_of "heed.Tensor" or one_of(words.tensors)
  local i = one_of { "1", "-1", "{ 1, 2 }", "{ {} , 1 }", "{ { 1, 2 }, { 2, -1 } }", "heed.tensor { 1, 2 }:long()",
    "heed.randn(4, 4):gt(0)", "{ heed.newaxis }", "{ { 4, 1, -1 } }", "0", "2 ^ 53", "T.proxy { 1, 2 }" }
  if chance(50) then return ("T.try('index', function() return (%s)[%s] end)"):format(a, i) end
  return ("T.try('index', function() local x = %s x[%s] = %s end)"):format(a, i, plain.any(depth))
end
function others.view(depth)
  local index = #variables + 1
  variables[index] = { index = index, class = "heed.Tensor" }
  local a = variable_of "heed.Tensor" or one_of(words.tensors)
  local text = one_of { "%s.T", "%s[{ { 1, 2 } }]", "%s:expand(2, 4, 4)", "%s:unsqueeze(1)", "%s:narrow(1, 1, 2)",
    "%s.mT",
    "%s:reshape(-1)", "%s:select(1, 1)", "%s:diagonal()" }
  if depth > 6 then text = "%s.T" end
  return ("T.try('view', function() v[%d] = %s end)"):format(index, text:format(a:find "^v" and a or "(" .. a .. ")"))
end
function others.text() return ("T.try('text', function() return tostring(%s), #T.printed(%s) end)"):format(target(),
  (target())) end
function others.loop() return ("T.try('loop', function() T.drain(%s) end)"):format((target())) end
function others.steal()
  return ("T.steal(%s, %s, %q)"):format((target()), (target()),
    one_of { "__gc", "__index", "__newindex", "__len", "__call", "__close", "__add", "__tostring", "__pairs", "__eq" })
end
function others.release() return ("T.release(%s)"):format((target())) end
function others.finalizer(depth)
  return ("T.during(%d, function() %s end, function() %s end)"):format(random(5), statement(depth + 1, true),
    statement(depth + 1))
end
function others.hook(depth)
  return ("T.hooked(%d, function() %s end, function() %s end)"):format(random(random(300)), statement(depth + 1, true),
    statement(depth + 1))
end
function others.coroutine(depth)
  return ("T.resumed(%d, function() %s coroutine.yield() %s end)"):format(random(3) - 1, statement(depth + 1),
    statement(depth + 1))
end
function others.gradients(depth)
  local x = variable_of "heed.Tensor" or one_of(words.tensors)
  return ("T.recorded(%s, function(x) %s %s end, %q)"):format(x, statement(depth + 1), statement(depth + 1),
    one_of { "twice", "once", "steps", "raising", "in place", "retained" })
end
function others.limit(depth)
  return ("T.limited(%q, %s, function() %s end)"):format(one_of { "memory", "threads", "seconds", "work", "files" },
    one_of { "0", "100", "1000", "10000" }, statement(depth + 1))
end
function others.own() return others.define() end
function others.define()
  local index = #variables + 1
  variables[index] = { index = index, class = "heed.Module" }
  return ("v[%d] = T.own(%s, %q)"):format(index, variable_of "heed.Module" or "nil",
    one_of { "plain", "raising", "yielding", "half", "changing" })
end

local kinds = {}
for name in pairs(others) do kinds[#kinds + 1] = name end
table.sort(kinds)

--- One statement; inner ones are short.
function statement(depth, short)
  if depth < 3 and not short and chance(25) then return others[one_of(kinds)](depth) end
  return call_statement(one_of(calls), depth + 1)
end

--- Arguments that fit a method of tensors, as a text; the tensor comes first.
function grammar.arguments(call)
  variables, hostility = {}, 0
  local sample = samples.arguments[call.label]
  if sample and chance(60) then return sample end
  local list = arguments_of(call, 0)
  return one_of(words.tensors) .. (list == "" and "" or ", " .. list)
end

--- The statements of a program. `subjects` calls come from the list in turn, so that programs of consecutive seeds call
--- all of it.
function grammar.program(seed, subjects)
  chances.seed(seed)
  variables, hostility = {}, one_of { 0, 0, 4, 15 }
  local list = {}
  local first = seed * subjects
  for i = 0, subjects - 1 do
    for _ = 1, chance(35) and 1 or 0 do list[#list + 1] = statement(0) end
    list[#list + 1] = call_statement(calls[(first + i) * stride % #calls + 1], 0)
  end
  return list
end

--- The program as a script of its own.
function grammar.text(list)
  return 'local T = require "tests.fuzz.trials"\nlocal heed, v = T.heed, T.variables()\n'
    .. table.concat(list, "\n") .. "\n"
end

return grammar
