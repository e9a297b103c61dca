-- Checks the dependencies between source files as the linker sees them, from the symbols of their object files.
--   nm -A -P OBJECT... | heed scripts/dev/check_objects.lua
-- No layer uses a symbol that a higher layer defines, and in the folders of `largest_cycle` at most that many files
-- depend on each other in a cycle.
-- As a module (dofile) it returns check(lines) -> a list of problems, the size of the largest cycle by folder, the
-- number of files; `lines` iterates over the lines of nm.
local _, layers = dofile "scripts/dev/check_layers.lua"
local largest_cycle = { binding = 4 }

local level = {}
for i, layer in ipairs(layers) do level[layer] = i end

-- Returns the file that defines each symbol, the set of symbols that each file uses, and the files in order.
local function read_symbols(lines)
  local definer, uses, files = {}, {}, {}
  for line in lines do
    local file, name, kind = line:match("src/(%S-)%.o%S*:%s+(%S+)%s+(%a)")
    if file then
      if not uses[file] then
        uses[file] = {}
        files[#files + 1] = file
      end
      if kind:find("^[Uwv]$") then
        uses[file][name] = true
      elseif kind:find("^%u$") then
        definer[name] = file
      end
    end
  end
  table.sort(files)
  return definer, uses, files
end

-- The groups of files that reach each other (strongly connected components, by Tarjan's algorithm); next_of[file] lists
-- the files that a file uses.
local function groups_of(files, next_of)
  local index, low, stack, on_stack, groups, count = {}, {}, {}, {}, {}, 0
  local function visit(file)
    count = count + 1
    index[file], low[file] = count, count
    stack[#stack + 1] = file
    on_stack[file] = true
    for _, other in ipairs(next_of[file]) do
      if not index[other] then
        visit(other)
        low[file] = math.min(low[file], low[other])
      elseif on_stack[other] then
        low[file] = math.min(low[file], index[other])
      end
    end
    if low[file] == index[file] then
      local group = {}
      repeat
        local other = table.remove(stack)
        on_stack[other] = nil
        group[#group + 1] = other
      until other == file
      table.sort(group)
      groups[#groups + 1] = group
    end
  end
  for _, file in ipairs(files) do
    if not index[file] then visit(file) end
  end
  return groups
end

local function check(lines)
  local problems, largest, by_folder = {}, {}, {}
  local definer, uses, files = read_symbols(lines)
  local function problem(...) problems[#problems + 1] = string.format(...) end
  local next_of = {}
  for _, file in ipairs(files) do
    local folder, seen, symbols = file:match("^(%w+)/"), {}, {}
    next_of[file] = {}
    for symbol in pairs(uses[file]) do symbols[#symbols + 1] = symbol end
    table.sort(symbols)
    for _, symbol in ipairs(symbols) do
      local other = definer[symbol]
      local above = other and other:match("^(%w+)/")
      if other and level[folder] and level[above] and level[above] > level[folder] then
        problem("src/%s.c: uses %s of src/%s.c: %s is not below %s", file, symbol, other, above, folder)
      end
      if other and above == folder and other ~= file and not seen[other] then
        seen[other] = true
        next_of[file][#next_of[file] + 1] = other
      end
    end
    if folder then
      by_folder[folder] = by_folder[folder] or {}
      table.insert(by_folder[folder], file)
    end
  end
  for folder, most in pairs(largest_cycle) do
    largest[folder] = 0
    for _, group in ipairs(groups_of(by_folder[folder] or {}, next_of)) do
      largest[folder] = math.max(largest[folder], #group)
      if #group > most then
        problem("src/%s: %d files depend on each other in a cycle; it must be at most %d: %s", folder, #group, most,
          table.concat(group, " "))
      end
    end
  end
  return problems, largest, #files
end

if not (arg and arg[0] and arg[0]:find("check_objects%.lua$")) then return check end

local problems, largest, count = check(io.lines())
for _, text in ipairs(problems) do print(text) end
if count == 0 then print("no symbols of object files on standard input") end
print(("objects: %d files, %d problems, largest cycle of the binding %d"):format(count, #problems, largest.binding))
os.exit(#problems == 0 and count > 0)
