-- m:save_pretrained: what it writes is what load reads.
local heed = require "heed"
local core = require "heed.core"
local cases = require "tests.decoder_cases"
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local support = require "tests.support"

local ids = { { 5, 17, 9, 30, 2 } }

describe("save_pretrained", function()
  local folder
  local function clear()
    if folder then support.remove_folder(folder) end
    folder = nil
  end
  before_each(function()
    clear()
    folder = support.copy_folder "tests/golden/decoders/llama"
  end)
  after_each(clear)

  for _, case in ipairs(cases.variants) do
    it("writes a model that gives the same logits: " .. case.name, function()
      local Class, source = cases.class_of(case.name), cases.top .. "decoders/" .. case.name
      local model = assert(Class.load(source))
      assert.is_true(model:save_pretrained(folder))
      local again = assert(Class.load(folder))
      assert.is_true(model(ids):equal(again(ids)))
      for name, value in heed.pairs(assert(heed.load(source .. "/model.safetensors"))) do
        local written = assert(heed.load(folder .. "/model.safetensors"))[name]
        local bound = case.name:find "gemma" and name:find "norm" and 2e-7 or 0 -- 1 + w - 1 rounds
        if written ~= nil then assert.is_true((value - written):abs():max():item() <= bound, name) end
      end
      local before, after = core.files.json(source .. "/config.json"), core.files.json(folder .. "/config.json")
      assert.are.same(before.architectures, after.architectures)
      assert.are.equal(before.model_type, after.model_type)
    end)
  end

  it("writes the queries and keys of a model with interleaved rope in the order of other libraries", function()
    local Llama = require "heed.models.llama"
    local model = Llama({ vocab_size = 40, hidden_size = 16, intermediate_size = 12, num_hidden_layers = 2,
      num_attention_heads = 4, num_key_value_heads = 2, max_position_embeddings = 8, rope_interleaved = true,
      attention_bias = true, initializer_range = 0.5 }):eval()
    for _, layer in heed.ipairs(model.layers) do layer.attention.W_query.bias:normal_() end
    assert.is_true(model:save_pretrained(folder))
    local again = assert(Llama.load(folder))
    assert.is_false(again.config.rope_interleaved)
    tensors.close(model(ids), again(ids), 1e-5)
    assert.is_false(model.layers[1].attention.W_query.weight:equal(again.layers[1].attention.W_query.weight))
  end)

  it("writes a model with fresh weights", function()
    local GPT2 = require "heed.models.gpt2"
    local model = GPT2({ vocab_size = 40, n_embd = 12, n_layer = 2, n_head = 3, n_positions = 8,
      layer_norm_epsilon = 1e-6, resid_pdrop = 0 }):eval()
    assert.is_true(model:save_pretrained(folder .. "/"))
    local again = assert(GPT2.load(folder))
    assert.is_true(model(ids):equal(again(ids)))
    assert.are.equal(1e-6, again.config.layer_norm_epsilon)
    local count = 0
    for _ in heed.pairs(assert(heed.load(folder .. "/model.safetensors"))) do count = count + 1 end
    assert.are.equal(2 + 2 * 12 + 2, count) -- the tied lm_head is not stored
  end)

  it("says what it cannot write", function()
    local model = assert(require("heed.models.gpt2").load "tests/golden/decoders/gpt2")
    local fine, message = model:save_pretrained(folder .. "/none")
    assert.is_nil(fine)
    assert.are.equal(("save_pretrained: no such folder: '%s/none'"):format(folder), message)
    raises("save_pretrained: folder is nil; it must be a string", function() model:save_pretrained() end)
    model:to "int8"
    raises("save_pretrained: layers.0.attention.W_query.weight is a tensor of shape [24, 24] and dtype int8; it must "
      .. 'be floating-point; use m:to "float32"', function()
      model:save_pretrained(folder)
    end)
  end)
end)
