-- Attention with weights that can be trained, step by step to several heads.
--
-- Three matrices turn each word's vector into a query (what it looks for), a key (what it can be
-- found by) and a value (what it has to say). If a query is similar to a key, the value that
-- belongs to that key counts.
--
-- The numbers of the original notebook come from an Intel machine, where PyTorch draws dropout
-- from another random stream than elsewhere. heed has both:

local heed = require "heed"
local nn = heed.nn
heed.set_dropout_stream "mkl"

-- With --grad, operations are recorded, and tensors print what computed them.
heed.set_grad_enabled(arg ~= nil and arg[1] == "--grad")

local inputs = heed.tensor {
  { 0.43, 0.15, 0.89 }, -- Your
  { 0.55, 0.87, 0.66 }, -- journey
  { 0.57, 0.85, 0.64 }, -- starts
  { 0.22, 0.58, 0.33 }, -- with
  { 0.77, 0.25, 0.10 }, -- one
  { 0.05, 0.80, 0.55 }, -- step
}

-- ONE QUERY ---------------------------------------------------------------------------------------

print "-- cell 7"
local x_2 = inputs[2]
print(x_2.shape)
local d_in = inputs.shape[2] -- sizes of a word's vector: 3 on the way in,
local d_out = 2 -- 2 on the way out (in practice mostly the same; here different, to tell them apart)

-- Cell 8: the three matrices, filled with random numbers. The seed makes them the same in every
-- run.

heed.manual_seed(123)
local W_query = nn.Parameter(heed.rand(d_in, d_out), false)
local W_key = nn.Parameter(heed.rand(d_in, d_out), false)
local W_value = nn.Parameter(heed.rand(d_in, d_out), false)

print "\n-- cell 9"
local query_2 = x_2:matmul(W_query)
print(query_2)

-- One query needs the keys and values of all words.

print "\n-- cell 10"
local keys = inputs:matmul(W_key)
local values = inputs:matmul(W_value)
print("keys.shape: " .. keys.shape)
print("values.shape: " .. values.shape)

print "\n-- cell 12"
local attn_scores_2 = query_2:matmul(keys.T)
print(attn_scores_2)

-- Before the softmax the scores are divided by the root of the key's size. Long vectors have large
-- dot products; without this one word would take nearly all of the weight.

print "\n-- cell 14"
local d_k = keys.shape[2]
local attn_weights_2 = heed.softmax(attn_scores_2 / d_k ^ 0.5, -1)
print(attn_weights_2)
print(attn_weights_2:sum())

print "\n-- cell 17"
local context_vec_2 = attn_weights_2:matmul(values)
print(context_vec_2)

-- A MODULE (cell 19) ------------------------------------------------------------------------------
-- The same as a class. nn.Linear is a matrix with better initial random numbers.
-- named_parameters(), state_dict() and print() find the fields in the order in which they are set.

local SelfAttention_v2 = nn.Module.class "SelfAttention_v2"

function SelfAttention_v2:init(size_in, size_out, qkv_bias)
  self.W_query = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_key = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_value = nn.Linear(size_in, size_out, qkv_bias or false)
end

function SelfAttention_v2:forward(x)
  local k, q, v = self.W_key(x), self.W_query(x), self.W_value(x)
  local scores = q:matmul(k.T)
  local weights = heed.softmax(scores / k.shape[-1] ^ 0.5, -1)
  return weights:matmul(v)
end

print "\n-- cell 20"
heed.manual_seed(789)
local sa_v2 = SelfAttention_v2(d_in, d_out)
print(sa_v2(inputs))

-- heed has this module built in, in C. The same seed gives the same numbers.
heed.manual_seed(789)
assert(heed.allclose(nn.SelfAttention(d_in, d_out)(inputs), sa_v2(inputs)))

-- HIDING THE FUTURE -------------------------------------------------------------------------------
-- A model that predicts the next word must not see it. "Causal" attention lets each word see
-- itself and the words before it.

print "\n-- cell 21"
local queries = sa_v2.W_query(inputs)
keys = sa_v2.W_key(inputs)
local attn_scores = queries:matmul(keys.T)
local attn_weights = heed.softmax(attn_scores / keys.shape[-1] ^ 0.5, -1)
print(attn_weights)

-- One way: zero the weights above the diagonal, then make the rows sum to 1 again.

print "\n-- cell 22"
local context_length = attn_scores.shape[1]
local mask_simple = heed.tril(heed.ones(context_length, context_length))
print(mask_simple)

print "\n-- cell 23"
local masked_simple = attn_weights * mask_simple
local row_sums = masked_simple:sum { dim = -1, keepdim = true }
print(masked_simple / row_sums)

-- The better way: set the scores to -infinity before the softmax, which turns them into zeros.

print "\n-- cell 24"
local mask = heed.triu(heed.ones(context_length, context_length), 1)
local masked = attn_scores:masked_fill(mask:bool(), -math.huge)
print(masked)
attn_weights = heed.softmax(masked / keys.shape[-1] ^ 0.5, -1)
print(attn_weights)

-- DROPOUT -----------------------------------------------------------------------------------------
-- In training, random weights are set to zero, so that no word depends on a single other one. The
-- remaining weights are scaled up, here by 1 / (1 - 0.5) = 2.

