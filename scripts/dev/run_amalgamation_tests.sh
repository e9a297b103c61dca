#!/bin/sh
# The tests of heed.c and heed.h (make amalgamation): the C tests on an object file of gcc with all libraries and Lua, on one of
# clang as it comes, on one for Windows under wine and on one for ARM under qemu; C++; and what the object file shows.
# Ends with "N passed, N failed" and fails if anything did.
#   run_amalgamation_tests.sh BUILD
# In the environment: SIDES, which of "gcc clang windows arm64" to try (all by default); TESTS, names of C tests.
set -u
build=$1 folder=$1/amalgamation
mkdir -p "$folder"
. scripts/dev/tally.sh
unset HEED_CPU
# Not test_host, which is about the built libraries, nor test_public, whose calls make writes.
all=${TESTS:-$(basename -s .c tests/c/test_*.c | grep -v "^test_host$\|^test_public$")}
packages() { pkg-config "$@" 2>/dev/null; }

# without NAME...: all tests but these
without() {
  for name in $all; do
    case " $* " in *" $name "*) ;; *) printf '%s ' "$name" ;; esac
  done
}

# make_tests SIDE "COMPILER" "FLAGS" "TEST FLAGS" "LIBRARIES" ENDING TEST...: the object file and the test programs.
# FLAGS say what is left in, to both; the tests see the sources' headers, and so what is not in heed.h.
make_tests() {
  side=$1 compiler=$2 flags=$3 test_flags=$4 libraries=$5 ending=$6
  shift 6
  mkdir -p "$folder/$side/test"
  echo "$compiler $flags: $build/heed.c"
  # shellcheck disable=SC2086 # words on purpose
  $compiler -O2 $flags -c "$build/heed.c" -o "$folder/$side/heed.o" || return 1
  for name in "$@"; do
    # shellcheck disable=SC2086
    $compiler -std=c11 -O1 $flags $test_flags "tests/c/$name.c" "$folder/$side/heed.o" -o "$folder/$side/test/$name$ending" \
      $libraries || return 1
    [ -z "$ending" ] || mv "$folder/$side/test/$name$ending" "$folder/$side/test/$name" # as run_tests.sh calls it
  done
}

header() {
  g++ -std=c++17 -Wall -Wextra -Wold-style-cast -pedantic -Werror -fsyntax-only -x c++ "$build/heed.h" &&
    gcc -std=c99 -Wall -Wextra -pedantic -Werror -fsyntax-only -x c "$build/heed.h" &&
    clang++ -std=c++17 -Wall -Wextra -pedantic -Werror -Wno-pragma-once-outside-header -fsyntax-only -x c++ "$build/heed.h"
}

