-- Random valid files of each format that heed reads, as trees of pieces (pieces.lua).
-- formats[i] = {name, make(folder) -> {ending =, file = pieces, tensors = {name = {dtype, sizes, bytes}} or nil,
-- load(path)}}; `tensors` is what loading an undamaged file must give back, byte for byte.
local chances = require "tests.fuzz.chances"
local pieces = require "tests.fuzz.pieces"
local support = require "tests.support"
local heed = require "heed"
local random, chance, one_of = chances.random, chances.chance, chances.one_of
local number, text = pieces.number, pieces.text

local formats = {}

-- ---- Tensors ------------------------------------------------------------------------------------

local SIZES = { float32 = 4, int64 = 8, bool = 1, bfloat16 = 2, float16 = 2, int8 = 1 }
local DTYPES = { "float32", "float32", "int64", "bool", "bfloat16", "float16", "int8" }

local function bytes_of(dtype, count)
  local list = {}
  for i = 1, count * SIZES[dtype] do list[i] = string.char(dtype == "bool" and random(2) - 1 or random(256) - 1) end
  return table.concat(list)
end

local function tensor(dtypes)
  local sizes, count = {}, 1
  for i = 1, random(4) - 1 do
    sizes[i] = one_of { 0, 1, 2, 2, 3, 3, 5 }
    count = count * sizes[i]
  end
  local dtype = one_of(dtypes)
  return { dtype = dtype, sizes = sizes, bytes = bytes_of(dtype, count), count = count }
end

local NAMES = { "a", "b", "weight", "layers.0.weight", "x y", "é", "q_proj", "bias", "0", "long" .. ("n"):rep(80) }