print "\n-- cell 27"
local dropout = nn.Dropout(0.5)
heed.manual_seed(123)
print(dropout(attn_weights))

-- CAUSAL ATTENTION (cell 28) ----------------------------------------------------------------------
-- All of this in one class, for batches: x is [b, tokens, d_in]. A buffer is a tensor that belongs
-- to the module and to its state, but is not trained.

local CausalAttention = nn.Module.class "CausalAttention"

function CausalAttention:init(size_in, size_out, context, dropout_rate, qkv_bias)
  self.W_query = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_key = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_value = nn.Linear(size_in, size_out, qkv_bias or false)
  self.dropout = nn.Dropout(dropout_rate)
  self:register_buffer("mask", heed.triu(heed.ones(context, context), 1))
end

function CausalAttention:forward(x)
  local num_tokens = x.shape[2]
  local k, q, v = self.W_key(x), self.W_query(x), self.W_value(x)
  local scores = q:matmul(k:transpose(2, 3))
  -- Shorter inputs use the upper left corner of the mask.
  local hidden = self.mask:bool()[{ { 1, num_tokens }, { 1, num_tokens } }]
  scores:masked_fill_(hidden, -math.huge) -- an underscore at the end of a name: in place
  local weights = heed.softmax(scores / k.shape[-1] ^ 0.5, -1)
  return self.dropout(weights):matmul(v)
end

print "\n-- cell 30"
heed.manual_seed(123)
local batch = heed.stack { inputs, inputs }
print(batch.shape)
context_length = batch.shape[2]
local ca = CausalAttention(d_in, d_out, context_length, 0.0)
local context_vecs = ca(batch)
print(context_vecs)
print("context_vecs.shape: " .. context_vecs.shape)

heed.manual_seed(123)
assert(heed.allclose(nn.CausalAttention(d_in, d_out, context_length, 0.0)(batch), context_vecs))

-- SEVERAL HEADS (cell 31) -------------------------------------------------------------------------
-- One head looks for one thing. Several heads look for several; their results are joined side by
-- side.

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

print "\n-- cell 32"
heed.manual_seed(123)
local wrapper = MultiHeadAttentionWrapper(d_in, d_out, context_length, 0.0, 2)
context_vecs = wrapper(batch)
print(context_vecs)
print("context_vecs.shape: " .. context_vecs.shape)

heed.manual_seed(123)
assert(heed.allclose(nn.MultiHeadAttentionWrapper(d_in, d_out, context_length, 0.0, 2)(batch), context_vecs))

-- ONE MATRIX FOR ALL HEADS (cell 33) --------------------------------------------------------------
-- Large matrices that hold the small ones of all heads side by side need one product only. Its
-- result is then viewed as [b, tokens, heads, head_dim] and transposed, which brings the heads to
-- the front: all later steps work on all heads at once. Neither moves a number in memory.

local MultiHeadAttention = nn.Module.class "MultiHeadAttention"

function MultiHeadAttention:init(size_in, size_out, context, dropout_rate, num_heads, qkv_bias)
  assert(size_out % num_heads == 0, "d_out must be divisible by num_heads")
  self.d_out = size_out
  self.num_heads = num_heads
  self.head_dim = math.floor(size_out / num_heads)
  self.W_query = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_key = nn.Linear(size_in, size_out, qkv_bias or false)
  self.W_value = nn.Linear(size_in, size_out, qkv_bias or false)
  self.out_proj = nn.Linear(size_out, size_out) -- lets the heads' answers mix
  self.dropout = nn.Dropout(dropout_rate)
  self:register_buffer("mask", heed.triu(heed.ones(context, context), 1))
end

function MultiHeadAttention:forward(x)
  local b, num_tokens = x.shape[1], x.shape[2]
  local function split_heads(y) -- [b, tokens, d_out] -> [b, heads, tokens, head_dim]
    return y:view(b, num_tokens, self.num_heads, self.head_dim):transpose(2, 3)
  end
  local k, q, v = split_heads(self.W_key(x)), split_heads(self.W_query(x)), split_heads(self.W_value(x))

  local scores = q:matmul(k:transpose(3, 4)) -- [b, heads, tokens, tokens]
  local hidden = self.mask:bool()[{ { 1, num_tokens }, { 1, num_tokens } }]
  scores:masked_fill_(hidden, -math.huge)
  local weights = self.dropout(heed.softmax(scores / k.shape[-1] ^ 0.5, -1))

  -- back to [b, tokens, heads, head_dim], then the heads side by side: [b, tokens, d_out]
  local context_vec = weights:matmul(v):transpose(2, 3)
  context_vec = context_vec:contiguous():view(b, num_tokens, self.d_out)
  return self.out_proj(context_vec)
end

print "\n-- cell 34"
heed.manual_seed(123)
local mha = MultiHeadAttention(d_in, d_out, context_length, 0.0, 2)
context_vecs = mha(batch)
print(context_vecs)
print("context_vecs.shape: " .. context_vecs.shape)

heed.manual_seed(123)
assert(heed.allclose(nn.MultiHeadAttention(d_in, d_out, context_length, 0.0, 2)(batch), context_vecs))
