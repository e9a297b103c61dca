#!/bin/sh
# Unpacks the original sources of a Debian source package in DIR/source. Changes nothing in the system and needs no root.
#   unpack_source.sh DIR PACKAGE
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd) package=$2
[ "$(cat "$dir/unpacked" 2>/dev/null)" = "$package" ] && exit 0
rm -rf "$dir/unpacked" "$dir/apt" "$dir/source"
mkdir -p "$dir/source" "$dir/apt/lists/partial" "$dir/apt/archives/partial" "$dir/apt/sources" "$dir/apt/packages"
: >"$dir/apt/status"

# The system's sources, as lists of source packages.
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  [ -s "$file" ] || continue
  sed -E 's/^deb /deb-src /; s/^Types: *deb *$/Types: deb-src/' "$file" >"$dir/apt/sources/$(basename "$file")"
done
[ ! -f "$dir/apt/sources/sources.list" ] || mv "$dir/apt/sources/sources.list" "$dir/apt/sources/first.list"
apt() {
  apt-get -qq -o APT::Sandbox::User="$(id -un)" -o Dir::State="$dir/apt" -o Dir::State::status="$dir/apt/status" \
    -o Dir::Cache="$dir/apt" -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$dir/apt/sources" "$@"
}
echo "Unpacking the source of $package in $dir"
apt update >"$dir/apt/log" 2>&1 || true # some sources may lack source packages
(cd "$dir/apt/packages" && apt source --download-only "$package" >>"$dir/apt/log" 2>&1) || { cat "$dir/apt/log" >&2; exit 1; }
tar -xf "$(echo "$dir"/apt/packages/*.orig.tar.*)" -C "$dir/source" --strip-components=1
rm -rf "$dir/apt"
echo "$package" >"$dir/unpacked"
