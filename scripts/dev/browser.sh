# For scripts that run tests in headless Chromium; included with `.`. Uses $build. Installs playwright-core and axe-core
# in $npm, and exports CHROMIUM, the browser.
npm=$build/browser
mkdir -p "$npm"
# The versions are fixed, so that a new release can't change the tests.
if ! [ -d "$npm/node_modules/playwright-core" ] || ! [ -d "$npm/node_modules/axe-core" ]; then
  npm install --prefix "$npm" --no-save --no-audit --no-fund --silent playwright-core@1.64.1 axe-core@4.14.1
fi
CHROMIUM=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
export CHROMIUM
