-- Teaches a sentence encoder what its embeddings hardly tell: who did it, the cat or the dog?
--   build/heed scripts/examples/finetune.lua [STEPS] [FILE]
-- "The cat chased the dog." and "The cat was chased by the dog." have almost the same embedding. First comes a probe, a
-- linear layer on frozen embeddings; then LoRA (Hu et al., arXiv:2106.09685): small matrices beside two projections of
-- each layer, trained with the probe, while the model itself stays as it is. Both are tested on verbs that they never
-- saw. FILE, if given, receives the trained matrices. Needs the model that `make model` downloads (HEED_MODEL may name
-- its folder).
local heed = require "heed"
local nn, F = heed.nn, heed.nn.functional

local RANK, BATCH, LR, PROBE_STEPS = 8, 32, 2e-3, 300

local function stop(...)
  io.stderr:write("finetune: ", string.format(...), "\n")
  os.exit(1)
end

local steps = tonumber(arg[1] or 60)
if not steps or steps % 1 ~= 0 or steps < 1 or #arg > 2 then stop "usage: finetune.lua [STEPS] [FILE]" end

-- ---- The sentences ------------------------------------------------------------------------------

local VERBS = { "chased", "followed", "watched", "scratched", "found", "heard", "licked", "pushed", "washed", "stopped",
  "helped", "annoyed", "fed", "greeted", "caught", "passed" }
local NEW_VERBS = { "attacked", "noticed", "guarded", "touched", "frightened", "kissed", "pulled", "met" }
local FORMS = { "The A VERB the B.", "The B was VERB by the A.", "It was the A that VERB the B.",
  "It was the B that was VERB by the A.", "It was the B that the A VERB.", "What the A VERB was the B." }
local ENDINGS = { "", " yesterday" }

-- Two lists: sentences, and who did it in each: 1 the cat, 2 the dog.
local function sentences(verbs)
  local texts, answers = {}, {}
  for _, verb in ipairs(verbs) do
    for _, form in ipairs(FORMS) do
      for _, ending in ipairs(ENDINGS) do
        for answer, names in ipairs { { A = "cat", B = "dog" }, { A = "dog", B = "cat" } } do
          local text = form:gsub("VERB", verb):gsub("%f[%w][AB]%f[%W]", names):gsub("%.$", ending .. ".")
          texts[#texts + 1], answers[#answers + 1] = text, answer
        end
      end
    end
  end
  return texts, heed.tensor(answers, { dtype = "int64" })
end

local texts, answers = sentences(VERBS)
local new_texts, new_answers = sentences(NEW_VERBS)

-- ---- The model ----------------------------------------------------------------------------------

local top = arg[0]:match "^(.*/)scripts/examples/[^/]*$" or ""
local folder = os.getenv "HEED_MODEL" or top .. "build/models/all-MiniLM-L6-v2"
local weights = io.open(folder .. "/model.safetensors", "rb")
if not weights then stop("there is no model in '%s'; `make model` fetches it", folder) end
weights:close()
local bert = assert(require("heed.models.bert").load(folder))
bert:requires_grad_(false)
local width = bert.config.hidden_size

-- The embeddings [b, d] of sentences: the mean over the tokens of each. bert:encode does the same, but is not recorded.
local function embed(list)
  local ids, lengths, most = {}, {}, 0
  for i, text in ipairs(list) do
    ids[i] = bert.tokenizer:encode(text)
    lengths[i] = #ids[i]
    most = math.max(most, #ids[i])
  end
  for _, row in ipairs(ids) do
    for k = #row + 1, most do row[k] = 1 end
  end
  local hidden = bert(ids, { kv_lengths = lengths }) -- [b, n, d]
  local count = heed.tensor(lengths):unsqueeze(2)
  local mask = heed.range(1, most):le(count):float() -- [b, n]
  return (hidden * mask:unsqueeze(3)):sum(2) / count
end

local function pick(list, indices)
  local picked = {}
  for i, k in ipairs(indices:tolist()) do picked[i] = list[k] end
  return picked
end

-- The embeddings of all sentences of a list.
local function embed_all(list)
  local parts = {}
  for first = 1, #list, 64 do
    local part = {}
    for i = first, math.min(first + 63, #list) do part[#part + 1] = list[i] end
    parts[#parts + 1] = embed(part)
  end
  return heed.cat(parts)
end

local function size_of(parameters)
  local size = 0
  for _, parameter in ipairs(parameters) do size = size + parameter:numel() end
  return size
end

-- The share of sentences whose answer the probe gives.
local function accuracy(probe, embeddings, right)
  return 100 * probe(embeddings):argmax(-1):eq(right):float():mean():item()
end

local function row(name, parameters, probe, these, others)
  print(("%-8s %9d %12.1f %% %12.1f %%"):format(name, size_of(parameters), accuracy(probe, these, answers),
    accuracy(probe, others, new_answers)))
end

heed.manual_seed(1)
print(("%d sentences, and %d with other verbs\n"):format(#texts, #new_texts))
print "          trained       these         others"

-- ---- The probe ----------------------------------------------------------------------------------

local probe = nn.Linear(width, 2)
local frozen = embed_all(texts) -- nothing is recorded yet
heed.set_grad_enabled(true)
local optimizer = heed.optim.AdamW(probe:parameters(), { lr = 1e-2 })
for _ = 1, PROBE_STEPS do
  optimizer:zero_grad()
  F.cross_entropy(probe(frozen), answers):backward()
  optimizer:step()
end
row("probe", { probe.weight, probe.bias }, probe, frozen, heed.no_grad(embed_all, new_texts))

-- ---- LoRA ---------------------------------------------------------------------------------------

local Lora = nn.Module.class "Lora"

function Lora:init(base)
  self.base = base
  self.down = nn.Linear(base.in_features, RANK, false)
  self.up = nn.Linear(RANK, base.out_features, false)
  nn.init.zeros_(self.up.weight) -- begins as the base alone
end

function Lora:forward(x) return self.base(x) + self.up(self.down(x)) end

local trained, state = { probe.weight, probe.bias }, { ["probe.weight"] = probe.weight, ["probe.bias"] = probe.bias }
for i = 1, #bert.layers do
  local attention = bert.layers[i].attention
  for _, name in ipairs { "W_query", "W_value" } do attention[name] = Lora(attention[name]) end
end
for name, parameter in bert:named_parameters() do
  if parameter.requires_grad then trained[#trained + 1], state[name] = parameter, parameter end
end

optimizer = heed.optim.AdamW(trained, { lr = LR })
local bar = heed.utils.progress(steps, { name = "LoRA step", unit = "sentences", parts = 4 })
local order, at = heed.randperm(#texts), 1
for step = 1, steps do
  if at + BATCH - 1 > #texts then order, at = heed.randperm(#texts), 1 end
  local chosen = order:narrow(1, at, BATCH)
  at = at + BATCH
  local loss = F.cross_entropy(probe(embed(pick(texts, chosen))), answers:index_select(1, chosen))
  optimizer:zero_grad()
  loss:backward()
  optimizer:step()
  bar:update(step, ("loss %.3f"):format(loss:item()), BATCH)
end
bar:finish()
heed.set_grad_enabled(false)
row("LoRA", trained, probe, embed_all(texts), embed_all(new_texts))

if arg[2] then
  local saved, problem = heed.save(arg[2], state)
  if not saved then stop("%s", problem) end
end
