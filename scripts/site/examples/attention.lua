-- Attention functions, masks, attention modules and caches. See ../examples.lua.

--## x:scaled_dot_product_attention
local q, k, v = heed.randn(2, 3, 4), heed.randn(2, 3, 4), heed.randn(2, 3, 4) -- [heads, tokens, size]
print(F.scaled_dot_product_attention(q, k, v, { is_causal = true }).shape)
local _, taps = q:scaled_dot_product_attention(k, v, { is_causal = true, need_weights = true })
print(taps.weights[1])

--## x:attention_partial, heed.attention_merge
local q, k, v = heed.randn(1, 2, 4), heed.randn(1, 6, 4), heed.randn(1, 6, 4)
local out1, stats1 = q:attention_partial(k:narrow(2, 1, 4), v:narrow(2, 1, 4)) -- keys 1 to 4
local out2, stats2 = q:attention_partial(k:narrow(2, 5, 2), v:narrow(2, 5, 2)) -- keys 5 and 6
local out = heed.attention_merge({ out1, out2 }, { stats1, stats2 })
print(out:allclose(q:scaled_dot_product_attention(k, v), { atol = 1e-6 }))

--## x:varlen_attention
local q, k, v = heed.randn(5, 2, 4), heed.randn(5, 2, 4), heed.randn(5, 2, 4) -- [tokens, heads, size]
local out, taps = q:varlen_attention(k, v, { lengths = { 2, 3 }, is_causal = true, need_weights = true })
print(out.shape)
print(taps.weights[1]) -- keys count within their sequence

--## heed.alibi_slopes
print(heed.alibi_slopes(8))

--## x:linear_attention
local q, k, v = heed.randn(1, 2, 5, 4), heed.randn(1, 2, 5, 4), heed.randn(1, 2, 5, 4)
local out, state = q:linear_attention(k, v, { decay = heed.full({ 1, 2, 5 }, -0.1) })
print(out.shape, state.shape)

--## x:causal_conv
local x = heed.tensor { { { 1, 2, 3, 4 } } } -- [batch, channels, tokens]
local out, state = x:causal_conv(heed.tensor { { 10, 1 } })
print(out, state)

--## heed.mask.causal
print(heed.mask.causal():dense(4):long())

--## heed.mask.window
print(heed.mask.window(1, 0):dense(4):long()) -- itself and one key to the left

--## heed.mask.documents
print(heed.mask.documents { 2, 3 })
print(heed.mask.documents({ 2, 3 }):dense():long())

--## heed.mask.prefix
print(heed.mask.prefix(2):dense(4):long())

--## heed.mask.tree
print(heed.mask.tree({ 0, 1, 1, 2 }):dense():long()) -- nodes 2 and 3 follow node 1, node 4 follows node 2

--## heed.mask.intervals
local keys = heed.tensor({ { { 1, 1 } }, { { 1, 2 } }, { { 3, 3 } } }, "int64") -- one range for each query
print(heed.mask.intervals(keys):dense(3, 3):long())

--## Mask:both
local mask = heed.mask.causal():both(heed.mask.documents { 2, 2 }) -- or: a & b
print(mask:dense():long())

--## Mask:dense
local mask = heed.mask.causal()
print(mask:dense(2, 4, 2)) -- queries at positions 3 and 4

--## Mask:blocks
print(heed.mask.causal():blocks(256, 256)) -- visible pairs in each block of 128

--## nn.SelfAttention
local attention = nn.SelfAttention(3, 2)
print(attention)
print(attention(heed.rand(4, 3)))

--## nn.CausalAttention
local attention = nn.CausalAttention(3, 2, 6, 0.0) -- d_in, d_out, context_length, dropout
local _, info = attention(heed.rand(4, 3), { need_weights = true })
print(info.weights)

