-- Writes the calls of tests/c/test_public.c: every function that heed.h declares, called with valid arguments chosen by
-- their types, of which one is replaced by NULL, an object of another context, or an invalid number.
--   cc -E -P src/heed.h | heed scripts/dev/public_calls.lua > build/public_calls.h
-- New functions are covered automatically. A new type stops the build: add a line for it below, and its object to
-- `world` in test_public.c. Runs on Lua 5.1 as well.

-- Arguments that may be NULL: in all functions, or in the function named.
local may_be_null = {
  g = true, options = true, taps = true, allocator = true, release = true, user = true,
  heed_clamp = "low high", heed_linear = "bias", heed_linear_int8 = "bias", heed_layer_norm = "weight bias",
  heed_rms_norm = "weight", heed_max = "indices", heed_min = "indices", heed_sort = "indices",
  heed_topk = "indices", heed_linear_attention = "state", heed_causal_conv = "state",
  heed_rope = "positions config", heed_kv_cache_new = "config", heed_set_log = "log",
  heed_module_set_window = "window", heed_module_set_rope = "rope", heed_backward = "dy", heed_grad = "dy",
  heed_tensor_set_grad = "grad", heed_clip_grad_norm = "norm", heed_linear_cross_entropy = "bias",
  heed_varlen_attention = "key_lengths",
}
-- Functions that free or release their first argument.
local function takes(name) return name:find("_free$") or name:find("_release$") end

-- Objects by type: the field of `world` that has one. Other pointers are results or blocks of memory.
local objects = {
  ["heed_context *"] = "ctx", ["heed_tensor *"] = "x", ["heed_generator *"] = "g", ["heed_module *"] = "m",
  ["heed_kv_cache *"] = "cache", ["heed_mask *"] = "causal", ["heed_archive *"] = "archive", ["heed_steps *"] = "steps",
  ["heed_backward_steps *"] = "backward_steps",
}
-- Types whose objects are released, not freed.
local counted = { heed_module = true, heed_mask = true }
-- Tensors by the name of the argument.
local tensors = {
  mask = "mask", condition = "mask", index = "whole", indices = "whole_row", ids = "whole", positions = "whole_row",
  target = "whole_row", lengths = "whole_row", key_lengths = "whole_row",
}
local by_function = {
  heed_linear_int8 = { weight = "int8_weight", scale = "scale" },
  heed_dequantize_int8 = { weight = "int8_weight", scale = "scale" },
  heed_layer_norm = { weight = "row", bias = "row" }, heed_rms_norm = { weight = "row" },
  heed_linear = { bias = "row" }, heed_dot = { a = "row", b = "row" }, heed_bernoulli = { p = "row" },
  heed_module_set_parameter = { m = "linear", value = "weight" }, heed_module_set_module = { value = "dropout" },
  heed_load_npy = {}, heed_kv_cache_reorder = { indices = "whole_one" },
  heed_linear_cross_entropy = { bias = "row" },
  heed_mask_intervals = { t = "interval" }, heed_mask_tree = { parents = "whole_zero" },
  heed_generator_set_offset = { g = "philox" }, heed_generator_set_part = { g = "philox" },
  heed_tensor_retain_grad = { x = "loss" }, heed_tensor_add_hook = { x = "loss" },
}
local blocks = {
  ["const int64_t *"] = "sizes", ["const int *"] = "dims", ["const char *"] = "path", ["void *"] = "block.bytes",
  ["unsigned char *"] = "block.bytes", ["const unsigned char *"] = "block.bytes", ["char *"] = "block.text",
  ["const char *const *"] = "texts",
}
local numbers = { -- valid values by name; 1 for the others
  ndim = "2", ndims = "1", step = "heed_integer(1)", first = nil, size = "sizeof block.bytes", count = "2", d = "4",
  d_in = "4", d_out = "4", p = "0.5", repeats = "2", pairs = "1", padding_index = "0", epsilon = "1e-5",
  offset = "4", header = "HEED_VERSION_NUMBER", seconds = "0", length = "1",
  dim2 = "2", nx = "2", ny = "2", inputs = "2", outputs = "2",
}
local name_of = {
  heed_module_set_parameter = '"weight"', heed_module_set_module = '"dropout"', heed_module_setting = '"p"',
  heed_module_set_setting = '"scale"', heed_check_stop = '"check_stop"',
}

-- Their lists of states must fit their lists of parameters: tested in test_optimizers.c.
local elsewhere = {
  heed_sgd_step = true, heed_adam_step = true, heed_rmsprop_step = true,
  heed_kv_caches_save = true, heed_kv_caches_load = true, -- lists of caches and modules: test_cache_file.c
  -- texts with their sizes in bytes: test_tokenizer.c
  heed_tokenizer_load = true, heed_tokenizer_free = true, heed_tokenizer_encode = true, heed_tokenizer_decode = true,
  heed_tokenizer_size = true, heed_tokenizer_token = true, heed_tokenizer_id = true,
}

