#!/bin/bash
# Tests Debian's packages: makes the source package, builds it as a packager would, runs lintian, and installs the
# packages in a bare Debian in a temporary folder. Needs Debian, root and its mirror. Ends with "N passed, N failed";
# fails if a test fails.
#   run_debian_tests.sh BUILD
set -u
build=$1
. scripts/dev/tally.sh
unset MAKEFLAGS BUILD LUA CC CFLAGS LDFLAGS CPPFLAGS PKG_CONFIG_PATH LUA_PATH LUA_CPATH HEED_CPU OPENBLAS_CORETYPE
export DEBFULLNAME='The heed authors' DEBEMAIL=heed@packages.debian.org # an address that lintian accepts
export LC_ALL=C DEB_BUILD_OPTIONS="parallel=$(nproc) noautodbgsym"
# Compiling takes most of the time: less optimized, and without what debuggers need.
export DEB_CFLAGS_MAINT_APPEND=-O1 DEB_CFLAGS_STRIP=-g
version=$(sed -n 's/^#define HEED_VERSION  *"\(.*\)"/\1/p' src/heed.h)
temporary=$(mktemp -d) && chmod 755 "$temporary" || exit 1
trap 'rm -rf --one-file-system "$temporary"' EXIT
trap 'exit 130' INT TERM
folder=$PWD/$build/debian root=$temporary/root

# block PAGE LANGUAGE WORD: the code in that language on that page which contains the word
block() {
  awk -v language="$2" -v word="$3" '
    $0 == "```" language { inside = 1; text = ""; next }
    /^```/ { if (inside && index(text, word)) { printf "%s", text; exit } inside = 0 }
    inside { text = text $0 "\n" }' "$1"
}
expect() { # WANTED COMMAND...: the command prints this
  local wanted=$1 got
  shift
  got=$("$@" 2>&1) || { printf 'failed: %s\n%s\n' "$*" "$got"; return 1; }
  [ "$got" = "$wanted" ] || { printf '%s\nprinted:  %s\nexpected: %s\n' "$*" "$got" "$wanted"; return 1; }
}

# ---- Building -----------------------------------------------------------------------------------

makes_sources() {
  scripts/dev/make_debian.sh "$folder" || return 1
  local first
  first=$(sha256sum <"$folder/heed_$version.orig.tar.gz")
  scripts/dev/make_debian.sh "$folder" && expect "$first" sh -c "sha256sum <'$folder/heed_$version.orig.tar.gz'"
}

builds() {
  (cd "$folder/heed-$version" && dpkg-buildpackage -us -uc) && ls "$folder"/heed_"$version"-1.dsc "$folder"/*.deb
}

# A second build begins from what the first one left.
cleans() {
  (cd "$folder/heed-$version" && dpkg-buildpackage -us -uc -S -d) || return 1
  expect '' sh -c "cd '$folder/heed-$version' && find . -name build -o -name '*.debhelper*' -o -name '*.substvars'"
}

# Without the search for misspelt words, which finds some in machine code.
is_clean() {
  local said
  said=$(cd "$folder" && lintian --allow-root --display-info --suppress-tags spelling-error-in-binary \
    --fail-on error,warning,info heed_"$version"-1_*.changes) && [ -z "$said" ] || { echo "$said"; return 1; }
}

# ---- A bare Debian ------------------------------------------------------------------------------

inside() { chroot "$root" env -i HOME=/root TERM=dumb LC_ALL=C PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }

makes_bare() {
  local codename mirror
  codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
  mirror=$(awk '/^deb /{print $2; exit} /^URIs:/{print $2; exit}' /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null)
  debootstrap --variant=minbase "$codename" "$root" "$mirror" && cp /etc/resolv.conf "$root/etc/" &&
    mkdir "$root/packages" && cp "$folder"/*.deb "$root/packages"
}
install_there() { inside env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"; }

module_works() {
  local lua
  # shellcheck disable=SC2046 # words on purpose
  install_there $(cd "$root" && ls ./packages/lua-heed_*.deb) lua5.1 lua5.2 lua5.3 lua5.4 luajit || return 1
  for lua in lua5.1 lua5.2 lua5.3 lua5.4 luajit; do
    expect "$version" inside $lua -e 'print(require "heed".version)' || return 1
    expect 'tensor([0.2689, 0.7311])' inside $lua -e 'print(require "heed".tensor({ 1, 2 }):softmax(1))' || return 1
  done
}

library_works() {
  # shellcheck disable=SC2046
  install_there $(cd "$root" && ls ./packages/libheed0_*.deb ./packages/libheed-dev_*.deb) gcc libc6-dev pkg-config || return 1
  block docs/installing.md c heed_scaled_dot_product_attention >"$root/app.c"
  inside sh -ec 'cc app.c $(pkg-config --cflags --libs heed) -o app
    cc app.c $(pkg-config --cflags heed) $(pkg-config --variable=libdir heed)/libheed.a \
      -Wl,--as-needed $(pkg-config --static --libs heed) -o app-static' || return 1
  expect "$(block docs/installing.md text 0.4892)" inside ./app && expect "$(block docs/installing.md text 0.4892)" inside ./app-static
}

cmake_works() {
  install_there cmake make && mkdir "$root/project" && cp "$root/app.c" "$root/project" || return 1
  block docs/installing.md cmake heed::heed >"$root/project/CMakeLists.txt"
  inside sh -ec 'cmake -S project -B project/build && cmake --build project/build' &&
    expect "$(block docs/installing.md text 0.4892)" inside project/build/app
}

command_works() {
  # shellcheck disable=SC2046
  install_there $(cd "$root" && ls ./packages/heed_*.deb) || return 1
  expect "$version" inside heed -e 'print(require "heed".version)' &&
    inside heed /usr/share/doc/heed/examples/hello.lua && [ -f "$root/usr/share/man/man1/heed.1.gz" ]
}

leaves_nothing() {
  inside env DEBIAN_FRONTEND=noninteractive apt-get purge -y heed libheed0 libheed-dev lua-heed &&
    expect '' find "$root/usr" "$root/etc" "$root/var/lib/dpkg/info" -name '*heed*'
}

[ "$(id -u)" = 0 ] || { echo 'run_debian_tests.sh needs root'; exit 1; }
tally 'make debian, the same twice' makes_sources
tally 'dpkg-buildpackage' builds
[ $failed = 0 ] || { tallied; exit 1; } # the other tests need it
tally 'lintian' is_clean
tally 'a second build, of the sources' cleans
tally 'a bare Debian' makes_bare
[ -d "$root/packages" ] || { tallied; exit 1; }
tally 'the module in each Lua' module_works
tally 'C programs with the shared and the static library' library_works
tally 'a C program with CMake' cmake_works
tally 'the command' command_works
tally 'removing the packages' leaves_nothing
tallied
