--- Checkpoints: nested tables of tensors, modules, objects with state_dict, generators, numbers, strings and booleans
--- in a .safetensors file. The tensors are the file's, named by their path ("model.weight"), strings that are not text
--- are int8 tensors, and the table itself is JSON in the metadata:
---   {"$state_dict": [name, tensor, …]}   a state dict: names, and the names of the tensors
---   {"$tensor": name}   {"$bytes": name}   {"$float": 12}   {"$number": "nan"}   {"$integer": "9007199254740993"}
---   {"$table": [[key, value], …]}   a table with keys that are not all plain names
--- and lists, objects, numbers, strings and booleans as they are.

local compat = require "heed.compat"
local core = require "heed.core"
local E = require "heed.nn.entries"
local state_dict = require "heed.nn.state_dict"
local files, primitives = core.files, core.modules

local M = { KEY = "heed.checkpoint" } -- the key in the metadata

local DEEPEST = 20 -- tables; each may be 3 levels of JSON, of which the reader allows 64
local LONGEST = 65536 -- longer strings are tensors
local MOST, MOST_BYTES = 1000000, 16000000 -- values and bytes of the JSON that the reader allows
local EXACT = 2 ^ 53

-- ---- Writing ------------------------------------------------------------------------------------

local NEEDED = "a tensor, a module, an object with state_dict, a generator, a number, a string, a boolean or a table "
  .. "of these"

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\" }
local function escape(c) return ESCAPES[c] or ("\\u%04x"):format(c:byte()) end

--- Whether a string can be written as text: short, UTF-8, without zero bytes.
local function is_text(s) return #s <= LONGEST and not s:find("\0", 1, true) and not core.text.invalid(s) end

local function quoted(s) return '"' .. s:gsub('[\1-\31\127"\\]', escape) .. '"' end

