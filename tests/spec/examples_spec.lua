-- The scripts in scripts/examples that need no models other than those of the tests.
local heed = require "heed"
local support = require "tests.support"

local function chat(arguments)
  return support.run(("%s scripts/examples/chat_with_tiny_llama.lua %s"):format(support.heed, arguments))
end

describe("chat_with_tiny_llama.lua", function()
  it("continues a text, and reports the speed", function()
    local result = chat "'Hello there'"
    assert.are.equal(0, result.code, result.err)
    assert.is_truthy(result.out:find "^Hello there[^\n]+\n$")
    assert.is_truthy(result.err:find "^chat_with_tiny_llama: 11 tokens read, 40 written, %d+ a second\n$")
    assert.are.equal(result.out, chat("Hello there").out)
  end)

  it("continues ids greedily, like the reference model", function()
    local case = dofile("tests/golden/decoders.lua")[2]
    local ids, want = {}, {}
    for i, id in ipairs(case.prompt) do ids[i] = id + 1 end
    for i = 1, 5 do
      local id = case.greedy[i] + 1
      want[i] = id <= 95 and string.char(id + 31) or ("<%d>"):format(id)
    end
    local text = table.concat(ids, " ")
    local result = chat("--temperature 0 --tokens 5 " .. text)
    assert.are.equal(text .. table.concat(want) .. "\n", result.out)
  end)

  it("samples the same tokens with the same seed", function()
    local function draw(seed) return chat("--temperature 1.5 --top-k 50 --top-p 0.9 --seed " .. seed .. " abc").out end
    assert.are.equal(draw(3), draw(3))
    assert.are_not.equal(draw(3), draw(4))
  end)

  it("works with low-precision weights", function()
    assert.are.equal(0, chat("--dtype int8 --tokens 3 abc").code)
  end)

  it("prints its usage", function()
    local result = chat "--help"
    assert.are.equal(0, result.code)
    assert.is_truthy(result.out:find "^usage: ")
    for _, name in ipairs { "tokens", "temperature", "top-k", "top-p", "seed", "dtype" } do
      assert.is_truthy(result.out:find("--" .. name, 1, true))
    end
  end)

  it("reports problems with its arguments", function()
    for arguments, message in pairs {
      ["--sead 3"] = "--sead is not known; --help shows what is",
      ["--seed"] = "--seed needs a value; --help shows which",
      ["--tokens many"] = "--tokens needs a value; --help shows which",
      ["--tokens 200 abc"] = "generate: 3 ids and 200 new tokens make 203; max_position_embeddings is 128",
      ["--temperature -1 abc"] = "generate: temperature is the number -1; it must be a finite number of " ..
        "at least 0 (greedy)",
      ["'\195\164'"] = "the text must be of printable ASCII characters, has the byte 195",
    } do
      local result = chat(arguments)
      assert.are.equal(1, result.code)
      assert.are.equal("chat_with_tiny_llama: " .. message .. "\n", result.err)
    end
  end)
end)

describe("speculative.lua", function()
  local function speculative(arguments)
    return support.run(("%s scripts/examples/speculative.lua %s"):format(support.heed, arguments))
  end

  it("writes what the large model writes alone, in fewer passes", function()
    for _, arguments in ipairs { "--steps 20 --tokens 60", "--steps 40 --tokens 40 --tree 2,2,2 --seed 2",
      "--steps 20 --tokens 116 --tree 1,1,1,1,1,1", "--steps 1 --tokens 1 --prompt cat" } do
      local result = speculative(arguments)
      assert.are.equal(0, result.code, result.err)
      local alone, passes = result.out:match "alone: (%d+) passes; with drafts: (%d+) passes, [%d.]+ characters each; "
      assert.is_truthy(result.out:find("the text is the same\n", 1, true), result.out)
      assert.are.equal(arguments:match "%-%-tokens (%d+)", alone)
      assert.is_true(tonumber(passes) < tonumber(alone) or alone == "1", result.out)
    end
  end)

  it("says what is wrong with its arguments", function()
    for arguments, message in pairs {
      ["--sead 3"] = "--sead is not known; --help lists the options",
      ["--tokens 0"] = "--tokens is '0'; --help describes its values",
      ["--tree 2,x"] = "--tree is '2,x'; --help describes its values",
      ["--tree"] = "--tree is ''; --help describes its values",
      ["--prompt X"] = "--prompt has the byte 88, which the rhyme does not have",
      ["--prompt ''"] = "--prompt is ''; it must have at least one character",
      ["--tokens 200"] = "--prompt has 12 characters and --tokens is 200; together they must be at most 128",
    } do
      local result = speculative(arguments)
      assert.are.equal(1, result.code)
      assert.are.equal("speculative: " .. message .. "\n", result.err)
    end
    assert.is_truthy(speculative("--help").out:find "^usage: ")
  end)
end)

