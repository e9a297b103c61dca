-- Renders damaged chat templates:
--   build/heed tests/fuzz/template_fuzz.lua [seed [count]]
-- Each is a template of tests/chat_templates with a few changes: a word of another in the place of a word, or a piece
-- removed or put in. It must give a text or an error of apply_chat_template; templates that run forever meet the
-- limit. The same seed gives the same templates. With HEED_FUZZ_TRACE, each is printed on standard error first.
local heed = require "heed"
local apply = require "heed.tokenizers.chat"
local chats = dofile("tests/golden/chats.lua")[1].chats

local arguments = arg or {}
local seed, count = tonumber(arguments[1]) or 1, tonumber(arguments[2]) or 500
local trace = os.getenv "HEED_FUZZ_TRACE"
math.randomseed(seed)
local random = math.random

local NAMES = { "blocks", "command_r_tools", "deepseek", "gemma", "hermes", "llama3", "phi4", "qwen3", "smollm3" }
local PIECES = {
  "{{", "}}", "{%", "%}", "{#", "#}", "-", "|", "(", ")", "[", "]", "[::-1]", "~", "%", "**", "//", "''", '"', "\\",
  "if", "endif", "for", "endfor", "in", "else", "is", "not", "none", "loop.index0", "messages", "namespace()",
  "{% set x = x %}", "{% macro m(a) %}{{ m(a) }}{% endmacro %}{{ m(1) }}", "{{ 'x' * 9999999999 }}", "range(10 ** 15)",
  "|join", "|tojson", "|sort", ".split('')", "1e309", "-0", "\0", "\255", "\n", ("["):rep(300),
}

local templates, conversations = {}, {}
for i, name in ipairs(NAMES) do
  local file = assert(io.open("tests/chat_templates/" .. name .. ".jinja", "rb"))
  templates[i] = file:read "*a"
  file:close()
end
for _, name in ipairs { "one", "system", "thinking", "calls", "parts" } do
  conversations[#conversations + 1] = assert(chats[name], name)
end

local function one_of(list) return list[random(#list)] end

local function part_of(text)
  local from = random(#text)
  return text:sub(from, from + random(0, 60))
end

local function with_word(text)
  local from, to = text:find("[%a_]+", random(#text))
  if not from then return text end
  local other = one_of(templates)
  return text:sub(1, from - 1) .. (other:match("[%a_]+", random(#other)) or "x") .. text:sub(to + 1)
end

local function changed(text)
  for _ = 1, random(4) do text = with_word(text) end
  for _ = 1, random(0, 1) do
    local from = random(#text + 1)
    local to = from - 1 + (random(2) == 1 and 0 or random(20))
    local piece = one_of { "", one_of(PIECES), part_of(one_of(templates)) }
    text = text:sub(1, from - 1) .. piece .. text:sub(to + 1)
  end
  return text
end

local wrong = 0
for _ = 1, count do
  local template = changed(one_of(templates))
  if trace then io.stderr:write("---\n", template, "\n") end
  local tok = { chat_template = template, bos_token = "<s>", eos_token = "</s>" }
  heed.limit { seconds = 0.2 }
  local fine, text = pcall(apply, tok, one_of(conversations), { add_generation_prompt = random(2) == 1 })
  heed.limit { seconds = math.huge }
  -- Errors of heed's own code begin with a place in it; what follows the function may be a template's own words.
  if type(text) ~= "string" or not fine and not text:find "^apply_chat_template: " then
    wrong = wrong + 1
    print(tostring(text), ("%q"):format(template))
  end
end
print(("%d templates, %d poor messages"):format(count, wrong))
os.exit(wrong == 0 and 0 or 1, true)
