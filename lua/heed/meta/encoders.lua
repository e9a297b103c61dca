---@meta _
-- The encoders that heed.models.bert, roberta and distilbert make. Token ids count from 1: they are those of Hugging Face
-- plus 1. Shape legend: b batch, n tokens, d hidden_size.

-- ---- Settings ----

---The fields of a config.json that all encoders have, with Hugging Face's names and defaults. Keys that change no result
---are ignored; other unknown keys are an error.
---@class heed.EncoderConfig
---@field vocab_size integer the number of tokens
---@field max_position_embeddings? integer 512 by default; RoBERTa's first tokens are at pad_token_id + 1
---@field initializer_range? number the standard deviation of fresh weights; 0.02 by default
---@field architectures? string[] a class "…ForSequenceClassification" has a head
---@field id2label? table<string, string> the label of each number, from "0"
---@field num_labels? integer as many as id2label has by default, otherwise 2
---@field problem_type? "regression"|"single_label_classification"|"multi_label_classification" what `classify` computes
---@field classifier_dropout? number hidden_dropout_prob by default
---@field sbert_ce_default_activation_function? string PyTorch's name of what `score` applies
---@field sentence_transformers? { activation_fn: string? } the same in newer files

---@class heed.BertConfig: heed.EncoderConfig
---@field model_type? "bert" as in the file
---@field hidden_size integer the size of a hidden state
---@field num_hidden_layers integer the number of layers
---@field num_attention_heads integer heads of attention
---@field intermediate_size integer the size inside of the feed-forward part
---@field type_vocab_size? integer 2 by default
---@field layer_norm_eps? number 1e-12 by default
---@field hidden_act? "gelu"|"gelu_fast"|"gelu_new"|"gelu_pytorch_tanh"|"relu"|"silu"|"swish" "gelu" by default
---@field hidden_dropout_prob? number 0.1 by default
---@field attention_probs_dropout_prob? number 0.1 by default

---@class heed.RobertaConfig: heed.BertConfig
---@field model_type? "roberta"|"xlm-roberta" as in the file
---@field pad_token_id? integer counted from 0; 1 by default

---@class heed.DistilBertConfig: heed.EncoderConfig
---@field model_type? "distilbert" as in the file
---@field dim integer the size of a hidden state
---@field n_layers integer the number of layers
---@field n_heads integer heads of attention
---@field hidden_dim integer the size inside of the feed-forward part
---@field activation? "gelu"|"relu" "gelu" by default
---@field dropout? number 0.1 by default
---@field attention_dropout? number 0.1 by default
---@field seq_classif_dropout? number 0.2 by default

-- ---- Models ----

---What all encoders have.
---@class heed.Encoder: heed.Module
---@overload fun(ids: heed.Indices, options?: heed.EncoderOptions): heed.Tensor, { layers: heed.Taps[] }?
---@field tokenizer? heed.WordPiece|heed.Tokenizer made from the files beside the weights
---@field max_seq_length? integer the number of tokens to which texts are truncated
---@field pooling? string how `encode` combines the hidden states into one vector: "cls", "max", "mean", "mean_sqrt_len",
---"weightedmean", "lasttoken", or several of them joined by +
---@field normalize? boolean whether `encode` gives vectors of length 1
---@field vector_size? integer the size of the vectors that `encode` gives
---@field sentence_layers? heed.Module applied to the pooled vectors
---@field prompts? table<string, string> by name, from config_sentence_transformers.json
---@field default_prompt? string the name of the prompt that `encode` uses
local Encoder = {}

---@class heed.EncoderOptions
---@field attention_mask? heed.Tensor [b, n], 0 or false for padding
---@field kv_lengths? heed.Indices [b]: tokens beyond these lengths are padding, which costs nothing and has hidden states of 0
---@field lengths? heed.Indices [b]: ids [total] are those of b texts, one after another; not together with padding
---@field token_type_ids? heed.Indices [b, n] or [n]; 1 by default; DistilBERT has none
---@field need_weights? boolean|heed.WantedTaps return the intermediate results of attention; false by default

