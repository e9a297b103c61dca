-- Attention without weights.
--
-- A sentence of six words is given as six vectors. Attention answers, for each word: which words
-- matter to it, and how much? Here the answer needs no training: two words matter to each other if
-- their vectors point the same way. Everything is done twice, first by hand in loops, then in one
-- operation, as in practice.
--
-- (Counting starts at 1, as everywhere in Lua: dimension 1 of a matrix is its rows, inputs[2] is
-- the second word.)

local heed = require "heed"

local inputs = heed.tensor {
  { 0.43, 0.15, 0.89 }, -- Your
  { 0.55, 0.87, 0.66 }, -- journey
  { 0.57, 0.85, 0.64 }, -- starts
  { 0.22, 0.58, 0.33 }, -- with
  { 0.77, 0.25, 0.10 }, -- one
  { 0.05, 0.80, 0.55 }, -- step
}

-- ONE WORD ----------------------------------------------------------------------------------------
-- The word that asks is called the query. We ask for the second one.

print "-- cell 3"
local query = inputs[2] -- a view of the second row; nothing is copied
local attn_scores_2 = heed.empty(inputs.shape[1])
print("Shape of attn_scores_2: " .. attn_scores_2.shape)

-- Step 1: scores. The dot product of two vectors is large where they point the same way.

print "\n-- cell 4"
for i, x_i in inputs:iter() do
  attn_scores_2[i] = heed.dot(x_i, query):item()
end
print "Attention scores for the 2nd input token 'journey':"
print(attn_scores_2)

-- A dot product is no more than this. (`select` gives an element as a tensor; inputs[1][i] would
-- give a Lua number.)

print "\n-- cell 5"
local result = heed.tensor(0)
for i = 1, #query do
  result = result + inputs[1]:select(1, i) * query:select(1, i)
end
print("Dot product computed manually: " .. result)
print("Dot product computed with heed.dot: " .. heed.dot(inputs[1], query))

-- Step 2: weights. Scores become shares that sum to 1. The simplest way is to divide by the sum.

print "\n-- cell 6"
local attn_weights_2_tmp = attn_scores_2 / attn_scores_2:sum()
print "Attention weights for the 2nd input token 'journey':"
print(attn_weights_2_tmp)
print("Sum: " .. attn_weights_2_tmp:sum())

-- In practice it is the softmax: e to the power of each score, divided by the sum of all of these.
-- It works for negative scores too, and emphasizes the differences.

print "\n-- cell 7"
local function softmax_naive(x)
  return heed.exp(x) / heed.exp(x):sum(1)
end
local attn_weights_2_naive = softmax_naive(attn_scores_2)
print "Attention weights for the 2nd input token 'journey' using naive softmax:"
print(attn_weights_2_naive)
print("Sum: " .. attn_weights_2_naive:sum())

-- The naive form overflows for scores of 100; the library subtracts the largest score first, which
-- does not change the result.

print "\n-- cell 8"
local attn_weights_2 = heed.softmax(attn_scores_2, 1)
print "Attention weights for the 2nd input token 'journey' using heed softmax:"
print(attn_weights_2)
print("Sum: " .. attn_weights_2:sum())

-- Step 3: the context vector, the sum of all words' vectors, each times its weight. It says what
-- "journey" means in this sentence.

print "\n-- cell 9"
local context_vector_2 = heed.zeros(query.shape)
for i, x_i in inputs:iter() do
  context_vector_2 = context_vector_2 + attn_weights_2[i] * x_i
end
print "Context vector for the 2nd input token 'journey':"
print(context_vector_2)

-- ALL WORDS ---------------------------------------------------------------------------------------
-- What we have for the second word:

print "\n-- cell 10"
print "Attention weights for the 2nd input token 'journey':"
print(attn_weights_2)

print "\n-- cell 11"
print "Context vector for the 2nd input token 'journey':"
print(context_vector_2)

-- Step 1 for every pair of words: row i holds the scores that word i gives to the others.

print "\n-- cell 13"
local attn_scores = heed.empty(#inputs, #inputs)
for i, x_i in inputs:iter() do
  for j, x_j in inputs:iter() do
    attn_scores[{ i, j }] = heed.dot(x_i, x_j)
  end
end
print "Attention scores matrix:"
print(attn_scores)

-- A matrix product does all of these dot products at once: rows of the first with columns of the
-- second, and the columns of inputs.T are the rows of inputs.

print "\n-- cell 14"
attn_scores = inputs:matmul(inputs.T)
print "Attention scores matrix using matrix multiplication:"
print(attn_scores)

-- Step 2 for every row: along the last dimension, -1.

print "\n-- cell 15"
local attn_weights = heed.softmax(attn_scores, -1)
print "Attention weights matrix:"
print(attn_weights)

print "\n-- cell 16"
local row_2_sum = heed.tensor(0)
for i = 1, #attn_weights[2] do
  row_2_sum = row_2_sum + attn_weights[2]:select(1, i)
end
print("Sum of attention weights for the 2nd input token 'journey': " .. row_2_sum)
print("Sum of attention weights for all input tokens: " .. attn_weights:sum(-1))

-- Step 3 for every row is a matrix product, too.

print "\n-- cell 17"
local all_context_vecs = attn_weights:matmul(inputs)
print "All context vectors:"
print(all_context_vecs)

print "\n-- cell 18"
print "Previous context vector for the 2nd input token 'journey':"
print(context_vector_2)
print "Context vector from all_context_vecs for the 2nd input token 'journey':"
print(all_context_vecs[2])
