#!/bin/sh
# Checks what the built libraries show and hold: public names only, no Lua in the one for hosts in C, no writable globals.
#   check_symbols.sh BUILD
set -u
build=$1
wrong=0

# expect_none WHAT LIST: the list should be empty
expect_none() {
  [ -z "$2" ] && return
  printf '%s:\n%s\n' "$1" "$2" >&2
  wrong=1
}

for library in libheed.so heed.so; do
  expect_none "$library exports more than the functions heed_… and luaopen_heed…" \
    "$(nm -D --defined-only "$build/$library" | awk '$2 != "T" || $3 !~ /^(heed_[a-z]|luaopen_heed)/ { print "  " $3 }')"
done
expect_none 'libheed.so needs Lua' "$(nm -D --undefined-only "$build/libheed.so" | grep -E ' luaL?_')"
expect_none 'libheed.a has globals that can be written to' "$(size -A "$build/libheed.a" |
  awk '$2 == "(ex" { file = $1 } ($1 == ".data" || $1 == ".bss") && $2 > 0 { print "  " file ": " $2 " bytes in " $1 }')"

[ $wrong = 0 ] && echo 'symbols: only public functions are exported, and no global can be written to'
