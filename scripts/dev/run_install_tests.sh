#!/bin/bash
# Tests make install, make uninstall and LuaRocks: builds in a folder with a blank in its name, with a umask that denies
# reading to others, installs in temporary folders, and uses the result as a user who cannot read the sources (if run as
# root). Ends with "N passed, N failed"; fails if a test fails.
#   run_install_tests.sh BUILD
set -u
build=$1
. scripts/dev/tally.sh
unset HEED_CPU LUA_PATH LUA_CPATH LUA_PATH_5_4 LUA_CPATH_5_4 LUA_INIT LUA_INIT_5_4
unset PKG_CONFIG_PATH LD_LIBRARY_PATH CPATH
unset MAKEFLAGS LUA BUILD PREFIX LIBDIR LUA_CMOD DESTDIR # set by the make that runs this script; CFLAGS stays
export CC=${CC:-cc}
umask 077

here=$PWD
source="$here/$build/install/a copy"
temporary=$(mktemp -d) && chmod 755 "$temporary" || exit 1
trap 'rm -rf "$temporary" "$here/$build/install"' EXIT
trap 'exit 130' INT TERM
prefix=$temporary/usr
home=$temporary/user # a folder that the user may write to

mkdir -p "$home" && rm -rf "$here/$build/install" && mkdir -p "$source" || exit 1
if [ "$(id -u)" = 0 ]; then
  chown nobody: "$home" && chmod 755 "$home"
  as_user() { setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups env HOME="$home" USER=nobody "$@"; }
else
  echo 'not run as root: the same user installs and uses'
  as_user() { "$@"; }
fi
in_source() { (cd "$source" && "$@"); }
make_there() { in_source make --no-print-directory -j"$(nproc)" "$@"; }

# expect WANTED COMMAND...: the command prints this
expect() {
  local wanted=$1 got
  shift
  got=$("$@" 2>&1) || { printf 'failed: %s\n%s\n' "$*" "$got"; return 1; }
  [ "$got" = "$wanted" ] && return
  printf '%s\nprinted:  %s\nexpected: %s\n' "$*" "$got" "$wanted"
  return 1
}
# nothing COMMAND...: the command prints nothing; its exit code does not matter (grep's would be 1)
nothing() {
  local got
  got=$("$@" 2>&1)
  [ -z "$got" ] || { printf '%s\nprinted: %s\n' "$*" "$got"; return 1; }
}

