-- Encoders in GGUF files, with the names and metadata of llama.cpp's converter.
local heed = require "heed"
local support = require "tests.support"
local close = require("tests.tensors").close
local pairs_of = require("heed.compat").pairs

local TINY = "tests/golden/tiny_bert"
local CONFIG = { vocab_size = 105, hidden_size = 24, num_hidden_layers = 2, num_attention_heads = 3,
  intermediate_size = 40, max_position_embeddings = 20, layer_norm_eps = 1e-6, model_type = "bert" }
local TEXTS = { "your journey starts with one step", "one step", "Your Journey, ÉTÉ?" }

local RENAMES = {
  { "^bert%.", "" },
  { "embeddings%.word_embeddings", "token_embd" },
  { "embeddings%.position_embeddings", "position_embd" },
  { "embeddings%.token_type_embeddings", "token_types" },
  { "embeddings%.LayerNorm", "token_embd_norm" },
  { "encoder%.layer", "blk" },
  { "attention%.self%.(%l)%l+", "attn_%1" },
  { "attention%.output%.dense", "attn_output" },
  { "attention%.output%.LayerNorm", "attn_output_norm" },
  { "intermediate%.dense", "ffn_up" },
  { "output%.dense", "ffn_down" },
  { "(%.%d+)%.output%.LayerNorm", "%1.layer_output_norm" },
}

--- The vocabulary as the converter writes it: U+2581 begins words, and nothing other pieces.
local function tokens()
  local list, types = {}, {}
  for piece in support.read(TINY .. "/vocab.txt"):gmatch "[^\n]+" do
    local special = piece:find "^%[.*%]$" ~= nil
    list[#list + 1] = special and piece or piece:find "^##" and piece:sub(3) or "▁" .. piece
    types[#types + 1] = special and 3 or 1
  end
  return list, types
end

--- f(path) for the file of the tiny BERT, after change(metadata, tensors) if given.
local function with_file(f, change)
  local state, tensors = assert(heed.load(TINY .. "/model.safetensors")), {}
  for name, value in pairs_of(state) do
    local short = name
    for _, rename in ipairs(RENAMES) do short = short:gsub(rename[1], rename[2]) end
    if not short:find "pooler" then tensors[short] = value:clone() end
  end
  local list, types = tokens()
  local metadata = {
    ["general.architecture"] = "bert", ["bert.block_count"] = 2, ["bert.context_length"] = 20,
    ["bert.embedding_length"] = 24, ["bert.feed_forward_length"] = 40, ["bert.attention.head_count"] = 3,
    ["bert.attention.layer_norm_epsilon"] = 1e-6, ["bert.attention.causal"] = false, ["bert.pooling_type"] = 1,
    ["tokenizer.ggml.model"] = "bert", ["tokenizer.ggml.pre"] = "default", ["tokenizer.ggml.tokens"] = list,
    ["tokenizer.ggml.token_type"] = types, ["tokenizer.ggml.token_type_count"] = 2,
  }
  for i, piece in ipairs(list) do
    for name, text in pairs { unknown = "[UNK]", seperator = "[SEP]", padding = "[PAD]", cls = "[CLS]" } do
      if piece == text then metadata[("tokenizer.ggml.%s_token_id"):format(name)] = i - 1 end
    end
  end
  if change then change(metadata, tensors) end
  support.with_file(function(path)
    path = path .. ".gguf"
    assert(heed.save(path, tensors, { metadata = metadata }))
    local fine, problem = pcall(f, path)
    os.remove(path)
    if not fine then error(problem, 0) end
  end)
end

describe("a GGUF file of a BERT", function()
  it("gives the vectors of the folder", function()
    local want = assert(require("heed.models.bert").load(TINY, CONFIG))
    with_file(function(path)
      local bert = assert(heed.models.load(path))
      assert.are.equal("mean", bert.pooling)
      assert.are.equal(20, bert.max_seq_length)
      close(want:encode(TEXTS), bert:encode(TEXTS), 1e-6)
      close(want { 5, 17, 9 }, bert { 5, 17, 9 }, 1e-6)
      local steps = bert:encode_steps(TEXTS, { ms = 0 })
      while not steps:advance() do end
      close(want:encode(TEXTS), steps.result, 1e-6)
    end)
  end)

  it("pools as it says", function()
    local want = assert(require("heed.models.bert").load(TINY, CONFIG))
    want.pooling = "cls"
    with_file(function(path)
      close(want:encode(TEXTS), assert(heed.models.load(path)):encode(TEXTS), 1e-6)
    end, function(metadata) metadata["bert.pooling_type"] = 2 end)
  end)

  it("may be in a folder, as model.gguf", function()
    with_file(function(path)
      local folder = support.new_folder()
      assert(os.execute(("cp %s %s/model.gguf"):format(support.quote(path), support.quote(folder))))
      assert.are.equal(3, assert(heed.models.load(folder)):encode(TEXTS).shape[1])
      support.remove_folder(folder)
    end)
  end)

  it("is refused with what is unknown or missing in it", function()
    for _, row in ipairs {
      { function(metadata) metadata["bert.pooling_type"] = 4 end, "bert.pooling_type is the number 4; it must be 0" },
      { function(metadata) metadata["bert.attention.causal"] = true end, "setting for bert.attention.causal = true" },
      { function(metadata) metadata["bert.expert_count"] = 8 end, "no setting for bert.expert_count = 8" },
      { function(metadata) metadata["bert.block_count"] = "2" end, "bert.block_count is a string ('2')" },
      { function(metadata) metadata["bert.block_count"] = 3 end, "bert.block_count is 3; the file has 2 layers" },
      { function(_, tensors) tensors["blk.1.ffn_up.bias"] = nil end, "blk.1.ffn_up.bias is missing" },
      { function(_, tensors) tensors["cls.weight"] = heed.ones(2) end, "cls.weight is not part of the model" },
      { function(_, tensors) tensors["token_embd.weight"] = nil end, "of rows of token_embd.weight is missing" },
    } do
      with_file(function(path)
        local model, problem = heed.models.load(path)
        assert.is_nil(model)
        assert.is_truthy(problem:find(row[2], 1, true), problem)
      end, row[1])
    end
  end)

  it("says which tokenizer it cannot read, and encodes no texts then", function()
    with_file(function(path)
      local bert = assert(heed.models.load(path))
      assert.is_nil(bert.tokenizer)
      assert.is_truthy(bert.tokenizer_problem:find("'unheard'", 1, true), bert.tokenizer_problem)
      assert.are.equal(24, bert({ 5, 17, 9 }).shape[2])
      assert.is_false((pcall(bert.encode, bert, TEXTS)))
    end, function(metadata) metadata["tokenizer.ggml.model"] = "unheard" end)
  end)
end)
