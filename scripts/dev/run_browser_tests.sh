#!/bin/sh
# Tests the pages of plot.attention and the playground in headless Chromium: run_browser_tests.sh BUILD
# ONLY in the environment: a regular expression of the playground's tests. Ends with "N passed, N failed".
set -eu
build=$1
. scripts/dev/browser.sh
"$build/heed" tests/browser/make_pages.lua "$npm"
set +e
. scripts/dev/tally.sh
tally 'pages of plot.attention' node tests/browser/attention.js "$npm"
tally 'the playground' node tests/browser/playground.js "$npm" "$build/playground" "$build/heed"
tallied
