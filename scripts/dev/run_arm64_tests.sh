#!/bin/sh
# The tests of a build for ARM (make arm64) under qemu: those in C, the reference values, the notebooks. Ends with
# "N passed, N failed" and fails if anything did.
#   run_arm64_tests.sh BUILD ROOT     ROOT: where the libraries lie that the build is linked with
# TESTS in the environment: the names of the C tests to run, by default all that can.
set -u
build=$1 root=$2
. scripts/dev/tally.sh
unset HEED_CPU

emulator="qemu-aarch64 -L /usr/aarch64-linux-gnu"
emulator="$emulator -E LD_LIBRARY_PATH=$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu"

# Not test_parallel: it forks while it has threads, which qemu cannot do. Nor test_host, which counts threads and files of
# a process that is qemu's as well.
c_tests=${TESTS:-$(basename -s .c tests/c/test_*.c | grep -vE '^test_(parallel|host)$')}

notebook() { # NAME
  $emulator "$build/heed" "scripts/notebooks/$1.lua" >"$build/notebook.txt" &&
    $emulator "$build/heed" tests/compare_output.lua "tests/expected/$1.txt" "$build/notebook.txt"
}

# With one table a run: NEON's is the default.
for name in scalar neon; do
  tally "HEED_CPU=$name: reference values" env HEED_CPU=$name $emulator "$build/heed" tests/golden/check.lua tests/golden
done
tally 'the C tests' env HEED_CPU=neon TESTS="$c_tests" EMULATOR="$emulator" scripts/dev/run_tests.sh "$build"
for source in scripts/notebooks/*.lua; do
  name=$(basename -s .lua "$source")
  tally "the notebook $name" notebook "$name"
done
tallied
