#!/bin/sh
# Installs the files of a build, or removes them. make calls it with these variables in the environment: DESTDIR (the
# prefix of every path, for packagers; may be empty), PREFIX, LIBDIR, LUA_CMOD, MPI (set: heed_mpi.so, too), and for
# heed.pc and CMake VERSION, SONAME, STATIC_LIBS and POINTER_BYTES.
#   install.sh install|uninstall BUILD
set -eu
action=$1 build=$2
umask 022 # everybody may read new folders, whatever the caller's mask

for name in PREFIX LIBDIR LUA_CMOD; do
  eval "value=\$$name"
  case $value in
    /*) ;;
    *) echo "make $action: $name is '$value'; it must be an absolute path" >&2; exit 2 ;;
  esac
done
share=$PREFIX/share docs=$PREFIX/share/doc/heed
work=$(mktemp -d) half=''
trap 'rm -rf "$work"; rm -f "$half"' EXIT
trap 'exit 130' INT TERM

# put MODE FILE PATH: installs the file under that path, or removes it. A new file replaces an old one in one step, so
# that processes that use the old one keep it.
put() {
  if [ "$action" = uninstall ]; then
    rm -f "$DESTDIR$3"
  else
    mkdir -p "$(dirname "$DESTDIR$3")"
    half=$DESTDIR$3.$$
    install -m "$1" "$2" "$half"
    mv -f "$half" "$DESTDIR$3"
  fi
}

# put_link NAME PATH: the same for a symbolic link to a file in the same folder
put_link() {
  if [ "$action" = uninstall ]; then rm -f "$DESTDIR$2"; else ln -sf "$1" "$DESTDIR$2"; fi
}

# Paths for heed.pc: blanks escaped, relative to the prefix where possible.
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

# CMake's files: the headers relative to LIBDIR if both are below the prefix, the libraries separated by semicolons.
case $LIBDIR in
  "$PREFIX"/*) include=$(printf '%s\n' "${LIBDIR#"$PREFIX"/}" | sed 's,//*,/,g; s,/$,,; s,[^/][^/]*,..,g')/include ;;
  *) include=$PREFIX/include ;;
esac
quoted() { printf '%s\n' "$1" | sed 's/[\\"$;]/\\&/g' | sed 's/[\\,&]/\\&/g'; } # for CMake, then for sed
separated=$(printf '%s\n' "$STATIC_LIBS" | sed 's/  */;/g; s/[\\,&]/\\&/g')
for file in heed-config.cmake heed-config-version.cmake; do
  sed -e "s,@INCLUDE@,$(quoted "$include")," -e "s,@STATIC_LIBS@,$separated," -e "s,@SONAME@,$SONAME," \
    -e "s,@VERSION@,$VERSION," -e "s,@MAJOR@,$major," -e "s,@POINTER_BYTES@,$POINTER_BYTES," \
    "scripts/packages/cmake/$file" >"$work/$file"
done

put 755 "$build/heed" "$PREFIX/bin/heed"
put 755 "$build/heed.so" "$LUA_CMOD/heed.so"
if [ "$action" = uninstall ] || [ -n "${MPI:-}" ]; then put 755 "$build/heed_mpi.so" "$LUA_CMOD/heed_mpi.so"; fi
put 755 "$build/libheed.so" "$LIBDIR/libheed.so.$minor"
put_link "libheed.so.$minor" "$LIBDIR/libheed.so.$major"
put_link "libheed.so.$major" "$LIBDIR/libheed.so"
put 644 "$build/libheed.a" "$LIBDIR/libheed.a"
put 644 "$work/heed.pc" "$LIBDIR/pkgconfig/heed.pc"
put 644 "$work/heed-config.cmake" "$LIBDIR/cmake/heed/heed-config.cmake"
put 644 "$work/heed-config-version.cmake" "$LIBDIR/cmake/heed/heed-config-version.cmake"
put 644 src/heed.h "$PREFIX/include/heed.h"
put 644 src/cli/heed.1 "$share/man/man1/heed.1"
for file in lua/heed/meta/*.lua; do put 644 "$file" "$share/heed/meta/${file##*/}"; done
# The examples, except the one that needs the tests' models; only files of these kinds, which running them does not
# create.
find scripts/examples -type f ! -name chat_with_tiny_llama.lua \( -name '*.lua' -o -name '*.c' -o -name '*.py' -o -name '*.sh' \
  -o -name '*.conf' -o -name '*.cfg' -o -name '*.txt' -o -name '*.md' -o -name '*.json' -o -name '*.safetensors' \) | sort >"$work/examples"
while IFS= read -r file; do
  mode=644
  [ ! -x "$file" ] || mode=755
  put $mode "$file" "$docs/examples/${file#scripts/examples/}"
done <"$work/examples"
put 644 LICENSE "$docs/LICENSE"

# The loader finds libraries in the system's folders through an index.
if [ -z "$DESTDIR" ] && [ "$(id -u)" = 0 ] && [ "$(uname -s)" = Linux ]; then ldconfig || true; fi

if [ "$action" = install ]; then
  echo "heed $VERSION is installed in $DESTDIR$PREFIX, the Lua module in $DESTDIR$LUA_CMOD"
else
  # Removes heed's own folders if they are empty; shared ones (bin, lib, share/man/man1) stay.
  for folder in "$share/heed" "$docs" "$LIBDIR/cmake/heed"; do
    [ ! -d "$DESTDIR$folder" ] || find "$DESTDIR$folder" -depth -type d -empty -delete
  done
  echo "heed is removed from $DESTDIR$PREFIX"
fi
