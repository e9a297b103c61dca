-- A chat with a model, in the terminal or through a pipe (a line is a message). The answer appears token by token. The
-- cache keeps what was read, and is saved on leaving, so that a chat goes on without reading its beginning again.
local heed = require "heed"
local apply_chat_template = require "heed.tokenizers.chat"
local interrupt = require "heed.interrupt"

local USAGE = [[
usage: heed chat.lua [OPTIONS] MODEL
Chats with a model: a GGUF file, or a folder with config.json, weights, a tokenizer and a chat template. An empty line,
or Ctrl-D, ends.
  --system TEXT      what the model is told first
  --history FILE     where the chat is kept: FILE.chat.safetensors and FILE.cache.safetensors
  --tokens N         the longest answer (256)
  --temperature T    0: always the most likely token; higher: more surprising (0.7)
  --seed N           seed for sampling (1)
  --dtype D          dtype of the weights: float32, bfloat16, float16, int8, q8_0, q4_k, … (as in the file)
  --precision P      how products are computed: highest, high or medium (high: several times as fast where the
                     processor has instructions for few bits)
  --help             shows this text]]

local function note(...) io.stderr:write("chat: ", string.format(...), "\n") end

local function stop(...)
  note(...)
  os.exit(1)
end

-- ---- Arguments ----------------------------------------------------------------------------------

local function whole(text) return tonumber(text) and tonumber(text) % 1 == 0 and math.floor(tonumber(text)) or nil end
local KNOWN = { system = tostring, history = tostring, tokens = whole, temperature = tonumber, seed = whole,
  dtype = tostring, precision = tostring }
local options = { tokens = 256, temperature = 0.7, seed = 1, precision = "high" }
local path, at = nil, 1
while arg[at] do
  local name = arg[at]:match "^%-%-(.*)$"
  if name == "help" then
    print(USAGE)
    os.exit(0)
  elseif name then
    if not KNOWN[name] then stop("--%s is not known; --help shows what is", name) end
    options[name] = arg[at + 1] and KNOWN[name](arg[at + 1])
    if options[name] == nil then stop("--%s needs a value; --help shows which", name) end
    at = at + 1
  elseif path then
    stop("'%s' is a second model; --help shows the options", arg[at])
  else
    path = arg[at]
  end
  at = at + 1
end
if not path then stop "the model is missing: a GGUF file or a folder; --help shows all options" end

-- ---- The model and the chat ---------------------------------------------------------------------

local function checked(value, problem)
  if not value then stop("%s", problem) end
  return value
end

local model = checked(require("heed.models").load(path))
local tok = model.tokenizer
if not tok then stop("'%s': %s", path, model.tokenizer_problem or "no tokenizer belongs to the model") end
if not tok.chat_template then stop("'%s' has no chat template: it is not a model for chats", path) end
if options.dtype then model:to(options.dtype) end
if not pcall(heed.set_matmul_precision, options.precision) then
  stop("--precision is '%s'; it must be highest, high or medium", options.precision)
end
local context = model.config.max_position_embeddings
local stop_ids = model.config.stop_tokens or { tok.eos_token_id }
local generator = heed.Generator(options.seed)

-- The messages; the cache, and the ids that it holds.
local messages, cache, held = {}, nil, {}
if options.system then messages[1] = { role = "system", content = options.system } end

local chat_file = options.history and options.history .. ".chat.safetensors"
local cache_file = options.history and options.history .. ".cache.safetensors"

local function exists(name)
  local file = io.open(name, "rb")
  if file then file:close() end
  return file ~= nil
end

if chat_file and exists(chat_file) then
  local saved = checked(heed.load(chat_file))
  messages, held = saved.messages, saved.held:tolist()
  cache = checked(model:load_cache(cache_file))
  note("%d messages of '%s' go on; %d tokens need not be read again", #messages, options.history, cache.length)
end

local function save()
  if not chat_file or not cache then return end
  checked(cache:save(cache_file))
  heed.save(chat_file, { messages = messages, held = heed.tensor(held, { dtype = "int64" }) })
end

-- ---- Answers ------------------------------------------------------------------------------------

--- The ids of the chat. Where they and an answer do not fit, the oldest turns are dropped, but not the system message.
local function ids_of_chat()
  while true do
    local ids = apply_chat_template(tok, messages, { add_generation_prompt = true, tokenize = true })
    if #ids + options.tokens <= context then return ids end
    local first = messages[1].role == "system" and 2 or 1
    local last = first
    while messages[last + 1] and messages[last + 1].role ~= "user" do last = last + 1 end
    if last >= #messages then
      local left = context - #ids
      if left >= 1 then return ids, left end
      return nil, ("the message has %d tokens; the context has %d"):format(#ids, context)
    end
    note("the context of %d tokens is full: the oldest turn is dropped", context)
    for _ = first, last do table.remove(messages, first) end
  end
end

--- Answers the last message. What the cache holds of the chat's beginning is not read again.
local function answer()
  local ids, left = ids_of_chat()
  if not ids then
    note("%s", left)
    messages[#messages] = nil
    return
  end
  local same = 0
  while same < #held and same < #ids - 1 and held[same + 1] == ids[same + 1] do same = same + 1 end
  cache = cache or model:new_cache()
  cache:truncate(same)
  held = {}
  for i = 1, same do held[i] = ids[i] end
  local rest = {}
  for i = same + 1, #ids do rest[i - same] = ids[i] end
  local decoder, parts = tok:decoder { skip_special_tokens = true }, {}
  local function say(piece)
    parts[#parts + 1] = piece
    io.write(piece)
    io.flush()
  end
  local start, first, stopped = heed.clock(), nil, false
  local tokens = interrupt.hold(function(pressed) return (model:generate(rest, {
    max_new_tokens = math.min(options.tokens, left or options.tokens), temperature = options.temperature,
    min_p = 0.05, generator = generator, cache = cache, stop = stop_ids,
    on_token = function(id)
      first = first or heed.clock()
      say(decoder:add(id))
      stopped = pressed() -- Ctrl-C ends the answer and the chat; what was said is kept
      return not stopped
    end,
  })) end)
  say(decoder:finish())
  io.write "\n"
  messages[#messages + 1] = { role = "assistant", content = table.concat(parts) }
  held = ids
  for i = 1, #tokens - 1 do held[#held + 1] = tokens[i] end
  note("%d tokens read in %.2f s, %d written, %.1f a second", #rest, first - start, #tokens,
    (#tokens - 1) / math.max(heed.clock() - first, 1e-9))
  save()
  return stopped
end

local fine, problem = pcall(function()
  for line in io.lines() do
    if line == "" then break end
    messages[#messages + 1] = { role = "user", content = line }
    if answer() then break end
  end
end)
if not fine then
  io.write "\n"
  stop("%s", (tostring(problem):gsub("^.-:%d+: ", "", 1)))
end
