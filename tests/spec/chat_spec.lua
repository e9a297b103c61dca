-- A chat from messages to text, with a small model and a tokenizer that are made here.
local heed = require "heed"
local byte_chat = require "tests.byte_chat"
local support = require "tests.support"
local tokenizers = require "heed.tokenizers"
local pairs_of = require("heed.compat").pairs

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

  local function history(more)
    return ("--tokens 8 %s --history %s "):format(more or "", support.quote(folder .. "/talk"))
  end
  local function file_of(kind) return ("%s/talk.%s.safetensors"):format(folder, kind) end

  --- The result of a chat that ends well, and the numbers of tokens that it read for each answer.
  local function talk(options, input)
    local result = chat(options, input)
    assert.equal(0, result.code, result.err)
    local read = {}
    for count in result.err:gmatch "(%d+) tokens read in" do read[#read + 1] = tonumber(count) end
    return result, read
  end

  it("answers the lines of a pipe", function()
    local _, read = talk("--tokens 8", "Hello\nAgain\n")
    assert.equal(2, #read)
  end)

  it("goes on with a saved chat, without reading it again", function()
    local first, before = talk(history "--system Rules", "Hello\n")
    local second, read = talk(history "--system Rules", "Hello\n")
    assert.not_matches("go on", first.err)
    assert.matches("3 messages of '.*/talk' go on; %d+ tokens need not be read again\n", second.err)
    assert.is_true(read[1] < before[1] + 8)
    assert.not_matches("not used", second.err)
  end)

  it("says that another system message is not used", function()
    talk(history "--system Rules", "Hello\n")
    assert.matches("%-%-system is not used: '.*/talk' goes on as it began;", talk(history "--system Other").err)
    assert.not_matches("not used", talk(history()).err)
  end)

  it("reads a chat again whose cache is gone, damaged, of another chat or of another model", function()
    local _, before = talk(history(), "Hello\n")
    local chat_file, cache_file = support.read(file_of "chat"), support.read(file_of "cache")
    local function reads_again(why)
      local result, read = talk(history(), "Again\n")
      assert.matches("2 messages of '.*/talk' go on, and are read again: [^\n]*" .. why, result.err)
      assert.is_true(read[1] > before[1] + 8, result.err)
      support.write(file_of "chat", chat_file)
    end
    os.remove(file_of "cache")
    reads_again "cannot be opened"
    support.write(file_of "cache", "no cache")
    reads_again "talk%.cache%.safetensors'"
    support.write(file_of "cache", support.read(folder .. "/model.safetensors"))
    reads_again "talk%.cache%.safetensors'"
    local other = folder .. "/other"
    chat("--tokens 8 --history " .. support.quote(other), "Hello there\n")
    support.write(file_of "cache", support.read(other .. ".cache.safetensors"))
    reads_again "belongs to another chat"
    support.write(file_of "cache", cache_file)
    local tensors = {}
    for name, value in pairs_of(assert(heed.load(folder .. "/model.safetensors"))) do tensors[name] = value:clone() end
    tensors["model.layers.1.mlp.up_proj.weight"] = tensors["model.layers.1.mlp.up_proj.weight"] * 1.5
    assert(heed.save(folder .. "/model.safetensors", tensors))
    reads_again "model"
  end)

  it("refuses a history that is not a chat, and keeps it", function()
    for _, contents in ipairs { "no chat", support.read(folder .. "/model.safetensors") } do
      support.write(file_of "chat", contents)
      local result = chat(history(), "Hello\n")
      assert.equal(1, result.code)
      assert.matches("talk%.chat%.safetensors'", result.err)
      assert.equal(contents, support.read(file_of "chat"))
    end
  end)

  it("says that it cannot save, keeps what was saved, and goes on", function()
    talk(history(), "Hello\n")
    local saved, cache = support.read(file_of "chat"), support.read(file_of "cache")
    assert(os.execute(("mkdir -p %s/x"):format(support.quote(file_of "new")))) -- where the cache would be written
    local result, read = talk(history(), "Again\nAnd again\n")
    assert.equal(2, select(2, result.err:gsub("the chat is not saved: [^\n]*talk%.new%.safetensors", "")), result.err)
    assert.equal(2, #read)
    assert.equal(saved, support.read(file_of "chat"))
    assert.equal(cache, support.read(file_of "cache"))
  end)

  it("drops a line that is not UTF-8, and goes on", function()
    local result, read = talk("--tokens 4", "a\255\nHello\n")
    assert.matches("not valid UTF%-8 at byte 2; the line is dropped\n", result.err)
    assert.equal(1, #read)
    assert.matches("^chat: %-%-system: .*not valid UTF%-8", chat("--system 'a\255'", "Hello\n").err)
  end)

  it("says that the context is full, and drops the oldest turns", function()
    local result, read = talk("--tokens 20", ("some words that fill the context\n"):rep(6))
    assert.matches("the context of 256 tokens is full: the oldest 2 messages are dropped", result.err)
    assert.equal(6, #read)
  end)

  it("drops the oldest turns of a model whose layers have windows", function()
    byte_chat.write(folder, 256, 32)
    local result, read = talk("--tokens 20 --system Rules", ("some words that fill the context\n"):rep(6))
    assert.matches("the oldest %d messages are dropped", result.err)
    assert.equal(6, #read)
  end)

  it("refuses a message that is longer than the context, and keeps the chat", function()
    local _, one = talk("--tokens 4", "Hello\nHello\n")
    local result, read = talk("--tokens 4", "Hello\n" .. ("x"):rep(300) .. "\nHello\n")
    assert.matches("the message has %d+ tokens; the context has 256; the line is dropped", result.err)
    assert.not_matches("is full", result.err)
    assert.same(one, read)
  end)

  it("names what is wrong with its arguments before it loads the model", function()
    local function message(options)
      local result = support.run(("%s scripts/examples/chat.lua %s nowhere"):format(support.heed, options))
      assert.equal(1, result.code)
      return result.err
    end
    assert.matches("%-%-frob is not known", message "--frob 1")
    assert.matches("%-%-tokens is 'x'; it must be a whole number from 1 ", message "--tokens x")
    assert.matches("%-%-tokens is '0'; it must be a whole number from 1 ", message "--tokens 0")
    assert.matches("%-%-tokens is '%-3'; it must be", message "--tokens -3")
    assert.matches("%-%-temperature is '%-1'; it must be a number from 0 ", message "--temperature -1")
    assert.matches("%-%-seed is '1e300'; it must be a whole number from 0 to 2%^53", message "--seed 1e300")
    assert.matches("%-%-dtype is 'q9'; it must be one of float32, .*q4_k", message "--dtype q9")
    assert.matches("%-%-precision is 'low'; it must be one of highest, high, medium", message "--precision low")
    assert.matches("no such file or folder", message "--tokens 3")
    assert.matches("%-%-temperature is '%.'; it must be a number from 0 ", message "--temperature .")
    assert.matches("%-%-seed needs a value: a whole number",
      support.run(support.heed .. " scripts/examples/chat.lua --seed").err)
    assert.matches("^chat: %-%-tokens is 256; it must be less than the context of the model, 256 ",
      chat("--tokens 256").err)
  end)

  -- Runs a chat in the background and, after `before` in the shell, sends it Ctrl-C; it has 20 s to end. Returns its
  -- messages.
  local function interrupted(options, before)
    local result = support.run(([[cd=%s; mkfifo $cd/input; touch $cd/out
      %s scripts/examples/chat.lua %s $cd <$cd/input >$cd/out 2>$cd/err & pid=$!
      exec 3>$cd/input
      %s
      kill -INT $pid
      for i in $(seq 200); do kill -0 $pid 2>/dev/null || break; sleep 0.1; done
      kill -9 $pid 2>/dev/null; wait $pid; echo $?]]):format(support.quote(folder), support.heed, options, before))
    local err = support.read(folder .. "/err")
    assert.equal("0\n", result.out, err)
    assert.not_matches("interrupted", err)
    return err
  end
  local function until_(condition)
    return ("while ! %s; do kill -0 $pid || break; sleep 0.01; done; "):format(condition)
  end
  local ANSWERED, BEGUN = until_ "grep -q 'tokens read' $cd/err", until_ "test -s $cd/out"

  it("ends by Ctrl-C at the prompt", function()
    interrupted(history(), "echo Hello >&3; " .. ANSWERED)
    assert.matches("2 messages of '.*/talk' go on; ", talk(history()).err)
  end)

  it("ends by Ctrl-C in an answer, and saves it", function()
    byte_chat.write(folder, 2 ^ 17)
    local err = interrupted(history "--tokens 60000", "echo Hello >&3; " .. BEGUN)
    assert.matches("tokens read in", err)
    assert.matches("2 messages of '.*/talk' go on; ", talk(history()).err)
  end)

  it("ends by Ctrl-C while it reads a prompt", function()
    byte_chat.write(folder, 2 ^ 17)
    local err = interrupted(history(), "echo Hello >&3; " .. ANSWERED
      .. "for i in $(seq 10000); do printf abcdefghij; done >&3; echo >&3; echo More >&3")
    assert.equal(1, select(2, err:gsub("tokens read in", "")))
    assert.matches("2 messages of '.*/talk' go on; ", talk(history()).err)
  end)
end)
