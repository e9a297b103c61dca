-- Tensors of dtypes that heed lacks: they are converted when they are used, or refused then, and the rest of their file
-- is as usable as any.
local heed = require "heed"
local files = dofile "tests/files.lua"
local raises = require "tests.raises"
local tensors = require "tests.tensors"
local nn = heed.nn

local golden = "tests/golden/files/"
local PARTLY = golden .. "partly.safetensors"
local function in_use() return heed.info().memory_in_use end

--- A .safetensors file with one float64 tensor x of ones.
local function ones(rows, columns)
  local bytes = rows * columns * 8
  local header = ('{"x":{"dtype":"F64","shape":[%d,%d],"data_offsets":[0,%d]}}'):format(rows, columns, bytes)
  return files.file("x.safetensors", files.safetensors(header, ("\0\0\0\0\0\0\240\63"):rep(rows * columns)))
end

describe("tensors of other dtypes", function()
  files.in_folders(before_each, after_each)
  after_each(function() heed.limit { memory = math.huge, seconds = math.huge } end)

  for _, dtype in ipairs { "float64", "int16", "int32", "uint8", "uint16", "uint32", "uint64" } do
    it("are read from .safetensors: " .. dtype, function()
      files.same(files.golden(dtype, 2, 3, 4), heed.load(golden .. "converted.safetensors")[dtype])
    end)
  end

  it("are converted when they are used, once", function()
    collectgarbage()
    collectgarbage()
    local before = in_use()
    local state = heed.load(ones(512, 512))
    assert.is_true(in_use() - before < 10000)
    assert.is_true(state.x == state.x)
    assert.is_true(in_use() - before >= 2 ^ 20)
    assert.are.equal(2 ^ 18, state.x:sum():item())
  end)

  it("count in the limit of memory, and stay usable after it was exceeded", function()
    local state = heed.load(ones(512, 512))
    collectgarbage()
    collectgarbage()
    heed.limit { memory = in_use() + 2 ^ 18 }
    assert.has_error(function() return state.x end)
    heed.limit { memory = math.huge }
    assert.are.equal(2 ^ 18, state.x:sum():item())
  end)

  it("can be loaded into modules and saved again", function()
    local layer = nn.Linear(3, 2, false)
    layer:load_state_dict { weight = heed.load(ones(2, 3)).x }
    assert.are.equal(6, layer.weight:sum():item())
    local state = heed.load(ones(2, 3))
    assert(heed.save(files.path "again.safetensors", state))
    assert.are.equal("float32", heed.load(files.path "again.safetensors").x.dtype)
  end)

  it("are entries of their state dict like others", function()
    local state = heed.load(golden .. "converted.safetensors")
    assert.are.equal("uint64 float64 uint32 int32 uint16 int16 uint8", tensors.names_of(heed.pairs(state)))
    state = heed.load(golden .. "converted.safetensors")
    assert.are.equal(7, #state)
    state.int16, state.uint8, state.more = nil, heed.ones(1), heed.ones(2)
    assert.are.equal("uint64 float64 uint32 int32 uint16 uint8 more", tensors.names_of(heed.pairs(state)))
    assert.is_nil(state.int16)
    files.same(heed.ones(1), state.uint8)
  end)

  it("are described by the dtype of the file", function()
    local state = heed.load(PARTLY)
    assert.are.equal(([[
StateDict(
  large: a tensor of shape [2] and dtype uint64 in the file
  wave: a tensor of shape [2] and dtype complex64 in the file
  weight: a tensor of shape [2, 3, 4] and dtype float32
  low: a tensor of shape [2, 3] and dtype float8_e4m3fn in the file
  count: a tensor of shape [2, 3, 4] and dtype uint8 in the file
)]]):gsub("^\n", ""), (tostring(state)))
  end)

  it("are refused when they are used if there is no conversion", function()
    local state = heed.load(PARTLY)
    files.same(files.golden("float32", 2, 3, 4), state.weight)
    files.same(files.golden("uint8", 2, 3, 4), state.count)
    raises(("load: '%s', tensor 'low': its dtype is float8_e4m3fn, which heed lacks; convert it to float32 in Python")
      :format(PARTLY), function() print(state.low) end)
    raises(("load: '%s', tensor 'wave': its dtype is complex64, which heed lacks; convert it to float32 in Python")
      :format(PARTLY), function() print(state.wave) end)
    raises(("load: '%s', tensor 'large': it has a number above 2^63 - 1 (uint64); heed's largest dtype is int64")
      :format(PARTLY), function() print(state.large) end)
    assert.has_error(function() for _ in heed.pairs(state) do end end)
  end)

  it("are refused when they are used: in .npz files", function()
    local from = golden .. "partly.npz"
    local state = heed.load(from)
    assert.are.equal(6, #state)
    files.same(files.golden("float32", 2, 3, 4), state.weight)
    files.same(files.golden("uint8", 3), state.count)
    local needed = "it must be f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8 or b1, of either byte order"
    raises(("load: '%s', entry 'wave.npy': its dtype is '<c8'; %s"):format(from, needed),
      function() print(state.wave) end)
    raises(("load: '%s', entry 'text.npy': its dtype is '<U2'; %s"):format(from, needed),
      function() print(state.text) end)
    raises(("load: '%s', entry 'records.npy': its elements are records (descr is a list); they must be numbers")
      :format(from), function() print(state.records) end)
  end)

  it("do not keep a module from loading if they are not part of it", function()
    local module = nn.Module.class "Mine"()
    module.weight = nn.Parameter(heed.zeros(2, 3, 4))
    local result = module:load_state_dict(heed.load(PARTLY), { strict = false })
    assert.are.same({ "count", "large", "low", "wave" }, result.unexpected_keys)
    files.same(files.golden("float32", 2, 3, 4), heed.tensor(module.weight:tolist()))
  end)

  it("are stopped by a limit of time while they are converted", function()
    local state = heed.load(ones(4096, 1024))
    heed.limit { seconds = 1e-6 }
    assert.has_error(function() return state.x end)
    heed.limit { seconds = math.huge }
    assert.are.equal(2 ^ 22, state.x:sum():item())
  end)
end)
