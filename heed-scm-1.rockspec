-- `luarocks make` in this folder builds and installs the module; `luarocks build` and `luarocks pack` work in any folder
-- and use the committed files. Nothing is downloaded.

-- The folder of this file: LuaRocks does not provide it, but bytecode contains the name of its source file.
local folder = ("").dump(function() end):match "(/[^%c]*)/heed%-scm%-1%.rockspec"

rockspec_format = "3.0"
package = "heed"
version = "scm-1"
source = { url = "git+file://" .. (folder or "") .. "/." } -- ".", so that a packed rock does not depend on the folder's name
description = {
  summary = "Attention runtime: tensors and attention modules with PyTorch's names and numbers",
  detailed = [[
Tensors, attention modules, caches and models (BERT, GPT-2, Llama) in one C library, for any program with a Lua
state. Needs GNU make, a C compiler, pkg-config and the libraries cJSON, zlib, utf8proc and OpenBLAS.]],
  license = "MIT",
}
dependencies = { "lua >= 5.1, < 5.5" }
build = {
  type = "make",
  build_target = "build/rock/heed.so",
  build_variables = {
    BUILD = "build/rock", -- apart from the output of `make`, which may be for another Lua
    CC = "$(CC)",
    LUA_PC = "luarocks", -- LuaRocks determines the Lua version, not pkg-config
    LUA_CFLAGS = "-I$(LUA_INCDIR)",
  },
  install_pass = false,
  install = { lib = { heed = "build/rock/heed.so" } },
}
