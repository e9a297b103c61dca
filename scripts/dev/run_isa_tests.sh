#!/bin/sh
# Runs the C tests and the specs that reach kernels with each kernel table that this processor supports. Ends with
# "N passed, N failed"; fails if a test fails.
#   run_isa_tests.sh BUILD
set -u
build=$1
. scripts/dev/tally.sh
unset HEED_CPU

table_name='print(require("heed").info().kernels)'
is_used() { [ "$(HEED_CPU=$1 "$build/heed" -e "$table_name")" = "$1" ]; }
is_refused() {
  message=$(HEED_CPU=$1 "$build/heed" -e 'require "heed"' 2>&1) && return 1
  echo "$message" | grep "the environment's HEED_CPU names no kernels that run on this processor"
}

case $(uname -m) in
  x86_64) tables='scalar avx2 avx512' foreign=neon ;;
  aarch64 | arm64) tables='scalar neon' foreign=avx2 ;;
  *) tables=scalar foreign=avx2 ;;
esac
specs=''
for name in golden notebooks ops modules mha_options cache dtypes to threads; do specs="$specs tests/spec/${name}_spec.lua"; done

best=$("$build/heed" -e "$table_name")
has_it=yes
for name in $tables; do
  if [ $has_it = yes ]; then
    tally "$name is what HEED_CPU=$name gives" is_used "$name"
    # shellcheck disable=SC2086 # words on purpose
    tally "the tests with $name" env HEED_CPU="$name" scripts/dev/run_tests.sh "$build" $specs
  else
    tally "$name, which this processor lacks, is refused" is_refused "$name"
  fi
  [ "$name" = "$best" ] && has_it=no
done
for name in foo "$foreign"; do tally "$name is refused" is_refused "$name"; done
tallied
