#!/bin/sh
# Runs the tests of a build with gcov, and prints which lines and branches they ran. Ends with "N passed, N failed".
#   run_coverage.sh BUILD [SPEC...]
# In the environment: TESTS, names of C tests (by default all, then those of kernels with each table); KEEP, if not
# empty, adds to the last counts; FILES, files or folders to print in detail; MPI, if not empty, also runs the specs for
# several machines.
set -u
build=$1
shift
. scripts/dev/tally.sh
export GCOV_ERROR_FILE="$PWD/$build/gcov.log" # not among what a program prints
export PAGES_CFLAGS=--coverage # for programs that are linked with the libraries of this build
rm -f "$GCOV_ERROR_FILE"
[ -n "${KEEP:-}" ] || find "$build/obj" -name '*.gcda' -delete

# By name: without names, run_tests.sh also checks the libraries' symbols, to which gcc adds some here.
tally 'the tests' env TESTS="${TESTS:-$(basename -s .c tests/c/test_*.c | tr '\n' ' ')}" \
  scripts/dev/run_tests.sh "$build" "$@"
[ -n "${TESTS:-}" ] || tally 'the tests of each kernel table' env \
  TESTS='test_kernels test_gemm test_decode test_lowp test_lowp_blocks test_small_pass test_layers test_reduced' \
  scripts/dev/run_isa_tests.sh "$build"
[ -z "${MPI:-}" ] || tally 'several machines' env RANKS='0 3' scripts/dev/run_mpi_tests.sh "$build" tests/mpi/*.lua \
  tests/mpi/jobs/*_spec.lua

report=$(python3 scripts/dev/coverage.py "$build" ${FILES:-}) || failed=$((failed + 1))
echo "$report"
tallied
