-- Broken files: each gives nil and a message that names the problem and its position.
local heed = require "heed"
local core = require "heed.core"
local support = require "tests.support"
local files = dofile "tests/files.lua"
local path, file, fails, safetensors = files.path, files.file, files.fails, files.safetensors

local golden = "tests/golden/files/"

--- The text of an .npy file.
local function npy(header, data, version)
  local length = version == 1 and "<s2" or "<s4"
  return "\147NUMPY" .. string.char(version or 2, 0) .. string.pack(length, header) .. (data or "")
end

describe("files", function()
  files.in_folders(before_each, after_each)

  describe("in the safetensors format that are broken give nil and a message:", function()
    local function entry(dtype, shape, from, to)
      return ('{"dtype":"%s","shape":[%s],"data_offsets":[%s,%s]}'):format(dtype, shape, from, to)
    end

    local function broken(what, text, message)
      it(what, function()
        fails(("load: '%s'"):format(path "x.safetensors") .. message, heed.load(file("x.safetensors", text)))
      end)
    end

    broken("too short for a length", "\1\0\0",
      ": has 3 bytes; the first 8 of a .safetensors file give its header's length")
    broken("a header longer than the file", string.pack("<i8", 100) .. "{}",
      ": the header has 100 bytes, and only 2 follow: the file is cut short")
    broken("an absurd length", string.pack("<i8", -1) .. "{}",
      ": the header has 18446744073709551615 bytes, by the first 8 of the file; it must have at most 100000000")
    broken("no header", string.pack("<i8", 0) .. "{}", ": the header does not begin with {")
    broken("a header that is not an object", safetensors "[]", ": the header does not begin with {")
    broken("a truncated header", safetensors '{"a":',
      ", the header: not valid JSON at byte 6: the text ends where a value is expected")
    broken("text after the header", safetensors "{}}",
      ", the header: not valid JSON at byte 3: unexpected text after the value")
    broken("deep nesting", safetensors('{"a":' .. ("["):rep(100000) .. ("]"):rep(100000) .. "}"),
      ", the header: not valid JSON at byte 13: lists and objects are nested too deeply")
    broken("bytes that are not UTF-8", safetensors '{"\195\040":1}',
      ", the header: not valid JSON at byte 3: not UTF-8")
    broken("a character 0 in a name", safetensors '{"a\\u0000":1}',
      ", the header: not valid JSON at byte 5: a string contains the character 0")
    broken("half a pair of surrogates", safetensors '{"\\ud800":1}',
      ", the header: not valid JSON at byte 4: an unpaired surrogate")
    broken("a duplicate name",
      safetensors(('{"a":%s,"b":%s,"a":%s}'):format(entry("I8", 1, 0, 1), entry("I8", 1, 1, 2),
      entry("I8", 1, 2, 3)), "xyz"), ": duplicate name 'a'")
    broken("a name that is a duplicate after unescaping",
      safetensors(('{"a":%s,"\\u0061":%s}'):format(entry("I8", 1, 0, 1), entry("I8", 1, 1, 2)), "xy"),
      ": duplicate name 'a'")
    broken("an entry that is not an object", safetensors '{"a":3}',
      ", tensor 'a': must be an object with dtype, shape and data_offsets")
    broken("a missing dtype", safetensors '{"a":{"shape":[],"data_offsets":[0,0]}}',
      ", tensor 'a': dtype is missing")
    broken("a missing shape", safetensors '{"a":{"dtype":"I8","data_offsets":[0,0]}}',
      ", tensor 'a': shape is missing")
    broken("missing offsets", safetensors '{"a":{"dtype":"I8","shape":[]}}',
      ", tensor 'a': data_offsets is missing")
    broken("a duplicate shape", safetensors '{"a":{"dtype":"I8","shape":[0],"shape":[0],"data_offsets":[0,0]}}',
      ", tensor 'a': duplicate shape")
    broken("an unknown dtype", safetensors(('{"a":%s}'):format(entry("Q7\\n", 1, 0, 1)), "x"),
      ", tensor 'a': dtype is 'Q7\\x0a'; it must be F64, F32, F16, BF16, I64, I32, I16, I8, U64, U32, U16, " ..
      "U8 or BOOL")
    broken("a dtype that is not a string", safetensors '{"a":{"dtype":1,"shape":[0],"data_offsets":[0,0]}}',
      ", tensor 'a': dtype must be a string")
    broken("a shape that is not a list", safetensors '{"a":{"dtype":"I8","shape":1,"data_offsets":[0,1]}}',
      ", tensor 'a': shape must be a list")
    broken("a negative size", safetensors(('{"a":%s}'):format(entry("I8", "2,-1", 0, 1)), "x"),
      ", tensor 'a': shape: size 2 is -1; it must be an integer from 0 to 2^53")
    broken("a size that is not a number", safetensors(('{"a":%s}'):format(entry("I8", '"1"', 0, 1)), "x"),
      ", tensor 'a': shape: size 1 is not a number; it must be an integer from 0 to 2^53")
    broken("a size with a fraction", safetensors(('{"a":%s}'):format(entry("I8", "1.0", 0, 1)), "x"),
      ", the header: not valid JSON at byte 29: the number must be an integer, in digits alone")
    broken("a size that no double can represent",
      safetensors(('{"a":%s}'):format(entry("I8", "9007199254740993", 0, 1)), "x"),
      ", tensor 'a': shape: size 1 is 9007199254740992; it must be an integer from 0 to 2^53")
    broken("a number of a thousand digits",
      safetensors(('{"a":%s}'):format(entry("I8", ("9"):rep(1000), 0, 1)), "x"),
      ", the header: not valid JSON at byte 29: the number is too long")
    broken("sizes whose product overflows",
      safetensors(('{"a":%s}'):format(entry("I8", "4503599627370496,4503599627370496", 0, 1)), "x"),
      ", tensor 'a': [4503599627370496, 4503599627370496] elements of I8 are more than a file can hold")
    broken("17 dimensions", safetensors(('{"a":%s}'):format(entry("I8", ("1,"):rep(16) .. "1", 0, 1)), "x"),
      ", tensor 'a': shape has more than 16 dimensions")
    broken("negative offsets", safetensors(('{"a":%s}'):format(entry("I8", 1, -1, 0)), "x"),
      ", tensor 'a': data_offsets: number 1 is -1; it must be an integer from 0 to 2^53")
    broken("offsets in the wrong order", safetensors(('{"a":%s}'):format(entry("I8", 1, 1, 0)), "x"),
      ", tensor 'a': data_offsets are [1, 0]; [1] of I8 takes 1 byte")
    broken("three offsets", safetensors('{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1,2]}}', "x"),
      ", tensor 'a': data_offsets has more than two numbers")
    broken("one offset", safetensors('{"a":{"dtype":"I8","shape":[1],"data_offsets":[0]}}', "x"),
      ", tensor 'a': data_offsets must be a list of two numbers")
    broken("a shape that does not fit its bytes",
      safetensors(('{"a":%s}'):format(entry("F32", "2,3", 0, 20)), ("x"):rep(20)),
      ", tensor 'a': data_offsets are [0, 20]; [2, 3] of F32 takes 24 bytes")
    broken("truncated data", safetensors(('{"a":%s}'):format(entry("F32", "2,3", 0, 24)), ("x"):rep(20)),
      ", tensor 'a': ends at byte 24 of the data, and there are only 20: the file is cut short")
    broken("tensors that overlap",
      safetensors(('{"a":%s,"b":%s}'):format(entry("I8", 4, 0, 4), entry("I8", 4, 3, 7)), "0123456"),
      ", tensor 'b': begins at byte 3 of the data, inside 'a'")
    broken("a hole",
      safetensors(('{"a":%s,"b":%s}'):format(entry("I8", 4, 5, 9), entry("I8", 4, 0, 4)), "012345678"),
      ", tensor 'a': begins at byte 5 of the data; bytes 4 and on belong to no tensor")
    broken("bytes after the last tensor", safetensors(('{"a":%s}'):format(entry("I8", 4, 0, 4)), "01234"),
      ": the last 1 byte belongs to no tensor")
    broken("metadata that is not an object", safetensors '{"__metadata__":[]}', ": __metadata__ must be an object")
    broken("metadata that is not text", safetensors '{"__metadata__":{"a":1}}',
      ": __metadata__: 'a' must be a string")
    broken("duplicate metadata", safetensors '{"__metadata__":{},"__metadata__":{}}',
      ": duplicate __metadata__")
    broken("a duplicate metadata key", safetensors '{"__metadata__":{"a":"1","a":"2"}}',
      ": __metadata__: duplicate key 'a'")
    broken("too many values", safetensors('{"a":[' .. ("0,"):rep(2 ^ 21) .. "0]}"),
      ", the header: not valid JSON at byte 4194307: too many values")
    broken("a string of more than 16 MiB", safetensors('{"__metadata__":{"a":"' .. ("x"):rep(2 ^ 24) .. '"}}'),
      ", the header: not valid JSON at byte 22: the string is too long")
  end)

  describe("with a safetensors index that is broken give nil and a message:", function()
    local one = safetensors('{"a":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}', "x")

    local function broken(what, text, message)
      it(what, function()
        file("one.safetensors", one)
        local at = file("x.safetensors.index.json", text)
        fails(("load: '%s'%s"):format(at, message), heed.load(at))
      end)
    end

    broken("a file that is not an object", "[]", ": must be an object with weight_map")
    broken("no weight_map", "{}", ": weight_map is missing")
    broken("a weight_map that is not an object", '{"weight_map":1}', ": weight_map must be an object")
    broken("two weight_maps", '{"weight_map":{},"weight_map":{}}', ": duplicate weight_map")
    broken("a name that is not a string", '{"weight_map":{"a":1}}', ": weight_map: the file of 'a' must be a string")
    for _, name in ipairs { "", ".", "..", "../one.safetensors", "/tmp/one.safetensors", "a/one.safetensors" } do
      broken("a file elsewhere: " .. name, ('{"weight_map":{"a":"%s"}}'):format(name),
        (": weight_map: the file is '%s'; it must be a name in the folder of the index"):format(name))
    end
    broken("a tensor that is elsewhere", '{"weight_map":{"a":"one.safetensors","b":"one.safetensors"}}',
      ": weight_map: the tensor 'b' is missing from 'one.safetensors'")
    broken("a duplicate name", '{"weight_map":{"a":"one.safetensors","a":"one.safetensors"}}',
      ": duplicate name 'a'")

    it("a missing file", function()
      fails(("load: '%s': cannot be opened: No such file or directory"):format(path "two.safetensors"),
        heed.load(file("x.safetensors.index.json", '{"weight_map":{"a":"two.safetensors"}}')))
    end)

    it("a file that is broken", function()
      file("two.safetensors", one .. "y")
      fails(("load: '%s': the last 1 byte belongs to no tensor"):format(path "two.safetensors"),
        heed.load(file("x.safetensors.index.json", '{"weight_map":{"a":"two.safetensors"}}')))
    end)
  end)

  describe("in numpy's formats that are broken give nil and a message:", function()
    local function header(descr, order, shape)
      return ("{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n"):format(descr, order, shape)
    end

    local function broken(what, text, message)
      it(what, function()
        local at = file("x.npy", text)
        fails(("load: '%s': %s"):format(at, message), heed.load(at))
      end)
    end

    local good = header("<f4", "False", "(2, 3)")
    broken("other bytes at the start", "\147NUMPX\1\0" .. ("x"):rep(100),
      "is not an .npy file: it does not begin with \\x93NUMPY")
    broken("a future version", npy(good, ("x"):rep(24), 4), "its version is 4.0; it must be 1.0, 2.0 or 3.0")
    broken("no length", "\147NUMPY\1\0\1", "the header is cut short")
    broken("a header longer than the file", "\147NUMPY\1\0\000\002" .. good, "the header is cut short")
    broken("an absurd header", "\147NUMPY\2\0\255\255\255\255" .. good,
      "its header has 4294967295 bytes; it must have at most 65536")
    broken("a header without a dict", npy "[]", "the header is not valid at byte 1: { is expected")
    broken("a dict that does not end", npy "{'descr': '<f4'",
      "the header is not valid at byte 16: a comma or } is expected")
    broken("a missing key", npy "{'descr': '<f4', 'shape': ()}", "the header lacks fortran_order")
    broken("a duplicate key", npy "{'descr': '<f4', 'descr': '<f4'}",
      "the header is not valid at byte 25: duplicate key")
    broken("an unknown key", npy "{'x': '<f4'}",
      "the header is not valid at byte 5: the key must be descr, fortran_order or shape")
    broken("data after the dict", npy(good .. "x", ("x"):rep(24)),
      "the header is not valid at byte 61: unexpected text after }")
    broken("an order that is not a bool", npy(header("<f4", "0", "(2, 3)")),
      "the header is not valid at byte 35: True or False is expected")
    broken("a shape that is not a tuple", npy(header("<f4", "False", "6")),
      "the header is not valid at byte 51: the shape must be a tuple")
    broken("a number in parentheses", npy(header("<f4", "False", "(6)")),
      "the header is not valid at byte 54: the shape must be a tuple, (3,)")
    broken("a negative size", npy(header("<f4", "False", "(2, -3)")),
      "the header is not valid at byte 55: a size of the shape is expected, an integer from 0 up")
    broken("a size beyond 2^63", npy(header("<f4", "False", "(99999999999999999999,)")),
      "the header is not valid at byte 70: the size is too large")
    broken("sizes whose product overflows", npy(header("<f4", "False", "(4294967296, 4294967296)")),
      "its shape is [4294967296, 4294967296], more than the address space")
    broken("17 dimensions", npy(header("<f4", "False", "(" .. ("1, "):rep(17) .. ")")),
      "the header is not valid at byte 100: the shape has more than 16 dimensions")
    broken("too few elements", npy(good, ("x"):rep(20)),
      "has 20 bytes after the header; [2, 3] of <f4 takes 24: it is cut short")
    broken("too many elements", npy(good, ("x"):rep(25)), "has 25 bytes after the header; [2, 3] of <f4 takes 24")
    broken("a size far beyond the file", npy(header("<f8", "False", "(1000000000000,)"), "x"),
      "has 1 byte after the header; [1000000000000] of <f8 takes 8000000000000: it is cut short")
    broken("an ambiguous byte order", npy(header("|f4", "False", "(1,)"), "xxxx"),
      "its dtype is '|f4'; it must be f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8 or b1, of either " ..
      "byte order")
    broken("numpy's bfloat16", npy(header("<V2", "False", "(1,)"), "xx"),
      "its dtype is '<V2'; it must be f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8 or b1, of either " ..
      "byte order")

    it("every npz that is truncated or has a changed byte", function()
      local whole = support.read(golden .. "deflated.npz")
      for length = 0, #whole - 1 do
        local got, message = heed.load(file("x.npz", whole:sub(1, length)))
        assert.is_nil(got)
        assert.are.equal(("load: '%s'"):format(path "x.npz"), message:match "^load: '.-'")
      end
    end)

    it("an npz with a wrong checksum", function()
      local whole = support.read(golden .. "stored.npz")
      local at = whole:find(string.pack("<f", 8.5), 1, true)
      fails(("load: '%s', entry 'weight.npy': cannot be read: CRC error"):format(path "x.npz"),
        heed.load(file("x.npz", whole:sub(1, at - 1) .. "?" .. whole:sub(at + 1))))
    end)

    it("an npz with a duplicate name", function()
      assert.are.equal(true, heed.save(path "a.npz", { one = heed.ones(2), two = heed.ones(2) }))
      fails(("load: '%s': duplicate name 'one'"):format(path "x.npz"),
        heed.load(file("x.npz", (support.read(path "a.npz"):gsub("two", "one")))))
    end)

    it("an npz with entries that are not npy files", function()
      assert.are.equal(true, heed.save(path "a.npz", { x = heed.ones(2) }))
      local text = support.read(path "a.npz")
      local got, message = heed.load(file("x.npz", (text:gsub("\147NUMPY", "\147NUMPX"))))
      fails(("load: '%s', entry 'x.npy': is not an .npy file: it does not begin with \\x93NUMPY"):format(path "x.npz"),
        got, message)
    end)
  end)

  describe("in the JSON format", function()
    local function json(text) return core.files.json(file("config.json", text)) end

    it("are read as tables", function()
      assert.are.same({ a = 1, b = { 1, 2.5, "x", true, false }, c = { d = {} }, f = "é\n\"😀" }, json [[
        {"a": 1, "b": [1, 2.5, "x", true, false], "c": {"d": {}}, "e": null, "f": "\u00e9\n\"\ud83d\ude00"}]])
      support.number_is("integer", json "12")
      assert.are.equal(1e-12, json "1e-12")
      support.number_is("float", json "9007199254740993")
      assert.are.equal("a", json '\239\187\191 "a" ')
    end)

    for text, message in pairs {
      [""] = "is empty",
      ["{"] = "not valid JSON at byte 2: a string in quotes is expected",
      ['{"a"}'] = "not valid JSON at byte 5: a colon is expected after the name",
      ['{"a":1,}'] = "not valid JSON at byte 8: a string in quotes is expected",
      ["[1,]"] = "not valid JSON at byte 4: a value is expected",
      ["[1 2]"] = "not valid JSON at byte 4: a comma or ] is expected",
      ["{'a':1}"] = "not valid JSON at byte 2: a string in quotes is expected",
      ["007"] = "not valid JSON at byte 2: unexpected text after the value",
      ["1."] = "not valid JSON at byte 3: a digit is expected",
      ["+1"] = "not valid JSON at byte 1: a value is expected",
      ["1e"] = "not valid JSON at byte 3: a digit is expected",
      ["NaN"] = "not valid JSON at byte 1: a value is expected",
      ["tru"] = "not valid JSON at byte 1: a value is expected",
      ['"a'] = "not valid JSON at byte 3: the text ends within a string",
      ['"\n"'] = "not valid JSON at byte 2: a string contains a control character",
      ['"\\x"'] = "not valid JSON at byte 3: an unknown escape in a string",
      ['"\\u12"'] = "not valid JSON at byte 3: an unknown escape in a string",
      ['"\\udc00"'] = "not valid JSON at byte 3: an unpaired surrogate",
      [("["):rep(65) .. ("]"):rep(65)] = "not valid JSON at byte 65: lists and objects are nested too deeply",
    } do
      it(("that are broken give nil and a message: %.20s"):format(text:gsub("%c", " ")), function()
        fails(("load: '%s': %s"):format(path "config.json", message), json(text))
      end)
    end

    it("may be nested 64 levels deep and have at most 16 MiB", function()
      assert.is_table(json(("["):rep(64) .. ("]"):rep(64)))
      fails(("load: '%s': has 16777217 bytes; it must have at most 16777216"):format(path "config.json"),
        json((" "):rep((2 ^ 24) - 1) .. "12"))
      assert.are.equal(7, json((" "):rep((2 ^ 24) - 1) .. "7"))
    end)
  end)
end)
