// The worker: one state of heed, which runs scripts. The page ends it to stop a script.
//   receives {start: {module, files, name, parameters}}, then {run: text} once, and {line: text}
//   sends    {ready}, {out: text}, {err: text}, {picture: {name, type, data}}, {files: [{name, size}]},
//            {done: true, false or "incomplete", ended: message or null, code}, {file: name, data}
const { createHeed } = require("./runtime.js");
const preparation = require("./session.lua");

const MOST_TEXT = 4e6;      // characters that a run may print
const MOST_PICTURES = 200;  // pictures that a run may show
const MOST_SEQUENCE = 8e6;  // characters of one picture
const TYPES = { svg: "image/svg+xml", html: "text/html", png: "image/png" };

let heed, chunk, given, shown = new Map(), printed = 0, pictures = 0, held = "", looked = 0;

function showPicture(name, ending, data) {
  if (++pictures > MOST_PICTURES) return;
  postMessage({ picture: { name, type: TYPES[ending], data } });
}

// Text is posted; pictures within it ("\x1b]svg;title;…\x07") are shown at their place. What may be the beginning of
// one is held until its end comes. Returns false when the run has printed too much.
function print(text) {
  text = held + text;
  held = "";
  for (;;) {
    const begin = text.indexOf("\x1b]"), end = begin < 0 ? -1 : text.indexOf("\x07", begin);
    if (begin < 0) break;
    post(text.slice(0, begin));
    if (end < 0) {
      held = text.length - begin < MOST_SEQUENCE ? text.slice(begin) : "";
      text = "";
      break;
    }
    const picture = /^(svg|html);([^;]*);([^]*)$/.exec(text.slice(begin + 2, end));
    if (picture) showPicture(picture[2] || "chart", picture[1], picture[3]);
    else post(text.slice(begin, end + 1));
    text = text.slice(end + 1);
  }
  post(text);
  if (Date.now() - looked > 500) showFiles();
  return printed <= MOST_TEXT;
}

function post(text) {
  if (text === "" || printed > MOST_TEXT) return;
  printed += text.length;
  postMessage({ out: text });
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
    showPicture(name, kind, kind === "html" ? new TextDecoder().decode(data) : data);
  }
  postMessage({ files: list });
}

async function start({ module, files, name, parameters }) {
  given = new Set(Object.keys(files));
  chunk = "@" + name;
  heed = await createHeed(module, { print, error: (text) => postMessage({ err: text }), files });
  const quote = (text) => JSON.stringify(text);
  const list = parameters.map(quote).join(", ");
  heed.run(`${preparation}\narg = { [0] = ${quote(name)}, ${list} }`, "=(playground)");
  postMessage({ ready: true });
}

function work(run) {
  printed = pictures = 0;
  held = "";
  const done = run();
  showFiles();
  postMessage({ done, ended: heed.ended, code: heed.exitCode });
}

// A call that keeps the locals for the lines that follow; what is not complete is reported as a script's error is.
function runScript(text) {
  if (!heed.call) return heed.run(text, chunk);
  const done = heed.call(text, chunk);
  return done === "incomplete" ? heed.run(text, chunk) : done;
}

let begun = Promise.resolve();
onmessage = ({ data }) => {
  begun = begun.then(async () => {
    if (data.start) await start(data.start);
    else if (data.run !== undefined) work(() => runScript(data.run));
    else if (data.line !== undefined) work(() => heed.call(data.line, "=prompt"));
    else if (data.read !== undefined) postMessage({ file: data.read, data: heed.files.read(data.read) });
  }).catch((problem) => postMessage({ failed: String(problem && problem.message || problem) }));
};
