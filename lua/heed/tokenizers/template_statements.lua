--- The statements of chat templates: from tokens to a list of nodes.

local E = require "heed.nn.entries"
local lexer = require "heed.tokenizers.template_lexer"
local Parser = require "heed.tokenizers.template_parser"

local statements = {}

--- The nodes up to one of the tags in `ends`, whose name is returned, too; nil ends at the end of the template.
function Parser:body(ends)
  self:deeper()
  local nodes = {}
  while true do
    local data = self:accept "data"
    if data then
      nodes[#nodes + 1] = self:node("data", data)
    elseif self:accept("tag", "output") then
      nodes[#nodes + 1] = self:node("output", self:tuple())
      self:expect("operator", "}}")
    elseif self:accept("tag", "block") then
      local name = self:expect "name"
      if ends and ends[name] then
        self.depth = self.depth - 1
        return nodes, name
      end
      if not statements[name] then
        lexer.refuse(self.line, "the tag '%s' is not supported; for, if, set, macro, generation, break and continue "
          .. "are", name)
      end
      nodes[#nodes + 1] = statements[name](self)
    elseif self:peek "end" then
      for name in pairs(ends or {}) do
        if name:find "^end" then self:refuse("the template ends before '%s'", name) end
      end
      self.depth = self.depth - 1
      return nodes
    end
    E.check_cancel "apply_chat_template"
  end
end

function Parser:close() self:expect("operator", "%}") end

--- The names that a `for` or `set` assigns: a list of {name} or {object, field}.
function Parser:targets()
  local targets, bracket = {}, self:accept("operator", "(")
  repeat
    local name = self:expect "name"
    targets[#targets + 1] = { name, self:accept("operator", ".") and self:expect "name" or nil }
  until not self:accept("operator", ",")
  if bracket then self:expect("operator", ")") end
  return targets
end

statements["for"] = function(self)
  local node = self:node "for"
  node.targets = self:targets()
  self:expect("name", "in")
  node.from = self:disjunction()
  if self:accept("name", "if") then node.filter = self:disjunction() end
  if self:peek("name", "recursive") then self:refuse "'recursive' loops are not supported; use a macro" end
  self:close()
  local ending
  node.body, ending = self:body { endfor = true, ["else"] = true }
  self:close()
  if ending == "else" then
    node.otherwise = self:body { endfor = true }
    self:close()
  end
  return node
end

statements["if"] = function(self)
  local node, ending = self:node "if", nil
  repeat
    local condition = ending ~= "else" and self:tuple() or nil
    self:close()
    local body
    local final = ending == "else"
    body, ending = self:body(final and { endif = true } or { endif = true, ["else"] = true, ["elif"] = true })
    node[#node + 1] = { condition, body }
  until ending == "endif"
  self:close()
  return node
end

statements["set"] = function(self)
  local node = self:node "set"
  node.targets = self:targets()
  if self:accept("operator", "=") then
    node.value = self:tuple()
    self:close()
  else
    if self:peek("operator", "|") then self:refuse "filters of a block set are not supported; use them behind it" end
    self:close()
    node.body = self:body { endset = true }
    self:close()
  end
  return node
end

statements["macro"] = function(self)
  local node = self:node "macro"
  node.name, node.parameters = self:expect "name", {}
  self:expect("operator", "(")
  while not self:accept("operator", ")") do
    local name = self:expect "name"
    node.parameters[#node.parameters + 1] = { name, self:accept("operator", "=") and self:expression() or nil }
    if not self:accept("operator", ",") then
      self:expect("operator", ")")
      break
    end
  end
  self:close()
  node.body = self:body { endmacro = true }
  self:accept("name", node.name)
  self:close()
  return node
end

statements["generation"] = function(self)
  self:close()
  local node = self:node("generation", (self:body { endgeneration = true }))
  self:close()
  return node
end

for _, name in ipairs { "break", "continue" } do
  statements[name] = function(self)
    self:close()
    return self:node(name)
  end
end

--- The tree of a template: a list of nodes.
return function(text)
  local self = setmetatable({ tokens = lexer.tokens(text), at = 1, line = 1, depth = 0 }, Parser)
  return (self:body())
end
