#!/bin/sh
# Tests the site of `make docs`, without a browser and in headless Chromium: run_site_tests.sh BUILD. With QUICK=1 the
# tests of every page go to every sixth page; with WITHOUT_NPM=1 nothing runs in Chromium. ONLY in the environment: a
# part of the names of Chromium's tests. Ends with "N passed, N failed".
set -eu
build=$1
export LC_ALL=C.UTF-8 # as build.sh
[ -n "${WITHOUT_NPM:-}" ] || . scripts/dev/browser.sh
python=$(scripts/dev/find_python.sh markdown_it pygments)
set +e
. scripts/dev/tally.sh
tally 'the generator' "$python" tests/site/test_pages.py
tally 'the pages' "$python" scripts/site/check.py "$build/docs" "$build/site/scripts.json" "$build/heed"
[ -n "${WITHOUT_NPM:-}" ] || tally 'the pages in Chromium' node tests/browser/site.js "$build/docs" "$npm"
if [ -f "$build/playground/heed.wasm" ]; then
  tally 'scripts in WebAssembly' node tests/browser/site_scripts.js "$build/site/scripts.json" \
    scripts/playground/runtime.js "$build/playground/heed.wasm"
fi
tallied
