--- tok:apply_chat_template(messages, options): the messages of a chat as the text, or the ids, that a model was trained
--- on. It works on every object with chat_template (a text, or texts by name) and, for ids, encode and special_tokens.

local core = require "heed.core"
local E = require "heed.nn.entries"
local render = require "heed.tokenizers.template"
local strings = require("heed.tokenizers.template_strings").methods
local V = require "heed.tokenizers.template_values"

local fail = E.fail
local METHOD = "apply_chat_template"
local DEEPEST = 100 -- nested tables

-- ---- From Lua to the values of templates ----------------------------------------------------------

-- The order of keys, which a Lua table does not have: these first, as JSON schemas and the templates' documentation
-- write them, all others behind them in the order of the alphabet.
local ORDER = {}
for i, name in ipairs {
  "type", "role", "id", "function", "name", "description", "parameters", "arguments", "title", "properties", "items",
  "enum", "required", "additionalProperties", "return", "default", "text", "content",
} do ORDER[name] = i end

local function before(a, b)
  local x, y = ORDER[a] or 1000, ORDER[b] or 1000
  if x ~= y then return x < y end
  return a < b
end

-- Keys whose empty table is a mapping; other empty tables are lists.
local MAPPINGS = { properties = true, parameters = true, arguments = true, ["function"] = true }

local function is_list(value, key)
  if next(value) == nil then return not MAPPINGS[key] end
  return value[1] ~= nil
end

