-- What was typed at the prompt as a function: an expression, also one that ends a chunk, has its value, and the
-- top-level locals are kept for the chunks that follow.
local tokens = require "heed.prompt.tokens"
local concat, find, format, sub = table.concat, string.find, string.format, string.sub

local chunk = {}

local OPENS = { ["function"] = true, ["do"] = true, ["if"] = true, ["repeat"] = true }
local CLOSES = { ["end"] = true, ["until"] = true }
local BRACKETS = { ["("] = 1, ["{"] = 1, ["["] = 1, [")"] = -1, ["}"] = -1, ["]"] = -1 }
local STARTS = {
  ["function"] = true, ["nil"] = true, ["true"] = true, ["false"] = true, ["not"] = true, ["#"] = true, ["..."] = true,
}

-- Adds the names of the `local` statement at list[i] to `locals`: name → whether it can be assigned.
local function add_locals(list, i, locals)
  local function text(k) return list[k] and list[k].text end
  if text(i + 1) == "function" then
    if text(i + 2) then locals[text(i + 2)] = true end
    return
  end
  i = i + 1
  local constant = false -- an attribute before the list applies to all names, in 5.5
  if text(i) == "<" then
    constant = true
    i = i + 3
  end
  while list[i] and list[i].kind == "name" do
    local name = text(i)
    local attribute = text(i + 1) == "<"
    locals[name] = not (constant or attribute)
    i = i + (attribute and 4 or 1)
    if text(i) ~= "," then return end
    i = i + 1
  end
end

-- The top-level locals, where the last statement is if it is a `return`, and where an expression may begin that
-- ends the chunk: positions in the text.
local function analyse(text)
  local list = tokens.of(text)
  local locals, starts, returns = {}, {}, nil
  local depth, any = 0, false
  for i = 1, #list do
    local token = list[i]
    local word = token.text
    if depth == 0 then
      if word == "local" and token.kind == "keyword" then
        add_locals(list, i, locals)
        any = true
      elseif word == "return" and token.kind == "keyword" then
        returns = token.first
      elseif i > 1 then
        local before = list[i - 1]
        local operand = token.kind == "name" or token.kind == "number" or STARTS[word]
        if before.text == ";" or (operand and tokens.ends_expression(before)) then
          starts[#starts + 1] = token.first
        end
      end
    end
    if token.kind == "symbol" then
      depth = depth + (BRACKETS[word] or 0)
    elseif token.kind == "keyword" then
      depth = depth + (OPENS[word] and 1 or CLOSES[word] and -1 or 0)
    end
  end
  return any and locals or nil, starts, returns
end

-- Code that hands the locals to __keep_locals, as functions that read and assign them: later chunks and the functions
-- of this one share the variables.
local function keeping(locals)
  local code = {}
  for name, variable in pairs(locals) do
    local setter = variable and format("function(...) %s = ... end", name) or "false"
    code[#code + 1] = format("__keep_locals(%q, function() return %s end, %s) ", name, name, setter)
  end
  return concat(code)
end

local function is_incomplete(message) return find(message, "<eof>'?$") ~= nil end

--- Compiles the text; load(text, proxied) returns a function, or nil and a message. Returns a function; nil and a
--- message; or nil if more lines are needed, unless there are none (`complete`).
function chunk.compile(text, complete, load)
  if sub(text, 1, 1) == "=" then text = "return " .. sub(text, 2) end -- as in older Luas
  local f, message = load("return " .. text)
  if f then return f end
  if is_incomplete(message) and not complete then return nil end
  f, message = load(text)
  local more = not f and not complete and is_incomplete(message)

  local locals, starts, returns = analyse(text)
  local keep = locals and keeping(locals) or ""
  if not returns then
    for i = #starts, 1, -1 do
      local before, after = sub(text, 1, starts[i] - 1), "return " .. sub(text, starts[i])
      local expression, problem = load(before .. after)
      if expression then return locals and load(before .. keep .. after, true) or expression end
      more = more or (not f and not complete and is_incomplete(problem))
    end
  end
  if more then return nil end
  if not f then return nil, message end
  if not locals then return f end
  if returns then return load(sub(text, 1, returns - 1) .. keep .. sub(text, returns), true) or f end
  return load(text .. "\n" .. keep, true) or f
end

return chunk
