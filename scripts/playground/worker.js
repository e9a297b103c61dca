// The worker: one state of heed, which runs scripts. The page ends it to stop a script.
//   receives {start: module}, then {give: {path: bytes}}, {run: text, name, parameters}, {line: text} and
//            {read: name of a file}
//   sends    {out: text}, {err: text}, {picture: {name, type, data, file}}, {files: [{name, size}], more: how many others},
//            {file: name, data}, {flood: milliseconds}: it printed too much, and may go on for this long;
//            {failed: message}: nothing runs any more;
//            {done: true, false or "incomplete", ended: message or null, code} after {run} and {line}
const { createHeed } = require("./runtime.js");
const preparation = require("./session.lua");

const MOST_TEXT = 5e5;      // characters that a run may print
const MOST_ERRORS = 1e5;    // characters that it may write to stderr
const MOST_PICTURES = 200;  // pictures that a run may show
const MOST_SEQUENCE = 8e6;  // characters of one picture
const MOST_FILES = 200;     // files that are listed
const TYPES = { svg: "image/svg+xml", html: "text/html", png: "image/png" };

let heed, given = new Set(), shown = new Map(), printed = 0, pictures = 0, errors = 0, looked = 0;
let held = "";      // the end of the text, which may begin a picture
let picture = null; // {parts, size}: a picture whose end has not come

// file: whether it is one, which replaces what was shown of the same name
function showPicture(name, ending, data, file) {
  pictures++;
  if (pictures <= MOST_PICTURES) postMessage({ picture: { name, type: TYPES[ending], data, file } });
  if (pictures === MOST_PICTURES + 1) error(`heed: this run shows more than ${MOST_PICTURES} charts; the others are left out\n`);
}

function error(text) {
  errors += text.length;
  if (errors <= MOST_ERRORS) postMessage({ err: text });
  else if (errors - text.length <= MOST_ERRORS) postMessage({ flood: 0 });
}

// Text is posted; pictures within it ("\x1b]svg;title;…\x07") are shown where they were printed. Returns false when
// the run has printed too much.
function print(text) {
  const isLine = text.endsWith("\n");
  text = held + text;
  held = "";
  while (text !== "") {
    if (picture) {
      const end = text.indexOf("\x07"), part = end < 0 ? text : text.slice(0, end);
      picture.size += part.length;
      if (picture.size <= MOST_SEQUENCE) picture.parts.push(part);
      text = text.slice(part.length + 1);
      if (end >= 0) finishPicture("\x07");
      continue;
    }
    const begin = /\x1b(?:\](?:(?:svg|html);|[a-z]{0,4}$)|$)/.exec(text);
    post(begin ? text.slice(0, begin.index) : text);
    if (!begin) break;
    text = text.slice(begin.index + begin[0].length);
    if (begin[0].endsWith(";")) picture = { parts: [begin[0]], size: 0 };
    else held = begin[0];
  }
  if (isLine && Date.now() - looked > 500) showFiles();
  return printed <= MOST_TEXT;
}

// Shows the picture that `end` completes. What is none after all is text.
function finishPicture(end) {
  const text = picture.parts.join(""), found = end && /^\x1b\](svg|html);([^;]*);([^]*)$/.exec(text);
  if (picture.size > MOST_SEQUENCE) error(`heed: a chart of ${picture.size} characters is too large to be shown\n`);
  else if (found) showPicture(found[2] || "chart", found[1], found[3], false);
  else post(text + end);
  picture = null;
}

function post(text) {
  if (text === "" || printed > MOST_TEXT) return;
  printed += text.length;
  postMessage({ out: text });
  if (printed > MOST_TEXT) postMessage({ flood: 3000 });
}

const isSame = (a, b) => a && a.length === b.length && a.every((byte, i) => byte === b[i]);

// Charts and pages that were written since the last look are shown; all files of scripts are listed.
function showFiles() {
  looked = Date.now();
  const list = [];
  for (const name of heed.files.names()) {
    if (given.has(name)) continue;
    const data = heed.files.read(name), ending = /\.(svg|png|html)$/i.exec(name);
    list.push({ name, size: data.length });
    if (!ending || data.length === 0 || isSame(shown.get(name), data)) continue;
    shown.set(name, data);
    const kind = ending[1].toLowerCase();
    showPicture(name, kind, kind === "html" ? new TextDecoder().decode(data) : data, true);
  }
  postMessage({ files: list.slice(0, MOST_FILES), more: Math.max(0, list.length - MOST_FILES) });
}

async function start(module) {
  heed = await createHeed(module, { print, error });
  if (!heed.run(preparation, "=playground")) throw new Error("heed did not start");
}

function give(files) {
  for (const [name, bytes] of Object.entries(files)) {
    heed.files.write(name, bytes);
    given.add(name);
  }
}

function work(run) {
  printed = pictures = errors = 0;
  const done = run();
  if (picture) finishPicture("");
  post(held);
  held = "";
  showFiles();
  postMessage({ done, ended: heed.ended, code: heed.exitCode });
}

// The locals of the script are kept for the lines that follow. As the command, skips a first line that begins with #.
function runScript(text, name, parameters) {
  const list = parameters.map((parameter) => ", " + JSON.stringify(parameter)).join("");
  heed.run(`arg = { [0] = ${JSON.stringify(name)}${list} }`, "=playground");
  return heed.call(text.replace(/^\uFEFF?(?:#.*)?/, ""), "@" + name, true);
}

let before = Promise.resolve();
onmessage = ({ data }) => {
  before = before.then(async () => {
    if (data.start) await start(data.start);
    else if (data.give) give(data.give);
    else if (data.run !== undefined) work(() => runScript(data.run, data.name, data.parameters));
    else if (data.line !== undefined) work(() => heed.call(data.line, "=stdin"));
    else postMessage({ file: data.read, data: heed.files.read(data.read) });
  }).catch((problem) => postMessage({ failed: problem.message }));
};