# What others see of the object file that gcc made: position-independent, so that a library can be made of it.
shows_little() {
  gcc -shared -Wl,-Bsymbolic "$folder/gcc/heed.o" -o "$folder/gcc/heed.so" $gcc_libraries || return 1
  shown=$(nm -D --defined-only "$folder/gcc/heed.so" | awk '$2 != "T" || $3 !~ /^(heed_[a-z]|luaopen_heed)/ { print $3 }')
  writable=$(size -A "$folder/gcc/heed.o" | awk '($1 == ".data" || $1 == ".bss") && $2 > 0 { print $1 }')
  # Wide registers belong to the kernels for them, whose names say so.
  wide=$(objdump -d "$folder/gcc/heed.o" | awk '/^[0-9a-f]+ <.*>:$/ { name = $2 }
    /%[yz]mm/ && name !~ /_avx2|_avx512/ { found[name] = 1 } END { for (name in found) print name }')
  [ -z "$shown$writable$wide" ] && return
  echo "shown besides heed_…: $shown; writable: $writable; wide registers in: $wide"
  return 1
}

cplusplus() {
  g++ -std=c++17 -Wall -Wextra -pedantic -Werror -I"$build" tests/c/host.cpp "$folder/gcc/heed.o" -o "$folder/gcc/host" \
    $gcc_libraries && "$folder/gcc/host"
}

run() { # SIDE EMULATOR NAME...
  side=$1 emulator=$2
  shift 2
  TESTS="$*" EMULATOR="$emulator" scripts/dev/run_tests.sh "$folder/$side"
}

# under_wine FOLDER TEST...: one server of wine's for all of them. Debian's ends as soon as a test does, and a test that begins
# in that moment loses its connection.
under_wine() {
  WINEPREFIX=$(realpath "$1")/wine
  WINEDEBUG=-all
  export WINEPREFIX WINEDEBUG
  shift
  wine=$(command -v /usr/lib/wine/wine64 wine64 wine | head -n 1)
  server=$(command -v /usr/lib/wine/wineserver /usr/lib/wine/wineserver64 wineserver | head -n 1)
  mkdir -p "$WINEPREFIX"
  ${server:-:} -p60 # seconds without a test
  run windows "$wine" "$@"
  code=$?
  ${server:-:} -k
  return $code
}

lua=$(scripts/dev/find_lua.sh 5.4 library)
gcc_flags="-fPIC -DHEED_BLAS=1 -DHEED_CJSON=1 -DHEED_ZIP=1 -DHEED_UTF8PROC=1 -DHEED_LUA=1 $(packages --cflags openblas) \
  $(packages --cflags libcjson) $(packages --cflags zlib) $(packages --cflags libutf8proc) $(packages --cflags "$lua")"
gcc_libraries="$(packages --libs openblas libcjson zlib libutf8proc "$lua") -lm -pthread"
cmocka="$(packages --libs cmocka)"

tally 'heed.h alone, in C++17 and C99' header
for side in ${SIDES:-gcc clang windows arm64}; do
  case $side in
    gcc)
      # shellcheck disable=SC2086 # words on purpose
      tally 'gcc, with all libraries and Lua' make_tests gcc gcc "$gcc_flags" '' "$cmocka $gcc_libraries" '' $all
      # shellcheck disable=SC2086
      tally 'the C tests' run gcc '' $all
      tally 'what the object file shows' shows_little
      tally 'a host in C++17' cplusplus ;;
    clang) # as it comes: without JSON, zip and Lua
      names=$(without test_files test_failing test_states test_cancel)
      # shellcheck disable=SC2086
      tally 'clang, as it comes' make_tests clang clang '' '' "$cmocka -lm -pthread" '' $names
      # shellcheck disable=SC2086
      tally 'the C tests' run clang '' $names ;;
    windows) # what only POSIX has: pipes, links, signals, forks
      names=$(without test_files test_failing test_states test_parallel test_limits test_log test_cancel test_busy)
      # shellcheck disable=SC2086
      tally 'mingw-w64' make_tests windows x86_64-w64-mingw32-gcc '' '-Itests/c/plain -D__USE_MINGW_ANSI_STDIO=1' -static \
        .exe $names
      # shellcheck disable=SC2086
      tally 'the C tests under wine' under_wine "$folder" $names ;;
    arm64) # one that reaches the kernels; the rest is run by make test-isa on the sources
      names="test_small_pass test_products test_portable"
      scripts/dev/unpack_packages.sh "$build/arm64-cmocka" arm64 libcmocka-dev libcmocka0 >/dev/null
      root=$(realpath "$build/arm64-cmocka/root")
      # shellcheck disable=SC2086
      tally 'aarch64-linux-gnu-gcc' make_tests arm64 aarch64-linux-gnu-gcc '' "-I$root/usr/include" \
        "-L$root/usr/lib/aarch64-linux-gnu -lcmocka -lm -pthread" '' $names
      # shellcheck disable=SC2086
      tally 'the C tests under qemu' run arm64 \
        "qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=$root/usr/lib/aarch64-linux-gnu" $names ;;
  esac
done
tallied
