#!/bin/sh
# Makes a Python environment with the libraries that heed is compared with; quick if it exists.
#   install_peers.sh VENV     names packages that cannot be installed; the bench runs without them
set -u
venv=$1
done_mark=$venv/peers
peers='numpy torch==2.13.0 safetensors transformers onnx onnxruntime libggml-python'

[ "$(cat "$done_mark" 2>/dev/null)" = "$peers" ] && exit 0
python=$(command -v python3) || { echo "bench: python3 is not installed (3.10 or newer is needed)" >&2; exit 1; }
if [ ! -x "$venv/bin/python" ] && ! "$python" -m venv "$venv"; then
  echo "bench: python3 cannot make a virtual environment; on Debian the package is python3-venv" >&2
  exit 1
fi
missing=''
for peer in $peers; do
  echo "  PIP $peer" >&2
  "$venv/bin/pip" install --quiet --disable-pip-version-check "$peer" >"$venv/pip.log" 2>&1 || missing="$missing $peer"
done
"$venv/bin/python" -c 'import numpy' || { cat "$venv/pip.log" >&2; exit 1; }
# PyPI's wheels of llama.cpp lack VNNI: it is built for this processor. Its products with AMX crash with small models.
echo "  PIP llama-cpp-python (from source)" >&2
plain='-mno-amx-int8 -mno-amx-tile -mno-amx-bf16'
case $(uname -m) in x86_64) ;; *) plain='' ;; esac
CFLAGS=$plain CXXFLAGS=$plain CMAKE_ARGS=-DGGML_NATIVE=ON "$venv/bin/pip" install --quiet --disable-pip-version-check \
  --no-binary llama-cpp-python llama-cpp-python >"$venv/pip.log" 2>&1 || missing="$missing llama-cpp-python"
if [ -n "$missing" ]; then echo "bench: packages that could not be installed:$missing" >&2; else echo "$peers" >"$done_mark"; fi
