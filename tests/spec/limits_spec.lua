-- heed.limit: the limits of a state; exceeding one leaves everything usable.
local heed = require "heed"
local nn = heed.nn
local raises = require "tests.raises"
local support = require "tests.support"

local MIB = 1048576

-- The message of the error raised by f, without file and line.
local function failure(f)
  local ok, message = pcall(f)
  assert.is_false(ok)
  return (message:gsub("^.-:%d+: ", ""))
end

-- f raises a message that begins so, and ends so.
local function begins(start, f, finish)
  local message = failure(f)
  assert.equal(start, message:sub(1, #start))
  if finish then assert.equal(finish, message:sub(-#finish)) end
end

-- Runs a script in a new process.
local function run(script)
  return support.with_script(script, function(path)
    return support.run(support.heed .. " " .. support.quote(path))
  end)
end

describe("heed.limit", function()
  after_each(function()
    heed.limit { memory = math.huge, seconds = math.huge, threads = math.huge, files = true }
    heed.set_num_threads(1)
  end)

  it("returns no limits initially, and then those that were set", function()
    local none = { memory = math.huge, seconds = math.huge, work = math.huge, threads = math.huge, files = true,
      map = true, final = false }
    assert.same(none, heed.limit())
    heed.limit { memory = 2 ^ 40, threads = 4 }
    heed.limit { seconds = 60.5, files = false }
    assert.same({ memory = 2 ^ 40, seconds = 60.5, work = math.huge, threads = 4, files = false, map = true,
      final = false }, heed.limit())
    local before = heed.limit()
    heed.limit { memory = math.huge, files = true }
    heed.limit(before)
    assert.same(before, heed.limit())
  end)

  it("rejects invalid limits, and then changes nothing", function()
    local before = heed.limit()
    for _, value in ipairs { 0, -1, 0.5, "100", {}, 0 / 0 } do
      begins("limit: memory is ", function()
        heed.limit { seconds = 1, memory = value }
      end, "; it must be a number of bytes above 0, or math.huge")
    end
    for _, value in ipairs { 0, -1, "1", {}, 0 / 0 } do
      begins("limit: seconds is ", function()
        heed.limit { seconds = value }
      end, "; it must be a number above 0, or math.huge")
    end
    for _, value in ipairs { 0, -1, 1.5, 1025, "1", {} } do
      begins("limit: threads is ", function()
        heed.limit { threads = value }
      end, "; it must be a whole number from 1 to 1024, or math.huge")
    end
    raises("limit: files is the number 0; it must be true or false", function() heed.limit { files = 0 } end)
    raises("limit: final is the number 1; it must be true or false", function() heed.limit { final = 1 } end)
    raises("limit: there is no option 'time'; the options are memory, seconds, work, threads, files, "
      .. "map, final", function()
      heed.limit { time = 1 }
    end)
    assert.same(before, heed.limit())
  end)

  it("bounds the memory of tensors; freed memory can be allocated again", function()
    collectgarbage()
    collectgarbage()
    local held = heed.info().memory_in_use
    heed.limit { memory = held + 8 * MIB }
    local message = failure(function() return heed.zeros(4 * MIB) end)
    assert.matches("^zeros: memory limit exceeded: 16%.0 MiB requested, the limit is [%d.]+ MiB, [%d.]+ %a+ in use$",
      message)
    assert.is_true(heed.info().memory_in_use < held + 8 * MIB)
    for _ = 1, 20 do assert.equal(MIB, heed.ones(MIB):sum():item()) end -- 4 MiB each, freed by the garbage collector
  end)

  it("is named as the reason for requests of any size, and whatever is allocated after them", function()
    heed.limit { memory = heed.info().memory_in_use + 8 * MIB }
    assert.matches("^zeros: memory limit exceeded: 4%.0 EiB requested", failure(function()
      return heed.zeros(2 ^ 40, 2 ^ 20)
    end))
  end)

  it("may be below the memory in use: allocations then fail until they fit", function()
    local x = heed.zeros(MIB)
    for _ = 1, 2 do collectgarbage() end -- otherwise garbage of other tests could be freed to make memory available
    heed.limit { memory = heed.info().memory_in_use - MIB }
    assert.matches("^ones: memory limit exceeded: 4%.0 KiB requested", failure(function() return heed.ones(1024) end))
    x:release()
    assert.equal(1024, heed.ones(1024):numel())
  end)

  it("bounds set_num_threads and the number of running threads", function()
    heed.set_num_threads(4)
    heed.limit { threads = 2 }
    assert.equal(2, heed.get_num_threads())
    raises("set_num_threads: n is 3; it must be at most 2, the limit", function() heed.set_num_threads(3) end)
    heed.set_num_threads(1)
    heed.limit { threads = math.huge }
    heed.set_num_threads(3)
  end)

  it("stops an operation that takes longer, and the next one works", function()
    heed.limit { seconds = 0.01 }
    local message = failure(function() return heed.randn(30 * MIB) end)
    assert.equal("randn: time limit exceeded: 0.01 s since the call began", message)
    assert.equal(3, heed.zeros(3):numel())
  end)

  it("stops a dot product of any length, whatever the strides", function()
    local x = heed.ones(1):expand(2 ^ 33)
    local row = heed.ones(1, 1):expand(1, 2 ^ 33)
    heed.limit { seconds = 0.01 }
    begins("dot: time limit exceeded", function() return x:dot(x) end)
    begins("matmul: time limit exceeded", function() return row:matmul(row.T) end)
    begins("linear: time limit exceeded", function() return heed.linear(row, row) end)
  end)

  it("starts again with each call, also after one that was cancelled", function()
    local mha, x = nn.MultiHeadAttention(8, 8, 6, 0.5, 2), heed.rand(1, 3, 8)
    local g, cache, long = heed.Generator(1), mha:new_cache(), heed.ones(1):expand(2 ^ 33)
    local state, steps = g:get_state(), mha:steps(x)
    mha(x, { cache = cache })
    heed.limit { seconds = 0.25 }
    local calls = {
      forward = function() return mha(x, { need_weights = true }) end,
      head = function() return mha:head(1) end,
      split = function() return mha:split() end,
      field = function() return mha.W_query.weight:clone() end,
      assignment = function() mha.W_query.weight = nn.Parameter(heed.ones(8, 8)) end,
      store = function() return mha:to "float32" end,
      new_cache = function() return mha:new_cache() end,
      clone = function() return cache:clone() end,
      reorder = function() return cache:reorder { 1 } end,
      truncate = function() return cache:truncate(2) end,
      steps = function() return mha:steps(x) end,
      advance = function() return steps:advance(1000) end,
      call = function() return steps() end,
      set_state = function() return g:set_state(state) end,
      read = function() return x[1], x[{ {}, { 1, 2 } }], x[x:gt(0)] end,
      write = function() x[1], x[{ {}, { 1, 2 } }], x[x:gt(0)] = 1, 2, 3 end,
      iterate = function() for _, row in x:iter() do assert(row) end end,
      print = function() return tostring(x) end,
      bytes = function() return heed.from_string(x:to_string(), "float32", { 24 }) end,
    }
    for name, call in pairs(calls) do
      begins("dot: time limit exceeded", function() return long:dot(long) end)
      local ok, message = pcall(call)
      assert(ok, name .. ": " .. tostring(message))
    end
  end)

  it("gives each call of the script its own time", function()
    heed.limit { seconds = 0.5 }
    local x, first = heed.rand(64, 64), heed.clock()
    while heed.clock() - first < 0.8 do x:matmul(x) end
  end)

  it("stops a tokenizer", function()
    local tokenizer = support.with_file(function(path)
      support.write(path, "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
      return assert(require("heed.tokenizers.wordpiece").load(path))
    end)
    local text, ids = ("a "):rep(500000), {}
    for i = 1, 500000 do ids[i] = 6 end
    heed.limit { seconds = 0.05 }
    begins("encode: time limit exceeded", function() return tokenizer:encode(text) end)
    begins("decode: time limit exceeded", function() return tokenizer:decode(ids) end)
    assert.same({ 3, 6, 4 }, tokenizer:encode "a")
  end)

  support.where("frames", it, pending)("stops a module written in Lua as a whole, even if it catches errors", function()
    local Endless, rounds = nn.Module.class "Endless", 0
    function Endless.forward(_, x)
      while pcall(x.matmul, x, x) do rounds = rounds + 1 end
      return x + 1
    end
    heed.limit { seconds = 0.05 }
    local x, first = heed.rand(8, 8), heed.clock()
    assert.matches("^add: time limit exceeded: 0%.05 s since", failure(function() return Endless()(x) end))
    assert.is_true(heed.clock() - first >= 0.05)
    assert.is_true(rounds > 0)
    assert.equal(64, (x + 1):numel())
  end)

  support.where("frames", it, pending)("also applies to the call in which it is set", function()
    local Strict = nn.Module.class "Strict"
    function Strict.forward(_, x)
      heed.limit { seconds = 0.02 }
      while true do x:matmul(x) end
    end
    assert.matches("^matmul: time limit exceeded: 0%.02 s since", failure(function()
      return Strict()(heed.rand(8, 8))
    end))
  end)

  it("restores a generator when a draw is cancelled", function()
    heed.manual_seed(7)
    local expected = heed.rand(5)
    heed.manual_seed(7)
    heed.limit { seconds = 0.002 }
    assert.is_false(pcall(heed.randn, 30 * MIB))
    assert.is_false(pcall(heed.randperm, 30 * MIB))
    heed.limit { seconds = math.huge }
    assert.is_true(heed.rand(5):equal(expected))
  end)

  it("closes every access to files", function()
    local load_tokenizer = require("heed.tokenizers.wordpiece").load
    local Bert, GPT2, Llama = require "heed.models.bert", require "heed.models.gpt2", require "heed.models.llama"
    local x = heed.zeros(3)
    support.with_file(function(path)
      heed.limit { files = false }
      local doors = {
        function() return heed.load(path) end,
        function() return heed.load(path .. ".npy") end,
        function() return heed.load(path .. ".npz") end,
        function() return heed.load(path .. ".safetensors") end,
        function() return heed.load(path .. ".safetensors.index.json") end,
        function() return heed.save(path .. ".npy", x) end,
        function() return heed.save(path .. ".npz", { x = x }) end,
        function() return heed.save(path .. ".safetensors", { x = x }) end,
        function() return require("heed.plot").bars({ 1 }, { file = path .. ".svg" }) end,
        function() return load_tokenizer(path) end,
        function() return require("heed.tokenizers.fairseq").load(path) end,
        function() return Bert.load(path) end,
        function() return GPT2.load(path) end,
        function() return Llama.load "tests" end,
      }
      for i, door in ipairs(doors) do
        local ok, message = pcall(door)
        assert.is_false(ok, "door " .. i)
        assert.matches("the limits do not allow files$", message)
      end
      assert.equal("", support.read(path))
    end)
  end)

  it("can only be tightened once it is final", function()
    local done = run [[
      local heed = require "heed"
      heed.limit { memory = 2 ^ 30, seconds = 5, files = false, final = true }
      for _, wider in ipairs { { memory = 2 ^ 31 }, { memory = math.huge }, { seconds = 6 }, { seconds = math.huge },
                               { files = true }, { final = false } } do
        print((select(2, pcall(heed.limit, wider)):gsub("^.-:%d+: ", "")))
      end
      heed.limit { memory = 2 ^ 29, seconds = 4, threads = 8, final = true }
      print(heed.limit().memory == 2 ^ 29, heed.limit().seconds == 4, heed.limit().threads, heed.limit().files)
      print(pcall(heed.limit, { threads = 9 }))]]
    assert.equal("", done.err)
    local lines = {}
    for line in done.out:gmatch "[^\n]+" do lines[#lines + 1] = line end
    local at_most = "; the limits are final, so it must be at most %s$"
    assert.matches("^limit: memory is the number 2.*" .. at_most:format "1073741824", lines[1])
    assert.matches("^limit: memory is the number inf" .. at_most:format "1073741824", lines[2])
    assert.matches("^limit: seconds is the number 6" .. at_most:format "5", lines[3])
    assert.matches("^limit: seconds is the number inf" .. at_most:format "5", lines[4])
    assert.equal("limit: files is true; the limits are final, so it must be false", lines[5])
    assert.equal("limit: final is false; the limits are final already, so it must be true", lines[6])
    assert.equal("true\ttrue\t8\tfalse", lines[7])
    assert.matches("^false\t.*threads is the number 9; the limits are final, so it must be at most 8$", lines[8])
  end)
end)

describe("a state without io, os, debug and package", function()
  it("can use everything that needs no file", function()
    local done = run [[
      local heed = require "heed"
      local nn, raised = heed.nn, pcall
      local Tokenizer = require "heed.tokenizers.wordpiece"
      local GPT2 = require "heed.models.gpt2"
      io, os, debug, package, require, dofile, loadfile, load = nil, nil, nil, nil, nil, nil, nil, nil
      heed.limit { files = false, final = true }
      heed.manual_seed(123)
      local x = heed.randn(2, 6, 8)
      local mha = nn.MultiHeadAttention(8, 8, 6, 0.0, 2)
      local y, info = mha(x, { need_weights = true })
      local wrapper = mha:split()
      assert(heed.allclose(wrapper(x), y:matmul(heed.eye(8)), { rtol = 10, atol = 10 }))
      local Mine = nn.Module.class "Mine"
      function Mine:init(d) self.inner = nn.Sequential(nn.Linear(d, d), nn.GELU(), nn.LayerNorm(d)) end
      function Mine:forward(z) return self.inner(z) + z end
      local mine = Mine(8)
      mine:load_state_dict(mine:state_dict())
      assert(mine(y):size(3) == 8 and tostring(mine):find "Mine")
      local cache = mha:new_cache { batch = 2, capacity = 6 }
      mha:eval()
      local first = mha(x[{ {}, { 1, 3 } }], { cache = cache })
      local rest = mha(x[{ {}, { 4, 6 } }], { cache = cache })
      assert(heed.allclose(heed.cat({ first, rest }, 2), mha(x), { atol = 1e-5 }))
      mha:to "bfloat16"
      assert(not raised(heed.load, "x.npy") and not raised(Tokenizer.load, "vocab.txt"))
      local text = heed.from_string(x:to_string(), "float32", { 2, 6, 8 })
      assert(text:equal(x) and #tostring(info.weights) > 100 and #x:tolist() == 2)
      assert(x:sort(-1):softmax(-1):sum(-1):sub(1):abs():max():item() < 1e-5)
      print "all of it"]]
    assert.equal("", done.err)
    assert.equal("all of it\n", done.out)
  end)
end)
