#!/bin/sh
# Makes the site in BUILD/docs: build.sh BUILD. Links to the playground if BUILD/playground was built. With
# WITHOUT_NPM=1 it has no search.
set -eu
build=$1
here=$(dirname "$0")
npm=$build/site/npm
export LC_ALL=C.UTF-8 # charts as text have the same characters everywhere
# The version is fixed, so that a new release can't change the search.
if [ -z "${WITHOUT_NPM:-}" ] && ! [ -d "$npm/node_modules/minisearch" ]; then
  npm install --prefix "$npm" --no-save --no-audit --no-fund --silent minisearch@7.2.0
fi
python=$("$here/../dev/find_python.sh" markdown_it pygments)
rm -rf "$build/site/reference"
mkdir -p "$build/site/reference"
"$build/heed" "$here/reference.lua" "$build/site/reference"
set -- "$build/docs" --reference "$build/site/reference" --scripts "$build/site/scripts.json"
[ -n "${WITHOUT_NPM:-}" ] || set -- "$@" --minisearch "$npm/node_modules/minisearch/dist/umd/index.js"
[ ! -f "$build/playground/index.html" ] || set -- "$@" --playground "$build/playground"
$python "$here/build.py" "$@"
