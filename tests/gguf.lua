--- GGUF files for specs, byte by byte.

local M = {}

local NUMBERS = { uint8 = 0, int8 = 1, uint16 = 2, int16 = 3, uint32 = 4, int32 = 5, float32 = 6, bool = 7, string = 8,
  array = 9, uint64 = 10, int64 = 11, float64 = 12 }
local FORMATS = { uint8 = "<I1", int8 = "<i1", uint16 = "<I2", int16 = "<i2", uint32 = "<I4", int32 = "<i4",
  float32 = "<f", uint64 = "<I8", int64 = "<i8", float64 = "<d" }

function M.string(text) return string.pack("<I8", #text) .. text end

--- The bytes of a value without its type; an array is {type, elements…}.
local function value(kind, v)
  if kind == "string" then return M.string(v) end
  if kind == "bool" then return string.char(v and 1 or 0) end
  if kind ~= "array" then return string.pack(FORMATS[kind], v) end
  local parts = { string.pack("<I4I8", NUMBERS[v[1]], #v - 1) }
  for i = 2, #v do parts[i] = value(v[1], v[i]) end
  return table.concat(parts)
end

--- A pair of the metadata.
function M.pair(key, kind, v) return M.string(key) .. string.pack("<I4", NUMBERS[kind]) .. value(kind, v) end

--- The description of a tensor: sizes in the file's order, the last first; the type's number in ggml.
function M.tensor(name, sizes, kind, offset)
  local parts = { M.string(name), string.pack("<I4", #sizes) }
  for _, size in ipairs(sizes) do parts[#parts + 1] = string.pack("<I8", size) end
  parts[#parts + 1] = string.pack("<I4I8", kind, offset)
  return table.concat(parts)
end

--- A file of pairs and tensors, as above; `data` follows at a multiple of 32. options: version, alignment, and counts
--- that differ from those of the lists.
function M.file(pairs_of_metadata, tensors, data, options)
  options = options or {}
  local text = "GGUF" .. string.pack("<I4I8I8", options.version or 3, options.tensors or #tensors,
    options.pairs or #pairs_of_metadata) .. table.concat(pairs_of_metadata) .. table.concat(tensors)
  local alignment = options.alignment or 32
  return text .. ("\0"):rep(-#text % alignment) .. (data or "")
end

return M
