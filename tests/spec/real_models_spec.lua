-- SmolLM2-135M-Instruct and Gemma-3-270m, from their GGUF files, compared with transformers on the widened weights.
local heed = require "heed"
local support = require "tests.support"
local from_one = require("tests.decoder_cases").from_one

for _, case in ipairs(dofile "tests/golden/real_models.lua") do
  describe(case.name, function()
    local folder = support.model(case.name)
    if not folder then
      pending(("is not here; `make model NAME=%s` fetches it"):format(case.name))
      return
    end
    local model = assert(heed.models.load(folder))
    local ids = from_one(case.ids)

    it("has a tokenizer, and a chat template, that give the reference ids", function()
      local got
      if model.chat_template then
        got = model.tokenizer:apply_chat_template({ { role = "user", content = case.question } },
          { add_generation_prompt = true, tokenize = true })
      else
        got = model.tokenizer:encode(case.question)
      end
      assert.are.same(ids, got)
    end)

    it("gives the reference logits", function()
      local logits, best = model(ids)[-1], from_one(case.top)
      for i, id in ipairs(best) do assert.is_true(math.abs(case.logits[i] - logits[id]) <= 2e-4) end
      assert.are.equal(best[1], logits:argmax():item())
    end)

    it("writes the reference text", function()
      local greedy = from_one(case.greedy)
      assert.are.same(greedy, (model:generate(ids, { max_new_tokens = #greedy, stop = {} })))
    end)

    it("knows about Paris", function()
      local text = model.tokenizer:decode((model:generate(ids, { max_new_tokens = 12 })), { skip_special_tokens = true })
      assert.is_truthy(text:find(model.chat_template and "The capital of France is Paris." or "France", 1, true), text)
    end)

    it("keeps the file's blocks", function()
      assert.are.equal("q8_0", model.token_embeddings.weight.dtype)
      assert.is_truthy(model.layers[1].down.weight.dtype:find "^q")
    end)
  end)
end
