-- Shared by the specs of divided models: small models with fresh weights and without dropout, and inputs for them. All
-- ranks get the same.
local heed = require "heed"
local tensors = require "tests.tensors"

local small = {}

local SETTINGS = {
  gpt2 = { n_positions = 64, resid_pdrop = 0, embd_pdrop = 0, attn_pdrop = 0 },
  llama = { intermediate_size = 50, max_position_embeddings = 64 },
  bert = { intermediate_size = 50, max_position_embeddings = 64, hidden_dropout_prob = 0,
    attention_probs_dropout_prob = 0 },
}

-- name: "gpt2", "llama" or "bert". config: further settings. key_heads: those of a llama.
function small.model(name, config, key_heads)
  local settings = tensors.merged({ vocab_size = 50, hidden_size = 24 }, SETTINGS[name])
  if name == "llama" then settings.num_key_value_heads = key_heads end
  heed.manual_seed(4)
  return require("heed.models." .. name)(tensors.merged(settings, config))
end

-- [batch, 10]
function small.ids(batch)
  heed.manual_seed(5)
  return heed.randint(1, 50, { batch, 10 })
end

function small.loss_of(y, targets) return heed.nn.functional.cross_entropy(y:flatten(1, 2), targets:flatten()) end

return small
