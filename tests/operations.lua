-- The operations as src/ops/ops.def lists them and as src/heed.h declares them, read from the two texts.
local support = require "tests.support"

local operations = {}

-- Without comments, and with continued lines of macros joined.
local function plain(text) return (text:gsub("/%*.-%*/", " "):gsub("\\\n", " ")) end

-- The names of each list macro: lists.HEED_UNARY_LIST = { "exp", … }.
local function lists_of(header)
  local lists = {}
  for list, items in header:gmatch("#define (HEED_%u+_LIST)%(X%)([^\n]*)") do
    lists[list] = {}
    for name in items:gmatch("X%(([%l%d_]+)%)") do table.insert(lists[list], name) end
  end
  return lists
end

--- The rows of ops.def, in order: { name, kind (nil for an operation of its own signature), inputs, lua }. Operations
--- that are written in Lua have the kind LUA and no inputs.
function operations.listed(definition, header)
  definition = plain(definition or support.read "src/ops/ops.def")
  local lists, inputs_of, rows = lists_of(plain(header or support.read "src/heed.h")), {}, {}
  for kind, inputs in definition:gmatch("#define (OP_%u+)%(name%) OP%(name, (%w+), name%)") do
    inputs_of[kind] = inputs
  end
  local function add(name, kind)
    rows[#rows + 1] = { name = name, kind = kind:sub(4), inputs = assert(inputs_of[kind], kind), lua = name }
  end
  for line in definition:gmatch("[^\n]+") do
    local name, inputs, lua = line:match("^OP%((%w[%w_]*), (%w+), ([%w_]+)%)$")
    local kind, one = line:match("^(OP_%u+)%((%w[%w_]*)%)$")
    local composed = line:match("^OP_LUA%((%w[%w_]*), %w+%)$") or line:match("^OP_LUA_FREE%((%w[%w_]*), %w+%)$")
    local list, each = line:match("^(HEED_%u+_LIST)%((OP_%u+)%)$")
    if name then
      rows[#rows + 1] = { name = name, inputs = inputs, lua = lua }
    elseif composed then
      rows[#rows + 1] = { name = composed, kind = "LUA", lua = composed }
    elseif kind then
      add(one, kind)
    elseif list then
      for _, member in ipairs(assert(lists[list], list)) do add(member, each) end
    else
      assert(line:find("^%s*$") or line:find("^#"), "not a row of ops.def: " .. line)
    end
  end
  return rows
end

--- The names of the operations of these kinds ("UNARY", "BINARY", …), in order.
function operations.of_kinds(...)
  local wanted, names = {}, {}
  for _, kind in ipairs { ... } do wanted[kind] = true end
  for _, row in ipairs(operations.listed()) do
    if wanted[row.kind] then names[#names + 1] = row.name end
  end
  return names
end

local OTHERS = { -- of the graph that operations leave behind, and of optimisers
  backward = true, backward_steps_new = true, grad = true, record = true,
  adam_step = true, rmsprop_step = true, sgd_step = true, clip_grad_norm = true, clip_grad_value = true,
  total_norm = true,
}

--- The operations that heed.h declares: functions of a context and of tensors that neither make a tensor from
--- memory (heed_tensor_…), nor make masks, nor read or write files. declared[name] is the number of tensors that it
--- reads, as in ops.def, and true for the members of a list, which share one declaration.
function operations.declared(header)
  header = plain(header or support.read "src/heed.h")
  local declared = {}
  for list, names in pairs(lists_of(header)) do
    if header:find("\n" .. list .. "%(X%)\n") then
      for _, name in ipairs(names) do declared[name] = true end
    end
  end
  local text = header:gsub("\n#[^\n]*", "")
  for name, parameters in text:gmatch("HEED_CALL heed_([%l%d_]+)(%b())") do
    local is_operation = parameters:find("^%(heed_context %*ctx,") and parameters:find("heed_tensor *", 1, true)
      and not parameters:find("heed_mask *", 1, true)
      and not (name:find("^tensor_") or name:find("^load_") or name:find("^save_") or OTHERS[name])
    if is_operation then
      local _, inputs = parameters:gsub("const heed_tensor %*%f[%l]", "")
      local many = parameters:find("const heed_tensor *const *", 1, true)
      declared[name] = many and "MANY" or tostring(inputs)
    end
  end
  return declared
end

return operations
