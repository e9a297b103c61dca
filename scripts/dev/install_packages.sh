#!/bin/sh
# Installs the missing packages of some groups; quick if none is missing.
#   install_packages.sh [--name] GROUP...     --name: only names the missing packages
# Groups: build test luas isa lint two wasm fuzz files valgrind bench model install hosts browser ci coverage mpi mpis
# network neovim love meson debian recipes site docs. LUA in the environment is the Lua version to build for (5.1, 5.2,
# 5.3, 5.4, 5.5 or luajit; 5.4 by default); luas are all versions that Debian has.
# Where apt-get and root or sudo are available, it prints what it installs; elsewhere it names the packages and fails.
set -u

name_only=no
CC=${CC:-cc}
debian='' fedora='' arch='' homebrew=''

# need CHECK DEBIAN FEDORA ARCH HOMEBREW: if the check fails, these packages are missing
need() {
  eval "$1" >/dev/null 2>&1 && return
  debian="$debian $2" fedora="$fedora $3" arch="$arch $4" homebrew="$homebrew $5"
}
command_exists() { command -v "$1"; }
library() { pkg-config --exists "$1"; }
find_lua=$(dirname "$0")/find_lua.sh
# need_lua VERSION library|interpreter: needs a Lua version. Fedora, Arch and Homebrew call 5.4 "lua".
need_lua() {
  case $1:$2 in
    5.4:library) need '"$find_lua" 5.4 library' liblua5.4-dev lua-devel lua lua@5.4 ;;
    5.4:*) need '"$find_lua" 5.4 interpreter' lua5.4 lua lua lua@5.4 ;;
    luajit:library) need '"$find_lua" luajit library' libluajit-5.1-dev luajit-devel luajit luajit ;;
    luajit:*) need '"$find_lua" luajit interpreter' luajit luajit luajit luajit ;;
    *:library) need "'$find_lua' $1 library" "liblua$1-dev" "compat-lua-devel ($1)" "lua$(echo "$1" | tr -d .)" "lua@$1" ;;
    *) need "'$find_lua' $1 interpreter" "lua$1" "compat-lua ($1)" "lua$(echo "$1" | tr -d .)" "lua@$1" ;;
  esac
}
case ${LUA:-} in 5.1 | 5.2 | 5.3 | 5.5 | luajit) lua=$LUA ;; *) lua=5.4 ;; esac

