#!/bin/sh
# Runs the C tests and the specs of a build. Ends with "N passed, N failed"; fails if a test fails.
#   run_tests.sh BUILD [SPEC...]     SPEC: a file, or a folder of them
# In the environment: TESTS, the names of the C tests (by default all, and the check of the libraries' symbols);
# EMULATOR, a command that runs them; TEST_OPTIONS, options for busted.
set -u
build=$1
shift
passed=0 failed=0
log=$(mktemp) # several of these scripts may run at the same time
trap 'rm -f "$log"' EXIT
export HEED_BUILD="$build"

# number_in PATTERN: the sum of the numbers that \1 of the pattern matches in the log
number_in() {
  sed -n "s/$1/\\1/p" "$log" | awk '{ sum += $1 } END { print sum + 0 }'
}
# A program that fails without reporting a failure has crashed.
count() { # NAME EXIT-CODE PASSED FAILED
  if [ "$2" != 0 ] && [ "$4" = 0 ]; then set -- "$1" "$2" "$3" 1; fi
  [ "$2" = 0 ] || echo "$1: exit code $2"
  passed=$((passed + $3)) failed=$((failed + $4))
}

# Ends what hangs, far beyond what a slow machine needs, so that its output is seen.
patience=''
! command -v timeout >/dev/null || patience='timeout -k 10 1200'

for name in ${TESTS:-$(basename -s .c tests/c/test_*.c)}; do
  $patience ${EMULATOR:-} "$build/test/$name" >"$log" 2>&1
  code=$?
  ok=$(number_in '^\[  PASSED  \] \([0-9]*\) test.*')
  [ $code = 0 ] && echo "$name: $ok passed" || cat "$log"
  count "$name" $code "$ok" "$(number_in '^\[  FAILED  \] \([0-9]*\) test.*')"
done

if [ -z "${TESTS:-}${EMULATOR:-}" ]; then
  scripts/dev/check_symbols.sh "$build" >"$log" 2>&1
  code=$?
  sed 's/^/symbols: /' "$log"
  count symbols $code "$(number_in '^\([0-9]*\) passed, .*')" "$(number_in '^[0-9]* passed, \([0-9]*\) failed.*')"
fi

# The spec files of folders and of single files, one on each line.
files_of() {
  for path in "$@"; do
    if [ -d "$path" ]; then find "$path" -name '*_spec.lua' | sort; else echo "$path"; fi
  done
}

# One process runs a few files: many specs run full garbage collections, which get slower with all objects of earlier
# files.
if [ $# -gt 0 ]; then
  specs=$(files_of "$@") at_once=8 # files
  processes=$((($(echo "$specs" | grep -c .) + at_once - 1) / at_once))
  echo "$specs" |
    xargs -n $at_once $patience "$build/heed" tests/run_specs.lua --output=plainTerminal ${TEST_OPTIONS:-} >"$log" 2>&1
  code=$?
  cat "$log"
  failures=$(number_in '^[0-9]* success[a-z]* \/ \([0-9]*\) failure.*')
  errors=$(number_in '^[0-9]* success[a-z]* \/ [0-9]* failure[a-z]* \/ \([0-9]*\) error.*')
  silent=$((processes - $(grep -a -c '^[0-9]* success' "$log"))) # crashed or never started
  [ $silent = 0 ] || echo "processes without a result: $silent of $processes"
  [ $processes = 0 ] && silent=1 && echo "no specs in: $*"
  count 'the specs' $code "$(number_in '^\([0-9]*\) success.*')" $((failures + errors + silent))
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
