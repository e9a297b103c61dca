#!/bin/sh
# Runs the tests with several Lua versions, each in a build of its own. Ends with "N passed, N failed"; fails if a
# test fails.
#   run_luas.sh BUILD LUA...
# C tests that do not depend on Lua, and specs that wait for limits of time, run only with the first version. In the
# environment: TESTS, the C tests for that one.
set -u
build=$1
shift
mkdir -p "$build"
. scripts/dev/tally.sh
tests=${TESTS:-}
folder() { # the same as BUILD in the Makefile
  case $1 in 5.4) echo "$build" ;; luajit) echo "$build/luajit" ;; *) echo "$build/lua$1" ;; esac
}
for lua in "$@"; do
  tally "Lua $lua" ${MAKE:-make} --no-print-directory LUA="$lua" BUILD="$(folder "$lua")" run-test ${tests:+TESTS="$tests"}
  tests='test_states test_lua_module'
  export TEST_OPTIONS=--exclude-tags=limits
done
tallied
