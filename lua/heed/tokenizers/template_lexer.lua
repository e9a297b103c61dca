--- From the text of a chat template to tokens: Jinja with trim_blocks and lstrip_blocks, as transformers sets them.
--- Source: the template documentation of Jinja 3.1.
--
-- A token is {kind, value, line}; kinds are "data" (text outside of tags), "name", "string", "number", "float",
-- "operator" (also the ends of tags, "%}" and "}}"), and "tag" with the value "block" or "output", where one begins.

local E = require "heed.nn.entries"

local ENDS = { ["{%"] = "%}", ["{{"] = "}}" }
local KINDS = { ["{%"] = "block", ["{{"] = "output" }
local ESCAPES = { n = "\n", t = "\t", r = "\r", ["\\"] = "\\", ["'"] = "'", ['"'] = '"', ["\n"] = "" }

local M = {}

--- Raises the refusal of something in a line of a template.
function M.refuse(line, message, ...)
  E.fail("apply_chat_template: line %d of the template: " .. message, line, ...)
end

local function count_lines(text, first, last)
  return select(2, text:sub(first, last):gsub("\n", ""))
end

--- The string that begins with a quote at `at`, and the position behind it.
local function read_string(text, at, line)
  local quote, parts, from = text:sub(at, at), {}, at + 1
  while true do
    local found = text:find("[\\" .. quote .. "]", from)
    if not found then M.refuse(line, "a string has no end") end
    parts[#parts + 1] = text:sub(from, found - 1)
    local next_byte = text:sub(found + 1, found + 1)
    if text:byte(found) ~= 92 then return table.concat(parts), found + 1 end
    local escape = ESCAPES[next_byte]
    if next_byte == "u" or next_byte == "x" then
      local digits = text:match(next_byte == "u" and "^%x%x%x%x" or "^%x%x", found + 2)
      if not digits then M.refuse(line, "\\%s in a string needs %d digits", next_byte, next_byte == "u" and 4 or 2) end
      local code = tonumber(digits, 16)
      if code >= 0xD800 and code <= 0xDFFF then
        M.refuse(line, "\\u%s is half of a surrogate pair; write the character itself", digits)
      end
      escape, found = require("heed.compat").character(code), found + #digits
    end
    parts[#parts + 1] = escape or "\\" .. next_byte
    from = found + 2
  end
end

local OPERATORS = { ["=="] = true, ["!="] = true, ["<="] = true, [">="] = true, ["//"] = true, ["**"] = true }

--- Appends the tokens of a tag, whose text begins at `at`, and returns the position behind its end, and its line.
local function read_tag(text, at, line, opening, tokens)
  local ending, depth = ENDS[opening], 0
  local function add(kind, value) tokens[#tokens + 1] = { kind, value, line } end
  add("tag", KINDS[opening])
  while true do
    if #tokens % 1024 == 0 then E.check_cancel "apply_chat_template" end
    local first = text:find("%S", at)
    if not first then M.refuse(line, "'%s' has no '%s'", opening, ending) end
    line, at = line + count_lines(text, at, first - 1), first
    local two = text:sub(at, at + 1)
    local trims = two:find "^[-+]" and text:sub(at + 1, at + 2) == ending
    if depth == 0 and (two == ending or trims) then
      add("operator", ending)
      at = at + (trims and 3 or 2)
      if trims and two:byte() == 45 then
        local behind = text:find("%S", at) or #text + 1
        line, at = line + count_lines(text, at, behind - 1), behind
      elseif opening == "{%" and not trims and text:sub(at, at) == "\n" then
        line, at = line + 1, at + 1 -- trim_blocks
      end
      return at, line
    end
    local name = text:match("^[%a_][%w_]*", at)
    local number = text:match("^%d+%.%d+[eE]?[-+]?%d*", at) or text:match("^%d[%d_]*", at)
    if name then
      add("name", name)
      at = at + #name
    elseif number then
      local value = tonumber((number:gsub("_", "")))
      if not value then M.refuse(line, "'%s' is not a number", number) end
      add(number:find(".", 1, true) and "float" or "number", value)
      at = at + #number
    elseif two:find "^['\"]" then
      local value, behind = read_string(text, at, line)
      add("string", value)
      line, at = line + count_lines(text, at, behind - 1), behind
    else
      local operator = OPERATORS[two] and two or two:sub(1, 1)
      if not operator:find "^[-+*/%%~<>=!|.,:()%[%]{}]" or operator == "!" then
        M.refuse(line, "the character '%s' has no meaning there", operator)
      end
      if operator:find "^[(%[{]" then depth = depth + 1 end
      if operator:find "^[)%]}]" then depth = depth - 1 end
      add("operator", operator)
      at = at + #operator
    end
  end
end

--- The tokens of a template; the last has the kind "end".
function M.tokens(text)
  text = text:gsub("\r\n?", "\n"):gsub("\n$", "", 1)
  local tokens, at, line = {}, 1, 1
  while true do
    E.check_cancel "apply_chat_template"
    local first, _, opening = text:find("({[%%{#])", at)
    local last = first and first - 1 or #text
    local data = text:sub(at, last)
    local sign = first and text:sub(first + 2, first + 2)
    if sign == "-" then
      local kept = #data
      while kept > 0 and data:find("^%s", kept) do kept = kept - 1 end
      data = data:sub(1, kept)
    elseif first and opening ~= "{{" and sign ~= "+" then -- lstrip_blocks
      local stripped = data:match "^(.*\n)[ \t]*$" or (at == 1 or text:sub(at - 1, at - 1) == "\n")
        and data:match "^[ \t]*$" and ""
      data = stripped or data
    end
    if data ~= "" then tokens[#tokens + 1] = { "data", data, line } end
    line = line + count_lines(text, at, last)
    if not first then break end
    at = first + 2 + ((sign == "-" or sign == "+") and 1 or 0)
    if opening == "{#" then
      local close = text:find("#}", at, true)
      if not close then M.refuse(line, "'{#' has no '#}'") end
      line = line + count_lines(text, at, close)
      local trims = text:sub(close - 1, close - 1) == "-"
      at = close + 2
      local behind = trims and (text:find("%S", at) or #text + 1) or text:sub(at, at) == "\n" and at + 1 or at
      line, at = line + count_lines(text, at, behind - 1), behind
    else
      at, line = read_tag(text, at, line, opening, tokens)
    end
  end
  tokens[#tokens + 1] = { "end", "the end", line }
  return tokens
end

return M
