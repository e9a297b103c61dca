// Tests the pages of plot.attention in Chromium: attention.js FOLDER, with pages of make_pages.lua and, in
// node_modules, playwright-core. Names each test, and ends with "N passed, N failed".
"use strict";
const assert = require("assert");
const fs = require("fs");
const path = require("path");
const folder = path.resolve(process.argv[2]);
const { chromium } = require(path.join(folder, "node_modules", "playwright-core"));

const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const WAIT = 30000;  // milliseconds, for slow machines

const tests = [];
const test = (name, page, run) => tests.push({ name, page, run });

const status = (page) => page.locator("#status").textContent();
const heading = (page) => page.locator("#name").textContent();
const openHead = (page, layer, head) =>
  page.locator(`button[aria-label="Layer ${layer}, head ${head}"]`).click();
const isOpen = (page) => page.locator("#detail").isVisible();
const dataset = (page) => page.evaluate(() => ({ ...document.documentElement.dataset }));
const focused = (page) => page.evaluate(() => document.activeElement.getAttribute("aria-label"));

// The colour of a place of the map, counted from 1. Read from a copy: Chromium warns of canvases read repeatedly.
const pixel = (page, q, k) => page.evaluate(([y, x]) => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  context.drawImage(document.getElementById("map"), x, y, 1, 1, 0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data];
}, [q - 1, k - 1]);

// Points at a place of the map, counted from 1.
async function point(page, q, k) {
  const place = await page.evaluate(([y, x]) => {
    const map = document.getElementById("map");
    map.scrollIntoView({ block: "nearest" });
    const box = map.getBoundingClientRect();
    return { x: box.left + (x - 0.5) * box.width / map.width, y: box.top + (y - 0.5) * box.height / map.height };
  }, [q, k]);
  await page.mouse.move(place.x, place.y);
}

async function checkCells(page, expected, rounding) {
  let open = "";
  for (const [layer, head, q, k, weight, ...colour] of expected.cells) {
    if (open !== layer + "," + head) {
      if (open) await page.keyboard.press("Escape");
      await openHead(page, layer, head);
      open = layer + "," + head;
    }
    assert.deepStrictEqual(await pixel(page, q, k), [...colour, 255], `layer ${layer}, head ${head}, ${q} to ${k}`);
    await point(page, q, k);
    const text = await status(page);
    const found = /\((\d+)\) → .*\((\d+)\): ([\d.]+)$/.exec(text);
    assert.ok(found, text);
    assert.deepStrictEqual([Number(found[1]), Number(found[2])], [q, k]);
    assert.ok(Math.abs(Number(found[3]) - weight) <= rounding, `${text}; expected ${weight}`);
  }
}

test("cells have the colour and the number of the data", "small", (page, expected) => checkCells(page, expected, 0.0051));
test("kept cells have the colour and the number of the data", "large", (page, expected) =>
  checkCells(page, { cells: expected.cells.filter((_, i) => i % 5 === 0) }, 0.0051 + 1 / 255));

test("hidden places are transparent, and called hidden", "small", async (page) => {
  await openHead(page, 1, 1);
  assert.strictEqual((await pixel(page, 1, 2))[3], 0);
  await point(page, 1, 2);
  assert.match(await status(page), /: hidden$/);
});

test("hidden places of large maps are, too, and other places are part of the rest", "large", async (page) => {
  await openHead(page, 1, 1);
  assert.strictEqual((await pixel(page, 1, 512))[3], 0);
  assert.strictEqual((await pixel(page, 512, 1))[3], 255);
  await page.locator("#from .token").nth(511).hover();
  assert.match(await status(page), /; the rest 0\.\d+$/);
});

test("every small map is drawn once, and the file is under 2 MB", "large", async (page, expected) => {
  const { drawn, milliseconds } = await dataset(page);
  assert.strictEqual(Number(drawn), expected.maps);
  assert.ok(fs.statSync(path.join(folder, "large.html")).size < 2000000);
  return `drawn in ${milliseconds} ms, loaded in ${Math.round(await page.evaluate(() =>
    performance.getEntriesByType("navigation")[0].loadEventEnd))} ms`;
});

test("markup in labels and titles stays text", "small", async (page) => {
  assert.strictEqual(await page.locator("h1").textContent(), "<i>Small</i>");
  assert.strictEqual(await page.locator("#from .token").first().textContent(), "</script><b>bold</b>");
  assert.strictEqual(await page.locator("main b:not(.token b), h1 i").count(), 0);
  assert.strictEqual(await page.locator("#from .token").nth(2).textContent(), "∅");
});

