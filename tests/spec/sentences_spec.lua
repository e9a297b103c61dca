-- Sentence vectors by the files of sentence-transformers: pooling, further layers, prompts.
local heed = require "heed"
local raises = require "tests.raises"
local support = require "tests.support"
local tensors = require "tests.tensors"
local Bert = require "heed.models.bert"

local FOLDER = "tests/golden/encoders/sentence"
local MODES = { "cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken" }

describe("sentence vectors", function()
  local model = assert(Bert.load(FOLDER))
  local cases = dofile "tests/golden/sentences.lua"

  it("are those of sentence-transformers, with pooling, a dense layer, and a prompt", function()
    for _, case in ipairs(cases) do
      tensors.close(tensors.golden(case.vector), model:encode({ case.text }, { prompt = case.prompt })[1], 2e-6)
      if case.prompt == "passage" then -- the default
        tensors.close(tensors.golden(case.vector), model:encode({ case.text })[1], 2e-6)
      end
    end
  end)

  it("are pooled in each way, alone and among others", function()
    local m = assert(Bert.load(FOLDER))
    m.sentence_layers = nil
    for _, mode in ipairs(MODES) do
      m.pooling = mode
      local texts, want = {}, {}
      for _, case in ipairs(cases) do
        if case.prompt == "passage" then
          texts[#texts + 1], want[#want + 1] = case.text, tensors.golden(case[mode])
        end
      end
      local got = m:encode(texts, { normalize = false })
      for i, each in ipairs(want) do tensors.close(each, got[i], 2e-5) end
    end
    m.pooling = "cls+median"
    raises("encode: pooling is a string ('cls+median'); it must be one of cls, max, mean, mean_sqrt_len, "
      .. "weightedmean, lasttoken, or several joined by +", function() m:encode { "a" } end)
  end)

  it("have at least the special tokens of a text", function()
    local m = assert(Bert.load(FOLDER))
    m.max_seq_length = 1
    assert.are.equal("heed.Size([2, 6])", tostring(m:encode({ "one step", "" }).shape))
    m.max_seq_length = nil -- as in a model that was not loaded
    assert.is_true(heed.allclose(m:encode { "one step" }, model:encode { "one step" }, 1e-5, 1e-6))
  end)

  it("have the size of the last layer, also for an empty list", function()
    assert.are.equal("max+mean", model.pooling)
    assert.are.equal("heed.Size([0, 6])", tostring(model:encode({}).shape))
  end)

  it("are computed in slices, too", function()
    local steps = model:encode_steps({ "one step", "the journey" }, { prompt = "query", ms = 1000 })
    while not steps:advance() do end
    assert.is_true(heed.allclose(steps.result, model:encode({ "one step", "the journey" }, { prompt = "query" }), 1e-5,
      1e-6))
  end)

  it("need a prompt that the model has", function()
    raises("encode: prompt is a string ('q'); it must be one of passage, query",
      function() model:encode({ "a" }, { prompt = "q" }) end)
    raises("encode: prompt is a string ('q'); it must be nil: config_sentence_transformers.json has no prompts",
      function() assert(Bert.load "tests/golden/tiny_bert"):encode({ "a" }, { prompt = "q" }) end)
  end)
end)

describe("the files of a sentence encoder", function()
  local folder

  before_each(function() folder = support.copy_folder(FOLDER) end)
  after_each(function() support.remove_folder(folder) end)

  --- The message of loading the folder after a file was replaced.
  local function problem(file, text)
    support.write(folder .. "/" .. file, text)
    local m, message = Bert.load(folder)
    assert.is_nil(m)
    return (message:gsub("^Bert.load: unsupported configuration: ", ""))
  end

  it("are refused where they ask for something else", function()
    assert.are.equal("modules.json: module 2 is a LSTM; it must be a Transformer, followed by Pooling, Dense and "
      .. "Normalize", problem("modules.json",
      '[{"path": "", "type": "a.Transformer"}, {"path": "1_LSTM", "type": "a.LSTM"}]'))
    assert.are.equal("modules.json: the path of module 1 is a string ('../x'); it must be within the folder",
      problem("modules.json", '[{"path": "../x", "type": "a.Transformer"}]'))
    assert.are.equal("modules.json: module 1 has no type and path", problem("modules.json", '[{"path": 3}]'))
    assert.are.equal("modules.json has no list of modules", problem("modules.json", '{"a": 3}'))
  end)

  it("are refused where a setting is unknown or wrong", function()
    assert.is_truthy(problem("1_Pooling/config.json", '{"pooling_mode_median": true}')
      :find("there is no setting '1_Pooling/config.json: pooling_mode_median'", 1, true))
    assert.are.equal("1_Pooling/config.json: include_prompt is a boolean (false); it must be true",
      problem("1_Pooling/config.json", '{"include_prompt": false}'))
    assert.are.equal("1_Pooling/config.json: pooling_mode is a string ('median'); it must be one of cls, max, mean, "
      .. "mean_sqrt_len, weightedmean, lasttoken", problem("1_Pooling/config.json", '{"pooling_mode": "median"}'))
    assert.are.equal("1_Pooling/config.json: pooling_mode is the number 3; it must be one of cls, max, mean, "
      .. "mean_sqrt_len, weightedmean, lasttoken", problem("1_Pooling/config.json", '{"pooling_mode": 3}'))
  end)

  it("are refused where a layer does not fit", function()
    assert.are.equal("2_Dense/config.json: in_features is 31; it must be 32, the size of the vectors",
      problem("2_Dense/config.json", '{"in_features": 31, "out_features": 6}'))
    assert.is_truthy(problem("2_Dense/config.json", '{"in_features": 32, "out_features": 7}')
      :find("linear.weight has the shape [6, 32]; it must be [7, 32]", 1, true))
    assert.are.equal("2_Dense/config.json: activation_function is a string ('a.Mish'); it must be PyTorch's GELU, "
      .. "Identity, ReLU, Sigmoid or Tanh",
      problem("2_Dense/config.json", '{"in_features": 32, "out_features": 6, "activation_function": "a.Mish"}'))
  end)

  it("are refused where the default prompt is missing", function()
    assert.are.equal("config_sentence_transformers.json: default_prompt_name is a string ('q'); it must be one of "
      .. "prompts", problem("config_sentence_transformers.json", '{"prompts": {}, "default_prompt_name": "q"}'))
  end)

  it("may name the pooling in the newer way, and leave out Normalize", function()
    support.write(folder .. "/1_Pooling/config.json", '{"embedding_dimension": 16, "pooling_mode": "mean"}')
    support.write(folder .. "/modules.json", '[{"path": "", "type": "sentence_transformers.models.Transformer"}, '
      .. '{"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}]')
    local m = assert(Bert.load(folder))
    local y = m:encode({ "one step" })[1]
    assert.is_true(math.abs(y:pow(2):sum():item() - 1) > 1e-3)
    local unit = m:encode({ "one step" }, { normalize = true })[1]
    assert.is_true(heed.allclose(unit, y / y:pow(2):sum():sqrt(), 1e-5, 1e-6))
  end)
end)
