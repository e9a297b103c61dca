#!/bin/sh
# Runs the C tests and the specs of a build. Ends with "N passed, N failed"; fails if a test fails.
#   run_tests.sh BUILD [SPEC...]     SPEC: a file, or a folder of them
# In the environment: TESTS, the names of the C tests (by default all, and the check of the libraries' symbols);
# EMULATOR, a command that runs them; TEST_OPTIONS, options for busted; TEST_JOBS, how many programs run at a time, by
# default one for each processor.
set -u
build=$1
shift
passed=0 failed=0
jobs=${TEST_JOBS:-$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)}
logs=$(mktemp -d) # several of these scripts may run at the same time
trap 'rm -rf "$logs"' EXIT
export HEED_BUILD="$build"

# number_in PATTERN FILE...: the sum of the numbers that \1 of the pattern matches
number_in() {
  pattern=$1
  shift
  cat "$@" 2>/dev/null | sed -n "s/$pattern/\\1/p" | awk '{ sum += $1 } END { print sum + 0 }'
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

names=${TESTS:-$(basename -s .c tests/c/test_*.c)}
# shellcheck disable=SC2016 # expanded by the shell that xargs starts
echo "$names" | tr ' ' '\n' | grep . |
  PATIENCE=$patience EMULATOR=${EMULATOR:-} xargs -P "$jobs" -n 1 sh -c \
    '$PATIENCE $EMULATOR "$1/test/$3" >"$2/$3.log" 2>&1; echo $? >"$2/$3.code"' sh "$build" "$logs"
for name in $names; do
  code=$(cat "$logs/$name.code" 2>/dev/null || echo 'not started')
  ok=$(number_in '^\[  PASSED  \] \([0-9]*\) test.*' "$logs/$name.log")
  [ "$code" = 0 ] && echo "$name: $ok passed" || cat "$logs/$name.log"
  count "$name" "$code" "$ok" "$(number_in '^\[  FAILED  \] \([0-9]*\) test.*' "$logs/$name.log")"
done

if [ -z "${TESTS:-}${EMULATOR:-}" ]; then
  scripts/dev/check_symbols.sh "$build" >"$logs/symbols" 2>&1
  code=$?
  sed 's/^/symbols: /' "$logs/symbols"
  count symbols $code "$(number_in '^\([0-9]*\) passed, .*' "$logs/symbols")" \
    "$(number_in '^[0-9]* passed, \([0-9]*\) failed.*' "$logs/symbols")"
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
  specs=$(files_of "$@") at_once=4 # files
  processes=$((($(echo "$specs" | grep -c .) + at_once - 1) / at_once))
  # shellcheck disable=SC2016
  echo "$specs" | PATIENCE=$patience xargs -P "$jobs" -n $at_once sh -c \
    'build=$1 log=$2/$$.specs; shift 2
    $PATIENCE "$build/heed" tests/run_specs.lua --output=plainTerminal ${TEST_OPTIONS:-} "$@" >"$log" 2>&1
    code=$?; cat "$log"; exit $((code != 0))' sh "$build" "$logs"
  code=$?
  failures=$(number_in '^[0-9]* success[a-z]* \/ \([0-9]*\) failure.*' "$logs"/*.specs)
  errors=$(number_in '^[0-9]* success[a-z]* \/ [0-9]* failure[a-z]* \/ \([0-9]*\) error.*' "$logs"/*.specs)
  silent=$((processes - $(cat "$logs"/*.specs | grep -a -c '^[0-9]* success'))) # crashed or never started
  [ $silent = 0 ] || echo "processes without a result: $silent of $processes"
  [ $processes = 0 ] && silent=1 && echo "no specs in: $*"
  count 'the specs' $code "$(number_in '^\([0-9]*\) success.*' "$logs"/*.specs)" $((failures + errors + silent))
fi

echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
