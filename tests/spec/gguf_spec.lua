-- GGUF files: tensors, metadata, and broken files. Files of real models are compared by hand.
local heed = require "heed"
local files = dofile "tests/files.lua"
local gguf = dofile "tests/gguf.lua"
local path, file, fails = files.path, files.file, files.fails
local pair, tensor = gguf.pair, gguf.tensor

describe("GGUF files", function()
  files.in_folders(before_each, after_each)

  local function load(...) return assert(heed.load(file("x.gguf", gguf.file(...)))) end

  it("give tensors whose last dimension is the file's first", function()
    local state = load({}, { tensor("w", { 3, 2 }, 0, 0) }, string.pack("<ffffff", 1, 2, 3, 4, 5, 6))
    assert.same("heed.Size([2, 3])", tostring(state.w.shape))
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, state.w:tolist())
  end)

  it("give the dtypes of elements that heed has, and convert the others", function()
    local data = { string.pack("<f", 1.5), string.pack("<I2", 0x3e00), string.pack("<I2", 0x3fc0), "\254",
      string.pack("<i2", -300), string.pack("<i4", -70000), string.pack("<i8", 5), string.pack("<d", 0.25) }
    local kinds, tensors = { 0, 1, 30, 24, 25, 26, 27, 28 }, {}
    for i, kind in ipairs(kinds) do
      tensors[i] = tensor("t" .. i, { 1 }, kind, 32 * (i - 1))
      data[i] = data[i] .. ("\0"):rep(32 - #data[i])
    end
    local state = load({}, tensors, table.concat(data))
    local dtypes, values = {}, {}
    for i = 1, #kinds do
      local x = state["t" .. i]
      dtypes[i], values[i] = x.dtype, x:float()[1]
    end
    assert.same({ "float32", "float16", "bfloat16", "int8", "int64", "int64", "int64", "float32" }, dtypes)
    assert.same({ 1.5, 1.5, 1.5, -2, -300, -70000, 5, 0.25 }, values)
  end)

  it("of version 2, and empty ones, can be read", function()
    assert.equal(0, #load({}, {}, "", { version = 2 }))
  end)

  it("are recognised by their first bytes", function()
    assert.equal(0, #assert(heed.load(file("model.x", gguf.file({}, {})))))
  end)

  it("may have another alignment", function()
    local tensors = { tensor("a", { 1 }, 0, 0), tensor("b", { 1 }, 0, 64) }
    local data = string.pack("<f", 1) .. ("\0"):rep(60) .. string.pack("<f", 2)
    local state = load({ pair("general.alignment", "uint32", 64) }, tensors, data, { alignment = 64 })
    assert.equal(2, state.b[1])
  end)

  it("refuse a dtype that heed lacks when the tensor is used, by ggml's name", function()
    local state = load({}, { tensor("q", { 256 }, 10, 0), tensor("later", { 1 }, 99, 96), tensor("a", { 1 }, 0, 128) },
      ("\0"):rep(128) .. string.pack("<f", 7))
    assert.equal(7, state.a[1])
    local where = ("load: '%s', tensor "):format(path "x.gguf")
    assert.has_error(function() return state.q end, where ..
      "'q': its dtype is Q2_K, which heed lacks; quantize the model to Q8_0 or Q4_K_M with llama-quantize")
    assert.has_error(function() return state.later end,
      where .. "'later': its dtype is number 99 of ggml, which heed lacks")
  end)

  describe("have metadata in state.metadata:", function()
    it("numbers, strings and booleans", function()
      local metadata = load({
        pair("u8", "uint8", 200), pair("i8", "int8", -3), pair("u16", "uint16", 60000), pair("i16", "int16", -4),
        pair("u32", "uint32", 4000000000), pair("i32", "int32", -5), pair("f32", "float32", 0.5),
        pair("u64", "uint64", 6), pair("i64", "int64", -7), pair("f64", "float64", 0.1), pair("s", "string", "é\0\255"),
        pair("yes", "bool", true), pair("no", "bool", false) }, {}).metadata
      assert.same({ u8 = 200, i8 = -3, u16 = 60000, i16 = -4, u32 = 4000000000, i32 = -5, f32 = 0.5, u64 = 6, i64 = -7,
        f64 = 0.1, s = "é\0\255", yes = true, no = false }, metadata)
    end)

    it("lists, also of lists", function()
      local metadata = load({ pair("tokens", "array", { "string", "a", "", "bc" }), pair("none", "array", { "int8" }),
        pair("nested", "array", { "array", { "int16", 1, 2 }, { "string", "x" }, { "bool", true } }) }, {}).metadata
      assert.same({ tokens = { "a", "", "bc" }, none = {}, nested = { { 1, 2 }, { "x" }, { true } } }, metadata)
    end)

    it("an integer above 2^63 - 1 is a float", function()
      local metadata = load({ gguf.string "big" .. string.pack("<I4", 10) .. ("\255"):rep(8) }, {}).metadata
      assert.equal(2 ^ 64, metadata.big)
    end)

    it("the same table each time, and a tensor of that name comes first", function()
      local state = load({ pair("a", "int8", 1) }, {})
      assert.equal(state.metadata, state.metadata)
      state = load({ pair("a", "int8", 1) }, { tensor("metadata", { 1 }, 0, 0) }, string.pack("<f", 7))
      assert.equal(7, state.metadata[1])
    end)
  end)

  describe("that are broken give nil and a message:", function()
    local function refused(what, text, message)
      it(what, function() fails(("load: '%s'"):format(path "x.gguf") .. message, heed.load(file("x.gguf", text))) end)
    end

    refused("shorter than a header", "GGUF\3\0\0\0", ": is shorter than a GGUF file's header of 24 bytes")
    refused("other bytes", "GGML" .. ("\0"):rep(20), ": does not begin with GGUF")
    refused("big-endian", "GGUF\0\0\0\3" .. ("\0"):rep(16), ": is big-endian; it must be little-endian")
    refused("version 1", gguf.file({}, {}, "", { version = 1 }), ": is GGUF version 1; it must be 2 or 3")
    refused("an absurd number of tensors", gguf.file({}, {}, "", { tensors = -1 }),
      ": has 18446744073709551615 tensors and 0 pairs of metadata in 32 bytes")
    refused("an absurd number of pairs", gguf.file({}, {}, "", { pairs = 1000000 }),
      ": has 0 tensors and 1000000 pairs of metadata in 32 bytes")
    refused("fewer pairs than the header says", gguf.file({ pair("a", "bool", true) }, {}, ("\0"):rep(32),
      { pairs = 2 }),
      ": a key of the metadata at byte 38 is empty")
    refused("an absurd length of a key", gguf.file({ string.pack("<I8", -1) .. ("\0"):rep(8) }, {}),
      ": the length of a key of the metadata at byte 24 is 18446744073709551615; only 32 bytes follow")
    refused("a key that is not UTF-8", gguf.file({ pair("a\255", "bool", true) }, {}),
      ": a key of the metadata at byte 24 is not UTF-8; it must be")
    refused("a zero byte in a name", gguf.file({}, { tensor("a\0", { 1 }, 0, 0) }, "\0\0\0\0"),
      ": a tensor's name at byte 24 has a zero byte")
    refused("a duplicate key", gguf.file({ pair("a", "bool", true), pair("a", "int8", 1) }, {}), ": duplicate key 'a'")
    refused("a duplicate name", gguf.file({}, { tensor("a", { 0 }, 0, 0), tensor("a", { 0 }, 0, 0) }),
      ": duplicate name 'a'")
    refused("an unknown type of a value", gguf.file({ gguf.string "a" .. string.pack("<I4", 13) }, {}),
      ": the type of a value is 13; it must be 0 to 12")
    refused("an absurd array", gguf.file({ gguf.string "a" .. string.pack("<I4I4I8", 9, 8, -1) }, {}),
      ": an array has 18446744073709551615 elements at byte 49; only 15 bytes follow")
    refused("deep nesting",
      gguf.file({ gguf.string "a" .. string.pack("<I4", 9) .. string.pack("<I4I8", 9, 1):rep(1000) },
      {}, ("\0"):rep(9000)), ": arrays are nested deeper than 4")
    refused("a string beyond the end", gguf.file({ gguf.string "a" .. string.pack("<I4I8", 8, 1000) }, {}),
      ": the length of a string at byte 37 is 1000; only 19 bytes follow")
    refused("too many dimensions", gguf.file({}, { gguf.string "a" .. string.pack("<I4", 17) }, ("\0"):rep(64)),
      ": a tensor has 17 dimensions; it must have at most 16")
    refused("sizes that overflow", gguf.file({}, { tensor("a", { 2 ^ 40, 2 ^ 40 }, 0, 0) }),
      ", tensor 'a': its sizes are more than the address space")
    refused("a negative size", gguf.file({}, { tensor("a", { -1 }, 0, 0) }),
      ", tensor 'a': its sizes are more than the address space")
    refused("an offset that is no multiple of the alignment", gguf.file({}, { tensor("a", { 1 }, 0, 4) },
      ("\0"):rep(64)),
      ", tensor 'a': begins at byte 4 of the data; it must be a multiple of 32")
    refused("a tensor beyond the end", gguf.file({}, { tensor("a", { 3 }, 0, 32) }, ("\0"):rep(40)),
      ", tensor 'a': takes bytes 32 to 44 of the data, of which there are 40: the file is cut short")
    refused("tensors that overlap", gguf.file({}, { tensor("a", { 9 }, 0, 0), tensor("b", { 1 }, 0, 32) },
      ("\0"):rep(64)),
      ", tensor 'b': begins at byte 32 of the data, inside 'a'")
    refused("rows of half a block", gguf.file({}, { tensor("a", { 48 }, 8, 0) }, ("\0"):rep(64)),
      ", tensor 'a': its rows have 48 elements of Q8_0; they must be a multiple of 32")
    refused("an alignment that is no power of two", gguf.file({ pair("general.alignment", "uint32", 48) }, {}),
      ": general.alignment must be a power of two up to 2^20")

    it("cut short anywhere", function()
      local whole = gguf.file({ pair("a", "array", { "string", "b", "cd" }), pair("n", "uint32", 7) },
        { tensor("w", { 2, 2 }, 0, 0) }, ("\0"):rep(16))
      assert.is_truthy(heed.load(file("x.gguf", whole)))
      for bytes = 0, #whole - 1 do
        local state, message = heed.load(file("x.gguf", whole:sub(1, bytes)))
        assert.is_nil(state)
        assert.equal(1, (message:find("load: '", 1, true)))
      end
    end)
  end)
end)

describe("Saving GGUF files", function()
  files.in_folders(before_each, after_each)

  local function again(what, metadata)
    assert(heed.save(path "x.gguf", what, { metadata = metadata }))
    return assert(heed.load(path "x.gguf"))
  end

  local function read()
    local opened = assert(io.open(path "x.gguf", "rb"))
    local text = opened:read "*a"
    opened:close()
    return text
  end

  it("keeps names, shapes, dtypes and elements", function()
    local state = assert(heed.load "tests/golden/files/blocks.gguf")
    local what = { scalar = heed.tensor(3), half = heed.randn(2, 3):to "float16", brain = heed.randn(5):to "bfloat16",
      whole = heed.tensor { 1, -2 }:long(), byte = heed.tensor { 1, -2 }:to "int8", empty = heed.zeros(0, 3),
      turned = heed.randn(3, 4).T, cube = heed.randn(2, 3, 4) }
    for name, x in heed.pairs(state) do what[name] = x end
    what.row = state.q4_k[2]
    local found = again(what)
    for name, x in pairs(what) do
      assert.equal(x.dtype, found[name].dtype)
      assert.same(tostring(x.shape), tostring(found[name].shape))
      assert.equal(x:contiguous():to_string(), found[name]:to_string(), name)
    end
  end)

  it("writes what the specification says, byte for byte", function()
    again({ b = heed.tensor { { 1, 2, 3 } }, a = heed.tensor { 5 } },
      { name = "x", count = 7, rate = 0.5, list = { "a", "bc" }, yes = true })
    assert.equal(gguf.file({ pair("count", "uint32", 7), pair("list", "array", { "string", "a", "bc" }),
      pair("name", "string", "x"), pair("rate", "float32", 0.5), pair("yes", "bool", true) },
      { tensor("a", { 1 }, 0, 0), tensor("b", { 3, 1 }, 0, 32) },
      string.pack("<f", 5) .. ("\0"):rep(28) .. string.pack("<fff", 1, 2, 3) .. ("\0"):rep(20)), read())
  end)

  it("chooses a type for each number, and takes one from {type =, value =}", function()
    again({}, { a = -1, b = 2 ^ 32, c = { 1, 2 }, d = { 1, 0.5 }, e = { type = "float32", value = 10000 },
      f = { type = "uint8", value = { 1, 255 } }, g = {}, h = { { 1 }, { "x", "y" } }, i = 1e300 })
    assert.equal(gguf.file({ pair("a", "int32", -1), pair("b", "int64", 2 ^ 32),
      pair("c", "array", { "int32", 1, 2 }), pair("d", "array", { "float32", 1, 0.5 }), pair("e", "float32", 10000),
      pair("f", "array", { "uint8", 1, 255 }), pair("g", "array", { "int32" }),
      pair("h", "array", { "array", { "int32", 1 }, { "string", "x", "y" } }), pair("i", "float64", 1e300) },
      {}), read())
  end)

  it("keeps the types of loaded metadata, unless a value no longer fits", function()
    local pairs_of_metadata = { pair("a", "uint8", 1), pair("b", "float32", 10000), pair("c", "array", { "int16", 3 }),
      pair("d", "float64", 0.1) }
    local metadata = assert(heed.load(file("y.gguf", gguf.file(pairs_of_metadata, {})))).metadata
    again({}, metadata)
    assert.equal(gguf.file(pairs_of_metadata, {}), read())
    metadata.a, metadata.e = 300, 4
    again({}, metadata)
    pairs_of_metadata[1], pairs_of_metadata[5] = pair("a", "uint32", 300), pair("e", "uint32", 4)
    assert.equal(gguf.file(pairs_of_metadata, {}), read())
  end)

  it("aligns tensors as general.alignment says", function()
    again({ a = heed.ones(1), b = heed.ones(1) }, { ["general.alignment"] = 128 })
    assert.equal(128 + 2 * 128, #read())
    assert.has_error(function() heed.save(path "x.gguf", {}, { metadata = { ["general.alignment"] = 48 } }) end,
      "save: general.alignment must be a power of two up to 2^20")
  end)

  it("keeps the old file if it is refused", function()
    again({ a = heed.ones(1) })
    local before = read()
    local function refused(message, what, metadata)
      assert.has_error(function() heed.save(path "x.gguf", what, { metadata = metadata }) end, "save: " .. message)
      assert.equal(before, read())
    end
    refused("'a' is bool, which .gguf lacks; use x:to \"int8\"", { a = heed.ones(2):gt(0) })
    refused("'a' has 5 dimensions; it must have at most 4 in .gguf", { a = heed.ones(1, 1, 1, 1, 1) })
    local long = ("a"):rep(64)
    refused(("the name '%s' has 64 bytes; it must have 1 to 63 in .gguf"):format(long), { [long] = heed.ones(1) })
    refused("metadata['a'] has elements of different types; they must be of one", {}, { a = { 1, "x" } })
    refused("metadata['a'][2] is a function; it must be a number, a string or a boolean", {}, { a = { 1, print } })
    refused("metadata['a'] is a function; it must be a string, a number, a boolean, a list of these, or " ..
      "{type =, value =}", {}, { a = print })
    refused("a key of metadata['a'] is a string ('x'); it must be a number from 1 on, without gaps", {},
      { a = { x = 1 } })
    refused("metadata['a'].type is a string ('int'); it must be uint8, int8, uint16, int16, uint32, int32, uint64, " ..
      "int64, float32, float64, bool or string", {}, { a = { type = "int", value = 1 } })
    refused("metadata['a'] is the number 256; it must be a value of the type uint8", {},
      { a = { type = "uint8", value = 256 } })
    refused("metadata['a'][1][1][1][1] has lists in lists deeper than 4", {}, { a = { { { { {} } } } } })
    refused("a key of metadata has a zero byte; it must have none", {}, { ["a\0"] = 1 })
    refused("a key of the metadata is empty; it must not be", {}, { [""] = 1 })
  end)

  it("is the only way to save blocks", function()
    local x = heed.ones(32):to "q8_0"
    for _, name in ipairs { "x.safetensors", "x.npz" } do
      assert.has_error(function() heed.save(path(name), { x = x }) end,
        "save: number 1 of tensors is q8_0; it must not be quantized in blocks; use x:float()")
    end
  end)
end)

describe("Tensors in blocks", function()
  files.in_folders(before_each, after_each)

  local KINDS = { "q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "q4_k", "q5_k", "q6_k" }
  local state
  before_each(function() state = assert(heed.load "tests/golden/files/blocks.gguf") end) -- make_gguf_values.py

  local function refused(message, f)
    assert.has_error(f, message .. "; it must not be quantized in blocks; use x:float()")
  end

  it("have the dtype of their blocks", function()
    for _, kind in ipairs(KINDS) do assert.equal(kind, state[kind].dtype) end
    assert.same({ "a", "é", "" }, state.metadata["tokenizer.ggml.tokens"])
  end)

  it("widen to the numbers that ggml gives, bit for bit", function()
    for _, kind in ipairs(KINDS) do
      local wide = state[kind .. ".wide"]
      assert.is_true(heed.equal(wide, state[kind]:float()), kind)
      assert.is_true(heed.equal(wide:to "bfloat16":float(), state[kind]:to "bfloat16":float()), kind)
    end
  end)

  it("give rows, and copies of rows, as blocks", function()
    for _, kind in ipairs(KINDS) do
      local x, wide = state[kind], state[kind .. ".wide"]
      assert.is_true(heed.equal(wide[2], x[2]:float()))
      assert.is_true(heed.equal(wide[{ { 2, 2 } }], x[{ { 2, 2 } }]:clone():float()))
      assert.is_true(heed.equal(wide:select(1, 2), x:select(1, 2):contiguous():float()))
      assert.equal(kind, x:narrow(1, 2, 1).dtype)
    end
  end)

  it("are printed widened", function()
    local text = tostring(state.q8_0[1])
    assert.equal(tostring(state["q8_0.wide"][1]):sub(1, -2), (text:gsub(",%s*dtype=heed.q8_0%)$", "")))
  end)

  it("are weights of linear and embedding", function()
    for _, kind in ipairs(KINDS) do
      local x, wide = state[kind], state[kind .. ".wide"]
      local input = heed.randn(3, wide:size(2))
      assert.is_true(heed.allclose(heed.linear(input, wide), heed.linear(input, x), { atol = 1e-4, rtol = 1e-4 }), kind)
      assert.is_true(heed.equal(wide[2], heed.embedding(heed.tensor { 2 }, x)[1]))
    end
  end)

  it("are multiplied in fewer bits on request, within the rounding of x", function()
    local before = heed.get_matmul_precision()
    for _, kind in ipairs(KINDS) do
      local x = heed.randn(40, state[kind]:size(2))
      local wanted = heed.linear(x, state[kind])
      for _, precision in ipairs { "high", "medium" } do
        heed.set_matmul_precision(precision)
        local got = heed.linear(x, state[kind])
        heed.set_matmul_precision(before)
        local error = ((got - wanted):square():mean() / wanted:square():mean()):sqrt():item()
        assert.is_true(error < 1e-2, kind .. " " .. precision)
      end
    end
  end)

  it("are parameters of Linear and Embedding, which can be widened", function()
    local x = state.q4_k[{ { 1, 2 } }]
    local layer = heed.nn.Linear(x:size(2), 2, { bias = false })
    layer:load_state_dict({ weight = x }, { assign = true })
    assert.equal("q4_k", layer.weight.dtype)
    layer:to "float32"
    assert.is_true(heed.equal(state["q4_k.wide"], layer.weight))
  end)

  it("go back to bytes and come from them", function()
    local x = state.q6_k
    assert.is_true(heed.equal(x:float(), heed.from_string(x:to_string(), "q6_k", 2, x:size(2)):float()))
  end)

  it("of 32 are what ggml quantizes, byte for byte, from any real dtype and layout", function()
    for _, kind in ipairs { "q4_0", "q4_1", "q5_0", "q5_1", "q8_0" } do
      local x = state.x
      assert.equal(state["x." .. kind]:to_string(), x:to(kind):to_string(), kind)
      local turned = heed.randn(64, 3)
      assert.equal(turned.T:contiguous():to(kind):to_string(), turned.T:to(kind):to_string())
      local half = x:to "float16"
      assert.equal(half:float():to(kind):to_string(), half:to(kind):to_string())
      assert.equal(state["q4_k.wide"]:to(kind):to_string(), state.q4_k:to(kind):to_string())
    end
  end)

  describe("of 256", function()
    local function error_of(x, kind)
      local difference = x:to(kind):float() - x
      return (difference * difference):mean():sqrt():item()
    end
    local function weights()
      local x = heed.randn(8, 512, { generator = heed.Generator(28) })
      return x * heed.exp(x[{ { 1, 8 }, { 1, 1 } }]) -- rows of different sizes
    end

    it("have smaller errors than those of 32 with as many bits", function()
      local x = weights()
      assert.is_true(error_of(x, "q4_k") < 0.97 * error_of(x, "q4_1"))
      assert.is_true(error_of(x, "q5_k") < 0.98 * error_of(x, "q5_1"))
      assert.is_true(error_of(x, "q6_k") < 0.6 * error_of(x, "q5_k"))
    end)

    it("represent zeros, one number, and groups of different sizes", function()
      for _, kind in ipairs { "q4_k", "q5_k", "q6_k" } do
        assert.is_true(heed.equal(heed.zeros(2, 256), heed.zeros(2, 256):to(kind):float()))
        for _, value in ipairs { 3, -3, 65504, -65504, 0.1 } do
          local x = heed.full({ 256 }, value)
          assert.is_true(heed.allclose(x, x:to(kind):float(), { rtol = 1e-2, atol = 0 }), kind .. " " .. value)
        end
        local x = heed.randn(256)
        x[{ { 1, 64 } }] = x[{ { 1, 64 } }] * 1e-3
        local error = (x:to(kind):float() - x):abs()
        assert.is_true(error[{ { 1, 64 } }]:max():item() < 0.02, kind)
        assert.is_true(error:max():item() < 0.3, kind)
      end
    end)

    it("represent numbers that are nearly the same", function()
      local noise = heed.randn(400, 256, { generator = heed.Generator(1) })
      for _, kind in ipairs { "q4_k", "q5_k", "q6_k" } do
        for _, mean in ipairs { 1, 0.02, -1 } do
          local x = (noise * 1e-4 + 1) * mean
          assert.is_true(heed.allclose(x, x:to(kind):float(), { rtol = 0.02, atol = 0 }), kind .. " " .. mean)
        end
      end
    end)

    it("do not depend on the number of threads", function()
      local x, threads = heed.randn(64, 1024), heed.get_num_threads()
      heed.set_num_threads(1)
      local one = x:to "q4_k":to_string()
      heed.set_num_threads(3)
      local three = x:to "q4_k":to_string()
      heed.set_num_threads(threads)
      assert.equal(one, three)
    end)
  end)

  it("are refused for numbers that they cannot hold, and rows of half a block", function()
    for _, kind in ipairs(KINDS) do
      for _, value in ipairs { heed.nan, heed.inf, -70000 } do
        assert.has_error(function() return heed.full({ 256 }, value):to(kind) end,
          "to: x contains nan, inf or numbers above 65504 in magnitude, which " .. kind .. " cannot hold")
      end
    end
    assert.has_error(function() return heed.ones(33):to "q8_0" end,
      "to: the shape is [33]; the last size of q8_0 must be a multiple of 32")
    assert.has_error(function() return heed.ones(2, 32):to "q4_k" end,
      "to: the shape is [2, 32]; the last size of q4_k must be a multiple of 256")
  end)

  it("of tiny numbers are zeros", function()
    for _, kind in ipairs(KINDS) do
      assert.is_true(heed.equal(heed.zeros(256), heed.full({ 256 }, 1e-39):to(kind):float()), kind)
    end
  end)

  it("are weights of a module after m:to(\"q8_0\"), where rows are whole blocks", function()
    local m = heed.nn.Sequential(heed.nn.Linear(64, 33), heed.nn.Linear(33, 64), heed.nn.Embedding(5, 32))
    local wide = m[1].weight:clone()
    m:to "q8_0"
    assert.same({ "q8_0", "float32", "q8_0" }, { m[1].weight.dtype, m[2].weight.dtype, m[3].weight.dtype })
    assert.is_true(heed.allclose(wide, m[1].weight:float(), { atol = 1e-3 }))
    m:to "float32"
    assert.equal("float32", m[1].weight.dtype)
    m = heed.nn.Sequential(heed.nn.Linear(512, 2), heed.nn.Linear(64, 2))
    assert.same({ "q4_k", "q5_0" }, { m:to("q4_k")[1].weight.dtype, m[2].weight.dtype })
  end)

  it("are no dtype of caches", function()
    local mha = heed.nn.MultiHeadAttention(32, 32, 8, 0, 1)
    assert.has_error(function() mha:new_cache { dtype = "q8_0" } end)
  end)

  it("refuse all that needs elements, and say what to write", function()
    local x = state.q8_0
    refused("add: a is q8_0", function() return x + 1 end)
    refused("sum: x is q8_0", function() return x:sum() end)
    refused("matmul: b is q8_0", function() return heed.matmul(heed.randn(2, 2), x) end)
    refused("index: x is q8_0", function() return x[1][1] end)
    refused("index: x is q8_0", function() return x[{ 1, { 1, 2 } }] end)
    refused("index: x is q8_0", function() x[1] = 0 end)
    refused("t: x is q8_0", function() return x:t() end)
    refused("T: x is q8_0", function() return x.T end)
    refused("tolist: x is q8_0", function() return x:tolist() end)
    refused("tensor: a tensor in the table is q8_0", function() return heed.tensor { x } end)
    refused("cat: number 2 of tensors is q8_0", function() return heed.cat { heed.ones(2), x } end)
    refused("index: the value is q8_0", function() heed.ones(2, 64)[1] = x[1] end)
    assert.has_error(function() return heed.zeros(32, { dtype = "q8_0" }) end,
      "zeros: dtype is q8_0; it must not be a blocked dtype")
    local blocked = "tensor: dtype is q8_0; it must not be a blocked dtype"
    assert.has_error(function() return heed.tensor({ heed.ones(32) }, { dtype = "q8_0" }) end, blocked)
    assert.has_error(function() return heed.ones(1):new_tensor(heed.ones(32):tolist(), { dtype = "q8_0" }) end, blocked)
    assert.has_error(function() return heed.empty(33, { dtype = "q8_0" }) end,
      "empty: the shape is [33]; the last size of q8_0 must be a multiple of 32")
  end)
end)
