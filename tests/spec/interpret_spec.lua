-- heed.interpret compared with PyTorch's values, and what it says to wrong arguments.
local heed = require "heed"
local interpret = require "heed.interpret"
local cases = require "tests.decoder_cases"
local raises = require "tests.raises"
local support = require "tests.support"
local tensors = require "tests.tensors"

local close, golden, from_one = tensors.close, tensors.golden, cases.from_one
local by_name = {}
for _, case in ipairs(dofile "tests/golden/interpret.lua") do by_name[case.name] = case end

--- Weights [.., h, n, n] of random scores; causal unless `all` is true.
local function random_weights(shape, all)
  local scores = heed.randn(shape, { generator = heed.Generator(7) })
  local n = shape[#shape]
  return (all and scores or scores:masked_fill(heed.ones(n, n):triu(1):bool(), -math.huge)):softmax(-1)
end

--- Compares the analyses of weights with a case.
local function compare_weights(case, source)
  close(golden(case.entropy), interpret.entropy(source), 1e-5)
  close(golden(case.entropy) / math.log(2), interpret.entropy(source, { base = 2 }), 1.5e-5)
  close(golden(case.distance), interpret.distance(source), 2e-5)
  close(golden(case.sink_share), interpret.sink_share(source), 5e-6)
  close(golden(case.two_share), interpret.sink_share(source, { tokens = 2 }), 5e-6)
  close(golden(case.previous), interpret.previous_token_score(source), 5e-6)
  close(golden(case.rollout), interpret.rollout(source), 5e-6)
  local layers = case.agreement.shape[1] -- the last of them
  local function last(x) return x:narrow(1, x.shape[1] - layers + 1, layers) end
  close(golden(case.agreement), last(interpret.agreement(source)), 5e-6)
  close(golden(case.cosine), last(interpret.agreement(source, { measure = "cosine" })), 5e-6)
end

for _, name in ipairs { "gpt2", "llama" } do
  describe("heed.interpret on the golden " .. name, function()
    local case, model = by_name[name], cases.load(name)
    local ids = from_one(case.ids)
    local logits, cache = model:run_with_cache(ids)

    it("gives PyTorch's values for weights, from a cache, a tensor or a list of layers", function()
      compare_weights(case, cache)
      compare_weights(case, cache:stack "pattern")
      local list = {}
      for i = 1, #model.layers do list[i] = cache:get("pattern", i) end
      compare_weights(case, list)
    end)

    it("gives PyTorch's induction scores, by period and by ids", function()
      close(golden(case.induction), interpret.induction_score(cache, { period = case.period }), 5e-6)
      close(golden(case.induction), interpret.induction_score(cache, { ids = ids }), 5e-6)
    end)

    it("runs the model for a rollout", function()
      close(golden(case.rollout), interpret.rollout(model, ids), 5e-6)
    end)

    it("gives PyTorch's logit lens", function()
      local lens = interpret.logit_lens(model, ids)
      close(logits, lens[-1], 2e-5)
      close(golden(case.lens), lens:select(2, #ids):log_softmax(-1):narrow(2, 1, 40), 5e-5)
      close(lens, interpret.logit_lens(model, cache), 2e-5)
      close(lens:select(2, #ids):unsqueeze(2), interpret.logit_lens(model, ids, { positions = -1 }), 2e-5)
      local best = interpret.logit_lens(model, ids, { positions = { -1 }, top = 2 })
      assert.are.same(golden(case.best):tolist(), (best.ids:select(3, 1):squeeze(2) - 1):tolist())
      close(lens:select(2, #ids):softmax(-1):max(-1), best.probabilities:select(3, 1):squeeze(2), 1e-5)
    end)

    it("gives PyTorch's direct logit attribution", function()
      local found = interpret.direct_logit_attribution(model, ids)
      close(golden(case.attribution), found.values, 2e-5)
      assert.are.equal(case.token + 1, found.token:item())
      assert.is_near(case.logit, found.total:item(), 2e-5)
      found = interpret.direct_logit_attribution(model, ids, {
        token = case.token + 1, against = case.against + 1, heads = true,
      })
      close(golden(case.attribution_heads), found.values, 3e-5)
      assert.are.equal(found.values:numel(), #found.labels)
    end)

    it("adds up to the logits of every position and of every text of a batch", function()
      local batch = { ids, from_one(case.prompt or { 3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8 }) }
      local y = model(batch)
      for _, position in ipairs { 1, 5, -1 } do
        local found = interpret.direct_logit_attribution(model, batch, {
          token = { 7, 8 }, against = 9, position = position,
        })
        local at = y:select(2, position)
        close(heed.tensor { at[{ 1, 7 }] - at[{ 1, 9 }], at[{ 2, 8 }] - at[{ 2, 9 }] }, found.total, 3e-5)
      end
    end)

    it("gives PyTorch's activation patching, by position and by head", function()
      local clean, corrupted = from_one(case.clean), from_one(case.corrupted)
      local function metric(y) return y[{ -1, case.token + 1 }] - y[{ -1, case.against + 1 }] end
      local found, info = interpret.activation_patching(model, clean, corrupted, { metric = metric })
      close(heed.tensor(case.patched), found, 3e-5)
      assert.is_near(case.metrics[1], info.clean, 2e-5)
      assert.is_near(case.metrics[2], info.corrupted, 2e-5)
      local heads = interpret.activation_patching(model, clean, corrupted, { metric = metric, point = "z" })
      close(heed.tensor(case.patched_heads), heads, 3e-5)
      local some = interpret.activation_patching(model, clean, corrupted, {
        metric = metric, layers = { 3, 1 }, positions = { -1, 2 }, normalized = true,
      })
      local wanted = (heed.tensor(case.patched) - info.corrupted) / (info.clean - info.corrupted)
      close(heed.tensor { { wanted[{ 3, 7 }], wanted[{ 3, 2 }] }, { wanted[{ 1, 7 }], wanted[{ 1, 2 }] } }, some, 1e-4)
    end)

    it("gives PyTorch's attribution patching, by position and by head", function()
      local clean, corrupted = from_one(case.clean), from_one(case.corrupted)
      local function patch(options)
        function options.metric(y)
          local last = y:select(1, -1)
          return last:select(1, case.token + 1) - last:select(1, case.against + 1)
        end
        return interpret.attribution_patching(model, clean, corrupted, options)
      end
      local wanted = golden(case.attributed)
      local found, info = patch {}
      close(wanted, found, 5e-5)
      assert.is_near(case.metrics[1], info.clean, 2e-5)
      assert.is_near(case.metrics[2], info.corrupted, 2e-5)
      close(golden(case.attributed_heads), patch { point = "z" }, 5e-5)
      wanted = (wanted - info.corrupted) / (info.clean - info.corrupted)
      close(heed.tensor { { wanted[{ 3, 7 }], wanted[{ 3, 2 }] }, { wanted[{ 1, 7 }], wanted[{ 1, 2 }] } },
        patch { layers = { 3, 1 }, positions = { -1, 2 }, normalized = true }, 1e-4)
      assert.is_false(heed.is_grad_enabled())
      for parameter in model:parameters() do assert.is_nil(parameter.grad) end
    end)

    it("gives the same, unrecorded, while gradients are recorded", function()
      local clean, corrupted = from_one(case.clean), from_one(case.corrupted)
      local function metric(y) return y:select(1, -1):select(1, case.token + 1) end
      local function results()
        return {
          interpret.activation_patching(model, clean, corrupted, { metric = metric }),
          interpret.activation_patching(model, clean, corrupted, { metric = metric, point = "z", layers = { 1 } }),
          (interpret.attribution_patching(model, clean, corrupted, { metric = metric })),
          (interpret.integrated_gradients(model, clean, { metric = metric, steps = 2 })),
        }
      end
      local expected = results()
      local before = heed.set_grad_enabled(true)
      local fine, recorded = pcall(results)
      heed.set_grad_enabled(before)
      assert.is_true(fine, recorded)
      for i, wanted in ipairs(expected) do
        close(wanted, recorded[i], 1e-5)
        assert.is_nil(recorded[i].grad_fn)
      end
    end)

    it("gives PyTorch's integrated gradients", function()
      local clean, corrupted = from_one(case.clean), from_one(case.corrupted)
      local function metric(y)
        local last = y:select(1, -1)
        return last:select(1, case.token + 1) - last:select(1, case.against + 1)
      end
      close(golden(case.integrated), interpret.integrated_gradients(model, clean, { metric = metric, steps = 8 }), 1e-4)
      local function from_corrupted(steps)
        return interpret.integrated_gradients(model, clean, { metric = metric, steps = steps, baseline = corrupted })
      end
      local found, info = from_corrupted(8)
      close(golden(case.integrated_other), found, 1e-4)
      assert.is_near(case.metrics[1], info.metric, 2e-5)
      assert.is_near(case.metrics[2], info.baseline, 2e-5)
      assert.is_near(info.metric - info.baseline, found:sum():item() + info.error, 2e-5)
      local _, finer = from_corrupted(64)
      assert.is_true(math.abs(finer.error) < 0.05 * math.abs(info.error) + 1e-4)
    end)
  end)
end

describe("heed.interpret on MiniLM", function()
  local folder = support.model()
  if not folder then
    pending "is not here; `make model` fetches it"
    return
  end

  it("gives PyTorch's values", function()
    local case, bert = by_name.minilm, assert(require("heed.models.bert").load(folder))
    local _, cache = bert:run_with_cache(bert.tokenizer:encode(case.text))
    compare_weights(case, cache)
    local _, info = bert(bert.tokenizer:encode(case.text), { need_weights = { "weights" } })
    local list = {}
    for i, layer in ipairs(info.layers) do list[i] = layer.weights end
    close(golden(case.entropy), interpret.entropy(list), 5e-6)
  end)
end)

describe("analyses of weights", function()
  it("know their extremes", function()
    local even, one = heed.full({ 2, 3, 4 }, 1 / 4), heed.zeros(2, 3, 4)
    one[{ {}, {}, 2 }] = 1
    close(heed.full({ 2, 3 }, math.log(4)), interpret.entropy(even))
    assert.is_true(interpret.entropy(one):equal(heed.zeros(2, 3)))
    assert.is_nil(tostring(interpret.entropy(one)):find "-")
    close(heed.tensor { { 0, 1, 2 }, { 0, 1, 2 } }, interpret.distance(one)) -- the queries are tokens 2 to 4
    local hidden = heed.zeros(2, 3, 4)
    assert.is_true(interpret.entropy(hidden):equal(heed.zeros(2, 3)))
    local other = heed.zeros(3, 4) -- shares no key with `one`
    other[{ {}, 3 }] = 1
    local heads = heed.stack { one[1], other, one[1] }
    local same = heed.tensor { { 1, 0, 1 }, { 0, 1, 0 }, { 1, 0, 1 } }
    close(same, interpret.agreement(heads))
    close(same, interpret.agreement(heads, { measure = "cosine" }))
  end)

  it("take maps without heads and batches of any shape", function()
    local w = random_weights { 2, 5, 3, 6, 6 }
    local one = w[{ 2, 4, 3 }]
    for _, name in ipairs { "entropy", "distance", "sink_share" } do
      close(interpret[name](w)[{ 2, 4, 3 }], interpret[name](one), 1e-6)
    end
    local score = interpret.previous_token_score(w)[{ 2, 4, 3 }]
    assert.is_near(score, interpret.previous_token_score(one):item(), 1e-6)
    for _, measure in ipairs { "jensen_shannon", "cosine" } do
      close(interpret.agreement(w, measure)[{ 2, 4 }], interpret.agreement(w[{ 2, 4 }], measure), 1e-6)
    end
    close(interpret.rollout { w[1], w[2] }, interpret.rollout(w), 0)
    close(interpret.rollout(w)[4], interpret.rollout { w[{ 1, 4 }], w[{ 2, 4 }] }, 1e-6)
    close(w[{ 1, 4, 1 }]:matmul(heed.eye(6)), interpret.rollout({ w[{ 1, 4, 1 }] }, { residual = 0 }), 1e-6)
  end)

  it("count the last queries of a sequence from its end", function()
    local w = random_weights { 3, 8, 8 }
    local last, ids = w:narrow(-2, 6, 3), { 1, 2, 3, 1, 2, 3, 1, 2 }
    close(interpret.distance(w):narrow(-1, 6, 3), interpret.distance(last))
    close(w:diagonal(-1, -2, -1):narrow(-1, 5, 3):mean(-1), interpret.previous_token_score(last))
    close(w:diagonal(-2, -2, -1):narrow(-1, 4, 3):mean(-1), interpret.induction_score(last, { period = 3 }))
    local sum = heed.zeros(3)
    for i = 6, 8 do
      for j = 1, i - 1 do
        if ids[j] == ids[i] then sum = sum + w[{ {}, i, j + 1 }] end
      end
    end
    close(sum / 3, interpret.induction_score(last, { ids = ids }))
  end)

  it("score each text of a batch by its own ids", function()
    local w = random_weights { 4, 2, 3, 6, 6 } -- layers, texts, heads
    local ids = { { 1, 2, 3, 1, 2, 3 }, { 5, 5, 4, 3, 2, 4 } }
    local both = interpret.induction_score(w, { ids = ids })
    for b = 1, 2 do
      close(interpret.induction_score(w:select(2, b), { ids = ids[b] }), both:select(2, b))
    end
  end)

  it("refuse what they cannot take", function()
    local w = random_weights { 2, 4, 4 }
    local needed = "float32 weights [.., heads, queries, keys] or [queries, keys], a list of them, or a cache of "
      .. "run_with_cache"
    raises("entropy: weights is nil; it must be " .. needed, function() interpret.entropy() end)
    raises("entropy: weights is int64 [2, 4, 4]; it must be " .. needed, function() interpret.entropy(w:long()) end)
    raises("distance: weights is float32 [3]; it must be " .. needed, function() interpret.distance(heed.ones(3)) end)
    raises("entropy: base is the number 1; it must be a number above 1", function()
      interpret.entropy(w, { base = 1 })
    end)
    raises("entropy: weights[2] is [2, 2] and weights[1] is [2, 4, 4]; all layers must have the same shape", function()
      interpret.entropy { w, heed.eye(2) }
    end)
    raises("sink_share: tokens is the number 5; it must be at most 4, the number of keys", function()
      interpret.sink_share(w, { tokens = 5 })
    end)
    raises("distance: weights are [5, 3]; the number of queries (5) must be at most that of keys (3): it compares "
      .. "positions of one sequence", function() interpret.distance(heed.ones(5, 3)) end)
    raises("agreement: measure is a string ('l2'); it must be 'jensen_shannon' or 'cosine'", function()
      interpret.agreement(w, { measure = "l2" })
    end)
    raises("agreement: weights is a tensor of shape [4, 4] and dtype float32; it must be [.., heads, queries, keys]: "
      .. "it compares heads", function()
      interpret.agreement(w[1])
    end)
    raises("induction_score: give either period or ids", function() interpret.induction_score(w) end)
    raises("induction_score: period is the number 4; it must be less than the number of keys, 4", function()
      interpret.induction_score(w, { period = 4 })
    end)
    raises("induction_score: ids have a row in which no token repeats; there is nothing to copy", function()
      interpret.induction_score(w, { ids = { 1, 2, 3, 4 } })
    end)
    raises("induction_score: ids is a tensor of shape [3] and dtype int64; it must be [4] or [b, 4], the tokens of "
      .. "weights [2, 4, 4]", function()
      interpret.induction_score(w, { ids = { 1, 2, 1 } })
    end)
    raises("rollout: weights is a tensor of shape [2, 4, 4] and dtype float32; it must be a list of layers' weights, "
      .. "or [layers, .., heads, n, n]",
      function() interpret.rollout(w) end)
    raises("rollout: the weights of layer 2 are [2, 3, 4]; they must be [.., heads, n, n] in all layers", function()
      interpret.rollout { w, w:narrow(2, 1, 3) }
    end)
    assert.has_error(function() interpret.entropy(w, { bass = 2 }) end)
  end)
end)

describe("analyses of models", function()
  local gpt2 = cases.load "gpt2"
  local bert = assert(require("heed.models.bert").load "tests/golden/tiny_bert")
  local function first(y) return y[{ -1, 1 }] end

  it("say what a model lacks", function()
    raises("logit_lens: model is a module (Bert), without a part lm_head; it must be a model that gives logits, or "
      .. "give the option lm_head, a layer from hidden states to logits", function()
      interpret.logit_lens(bert, { 1, 2 })
    end)
    raises("rollout: model is a module (Linear); it must have points named 'hook_pattern' in its layers (hook_names "
      .. "lists them)", function() interpret.rollout(heed.nn.Linear(2, 2), heed.ones(2)) end)
    raises("activation_patching: model is a module (GPT2); it must have points named 'hook_reside' in its layers "
      .. "(hook_names lists them)", function()
      interpret.activation_patching(gpt2, { 1 }, { 2 }, { point = "reside", metric = first })
    end)
    raises("logit_lens: model is nil; it must be a module", function() interpret.logit_lens(nil, { 1 }) end)
  end)

  it("take the layer to logits from an option", function()
    local head = heed.nn.Linear(bert.config.hidden_size, 7)
    assert.are.equal("heed.Size([3, 4, 7])",
      tostring(interpret.logit_lens(bert, { 1, 2, 3, 4 }, { lm_head = head }).shape))
  end)

  it("print the likeliest tokens", function()
    local found = interpret.logit_lens(gpt2, { { 5, 6, 7 }, { 7, 8, 9 } }, {
      top = 1, positions = { 1, 3 }, decode = function(id) return ("«%d»"):format(id) end,
    })
    assert.are.equal("heed.Size([4, 2, 2, 1])", tostring(found.ids.shape))
    local lines = {}
    for line in tostring(found):gmatch "[^\n]+" do lines[#lines + 1] = line end
    assert.are.equal(5, #lines)
    assert.are.equal("layer  position 1  position 3", lines[1])
    assert.is_truthy(lines[2]:find "^embed  «%d+» %d+%%%s+«%d+» %d+%%$")
  end)

  it("refuse wrong options", function()
    raises("logit_lens: positions is the number 4; it must be from 1 to 3, or from -1 to -3", function()
      interpret.logit_lens(gpt2, { 1, 2, 3 }, { positions = { 1, 4 } })
    end)
    raises("logit_lens: top is the number 212; it must be at most the number of tokens, 211", function()
      interpret.logit_lens(gpt2, { 1, 2, 3 }, { top = 212 })
    end)
    raises("direct_logit_attribution: token is the number 212; it must be an id from 1 to 211, or one for "
      .. "each of 1 text", function()
      interpret.direct_logit_attribution(gpt2, { 1, 2 }, { token = 212 })
    end)
    raises("direct_logit_attribution: position is the number 3; it must be from 1 to 2, or from -1 to -2", function()
      interpret.direct_logit_attribution(gpt2, { 1, 2 }, { position = 3 })
    end)
    raises("activation_patching: metric is nil; it must be a function", function()
      interpret.activation_patching(gpt2, { 1 }, { 2 })
    end)
    raises("activation_patching: the result of metric is nil; it must be a number", function()
      interpret.activation_patching(gpt2, { 1 }, { 2 }, { metric = function() end })
    end)
    raises("activation_patching: 'blocks.0.hook_resid_pre' is [2, 48] for clean_ids and [3, 48] for corrupted_ids; "
      .. "both must have the same number of tokens", function()
      interpret.activation_patching(gpt2, { 1, 2 }, { 2, 3, 4 }, { metric = first })
    end)
    raises("activation_patching: heads are given and the point is 'blocks.0.hook_resid_pre'; it must be one with "
      .. "heads, such as z", function()
      interpret.activation_patching(gpt2, { 1, 2 }, { 2, 3 }, { metric = first, heads = 1 })
    end)
    raises("activation_patching: layers is the number 4; it must be from 1 to 3, or from -1 to -3", function()
      interpret.activation_patching(gpt2, { 1, 2 }, { 2, 3 }, { metric = first, layers = 4 })
    end)
  end)

  it("say what attributions need", function()
    local function index() return 7 end
    raises("attribution_patching: the result of metric is the number 7; it must be a tensor of 1 element that depends "
      .. "on the logits; select and narrow give one, logits[{i, j}] a number", function()
      interpret.attribution_patching(gpt2, { 1, 2 }, { 2, 3 }, { metric = index })
    end)
    raises("integrated_gradients: baseline is a tensor of shape [3, 48] and dtype float32; it must be ids of the same "
      .. "shape, or a tensor [2, 48] like the activations of 'hook_embed'", function()
      interpret.integrated_gradients(gpt2, { 1, 2 }, { metric = first, baseline = heed.zeros(3, 48) })
    end)
    raises("integrated_gradients: steps is the number 0; it must be an integer, at least 1", function()
      interpret.integrated_gradients(gpt2, { 1, 2 }, { metric = first, steps = 0 })
    end)
    raises("integrated_gradients: metric is nil; it must be a function", function()
      interpret.integrated_gradients(gpt2, { 1, 2 })
    end)
  end)

  it("attribute at all points of attention, of frozen models, too", function()
    local clean, corrupted = { 1, 2, 3, 4 }, { 9, 2, 3, 5 }
    local function metric(y) return y:select(1, -1):select(1, 1) end
    local function attribute(model)
      local found = {}
      for i, point in ipairs { "q", "k", "v", "z", "pattern", "attn_scores", "mlp.hook_post", "attn_out" } do
        found[i] = interpret.attribution_patching(model, clean, corrupted, { metric = metric, point = point })
      end
      return found
    end
    local frozen = gpt2:clone()
    frozen:requires_grad_(false)
    local wanted = attribute(gpt2)
    for i, each in ipairs(attribute(frozen)) do close(wanted[i], each, 1e-5) end
  end)

  it("patch heads at some positions, and all points of attention", function()
    local clean, corrupted = { 1, 2, 3, 4 }, { 9, 2, 3, 5 }
    local function patch(options)
      options.metric = first
      return interpret.activation_patching(gpt2, clean, corrupted, options)
    end
    for _, point in ipairs { "q", "k", "v", "z", "pattern", "attn_scores" } do
      assert.are.equal("heed.Size([3, 4])", tostring(patch({ point = point }).shape))
      local all = patch { point = point, heads = 2, positions = { 1, 2, 3, 4 } }
      close(patch { point = point, heads = { 2 } }, all, 1e-6)
    end
    local found, info = patch { point = "hook_z", positions = 1, layers = { 3 } } -- too late for the last position
    close(heed.full({ 1, 4 }, info.corrupted), found, 1e-5)
    local mlp = patch { point = "mlp.hook_post" }
    assert.are.equal("heed.Size([3, 4])", tostring(mlp.shape))
  end)

  it("leave the model as it was when the metric fails or a limit is exceeded", function()
    local before, calls = gpt2 { 1, 2, 3 }, 0
    local fine, message = pcall(interpret.activation_patching, gpt2, { 1, 2, 3 }, { 4, 2, 3 }, {
      metric = function()
        calls = calls + 1
        if calls > 4 then error "enough" end
        return calls
      end,
    })
    assert.is_false(fine)
    assert.is_truthy(tostring(message):find "enough")
    assert.is_true(before:equal(gpt2 { 1, 2, 3 }))
  end)

  it("stop at a limit of time, and work afterwards", function()
    local w = random_weights({ 48, 256, 256 }, true)
    local ids, before = {}, gpt2 { 1, 2, 3 }
    for i = 1, 90 do ids[i] = i end
    local function patch() return interpret.activation_patching(gpt2, ids, ids, { metric = first }) end
    for _, f in ipairs { patch, function() return interpret.agreement(w) end } do
      heed.limit { seconds = 0.002 }
      local fine, message = pcall(f)
      heed.limit { seconds = math.huge }
      assert.is_false(fine)
      assert.is_truthy(tostring(message):find "time limit exceeded", message)
    end
    assert.is_true(before:equal(gpt2 { 1, 2, 3 }))
  end)

  it("let the metric yield", function()
    local run = coroutine.wrap(function()
      return interpret.activation_patching(gpt2, { 1, 2 }, { 3, 2 }, {
        layers = 2,
        metric = function(y)
          coroutine.yield "metric"
          return first(y)
        end,
      })
    end)
    for _ = 1, 4 do assert.are.equal("metric", run()) end
    assert.are.equal("heed.Size([1, 2])", tostring(run().shape))
  end)

  it("find models of one's own by their points", function()
    local Block, Mine = heed.nn.Module.class "Block", heed.nn.Module.class "Mine"
    Block.points = { "hook_resid_pre", "hook_attn_out", "hook_mlp_out", "hook_resid_post" }
    function Block:init()
      self.mix, self.up = heed.nn.Linear(4, 4), heed.nn.Linear(4, 4)
    end
    function Block:forward(x)
      x = self:point("hook_resid_pre", x)
      x = x + self:point("hook_attn_out", (self.mix(x)))
      return self:point("hook_resid_post", x + self:point("hook_mlp_out", (self.up(x))))
    end
    function Mine:init()
      self.layers = heed.nn.ModuleList { Block(), Block() }
      self.unembed = heed.nn.Linear(4, 6)
    end
    function Mine:forward(x)
      for _, layer in self.layers:iter() do x = layer(x) end
      return (self.unembed(x))
    end
    local m, x = Mine(), heed.randn(3, 4)
    local y = m(x)
    close(y, interpret.logit_lens(m, x)[3], 1e-5)
    local found = interpret.direct_logit_attribution(m, x, { token = 2, position = 2 })
    assert.is_near(y[{ 2, 2 }], found.total:item(), 1e-5)
    assert.are.same({ "embed", "attention 1", "mlp 1", "attention 2", "mlp 2", "bias" }, found.labels)
    local patched = interpret.activation_patching(m, x, heed.zeros(3, 4), { metric = first })
    assert.is_near(y[{ 3, 1 }], patched[{ 1, 3 }], 1e-5)
  end)
end)
