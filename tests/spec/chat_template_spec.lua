local apply = require "heed.tokenizers.chat"
local heed = require "heed"

local function read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read "*a"
  file:close()
  return text
end

local HELLO = { { role = "user", content = "Hello" } }

--- The text that a template makes of one message.
local function rendered(template, options)
  return apply({ chat_template = template, bos_token = "<s>", eos_token = "</s>" }, HELLO, options)
end

local function refusal(template, options)
  local fine, message = pcall(rendered, template, options)
  assert.is_false(fine)
  return message
end

describe("chat templates", function()
  local set = dofile "tests/golden/chats.lua"
  local about, groups, names = set[1], {}, {}
  for i = 2, #set do
    local case = set[i]
    if not groups[case.template] then names[#names + 1] = case.template end
    groups[case.template] = groups[case.template] or {}
    table.insert(groups[case.template], case)
  end

  for _, name in ipairs(names) do
    it(("of the shape of %s's give transformers' text"):format(name), function()
      local template = read("tests/chat_templates/" .. name .. ".jinja")
      local tok = { chat_template = template, bos_token = about.tokens.bos_token, eos_token = about.tokens.eos_token }
      for _, case in ipairs(groups[name]) do
        local fine, text = pcall(apply, tok, about.chats[case.chat], about.options[case.options])
        if case.raises then
          assert.is_false(fine)
          assert.matches("^[^\n]*apply_chat_template: ", text)
        else
          assert.equal(case.text, text)
        end
      end
    end)
  end

  it("are refused by name and line where they use what is not supported", function()
    for template, message in pairs {
      ["\n{% include 'x' %}"] = "line 2 of the template: the tag 'include' is not supported",
      ["{{ 1 | frob }}"] = "line 1 of the template: the filter 'frob' is not supported",
      ["{{ 1 is frob }}"] = "line 1 of the template: the test 'frob' is not supported",
      ["a\n{{ messages.pop() }}"] = "line 2 of the template: a list has no method 'pop' that is supported",
      ["{{ frob() }}"] = "'frob' is called; it must be a macro or a known function",
      ["{% if x %}"] = "the template ends before 'endif'",
      ["{{ 'x }}"] = "a string has no end",
      ["{{ x"] = "'{{' has no '}}'",
      ["{# x"] = "'{#' has no '#}'",
      ["{{ 1 + }}"] = "'}}' comes where a value must be",
      ["{{ 1 / 0 }}"] = "a division by 0",
      ["{{ 'a' + 1 }}"] = "'+' is applied to a string and a number; '~' joins values of all kinds",
      ["{{ x.y.z }}"] = "'y' of an undefined value is used",
      ["{% set x.y = 1 %}"] = "'x' is not a namespace",
      ["{{ raise_exception('no ' ~ 'way') }}"] = "apply_chat_template: no way",
      ["{{ strftime_now('%Q') }}"] = "strftime_now: '%Q' has a field that is not supported",
      ["\255"] = "the template is not valid UTF-8 at byte 1",
      ["{{ messages | tojson | tojson | frob }}"] = "the filter 'frob'",
      ["{% for x in 1 %}{% endfor %}"] = "what a loop goes through is a number",
    } do
      local found = refusal(template)
      assert.is_truthy(found:find(message, 1, true), found)
    end
  end)

  it("name the message that a loop has come to", function()
    local messages = { { role = "user", content = "a" }, { role = "tool", content = { x = 1 } } }
    local function problem(template)
      return select(2, pcall(apply, { chat_template = template }, messages))
    end
    assert.matches("line 2 of the template, message 2 %(tool%): '%+' is applied to", problem(
      "{% for m in messages %}\n{{ 'x' + m.content }}{% endfor %}"))
    assert.matches("apply_chat_template: message 2 %(tool%): no tools$", problem(
      "{% for m in messages[1:] %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{% endfor %}"))
    assert.matches("apply_chat_template: too late$", problem(
      "{% for m in messages %}{% endfor %}{{ raise_exception('too late') }}"))
  end)

  for _, case in ipairs(dofile "tests/golden/template_strings.lua") do
    it(("have Python's methods of strings, for %q"):format(case.text), function()
      for i, expression in ipairs(case.expressions) do
        local template = "{% set y = " .. expression .. " %}{{ y if y is string or y is number else y | join('|') }}"
        assert.equal(case.values[i], rendered(template, { x = case.text }), expression)
      end
    end)
  end

  it("refuse empty separators, as Python does", function()
    for expression, message in pairs {
      ["'a'.split('')"] = "split: the separator is empty", ["'a'.rsplit('')"] = "rsplit: the separator is empty",
      ["'a'.partition('')"] = "partition: the separator is empty",
      ["'a'.replace('', 'b')"] = "replace: the text to replace is empty",
      ["'a'.count(1)"] = "count is applied to a number; it must be a string",
      ["'a'.find(none)"] = "find is applied to None; it must be a string",
    } do
      local found = refusal("{{ " .. expression .. " }}")
      assert.is_truthy(found:find(message, 1, true), found)
    end
  end)

  it("take work in proportion to their size, whatever the texts are", function()
    local function work_of(template, n, options)
      local chat = {
        { role = "user", content = ("a"):rep(n) }, { role = "user", content = ("a"):rep(n / 2) .. "b" },
        { role = "user", content = "x" .. (" "):rep(n) .. "y" .. (" "):rep(n) },
      }
      local tok = { chat_template = template:gsub("@", function() return (" "):rep(n) end) }
      tok.special_tokens, tok.encode = { chat[1].content, chat[2].content, "a" }, function() return {} end
      heed.limit { work = 1e12 }
      apply(tok, chat, options)
      local work = 1e12 - heed.limit().work
      heed.limit { work = math.huge }
      return work
    end
    local function check(name, template, options)
      local once, twice = work_of(template, 2 ^ 14, options), work_of(template, 2 ^ 15, options)
      assert.is_true(once > 2 ^ 7 and twice < 2.3 * once, ("%s: %g and %g units"):format(name, once, twice))
    end
    local a, b, spaces = "messages[0].content", "messages[1].content", "messages[2].content"
    for _, expression in ipairs {
      a .. ".strip(" .. a .. ")", b .. ".strip(" .. a .. ")", b .. " in " .. a, a .. ".split(" .. b .. ")",
      a .. ".split('a')", a .. ".find(" .. b .. ")", a .. ".replace(" .. b .. ", 'x')", a .. ".count(" .. b .. ")",
      a .. ".partition(" .. b .. ")", spaces .. " | trim", spaces .. ".split()", a .. " | upper", a .. " == " .. b,
    } do
      check(expression, "{% set x = " .. expression .. " %}")
    end
    local all = "{% for m in messages %}{{ m.content }}{% endfor %}"
    check("continue_final_message", all, { continue_final_message = true })
    check("spaces before a tag", "x@y@{{- 1 }}")
    check("special tokens", all, { tokenize = true })
  end)

  it("are bounded in work, size and nesting", function()
    local endless = "{% for a in range(9999999) %}{% for b in range(9999999) %}{% endfor %}{% endfor %}"
    assert.matches("steps; it may never end", refusal(endless))
    assert.matches("bytes; the template may make at most", refusal "{{ ('x' * 999999) * 999999 }}")
    assert.matches("macros are nested more than", refusal "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}")
    assert.matches("are nested", refusal("{{ " .. ("("):rep(5000) .. "1" .. (")"):rep(5000) .. " }}"))
    assert.matches("are nested", refusal("{{ " .. ("not "):rep(5000) .. "1 }}"))
    assert.matches("are nested", refusal(("{% if 1 %}"):rep(5000)))
    assert.matches("are nested", refusal("{{ x" .. ("[0]"):rep(5000) .. " }}"))
  end)

  it("get the time that is given", function()
    assert.equal(os.date("%d %b %Y", 86400), rendered("{{ strftime_now('%d %b %Y') }}", { now = 86400 }))
  end)
end)

describe("apply_chat_template", function()
  it("names what is wrong with its arguments", function()
    for _, case in ipairs {
      { "no", nil, "messages is a string ('no'); it must be a list of messages" },
      { HELLO[1], nil, "messages is a table; it must be a list of messages" },
      { { {} }, nil, "message 1 is a table; it must be a table with a role and a content" },
      { { setmetatable({}, { __index = { role = "user" } }) }, nil,
        "message 1 is a table; it must be a table with a role and a content of its own" },
      { { { role = "user", content = "\255" } }, nil, "message 1.content is not valid UTF-8 at byte 1" },
      { { { role = "user", content = print } }, nil, "message 1.content is a function" },
      { HELLO, { tools = 1 }, "tools is the number 1; it must be a table" },
      { HELLO, { tokenize = 1 }, "tokenize is the number 1; it must be a boolean" },
      { HELLO, { add_generation_prompt = true, continue_final_message = true }, "are both given" },
    } do
      local fine, message = pcall(apply, { chat_template = "x" }, case[1], case[2])
      assert.is_false(fine)
      assert.is_truthy(message:find(case[3], 1, true), message)
    end
    local _, message = pcall(apply, {}, HELLO)
    assert.matches("the tokenizer has no chat_template; pass one", message)
  end)

  it("takes one of several templates by name", function()
    local tok = { chat_template = { default = "plain", tool_use = "tools" } }
    assert.equal("plain", apply(tok, HELLO))
    assert.equal("tools", apply(tok, HELLO, { tools = { {} } }))
  end)

  it("continues the last message", function()
    local template = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }} [end]\n{% endfor %}"
    local chat = { { role = "user", content = "Write" }, { role = "assistant", content = "Once upon" } }
    assert.equal("[user] Write [end]\n[assistant] Once upon",
      apply({ chat_template = template }, chat, { continue_final_message = true }))
  end)

  --- A tokenizer whose ids are the texts that it got, with "*" where special tokens are recognised.
  local function recorder()
    local tok = { special_tokens = { "<|im_start|>", "<|im_end|>" } }
    tok.chat_template = read "tests/chat_templates/chatml.jinja"
    function tok.encode(_, text, options)
      assert.is_false(options.add_special_tokens)
      return { (options.allowed_special and "*" or "") .. text }
    end
    return tok
  end

  it("encodes a chat at once, with its special tokens", function()
    assert.same({ "*<|im_start|>user\nHello<|im_end|>\n" }, apply(recorder(), HELLO, { tokenize = true }))
  end)

  it("encodes special tokens in messages as text, unless asked for", function()
    local chat = { { role = "user", content = "a <|im_end|> b" } }
    assert.same({ "*<|im_start|>user\na ", "<|im_end|>", "* b<|im_end|>\n" },
      apply(recorder(), chat, { tokenize = true }))
    assert.equal(1, #apply(recorder(), chat, { tokenize = true, allowed_special = true }))
  end)

  it("sees special tokens that a message completes, or that two messages make", function()
    local tok = recorder()
    tok.chat_template = "{% for m in messages %}{{ m.content | upper | lower | trim }}{% endfor %}<|im_end|>"
    local chat = { { role = "user", content = " <|im_" }, { role = "user", content = "end|> " } }
    assert.same({ "<|im_end|>", "*<|im_end|>" }, apply(tok, chat, { tokenize = true }))
    tok.chat_template = "<|{{ messages[0].content }}|>"
    assert.same({ "<|im_end|>" }, apply(tok, { { role = "user", content = "im_end" } }, { tokenize = true }))
  end)

  it("lets templates make special tokens of a role", function()
    local tok = recorder()
    tok.special_tokens = { "<|user|>" }
    tok.chat_template = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
    assert.same({ "*<|user|>Hello" }, apply(tok, HELLO, { tokenize = true }))
  end)
end)
