-- Texts of different lengths in each class of decoders: padded, packed and with a cache; and their gradients.
local heed = require "heed"
local cases = require "tests.decoder_cases"
local tensors = require "tests.tensors"

local close, int64 = tensors.close, tensors.int64
local IDS = { { 2, 5, 9, 4, 3, 8, 17, 30 }, { 7, 6, 1, 1, 1, 1, 1, 1 }, { 9, 3, 4, 2, 11, 1, 1, 1 } } -- 1 is padding
local LENGTHS = { 8, 2, 5 }
local PACKED = {}
for i, n in ipairs(LENGTHS) do table.move(IDS[i], 1, n, #PACKED + 1, PACKED) end

local function text(i) return table.move(IDS[i], 1, LENGTHS[i], 1, {}) end

for _, name in ipairs { "qwen2", "qwen2_window", "qwen3", "gemma3", "phi3", "phi3_partial", "smollm3", "smollm3_window",
  "mistral", "mixtral", "qwen3_moe" } do
  describe("texts of different lengths in " .. name, function()
    local model
    setup(function() model = assert(heed.models.load(cases.top .. "decoders/" .. name)) end)
    after_each(function() heed.set_grad_enabled(false) end)

    it("have the logits that each has alone", function()
      local padded, packed = model(IDS, { kv_lengths = LENGTHS }), model(PACKED, { lengths = LENGTHS })
      close(padded:pack(LENGTHS), packed, 1e-5)
      local hidden = heed.range(1, 8):gt(int64(LENGTHS):unsqueeze(2))
      local masked = model(IDS, { key_padding_mask = hidden })
      for i, n in ipairs(LENGTHS) do
        local alone = model(text(i))
        close(alone, padded[i]:narrow(1, 1, n), 2e-5)
        close(alone, masked[i]:narrow(1, 1, n), 2e-5)
      end
    end)

    it("have the logits of their last tokens", function()
      local whole = model(PACKED, { lengths = LENGTHS })
      local last, at = model(PACKED, { lengths = LENGTHS, logits_to_keep = 2 }), 0
      for i, n in ipairs(LENGTHS) do
        at = at + n
        close(whole:narrow(1, at - 1, 2), last:narrow(1, 2 * i - 1, 2), 2e-5)
      end
    end)

    it("are generated as each alone", function()
      local texts = model:generate({ text(1), text(2), text(3) }, { max_new_tokens = 6, stop = {} })
      for i, each in ipairs(texts) do
        assert.are.same((model:generate(text(i), { max_new_tokens = 6, stop = {} })), each)
      end
    end)

    it("have gradients that are the sums of those of each alone", function()
      local function gradients(run)
        model:zero_grad()
        heed.set_grad_enabled(true)
        run()
        heed.set_grad_enabled(false)
        local found = {}
        for each, parameter in model:named_parameters() do found[each] = parameter.grad and parameter.grad:clone() end
        return found
      end
      local function loss(logits) return (logits * logits):sum() end
      local together = gradients(function() loss(model(PACKED, { lengths = LENGTHS })):backward() end)
      local apart = gradients(function()
        for i = 1, #LENGTHS do loss(model(text(i))):backward() end
      end)
      local count = 0
      for each, want in pairs(apart) do
        local size = want:abs():max():item()
        close(want / math.max(size, 1e-6), together[each] / math.max(size, 1e-6), 2e-4)
        count = count + 1
      end
      assert.is_true(count > 10)
    end)
  end)
end
