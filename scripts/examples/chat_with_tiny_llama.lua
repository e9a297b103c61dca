-- A Llama continues a text. The model is the small one of the tests with random weights: its text has no meaning, but
-- everything works as with a large model. Its first 95 of 197 tokens stand for the printable ASCII characters.
local heed = require "heed"

local USAGE = [[
usage: heed chat_with_tiny_llama.lua [OPTIONS] [TEXT | ID...]
Continues a text, or token ids (from 1 to 197), and shows each token at once.
  --tokens N         number of new tokens (40)
  --temperature T    0: always the most likely token (the default); higher: more surprising; 1 with --top-k, --top-p
  --top-k K          samples from the K most likely tokens
  --top-p P          samples from the most likely tokens that together have the probability P
  --seed N           seed for sampling (1)
  --dtype D          dtype of the weights: float32, bfloat16, float16 or int8
  --help             shows this text]]

local function note(...) io.stderr:write("chat_with_tiny_llama: ", string.format(...), "\n") end

local function stop(...)
  note(...)
  os.exit(1)
end

-- ---- Arguments ----------------------------------------------------------------------------------

local options = { tokens = 40, temperature = nil, ["top-k"] = nil, ["top-p"] = nil, seed = 1, dtype = "float32" }
local function whole(number) return number and number % 1 == 0 and math.floor(number) or nil end
local KNOWN = { tokens = whole, temperature = tonumber, ["top-k"] = whole, ["top-p"] = tonumber, seed = whole,
  dtype = tostring }
local words, at = {}, 1
while arg[at] do
  local name = arg[at]:match "^%-%-(.*)$"
  if name == "help" then
    print(USAGE)
    os.exit(0)
  elseif name then
    if not KNOWN[name] then stop("--%s is not known; --help shows what is", name) end
    local value = arg[at + 1]
    if KNOWN[name] ~= tostring then value = KNOWN[name](tonumber(value)) end
    if value == nil then stop("--%s needs a value; --help shows which", name) end
    options[name], at = value, at + 1
  else
    words[#words + 1] = arg[at]
  end
  at = at + 1
end

-- ---- Characters and ids -------------------------------------------------------------------------

local FIRST, LAST = 32, 126 -- the bytes of ids 1 to 95; other tokens are shown as numbers

local function text_of(id) return id <= LAST - FIRST + 1 and string.char(id + FIRST - 1) or ("<%d>"):format(id) end

local prompt = {}
local text = #words > 0 and table.concat(words, " ") or "Once upon a time"
if text:find "^[%d ]+$" then
  for id in text:gmatch "%d+" do prompt[#prompt + 1] = tonumber(id) end
else
  for i, byte in ipairs { text:byte(1, -1) } do
    if byte < FIRST or byte > LAST then
      stop("the text must be of printable ASCII characters, has the byte %d", byte)
    end
    prompt[i] = byte - FIRST + 1
  end
end

-- ---- The model ----------------------------------------------------------------------------------

local top = arg[0]:match "^(.*/)scripts/examples/[^/]*$" or ""
local model, problem = require("heed.models.llama").load(top .. "tests/golden/tiny_llama.safetensors", {
  vocab_size = 197, hidden_size = 64, intermediate_size = 112, num_hidden_layers = 3, num_attention_heads = 8,
  num_key_value_heads = 2, max_position_embeddings = 128,
})
if not model then stop("%s", problem) end

local draws = options["top-k"] or options["top-p"]
local status = os.execute "test -t 2"
local terminal = status == true or status == 0 -- Lua 5.1 returns a number
local function progress(form, ...)
  if terminal then io.stderr:write("\r\27[K", string.format(form, ...)) end
end

local fine, trouble = pcall(function()
  model:to(options.dtype)
  progress("reading %d tokens…", #prompt)
  io.write(text)
  io.flush()
  local start, first = heed.clock(), nil
  local tokens = model:generate(prompt, {
    max_new_tokens = options.tokens, temperature = options.temperature or draws and 1 or 0,
    top_k = options["top-k"], top_p = options["top-p"], generator = heed.Generator(options.seed),
    on_token = function(id)
      if not first then
        progress ""
        first = heed.clock()
      end
      io.write(text_of(id))
      io.flush()
    end,
  })
  io.write "\n"
  local seconds = heed.clock() - (first or start)
  local rate = math.max(#tokens - 1, 0) / math.max(seconds, 1e-9) -- the first one is part of the reading
  note("%d tokens read, %d written, %.0f a second", #prompt, #tokens, rate)
end)
if not fine then
  io.write "\n"
  stop("%s", (tostring(trouble):gsub("^.-:%d+: ", "", 1)))
end
