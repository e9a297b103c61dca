--- Tokens: batches of windows of a long row of token ids, for language models.

local core = require "heed.core"
local E = require "heed.nn.entries"
local object = require "heed.utils.data.object"
local files = core.files

local METHOD = "Tokens"

-- ---- Sources ------------------------------------------------------------------------------------

-- A source: length, and read(positions), the ids at an int64 tensor of positions [n], counted from 1; int64 [n].

local function of_tensor(ids)
  if ids.dtype ~= "int64" then E.reject(METHOD, "ids", ids, "int64: convert with ids:long()") end
  if ids.ndim ~= 1 then E.reject(METHOD, "ids", ids, "a tensor [n]: use ids:flatten()") end
  return { length = ids.shape[1], read = function(positions) return ids:index_select(1, positions) end }
end

-- A file of 16-bit unsigned integers, least significant byte first.
local function of_bytes(bytes, path)
  local count = bytes:numel()
  if count % 2 == 1 then
    E.fail("%s: %s has %d bytes; a file of 16-bit ids has an even number", METHOD, path, count)
  end
  local pairs_of_bytes = bytes:view(-1, 2)
  return {
    length = count / 2,
    read = function(positions)
      local rows = pairs_of_bytes:index_select(1, positions):long():remainder(256)
      return rows:select(2, 1) + rows:select(2, 2) * 256
    end,
  }
end

local function of_file(path)
  if path:find "%.bin$" then
    local bytes, message = files.map(path)
    if not bytes then E.fail("%s: %s", METHOD, message) end
    return of_bytes(bytes, path), 0
  end
  local first, tensors, _, _, numbers, archive = files.load(path)
  if first == nil then E.fail("%s: %s", METHOD, tensors) end
  if not tensors then return of_tensor(first), 1 end
  if #first ~= 1 then
    E.fail("%s: %s has %s; it must have one, the ids", METHOD, path, E.count(#first, "tensor"))
  end
  local number = numbers and numbers[first[1]]
  return of_tensor(number and files.open(archive, number) or tensors[first[1]]), 1
end

-- ---- Batches ------------------------------------------------------------------------------------

local methods = {}

-- The starts of the windows of the next batch, int64 [batch], counted from 1.
local function starts_of(values)
  if values.shuffle then
    return core.randint(1, values.starts, { values.batch }, { generator = values.generator })
  end
  local first = values.position
  local list = core.range(0, values.batch - 1):long():mul(values.context):add(first)
  values.following = first + values.batch * values.context
  if values.following + values.batch * values.context > values.length then values.following = 1 end
  return list
end

--- x and y, int64 [batch, context]: windows of the text, and the same one token later.
function methods.next(values)
  local starts = starts_of(values)
  local offsets = core.range(0, values.context):long()
  local positions = starts:unsqueeze(2) + offsets
  local ids = values.read(positions:flatten()):view(values.batch, values.context + 1)
  if values.first_id == 0 then ids = ids + 1 end
  if ids:min():item() < 1 then
    E.fail("next: an id is %d; ids count from 1: give Tokens the option first_id = 0 if those of the file count from 0",
      ids:min():item())
  end
  if not values.shuffle then values.position = values.following end
  return ids:narrow(2, 1, values.context):contiguous(), ids:narrow(2, 2, values.context):contiguous()
end

--- An iterator that never ends: for x, y in data:iter().
function methods.iter(values)
  return core.frame(function() return methods.next(values) end)
end

--- The number of ids.
function methods.len(values) return values.length end

function methods.tostring(values)
  return ("heed.Tokens(%s, context=%d, batch=%d)"):format(E.count(values.length, "id"), values.context, values.batch)
end

-- ---- State --------------------------------------------------------------------------------------

--- Where the reading is: for heed.save.
function methods.state_dict(values)
  return {
    length = values.length, position = values.position,
    generator = values.generator and values.generator:get_state() or nil,
  }
end

function methods.prepare(values, state)
  local method = "load_state_dict"
  if not object.is_list(state) then E.reject(method, "state", state, "a table that state_dict gave") end
  local length, position, generator = state.length, state.position, state.generator
  E.integer(length, nil, method, "state.length", "an integer")
  E.integer(position, nil, method, "state.position", "an integer")
  if length ~= values.length then
    E.fail("%s: the state is of a text of %s; this one has %d", method, E.count(length, "id"), values.length)
  end
  if position < 1 or position > values.starts then
    E.reject(method, "state.position", position, "an integer from 1 to %d", values.starts)
  end
  if (generator ~= nil) ~= (values.generator ~= nil) then
    E.fail("%s: the state is of Tokens with%s a generator; these have %s", method, generator == nil and "out" or "",
      values.generator and "one" or "none")
  end
  object.check_state(generator, values.generator, method)
  return function()
    if generator ~= nil then values.generator:set_state(generator) end
    values.position = math.floor(position)
  end
end

local READABLE = { "context", "batch", "shuffle", "generator", "first_id" }
local Tokens = object.class(METHOD, READABLE, methods)

local OPTIONS = { "context", "batch", "shuffle", "generator", "first_id" }

return function(ids, ...)
  local context, batch, shuffle, generator, first_id = core.modules.options(METHOD, OPTIONS, 2, ids, ...)
  context = E.size(context, nil, METHOD, "context")
  batch = E.size(batch, 1, METHOD, "batch")
  shuffle = E.boolean(shuffle, true, METHOD, "shuffle")
  object.check_generator(generator, METHOD)
  if first_id ~= nil and first_id ~= 0 and first_id ~= 1 then E.reject(METHOD, "first_id", first_id, "0 or 1") end
  local source, usual
  if type(ids) == "string" then
    source, usual = of_file(ids)
  elseif E.is_tensor(ids) then
    source, usual = of_tensor(ids), 1
  elseif object.is_list(ids) then
    local own = {}
    for i = 1, #ids do own[i] = E.integer(ids[i], nil, METHOD, ("ids[%d]"):format(i), "an integer") end
    source, usual = of_tensor(core.tensor(own, { dtype = "int64" })), 1
  else
    E.reject(METHOD, "ids", ids, "an int64 tensor [n], a list of ids, or the path of a file")
  end
  local needed = shuffle and context + 1 or batch * context + 1
  if source.length < needed then
    E.fail("%s: ids has %d; it must have at least %d: context = %d%s and one more", METHOD, source.length, needed,
      context, shuffle and "" or (", times batch = %d,"):format(batch))
  end
  return Tokens.new {
    length = math.floor(source.length), read = source.read, context = context, batch = batch, shuffle = shuffle,
    generator = generator, first_id = first_id or usual, position = 1, starts = math.floor(source.length) - context,
  }
end
