-- lighttpd's mod_magnet runs this for each request. It keeps one Lua state for this file in each process:
-- package.loaded lasts from one request to the next; globals do not.
local MOST_BYTES = 2000 -- of a text; the model reads about 250 words of it

-- ---- JSON ---------------------------------------------------------------------------------------

local SHORT = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

--- A JSON string of text that is valid UTF-8.
local function quote(text)
  return '"' .. text:gsub('[%c"\\]', function(c) return SHORT[c] or ("\\u%04x"):format(c:byte()) end) .. '"'
end

local function encode(text, found)
  local parts = {}
  for i, at in ipairs(found) do
    parts[i] = ('{"line": %d, "score": %.6f, "text": %s}'):format(at.line, at.score, quote(at.text))
  end
  return ('{"text": %s, "nearest": [%s]}'):format(quote(text), table.concat(parts, ", "))
end

-- ---- The request --------------------------------------------------------------------------------

--- Raises an error of the client: { status, message }.
local function refuse(status, ...) error { status, string.format(...) } end

local function decode(value)
  value = value:gsub("+", " ")
  for at, escape in value:gmatch "()(%%%w?%w?)" do
    if not escape:find "^%%%x%x$" then
      refuse(400, "byte %d of text is not a valid escape; %%25 is a per cent sign", at)
    end
  end
  return (value:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

--- The parameter text of a query, checked.
local function text_of(query)
  local text
  for name, value in query:gmatch "([^&=]+)=?([^&]*)" do
    if name == "text" then
      if text then refuse(400, "text is given twice") end
      text = value
    end
  end
  if not text then refuse(400, "text is missing; ask as in /similar?text=a+word+or+more") end
  text = decode(text)
  if #text > MOST_BYTES then refuse(400, "text has %d bytes; %d are the most", #text, MOST_BYTES) end
  local length, wrong = utf8.len(text)
  if not length then refuse(400, "text is not valid UTF-8 at byte %d", wrong) end
  if not text:find "%S" then refuse(400, "text is empty") end
  return text
end

-- ---- The answer ---------------------------------------------------------------------------------

local request, response = lighty.r.req_attr, lighty.r.resp_header

local function answer()
  local path, method = request["uri.path"], request["request.method"]
  if path ~= "/similar" then refuse(404, "there is only /similar here") end
  if method ~= "GET" and method ~= "HEAD" then
    response["Allow"] = "GET, HEAD"
    refuse(405, "the method must be GET, and was %s", method)
  end
  local text = text_of(request["uri.query"] or "")
  local nearest = package.loaded["similar.nearest"]
  if not nearest then
    local here = debug.getinfo(1, "S").source:match "^@?(.*/)"
    nearest = assert(loadfile(here .. "nearest.lua"))(here)
    package.loaded["similar.nearest"] = nearest
  end
  return encode(text, nearest(text))
end

--- Writes other errors to lighttpd's log.
local function log(problem)
  if type(problem) == "table" then return problem end
  print(debug.traceback(tostring(problem), 2))
  return { 500, "something went wrong here; the server's log says what" }
end

local fine, body = xpcall(answer, log)
local status = 200
if not fine then
  status, body = body[1], ('{"error": %s}'):format(quote(body[2]))
end
response["Content-Type"] = "application/json"
lighty.r.resp_body.set { body, "\n" }
return status
