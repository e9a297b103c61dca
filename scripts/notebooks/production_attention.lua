-- From bare parameters to a compact attention module, with everything that training needs.
--
-- The same steps as in coding_attention.lua with other numbers, at a slower pace: single queries
-- first, the reason for dividing by the root of the key's size, then causal masks and dropout one at
-- a time. (These numbers come from a machine on which PyTorch draws dropout from the "native"
-- stream, heed's default.)

local heed = require "heed"
local nn = heed.nn

-- With --grad, operations are recorded, and tensors print what computed them.
heed.set_grad_enabled(arg ~= nil and arg[1] == "--grad")

-- Our sentence; every word is a vector of three numbers.
local inputs = heed.tensor {
  { 0.8938, 0.9003, 0.8978 }, -- Your
  { 0.7165, 0.3428, 0.2553 }, -- journey
  { 0.1042, 0.5163, 0.3753 }, -- starts
  { 0.0445, 0.3091, 0.9763 }, -- with
  { 0.1554, 0.1614, 0.2700 }, -- one
  { 0.8089, 0.9435, 0.5480 }, -- step
}

local x_2 = inputs[2] -- the word of the query: "journey"
local d_in = inputs.shape[2]
local d_out = 2

-- QUERIES, KEYS, VALUES ---------------------------------------------------------------------------

heed.manual_seed(100)
local W_query = nn.Parameter(heed.rand(d_in, d_out), false)
local W_key = nn.Parameter(heed.rand(d_in, d_out), false)
local W_value = nn.Parameter(heed.rand(d_in, d_out), false)

print "-- cell 5"
print(W_query)

print "\n-- cell 6"
print(W_key)

print "\n-- cell 7"
print(W_value)

print "\n-- cell 8"
local query_2 = x_2:matmul(W_query)
print(query_2)

print "\n-- cell 9"
local keys = inputs:matmul(W_key)
local values = inputs:matmul(W_value)
local queries = inputs:matmul(W_query)
print("keys.shape: " .. keys.shape)
print("values.shape: " .. values.shape)
print("queries.shape: " .. queries.shape)

-- SCORES AND WEIGHTS ------------------------------------------------------------------------------

print "\n-- cell 10"
print(query_2:dot(keys[2])) -- one score: the second query with the second key

print "\n-- cell 11"
local attn_scores_2 = query_2:matmul(keys.T) -- the scores of one query with all keys
print(attn_scores_2)

print "\n-- cell 12"
local d_k = keys.shape[-1]
local attn_weights_2 = heed.softmax(attn_scores_2 / d_k ^ 0.5, -1)
print("Attention weights for the second input: " .. attn_weights_2)
print("Embedding dimension for the keys: " .. d_k)

-- Why divide? Because softmax is sensitive to size: with eight times the scores, one element takes
-- nearly everything.

print "\n-- cell 13"
local scores = heed.tensor { 0.1, -0.2, 0.3, -0.2, 0.5 }
print("Softmax without scaling: " .. heed.softmax(scores, -1))
print("Softmax after scaling by 8: " .. heed.softmax(8 * scores, -1))

-- Why by the root? A dot product of two vectors of random numbers (each of variance 1) is a sum of
-- as many products as they are long, and variances add up: 5 numbers, variance 5. The root of the
-- length is its standard deviation; dividing by it brings the variance back to 1, whatever the
-- length.

local function compute_variances(dim, num_trials)
  local dot_products = heed.empty(num_trials)
  for i = 1, num_trials do
    dot_products[i] = heed.dot(heed.randn(dim), heed.randn(dim))
  end
  local scaled_dot_products = dot_products / dim ^ 0.5
  return dot_products:var { unbiased = false }:item(), scaled_dot_products:var { unbiased = false }:item()
end

print "\n-- cell 14"
heed.manual_seed(100)
for _, dim in ipairs { 5, 20 } do
  local before, after = compute_variances(dim, 1000)
  print(("Variance before scaling (dim=%d): %s"):format(dim, before))
  print(("Variance after scaling (dim=%d): %s"):format(dim, after))
end

print "\n-- cell 15"
local context_vec_2 = attn_weights_2:matmul(values)
print("Context vector for the second input: " .. context_vec_2)

-- A MODULE ----------------------------------------------------------------------------------------
-- Cell 16: for all words at once, as a class. Parameters are tensors that belong to the module and
-- can be trained.

local SelfAttention_v1 = nn.Module.class "SelfAttention_v1"

function SelfAttention_v1:init(size_in, size_out)
  self.W_query = nn.Parameter(heed.rand(size_in, size_out))
  self.W_key = nn.Parameter(heed.rand(size_in, size_out))
  self.W_value = nn.Parameter(heed.rand(size_in, size_out))
end

function SelfAttention_v1:forward(x)
  local q, k, v = x:matmul(self.W_query), x:matmul(self.W_key), x:matmul(self.W_value)
  local attn_scores = q:matmul(k.T)
  local attn_weights = heed.softmax(attn_scores / k.shape[-1] ^ 0.5, -1)
  return attn_weights:matmul(v)
end

print "\n-- cell 17"
heed.manual_seed(100)
local sa_v1 = SelfAttention_v1(d_in, d_out)
print(sa_v1(inputs)) -- its second row is the context vector of cell 15

-- Cell 18: the same with nn.Linear, whose random numbers are a better start for training.

local SelfAttention_v2 = nn.Module.class "SelfAttention_v2"

function SelfAttention_v2:init(size_in, size_out, qkv_bias)
  self.W_query = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_key = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_value = nn.Linear(size_in, size_out, qkv_bias or false)
end

function SelfAttention_v2:forward(x)
  local q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
  local attn_scores = q:matmul(k.T)
  local attn_weights = heed.softmax(attn_scores / k.shape[-1] ^ 0.5, -1)
  return attn_weights:matmul(v)
end

print "\n-- cell 19"
heed.manual_seed(100)
local sa_v2 = SelfAttention_v2(d_in, d_out)
print(sa_v2(inputs))

-- The built-in module is nn.SelfAttention.
heed.manual_seed(100)
assert(heed.allclose(nn.SelfAttention(d_in, d_out)(inputs), sa_v2(inputs)))

-- CAUSAL MASKS ------------------------------------------------------------------------------------
-- So far every word sees all other words, including later ones.

print "\n-- cell 21"
queries = sa_v2.W_query(inputs)
keys = sa_v2.W_key(inputs)
local attn_scores = queries:matmul(keys.T)
local attn_weights = heed.softmax(attn_scores / keys.shape[-1] ^ 0.5, -1)
print(attn_weights)

-- First way: a triangle of ones; multiply; divide the rows by their sums.

print "\n-- cell 22"
local context_length = attn_weights.shape[1]
local mask_simple = heed.tril(heed.ones(context_length, context_length))
print(mask_simple)

print "\n-- cell 23"
local masked_simple = attn_weights * mask_simple
print(masked_simple)

print "\n-- cell 24"
local row_sums = masked_simple:sum { dim = -1, keepdim = true }
print(masked_simple / row_sums)

-- Second way: -infinity in the scores. e to the power of -infinity is 0, and softmax does the rest.

print "\n-- cell 25"
print(attn_scores)

print "\n-- cell 26"
local mask = heed.triu(heed.ones(context_length, context_length), 1)
local attn_scores_masked = attn_scores:masked_fill(mask:bool(), -math.huge)
print(attn_scores_masked)

print "\n-- cell 27"
attn_weights = heed.softmax(attn_scores_masked / keys.shape[-1] ^ 0.5, -1)
print(attn_weights)

-- DROPOUT -----------------------------------------------------------------------------------------
-- Ones show it best: about half of them become 0, the others 2.

print "\n-- cell 28"
local example = heed.ones(6, 6)
print(example)

print "\n-- cell 29"
heed.manual_seed(100)
local dropout = nn.Dropout(0.5)
print(dropout(example))

print "\n-- cell 30"
heed.manual_seed(100)
print(dropout(attn_weights))

-- BATCHES AND CAUSAL ATTENTION --------------------------------------------------------------------
-- Two sentences at once: [2, 6, 3]. Here both are the same one.

print "\n-- cell 31"
local batch = heed.stack { inputs, inputs }
print(batch.shape)

-- Cell 32. The document takes the softmax over dimension 2 of 3, that is over the queries: the
-- weights of a *column* sum to 1. That is a mistake (the last dimension is meant), but the printed
-- numbers come from it, so it is kept here.

local CausalAttention = nn.Module.class "CausalAttention"

function CausalAttention:init(size_in, size_out, context, dropout_rate, qkv_bias)
  self.W_query = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_key = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_value = nn.Linear(size_in, size_out, qkv_bias or false)
  self.dropout = nn.Dropout(dropout_rate)
  self:register_buffer("causal_mask", heed.triu(heed.ones(context, context), 1))
end

function CausalAttention:forward(x)
  local num_tokens = x.shape[2]
  local q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
  local s = q:matmul(k:transpose(2, 3))
  s:masked_fill_(self.causal_mask:bool()[{ { 1, num_tokens }, { 1, num_tokens } }], -math.huge)
  local w = heed.softmax(s / k.shape[-1] ^ 0.5, 2)
  return self.dropout(w):matmul(v)
end

print "\n-- cell 33"
heed.manual_seed(100)
context_length = batch.shape[2]
local ca = CausalAttention(d_in, d_out, context_length, 0.0)
local context_vecs = ca(batch)
print("context_vecs.shape: " .. context_vecs.shape)

print "\n-- cell 34"
print(context_vecs)

-- The dimension is an option of the built-in module, by default the last one.
heed.manual_seed(100)
local built_in = nn.CausalAttention(d_in, d_out, context_length, 0.0, { softmax_dim = 2 })
assert(heed.allclose(built_in(batch), context_vecs))

-- SEVERAL HEADS -----------------------------------------------------------------------------------
-- Cell 35: as many causal modules as heads, their results side by side in the last dimension.

local MultiHeadAttentionWrapper = nn.Module.class "MultiHeadAttentionWrapper"

function MultiHeadAttentionWrapper:init(size_in, size_out, context, dropout_rate, num_heads, qkv_bias)
  self.heads = nn.ModuleList()
  for _ = 1, num_heads do
    self.heads:append(CausalAttention(size_in, size_out, context, dropout_rate, qkv_bias))
  end
end

function MultiHeadAttentionWrapper:forward(x)
  local results = {}
  for i, head in heed.ipairs(self.heads) do
    results[i] = head(x)
  end
  return heed.cat(results, -1)
end

print "\n-- cell 36"
print(batch.shape)

print "\n-- cell 37"
heed.manual_seed(100)
local wrapper = MultiHeadAttentionWrapper(d_in, d_out, context_length, 0.0, 2)
context_vecs = wrapper(batch)
print(context_vecs)
print("context_vecs.shape: " .. context_vecs.shape)

-- Cell 42: all heads in one module, by splitting large matrices. The document's class should mask
-- the scores, but calls masked_fill instead of masked_fill_: the masked copy is dropped, and the
-- words see the future. It prints nothing there; here an argument chooses between the two.

local MultiHeadAttention = nn.Module.class "MultiHeadAttention"

function MultiHeadAttention:init(size_in, size_out, context, dropout_rate, num_heads, qkv_bias)
  assert(size_out % num_heads == 0, "d_out must be divisible by num_heads")
  self.d_out = size_out
  self.num_heads = num_heads
  self.head_dim = math.floor(size_out / num_heads)
  self.W_query = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_key = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_value = nn.Linear(size_in, size_out, qkv_bias or false)
  self.out_proj = nn.Linear(size_out, size_out)
  self.dropout = nn.Dropout(dropout_rate)
  self:register_buffer("causal_mask", heed.triu(heed.ones(context, context), 1))
end

function MultiHeadAttention:forward(x, forget_the_mask)
  local b, num_tokens = x.shape[1], x.shape[2]
  local function split_heads(y)
    return y:view(b, num_tokens, self.num_heads, self.head_dim):transpose(2, 3)
  end
  local q, k, v = split_heads(self.W_query(x)), split_heads(self.W_key(x)), split_heads(self.W_value(x))
  local s = q:matmul(k:transpose(-2, -1))
  local hidden = self.causal_mask:bool()[{ { 1, num_tokens }, { 1, num_tokens } }]
  local masked_scores = s:masked_fill(hidden, -math.huge)
  local w = self.dropout(heed.softmax((forget_the_mask and s or masked_scores) / k.shape[-1] ^ 0.5, -1))
  local context_vec = w:matmul(v):transpose(2, 3):contiguous():view(b, num_tokens, self.d_out)
  return self.out_proj(context_vec)
end

-- The mask is an option of the built-in module: causal = false behaves like the document's class.
for _, causal in ipairs { true, false } do
  heed.manual_seed(100)
  local mine = MultiHeadAttention(d_in, 4, context_length, 0.0, 2)
  heed.manual_seed(100)
  local theirs = nn.MultiHeadAttention(d_in, 4, context_length, 0.0, 2, { causal = causal })
  assert(heed.allclose(mine(batch, not causal), theirs(batch)))
end
