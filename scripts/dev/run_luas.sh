#!/bin/sh
# Runs all tests with each of the Luas, in builds of their own; ends with "N passed, N failed".
#   run_luas.sh BUILD LUA...
# The C tests that know no Lua run once, with the first. In the environment: TESTS, the C tests to run with that one.
set -u
build=$1
shift
passed=0 failed=0
tests=${TESTS:-}
mkdir -p "$build"
log=$build/luas.log
folder() { # as the Makefile has it
  case $1 in 5.4) echo "$build" ;; luajit) echo "$build/luajit" ;; *) echo "$build/lua$1" ;; esac
}
for lua in "$@"; do
  echo "==== Lua $lua ===="
  ${MAKE:-make} --no-print-directory LUA="$lua" BUILD="$(folder "$lua")" run-test ${tests:+TESTS="$tests"} >"$log" 2>&1
  code=$?
  # shellcheck disable=SC2046 # words on purpose
  set -- $(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1) 0 0
  [ $code = 0 ] || cat "$log"
  if [ $code != 0 ] && [ "$2" = 0 ]; then set -- "$1" 1; fi
  sed -n '/^[0-9]* success/p' "$log"
  passed=$((passed + $1)) failed=$((failed + $2))
  tests=test_states
done

echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
