--- The script of plot.attention's page, as text. attention_data.lua describes the packed weights.
return [==[
"use strict";
(function () {
const began = performance.now();
const byId = (id) => document.getElementById(id);
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
const data = JSON.parse(byId("data").textContent);
const queries = data.queries, keys = data.keys || data.queries;
const l = queries.length, s = keys.length;
const SMALL = 64;    // most pixels of a side of a small map
const TOKEN = 20;    // height of a token in the lists

// ---- Data ----

function decode(id) {
  const text = atob(byId(id).textContent), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  byId(id).textContent = "";
  return bytes;
}

const heads = [];    // {layer, head}, counted from 1, in order
data.heads.forEach((count, i) => { for (let h = 1; h <= count; h++) heads.push({ layer: i + 1, head: h }); });
const bytes = decode("weights"), maskBytes = decode("masks");
const dense = data.form === "dense";

// The masks: 1 where a key is hidden from a query, [l * s].
const masks = [null];
for (let at = 0; at < maskBytes.length;) {
  const mask = new Uint8Array(l * s);
  for (let q = 0; q < l; q++) {
    for (let k = 0, state = 0; k < s; state = 1 - state) {
      let run = 0;
      while (maskBytes[at] === 255) { run += 255; at++; }
      run += maskBytes[at++];
      if (state) mask.fill(1, q * s + k, q * s + k + run);
      k += run;
    }
  }
  masks.push(mask);
}

// Sparse weights: row r of all heads has the entries start[r] to start[r + 1] - 1, each with a key and a level.
let start, entryKey, entryLevel, rests;
if (!dense) {
  const rows = heads.length * l;
  start = new Uint32Array(rows + 1);
  entryKey = new Uint32Array(bytes.length / 2);
  entryLevel = new Uint8Array(bytes.length / 2);
  rests = new Uint8Array(rows);
  let n = 0;
  for (let r = 0, at = 0; r < rows; r++) {
    const count = bytes[at++];
    rests[r] = bytes[at++];
    for (let i = 0, key = -1; i < count; i++) {
      while (bytes[at] === 255) { key += 255; at++; }
      key += bytes[at++] + 1;
      entryKey[n] = key;
      entryLevel[n++] = bytes[at++];
    }
    start[r + 1] = n;
  }
}

const weightOf = (level) => data.scale * (dense ? level / 65534 : (level / 255) ** 2);
const colourOf = (level) => dense ? Math.round(255 * Math.sqrt(level / 65534)) : level;

// Calls visit(key, level) for the weights of a row that the page has and that are not hidden.
function eachOfRow(index, q, visit) {
  if (dense) {
    for (let k = 0, at = 2 * (index * l + q) * s; k < s; k++, at += 2) {
      const level = bytes[at] + 256 * bytes[at + 1];
      if (level < 65535) visit(k, level);
    }
  } else {
    for (let i = start[index * l + q]; i < start[index * l + q + 1]; i++) visit(entryKey[i], entryLevel[i]);
  }
}

function isHidden(index, q, k) {
  if (dense) {
    const at = 2 * ((index * l + q) * s + k);
    return bytes[at] === 255 && bytes[at + 1] === 255;
  }
  const mask = data.maskOf && masks[data.maskOf[index]];
  return Boolean(mask && mask[q * s + k]);
}

// The level of one weight: -1 if it is hidden, null if it is part of the rest.
function levelAt(index, q, k) {
  if (isHidden(index, q, k)) return -1;
  let found = null;
  eachOfRow(index, q, (key, level) => { if (key === k) found = level; });
  return found;
}

// ---- Drawing ----

const palette = new Uint32Array(256);  // RGBA, as in the bytes of a canvas
{
  const view = new DataView(palette.buffer);
  for (let i = 0; i < 256; i++) view.setUint32(4 * i, parseInt(data.colours.slice(6 * i, 6 * i + 6), 16) * 256 + 255);
}
const faded = new Uint32Array(palette);
new Uint8Array(faded.buffer).forEach((_, i, all) => { if (i % 4 === 3) all[i] = 50; });

let matches = null;  // {queries, keys}: 1 where a token matches the search

// A map of w x h pixels for a head. Places that share a pixel show the largest weight; a pixel is hidden if all are.
const reduced = new Map();  // hidden pixels of a mask, by its number
function hiddenPixels(mask, w, h) {
  const pixels = new Uint8Array(w * h).fill(1);
  for (let q = 0; q < l; q++) {
    const row = Math.floor(q * h / l) * w;
    for (let k = 0; k < s; k++) if (!mask[q * s + k]) pixels[row + Math.floor(k * w / s)] = 0;
  }
  return pixels;
}

function drawMap(canvas, index, w, h) {
  canvas.width = w;
  canvas.height = h;
  const levels = new Int16Array(w * h), lit = matches && new Uint8Array(w * h);
  if (dense) {
    levels.fill(-1);
  } else if (data.maskOf && data.maskOf[index]) {
    const number = data.maskOf[index], name = number + "," + w;
    if (!reduced.has(name)) reduced.set(name, hiddenPixels(masks[number], w, h));
    reduced.get(name).forEach((hidden, at) => { if (hidden) levels[at] = -1; });
  }
  for (let q = 0; q < l; q++) {
    const row = Math.floor(q * h / l) * w, rowLit = matches && matches.queries[q];
    eachOfRow(index, q, (k, level) => {
      const at = row + Math.floor(k * w / s), colour = colourOf(level);
      if (colour > levels[at]) levels[at] = colour;
      if (matches && (rowLit || matches.keys[k])) lit[at] = 1;
    });
  }
  const context = canvas.getContext("2d"), image = context.createImageData(w, h);
  const pixels = new Uint32Array(image.data.buffer);
  for (let at = 0; at < pixels.length; at++) {
    if (levels[at] >= 0) pixels[at] = (lit && !lit[at] ? faded : palette)[levels[at]];
  }
  context.putImageData(image, 0, 0);
}

{
  const canvas = byId("scale"), context = canvas.getContext("2d"), image = context.createImageData(256, 1);
  new Uint32Array(image.data.buffer).forEach((_, i, all) => { all[i] = palette[i]; });
  context.putImageData(image, 0, 0);
  byId("middle").textContent = String(Number((data.scale / 4).toPrecision(3)));  // colours follow the square root
  byId("most").textContent = String(Number(data.scale.toPrecision(3)));
}

// ---- All heads ----

const cards = [];    // by head: {button, canvas}
const rows = [];     // by layer
const most = Math.max(...data.heads);
const top = make("div", { className: "row top" });
top.append(make("span", { className: "name", textContent: "Head" }));
const numbers = [];
for (let h = 1; h <= most; h++) {
  numbers.push(make("span", { textContent: h }));
  top.append(numbers[h - 1]);
}
byId("overview").append(top);
heads.forEach((place, index) => {
  if (place.head === 1) {
    rows.push(make("div", { className: "row" }));
    rows[place.layer - 1].append(make("span", { className: "name", textContent: "Layer " + place.layer }));
    byId("overview").append(rows[place.layer - 1]);
  }
  const button = make("button", { type: "button", tabIndex: index ? -1 : 0 });
  const canvas = make("canvas", { className: "small" });
  button.setAttribute("aria-label", "Layer " + place.layer + ", head " + place.head);
  button.title = "Layer " + place.layer + ", head " + place.head;
  button.append(canvas);
  button.addEventListener("click", () => open(index));
  rows[place.layer - 1].append(button);
  cards.push({ button, canvas });
});

let drawn = 0;
function drawOverview() {
  cards.forEach((card, index) => {
    drawMap(card.canvas, index, Math.min(s, SMALL), Math.min(l, SMALL));
    drawn++;
  });
}

const layerChoice = byId("layer"), headChoice = byId("head");
layerChoice.append(make("option", { value: "", textContent: "all" }));
data.heads.forEach((_, i) => layerChoice.append(make("option", { value: i + 1, textContent: i + 1 })));
headChoice.append(make("option", { value: "", textContent: "all" }));
for (let h = 1; h <= most; h++) headChoice.append(make("option", { value: h, textContent: h }));

function isShown(index) {
  const place = heads[index];
  return (!layerChoice.value || place.layer === Number(layerChoice.value)) &&
    (!headChoice.value || place.head === Number(headChoice.value));
}

function filter() {
  cards.forEach((card, index) => { card.button.hidden = !isShown(index); });
  rows.forEach((row, i) => { row.hidden = Boolean(layerChoice.value) && i + 1 !== Number(layerChoice.value); });
  numbers.forEach((name, i) => { name.hidden = Boolean(headChoice.value) && i + 1 !== Number(headChoice.value); });
  const first = heads.findIndex((_, index) => isShown(index));
  if (first >= 0 && !isShown(current)) {
    moveTo(first);
    if (isOpen) open(first);
  }
}
layerChoice.addEventListener("change", filter);
headChoice.addEventListener("change", filter);

let current = 0, isOpen = false;

function moveTo(index) {
  cards[current].button.tabIndex = -1;
  current = index;
  cards[current].button.tabIndex = 0;
}

// The next head that is shown in a direction; the same one at the border.
function neighbour(down, right) {
  let { layer, head } = heads[current];
  for (;;) {
    layer += down;
    head += right;
    if (layer < 1 || head < 1 || layer > data.heads.length || head > most) return current;
    const index = heads.findIndex((place) => place.layer === layer && place.head === head);
    if (index >= 0 && isShown(index)) return index;
  }
}

// ---- One head ----

const visible = (label) => label === "" ? "∅" : label;
const number = (w) => w >= 0.0995 ? w.toFixed(2) : w >= 0.00095 ? w.toFixed(3) : w > 0 ? "<0.001" : "0";
let kept = null;     // the query that stays selected
const fromTokens = queries.map((label, q) => {
  const token = make("div", { className: "token", textContent: visible(label), title: label, dir: "auto" });
  token.setAttribute("role", "option");
  token.setAttribute("aria-selected", "false");
  token.tabIndex = q ? -1 : 0;
  token.addEventListener("pointerenter", () => showQuery(q));
  token.addEventListener("pointerleave", showKept);
  token.addEventListener("focus", () => showQuery(q));
  token.addEventListener("click", () => keep(q));
  return token;
});
const toTokens = keys.map((label, k) => {
  const token = make("div", { className: "token", title: label });
  token.setAttribute("role", "listitem");
  token.append(make("span", { textContent: visible(label), dir: "auto" }), make("b"));
  token.addEventListener("pointerenter", () => showKey(k));
  token.addEventListener("pointerleave", showKept);
  return token;
});
byId("from").append(...fromTokens);
byId("to").append(...toTokens);
byId("curves").style.height = Math.max(l, s) * TOKEN + "px";

const cell = Math.max(1, Math.min(28, Math.floor(520 / Math.max(l, s))));
const side = byId("side"), over = byId("over"), map = byId("map");
map.style.width = s * cell + "px";
map.style.height = l * cell + "px";
if (cell >= 12) {
  const size = (name) => (label) => {
    const token = make("div", { textContent: visible(label), dir: "auto" });
    token.style[name] = token.style.lineHeight = cell + "px";
    return token;
  };
  side.append(...queries.map(size("height")));
  over.append(...keys.map(size("width")));
}

function open(index) {
  moveTo(index);
  isOpen = true;
  byId("overview").hidden = true;
  byId("detail").hidden = false;
  const place = heads[index];
  byId("name").textContent = "Layer " + place.layer + ", head " + place.head;
  drawMap(map, index, s, l);
  map.setAttribute("aria-label", "Weights of layer " + place.layer + ", head " + place.head +
    "; the list of queries beside it reads them");
  showKept();
  if (!byId("detail").contains(document.activeElement)) byId("close").focus();
}

function close() {
  isOpen = false;
  kept = null;
  byId("overview").hidden = false;
  byId("detail").hidden = true;
  cards[current].button.focus();
}
byId("close").addEventListener("click", close);

function clearTokens() {
  fromTokens.forEach((token) => { token.classList.remove("on", "reached"); });
  toTokens.forEach((token) => {
    token.classList.remove("on", "reached");
    token.lastChild.textContent = "";
  });
  for (const token of [...side.children, ...over.children]) token.classList.remove("on");
}

// Curves for links [query, key, weight]; the strongest are widest.
function drawCurves(links) {
  const curves = byId("curves"), width = curves.clientWidth || 144;
  curves.replaceChildren(...links.map(([q, k, w]) => {
    const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
    const y1 = (q + 0.5) * TOKEN, y2 = (k + 0.5) * TOKEN, strength = Math.sqrt(w / data.scale);
    path.setAttribute("d", `M0 ${y1}C${width / 2} ${y1} ${width / 2} ${y2} ${width} ${y2}`);
    path.setAttribute("stroke-width", (0.5 + 4 * strength).toFixed(2));
    path.setAttribute("stroke-opacity", (0.1 + 0.8 * strength).toFixed(3));
    return path;
  }));
}

function rowOf(q) {
  const links = [];
  eachOfRow(current, q, (k, level) => links.push([q, k, weightOf(level)]));
  return links;
}

const restOf = (q) => rests[current * l + q] / 255 * data.scale;
const listed = (links, name) => links.slice(0, 6).filter((link) => link[2] >= 0.001)
  .map((link) => name(link) + " " + number(link[2])).join(", ") || "nothing";
const named = (label, i) => "“" + visible(label) + "” (" + (i + 1) + ")";

function showQuery(q) {
  clearTokens();
  const links = rowOf(q), sorted = [...links].sort((a, b) => b[2] - a[2]);
  drawCurves(sorted.slice(0, 64));
  fromTokens[q].classList.add("on");
  if (side.children[q]) side.children[q].classList.add("on");
  for (const [, k, w] of links) {
    toTokens[k].lastChild.textContent = number(w);
    if (w >= 0.05 * data.scale) toTokens[k].classList.add("reached");
    toTokens[k].classList.toggle("faint", w < 0.01 * data.scale);
  }
  byId("status").textContent = named(queries[q], q) + " → " + listed(sorted, ([, k]) => named(keys[k], k)) +
    (dense ? "" : "; the rest " + number(restOf(q)));
}

function showKey(k) {
  clearTokens();
  const links = [];
  for (let q = 0; q < l; q++) {
    eachOfRow(current, q, (key, level) => { if (key === k) links.push([q, k, weightOf(level)]); });
  }
  links.sort((a, b) => b[2] - a[2]);
  drawCurves(links.slice(0, 64));
  toTokens[k].classList.add("on");
  if (over.children[k]) over.children[k].classList.add("on");
  for (const [q, , w] of links) if (w >= 0.05 * data.scale) fromTokens[q].classList.add("reached");
  byId("status").textContent = named(keys[k], k) + " ← " + listed(links, ([q]) => named(queries[q], q));
}

function showCell(q, k) {
  showQuery(q);
  toTokens[k].classList.add("on");
  if (over.children[k]) over.children[k].classList.add("on");
  const level = levelAt(current, q, k);
  byId("status").textContent = named(queries[q], q) + " → " + named(keys[k], k) + ": " +
    (level === -1 ? "hidden" : level === null ? "part of the rest, " + number(restOf(q)) + " together"
      : number(weightOf(level)));
}

// Without a chosen token: the links of all, from a weight of 0.1 on and at most 400.
function showKept() {
  if (!isOpen) return;
  if (kept !== null) return showQuery(kept);
  clearTokens();
  const links = [];
  for (let q = 0; q < l; q++) {
    if (!matches || matches.queries[q]) links.push(...rowOf(q).filter((link) => link[2] >= 0.1 * data.scale));
  }
  links.sort((a, b) => b[2] - a[2]);
  drawCurves(links.slice(0, 400));
  byId("status").textContent = "Point at a token or at a place of the map.";
}

function keep(q) {
  kept = kept === q ? null : q;
  fromTokens.forEach((token, i) => {
    token.setAttribute("aria-selected", String(i === kept));
    token.tabIndex = i === q ? 0 : -1;
  });
  if (kept === null) showKept(); else showQuery(q);
}

function placeOf(event) {
  const box = map.getBoundingClientRect();
  const within = (x, n) => Math.max(0, Math.min(n - 1, Math.floor(x * n)));
  return [within((event.clientY - box.top) / box.height, l), within((event.clientX - box.left) / box.width, s)];
}
map.addEventListener("pointermove", (event) => showCell(...placeOf(event)));
map.addEventListener("pointerleave", showKept);
map.addEventListener("click", (event) => {
  const q = placeOf(event)[0];
  keep(q);
  if (kept !== null) fromTokens[q].scrollIntoView({ block: "nearest" });
});

// ---- Search ----

const search = byId("search");
search.addEventListener("input", () => {
  const wanted = search.value.toLowerCase();
  const match = (list) => Uint8Array.from(list, (label) => label.toLowerCase().includes(wanted) ? 1 : 0);
  matches = wanted ? { queries: match(queries), keys: match(keys) } : null;
  fromTokens.forEach((token, q) => token.classList.toggle("found", Boolean(matches && matches.queries[q])));
  toTokens.forEach((token, k) => token.classList.toggle("found", Boolean(matches && matches.keys[k])));
  const count = matches ? matches.keys.reduce((sum, x) => sum + x, 0) : 0;
  byId("found").textContent = matches ? count + (count === 1 ? " token" : " tokens") : "";
  drawOverview();
  if (isOpen) open(current);
  report();
});
search.addEventListener("keydown", (event) => {
  const first = matches ? matches.queries.indexOf(1) : -1;
  if (event.key === "Enter" && first >= 0 && isOpen) {
    kept = null;
    keep(first);
    fromTokens[first].focus();
  }
});

// ---- Keys and theme ----

const STEPS = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const target = event.target, step = STEPS[event.key];
  if (event.key === "Escape") {
    if (target === search && search.value) {
      search.value = "";
      search.dispatchEvent(new Event("input"));
    } else if (kept !== null) {
      keep(kept);
    } else if (isOpen) {
      close();
    }
    return event.preventDefault();
  }
  if (target.matches("input, select")) return;
  if (event.key === "/") {
    search.focus();
    return event.preventDefault();
  }
  const q = fromTokens.indexOf(target);
  if (q >= 0 && (event.key === "Enter" || event.key === " ")) {
    keep(q);
    return event.preventDefault();
  }
  if (!step) return;
  event.preventDefault();
  if (q >= 0 && step[0]) {
    const next = fromTokens[q + step[0]];
    if (!next) return;
    target.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  } else if (isOpen) {
    open(neighbour(...step));
    if (q >= 0) showQuery(q);
  } else {
    moveTo(neighbour(...step));
    cards[current].button.focus();
  }
});

const root = document.documentElement, theme = byId("theme");
const preference = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => root.dataset.theme ? root.dataset.theme === "dark" : preference.matches;
const nameTheme = () => { theme.textContent = isDark() ? "Light" : "Dark"; };
theme.addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
preference.addEventListener("change", nameTheme);
nameTheme();

// What the tests read: how many small maps were drawn, and the milliseconds until they were.
function report() {
  root.dataset.drawn = drawn;
}
drawOverview();
report();
root.dataset.milliseconds = Math.round(performance.now() - began);
if (data.open) open(heads.findIndex((place) => place.layer === data.open[0] && place.head === data.open[1]));
})();
]==]
