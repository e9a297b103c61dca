-- luacheck: `make lint`
std = "lua54"
max_line_length = 120
self = false
exclude_files = { "lua/heed/meta", "tests/golden", "tests/hostile", "build" }
files["scripts/examples/lighttpd"] = { globals = { "lighty" } } -- mod_magnet's
files["lua/heed"] = { std = "min" } -- what all Luas have
files["tests/spec"] = { std = "+busted" }
files["tests/compare_output.lua"] = { max_line_length = 130 }
