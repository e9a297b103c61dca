#!/bin/sh
# Runs most C tests, hello.lua, a notebook and random calls under valgrind; invalid accesses and leaks are failures. With
# HEED_NIGHTLY, it runs almost all C tests and specs. Ends with "N passed, N failed".
#   run_valgrind.sh BUILD
set -u
build=$1
. scripts/dev/tally.sh
export OPENBLAS_NUM_THREADS=1 # valgrind runs one thread at a time
export HEED_BUILD="$build" SANDBOX_SECONDS=2
all=${HEED_NIGHTLY:-}
unset HEED_NIGHTLY # the sanitizers make the further calls of the tests, in a tenth of the time

check() { # TITLE COMMAND...
  title=$1
  shift
  tally "$title" timeout -k 10 1200 \
    valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite "$@"
}

for source in tests/c/test_*.c; do
  name=$(basename "$source" .c)
  # The last ones try thousands of sizes, which would take minutes; they have guard pages, and the sanitizers run them.
  case $name in
    test_host) continue ;;   # loads and unloads the libraries, which the other tests cover
    test_cancel) continue ;; # one of two threads would wait until the other has run for long
  esac
  [ -z "$all" ] || case $name in
    test_attention_kernels | test_attention_backward_kernels | test_linear_attention_kernels | test_gemm | test_lowp | \
      test_lowp_blocks | test_reduced | test_varlen)
      echo "$name: skipped, thousands of sizes take more than five minutes; they have guard pages"
      continue ;;
    test_script_faults)
      echo "$name: skipped, make sanitize tries each of its allocations"
      continue ;;
  esac
  [ -n "$all" ] || case $name in
    test_broken_kernels | test_taps | test_poll) continue ;; # minutes under valgrind; the sanitizers run them
    # each allocation that can fail: the sanitizers try them in a tenth of the time
    test_states | test_gradients_failing | test_files_failing | test_script_faults | test_large_tokenizers) continue ;;
    test_many_states | test_system_faults | test_gradient_arguments) continue ;;
    test_attention_backward | test_attention_backward_kernels) continue ;; # as the last ones
    test_cross_entropy | test_varlen) continue ;; # millions of logits; every option on every kernel table
    test_ops_failing | test_attention_options | test_mask_values | test_philox_attention | test_portable) continue ;;
    test_steps | test_view_gradients) continue ;; # hundreds of thousands of small calls
    test_attention_kernels | test_linear_attention_kernels | test_kernels | test_columns | test_decode) continue ;;
    test_gemm | test_lowp | test_lowp_blocks | test_reduced | test_reduced_attention | test_partial | test_parallel) continue ;;
  esac
  check "$name" "$build/test/$name"
done
for script in scripts/examples/hello.lua scripts/notebooks/coding_attention.lua; do
  check "$script" "$build/heed" "$script"
done
check 'random calls' "$build/heed" tests/fuzz/api_fuzz.lua 1 2000
check 'operations on views, and gradients' "$build/heed" tests/fuzz/operation_fuzz.lua 1 600
[ -z "$all" ] || for spec in tests/spec/*_spec.lua; do
  name=$(basename "$spec" _spec.lua)
  case $name in
    command | editors | examples | fuzz | interrupt | memory | pages | prompt | sandbox | wrong_builds)
      echo "$name: skipped, other processes do its work" ;;
    stops | stopped_models) echo "$name: skipped, it measures how soon calls end" ;;
    *) check "$name" "$build/heed" tests/run_specs.lua --output=plainTerminal --exclude-tags=plain,limits "$spec" ;;
  esac
done
tallied
