--- Helpers for loading models: finding the files, and taking over the weights, either all of them or none. A problem
--- with a file is returned as nil and a message. Configs are read by heed.models.config.

local compat = require "heed.compat"
local core = require "heed.core"
local heed_load = require("heed.files").load
local E = require "heed.nn.entries"
local configs = require "heed.models.config"
local gguf = require "heed.models.gguf"
local nn = require "heed.nn"
local shards = require "heed.parallel.shards"
local state_dict = require "heed.nn.state_dict"
local files = core.files

local loading = {}

local WEIGHTS = { "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin" }

-- ---- Files --------------------------------------------------------------------------------------

--- The folder of a model (with a trailing slash, or ""), and the path of its weights file. `path` names either of them;
--- `further` is one more name of the file that a folder may have, or nil.
function loading.find(class, path, further)
  E.check_type(path, "string", class .. ".load", "path")
  local kind = files.kind(path)
  if kind == "file" then
    if files.format(path) then return path:match "^.*/" or "", path end
    return nil, (select(2, heed_load(path)))
  end
  if kind ~= "directory" then return nil, ("%s.load: no such file or folder: '%s'"):format(class, path) end
  local folder = path:sub(-1) == "/" and path or path .. "/"
  local names = table.concat(WEIGHTS, ", ") .. (further and ", " .. further or "")
  for name in names:gmatch "[^, ]+" do
    if files.kind(folder .. name) == "file" then return folder, folder .. name end
  end
  local fix = further and "; give the path of the file if it has another name, such as a .gguf" or ""
  return nil, ("%s.load: the folder '%s' has none of %s%s"):format(class, path, names, fix)
end

--- The contents of a JSON file in the folder as a table; an empty table if the file does not exist.
function loading.json(folder, name)
  if not files.kind(folder .. name) then return {} end
  local value, problem = files.json(folder .. name)
  if type(value) ~= "table" and not problem then
    local what = value == nil and "null" or E.what(value)
    return nil, ("load: '%s%s' contains %s; it must contain a JSON object"):format(folder, name, what)
  end
  return value, problem
end

--- The config of a model: `given`, or the contents of config.json in the folder.
function loading.config(class, folder, given)
  if given ~= nil then
    E.check_type(given, "table", class .. ".load", "config")
    return given
  end
  if not files.kind(folder .. "config.json") then
    return nil, ("%s.load: no such file: '%sconfig.json'; add it or pass a config"):format(class, folder)
  end
  return loading.json(folder, "config.json")
end

-- ---- Configs ------------------------------------------------------------------------------------

--- nil and the message for a problem with the config.
function loading.unsupported(class, problem)
  return nil, ("%s.load: unsupported configuration: %s"):format(class, problem)
end

local MISFIT = "%s.load: the weights do not fit the config:\n  %s"

