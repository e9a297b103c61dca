-- Causal attention, one step at a time, then with two heads.
--
-- The module of the first part returns its result and all intermediate values, so that the steps
-- can be repeated by hand: the future is hidden first in the weights, then in the scores. The
-- second part uses dropout in two heads.
--
-- (The document's dropout was drawn on an Intel machine, from PyTorch's "mkl" stream.)

local heed = require "heed"
local nn = heed.nn
heed.set_dropout_stream "mkl"

-- With --grad, operations are recorded, and tensors print what computed them.
heed.set_grad_enabled(arg ~= nil and arg[1] == "--grad")

-- SELF ATTENTION (cells 2 and 3) ------------------------------------------------------------------

local SelfAttention = nn.Module.class "SelfAttention"

function SelfAttention:init(d_in, d_out, qkv_bias)
  self.W_query = nn.Linear(d_in, d_out, qkv_bias or false)
  self.W_key = nn.Linear(d_in, d_out, qkv_bias or false)
  self.W_value = nn.Linear(d_in, d_out, qkv_bias or false)
end

function SelfAttention:forward(x)
  local queries, key, value = self.W_query(x), self.W_key(x), self.W_value(x)
  local scores = queries:matmul(key.T)
  local weights = heed.softmax(scores / key.shape[-1] ^ 0.5, -1)
  return weights:matmul(value), scores, weights, key
end

local inputs = heed.tensor {
  { 0.43, 0.15, 0.89 }, -- Your
  { 0.55, 0.87, 0.66 }, -- journey
  { 0.57, 0.85, 0.64 }, -- starts
  { 0.22, 0.58, 0.33 }, -- with
  { 0.77, 0.25, 0.10 }, -- one
  { 0.05, 0.80, 0.55 }, -- step
}

heed.manual_seed(789)
local self_att = SelfAttention(3, 3)
local context_vectors, attn_scores, attn_wt, key = self_att(inputs)

-- On request, the built-in module returns its intermediate values: info.scores, info.weights,
-- info.keys and more.
heed.manual_seed(789)
local y, info = nn.SelfAttention(3, 3)(inputs, { need_weights = true })
assert(heed.allclose(y, context_vectors))
assert(heed.allclose(info.scores, attn_scores))
assert(heed.allclose(info.weights, attn_wt))
assert(heed.allclose(info.keys, key))

-- HIDING THE FUTURE, FIRST WAY: IN THE WEIGHTS ----------------------------------------------------

print "-- cell 4"
local context_len = attn_scores.shape[1]
print(heed.ones(context_len, context_len))

print "\n-- cell 5"
local mask_simple = heed.tril(heed.ones(context_len, context_len))
print(mask_simple)

print "\n-- cell 6"
print(attn_wt)

print "\n-- cell 8"
local masked_attn_wt = attn_wt * mask_simple
print(masked_attn_wt)

-- The rows no longer sum to 1. Dividing each row by its sum corrects that; keepdim leaves the sums
-- as a column, [6, 1], which is broadcast over the columns of the matrix.

print "\n-- cell 10"
local row_sums = masked_attn_wt:sum { dim = 2, keepdim = true }
masked_attn_wt = masked_attn_wt / row_sums
print(masked_attn_wt)

-- SECOND WAY: IN THE SCORES -----------------------------------------------------------------------
-- Scores of -infinity get the weight 0 in the softmax, and the rows sum to 1.

print "\n-- cell 11"
local mask = heed.triu(heed.ones(context_len, context_len), 1)
print(mask)

print "\n-- cell 13"
local masked_attn_scores = attn_scores:masked_fill(mask:bool(), -math.huge)
print(masked_attn_scores)

local masked_attn_wt_soft = heed.softmax(masked_attn_scores / key.shape[-1] ^ 0.5, -1)

print "\n-- cell 15"
print(masked_attn_wt)

print "\n-- cell 16"
print(masked_attn_wt_soft) -- the same, with less work

-- AS A MODULE (cells 17 to 19) --------------------------------------------------------------------

local CausalSelfAttention = nn.Module.class "CausalSelfAttention"

function CausalSelfAttention:init(d_in, d_out, dropout, qkv_bias)
  self.W_query = nn.Linear(d_in, d_out, qkv_bias or false)
  self.W_key = nn.Linear(d_in, d_out, qkv_bias or false)
  self.W_value = nn.Linear(d_in, d_out, qkv_bias or false)
  self.dropout = nn.Dropout(dropout)
end

function CausalSelfAttention:forward(x)
  local b, num_tokens = x.shape[1], x.shape[2]
  local queries, keys, value = self.W_query(x), self.W_key(x), self.W_value(x)
  local scores = queries:matmul(keys:transpose(2, 3))
  local hidden = heed.triu(heed.ones(num_tokens, num_tokens), 1)
  hidden = hidden:unsqueeze(1):expand(b, -1, -1) -- one mask for each batch item, without copying it
  local masked_scores = scores:masked_fill(hidden:bool(), -math.huge)
  local weights = heed.softmax(masked_scores / keys.shape[-1] ^ 0.5, -1)
  print("Attention Weight before dropout: " .. weights)
  weights = self.dropout(weights)
  print("Attention Weight after dropout: " .. weights)
  return weights:matmul(value), masked_scores, weights, keys
end

