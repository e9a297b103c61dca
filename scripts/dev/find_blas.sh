#!/bin/sh
# Prints the file name of the shared library that provides cblas_sgemm to a program linked with these flags, such as
# libopenblas.so.0. Prints nothing if there is no such library or it is static.
#   CC=cc find_blas.sh FLAG...
set -u
case " $* " in *' -static '*) exit 0 ;; esac # nothing is loaded at run time
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
echo 'void cblas_sgemm(void); void (*const needs)(void) = cblas_sgemm;' >"$work/needs.c"
case $(uname -s) in
  Darwin)
    ${CC:-cc} -bundle "$work/needs.c" "$@" -o "$work/needs" 2>/dev/null &&
      otool -L "$work/needs" | sed -n 's/^[[:blank:]]*\([^ ]*\) (.*/\1/p' | grep -v '^/usr/lib/libSystem' | head -n 1 ;;
  *)
    ${CC:-cc} -shared -fPIC -nostdlib -Wl,--as-needed "$work/needs.c" "$@" -o "$work/needs" 2>/dev/null &&
      readelf -d "$work/needs" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | head -n 1 ;;
esac
exit 0
