-- GGUF files that cannot be models: what is absurd in their metadata is a message, never an error of heed's own code.
local heed = require "heed"
local gguf = require "tests.gguf"
local files = dofile "tests/files.lua"
local file, pair = files.file, gguf.pair

describe("a GGUF file that cannot be a model", function()
  files.in_folders(before_each, after_each)

  local GOOD = {
    { "llama.block_count", "uint32", 1 }, { "llama.context_length", "uint32", 16 },
    { "llama.embedding_length", "uint32", 8 }, { "llama.feed_forward_length", "uint32", 8 },
    { "llama.attention.head_count", "uint32", 2 }, { "llama.attention.layer_norm_rms_epsilon", "float32", 1e-5 },
    { "llama.vocab_size", "uint32", 4 },
  }

  --- The message for a file with GOOD and the pairs `other` and `further` (or nil), which replace those of their keys.
  local function problem(other, further)
    local list, replaced = { pair("general.architecture", "string", "llama") }, {}
    for _, each in ipairs { other, further } do
      list[#list + 1], replaced[each[1]] = pair(each[1], each[2], each[3]), true
    end
    for _, each in ipairs(GOOD) do
      if not replaced[each[1]] then list[#list + 1] = pair(each[1], each[2], each[3]) end
    end
    local model, message = heed.models.load(file("x.gguf", gguf.file(list, {})))
    assert.is_nil(model)
    assert.is_string(message)
    return message
  end

  it("may have sizes of any value and type", function()
    for _, key in ipairs { "block_count", "embedding_length", "feed_forward_length", "context_length",
      "attention.head_count", "attention.head_count_kv", "attention.key_length", "attention.value_length",
      "rope.dimension_count", "vocab_size", "attention.sliding_window" } do
      for _, value in ipairs { 0, -1, 3, 2 ^ 31 - 1 } do problem { "llama." .. key, "int32", value } end
      for _, value in ipairs { 0 / 0, 1 / 0, -1 / 0, 0.5, 1e38 } do problem { "llama." .. key, "float32", value } end
      problem { "llama." .. key, "string", "many" }
      problem { "llama." .. key, "bool", true }
      problem { "llama." .. key, "array", { "int32", 1, 2, 3 } }
    end
  end)

  it("may have settings of any value and type", function()
    for _, key in ipairs { "rope.freq_base", "attention.layer_norm_rms_epsilon", "rope.scaling.factor",
      "rope.scale_linear", "rope.scaling.attn_factor", "rope.scaling.original_context_length", "rope.scaling.type" } do
      for _, value in ipairs { 0 / 0, 1 / 0, -1 / 0, 0, -1, 1e38 } do problem { "llama." .. key, "float32", value } end
      for _, value in ipairs { "", "yarn", "linear", "longrope" } do problem { "llama." .. key, "string", value } end
      problem { "llama." .. key, "bool", false }
      problem { "llama." .. key, "array", { "string", "yarn" } }
    end
  end)

  it("may scale its positions in any way", function()
    for _, kind in ipairs { "yarn", "linear" } do
      local type_of = { "llama.rope.scaling.type", "string", kind }
      for _, key in ipairs { "factor", "attn_factor", "original_context_length" } do
        for _, value in ipairs { 0 / 0, 1 / 0, 0, -1 } do
          problem(type_of, { "llama.rope.scaling." .. key, "float32", value })
        end
        problem(type_of, { "llama.rope.scaling." .. key, "string", "big" })
        problem(type_of, { "llama.rope.scaling." .. key, "array", { "int32", 1 } })
      end
    end
  end)

  --- Files of an architecture with the tensors that a function gives and one key of any value or type.
  local function try_keys(architecture, keys, tensors, data)
    local values = { { "string", "many" }, { "bool", true }, { "array", { "int32", 1, 2, 3 } } }
    for _, value in ipairs { 0, -1, 3, 2 ^ 31 - 1 } do table.insert(values, { "int32", value }) end
    for _, value in ipairs { 0 / 0, 1 / 0, 0.5, -1e38 } do table.insert(values, { "float32", value }) end
    for _, key in ipairs(keys) do
      for _, value in ipairs(values) do
        local list = { pair("general.architecture", "string", architecture) }
        for _, each in ipairs(GOOD) do
          local name = each[1]:gsub("^llama", architecture)
          if name ~= architecture .. "." .. key then list[#list + 1] = pair(name, each[2], each[3]) end
        end
        list[#list + 1] = pair(architecture .. "." .. key, value[1], value[2])
        local model, message = heed.models.load(file("x.gguf", gguf.file(list, tensors, data)))
        assert.is_nil(model)
        assert.is_string(message)
      end
    end
  end

  it("may have any number of experts", function()
    for _, architecture in ipairs { "llama", "qwen3moe" } do
      try_keys(architecture, { "expert_count", "expert_used_count", "expert_feed_forward_length" }, {
        gguf.tensor("token_embd.weight", { 8, 4 }, 0, 0),
        gguf.tensor("blk.0.ffn_gate_exps.weight", { 8, 8, 2 }, 0, 128),
      }, ("\0"):rep(640))
    end
  end)

  it("may have factors of any number and value", function()
    for _, text in ipairs { string.pack("<ffff", 1, 2, 3, 4), string.pack("<ffff", 0, -1, 1 / 0, 0 / 0) } do
      for _, sizes in ipairs { { 0 }, { 1 }, { 2 }, { 2, 2 }, { 300 } } do
        for _, kind in ipairs { 0, 26, 99 } do -- F32, I32, none
          try_keys("phi3", { "rope.scaling.original_context_length" }, {
            gguf.tensor("rope_factors_long.weight", sizes, kind, 0),
            gguf.tensor("rope_factors_short.weight", { 2 }, 0, 0),
          }, text .. ("\0"):rep(2000))
          try_keys("llama", { "rope.dimension_count" }, { gguf.tensor("rope_freqs.weight", sizes, kind, 0) },
            text .. ("\0"):rep(2000))
        end
      end
    end
  end)

  it("may have any two keys of any values and types", function()
    local values = { { "string", "many" }, { "array", { "int32", 2, 2 } }, { "int32", 0 }, { "int32", 62 },
      { "float32", 0 / 0 } }
    local keys = { "block_count", "embedding_length", "attention.head_count", "attention.key_length",
      "attention.value_length", "rope.dimension_count", "rope.freq_base", "rope.scaling.type", "rope.scaling.factor" }
    for _, architecture in ipairs { "llama", "gemma3", "phi3", "qwen3moe" } do
      for i, key in ipairs(keys) do
        for j = i + 1, #keys do
          for _, v in ipairs { (i + j) % #values + 1, (2 * i + j) % #values + 1 } do -- a part of all combinations
            local w = (v + i) % #values + 1
            local list = { pair("general.architecture", "string", architecture) }
            for _, each in ipairs(GOOD) do
              local short = each[1]:match "^llama%.(.*)$"
              if short ~= key and short ~= keys[j] then
                list[#list + 1] = pair(architecture .. "." .. short, each[2], each[3])
              end
            end
            list[#list + 1] = pair(architecture .. "." .. key, values[v][1], values[v][2])
            list[#list + 1] = pair(architecture .. "." .. keys[j], values[w][1], values[w][2])
            local model, message = heed.models.load(file("x.gguf", gguf.file(list, {
              gguf.tensor("token_embd.weight", { 8, 4 }, 0, 0), gguf.tensor("rope_freqs.weight", { 2 }, 0, 128),
            }, ("\0"):rep(640))))
            assert.is_nil(model)
            assert.is_string(message)
          end
        end
      end
    end
  end)

  it("may have tensors of any shape and dtype", function()
    for _, architecture in ipairs { "llama", "gemma3", "phi3", "qwen3moe", "bert" } do
      for _, name in ipairs { "token_embd.weight", "token_types.weight", "output.weight", "output_norm.weight",
        "blk.0.attn_q.weight", "blk.0.ffn_gate_exps.weight", "rope_freqs.weight", "rope_factors_long.weight" } do
        for _, sizes in ipairs { {}, { 0 }, { 8, 4 }, { 2, 2, 2 } } do
          for _, kind in ipairs { 0, 10 } do -- F32, Q2_K
            local list = { pair("general.architecture", "string", architecture) }
            for _, each in ipairs(GOOD) do
              local key = each[1]:gsub("^llama", architecture)
              list[#list + 1] = pair(key, each[2], each[3])
            end
            local model, message = heed.models.load(file("x.gguf", gguf.file(list,
              { gguf.tensor(name, sizes, kind, 0) }, ("\0"):rep(640))))
            assert.is_nil(model)
            assert.is_string(message)
          end
        end
      end
    end
  end)

  it("may be an encoder with settings of any value and type", function()
    try_keys("bert", { "block_count", "context_length", "embedding_length", "feed_forward_length", "pooling_type",
      "attention.head_count", "attention.layer_norm_epsilon", "attention.causal", "vocab_size" }, {
      gguf.tensor("token_embd.weight", { 8, 4 }, 0, 0), gguf.tensor("token_types.weight", { 8, 2 }, 0, 128),
    }, ("\0"):rep(640))
  end)

  it("may have tensors of a dtype that heed lacks", function()
    for kind, name in pairs { [10] = "Q2_K", [23] = "IQ4_XS" } do
      local list = { pair("general.architecture", "string", "llama") }
      for _, each in ipairs(GOOD) do list[#list + 1] = pair(each[1], each[2], each[3]) end
      local path = file("x.gguf", gguf.file(list, { gguf.tensor("blk.0.ffn_up.weight", { 256, 4 }, kind, 0) },
        ("\0"):rep(1000)))
      for _, load in ipairs { heed.models.load, require("heed.models.llama").load } do
        assert.are.same({ nil, ("load: '%s', tensor 'blk.0.ffn_up.weight': its dtype is %s, which heed lacks; quantize "
          .. "the model to Q8_0 or Q4_K_M with llama-quantize"):format(path, name) }, { load(path) })
      end
    end
  end)

  it("names all dtypes that heed lacks at once", function()
    local list = { pair("general.architecture", "string", "llama") }
    for _, each in ipairs(GOOD) do list[#list + 1] = pair(each[1], each[2], each[3]) end
    local path = file("x.gguf", gguf.file(list, {
      gguf.tensor("blk.0.ffn_up.weight", { 256, 4 }, 10, 0), gguf.tensor("blk.0.ffn_down.weight", { 256, 4 }, 23, 1024),
      gguf.tensor("blk.0.ffn_gate.weight", { 256, 4 }, 10, 2048), gguf.tensor("norm.weight", { 8 }, 0, 4096),
    }, ("\0"):rep(9000)))
    assert.are.same({ nil, ("load: '%s': the dtypes of 3 tensors are Q2_K ('blk.0.ffn_up.weight' and 1 other), IQ4_XS "
      .. "('blk.0.ffn_down.weight'), which heed lacks; quantize the model to Q8_0 or Q4_K_M with llama-quantize")
      :format(path) }, { heed.models.load(path) })
  end)

  it("may have such tensors with names like messages", function()
    local list, name = { pair("general.architecture", "string", "llama") }, "a: its dtype is odd, which heed lacks; b"
    for _, each in ipairs(GOOD) do list[#list + 1] = pair(each[1], each[2], each[3]) end
    local path = file("x.gguf", gguf.file(list, { gguf.tensor(name, { 256, 4 }, 10, 0),
      gguf.tensor("later", { 256, 4 }, 99, 1024) }, ("\0"):rep(9000)))
    assert.are.same({ nil, ("load: '%s': the dtypes of 2 tensors are Q2_K ('%s'), number 99 of ggml ('later'), which "
      .. "heed lacks; quantize the model to Q8_0 or Q4_K_M with llama-quantize"):format(path, name) },
      { heed.models.load(path) })
  end)

  it("names an unknown key with its value", function()
    assert.truthy(problem({ "llama.logit_scale", "float32", 0.5 }):find("llama.logit_scale = 0.5", 1, true))
  end)
end)
