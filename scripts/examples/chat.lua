-- A chat with a model, in the terminal or through a pipe (a line is a message). The answer appears token by token. The
-- cache keeps what was read and is saved after each answer, so that a chat goes on without reading its beginning again.
local heed = require "heed"
local interrupt = require "heed.interrupt"

local USAGE = [[
usage: heed chat.lua [OPTIONS] MODEL
Chats with a model: a GGUF file, or a folder with config.json, weights, a tokenizer and a chat template. An empty line,
Ctrl-D or Ctrl-C ends.
  --system TEXT      what the model is told first
  --history FILE     where the chat is kept: FILE.chat.safetensors and FILE.cache.safetensors
  --tokens N         the longest answer (256, or half of the context)
  --temperature T    0: always the most likely token; higher: more surprising (0.7)
  --seed N           seed for sampling (1)
  --dtype D          dtype of the weights: float32, bfloat16, float16, int8, q8_0, q4_k, … (as in the file)
  --precision P      how products are computed: highest, high or medium (high: several times as fast where the
                     processor has instructions for few bits)
  --help             shows this text]]

local SLICE = 20 -- milliseconds between two looks at Ctrl-C

local function note(...) io.stderr:write("chat: ", string.format(...), "\n") end

local function stop(...)
  note(...)
  os.exit(1)
end

-- ---- Arguments ----------------------------------------------------------------------------------

local MOST = 2 ^ 53

local function number(least, whole)
  return function(text)
    local value = tonumber(text)
    if not value or not (value >= least and value <= MOST) or whole and value % 1 ~= 0 then return nil end
    return whole and math.floor(value) or value
  end
end

local function one_of(names)
  return function(text)
    for name in names:gmatch "[^ ,]+" do
      if name == text then return text end
    end
  end
end

local DTYPES = "float32, bfloat16, float16, int8, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k"
local PRECISIONS = "highest, high, medium"

-- How the value of an option is read, and what it must be.
local KNOWN = {
  system = { tostring, "a text" },
  history = { tostring, "the name of a file, without its ending" },
  tokens = { number(1, true), "a whole number from 1 to 2^53" },
  temperature = { number(0), "a number from 0 to 2^53" },
  seed = { number(0, true), "a whole number from 0 to 2^53" },
  dtype = { one_of(DTYPES), "one of " .. DTYPES },
  precision = { one_of(PRECISIONS), "one of " .. PRECISIONS },
}
local options = { temperature = 0.7, seed = 1, precision = "high" }
local path, at = nil, 1
while arg[at] do
  local name = arg[at]:match "^%-%-(.*)$"
  if name == "help" then
    print(USAGE)
    os.exit(0)
  elseif name then
    local known, text = KNOWN[name], arg[at + 1]
    if not known then stop("--%s is not known; --help shows what is", name) end
    if not text then stop("--%s needs a value: %s", name, known[2]) end
    options[name] = known[1](text)
    if options[name] == nil then stop("--%s is '%s'; it must be %s", name, text, known[2]) end
    at = at + 1
  elseif path then
    stop("'%s' is a second model; --help shows the options", arg[at])
  else
    path = arg[at]
  end
  at = at + 1
end
if not path then stop "the model is missing: a GGUF file or a folder; --help shows all options" end

-- ---- The model ----------------------------------------------------------------------------------

--- An error's message without the line of the script.
local function plain(problem) return (tostring(problem):gsub("^[^\n]-:%d+: ", "", 1)) end

local model, problem = heed.models.load(path)
if not model then stop("%s", problem) end
local tok = model.tokenizer
if not tok then stop("'%s': %s", path, model.tokenizer_problem or "no tokenizer belongs to the model") end
if not tok.chat_template then stop("'%s' has no chat template: it is not a model for chats", path) end
if options.dtype then
  local fine, why = pcall(model.to, model, options.dtype)
  if not fine then stop("%s", plain(why)) end
end
heed.set_matmul_precision(options.precision)
local context = model.config.max_position_embeddings
local longest = options.tokens or math.max(1, math.min(256, math.floor(context / 2)))
if longest >= context then
  stop("--tokens is %d; it must be less than the context of the model, %d tokens", longest, context)
end
local stop_ids = model.config.stop_tokens or { tok.eos_token_id }
local generator = heed.Generator(options.seed)

-- ---- The chat, and its history ------------------------------------------------------------------

-- The messages; the cache, and the ids that it holds.
local messages, cache, held = {}, nil, {}

--- The ids of messages and the beginning of an answer, or nil and what the template or the tokenizer does not take.
local function ids_of(list)
  local fine, ids = pcall(tok.apply_chat_template, tok, list, { add_generation_prompt = true, tokenize = true })
  if fine then return ids end
  return nil, plain(ids)
end

local history = options.history
local chat_file, cache_file = (history or "") .. ".chat.safetensors", (history or "") .. ".cache.safetensors"

--- The chat in a history, or nil and what it is instead.
local function saved_chat()
  local saved, why = heed.load(chat_file)
  if not saved then return nil, why end
  local list = type(saved) == "table" and rawget(saved, "messages")
  if type(list) ~= "table" then return nil, ("'%s' is not a chat"):format(chat_file) end
  for _, message in ipairs(list) do
    if type(message) ~= "table" or type(message.role) ~= "string" or type(message.content) ~= "string" then
      return nil, ("'%s' is not a chat"):format(chat_file)
    end
  end
  return saved
