-- One weight matrix, split into heads.
--
-- Several heads could have a matrix each, stored as a stack: [heads, d_in, head_dim]. In practice
-- there is one matrix with the columns of the heads side by side, and its product is split
-- afterwards by `view` and `transpose`. This script does both, and shows that they are the same.

local heed = require "heed"
local nn = heed.nn

local inputs = heed.tensor {
  { 0.43, 0.15, 0.89 }, -- Your
  { 0.55, 0.87, 0.66 }, -- journey
  { 0.57, 0.85, 0.64 }, -- starts
  { 0.22, 0.58, 0.33 }, -- with
  { 0.77, 0.25, 0.10 }, -- one
  { 0.05, 0.80, 0.55 }, -- step
}
local batch = heed.stack { inputs, inputs }
local b, num_tokens, d_in = 2, 6, 3
local d_out, num_heads = 4, 2
local head_dim = math.floor(d_out / num_heads)

heed.manual_seed(123)
local W_query = nn.Linear(d_in, d_out, false)
local W_key = nn.Linear(d_in, d_out, false)
local W_value = nn.Linear(d_in, d_out, false)
local out_proj = nn.Linear(d_out, d_out)

-- One product gives the keys of all heads, side by side in the last dimension. `view` splits that
-- dimension in two; `transpose` brings the heads to the front, as if each head had a matrix of its
-- own.

print "-- shapes"
local function split_heads(y)
  return y:view(b, num_tokens, num_heads, head_dim):transpose(2, 3)
end
local keys = W_key(batch)
print("keys: " .. keys.shape)
print("view: " .. keys:view(b, num_tokens, num_heads, head_dim).shape)
keys = split_heads(keys)
print("transpose: " .. keys.shape)
local queries, values = split_heads(W_query(batch)), split_heads(W_value(batch))
local scores = queries:matmul(keys:transpose(3, 4)) -- each query with each key, head by head
print("scores: " .. scores.shape)

-- A Linear stores its matrix transposed, [d_out, d_in]: its rows are the columns of the text above,
-- two rows for each head.

print "\n-- weights side by side"
print(W_key.weight)

-- The stack: rows 1 and 2 are head 1, rows 3 and 4 are head 2; each part is transposed. It is a view
-- of the same memory.

print "\n-- weights as a stack, one matrix a head"
local stack = W_key.weight:view(num_heads, head_dim, d_in):transpose(2, 3)
print(stack)
print(stack.shape)

-- With the stack, one product for each head gives the keys, in the same shape as the split.

print "\n-- keys of head 2 from the stack, first batch item"
local keys_of_stack = batch:unsqueeze(2):matmul(stack) -- [b, 1, tokens, d_in] by [heads, d_in, head_dim]
print(keys_of_stack[{ 1, 2 }])
assert(heed.allclose(keys_of_stack, keys))

-- The rest of attention, for all heads at once, then the way back. `view` cannot join the dimensions
-- of a transposed tensor, whose elements have another order in memory; `contiguous` copies them into
-- the right order first.

print "\n-- context vectors"
local future = heed.triu(heed.ones(num_tokens, num_tokens), 1):bool()
scores:masked_fill_(future, -math.huge)
local weights = heed.softmax(scores / head_dim ^ 0.5, -1)
local context = weights:matmul(values):transpose(2, 3)
print("per head, transposed back: " .. context.shape)
context = context:contiguous():view(b, num_tokens, d_out)
print(context[1])

print "\n-- after the output projection"
print(out_proj(context))

-- The built-in module does the same, and gives access to the split: head(i) returns the columns of
-- one head, split() a wrapper with a module for each head, on the same memory.
heed.manual_seed(123)
local mha = nn.MultiHeadAttention(d_in, d_out, num_tokens, 0.0, num_heads)
assert(heed.allclose(mha(batch), out_proj(context)))
assert(heed.equal(mha:head(2).W_key, stack[2]))
assert(heed.allclose(mha:split()(batch), context))
