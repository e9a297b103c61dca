#!/bin/sh
# The tests of heed.c and heed.h (make amalgamation): the C tests on an object file of gcc with all libraries and Lua, on one of
# clang as it comes, on one for Windows under wine, on one for 32-bit x86 with all libraries but BLAS, on ones for ARM and
# RISC-V under qemu and on one for WebAssembly in node; C++; and what the object file shows.
# Ends with "N passed, N failed" and fails if anything did.
#   run_amalgamation_tests.sh BUILD
# In the environment: SIDES, which of "gcc clang windows i386 arm64 riscv64 wasm" to try (all by default); TESTS, names of
# C tests. Where cmocka is not to be had, tests/c/plain has one header in its place.
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

# packages_in LIBRARIES --cflags|--libs: of those that unpack_packages.sh put there, LIBRARIES being DIR/usr/lib/…:…
packages_in() {
  PKG_CONFIG_LIBDIR=${1%%:*}/pkgconfig PKG_CONFIG_SYSROOT_DIR=${1%%/usr/lib/*} \
    pkg-config "$2" cmocka libcjson zlib libutf8proc lua5.4
}

# The registers of x87 round otherwise; the message names what to compile with.
refuses_x87() {
  i686-linux-gnu-gcc -fsyntax-only "$build/heed.c" 2>&1 | grep -F -e '-msse2 -mfpmath=sse'
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
for side in ${SIDES:-gcc clang windows i386 arm64 riscv64 wasm}; do
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
      tally 'the C tests under wine' under_wine "$folder" $names
      # Debian has no Lua for Windows, but its headers are the same everywhere.
      # shellcheck disable=SC2046
      tally 'mingw-w64, with Lua' x86_64-w64-mingw32-gcc -std=c11 -fsyntax-only -Wall -Wextra -Werror -DHEED_LUA=1 \
        $(packages --cflags "$lua") "$build/heed.c" ;;
    i386) # natively on x86-64, with the cross compiler's C library
      scripts/dev/unpack_packages.sh "$build/i386" i386 libcmocka-dev libcmocka0 libcjson-dev libcjson1 zlib1g-dev zlib1g \
        libutf8proc-dev libutf8proc2 liblua5.4-dev liblua5.4-0 >/dev/null
      root=$(realpath "$build/i386/root") system=/usr/i686-linux-gnu
      libraries=$root/usr/lib/i386-linux-gnu:$root/lib/i386-linux-gnu
      emulator="$system/lib/ld-linux.so.2 --library-path $libraries:$system/lib"
      [ "$(uname -m)" = x86_64 ] || emulator="qemu-i386 -L $system -E LD_LIBRARY_PATH=$libraries"
      tally 'x87 arithmetic is refused' refuses_x87
      # shellcheck disable=SC2086
      tally 'i686-linux-gnu-gcc, with libraries and Lua' make_tests i386 'i686-linux-gnu-gcc -msse2 -mfpmath=sse -Wno-psabi' \
        "-DHEED_CJSON=1 -DHEED_ZIP=1 -DHEED_UTF8PROC=1 -DHEED_LUA=1 $(packages_in "$libraries" --cflags) \
          -I$root/usr/include/i386-linux-gnu" \
        '' "$(packages_in "$libraries" --libs) -Wl,-rpath-link,$libraries -lm -pthread" '' $all
      # shellcheck disable=SC2086
      tally 'the C tests' run i386 "$emulator" $all ;;
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
    riscv64) # what Debian 12 has no packages for but the compiler's
      names="test_shape test_tensor test_small_pass test_products test_portable"
      # shellcheck disable=SC2086
      tally 'riscv64-linux-gnu-gcc' make_tests riscv64 riscv64-linux-gnu-gcc '' -Itests/c/plain '-static -lm -pthread' '' $names
      # shellcheck disable=SC2086
      tally 'the C tests under qemu' run riscv64 qemu-riscv64 $names ;;
    wasm) # one thread, no signals, no limits of the process, no JSON, zip and Lua
      names=$(without test_files test_failing test_states test_cancel test_parallel test_busy test_log)
      # shellcheck disable=SC2086
      tally 'clang for wasm32-wasi' make_tests wasm 'clang --target=wasm32-wasi --sysroot=/usr' '' \
        '-Itests/c/plain -D_WASI_EMULATED_MMAN' '-lwasi-emulated-mman -Wl,-z,stack-size=1048576' '' $names
      # shellcheck disable=SC2086
      tally 'the C tests in node' run wasm \
        'node --no-warnings --experimental-wasi-unstable-preview1 scripts/dev/run_wasm.mjs' $names ;;
  esac
done
tallied
