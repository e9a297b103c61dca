--- A module as text: PyTorch's repr.

local E = require "heed.nn.entries"
local entries = E.entries

local function indent(text) return (text:gsub("\n", "\n  ")) end

--- The lines "(name): part" of a module's text.
local function part_lines(module)
  local lines = {}
  for _, entry in ipairs(entries(module)) do
    if entry.kind == "module" then
      lines[#lines + 1] = indent(("(%s): %s"):format(entry.name, entry.value:__tostring()))
    end
  end
  return lines
end

--- The same for a list, where neighbours with the same text are one line: "(0-2): 3 x Linear(...)".
local function list_lines(module)
  local groups, count = {}, 0
  for _, entry in ipairs(entries(module)) do
    if entry.kind == "module" then
      local text, group = entry.value:__tostring(), groups[#groups]
      if group and group.text == text then
        group.last = count
      else
        groups[#groups + 1] = { first = count, last = count, text = text }
      end
      count = count + 1
    end
  end
  local lines = {}
  for i, group in ipairs(groups) do
    local label, times = ("(%d): "):format(group.first), group.last - group.first + 1
    if times > 1 then label = ("(%d-%d): %d x "):format(group.first, group.last, times) end
    lines[i] = indent(label .. group.text)
  end
  return lines
end

--- PyTorch's repr of a module, or of a list of modules.
return function(module, is_list)
  local extra = module:extra_repr()
  E.check_type(extra, "string", "extra_repr", "the result")
  local lines = (is_list and list_lines or part_lines)(module)
  local name = E.class_name(module)
  if #lines == 0 and not extra:find("\n", 1, true) then return ("%s(%s)"):format(name, extra) end
  if extra ~= "" then table.insert(lines, 1, indent(extra)) end
  return ("%s(\n  %s\n)"):format(name, table.concat(lines, "\n  "))
end
