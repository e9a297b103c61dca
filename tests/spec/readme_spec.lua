-- What the README shows is true: its example prints that text, its host compiles and runs.
local support = require "tests.support"

local readme = support.read "README.md"
local function block(language) return assert(readme:match("```" .. language .. "\n(.-)```")) end

-- The README's lines for a host in C, as a program that runs the script named by its argument.
local function host_program()
  local body = block("c"):gsub('"script.lua"', "argv[1]"):gsub("luaL_dofile%b();", "int failed = %0")
  if not support.has.loops then -- 5.1 has no luaL_requiref; the README says what takes its place
    body = body:gsub("luaL_requiref%b();.-\n", "lua_pushcfunction(L, luaopen_heed);\nlua_call(L, 0, 1);\n")
  end
  return '#include <lauxlib.h>\n#include <lualib.h>\n#include "heed.h"\n'
    .. "int main(int argc, char **argv) {\n  (void)argc;\n"
    .. body
    .. "  lua_close(L);\n  return failed;\n}\n"
end

describe("the README", function()
  it("has an example of at most twelve lines", function()
    local _, lines = block("lua"):gsub("\n", "\n")
    assert.is_true(lines <= 12, lines .. " lines")
  end)

  it("shows what the example prints", function()
    support.with_file(function(script)
      support.write(script, block "lua")
      assert.equal(block "text", support.run(support.heed .. " " .. script).out)
    end)
  end)

  local sanitized = support.build:find "asan" -- such a library needs more than the README's flags to link
  local test = sanitized and pending or it
  test("embeds heed in a host of five lines", function()
    support.with_file(function(source)
      support.with_file(function(program)
        support.write(source, host_program())
        local build = [[
          lua=$(scripts/dev/find_lua.sh %s library) || exit
          cc -x c -Isrc $(pkg-config --cflags $lua) %s -x none %s/libheed.a -o %s \
            $(pkg-config --libs $lua) -lopenblas -lcjson -lz -lutf8proc -lm -pthread]]
        local built = support.run(build:format(support.lua, source, support.quote(support.build), program))
        assert.equal("", built.err)
        support.write(source, block "lua")
        local ran = support.run(program .. " " .. source)
        assert.same({ code = 0, out = block "text", err = "" }, ran)
      end)
    end)
  end)
end)