local function tensors(dtypes, most)
  local list, all = {}, {}
  for i = 1, random(most or 4) do
    local name = NAMES[(i * 3 + random(3)) % #NAMES + 1]
    if not all[name] then
      all[name] = tensor(dtypes)
      list[#list + 1] = { name = name, tensor = all[name] }
    end
  end
  return list, all
end

local function joined(list, separator) return table.concat(list, separator or ", ") end

local function touch(value, depth)
  if heed.is_tensor(value) then
    tostring(value)
    if value:numel() < 1e5 then value:to_string() end
  elseif type(value) == "table" and (depth or 0) < 3 then
    for _, each in pairs(value) do touch(each, (depth or 0) + 1) end
  end
end

local function load(path)
  local value, problem = heed.load(path)
  touch(value)
  return value, problem
end

-- ---- safetensors --------------------------------------------------------------------------------

local SAFE = { float32 = "F32", int64 = "I64", bool = "BOOL", bfloat16 = "BF16", float16 = "F16", int8 = "I8" }

local function safetensors(list)
  local entries, data, at = {}, {}, 0
  if chance(50) then entries[1] = '"__metadata__":{"format":"pt","a":"b"}' end
  for _, each in ipairs(list) do
    local t = each.tensor
    entries[#entries + 1] = ('"%s":{"dtype":"%s","shape":[%s],"data_offsets":[%d,%d]}'):format(each.name, SAFE[t.dtype],
      joined(t.sizes, ","), at, at + #t.bytes)
    data[#data + 1] = text("data", t.bytes)
    at = at + #t.bytes
  end
  local header = pieces.tokens("{" .. joined(entries, ",") .. "}")
  header[#header + 1] = text("padding", (" "):rep(random(8) - 1))
  return { number("length", "<I8", function(of) return #of end, header), header, data }
end

function formats.safetensors()
  local list, all = tensors(DTYPES)
  return { ending = "x.safetensors", file = safetensors(list), tensors = all, load = load }
end

formats["sharded index"] = function(folder)
  local map, all = {}, {}
  for shard = 1, random(3) do
    local list, some = tensors(DTYPES, 2)
    local name, used = ("part-%d.safetensors"):format(shard), {}
    for _, each in ipairs(list) do
      local own = ("%d.%s"):format(shard, each.name)
      map[#map + 1], all[own] = ('"%s":"%s"'):format(own, name), some[each.name]
      used[#used + 1] = { name = own, tensor = each.tensor }
    end
    support.write(folder .. "/" .. name, pieces.emit(safetensors(used)))
  end
  local body = pieces.tokens('{"metadata":{"total_size":12},"weight_map":{' .. joined(map, ",") .. "}}")
  return { ending = "x.safetensors.index.json", file = body, tensors = all, load = load }
end

function formats.cache(folder)
  local m = heed.nn.MultiHeadAttention(4, 4, 8, 0, 2)
  local cache = m:new_cache { capacity = 4, dtype = one_of { "float32", "bfloat16", "float16", "int8" } }
  m:eval()
  m(heed.randn(random(3), 4), { cache = cache })
  local path = folder .. "/made.safetensors"
  assert(cache:save(path))
  local made = support.read(path)
  local length = string.unpack("<I8", made)
  local header = pieces.tokens(made:sub(9, 8 + length))
  return { ending = "cache.safetensors", file = { number("length", "<I8", function(of) return #of end, header), header,
    text("data", made:sub(9 + length)) }, load = function(at) return m:load_cache(at) end }
end

-- ---- numpy --------------------------------------------------------------------------------------

local NUMPY = { float32 = "<f4", int64 = "<i8", bool = "|b1", float16 = "<f2", int8 = "|i1" }
local NUMPY_DTYPES = { "float32", "int64", "bool", "float16", "int8" }

local function npy(t)
  local shape = joined(t.sizes) .. (#t.sizes == 1 and "," or "")
  local header = pieces.tokens(("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }"):format(NUMPY[t.dtype],
    shape))
  header[#header + 1] = text("padding", (" "):rep(random(20)) .. "\n")
  local second = chance(30)
  return { text("tag", "\147NUMPY"), number("version", "B", second and 2 or 1), number("version", "B", 0),
    number("length", second and "<I4" or "<I2", function(of) return #of end, header), header, text("data", t.bytes) }
end

function formats.npy()
  local t = tensor(NUMPY_DTYPES)
  return { ending = "x.npy", file = npy(t), tensors = { t }, load = load }
end

-- ---- zip ----------------------------------------------------------------------------------------

-- As a text, since older Luas cannot read its operators.
local crc32 = support.compile [[
  local steps = {}
  for i = 0, 255 do
    local c = i
    for _ = 1, 8 do c = c & 1 == 1 and 0xEDB88320 ~ (c >> 1) or c >> 1 end
    steps[i] = c
  end
  return function(of)
    local c = 0xFFFFFFFF
    for i = 1, #of do c = steps[(c ~ of:byte(i)) & 255] ~ (c >> 8) end
    return c ~ 0xFFFFFFFF
  end
]]()

-- Stored, or as one stored block of deflate.
local function packed(body, deflated)
  if not deflated then return body end
  local function size(of) return #of end
  return { text("tag", "\1"), number("length", "<I2", size, body),
    number("length", "<I2", function(of) return 65535 - #of end, body),
    body }
end

local function zip(entries)
  local file, directory = {}, {}
  local function size(of) return #of end
  for i, entry in ipairs(entries) do
    local deflated = entry.deflated and #pieces.emit(entry.body) < 65536
    local body = packed(entry.body, deflated)
    local name, extra = text("name", entry.name), text("extra", entry.extra or "")
    local before = {}
    for k = 1, #file do before[k] = file[k] end
    local common = { number("version", "<I2", 20), number("flags", "<I2", 0),
      number("method", "<I2", deflated and 8 or 0),
      number("time", "<I4", 0), number("check", "<I4", crc32, entry.body), number("size", "<I4", size, body),
      number("size", "<I4", size, entry.body), number("length", "<I2", size, name),
        number("length", "<I2", size, extra) }
    local again = {}
    for k, each in ipairs(common) do again[k] = number(each.kind, each.pack, each.value, each.of) end
    directory[i] = { text("tag", "PK\1\2"), number("version", "<I2", 20), again, number("length", "<I2", 0),
      number("disk", "<I2", 0),
      number("attributes", "<I2", 0), number("attributes", "<I4", 0), number("offset", "<I4", size, before),
        text("name", entry.name),
      extra }
    file[#file + 1] = { text("tag", "PK\3\4"), common, name, extra, body }
  end
  return { file, directory, text("tag", "PK\5\6"), number("disk", "<I2", 0), number("disk", "<I2", 0),
    number("count", "<I2", #entries),
    number("count", "<I2", #entries), number("size", "<I4", size, directory), number("offset", "<I4", size, file),
    number("length", "<I2", 0) }
end

function formats.npz()
  local list, all = tensors(NUMPY_DTYPES)
  local entries = {}
  for i, each in ipairs(list) do
    entries[i] = { name = each.name .. ".npy", body = npy(each.tensor), deflated = chance(40) }
  end
  return { ending = "x.npz", file = zip(entries), tensors = all, load = load }
end

-- ---- torch.save ---------------------------------------------------------------------------------

local TORCH = { float32 = "FloatStorage", int64 = "LongStorage", bool = "BoolStorage", bfloat16 = "BFloat16Storage",
  float16 = "HalfStorage", int8 = "CharStorage" }

local function p_text(value)
  local body = text("name", value)
  return { text("op", "X"), number("length", "<I4", function(of) return #of end, body), body }
end
local function p_number(value) return { text("op", "J"), number("value", "<i4", value) } end
local function p_numbers(list)
  local parts = { text("op", "(") }
  for _, each in ipairs(list) do parts[#parts + 1] = p_number(each) end
  parts[#parts + 1] = text("op", "t")
  return parts
end
local function p_global(module, name) return { text("op", "c"), text("name", module), "\n", text("name", name),
  "\n" } end

local function strides_of(sizes)
  local strides, step = {}, 1
  for i = #sizes, 1, -1 do strides[i], step = step, step * math.max(sizes[i], 1) end
  return strides
end

function formats.torch()
  local list, all = tensors(DTYPES)
  local body = { text("op", "\128\2"), text("op", "}"), text("op", "(") }
  local entries = {}
  for i, each in ipairs(list) do
    local t = each.tensor
    body[#body + 1] = { p_text(each.name), p_global("torch._utils", "_rebuild_tensor_v2"),
      text("op", "("), text("op", "("),
      p_text "storage", p_global("torch", TORCH[t.dtype]), p_text(tostring(i - 1)), p_text "cpu", p_number(t.count),
      text("op", "t"), text("op", "Q"), p_number(0), p_numbers(t.sizes), p_numbers(strides_of(t.sizes)),
        text("op", "\137"),
      text("op", "}"), text("op", "t"), text("op", "R") }
    entries[i] = { name = ("archive/data/%d"):format(i - 1), body = text("data", t.bytes) }
  end
  body[#body + 1] = text("op", "u")
  body[#body + 1] = text("op", ".")
  table.insert(entries, 1, { name = "archive/data.pkl", body = body })
  entries[#entries + 1] = { name = "archive/version", body = text("data", "3\n") }
  return { ending = "x.pt", file = zip(entries), tensors = all, load = load }
end

-- ---- GGUF ---------------------------------------------------------------------------------------

local GGUF_TYPES = { float32 = 0, float16 = 1, int8 = 24, int64 = 27, bfloat16 = 30 }
local GGUF_DTYPES = { "float32", "float16", "int8", "int64", "bfloat16" }
local GGUF_NUMBERS = { { 0, "<I1" }, { 1, "<i1" }, { 2, "<I2" }, { 3, "<i2" }, { 4, "<I4" }, { 5, "<i4" },
  { 6, "<f" }, { 7, "B" },
  { 10, "<I8" }, { 11, "<i8" }, { 12, "<d" } }

local function g_text(value)
  local body = text("name", value)
  return { number("length", "<I8", function(of) return #of end, body), body }
end

local function g_value()
  local kind = random(13)
  if kind <= 11 then return { number("type", "<I4", GGUF_NUMBERS[kind][1]),
    number("value", GGUF_NUMBERS[kind][2], random(2) - 1) } end
  if kind == 12 then return { number("type", "<I4", 8), g_text "some text" } end
  local item, count = one_of(GGUF_NUMBERS), random(4) - 1
  local of_texts = chance(40)
  local list = { number("type", "<I4", 9), number("type", "<I4", of_texts and 8 or item[1]),
    number("count", "<I8", count) }
  for _ = 1, count do list[#list + 1] = of_texts and g_text "piece" or number("value", item[2], 1) end
  return list
end

function formats.gguf()
  local list, all = tensors(GGUF_DTYPES)
  local metadata, described, data, at = {}, {}, {}, 0
  local pairs_count = random(5) - 1
  for i = 1, pairs_count do metadata[i] = { g_text("key." .. i), g_value() } end
  local alignment = chance(40) and one_of { 8, 16, 64 } or 32
  if alignment ~= 32 then
    pairs_count = pairs_count + 1
    metadata[#metadata + 1] = { g_text "general.alignment", number("type", "<I4", 4),
      number("alignment", "<I4", alignment) }
  end
  local kept = {}
  for _, each in ipairs(list) do
    local t = each.tensor
    if #t.sizes == 0 then t.sizes = { 1 } end
    if t.count > 0 and #each.name < 64 then
      kept[each.name] = all[each.name]
      local sizes = {}
      for d = #t.sizes, 1, -1 do sizes[#sizes + 1] = number("size", "<I8", t.sizes[d]) end
      described[#described + 1] = { g_text(each.name), number("count", "<I4", #t.sizes), sizes,
        number("type", "<I4", GGUF_TYPES[t.dtype]), number("offset", "<I8", at) }
      local padding = -#t.bytes % alignment
      data[#data + 1] = { text("data", t.bytes), ("\0"):rep(padding) }
      at = at + #t.bytes + padding
    end
  end
  local head = { text("tag", "GGUF"), number("version", "<I4", 3), number("count", "<I8", #described),
    number("count", "<I8", pairs_count),
    metadata, described }
  local padding = { kind = "padding", value = function(of) return ("\0"):rep(-#of % alignment) end, of = head }
  return { ending = "x.gguf", file = { head, padding, data }, tensors = kept, load = load }
end

-- ---- Tokenizers and models: golden files --------------------------------------------------------

local function use_tokenizer(path)
  local tok, problem = heed.tokenizers.load(path)
  if not tok then return nil, problem end
  for _, words in ipairs { "Hello, world! It's 2024\n  two", "日本 café 🎉 <s>[CLS]", ("a"):rep(50) } do
    local fine, ids = pcall(tok.encode, tok, words, { allowed_special = true })
    if fine then tok:decode(ids) else problem = ids end
  end
  return tok, problem
end

local function golden(name, ending, parse, use)
  return function()
    return { ending = ending, file = parse(support.read(support.top .. "/tests/golden/" .. name)), load = use
      or use_tokenizer }
  end
end

for _, name in ipairs { "bert", "bpe", "fallback", "gpt2", "llama3", "qwen2", "smollm", "unigram" } do
  local path = "tokenizers/" .. name .. ".json"
  local file = io.open(support.top .. "/tests/golden/" .. path)
  if file then
    file:close()
    formats["tokenizer.json: " .. name] = golden(path, "tokenizer.json", pieces.tokens)
  end
end
for _, name in ipairs { "bpe", "unigram" } do
  formats[".model: " .. name] = golden("tokenizers/" .. name .. ".model", "x.model",
    function(bytes) return pieces.protobuf(bytes, 1) end)
end
formats["vocab.txt"] = golden("encoders/sentence/vocab.txt", "vocab.txt", pieces.lines)

formats["vocab.json and merges.txt"] = function(folder)
  local letters, vocabulary, merges = { "a", "b", "c", "Ġ", "e", "t" }, {}, { text("line", "#version: 0.2\n") }
  local known = {}
  for i, letter in ipairs(letters) do vocabulary[i] = ('"%s": %d'):format(letter, i - 1) end
  for _ = 1, random(8) do
    local a, b = one_of(letters), one_of(letters)
    if not known[a .. b] then
      known[a .. b] = true
      merges[#merges + 1] = text("line", a .. " " .. b .. "\n")
      vocabulary[#vocabulary + 1] = ('"%s": %d'):format(a .. b, #vocabulary)
      letters[#letters + 1] = a .. b
    end
  end
  local words = pieces.tokens("{" .. joined(vocabulary) .. "}")
  if chance(50) then
    support.write(folder .. "/merges.txt", pieces.emit(merges))
    return { ending = "vocab.json", file = words, load = use_tokenizer }
  end
  support.write(folder .. "/vocab.json", pieces.emit(words))
  return { ending = "merges.txt", file = merges, load = function() return use_tokenizer(folder .. "/vocab.json") end }
end

-- A model's folder in which one JSON file is damaged.
local function model_file(source, name, ids)
  return function(folder)
    local from = support.top .. "/tests/golden/" .. source
    if not io.open(folder .. "/" .. source:gsub("/", "_") .. "/config.json") then
      assert(os.execute(("cp -r %s %s"):format(support.quote(from),
        support.quote(folder .. "/" .. source:gsub("/", "_")))))
    end
    local path = folder .. "/" .. source:gsub("/", "_")
    local original = support.read(from .. "/" .. name)
    return { ending = source:gsub("/", "_") .. "/" .. name, file = pieces.tokens(original), load = function()
      local model, problem = heed.models.load(path)
      if model then
        local fine, message = pcall(model, ids)
        if not fine then problem = message end
      end
      support.write(path .. "/" .. name, original)
      return model, problem
    end }
  end
end

for _, name in ipairs { "gpt2", "llama", "qwen3", "gemma3", "mixtral", "phi3_longrope", "llama_yarn" } do
  formats["config.json: " .. name] = model_file("decoders/" .. name, "config.json", { 1, 2, 3 })
end
formats["config.json: bert"] = model_file("encoders/sentence", "config.json", { { 1, 2, 3 } })

return formats
