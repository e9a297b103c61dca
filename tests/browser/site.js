// Tests the site in Chromium: site.js SITE NPM, where NPM/node_modules has playwright-core and axe-core. With QUICK in
// the environment the tests of every page go to every sixth page. Names each test, and ends with "N passed, N failed".
"use strict";
const assert = require("assert");
const fs = require("fs");
const path = require("path");
const [site, npm] = process.argv.slice(2).map((folder) => path.resolve(folder));
const { chromium } = require(path.join(npm, "node_modules", "playwright-core"));
const violations = require("./violations.js");

const ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const WAIT = 60000;  // milliseconds, for slow machines
const WIDE = { width: 1280, height: 900 }, NARROW = { width: 320, height: 640 };

const LOOKS = process.env.QUICK ? [[NARROW, "light"], [WIDE, "dark"]]
  : [[NARROW, "light"], [NARROW, "dark"], [WIDE, "light"], [WIDE, "dark"]];

// Every page but those of the playground, which has tests of its own.
const pages = fs.readdirSync(site, { recursive: true }).map(String)
  .filter((name) => name.endsWith(".html") && !name.startsWith("playground")).sort();
const sample = process.env.QUICK ? pages.filter((name, i) => name === "index.html" || i % 6 === 0) : pages;
const address = (name) => "file://" + path.join(site, name);

const tests = [];
// ONLY in the environment names a part of the tests to run.
const test = (name, run, options = {}) => {
  if (name.includes(process.env.ONLY || "")) tests.push({ name, run, options });
};

// ---- Every page --------------------------------------------------------------------------------

const overflow = (page) => page.evaluate(() => {
  const { scrollWidth, clientWidth } = document.documentElement;
  return scrollWidth - clientWidth;
});

test("every page fits into 320 pixels and is accessible in both themes, narrow and wide", async (page) => {
  const problems = [];
  for (const name of pages) {
    await page.setViewportSize(NARROW);
    await page.goto(address(name));
    if (await overflow(page) > 0) problems.push(`${name}: scrolls sideways at 320 pixels`);
    if (!sample.includes(name)) continue;
    for (const [size, colorScheme] of LOOKS) {
      await page.setViewportSize(size);
      await page.emulateMedia({ colorScheme });
      for (const found of await violations(page, npm)) problems.push(`${name}, ${size.width}, ${colorScheme}: ${found}`);
    }
  }
  assert.deepStrictEqual(problems, []);
  return `${sample.length} of ${pages.length} pages`;
});

test("without JavaScript every page has its text, its navigation and its outline", async (page) => {
  for (const name of sample) {
    await page.goto(address(name));
    assert.ok((await page.locator("main").innerText()).length > 100, name);
    assert.ok(await page.locator("#navigation summary").first().isVisible(), name);
    assert.strictEqual(await page.locator("button:visible, form:visible").count(), 0, name);
  }
  await page.setViewportSize(NARROW);
  await page.goto(address("attention.html"));
  await page.click(".menu");
  assert.ok(await page.locator("#navigation a[aria-current]").isVisible());
  await page.click(".outline summary");
  assert.ok(await page.locator(".outline a").first().isVisible());
}, { javaScriptEnabled: false });

// ---- Keyboard ----------------------------------------------------------------------------------

const focused = (page) => page.evaluate(() => {
  const element = document.activeElement;
  return { id: element.id, tag: element.tagName, href: element.getAttribute("href") };
});

test("the skip link comes first, and leads to the text", async (page) => {
  await page.goto(address("attention.html"));
  await page.keyboard.press("Tab");
  assert.strictEqual((await focused(page)).href, "#content");
  assert.ok(await page.locator(".skip").isVisible());
  await page.keyboard.press("Enter");
  assert.strictEqual((await focused(page)).id, "content");
});

