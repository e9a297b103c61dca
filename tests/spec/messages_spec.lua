-- What all messages have in common: singular and plural agree, and they begin with the name of the function that was
-- called, whatever it calls itself.
local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"

describe("a message about one of a thing is in the singular", function()
  local one = heed.ones(1)

  it("for arguments and indices", function()
    raises("info: 1 argument was given and it takes at most 0", function() heed.info(1) end)
    raises("clock: 2 arguments were given and it takes at most 0", function() heed.clock(1, 2) end)
    raises("SiLU: 1 argument was given and it takes at most 0", function() nn.SiLU(true) end)
    raises("randint_like: 4 arguments were given and it takes at most 3",
      function() heed.randint_like(one, 1, 2, 3) end)
    raises("index: 1 index is given and x has 0 dimensions", function() return heed.tensor(1)[{ 1 }] end)
    raises("index: 2 indices are given and x has 1 dimension", function() return one[{ 1, 1 }] end)
  end)

  it("for elements and dimensions", function()
    raises("view: x is [1] with 1 element and the shape [2] has 2; they must have as many",
      function() one:view(2) end)
    raises("view: x is [1] with 1 element; for the shape [-1, 2] their number must be a multiple of 2",
      function() one:view(-1, 2) end)
    raises("permute: 1 dim is given and x has 2 dimensions; each must be named once",
      function() heed.ones(1, 1):permute(1) end)
    raises("permute: 2 dims are given and x has 1 dimension; each must be named once",
      function() one:permute(1, 2) end)
    raises("split: the sizes add up to 0 and dimension 1 has 1 element", function() one:split { 0 } end)
    raises("from_string: bytes has 1 byte; shape [1] of float32 needs 4",
      function() heed.from_string("a", "float32", { 1 }) end)
  end)

  it("for modules, heads and tokens", function()
    local list = nn.ModuleList { nn.SiLU() }
    raises("ModuleList: index 3 is out of range; there is 1 module, counted from 1", function() return list[3] end)
    local config = { d_in = 4, d_out = 4, context_length = 4, dropout = 0, num_heads = 1 }
    local mha = nn.MultiHeadAttention(config)
    raises("head: i is 2 and there is 1 head, counted from 1", function() mha:head(2) end)
    config.num_heads = 2
    raises("head: i is 3 and there are 2 heads, counted from 1", function() nn.MultiHeadAttention(config):head(3) end)
    local cache = mha:new_cache { batch = 1, capacity = 2 }
    mha(heed.ones(1, 1, 4), { cache = cache })
    raises("MultiHeadAttention: the cache has 1 token, x has 2 more and its capacity is 2",
      function() mha(heed.ones(1, 2, 4), { cache = cache }) end)
    raises("reorder: index 1 of indices is 2 and the batch has 1 item, counted from 1",
      function() cache:reorder { 2 } end)
  end)

  it("for bytes", function()
    local generator = heed.Generator(1)
    raises("set_state: the state has 1 byte; it must have 2528, as get_state gives it",
      function() generator:set_state "a" end)
  end)

  it("for what alone will do", function()
    raises("copy_: the source is [3] and must broadcast to [1]; its size 3 of dimension 1 must be 1",
      function() one:copy_(heed.ones(3)) end)
    raises("select: index 2 is out of range for dimension 1 of size 1; it must be 1 or -1",
      function() one:select(1, 2) end)
    local one_head = nn.MultiHeadAttentionWrapper(4, 4, 4, 0, 1)
    raises("MultiHeadAttentionWrapper: attn_mask is [3, 2, 2] and there is 1 head; its third to last size must be 1",
      function() one_head(heed.ones(1, 2, 4), { attn_mask = heed.ones(3, 2, 2) }) end)
  end)
end)
