// What axe finds wrong with the accessibility of a page in Chromium: a text for each rule. `npm` has axe-core in its
// node_modules.
"use strict";
const fs = require("fs");
const path = require("path");

module.exports = async function violations(page, npm) {
  if (!(await page.evaluate(() => "axe" in window)))
    await page.evaluate(fs.readFileSync(path.join(npm, "node_modules", "axe-core", "axe.min.js"), "utf8"));
  const options = { resultTypes: ["violations"], preload: false };
  return page.evaluate(async (given) => (await window.axe.run(document, given)).violations.map((found) =>
    `${found.id}: ${found.nodes.slice(0, 3).map((node) => `${node.html.slice(0, 160)} ${node.failureSummary}`).join(" | ")}`), options);
};
