--- RoBERTa and XLM-RoBERTa: `require "heed.models.roberta".load "roberta-base"`. BERT with positions that begin behind
--- the number of the padding token, and with another head. Source: arXiv:1907.11692; arXiv:1911.02116.

local core = require "heed.core"
local encoder = require "heed.models.encoder"
local bert_names = require("heed.models.load_encoder").bert_names

--- The rows of the position embeddings: tokens count from pad_token_id + 1, each within its text; padding tokens have
--- the row pad_token_id and are not counted. In context_parallel only those before them on other ranks are.
local function positions_of(c, ids, positions, lengths)
  if core.modules.redirected() then return positions + (c.pad_token_id + 1) end
  local token = ids:ne(c.pad_token_id + 1):long()
  local count = token:cumsum(-1)
  if lengths then
    local before = core.cat({ core.zeros(1, { dtype = "int64" }), count }, 1)
    local ends = lengths:cumsum(1)
    count = count - before:index_select(1, ends - lengths + 1):repeat_interleave(lengths)
  end
  return count * token + (c.pad_token_id + 1)
end

return (encoder("Roberta", {
  types = { "roberta", "xlm-roberta" },
  architectures = { { "Roberta", "roberta" }, { "XLMRoberta", "xlm-roberta" } },
  settings = {
    type_vocab_size = { kind = "size", default = 2 },
    layer_norm_eps = { kind = "number", default = 1e-12 },
    position_embedding_type = { kind = { "absolute" }, default = "absolute" },
    pad_token_id = { kind = "index", default = 1 },
  },

  adjust = function(c, aliases, further)
    further.max_tokens = c.max_position_embeddings - c.pad_token_id - 1
    if further.max_tokens < 1 then
      return ("%s is %d; it must be above pad_token_id + 1 (%d), since positions begin there")
        :format(aliases.max_position_embeddings, c.max_position_embeddings, c.pad_token_id + 1)
    end
  end,

  positions = positions_of,
  pooler = true,
  drops_first = true,
  between = 2,
  files = {
    prefix = "roberta.",
    embedding = "embeddings.word_embeddings.weight",
    layers = "^encoder%.layer%.(%d+)%.",
    renames = bert_names,
    head = { { "^pooler", "classifier.dense" }, { "^classifier%.(%l+)$", "classifier.out_proj.%1" } },
  },
}))
