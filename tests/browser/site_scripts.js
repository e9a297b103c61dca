// Runs what the site opens in the playground as the playground does, in WebAssembly, and compares the output with that
// of the page: site_scripts.js SCRIPTS RUNTIME WASM, where SCRIPTS is what scripts/site/build.py --scripts wrote. Names
// each script that fails, and ends with "N passed, N failed".
"use strict";
const fs = require("fs");
const path = require("path");
const [scripts, runtime, wasm] = process.argv.slice(2).map((name) => path.resolve(name));
const loaded = require(runtime);
const createHeed = loaded.createHeed || loaded;

// What a script prints, and its errors.
async function run(module, source) {
  let output = "", errors = "";
  const heed = await createHeed(module, {
    print: (text) => { output += text; return true; },
    error: (text) => { errors += text; },
  });
  const fine = heed.run(source, "=script");
  return { output, errors: fine ? errors : errors || "it failed without an error" };
}

(async () => {
  const module = await WebAssembly.compile(fs.readFileSync(wasm));
  const list = JSON.parse(fs.readFileSync(scripts, "utf8"));
  let passed = 0;
  for (const { page, script, output: expected } of list) {
    const { output, errors } = await run(module, script);
    if (!errors && output.endsWith(expected || "")) {
      passed++;
    } else {
      console.log(`FAILED: a script of ${page} in WebAssembly\n  ${errors || `prints ${output.slice(-300)}\n  not ${expected.slice(-300)}`}`);
    }
  }
  console.log(`${passed} passed, ${list.length - passed} failed`);
  process.exitCode = passed === list.length ? 0 : 1;
})();
