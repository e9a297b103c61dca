--- From the tokens of a chat template to a tree. A node is a table whose first element is its kind, with `line`.

local E = require "heed.nn.entries"
local lexer = require "heed.tokenizers.template_lexer"

local DEEPEST = 100 -- nested expressions and blocks
local KEYWORDS = { ["and"] = true, ["or"] = true, ["not"] = true, ["if"] = true, ["else"] = true, ["in"] = true,
  ["is"] = true }
local CONSTANTS = { ["true"] = true, ["True"] = true, ["false"] = false, ["False"] = false }

local Parser = {}
Parser.__index = Parser

function Parser:peek(kind, value)
  local token = self.tokens[self.at]
  return token[1] == kind and (value == nil or token[2] == value)
end

--- The value of the next token, if it is that; it is then consumed.
function Parser:accept(kind, value)
  if not self:peek(kind, value) then return nil end
  local token = self.tokens[self.at]
  self.at, self.line = self.at + 1, token[3]
  if self.at % 1024 == 0 then E.check_cancel "apply_chat_template" end
  return token[2]
end

function Parser:refuse(message, ...) lexer.refuse(self.tokens[self.at][3], message, ...) end

function Parser:expect(kind, value)
  local found = self:accept(kind, value)
  if found == nil then
    local token = self.tokens[self.at]
    self:refuse("'%s' comes where %s must be", tostring(token[2]):sub(1, 40), value and ("'%s'"):format(value)
      or "a " .. kind)
  end
  return found
end

function Parser:node(kind, ...)
  local node = { kind, ... }
  node.line = self.line
  return node
end

function Parser:deeper()
  self.depth = self.depth + 1
  if self.depth > DEEPEST then self:refuse("more than %d expressions or blocks are nested", DEEPEST) end
end

-- ---- Expressions --------------------------------------------------------------------------------

