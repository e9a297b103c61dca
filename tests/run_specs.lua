-- Runs busted in the interpreter that runs this file: build/heed tests/run_specs.lua [options] FILES
require "tests.older_lua"
require "busted.runner" { standalone = false }