test("Tab reaches everything once, and shows where it is", async (page) => {
  await page.goto(address("attention.html"));
  const seen = [];
  for (let i = 0; i < 400; i++) {
    await page.keyboard.press("Tab");
    const now = await page.evaluate(() => {
      const element = document.activeElement;
      if (element === document.body) return null;
      element.dataset.seen = Number(element.dataset.seen || 0) + 1;
      const style = getComputedStyle(element);
      return { outline: parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none", seen: element.dataset.seen,
        what: element.outerHTML.slice(0, 80) };
    });
    if (!now || now.seen !== "1") break;
    assert.ok(now.outline, `no visible focus: ${now.what}`);
    seen.push(now.what);
  }
  const all = "a[href], button, input, summary, [tabindex='0']";
  const missed = await page.evaluate((selector) => [...document.querySelectorAll(selector)]
    .filter((element) => element.checkVisibility() && element.tabIndex >= 0 && !element.dataset.seen)
    .map((element) => element.outerHTML.slice(0, 80)), all);
  assert.deepStrictEqual(missed, []);
  return `${seen.length} stops`;
});

test("the menu of a phone opens by keyboard, and Escape closes it", async (page) => {
  await page.setViewportSize(NARROW);
  await page.goto(address("attention.html"));
  await page.focus(".menu");
  await page.keyboard.press("Enter");
  assert.ok(await page.locator("#navigation").isVisible());
  assert.strictEqual(await page.getAttribute(".menu", "aria-expanded"), "true");
  await page.keyboard.press("Escape");
  assert.ok(!await page.locator("#navigation").isVisible());
  await page.keyboard.press(" ");
  assert.ok(await page.locator("#navigation").isVisible());
});

test("what scrolls sideways takes the focus", async (page) => {
  await page.setViewportSize(NARROW);
  await page.goto(address("performance.html"));
  const missed = await page.evaluate(() => [...document.querySelectorAll("pre, .wide, .picture")]
    .filter((box) => box.scrollWidth > box.clientWidth && box.tabIndex !== 0).length);
  assert.strictEqual(missed, 0);
});

// ---- Search ------------------------------------------------------------------------------------

async function search(page, query) {
  await page.fill("#search", query);
  await page.waitForSelector(`#results[data-query=${JSON.stringify(query)}]:visible`);
  return page.locator("#results a").evaluateAll((links, folder) =>
    links.map((link) => decodeURI(link.href).replace(folder, "")), address("") + "/");
}

const FIRST = {
  "softmax": /^reference\/.*softmax/,
  "x:sum": /^reference\/reductions\.html#xsum/,
  "KV cache": /^caches\.html/,
  "window attention": /^(attention|masks)\.html|^reference\/.*window/,
  "segmentation fault": /^security\.html/,
  "set_num_threads": /set_num_threads|^threads\.html/,
  "heed.set_num_threads": /set_num_threads|^threads\.html/,
  "masks": /^(reference\/)?masks\.html/,
  "coming from pytorch": /^coming-from-pytorch\.html/,
  "install": /^installing\.html/,
  "how do I install": /^installing\.html/,
  "quantization": /^precision\.html/,
  "what is softmax": /^reference\/.*softmax/,
  "state dict": /^(modules|coming-from-pytorch|files|training)\.html|^reference\//,
};

test("a search finds what one expects first", async (page) => {
  await page.goto(address("attention.html"));
  const wrong = [];
  for (const [query, expected] of Object.entries(FIRST)) {
    const found = await search(page, query);
    if (!found.length || !expected.test(found[0])) wrong.push(`${query}: ${found.slice(0, 5).join(", ")}`);
  }
  assert.deepStrictEqual(wrong, []);
});

test("every page but the sources is found by its title", async (page) => {
  await page.goto(address("index.html"));
  const wrong = [];
  for (const name of pages.filter((file) => !/^(source|index)/.test(file))) {
    const title = /<h1[^>]*>(.*?)<a/s.exec(fs.readFileSync(path.join(site, name), "utf8"));
    const text = title && title[1].replace(/<[^>]+>/g, "").replace(/&amp;/g, "&").replace(/&quot;/g, '"');
    const found = (await search(page, text)).map((link) => link.split("#")[0]);
    if (!found.slice(0, 5).includes(name)) wrong.push(`${text}: ${found.slice(0, 5).join(", ")}`);
  }
  assert.deepStrictEqual(wrong, []);
});

