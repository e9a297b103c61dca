#!/bin/sh
# Unpacks Debian packages for any architecture in DIR/root. Changes nothing in the system and needs no root.
#   unpack_packages.sh DIR ARCHITECTURE PACKAGE...
set -eu
mkdir -p "$1"
dir=$(cd "$1" && pwd) architecture=$2
shift 2
done_before=$dir/unpacked
[ "$(cat "$done_before" 2>/dev/null)" = "$architecture $*" ] && exit 0
rm -rf "$done_before" "$dir/apt" "$dir/root"
mkdir -p "$dir/root" "$dir/apt/lists/partial" "$dir/apt/archives/partial" "$dir/apt/packages"
: >"$dir/apt/status"

# apt-get with package lists of its own, for that architecture only, from the system's sources
apt() {
  apt-get -qq -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" \
    -o APT::Sandbox::User="$(id -un)" -o Dir::State="$dir/apt" -o Dir::State::status="$dir/apt/status" \
    -o Dir::Cache="$dir/apt" "$@"
}
echo "Unpacking for $architecture in $dir: $*"
apt update >"$dir/apt/log" 2>&1 || true # some sources may lack the architecture
(cd "$dir/apt/packages" && apt download "$@" >>"$dir/apt/log" 2>&1) || { cat "$dir/apt/log" >&2; exit 1; }
for package in "$dir"/apt/packages/*.deb; do dpkg -x "$package" "$dir/root"; done
rm -rf "$dir/apt"
echo "$architecture $*" >"$done_before"
