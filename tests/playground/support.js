// What the tests of the playground's WebAssembly share.
"use strict";
const fs = require("fs");
const path = require("path");
const { spawnSync } = require("child_process");
const { compareText } = require("./compare.js");

const build = path.resolve(process.argv[2]);
const playground = path.join(build, "playground");
const { createHeed } = require(path.join(playground, "runtime.js"));

const modules = {};
async function moduleOf(name) {
  return (modules[name] = modules[name] || (await WebAssembly.compile(fs.readFileSync(path.join(playground, name + ".wasm")))));
}

// A new state of "heed" or "heed_scalar" whose output is collected: out and err are what came since the last take().
async function start(name, options = {}) {
  let out = "", err = "";
  const heed = await createHeed(await moduleOf(name), {
    print: (text) => { out += text; },
    error: (text) => { err += text; },
    ...options,
  });
  heed.take = () => {
    const taken = { out, err };
    out = err = "";
    return taken;
  };
  return heed;
}

// What the command for this machine does: { out, err, code }.
function native(args) {
  const { stdout, stderr, status } = spawnSync(path.join(build, "heed"), args, { encoding: "utf8" });
  return { out: stdout, err: stderr, code: status };
}

// An error if the texts differ by more than the rounding of printed numbers.
const compare = (expected, actual) => compareText(path.join(build, "heed"), expected, actual);

// The files of a folder, by path.
function filesIn(folder) {
  const files = {};
  for (const name of fs.readdirSync(folder)) files[`${folder}/${name}`] = fs.readFileSync(`${folder}/${name}`);
  return files;
}

module.exports = { playground, start, native, compare, filesIn };