print "\n-- cell 18"
heed.manual_seed(789)
local batch = heed.stack { inputs, inputs }
print(batch.shape)
local cas_self_att = CausalSelfAttention(3, 3, 0.0)
local cas_context_vectors = cas_self_att(batch)

print "\n-- cell 19"
print(cas_context_vectors)

heed.manual_seed(789)
assert(heed.allclose(nn.CausalAttention(3, 3, 6, 0.0)(batch), cas_context_vectors))

-- TWO HEADS, WITH DROPOUT (cells 20 to 23) --------------------------------------------------------

local MultiHeadAttention = nn.Module.class "MultiHeadAttention"

function MultiHeadAttention:init(d_in, d_out, dropout, context, num_heads, qkv_bias)
  assert(d_out % num_heads == 0, "d_out must be divisible by num_heads")
  self.d_out = d_out
  self.num_heads = num_heads
  self.head_dim = math.floor(d_out / num_heads)
  self.W_query = nn.Linear(d_in, d_out, qkv_bias or false)
  self.W_key = nn.Linear(d_in, d_out, qkv_bias or false)
  self.W_value = nn.Linear(d_in, d_out, qkv_bias or false)
  self.dropout = nn.Dropout(dropout)
  self.op_proj = nn.Linear(d_out, d_out)
  self:register_buffer("mask", heed.triu(heed.ones(context, context), 1))
end

function MultiHeadAttention:forward(x)
  local b, num_tokens = x.shape[1], x.shape[2]
  local function split_heads(t) -- [b, tokens, d_out] -> [b, heads, tokens, head_dim]
    return t:view(b, num_tokens, self.num_heads, self.head_dim):transpose(2, 3)
  end
  local queries = split_heads(self.W_query(x))
  local keys = split_heads(self.W_key(x))
  local values = split_heads(self.W_value(x))

  local scores = queries:matmul(keys:transpose(-2, -1)) / self.head_dim ^ 0.5
  local hidden = self.mask[{ { 1, num_tokens }, { 1, num_tokens } }]:bool()
  scores = scores:masked_fill(hidden:unsqueeze(1):unsqueeze(1), -math.huge) -- [1, 1, tokens, tokens]
  local weights = self.dropout(heed.softmax(scores, -1))

  local context = weights:matmul(values):transpose(2, 3)
  return self.op_proj(context:reshape(b, num_tokens, self.d_out)) -- reshape copies if no view is possible
end

print "\n-- cell 21"
heed.manual_seed(789)
local input1 = heed.tensor {
  { 0.43, 0.15, 0.89, 0.12, 0.44, 0.65, 0.23, 0.90 },
  { 0.55, 0.87, 0.66, 0.31, 0.48, 0.92, 0.76, 0.11 },
  { 0.57, 0.85, 0.64, 0.29, 0.30, 0.73, 0.52, 0.19 },
  { 0.22, 0.58, 0.33, 0.66, 0.91, 0.08, 0.42, 0.77 },
  { 0.77, 0.25, 0.10, 0.95, 0.14, 0.38, 0.64, 0.33 },
  { 0.05, 0.80, 0.55, 0.26, 0.70, 0.39, 0.48, 0.85 },
  { 0.63, 0.12, 0.44, 0.18, 0.27, 0.50, 0.33, 0.71 },
  { 0.34, 0.48, 0.91, 0.07, 0.36, 0.60, 0.29, 0.88 },
  { 0.11, 0.90, 0.27, 0.59, 0.46, 0.41, 0.66, 0.22 },
  { 0.16, 0.73, 0.31, 0.80, 0.53, 0.69, 0.19, 0.37 },
  { 0.94, 0.20, 0.61, 0.17, 0.34, 0.78, 0.85, 0.04 },
}
local input2 = heed.tensor {
  { 0.12, 0.33, 0.71, 0.45, 0.62, 0.89, 0.24, 0.55 },
  { 0.67, 0.21, 0.44, 0.58, 0.19, 0.73, 0.90, 0.37 },
  { 0.81, 0.42, 0.60, 0.35, 0.88, 0.11, 0.76, 0.29 },
  { 0.93, 0.08, 0.23, 0.77, 0.49, 0.64, 0.18, 0.31 },
  { 0.39, 0.55, 0.17, 0.26, 0.91, 0.30, 0.63, 0.82 },
  { 0.24, 0.70, 0.35, 0.14, 0.75, 0.48, 0.59, 0.66 },
  { 0.53, 0.62, 0.19, 0.88, 0.27, 0.34, 0.41, 0.50 },
  { 0.77, 0.13, 0.94, 0.61, 0.46, 0.12, 0.69, 0.38 },
  { 0.30, 0.47, 0.79, 0.16, 0.22, 0.81, 0.33, 0.56 },
  { 0.45, 0.96, 0.20, 0.52, 0.10, 0.36, 0.67, 0.15 },
  { 0.84, 0.25, 0.50, 0.73, 0.04, 0.60, 0.92, 0.13 },
}
batch = heed.stack { input1, input2 }
print(batch.shape)
local head_self_att = MultiHeadAttention(8, 8, 0.3, 11, 2)
cas_context_vectors = head_self_att(batch)

print "\n-- cell 22"
print(cas_context_vectors.shape)

print "\n-- cell 23"
print(cas_context_vectors)

-- The built-in module, with the same seed, drops the same weights.
heed.manual_seed(789)
assert(heed.allclose(nn.MultiHeadAttention(8, 8, 11, 0.3, 2)(batch), cas_context_vectors))
