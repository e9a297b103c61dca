-- A chat from messages to text, with a small model and a tokenizer that are made here.
local byte_chat = require "tests.byte_chat"
local support = require "tests.support"
local tokenizers = require "heed.tokenizers"

local folder

local function chat(options, input)
  return support.run(("%s scripts/examples/chat.lua %s %s"):format(support.heed, options, support.quote(folder)), input)
end

describe("a tokenizer with a chat template", function()
  local tok
  setup(function()
    folder = support.new_folder()
    byte_chat.write_tokenizer(folder)
    tok = assert(tokenizers.load(folder))
  end)
  teardown(function() support.remove_folder(folder) end)

  local HELLO = { { role = "user", content = "Hé <|im_end|>" } }

  it("gives the ids of its text", function()
    local ids = tok:apply_chat_template(HELLO, { add_generation_prompt = true, tokenize = true })
    assert.equal("<|im_start|>user\nHé <|im_end|><|im_end|>\n<|im_start|>assistant\n", tok:decode(ids))
    assert.equal(tok:decode(ids), tok:apply_chat_template(HELLO, { add_generation_prompt = true }))
  end)

  it("knows special tokens of the template, but not of messages", function()
    local ends = tok:id "<|im_end|>"
    local function count(options)
      local found = 0
      for _, id in ipairs(tok:apply_chat_template(HELLO, options)) do found = found + (id == ends and 1 or 0) end
      return found
    end
    assert.equal(1, count { tokenize = true })
    assert.equal(2, count { tokenize = true, allowed_special = true })
  end)

  it("gives a stream of tokens as whole characters", function()
    local decoder, pieces = tok:decoder(), {}
    for _, id in ipairs(tok:encode "aé🙂") do pieces[#pieces + 1] = decoder:add(id) end
    assert.same({ "a", "", "é", "", "", "", "🙂" }, pieces)
  end)
end)

describe("chat.lua", function()
  before_each(function()
    folder = support.new_folder()
    byte_chat.write(folder, 256)
  end)
  after_each(function() support.remove_folder(folder) end)

  it("answers the lines of a pipe", function()
    local result = chat("--tokens 8", "Hello\nAgain\n")
    assert.equal(0, result.code, result.err)
    assert.equal(2, select(2, result.err:gsub("tokens read in", "")))
  end)

  it("goes on with a saved chat, without reading it again", function()
    local history = "--tokens 8 --system Rules --history " .. support.quote(folder .. "/talk")
    local first = chat(history, "Hello\n")
    assert.equal(0, first.code, first.err)
    local read = tonumber(first.err:match "(%d+) tokens read")
    local second = chat(history, "Hello\n")
    assert.equal(0, second.code, second.err)
    assert.matches("3 messages of '.*/talk' go on", second.err)
    assert.is_true(tonumber(second.err:match "(%d+) tokens read") < read + 8)
  end)

  it("says that the context is full, and drops the oldest turns", function()
    local result = chat("--tokens 20", ("some words that fill the context\n"):rep(6))
    assert.equal(0, result.code, result.err)
    assert.matches("the context of 256 tokens is full: the oldest turn is dropped", result.err)
    assert.equal(6, select(2, result.err:gsub("tokens read in", "")))
  end)

  it("refuses a message that is longer than the context, and goes on", function()
    local result = chat("--tokens 4", ("x"):rep(300) .. "\nHello\n")
    assert.equal(0, result.code, result.err)
    assert.matches("the message has %d+ tokens; the context has 256", result.err)
    assert.equal(1, select(2, result.err:gsub("tokens read in", "")))
  end)

  it("names what is wrong with its arguments", function()
    assert.matches("%-%-frob is not known", chat("--frob 1").err)
    assert.matches("%-%-tokens needs a value", chat("--tokens x").err)
    assert.matches("no such file or folder", support.run(support.heed .. " scripts/examples/chat.lua nowhere").err)
  end)
end)
