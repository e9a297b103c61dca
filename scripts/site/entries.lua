-- The public interface as a list of entries, read from the annotations in lua/heed/meta with the parser of the prompt.
-- An entry describes one function under all of its names: x:sum, heed.sum; x:exp, heed.exp, x:exp_; x:softmax,
-- heed.softmax, F.softmax.
local top = ... -- the folder of the repository, with a slash

local entries = {}

-- ---- The parser ---------------------------------------------------------------------------------

local texts, files = {}, {}
local pipe = assert(io.popen("ls " .. top .. "lua/heed/meta/*.lua"))
for path in pipe:lines() do files[#files + 1] = path end
pipe:close()
for i, path in ipairs(files) do
  local file = assert(io.open(path))
  texts[i] = file:read "a"
  file:close()
end
package.preload["heed.prompt.host"] = function() return { annotations = function() return texts end } end
local annotations = assert(loadfile(top .. "lua/heed/prompt/annotations.lua"))()
entries.annotations = annotations

-- ---- Names --------------------------------------------------------------------------------------

local of_tensor = {} -- classes whose methods tensors have, and heed as functions
for _, parent in ipairs(annotations.class("heed.Tensor").parents) do of_tensor[parent] = true end
entries.of_tensor = of_tensor

-- How functions of a table are written; other tables are written as they are named.
local TABLES = {
  ["heed.nn"] = "nn", ["heed.nn.functional"] = "F", ["heed.nn.init"] = "nn.init", ["heed.nn.utils"] = "nn.utils",
  ["heed.ModuleClass"] = "nn.Module", ["heed.TransformerClass"] = "nn.Transformer", ["heed.interpret"] = "interpret",
  ["heed.plot"] = "plot", ["heed.distributed"] = "dist", ["heed.interrupt"] = "interrupt",
  ["heed.wordpiece"] = "wordpiece",
}
-- Methods that several classes have are written with the best known one.
local OBJECTS = {
  ["heed.ModuleClass"] = "Module", ["heed.Surgery"] = "MultiHeadAttention", ["heed.Inspected"] = "MultiHeadAttention",
  ["heed.Items"] = "TensorDataset",
}

local function name_in(class, record)
  if of_tensor[class] then return (record.method or not record.is_function) and "x:" .. record.name end
  if record.method then return (OBJECTS[class] or class:gsub("^heed%.", "")) .. ":" .. record.name end
  local owner = TABLES[class] or class:match "^heed%.(.*)Class$" or class
  return owner .. "." .. record.name
end

-- The fields that are functions, such as nn.Sequential, as records of functions.
local function function_of_field(class, field)
  local inside, after = field.type:match "^fun(%b())(.*)$"
  if not inside then return nil end
  local params = {}
  for name, mark, kind in inside:gsub("^%(", ""):gsub("%)$", ""):gmatch "([%w_.]+)(%??):%s*([^,]+)" do
    if name ~= "self" then params[#params + 1] = { name = name, optional = mark == "?", type = kind, doc = { "" } } end
  end
  local returns = {}
  local result = after:match "^:%s*(.*)$"
  if result then returns[1] = { type = result, doc = "" } end
  local doc = field.doc[1] or ""
  doc = doc ~= "" and { (doc:gsub("^%l", string.upper)) .. "." } or {}
  return { name = field.name, owner = class, is_function = true, method = inside:find "^%(self" ~= nil, params = params,
    returns = returns, doc = doc, overloads = {}, lines = {}, section = "Containers" }
end

-- Tables and classes where a field that is a function gets an entry.
local IS_TABLE = { ["heed.nn"] = true, ["heed.Views"] = true, ["heed.Linear"] = true }

-- ---- The list -----------------------------------------------------------------------------------

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

local function is_described(record)
  for _, line in ipairs(record.doc) do
    if line ~= "" then return true end
  end
  return false
end

--- The entries, {name, record, class, others = {{name, record}…}}, in the order of the annotations. `others` are
--- further names of the same function.
function entries.read()
  local list, by_lines, by_name = {}, {}, {}
  local function add(class, record)
    local name = name_in(class, record)
    local same = by_lines[record.lines]
    if same then
      table.insert(same.others, { name = name, record = record })
      return
    end
    local entry = { name = name, record = record, class = class, others = {} }
    if of_tensor[class] then table.insert(entry.others, { name = "heed." .. record.name, record = record }) end
    list[#list + 1] = entry
    by_lines[record.lines] = entry
    by_name[name] = entry
  end
  local functional
  local function read_class(name)
    local class = annotations.class(name)
    for _, key in ipairs(class.order) do
      local field = class.fields[key]
      if not field.is_function and IS_TABLE[name] then field = function_of_field(name, field) end
      if field and field.is_function then
        local of_tensors = name == "heed.nn.functional" and not is_described(field) and by_name["x:" .. field.name]
        if of_tensors then
          table.insert(of_tensors.others, { name = "F." .. field.name, record = field })
        else
          add(name, field)
        end
      end
    end
  end
  for _, name in ipairs(sorted_keys(annotations.classes())) do
    if name == "heed.nn.functional" then functional = name else read_class(name) end
  end
  read_class(functional) -- after the methods of tensors, with which its functions share entries
  return list
end

--- The name of the class of what a constructor makes, if the entry is the one to describe it: nn.Linear makes
--- heed.Linear.
function entries.made_by(entry)
  local record = entry.record
  local result = record.returns[1] and record.returns[1].type
  local class = result and not record.method and annotations.class(result)
  if class and result ~= "heed.Tensor" and result:match "[%w_]+$" == record.name then return result end
end

return entries
