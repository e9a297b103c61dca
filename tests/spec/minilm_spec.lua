-- all-MiniLM-L6-v2 compared with reference values: token ids, embeddings, attention weights of the last layer.
local support = require "tests.support"
local heed = require "heed"
local Bert = require "heed.models.bert"

describe("all-MiniLM-L6-v2", function()
  local folder = support.model()
  if not folder then
    pending "is not here; `make model` fetches it"
    return
  end
  local model = assert(Bert.load(folder))

  local function distance(want, got)
    local most = 0
    assert.equal(#want, #got)
    for i = 1, #want do most = math.max(most, math.abs(want[i] - got[i])) end
    return most
  end

  for _, case in ipairs(dofile "tests/golden/minilm.lua") do
    it("agrees with PyTorch: " .. case.text, function()
      local ids = model.tokenizer:encode(case.text)
      local _, info = model(ids, { need_weights = true })
      for i, id in ipairs(ids) do ids[i] = id - 1 end
      assert.are.same(case.ids, ids)
      assert.is_true(distance(case.cls_weights, info.layers[6].weights[{ 1, 1 }]) <= 1e-5)
      assert.is_true(distance(case.embedding, model:encode({ case.text })[1]) <= 1e-5)
    end)
  end

  it("truncates text to 256 tokens, as configured", function()
    local long = ("word "):rep(2000)
    assert.equal(256, model.max_seq_length)
    assert.equal(256, #model.tokenizer:encode(long, { max_length = model.max_seq_length }))
    assert.is_true(distance(model:encode({ ("word "):rep(254) })[1], model:encode({ long })[1]) <= 1e-6)
  end)

  it("encodes a text alone as it does among others", function()
    local texts = { "", "one", ("two words "):rep(40), "three short words", "日本語", ("and so on "):rep(100) }
    local all = model:encode(texts)
    local before = heed.set_grad_enabled(true)
    local again = model:encode(texts)
    heed.set_grad_enabled(before)
    assert.is_nil(again.grad_fn)
    assert.is_true(all:equal(again))
    for i, text in ipairs(texts) do
      assert.is_true(distance(all[i], model:encode({ text })[1]) <= 1e-6)
    end
  end)

  it("finds a text by its meaning", function()
    local lines = { "The cat sits on the mat.", "Interest rates were raised again.", "A recipe for apple pie." }
    local scores = model:encode(lines):matmul(model:encode({ "What did the central bank do?" })[1])
    assert.equal(2, scores:argmax():item())
  end)
end)
