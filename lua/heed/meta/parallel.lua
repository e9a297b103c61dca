---@meta _
-- heed.distributed: models that are divided among ranks, or trained on all of them.

---@class heed.distributed
local distributed = {}

-- ---- Tensor parallel ----

---How a module is divided: what Heads, ColwiseParallel and RowwiseParallel return.
---@class heed.ParallelStyle

---Each rank has some heads of a MultiHeadAttention: rows of W_query, W_key and W_value, and the columns of out_proj's
---weight that belong to them; rank 1 has out_proj's bias. The results are added by one all_reduce. num_heads and
---num_kv_heads must be multiples of the number of ranks; need_weights gives the heads of the rank, new_cache a cache
---for them. An attn_mask with all heads is cut. Dropout drops what one process would drop, if its generator is of the
---kind "philox"; another kind is an error in training mode.
---@return heed.ParallelStyle
---@nodiscard
function distributed.Heads() end

---Each rank has some outputs of a Linear (rows of the weight), and keeps the columns of the result that it computes, as
---the input of a RowwiseParallel. Sizes need not divide evenly.
---@param options? { gather: boolean? } gather: all ranks get all columns, by one all_gather; false by default
---@return heed.ParallelStyle
---@nodiscard
function distributed.ColwiseParallel(options) end

---Each rank has the weights for some inputs of a Linear (columns of the weight), those that it has from a
---ColwiseParallel. The results are added by one all_reduce; rank 1 has the bias.
---@return heed.ParallelStyle
---@nodiscard
function distributed.RowwiseParallel() end

---Divides parts of a module among ranks, all of which call it with the same module: it works as before, on inputs and
---with results that all ranks have, and each rank computes and stores its share. Without a plan attention is divided by
---heads, and the layers of models (GPT2, Llama, Bert, nn.SwiGLU) by columns and rows, an lm_head by columns unless it is
---tied; classes of one's own can have a field `tp_plan`, such as { up = "colwise", down = "rowwise" }. Other parts stay
---whole. Weights are copied, so that the memory of the whole ones can be freed; heed.distributed.load reads only the
---share of a rank in the first place. With gradients, each rank steps its own optimiser; parameters that all ranks have
---stay the same on all of them.
---@generic T: heed.Module
---@param module T a model or a part of one
---@param mesh? heed.AnyGroup a mesh of one dimension, such as mesh.tp; all ranks by default
---@param plan? table<string, heed.ParallelStyle>|heed.ParallelStyle styles by the names of parts, where * stands for any characters: { ["layers.*.attention"] = Heads(), ["*.up"] = ColwiseParallel() }; or the style of the module itself
---@return T module the same, changed; a new module if it is divided itself, by a style or as an attention module
function distributed.tensor_parallel(module, mesh, plan) end

---Scales the gradients of a model that is divided by tensor_parallel, pipeline or both, so that the norm of those of all
---ranks together is at most max_norm. All ranks call it.
---@param model heed.Module a divided model
---@param max_norm number the largest norm that is left
---@return number norm before, the same on all ranks
function distributed.clip_grad_norm_(model, max_norm) end

-- ---- Data parallel ----

---@class heed.DataParallelOptions
---@field broadcast? boolean give all ranks the parameters and buffers of rank 1; false by default: parameters that differ are an error
---@field bucket_mb? number MiB of small gradients (below 256 KiB) that are sent together; 25 by default

---Averages the gradients of a model over the ranks after each backward pass that reaches it, so that optimisers on all
---ranks do the same steps. Each rank computes with its own part of a batch; the average is that of the whole batch if
---the parts are of one size and the loss is a mean. All ranks build the same model, with the same seed; give them
---different seeds afterwards if the model has dropout. Buffers, such as the statistics of a BatchNorm, stay those of
---each rank.
---@generic T: heed.Module
---@param model T is changed
---@param mesh? heed.AnyGroup all ranks by default
---@param options? heed.DataParallelOptions
---@return T model the same
function distributed.data_parallel(model, mesh, options) end

---f(…), while backward passes add to the gradients without averaging them. The next pass outside averages the sums.
---@param model heed.Module which data_parallel got
---@param f function what to call
---@param ... any
---@return any ...
function distributed.no_sync(model, f, ...) end

-- ---- Pipeline ----

---@class heed.PipelineOptions
---@field micro_batches? integer parts of a batch that go through one after another, so that the ranks work at the same time; 1 by default. Batches with a cache, lengths, attn_mask or need_weights stay whole
---@field broadcast? boolean whether all ranks get the result; true by default. Without it ranks before the last get nil

---Leaves each rank some of the layers of a model, in order: GPT2, Llama, Bert, any model with a method `embed` and a list
---`layers` followed by `norm` and `lm_head`, or a Sequential. Parts keep their names. All ranks then call the model with
---the same input, and get the result of one process, bit for bit if that runs the same micro-batches. generate and
---caches work; need_weights gives the layers of the rank. A border between ranks costs the bytes of x [n, d].
---@generic T: heed.Module
---@param model T is changed
---@param mesh? heed.AnyGroup all ranks by default
---@param options? heed.PipelineOptions
---@return T model the same, changed
function distributed.pipeline(model, mesh, options) end

---A forward and a backward pass of a model that pipeline got: adds to the gradients of this rank's parameters. All
---micro-batches go forward, then backward (GPipe, arXiv:1811.06965). A weight that is the embedding and lm_head gets the
---sum of its gradients on both ranks.
---@param model heed.Module which pipeline got
---@param x heed.Tensor|heed.Indices the input of the model, the same on all ranks
---@param targets heed.Tensor [b, ...]
---@param loss fun(y: heed.Tensor, targets: heed.Tensor): heed.Tensor a mean over the batch; called on the last rank
---@return number loss on all ranks
function distributed.pipeline_step(model, x, targets, loss) end

-- ---- Files ----

---The state dict of the whole model that tensor_parallel or pipeline has divided, on all ranks, which call it together:
---heed.save writes it on one of them, and load_state_dict takes it in a model that is not divided.
---@param model heed.Module a divided model
---@return heed.StateDict
function distributed.full_state_dict(model) end

---Class.load(path, config) of a model, of which each rank reads its own part: divide gets the model before its weights
---are read, and divides it. Rows of matrices stay in the mapped file; columns, and weights that the file has transposed,
---are copied, and no other pages stay in memory.
---
---    local model = dist.load(heed.models.llama, path, function(m) return dist.tensor_parallel(m, mesh.tp) end)
---@param Class heed.ModuleClass require "heed.models.gpt2", "heed.models.llama" or "heed.models.bert"
---@param path string a folder or a file
---@param divide fun(model: heed.Module): heed.Module tensor_parallel, pipeline or both; returns the model that it gets
---@param config? table replaces config.json
---@return heed.Module? model in evaluation mode
---@return string? problem
function distributed.load(Class, path, divide, config) end