test("/ goes to the search, arrows to the results, Enter opens one, Escape closes them", async (page) => {
  await page.goto(address("attention.html"));
  await page.keyboard.press("/");
  await page.keyboard.type("caches");
  await page.waitForSelector('#results[data-query="caches"]:visible');
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("ArrowUp");
  assert.strictEqual((await focused(page)).tag, "A");
  await page.keyboard.press("ArrowUp");
  assert.strictEqual((await focused(page)).id, "search");
  await page.keyboard.press("Escape");
  assert.ok(!await page.locator("#results").isVisible());
  await page.keyboard.press("Enter");
  await page.waitForURL(/caches\.html/);
});

test("a search without results says so, and markup in it stays text", async (page) => {
  await page.goto(address("index.html"));
  assert.deepStrictEqual(await search(page, "qqqqzzzz"), []);
  assert.strictEqual(await page.locator(".found").textContent(), "Nothing found.");
  await search(page, "<img src=x onerror=alert(1)>");
  assert.strictEqual(await page.locator("#results img").count(), 0);
});

// ---- Themes, code, pictures --------------------------------------------------------------------

const paper = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
const LIGHT = "rgb(255, 255, 255)", DARK = "rgb(20, 22, 26)";

test("the theme follows the system, and the switch is remembered", async (page) => {
  await page.emulateMedia({ colorScheme: "dark" });
  await page.goto(address("attention.html"));
  assert.strictEqual(await paper(page), DARK);
  await page.click(".theme");
  assert.strictEqual(await paper(page), LIGHT);
  await page.goto(address("masks.html"));
  assert.strictEqual(await paper(page), LIGHT);
  await page.emulateMedia({ colorScheme: "light" });
  await page.click(".theme");
  assert.strictEqual(await paper(page), DARK);
  await page.emulateMedia({ media: "print" });
  assert.strictEqual(await paper(page), LIGHT);
});

// The largest contrast within each box of a screenshot to the box's first pixel, as WCAG defines it.
const contrasts = (page, screenshot, boxes) => page.evaluate(async ([bytes, all]) => {
  const bitmap = await createImageBitmap(await (await fetch("data:image/png;base64," + bytes)).blob());
  const context = new OffscreenCanvas(bitmap.width, bitmap.height).getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const level = (value) => (value /= 255) <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  return all.map(({ x, y, width, height }) => {
    const { data } = context.getImageData(Math.ceil(x) + 1, Math.ceil(y) + 1,
      Math.floor(width) - 3, Math.floor(height) - 3);
    const light = (i) => 0.2126 * level(data[i]) + 0.7152 * level(data[i + 1]) + 0.0722 * level(data[i + 2]);
    let least = light(0), most = least;
    const back = least;
    for (let i = 4; i < data.length; i += 4) {
      const here = light(i);
      least = Math.min(least, here);
      most = Math.max(most, here);
    }
    return Math.max((most + 0.05) / (back + 0.05), (back + 0.05) / (least + 0.05));
  });
}, [screenshot.toString("base64"), boxes]);

test("pictures are readable in both themes, whatever the system's is", async (page) => {
  const names = fs.readdirSync(path.join(site, "pictures"), { recursive: true }).map(String)
    .filter((name) => name.endsWith(".svg"));
  await page.goto(address("index.html"));
  const boxes = await page.evaluate(async (list) => {
    const main = document.querySelector("main");
    document.body.replaceChildren(main);
    main.replaceChildren(...list.map((name) => {
      const picture = document.createElement("img");
      picture.src = "pictures/" + name;
      picture.style.display = "block";
      return picture;
    }));
    await Promise.all([...main.children].map((picture) => picture.decode()));
    return [...main.children].map((picture) => picture.getBoundingClientRect().toJSON());
  }, names);
  const weak = [];
  for (const system of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme: system });
    for (const theme of ["light", "dark"]) {
      await page.evaluate((value) => { document.documentElement.dataset.theme = value; }, theme);
      const found = await contrasts(page, await page.screenshot({ fullPage: true }), boxes);
      found.forEach((contrast, i) => {
        const text = fs.readFileSync(path.join(site, "pictures", names[i]), "utf8").includes("<text");
        if (contrast >= (text ? 4.5 : 3)) return;
        weak.push(`${names[i]}, ${theme} on a ${system} system: ${contrast.toFixed(2)}`);
      });
    }
  }
  assert.deepStrictEqual(weak, []);
  return `${names.length} pictures`;
});