--## nn.MultiHeadAttentionWrapper
local m = nn.MultiHeadAttentionWrapper(3, 2, 6, 0.0, 2) -- two heads of size 2
print(m(heed.rand(1, 4, 3)).shape, #m.heads)

--## nn.MultiHeadAttention
local mha = nn.MultiHeadAttention(4, 4, 8, 0.0, 2) -- d_in, d_out, context_length, dropout, num_heads
local x = heed.rand(1, 3, 4)
local y, info = mha(x, { need_weights = true })
print(y.shape, info.weights.shape)
print(nn.MultiHeadAttention { d_in = 4, d_out = 4, context_length = 8, dropout = 0, num_heads = 2,
  window = { left = 4 } })

--## MultiHeadAttention:head
local head = nn.MultiHeadAttention(4, 4, 8, 0.0, 2):head(2)
print(head.W_query.shape)

--## MultiHeadAttention:split
local mha = nn.MultiHeadAttention(4, 4, 8, 0.0, 2)
print(mha:split().heads[1])

--## MultiHeadAttention:steps
local mha, x = nn.MultiHeadAttention(4, 4, 64, 0.0, 2), heed.rand(64, 4)
local steps = mha:steps(x, { ms = 2 })
for _ in steps do end -- a frame of a game between two slices
print(steps.result:equal(mha(x)))

--## MultiHeadAttention:new_cache
local mha, x = nn.MultiHeadAttention(4, 4, 8, 0.0, 2), heed.rand(1, 3, 4)
local cache = mha:new_cache()
for i = 1, 3 do print(mha(x:narrow(2, i, 1), { cache = cache }):squeeze()) end
print(mha(x)) -- the same, all at once

--## Cache:save, MultiHeadAttention:load_cache
local mha, x = nn.MultiHeadAttention(4, 4, 8, 0.0, 2), heed.rand(1, 3, 4)
local cache = mha:new_cache()
mha(x, { cache = cache })
assert(cache:save "cache.safetensors")
print(assert(mha:load_cache "cache.safetensors").length)

--## nn.MultiheadAttention
local m = nn.MultiheadAttention(4, 2, { batch_first = true }) -- PyTorch's module; its masks hide
local x = heed.rand(1, 3, 4)
local y, weights = m(x, x, x)
print(y.shape, weights:sum(-1))

--## nn.GatedDeltaNet
local m = nn.GatedDeltaNet(8, 2) -- hidden_size, num_value_heads
print(m(heed.rand(1, 5, 8)).shape)

--## GatedDeltaNet:new_cache
local m, x = nn.GatedDeltaNet(8, 2), heed.rand(1, 3, 8)
local cache = m:new_cache()
for i = 1, 3 do m(x:narrow(2, i, 1), { cache = cache }) end
print(cache.length, cache.state.shape)

--## Steps:advance
local mha = nn.MultiHeadAttention(4, 4, 64, 0.0, 2)
local steps = mha:steps(heed.rand(64, 4))
repeat local done, total = steps:advance(5) until done == total -- at most 5 ms each
print(steps.result.shape)

--## Steps:release
local steps = nn.Linear(64, 64):steps(heed.rand(64, 64))
steps:advance(0)
steps:release() -- gives up; the memory is free
print(pcall(steps.advance, steps))

--## Cache:truncate
local mha = nn.MultiHeadAttention(4, 4, 8, 0.0, 2)
local cache = mha:new_cache()
mha(heed.rand(1, 5, 4), { cache = cache })
print(cache.length, cache:truncate(2).length)

--## Cache:reorder
local mha = nn.MultiHeadAttention(4, 4, 8, 0.0, 2)
local cache = mha:new_cache { batch = 2 }
mha(heed.rand(2, 3, 4), { cache = cache })
cache:reorder { 2, 2 } -- both beams go on from the second
print(cache.lengths[1], cache.lengths[2])

--## Cache:clone
local mha = nn.MultiHeadAttention(4, 4, 8, 0.0, 2)
local cache = mha:new_cache()
mha(heed.rand(1, 3, 4), { cache = cache })
local copy = cache:clone()
mha(heed.rand(1, 1, 4), { cache = copy })
print(cache.length, copy.length)

--## Cache:release
local cache = nn.MultiHeadAttention(4, 4, 8, 0.0, 2):new_cache { dtype = "int8", capacity = 4 }
print(cache.dtype, cache.capacity)
cache:release()

--## StateCache:clone, StateCache:reset
local m = nn.GatedDeltaNet(8, 2)
local cache = m:new_cache()
m(heed.rand(1, 3, 8), { cache = cache })
local copy = cache:clone()
print(cache:reset().length, copy.length)

--## StateCache:reorder
local m = nn.GatedDeltaNet(8, 2)
local cache = m:new_cache(2)
m(heed.rand(2, 3, 8), { cache = cache })
print(cache:reorder({ 2, 2 }).state[1]:equal(cache.state[2]))

--## MultiHeadAttention:explain
local mha = nn.MultiHeadAttention(4, 4, 8, 0.0, 2)
print(mha:explain(heed.randn(1, 3, 4), { head = 2, query = 3, key = 1 }))

--## MultiHeadAttention:check
local mha = nn.MultiHeadAttention(4, 4, 8, 0.5, 2)
local warnings = mha:check(heed.randn(1, 3, 4) * 1000)
print(#warnings, warnings[1]:match "^[^;]*")

--## MultiHeadAttention:verify
local mha = nn.MultiHeadAttention(4, 4, 8, 0.0, 2):eval()
print(mha:verify(heed.randn(1, 3, 4)).ok) -- all results against double precision

--## MultiHeadAttention:ablate
local mha, x = nn.MultiHeadAttention(4, 4, 8, 0.0, 2), heed.randn(1, 3, 4)
local whole = mha(x)
local handle = mha:ablate(2)
print((whole - mha(x)):abs():amax { dim = { 1, 2 } }) -- what head 2 added
handle:remove()
print(mha(x):equal(whole))

--## MultiHeadAttention:patch
local mha, x = nn.MultiHeadAttention(4, 4, 8, 0.0, 2), heed.randn(1, 3, 4)
mha:patch(1, heed.eye(3)) -- head 1 now sees the token itself alone
local _, info = mha(x, { need_weights = true })
print(info.weights[{ 1, 1 }])

--## MultiHeadAttention:on_weights
local mha, x = nn.MultiHeadAttention(4, 4, 8, 0.0, 2), heed.randn(1, 3, 4)
local handle = mha:on_weights(function(weights, context)
  print(weights.shape, context.name)
  return (weights * weights) / (weights * weights):sum { dim = -1, keepdim = true } -- sharper
end)
mha(x)
handle:remove()

--## Handle:remove
local m = nn.Linear(2, 2)
local handle = m:register_forward_hook(function() print "called" end)
m(heed.ones(2))
handle:remove()
m(heed.ones(2))
