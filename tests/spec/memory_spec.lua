-- Memory: the garbage collector accounts for tensors, release frees immediately, and errors leak nothing.
-- Each script runs in a new process, whose peak size the operating system reports.
local support = require "tests.support"

-- Runs a script and returns by how many MiB its peak size exceeds the size after `warm`.
local function growth(script, warm)
  local code = ([[
local heed = require "heed"
local nn = heed.nn
local function most()
  local file = io.open "/proc/self/status"
  local size = file and file:read("*a"):match "VmHWM:%%s*(%%d+) kB"
  if file then file:close() end
  return size and tonumber(size) / 1024
end
if not most() then print "no way to ask" os.exit() end
%s
local before = most()
%s
print(most() - before)
]]):format(warm or "heed.zeros(1)", script)
  local result = support.run(support.heed .. " -", code)
  assert.equal("", result.err)
  if result.out:find "no way" then pending "the system has no /proc" end
  return tonumber(result.out)
end

describe("memory #plain", function() -- sanitizers delay the freeing of memory
  it("of 20,000 dropped tensors of 1 MiB stays under 64 MiB", function()
    assert.is_true(growth "for _ = 1, 20000 do local x = heed.empty(512, 512) end" < 64)
  end)

  it("of dropped results stays small, for methods and operators alike", function()
    local script = [[
      local x = heed.rand(512, 512)
      for _ = 1, 100 do
        local y = ((x + 1) * x):relu():transpose(1, 2):contiguous():softmax(-1)
        local parts = y:split(128)
        local list = heed.cat({ y, y }):clone()
      end]]
    assert.is_true(growth(script) < 64)
  end)

  it("of dropped modules is freed", function()
    assert.is_true(growth "for _ = 1, 500 do local m = nn.Linear(512, 512) end" < 64)
  end)

  it("is freed immediately by release, even if the collector is stopped", function()
    local script = [[
      collectgarbage "stop"
      for _ = 1, 200 do
        local x = heed.zeros(1024, 1024)
        x:release()
      end]]
    assert.is_true(growth(script) < 32)
  end)

  support.where("close", it, pending)("is freed immediately by <close>, even if the collector is stopped", function()
    local script = [[
      collectgarbage "stop"
      for _ = 1, 200 do
        local y <close> = heed.zeros(1024, 1024)
      end]]
    assert.is_true(growth(script) < 32)
  end)

  it("is kept until the last view is gone", function()
    local script = [[
      local views = {}
      for i = 1, 10 do
        local x = heed.zeros(1024, 1024)
        views[i] = x[1]
        x:release()
      end
      assert(most() - before > 36)
      for i = 1, 10 do
        assert(views[i]:sum():item() == 0)
        views[i]:release()
      end
      local again = heed.zeros(10, 1024, 1024)]]
    assert.is_true(growth(script) < 64)
  end)

  it("is unchanged after errors of every kind", function()
    local script = [[
      local x, ids = heed.rand(512, 512), heed.randint(1, 9, { 512, 512 })
      local m = nn.MultiHeadAttention(512, 512, 8, 0.5, 8)
      local mistakes = {
        function() return x:matmul(heed.ones(3, 3)) end,
        function() return x + heed.ones(511) end,
        function() return m(heed.rand(2, 100, 512)) end,
        function() return m(heed.rand(2, 8, 512), { attn_mask = heed.ones(3, 3) }) end,
        function() return nn.Linear(512, 512)(heed.ones(3)) end,
        function() return heed.cat { x:clone(), heed.ones(3, 3) } end,
        function() return heed.tensor { x:clone(), x:clone(), 1 } end,
        function() return (ids + 1) % 0 end,
        function() return x:index_select(1, ids + 1000) end,
        function() return x:clone():expand(2 ^ 45, 512, 512):contiguous() end,
        function() return nn.Sequential(nn.Linear(512, 512), 5) end,
        function() return nn.MultiHeadAttention(512, 512, 8, 0.5, 5) end,
        function() local y = x:clone() error "mine" end,
      }
      for _ = 1, 60 do
        for i, mistake in ipairs(mistakes) do assert(not pcall(mistake), i) end
      end]]
    assert.is_true(growth(script, "nn.Linear(512, 512)(heed.rand(512, 512))") < 64)
  end)

  it("is freed when a finalizer needs it", function()
    local script = support.finalized_code .. [[
      for _ = 1, 300 do
        local x = heed.zeros(512, 512)
        finalized(function() if not x:is_released() then x:release() end end)
      end]]
    assert.is_true(growth(script) < 64)
  end)

  -- A mapped file's pages are resident (the third number of statm) once they were used. The norm stays float32, so the
  -- file stays mapped.
  for _, dtype in ipairs { "bfloat16", "int8", "q8_0" } do
    for _, ending in ipairs { "safetensors", "gguf" } do
      it(("of a mapped %s model is given back when its weights become %s"):format(ending, dtype), function()
        local result = support.with_file(function(path)
          return support.run(support.heed .. " - " .. path .. "." .. ending .. "; rm -f " .. path .. "." .. ending, ([[
            if rawget(_G, "jit") then jit.off() end -- compiled code keeps what it used last
            local heed = require "heed"
            local nn = heed.nn
            local function resident()
              local file = io.open "/proc/self/statm"
              if not file then print "no way to ask" os.exit() end
              local shared = file:read("*a"):match "^%%d+ %%d+ (%%d+)"
              file:close()
              return tonumber(shared) * 4096 / 2 ^ 20
            end
            local function model()
              return nn.Sequential(nn.Linear(1024, 4096), nn.Linear(4096, 1024), nn.LayerNorm(1024))
            end
            assert(heed.save(arg[1], model():state_dict()))
            local m = nn.utils.skip_init(model)
            m:load_state_dict(heed.load(arg[1]), { assign = true })
            for _ = 1, 2 do collectgarbage() end
            local before = resident()
            local want = m(heed.ones(1, 1024))
            local used = resident() - before
            m:to "%s"
            for _ = 1, 2 do collectgarbage() end
            print(used, resident() - before, (m(heed.ones(1, 1024)) - want):abs():max():item() < 0.5)
          ]]):format(dtype))
        end)
        assert.equal("", result.err)
        if result.out:find "no way" then return pending "the system has no /proc" end
        local used, kept, near = result.out:match "^(%S+)\t(%S+)\t(%S+)"
        assert.is_true(tonumber(used) > 30, result.out)
        assert.is_true(tonumber(kept) < 2, result.out)
        assert.equal("true", near)
      end)
    end
  end

  -- After `warm` rounds of step(i), `rounds` more, or as many as `seconds` take: heed holds not a byte more, and Lua
  -- and the process hardly more. What malloc keeps grows by some MiB in the first 100,000 rounds, then no more.
  local function grown(setup, warm, rounds, seconds)
    local result = support.run(support.heed .. " -", ([[
      local heed = require "heed"
      local nn = heed.nn
      local function resident()
        for _ = 1, 3 do collectgarbage() end
        local file = io.open "/proc/self/statm"
        if not file then print "no way to ask" os.exit() end
        local pages = file:read("*a"):match "^%%d+ (%%d+)"
        file:close()
        return tonumber(pages) * 4096 / 2 ^ 20, heed.info().memory_in_use, collectgarbage "count"
      end
      %s
      for i = 1, %d do step(i) end
      local before, held, lua = resident()
      local count, stop = 0, heed.clock() + %g
      repeat
        step(count)
        count = count + 1
      until count >= %d and heed.clock() >= stop
      local after, holds, lua_after = resident()
      print(count, after - before, holds - held, lua_after - lua)
    ]]):format(setup, warm, seconds or 0, rounds))
    assert.equal("", result.err)
    if result.out:find "no way" then return pending "the system has no /proc" end
    local count, more, held, lua = result.out:match "^(%S+)\t(%S+)\t(%S+)\t(%S+)"
    if os.getenv "HEED_NIGHTLY" then io.stderr:write(("%s rounds: %s MiB more\n"):format(count, more)) end
    assert.equal(0, tonumber(held))
    assert.is_true(tonumber(lua) < 640, result.out) -- KiB: weak tables stay as large as they once were
    assert.is_true(tonumber(more) < 16, result.out)
  end

  it("stays flat over a million forward passes", function()
    grown([[
      local m, x = nn.MultiHeadAttention(16, 16, 64, 0, 2), heed.rand(1, 6, 16)
      local function step() return m(x) end
    ]], 2000, support.nightly(1000000, 20000))
  end)

  it("stays flat over ten minutes of training, with checkpoints, caches and texts", function()
    support.with_file(function(path)
      grown(([[
        heed.manual_seed(3)
        local path, gpt2 = %q, require "heed.models.gpt2"
        local m = gpt2 { vocab_size = 257, hidden_size = 16, num_hidden_layers = 2, num_attention_heads = 2,
          n_positions = 64 }
        local optimizer = heed.optim.AdamW(m:parameters(), { lr = 0.001 })
        local tokenizer = assert(heed.tokenizers.load "tests/golden/tokenizers/bert.json")
        local function step(i)
          local ids = heed.randint(1, 257, { 4, 20 })
          heed.enable_grad(function()
            local loss = nn.functional.cross_entropy(m(ids):flatten(1, 2), ids:flatten())
            optimizer:zero_grad()
            loss:backward()
          end)
          nn.utils.clip_grad_norm_(m:parameters(), 1)
          optimizer:step()
          if i %% 20 == 0 then
            local file = path .. ".safetensors"
            assert(heed.save(file, { model = m:state_dict(), optimizer = optimizer:state_dict() }))
            heed.utils.load_checkpoint(file, { model = m, optimizer = optimizer })
            os.remove(file)
            m:generate({ 5, 17 }, { max_new_tokens = 5 })
            tokenizer:decode(tokenizer:encode "Attention is all you need.")
          end
        end
      ]]):format(path), 100, 300, support.nightly(600, 0))
    end)
  end)
end)
