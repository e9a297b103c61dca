--- Saving a decoder as a GGUF file, which llama.cpp reads.

local compat = require "heed.compat"
local heed_files = require "heed.files"
local E = require "heed.nn.entries"
local configs = require "heed.models.config"
local gguf = require "heed.models.gguf"
local state_dict = require "heed.nn.state_dict"
local BLOCKS, dtype_of_rows = gguf.BLOCKS, require("heed.core").modules.dtype_of_rows

-- ---- Weights ------------------------------------------------------------------------------------

-- general.file_type: what most of the weights are.
local FILE_TYPES = { float32 = 0, float16 = 1, q4_0 = 2, q4_1 = 3, q8_0 = 7, q5_0 = 8, q5_1 = 9, q4_k = 14, q5_k = 16,
  q6_k = 18, bfloat16 = 32 }

local DTYPES = "float32, bfloat16, float16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k or q6_k"

local LARGEST = 65504 -- of float16

--- Whether float16, which the scales of blocks are, can hold all elements.
local function fits_float16(value)
  value = value:float()
  return value:max():item() <= LARGEST and value:min():item() >= -LARGEST -- false for nan
end

--- A tensor in the dtype of the file: matrices have `dtype` (nil: their own) or, if it does not fit their rows, what
--- m:to gives them; those beyond the range of float16 are float32 instead of it and of blocks. All else is float32.
local function converted(value, dtype)
  if value.ndim < 2 then return value:float() end
  dtype = dtype and dtype_of_rows(dtype, value.shape[value.ndim]) or value.dtype
  if dtype == value.dtype then return value end
  if (BLOCKS[dtype] or dtype == "float16") and not fits_float16(value) then dtype = "float32" end
  return value.dtype == dtype and value or value:to(dtype)
end

-- ---- Metadata -----------------------------------------------------------------------------------

--- What a GGUF file says of the tokenizer that came from it, and of its origin and licence; otherwise {}. Returns nil
--- and a message for a file that is no longer there.
local function inherited(model)
  local path = model.tokenizer and model.tokenizer.path
  if not path or not gguf.is(path) then return {} end
  local state, problem = heed_files.load(path)
  if not state then return nil, problem end
  local metadata = state.metadata
  for key in pairs(metadata) do
    if not key:find "^tokenizer%." and not key:find "^general%." then metadata[key] = nil end
  end
  return metadata
end

--- Whether settings are equal, numbers up to the rounding of float32.
local function equal(a, b)
  if type(a) == "number" and type(b) == "number" then return math.abs(a - b) <= 1e-6 * math.abs(a) end
  if type(a) ~= "table" or type(b) ~= "table" then return a == b end
  for key, value in pairs(a) do
    if not equal(value, b[key]) then return false end
  end
  for key in pairs(b) do
    if a[key] == nil then return false end
  end
  return true
end

-- Settings that change no forward pass, or nothing but what is compared otherwise.
local LEFT_OUT = {
  attention_dropout = true, embd_pdrop = true, eos_token_id = true, initializer_range = true, max_window_layers = true,
  mlp_only_layers = true, model_type = true, no_rope_layer_interval = true, original_max_position_embeddings = true,
  partial_rotary_factor = true, resid_pdrop = true, rope_interleaved = true, rope_parameters = true,
  rope_scaling = true, rope_theta = true, rope_local_base_freq = true, sliding_window_pattern = true,
  use_sliding_window = true,
}

--- rope without the order of its pairs, which the file's rows follow.
local function rotation(rope)
  local copy = {}
  for key, value in pairs(rope or {}) do copy[key] = key ~= "style" and value or nil end
  return copy
end

--- The setting of c that a reader of this file would not find, or nil: GGUF files cannot store it.
local function lost(about, c, state, metadata)
  local names, values = {}, {}
  for name, value in pairs(state) do
    names[#names + 1], values[name] = name, value
  end
  local config, problem = gguf.config(state_dict.from(names, values, nil, nil, nil, metadata), about)
  if not config then return problem end
  local again
  again, problem = configs.settings(about, config)
  if not again then return problem end
  local differing = {}
  for name in pairs(about.rules) do
    local same_value = LEFT_OUT[name] or equal(c[name] or false, again[name] or false)
    if not same_value then differing[#differing + 1] = name end
  end
  local same_rope = equal(rotation(c.rope), rotation(again.rope))
  for kind, each in pairs(c.ropes or {}) do
    same_rope = same_rope and equal(rotation(each), rotation(again.ropes[kind]))
  end
  if not same_rope then differing[#differing + 1] = "rope_scaling" end
  table.sort(differing)
  if #differing == 0 then return nil end
  return ("GGUF files cannot store this value of %s"):format(table.concat(differing, ", "))
end

-- ---- Saving -------------------------------------------------------------------------------------

--- Saves the model at `path`; state_of(model, name_in_file) gives its tensors by their names in files. Returns true, or
--- nil and a message.
return function(about, model, path, dtype, state_of)
  local method, c = "save_pretrained", model.config
  if dtype ~= nil and not FILE_TYPES[dtype] then E.reject(method, "dtype", dtype, DTYPES) end
  local layout, problem = gguf.layout(about)
  if not layout then return nil, ("%s: %s"):format(method, problem) end
  local metadata
  metadata, problem = inherited(model)
  if not metadata then return nil, problem end
  local state = state_of(model, function(name)
    if name == "lm_head.weight" then return not c.tie_word_embeddings and layout.lm_head or nil end
    return layout.names(name, c)
  end, true)
  local fits = not BLOCKS[dtype]
  for name, value in compat.pairs(state) do
    E.check_cancel(method)
    local routes = name:find("ffn_gate_inp", 1, true) -- kept as it is, as by llama.cpp
    state[name] = converted(value, not routes and dtype or nil)
    fits = fits or BLOCKS[state[name].dtype] ~= nil
  end
  if not fits then
    return nil, ("%s: dtype is %s; the rows of no weight are whole blocks of 32 elements"):format(method, dtype)
  end
  gguf.describe(about, c, metadata, state)
  metadata["general.file_type"] = FILE_TYPES[dtype or state["blk.0.attn_output.weight"].dtype]
  metadata["general.quantization_version"] = 2
  problem = lost(about, c, state, metadata)
  if problem then return nil, ("%s: %s"):format(method, problem) end
  return heed_files.save(path, state, { metadata = metadata })
end
