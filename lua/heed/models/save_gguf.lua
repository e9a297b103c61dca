--- Saving a decoder as a GGUF file that llama.cpp reads: m:save_pretrained("x.gguf", {dtype = "q4_k"}).

local compat = require "heed.compat"
local core = require "heed.core"
local heed_save = require("heed.files").save
local E = require "heed.nn.entries"
local configs = require "heed.models.config"
local gguf = require "heed.models.gguf"
local typed = require "heed.gguf"

local M = {}

-- ---- Where a model came from --------------------------------------------------------------------

local origins = setmetatable({}, { __mode = "k" }) -- the state of the file of each model that a GGUF file gave

--- Remembers the state of a GGUF file for its model: its tokenizer is saved with the model.
function M.remember(model, state) origins[model] = state end

--- The metadata of a model's file without what describes the architecture, with the types of its numbers; or {}.
local function original(model)
  local state = origins[model]
  if not state then return { ["tokenizer.ggml.model"] = "none" } end
  local copy = typed.copy(state.metadata)
  local prefix = tostring(copy["general.architecture"]) .. "."
  for key in pairs(state.metadata) do
    if key:sub(1, #prefix) == prefix or key:find "^split%." then copy[key] = nil end
  end
  return copy
end

-- ---- Dtypes -------------------------------------------------------------------------------------

-- The numbers of general.file_type, for information only.
local FILE_TYPES = { float32 = 0, float16 = 1, bfloat16 = 32, q4_0 = 2, q4_1 = 3, q8_0 = 7, q5_0 = 8, q5_1 = 9, q4_k = 15,
  q5_k = 17, q6_k = 18 }
-- As llama.cpp's quantizer: dtypes for rows that are not whole blocks of 256, and then of 32 elements.
local SMALLER = { q4_k = "q5_0", q5_k = "q5_1", q6_k = "q8_0" }
local FLOATS = { float32 = true, float16 = true, bfloat16 = true }

--- The dtype for a tensor with rows of n elements.
local function dtype_for(dtype, n)
  if SMALLER[dtype] and n % 256 ~= 0 then dtype = SMALLER[dtype] end
  if not FLOATS[dtype] and n % 32 ~= 0 then dtype = "float16" end
  return dtype
end

--- The tensor as it is saved: vectors in float32, as llama.cpp needs them.
local function converted(value, dtype)
  if value.ndim < 2 then return value:to "float32" end
  return value:to(dtype_for(dtype, value.shape[value.ndim]))
end

-- ---- Settings -----------------------------------------------------------------------------------

-- Settings that change no result, those that `rope` stands for, and the order of rows, which is made to fit.
local SKIPPED = { eos_token_id = true, initializer_range = true, attention_dropout = true, resid_pdrop = true,
  embd_pdrop = true, model_type = true, rope_theta = true, rope_scaling = true, rope_parameters = true,
  rope_interleaved = true, style = true, rope_local_base_freq = true, use_sliding_window = true,
  max_window_layers = true, original_max_position_embeddings = true, no_rope_layer_interval = true,
  partial_rotary_factor = true, sliding_window_pattern = true }

--- Whether two settings are equal, numbers as far as float32 holds them.
local function equal(a, b)
  if type(a) == "number" and type(b) == "number" then return math.abs(a - b) <= 1e-6 * math.abs(a) end
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in pairs(a) do
    if not SKIPPED[key] and not equal(value, b[key]) then return false end
  end
  for key in pairs(b) do
    if not SKIPPED[key] and a[key] == nil then return false end
  end
  return true
end

--- The problem with saving settings c: one that the metadata does not give back; or nil.
local function lost(about, c, metadata, state, name)
  local plain = {}
  for key, value in pairs(metadata) do plain[key] = type(value) == "table" and value.value or value end
  local fields, problem = gguf.fields(plain, function(each) return state[each] ~= nil end, c.vocab_size)
  local again
  if fields then again, problem = configs.settings(about, fields) end
  if not again then return problem end
  local names = { "rope", "ropes" }
  for each in pairs(about.rules) do names[#names + 1] = each end
  table.sort(names)
  for _, each in ipairs(names) do
    if not SKIPPED[each] and not equal(c[each] or nil, again[each] or nil) then
      return ("%s is %s; files of the architecture %s cannot say this"):format(each, E.what(c[each]), name)
    end
  end
end

-- ---- Saving -------------------------------------------------------------------------------------

--- Saves a model. state_of(name_in_file) gives its tensors. Returns true, or nil and a message.
function M.save(model, about, path, dtype, state_of)
  local method, c = "save_pretrained", model.config
  if dtype ~= nil and not FILE_TYPES[dtype] then
    local names = {}
    for name in pairs(FILE_TYPES) do names[#names + 1] = name end
    table.sort(names)
    E.reject(method, "dtype", dtype, "one of %s", table.concat(names, ", "))
  end
  local metadata, name, architecture = gguf.metadata(c)
  if not metadata then return nil, ("%s: %s"):format(method, name) end
  local state = state_of(function(each)
    if each == "lm_head.weight" then
      return not c.tie_word_embeddings and gguf.name(each, nil, c) or nil
    end
    local file_name, form = about.names(each, c)
    local part = architecture.interleaved and each:match "%.W_(%l+)%.[^.]*$"
    local heads = part == "query" and c.num_attention_heads or part == "key" and c.num_key_value_heads
    if heads then form = not c.rope_interleaved and { heads = heads, neighbours = true } or nil end
    return gguf.name(file_name, form, c)
  end)
  local problem = lost(about, c, metadata, state, name)
  if problem then return nil, ("%s: '%s': %s"):format(method, path, problem) end
  for each, value in compat.pairs(state) do
    E.check_cancel(method)
    state[each] = converted(value, dtype or value.dtype)
  end
  local whole = original(model)
  for key, value in pairs(metadata) do whole[key] = value end
  whole["general.quantization_version"] = 2
  if dtype then whole["general.file_type"] = FILE_TYPES[dtype] end
  return heed_save(path, state, { metadata = whole })
end

return M