local text = io.read("*a"):gsub("__attribute__%s*%b()", ""):gsub("%s+", " ")

local functions = {}
for result, name, list in text:gmatch("([%w_%s%*]-[%s%*])(heed_[%w_]+)(%b()) ?;") do
  local of_lua = list:find("lua_State") -- called in tests/c/test_states.c
  if not result:find("typedef") and not result:find("return") and not of_lua and not elsewhere[name] then
    local trimmed = result:gsub("^%s+", ""):gsub("%s+$", "")
    functions[#functions + 1] = { result = trimmed, name = name, list = list:sub(2, -2) }
  end
end

local function contains(words, word)
  return type(words) == "string" and (" " .. words .. " "):find(" " .. word .. " ", 1, true)
end

-- The expression for argument i; whether it is a pointer; whether it is an object that may be of another context.
local function argument(f, i, kind, name, before)
  local function pick(good, foreign) return ("PICK(%d, %s, %s)"):format(i, good, foreign or good) end
  local plain = kind:gsub("^const ", "")
  if kind:find("%(%*") then return "NULL", false end
  local special = by_function[f.name] and by_function[f.name][name]
  if objects[plain] then
    local field = special or (plain == "heed_tensor *" and tensors[name]) or objects[plain]
    local last = field == "ctx" and "mine->ctx" or "other->" .. field
    return pick("mine->" .. field, last), true, field ~= "ctx" and i > 1, field
  end
  if kind == "heed_tensor **" and name == "dx" then -- one for each of x
    before[#before + 1] = "heed_tensor *out[2] = {NULL, NULL};"
    return pick("out"), true, false, nil, "heed_tensor_free(out[0]), heed_tensor_free(out[1]);"
  end
  if plain == "heed_tensor **" then
    before[#before + 1] = ("heed_tensor *out%d = NULL, *foreign%d = other->x;"):format(i, i)
    return pick("&out" .. i, "&foreign" .. i), true, true, nil, ("heed_tensor_free(out%d);"):format(i)
  end
  local owner = plain:match("^(heed_[%w_]+ )%*%*$")
  if owner then
    before[#before + 1] = ("%s*out%d = NULL;"):format(owner, i)
    local free = owner:sub(1, -2) .. (counted[owner:sub(1, -2)] and "_release" or "_free")
    return pick("&out" .. i), true, false, nil, ("%s(out%d);"):format(free, i)
  end
  if plain == "heed_tensor *const *" then
    if name == "dy" then return "NULL", false end
    local list = (f.name:find("^heed_backward") or f.name == "heed_grad") and "losses"
      or kind == plain and "results" or name == "stats" and "sums" or "list"
    return pick("mine->" .. list, "other->" .. list), true, true
  end
  if plain == "char **" then
    before[#before + 1] = ("const char *text%d = NULL;"):format(i)
    return pick("&text" .. i), true
  end
  if kind == "_Bool *" or kind == "int64_t *" or kind == "double *" then
    before[#before + 1] = ("%sout%d = 0;"):format(kind:sub(1, -2), i)
    return pick("&out" .. i), true
  end
  if kind == "const char *" and name_of[f.name] then return pick(name_of[f.name]), true end
  if blocks[kind] then return pick(blocks[kind]), true end
  if kind == "const heed_attention_config *" then return pick("&mine->config"), true end
  if kind == "const heed_rope_config *" then return pick("&mine->rope"), true end
  if kind == "const heed_own_config *" then return pick("&mine->own"), true end
  if kind == "const heed_function *" then return pick("&mine->function"), true end
  if kind == "heed_gradient_hook *" then return pick("keep_gradient"), true end
  local struct = plain:match("^(heed_[%w_]+) %*$")
  if struct and kind:find("_function %*$") then return "NULL", false end
  if struct == "heed_allocator" then return "NULL", false end
  if struct == "heed_scalar" or struct == "heed_entry" or struct == "heed_window" then
    before[#before + 1] = ("%s out%d; memset(&out%d, 0, sizeof out%d);"):format(struct, i, i, i)
    return pick("&out" .. i), true
  elseif struct == "heed_gguf_value" then
    before[#before + 1] = ("heed_gguf_value out%d = {.type = HEED_GGUF_STRING};"):format(i)
    return pick("&out" .. i), true
  elseif struct then -- one that begins with its size
    before[#before + 1] = ("%s out%d = {.size = sizeof out%d};"):format(struct, i, i)
    local owns = struct == "heed_attention_taps"
    local free = owns and ("%s_free(&out%d);"):format(struct, i)
    return pick("&out" .. i), true, false, nil, free
  end
  assert(not plain:find("%*"), f.name .. ": no argument of type " .. kind .. " is known; see the top of this file")
end

local function number(f, i, kind, name)
  local good = numbers[name] or "1"
  if kind == "heed_scalar" then return ("SCALAR(%d)"):format(i) end
  if kind == "heed_dtype" then return ("NUMBER(%d, heed_dtype, HEED_FLOAT32)"):format(i) end
  if kind == "heed_status" or kind:find("^heed_") then return ("NUMBER(%d, %s, 0)"):format(i, kind) end
  if kind == "_Bool" then return "true" end
  if kind == "double" then return ("DOUBLE(%d, %s)"):format(i, numbers[name] or "1.0") end
  if f.name:find("_init$") then return "sizeof out1" end -- any other size would be wrong for the block
  if f.name == "heed_kv_cache_truncate" then good = "0" end
  if f.name == "heed_unfold" and name == "size" then good = "2" end
  local counts = name == "nx" or name == "ny" or name == "inputs" or name == "outputs"
  local of_list = f.list:find("tensors") or f.name:find("^heed_backward") or f.name:find("^heed_clip")
    or f.name == "heed_total_norm" or f.name == "heed_attention_merge"
  if name == "count" and of_list or name == "pairs" or counts then
    return ("COUNT(%d, %s)"):format(i, good)
  end
  if name == "count" and kind == "size_t" then good = "HEED_GENERATOR_STATE_BYTES" end
  if good:find("heed_") then good = "1" end
  return ("NUMBER(%d, %s, %s)"):format(i, kind, good)
end

local rows = {}
for _, f in ipairs(functions) do
  local before, after, given, kinds = {}, {}, {}, {}
  local i = 0
  local list = f.list:gsub("%b()", function(inner) return "(" .. inner:sub(2, -2):gsub(",", ";") .. ")" end)
  for part in list:gmatch("[^,]+") do
    part = part:gsub("^%s+", ""):gsub("%s+$", "")
    if part ~= "void" then
      i = i + 1
      local kind, name = part:match("^(.-)([%w_]+)$")
      if part:find("%(") then kind, name = part, part:match("%(%*([%w_]+)%)") end
      kind = kind:gsub("%s+$", "")
      local expression, pointer, object, field, done = argument(f, i, kind, name, before)
      if expression == nil then
        expression = number(f, i, kind, name)
        kinds[i] = (expression == "true" or expression == "sizeof out1") and "FIXED" or "A_NUMBER"
      else
        local null = may_be_null[name] == true or contains(may_be_null[f.name], name)
        if f.name:find("^heed_generator_") and name == "g" then null = false end
        kinds[i] = not pointer and "FIXED" or object and (null and "OBJECT_OR_NULL" or "OBJECT")
          or null and "POINTER_OR_NULL" or "POINTER"
        if takes(f.name) and field then after[#after + 1] = ("if (t->null != %d) mine->%s = NULL;"):format(i, field) end
        if done and not takes(f.name) then after[#after + 1] = done end
      end
      given[i] = expression
      kinds[i] = ('{"%s", %s}'):format(name, kinds[i])
    end
  end
  local call = ("%s(%s)"):format(f.name, table.concat(given, ", "))
  if f.name == "heed_context_new" then call = "(heed_context_new)" .. call:sub(#f.name + 1) end
  local result
  if f.result == "heed_status" then
    result = "t->status = " .. call .. ";"
  elseif f.result == "void" then
    result = call .. ";"
  elseif f.result == "const char *" then
    result = ("const char *got = %s; t->zero = got == NULL || *got == 0;"):format(call)
  elseif f.result == "heed_scalar" then
    result = ("t->zero = %s.as.integer == 0;"):format(call)
  elseif f.name:find("_retain$") then
    local object = f.result:match "[%w_]+"
    result = ("%s *got = %s; t->zero = got == NULL; %s_release(got);"):format(object, call, object)
  else
    result = ("t->zero = (%s) == 0;"):format(call)
  end
  io.write(("static void call_%s(trial *t, world *mine, world *other) {\n"):format(f.name))
  io.write("  (void)t, (void)mine, (void)other;\n")
  for _, line in ipairs(before) do io.write("  ", line, "\n") end
  io.write("  ", result, "\n")
  for _, line in ipairs(after) do io.write("  ", line, "\n") end
  io.write("}\n")
  rows[#rows + 1] = ('  {"%s", call_%s, %s, %d, {%s}},'):format(f.name, f.name, tostring(f.result == "heed_status"), i,
    i > 0 and table.concat(kinds, ", ") or '{NULL, FIXED}')
end
assert(#functions > 150, "heed.h was not understood")
io.write("static const function functions[] = {\n", table.concat(rows, "\n"), "\n};\n")
