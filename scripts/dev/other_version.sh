#!/bin/sh
# Lays out the sources of another version of heed, for tests of two in one process: links to those of this one, but
# for the version and the layout of contexts and tensors. What is as it was keeps its time, so that make builds little.
#   other_version.sh FOLDER
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
here=$PWD
rm -rf "$folder/src" "$folder/lua" "$folder/scripts"
cp -Rs "$here/src" "$here/lua" "$here/scripts" "$folder"
ln -sfn "$here/Makefile" "$here/make" "$folder"

# change FILE SED-COMMAND: what the command makes of the file stands in the file's place
change() {
  kept=$folder/$(basename "$1")
  sed "$2" "$1" >"$kept.new"
  if cmp -s "$1" "$kept.new"; then echo "other_version.sh: nothing in $1 was changed by $2" >&2; exit 1; fi
  if cmp -s "$kept.new" "$kept"; then rm "$kept.new"; else mv "$kept.new" "$kept"; fi
  ln -sf "$kept" "$folder/$1"
}
change src/heed.h 's/^\(#define HEED_VERSION  *\)".*"/\1"9.9.9"/'
change src/core/core.h '/^struct heed_\(context\|tensor\|generator\) {$/a\  char only_here[64];'
