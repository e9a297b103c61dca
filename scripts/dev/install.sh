#!/bin/sh
# Installs what make built, or removes just that. Called by make, which says in the environment where to: DESTDIR (before
# every path, for packagers; may be empty), PREFIX, LIBDIR, LUA_CMOD; and what heed.pc tells: VERSION, STATIC_LIBS.
#   install.sh install|uninstall BUILD
set -eu
action=$1 build=$2
umask 022 # new folders are everybody's to read, whatever the caller's mask

for name in PREFIX LIBDIR LUA_CMOD; do
  eval "value=\$$name"
  case $value in
    /*) ;;
    *) echo "make $action: $name must be an absolute path, got '$value'" >&2; exit 2 ;;
  esac
done
share=$PREFIX/share docs=$PREFIX/share/doc/heed
work=$(mktemp -d) half=''
trap 'rm -rf "$work"; rm -f "$half"' EXIT
trap 'exit 130' INT TERM

# place MODE FILE PATH: installs the file there, or removes it. The new one replaces an old one as a whole, so that who
# uses that meanwhile keeps it.
place() {
  if [ "$action" = uninstall ]; then
    rm -f "$DESTDIR$3"
  else
    mkdir -p "$(dirname "$DESTDIR$3")"
    half=$DESTDIR$3.$$
    install -m "$1" "$2" "$half"
    mv -f "$half" "$DESTDIR$3"
  fi
}

# place_link NAME PATH: the same for a symbolic link to what lies beside it
place_link() {
  if [ "$action" = uninstall ]; then rm -f "$DESTDIR$2"; else ln -sf "$1" "$DESTDIR$2"; fi
}

# For heed.pc: with blanks escaped, and below the prefix if that is where it is.
escaped() { printf '%s\n' "$1" | sed 's/[ #"'\''\\]/\\&/g'; }
below_prefix() {
  case $1 in
    "$PREFIX"/*) escaped "${1#"$PREFIX"}" | sed 's/^/${prefix}/' ;;
    *) escaped "$1" ;;
  esac
}

cat >"$work/heed.pc" <<PC
prefix=$(escaped "$PREFIX")
libdir=$(below_prefix "$LIBDIR")
includedir=\${prefix}/include

Name: heed
Description: Attention runtime for Lua scripts and C hosts
Version: $VERSION
Cflags: -I\${includedir}
Libs: -L\${libdir} -lheed
Libs.private: $STATIC_LIBS
PC

major=${VERSION%%.*} minor=${VERSION%.*}
place 755 "$build/heed" "$PREFIX/bin/heed"
place 755 "$build/heed.so" "$LUA_CMOD/heed.so"
place 755 "$build/libheed.so" "$LIBDIR/libheed.so.$minor"
place_link "libheed.so.$minor" "$LIBDIR/libheed.so.$major"
place_link "libheed.so.$major" "$LIBDIR/libheed.so"
place 644 "$build/libheed.a" "$LIBDIR/libheed.a"
place 644 "$work/heed.pc" "$LIBDIR/pkgconfig/heed.pc"
place 644 src/heed.h "$PREFIX/include/heed.h"
place 644 src/cli/heed.1 "$share/man/man1/heed.1"
for file in lua/heed/meta/*.lua; do place 644 "$file" "$share/heed/meta/${file##*/}"; done
# Of the examples, those that do not need the tests' models; and nothing that running them left there.
find scripts/examples -type f ! -name chat_with_tiny_llama.lua \( -name '*.lua' -o -name '*.c' -o -name '*.py' -o -name '*.sh' \
  -o -name '*.conf' -o -name '*.txt' -o -name '*.md' \) | sort >"$work/examples"
while IFS= read -r file; do
  mode=644
  [ ! -x "$file" ] || mode=755
  place $mode "$file" "$docs/examples/${file#scripts/examples/}"
done <"$work/examples"
place 644 LICENSE "$docs/LICENSE"

# A shared library in one of the system's folders is found through the linker's index.
if [ -z "$DESTDIR" ] && [ "$(id -u)" = 0 ] && [ "$(uname -s)" = Linux ]; then ldconfig || true; fi

if [ "$action" = install ]; then
  echo "heed $VERSION is in $DESTDIR$PREFIX; for Lua in $DESTDIR$LUA_CMOD"
else
  # Folders of our own, unless somebody put something there; those that are shared (bin, lib, share/man/man1) stay.
  for folder in "$share/heed" "$docs"; do
    [ ! -d "$DESTDIR$folder" ] || find "$DESTDIR$folder" -depth -type d -empty -delete
  done
  echo "heed is no longer in $DESTDIR$PREFIX"
fi