needs_of() {
  case $1 in
    build)
      need 'command_exists "${CC%% *}"' 'gcc libc6-dev' gcc gcc gcc
      need 'command_exists pkg-config' pkg-config pkgconf-pkg-config pkgconf pkgconf
      need_lua "$lua" library
      need 'library openblas' libopenblas-dev openblas-devel openblas openblas
      need 'library libutf8proc' libutf8proc-dev utf8proc-devel libutf8proc utf8proc
      need 'library libcjson' libcjson-dev cjson-devel cjson cjson
      need 'library zlib' zlib1g-dev zlib-devel zlib zlib
      need 'library libedit' libedit-dev libedit-devel libedit libedit ;;
    test)
      need_lua "$lua" interpreter
      need 'command_exists busted' lua-busted 'luarocks (and: luarocks install busted)' \
        'luarocks (and: luarocks install busted)' 'luarocks (and: luarocks install busted)'
      need 'library cmocka' libcmocka-dev libcmocka-devel cmocka cmocka
      # test_host makes a locale with a decimal comma from it
      [ "$(uname -s)" != Linux ] || need 'ls /usr/share/i18n/locales/de_DE' locales glibc-locale-source glibc - ;;
    luas) for version in 5.1 5.2 5.3 5.4 luajit; do need_lua $version library; need_lua $version interpreter; done ;;
    isa) # a compiler and a C library for ARM, and an emulator; not needed on ARM
      [ "$(uname -m)" = aarch64 ] && return
      need 'echo "#include <stdlib.h>" | aarch64-linux-gnu-gcc -E -' 'gcc-aarch64-linux-gnu libc6-dev-arm64-cross' \
        gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc '(on Linux only)'
      need 'command_exists qemu-aarch64' qemu-user qemu-user qemu-user '(on Linux only)' ;;
    two) # compilers for the systems of heed.c, and emulators
      need 'command_exists g++' g++ gcc-c++ gcc gcc
      need 'command_exists clang' clang clang clang llvm
      need 'command_exists x86_64-w64-mingw32-gcc' gcc-mingw-w64-x86-64-win32 mingw64-gcc mingw-w64-gcc mingw-w64
      need 'ls /usr/lib/wine/wine64 || command_exists wine64 || command_exists wine' wine64 wine wine wine
      need 'echo "#include <stdlib.h>" | i686-linux-gnu-gcc -E -' 'gcc-i686-linux-gnu libc6-dev-i386-cross' \
        '(on Debian only)' '(on Debian only)' '(on Debian only)'
      need 'echo "#include <stdlib.h>" | riscv64-linux-gnu-gcc -E -' 'gcc-riscv64-linux-gnu libc6-dev-riscv64-cross' \
        gcc-riscv64-linux-gnu riscv64-linux-gnu-gcc '(on Linux only)'
      need 'echo "#include <stdlib.h>" | arm-linux-gnueabihf-gcc -E -' 'gcc-arm-linux-gnueabihf libc6-dev-armhf-cross' \
        gcc-arm-linux-gnu '(in the AUR)' '(on Linux only)'
      need 'echo "#include <stdlib.h>" | s390x-linux-gnu-gcc -E -' 'gcc-s390x-linux-gnu libc6-dev-s390x-cross' \
        gcc-s390x-linux-gnu '(in the AUR)' '(on Linux only)'
      need 'command_exists musl-gcc' musl-tools musl-gcc musl '(on Linux only)'
      need 'command_exists qemu-riscv64' qemu-user qemu-user qemu-user '(on Linux only)'
      needs_of wasm
      needs_of isa ;;
    wasm) # a compiler and a C library for WebAssembly, node, which runs it, and zopfli, which compresses it
      need 'command_exists zopfli' zopfli zopfli zopfli zopfli
      for tool in bzip2 xz; do # for the sources of libraries
        need "command_exists $tool" "$([ $tool = xz ] && echo xz-utils || echo bzip2)" $tool $tool $tool
      done
      need 'command_exists clang' clang clang clang llvm
      need 'ls /usr/lib/wasm32-wasi/libc.a' wasi-libc wasi-libc-devel wasi-libc wasi-libc
      need 'command_exists wasm-ld' lld lld lld lld
      clang_version=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
      need 'ls "$(clang -print-resource-dir)"/lib/wasi/libclang_rt.builtins-wasm32.a' \
        "libclang-rt-${clang_version:+$clang_version-}dev-wasm32" wasi-compiler-rt wasi-compiler-rt wasi-runtimes
      need 'command_exists node' nodejs nodejs nodejs node ;;
    lint)
      need_lua 5.1 interpreter
      need 'command_exists luacheck' lua-check 'luarocks (and: luarocks install luacheck)' luacheck luacheck
      need 'command_exists gcc' gcc gcc gcc gcc
      need 'command_exists clang' clang clang clang llvm
      need 'command_exists clang-format' clang-format clang-tools-extra clang clang-format ;;
    fuzz) # clang with the libFuzzer of the same version
      need 'command_exists clang' clang clang clang llvm
      clang_version=$(clang -dumpversion 2>/dev/null | cut -d. -f1)
      need 'ls "$(clang -print-runtime-dir)"/libclang_rt.fuzzer*' "libclang-rt-${clang_version:+$clang_version-}dev" compiler-rt \
        compiler-rt llvm ;;
    valgrind) need 'command_exists valgrind' valgrind valgrind valgrind valgrind ;;
    coverage)
      need 'command_exists gcov' gcc gcc gcc gcc
      need 'command_exists python3' python3 python3 python python3 ;;
    ci) need 'command_exists ccache' ccache ccache ccache ccache ;;
    bench|files) need 'python3 -c "import venv, ensurepip"' 'python3 python3-venv' python3 python python3 ;;
    install) # tools that use an installation; rocks are built for two versions
      for version in 5.1 5.4; do need_lua $version library; need_lua $version interpreter; done
      need 'command_exists luarocks' luarocks luarocks luarocks luarocks
      for tool in git zip unzip; do need "command_exists $tool" $tool $tool $tool $tool; done # LuaRocks needs these
      need 'command_exists cmake' cmake cmake cmake cmake
      need 'command_exists mandoc' mandoc mandoc mandoc mandoc
      need 'command_exists man' man-db man-db man-db '(of the system)'
      need 'command_exists setpriv' util-linux util-linux util-linux '(on Linux only)' ;;
    hosts)
      need 'python3 -c "import venv, ensurepip"' 'python3 python3-venv' python3 python python3
      need 'command_exists lighttpd || command_exists /usr/sbin/lighttpd' lighttpd lighttpd lighttpd lighttpd
      need 'ls /usr/lib*/lighttpd/mod_magnet.so' lighttpd-modules-lua lighttpd-mod_magnet \
        lighttpd '(with Lua)' ;;
    browser)
      need 'command_exists chromium || command_exists chromium-browser || command_exists google-chrome' chromium \
        chromium chromium chromium
      need 'command_exists node' nodejs nodejs nodejs node
      need 'command_exists npm' npm nodejs-npm npm node ;;
    mpi)
      need 'command_exists mpicc && command_exists mpirun' 'libopenmpi-dev openmpi-bin' openmpi-devel openmpi \
        open-mpi ;;
    mpis) # MPICH beside Open MPI, which stays what mpicc means
      need 'command_exists mpicc.mpich || command_exists /usr/lib64/mpich/bin/mpicc' 'libmpich-dev mpich' \
        'mpich-devel mpich' '(one MPI only)' '(one MPI only)' ;;
    network) need 'command_exists ip && command_exists tc' iproute2 'iproute iproute-tc' iproute2 '(on Linux only)' ;;
    neovim) # a heed for its LuaJIT
      need_lua luajit library
      need 'command_exists nvim' neovim neovim neovim neovim ;;
    love)
      need_lua luajit library
      need 'command_exists love' love love love '(of the system)'
      need 'command_exists xvfb-run && command_exists xauth' 'xvfb xauth libgl1-mesa-dri' xorg-x11-server-Xvfb xorg-server-xvfb '(on Linux only)' ;;
    meson)
      need 'command_exists meson' 'meson ninja-build' meson meson meson ;;
    debian) # with luas
      need 'command_exists dpkg-buildpackage' dpkg-dev '(on Debian only)' '(on Debian only)' '(on Debian only)'
      need 'command_exists dh' debhelper '(on Debian only)' '(on Debian only)' '(on Debian only)'
      need 'command_exists fakeroot' fakeroot '(on Debian only)' '(on Debian only)' '(on Debian only)'
      need 'command_exists lintian' lintian '(on Debian only)' '(on Debian only)' '(on Debian only)'
      need 'command_exists debootstrap' debootstrap '(on Debian only)' '(on Debian only)' '(on Debian only)' ;;
    recipes) # nginx with Lua is only unpacked: its LuaJIT replaces that of other programs
      need_lua 5.3 library
      need 'command_exists haproxy || command_exists /usr/sbin/haproxy' haproxy haproxy haproxy haproxy
      need 'command_exists pandoc' pandoc pandoc pandoc pandoc
      need 'command_exists texlua' texlive-luatex texlive-luatex texlive-luatex texlive ;;
    site)
      need '"$(dirname "$0")"/find_python.sh markdown_it pygments' 'python3-markdown-it python3-pygments' \
        'python3-markdown-it-py python3-pygments' 'python-markdown-it-py python-pygments' '(pip: markdown-it-py pygments)'
      need 'command_exists node' nodejs nodejs nodejs node ;;
    docs)
      needs_of site
      need 'command_exists npm' npm nodejs-npm npm node ;;
    model) need 'python3 -m pip --version' python3-pip python3-pip python-pip python3 ;;
    *) echo "install_packages.sh: group is '$1'; it must be one of: build test luas isa lint two wasm fuzz files valgrind bench model install hosts browser ci coverage mpi mpis network neovim love meson debian recipes site docs" >&2; exit 2 ;;
  esac
}

for argument in "$@"; do
  if [ "$argument" = --name ]; then name_only=yes; else needs_of "$argument"; fi
done
[ -n "$debian" ] || exit 0

# How to become root, or none.
if [ "$(id -u)" = 0 ]; then as_root=''
elif sudo -n true 2>/dev/null || { [ -t 0 ] && command_exists sudo >/dev/null; }; then as_root=sudo
else as_root=none
fi

if [ $name_only = yes ] || [ "$as_root" = none ] || ! command_exists apt-get >/dev/null; then
  cat >&2 <<END
heed needs packages that are not installed. Please install:
  Debian, Ubuntu: $debian
  Fedora:         $fedora
  Arch:           $arch
  Homebrew:       $homebrew
END
  exit 1
fi

echo "Installing with ${as_root:+$as_root }apt-get:$debian"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install() {
  # shellcheck disable=SC2086 # a list of words
  $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $debian >"$log" 2>&1
}
# Fetches the package lists only if the first try fails: they may be missing or old.
install || { $as_root apt-get update -qq && install; } || { cat "$log" >&2; exit 1; }
