#!/bin/sh
# Tests the pages of plot.attention and the playground in headless Chromium: run_browser_tests.sh BUILD
# ONLY in the environment: a regular expression of the playground's tests. Ends with "N passed, N failed".
set -eu
build=$1
folder=$build/browser
mkdir -p "$folder"
# The versions are fixed, so that a new release can't change the tests.
if ! [ -d "$folder/node_modules/playwright-core" ] || ! [ -d "$folder/node_modules/axe-core" ]; then
  npm install --prefix "$folder" --no-save --no-audit --no-fund --silent playwright-core@1.64.1 axe-core@4.14.1
fi
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
export CHROMIUM
"$build/heed" tests/browser/make_pages.lua "$folder"
set +e
. scripts/dev/tally.sh
tally 'pages of plot.attention' node tests/browser/attention.js "$folder"
tally 'the playground' node tests/browser/playground.js "$folder" "$build/playground" "$build/heed"
tallied
