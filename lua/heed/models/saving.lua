--- Saving a decoder as Hugging Face does: config.json and model.safetensors, which `load` and other libraries read.

local compat = require "heed.compat"
local core = require "heed.core"
local heed_save = require("heed.files").save
local E = require "heed.nn.entries"
local gguf = require "heed.models.gguf"
local save_gguf = require "heed.models.save_gguf"
local files, options_of = core.files, core.modules.options

local saving = {}

local METHOD = "save_pretrained"

-- ---- JSON ---------------------------------------------------------------------------------------

local ESCAPES = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

--- A string of valid UTF-8 as JSON.
local function quoted(text)
  text = text:gsub('[%c"\\]', function(c) return ESCAPES[c] or ("\\u%04x"):format(c:byte()) end)
  return '"' .. text .. '"'
end

--- A setting as JSON: settings are small, and tables in them flat or nested once.
local function json(value, depth)
  if type(value) == "string" then return quoted(value) end
  if type(value) == "number" then
    local form = value % 1 == 0 and "%.0f" or tonumber(("%.15g"):format(value)) == value and "%.15g" or "%.17g"
    return (form:format(value):gsub(",", ".")) -- the comma of some locales
  end
  if type(value) ~= "table" then return tostring(value) end
  if depth > 8 then E.fail("%s: config is nested too deeply; it must have at most 8 levels", METHOD) end
  local list, keys = {}, {}
  for i, each in ipairs(value) do list[i] = json(each, depth + 1) end
  if #list > 0 or next(value) == nil then return "[" .. table.concat(list, ", ") .. "]" end
  for key in pairs(value) do keys[#keys + 1] = tostring(key) end
  table.sort(keys)
  for i, key in ipairs(keys) do list[i] = ("%s: %s"):format(quoted(key), (json(value[key], depth + 1))) end
  return "{" .. table.concat(list, ", ") .. "}"
end

--- The settings of a model as the text of a config.json, with the names that files use.
local function config_text(about, c)
  local lines, settings = {}, { model_type = c.model_type }
  for _, each in ipairs(about.architectures) do
    if each[2] == c.model_type and not settings.architectures then
      settings.architectures = { each[1] .. (about.head_class or "ForCausalLM") }
    end
  end
  for name, rule in pairs(about.rules) do
    if c[name] ~= nil and not rule.own then settings[rule.also and rule.also[1] or name] = c[name] end
  end
  for name, value in pairs(settings) do lines[#lines + 1] = ("  %s: %s"):format(quoted(name), (json(value, 0))) end
  table.sort(lines)
  return "{\n" .. table.concat(lines, ",\n") .. "\n}\n"
end

-- ---- Weights ------------------------------------------------------------------------------------

--- The rows [heads · d, …] whose neighbours are rotated together, in the order in which the halves of a head are.
local function halves(value, heads)
  local sizes = { heads, compat.divide(value.shape[1], 2 * heads), 2 }
  for i = 2, value.ndim do sizes[i + 2] = value.shape[i] end
  return value:reshape(sizes):transpose(2, 3):flatten(1, 3)
end

--- The inverse of `halves`.
local function neighbours(value, heads)
  local sizes = { heads, 2, compat.divide(value.shape[1], 2 * heads) }
  for i = 2, value.ndim do sizes[i + 2] = value.shape[i] end
  return value:reshape(sizes):transpose(2, 3):flatten(1, 3)
end

--- The tensor of a file that consists of these parts, the inverse of `formed` in heed.models.loading.
local function joined(parts, form)
  local value = parts[1]
  if form.stacked then return core.stack(parts, 1) end
  if form.offset then return value - form.offset end
  if form.heads then return (form.interleaved and neighbours or halves)(value, form.heads) end
  if form.total then return core.cat(parts, 1) end
  if form.parts then
    local groups = form.groups or 1
    for i, part in ipairs(parts) do
      local sizes = { groups, compat.divide(part.shape[1], groups) }
      for d = 2, part.ndim do sizes[d + 1] = part.shape[d] end
      parts[i] = part:reshape(sizes)
    end
    value = core.stack(parts, 2):flatten(1, 3)
  end
  return form.transposed and value.T:contiguous() or value
end

--- The tensors of the model by their names in files, which may hold blocks (as GGUF files) or not.
local function state_of(model, name_in_file, blocks)
  local parts, forms, state = {}, {}, {}
  for name, value in compat.pairs(model:state_dict()) do
    E.check_cancel(METHOD)
    if value.dtype == "int8" or gguf.BLOCKS[value.dtype] and not blocks then
      E.reject(METHOD, name, value, 'floating-point; use m:to "float32"')
    end
    local file_name, form = name_in_file(name)
    if file_name then
      form = form or {}
      parts[file_name], forms[file_name] = parts[file_name] or {}, form
      parts[file_name][form.part or 1] = value
    end
  end
  for name, form in pairs(forms) do
    E.check_cancel(METHOD)
    local each, dtype = parts[name], parts[name][1].dtype
    if gguf.BLOCKS[dtype] and next(form) then -- rows of blocks are not reordered
      for i, part in ipairs(each) do each[i] = part:float() end
      state[name] = joined(each, form):to(dtype)
    else
      state[name] = joined(each, form)
    end
  end
  return state
end

-- ---- Decoders -----------------------------------------------------------------------------------

local OPTIONS = { "dtype" }

--- Makes the method save_pretrained(folder), or save_pretrained(path, {dtype =}) of a .gguf, of a decoder class;
--- `about` is that of loading.decoder.
function saving.decoder(about)
  return function(model, folder, ...)
    E.check_self(model, METHOD)
    local dtype = options_of(METHOD, OPTIONS, 3, model, folder, ...)
    E.check_type(folder, "string", METHOD, "folder")
    if gguf.is(folder, true) then return save_gguf(about, model, folder, dtype, state_of) end
    if dtype ~= nil then
      E.reject(METHOD, "dtype", dtype, "nil for a folder; convert the model, with m:to, or save it as a .gguf file")
    end
    if files.kind(folder) ~= "directory" then return nil, ("%s: no such folder: '%s'"):format(METHOD, folder) end
    folder = folder:sub(-1) == "/" and folder or folder .. "/"
    local c = model.config
    local state = state_of(model, function(name)
      if name == "lm_head.weight" then return not c.tie_word_embeddings and (about.lm_head or name) or nil end
      local file_name, form = about.names(name, c)
      return about.prefix .. file_name, form
    end)
    local text = config_text(about, c)
    local fine, problem = heed_save(folder .. "model.safetensors", state, { metadata = { format = "pt" } })
    if not fine then return nil, problem end
    return files.write(folder .. "config.json", text)
  end
end

return saving
