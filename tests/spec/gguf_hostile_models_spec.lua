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

  it("names an unknown key with its value", function()
    assert.truthy(problem({ "llama.logit_scale", "float32", 0.5 }):find("llama.logit_scale = 0.5", 1, true))
  end)
end)
