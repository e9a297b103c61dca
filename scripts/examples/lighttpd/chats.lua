-- Loads the model once in each process, and keeps the chats: their messages, and the answers that are being generated.
-- Their number is bounded, and so is the cache that each has during an answer: by the context.
local here = ...
local MOST, IDLE = 16, 300 -- chats; seconds after which one that is not used gives way to another
local CONTEXT, LONGEST, SLICE = 1024, 200, 20 -- tokens of a chat and of an answer; milliseconds of a request

local heed = require "heed"
local folder = os.getenv "HEED_CHAT_MODEL" or here .. "../../../build/models/SmolLM2-135M-Instruct"
local model = assert(heed.models.load(folder))
heed.set_matmul_precision "high"
local tok = model.tokenizer
if not (tok and tok.chat_template) then error(("the model in '%s' has no chat template"):format(folder), 0) end
local context = math.min(CONTEXT, model.config.max_position_embeddings)
local generator = heed.Generator(os.time())

local chats, count = {}, 0 -- by id: { messages =, steps =, decoder =, said =, new =, used = }

--- An id that nobody can guess.
local function new_id()
  local file = assert(io.open("/dev/urandom", "rb"))
  local bytes = file:read(16)
  file:close()
  return (bytes:gsub(".", function(byte) return ("%02x"):format(byte:byte()) end))
end

--- Makes room for one more chat: returns whether there is any.
local function has_room()
  for id, chat in pairs(chats) do
    if heed.clock() - chat.used > IDLE then chats[id], count = nil, count - 1 end
  end
  return count < MOST
end

local M = {}

--- Begins the answer to a message; id nil: in a new chat. Returns the chat's id, or nil and a problem.
function M.say(id, text)
  local chat = chats[id or ""] or { messages = {} }
  if id and not chats[id] then return id end -- hear reports it
  if chat.steps then return nil, "the answer before is not complete; ask for it without text" end
  if not id and not has_room() then return nil, "too many chats; try again later" end
  local messages = { table.unpack(chat.messages) }
  table.insert(messages, { role = "user", content = text })
  local ids = tok:apply_chat_template(messages, { add_generation_prompt = true, tokenize = true })
  if #ids + LONGEST > context then
    return nil, ("the chat has %d tokens, and an answer up to %d; begin a new one: the context has %d"):format(#ids,
      LONGEST, context)
  end
  if not id then
    id, count = new_id(), count + 1
    chats[id] = chat
  end
  chat.messages, chat.said, chat.new, chat.used = messages, "", "", heed.clock()
  chat.decoder = tok:decoder { skip_special_tokens = true }
  chat.steps = model:generate_steps(ids, {
    max_new_tokens = LONGEST, temperature = 0.7, min_p = 0.05, generator = generator,
    stop = model.config.stop_tokens or { tok.eos_token_id },
    on_token = function(token) chat.new = chat.new .. chat.decoder:add(token) end,
  })
  return id
end

--- Computes for a slice of time. Returns the text that is new and whether the answer is complete; nil if there is no
--- such chat.
function M.hear(id)
  local chat = chats[id]
  if not chat then return nil end
  chat.used = heed.clock()
  if not chat.steps then return "", true end
  local done = chat.steps:advance(SLICE)
  local text = chat.new .. (done and chat.decoder:finish() or "")
  chat.new, chat.said = "", chat.said .. text
  if done then
    table.insert(chat.messages, { role = "assistant", content = chat.said })
    chat.steps, chat.decoder = nil, nil
  end
  return text, done
end

return M