test("code is copied; of a session what was typed", async (page, context) => {
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  for (const [name, session] of [["attention.html", false], ["prompt.html", true]]) {
    await page.goto(address(name));
    const block = session ? page.locator(".code:has(.gp)").first() : page.locator(".code").first();
    await block.locator("button").first().click();
    await block.locator("button", { hasText: "Copied" }).waitFor();
    const copied = await page.evaluate(() => navigator.clipboard.readText());
    const shown = await block.locator("pre").first().textContent();
    if (session) assert.ok(!/^>/m.test(copied) && shown.includes("> " + copied.split("\n")[0]), copied);
    else assert.strictEqual(copied, shown);
  }
});

test("paper has the text alone, and all of long lines", async (page) => {
  await page.emulateMedia({ media: "print" });
  await page.goto(address("attention.html"));
  for (const part of ["header", "#navigation", ".outline", "footer", ".code button"]) {
    assert.ok(!await page.locator(part).first().isVisible(), part);
  }
  assert.ok(await page.locator("main h1").isVisible());
  const cut = await page.locator("pre").evaluateAll((all) => all.filter((pre) => pre.scrollWidth > pre.clientWidth).length);
  assert.strictEqual(cut, 0);
});

// Without `make playground` no page links to it.
if (fs.existsSync(path.join(site, "playground", "index.html"))) {
  test("an example opens in the playground, runs when Run is pressed, and there is a way back", async (page) => {
    await page.goto(address("index.html"));
    const shown = await page.locator(".code").first().locator("samp").textContent();
    await page.locator("a.open").first().click();
    await page.waitForURL(/playground\/index\.html#lua=/);
    await page.locator("#run:enabled").click();
    await page.waitForFunction((text) => document.getElementById("output").textContent.includes(text),
      shown.split("\n")[0]);
    await page.locator("h1 a").click();
    await page.waitForURL(/(?<!playground)\/index\.html$/);
  });
}

test("a link to a heading shows it below the header", async (page) => {
  await page.goto(address("attention.html"));
  const name = await page.locator("main h2[id]").last().getAttribute("id");
  await page.goto("about:blank");
  await page.goto(address("attention.html") + "#" + name);
  await page.waitForFunction(() => window.scrollY > 0);
  const [top, header] = await page.evaluate((id) => [document.getElementById(id).getBoundingClientRect().top,
    document.querySelector("header").getBoundingClientRect().bottom], name);
  assert.ok(top >= header, `${top} ${header}`);
});

(async () => {
  const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: ARGUMENTS });
  let passed = 0;
  for (const { name, run, options } of tests) {
    const context = await browser.newContext({ viewport: WIDE, reducedMotion: "reduce", ...options });
    const page = await context.newPage();
    page.setDefaultTimeout(WAIT);
    const heard = [];
    page.on("console", (message) => heard.push("console: " + message.text()));
    page.on("pageerror", (error) => heard.push(String(error)));
    page.on("request", (request) => {
      if (!/^(file|data|blob):/.test(request.url())) heard.push("asked for " + request.url());
    });
    const start = Date.now();
    try {
      const note = await run(page, context);
      assert.deepStrictEqual(heard, []);
      console.log(`ok: ${name} (${note ? note + ", " : ""}${((Date.now() - start) / 1000).toFixed(1)} s)`);
      passed++;
    } catch (error) {
      console.log(`FAILED: ${name}\n  ${error.message}`);
    }
    await context.close();
  }
  await browser.close();
  console.log(`${passed} passed, ${tests.length - passed} failed`);
  process.exitCode = passed === tests.length ? 0 : 1;
})();
