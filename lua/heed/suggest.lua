--- What to say about an unknown name: the nearest real ones, or what to write instead of a name that heed does not
--- have. Loaded when the first unknown name is read.

local core = require "heed.core"
local advice = require "heed.advice"

local suggest = {}
local check_time = core.modules.check_time -- a message costs no work

local LONGEST = 40 -- longer names have no near ones

--- The number of letters to insert, remove, change or exchange with their neighbour between a and b.
function suggest.distance(a, b)
  local before, row = {}, {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local last = row
    row = { [0] = i }
    for j = 1, #b do
      local same = a:byte(i) == b:byte(j)
      row[j] = math.min(last[j - 1] + (same and 0 or 1), last[j] + 1, row[j - 1] + 1)
      if i > 1 and j > 1 and a:byte(i) == b:byte(j - 1) and a:byte(i - 1) == b:byte(j) then
        row[j] = math.min(row[j], before[j - 2] + 1)
      end
    end
    before = last
  end
  return row[#b]
end

-- How far a near name may be: short names are near to too much.
local function limit(length)
  if length < 3 then return 0 end
  return length < 6 and 1 or length < 10 and 2 or 3
end

local function plain(name) return (name:lower():gsub("_", "")) end

-- Whether one name is the other with something before or behind it: interleave, batch_size.
local function is_part(wanted, known)
  local at = known:find(wanted, 1, true)
  return at and (#wanted >= 5 or at == 1 and #wanted >= 3) or #known >= 5 and wanted:sub(1, #known) == known
end

-- Adds the names to the set: the strings among the keys of a table, or the words of a text.
local function collect(set, names)
  if type(names) == "string" then
    for name in names:gmatch "[%w_]+" do set[name] = true end
  elseif type(names) == "table" then
    local name = next(names)
    while name ~= nil do
      check_time "suggest"
      if type(name) == "string" and name:sub(1, 1) ~= "_" then set[name] = true end
      name = next(names, name)
    end
  end
end

local function set_of(...)
  local set = {}
  for i = 1, select("#", ...) do collect(set, (select(i, ...))) end
  return set
end

--- The names that `name` may be a misspelling of, at most 3, in alphabetical order. Further arguments: the known names
--- as words of a text, or as keys of a table.
function suggest.nearest(name, ...)
  local found, best = {}, nil
  if #name > LONGEST then return found end
  local wanted, most = plain(name), limit(#name)
  local containing = {}
  for known in next, set_of(...) do
    check_time "suggest"
    if #known <= LONGEST then
      local distance = plain(known) == wanted and 0 or suggest.distance(name, known)
      if distance <= most and (not best or distance <= best) then
        if distance ~= best then found, best = {}, distance end
        found[#found + 1] = known
      end
      if is_part(wanted, plain(known)) then containing[#containing + 1] = known end
    end
  end
  if not best and #containing <= 3 then found = containing end
  table.sort(found)
  for i = #found, 4, -1 do found[i] = nil end
  return found
end

--- "did you mean 'a', 'b' or 'c'?"; nil without names.
function suggest.question(names)
  local parts = {}
  for i, name in ipairs(names) do parts[i] = "'" .. name .. "'" end
  if #parts == 0 then return nil end
  local last = table.remove(parts)
  return "did you mean " .. (#parts > 0 and table.concat(parts, ", ") .. " or " or "") .. last .. "?"
end

local function did_you_mean(names) return #names > 0 and "; " .. suggest.question(names) or "" end

-- The tables of the library, in the order in which a name is looked for.
local TABLES = { "heed.nn", "heed", "heed.nn.functional", "heed.nn.utils", "heed.nn.init", "heed.optim",
  "heed.optim.lr_scheduler", "heed.autograd", "heed.utils", "heed.utils.data" }

local looking = false -- a table that a script has removed is an unknown name itself

-- The table at a path such as "heed.nn.utils", nil if there is none.
local function at_path(path)
  if looking then return nil end
  looking = true
  local fine, found = pcall(function()
    local value = require "heed"
    for name in path:gmatch "%.([%w_]+)" do value = value[name] end
    return value
  end)
  looking = false
  return fine and found or nil
end

-- Where else a name exists: Linear of heed is heed.nn.Linear. `known` are the names that the owner has.
local function elsewhere(owner, name, known)
  for _, path in ipairs(TABLES) do
    local found = path ~= owner and at_path(path)
    if type(found) == "table" then
      local names = {}
      for each in core.pairs(found) do names[each] = true end
      if names[name] then
        for each in next, known do
          if plain(each) == plain(name) then return ("; did you mean '%s' or %s.%s?"):format(each, path, name) end
        end
        return ("; it is %s.%s"):format(path, name)
      end
    end
  end
end

--- What a message says after "<owner> has no <name>": "" or a sentence that begins with "; ". owner: "heed", "heed.nn",
--- "heed.nn.functional", "Tensor", "module" or "option". Further arguments: the known names, as for nearest.
function suggest.hint(owner, name, ...)
  if type(name) ~= "string" then return "" end
  local known = set_of(...)
  local given = advice.names[owner] and advice.names[owner][name]
  if given then return "; " .. given end
  for _, other in ipairs(advice.synonyms[name] or {}) do
    if known[other] then return did_you_mean { other } end
  end
  given = advice.everywhere[name]
  if given then return "; " .. given end
  local place = (owner == "heed" or owner == "heed.nn" or owner == "heed.nn.functional" or owner == "Tensor")
    and elsewhere(owner, name, known)
  return place or did_you_mean(suggest.nearest(name, known))
end

--- "there is no option 'dims'; the options are dim, keepdim; did you mean 'dim'?"
function suggest.option(name, names)
  return ("there is no option '%s'; the options are %s%s"):format(name, table.concat(names, ", "),
    suggest.hint("option", name, table.concat(names, " ")))
end

--- "heed.nn has no function or field 'Linaer'; did you mean 'Linear'?"
function suggest.message(owner, name, ...)
  return ("%s has no function or field '%s'%s"):format(owner, name, suggest.hint(owner, name, ...))
end

-- The name in Lua's message about a call or index of nil, and what it is: "method", "field", "global".
local function named(message)
  local kind, name = message:match "attempt to [ci][an][ld][le]x?.-(%a+) '([%w_]+)'"
  if message:find("nil value", 1, true) then return kind, name end
end

local GLOBALS = "print require tostring tonumber pairs ipairs type pcall error assert select setmetatable"

--- What to add to a message of Lua itself, such as "attempt to call a nil value (method 'foward')", or "".
function suggest.after(message)
  for _, case in ipairs(advice.syntax) do
    if message:find(case[1]) then return "; " .. case[2] end
  end
  local kind, name = named(message)
  local owner = kind == "global" and "global" or "method"
  if not name or kind ~= "global" and message:find("attempt to index", 1, true) then return "" end
  local given = advice.names[owner][name]
  if given then return "; " .. given end
  if owner == "global" then return elsewhere(owner, name, {}) or did_you_mean(suggest.nearest(name, GLOBALS)) end
  return suggest.hint("module", name, require "heed.nn.protocol", require "heed.nn.module", "forward init training")
end

--- Makes reading an unknown name of a table an error. Names that begin with "_", which libraries look for, stay nil.
suggest.guard = core.modules.guard

return suggest