--- Expressions between commas up to a closing operator.
function Parser:list(close)
  local items = {}
  while not self:accept("operator", close) do
    items[#items + 1] = self:expression()
    if not self:accept("operator", ",") then
      self:expect("operator", close)
      break
    end
  end
  return items
end

--- The arguments of a call behind its "(": a list, and a list of {name, value}.
function Parser:arguments()
  local items, named = {}, {}
  while not self:accept("operator", ")") do
    if self:peek("operator", "*") or self:peek("operator", "**") then
      self:refuse "arguments with * are not supported; write them one by one"
    end
    local following = self.tokens[self.at + 1]
    if self:peek "name" and following[1] == "operator" and following[2] == "=" then
      local name = self:accept "name"
      self:accept("operator", "=")
      named[#named + 1] = { name, self:expression() }
    else
      items[#items + 1] = self:expression()
    end
    if not self:accept("operator", ",") then
      self:expect("operator", ")")
      break
    end
  end
  return items, named
end

function Parser:dictionary()
  local node = self:node "dict"
  while not self:accept("operator", "}") do
    local key = self:expression()
    self:expect("operator", ":")
    node[#node + 1] = { key, self:expression() }
    if not self:accept("operator", ",") then
      self:expect("operator", "}")
      break
    end
  end
  return node
end

function Parser:primary()
  local token = self.tokens[self.at]
  local kind, value = token[1], token[2]
  if kind == "string" then
    local text = self:accept "string"
    while self:peek "string" do text = text .. self:accept "string" end
    return self:node("constant", text)
  elseif kind == "number" or kind == "float" then
    self.at, self.line = self.at + 1, token[3]
    return self:node(kind == "float" and "float" or "constant", value)
  elseif kind == "name" and not KEYWORDS[value] then
    self:accept "name"
    if CONSTANTS[value] ~= nil then return self:node("constant", CONSTANTS[value]) end
    if value == "none" or value == "None" then return self:node "none" end
    return self:node("name", value)
  elseif self:accept("operator", "(") then
    local items = {}
    while not self:accept("operator", ")") do
      items[#items + 1] = self:expression()
      if not self:accept("operator", ",") then
        self:expect("operator", ")")
        if #items == 1 then return items[1] end
        break
      end
    end
    return self:node("list", items, true)
  elseif self:accept("operator", "[") then
    return self:node("list", self:list "]")
  elseif self:accept("operator", "{") then
    return self:dictionary()
  end
  return self:refuse("'%s' comes where a value must be", tostring(value):sub(1, 40))
end

--- x[i] or x[first:last:step], behind "[".
function Parser:subscript(of)
  local parts, slices = {}, false
  for i = 1, 3 do
    if not self:peek("operator", ":") and not self:peek("operator", "]") then parts[i] = self:expression() end
    if not self:accept("operator", ":") then break end
    slices = true
  end
  self:expect("operator", "]")
  if slices then return self:node("slice", of, parts) end
  if not parts[1] then self:refuse "[] has no index" end
  return self:node("item", of, parts[1])
end

function Parser:postfix(of)
  local before = self.depth
  while true do
    self:deeper() -- a chain is nested in the tree
    if self:accept("operator", ".") then
      local number = self:accept "number"
      of = number and self:node("item", of, self:node("constant", number))
        or self:node("attribute", of, self:expect "name")
    elseif self:accept("operator", "[") then
      of = self:subscript(of)
    elseif self:accept("operator", "(") then
      of = self:node("call", of, self:arguments())
    else
      break
    end
  end
  self.depth = before
  return of
end

--- The filters behind an expression.
function Parser:filters(of)
  while self:accept("operator", "|") do
    local name = self:expect "name"
    local items, named = {}, {}
    if self:accept("operator", "(") then items, named = self:arguments() end
    of = self:postfix(self:node("filter", of, name, items, named))
  end
  return of
end

--- x is [not] test [argument].
function Parser:test(of)
  while self:accept("name", "is") do
    local negated = self:accept("name", "not")
    local token = self.tokens[self.at]
    local name = token[2] == "in" and self:accept "name" or self:expect "name"
    local items = {}
    if self:accept("operator", "(") then
      items = self:arguments()
    else
      local following = self.tokens[self.at]
      local kind, value = following[1], following[2]
      if kind == "string" or kind == "number" or kind == "name" and not KEYWORDS[value]
        or kind == "operator" and (value == "[" or value == "{") then
        items = { self:postfix(self:primary()) }
      end
    end
    of = self:node("test", of, name, items)
    if negated then of = self:node("not", of) end
  end
  return of
end

function Parser:unary()
  self:deeper()
  local result
  if self:accept("operator", "-") then
    result = self:node("negative", self:unary())
  elseif self:accept("operator", "+") then
    result = self:unary()
  else
    result = self:postfix(self:primary())
  end
  result = self:test(self:filters(result))
  self.depth = self.depth - 1
  return result
end

-- Levels of operators, the weakest first; all associate to the left.
local LEVELS = {
  { "+", "-" }, { "~" }, { "*", "/", "//", "%" }, { "**" },
}

function Parser:binary(level)
  if not LEVELS[level] then return self:unary() end
  local left, before = self:binary(level + 1), self.depth
  while true do
    local operator
    for _, each in ipairs(LEVELS[level]) do operator = operator or self:accept("operator", each) end
    if not operator then break end
    self:deeper()
    left = self:node("binary", operator, left, self:binary(level + 1))
  end
  self.depth = before
  return left
end

local COMPARISONS = { "==", "!=", "<", ">", "<=", ">=" }

function Parser:comparison()
  local left = self:binary(1)
  local links = {}
  while true do
    local operator
    for _, each in ipairs(COMPARISONS) do operator = operator or self:accept("operator", each) end
    local following = self.tokens[self.at + 1]
    if not operator and self:accept("name", "in") then
      operator = "in"
    elseif not operator and self:peek("name", "not") and following[2] == "in" then
      self.at = self.at + 2
      operator = "not in"
    end
    if not operator then break end
    links[#links + 1] = { operator, self:binary(1) }
  end
  return #links > 0 and self:node("compare", left, links) or left
end

function Parser:negation()
  if not self:accept("name", "not") then return self:comparison() end
  self:deeper()
  local result = self:node("not", self:negation())
  self.depth = self.depth - 1
  return result
end

function Parser:conjunction()
  local items = { self:negation() }
  while self:accept("name", "and") do items[#items + 1] = self:negation() end
  return #items > 1 and self:node("and", items) or items[1]
end

function Parser:disjunction()
  local items = { self:conjunction() }
  while self:accept("name", "or") do items[#items + 1] = self:conjunction() end
  return #items > 1 and self:node("or", items) or items[1]
end

--- An expression, with its inline if.
function Parser:expression()
  self:deeper()
  local value = self:disjunction()
  while self:accept("name", "if") do
    local condition = self:disjunction()
    value = self:node("choice", condition, value, self:accept("name", "else") and self:expression() or nil)
  end
  self.depth = self.depth - 1
  return value
end

--- An expression, or several with commas between them as a tuple.
function Parser:tuple()
  local first = self:expression()
  if not self:peek("operator", ",") then return first end
  local items = { first }
  while self:accept("operator", ",") do items[#items + 1] = self:expression() end
  return self:node("list", items, true)
end

return Parser
