-- Shared by the specs of files: a temporary folder for each test, and writing files there.
local assert = require "luassert"
local heed = require "heed"
local support = require "tests.support"

local files = {}

local folder -- of the current test

--- To be called in a `describe`: creates a folder before each test and removes it afterwards.
function files.in_folders(before_each, after_each)
  before_each(function() folder = support.new_folder() end)
  after_each(function() support.remove_folder(folder) end)
end

function files.folder() return folder end

function files.path(name) return folder .. "/" .. name end

--- Writes a file and returns its path.
function files.file(name, text)
  support.write(files.path(name), text)
  return files.path(name)
end

function files.count() return tonumber(support.run("ls -A " .. support.quote(folder) .. " | wc -l").out) end

--- The results of a call must be nil and `message`.
function files.fails(message, got, text)
  assert.is_nil(got)
  assert.are.equal(message, text)
end

local UNSIGNED = { uint8 = 2 ^ 7, uint16 = 2 ^ 15, uint32 = 2 ^ 31, uint64 = 2 ^ 62 } -- their first elements

--- The tensors written by scripts/dev/make_file_values.py, of a dtype of files, as they are loaded.
function files.golden(dtype, ...)
  local n = 1
  for _, size in ipairs { ... } do n = n * size end
  local i = heed.range(0, n - 1, 1, { dtype = "int64" }):view(...)
  if dtype == "bool" then return (i % 3):eq(0) end
  if UNSIGNED[dtype] then return i + heed.tensor(UNSIGNED[dtype], { dtype = "int64" }) end
  if dtype:find "int" then return (i - 3):to(dtype == "int8" and "int8" or "int64") end
  return (i / 2 - 3):to(dtype == "float64" and "float32" or dtype)
end

--- x must have the dtype, the shape and the elements that are expected.
function files.same(expected, x)
  assert.are.equal(expected.dtype, x.dtype)
  assert.are.equal(tostring(expected.shape), tostring(x.shape))
  assert.are.same(expected:tolist(), x:tolist())
end

--- The contents of a .safetensors file with this header and data.
function files.safetensors(header, data) return string.pack("<s8", header) .. (data or "") end

-- ---- Files of torch.save ------------------------------------------------------------------------

--- The contents of a file from before PyTorch 1.6: the number, the version and sizes of C's types, the pickle of the
--- value, the list of the keys of its storages, the storages.
function files.torch(value, keys, storages)
  return "\128\2\138\nl\252\156F\249 j\168P\25." .. "\128\2M\233\3." .. "\128\2}."
    .. "\128\2" .. value .. "." .. "\128\2" .. (keys or "]") .. "." .. (storages or "")
end

function files.pickled_text(text) return "X" .. string.pack("<s4", text) end
function files.pickled_global(module, name) return "c" .. module .. "\n" .. name .. "\n" end

--- The pickle of a tensor on storage "0", which has `count` elements; `shape` and `stride` are pickled numbers.
function files.torch_tensor(count, offset, shape, stride)
  local text, global = files.pickled_text, files.pickled_global
  return global("torch._utils", "_rebuild_tensor_v2") .. "((" .. text "storage" .. global("torch", "FloatStorage")
    .. text "0" .. text "cpu" .. "K" .. string.char(count) .. "tQK" .. string.char(offset) .. "(" .. shape .. "t("
    .. stride .. "t\137}tR"
end

return files
