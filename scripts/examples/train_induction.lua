-- Trains a model of two layers to continue repeated random text, and watches the heads appear that do it:
--   build/heed scripts/examples/train_induction.lua [OPTIONS]
-- The alphabet has 64 characters: id 1 begins a text, then come the dot, the digits and the letters. Induction heads
-- come suddenly, and after the heads that tell each character its predecessor: Olsson et al., "In-context Learning and
-- Induction Heads" (2022, arXiv:2209.11895). scripts/examples/induction.lua takes the trained model apart.
local heed = require "heed"
local interpret = require "heed.interpret"
local plot = require "heed.plot"
local GPT2 = require "heed.models.gpt2"
local F = heed.nn.functional

local USAGE = [[
usage: heed train_induction.lua [OPTIONS]
  --steps N       steps (2000)
  --batch N       texts in a step (48)
  --lr X          the highest learning rate (3e-3)
  --every N       steps between two scores (a fortieth of --steps)
  --seed N        seed of weights and texts (24)
  --threads N     threads
  --picture FILE  the scores over the steps, as .svg, .png, .html or .txt; without it, below the table
  --out FOLDER    where the model goes
  --help          shows this text]]

local VOCAB, LENGTH, WIDTH, HEADS, LAYERS, MLP = 64, 96, 64, 4, 2, 64

local function stop(...)
  io.stderr:write("train_induction: ", string.format(...), "\n")
  os.exit(1)
end

local function count(value) return value and value % 1 == 0 and value >= 1 and math.floor(value) or nil end
local function amount(value) return value and value > 0 and value < math.huge and value or nil end
local KINDS = { steps = count, batch = count, lr = amount, every = count, seed = count, threads = count,
  picture = tostring, out = tostring }
local o = { steps = 2000, batch = 48, lr = 3e-3, seed = 24 }
for i = 1, #arg, 2 do
  local name, value = arg[i]:match "^%-%-?(%a.*)$", arg[i + 1]
  if name == "help" or name == "h" then
    print(USAGE)
    os.exit(0)
  end
  local kind = KINDS[name]
  if not kind then stop("%s is not known; --help lists the options", arg[i]) end
  if not value then stop("--%s needs a value; --help describes it", name) end
  if kind ~= tostring then value = kind(tonumber(value)) end
  if value == nil then stop("--%s is '%s'; --help describes its values", name, arg[i + 1]) end
  o[name] = value
end
if o.threads then heed.set_num_threads(o.threads) end

-- ---- Texts --------------------------------------------------------------------------------------

local generator = heed.Generator(o.seed)

-- Ids [size, length] of texts that repeat, each with its own period, and the ids that follow, -100 where they cannot be
-- known: up to the second character of the second copy.
local function batch(size, length)
  local period = heed.randint(4, length / 2 - 1, { size, 1 }, { generator = generator })
  local texts = heed.rand(size, VOCAB - 1, { generator = generator }):argsort(2) + 1 -- no character twice
  local free = heed.randint(2, VOCAB, { size, VOCAB - 1 }, { generator = generator })
  texts = heed.where(heed.rand(size, 1, { generator = generator }):lt(0.25), free, texts) -- but in a quarter of them
  local positions = heed.range(0, length - 1):long():unsqueeze(1)
  local following = texts:gather(2, positions:remainder(period) + 1)
  local ids = heed.cat({ heed.ones(size, 1):long(), following:narrow(2, 1, length - 1) }, 2)
  return ids, following:masked_fill(positions:le(period), -100)
end

-- ---- The model ----------------------------------------------------------------------------------

heed.manual_seed(o.seed)
local model = GPT2 {
  vocab_size = VOCAB, n_positions = LENGTH, n_embd = WIDTH, n_layer = LAYERS, n_head = HEADS, n_inner = MLP,
  tie_word_embeddings = false, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0,
}
-- Positions begin as waves (Vaswani et al., 2017), with which attention to the position before is soon learnt.
local angles = heed.range(0, LENGTH - 1):unsqueeze(2) * heed.range(0, WIDTH - 1, 2):mul(-math.log(10000) / WIDTH):exp()
model.position_embeddings.weight:copy_(heed.cat({ angles:sin(), angles:cos() }, 2) * 0.1)

