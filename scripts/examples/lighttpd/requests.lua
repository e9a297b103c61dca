-- What the scripts for requests share: their parameters, JSON, and errors.
local MOST_BYTES = 2000 -- of a text; a sentence encoder reads about 250 words of it

local M = {}

local SHORT = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

--- A JSON string of text that is valid UTF-8.
function M.quote(text)
  return '"' .. text:gsub('[%c"\\]', function(c) return SHORT[c] or ("\\u%04x"):format(c:byte()) end) .. '"'
end

--- Raises an error of the client: { status, message }.
function M.refuse(status, ...) error { status, string.format(...) } end
local refuse = M.refuse

local function decode(name, value)
  value = value:gsub("+", " ")
  for at, escape in value:gmatch "()(%%%w?%w?)" do
    if not escape:find "^%%%x%x$" then
      refuse(400, "byte %d of %s is not a valid escape; %%25 is a per cent sign", at, name)
    end
  end
  return (value:gsub("%%(%x%x)", function(digits) return string.char(tonumber(digits, 16)) end))
end

--- The parameters `names` of the query, decoded; others are ignored.
function M.parameters(names)
  local found = {}
  for name, value in (lighty.r.req_attr["uri.query"] or ""):gmatch "([^&=]+)=?([^&]*)" do
    if names[name] then
      if found[name] then refuse(400, "%s is given twice", name) end
      found[name] = decode(name, value)
    end
  end
  return found
end

--- Refuses a text that a model cannot read.
function M.check_text(text)
  if #text > MOST_BYTES then refuse(400, "text has %d bytes; %d are the most", #text, MOST_BYTES) end
  local length, wrong = utf8.len(text)
  if not length then refuse(400, "text is not valid UTF-8 at byte %d", wrong) end
  if not text:find "%S" then refuse(400, "text is empty") end
end

--- Writes other errors to lighttpd's log.
local function log(problem)
  if type(problem) == "table" then return problem end
  print(debug.traceback(tostring(problem), 2))
  return { 500, "something went wrong here; the server's log says what" }
end

--- Answers a GET request of this path with the JSON that answer() returns, or with its error. Returns the status.
function M.serve(path, answer)
  local request, response = lighty.r.req_attr, lighty.r.resp_header
  local fine, body = xpcall(function()
    local method = request["request.method"]
    if request["uri.path"] ~= path then refuse(404, "there is only %s here", path) end
    if method ~= "GET" and method ~= "HEAD" then
      response["Allow"] = "GET, HEAD"
      refuse(405, "the method must be GET, and was %s", method)
    end
    return answer()
  end, log)
  local status = 200
  if not fine then
    status, body = body[1], ('{"error": %s}'):format(M.quote(body[2]))
  end
  response["Content-Type"] = "application/json"
  lighty.r.resp_body.set { body, "\n" }
  return status
end

return M
