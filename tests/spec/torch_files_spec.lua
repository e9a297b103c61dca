-- Files of torch.save: the tensors in them, and what else they hold. The files are those of
-- scripts/dev/make_torch_values.py.
local heed = require "heed"
local files = dofile "tests/files.lua"
local raises = require "tests.raises"
local support = require "tests.support"
local tensors = require "tests.tensors"
local fails, same, file, path = files.fails, files.same, files.file, files.path

local golden = "tests/golden/files/"
local function names_of(state) return tensors.names_of(heed.pairs(state)) end

local legacy, tensor = files.torch, files.torch_tensor
local text, global = files.pickled_text, files.pickled_global
local KEYS, STORAGE = "](" .. text "0" .. "e", string.pack("<i8ffff", 4, 1, 2, 3, 4)

describe("files of torch.save", function()
  files.in_folders(before_each, after_each)

  it("give tensors of all dtypes", function()
    local state, metadata = heed.load(golden .. "dtypes.pt")
    assert.are.equal("float32 float64 float16 bfloat16 int64 int32 int16 int8 bool", names_of(state))
    for name, x in heed.pairs(state) do same(files.golden(name, 2, 3, 4), x) end
    assert.are.same({}, metadata)
  end)

  for _, name in ipairs { "views.pt", "legacy_views.pt" } do
    it("give views in order, whatever their strides: " .. name, function()
      local state = heed.load(golden .. name)
      local base = files.golden("float32", 4, 6)
      assert.are.equal("base transposed part expanded number empty parameter", names_of(state))
      same(base, state.base)
      same(base.T, state.transposed)
      same(base[{ { 2, 3 }, { 1, 6, 2 } }], state.part)
      same(base[{ {}, { 1, 1 } }]:expand(4, 3), state.expanded)
      same(heed.tensor(2.5), state.number)
      same(heed.zeros(2, 0), state.empty)
      same(files.golden("float32", 2, 3), state.parameter)
    end)
  end

  it("may be older than PyTorch 1.6", function()
    local state = heed.load(golden .. "legacy.pt")
    assert.are.equal("float32 float64 float16", names_of(state))
    for name, x in heed.pairs(state) do same(files.golden(name, 2, 3, 4), x) end
  end)

  it("give dotted names for nested dicts and lists, and metadata for numbers and texts", function()
    local state, metadata = heed.load(golden .. "checkpoint.pt")
    assert.are.equal(5, #state)
    same(files.golden("float32", 2, 3), state["model.weight"])
    same(heed.tensor(3), state["optimizer.state.0.step"])
    same(heed.tensor({ 7 }, { dtype = "int64" }), state.wide)
    raises(("load: '%scheckpoint.pt', tensor 'low': its dtype is float8_e4m3fn, which heed lacks; convert it to "
      .. "float32 in Python"):format(golden), function() print(state.low) end)
    assert.are.same({ iter_num = "2000", best = "1.5", done = "false", ["config.name"] = "gpt",
      ["optimizer.groups.0.lr"] = "0.10000000000000001", ["optimizer.groups.0.betas.0"] = "0.90000000000000002",
      ["optimizer.groups.0.betas.1"] = "0.94999999999999996" }, metadata)
    assert.are.equal("0 1.0 1.1", names_of(heed.load(golden .. "list.pt")))
  end)

  it("give a tensor that was saved alone", function()
    same(files.golden("float32", 2, 3), heed.load(golden .. "alone.pt"))
  end)

  it("can be loaded into a module", function()
    local layer = heed.nn.Linear(3, 2)
    layer:load_state_dict(heed.load(golden .. "checkpoint.pt").model)
    same(files.golden("float32", 2, 3), heed.tensor(layer.weight:tolist()))
    local state = heed.load(golden .. "checkpoint.pt")
    layer:load_state_dict { weight = state["model.weight"], bias = state["model.bias"] }
  end)

  it("give the part below a key as a state dict", function()
    local state = heed.load(golden .. "checkpoint.pt")
    assert.are.equal("weight bias", names_of(state.model))
    same(heed.tensor(3), state.optimizer.state["0"].step)
    assert.is_nil(state.mode)
    assert.is_nil(state.model.other)
    local outer = heed.nn.Module.class "Outer"()
    outer.model = heed.nn.Parameter(heed.zeros(2, 3))
    assert.are.same({ "model" }, outer:load_state_dict(state, { strict = false }).missing_keys)
  end)

  it("are recognised by their first bytes", function()
    for _, name in ipairs { "dtypes.pt", "legacy.pt" } do
      for _, ending in ipairs { "model.bin", "model.pth", "model.ckpt", "model" } do
        local from = file(ending, support.read(golden .. name))
        same(files.golden("float32", 2, 3, 4), heed.load(from).float32)
      end
    end
  end)

  it("are loaded with the options of torch.load", function()
    local options = { map_location = "cpu", weights_only = true, mmap = true }
    same(files.golden("float32", 2, 3), heed.load(golden .. "alone.pt", options))
    same(files.golden("float32", 2, 3), heed.load(golden .. "alone.pt", "cpu"))
    raises("load: map_location is a string ('cuda'); it must be 'cpu', where heed computes, or nil",
      function() heed.load("x.pt", { map_location = "cuda" }) end)
    raises("load: weights_only is the number 1; it must be a boolean",
      function() heed.load("x.pt", { weights_only = 1 }) end)
  end)

  it("are refused if they hold objects of Python, which are named", function()
    local fix = "and heed runs no code of files; in Python, save its tensors alone: "
      .. "torch.save(model.state_dict(), path)"
    fails(("load: '%sobject.pt': it holds an object of Python, 'mine.Thing', %s"):format(golden, fix),
      heed.load(golden .. "object.pt"))
    fails(("load: '%s': it holds an object of Python, 'os.system', %s"):format(path "x.pt", fix),
      heed.load(file("x.pt", legacy("}" .. text "x" .. global("os", "system") .. text "ls" .. "\133Rs"))))
  end)

  it("may hold a tensor of a dtype that heed lacks, which is refused when it is used", function()
    for dtype, count in pairs { complex32 = 1, float4_e2m1fn_x2 = 4 } do
      local odd = tensor(16, 0, "K" .. string.char(count), "K\1"):gsub("_rebuild_tensor_v2", "_rebuild_tensor_v3")
        :gsub("FloatStorage", "UntypedStorage"):gsub("}tR$", "}" .. global("torch", dtype) .. "tR")
      local state = heed.load(file("x.pt", legacy("}(" .. text "odd" .. odd .. "u", KEYS, string.pack("<i8", 16)
        .. ("0"):rep(16))))
      raises(("load: '%s', tensor 'odd': its dtype is %s, which heed lacks; convert it to float32 in Python")
        :format(path "x.pt", dtype), function() print(state.odd) end)
    end
  end)

  it("may hold an OrderedDict of Python 2, which gets a list of its pairs", function()
    local pairs_list = "](](" .. text "b" .. tensor(4, 0, "K\4", "K\1") .. "e](" .. text "a"
      .. tensor(4, 1, "K\2", "K\2") .. "ee"
    local dict = global("collections", "OrderedDict") .. pairs_list .. "\133R"
    local state = heed.load(file("x.pt", legacy(dict, KEYS, STORAGE)))
    assert.are.equal("b a", names_of(state))
    same(heed.tensor { 1, 2, 3, 4 }, state.b)
    same(heed.tensor { 2, 4 }, state.a)
  end)

  it("name the class of a module that was saved whole, before PyTorch 1.6, too", function()
    local class = "(" .. text "module" .. global("__main__", "GPT") .. "NNtQ"
    fails(("load: '%s': it holds an object of Python, '__main__.GPT', and heed runs no code of files; in Python, save "
      .. "its tensors alone: torch.save(model.state_dict(), path)"):format(path "x.pt"),
      heed.load(file("x.pt", legacy(class .. ")\129}" .. text "w" .. tensor(4, 0, "K\4", "K\1") .. "sb",
        KEYS, STORAGE))))
  end)

  it("are little-endian before PyTorch 1.6, wherever they were written", function()
    local contents = legacy(tensor(4, 0, "K\4", "K\1"), KEYS, STORAGE)
    local big = contents:gsub("}%.", "}" .. text "little_endian" .. "\137s.", 1)
    assert.are_not.equal(contents, big)
    same(heed.tensor { 1, 2, 3, 4 }, heed.load(file("x.pt", big)))
  end)

  it("may have tensors on a part of their storage", function()
    local x = heed.load(file("x.pt", legacy(tensor(4, 1, "K\2", "K\2"), KEYS, STORAGE)))
    same(heed.tensor { 2, 4 }, x)
  end)

  local function broken(what, contents, message)
    it("that are broken give nil and a message: " .. what, function()
      fails(("load: '%s': %s"):format(path "x.pt", message), heed.load(file("x.pt", contents)))
    end)
  end
  broken("other contents", "something else",
    "is not a file of torch.save: it begins neither with PK nor with its number")
  broken("an archive without a pickle", support.read(golden .. "stored.npz"),
    "is not a file of torch.save: the archive has no data.pkl")
  broken("an unknown operation", legacy "\255",
    "the pickle has the operation 0xff at byte 3, which torch.save does not write")
  broken("an empty stack", legacy "a", "the pickle is not valid at byte 3: the stack has too few values")
  broken("a missing mark", legacy "t", "the pickle is not valid at byte 3: there is no mark")
  broken("an unknown number of the memo", legacy "h\7",
    "the pickle is not valid at byte 4: the memo has no value of that number")
  broken("a number of the memo far beyond the last one", legacy("K\1r\0\0\1\0" .. ("0"):rep(70000)),
    "the pickle is not valid at byte 9: the number of the memo is too large")
  broken("items of a number", legacy "K\1K\2K\3s", "the pickle is not valid at byte 9: a dict is expected")
  broken("a text beyond the end", legacy("X\255\255\255\127"), "the pickle is not valid at byte 7: it is cut short")
  broken("no tensors", legacy "K\1", "it holds no tensors")
  broken("a list inside of itself", legacy "]q\0h\0a", "the value '0.0.0.0.0.0.0.0.0' occurs too often")
  broken("deep lists", legacy(("]"):rep(70) .. ("a"):rep(69)), "the value '"
    .. ("0."):rep(63) .. "0' is nested too deeply")
  broken("too many elements", legacy(tensor(4, 1, "K\4", "K\1"), KEYS, STORAGE),
    "a tensor reaches beyond the end of its storage")
  broken("too large steps", legacy(tensor(4, 0, "K\2K\2", "K\3K\1"), KEYS, STORAGE),
    "a tensor reaches beyond the end of its storage")
  broken("strides that do not fit the sizes", legacy(tensor(4, 0, "K\2", "K\1K\1"), KEYS, STORAGE),
    "a tensor has no valid offset, sizes and strides")
  broken("a missing storage", legacy(tensor(4, 0, "K\4", "K\1"), KEYS),
    "it is cut short: a storage is missing")
  broken("a storage that is cut short", legacy(tensor(4, 0, "K\4", "K\1"), KEYS, STORAGE:sub(1, -2)),
    "it is cut short: a storage is incomplete")
  broken("a storage that is a part of another one", legacy((tensor(4, 0, "K\2", "K\1"):gsub("K\4tQ",
    "K\4(" .. text "0" .. "K\1K\2ttQ")), KEYS, STORAGE),
    "a tensor has a storage that is a part of another one, which heed cannot read")
  broken("an OrderedDict of numbers", legacy(global("collections", "OrderedDict") .. "](K\1K\2e\133R"),
    "the pickle is not valid at byte 36: a pair is expected")
  broken("lists of pairs that occur often", legacy("](" .. ("](K\1K\2e"):rep(100) .. "eq\0("
    .. (global("collections", "OrderedDict") .. "h\0\133R"):rep(40) .. "t"),
    "the pickle is not valid at byte 1230: a list occurs too often")
  broken("an unlisted storage", legacy(tensor(4, 0, "K\4", "K\1")), "a storage is missing: the file is cut short")

  it("that are cut short anywhere give nil and a message", function()
    for _, name in ipairs { "views.pt", "legacy_views.pt" } do
      local contents = support.read(golden .. name)
      for length = 0, #contents - 1, 37 do
        local state, message = heed.load(file("x.pt", contents:sub(1, length)))
        assert.is_nil(state)
        assert.are.equal("string", type(message))
      end
    end
  end)

  it("do not grow without bound through lists that occur many times", function()
    local levels = { "](" .. text "a" .. "eq\0" } -- each next one holds the last twice
    for i = 1, 40 do
      local last = "h" .. string.char(i - 1)
      levels[#levels + 1] = "](" .. last .. last .. "eq" .. string.char(i)
    end
    local state, message = heed.load(file("x.pt", legacy(table.concat(levels))))
    assert.is_truthy(message:find "occurs too often$", message)
    assert.is_nil(state)
  end)
end)

describe("heed.save", function()
  it("says what to write instead", function()
    local x = heed.ones(2)
    raises("save: a name is the number 1; it must be a string, as in {x = x, y = y}",
      function() heed.save("m.safetensors", { x, x }) end)
    raises("save: path is a tensor of shape [2] and dtype float32; it must be a string; the path comes first",
      function() heed.save(x, "x.npy") end)
    raises("save: path is 'm.pt'; it must end in .safetensors, .npz or .gguf to hold tensors by name",
      function() heed.save("m.pt", { x = x }) end)
    local layer = heed.nn.Linear(1, 1)
    raises("save: what is a module (Linear); it must be a tensor or a table of tensors; use m:state_dict()",
      function() heed.save("m.safetensors", layer) end)
  end)
end)

describe("heed.load", function()
  files.in_folders(before_each, after_each)

  it("names formats that it does not read", function()
    local known = ".safetensors, .safetensors.index.json, .npz, .npy, .pt or .gguf"
    local formats = { ["\137HDF\r\n"] = "HDF5", ["\128\4."] = "a pickle of Python" }
    for start, format in pairs(formats) do
      fails(("load: '%s': its format is %s; it must be %s: save the tensors with safetensors in Python")
        :format(path "model.x", format, known), heed.load(file("model.x", start)))
    end
  end)
end)