--- A message for the tensors of dtypes that heed lacks, or nil if there are none. `found` are the results of
--- state_dict.lacking, `names` the tensors' names: the first of each dtype is named, the others are counted.
local function lacking_all(names, found)
  if #found < 2 then return found[1] and found[1].message end
  local kinds, counts, parts = {}, {}, {}
  for i, each in ipairs(found) do
    local kind = each.dtype
    if not counts[kind] then kinds[#kinds + 1], counts[kind] = { kind, names[i] }, 0 end
    counts[kind] = counts[kind] + 1
  end
  for i, each in ipairs(kinds) do
    local others = counts[each[1]] - 1
    parts[i] = ("%s ('%s'%s)"):format(each[1], each[2], others > 0 and " and " .. E.count(others, "other") or "")
  end
  local fix = found[1].fix and "; " .. found[1].fix or ""
  return ("%s: the dtypes of %d tensors are %s, which heed lacks%s"):format(found[1].file, #found,
    table.concat(parts, ", "), fix)
end

--- The number of elements of all tensors.
local function elements(state)
  local count = 0
  for name in state_dict.names(state) do
    E.check_cancel "load"
    count = count + state_dict.get(state, name):numel()
  end
  return count
end

--- A model of the class without weights. Returns nil and a message if the config is invalid, or has more layers than
--- `state` has tensors, or more experts than it has elements; these checks avoid spending time on building them. `note`
--- then replaces the message.
function loading.new_model(class, constructor, config, state, note)
  local tensors = 0
  for _ in state_dict.names(state) do
    E.check_cancel "load"
    tensors = tensors + 1
  end
  if config.num_hidden_layers > tensors then
    local form = "%s is %d; the file has %s"
    note = note or form:format(config.names.num_hidden_layers, config.num_hidden_layers, E.count(tensors, "tensor"))
    return nil, MISFIT:format(class, note)
  end
  local experts = config.num_local_experts
  if experts and experts * config.num_hidden_layers > elements(state) then
    return nil, MISFIT:format(class, ("%s is %d; the file has too few elements for %s of them"):format(
      config.names.num_local_experts, experts, E.count(config.num_hidden_layers, "layer")))
  end
  configs.mark_ready(config)
  local fine, model = pcall(nn.utils.skip_init, constructor, config)
  if fine then return model end
  return loading.unsupported(class, (tostring(model):gsub("^.-:%d+: ", "", 1)))
end

-- ---- Weights ------------------------------------------------------------------------------------

local function shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end

local FLOATING = {
  float32 = true, bfloat16 = true, float16 = true, q4_0 = true, q4_1 = true, q5_0 = true, q5_1 = true, q8_0 = true,
  q4_k = true, q5_k = true, q6_k = true,
}

--- Why a tensor of the file cannot be loaded into `target`, or nil. `form` describes its layout in the file.
local function misfit(value, target, form)
  local need, have = {}, {}
  for i, size in ipairs(target.shape) do need[i] = size end
  for i, size in ipairs(value.shape) do have[i] = size end
  need[1] = form.total or need[1] * (form.parts or 1)
  if form.transposed then need[1], need[2] = need[2], need[1] end
  if form.stacked then table.insert(need, 1, form.stacked) end
  if shape_text(need) ~= shape_text(have) then
    return ("has the shape %s; it must be %s"):format(shape_text(have), shape_text(need))
  end
  if not FLOATING[value.dtype] then return ("is %s; it must be a floating-point tensor"):format(value.dtype) end
end

--- The parameter made from a tensor of the file, or the part {dim =, first =, count =} of it. Transposed matrices are
--- copied, since products with row-major weights are faster, and so are columns; the file's pages are then free.
local function formed(whole, form, part)
  local value = form.stacked and whole:select(1, form.part) or whole
  if form.transposed then value = value.T end
  if form.parts then
    local groups = form.groups or 1
    local sizes = { groups, form.parts, compat.divide(value.shape[1], groups * form.parts) }
    for i = 2, value.ndim do sizes[i + 2] = value.shape[i] end
    value = value:reshape(sizes):select(2, form.part):flatten(1, 2)
  end
  if form.first then value = value:narrow(1, form.first, form.count) end
  if form.offset then value = value:float() + form.offset end
  if part and part.dim then value = value:narrow(part.dim, part.first, part.count) end
  if not form.transposed and not (part and part.dim ~= 1) then return value end
  value = value:contiguous()
  files.forget(whole)
  return value
end

--- A note if c.num_hidden_layers differs from the number of layers in a state, else nil. The pattern captures a
--- layer's number, from 0, in a name; aliases.num_hidden_layers is the setting's name in the config.
function loading.layer_note(c, aliases, state, pattern)
  local count = 0
  for name in state_dict.names(state) do
    E.check_cancel "load"
    local number = tonumber(name:match(pattern))
    if compat.is_integer(number) then count = math.max(count, number + 1) end
  end
  if count == c.num_hidden_layers then return nil end
  return ("%s is %d; the file has %s"):format(aliases.num_hidden_layers, c.num_hidden_layers, E.count(count, "layer"))
end

--- A function name_in_file(name) that applies a list of {pattern, replacement} in turn.
function loading.renamer(renames)
  return function(name)
    for _, rename in ipairs(renames) do name = name:gsub(rename[1], rename[2]) end
    return name
  end
end

local UNCHANGED = {}

--- Divides a model without weights. Returns where its remaining parameters come from, {form =, dim =, first =, count =}
--- by name. `forms` are those of the whole model.
local function divided(model, forms, divide)
  local of_owner, origins = {}, {}
  state_dict.walk(model, "load", function(name, _, owner, entry)
    of_owner[owner] = of_owner[owner] or {}
    of_owner[owner][entry.name] = forms[name]
  end)
  if divide(model) ~= model then E.fail "load: divide gave another model; it must change the one that it gets" end
  state_dict.walk(model, "load", function(name, _, owner, entry)
    local from = shards.origin(owner, entry.name) or {}
    local forms_of = of_owner[from.owner or owner]
    if not forms_of then E.fail("load: divide added %s, which the file does not have", name) end
    origins[name] = { form = forms_of[entry.name], dim = from.dim, first = from.first, count = from.count }
    from.owner = nil -- its other parameters can be freed
  end)
  return origins
end

--- Assigns the tensors of `state`, named as in the file, to the model, without copying where possible.
--- name_in_file(name, config) returns the name of a parameter in the file and its layout there, nil or {transposed =,
--- part =, parts =, groups =}: part number `part` of `parts` that are joined along the first dimension, within each of
--- `groups` groups (1 by default; as many as heads if the file interleaves them); or {stacked =, part =}: element
--- `part` of a first dimension of this size. Names with ignored(name) are skipped.
--- `config` holds the settings. Returns true, or nil and a message that lists everything
--- missing, unexpected or of a wrong shape, after `note` (a string or nil). divide(model), if given, leaves the model
--- the parts that this rank needs (heed.parallel), before they are read.
function loading.fill(class, model, state, config, name_in_file, ignored, note, divide)
  local forms, used, problems = {}, {}, {}
  for name, target in compat.pairs(model:state_dict()) do
    E.check_cancel "load"
    local file_name, form = name_in_file(name, config)
    local lacking = state_dict.lacking(state, file_name)
    if lacking then return nil, lacking.message end
    local value = state_dict.get(state, file_name)
    local problem = value == nil and "is missing" or value ~= nil and misfit(value, target, form or UNCHANGED)
    if problem and not used[file_name] then problems[#problems + 1] = ("%s %s"):format(file_name, problem) end
    forms[name], used[file_name] = { file_name, form or UNCHANGED }, true
  end
  for name in state_dict.names(state) do
    E.check_cancel "load"
    if not used[name] and not ignored(name) then
      problems[#problems + 1] = ("%s is not part of the model"):format(name)
    end
  end
  if #problems > 0 then
    E.sort(problems, "load")
    if note then table.insert(problems, 1, note) end
    return nil, MISFIT:format(class, table.concat(problems, "\n  "))
  end
  local origins = divide and divided(model, forms, divide) or {}
  local taken = {}
  for name in compat.pairs(model:state_dict()) do
    E.check_cancel "load"
    local origin = origins[name]
    local of = origin and origin.form or forms[name]
    taken[name] = formed(state[of[1]], of[2], origin)
  end
  model:load_state_dict(taken, { assign = true })
  return true
end

--- The tensors of a weights file by name, or nil and a message.
function loading.weights(class, path)
  local state, problem = heed_load(path)
  if state == nil then return nil, problem end
  if E.kind(state) then
    return nil, ("%s.load: '%s' is a tensor without a name; it must be a model's weights"):format(class, path)
  end
  if not state_dict.is_state_dict(state) then
    return nil, ("%s.load: '%s' is a table with other values than tensors; it must be a model's weights")
      :format(class, path)
  end
  if not gguf.is(path) then return state end
  local names, found = {}, {}
  for name in state_dict.names(state) do -- before the settings are made of some
    E.check_cancel "load"
    local lacking = state_dict.lacking(state, name)
    if lacking then names[#names + 1], found[#found + 1] = name, lacking end
  end
  problem = lacking_all(names, found)
  if problem then return nil, problem end
  return state
end

-- ---- Ids ----------------------------------------------------------------------------------------

--- Ids as an int64 tensor [n] or [b, n], from such a tensor, float32 with whole values, a list, or a list of lists of
--- equal length. In context_parallel a rank may have none.
function loading.ids(class, ids)
  local found = core.modules.indices(ids, class, "ids")
  if found.ndim < 1 or found.ndim > 2 or found:numel() == 0 and not core.modules.redirected() then
    E.reject(class, "ids", ids, "a tensor [n] or [b, n] of ids, or a list, with at least one element")
  end
  return found
end

-- ---- Decoders ------------------------------------------------------------------------------------

--- The stop tokens in generation_config.json of the folder; nil if it has none; false and a message if it is invalid.
local function stop_tokens(class, folder, c)
  local generation, problem = loading.json(folder, "generation_config.json")
  if not generation then return false, problem end
  if generation.eos_token_id == nil then return nil end
  local list
  list, problem = configs.stop_tokens(generation.eos_token_id, c.vocab_size)
  return list or false, problem and ("%s.load: generation_config.json: %s"):format(class, problem)
end

local TOKENIZERS = { "tokenizer.json", "vocab.json", "tokenizer.model" }

--- The tokenizer of a GGUF file or a folder, or nil; then a message if there is one that cannot be loaded.
local function tokenizer_of(folder, file)
  local path = gguf.is(file) and file or nil
  for _, name in ipairs(TOKENIZERS) do
    if not path and files.kind(folder .. name) == "file" then path = folder .. name end
  end
  if not path then return nil end
  return require("heed.tokenizers").load(path)
end

--- The config without rope_interleaved: rows in a folder's files have the order of halves, whatever the model had that
--- the config was taken from.
local function in_halves(config)
  if config.rope_interleaved == nil then return config end
  local copy = {}
  for key, value in compat.pairs(config) do copy[key] = value end
  copy.rope_interleaved = nil
  return copy
end

--- The fields of config.json: those given or in the folder, or what a GGUF file says, where those given replace single
--- fields. Returns nil and a message if they cannot be read.
local function config_of(class, about, folder, file, given, state, tokenizer)
  if not gguf.is(file) then
    local config, problem = loading.config(class, folder, given)
    return config and in_halves(config), problem
  end
  if given ~= nil then E.check_type(given, "table", class .. ".load", "config") end
  local config, problem = gguf.config(state, about, tokenizer, given)
  if not config then return loading.unsupported(class, problem) end
  return config
end

--- Makes the function load(path, config, divide) of the decoder class `Class`, named `class`. `about` describes the
--- model: the fields of configs.settings, and
---   prefix      an optional prefix of the names in the file
---   embedding   the name of the token embeddings' weight in the file
---   lm_head     the name of lm_head's weight in the file, without the prefix; "lm_head.weight" by default
---   layers      a pattern for names in the file that captures the layer's number, from 0
---   names       names(name, c): as name_in_file in loading.fill
---   ignored     as in loading.fill
--- GGUF files have names of their own (heed.models.gguf). The tokenizer that belongs to the weights becomes
--- model.tokenizer; tokenizer_problem says why there is none if it cannot be loaded.
function loading.decoder(class, Class, about)
  return function(path, config, divide)
    local folder, file = loading.find(class, path, "model.gguf")
    if not folder then return nil, file end
    local given, c, aliases, further, stops, model, fine, problem
    local layout, state = about, nil
    if gguf.is(file) then
      layout, problem = gguf.layout(about)
      if not layout then return nil, ("%s.load: '%s': %s"):format(class, file, problem) end
      state, problem = loading.weights(class, file)
      if not state then return nil, problem end
    end
    local tokenizer, tokenizer_problem = tokenizer_of(folder, file)
    given, problem = config_of(class, about, folder, file, config, state, tokenizer)
    if not given then return nil, problem end
    c, aliases, further = configs.settings(about, given)
    if not c then return loading.unsupported(class, aliases) end
    if not config and not state then
      stops, problem = stop_tokens(class, folder, c)
      if stops == false then return nil, problem end
      further.stop_tokens = stops or further.stop_tokens
    end
    if not state then state, problem = loading.weights(class, file) end
    if not state then return nil, problem end

    local prefix = state_dict.has(state, layout.prefix .. layout.embedding) and layout.prefix or ""
    local head = layout.lm_head or "lm_head.weight"
    if c.tie_word_embeddings == nil then c.tie_word_embeddings = not state_dict.has(state, head) end
    local function name_in_file(name)
      if name ~= "lm_head.weight" then
        local file_name, form = layout.names(name, c)
        return prefix .. file_name, form
      end
      return c.tie_word_embeddings and prefix .. layout.embedding or head
    end
    local function ignored(name)
      return name == head or layout.ignored(name) -- a tied lm_head in the file is not used
    end
    local note = loading.layer_note(c, aliases, state, "^" .. prefix:gsub("%.", "%%.") .. layout.layers)
    model, problem = loading.new_model(class, Class, c, state, note)
    if not model then return nil, problem end
    fine, problem = loading.fill(class, model, state, c, name_in_file, ignored, note, divide)
    if not fine then return nil, problem end
    model.tokenizer, model.tokenizer_problem = tokenizer, tokenizer_problem
    model.chat_template = tokenizer and tokenizer.chat_template
    return model:eval()
  end
end

return loading