test("pointing at a token shows its weights", "small", async (page) => {
  await openHead(page, 2, 3);
  await page.locator("#from .token").nth(3).hover();
  assert.match(await status(page), /^“##ing” \(4\) → /);
  assert.strictEqual(await page.locator("#curves path").count(), 4);
  const numbers = (await page.locator("#to b").allTextContents()).filter((text) => text !== "");
  assert.strictEqual(numbers.length, 4);
  assert.ok(Math.abs(numbers.reduce((sum, text) => sum + Number(text.replace("<", "")), 0) - 1) < 0.021);
  await page.locator("#to .token").nth(0).hover();
  assert.match(await status(page), /^“<\/script>.*\(1\) ← /);
});

test("keys move between heads, open and close", "small", async (page) => {
  for (let i = 0; i < 20 && await focused(page) !== "Layer 1, head 1"; i++) await page.keyboard.press("Tab");
  assert.strictEqual(await focused(page), "Layer 1, head 1");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowDown");
  assert.strictEqual(await focused(page), "Layer 2, head 2");
  await page.keyboard.press("Enter");
  assert.strictEqual(await heading(page), "Layer 2, head 2");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowLeft");
  assert.strictEqual(await heading(page), "Layer 2, head 1");
  await page.locator("#from .token").first().focus();
  await page.keyboard.press("ArrowDown");
  assert.match(await status(page), /^“"&'” \(2\)/);
  await page.keyboard.press("Enter");
  assert.strictEqual(await page.locator("#from [aria-selected=true]").count(), 1);
  await page.keyboard.press("Escape");
  assert.strictEqual(await page.locator("#from [aria-selected=true]").count(), 0);
  await page.keyboard.press("Escape");
  assert.strictEqual(await isOpen(page), false);
  assert.strictEqual(await focused(page), "Layer 2, head 1");
});

test("filters leave the chosen layers and heads", "small", async (page) => {
  await page.selectOption("#layer", "2");
  assert.strictEqual(await page.locator(".row button:visible").count(), 3);
  await page.selectOption("#head", "3");
  assert.deepStrictEqual(await page.locator(".row button:visible").evaluateAll((list) => list.map((x) => x.title)),
    ["Layer 2, head 3"]);
  await page.selectOption("#layer", "");
  assert.strictEqual(await page.locator(".row button:visible").count(), 2);
});

test("/ searches tokens, and fades the others", "small", async (page) => {
  await page.keyboard.press("/");
  await page.keyboard.type("##ING");
  assert.strictEqual(await page.locator("#found").textContent(), "1 token");
  await openHead(page, 1, 1);
  assert.ok((await pixel(page, 6, 1))[3] < 255);
  assert.strictEqual((await pixel(page, 4, 1))[3], 255);
  assert.strictEqual(await page.locator("#from .found").count(), 1);
  await page.focus("#search");
  await page.keyboard.press("Enter");
  assert.match(await status(page), /^“##ing”/);
  await page.focus("#search");
  await page.keyboard.press("Escape");
  assert.strictEqual(await page.inputValue("#search"), "");
});

test("queries and keys may differ, and a page opens with the head asked for", "cross", async (page) => {
  assert.strictEqual(await heading(page), "Layer 1, head 2");
  assert.deepStrictEqual(await page.locator("#from .token").allTextContents(), ["q1", "q2", "q3"]);
  assert.deepStrictEqual(await page.locator("#to .token span").allTextContents(), ["k1", "k2", "k3", "k4", "k5"]);
});

test("dark and light follow the system, and the switch", "cross", async (page) => {
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  await page.emulateMedia({ colorScheme: "dark" });
  assert.strictEqual(await paper(), "rgb(20, 22, 26)");
  await page.click("#theme");
  assert.strictEqual(await paper(), "rgb(255, 255, 255)");
  await page.click("#theme");
  await page.emulateMedia({ colorScheme: "light" });
  assert.strictEqual(await paper(), "rgb(20, 22, 26)");
  await page.emulateMedia({ media: "print" });
  assert.strictEqual(await paper(), "rgb(255, 255, 255)");
});

(async () => {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ARGUMENTS });
  let passed = 0;
  for (const { name, page: file, run } of tests) {
    const page = await browser.newPage({ viewport: { width: 1280, height: 1000 } });
    page.setDefaultTimeout(WAIT);
    const heard = [];
    page.on("console", (message) => heard.push("console: " + message.text()));
    page.on("pageerror", (error) => heard.push(String(error)));
    page.on("request", (request) => { if (!/^(file|data):/.test(request.url())) heard.push("asked for " + request.url()); });
    try {
      await page.goto("file://" + path.join(folder, file + ".html"));
      const expected = JSON.parse(fs.readFileSync(path.join(folder, file + ".json"), "utf8"));
      const note = await run(page, expected);
      assert.deepStrictEqual(heard, []);
      console.log(`ok: ${file}: ${name}${note ? " (" + note + ")" : ""}`);
      passed++;
    } catch (error) {
      console.log(`FAILED: ${file}: ${name}\n  ${error.message}`);
    }
    await page.close();
  }
  await browser.close();
  console.log(`${passed} passed, ${tests.length - passed} failed`);
  process.exitCode = passed === tests.length ? 0 : 1;
})();
