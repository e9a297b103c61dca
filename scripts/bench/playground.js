// Compares kernels in WebAssembly, in node, with those of this machine: playground.js BUILD LUA prints a table in Markdown.
// The rows take turns, and the minimum counts. LUA is an interpreter that finds a heed without BLAS.
"use strict";
const fs = require("fs");
const path = require("path");
const { spawnSync } = require("child_process");

const build = path.resolve(process.argv[2]), lua = process.argv[3], ROUNDS = 3;
const { createHeed } = require(path.join(build, "playground", "runtime.js"));
const script = fs.readFileSync(path.join(__dirname, "playground.lua"));

async function inWasm(name) {
  let out = "";
  const heed = await createHeed(fs.readFileSync(path.join(build, "playground", name + ".wasm")),
    { print: (text) => { out += text; }, error: (text) => { throw new Error(text); } });
  heed.run(script);
  return out;
}
function native(kernels) {
  const one = "require('heed').set_num_threads(1)";
  const { stdout, stderr, status } = spawnSync(lua, ["-e", one, path.join(__dirname, "playground.lua")],
    { encoding: "utf8", env: { ...process.env, ...kernels } });
  if (status !== 0) throw new Error(stderr);
  return stdout;
}

const rows = [
  ["WebAssembly, scalar", () => inWasm("heed_scalar")],
  ["WebAssembly, SIMD", () => inWasm("heed")],
  ["this machine, scalar", () => native({ HEED_CPU: "scalar" })],
  ["this machine", () => native({})],
];

(async () => {
  const least = rows.map(() => [Infinity, Infinity, Infinity]);
  for (let round = 0; round < ROUNDS; round++)
    for (const [i, [, run]] of rows.entries()) {
      const times = (await run()).trim().split("\t").map(Number);
      least[i] = least[i].map((time, column) => Math.min(time, times[column]));
    }
  console.log("| | MultiHeadAttention 128 × 256 | matmul 256³ | attention, 8 heads of 512 × 64 |\n| --- | ---: | ---: | ---: |");
  for (const [i, [name]] of rows.entries()) console.log(`| ${name} | ${least[i].map((time) => time.toFixed(2)).join(" | ")} |`);
  console.log(`| SIMD is faster than scalar | ${least[0].map((time, column) => `${(time / least[1][column]).toFixed(1)} ×`).join(" | ")} |`);
})();