---The hidden states of the tokens. With need_weights, info.layers[i] holds the intermediate results of attention in layer i.
---@param ids heed.Indices [n], [b, n], or [total] with lengths
---@param options? heed.EncoderOptions
---@return heed.Tensor hidden [n, d], [b, n, d] or [total, d]
---@return { layers: heed.Taps[] }? info
function Encoder:forward(ids, options) end

---The pooled output: the pooler's activation (tanh; relu of DistilBERT's head) on the first token. Raises an error if the
---model has no pooler.
---@param hidden heed.Tensor [b, n, d] or [n, d]
---@return heed.Tensor [b, d] or [d]
---@nodiscard
function Encoder:pooled(hidden) end

---The logits of a model for sequence classification. Raises an error if the model is another one.
---@param hidden heed.Tensor [b, n, d] or [n, d]
---@return heed.Tensor [b, labels] or [labels]
---@nodiscard
function Encoder:logits(hidden) end

---@class heed.SentenceOptions
---@field prompt? string the name of one of the model's prompts, which is put before each text
---@field normalize? boolean vectors of length 1; by default as modules.json says, true without one

---Sentence embeddings. Vectors of length 1 have their cosine similarity as dot product. Texts are truncated to
---max_seq_length tokens. Not recorded; for gradients call the model itself. Raises an error if the model has no
---tokenizer.
---@param texts string[] valid UTF-8
---@param options? heed.SentenceOptions
---@return heed.Tensor [n, vector_size]
---@nodiscard
function Encoder:encode(texts, options) end

---@class heed.SentenceStepsOptions: heed.SentenceOptions
---@field ms? number milliseconds of a slice; 2 by default

---The same in slices of time, one text at a time: steps:advance(ms) in each frame, then steps.result.
---@param texts string[] valid UTF-8
---@param options? heed.SentenceStepsOptions
---@return heed.ModelSteps steps
---@nodiscard
function Encoder:encode_steps(texts, options) end

---A text, or a pair of texts.
---@alias heed.TextOrPair string|string[]

---The scores of pairs of texts by a cross-encoder, or of texts. The longer text of a pair is truncated first. By default
---the activation is that of config.json; without one it is sigmoid for one label and none for several. Not recorded.
---@param pairs heed.TextOrPair[] pairs or texts
---@param options? { activation: ("none"|"sigmoid"|"softmax"|"tanh")? } that of the model by default
---@return heed.Tensor [n], or [n, labels] for several labels
---@nodiscard
function Encoder:score(pairs, options) end

---@class heed.Label
---@field label string its text
---@field score number after the function that is applied

---@class heed.ClassifyOptions
---@field top_k? integer give the list of the top_k best labels for each text
---@field function_to_apply? "none"|"sigmoid"|"softmax"|"tanh" by default sigmoid for one label or if problem_type is
---"multi_label_classification", none if it is "regression", otherwise softmax

---The best label of each text or pair of texts; with top_k, a list of the best. Not recorded.
---@param texts heed.TextOrPair[] texts or pairs
---@param options? heed.ClassifyOptions
---@return heed.Label[]|heed.Label[][]
---@nodiscard
function Encoder:classify(texts, options) end

---A BERT with fresh weights, in training mode and with a pooler; biases are 0, matrices drawn from a normal distribution
---with the standard deviation initializer_range.
---@class heed.Bert: heed.Encoder
---@field config heed.BertConfig its settings, with the defaults
---@overload fun(ids: heed.Indices, options?: heed.EncoderOptions): heed.Tensor, { layers: heed.Taps[] }?
local Bert = {}

---@class heed.Roberta: heed.Encoder
---@field config heed.RobertaConfig its settings, with the defaults
---@overload fun(ids: heed.Indices, options?: heed.EncoderOptions): heed.Tensor, { layers: heed.Taps[] }?
local Roberta = {}

---@class heed.DistilBert: heed.Encoder
---@field config heed.DistilBertConfig its settings, with the defaults
---@overload fun(ids: heed.Indices, options?: heed.EncoderOptions): heed.Tensor, { layers: heed.Taps[] }?
local DistilBert = {}
