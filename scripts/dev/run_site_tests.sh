#!/bin/sh
# Tests the site of `make docs`, without a browser and in headless Chromium: run_site_tests.sh BUILD. With QUICK=1 the
# tests of every page go to every sixth page; with WITHOUT_NPM=1 nothing runs in Chromium. ONLY in the environment: a
# part of the names of Chromium's tests. Ends with "N passed, N failed".
set -eu
build=$1
npm=$build/browser
# The versions are fixed, so that a new release can't change the tests.
browser=${WITHOUT_NPM:-yes}
if [ "$browser" = yes ] && ! { [ -d "$npm/node_modules/axe-core" ] && [ -d "$npm/node_modules/playwright-core" ]; }; then
  npm install --prefix "$npm" --no-save --no-audit --no-fund --silent playwright-core@1.64.1 axe-core@4.14.1
fi
export LC_ALL=C.UTF-8 # as build.sh
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome || echo chromium)
export CHROMIUM
python=$(scripts/dev/find_python.sh markdown_it pygments)
set +e
. scripts/dev/tally.sh
tally 'the generator' "$python" tests/site/test_pages.py
tally 'the pages' "$python" scripts/site/check.py "$build/docs" "$build/site/scripts.json" "$build/heed"
[ "$browser" != yes ] || tally 'the pages in Chromium' node tests/browser/site.js "$build/docs" "$npm"
if [ -f "$build/playground/heed.wasm" ]; then
  tally 'scripts in WebAssembly' node tests/browser/site_scripts.js "$build/site/scripts.json" \
    scripts/playground/runtime.js "$build/playground/heed.wasm"
fi
tallied
