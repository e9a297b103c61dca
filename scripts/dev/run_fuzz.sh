#!/bin/sh
# Runs libFuzzer's fuzzers on the files of tests/golden/files, fuzz_tokenizers on those of tests/golden/tokenizers,
# fuzz_templates on tests/chat_templates. Ends with "N passed, N failed"; fails if a fuzzer fails.
#   run_fuzz.sh BUILD SECONDS FUZZER...     FUZZER: fuzz_files, as `make fuzz` has built it in BUILD
# Each fuzzer keeps the inputs that it found in BUILD/corpus_… and continues from them; an input that breaks something
# is written to BUILD/broken_….
set -u
build=$1 seconds=$2
shift 2
. scripts/dev/tally.sh
folder=$(mktemp -d -p /dev/shm 2>/dev/null || mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp tests/golden/files/*.safetensors "$folder" # an index of shards may name them
export FUZZ_FOLDER="$folder"

for fuzzer in "$@"; do
  corpus=$build/corpus_$fuzzer
  mkdir -p "$corpus"
  seeds=tests/golden/files longest=4096 leaks=1
  [ "$fuzzer" = fuzz_tokenizers ] && seeds=tests/golden/tokenizers longest=16384
  [ "$fuzzer" = fuzz_templates ] && seeds=tests/chat_templates leaks=0 # its Lua state stays, and grows
  tally "$fuzzer, $seconds s" "$build/$fuzzer" -max_total_time="$seconds" -max_len="$longest" -timeout=20 \
    -detect_leaks="$leaks" -artifact_prefix="$build/broken_${fuzzer}_" "$corpus" "$seeds"
done
tallied
