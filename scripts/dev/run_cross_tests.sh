#!/bin/sh
# Tests a build for another processor (make arm64, armhf or s390x) under qemu: C tests, reference values, notebooks,
# and for s390x, which is big-endian, specs of everything that reads or writes bytes. Ends with "N passed, N failed";
# fails if a test fails.
#   run_cross_tests.sh BUILD ARCHITECTURE TRIPLE ROOT     ROOT: the folder of the libraries that the build is linked with
# In the environment: TESTS, the names of the C tests (by default all that run under qemu); CROSS_SPECS, files of specs.
set -u
build=$1 architecture=$2 triple=$3 root=$(realpath "$4")
. scripts/dev/tally.sh
unset HEED_CPU

case $architecture in arm64) processor=aarch64 ;; armhf) processor=arm ;; *) processor=$architecture ;; esac
emulator="qemu-$processor -L /usr/$triple -E LD_LIBRARY_PATH=$root/usr/lib/$triple:$root/lib/$triple"

# A build folder whose heed is a script that starts the emulator, for specs that start heed. busted's libraries for
# that processor come before this machine's.
emulated=$build/emulated
mkdir -p "$emulated"
cat >"$emulated/heed" <<END
#!/bin/sh
LUA_CPATH='$root/usr/lib/$triple/lua/5.4/?.so;;'
export LUA_CPATH
exec $emulator '$(realpath "$build")/heed' "\$@"
END
chmod +x "$emulated/heed"
ln -sfn ../test "$emulated/test"

# Without test_parallel, which forks while it has threads (qemu cannot do that), test_host, which counts the threads and
# files of the process, including qemu's, and test_system_faults where make/cross.mk does not build it.
c_tests=${TESTS:-$(basename -s .c tests/c/test_*.c | grep -vE '^test_(parallel|host|system_faults)$')}
[ -n "${TESTS:-}" ] || [ "$architecture" != arm64 ] || c_tests="$c_tests test_system_faults"

notebook() { # NAME
  "$emulated/heed" "scripts/notebooks/$1.lua" >"$build/notebook.txt" &&
    "$emulated/heed" tests/compare_output.lua "tests/expected/$1.txt" "$build/notebook.txt"
}

# One kernel table for each run; qemu has the instructions of all.
case $architecture in arm64) tables='scalar neon neon_dotprod neon_bf16' ;; *) tables=scalar ;; esac
for name in $tables; do
  tally "HEED_CPU=$name: reference values" env HEED_CPU="$name" "$emulated/heed" tests/golden/check.lua tests/golden
  case $name in scalar | neon) continue ;; esac
  echo "$c_tests" | grep -qw test_reduced || continue
  tally "HEED_CPU=$name: products in fewer bits" env HEED_CPU="$name" TESTS=test_reduced EMULATOR="$emulator" \
    scripts/dev/run_tests.sh "$build"
done
[ "$architecture" != arm64 ] || export HEED_CPU=neon
# shellcheck disable=SC2086 # a list of words
tally 'the C tests and specs' env TESTS="$c_tests" EMULATOR="$emulator" scripts/dev/run_tests.sh "$emulated" ${CROSS_SPECS:-}
unset HEED_CPU
for source in scripts/notebooks/*.lua; do
  name=$(basename -s .lua "$source")
  tally "the notebook $name" notebook "$name"
done
tallied
