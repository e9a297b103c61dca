-- Shared by the specs of decoders: small models with reference values. A new model needs a row in M.classes.
local assert = require "luassert"
local heed = require "heed"

local M = { top = "tests/golden/" }
M.classes = {}
for _, name in ipairs { "gpt2", "llama", "qwen2", "qwen3", "gemma3", "phi3", "smollm3", "mixtral",
  "qwen3_moe" } do
  M.classes[name] = require("heed.models." .. name)
end

--- The golden models by name, and the reference values of the models in tests/golden/decoders.
M.golden = {}
for _, case in ipairs(dofile(M.top .. "decoders.lua")) do M.golden[case.name] = case end
M.variants = dofile(M.top .. "decoder_variants.lua")

function M.class_of(name)
  if name:find "^qwen3_moe" then return M.classes.qwen3_moe end
  return M.classes[name:match "^[^_]*"] or M.classes.llama
end

function M.load(name) return assert(M.classes[name].load(M.top .. M.golden[name].file, M.golden[name].config)) end

--- Converts a list of ids counted from 0 to one counted from 1.
function M.from_one(list)
  local ids = {}
  for i, id in ipairs(list) do ids[i] = id + 1 end
  return ids
end

--- The logits [n, v] of a list of ids, passed through a cache in chunks of these sizes, then one by one.
function M.in_pieces(m, ids, sizes, cache)
  local parts, first, i = {}, 1, 1
  while first <= #ids do
    local last = math.min(first + (sizes[i] or 1) - 1, #ids)
    parts[i] = m(table.move(ids, first, last, 1, {}), { cache = cache })
    first, i = last + 1, i + 1
  end
  return heed.cat(parts)
end

return M
