-- An action for haproxy: http-request lua.heed_spam sets txn.spam to true if the body is nearer in meaning to an
-- example of spam than to any other example, and txn.spam_score to the difference of the two similarities. The file
-- HEED_EXAMPLES has lines "spam: text" and "good: text". The encoder runs in slices of 2 ms; between them, haproxy
-- serves other connections.
local SLICE, LONGEST = tonumber(os.getenv "HEED_SLICE") or 2, 2000 -- milliseconds; bytes of a message that are read

local heed = require "heed"
heed.limit { seconds = 5 } -- of one slice, or of loading

-- Loaded before haproxy serves anything.
local function setting(name) return os.getenv(name) or error(name .. " is not set", 0) end
local model = assert(heed.models.load(setting "HEED_MODEL"))
local texts = { spam = {}, good = {} }
for line in assert(io.open(setting "HEED_EXAMPLES", "rb")):lines() do
  local kind, text = line:match "^(%a+):%s*(.*%S)"
  if texts[kind] then table.insert(texts[kind], text) end
end
local vectors = {}
for kind, list in pairs(texts) do
  if #list == 0 then error(("HEED_EXAMPLES has no line that begins with '%s:'"):format(kind), 0) end
  vectors[kind] = model:encode(list)
end

core.register_action("heed_spam", { "http-req" }, function(txn)
  local message = (txn.f:req_body() or ""):sub(1, LONGEST):gsub("[\192-\255][\128-\191]*$", "")
  if not message:find "%S" then return end
  local fine, steps = pcall(model.encode_steps, model, { message }, { ms = SLICE })
  while fine do
    local done
    fine, done = pcall(steps.advance, steps)
    if done then break end
    core.yield()
  end
  if not fine then return txn:set_var("txn.spam", true) end -- such as bytes that are not UTF-8
  local vector = steps.result[1]
  local score = vectors.spam:matmul(vector):max():item() - vectors.good:matmul(vector):max():item()
  txn:set_var("txn.spam", score > 0)
  txn:set_var("txn.spam_score", ("%.3f"):format(score))
end)
