#!/bin/sh
# Tests the site of `make docs`, without a browser and in headless Chromium: run_site_tests.sh BUILD. With QUICK=1 the
# tests of every page go to every sixth page.
set -eu
build=$1
npm=$build/site/npm-tests
# The versions are fixed, so that a new release can't change the tests.
if ! [ -d "$npm/node_modules/axe-core" ] || ! [ -d "$npm/node_modules/playwright-core" ]; then
  npm install --prefix "$npm" --no-save --no-audit --no-fund --silent playwright-core@1.64.1 axe-core@4.14.1
fi
export LC_ALL=C.UTF-8 # as build.sh
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
export CHROMIUM
log=$(mktemp)
trap 'rm -f "$log"' EXIT
ok=0 bad=0

# run COMMAND...: shows the output, and adds the numbers of its last line
run() {
  code=0
  "$@" >"$log" 2>&1 || code=$?
  line=$(tail -n 1 "$log")
  case $line in
    *' passed, '*' failed') sed '$d' "$log"; ok=$((ok + ${line%% *})); line=${line#* passed, }; bad=$((bad + ${line%% *})) ;;
    *) cat "$log"; [ $code = 0 ] && code=1 ;;
  esac
  [ $code = 0 ] || [ "$bad" -gt 0 ] || bad=1
}

python=$(scripts/dev/find_python.sh markdown_it pygments)
run "$python" tests/site/test_pages.py
run "$python" scripts/site/check.py "$build/docs" "$build/site/scripts.json" "$build/heed"
run node tests/browser/site.js "$build/docs" "$npm"
# Without `make playground` no page links to it.
if [ -f "$build/playground/heed.wasm" ]; then
  run node tests/browser/site_scripts.js "$build/site/scripts.json" scripts/playground/runtime.js "$build/playground/heed.wasm"
fi
echo "$ok passed, $bad failed"
[ "$bad" = 0 ]
