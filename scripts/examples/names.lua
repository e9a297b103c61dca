-- A small Llama invents first names, and shows what its attention does while it writes one:
--   build/heed scripts/examples/names.lua [BEGINNING] [SEED]
-- The model (scripts/examples/names_llama, made by scripts/dev/make_names_llama.lua) has 120,000 parameters and has
-- read 4,900 names of the United States' census of 1990. Every second one that it writes is new. A token is one
-- character; a dot begins and ends each name.
local heed = require "heed"
local plot = require "heed.plot"

local COUNT, LONGEST, TEMPERATURE = 12, 14, 0.8

local function stop(...)
  io.stderr:write("names: ", string.format(...), "\n")
  os.exit(1)
end

local beginning, seed = arg[1] or "", tonumber(arg[2] or 1)
if not seed or seed % 1 ~= 0 or seed < 0 then stop "the seed must be an integer from 0 up" end
if beginning:find "[^%a]" or #beginning > LONGEST then
  stop("the beginning is '%s'; it must be at most %d letters from A to Z", beginning, LONGEST)
end

local folder = (arg[0]:match "^(.*/)" or "") .. "names_llama"
local model = assert(heed.models.load(folder))
local tokenizer = model.tokenizer

-- ---- Names --------------------------------------------------------------------------------------

local generator = heed.Generator(seed)
local begin = tokenizer:encode(beginning)

local function invent()
  local ids = model:generate(begin, { max_new_tokens = LONGEST + 2, temperature = TEMPERATURE, generator = generator })
  return beginning .. tokenizer:decode(ids, { skip_special_tokens = true })
end

local names = {}
for i = 1, COUNT do names[i] = invent() end
print(table.concat(names, " "))

-- ---- What comes next ----------------------------------------------------------------------------

local name = names[1]
local ids = tokenizer:encode(name)
local probabilities = model(ids):softmax(-1)
print(("\n%s: the three most probable characters after each"):format(name))
for i, id in ipairs(ids) do
  local values, best = probabilities[i]:topk(3)
  local cells = {}
  for k, value in ipairs(values:tolist()) do
    cells[k] = ("%s %3.0f %%"):format(tokenizer:decode { best[k] }, 100 * value)
  end
  print(("  %s  %s"):format(tokenizer:decode { id }, table.concat(cells, "   ")))
end

-- ---- What it attends to -------------------------------------------------------------------------

print "\nattention, the mean of all heads"
plot.attention(model, name)
