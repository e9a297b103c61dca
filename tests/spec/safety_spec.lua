-- A script, however hostile, must not be able to crash the process or to read memory that is not its own.
local heed = require "heed"
local raises = require "tests.raises"
local support = require "tests.support"
local nn = heed.nn

-- Values that are not tensors, modules or generators.
local function foreign()
  local released = heed.ones(2)
  released:release()
  return {
    io.stdout, io.tmpfile(), coroutine.create(function() end), print, {}, "text", 5, 0.5, true, released,
    setmetatable({}, { __index = function() error "asked" end, __len = function() error "counted" end }),
  }
end

local function objects()
  local x = heed.rand(2, 3)
  return { x, nn.Linear(2, 2), nn.MultiHeadAttention(3, 4, 6, 0.5, 2), heed.Generator(1), x.shape }
end

-- Calls f with all kinds of arguments; it may raise errors, but must not crash.
local function try(f, ...)
  pcall(f)
  for _, value in ipairs { nil, 1, "shape", ... } do
    pcall(f, value)
    for _, other in ipairs { 1, "weight", {}, heed.ones(2), ... } do
      pcall(f, value, other)
      pcall(f, other, value)
      pcall(f, value, other, 1)
    end
  end
end

describe("a metamethod", function()
  it("taken from a value rejects other values", function()
    for _, object in ipairs(objects()) do
      for _, meta in ipairs { getmetatable(object), debug.getmetatable(object) } do
        for name, f in pairs(meta) do
          if type(f) == "function" then
            for _, value in ipairs(foreign()) do
              pcall(f, value)
              pcall(f, value, value)
              pcall(f, value, "shape", 1)
              if name ~= "__gc" and name ~= "__close" then pcall(f, object, value, value) end
            end
          end
        end
      end
    end
    local index = getmetatable(heed.ones(1)).__index
    raises("index: x is a userdata; it must be a tensor", function() return index(io.stdout, 1) end)
    raises("index: x is a userdata; it must be a tensor", function() return index(io.stdout, "shape") end)
    assert.equal("file", io.type(io.stdout))
  end)

  it("cannot be changed for other values", function()
    for _, object in ipairs(objects()) do
      local meta = getmetatable(object)
      if type(object) == "userdata" then
        local copy = {}
        assert.is_nil(meta.__gc)
        for name, value in pairs(meta) do copy[name] = value end
        for name in pairs(copy) do meta[name] = nil end
        assert.equal("tensor([1., 1.])", tostring(heed.ones(2)))
        assert.equal("Linear(in_features=2, out_features=3, bias=True)", tostring(nn.Linear(2, 3)))
        for name, value in pairs(copy) do meta[name] = value end
      end
    end
  end)

  it("of heed called on a foreign value does no harm", function()
    local meta = debug.getmetatable(heed.ones(1))
    local file = io.tmpfile()
    local own = debug.getmetatable(file)
    debug.setmetatable(file, meta)
    for _, f in pairs { function() return file.shape end, function() return file + 1 end, function() return #file end,
      function() return file[1] end, function() file[1] = 1 end, function() return tostring(file) end } do
      assert.is_false(pcall(f))
    end
    debug.setmetatable(file, own)
    assert.is_truthy(file:write "still a file")
    file:close()
  end)

  it("of a module called on a tensor, or the other way round, does no harm", function()
    local x, m = heed.ones(2), nn.Linear(2, 2)
    local of_x, of_m = debug.getmetatable(x), debug.getmetatable(m)
    debug.setmetatable(x, of_m)
    debug.setmetatable(m, of_x)
    for _, f in pairs { function() return x.weight end, function() return x(x) end, function() return m.shape end,
      function() return m + m end, function() x.weight = m end, function() m[1] = x end } do
      assert.is_false(pcall(f))
    end
    debug.setmetatable(x, of_x)
    debug.setmetatable(m, of_m)
    assert.equal("[2]", tostring(x.shape):match "%[.*%]")
    assert.equal("[2, 2]", tostring(m.weight.shape):match "%[.*%]")
  end)
end)