end

--- The cache of a saved chat and its ids, or nil and the reason why they must be read again.
local function saved_cache(saved)
  local found, why = model:load_cache(cache_file)
  if not found then return nil, why end
  local fine, ids = pcall(function() return saved.held:tolist() end)
  if not fine or #ids ~= found.length or found.batch ~= 1 then
    return nil, ("'%s' belongs to another chat"):format(cache_file)
  end
  return found, ids
end

local function go_on()
  local saved, why = saved_chat()
  if not saved then stop("%s", why) end
  messages = saved.messages
  local found, ids = saved_cache(saved)
  if found then
    cache, held = found, ids
    note("%d messages of '%s' go on; %d tokens need not be read again", #messages, history, #held)
  else
    note("%d messages of '%s' go on, and are read again: %s", #messages, history, ids)
  end
  local first = messages[1]
  if options.system and not (first and first.role == "system" and first.content == options.system) then
    note("--system is not used: '%s' goes on as it began; another --history begins anew", history)
  end
end

--- Saves the chat. A cache in the folder is never that of another chat, not even if this ends halfway.
local function save()
  if not history then return end
  local beside = history .. ".new.safetensors"
  local fine, why = cache:save(beside)
  if fine then
    os.remove(cache_file)
    fine, why = heed.save(chat_file, { messages = messages, held = heed.tensor(held, { dtype = "int64" }) })
  end
  if fine then fine, why = os.rename(beside, cache_file) end
  if fine then return end
  note("the chat is not saved: %s", why)
  os.remove(beside)
end

-- ---- Answers ------------------------------------------------------------------------------------

--- The messages with one more from the user, their ids, and the number of tokens that an answer may have. Where the
--- context is full, the oldest turns are dropped, but not the system message. Returns nil and a problem for a message
--- that cannot be answered.
local function with_message(text)
  local list, most, dropped = {}, longest, 0
  for i, message in ipairs(messages) do list[i] = message end
  list[#list + 1] = { role = "user", content = text }
  while true do
    local ids, why = ids_of(list)
    if not ids then return nil, why end
    local room, first = context - #ids, list[1].role == "system" and 2 or 1
    if first == #list then -- nothing else can be dropped
      if room < 1 then return nil, ("the message has %d tokens; the context has %d"):format(#ids, context) end
      most = math.min(most, room)
    end
    if room >= most then
      if dropped > 0 then
        note("the context of %d tokens is full: the oldest %d messages are dropped", context, dropped)
      end
      return list, ids, most
    end
    repeat
      table.remove(list, first)
      dropped = dropped + 1
    until list[first].role == "user"
  end
end

--- Keeps what the cache holds of the beginning of ids, and returns the ids that must be read.
local function rest_of(ids)
  local same, rest = 0, {}
  while same < #held and same < #ids - 1 and held[same + 1] == ids[same + 1] do same = same + 1 end
  if not (cache and pcall(cache.truncate, cache, same)) then -- layers with a window do not keep all of the past
    cache, same = model:new_cache(), 0
  end
  for i = same + 1, #ids do rest[i - same] = ids[i] end
  return rest
end

--- Answers a message. Ctrl-C ends the answer; what was said is kept.
local function answer(text, pressed)
  local list, ids, room = with_message(text)
  if not list then return note("%s; the line is dropped", ids) end
  local rest, decoder = rest_of(ids), tok:decoder { skip_special_tokens = true }
  local tokens, parts, start, first = {}, {}, heed.clock(), nil
  local function say(piece)
    parts[#parts + 1] = piece
    io.write(piece)
    io.flush()
  end
  local steps = model:generate_steps(rest, {
    max_new_tokens = room, temperature = options.temperature, min_p = 0.05, generator = generator, cache = cache,
    stop = stop_ids, ms = SLICE,
    on_token = function(id)
      first = first or heed.clock()
      tokens[#tokens + 1] = id
      say(decoder:add(id))
    end,
  })
  while not pressed() and not steps:advance() do end
  steps:release()
  say(decoder:finish())
  io.write "\n"
  held = {}
  for i = 1, cache.length do held[i] = ids[i] or tokens[i - #ids] end
  if #tokens == 0 then return note "the message is dropped: Ctrl-C came before the answer" end
  messages = list
  messages[#messages + 1] = { role = "assistant", content = table.concat(parts) }
  note("%d tokens read in %.2f s, %d written, %.1f a second", #rest, first - start, #tokens,
    (#tokens - 1) / math.max(heed.clock() - first, 1e-9))
  interrupt.hold(save) -- another Ctrl-C waits until it is saved
end

local function chat(pressed)
  while not pressed() do
    local line = io.read()
    if not line then io.stderr:write "\n" end -- behind the terminal's ^C
    if not line or line == "" then break end
    answer(line, pressed)
  end
end

local function exists(name)
  local file = io.open(name, "rb")
  if file then file:close() end
  return file ~= nil
end

if history and exists(chat_file) then
  go_on()
elseif options.system then
  messages[1] = { role = "system", content = options.system }
  local ids, why = ids_of { messages[1], { role = "user", content = "?" } }
  if not ids then stop("--system: %s", why) end
end
local fine, why = pcall(interrupt.hold, chat)
if not fine then
  io.write "\n"
  stop("%s", plain(why))
end
