---@meta heed.distributed
-- Communication between the ranks of a job: `local dist = require "heed.distributed"`.

---Ranks of a job: the processes that a launcher started together, `mpirun -n 4 heed script.lua`. They count from 1. The
---module needs heed_mpi (make MPI=1); without a launcher, a script is rank 1 of 1.
---
---    dist.init_process_group()
---    local x = dist.all_reduce(heed.full({2}, dist.get_rank()))
---    if dist.get_rank() == 1 then print(x) end
---
---All ranks make the same calls in the same order; each call is first agreed on. Where a rank calls something else, or
---with another dtype, shape or op, all ranks get an error that names it, and can go on. A rank that waits longer than
---the timeout, is cancelled or exceeds a limit gets an error, after which its group cannot be used. An error that ends
---the script of one rank ends the job.
---@class heed.distributed
local distributed = {}

---@alias heed.ReduceOp "sum"|"prod"|"min"|"max"|"avg"

---A group of new_group, a mesh of one dimension, or nil for all ranks.
---@alias heed.AnyGroup heed.Group|heed.DeviceMesh|nil

---@class heed.InitGroupOptions
---@field timeout? number seconds to wait for others in a call; 60 by default
---@field check? boolean whether calls are agreed on first; true by default

---@class heed.GroupOption
---@field group? heed.AnyGroup all ranks by default

---@class heed.AllReduceOptions: heed.GroupOption
---@field ordered? boolean true or nil: the order of the ranks, as always

---@class heed.GatherOptions: heed.GroupOption
---@field sizes? boolean whether the sizes of dimension 1 may differ; false by default

---@class heed.MessageOptions: heed.GroupOption
---@field tag? integer 0 to 32767; 0 by default

---Whether heed_mpi can be loaded.
---@return boolean
function distributed.is_available() end

---Whether init_process_group was called.
---@return boolean
function distributed.is_initialized() end

---Starts communication between the ranks of the job; all of them call it.
---Without `check` a mistake can give wrong numbers, and a message that is too long can damage memory.
---@param options? heed.InitGroupOptions
function distributed.init_process_group(options) end

---Waits for all ranks and ends communication, once in a process. A script of the command heed may end without it.
function distributed.destroy_process_group() end

---This rank, from 1: of the job, or in a group; nil if it is not in the group.
---@param group? heed.AnyGroup all ranks by default
---@return integer? rank
function distributed.get_rank(group) end

---The number of ranks: of the job, or of a group.
---@param group? heed.AnyGroup all ranks by default
---@return integer
function distributed.get_world_size(group) end

---What this rank did, sent and waited for, by kind: counted().all_reduce.calls, .bytes and .waited. The bytes are those
---that an algorithm without waste sends to other ranks; "agreement" and the 24 bytes before each message are counted as
---well. `waited` are the seconds that the rank waited for others, agreeing included.
---@return table<string, { calls: integer, bytes: integer, waited: number }>
function distributed.counted() end

---Waits until all ranks have called it.
---@param group? heed.AnyGroup all ranks by default
function distributed.barrier(group) end

---Replaces x on each rank by the sum (…) over all ranks, added in the order of the ranks: the same bits on all ranks,
---in every run and with every MPI. float32 and int64; bool by min and max; avg float32 alone. While operations are
---recorded, x must not require a gradient.
---@param x heed.Tensor written in place
---@param op? heed.ReduceOp "sum" by default
---@param options? heed.AllReduceOptions
---@return heed.Tensor x
function distributed.all_reduce(x, op, options) end

---The tensors of all ranks, in the order of the ranks: views of one new tensor.
---@param x heed.Tensor of the same shape and dtype on all ranks
---@param options? heed.GatherOptions
---@return heed.Tensor[]
function distributed.all_gather(x, options) end

---Writes the tensors of all ranks to out: one after the other along dimension 1, or [ranks, shape of x].
---@param out heed.Tensor of the dtype of x
---@param x heed.Tensor of the same shape and dtype on all ranks
---@param options? heed.GroupOption
---@return heed.Tensor out
function distributed.all_gather_into_tensor(out, x, options) end

---This rank's part of the sum (…) of x over all ranks, as a new tensor: x is divided evenly along dimension 1.
---@param x heed.Tensor the first size is a multiple of the number of ranks
---@param op? heed.ReduceOp "sum" by default
---@param options? heed.GroupOption
---@return heed.Tensor
function distributed.reduce_scatter(x, op, options) end

---Replaces x on each rank by that of rank src.
---@param x heed.Tensor written in place, but on src
---@param src integer a rank of the group
---@param options? heed.GroupOption
---@return heed.Tensor x
function distributed.broadcast(x, src, options) end

---Starts sending x to a rank. Its elements must not be written before the message was sent; those of a view with gaps
---are copied. Messages from one rank to another with the same tag arrive in their order.
---@param x heed.Tensor what is sent
---@param dst integer a rank of the group
---@param options? heed.MessageOptions
---@return heed.Work
function distributed.isend(x, dst, options) end

---Starts receiving x from a rank; its elements are unspecified until the message has come, and must have the number and
---dtype that are sent. While operations are recorded, x must not require a gradient.
---@param x heed.Tensor where it is written
---@param src integer a rank of the group
---@param options? heed.MessageOptions
---@return heed.Work
function distributed.irecv(x, src, options) end

---A group of some ranks, in the given order. All ranks of the job call it. In calls with a group, src and dst are ranks
---of the group, which count from 1.
---@param ranks integer[] of the job, from 1
---@return heed.Group
function distributed.new_group(ranks) end

---All ranks of the job as a grid; the last dimension has ranks that follow each other.
---
---    local mesh = dist.init_device_mesh({2, 4}, {"pp", "tp"})
---    dist.all_reduce(x, "sum", {group = mesh.tp})
---@param shape integer[] with the number of ranks as their product
---@param names string[] of the dimensions
---@return heed.DeviceMesh
function distributed.init_device_mesh(shape, names) end

---A message under way. Its tensor is kept until it is done.
---@class heed.Work
local Work = {}

---Waits until the message was sent or has come. May be called again. After a timeout the message is still under way.
function Work:wait() end

---Whether the message was sent or has come. Does not wait.
---@return boolean
function Work:is_completed() end

---@class heed.Group
---@field ranks integer[] the ranks of the job that belong to it
local Group = {}

---The number of ranks in the group.
---@return integer
function Group:size() end

---This rank in the group; nil if it is not in it.
---@return integer? rank
function Group:rank() end

---@class heed.DeviceMesh
---@field shape integer[] ranks in each dimension
---@field names string[] of the dimensions
---@field [string] heed.DeviceMesh mesh.tp: that dimension, a mesh of one dimension
local DeviceMesh = {}

---The ranks that differ from this one in that dimension alone.
---@param name? string not needed if there is one dimension
---@return heed.Group
function DeviceMesh:get_group(name) end

---This rank's place in that dimension, from 1.
---@param name? string not needed if there is one dimension
---@return integer
function DeviceMesh:get_local_rank(name) end

---The number of ranks of a dimension, or of the mesh.
---@param name? string not needed if there is one dimension
---@return integer
function DeviceMesh:size(name) end

return distributed
