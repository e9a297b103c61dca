#!/bin/sh
# Tests the pages of plot.attention in headless Chromium: run_browser_tests.sh BUILD
set -eu
build=$1
folder=$build/browser
mkdir -p "$folder"
# The version is fixed, so that a new release can't change the tests.
if ! [ -d "$folder/node_modules/playwright-core" ]; then
  npm install --prefix "$folder" --no-save --no-audit --no-fund --silent playwright-core@1.64.1
fi
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
export CHROMIUM
"$build/heed" tests/browser/make_pages.lua "$folder"
node tests/browser/attention.js "$folder"
