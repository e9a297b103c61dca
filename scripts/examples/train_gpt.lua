-- Trains a small GPT on the characters of text files, and lets it write:
--   build/heed scripts/examples/train_gpt.lua [OPTIONS] [FILE...]
-- The model is GPT-2's architecture (heed.models.gpt2), so that what it learns can be loaded with
-- require("heed.models.gpt2").load "build/train_gpt". Ctrl-C saves and ends; --resume goes on, to the same bits.
local heed = require "heed"
local interrupt = require "heed.interrupt"
local plot = require "heed.plot"
local GPT2 = require "heed.models.gpt2"
local F = heed.nn.functional

local USAGE = [[
usage: heed train_gpt.lua [OPTIONS] [FILE...]
Trains a GPT on the characters of the files; without one, on heed's own pages.
  --layers N       layers (4)
  --heads N        heads of attention in each (4)
  --width N        size of the hidden states (128)
  --context N      characters that the model sees at once (64)
  --dropout P      dropout, from 0 to less than 1 (0)
  --batch N        texts in a step (16)
  --steps N        steps in all (1000)
  --lr X           the highest learning rate (1e-3); it rises over the first tenth of the steps, then falls as a cosine
  --decay X        weight decay of matrices (0.1)
  --clip X         the largest norm of the gradient (1)
  --validate N     steps between two validations (a twentieth of --steps, at least 50)
  --sample N       characters that are written after a validation (120); 0: none
  --prompt TEXT    what they begin with (a line break, if the text has any)
  --temperature X  of the samples (0.8); 0 chooses the most likely character
  --seed N         seed of weights, data and writing (1)
  --threads N      threads
  --out FOLDER     where the model and the state of the training go (build/train_gpt)
  --resume         goes on with the training in FOLDER; only --steps, --threads and what is written may change
  --help           shows this text]]

local function stop(...)
  io.stderr:write("train_gpt: ", string.format(...), "\n")
  os.exit(1)
end

-- ---- Arguments ----------------------------------------------------------------------------------

