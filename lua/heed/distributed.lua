--- heed.distributed: communication between the ranks of a job. Under mpirun it works through the module
--- heed_mpi (make MPI=1); without mpirun the script is the only rank, and the same calls return at once.

local alone = require "heed.distributed.alone"
local core = require "heed.core"
local E = require "heed.nn.entries"
local groups = require "heed.distributed.groups"
local objects = require "heed.utils.data.object"
local primitives = core.modules
local options = primitives.options

local M = {}

if not core.limit().files then
  E.fail "heed.distributed: the limits of this Lua state allow no files, so it cannot reach other machines, either"
end

-- ---- The job ------------------------------------------------------------------------------------

--- The number of processes that a launcher started with this one; nil without a launcher. PMIx gives no number.
local function launched()
  local getenv = os and os.getenv
  if not getenv then return nil end
  local count = tonumber(getenv "OMPI_COMM_WORLD_SIZE" or getenv "PMI_SIZE")
  return count or getenv "PMIX_RANK" and 2
end

--- heed_mpi; or nil and why it cannot be loaded.
local function load_mpi()
  local global = _G
  local load = global and rawget(global, "require")
  if type(load) ~= "function" then return nil, "this Lua state has no require" end
  local ok, module = pcall(load, "heed_mpi")
  if ok then return module end
  return nil, tostring(module)
end

--- Whether heed_mpi can be loaded.
function M.is_available() return load_mpi() ~= nil end

--- Whether the process group is there.
function M.is_initialized() return groups.transport ~= nil end

local function is_positive(value) return value > 0 end

--- Starts communication between the ranks of the job. To be called once, by all of them.
function M.init_process_group(...)
  local method = "init_process_group"
  local timeout, check = options(method, { "timeout", "check" }, 1, ...)
  timeout = E.number(timeout, 60, method, "timeout", is_positive, "a number of seconds above 0")
  check = E.boolean(check, true, method, "check")
  if groups.transport then E.fail("%s: it was called before; call destroy_process_group first", method) end
  local count, transport, why = launched(), alone, nil
  if count then transport, why = load_mpi() end
  if not transport and count == 1 then transport = alone end
  if not transport then
    E.fail("%s: a launcher started this process as one of several, but heed_mpi cannot be loaded; build it with " ..
      "make MPI=1 (%s)", method, (why:gsub("\n.*", "")))
  end
  transport.init { timeout = timeout, check = check }
  groups.open(transport, check)
end

--- Waits for all ranks and ends communication. A process can do this once.
function M.destroy_process_group()
  groups.check_open "destroy_process_group"
  local lost = groups.transport.finalize()
  groups.close()
  if lost then E.fail(lost) end
end

--- This rank, from 1; in a group that it does not belong to, nil.
function M.get_rank(group) return groups.rank(group, "get_rank") end

--- The number of ranks.
function M.get_world_size(group) return groups.size(group, "get_world_size") end

--- Bytes that this rank has sent, calls, and seconds that it waited, by kind: counted().all_reduce.bytes.
function M.counted()
  groups.check_open "counted"
  return groups.transport.counted()
end

M.new_group, M.init_device_mesh = groups.new_group, groups.init_device_mesh

-- ---- Arguments ----------------------------------------------------------------------------------

local OPS = { "sum", "prod", "min", "max", "avg" }

local function check_op(op, x, method)
  if op == nil then op = "sum" end
  E.check_choice(op, OPS, method, "op")
  local extreme, dtype = op == "min" or op == "max", x.dtype
  if dtype == "float32" or dtype == "int64" and op ~= "avg" or dtype == "bool" and extreme then return op end
  E.fail("%s: x is %s; for the op %s it must be %s; use x:float()", method, dtype, op,
    op == "avg" and "float32" or extreme and "float32, int64 or bool" or "float32 or int64")
end

--- Raises if x is not a tensor that can be written.
local function check_written(x, method)
  E.check_tensor(x, method, "x")
  if x.requires_grad and core.is_grad_enabled() then
    E.fail("%s: x requires a gradient, which would not include what other ranks send; use heed.no_grad or x:detach()",
      method)
  end
end

local function check_rank(value, group, method, argument)
  local size = groups.size(group, method)
  value = E.integer(value, nil, method, argument, ("a rank from 1 to %d"):format(size))
  if value < 1 or value > size then E.reject(method, argument, value, "a rank from 1 to %d", size) end
  return value
end

-- ---- Collectives --------------------------------------------------------------------------------

--- Waits until all ranks have called it.
function M.barrier(group)
  local handle = groups.handle(group, "barrier")
  groups.transport.barrier(handle)
end

--- x becomes the sum (…) over all ranks, added in the order of the ranks: the same bits everywhere. Returns x.
function M.all_reduce(x, ...)
  local method = "all_reduce"
  local op, ordered, group = options(method, { "op", "ordered", "group" }, 2, x, ...)
  E.boolean(ordered, true, method, "ordered")
  check_written(x, method)
  local handle = groups.handle(group, method)
  return groups.transport.all_reduce(x, check_op(op, x, method), true, handle)
end

