-- Shared by the specs of context_parallel.
local heed = require "heed"
local ranks = require "tests.ranks"
local assert = require "luassert"
local tensors = require "tests.tensors"
local dist = ranks.dist

local context = { mesh = dist.init_device_mesh({ ranks.size }, { "cp" }), D = 16 }

function context.mha(options)
  local config = { d_in = context.D, d_out = context.D, context_length = 600, dropout = 0, num_heads = 4 }
  return heed.nn.MultiHeadAttention(tensors.merged(config, options)):eval()
end

-- Checks the message of an error in context_parallel.
function context.fails(wanted, f, options)
  assert.are.equal(wanted, ranks.message_of(dist.context_parallel, context.mesh, f, options))
end

return context