local function count(value) return value and value % 1 == 0 and value >= 1 and math.floor(value) or nil end
local function count_or_0(value) return value == 0 and 0 or count(value) end
local function amount(value) return value and value >= 0 and value < math.huge and value or nil end
local function share(value) return value and value >= 0 and value < 1 and value or nil end
local KINDS = {
  layers = count, heads = count, width = count, context = count, batch = count, steps = count, validate = count,
  sample = count_or_0, threads = count, seed = count_or_0, lr = amount, decay = amount, clip = amount, dropout = share,
  temperature = amount, prompt = tostring, out = tostring,
}
local o = {
  layers = 4, heads = 4, width = 128, context = 64, dropout = 0, batch = 16, steps = 1000, lr = 1e-3, decay = 0.1,
  clip = 1, sample = 120, temperature = 0.8, seed = 1, out = "build/train_gpt",
}
local paths, i = {}, 1
while arg[i] do
  local name = arg[i]:match "^%-%-?(%a.*)$"
  if name == "help" or name == "h" then
    print(USAGE)
    os.exit(0)
  elseif name == "resume" then
    o.resume = true
  elseif name then
    local kind = KINDS[name]
    if not kind then stop("%s is not known; --help lists the options", arg[i]) end
    if not arg[i + 1] then stop("--%s needs a value; --help describes it", name) end
    local value = arg[i + 1]
    if kind ~= tostring then value = kind(tonumber(value)) end
    if value == nil then stop("--%s is '%s'; --help describes its values", name, arg[i + 1]) end
    o[name], i = value, i + 1
  else
    paths[#paths + 1] = arg[i]
  end
  i = i + 1
end
if o.width % o.heads ~= 0 then stop("--width is %d; it must be a multiple of --heads, %d", o.width, o.heads) end
if o.threads then heed.set_num_threads(o.threads) end

-- ---- Text ---------------------------------------------------------------------------------------

local top = arg[0]:match "^(.*/)scripts/examples/[^/]*$" or ""
local OWN = { "README.md", "CONTRIBUTING.md", "docs/tour.md", "docs/attention.md", "docs/attention-options.md",
  "docs/coming-from-pytorch.md", "docs/interpret.md", "docs/looking-inside.md", "docs/modules.md" }

local function read_texts()
  local texts, own = {}, #paths == 0
  for k, path in ipairs(own and OWN or paths) do
    local file, problem = io.open((own and top or "") .. path, "rb")
    if not file then stop("%s; give a text file", problem) end
    texts[k], problem = file:read "*a"
    if not texts[k] then stop("%s: %s; give a text file", path, problem) end
    file:close()
  end
  return table.concat(texts, "\n")
end

-- A character: a byte of ASCII, or the bytes of UTF-8; other bytes stand for themselves.
local CHARACTER = "[%z\1-\127\194-\244][\128-\191]*"

-- The characters of a text, and the ids of each, from 1 up in the order of their bytes.
local function characters_of(text)
  local list, ids = {}, {}
  for c in text:gmatch(CHARACTER) do
    if not ids[c] then ids[c], list[#list + 1] = true, c end
  end
  table.sort(list)
  for id, c in ipairs(list) do ids[c] = id end
  return list, ids
end

local text = read_texts()
local characters, ids_of = characters_of(text)

local function encode(part)
  local ids = {}
  for c in part:gmatch(CHARACTER) do
    if not ids_of[c] then stop("--prompt has the character '%s', which the text does not have", c) end
    ids[#ids + 1] = ids_of[c]
  end
  return ids
end

local all = heed.tensor(encode(text), { dtype = "int64" })
local held = math.floor(#all / 10) -- the last tenth is for validation
if held < o.context + 1 then
  stop("the text has %d characters; it must have at least %d for --context %d", #all, 10 * (o.context + 1), o.context)
end
local for_training, for_validation = all:narrow(1, 1, #all - held), all:narrow(1, #all - held + 1, held)
local prompt = encode(o.prompt or ids_of["\n"] and "\n" or characters[1])

-- ---- The model and its training -----------------------------------------------------------------

heed.manual_seed(o.seed)
local model = GPT2 {
  vocab_size = #characters, n_positions = o.context, n_embd = o.width, n_layer = o.layers, n_head = o.heads,
  resid_pdrop = o.dropout, embd_pdrop = o.dropout, attn_pdrop = o.dropout, -- lm_head shares the embeddings' weight
}
local parameters, matrices, vectors, size = {}, {}, {}, 0
for parameter in model:parameters() do
  parameters[#parameters + 1] = parameter
  table.insert(parameter.ndim > 1 and matrices or vectors, parameter)
  size = size + parameter:numel()
end

local optimizer = heed.optim.AdamW({
  { params = matrices, weight_decay = o.decay },
  { params = vectors, weight_decay = 0 }, -- biases and norms
}, { lr = o.lr, betas = { 0.9, 0.95 } })
local warm_up = math.max(1, math.floor(o.steps / 10))
local scheduler = heed.optim.lr_scheduler.LambdaLR(optimizer, { lr_lambda = function(step)
  if step < warm_up then return (step + 1) / warm_up end
  return 0.1 + 0.45 * (1 + math.cos(math.pi * math.min(1, (step - warm_up) / math.max(1, o.steps - warm_up))))
end })
local data = heed.utils.data.Tokens(for_training, {
  context = o.context, batch = o.batch, generator = heed.Generator(o.seed),
})

local function loss_of(x, y) return F.cross_entropy(model(x):flatten(1, 2), y:flatten()) end

local function train()
  local loss = loss_of(data:next())
  optimizer:zero_grad()
  loss:backward()
  heed.nn.utils.clip_grad_norm_(parameters, o.clip)
  optimizer:step()
  scheduler:step()
  return loss:item()
end

-- The mean loss over pieces of the text that is not trained on.
local function validate()
  local pieces = math.min(64, math.floor((held - 1) / o.context))
  local x = for_validation:narrow(1, 1, pieces * o.context):view(pieces, o.context)
  local y = for_validation:narrow(1, 2, pieces * o.context):view(pieces, o.context)
  return heed.no_grad(function()
    model:eval()
    local sum = 0
    for first = 1, pieces, o.batch do
      local n = math.min(o.batch, pieces - first + 1)
      sum = sum + n * loss_of(x:narrow(1, first, n), y:narrow(1, first, n)):item()
    end
    model:train()
    return sum / pieces
  end)
end

-- What the model writes after the prompt. The model sees the last --context characters.
local function write(step)
  return heed.no_grad(function()
    model:eval()
    local generator, ids, words = heed.Generator(o.seed + step), {}, {}
    for k = math.max(1, #prompt - o.context + 2), #prompt do ids[#ids + 1] = prompt[k] end
    while #words < o.sample do
      local settings = { max_new_tokens = math.min(o.sample - #words, o.context - #ids) }
      settings.temperature, settings.generator = o.temperature, o.temperature > 0 and generator or nil
      local new = model:generate(ids, settings)
      for _, id in ipairs(new) do words[#words + 1], ids[#ids + 1] = characters[id], id end
      local kept = {}
      for k = math.max(1, #ids - math.floor(o.context / 2) + 1), #ids do kept[#kept + 1] = ids[k] end
      ids = kept
    end
    model:train()
    return table.concat(words)
  end)
end

-- ---- Files --------------------------------------------------------------------------------------

local step, curve = 0, {} -- steps done; {step, training loss, validation loss} of each validation
local sum, steps, smooth = 0, 0, nil -- of the training losses since the last validation; smooth: for the bar
local checkpoint = o.out .. "/training.safetensors"

-- What must be the same when a training goes on. (--steps is in the learning rates: with more, they fall later.)
local function settings()
  local list = { ("%d characters"):format(#all) }
  for _, name in ipairs { "layers", "heads", "width", "context", "dropout", "batch", "lr", "decay", "clip", "seed" } do
    list[#list + 1] = ("--%s %.6g"):format(name, o[name])
  end
  return table.concat(list, " ")
end

local objects = { model = model, optimizer = optimizer, scheduler = scheduler, data = data }

local function check(done, problem) return done or stop("%s", problem) end

local function save()
  local run = { step = step, settings = settings(), curve = curve, sum = sum, steps = steps, smooth = smooth }
  for name, object in pairs(objects) do run[name] = object end
  check(heed.save(checkpoint, run))
  check(model:save_pretrained(o.out))
  if #curve < 2 then return end
  local lines = heed.tensor(curve).T
  check(plot.line(lines:narrow(1, 2, 2), {
    x = lines[1], names = { "training", "validation" }, title = "Loss", file = o.out .. "/loss.svg",
  }))
end

-- Makes the folder and writes the characters, of which number i has the id i: before the training, so that a folder
-- that cannot be written to is reported at once.
local function prepare_folder()
  os.execute(("mkdir -p '%s'"):format((o.out:gsub("'", "'\\''"))))
  local file = check(io.open(o.out .. "/characters.txt", "wb"))
  check(file:write(table.concat(characters)))
  check(file:close())
end

local function resume()
  local found, problem = heed.load(checkpoint)
  if not found then stop("%s; leave --resume out to begin", problem) end
  if found.settings ~= settings() then
    stop("the training in '%s' has\n  %s\nand this call\n  %s", o.out, tostring(found.settings), settings())
  end
  found = assert(heed.utils.load_checkpoint(checkpoint, objects))
  step, curve = found.step, found.curve
  sum, steps, smooth = found.sum, found.steps, found.smooth
end

-- ---- The run ------------------------------------------------------------------------------------

if o.resume then resume() end
prepare_folder()
local every = o.validate or math.max(50, math.floor(o.steps / 20))
print(("%d parameters, %d characters of text, %d different"):format(size, #all, #characters))

local bar = heed.utils.progress(o.steps, { unit = "tokens", first = math.min(step, o.steps) })

local function report()
  local loss = validate()
  curve[#curve + 1] = { step, sum / steps, loss }
  bar:print(("step %d: loss %.4f, validation %.4f"):format(step, sum / steps, loss))
  if o.sample > 0 then bar:print(write(step) .. "\n") end
  sum, steps = 0, 0
end

heed.set_grad_enabled(true)
local is_stopped = interrupt.hold(function(pressed)
  while step < o.steps do
    if o.dropout > 0 then heed.manual_seed(o.seed * 2 ^ 24 + step) end -- so that a step draws the same after --resume
    local loss = train()
    if loss ~= loss then stop("the loss is nan after step %d; try a lower --lr than %g", step, o.lr) end
    step, sum, steps, smooth = step + 1, sum + loss, steps + 1, smooth and 0.9 * smooth + 0.1 * loss or loss
    bar:update(step, ("loss %.4f"):format(smooth), o.batch * o.context)
    if step % every == 0 or step == o.steps then
      report()
      save()
    elseif pressed() then
      save()
    end
    if pressed() and step < o.steps then return true end
  end
end)
bar:finish()
if is_stopped then
  print(("stopped after step %d; --resume goes on"):format(step))
  os.exit(130)
end
print(("the model is in %s: require(\"heed.models.gpt2\").load %q"):format(o.out, o.out))
