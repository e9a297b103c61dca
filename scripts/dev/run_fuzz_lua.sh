#!/bin/sh
# Runs the fuzzers that are written in Lua: programs made from the annotations, files of every format with one thing
# damaged, and, with each kernel table of this processor, attention and operations against double precision, copies and
# differences. Each prints what it counted. Ends with "N passed, N failed"; fails if a fuzzer finds something.
#   run_fuzz_lua.sh BUILD SECONDS [SEED]     SECONDS for each; SEED: by default another one each day
set -u
build=$1 seconds=$2 seed=${3:-$(($(date +%s) / 86400 % 10000 * 100000))}
passed=0 failed=0
export HEED_BUILD="$build" HEED_FUZZ_LONGEST="${HEED_FUZZ_LONGEST:-30}" # sanitizers are slow

run() { # SCRIPT SECONDS
  if "$build/heed" "tests/fuzz/$1" "$seed" 100000000 "$2"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    echo "$1: failed; its seeds began at $seed"
  fi
}

run grammar_fuzz.lua "$seconds"
run file_fuzz.lua "$seconds"
tables=''
for name in $(printf '#include "src/core/types.h"\n#define X(name) name\nTABLES HEED__CPU_LIST(X)\n' | ${CC:-cc} -E -P - |
  sed -n 's/^TABLES //p'); do
  if HEED_CPU=$name "$build/heed" -e 'require "heed"' >/dev/null 2>&1; then tables="$tables $name"; fi
done
# shellcheck disable=SC2086 # words on purpose
set -- $tables
for name in $tables; do
  export HEED_CPU="$name"
  run attention_fuzz.lua $(((seconds + $# - 1) / $#))
  run operation_fuzz.lua $(((seconds + $# - 1) / $#))
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
