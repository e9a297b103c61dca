#!/bin/bash
# Tests the wrap for Meson: a project with it builds and runs a C program, and a host with Lua. Ends with "N passed, N
# failed"; fails if a test fails.
#   run_wrap_tests.sh BUILD
set -u
build=$1
. scripts/dev/tally.sh
unset MAKEFLAGS PKG_CONFIG_PATH LD_LIBRARY_PATH CFLAGS LDFLAGS
temporary=$(mktemp -d) || exit 1
trap 'rm -rf "$temporary"' EXIT
trap 'exit 130' INT TERM
version=$(sed -n 's/^#define HEED_VERSION  *"\(.*\)"/\1/p' src/heed.h)
project="$temporary/a project"

# block PAGE LANGUAGE WORD: the code in that language on that page which contains the word
block() {
  awk -v language="$2" -v word="$3" '
    $0 == "```" language { inside = 1; text = ""; next }
    /^```/ { if (inside && index(text, word)) { printf "%s", text; exit } inside = 0 }
    inside { text = text $0 "\n" }' "$1"
}
expect() { # WANTED GOT
  [ "$2" = "$1" ] || { printf 'expected: %s\ngot: %s\n' "$1" "$2"; return 1; }
}

# -O0 and one library after the other, because compiling takes most of the time.
setup() { meson setup --wrap-mode=nodownload -Dheed:optimization=0 -Dheed:debug=false "$@"; }

program() {
  mkdir -p "$project" && cp -R "$build/subprojects" "$project" || return 1
  block docs/installing.md c heed_scaled_dot_product_attention >"$project/app.c"
  block docs/installing.md meson "dependency('heed'" >"$project/meson.build"
  setup "$project" "$project/build" && ninja -C "$project/build" || return 1
  expect "$(block docs/installing.md text 0.4892)" "$("$project/build/app")"
}

# A host with Lua 5.4 and the static library, with all that heed can do.
host() {
  block docs/embedding.md c luaopen_heed >"$project/app.c"
  sed "/^executable/s/dependency('heed'.*)\$/[dependency('lua5.4'), &/; /^executable/s/)\$/])/" "$project/meson.build" \
    >"$project/next" && mv "$project/next" "$project/meson.build" && cat "$project/meson.build" || return 1
  setup -Ddefault_library=static -Dheed:lua=lua5.4 -Dheed:cjson=enabled -Dheed:utf8proc=enabled -Dheed:zlib=enabled \
    "$project" "$project/static" && ninja -C "$project/static" || return 1
  expect "$(block docs/embedding.md text 'tensor([2')" "$("$project/static/app")"
}

changed_archive() {
  echo x >>"$project/subprojects/packagefiles/heed-$version.tar.gz" && rm -rf "$project/subprojects/heed-$version"
  setup "$project" "$project/changed" && return 1
  grep -q 'Incorrect hash' "$project/changed/meson-logs/meson-log.txt"
}

# Needs no compiler: the archive of a second run is the same.
same_archive() {
  local before
  before=$(cat "$build/subprojects/heed.wrap")
  scripts/dev/make_wrap.sh "$build" && expect "$before" "$(cat "$build/subprojects/heed.wrap")"
}

tally 'a C program with the meson.build of docs/installing.md' program
tally 'a host with Lua, linked with the static library' host
tally 'an archive that was changed is refused' changed_archive
tally 'the same sources give the same wrap' same_archive
tallied