describe("attention_zoo.lua", function()
  it("shows the weights of the tokens that a token sees", function()
    local result = support.run(support.heed .. " scripts/examples/attention_zoo.lua")
    assert.are.equal(0, result.code, result.err)
    assert.are.equal("", result.err)
    local kinds, rows = {}, 0
    for line in result.out:gmatch "[^\n]+" do
      local name = line:match "^(%w[^:]*): %w"
      if name then
        kinds[name], kinds[#kinds + 1] = true, name
      else
        local sum, seen = 0, 0
        for number in line:gmatch "%d%.%d%d" do sum, seen = sum + tonumber(number), seen + 1 end
        assert.is_true(seen >= 1 and (kinds[#kinds] == "sinks" and sum < 0.99 or math.abs(sum - 1) <= 0.03), line)
        rows = rows + 1
      end
    end
    assert.are.equal(6 * #kinds, rows)
    for _, name in ipairs { "causal", "window", "softcap", "ALiBi", "rope", "sinks", "grouped queries",
      "cross attention", "padding", "mask" } do
      assert.is_true(kinds[name], name)
    end
  end)
end)

describe("host.c", function()
  it("runs as a host written in C, and frees all memory", function()
    local program = support.build .. "/examples/host"
    local file = io.open(program)
    if not file then return pending "make examples builds it" end
    file:close()
    local result = support.run(support.quote(program))
    assert.are.equal(0, result.code, result.err)
    assert.is_truthy(result.out:find "^by hand: 0%.4534 0%.6328\ndecoded: 8 tokens")
    assert.is_truthy(result.out:find "memory left behind: 0 bytes\n$")
  end)
end)

-- The duration of frames depends on the machine, their number does not.
local function check_game(result)
  assert.are.equal("", result.err)
  assert.are.equal(0, result.code)
  assert.truthy(result.out:find("^6 frames in %d+%.%d+ s; the game and its slice took %d+%.%d+ ms in the worst one, of "
    .. "16%.67; %d were late\n"))
  assert.truthy(result.out:find "forwards? of 1024 × 768")
end

describe("memory.lua", function()
  it("continues where the run before ended", function()
    local folder = support.new_folder()
    local function run()
      local path = support.quote(folder .. "/m.safetensors")
      return support.run(("%s scripts/examples/memory.lua %s"):format(support.heed, path))
    end
    local first, second = run(), run()
    support.remove_folder(folder)
    assert.are.equal("", first.err)
    assert.are.equal("", second.err)
    assert.truthy(first.out:find("a new world: there is no file yet", 1, true))
    assert.truthy(first.out:find("the guard has heard 13 tokens", 1, true))
    assert.truthy(second.out:find("the smith, guard, child have heard 15, 13, 17 tokens", 1, true))
    assert.truthy(second.out:find("the child has heard 22 tokens", 1, true))
  end)
end)

describe("npc.lua", function()
  it("speaks in slices between its frames", function()
    local result = support.run(support.heed .. " scripts/examples/npc.lua 6")
    assert.are.equal(0, result.code)
    assert.truthy(result.out:find "\n6 frames in .- were late\n%d+ tokens, %d+ whole lines, [%d.]+ tokens a second; ",
      result.out)
    assert.truthy(result.out:find "^character: ", result.out)
  end)

  it("speaks with a model that has a chat template, and needs one", function()
    local folder = support.new_folder()
    require("tests.byte_chat").write(folder, 512)
    local result = support.run(("%s scripts/examples/npc.lua 40 %s"):format(support.heed, support.quote(folder)))
    support.remove_folder(folder)
    assert.are.equal(0, result.code, result.err)
    assert.truthy(result.out:find "\n40 frames in .- were late\n%d+ tokens, %d+ whole lines, ", result.out)
    result = support.run(support.heed .. " scripts/examples/npc.lua 4 tests/golden/decoders/llama")
    assert.are.equal(1, result.code)
    assert.truthy(result.err:find("npc: the model has no chat template: ", 1, true))
  end)

  it("shows each line while it is spoken, also one that is not whole in the end", function()
    local lines, whole, tokens = {}, nil, nil
    for line in support.run(support.heed .. " scripts/examples/npc.lua 6").out:gmatch "[^\n]+" do
      lines[#lines + 1] = line:match "^character: (.+)$"
      whole = whole or line:match " (%d+) whole lines"
      tokens = tokens or line:match "^(%d+) tokens"
    end
    local rest = tonumber(tokens) - 24 * tonumber(whole) -- a line has 24 tokens, which the end of the run may cut
    assert.equal(tonumber(whole) + (rest > 0 and 1 or 0), #lines)
    assert.equal(rest > 0, #lines > 0 and lines[#lines]:find "…$" ~= nil)
  end)

  it("says what frames must be", function()
    local result = support.run(support.heed .. " scripts/examples/npc.lua none")
    assert.are.equal(1, result.code)
    assert.truthy(result.err:find("npc: frames must be a number from 1 up", 1, true))
  end)
end)

describe("game_loop.lua", function()
  it("runs a forward pass between its frames", function()
    check_game(support.run(support.heed .. " scripts/examples/game_loop.lua 6"))
  end)

  it("expects a number of frames", function()
    local result = support.run(support.heed .. " scripts/examples/game_loop.lua none")
    assert.are.equal(1, result.code)
    assert.truthy(result.err:find("game_loop: frames must be a number from 1 up", 1, true))
  end)
end)

describe("host_game.c", function()
  local game = (os.getenv "HEED_BUILD" or "build") .. "/examples/host_game"
  local test = support.lua == "5.4" and it or pending -- examples in C are built with 5.4

  test("goes on with a forward beside its frames, on one thread and on two", function()
    check_game(support.run(game .. " 6"))
    check_game(support.run(game .. " 6 2"))
  end)

  test("wants numbers", function()
    local result = support.run(game .. " 0")
    assert.are.equal(1, result.code)
    assert.are.equal("host_game: frames and threads must be numbers from 1 up\n", result.err)
  end)
end)

describe("host_npc.c", function()
  local npc = (os.getenv "HEED_BUILD" or "build") .. "/examples/host_npc"
  local test = support.lua == "5.4" and it or pending -- examples in C are built with 5.4

  test("generates text in slices between its frames", function()
    local folder = support.new_folder()
    require("tests.byte_chat").write(folder, 512)
    local result = support.run(("%s %s 40 Hello"):format(npc, support.quote(folder)))
    local fewer = support.run(("%s %s 1 Hello"):format(npc, support.quote(folder)))
    support.remove_folder(folder)
    assert.are.equal(0, result.code, result.err)
    assert.truthy(result.out:find "\n%d+ frames, the answer is %l+ ?%l*; the worst slice took [%d.]+ ms, of 2\n$")
    assert.are.equal(0, fewer.code, fewer.err)
    assert.truthy(fewer.out:find "\n1 frame, ")
  end)

  test("says what is wrong with the model and the arguments", function()
    local result = support.run(npc .. " tests/golden/decoders/llama")
    assert.are.equal(1, result.code)
    assert.are.equal("host_npc: the model has no tokenizer\n", result.err)
    result = support.run(npc .. " /nowhere")
    assert.are.equal(1, result.code)
    assert.truthy(result.err:find "^host_npc: models.load: ", result.err)
    assert.truthy(support.run(npc).err:find "^usage: host_npc MODEL")
  end)
end)

describe("examples of looking inside", function()
  local function run(name, arguments)
    local result = support.run(("%s scripts/examples/%s.lua %s"):format(support.heed, name, arguments or ""))
    assert.are.equal("", result.err)
    assert.are.equal(0, result.code)
    return result.out
  end

  -- The number in the first column after a name in a table.
  local function cell(out, name)
    return tonumber(out:match("\n" .. name:gsub("%p", "%%%0") .. "[^\n]-%s([%d.]+) %%"))
  end

  local function check_refused(name, arguments, message)
    local result = support.run(("%s scripts/examples/%s.lua %s"):format(support.heed, name, arguments))
    assert.are.equal(1, result.code)
    assert.are.equal(("%s: %s\n"):format(name, message), result.err)
  end

  local outputs = {} -- of induction.lua, by seed
  local function induction(seed)
    outputs[seed] = outputs[seed] or run("induction", seed > 1 and seed or nil) -- 1 is the default
    return outputs[seed]
  end

  it("find heads that look at the token before in layer 1, and induction heads in layer 2", function()
    local out = induction(1)
    local scores = {}
    for row in out:gmatch "\n  layer %d([^\n]+)" do
      local most = 0
      for score in row:gmatch "%d%.%d+" do most = math.max(most, tonumber(score)) end
      scores[#scores + 1] = most
    end
    assert.are.equal(4, #scores) -- layers 1 and 2 by one score, then by the other
    assert.is_true(scores[1] > 0.5 and scores[2] < 0.2)
    assert.is_true(scores[3] < 0.2 and scores[4] > 0.5)
  end)

  it("break copying by ablating these heads, and not by ablating others", function()
    for seed = 1, 2 do
      local out = induction(seed)
      assert.is_true(cell(out, "nothing") > 99)
      assert.is_true(cell(out, "induction heads:") < 10)
      assert.is_true(cell(out, "previous token heads:") < 30)
      assert.is_true(cell(out, "all other heads:") > 90)
    end
  end)

  it("change attention while a model runs", function()
    local out = run "surgery"
    assert.is_true(cell(out, "none") > 99)
    assert.is_true(out:find "\nnone +100%.0 %% +0%.0 %%\n" ~= nil)
    assert.is_true(cell(out, "  its map patched: all weight on the character before") > 95)
    assert.is_true(cell(out, "  its map patched: the same weight on all characters") < 50)
    assert.is_true(cell(out, "sparsemax, in layer 2") > 95)
    assert.is_true(cell(out, "maps smoothed over neighbours, in layer 2") < 70)
  end)

  it("read what a model would say after each layer", function()
    local out = run("logit_lens", "Kw7.Kw7.Kw7")
    local rows = {}
    for row in out:gmatch "([^\n]+)\n" do rows[#rows + 1] = row end
    assert.are.equal(1 + 12, #rows)
    for i = 7, 12 do -- from the second copy on, the last layer says what follows
      local following, guess = rows[i]:match "^.     (.).* (.) +%d+ %%$"
      assert.are.equal(following, guess, rows[i])
    end
  end)

  it("draw what every head attends to", function()
    local out = run("maps", "Kw7.Kw7.")
    local map = out:match "^Layer 1, head 4: the character before\n  ^ K w 7 %. K w 7 %. *\n(.-)\n0 %["
    local number = 0
    for row in map:gmatch "[^\n]+" do -- the strongest weight is left of the diagonal, in the first row on it
      local column = math.max(0, number - 1)
      assert.truthy(row:sub(3 + 2 * column, 4 + 2 * column):find "^[%%@#]", row)
      number = number + 1
    end
    assert.are.equal(9, number)
    assert.truthy(out:find("\n^Kw7.Kw7.\nmean of all heads\n", 1, true))
  end)

  it("invent names, and show what the model does", function()
    local out = run("names", "'' 3")
    local count = 0
    for name in out:match("^[^\n]+"):gmatch "%S+" do
      assert.truthy(name:find "^%u%l+$", name)
      count = count + 1
    end
    assert.are.equal(12, count)
    assert.truthy(out:find "the three most probable characters after each\n  %.  %u ")
    assert.truthy(out:find "\nmean of all heads\n%. → %. 1%.00\n")
    assert.are.equal(out, run("names", "'' 3"))
    for name in run("names", "Mar"):match("^[^\n]+"):gmatch "%S+" do assert.truthy(name:find "^Mar", name) end
  end)

  it("refuse wrong arguments", function()
    check_refused("names", "'a b'", "the beginning is 'a b'; it must be at most 14 letters from A to Z")
    check_refused("names", "Ma x", "the seed must be an integer from 0 up")
    check_refused("maps", "'a b'", 'character 2 is " "; it must be a dot, a digit or a letter from a to z')
    check_refused("maps", ("a"):rep(96), "the text has 96 characters; it must have at most 95")
    check_refused("induction", "x", "the seed must be an integer from 0 up")
    check_refused("surgery", "-1", "the seed must be an integer from 0 up")
    check_refused("logit_lens", "'a b'", 'character 2 is " "; it must be a dot, a digit or a letter from a to z')
    check_refused("logit_lens", ("a"):rep(96), "the text has 96 characters; it must have at most 95")
    check_refused("why", "x.svg y", "usage: why.lua [FILE]")
  end)

  it("find a head that links a pronoun to its noun in few sentences", function()
    local model = io.open(support.build .. "/models/all-MiniLM-L6-v2/model.safetensors", "rb")
    if not model then return pending "make model fetches the model" end
    model:close()
    local out = run "why"
    local mean, clear = out:match "\nlayer 4, head 2 +(%d%.%d+) +in (%d+) of 10\n"
    assert.is_true(tonumber(mean) > 0.1 and tonumber(clear) >= 2 and tonumber(clear) < 10)
    assert.is_truthy(out:find "0%.31  0%.45  The cat ate the apple because it was hungry / ripe%.\n")
  end)
end)

describe("examples of training", function()
  local folder
  before_each(function() folder = support.new_folder() end)
  after_each(function() support.remove_folder(folder) end)

  local function run(name, arguments)
    return support.run(("%s scripts/examples/%s.lua %s"):format(support.heed, name, arguments))
  end

  -- A small GPT on a text of two words, which it learns at once.
  local SMALL = "--layers 1 --width 16 --heads 2 --context 8 --batch 4 --sample 6 --threads 1 "
  local function gpt(arguments)
    local text = folder .. "/text"
    local file = assert(io.open(text, "wb"))
    file:write(("tick tock "):rep(60))
    file:close()
    return run("train_gpt", ("%s--out %s %s %s"):format(SMALL, folder, arguments, text))
  end

  local function check(result)
    assert.are.equal(0, result.code, result.err)
    assert.are.equal("", result.err)
    return result.out
  end

  it("train a GPT that writes, draws its loss, and can be loaded", function()
    local out = check(gpt "--steps 60 --lr 1e-2 --validate 20 --prompt tick --temperature 0")
    assert.truthy(out:find "^%d+ parameters, 600 characters of text, 6 different\n", out)
    local first, last = out:match "step 20: loss ([%d.]+).*step 60: loss ([%d.]+)"
    assert.is_true(tonumber(last) < 0.7 * tonumber(first), out)
    assert.truthy(out:find "\n t[io]ck \n", out)
    local model = assert(require("heed.models.gpt2").load(folder))
    assert.are.equal(8, model.config.n_positions)
    assert.are.equal(" cikot", support.read(folder .. "/characters.txt"))
    assert.truthy(support.read(folder .. "/loss.svg"):find("validation", 1, true))
  end)

  it("save after Ctrl-C, and go on to the same bits", function()
    local arguments = "--steps 1500 --validate 500 --dropout 0.1 "
    check(gpt(arguments))
    local weights, picture = support.read(folder .. "/model.safetensors"), support.read(folder .. "/loss.svg")
    local state = support.read(folder .. "/training.safetensors")
    os.remove(folder .. "/training.safetensors")
    -- interrupted when the first line of progress is there
    local result = support.run(([[log=%s/log
      %s scripts/examples/train_gpt.lua %s --out %s %s %s/text >$log 2>&1 & pid=$!
      while kill -0 $pid 2>/dev/null && ! grep -q '^step 75/' $log; do sleep 0.01; done
      kill -INT $pid; wait $pid; echo $?; cat $log]]):format(folder, support.heed, SMALL, folder, arguments, folder))
    assert.truthy(result.out:find "^130\n.*\nstopped after step %d+; %-%-resume goes on\n$", result.out)
    assert.are_not.equal(weights, support.read(folder .. "/model.safetensors"))
    local out = check(gpt("--resume " .. arguments))
    assert.falsy(out:find("step 75/", 1, true))
    assert.are.equal(weights, support.read(folder .. "/model.safetensors"))
    assert.is_true(state == support.read(folder .. "/training.safetensors"))
    assert.are.equal(picture, support.read(folder .. "/loss.svg"))
    result = gpt("--resume --width 32 " .. arguments)
    assert.are.equal(1, result.code)
    assert.truthy(result.err:find("has\n  600 characters --layers 1 --heads 2 --width 16", 1, true), result.err)
  end)

  it("watch induction heads appear", function()
    local picture = folder .. "/heads.svg"
    local out = check(run("train_induction", "--steps 4 --batch 4 --every 2 --threads 1 --picture " .. picture))
    local steps = {}
    for step in out:gmatch "\n +(%d+) [^\n]* %%" do steps[#steps + 1] = step end
    assert.are.same({ "0", "2", "4" }, steps)
    assert.truthy(support.read(picture):find("induction head", 1, true))
  end)

  local in_c = support.lua == "5.4" and it or pending -- examples in C are built with 5.4
  in_c("train an attention layer in C", function()
    local program = support.build .. "/examples/train"
    local file = io.open(program)
    if not file then return pending "make examples builds it" end
    file:close()
    local out = check(support.run(support.quote(program) .. " 200"))
    local first, last = out:match "^step    1: loss (%d%.%d+)\n.*\nstep  200: loss (%d%.%d+)\nmemory left behind: 0 "
    assert.is_true(tonumber(last) < 0.2 * tonumber(first), out)
    local result = support.run(support.quote(program) .. " x")
    assert.are.equal(1, result.code)
    assert.are.equal("usage: train [STEPS]\n", result.err)
  end)

  it("teach MiniLM who did it #plain", function() -- under the sanitizers: a minute for what other specs try
    if not support.model() then return pending "make model fetches the model" end
    local out = check(run("finetune", "2 " .. folder .. "/lora.safetensors"))
    local these, others = out:match "\nprobe +770 +([%d.]+) %% +([%d.]+) %%\n"
    assert.is_true(tonumber(these) > 40 and tonumber(others) < 90, out)
    assert.truthy(out:find "\nLoRA +74498 +[%d.]+ %% +[%d.]+ %%\n$", out)
    local state = assert(heed.load(folder .. "/lora.safetensors"))
    assert.are.equal("heed.Size([8, 384])", tostring(state["layers.5.attention.W_value.down.weight"].shape))
  end)

  it("say what is wrong with their arguments", function()
    for command, message in pairs {
      ["train_gpt --stepps 3"] = "train_gpt: --stepps is not known; --help lists the options",
      ["train_gpt --steps 0"] = "train_gpt: --steps is '0'; --help describes its values",
      ["train_gpt --dropout 1"] = "train_gpt: --dropout is '1'; --help describes its values",
      ["train_gpt docs"] = "train_gpt: docs: Is a directory; give a text file",
      ["train_gpt --out LICENSE"] = ".*train_gpt: LICENSE/characters.txt: Not a directory",
      ["train_gpt --width 30"] = "train_gpt: --width is 30; it must be a multiple of --heads, 4",
      ["train_gpt LICENSE --context 400"] = "train_gpt: the text has %d+ characters; it must have at least 4010 for "
        .. "--context 400",
      ["train_gpt --resume --out /none"] = "train_gpt: .*/none/training.safetensors.*; leave --resume out to begin",
      ["train_induction --steps"] = "train_induction: --steps needs a value; --help describes it",
      ["train_induction 3"] = "train_induction: 3 is not known; --help lists the options",
      ["train_induction --out LICENSE"] = ".*train_induction: LICENSE/config.json: Not a directory",
      ["train_induction --steps 2 --every 1 --batch 2 --picture LICENSE/x.svg"] = "train_induction: save: .*",
      ["finetune 0"] = "finetune: usage: finetune.lua %[STEPS%] %[FILE%]",
    } do
      local result = run(command:match "^(%S+) (.*)$")
      assert.are.equal(1, result.code)
      assert.truthy(result.err:find("^" .. message:gsub("%-", "%%-") .. "\n$"), result.err)
    end
    assert.truthy(check(run("train_gpt", "--help")):find "^usage: .*%-%-resume")
    assert.truthy(check(run("train_induction", "--help")):find "^usage: .*%-%-picture")
  end)
end)
