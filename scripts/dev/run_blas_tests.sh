#!/bin/sh
# Tests the products with each of Debian's builds of OpenBLAS. Ends with "N passed, N failed"; fails if a test fails.
#   run_blas_tests.sh BUILD ROOT     ROOT: the folder with the unpacked packages
set -u
build=$1 root=$2
. scripts/dev/tally.sh
unset HEED_CPU OPENBLAS_CORETYPE
best=$("$build/heed" -e 'print(require("heed").info().kernels)')

is_loaded() { # FLAVOUR NAME: a product with the scalar kernels loads that build, and heed.info().blas is NAME
  HEED_CPU=scalar "$build/heed" -e 'local heed = require "heed" local x = heed.ones(100, 100) x:matmul(x)
    print(heed.info().blas) print(io.open("/proc/self/maps"):read "a")' >"$build/maps.txt"
  echo "blas is $(head -n 1 "$build/maps.txt"), which should be $2; from"
  grep -o '/.*libopenblas.*' "$build/maps.txt" | sort -u
  [ "$(head -n 1 "$build/maps.txt")" = "$2" ] && grep -q "/openblas-$1/libopenblas" "$build/maps.txt"
}

for flavour in pthread openmp serial; do
  folder=$(echo "$root"/usr/lib/*/openblas-$flavour)
  name=none # heed's threads may only call the build with POSIX threads (ops/gemm.c)
  [ $flavour = pthread ] && name=OpenBLAS
  export LD_LIBRARY_PATH="$folder"
  tally "$flavour: is loaded, and blas is $name" is_loaded $flavour $name
  # The C tests are linked with BLAS; the runner of the specs loads it.
  for table in "$best" scalar; do # only the scalar table uses BLAS for products
    tally "$flavour with the table $table" env HEED_CPU="$table" TESTS='test_products test_gemm test_parallel' \
      scripts/dev/run_tests.sh "$build" tests/spec/golden_spec.lua tests/spec/threads_spec.lua tests/spec/blas_spec.lua
  done
done
tallied