describe("an upvalue", function()
  it("changed with the debug library does no harm", function()
    for _, f in ipairs { heed.zeros, heed.add_, nn.Linear, heed.Size, debug.getmetatable(heed.ones(1)).__index,
      debug.getmetatable(heed.ones(1).shape).__index, heed.Generator, debug.getmetatable(nn.Linear(1, 1)).__call } do
      for i = 1, 3 do
        local name, old = debug.getupvalue(f, i)
        if name then
          local x, m, g = heed.ones(3), nn.Linear(2, 2), heed.Generator(1)
          for _, value in ipairs { false, 5, -1, "x", {}, io.stdout, x, m, g } do
            debug.setupvalue(f, i, value)
            try(f, x, m, g)
          end
          debug.setupvalue(f, i, old)
        end
      end
    end
    assert.same({ 0, 0 }, heed.zeros(2):tolist())
  end)
end)

describe("a finalizer", function()
  it("may release tensors and use the library while an operation runs", function()
    for _ = 1, 200 do
      local x, y = heed.rand(40, 40), heed.rand(40, 40)
      support.finalized(function()
        pcall(x.release, x)
        heed.rand(10, 10):matmul(heed.rand(10, 10))
      end)
      collectgarbage "step"
      pcall(function() return heed.cat { x, y }:tolist() end)
      pcall(function() return tostring(x) .. y end)
      pcall(function() return heed.tensor { x, y } end)
    end
    collectgarbage()
  end)

  it("cannot release the arguments of an operation that runs out of memory", function()
    for i = 1, 30 do
      local x = heed.rand(10)
      local list = { x, heed.ones(1):expand(2 ^ 45) }
      support.finalized(function()
        pcall(x.release, x)
        list[1], list[2] = nil, nil
      end)
      local ok, text = pcall(heed.cat, list)
      assert.is_false(ok, i)
      assert.is_truthy(text:find "memory" or text:find "tensor")
    end
  end)

  it("may call anything while the state closes", function()
    local script = support.finalized_code .. [[
      first = finalized(function()
        print((pcall(function() return kept.shape end)), (pcall(heed.ones, 2)))
      end)
      heed = require "heed"
      x, m = heed.ones(3), heed.nn.Sequential(heed.nn.Linear(3, 3))
      last = finalized(function()
        kept = heed.rand(1000) + 1
        x:release()
        print(tostring(m(heed.ones(2, 3)).shape))
        x = nil
      end)]]
    local result = support.run(support.heed .. " -", script)
    assert.equal("", result.err)
    assert.equal(0, result.code)
    assert.equal("heed.Size([2, 3])\nfalse\tfalse\n", result.out) -- the library is closed before finalizers run
  end)

  it("of a userdata cannot be obtained", function()
    local m = nn.Linear(2, 2)
    debug.getmetatable(m).__gc(m)
    assert.equal("[2, 2]", tostring(m.weight.shape):match "%[.*%]")
  end)
end)

describe("the iterator of heed.ipairs", function()
  it("continues from any integer", function()
    local next_element = heed.ipairs { 1, 2 }
    assert.is_nil(next_element({ 1, 2 }, math.maxinteger))
    assert.is_nil(next_element({ 1, 2 }, math.mininteger))
  end)
end)

describe("a hook", function()
  it("called in the middle of operations keeps no tensor alive", function()
    local watched = setmetatable({}, { __mode = "k" })
    debug.sethook(function() watched[{}] = true end, "crl", 1)
    for _ = 1, 200 do
      local x = heed.ones(100) + 1
      x:sum()
    end
    debug.sethook()
    collectgarbage()
    assert.equal(2, (heed.ones(1) + 1):item())
  end)
end)

describe("a damaged chat template", function()
  it("gives a text or a proper message", function()
    local script = support.quote(support.top .. "/tests/fuzz/template_fuzz.lua")
    local count = support.nightly(20000, 500)
    for seed = 1, 2 do
      local result = support.run(("%s %s %d %d"):format(support.heed, script, seed, count))
      assert.equal(count .. " templates, 0 poor messages\n", result.out)
      assert.equal(0, result.code)
    end
  end)
end)

describe("any function with any arguments", function()
  it("survives random calls, with proper messages", function()
    local limit = "ulimit -v 6000000 2>/dev/null; "
    if support.build:find "asan" then limit = "" end -- it reserves the address space itself
    local script = support.quote(support.top .. "/tests/fuzz/api_fuzz.lua")
    local count = support.nightly(100000, 5000)
    for seed = 1, 3 do
      local result = support.run(("%s%s %s %d %d"):format(limit, support.heed, script, seed, count))
      assert.equal(count .. " calls, 0 poor messages\n", result.out)
      assert.equal(0, result.code)
    end
  end)
end)
