-- paraphrase-MiniLM-L3-v2, made from an ONNX file, compared with ONNX Runtime.
local support = require "tests.support"
local heed = require "heed"

describe("paraphrase-MiniLM-L3-v2", function()
  local folder = support.model "paraphrase-MiniLM-L3-v2"
  if not folder then
    pending "is not here; `make model NAME=paraphrase-MiniLM-L3-v2` fetches it"
    return
  end
  local model = assert(heed.models.load(folder))

  it("gives ONNX Runtime's sentence vectors, which are not normalized", function()
    for _, case in ipairs(dofile "tests/golden/paraphrase.lua") do
      local got = model:encode({ case.text })[1]
      for i, want in ipairs(case.embedding) do assert.is_true(math.abs(want - got[i]) <= 2e-5) end
      assert.is_true(got:pow(2):sum():item() > 2)
    end
  end)

  it("finds a text by its meaning", function()
    local lines = { "The cat sits on the mat.", "Interest rates were raised again.", "A recipe for apple pie." }
    local vectors = model:encode(lines, { normalize = true })
    local question = model:encode({ "What did the central bank do?" }, { normalize = true })[1]
    assert.are.equal(2, vectors:matmul(question):argmax():item())
  end)
end)
