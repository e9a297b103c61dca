-- luacheck: `make lint`
std = "lua54"
max_line_length = 120
self = false
exclude_files = { "lua/heed/meta", "tests/golden", "tests/hostile", "build" }
files["scripts/examples/lighttpd"] = { globals = { "lighty" } } -- of mod_magnet
files["scripts/examples/neovim"] = { std = "luajit", globals = { "vim" } }
files["scripts/dev/check_neovim.lua"] = { std = "luajit", globals = { "vim" } }
files["scripts/examples/love"] = { std = "luajit", globals = { "love" } }
-- Each example of a file is a script of its own.
files["scripts/site/examples"] = { read_globals = { "heed", "nn", "F" }, ignore = { "4.." } }
files["scripts/examples/recipes"] = { globals = { "ngx", "core", "pandoc", "Pandoc" } } -- of the hosts
files["tests/love"] = { std = "luajit", globals = { "love" } }
files["lua/heed"] = { std = "min" } -- the functions of all Lua versions
files["tests/spec"] = { std = "+busted" }
files["tests/minimal"] = { std = "+busted" }
files["tests/expressions.lua"] = { max_line_length = false } -- an expression is a line
files["tests/compare_output.lua"] = { max_line_length = 130 }
