--- The functions of heed_mpi for the only rank of a job, without MPI. The arguments were checked.

local E = require "heed.nn.entries"

local alone = {}

local WORLD = {}
local sent = {} -- by tag: the messages that are not received yet, oldest first
local waiting = {} -- by tag: the requests of irecv without a message

local function none() end

alone.init, alone.barrier = none, none

--- The tag of the first message in some queues; nil if there is none.
local function first_tag(queues)
  for tag, queue in pairs(queues) do
    if #queue > 0 then return tag end
  end
end

--- A message about a message that is lost, or nil.
function alone.finalize()
  local unreceived, unsent = first_tag(sent), first_tag(waiting)
  sent, waiting = {}, {}
  if unreceived then
    return ("destroy_process_group: rank 1 did not receive x of isend (tag %d)"):format(unreceived)
  end
  return unsent and ("destroy_process_group: rank 1 sent nothing for irecv (tag %d)"):format(unsent)
end

function alone.rank() return 1 end

function alone.size() return 1 end

function alone.split(_, color) return color ~= 0 and WORLD or nil end

function alone.counted() return {} end

--- x. Raises, as the function `method`, if it cannot be written since elements share memory.
local function written(x, method)
  local fine, problem = true, nil
  if not x:is_contiguous() then fine, problem = pcall(x.copy_, x, x:clone()) end
  if fine then return x end
  if not tostring(problem):find("share memory", 1, true) then error(problem, 0) end
  E.fail("%s: x has elements that share memory, as those of an expanded tensor do; use x:clone()", method)
end

function alone.all_reduce(x) return written(x, "all_reduce") end

function alone.reduce_scatter(x) return x:clone() end

function alone.all_gather(x) return x:unsqueeze(1):clone() end

function alone.broadcast(x) return written(x, "broadcast") end

-- ---- Messages to itself -------------------------------------------------------------------------

local function take(queues, tag)
  local queue = queues[tag]
  return queue and table.remove(queue, 1)
end

local function put(queues, tag, value)
  queues[tag] = queues[tag] or {}
  table.insert(queues[tag], value)
end

--- A pair of messages meets: the received one gets the elements, or the reason why it cannot.
local function meet(x, request)
  local to = request.x
  if to.dtype ~= x.dtype or to:numel() ~= x:numel() then
    request.failure = ("irecv: x is %s of %d elements here, and %s of %d on rank 1; they must be the same"):format(
      to.dtype, to:numel(), x.dtype, x:numel())
  else
    to:copy_(x:view(to.shape))
  end
  request.done = true
end

function alone.isend(x, _, tag)
  local request = take(waiting, tag)
  if request then meet(x:clone(), request) else put(sent, tag, x:clone()) end
  return { done = true }
end

function alone.irecv(x, _, tag)
  local request = { x = x, tag = tag }
  local message = take(sent, tag)
  if message then meet(message, request) else put(waiting, tag, request) end
  return request
end

function alone.test(request)
  if request.failure then E.fail(request.failure) end
  return request.done == true
end

function alone.wait(request)
  if alone.test(request) then return end
  E.fail("irecv: rank 1 has sent nothing (tag %d), and there is no other rank", request.tag)
end

return alone
