#!/bin/sh
# Runs the C tests and the specs that reach kernels with each kernel table that this processor supports; with
# HEED_NIGHTLY, all specs. Ends with "N passed, N failed"; fails if a test fails.
#   run_isa_tests.sh BUILD
set -u
build=$1
. scripts/dev/tally.sh
unset HEED_CPU

table_name='print(require("heed").info().kernels)'
is_used() { [ "$(HEED_CPU=$1 "$build/heed" -e "$table_name")" = "$1" ]; }
is_refused() {
  message=$(HEED_CPU=$1 "$build/heed" -e 'require "heed"' 2>&1) && return 1
  echo "$message"
  echo "$message" | grep -q "HEED_CPU is '$1'; it must be kernels that run on this processor"
}

# Those that are compiled for this architecture, from the list in types.h; whether one runs here, heed decides.
tables=$(printf '#include "src/core/types.h"\n#define X(name) name\nTABLES HEED__CPU_LIST(X)\n' | ${CC:-cc} -E -P - |
  sed -n 's/^TABLES //p')
case $tables in *avx2*) foreign=neon ;; *) foreign=avx2 ;; esac
specs=''
for name in golden notebooks ops modules mha_options cache dtypes to threads; do specs="$specs tests/spec/${name}_spec.lua"; done

best=$("$build/heed" -e "$table_name")
case " $tables " in *" $best "*) listed=true ;; *) listed=false ;; esac
tally "the table that is used, $best, is one of: $tables" $listed
for name in $tables; do
  if is_used "$name" 2>/dev/null; then
    # shellcheck disable=SC2086 # words on purpose
    tally "the tests with $name" env HEED_CPU="$name" scripts/dev/run_tests.sh "$build" $specs
    # Rounding differs between tables, and with it what a spec's bounds allow. One C test, since no name means all.
    [ -z "${HEED_NIGHTLY:-}" ] || tally "all specs with $name" env -u HEED_NIGHTLY HEED_CPU="$name" TESTS=test_shape \
      TEST_OPTIONS=--exclude-tags=plain,limits scripts/dev/run_tests.sh "$build" tests/spec
  else
    tally "$name, which this processor lacks, is refused" is_refused "$name"
  fi
done
for name in foo "$foreign"; do tally "$name is refused" is_refused "$name"; done
tallied
