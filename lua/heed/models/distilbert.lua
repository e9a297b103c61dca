--- DistilBERT: `require "heed.models.distilbert".load "distilbert-base-uncased"`. BERT without token types and pooler,
--- with its own names. Source: arXiv:1910.01108.

local encoder = require "heed.models.encoder"

return (encoder("DistilBert", {
  types = { "distilbert" },
  architectures = { { "DistilBert", "distilbert" } },
  settings = {
    hidden_size = { kind = "size", also = { "dim" } },
    num_hidden_layers = { kind = "size", also = { "n_layers" } },
    num_attention_heads = { kind = "size", also = { "n_heads" } },
    intermediate_size = { kind = "size", also = { "hidden_dim" } },
    hidden_act = { kind = { "gelu", "relu" }, also = { "activation" }, default = "gelu" },
    hidden_dropout_prob = { kind = "number", also = { "dropout" }, default = 0.1 },
    attention_probs_dropout_prob = { kind = "number", also = { "attention_dropout" }, default = 0.1 },
    classifier_dropout = { kind = "number", also = { "seq_classif_dropout" }, default = 0.2 },
    qa_dropout = { kind = "number", optional = true },
    sinusoidal_pos_embds = { kind = "boolean", optional = true }, -- of fresh weights; files have the table
  },

  adjust = function(_, _, further) further.layer_norm_eps = 1e-12 end,
  pooled = "relu",
  files = {
    prefix = "distilbert.",
    embedding = "embeddings.word_embeddings.weight",
    layers = "^transformer%.layer%.(%d+)%.",
    renames = {
      { "^word_embeddings", "embeddings.word_embeddings" },
      { "^position_embeddings", "embeddings.position_embeddings" },
      { "^embedding_norm", "embeddings.LayerNorm" },
      { "^layers", "transformer.layer" },
      { "attention%.W_query", "attention.q_lin" },
      { "attention%.W_key", "attention.k_lin" },
      { "attention%.W_value", "attention.v_lin" },
      { "attention%.out_proj", "attention.out_lin" },
      { "attention_norm", "sa_layer_norm" },
      { "(%.%d+)%.up", "%1.ffn.lin1" },
      { "(%.%d+)%.down", "%1.ffn.lin2" },
      { "(%.%d+)%.norm", "%1.output_layer_norm" },
    },
    head = { { "^pooler", "pre_classifier" } },
  },
}))
