#!/bin/sh
# Runs fuzzers of libFuzzer's on seeds and what they make of them; ends with "N passed, N failed" and fails if any did.
#   run_fuzz.sh BUILD SECONDS FUZZER...     FUZZER: fuzz_files, as `make fuzz` has built it in BUILD
# What a fuzzer has found lies in BUILD/corpus_…, and goes on from there; a text that breaks something in BUILD/broken_….
set -u
build=$1 seconds=$2
shift 2
passed=0 failed=0
folder=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp tests/golden/files/*.safetensors "$folder" # an index of files may mean them
export FUZZ_FOLDER="$folder"

for fuzzer in "$@"; do
  corpus=$build/corpus_$fuzzer
  mkdir -p "$corpus"
  echo "  FUZZ $fuzzer, $seconds s"
  if "$build/$fuzzer" -max_total_time="$seconds" -max_len=4096 -timeout=20 -artifact_prefix="$build/broken_${fuzzer}_" \
    "$corpus" tests/golden/files >"$build/$fuzzer.log" 2>&1
  then
    passed=$((passed + 1))
    tail -n 1 "$build/$fuzzer.log"
  else
    failed=$((failed + 1))
    tail -n 60 "$build/$fuzzer.log"
  fi
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