--- The value for templates. Strings are marked as those of a message if `mark` is true; but a role is a single word,
--- which templates put into special tokens, and stays unmarked.
local function converted(value, name, mark, key, depth)
  E.check_cancel(METHOD)
  local kind = type(value)
  if kind == "string" then
    local wrong = core.text.invalid(value)
    if wrong then fail("%s: %s is not valid UTF-8 at byte %d", METHOD, name, wrong) end
    if not mark or key == "role" and value:find "^[%w_-]+$" then return value end
    return V.mark(value)
  elseif kind == "boolean" then
    return value
  elseif kind == "number" then
    return value % 1 == 0 and value or { value, kind = "float" }
  elseif kind ~= "table" or E.kind(value) then
    E.reject(METHOD, name, value, "a string, a number, a boolean or a table of these")
  end
  if depth > DEEPEST then fail("%s: %s is nested more than %d levels deep", METHOD, name, DEEPEST) end
  if is_list(value, key) then
    local items = {}
    for i, each in ipairs(value) do items[i] = converted(each, ("%s[%d]"):format(name, i), mark, nil, depth + 1) end
    return V.list(items)
  end
  local keys = {}
  for each in pairs(value) do
    if type(each) ~= "string" then E.reject(METHOD, "a key of " .. name, each, "a string") end
    keys[#keys + 1] = each
  end
  E.sort(keys, METHOD, before)
  local dict = V.dict()
  for _, each in ipairs(keys) do
    V.set(dict, each, converted(value[each], name .. "." .. each, mark, each, depth + 1))
  end
  return dict
end

--- The list of messages, checked and converted. Reasoning is found by each of its names, as in transformers.
local function conversation_of(messages)
  if type(messages) ~= "table" or E.kind(messages) or messages.role then
    E.reject(METHOD, "messages", messages, "a list of messages, as in {{role = \"user\", content = \"Hello\"}}")
  end
  local list = {}
  for i, message in ipairs(messages) do
    local name = ("message %d"):format(i)
    if type(message) ~= "table" or E.kind(message) or type(message.role) ~= "string" then
      E.reject(METHOD, name, message, "a table with a role and a content")
    end
    local dict = converted(message, name, true, nil, 1)
    if dict.kind ~= "dict" then E.reject(METHOD, name, message, "a table with a role and a content of its own") end
    local values = dict.values
    local reasoning = values.reasoning_content or values.thinking or values.reasoning
    if reasoning then
      V.set(dict, "thinking", values.thinking or reasoning)
      V.set(dict, "reasoning_content", reasoning)
    end
    dict.message = message.role:find "^[%w_-]+$" and #message.role <= 40 and ("%s (%s)"):format(name, message.role)
      or name -- for errors
    list[i] = dict
  end
  return V.list(list)
end

-- ---- The template and its variables ---------------------------------------------------------------

local function template_of(tok, given, has_tools)
  local template = given
  if template == nil then template = tok.chat_template end
  if type(template) == "table" then
    template = has_tools and template.tool_use or template.default
    if not template then fail("%s: chat_template has no template named 'default'; pass one", METHOD) end
  end
  if template == nil then
    fail("%s: the tokenizer has no chat_template; pass one as {chat_template = \"…\"}", METHOD)
  end
  E.check_type(template, "string", METHOD, "chat_template")
  return template
end

local TOKENS = { "bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token" }
local KNOWN = {
  add_generation_prompt = true, tokenize = true, tools = true, documents = true, chat_template = true, now = true,
  continue_final_message = true, allowed_special = true,
}

local function variables_of(tok, messages, options)
  local variables = {
    messages = conversation_of(messages), tools = V.NONE, documents = V.NONE,
    add_generation_prompt = E.boolean(options.add_generation_prompt, false, METHOD, "add_generation_prompt"),
  }
  for _, name in ipairs(TOKENS) do
    if type(tok[name]) == "string" then variables[name] = tok[name] end
  end
  for name, value in pairs(options) do
    if type(name) ~= "string" then E.reject(METHOD, "an option's name", name, "a string") end
    if name == "tools" or name == "documents" then
      E.check_type(value, "table", METHOD, name)
      variables[name] = converted(value, name, true, nil, 1)
    elseif not KNOWN[name] then -- a variable of the template, such as enable_thinking
      variables[name] = converted(value, name, true, nil, 1)
    end
  end
  return variables
end

-- ---- Ids ------------------------------------------------------------------------------------------

--- The ranges of bytes in which a special token's text is made, all or in part, by a message: {first, last}, merged.
local function foreign_ranges(special, text, marks)
  local ranges = {}
  for _, token in ipairs(special) do
    local from_message = 0 -- where the first byte of a message is, from the token on
    for _, first in ipairs(token ~= "" and core.text.positions(text, token, nil, true) or {}) do
      E.check_cancel(METHOD)
      if from_message < first then from_message = marks:find("u", first, true) or math.huge end
      if from_message < first + #token then ranges[#ranges + 1] = { first, first + #token - 1 } end
    end
  end
  E.sort(ranges, METHOD, function(a, b) return a[1] < b[1] or a[1] == b[1] and a[2] < b[2] end)
  local merged = {}
  for _, range in ipairs(ranges) do
    local previous = merged[#merged]
    if previous and range[1] <= previous[2] then
      previous[2] = math.max(previous[2], range[2])
    else
      merged[#merged + 1] = range
    end
  end
  return merged
end

--- The ids of a rendered text. Special tokens of the template are recognised. Those in messages are text, unless
--- `allowed`: the text is cut there, and the pieces are encoded one by one.
local function ids_of(tok, rendered, allowed)
  local text = V.text(rendered)
  local ids = {}
  local function add(first, last, special)
    if first > last then return end
    local options = { add_special_tokens = false, allowed_special = special }
    for _, id in ipairs(tok:encode(text:sub(first, last), options)) do ids[#ids + 1] = id end
  end
  local at = 1
  if not allowed and type(rendered) ~= "string" then
    if type(tok.special_tokens) ~= "table" then
      fail("%s: the tokenizer does not list its special_tokens, so that those in messages cannot be told apart; use "
        .. "allowed_special = true if no message has any", METHOD)
    end
    for _, range in ipairs(foreign_ranges(tok.special_tokens, text, V.marks(rendered))) do
      add(at, range[1] - 1, true)
      add(range[1], range[2], false)
      at = range[2] + 1
    end
  end
  add(at, #text, true)
  return ids
end

-- ---- The method -----------------------------------------------------------------------------------

--- The part of the text that ends with the last message's content, for a model that continues it.
local function continued(rendered, messages)
  local last = messages[#messages]
  if not last or type(last.content) ~= "string" then
    fail("%s: continue_final_message needs a last message whose content is a string", METHOD)
  end
  local after = strings.lstrip(last.content) -- without the spaces before it
  local text, content = V.text(rendered), strings.rstrip(after)
  if content == "" then fail("%s: the last message is empty; there is nothing to continue", METHOD) end
  local behind = core.text.positions(text:reverse(), content:reverse(), 1)[1] -- bytes behind its last place, from 1
  if not behind then fail("%s: the template changes the last message; it cannot be continued", METHOD) end
  local ends, spaces = #text - behind + 1, after:sub(#content + 1) -- which the template may keep
  if text:sub(ends + 1, ends + #spaces) == spaces then ends = ends + #spaces end
  return V.sub(rendered, 1, ends)
end

--- The text of messages {role =, content =, …}, or their ids with tokenize = true. Options that are not known here are
--- variables of the template. Nothing of the tokenizer is changed.
local function apply_chat_template(tok, messages, options)
  if type(tok) ~= "table" and type(tok) ~= "userdata" then
    E.reject(METHOD, "self", tok, "a tokenizer; call the method with a colon")
  end
  if options == nil then options = {} end
  E.check_type(options, "table", METHOD, "options")
  local tokenize = E.boolean(options.tokenize, false, METHOD, "tokenize")
  local allowed = E.boolean(options.allowed_special, false, METHOD, "allowed_special")
  local continues = E.boolean(options.continue_final_message, false, METHOD, "continue_final_message")
  if continues and options.add_generation_prompt then
    fail("%s: continue_final_message and add_generation_prompt are both given; a prompt begins a new message", METHOD)
  end
  if options.now ~= nil then E.integer(options.now, nil, METHOD, "now", "a time as os.time() returns it") end
  local template = template_of(tok, options.chat_template, options.tools ~= nil)
  local rendered = render(template, variables_of(tok, messages, options), options.now)
  if continues then rendered = continued(rendered, messages) end
  if tokenize then return ids_of(tok, rendered, allowed) end
  return V.text(rendered)
end

return core.frame(apply_chat_template)
