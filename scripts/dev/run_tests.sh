#!/bin/sh
# Runs the C tests and the specs of a build; ends with "N passed, N failed" and fails if anything did.
#   run_tests.sh BUILD [SPEC...]
# Without TESTS the libraries' symbols are checked, too (check_symbols.sh).
# In the environment: TESTS, the names of the C tests to run (all by default); EMULATOR, a command that runs them;
# TEST_OPTIONS for busted.
set -u
build=$1
shift
passed=0 failed=0
log=$(mktemp) # for several of these may run at once
trap 'rm -f "$log"' EXIT
export HEED_BUILD="$build"

# number_in PATTERN: the sum of the numbers that \1 of the pattern finds in the log
number_in() {
  sed -n "s/$1/\\1/p" "$log" | awk '{ sum += $1 } END { print sum + 0 }'
}
# A program that fails without counting a failure has crashed.
count() { # NAME EXIT-CODE PASSED FAILED
  if [ "$2" != 0 ] && [ "$4" = 0 ]; then set -- "$1" "$2" "$3" 1; fi
  [ "$2" = 0 ] || echo "$1: exit code $2"
  passed=$((passed + $3)) failed=$((failed + $4))
}

for name in ${TESTS:-$(basename -s .c tests/c/test_*.c)}; do
  ${EMULATOR:-} "$build/test/$name" >"$log" 2>&1
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

# The files of folders, and what is named by itself, a file in a line.
files_of() {
  for place in "$@"; do
    if [ -d "$place" ]; then find "$place" -name '*_spec.lua' | sort; else echo "$place"; fi
  done
}

# A process for some files: full collections, which many specs ask for, go through all that earlier files left.
if [ $# -gt 0 ]; then
  specs=$(files_of "$@") at_once=8 # files
  processes=$((($(echo "$specs" | grep -c .) + at_once - 1) / at_once))
  echo "$specs" |
    xargs -n $at_once "$build/heed" tests/run_specs.lua --output=plainTerminal ${TEST_OPTIONS:-} >"$log" 2>&1
  code=$?
  cat "$log"
  failures=$(number_in '^[0-9]* success[a-z]* \/ \([0-9]*\) failure.*')
  errors=$(number_in '^[0-9]* success[a-z]* \/ [0-9]* failure[a-z]* \/ \([0-9]*\) error.*')
  silent=$((processes - $(grep -a -c '^[0-9]* success' "$log"))) # crashed or never begun
  [ $silent = 0 ] || echo "processes without a result: $silent of $processes"
  [ $processes = 0 ] && silent=1 && echo "no specs in: $*"
  count 'the specs' $code "$(number_in '^\([0-9]*\) success.*')" $((failures + errors + silent))
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
