-- Builds that do not fit: each says so, instead of crashing or naming a symbol. #plain: not with sanitizers, whose
-- libraries a plain interpreter does not load.
local support = require "tests.support"

local quote, run = support.quote, support.run
local modules = "LUA_CPATH=" .. quote(support.build .. "/?.so")

-- Whether an interpreter that finds a module of this build fails, and what it says.
local function answer(lua, paths, code)
  local result = run(("%s %s -e %s 2>&1"):format(paths, lua, quote(code or 'print(require "heed".version)')))
  return result.code, result.out
end

local function exists(path)
  local file = io.open(path)
  if file then file:close() end
  return file ~= nil
end

local function edited(path, pattern, replacement)
  local text, count = support.read(path):gsub(pattern, replacement)
  assert.are.equal(1, count, path)
  return text
end

describe("a module for another Lua #plain", function()
  for _, version in ipairs { "5.1", "5.2", "5.3", "5.4", "5.5", "luajit" } do
    local fits = version == support.lua or (version == "luajit" and support.lua == "5.1")
    it((fits and "is opened by Lua %s" or "is refused by Lua %s with the names of both"):format(version), function()
      local found = run(("scripts/dev/find_lua.sh %s interpreter"):format(version))
      if found.code ~= 0 then return pending("there is no Lua " .. version) end
      local name = { luajit = "LuaJIT" }
      local message = ("heed was built for %s, and this is %s; build it with make LUA=%s"):format(
        name[support.lua] or "Lua " .. support.lua, name[version] or "Lua " .. version, version)
      for _, paths in ipairs { "LUA_PATH=none", "LUA_PATH='lua/?.lua;lua/?/init.lua'" } do
        local code, text = answer(found.out:gsub("\n", ""), modules .. " " .. paths)
        if fits then
          assert.are.equal("0 " .. require "heed".version .. "\n", code .. " " .. text)
        else
          assert.are.equal(1, code, text)
          assert.truthy(text:find(message, 1, true), text)
        end
      end
      if not fits and exists(support.build .. "/heed_mpi.so") then
        local code, text = answer(found.out:gsub("\n", ""), modules, 'require "heed_mpi"')
        assert.are.equal(1, code, text)
        assert.truthy(text:find("heed_mpi was built for", 1, true), text)
      end
    end)
  end
end)

describe("a module of another kind #plain", function()
  local lua = support.plain_lua()

  it("for 32 bits is refused by the system, which says so", function()
    if not lua then return pending "there is no plain interpreter" end
    local folder = support.new_folder()
    local bytes = support.read(support.build .. "/heed.so")
    if bytes:sub(1, 5) ~= "\127ELF\2" then return pending "this system has other modules, or 32 bits" end
    support.write(folder .. "/heed.so", "\127ELF\1" .. bytes:sub(6))
    local code, text = answer(lua, ("LUA_PATH=none LUA_CPATH=%s"):format(quote(folder .. "/?.so")))
    support.remove_folder(folder)
    assert.are.equal(1, code)
    assert.truthy(text:find("wrong ELF class", 1, true) or text:find("Exec format error", 1, true), text)
  end)

  it("of another version than the Lua files is refused with both versions", function()
    if not lua then return pending "there is no plain interpreter" end
    local folder, version = support.new_folder(), require "heed".version
    assert(os.execute("mkdir " .. quote(folder .. "/heed")))
    for file, said in pairs {
      [edited("lua/heed/init.lua", '"[%d.]+"%)\n$', '"9.8.7")\n')] = "9.8.7",
      [edited("lua/heed/init.lua", ', "[%d.]+"%)\n$', ")\n")] = "unknown",
    } do
      support.write(folder .. "/heed/init.lua", file)
      local code, text = answer(lua, ("%s LUA_PATH=%s"):format(modules, quote(folder .. "/?/init.lua")))
      assert.are.equal(1, code)
      local message = "heed's Lua files are of version %s, and its module is of version %s; package.path and " ..
        "package.cpath must lead to the same version"
      assert.truthy(text:find(message:format(said, version), 1, true), text)
    end
    support.remove_folder(folder)
  end)

  it("heed_mpi of another version than heed is refused with both versions", function()
    local other = support.build .. "/other/build/heed.so"
    if not lua then return pending "there is no plain interpreter" end
    for _, path in ipairs { other, support.build .. "/heed_mpi.so" } do
      if not exists(path) then return pending("there is no " .. path) end
    end
    local found = other:gsub("heed%.so$", "?.so") .. ";" .. support.build .. "/?.so"
    local paths = "LUA_PATH=none LUA_CPATH=" .. quote(found)
    local code, text = answer(lua, paths, 'require "heed" require "heed_mpi"')
    assert.are.equal(1, code)
    local message = "heed_mpi was built for heed %s, and this is heed 9.9.9; build both of the same version"
    assert.truthy(text:find(message:format(require "heed".version), 1, true), text)
  end)
end)
