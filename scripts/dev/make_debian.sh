#!/bin/bash
# Makes Debian's source package: the files of the working tree as heed_VERSION.orig.tar.gz, and beside it heed-VERSION,
# the same with debian/ in it, in which dpkg-buildpackage builds.
#   make_debian.sh FOLDER      DEBFULLNAME and DEBEMAIL in the environment, or git's settings, name the maintainer
set -eu
folder=$1
version=$(sed -n 's/^#define HEED_VERSION  *"\(.*\)"/\1/p' src/heed.h)
name=${DEBFULLNAME:-$(git config user.name || true)} email=${DEBEMAIL:-$(git config user.email || true)}
[ -n "$name" ] && [ -n "$email" ] || {
  echo 'make debian: DEBFULLNAME and DEBEMAIL are not set; they must be the name and the address of the maintainer' >&2
  exit 2
}
maintainer="$name <$email>"

# The same sources give the same archive: sorted names, no owners, the time of the last commit.
seconds=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
if [ -d .git ] || [ -f .git ]; then
  files() { git ls-files -z; }
else
  files() { find . -type f ! -path './build/*' -printf '%P\0' | LC_ALL=C sort -z; }
fi

rm -rf "$folder" && mkdir -p "$folder"
files | tar --null --files-from=- --sort=name --mtime="@$seconds" --owner=0 --group=0 --numeric-owner \
  --mode=u+rwX,go+rX,go-w --transform="s,^,heed-$version/," -cf - | gzip -n >"$folder/heed_$version.orig.tar.gz"
tar -xf "$folder/heed_$version.orig.tar.gz" -C "$folder"

debian=$folder/heed-$version/debian
cp -R scripts/packages/debian "$debian"
filled() {
  sed -e "s/@VERSION@/$version/g" -e "s/@MAINTAINER@/$maintainer/" -e "s/@DATE@/$(date -R -u -d "@$seconds")/" "$1"
}
filled scripts/packages/debian/control >"$debian/control"
for file in changelog libheed0.symbols; do
  filled "scripts/packages/debian/$file.in" >"$debian/$file"
  rm "$debian/$file.in"
done

# debian/copyright: the copyright and the text of LICENSE, in the machine-readable form.
{
  printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: heed\n\n'
  printf 'Files: *\n%s\nLicense: Expat\n' "$(sed -n 's/^Copyright (c) /Copyright: /p' LICENSE)"
  sed -n '/^Permission/,$p' LICENSE | sed -e 's/^$/./' -e 's/^/ /'
} >"$debian/copyright"
echo "$folder/heed-$version is ready for dpkg-buildpackage -us -uc"
