// Compares texts in which printed numbers may be rounded in another way: for the tests in node and in Chromium.
"use strict";
const fs = require("fs");
const os = require("os");
const path = require("path");
const { spawnSync } = require("child_process");

// An error if they differ by more than tests/compare_output.lua, run by the command `heed`, allows.
function compareText(heed, expected, actual) {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "heed_compare_"));
  try {
    const files = [expected, actual].map((text, i) => {
      const file = path.join(folder, `${i}.txt`);
      fs.writeFileSync(file, text);
      return file;
    });
    const { status, stdout, stderr } = spawnSync(heed, ["tests/compare_output.lua", ...files], { encoding: "utf8" });
    if (status !== 0) throw new Error(stdout + stderr);
  } finally {
    fs.rmSync(folder, { recursive: true });
  }
}

module.exports = { compareText };
