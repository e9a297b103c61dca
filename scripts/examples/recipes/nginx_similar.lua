-- Answers GET /similar?text=… in nginx. The encoder runs in slices of 2 ms, and the worker serves other requests in
-- between. Model and lines are read once in each worker.
local SLICE, MOST, LONGEST = tonumber(os.getenv "HEED_SLICE") or 2, 5, 2000 -- milliseconds; lines; bytes of a text

local heed = require "heed"

-- All texts' vectors, without blocking: the worker serves other requests while this one sleeps. Not 0 seconds: without
-- OpenResty's patches, nginx runs such timers at once, before it reads from connections, and warns of each.
local function encode(model, texts)
  local steps = model:encode_steps(texts, { ms = SLICE })
  while not steps:advance() do ngx.sleep(0.001) end
  return steps.result
end

local function setting(name) return os.getenv(name) or error(name .. " is not set", 0) end

local kept = package.loaded["heed.recipe"] or {} -- lasts from one request to the next
package.loaded["heed.recipe"] = kept
local function load()
  if kept.vectors then return kept end
  heed.limit { seconds = 5 } -- of one slice, or of loading
  local model = assert(heed.models.load(setting "HEED_MODEL"))
  local lines = {}
  for line in assert(io.open(setting "HEED_LINES", "rb")):lines() do
    if line:find "%S" then lines[#lines + 1] = line end
  end
  local vectors = encode(model, lines)
  kept.model, kept.lines, kept.vectors = model, lines, vectors -- at the end: another request may load, too
  return kept
end

local function answer(status, text)
  ngx.status = status
  ngx.header.content_type = "text/plain; charset=utf-8"
  ngx.print(text)
end

local text = ngx.req.get_uri_args().text
if type(text) ~= "string" or not text:find "%S" then
  return answer(400, "text is missing; ask as in /similar?text=a+word\n")
end
if #text > LONGEST then return answer(400, ("text has %d bytes; it must have at most %d\n"):format(#text, LONGEST)) end
local all = load()
local fine, query = pcall(encode, all.model, { text })
if not fine then return answer(400, query .. "\n") end -- such as bytes that are not UTF-8
local scores, order = all.vectors:matmul(query[1]):topk(math.min(MOST, #all.lines))
local found, indices = {}, order:tolist()
for i, score in ipairs(scores:tolist()) do found[i] = ("%.3f  %s\n"):format(score, all.lines[indices[i]]) end
answer(200, table.concat(found))
