#!/bin/sh
# Makes a source tree of another version of heed, for tests with two versions in one process: links to these sources,
# except for another version number and another layout of contexts and tensors. Unchanged files keep their times, so
# that make rebuilds little.
#   other_version.sh FOLDER
set -eu
mkdir -p "$1"
folder=$(cd "$1" && pwd)
here=$PWD
rm -rf "$folder/src" "$folder/lua" "$folder/scripts"
cp -Rs "$here/src" "$here/lua" "$here/scripts" "$folder"
ln -sfn "$here/Makefile" "$here/make" "$folder"

# change FILE SED-COMMAND: replaces the link to the file by an edited copy
change() {
  kept=$folder/$(basename "$1")
  sed "$2" "$1" >"$kept.new"
  if cmp -s "$1" "$kept.new"; then echo "other_version.sh: '$2' changes nothing in $1" >&2; exit 1; fi
  if cmp -s "$kept.new" "$kept"; then rm "$kept.new"; else mv "$kept.new" "$kept"; fi
  ln -sf "$kept" "$folder/$1"
}
change src/heed.h 's/^\(#define HEED_VERSION  *\)".*"/\1"9.9.9"/'
change lua/heed/init.lua 's/"[0-9.]*")$/"9.9.9")/'
change src/core/core.h '/^struct heed_\(context\|tensor\|generator\) {$/a\  char only_here[64];'
