-- Loading decoders: supported files and configs, and problems with them.
local heed = require "heed"
local core = require "heed.core"
local cases = require "tests.decoder_cases"
local raises = require "tests.raises"
local support = require "tests.support"

local CLASSES, TOP, class_of, close = cases.classes, cases.top, cases.class_of, require("tests.tensors").close

describe("loading a decoder", function()
  local folder
  local function clear()
    if folder then support.remove_folder(folder) end
    folder = nil
  end
  after_each(clear)
  local function from(name)
    clear()
    folder = support.copy_folder(TOP .. "decoders/" .. name)
    return folder
  end

  --- The message of Class.load for a copy of a model with changes to its state and config.
  local function problem(name, change, config_change)
    from(name)
    local file = folder .. "/model.safetensors"
    local state, config = assert(heed.load(file)), assert(core.files.json(folder .. "/config.json"))
    if change then
      local copy = {}
      for each, tensor in heed.pairs(state) do copy[each] = tensor:clone() end
      change(copy)
      assert(heed.save(file, copy))
    end
    for each, value in pairs(config_change or {}) do config[each] = value end
    local model, message = class_of(name).load(folder, config)
    assert.is_nil(model)
    return (message:gsub(folder:gsub("%p", "%%%0"), "FOLDER"))
  end

  it("names everything that is missing, unexpected or of a wrong shape", function()
    assert.are.equal("Llama.load: the weights do not fit the config:\n  "
      .. "model.layers.1.mlp.up_proj.weight is missing\n  more is not part of the model", problem("llama", function(s)
        s["model.layers.1.mlp.up_proj.weight"], s.more = nil, heed.ones(1)
      end))
    assert.are.equal("GPT2.load: the weights do not fit the config:\n  "
      .. "transformer.h.1.attn.c_attn.weight has the shape [24, 70]; it must be [24, 72]", problem("gpt2", function(s)
        s["transformer.h.1.attn.c_attn.weight"] = heed.ones(24, 70)
      end))
  end)

  it("names the settings that contradict the weights", function()
    local said = problem("llama", nil, { num_key_value_heads = 1 })
    assert.is_truthy(said:find("model.layers.0.self_attn.k_proj.weight has the shape [16, 32]; it must be [8, 32]",
      1, true), said)
    said = problem("llama", nil, { num_hidden_layers = 3 })
    assert.is_truthy(said:find("num_hidden_layers is 3; the file has 2 layers", 1, true), said)
    assert.are.equal("Llama.load: the weights do not fit the config:\n  "
      .. "num_hidden_layers is 1099511627776; the file has 2 layers",
      problem("llama", nil, { num_hidden_layers = 0x10000000000 }))
    said = problem("gpt2", nil, { n_layer = 1 })
    assert.is_truthy(said:find("n_layer is 1; the file has 2 layers", 1, true), said)
    said = problem("gpt2", nil, { n_embd = 12 })
    assert.is_truthy(said:find("transformer.wte.weight has the shape [53, 24]; it must be [53, 12]", 1, true), said)
  end)

  it("reports problems with a config", function()
    local function refuses(name, message, change)
      local class = name:find "gpt2" and "GPT2" or "Llama"
      assert.are.equal(("%s.load: unsupported configuration: %s"):format(class, message), problem(name, nil, change))
    end
    refuses("gpt2", "n_head is 5; it must divide n_embd (24)", { n_head = 5 })
    refuses("llama", "num_key_value_heads is 3; it must divide num_attention_heads (4)",
      { num_key_value_heads = 3 })
    for _, other in ipairs { "gemma", "qwen2", "phi3", "gpt2" } do
      local message = "model_type is a string ('%s'); it must be one of llama, mistral"
      refuses("llama", message:format(other), { model_type = other })
    end
    refuses("gpt2", "model_type is a string ('llama'); it must be gpt2", { model_type = "llama" })
    refuses("llama", "partial_rotary_factor is the number 0.5; it must be 1", { partial_rotary_factor = 0.5 })
    refuses("llama", "rope_parameters.partial_rotary_factor is the number 0.25; it must be 1",
      { rope_parameters = { partial_rotary_factor = 0.25 } })
    refuses("llama", "hidden_size is the number 0; it must be an integer of at least 1", { hidden_size = 0 })
    refuses("llama3", "rope_scaling.type is a string ('longer'); it must be one of default, linear, dynamic, " ..
      "yarn, llama3, longrope, su", { rope_scaling = { type = "longer", factor = 2 } })
    local function longrope(type, long) return { rope_scaling = { type = type, short_factor = { 1, 1, 1, 1 },
      long_factor = long } } end
    refuses("llama3", "rope_scaling.long_factor is missing; rope_type longrope needs it", longrope "su")
    refuses("llama3", "rope_scaling.long_factor has 3 elements; it must have 4, one for each pair of elements",
      longrope("longrope", { 1, 2, 3 }))
    refuses("llama3", "rope_scaling.long_factor: element 2 is the number 0; it must be a positive number",
      longrope("longrope", { 1, 0, 3, 4 }))
    refuses("llama3", "rope_scaling.short_factor is given; rope_type default has no use for it", longrope "default")
    refuses("llama3", "rope_scaling.factor is missing; rope_type linear needs it",
      { rope_scaling = { type = "linear" } })
    refuses("llama", "rope_parameters.factor is the number -1; it must be a positive number",
      { rope_parameters = { rope_type = "linear", factor = -1 } })
    assert.are.equal("Llama.load: unsupported configuration: eos_token_id 2 is a string ('a'); it must be an integer",
      problem("llama", nil, { eos_token_id = { 3, "a" } }))
    assert.is_truthy(problem("llama", nil, { head_dim = 7 }):find("^Llama.load: unsupported configuration: .*dims"))
  end)

  it("accepts sharded files, other floating-point dtypes, and names without the prefix", function()
    from "llama"
    local state = assert(heed.load(folder .. "/model.safetensors"))
    local ids, m = { 1, 2, 3 }, assert(CLASSES.llama.load(folder))
    local want, half, bare, index = m(ids), {}, {}, { weight_map = {} }
    for name, tensor in heed.pairs(state) do
      half[name], bare[name:gsub("^model%.", "")] = tensor:to "bfloat16", tensor:clone()
      index.weight_map[name] = name:find "layers.0" and "a.safetensors" or "b.safetensors"
    end
    assert(heed.save(folder .. "/bare.safetensors", bare))
    close(want, assert(CLASSES.llama.load(folder .. "/bare.safetensors"))(ids), 0)
    assert(heed.save(folder .. "/half.safetensors", half))
    m = assert(CLASSES.llama.load(folder .. "/half.safetensors"))
    assert.are.equal("bfloat16", m.lm_head.weight.dtype)
    close(want, m(ids), 0.3)
    local lines = {}
    for _, file in ipairs { "a.safetensors", "b.safetensors" } do
      local part = {}
      for name, of in pairs(index.weight_map) do
        if of == file then
          part[name] = state[name]:clone()
          lines[#lines + 1] = ('"%s": "%s"'):format(name, of)
        end
      end
      assert(heed.save(folder .. "/" .. file, part))
    end
    os.remove(folder .. "/model.safetensors")
    support.write(folder .. "/model.safetensors.index.json", ('{"weight_map": {%s}}'):format(table.concat(lines, ", ")))
    close(want, assert(CLASSES.llama.load(folder))(ids), 0)
  end)

  it("accepts bfloat16 weights of a GPT-2, and ignores the masks of older files", function()
    from "gpt2"
    local state, half = assert(heed.load(folder .. "/model.safetensors")), {}
    for name, tensor in heed.pairs(state) do half[name:gsub("^transformer%.", "")] = tensor:to "bfloat16" end
    half["h.0.attn.bias"], half["h.1.attn.masked_bias"] = heed.ones(1, 1, 4, 4), heed.tensor(-1e4)
    local want = assert(CLASSES.gpt2.load(folder)) { 1, 2, 3 }
    assert(heed.save(folder .. "/half.safetensors", half))
    close(want, assert(CLASSES.gpt2.load(folder .. "/half.safetensors")) { 1, 2, 3 }, 0.1)
  end)

  it("prefers the stop tokens of generation_config.json to those of config.json", function()
    from "llama"
    support.write(folder .. "/generation_config.json", '{"eos_token_id": [3, 9]}')
    assert.are.same({ 4, 10 }, assert(CLASSES.llama.load(folder)).config.stop_tokens)
  end)

  it("computes dynamic scaling for the longest text", function()
    local config = assert(core.files.json(TOP .. "decoders/llama_dynamic/config.json"))
    config.rope_parameters.original_max_position_embeddings = 16
    local m = assert(CLASSES.llama.load(TOP .. "decoders/llama_dynamic", config))
    assert.are.same({ "ntk", 7 }, { m.config.rope.scaling.type, m.config.rope.scaling.factor })
  end)

  it("splits a fused projection that is interleaved by heads", function()
    local loading = require "heed.models.loading"
    local m = heed.nn.MultiHeadAttention(8, 8, 4, 0, 2, { qkv_bias = true, out_proj = false })
    local parts = { W_query = 1, W_key = 2, W_value = 3 }
    local function name_in_file(name)
      local part, kind = name:match "^(.-)%.(.*)$"
      return "qkv." .. kind, { part = parts[part], parts = 3, groups = 2 }
    end
    local weight, bias = heed.randn(24, 8), heed.randn(24)
    local state = { ["qkv.weight"] = weight, ["qkv.bias"] = bias }
    assert(loading.fill("Test", m, state, {}, name_in_file, function() end))
    for part, i in pairs(parts) do
      for head = 1, 2 do -- the rows of the file: head 1's query, key and value, then head 2's
        local first, rows = (head - 1) * 12 + (i - 1) * 4 + 1, (head - 1) * 4 + 1
        assert.is_true(weight:narrow(1, first, 4):equal(m[part].weight:narrow(1, rows, 4)))
        assert.is_true(bias:narrow(1, first, 4):equal(m[part].bias:narrow(1, rows, 4)))
      end
    end
  end)

  it("reports problems with the files", function()
    local model, message = CLASSES.gpt2.load "tests/nowhere"
    assert.is_nil(model)
    assert.are.equal("GPT2.load: no such file or folder: 'tests/nowhere'", message)
    from "gpt2"
    os.remove(folder .. "/config.json")
    assert.is_truthy(select(2, CLASSES.gpt2.load(folder)):find "config.json'; add it or pass a config")
    support.write(folder .. "/config.json", "{")
    assert.is_nil((CLASSES.gpt2.load(folder)))
    raises("GPT2.load: path is nil; it must be a string", function() CLASSES.gpt2.load() end)
  end)
end)