--- The x of all ranks as one tensor [ranks, shape of x].
local function gather(x, handle) return groups.transport.all_gather(x, handle) end

--- The list of the tensors that differ from each other in dimension 1.
local function gather_sizes(x, handle, method)
  if x.ndim == 0 then E.reject(method, "x", x, "a tensor with a first dimension, for sizes = true") end
  local lengths = gather(core.tensor({ x:size(1) }, { dtype = "int64" }), handle):flatten():tolist()
  local most, list = 0, {}
  for _, length in ipairs(lengths) do most = math.max(most, length) end
  if most == 0 then
    for i = 1, #lengths do list[i] = x:clone() end
    return list
  end
  local shape = {}
  for i = 1, x.ndim do shape[i] = i == 1 and most or x:size(i) end
  local padded = core.zeros(shape, { dtype = x.dtype })
  padded:narrow(1, 1, x:size(1)):copy_(x)
  local all = gather(padded, handle)
  for i, length in ipairs(lengths) do list[i] = all:select(1, i):narrow(1, 1, length) end
  return list
end

--- The list of the x of all ranks, in the order of the ranks. sizes = true: they may differ in their first size.
function M.all_gather(x, ...)
  local method = "all_gather"
  local group, sizes = options(method, { "group", "sizes" }, 2, x, ...)
  E.check_tensor(x, method, "x")
  local handle = groups.handle(group, method)
  if E.boolean(sizes, false, method, "sizes") then return gather_sizes(x, handle, method) end
  local all, list = gather(x, handle), {}
  for i = 1, all:size(1) do list[i] = all:select(1, i) end
  return list
end

--- Writes the x of all ranks to out, one after the other along dimension 1 or along a dimension before the first.
function M.all_gather_into_tensor(out, x, ...)
  local method = "all_gather_into_tensor"
  local group = options(method, { "group" }, 3, out, x, ...)
  check_written(out, method)
  E.check_tensor(x, method, "x")
  local handle, size = groups.handle(group, method), groups.size(group, method)
  if out:numel() ~= x:numel() * size or out.dtype ~= x.dtype then
    E.fail("%s: out is %s of %d elements; it must be %s of %d, for %s of x", method, out.dtype, out:numel(), x.dtype,
      x:numel() * size, E.count(size, "time"))
  end
  return out:copy_(gather(x, handle):view(out.shape))
end

--- This rank's part of the sum (…) of x over all ranks; x is divided evenly along dimension 1.
function M.reduce_scatter(x, ...)
  local method = "reduce_scatter"
  local op, group = options(method, { "op", "group" }, 2, x, ...)
  E.check_tensor(x, method, "x")
  local handle, size = groups.handle(group, method), groups.size(group, method)
  if x.ndim == 0 or x:size(1) % size ~= 0 then
    E.fail("%s: x has %s; their number must be a multiple of %d, the number of ranks", method,
      x.ndim == 0 and "no dimension" or E.count(x:size(1), "row"), size)
  end
  return groups.transport.reduce_scatter(x, check_op(op, x, method), handle)
end

--- x becomes the x of rank src of the group. Returns x.
function M.broadcast(x, src, ...)
  local method = "broadcast"
  local group = options(method, { "group" }, 3, x, src, ...)
  check_written(x, method)
  local handle = groups.handle(group, method)
  return groups.transport.broadcast(x, check_rank(src, group, method, "src"), handle)
end

-- ---- Messages -----------------------------------------------------------------------------------

local work = objects.class("distributed.Work", {}, {
  --- Waits until the message was sent or has come.
  wait = function(self) self.transport.wait(self.request) end,
  --- Whether it was, without waiting.
  is_completed = function(self) return self.transport.test(self.request) end,
})

local TAG = "an integer from 0 to 32767"

local function check_tag(tag, method)
  tag = E.integer(tag, 0, method, "tag", TAG)
  if tag < 0 or tag > 32767 then E.reject(method, "tag", tag, TAG) end
  return tag
end

--- Starts sending x to rank dst of the group. x must not be written until the message was sent.
function M.isend(x, dst, ...)
  local method = "isend"
  local tag, group = options(method, { "tag", "group" }, 3, x, dst, ...)
  E.check_tensor(x, method, "x")
  local handle, transport = groups.handle(group, method), groups.transport
  dst, tag = check_rank(dst, group, method, "dst"), check_tag(tag, method)
  return work.new { transport = transport, request = transport.isend(x, dst, tag, handle) }
end

--- Starts receiving x from rank src of the group. x is unspecified until the message has come.
function M.irecv(x, src, ...)
  local method = "irecv"
  local tag, group = options(method, { "tag", "group" }, 3, x, src, ...)
  check_written(x, method)
  local handle, transport = groups.handle(group, method), groups.transport
  src, tag = check_rank(src, group, method, "src"), check_tag(tag, method)
  return work.new { transport = transport, request = transport.irecv(x, src, tag, handle) }
end

for name, f in pairs(require "heed.parallel") do M[name] = f end

return primitives.guard(E.with_frames(M, "load", "no_sync", "pipeline_step", "context_parallel"), "heed.distributed")
