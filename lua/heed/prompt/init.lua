-- The prompt of the command `heed`, apart from reading lines: compiling and keeping locals, showing values, completion
-- and help. The command gives it its functions as require "heed.prompt.host".
local host = require "heed.prompt.host"
local chunk = require "heed.prompt.chunk"
local show = require "heed.prompt.show"
local next, pairs, rawget, rawset, setmetatable = next, pairs, rawget, rawset, setmetatable

local prompt = {}

-- ---- Locals ----

-- name → {get, set}: the locals of earlier chunks. A chunk sees those of its time: its functions keep a variable that a
-- later `local` shadows.
local scope
local environment -- of the chunks that see these locals; nil: the globals
local kept = {} -- those of the running chunk

local function keep(name, get, set) kept[name] = { get, set } end

local function new_scope(before, more)
  local new = { __keep_locals = { function() return keep end, false } }
  for name, variable in pairs(before) do new[name] = variable end
  for name, variable in pairs(more) do new[name] = variable end
  return new
end

local function load(text, proxied)
  if proxied and not environment then
    scope = new_scope({}, {})
    environment = host.environment(scope)
  end
  return host.load(text, environment)
end

--- The value of a variable, as a chunk reads it.
function prompt.lookup(name)
  local variable = scope and scope[name]
  if variable then return variable[1]() end
  return host.globals[name]
end

--- Calls f with the name of every local.
function prompt.each_local(f)
  for name in pairs(scope or {}) do
    if name ~= "__keep_locals" then f(name) end
  end
end

-- ---- For the command ----

--- See chunk.compile.
function prompt.compile(text, complete) return chunk.compile(text, complete, load) end

--- After a chunk: the locals that it kept are visible to the next ones.
function prompt.finish()
  if next(kept) == nil then return end
  scope = new_scope(scope, kept)
  environment = host.environment(scope)
  kept = {}
end

prompt.text = show.value

--- What Tab does after this text: the text to insert, and what to show (or nil).
function prompt.complete(text, width) return require("heed.prompt.complete").at_end(text, width) end

-- ---- Globals of the prompt ----

prompt.exit = setmetatable({}, {
  __call = function(_, code) host.exit(code == nil and 0 or code, true) end,
  __tostring = function() return "exit, exit() or Ctrl-D ends the prompt" end,
})

local help = setmetatable({
  complete = function(text) return require("heed.prompt.complete").candidates(text) end,
}, {
  __call = function(_, ...) host.write(require("heed.prompt.help").text(...) .. "\n") end,
  __tostring = function() return require("heed.prompt.help").text() end,
})

for name, value in pairs { exit = prompt.exit, quit = prompt.exit, help = help } do
  if rawget(host.globals, name) == nil then rawset(host.globals, name, value) end
end

return prompt
