#!/bin/sh
# Makes a wrap for Meson: BUILD/subprojects, to be copied into a project. It contains the two files of `make
# amalgamation` as an archive, so that nothing is downloaded.
#   make_wrap.sh BUILD
set -eu
build=$1
version=$(sed -n 's/^#define HEED_VERSION  *"\(.*\)"/\1/p' src/heed.h)
name=heed-$version
folder=$build/subprojects packages=$build/subprojects/packagefiles
rm -rf "$folder" && mkdir -p "$packages/heed"

# The same sources give the same archive.
tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=644 --transform="s,.*/,,;s,^,$name/," \
  -cf - "$build/heed.c" "$build/heed.h" LICENSE | gzip -n >"$packages/$name.tar.gz"
sed -e "s/@VERSION@/$version/g" -e "s/@MAJOR@/${version%%.*}/g" scripts/packages/meson/meson.build \
  >"$packages/heed/meson.build"
cp scripts/packages/meson/meson_options.txt "$packages/heed"
cat >"$folder/heed.wrap" <<WRAP
[wrap-file]
directory = $name
source_filename = $name.tar.gz
source_hash = $(sha256sum "$packages/$name.tar.gz" | cut -d' ' -f1)
patch_directory = heed

[provide]
heed = heed_dep
WRAP
echo "$folder is ready; copy it into a project with Meson"
