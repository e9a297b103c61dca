-- heed's side of train.py: steps of a character GPT; answers each line of standard input.
--   heed train.lua FOLDER LAYERS HEADS WIDTH CONTEXT BATCH [save]    with save: writes fresh weights to FOLDER and ends
--                             losses N: makes N steps, answers their losses in a line
--                             step N: makes N steps, answers the processor time; memory: answers the peak in MiB
local heed = require "heed"
local GPT2 = require "heed.models.gpt2"
local F = heed.nn.functional
heed.set_num_threads(1)

local folder, VOCAB = arg[1], 65
local layers, heads, width, context, batch = tonumber(arg[2]), tonumber(arg[3]), tonumber(arg[4]), tonumber(arg[5]),
  tonumber(arg[6])
if arg[7] == "save" then
  heed.manual_seed(1)
  local fresh = GPT2 { vocab_size = VOCAB, n_positions = context, n_embd = width, n_layer = layers, n_head = heads,
    resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0, activation_function = "gelu" }
  assert(fresh:save_pretrained(folder))
  os.exit(0)
end

local model = assert(GPT2.load(folder)):train()
local optimizer = heed.optim.AdamW(model:parameters(), { lr = 1e-3, weight_decay = 0.1 })
heed.set_grad_enabled(true)

-- The same ids as in train.py: (7 i + i² // 3) % 65, one batch after the other.
local position = 0
local function ids()
  local list = {}
  for i = 1, batch * (context + 1) do
    local at = position + i - 1
    list[i] = (7 * at + math.floor(at * at / 3)) % VOCAB + 1
  end
  position = position + #list
  local all = heed.tensor(list, { dtype = "int64" }):view(batch, context + 1)
  return all:narrow(2, 1, context), all:narrow(2, 2, context)
end

local function step(x, y)
  local loss = F.cross_entropy(model(x):flatten(1, 2), y:flatten())
  optimizer:zero_grad()
  loss:backward()
  heed.nn.utils.clip_grad_norm_(model:parameters(), 1)
  optimizer:step()
  return loss:item()
end

print "ready"
io.stdout:flush()
for line in io.lines() do
  local command, rest = line:match "^(%a+) ?(.*)$"
  if command == "losses" then
    local list = {}
    for i = 1, tonumber(rest) do list[i] = ("%.7g"):format(step(ids())) end
    print(table.concat(list, " "))
  elseif command == "step" then
    local x, y = ids()
    local start = os.clock()
    for _ = 1, tonumber(rest) do step(x, y) end
    print(os.clock() - start)
  elseif command == "memory" then
    print(heed.info().memory_peak / 2 ^ 20)
  end
  io.stdout:flush()
end