local matrices, vectors, parameters = {}, {}, {}
for parameter in model:parameters() do
  table.insert(parameter.ndim > 1 and matrices or vectors, parameter)
  parameters[#parameters + 1] = parameter
end
local optimizer = heed.optim.AdamW({
  { params = matrices, weight_decay = 0.1 }, { params = vectors, weight_decay = 0 },
}, { lr = o.lr, betas = { 0.9, 0.98 } })
local warm_up = math.min(200, math.ceil(o.steps / 10))
local scheduler = heed.optim.lr_scheduler.LambdaLR(optimizer, { lr_lambda = function(step)
  return math.min((step + 1) / warm_up, 0.02 + 0.49 * (1 + math.cos(math.pi * step / o.steps)))
end })

local function train(step)
  local progress = step / o.steps
  local length = progress < 0.3 and 32 or progress < 0.6 and 64 or LENGTH -- short texts first: learnt sooner
  local ids, following = batch(o.batch, length)
  local loss = F.cross_entropy(model(ids):flatten(1, 2), following:flatten()) -- ignores -100
  optimizer:zero_grad()
  loss:backward()
  heed.nn.utils.clip_grad_norm_(parameters, 1)
  optimizer:step()
  scheduler:step()
  return loss:item()
end

-- ---- Scores -------------------------------------------------------------------------------------

local PERIOD = 40
local halves = heed.rand(16, VOCAB - 1, { generator = heed.Generator(1) }):argsort(2):narrow(2, 1, PERIOD) + 1
local test = heed.cat({ heed.ones(16, 1):long(), halves, halves }, 2)

-- The best previous-token head of layer 1, the best induction head of layer 2, how much of the second copy is right.
local function scores()
  return heed.no_grad(function()
    local logits, info = model(test, { need_weights = { "weights" } })
    local previous = interpret.previous_token_score(info.layers[1].weights):mean(1)
    local induction = interpret.induction_score(info.layers[LAYERS].weights, { period = PERIOD }):mean(1)
    local guesses = logits:narrow(2, PERIOD + 2, PERIOD - 1):argmax(-1)
    local right = guesses:eq(halves:narrow(2, 2, PERIOD - 1)):float():mean()
    return previous:max():item(), induction:max():item(), right:item()
  end)
end

-- ---- The run ------------------------------------------------------------------------------------

local every, curve = o.every or math.max(1, math.floor(o.steps / 40)), {}
local bar = heed.utils.progress(o.steps, { unit = "texts", parts = 1 })
local sum, steps = 0, 0

local function check(done, problem) return done or stop("%s", problem) end

-- The scores so far; into a file after each one, so that a file that cannot be written is reported early.
local function draw()
  local lines = heed.tensor(curve).T
  local drawn, problem = plot.line(lines:narrow(1, 2, 3), {
    x = lines[1], names = { "previous-token head", "induction head", "copied" }, range = { 0, 1 }, file = o.picture,
    title = "Heads appear while a model learns to repeat",
  })
  if o.picture then check(drawn, problem) end
end

local function score(step)
  local row = { step, scores() }
  curve[#curve + 1] = row
  local loss = steps > 0 and ("%7.3f"):format(sum / steps) or "       "
  bar:print(("%6d %s %16.2f %10.2f %8.1f %%"):format(step, loss, row[2], row[3], 100 * row[4]))
  sum, steps = 0, 0
  if o.picture and #curve > 1 then draw() end
end

if o.out then
  os.execute(("mkdir -p '%s'"):format((o.out:gsub("'", "'\\''"))))
  check(io.open(o.out .. "/config.json", "ab")):close()
end
print "  step    loss   previous token  induction   copied"
heed.set_grad_enabled(true)
score(0)
for step = 1, o.steps do
  local loss = train(step - 1)
  if loss ~= loss then stop("the loss is nan after step %d; try a lower --lr than %g", step, o.lr) end
  sum, steps = sum + loss, steps + 1
  bar:update(step, ("loss %.3f"):format(loss), o.batch)
  if step % every == 0 or step == o.steps then score(step) end
end
bar:finish()

if not o.picture then draw() end
if o.out then check(model:to("float16"):save_pretrained(o.out)) end
