--- What the models of heed.models share: finding the files of a model, reading its config, and taking over its
--- weights, all of them or none. What is wrong with a file is returned as nil and a message.

local compat = require "heed.compat"
local core = require "heed.core"
local heed_load = require("heed.files").load
local E = require "heed.nn.entries"
local nn = require "heed.nn"
local files, fail = core.files, E.fail

local loading = {}

local WEIGHTS = { "model.safetensors", "model.safetensors.index.json" }

-- ---- Files --------------------------------------------------------------------------------------

--- The files of a model: its folder (with a slash at the end, or ""), and the path of its weights, from a path
--- to either.
function loading.find(class, path)
  E.check_type(path, "string", class .. ".load", "path")
  local kind = files.kind(path)
  if kind == "file" then return path:match "^.*/" or "", path end
  if kind ~= "directory" then return nil, ("%s.load: there is no file or folder '%s'"):format(class, path) end
  local folder = path:sub(-1) == "/" and path or path .. "/"
  for _, name in ipairs(WEIGHTS) do
    if files.kind(folder .. name) == "file" then return folder, folder .. name end
  end
  return nil, ("%s.load: the folder '%s' has neither %s"):format(class, path, table.concat(WEIGHTS, " nor "))
end

--- A JSON file of the folder as a table; an empty one if it is not there.
function loading.json(folder, name)
  if not files.kind(folder .. name) then return {} end
  local value, problem = files.json(folder .. name)
  if type(value) ~= "table" and not problem then
    local what = value == nil and "null" or E.what(value)
    return nil, ("load: '%s%s' must have an object, has %s"):format(folder, name, what)
  end
  return value, problem
end

--- The config of a model: `given`, or what config.json in the folder says.
function loading.config(class, folder, given)
  if given ~= nil then
    E.check_type(given, "table", class .. ".load", "config")
    return given
  end
  if not files.kind(folder .. "config.json") then
    return nil, ("%s.load: there is no '%sconfig.json', and no config was given"):format(class, folder)
  end
  return loading.json(folder, "config.json")
end

-- ---- Activations --------------------------------------------------------------------------------

--- Those of a feed-forward part, by Hugging Face's names.
loading.activations = {
  gelu = function() return nn.GELU() end,
  gelu_new = function() return nn.GELU("tanh") end,
  relu = nn.ReLU,
  silu = nn.SiLU,
}

loading.activation_names = {}
for name in pairs(loading.activations) do table.insert(loading.activation_names, name) end
table.sort(loading.activation_names)

-- ---- Configs ------------------------------------------------------------------------------------

--- What is wrong with a value of a config, nil if nothing is. A rule has `kind`: "size" (an integer from 1 up),
--- "positive", "number", "boolean", "table", or a list of what it may be, or nil, anything; and `default`, without
--- which it must be there, unless it is `optional`.
local function wrong(value, rule)
  if value == nil then return rule.default == nil and not rule.optional and "is missing" or nil end
  if rule.kind == nil then return nil end
  if type(rule.kind) == "table" then
    local known = {}
    for i, each in ipairs(rule.kind) do
      if each == value then return nil end
      known[i] = tostring(each)
    end
    return ("is %s; it must be %s%s"):format(E.what(value), known[2] and "one of " or "", table.concat(known, ", "))
  end
  if rule.kind == "size" then
    local fine = compat.is_integer(value) and value >= 1
    return not fine and ("is %s; it must be an integer from 1 up"):format(E.what(value)) or nil
  end
  if rule.kind == "positive" then
    local fine = type(value) == "number" and value > 0 and value < math.huge
    return not fine and ("is %s; it must be a positive number"):format(E.what(value)) or nil
  end
  return type(value) ~= rule.kind and ("is %s; it must be a %s"):format(E.what(value), rule.kind) or nil
end

