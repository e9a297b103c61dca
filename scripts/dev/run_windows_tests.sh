#!/bin/sh
# Tests heed.c for Windows, under wine: the commands of docs/two-files.md, which make a DLL with Lua inside, a C program
# that uses it through heed.h alone, and a module for lua54.exe; and the C tests. Lua is built from Debian's source
# package. Ends with "N passed, N failed"; fails if a test fails.
#   run_windows_tests.sh BUILD FOLDER TEST...     FOLDER: for what is built, with digests.txt of this machine
# In the environment: OPTIMIZE, -O2 by default.
set -u
build=$1 folder=$2/windows
shift 2
mkdir -p "$folder/test" "$folder/files"
. scripts/dev/tally.sh
unset HEED_CPU

page=$folder/page
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

# Runs the commands of the page in a folder with what it names; game.c is the program that prints digests.
commands_of_the_page() {
  scripts/dev/unpack_source.sh "$build/lua_source" lua5.4 || return 1
  rm -rf "$page"
  mkdir -p "$page"
  cp "$build/heed.c" "$build/heed.h" "$page" && cp tests/portable/digests.c "$page/game.c" || return 1
  ln -s "$(realpath "$build/lua_source/source")" "$page/lua-5.4"
  awk '/^## / { here = /^## Windows/ } /^```$/ { on = 0 } here && on { print } here && /^```sh$/ { on = 1 }' \
    docs/two-files.md | sed "s/ -O2/ ${OPTIMIZE:--O2}/" >"$page/commands.sh"
  [ -s "$page/commands.sh" ] && (cd "$page" && sh -e commands.sh)
}

c_tests() {
  for name in "$@"; do
    $cc -std=c11 -O1 -DHEED_LUA=1 -I"$page/lua-5.4/src" -Itests/c/plain -D__USE_MINGW_ANSI_STDIO=1 "tests/c/$name.c" \
      "$page/heed.o" "$page"/lua54/*.o -static -o "$folder/test/$name.exe" || return 1
    mv "$folder/test/$name.exe" "$folder/test/$name" # the name that run_tests.sh uses
  done
  TESTS="$*" EMULATOR="$wine" scripts/dev/run_tests.sh "$folder"
}

# exports DLL PATTERN: it exports functions of heed, and no name that does not match
exports() {
  x86_64-w64-mingw32-objdump -p "$1" | awk '/^\[Ordinal\/Name Pointer\]/ { on = 1; next } on && NF == 0 { exit }
    on { print $NF }' >"$folder/exports.txt"
  grep -qx heed_context_new_for "$folder/exports.txt" && grep -qx luaopen_heed "$folder/exports.txt" &&
    ! grep -vE "$2" "$folder/exports.txt"
}

# needs DLL PATTERN: it needs no DLL but Windows' own and those that match
needs() {
  ! x86_64-w64-mingw32-objdump -p "$1" | sed -n 's/.*DLL Name: //p' | grep -viE "^(kernel32|msvcrt|advapi32|api-ms-.*)\.dll$|$2"
}

inside() { exports "$page/inside/heed.dll" '^(heed_[a-z]|luaopen_|luaL?_)' && needs "$page/inside/heed.dll" '^heed\.dll$'; }
module() { exports "$page/module/heed.dll" '^(heed_[a-z]|luaopen_heed)' && needs "$page/module/heed.dll" '^lua54\.dll$'; }
digests() {
  HEED_CPU=scalar $wine "$page/inside/game.exe" "$folder/files" >"$folder/digests.txt"
  code=$?
  [ $code = 0 ] || { cat "$folder/digests.txt"; return 1; }
  scripts/dev/compare_digests.sh "$folder/../digests.txt" "$folder/digests.txt"
}

script='local heed = require "heed"
  io.write(tostring(heed.tensor { 1, 2 } * 2), " ", tostring(require "heed.nn" == heed.nn), " ",
    tostring(heed.nn.functional ~= nil), " ", tostring(pcall(heed.ones, -1)), "\n")'
says() { # PROGRAM: an interpreter; Windows looks for DLLs in its folder
  $wine "$1" -e "$script" >"$folder/said.txt"
  tr -d '\r' <"$folder/said.txt" | tee "$folder/line.txt"
  [ "$(cat "$folder/line.txt")" = 'tensor([2., 4.]) true true false' ]
}
says_inside() { # its Lua is the one in the DLL
  $cc -DLUA_BUILD_AS_DLL "$page/lua-5.4/src/lua.c" -L"$page/inside" -lheed -o "$page/inside/lua.exe" && says "$page/inside/lua.exe"
}

tally 'the commands of docs/two-files.md for Windows' commands_of_the_page
tally 'the C tests under wine' c_tests "$@"
tally 'heed.dll with Lua inside: its names' inside
tally 'a program in C with it: the same bits' digests
tally 'an interpreter with it' says_inside
tally 'the module heed.dll: its names' module
tally 'lua54.exe with it' says "$page/module/lua54.exe"
${server:-:} -k
tallied