# block PAGE LANGUAGE WORD: the code in that language on that page which contains the word
block() {
  awk -v language="$2" -v word="$3" '
    $0 == "```" language { inside = 1; text = ""; next }
    /^```/ { if (inside && index(text, word)) { printf "%s", text; exit } inside = 0 }
    inside { text = text $0 "\n" }' "$1"
}

# The kinds, modes, contents and names of the files below a folder.
listing() { (cd "$1" && find . ! -type d -printf '%y %m %p %l ' ! -type d -exec sh -c 'md5sum <"$1"' - {} \; | sort); }

version=$(sed -n 's/^#define HEED_VERSION  *"\(.*\)"/\1/p' src/heed.h)

# In a chroot, the user may be unable to read /.
as_user ls / >/dev/null || { echo "the user $(as_user id -un 2>/dev/null || echo nobody) cannot run programs here"; exit 1; }

# ---- Building and installing --------------------------------------------------------------------

builds() {
  # The sources as in an archive: without builds and without git's files.
  find . -mindepth 1 -maxdepth 1 ! -name .git ! -name build ! -path "./${build%%/*}" -exec cp -pR {} "$source" \; || return 1
  [ "$(id -u)" != 0 ] || ! as_user ls "$source" 2>/dev/null || { echo 'the user can read the sources'; return 1; }
  make_there all
}

installs() {
  make_there install PREFIX="$prefix" || return 1
  nothing find "$prefix" -type d ! -perm 755 && nothing find "$prefix" -type f ! -perm 644 ! -perm 755 &&
    nothing find "$prefix" -type f -perm 755 ! -name heed ! -name '*.so*' ! -path '*/examples/*' &&
    nothing grep -rlI "$source" "$prefix/lib/pkgconfig" "$prefix/share" "$prefix/include" &&
    expect libheed.so.0 readlink "$prefix/lib/libheed.so" &&
    expect "libheed.so.${version%.*}" readlink "$prefix/lib/libheed.so.0"
}

again() {
  local before after
  before=$(listing "$prefix")
  make_there install PREFIX="$prefix" >/dev/null & # two at the same time
  make_there install PREFIX="$prefix" && wait $! || return 1
  after=$(listing "$prefix")
  [ "$before" = "$after" ] || { printf '%s\n---- changed to ----\n%s\n' "$before" "$after"; return 1; }
}

staged() {
  local stage="$temporary/a stage" libdir=/usr/lib/somewhere
  make_there install DESTDIR="$stage" PREFIX=/usr LIBDIR=$libdir || return 1
  [ -x "$stage/usr/bin/heed" ] && [ -f "$stage$libdir/lua/5.4/heed.so" ] && [ ! -e $libdir ] || return 1
  nothing grep -rlI "$stage" "$stage$libdir/pkgconfig" "$stage/usr/share" "$stage/usr/include" || return 1
  expect /usr sed -n 's/^prefix=//p' "$stage$libdir/pkgconfig/heed.pc" || return 1
  expect "\${prefix}/lib/somewhere" sed -n 's/^libdir=//p' "$stage$libdir/pkgconfig/heed.pc" || return 1
  make_there uninstall DESTDIR="$stage" PREFIX=/usr LIBDIR=$libdir && nothing find "$stage" ! -type d
}

refuses_relative() {
  local name got
  for name in PREFIX LIBDIR LUA_CMOD; do
    got=$(make_there install PREFIX="$temporary/never" $name=here/there 2>&1) && return 1
    case $got in *"$name is 'here/there'; it must be an absolute path"*) ;; *) echo "$got"; return 1 ;; esac
  done
  [ ! -e "$temporary/never" ] && [ ! -e "$source/here" ]
}

# ---- Using it -----------------------------------------------------------------------------------

at_home() { (cd "$home" && as_user "$@"); }

command_works() {
  expect "$version" at_home "$prefix/bin/heed" -e 'print(require "heed".version)' &&
    expect true at_home "$prefix/bin/heed" -e 'print(require "heed.models.bert".load ~= nil)' &&
    at_home "$prefix/bin/heed" "$prefix/share/doc/heed/examples/hello.lua" &&
    expect ok at_home "$prefix/bin/heed" -e "assert(loadfile '$prefix/share/heed/meta/tensor.lua') print 'ok'"
}

manual_works() {
  local options
  expect "$prefix/share/man/man1/heed.1" at_home man -M "$prefix/share/man" -w heed &&
    nothing sh -c "man --warnings -E UTF-8 -l -Tutf8 -Z '$prefix/share/man/man1/heed.1' >'$temporary/manual'" &&
    nothing mandoc -Tlint -Wwarning "$prefix/share/man/man1/heed.1" || return 1
  # It describes the same options as the command's help.
  options=$(at_home "$prefix/bin/heed" -h | sed -n 's/^  \(-[-a-z]\).*/\1/p' | sort)
  expect "$options" sh -c "sed -n 's/^\.It Fl \([-a-z]\).*/-\1/p' '$prefix/share/man/man1/heed.1' | sort"
}

lua_works() {
  expect "$version" at_home env LUA_CPATH="$prefix/lib/lua/5.4/?.so" lua5.4 -e 'print(require "heed".version)'
}

shared_works() { # COMPILER SOURCE
  block docs/installing.md c heed_scaled_dot_product_attention | as_user tee "$home/app.c" >/dev/null
  export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
  expect "$version" pkg-config --modversion heed || return 1
  # shellcheck disable=SC2046,SC2086 # words on purpose, as on the page
  at_home $CC app.c $(pkg-config --cflags --libs heed) -o app || return 1
  expect '[libheed.so.0]' sh -c "readelf -d '$home/app' | sed -n 's/.*NEEDED.*\(\[libheed.*\)/\1/p'" || return 1
  expect "$app_prints" at_home env LD_LIBRARY_PATH="$prefix/lib" ./app
}

static_works() {
  # shellcheck disable=SC2046,SC2086
  at_home $CC app.c $(pkg-config --cflags heed) "$(pkg-config --variable=libdir heed)/libheed.a" \
    -Wl,--as-needed $(pkg-config --static --libs heed) -o app-static || return 1
  nothing sh -c "readelf -d '$home/app-static' | grep -E 'libheed|liblua'" || return 1
  expect "$app_prints" at_home ./app-static
}

lua_host_works() {
  block docs/embedding.md c luaopen_heed | as_user tee "$home/host.c" >/dev/null
  # shellcheck disable=SC2046,SC2086
  at_home $CC host.c $(pkg-config --cflags heed) "$(pkg-config --variable=libdir heed)/libheed.a" \
    -Wl,--as-needed $(pkg-config --static --libs heed) $(pkg-config --cflags --libs lua5.4) -o host || return 1
  expect "$(block docs/embedding.md text 'tensor([2')" at_home ./host
}

# A project with the program twice: linked with the shared library, as on the page, and with the static one.
cmake_works() {
  local folder="$home/a project"
  as_user mkdir "$folder" && as_user cp "$home/app.c" "$folder" || return 1
  { block docs/installing.md cmake heed::heed
    echo 'add_executable(app-static app.c)'
    echo 'target_link_libraries(app-static PRIVATE heed::static)'; } | as_user tee "$folder/CMakeLists.txt" >/dev/null
  cmake_project "$prefix" build || return 1
  # An installation that was moved, with a blank in its name: nothing is taken from where it was.
  cp -a "$prefix" "$temporary/moved prefix" && mv "$prefix" "$prefix away" || return 1
  cmake_project "$temporary/moved prefix" moved
  local code=$?
  mv "$prefix away" "$prefix" && rm -rf "$temporary/moved prefix"
  return $code
}
cmake_project() { # PREFIX FOLDER of the build
  local folder="$home/a project"
  at_home cmake -S "$folder" -B "$folder/$2" -DCMAKE_PREFIX_PATH="$1" && at_home cmake --build "$folder/$2" || return 1
  expect "$app_prints" at_home "$folder/$2/app" && # CMake stores the library's path in the program
    expect "$app_prints" at_home "$folder/$2/app-static" &&
    expect '[libheed.so.0]' sh -c "readelf -d '$folder/$2/app' | sed -n 's/.*NEEDED.*\(\[libheed.*\)/\1/p'" &&
    nothing sh -c "readelf -d '$folder/$2/app-static' | grep -E 'libheed|liblua'"
}

cmake_versions() {
  local folder="$home/versions" asked found
  as_user mkdir "$folder" || return 1
  printf '%s\n' 'cmake_minimum_required(VERSION 3.19)' 'project(versions C)' 'find_package(heed ${asked} CONFIG)' \
    'message("found ${heed_FOUND} ${heed_VERSION}")' | as_user tee "$folder/CMakeLists.txt" >/dev/null
  while IFS=: read -r asked found; do
    # shellcheck disable=SC2086 # the words of EXACT
    expect "found $found" sh -c "cd '$home' && cmake -S versions -B versions/build -DCMAKE_PREFIX_PATH='$prefix' \
      '-Dasked=${asked// /;}' 2>&1 | grep '^found '" || return 1
    rm -rf "$folder/build"
  done <<END
:1 $version
0.1:1 $version
0.0.9:1 $version
$version EXACT:1 $version
0.1...0.9:1 $version
0.1...<1:1 $version
0.0 EXACT:0 
0.0...<$version:0 
0.999:0 
1:0 
1.0...2.0:0 
END
  mv "$prefix/include/heed.h" "$prefix/include/away"
  found=$(at_home cmake -S versions -B versions/build -DCMAKE_PREFIX_PATH="$prefix" 2>&1)
  mv "$prefix/include/away" "$prefix/include/heed.h"
  case $(tr -s ' \n' ' ' <<<"$found") in *"heed's files must be moved together"*) ;; *) echo "$found"; return 1 ;; esac
}

blank_in_prefix_works() {
  local other="$temporary/a prefix"
  make_there install PREFIX="$other" || return 1
  expect "$version" at_home "$other/bin/heed" -e 'print(require "heed".version)' &&
    expect "$version" at_home env LUA_CPATH="$other/lib/lua/5.4/?.so" lua5.4 -e 'print(require "heed".version)' || return 1
  PKG_CONFIG_PATH="$other/lib/pkgconfig" at_home sh -c "eval $CC app.c \$(pkg-config --cflags --libs heed) -o app-blank" || return 1
  expect "$app_prints" at_home env LD_LIBRARY_PATH="$other/lib" ./app-blank || return 1
  make_there uninstall PREFIX="$other" && nothing find "$other" ! -type d
}

uninstalls() {
  local folder others
  for folder in bin lib lib/lua/5.4 lib/pkgconfig lib/cmake share/man/man1 include share/doc/heed/examples share/heed/meta; do
    echo kept >"$prefix/$folder/somebody's"
  done
  others=$(find "$prefix" -name "somebody's" | sort)
  make_there uninstall PREFIX="$prefix" || return 1
  expect "$others" sh -c "find '$prefix' ! -type d | sort" || return 1
  make_there install PREFIX="$prefix" && find "$prefix" -name "somebody's" -delete && make_there uninstall PREFIX="$prefix" &&
    make_there uninstall PREFIX="$prefix" || return 1 # a second time has no effect
  nothing find "$prefix" ! -type d && nothing find "$prefix" -name heed
}

tree=$prefix-rocks offline=()
unshare -n true 2>/dev/null && offline=(unshare -n)
# rocks FOLDER VERSION ARGUMENT...: LuaRocks for that Lua, without a network
rocks() {
  local folder=$1 lua=$2
  shift 2
  (cd "$folder" && "${offline[@]}" luarocks --lua-version "$lua" "$@")
}
rock_is_used() { # VERSION of Lua
  chmod -R a+rX "$tree" # the mask is the caller's
  expect "$version" at_home env LUA_CPATH="$tree/lib/lua/$1/?.so" "lua$1" -e 'print(require "heed".version)' || return 1
  rocks "$source" "$1" remove --tree "$tree" heed && nothing find "$tree" -name '*.so'
}

rock_works() { # VERSION of Lua
  rocks "$source" "$1" make --tree "$tree" CC="$CC" && rock_is_used "$1"
}

other="$temporary/another folder"
# Packs the committed files from another folder; the packed rock does not need the sources that it was made from.
rock_packs() {
  mkdir -p "$other" && in_source git init -q && in_source git add -A &&
    in_source git -c user.name=heed -c user.email=heed@localhost commit -q -m 'The sources' || return 1
  rocks "$other" 5.4 pack "$source/heed-scm-1.rockspec" && [ -f "$other/heed-scm-1.src.rock" ]
}

# Installs the packed sources, packs what was built, and installs that in another tree, all from another folder.
rock_travels() ( # VERSION of Lua; a subshell, which keeps CFLAGS and the name of the tree to itself
  export CFLAGS=-O0
  local code
  mv "$source" "$source away"
  rocks "$other" "$1" install --tree "$tree" heed-scm-1.src.rock CC="$CC" &&
    rocks "$other" "$1" pack --tree "$tree" heed
  code=$?
  mv "$source away" "$source"
  [ $code = 0 ] && rock_is_used "$1" || return 1
  tree=$temporary/tree-$1
  rocks "$other" "$1" install --tree "$tree" "$(cd "$other" && ls heed-scm-1.linux-*.rock)" && rock_is_used "$1" &&
    rm "$other"/heed-scm-1.linux-*.rock
)

# A rockspec that is used where it is builds what is committed.
rock_builds_elsewhere() (
  export CFLAGS=-O0
  rocks "$other" 5.4 build --tree "$tree" "$source/heed-scm-1.rockspec" CC="$CC" && rock_is_used 5.4
)

# The output of app.c, self-attention of two tokens, computed in Lua.
app_prints=$(lua5.4 -e '
  local function number(text) return tonumber((text:gsub("f$", ""))) end
  local x = {}
  for text in io.read "a":match "rows%[%] = {(.-)}":gmatch "[^%s,]+" do x[#x + 1] = number(text) end
  local function dot(i, j) local s = 0 for k = 1, 3 do s = s + x[3 * i + k] * x[3 * j + k] end return s end
  for i = 0, 1 do
    local a, b = math.exp(dot(i, 0) / 3 ^ 0.5), math.exp(dot(i, 1) / 3 ^ 0.5)
    local y = {}
    for k = 1, 3 do y[k] = ("%.4f"):format((a * x[k] + b * x[3 + k]) / (a + b)) end
    print(table.concat(y, " "))
  end' <<<"$(block docs/installing.md c heed_scaled_dot_product_attention)")

tally 'builds in a folder with a blank in its name' builds
tally 'make install, readable for everybody' installs
[ $failed = 0 ] || { tallied; exit 1; } # the other tests need it
tally 'make install again, two at the same time' again
tally 'make install with DESTDIR and LIBDIR' staged
tally 'make install with a relative folder' refuses_relative
tally 'the command' command_works
tally 'the manual page' manual_works
tally 'the module in a plain lua5.4' lua_works
tally 'a C program with the shared library' shared_works
tally 'a C program with the static library' static_works
tally 'the C program with Lua of docs/embedding.md' lua_host_works
tally 'C programs with the CMakeLists.txt of docs/installing.md, also after moving the installation' cmake_works
tally "versions that CMake's find_package accepts" cmake_versions
tally 'a prefix with a blank in its name' blank_in_prefix_works
tally 'make uninstall' uninstalls
tally 'luarocks make for Lua 5.4, without a network' rock_works 5.4
tally 'luarocks make for Lua 5.1' rock_works 5.1
tally 'luarocks pack from another folder' rock_packs
tally 'luarocks build from another folder' rock_builds_elsewhere
tally 'packed rocks, sources and binary, in other trees, for Lua 5.4' rock_travels 5.4
tally 'packed rocks, sources and binary, in other trees, for Lua 5.1' rock_travels 5.1
tallied
