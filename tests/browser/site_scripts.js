// Runs what the site opens in the playground as the playground does, in WebAssembly, and compares the output with that
// of the page: site_scripts.js SCRIPTS RUNTIME WASM, where SCRIPTS is what scripts/site/build.py --scripts wrote. With
// QUICK in the environment every sixth script is run. Names each script that fails, and ends with "N passed, N failed".
"use strict";
const fs = require("fs");
const path = require("path");
const [scripts, runtime, wasm] = process.argv.slice(2).map((name) => path.resolve(name));
const loaded = require(runtime);
const createHeed = loaded.createHeed || loaded;

// The models that the playground gives to scripts that name them.
const models = {};
for (const name of ["induction", "names_llama"]) {
  const folder = path.join("scripts/examples", name);
  for (const file of fs.readdirSync(folder)) models[`${folder}/${file}`] = fs.readFileSync(path.join(folder, file));
}

// What a script prints, and its errors.
async function run(module, source) {
  let output = "", errors = "";
  const heed = await createHeed(module, {
    files: models,
    print: (text) => { output += text; return true; },
    error: (text) => { errors += text; },
    environment: { LANG: "C.UTF-8" },
  });
  const fine = heed.run(source, "=script");
  return { output, errors: fine ? errors : errors || "it failed without an error" };
}

// Whether output ends with what a page shows. As in scripts/site/check.py positions in the script don't count. The
// kernels of WebAssembly round differently in the last bit, so numbers may differ by one in the last of the digits that
// PyTorch prints, and need another number of spaces before them.
const NUMBER = /(-?\d+\.\d*(?:e[+-]\d+)?)/;
function endsWith(output, shown) {
  const parts = (text) => text.replace(/\S+:\d+: /g, "").replace(/\s+/g, " ").trim().split(NUMBER);
  const got = parts(output), wanted = parts(shown);
  const end = got.slice(-wanted.length);
  return wanted.every((part, i) => i % 2 ? Math.abs(part - end[i]) <= 1.5e-4 * Math.max(1, Math.abs(part))
    : i ? part.trim() === String(end[i]).trim() : String(end[i]).endsWith(part.trimStart()));
}

(async () => {
  const module = await WebAssembly.compile(fs.readFileSync(wasm));
  const list = JSON.parse(fs.readFileSync(scripts, "utf8")).filter((script, i) => !process.env.QUICK || i % 6 === 0);
  let passed = 0;
  for (const { page, script, output: expected } of list) {
    const { output, errors } = await run(module, script);
    if (!errors && endsWith(output, expected || "")) {
      passed++;
    } else {
      const difference = `prints ${output.slice(-300)}\n  not ${(expected || "").slice(-300)}`;
      console.log(`FAILED: a script of ${page} in WebAssembly\n  ${errors || difference}`);
    }
  }
  console.log(`${passed} passed, ${list.length - passed} failed`);
  process.exitCode = passed === list.length ? 0 : 1;
})();
