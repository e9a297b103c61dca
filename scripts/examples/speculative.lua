-- Speculative decoding: a small model drafts a tree of next characters, and the large model checks all of them in one
-- forward pass, with a mask by which each sees its own branch alone. The text is the one that the large model writes by
-- itself, character by character, in fewer passes. Both models are trained first, for some seconds.
-- Source: Miao et al., "SpecInfer" (2024, arXiv:2305.09781).
local heed = require "heed"
local GPT2 = require "heed.models.gpt2"
local F, nn = heed.nn.functional, heed.nn

local USAGE = [[
usage: heed speculative.lua [OPTIONS]
  --tokens N      characters to write (80)
  --tree W,W,...  branches of the draft: how many characters follow each one of a level (3,2,1,1,1)
  --prompt TEXT   what the text begins with (This is the )
  --steps N       steps of training (500)
  --seed N        seed of the weights (1)
  --help          shows this text]]

local function stop(...)
  io.stderr:write("speculative: ", string.format(...), "\n")
  os.exit(1)
end

-- ---- Arguments ----------------------------------------------------------------------------------

local function count(text)
  local n = tonumber(text)
  return n and n % 1 == 0 and n >= 1 and math.floor(n) or nil
end
local function counts(text)
  local list = {}
  for item in (text .. ","):gmatch "([^,]*)," do
    local width = count(item)
    if not width or #list == 16 then return nil end
    list[#list + 1] = width
  end
  return #list > 0 and list or nil
end
local KINDS = { tokens = count, tree = counts, prompt = tostring, steps = count, seed = count }
local o = { tokens = 80, tree = { 3, 2, 1, 1, 1 }, prompt = "This is the ", steps = 500, seed = 1 }
local at = 1
while arg[at] do
  local name = arg[at]:match "^%-%-(.*)$"
  if name == "help" then
    print(USAGE)
    os.exit(0)
  end
  if not KINDS[name] then stop("%s is not known; --help lists the options", arg[at]) end
  local value = arg[at + 1] and KINDS[name](arg[at + 1])
  if not value then stop("--%s is '%s'; --help describes its values", name, arg[at + 1] or "") end
  o[name], at = value, at + 2
end

-- ---- Text ---------------------------------------------------------------------------------------

local PARTS = { "house that Jack built. ", "malt that lay in the ", "rat that ate the ", "cat that killed the ",
  "dog that worried the ", "cow that tossed the ", "maiden that milked the " }
local lines = {}
for i = 1, #PARTS do
  local line = "This is the "
  for k = i, 1, -1 do line = line .. PARTS[k] end
  lines[i] = line
end
local text = table.concat(lines)

local characters, ids_of = {}, {}
for c in text:gmatch "." do
  if not ids_of[c] then
    characters[#characters + 1] = c
    ids_of[c] = #characters
  end
end

local function encode(part)
  local ids = {}
  for c in part:gmatch "." do
    if not ids_of[c] then stop("--prompt has the byte %d, which the rhyme does not have", c:byte()) end
    ids[#ids + 1] = ids_of[c]
  end
  return ids
end

local function decode(ids, first)
  local parts = {}
  for i = first, #ids do parts[#parts + 1] = characters[ids[i]] end
  return table.concat(parts)
end

local CONTEXT, BATCH = 128, 4
local prompt_length = #encode(o.prompt)
if prompt_length == 0 then stop "--prompt is ''; it must have at least one character" end
if prompt_length + o.tokens > CONTEXT then
  stop("--prompt has %d characters and --tokens is %d; together they must be at most %d", prompt_length, o.tokens,
    CONTEXT)
end

-- ---- The models ---------------------------------------------------------------------------------

-- Position embeddings for positions that are given from outside: siblings in the tree have the same one.
local Positions = nn.Module.class "Positions"
function Positions:init(embeddings) self.embeddings, self.given = embeddings, false end
function Positions:forward(positions) return self.embeddings(self.given or positions) end

local function train(width, heads, layers)
  heed.manual_seed(o.seed)
  local model = GPT2 { vocab_size = #characters, n_positions = CONTEXT, n_embd = width, n_layer = layers,
    n_head = heads, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 }
  local all, parameters = heed.tensor(encode(text), { dtype = "int64" }), {}
  for parameter in model:parameters() do parameters[#parameters + 1] = parameter end
  local optimizer = heed.optim.AdamW(parameters, { lr = 5e-3 })
  heed.enable_grad(function()
    for _ = 1, o.steps do
      local inputs, targets = {}, {}
      for i, first in ipairs(heed.randint(1, #all - CONTEXT, { BATCH }):tolist()) do
        inputs[i], targets[i] = all:narrow(1, first, CONTEXT), all:narrow(1, first + 1, CONTEXT)
      end
      local logits = model(heed.stack(inputs)):flatten(1, 2)
      optimizer:zero_grad()
      F.cross_entropy(logits, heed.stack(targets):flatten()):backward()
      optimizer:step()
    end
  end)
  model:eval()
  model.position_embeddings = Positions(model.position_embeddings)
  return model
end

local large, small = train(64, 4, 3), train(32, 2, 1)

-- ---- Trees --------------------------------------------------------------------------------------

-- Nodes are numbered from 1, each after its parent; parents[i] is 0 for a node that follows the tokens of the cache.
local function new_tree() return { tokens = {}, parents = {}, depths = {} } end

local function add(tree, token, parent)
  local i = #tree.tokens + 1
  tree.tokens[i], tree.parents[i] = token, parent
  tree.depths[i] = parent == 0 and 1 or tree.depths[parent] + 1
  return i
end

-- The logits [n, vocabulary] of all nodes, which follow the first `past` tokens of the cache. Each node sees those
-- tokens, its ancestors and itself.
local function run(model, cache, tree, past)
  local positions = {}
  for i, depth in ipairs(tree.depths) do positions[i] = past + depth end
  cache:truncate(past)
  model.position_embeddings.given = heed.tensor(positions, { dtype = "int64" })
  local logits = model(heed.tensor({ tree.tokens }, { dtype = "int64" }),
    { cache = cache, attn_mask = heed.mask.tree(tree.parents) })
  model.position_embeddings.given = false
  return logits[1]
end

-- Tokens that the cache does not hold, as the beginning of a tree: a chain.
local function chain_of(tokens, held)
  local tree = new_tree()
  for i = held + 1, #tokens do add(tree, tokens[i], #tree.tokens) end
  return tree
end

-- Adds the tokens that the small model expects after the chain, level by level.
local function draft(tree, cache, tokens, widths)
  local past = cache.length
  local own = chain_of(tokens, past)
  local level = { #own.tokens }
  local numbers = { [#own.tokens] = #tree.tokens } -- of the nodes in `tree`, by those in `own`
  for depth, width in ipairs(widths) do
    if #tokens + depth > CONTEXT then break end
    local _, best = heed.topk(run(small, cache, own, past), math.min(width, #characters))
    local next_level = {}
    for _, node in ipairs(level) do
      for _, token in ipairs(best[node]:tolist()) do
        local i = add(own, token, node)
        numbers[i] = add(tree, token, numbers[node])
        next_level[#next_level + 1] = i
      end
    end
    level = next_level
  end
  cache:truncate(#tokens)
end

-- ---- Writing ------------------------------------------------------------------------------------

local function room(widths) -- the nodes of a tree
  local nodes, level = 0, 1
  for _, width in ipairs(widths) do
    level = level * math.min(width, #characters)
    nodes = nodes + level
  end
  return nodes
end

local function greedy(prompt, n)
  local tokens, cache = encode(prompt), large:new_cache { capacity = CONTEXT }
  for _ = 1, n do
    local logits = run(large, cache, chain_of(tokens, cache.length), cache.length)
    tokens[#tokens + 1] = logits[-1]:argmax():item()
  end
  return tokens, n
end

local function speculate(prompt, n, widths)
  local tokens, passes = encode(prompt), 0
  local wanted = #tokens + n
  local cache, small_cache = large:new_cache { capacity = CONTEXT }, small:new_cache { capacity = CONTEXT }
  while #tokens < wanted do
    local past = cache.length
    local tree = chain_of(tokens, past)
    local node, kept = #tree.tokens, #tokens
    if #tokens + 1 < wanted and kept + room(widths) <= CONTEXT then draft(tree, small_cache, tokens, widths) end
    local choices = run(large, cache, tree, past):argmax(2):tolist()
    passes = passes + 1
    while node and #tokens < wanted do
      local token, child = choices[node], nil
      tokens[#tokens + 1] = token
      for i = node + 1, #tree.tokens do
        if tree.parents[i] == node and tree.tokens[i] == token then child = i break end
      end
      if child and past + child == kept + 1 then kept = kept + 1 end -- its place in the cache is the right one
      node = child
    end
    cache:truncate(math.min(kept, #tokens - 1)) -- without the other branches
  end
  return tokens, passes
end

local expected, passes_alone = greedy(o.prompt, o.tokens)
local found, passes = speculate(o.prompt, o.tokens, o.tree)
local same = table.concat(expected, " ") == table.concat(found, " ")
print(o.prompt .. "|" .. decode(found, prompt_length + 1))
print(("the large model alone: %d passes; with drafts: %d passes, %.1f characters each; the text is %s"):format(
  passes_alone, passes, o.tokens / passes, same and "the same" or "different"))
if not same then os.exit(1) end
