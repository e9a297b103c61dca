--- The text of a module, in the format of PyTorch's repr.

local core = require "heed.core"
local E = require "heed.nn.entries"

local repr = {}

-- A frame takes a level of the C stack and starts a time limit of its own, so parts are printed through the functions
-- that frames call.
local unframed = E.unframed

local function extra_of(self) return E.record(self) and "" or core.modules.describe(self) end

repr.extra = core.frame(function(self)
  E.check_self(self, "extra_repr")
  return extra_of(self)
end)
unframed[repr.extra] = extra_of

-- ---- Text ---------------------------------------------------------------------------------------

-- `margin` is a newline and the current indentation. Texts are built with their final indentation, since indenting the
-- text of the parts again at each level would take time quadratic in the depth.

local function at_margin(text, margin) return margin == "\n" and text or (text:gsub("\n", margin)) end

--- The text of a part; its class may override __tostring.
local function text_of(module, margin)
  local method = module.__tostring
  if unframed[method] then return unframed[method](module, margin) end
  return at_margin(method(module), margin)
end

--- The lines "(name): part" of a module's text.
local function part_lines(module, margin)
  local lines = {}
  for i, part in ipairs(E.parts(module)) do
    lines[i] = at_margin(("(%s): "):format(part.name), margin) .. text_of(part.value, margin)
  end
  return lines
end

--- The same for a ModuleList, with equal neighbours joined into one line: "(0-2): 3 x Linear(...)".
local function list_lines(module, margin)
  local groups = {}
  for i, part in ipairs(E.parts(module)) do
    local text, group = text_of(part.value, margin), groups[#groups]
    if group and group.text == text then
      group.last = i - 1
    else
      groups[#groups + 1] = { first = i - 1, last = i - 1, text = text }
    end
  end
  local lines = {}
  for i, group in ipairs(groups) do
    local label, times = ("(%d): "):format(group.first), group.last - group.first + 1
    if times > 1 then label = ("(%d-%d): %d x "):format(group.first, group.last, times) end
    lines[i] = label .. group.text
  end
  return lines
end

local function module_text(module, is_list, margin)
  E.check_cancel "tostring"
  local inside = margin .. "  "
  local extra = module.extra_repr
  extra = (unframed[extra] or extra)(module)
  E.check_type(extra, "string", "extra_repr", "the result")
  local lines = (is_list and list_lines or part_lines)(module, inside)
  local name = at_margin(E.class_name(module), margin)
  if #lines == 0 and not extra:find("\n", 1, true) then return name .. "(" .. extra .. ")" end
  if extra ~= "" then table.insert(lines, 1, at_margin(extra, inside)) end
  return name .. "(" .. inside .. table.concat(lines, inside) .. margin .. ")"
end

--- A __tostring method. Modules for which is_list(module) is true are printed as lists.
function repr.method(is_list)
  local function text(self, margin) return module_text(self, is_list(self), margin) end
  local method = core.frame(function(self)
    E.check_self(self, "tostring")
    return text(self, "\n")
  end)
  unframed[method] = text
  return method
end

return repr
