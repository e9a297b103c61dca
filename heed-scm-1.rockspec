-- `luarocks make` in this folder builds the module and installs it; `luarocks build` and `luarocks pack` do from any folder
-- with what is committed here. Nothing is downloaded.

-- The folder of this file, which LuaRocks tells by no name; but bytecode names the file that it was made from.
local folder = ("").dump(function() end):match "(/[^%c]*)/heed%-scm%-1%.rockspec"

rockspec_format = "3.0"
package = "heed"
version = "scm-1"
source = { url = "git+file://" .. (folder or "") .. "/." } -- ".", so that a packed rock does not depend on the folder's name
description = {
  summary = "Attention runtime: tensors and attention modules with PyTorch's names and numbers",
  detailed = [[
Tensors, attention modules, caches and models (BERT, GPT-2, Llama) in one C library, which works inside of any program
with a Lua state. Needs GNU make, a C compiler, pkg-config and the libraries cJSON, zlib, utf8proc and OpenBLAS.]],
  license = "MIT",
}
dependencies = { "lua >= 5.1, < 5.5" }
build = {
  type = "make",
  build_target = "build/rock/heed.so",
  build_variables = {
    BUILD = "build/rock", -- beside what `make` builds, whose Lua may be another one
    CC = "$(CC)",
    LUA_PC = "luarocks", -- LuaRocks knows which Lua, not pkg-config
    LUA_CFLAGS = "-I$(LUA_INCDIR)",
  },
  install_pass = false,
  install = { lib = { heed = "build/rock/heed.so" } },
}