--- The values that a model is made from, by the rules (a table by name), from a config in Hugging Face's names; a
--- rule's `also` lists other names. Second, by name, the names that the config has for them. `of` is the part of the
--- config that it is, with a dot. nil and what is wrong, for loading.unsupported, if a value does not fit its rule.
function loading.read_config(config, rules, of)
  local values, said_as, problems = {}, {}, {}
  for name, rule in pairs(rules) do
    local said, value = name, config[name]
    for _, other in ipairs(rule.also or {}) do
      if value == nil and config[other] ~= nil then said, value = other, config[other] end
    end
    local problem = wrong(value, rule)
    if problem then problems[#problems + 1] = ("%s%s %s"):format(of or "", said, problem) end
    if value == nil then value = rule.default end
    values[name], said_as[name] = value, said
  end
  if #problems == 0 then return values, said_as end
  table.sort(problems)
  return nil, table.concat(problems, "; ")
end

--- nil and the message of a load whose config has a problem.
function loading.unsupported(class, problem)
  return nil, ("%s.load: unsupported configuration: %s"):format(class, problem)
end

local MISFIT = "%s.load: the weights do not fit the config:\n  %s"

--- A model of the class whose weights are still to come; nil and a message if its parts cannot be made so, or if it
--- has more layers than `state` has tensors, for which `note` stands then: no time goes into making all of them.
function loading.new_model(class, constructor, config, state, note)
  local tensors = 0
  for _ in compat.pairs(state) do
    E.look "load"
    tensors = tensors + 1
  end
  if config.num_hidden_layers > tensors then
    local form = "num_hidden_layers is %d, and the file has %s"
    note = note or form:format(config.num_hidden_layers, E.count(tensors, "tensor"))
    return nil, MISFIT:format(class, note)
  end
  local fine, model = pcall(nn.utils.skip_init, constructor, config)
  if fine then return model end
  return loading.unsupported(class, (tostring(model):gsub("^.-:%d+: ", "", 1)))
end

-- ---- Weights ------------------------------------------------------------------------------------

local function shape_text(shape) return "[" .. table.concat(shape, ", ") .. "]" end

--- "hidden_size = 384": the settings that make the sizes in which `need` differs from `have`.
local function blame(config, need, have)
  local names = {}
  for name, value in pairs(config) do
    for i, size in ipairs(need) do
      if compat.is_integer(value) and value == size and have[i] ~= size then
        names[#names + 1] = ("%s = %d"):format(name, value)
        break
      end
    end
  end
  table.sort(names)
  return #names > 0 and (" (%s)"):format(table.concat(names, ", ")) or ""
end

local FLOATING = { float32 = true, bfloat16 = true, float16 = true }

--- What is wrong with a tensor for the place of another, nil if nothing is. `form` is how the file has it.
local function misfit(value, target, config, form)
  local need, have = {}, {}
  for i, size in ipairs(target.shape) do need[i] = size end
  for i, size in ipairs(value.shape) do have[i] = size end
  need[1] = need[1] * (form.parts or 1)
  if form.transposed then need[1], need[2] = need[2], need[1] end
  if shape_text(need) ~= shape_text(have) then
    return ("is %s, but the config makes it %s%s"):format(shape_text(have), shape_text(need), blame(config, need, have))
  end
  if not FLOATING[value.dtype] then return ("is %s, not of floating point"):format(value.dtype) end
end

--- The tensor of a parameter from what the file has. A transposed matrix is copied: rows side by side make faster
--- products.
local function formed(value, form)
  if form.transposed then value = value.T end
  if form.parts then
    local rows = compat.divide(value.shape[1], form.parts)
    value = value:narrow(1, (form.part - 1) * rows + 1, rows)
  end
  return form.transposed and value:contiguous() or value
end

--- How many layers the names of a state speak of; the pattern takes a layer's number, from 0, out of a name.
function loading.count_layers(state, pattern)
  local count = 0
  for name in compat.pairs(state) do
    E.look "load"
    local number = tonumber(name:match(pattern))
    if compat.is_integer(number) then count = math.max(count, number + 1) end
  end
  return count
end

local AS_IT_IS = {}

--- Gives the model the tensors of `state` (by their names in the file), without copying where that can be:
--- name_in_file(name) says what a parameter is called there, and in which form it is (or nil): {transposed =,
--- part =, parts =}, part i of so many on top of each other. Names of the file that `ignored(name)` are left out.
--- `config` has the settings for messages by name. true, or nil and a message with everything that is missing, too
--- much or of another size, after `note` (a string or nil).
function loading.fill(class, model, state, config, name_in_file, ignored, note)
  local forms, used, problems = {}, {}, {}
  for name, target in compat.pairs(model:state_dict()) do
    E.look "load"
    local there, form = name_in_file(name)
    local value = state[there]
    local problem = value == nil and "is missing" or value ~= nil and misfit(value, target, config, form or AS_IT_IS)
    if problem and not used[there] then problems[#problems + 1] = ("%s %s"):format(there, problem) end
    forms[name], used[there] = { there, form or AS_IT_IS }, true
  end
  for name in compat.pairs(state) do
    E.look "load"
    if not used[name] and not ignored(name) then
      problems[#problems + 1] = ("%s is not part of the model"):format(name)
    end
  end
  if #problems > 0 then
    E.sort(problems, "load")
    if note then table.insert(problems, 1, note) end
    return nil, MISFIT:format(class, table.concat(problems, "\n  "))
  end
  local taken = {}
  for name, of in pairs(forms) do
    E.look "load"
    taken[name] = formed(state[of[1]], of[2])
  end
  model:load_state_dict(taken, { assign = true })
  return true
end

--- The tensors of a weights file by name, or nil and a message.
function loading.weights(class, path)
  local state, problem = heed_load(path)
  if state == nil then return nil, problem end
  if E.kind(state) then
    return nil, ("%s.load: '%s' has one tensor without a name, not the weights of a model"):format(class, path)
  end
  return state
end

-- ---- Ids ----------------------------------------------------------------------------------------

--- Ids as an int64 tensor [n] or [b, n], from such a tensor, a list, or a list of lists of one length.
function loading.ids(class, ids)
  if E.kind(ids) ~= "tensor" then
    if type(ids) ~= "table" then
      fail("%s: ids must be a tensor or a list of token ids, got %s", class, E.what(ids))
    end
    ids = core.tensor(ids, { dtype = "int64" })
  end
  if ids.dtype ~= "int64" or ids.ndim < 1 or ids.ndim > 2 or ids:numel() == 0 then
    fail("%s: ids must be int64 of shape [n] or [b, n], at least one, got %s", class, E.what(ids))
  end
  return ids
end

-- ---- Decoders ------------------------------------------------------------------------------------

--- Ids that end a text, from 1: those of generation_config.json in the folder (nil: nowhere), else of the config;
--- both count from 0. One that is not in the vocabulary, as small models have it from a large one, never comes.
local function stop_tokens(class, folder, c)
  local beside, problem = {}, nil
  if folder then beside, problem = loading.json(folder, "generation_config.json") end
  if not beside then return nil, problem end
  local ids, list = beside.eos_token_id, {}
  if ids == nil then ids = c.eos_token_id end
  for i, id in ipairs(type(ids) == "table" and ids or { ids }) do
    if not compat.is_integer(id) then
      return nil, ("%s.load: eos_token_id %d is %s; it must be an integer"):format(class, i, E.what(id))
    end
    if id >= 0 and id < c.vocab_size then list[#list + 1] = id + 1 end
  end
  return list
end

--- load(path, config) of the decoder Class with that name. `about` has what differs:
---   config      the rules of the config's settings
---   complete    complete(c, said) checks and completes the settings, which the config calls as `said` has it; what is
---               wrong, or nil and more sizes by name, for messages
---   prefix      what names in the file may begin with, all of them or none
---   embedding   the name there of the token embeddings' weight
---   layers      a pattern of names there that takes out a layer's number, from 0
---   names       names(name) as name_in_file of loading.fill
---   ignored     as there
function loading.decoder(class, Class, about)
  return function(path, config)
    local folder, file = loading.find(class, path)
    if not folder then return nil, file end
    local given, c, said, settings, state, model, fine, problem
    given, problem = loading.config(class, folder, config)
    if not given then return nil, problem end
    c, said = loading.read_config(given, about.config)
    if not c then return loading.unsupported(class, said) end
    problem, settings = about.complete(c, said)
    if problem then return loading.unsupported(class, problem) end
    c.stop_tokens, problem = stop_tokens(class, not config and folder, c)
    if not c.stop_tokens then return nil, problem end
    state, problem = loading.weights(class, file)
    if not state then return nil, problem end

    local prefix = state[about.prefix .. about.embedding] and about.prefix or ""
    if c.tie_word_embeddings == nil then c.tie_word_embeddings = state["lm_head.weight"] == nil end
    local function name_in_file(name)
      if name ~= "lm_head.weight" then
        local there, form = about.names(name)
        return prefix .. there, form
      end
      return c.tie_word_embeddings and prefix .. about.embedding or name
    end
    local function ignored(name)
      return name == "lm_head.weight" or about.ignored(name) -- with it in the file, and not in use, it is tied
    end
    local count, note = loading.count_layers(state, "^" .. prefix:gsub("%.", "%%.") .. about.layers), nil
    if count ~= c.num_hidden_layers then
      local form = "%s is %d, and the file has %s"
      note = form:format(said.num_hidden_layers, c.num_hidden_layers, E.count(count, "layer"))
    end
    model, problem = loading.new_model(class, Class, c, state, note)
    if not model then return nil, problem end
    for name, value in pairs(c) do settings[said[name] or name] = value end
    fine, problem = loading.fill(class, model, state, settings, name_in_file, ignored, note)
    if not fine then return nil, problem end
    return model:eval()
  end
end

return loading
