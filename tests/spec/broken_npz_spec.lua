-- Zip archives that numpy does not write: valid ones are read, and for broken ones the message names the problem.
local heed = require "heed"
local support = require "tests.support"
local files = dofile "tests/files.lua"
local path, file, fails = files.path, files.file, files.fails

local ELSEWHERE, UTF8 = 0xffffffff, 0x800

-- A zip archive of entries {name =, data =, crc =, size =}; further fields of an entry or of `all` replace the correct
-- values.
local function zip(entries, all)
  all = all or {}
  local text, directory = all.before or "", ""
  for _, e in ipairs(entries) do
    local at, inside, flags, method = e.at or #text, e.inside or #e.data, e.flags or 0, e.method or 0
    local own = e.descriptor and { 0, 0, 0 } or { e.crc, e.own_size or inside, e.own_size or e.size }
    local own_name, own_extra, extra = e.own_name or e.name, e.own_extra or "", e.extra or ""
    local large = e.extra and ELSEWHERE
    text = text .. string.pack("<c4I2I2I2I2I2I4I4I4I2I2", e.signature or "PK\3\4", 20, e.own_flags or flags,
      e.own_method or method, 0, 33, own[1], own[2], own[3], #own_name, #own_extra) .. own_name .. own_extra ..
      e.data .. (e.descriptor and string.pack("<c4I4I4I4", "PK\7\8", e.crc, inside, e.size) or "")
    directory = directory .. string.pack("<c4I2I2I2I2I2I2I4I4I4I2I2I2I2I2I4I4", "PK\1\2", 20, 20, flags, method, 0, 33,
      e.crc, large or inside, large or e.size, #e.name, #extra, 0, 0, 0, 0, e.far or at) .. e.name .. extra
  end
  directory = directory .. (all.behind_directory or "")
  local count, bytes, at, comment = all.count or #entries, #directory, #text, all.comment or ""
  text = text .. directory
  if all.end64 then
    local e = all.end64
    local here = #text
    text = text .. string.pack("<c4I8I2I2I4I4I8I8I8I8", e.signature or "PK\6\6", e.length or 44, 45, 45, 0, 0,
      e.count or count, e.count or count, e.bytes or bytes, e.at or at) .. (e.behind or "") ..
      string.pack("<c4I4I8I4", "PK\6\7", 0, e.here or here, 1)
    count, bytes, at = e.plain_count or 0xffff, e.plain_bytes or ELSEWHERE, e.plain_at or ELSEWHERE
  end
  return text .. string.pack("<c4I2I2I2I2I4I4I2", "PK\5\6", all.disk or 0, all.disk or 0, count, count, bytes, at,
    #comment) .. comment .. (all.behind or "")
end

-- The deflate format without compression: a single stored block.
local function deflated(text) return string.pack("<BI2I2", 1, #text, 0xffff - #text) .. text end

describe("an npz", function()
  files.in_folders(before_each, after_each)

  -- The .npy file of a tensor and its checksum, as saved by heed in an archive.
  local function entry(changes)
    assert.are.equal(true, heed.save(path "a.npz", { x = heed.tensor { 1, 2.5, 3 } }))
    local text = support.read(path "a.npz")
    local e = { name = "x.npy" }
    e.crc, e.inside, e.size = string.unpack("<I4I4I4", text, 15)
    e.data = text:sub(31 + #e.name, 30 + #e.name + e.size)
    for key, value in pairs(changes or {}) do e[key] = value end
    return e
  end

  -- A message with numbers from the archive that entry() makes: $size of the entry, $at and $end of the directory, and
  -- $cut, the directory's end in an archive without the first ten bytes.
  local function filled(message)
    local e = entry()
    local at = 30 + #e.name + e.size
    local values = { size = e.size, at = at, ["end"] = at + 46 + #e.name, cut = at + 36 + #e.name }
    return (message:gsub("$(%l+)", values))
  end

  local function loads(text, name)
    local state, message = heed.load(file("x.npz", text))
    assert.is_not_nil(state, message)
    assert.is_true(state[name or "x"]:equal(heed.tensor { 1, 2.5, 3 }))
    return state
  end

  describe("may", function()
    it("have a comment, even one that looks like an archive", function()
      loads(zip { entry() })
      loads(zip({ entry() }, { comment = "PK: a comment" }))
      loads(zip({ entry() }, { comment = "PK\5\6" .. ("x"):rep(40) }))
      loads(zip({ entry() }, { comment = ("x"):rep(65535) }))
    end)

    it("have data descriptors after entries whose headers have no sizes", function()
      loads(zip { entry { descriptor = true, flags = 8 } })
      local other = entry { name = "y", descriptor = true, flags = 8 }
      assert.are.equal(2, #loads(zip { entry { descriptor = true, flags = 8 }, other }))
    end)

    it("be compressed", function()
      local e = entry()
      local text = deflated(e.data)
      loads(zip { entry { method = 8, data = text, inside = #text } })
      loads(zip { entry { method = 8, data = text, inside = #text, descriptor = true, flags = 8 } })
    end)

    it("have sizes and offsets of 64 bits, between other extra fields", function()
      local e = entry()
      local sizes = string.pack("<I2I2I8I8", 1, 16, e.size, e.inside)
      loads(zip { entry { extra = sizes, own_extra = sizes, own_size = ELSEWHERE } }) -- numpy's headers look like this
      loads(zip { entry { extra = string.pack("<I2s2", 0x5455, "time") .. sizes .. string.pack("<I2s2", 7, "") } })
      loads(zip { entry { extra = string.pack("<I2I2I8I8I8I4", 1, 28, e.size, e.inside, 0, 0), far = ELSEWHERE } })
    end)

    it("have a 64-bit end record, with fields in both records or only in that one", function()
      loads(zip({ entry() }, { end64 = {} }))
      loads(zip({ entry() }, { end64 = { plain_count = 1 } }))
      loads(zip({ entry() }, { end64 = { length = 52, behind = "anything" }, comment = "a comment" }))
      local whole = zip { entry() }
      local bytes, at = string.unpack("<I4I4", whole, #whole - 9)
      loads(zip({ entry() }, { end64 = { plain_count = 1, plain_bytes = bytes, plain_at = at } }))
      assert.are.equal(0, #heed.load(file("x.npz", zip({}, { end64 = {} }))))
    end)

    it("have data before its entries, with offsets that include it", function()
      loads(zip({ entry() }, { before = "before" }))
    end)

    it("have no entries, and consist of the end record only", function()
      assert.are.equal(0, #heed.load(file("x.npz", zip {})))
      assert.are.equal(0, #heed.load(file("x.npz", zip({}, { comment = "nothing is here" }))))
      assert.are.equal(true, heed.save(path "y.npz", {}))
      assert.are.equal(zip {}, support.read(path "y.npz"))
    end)

    it("have names in UTF-8, whether a flag says so or not", function()
      for _, flags in ipairs { UTF8, 0 } do
        loads(zip { entry { name = "é注.npy", flags = flags } }, "é注")
        loads(zip { entry { name = ".npy", flags = flags } }, "")
        loads(zip { entry { name = "", flags = flags } }, "")
      end
      loads(zip { entry { name = ("x"):rep(65535) } }, ("x"):rep(65535))
    end)

    it("list its entries in an order that differs from their order in the file", function()
      local whole = zip { entry { name = "one" }, entry { name = "two" } }
      local record, last = 46 + #"one", 22
      local names = {}
      local turned = whole:sub(1, -1 - last - 2 * record) .. whole:sub(-last - record, -1 - last) ..
        whole:sub(-last - 2 * record, -1 - last - record) .. whole:sub(-last)
      for name in heed.pairs(loads(turned, "one")) do names[#names + 1] = name end
      assert.are.same({ "two", "one" }, names)
    end)
  end)

  -- `changes` are applied to a correct entry.
  local function broken_entry(what, message, changes)
    it("with an entry that " .. what, function()
      local e = entry()
      for key, value in pairs(changes(e)) do e[key] = value end
      fails(("load: '%s', entry 'x.npy': %s"):format(path "x.npz", filled(message)),
        heed.load(file("x.npz", zip { e })))
    end)
  end
  local function as_deflated(text, size) return { method = 8, data = text, inside = #text, size = size } end

  for _, flags in ipairs { 1, 0x41, 0x2000 } do
    broken_entry(("is encrypted (%d)"):format(flags), "is encrypted", function() return { flags = flags } end)
  end
  broken_entry("is compressed by another method", "its compression method is 14; it must be 0 (stored) or 8 (deflated)",
    function() return { method = 14 } end)
  broken_entry("is larger than the archive", "would have 4000000 bytes in the archive, more than there are",
    function() return { inside = 4000000, size = 4000000 } end)
  broken_entry("would extend beyond the beginning of the directory",
    "would have $size bytes from byte 1000 of the archive on, and there are only $at",
    function() return { at = 1000 } end)
  broken_entry("begins beyond 2^63",
    "would have $size bytes from byte 18446744073709551615 of the archive on, and there are only $at", function(e)
      return { far = ELSEWHERE, extra = string.pack("<I2I2I8I8i8", 1, 24, e.size, e.inside, -1) }
    end)
  broken_entry("is stored in fewer bytes than its size",
    "would make 99999 bytes of $size in the archive, which is impossible",
    function() return { size = 99999 } end)
  broken_entry("would decompress to an impossible size",
    "would make 999999 bytes of $size in the archive, which is impossible",
    function() return { size = 999999, method = 8 } end)
  broken_entry("has an impossible 64-bit size",
    "would make 18446744073709551615 bytes of $size in the archive, which is impossible",
    function(e) return { extra = string.pack("<I2I2i8I8", 1, 16, -1, e.inside) } end)
  broken_entry("has a wrong checksum", "cannot be read: CRC error",
    function(e) return { crc = (e.crc + 1) % 2 ^ 32 } end)
  broken_entry("has a wrong checksum and is compressed", "cannot be read: CRC error", function(e)
    local changes = as_deflated(deflated(e.data), #e.data)
    changes.crc = (e.crc + 1) % 2 ^ 32
    return changes
  end)
  broken_entry("is compressed and truncated", "cannot be read: it is cut short",
    function(e) return as_deflated(deflated(e.data):sub(1, -5), #e.data) end)
  broken_entry("is compressed and shorter than its size", "cannot be read: it is cut short",
    function(e) return as_deflated(deflated(e.data:sub(1, -5)), #e.data) end)
  broken_entry("is compressed and longer than its size", "cannot be read: it is longer than the archive says",
    function(e) return as_deflated(deflated(e.data .. "more"), #e.data) end)
  broken_entry("is compressed and followed by more data", "cannot be read: it is longer than the archive says",
    function(e) return as_deflated(deflated(e.data) .. "more", #e.data) end)
  broken_entry("is not compressed data", "cannot be read: its deflated data are invalid",
    function(e) return as_deflated("\7" .. e.data, #e.data) end)
  broken_entry("is compressed and empty", "is not an .npy file: it has only 0 bytes",
    function() return as_deflated("", 0) end)
  broken_entry("has no header", "cannot be read: it does not begin with a header",
    function() return { signature = "PK\3\5" } end)
  broken_entry("begins elsewhere", "cannot be read: it does not begin with a header", function() return { at = 1 } end)
  broken_entry("has another method in its header", "cannot be read: its header has another method than the directory",
    function() return { own_method = 8 } end)
  broken_entry("is encrypted in its header",
    "cannot be read: its header says, unlike the directory, that it is encrypted",
    function() return { own_flags = 1 } end)
  for _, name in ipairs { "y.npy", "x.np", "x.npyy", "" } do
    broken_entry("is called " .. name .. " in its header",
      "cannot be read: its header has another name than the directory",
      function(e) return { own_name = name, data = e.data, descriptor = name ~= "y.npy" or nil, flags = 8 } end)
  end
  broken_entry("reaches into the directory",
    "cannot be read: its bytes would reach into the next entry, or the directory",
    function(e) return { data = e.data:sub(1, -2), inside = #e.data } end)

  it("with entries that overlap", function()
    local e, f = entry(), entry { name = "y.npy" }
    e.data = e.data .. zip({ f }):sub(1, 30 + #f.name + #f.data)
    e.inside, e.size = #e.data, #e.data
    f.at = 30 + #e.name + f.size
    fails(("load: '%s', entry 'x.npy': cannot be read: its bytes would reach into the next entry, or the directory")
      :format(path "x.npz"), heed.load(file("x.npz", zip { e, f })))
    fails(("load: '%s', entry 'x.npy': cannot be read: its bytes would reach into the next entry, or the directory")
      :format(path "x.npz"), heed.load(file("x.npz", zip { entry { at = 0 }, entry { at = 0 } })))
  end)

  local function broken_archive(what, message, make)
    it(what, function()
      fails(("load: '%s': %s"):format(path "x.npz", filled(message)), heed.load(file("x.npz", make())))
    end)
  end
  local function unreadable(what, message, make)
    broken_archive(what, "is not a readable zip archive: " .. message, make)
  end

  broken_archive("whose entry has a name with a character 0", "the name 'x' contains the character 0",
    function() return zip { entry { name = "x\0y.npy" } } end)
  for _, flags in ipairs { 0, UTF8 } do
    broken_archive(("whose entry has a name that is not UTF-8 (%d)"):format(flags),
      "the name 'x\\xff.npy' is not UTF-8", function() return zip { entry { name = "x\255.npy", flags = flags } } end)
  end
  broken_archive("whose entries have the same name", "duplicate name 'x'",
    function() return zip { entry(), entry { name = "x" } } end)
  unreadable("with unknown contents", "it has no end record, or bytes after it",
    function() return ("x"):rep(100000) end)
  unreadable("with bytes after it", "it has no end record, or bytes after it",
    function() return zip({ entry() }, { behind = "x" }) end)
  unreadable("with bytes before it",
    "its directory ends 6 bytes too early: there are other bytes before the archive or inside it",
    function() return "before" .. zip { entry() } end)
  unreadable("without entries and with bytes before it",
    "its directory ends 6 bytes too early: there are other bytes before the archive or inside it",
    function() return "before" .. zip {} end)
  unreadable("that lacks its beginning",
    "its directory would have 51 bytes from byte $at on, and there are only $cut: it is cut short",
    function() return zip { entry() }:sub(11) end)
  unreadable("of several files", "it is part of an archive of several files",
    function() return zip({ entry() }, { disk = 1 }) end)
  unreadable("that has fewer entries than it says", "it says that it has 2 entries, in a directory of 51 bytes",
    function() return zip({ entry() }, { count = 2 }) end)
  unreadable("that has more entries than it says", "its directory has 1 entry, and 51 more bytes",
    function() return zip({ entry(), entry { name = "y.npy" } }, { count = 1 }) end)
  unreadable("that has fewer entries than it says",
    "it says that it has 60000 entries, in a directory of 51 bytes",
    function() return zip({ entry() }, { count = 60000 }) end)
  unreadable("that says it has 2^60 entries",
    "it says that it has 1152921504606846976 entries, in a directory of 51 bytes",
    function() return zip({ entry() }, { end64 = { count = 2 ^ 60 } }) end)
  unreadable("that has more entries in its directory than it says",
    "it says that it has 1 entry, in a directory of 400051 bytes",
    function() return zip({ entry() }, { behind_directory = ("x"):rep(400000) }) end)
  unreadable("with something in its directory", "entry 2 of its directory is broken or cut short",
    function() return zip({ entry() }, { count = 2, behind_directory = ("x"):rep(46) }) end)
  unreadable("whose entry has truncated 64-bit numbers", "entry 1 of its directory is broken or cut short",
    function() return zip { entry { extra = string.pack("<I2I2I8", 1, 8, 1) } } end)
  unreadable("whose entry has an extra field that exceeds it", "entry 1 of its directory is broken or cut short",
    function() return zip { entry { extra = string.pack("<I2I2", 1, 16) } } end)
  unreadable("with a directory beyond 2^63",
    "its directory would have 51 bytes from byte 18446744073709551615 on, and there are only $end: it is cut short",
    function() return zip({ entry() }, { end64 = { at = -1 } }) end)
  unreadable("with a directory of 2^64 - 1 bytes",
    "its directory would have 18446744073709551615 bytes from byte $at on, and there are only $end: it is cut short",
    function() return zip({ entry() }, { end64 = { bytes = -1 } }) end)
  unreadable("whose locator points beyond itself", "its locator points to byte 9999, where no end record can be",
    function() return zip({ entry() }, { end64 = { here = 9999 } }) end)
  unreadable("whose locator points to something else", "its locator points to byte 9, where no end record of zip64 is",
    function() return zip({ entry() }, { end64 = { here = 9 } }) end)
  unreadable("whose end record of zip64 is longer", "its locator points to byte $end, where no end record of zip64 is",
    function() return zip({ entry() }, { end64 = { length = 45 } }) end)
  unreadable("whose end records differ", "its two end records differ",
    function() return zip({ entry() }, { end64 = { plain_count = 2 } }) end)
end)
