--- BERT, and sentence encoders made from it: `require "heed.models.bert".load "all-MiniLM-L6-v2"`.
--- Source: arXiv:1810.04805.

local encoder = require "heed.models.encoder"
local bert_names = require("heed.models.load_encoder").bert_names

local ROBERTA = "%s: the model is a RoBERTa, which counts positions in another way than BERT; it must be a BERT"

return (encoder("Bert", {
  types = { "bert" },
  architectures = { { "Bert", "bert" } },
  settings = {
    type_vocab_size = { kind = "size", default = 2 },
    layer_norm_eps = { kind = "number", default = 1e-12 },
    position_embedding_type = { kind = { "absolute" }, default = "absolute" },
  },

  --- RoBERTa's positions begin after that of the padding, 1: they are two more than a power of two, as in no BERT.
  adjust = function(c, _, _, kind)
    if not kind and c.pad_token_id == 1 and c.max_position_embeddings % 64 == 2 then
      return ROBERTA:format(("model_type is missing, pad_token_id is 1 and max_position_embeddings is %d")
        :format(c.max_position_embeddings))
    end
  end,

  pooler = true,
  files = {
    prefix = "bert.",
    embedding = "embeddings.word_embeddings.weight",
    layers = "^encoder%.layer%.(%d+)%.",
    renames = bert_names,
    gguf = true,
    --- Weights with the names of a RoBERTa.
    foreign = function(name)
      if name:find "^roberta%." then return ROBERTA:format(("the weights are named %s"):format(name)) end
    end,
  },
}))
