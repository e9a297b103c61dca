-- Files of tensors: those written by numpy and safetensors (tests/golden/files), round trips, atomic saving.
-- Broken files are in broken_files_spec.lua.
local heed = require "heed"
local core = require "heed.core"
local raises = dofile "tests/raises.lua"
local support = require "tests.support"
local files = dofile "tests/files.lua"
local tensors = require "tests.tensors"
local path, file, fails, safetensors = files.path, files.file, files.fails, files.safetensors
local nn = heed.nn

local golden = "tests/golden/files/"
local function names_of(state) return tensors.names_of(heed.pairs(state)) end

local golden_tensor, same = files.golden, files.same

describe("files", function()
  files.in_folders(before_each, after_each)

  describe("from numpy", function()
    for name, dtype in pairs {
      f4 = "float32", f8 = "float32", f2 = "float16", i4 = "int64", i8 = "int64", i1 = "int8", b1 = "bool",
      i2 = "int64", u1 = "uint8", u2 = "uint16", u4 = "uint32", u8 = "uint64",
      big_f4 = "float32", big_f8 = "float32", big_f2 = "float16", big_i4 = "int64", big_i8 = "int64",
      big_i2 = "int64", big_u2 = "uint16", big_u4 = "uint32", big_u8 = "uint64",
      fortran = "float32", version_2 = "float32", version_3 = "float32",
    } do
      it("gives the elements of " .. name .. ".npy", function()
        local x = heed.load(golden .. name .. ".npy")
        same(golden_tensor(dtype, 2, 3, 4), x)
        assert.is_true(x:is_contiguous())
      end)
    end

    it("gives tensors with zero or one dimensions, and with sizes of 0", function()
      same(heed.tensor(2.5), heed.load(golden .. "scalar.npy"))
      same(golden_tensor("int64", 5), heed.load(golden .. "one_dimension.npy"))
      same(heed.zeros(2, 0), heed.load(golden .. "empty.npy"))
    end)

    for _, name in ipairs { "stored", "deflated", "without_endings" } do
      it("gives the arrays of " .. name .. ".npz by name, in order", function()
        local state, metadata = heed.load(golden .. name .. ".npz")
        assert.are.equal("weight ids mask scale", names_of(state))
        same(golden_tensor("float32", 2, 3, 4), state.weight)
        same(golden_tensor("int64", 5), state.ids)
        same(golden_tensor("bool", 3, 3), state.mask)
        same(heed.tensor(2.5), state.scale)
        assert.are.same({}, metadata)
      end)
    end

    it("rejects unsupported dtypes, and names them", function()
      local function refused(name, what)
        fails(("load: '%s%s': its dtype is '%s'; it must be f2, f4, f8, i1, i2, i4, i8, u1, u2, u4, u8 or " ..
          "b1, of either byte order"):format(golden, name, what), heed.load(golden .. name))
      end
      refused("refused_c8.npy", "<c8")
      fails(("load: '%srefused_records.npy': its elements are records (descr is a list); they must be numbers")
        :format(golden),
        heed.load(golden .. "refused_records.npy"))
    end)
  end)

  describe("from safetensors", function()
    it("give their tensors by name, in order, and the metadata", function()
      local state, metadata = heed.load(golden .. "everything.safetensors")
      assert.are.equal('int64 a "quoted"\n注意 empty float32 scalar int32 bfloat16 float16 int8 bool',
        names_of(state))
      assert.are.equal(10, #state)
      assert.are.same({ format = "pt", note = "é\n" }, metadata)
      for _, dtype in ipairs { "float32", "float16", "bfloat16", "int64", "int8", "bool" } do
        same(golden_tensor(dtype, 2, 3, 4), state[dtype])
      end
      same(golden_tensor("int64", 2, 3, 4), state.int32)
      same(golden_tensor("float32", 3), state['a "quoted"\n注意'])
      same(heed.tensor(2.5), state.scalar)
      same(heed.zeros(2, 0), state.empty)
    end)

    it("are combined if an index lists which file has which tensor", function()
      local state, metadata = heed.load(golden .. "sharded.safetensors.index.json")
      assert.are.equal("float32 int64 bfloat16 bool", names_of(state))
      assert.are.same({ format = "pt" }, metadata)
      for name, x in heed.pairs(state) do same(golden_tensor(name, 2, 3, 4), x) end
    end)

    it("stay unchanged when a loaded tensor is written to", function()
      local before = support.read(golden .. "everything.safetensors")
      local from = file("x.safetensors", before)
      local state = heed.load(from)
      state.float32:fill_(7)
      assert.are.equal(7, heed.load(from).int64:numel() - 17)
      assert.are.equal(before, support.read(from))
      same(golden_tensor("float32", 2, 3, 4), heed.load(from).float32)
    end)

    it("stay mapped after the table is collected and the file is removed", function()
      local from = file("x.safetensors", support.read(golden .. "everything.safetensors"))
      local x, y = heed.load(from).float32, heed.load(from).bfloat16
      os.remove(from)
      collectgarbage()
      collectgarbage()
      same(golden_tensor("float32", 2, 3, 4), x)
      same(golden_tensor("bfloat16", 2, 3, 4), y)
    end)

    it("are copied if unaligned, and bools are normalized to 0 and 1", function()
      local header = '{"flag":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},' ..
        '"x":{"dtype":"F32","shape":[2],"data_offsets":[3,11]}}'
      local state = heed.load(file("x.safetensors", safetensors(header, "\0\2\255" .. string.pack("<ff", 1.5, -2))))
      same(heed.tensor { false, true, true }, state.flag)
      same(heed.tensor { 1.5, -2 }, state.x)
      assert.are.equal("\0\1\1", state.flag:to_string())
    end)

    it("may be empty, and may have spaces after the header", function()
      local state, metadata = heed.load(file("x.safetensors", safetensors "{}  \n "))
      assert.are.equal(0, #state)
      assert.are.same({}, metadata)
    end)
  end)

  it("with an unknown ending are recognised by their first bytes", function()
    for _, name in ipairs { "f4.npy", "stored.npz", "everything.safetensors" } do
      local state = heed.load(file("model.bin", support.read(golden .. name)))
      assert.is_not_nil(state)
      assert.are.equal(tostring(heed.load(golden .. name)), tostring(state))
    end
    fails(("load: '%s': its format is unknown; it must be .safetensors, .safetensors.index.json, .npz, .npy, .pt or " ..
      ".gguf, by the ending or the first bytes"):format(path "model.bin"), heed.load(file("model.bin",
        "something else")))
    assert.is_nil(heed.load(file("model.bin", "")))
  end)

  describe("that cannot be read give nil and a message", function()
    for _, name in ipairs { "x.safetensors", "x.npy", "x.npz", "x.safetensors.index.json", "x" } do
      it("for a missing " .. name, function()
        fails(("load: '%s': cannot be opened: No such file or directory"):format(path(name)), heed.load(path(name)))
      end)

      it("for a folder, a pipe and a device called " .. name, function()
        local at = path(name)
        support.run("mkdir " .. support.quote(at))
        fails(("load: '%s': is a folder; it must be a file"):format(at), heed.load(at))
        support.run(("rmdir %s; mkfifo %s"):format(support.quote(at), support.quote(at)))
        fails(("load: '%s': is a device or a pipe; it must be a file"):format(at), heed.load(at))
        support.run(("rm %s; ln -s /dev/zero %s"):format(support.quote(at), support.quote(at)))
        fails(("load: '%s': is a device or a pipe; it must be a file"):format(at), heed.load(at))
      end)
    end

    it("for empty files", function()
      fails(("load: '%s': is empty"):format(path "x.safetensors"), heed.load(file("x.safetensors", "")))
      fails(("load: '%s': is not an .npy file: it has only 0 bytes"):format(path "x.npy"), heed.load(file("x.npy", "")))
      fails(("load: '%s': is not a zip archive: it has only 0 bytes"):format(path "x.npz"),
        heed.load(file("x.npz", "")))
      fails(("load: '%s': is empty"):format(path "x.safetensors.index.json"),
        heed.load(file("x.safetensors.index.json", "")))
    end)

    it("where long paths are shortened and control characters replaced", function()
      local message = select(2, heed.load("\27[31m" .. ("é"):rep(300) .. ".npy"))
      assert.is_truthy(message:find("^load: '%.%.%.ééé.*ééé%.npy': cannot be opened: "))
      assert.is_not_nil(utf8.len(message))
      assert.is_truthy(select(2, heed.load "a\27\255.npy"):find("load: 'a\\x1b\\xff.npy': ", 1, true))
    end)
  end)

  describe("that are saved", function()
    local function everything()
      local state = {}
      for _, dtype in ipairs { "float32", "float16", "int64", "int8", "bool" } do
        state[dtype] = golden_tensor(dtype, 2, 3, 4)
        state[dtype .. " turned"] = golden_tensor(dtype, 4, 5).T
        state[dtype .. " stepped"] = golden_tensor(dtype, 40)[{ { 2, 39, 3 } }]
        state[dtype .. " expanded"] = golden_tensor(dtype, 3, 1):expand(3, 4)
        state[dtype .. " scalar"] = golden_tensor(dtype, 1):view {}
        state[dtype .. " empty"] = golden_tensor(dtype, 4)[{ { 3, 2 } }]
      end
      return state
    end

    for _, ending in ipairs { "safetensors", "npz" } do
      it("are read back unchanged, as " .. ending, function()
        local state = everything()
        if ending == "safetensors" then state.bfloat16 = golden_tensor("bfloat16", 2, 3, 4).T end
        local at = path("x." .. ending)
        assert.are.equal(true, heed.save(at, state))
        local loaded = heed.load(at)
        for name, x in heed.pairs(state) do same(x, loaded[name]) end
        assert.are.equal(1, files.count())
      end)

      it("have sorted names, or the order of a state dict, as " .. ending, function()
        local at = path("x." .. ending)
        heed.save(at, { c = heed.ones(1), a = heed.ones(2), b = heed.ones(3) })
        assert.are.equal("a b c", names_of(heed.load(at)))
        local m = nn.MultiHeadAttention(4, 4, 6, 0, 2)
        heed.save(at, m:state_dict())
        assert.are.equal(names_of(m:state_dict()), names_of(heed.load(at)))
        local other = nn.MultiHeadAttention(4, 4, 6, 0, 2)
        other:load_state_dict(heed.load(at))
        local x = heed.rand(1, 3, 4)
        assert.is_true(m(x):equal(other(x)))
      end)

      it("are the same bytes each time, as " .. ending, function()
        local state = everything()
        heed.save(path("a." .. ending), state)
        heed.save(path("b." .. ending), state)
        assert.are.equal(support.read(path("a." .. ending)), support.read(path("b." .. ending)))
      end)

      it("may be an empty table, as " .. ending, function()
        assert.are.equal(true, heed.save(path("x." .. ending), {}))
        assert.are.equal(0, #heed.load(path("x." .. ending)))
      end)

      it("may replace the file they are mapped from, as " .. ending, function()
        local at = path("x." .. ending)
        heed.save(at, { a = golden_tensor("float32", 100, 100) })
        local state = heed.load(at)
        state.b = state.a.T
        assert.are.equal(true, heed.save(at, state))
        same(golden_tensor("float32", 100, 100), state.a)
        same(state.b, heed.load(at).b)
      end)
    end

    for _, dtype in ipairs { "float32", "float16", "int64", "int8", "bool" } do
      it("are read back unchanged, as npy of " .. dtype, function()
        for name, x in pairs(everything()) do
          if name:find("^" .. dtype) then
            assert.are.equal(true, heed.save(path "x.npy", x))
            same(x, heed.load(path "x.npy"))
          end
        end
        assert.are.equal(1, files.count())
      end)
    end

    it("may be large tensors", function()
      local x = heed.rand(700, 1000)
      for _, at in ipairs { path "x.safetensors", path "x.npz" } do
        heed.save(at, { x = x, turned = x.T })
        local state = heed.load(at)
        assert.is_true(state.x:equal(x) and state.turned:equal(x.T))
      end
      heed.save(path "x.npy", x.T)
      assert.is_true(heed.load(path "x.npy"):equal(x.T))
    end)

    it("may have metadata of 16 MiB", function()
      local text = ("x"):rep(2 ^ 24 - 2) -- 2 bytes are left for the quotes
      assert(heed.save(path "x.safetensors", { x = heed.ones(1) }, { metadata = { a = text } }))
      local _, metadata = assert(heed.load(path "x.safetensors"))
      assert.is_true(metadata.a == text)
    end)

    it("may have metadata and unusual names", function()
      local names = { "", '"\\/\b\f\n\r\t\1\127', "é注意😀", "a.b.c", ("x"):rep(5000) }
      local state, metadata = {}, {}
      for i, name in ipairs(names) do state[name], metadata[name] = heed.full(2, i), name end
      assert.are.equal(true, heed.save(path "x.safetensors", state, { metadata = metadata }))
      local loaded, again = heed.load(path "x.safetensors")
      assert.are.same(metadata, again)
      for name, x in heed.pairs(state) do assert.is_true(loaded[name]:equal(x)) end
      raises("save: the name '\"\\/\\x08\\x0c\\x0a\\x0d\\x09\\x01\\x7f' contains a control character; in .npz it " ..
        "must not",
        function() heed.save(path "x.npz", state) end)
      state[names[2]] = nil
      assert.are.equal(true, heed.save(path "x.npz", state))
      loaded = heed.load(path "x.npz")
      for name, x in heed.pairs(state) do assert.is_true(loaded[name]:equal(x)) end
    end)

    it("begin at multiples of 64 bytes, the widest dtype first", function()
      heed.save(path "x.safetensors",
        { a = heed.ones(3, { dtype = "bool" }), b = heed.ones(3), c = heed.zeros(1, { dtype = "int64" }) })
      local text = support.read(path "x.safetensors")
      local length = string.unpack("<i8", text)
      assert.are.equal(0, (8 + length) % 64)
      assert.are.equal('{"a":{"dtype":"BOOL","shape":[3],"data_offsets":[20,23]},"b":{"dtype":"F32","shape":[3],' ..
        '"data_offsets":[8,20]},"c":{"dtype":"I64","shape":[1],"data_offsets":[0,8]}}', (text:sub(9,
          8 + length):gsub(" +$", "")))
      assert.are.equal(23, #text - 8 - length)
    end)

    it("keep the mode of the file that they replace, and follow symbolic links", function()
      heed.save(path "x.npy", heed.ones(1))
      support.run(("chmod 640 %s; ln -s x.npy %s"):format(support.quote(path "x.npy"),
        support.quote(path "link.npy")))
      assert.are.equal(true, heed.save(path "link.npy", heed.ones(2)))
      assert.are.equal("640\n", support.run("stat -c %a " .. support.quote(path "x.npy")).out)
      assert.are.equal("symbolic link\n", support.run("stat -c %F " .. support.quote(path "link.npy")).out)
      same(heed.ones(2), heed.load(path "x.npy"))
    end)

    it("create the file that a symbolic link names, also over several links, and not in place of the link", function()
      local folder, far = support.quote(path "folder"), support.quote(path "folder/far.npy")
      support.run(("mkdir %s; ln -s folder/far.npy %s; ln -s %s %s; ln -s near.npy %s"):format(folder,
        support.quote(path "near.npy"), support.quote(path "folder/made.npy"), far, support.quote(path "first.npy")))
      assert.are.equal(true, heed.save(path "first.npy", heed.ones(3)))
      for _, name in ipairs { "first.npy", "near.npy", "folder/far.npy" } do
        assert.are.equal("symbolic link\n", support.run("stat -c %F " .. support.quote(path(name))).out)
      end
      assert.are.equal("regular file\n", support.run("stat -c %F " .. support.quote(path "folder/made.npy")).out)
      same(heed.ones(3), heed.load(path "folder/made.npy"))
      support.run("rm " .. support.quote(path "folder/made.npy"))
      assert.are.equal(true, heed.save(path "near.npy", heed.ones(2)))
      same(heed.ones(2), heed.load(path "first.npy"))
      assert.are.equal("far.npy\nmade.npy\n", support.run("ls -A " .. folder).out)
    end)

    it("have the permissions that the umask gives new files", function()
      local script = ("umask 027; exec %s -e %s"):format(support.heed,
        support.quote(("local heed = require 'heed' assert(heed.save('%s', heed.ones(1)))"):format(path "x.npy")))
      assert.are.equal(0, support.run(script).code)
      assert.are.equal("640\n", support.run("stat -c %a " .. support.quote(path "x.npy")).out)
    end)
  end)

  describe("that cannot be saved", function()
    it("give nil and a message, and leave the old file unchanged", function()
      local at = path "folder.npy"
      support.run("mkdir " .. support.quote(at))
      fails(("save: '%s': is a folder; it must be a file"):format(at), heed.save(at, heed.ones(1)))
      support.run("ln -s /dev/full " .. support.quote(path "full.npy"))
      fails(("save: '%s': is a device or a pipe; it must be a file"):format(path "full.npy"),
        heed.save(path "full.npy", heed.ones(1)))
      fails(("save: '%s': cannot be written: no file can be created in its folder: No such file or directory")
        :format(path "none/x.npy"), heed.save(path "none/x.npy", heed.ones(1)))
      file("plain", "")
      assert.is_nil(heed.save(path "plain/x.npy", heed.ones(1)))
      support.run(("ln -s b.npy %s; ln -s a.npy %s; ln -s none/x.npy %s"):format(support.quote(path "a.npy"),
        support.quote(path "b.npy"), support.quote(path "into.npy")))
      fails(("save: '%s': cannot be written: Too many levels of symbolic links"):format(path "a.npy"),
        heed.save(path "a.npy", heed.ones(1)))
      fails(("save: '%s': cannot be written: no file can be created in its folder: No such file or directory")
        :format(path "into.npy"), heed.save(path "into.npy", heed.ones(1)))
      assert.are.equal(6, files.count())
    end)

    -- A limit on file sizes simulates a full disk: writing fails halfway.
    for _, ending in ipairs { "safetensors", "npz", "npy" } do
      it("because the disk is full leave the old file and no other, as " .. ending, function()
        local at = path("x." .. ending)
        local x = heed.rand(10)
        assert.are.equal(true, heed.save(at, ending == "npy" and x or { x = x }))
        local before = support.read(at)
        local code = ([[
          local heed = require "heed"
          local x = heed.rand(300, 1000)
          local done, message = heed.save(%q, %q == "npy" and x or { a = x, b = x.T })
          io.write(tostring(done), " ", message, "\n")
          assert(x:sum():item() > 0)
        ]]):format(at, ending)
        local run = support.run(("trap '' XFSZ; ulimit -f 200; exec %s -e %s"):format(support.heed,
          support.quote(code)))
        assert.are.equal(("nil save: '%s': cannot be written: File too large\n"):format(at), run.out)
        assert.are.equal(0, run.code)
        assert.are.equal(before, support.read(at))
        assert.are.equal(1, files.count())
      end)
    end

    it("raise an error for a wrong path or value", function()
      local x = heed.ones(1)
      raises("save: path is nil; it must be a string", function() heed.save(nil, x) end)
      raises("save: path is the number 1; it must be a string", function() heed.save(1, x) end)
      raises("save: path has a zero byte; it must have none", function() heed.save("a\0.npy", x) end)
      raises("save: path is 'x.txt'; it must end in .npy to hold one tensor without a name",
        function() heed.save("x.txt", x) end)
      raises("save: path is '.npy'; it must end in .npy to hold one tensor without a name",
        function() heed.save(".npy", x) end)
      raises("save: path is 'x.safetensors.index.json'; it must end in .safetensors, .npz or .gguf to hold tensors " ..
        "by name",
        function() heed.save("x.safetensors.index.json", { x = x }) end)
      raises("save: what is nil; it must be a tensor or a table of tensors", function() heed.save "x.npy" end)
      raises("save: what is a module (Linear); it must be a tensor or a table of tensors; use m:state_dict()",
        function() heed.save("x.safetensors", nn.Linear(1, 1)) end)
      raises("save: path is 'x.npy'; it must end in .safetensors, .npz or .gguf to hold tensors by name",
        function() heed.save("x.npy", { x = x }) end)
      raises("save: path is 'x.npz'; it must end in .npy to hold one tensor without a name",
        function() heed.save("x.npz", x) end)
      raises("save: a name is the number 1; it must be a string, as in {x = x, y = y}",
        function() heed.save("x.npz", { x }) end)
      raises("save: 'a' is a string ('b'); it must be a tensor; a .safetensors file can hold other values, too",
        function() heed.save("x.npz", { a = "b" }) end)
      raises("save: the name 'a\\xff' is not UTF-8; it must be", function() heed.save("x.npz", { ["a\255"] = x }) end)
      raises("save: a name or a text of the metadata takes 16777217 bytes; it must take at most 16777216",
        function() heed.save(path "x.safetensors", { x = x }, { metadata = { a = ("x"):rep(2 ^ 24 - 1) } }) end)
      raises("save: 'b' is nil; it must be a tensor", function()
        core.files.save(path "x.safetensors", { "a", "b" }, { heed.ones(1) }, {})
      end)
      raises("save: a string of 2 bytes has a zero byte; names and metadata must have none",
        function() heed.save("x.npz", { ["a\0"] = x }) end)
      raises("save: a name is __metadata__, which .safetensors reserves for metadata",
        function() heed.save("x.safetensors", { __metadata__ = x }) end)
      raises("save: metadata is a string ('a'); it must be a table",
        function() heed.save("x.safetensors", { x = x }, { metadata = "a" }) end)
      raises("save: metadata['a'] is the number 1; it must be a string",
        function() heed.save("x.safetensors", { x = x }, { metadata = { a = 1 } }) end)
      raises("save: path is 'x.npz'; it must end in .safetensors or .gguf to hold metadata",
        function() heed.save("x.npz", { x = x }, { metadata = { a = "b" } }) end)
      raises("save: metadata is given; it must be nil for a tensor without a name",
        function() heed.save("x.npy", x, { metadata = { a = "b" } }) end)
      raises("save: there is no option 'meta'; the options are metadata",
        function() heed.save("x.npz", { x = x }, { meta = {} }) end)
      local released = heed.ones(1)
      released:release()
      raises("save: 'a' is a released tensor; it must be a tensor",
        function() heed.save("x.npz", { a = released }) end)
      local message =
        "save: the dtype is bfloat16, which numpy lacks; convert the tensor to float32, or save it as .safetensors"
      raises(message, function() heed.save("x.npy", x:to "bfloat16") end)
      raises(message, function() heed.save("x.npz", { x = x:to "bfloat16" }) end)
      assert.is_nil(io.open "x.npz")
    end)

    it("raise an error for a wrong argument of load", function()
      raises("load: path is nil; it must be a string", function() heed.load() end)
      raises("load: path is a table; it must be a string", function() heed.load {} end)
      raises("load: path has a zero byte; it must have none", function() heed.load "a\0.npy" end)
    end)
  end)

  it("have a kind: file, directory or other", function()
    assert.are.equal("directory", core.files.kind(files.folder()))
    assert.are.equal("file", core.files.kind(file("x", "")))
    assert.are.equal("other", core.files.kind "/dev/null")
    assert.is_nil(core.files.kind(path "none"))
  end)

  it("are mapped, without memory from the allocator", function()
    local x = heed.zeros(1000, 1000)
    heed.save(path "x.safetensors", { x = x })
    collectgarbage()
    local before = heed.info().memory_in_use
    local state = heed.load(path "x.safetensors")
    assert.is_true(heed.info().memory_in_use - before < 4096)
    assert.is_true(state.x:equal(x))
  end)

  it("may be loaded by a finalizer that runs while the state closes", function()
    local code = ([[
      local heed = require "heed"
      keep = setmetatable({}, { __gc = function() kept = heed.load "%s" end })
    ]]):format(golden .. "everything.safetensors")
    assert.are.equal(0, support.run(("%s -e %s"):format(support.heed, support.quote(code))).code)
  end)

  it("reports immediately that a tensor is larger than the disk", function()
    local saved, problem = heed.save(path "x.npy", heed.ones(1):expand(2 ^ 50))
    assert.is_nil(saved)
    assert.matches("cannot be written: No space left on device", problem, 1, true)
  end)
end)