local function emit(to, text)
  to.count, to.bytes = to.count + 1, to.bytes + #text
  to.parts[#to.parts + 1] = text
  if to.count % 1024 == 0 then E.check_cancel "save" end
  if to.count > MOST or to.bytes > MOST_BYTES then
    E.fail "save: the tables hold more than a million numbers and texts; put them into tensors"
  end
end

--- Adds a tensor to the file. Its name is the path, with a number if that is taken.
local function add_tensor(to, path, tensor)
  local name, n = path, 1
  while to.taken[name] do
    n = n + 1
    name = ("%s:%d"):format(path, n)
  end
  to.taken[name] = true
  to.names[#to.names + 1], to.tensors[#to.names + 1] = name, primitives.plain(tensor)
  return name
end

local function add_string(to, path, s)
  if is_text(s) then return emit(to, quoted(s)) end
  emit(to, ('{"$bytes":%s}'):format(quoted(add_tensor(to, path, core.from_string(s, "int8", #s)))))
end

local function add_number(to, n)
  if n ~= n or n == math.huge or n == -math.huge or n == 0 and 1 / n < 0 then
    return emit(to, ('{"$number":"%s"}'):format(n ~= n and "nan" or n > 0 and "inf" or n < 0 and "-inf" or "-0"))
  end
  local whole = n % 1 == 0 and n >= -EXACT and n <= EXACT
  if compat.has_integer_type(n) then
    return emit(to, whole and ("%.0f"):format(n) or ('{"$integer":"%d"}'):format(n))
  end
  local text = ("%.15g"):format(n)
  if tonumber(text) ~= n then text = ("%.17g"):format(n) end
  text = text:gsub(",", ".") -- the decimal point of some locales
  emit(to, whole and ('{"$float":%s}'):format(text) or text)
end

local function add_state_dict(to, path, state)
  local list = {}
  for name, tensor in compat.pairs(state) do
    if not E.is_tensor(tensor) then E.reject("save", ("'%s.%s'"):format(path, name), tensor, "a tensor") end
    if not is_text(name) then E.fail("save: a name in '%s' is not UTF-8; it must be", path) end
    list[#list + 1] = quoted(name) .. "," .. quoted(add_tensor(to, path .. "." .. name, tensor))
    E.check_cancel "save"
  end
  emit(to, '{"$state_dict":[' .. table.concat(list, ",") .. "]}")
end

--- The keys of a table, sorted, and whether they are 1 to n, or all plain names.
local function keys_of(t, path)
  local keys, numbers, names = {}, 0, true
  for key in next, t do
    local kind = type(key)
    if kind ~= "string" and kind ~= "boolean" and not (kind == "number" and key == key) then
      E.reject("save", ("a key of '%s'"):format(path), key, "a string, a number or a boolean")
    end
    if kind == "number" then numbers = numbers + 1 end
    names = names and kind == "string" and key:sub(1, 1) ~= "$" and is_text(key)
    keys[#keys + 1] = key
    if #keys % 1024 == 0 then E.check_cancel "save" end
  end
  local list = #keys > 0 and numbers == #keys
  for i = 1, list and #keys or 0 do list = list and rawget(t, i) ~= nil end
  E.sort(keys, "save", function(a, b)
    local kind_a, kind_b = type(a), type(b)
    if kind_a ~= kind_b then return kind_a < kind_b end
    if kind_a == "boolean" then return a and not b end
    return a < b
  end)
  return keys, list, names
end

local add

local function add_table(to, path, t, depth)
  if to.open[t] then E.fail("save: '%s' contains itself; a checkpoint is a tree", path) end
  if depth > DEEPEST then E.fail("save: '%s' is nested more than %d tables deep", path, DEEPEST) end
  to.open[t] = true
  local keys, list, names = keys_of(t, path)
  emit(to, list and "[" or names and "{" or '{"$table":[')
  for i, key in ipairs(keys) do
    if i > 1 then emit(to, ",") end
    local value = rawget(t, key)
    local name = type(key) == "string" and not is_text(key) and "?" or tostring(key)
    local inner = path == "" and name or path .. "." .. name
    if list then
      add(to, inner, value, depth + 1)
    elseif names then
      emit(to, quoted(key) .. ":")
      add(to, inner, value, depth + 1)
    else
      emit(to, "[")
      add(to, inner, key, depth + 1)
      emit(to, ",")
      add(to, inner, value, depth + 1)
      emit(to, "]")
    end
  end
  emit(to, list and "]" or names and "}" or "]}")
  to.open[t] = nil
end

local function field(value, name) return value[name] end

--- The method of an object; nil if it has none.
local function method_of(value, name)
  if type(value) ~= "userdata" and not (type(value) == "table" and getmetatable(value)) then return nil end
  local found, f = pcall(field, value, name)
  return found and type(f) == "function" and f or nil
end
M.method_of = method_of

function add(to, path, value, depth)
  local kind = type(value)
  if E.is_tensor(value) then return emit(to, ('{"$tensor":%s}'):format(quoted(add_tensor(to, path, value)))) end
  if E.is_module(value) then return add_state_dict(to, path, state_dict.of(value)) end
  if state_dict.is_state_dict(value) then return add_state_dict(to, path, value) end
  if E.is_generator(value) then return add_string(to, path, value:get_state()) end
  if kind == "string" then return add_string(to, path, value) end
  if kind == "number" then return add_number(to, value) end
  if kind == "boolean" then return emit(to, tostring(value)) end
  local state_of = method_of(value, "state_dict")
  if state_of then
    local state = state_of(value)
    if not state_dict.is_state_dict(state) and (not E.is_list(state) or getmetatable(state)) then
      E.reject("save", ("'%s': the result of state_dict"):format(path), state, "a table")
    end
    return add(to, path, state, depth)
  end
  if kind == "table" and not E.record(value) and not getmetatable(value) then
    return add_table(to, path, value, depth)
  end
  E.reject("save", ("'%s'"):format(path), value, NEEDED)
end

--- The names and tensors of the file, and the text that stands in the metadata.
function M.encode(what)
  local to = { names = {}, tensors = {}, taken = {}, open = {}, parts = {}, count = 0, bytes = 0 }
  add(to, "", what, 1)
  return to.names, to.tensors, table.concat(to.parts)
end

-- ---- Reading ------------------------------------------------------------------------------------

local BROKEN = {} -- raised, and caught in M.decode

local function broken(what, ...) error({ [BROKEN] = what:format(...) }, 0) end

local function tensor_of(from, name)
  local tensor = type(name) == "string" and from.tensors[name] or nil
  if tensor == nil and type(name) == "string" and from.numbers and from.numbers[name] then
    tensor = files.open(from.archive, from.numbers[name])
  end
  if tensor == nil then broken("the tensor %s is missing", E.what(name)) end
  return tensor
end

local NUMBERS = { nan = 0 / 0, inf = math.huge, ["-inf"] = -math.huge, ["-0"] = -1 / math.huge }

local function entries_of(list)
  if type(list) ~= "table" then broken "a list is expected" end
  return list
end

local decode

local special = {}
special["$tensor"] = tensor_of
special["$bytes"] = function(from, name)
  local tensor = tensor_of(from, name)
  if tensor.dtype ~= "int8" then broken("the bytes '%s' have the dtype %s", name, tensor.dtype) end
  return tensor:to_string()
end
special["$float"] = function(_, n)
  if type(n) ~= "number" then broken "a number is expected" end
  return n + 0.0
end
special["$number"] = function(_, text) return NUMBERS[text] or broken "a number is expected" end
special["$integer"] = function(_, text)
  return type(text) == "string" and #text < 24 and tonumber(text) or broken "an integer is expected"
end
special["$state_dict"] = function(from, list)
  local names, values = {}, {}
  entries_of(list)
  for i = 1, #list, 2 do
    local name = list[i]
    if type(name) ~= "string" or values[name] ~= nil then broken "a state dict has an invalid name" end
    names[#names + 1], values[name] = name, tensor_of(from, list[i + 1])
    E.check_cancel "load"
  end
  return state_dict.from(names, values)
end
special["$table"] = function(from, list)
  local t = {}
  for i, pair in ipairs(entries_of(list)) do
    local key = decode(from, entries_of(pair)[1])
    if key == nil or key ~= key then broken "a table has an invalid key" end
    t[key] = decode(from, pair[2])
    if i % 1024 == 0 then E.check_cancel "load" end
  end
  return t
end

--- JSON allows 64 levels, which bounds the recursion.
function decode(from, node)
  if type(node) ~= "table" then return node end
  local key, value = next(node)
  if type(key) == "string" and key:sub(1, 1) == "$" then
    local read = special[key]
    if not read or next(node, key) ~= nil then broken("%s is unknown", E.what(key)) end
    return read(from, value)
  end
  local t, count = {}, 0
  for k, each in next, node do
    t[k] = decode(from, each)
    count = count + 1
    if count % 1024 == 0 then E.check_cancel "load" end
  end
  return t
end

--- The table of a checkpoint, or nil and a message.
function M.decode(path, text, tensors, numbers, archive)
  local tree, message = files.parse(path, text)
  if tree == nil then return nil, message end
  local done, result = pcall(decode, { tensors = tensors, numbers = numbers, archive = archive }, tree)
  if done and type(result) == "table" then return result end
  if not done and (type(result) ~= "table" or not result[BROKEN]) then error(result, 0) end
  return nil, ("load: '%s': the checkpoint is broken: %s"):format(path, done and "it is not a table" or result[BROKEN])
end

return M
