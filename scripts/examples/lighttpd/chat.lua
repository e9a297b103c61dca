-- GET /chat?text=… begins a chat, or with &chat=… goes on with one; GET /chat?chat=… asks for more of the answer. Each
-- request computes for some milliseconds only, since other requests wait meanwhile, and answers with the text that is
-- new: {"chat": "…", "text": "…", "done": false}.
local here = debug.getinfo(1, "S").source:match "^@?(.*/)"
local requests = assert(loadfile(here .. "requests.lua", "t", _ENV))() -- with lighty

return requests.serve("/chat", function()
  local given = requests.parameters { text = true, chat = true }
  if not (given.text or given.chat) then requests.refuse(400, "text is missing; ask as in /chat?text=Hello") end
  if given.text then requests.check_text(given.text) end
  local chats = package.loaded["chat.chats"]
  if not chats then
    chats = assert(loadfile(here .. "chats.lua"))(here)
    package.loaded["chat.chats"] = chats
  end
  local id = given.chat
  if given.text then
    local said, problem = chats.say(id, given.text)
    id = said or requests.refuse(409, "%s", problem)
  end
  local text, done = chats.hear(id)
  if not text then requests.refuse(404, "there is no such chat; it may have ended") end
  return ('{"chat": %s, "text": %s, "done": %s}'):format(requests.quote(id), requests.quote(text), tostring(done))
end)
