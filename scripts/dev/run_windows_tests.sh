#!/bin/sh
# Tests heed.c for Windows, under wine: the C tests; a DLL with Lua inside, used by a C program through heed.h alone and
# by an interpreter; and the module that lua.exe finds. Lua is built from Debian's source package. Ends with "N passed, N
# failed"; fails if a test fails.
#   run_windows_tests.sh BUILD FOLDER TEST...     FOLDER: for what is built, with digests.txt of this machine
set -u
build=$1 folder=$2/windows
shift 2
mkdir -p "$folder/test" "$folder/files"
. scripts/dev/tally.sh
unset HEED_CPU

lua=$build/lua_source/source/src
cc=x86_64-w64-mingw32-gcc
# All tests share one wine server. Debian's server ends with each test otherwise, and a test that starts at that moment
# loses its connection.
WINEPREFIX=$(realpath "$folder")/wine
WINEDEBUG=-all
export WINEPREFIX WINEDEBUG
wine=$(command -v /usr/lib/wine/wine64 wine64 wine | head -n 1)
server=$(command -v /usr/lib/wine/wineserver /usr/lib/wine/wineserver64 wineserver | head -n 1)
mkdir -p "$WINEPREFIX"
${server:-:} -p60 # seconds to wait for the next test

# Lua's own files: all but its two programs.
lua_objects() {
  scripts/dev/unpack_source.sh "$build/lua_source" lua5.4 || return 1
  mkdir -p "$folder/lua"
  for source in "$lua"/l*.c; do
    case $source in */lua.c | */luac.c) continue ;; esac
    $cc -O2 -DLUA_BUILD_AS_DLL -c "$source" -o "$folder/lua/$(basename "$source" .c).o" || return 1
  done
  $cc -shared "$folder"/lua/*.o -o "$folder/lua54.dll" -Wl,--out-implib,"$folder/liblua54.a" &&
    $cc -O2 -DLUA_BUILD_AS_DLL "$lua/lua.c" -L"$folder" -llua54 -o "$folder/lua54.exe"
}

heed_object() { # for everything below
  ${CCACHE:-} $cc -O2 -DHEED_DLL=1 -DHEED_LUA=1 -I"$lua" -c "$build/heed.c" -o "$folder/heed.o"
}

c_tests() {
  for name in "$@"; do
    $cc -std=c11 -O1 -DHEED_LUA=1 -I"$lua" -Itests/c/plain -D__USE_MINGW_ANSI_STDIO=1 "tests/c/$name.c" "$folder/heed.o" \
      "$folder"/lua/*.o -static -o "$folder/test/$name.exe" || return 1
    mv "$folder/test/$name.exe" "$folder/test/$name" # the name that run_tests.sh uses
  done
  TESTS="$*" EMULATOR="$wine" scripts/dev/run_tests.sh "$folder"
}

# exports DLL PATTERN: fails if it exports a name that does not match, or no function of heed
exports() {
  x86_64-w64-mingw32-objdump -p "$1" | awk '/^\[Ordinal\/Name Pointer\]/ { on = 1; next } on && NF == 0 { exit }
    on { print $NF }' >"$folder/exports.txt"
  grep -qx heed_context_new_for "$folder/exports.txt" && grep -qx luaopen_heed "$folder/exports.txt" &&
    ! grep -vE "$2" "$folder/exports.txt"
}

# needs DLL PATTERN: fails if it needs a library that neither Windows has nor the pattern allows
needs() {
  x86_64-w64-mingw32-objdump -p "$1" | sed -n 's/.*DLL Name: //p' | grep -viE "^(KERNEL32|msvcrt|ADVAPI32|bcrypt|api-ms-.*)\.dll$|$2" >&2
  [ $? = 1 ]
}

# The two commands of docs/installing.md.
dll() {
  mkdir -p "$folder/dll"
  $cc -shared "$folder/heed.o" "$folder"/lua/*.o -static-libgcc -o "$folder/dll/heed.dll" \
    -Wl,--out-implib,"$folder/dll/libheed.dll.a" &&
    exports "$folder/dll/heed.dll" '^(heed_[a-z]|luaopen_|luaL?_)' && needs "$folder/dll/heed.dll" '^$'
}
module() {
  mkdir -p "$folder/module"
  $cc -shared "$folder/heed.o" -L"$folder" -llua54 -static-libgcc -o "$folder/module/heed.dll" &&
    exports "$folder/module/heed.dll" '^(heed_[a-z]|luaopen_heed)' && needs "$folder/module/heed.dll" '^lua54\.dll$'
}

# A C program that includes heed.h and is linked with the DLL.
dll_in_c() {
  $cc -std=c11 -O1 -DHEED_DLL=1 -I"$build" tests/portable/digests.c -L"$folder/dll" -lheed -o "$folder/dll/digests.exe" &&
    HEED_CPU=scalar $wine "$folder/dll/digests.exe" "$folder/files" >"$folder/digests.txt"
}
same_bits() { scripts/dev/compare_digests.sh "$folder/../digests.txt" "$folder/digests.txt"; }

script='local heed = require "heed"
  io.write(tostring(heed.tensor { 1, 2 } * 2), " ", tostring(require "heed.nn" == heed.nn), " ",
    tostring(heed.nn.functional ~= nil), " ", tostring(pcall(heed.ones, -1)), "\n")'
says() { # PROGRAM: in its own folder, where Windows looks for DLLs
  $wine "$1" -e "$script" | tr -d '\r' >"$folder/said.txt"
  cat "$folder/said.txt"
  [ "$(cat "$folder/said.txt")" = 'tensor([2., 4.]) true true false' ]
}
dll_in_lua() { # the interpreter's Lua is the one in the DLL
  $cc -O2 -DLUA_BUILD_AS_DLL "$lua/lua.c" -L"$folder/dll" -lheed -o "$folder/dll/lua.exe" && says "$folder/dll/lua.exe"
}
module_in_lua() {
  cp "$folder/lua54.exe" "$folder/lua54.dll" "$folder/module" && says "$folder/module/lua54.exe"
}

tally 'Lua for Windows' lua_objects
tally 'mingw-w64, with Lua' heed_object
tally 'the C tests under wine' c_tests "$@"
tally 'heed.dll with Lua inside' dll
tally 'a program in C with heed.dll' dll_in_c
tally 'the same bits' same_bits
tally 'an interpreter with heed.dll' dll_in_lua
tally 'the module heed.dll' module
tally 'lua54.exe with the module' module_in_lua
${server:-:} -k
tallied
