#!/bin/sh
# Most C tests, hello.lua, a notebook and calls at random under valgrind: bad reads and writes, and leaks, are failures.
#   run_valgrind.sh BUILD
set -u
build=$1
failed=0 passed=0
export OPENBLAS_NUM_THREADS=1 # valgrind runs one thread at a time anyhow

check() { # NAME COMMAND...
  name=$1
  shift
  if valgrind -q --error-exitcode=99 --leak-check=full --errors-for-leak-kinds=definite "$@" >"$build/valgrind.log" 2>&1
  then passed=$((passed + 1)); echo "$name: clean"
  else failed=$((failed + 1)); cat "$build/valgrind.log"; echo "$name: failed"
  fi
}

for source in tests/c/test_*.c; do
  name=$(basename "$source" .c)
  case $name in # their thousands of sizes would take minutes here; they have guard pages, and the sanitizers
    test_host) continue ;;   # what it loads and unloads, the others test
    test_cancel) continue ;; # of two threads one waits here until the other has worked for long
    test_states) continue ;; # each allocation that can fail: the sanitizers try them in a tenth of the time
    test_attention_kernels | test_columns | test_decode | test_gemm | test_kernels | test_lowp | test_parallel) continue ;;
  esac
  check "$name" "$build/test/$name"
done
for script in scripts/examples/hello.lua scripts/notebooks/coding_attention.lua; do
  check "$script" "$build/heed" "$script"
done
check 'calls at random' "$build/heed" tests/fuzz/api_fuzz.lua 1 2000
echo "$passed passed, $failed failed"
[ $failed = 0 ]
