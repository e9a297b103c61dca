#!/bin/sh
# Tests a build for ARM (make arm64) under qemu: the C tests, the reference values, the notebooks. Ends with
# "N passed, N failed"; fails if a test fails.
#   run_arm64_tests.sh BUILD ROOT     ROOT: the folder of the libraries that the build is linked with
# In the environment: TESTS, the names of the C tests (by default all that run under qemu).
set -u
build=$1 root=$2
. scripts/dev/tally.sh
unset HEED_CPU

emulator="qemu-aarch64 -L /usr/aarch64-linux-gnu"
emulator="$emulator -E LD_LIBRARY_PATH=$root/usr/lib/aarch64-linux-gnu:$root/lib/aarch64-linux-gnu"

# Without test_parallel, which forks while it has threads (qemu cannot do that), and test_host, which counts the
# threads and files of the process, including qemu's.
c_tests=${TESTS:-$(basename -s .c tests/c/test_*.c | grep -vE '^test_(parallel|host)$')}

notebook() { # NAME
  $emulator "$build/heed" "scripts/notebooks/$1.lua" >"$build/notebook.txt" &&
    $emulator "$build/heed" tests/compare_output.lua "tests/expected/$1.txt" "$build/notebook.txt"
}

# One kernel table for each run; qemu has the instructions of all.
for name in scalar neon neon_dotprod neon_bf16; do
  tally "HEED_CPU=$name: reference values" env HEED_CPU=$name $emulator "$build/heed" tests/golden/check.lua tests/golden
done
for name in neon_dotprod neon_bf16; do
  echo "$c_tests" | grep -qw test_reduced || continue
  tally "HEED_CPU=$name: products in fewer bits" env HEED_CPU=$name TESTS=test_reduced EMULATOR="$emulator" \
    scripts/dev/run_tests.sh "$build"
done
tally 'the C tests' env HEED_CPU=neon TESTS="$c_tests" EMULATOR="$emulator" scripts/dev/run_tests.sh "$build"
for source in scripts/notebooks/*.lua; do
  name=$(basename -s .lua "$source")
  tally "the notebook $name" notebook "$name"
done
tallied
