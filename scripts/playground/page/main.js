// The page of the playground: the editor, the output, and what the buttons do.
import contents from "playground:contents";
import { createEditor } from "./editor.js";
import * as links from "./links.js";
import { lacking, loadModel, loadModule, modelsIn } from "./load.js";
import { Output } from "./output.js";
import { Prompt } from "./prompt.js";
import { Session } from "./session.js";
import { followTheme, keep, kept } from "./settings.js";

const element = (id) => document.getElementById(id);
const status = (text) => { element("status").textContent = text; };
const FIRST = contents.groups[0].entries[0];
const PLAIN = { name: "script.lua" };

followTheme(element("theme"));

const missing = lacking();
if (missing) {
  element("note").hidden = false;
  element("note").textContent = missing === "vectors"
    ? "This browser's WebAssembly has no SIMD: heed runs with its scalar kernels, several times slower."
    : "This browser can't run heed: its WebAssembly has no exceptions, or there is none. A newer one can. Scripts can be "
      + "read and changed here.";
}

// ---- Running ----

let setup = PLAIN; // of the script in the editor: its name and parameters
let ran = null; // the script that ran last: {text, name}
let running = false, runs = 0, begun = 0, flood = 0, last_error = "";

const output = new Output(element("output"));
const session = missing === "everything" ? null : new Session(loadModule, { message: receive, failed });
const prompt = new Prompt(element("prompt"), element("line"), element("mark"), (text) => {
  if (running) return false;
  if (session.ended) session.renew();
  output.addLine("input", (prompt.isContinued ? ">> " : "> ") + text.split("\n").pop());
  output.follows = true;
  start("");
  send(text, { line: text });
  return true;
});

function setRunning(value) {
  running = value;
  clearTimeout(flood);
  element("run").disabled = running || !session;
  element("stop").disabled = !running;
  element("output").setAttribute("aria-busy", String(running));
  for (const button of element("list").querySelectorAll("button")) button.disabled = running;
}

function start(message) {
  last_error = "";
  editor.markLine(0);
  setRunning(true);
  begun = performance.now();
  status(message);
}

// Sends what is to be run, after the models that its text names.
async function send(text, message) {
  const run = ++runs;
  try {
    for (const name of modelsIn(text)) {
      const files = await loadModel(name);
      if (!running || run !== runs) return; // Stop came first
      session.give(name, files);
    }
  } catch (problem) {
    return failed(problem.message);
  }
  session.post(message);
}

// Each run has a new state, so that it gives the same whatever ran before.
function run() {
  if (running || !session) return;
  start("Running…");
  const text = editor.text(), { name, parameters = [] } = setup;
  ran = { text, name };
  output.clear();
  showFiles([]);
  prompt.reset();
  element("output").scrollIntoView({ block: "nearest" }); // on a phone it is below the script
  if (session.used) session.renew();
  send(text, { run: text, name, parameters });
}

function stop(message) {
  if (!running) return;
  session.renew();
  setRunning(false);
  showFiles([]); // they went with the state
  prompt.reset();
  output.addLine("note", message);
  output.flush();
  status("Stopped. The state is new: lines below the output begin without variables.");
}

function failed(problem) {
  setRunning(false);
  showFiles([]);
  prompt.reset();
  output.addLine("error", `heed: nothing runs any more: ${problem}`);
  output.flush();
  status("Ended. The next run begins with a new state.");
}

function receive(data) {
  if (data.out !== undefined) output.add("out", data.out);
  else if (data.err !== undefined) {
    last_error += data.err;
    output.add("error", data.err);
  } else if (data.picture) output.picture(data.picture);
  else if (data.files) showFiles(data.files, data.more);
  else if (data.file !== undefined) download(data.file, data.data);
  else if (data.flood !== undefined) flood = setTimeout(stop, data.flood, "stopped: it printed too much; the state is new");
  else finish(data);
}

function finish({ done, ended, code }) {
  const seconds = ((performance.now() - begun) / 1000).toFixed(2);
  setRunning(false);
  prompt.finish(done === "incomplete");
  markError();
  if (ended) {
    const ends = code === null ? "" : ` with exit code ${code}`;
    output.addLine("note", `ended${ends}; the state is new`);
    session.ended = true;
  }
  output.flush();
  if (done === "incomplete") status("The line goes on: write its next part.");
  else if (done) status(`Finished in ${seconds} s.`);
  else status(`Ended with an error after ${seconds} s.`);
}

// Marks the line of the script that the error names, or the first one in its traceback, unless the editor has another
// script by now.
function markError() {
  if (!ran || ran.text !== editor.text()) return;
  const name = ran.name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  const found = new RegExp(`(?:^heed: |\\t)${name}:(\\d+):`, "m").exec(last_error);
  if (found) editor.markLine(Number(found[1]));
}

// ---- Files ----

function showFiles(list, more = 0) {
  element("files").hidden = list.length === 0;
  element("list").replaceChildren(...list.map(({ name, size }) => {
    const item = document.createElement("li"), label = document.createElement("span");
    label.textContent = `${name} (${size.toLocaleString("en")} ${size === 1 ? "byte" : "bytes"})`;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Download";
    button.setAttribute("aria-label", "Download " + name);
    button.disabled = running;
    button.onclick = () => session.post({ read: name });
    item.append(label, button);
    return item;
  }));
  if (more > 0) {
    const item = document.createElement("li");
    item.textContent = `and ${more.toLocaleString("en")} more`;
    element("list").append(item);
  }
}

function download(name, data) {
  if (!data) return;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([data]));
  link.download = name.split("/").pop();
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// ---- Scripts ----

let setting = false; // the page changes the text, not the reader
const editor = createEditor(element("editor"), {
  run,
  changed(text) {
    if (setting) return;
    keepScript(text);
  },
});

// A reload shows this script again, and not that of the link any more.
function keepScript(text) {
  keep("script", text);
  keep("example", setup.id || "");
  if (location.hash) history.replaceState(null, "", location.href.split("#")[0]);
}

function show(text, next) {
  setting = true;
  editor.set(text);
  setting = false;
  setup = next;
}

const entries = new Map();
for (const { title, entries: list } of contents.groups) {
  const group = document.createElement("optgroup");
  group.label = title;
  for (const entry of list) {
    entries.set(entry.id, entry);
    group.append(new Option(entry.title, entry.id));
  }
  element("open").append(group);
}

function openEntry(entry) {
  show(entry.text, entry);
  keepScript(entry.text);
  status(`Opened ${entry.name}. Ctrl-Z in the editor brings back the text before it.`);
}

element("open").onchange = () => {
  const entry = entries.get(element("open").value);
  element("open").value = "";
  if (entry) openEntry(entry);
};

// A link comes before the text of the last visit, which is kept until the reader edits.
function readLink() {
  const found = links.decode(location.hash);
  const chosen = /^#open=(.*)$/.exec(location.hash);
  if (found && found.problem) {
    show("", PLAIN);
    status("The link carries no script.");
    output.clear();
    output.addLine("error", found.problem);
    output.flush();
  } else if (found) {
    show(found.text, PLAIN);
    status("The script of the link. It has not run yet.");
  } else if (chosen && entries.has(chosen[1])) {
    show(entries.get(chosen[1]).text, entries.get(chosen[1]));
  } else {
    return false;
  }
  return true;
}

async function share() {
  if (editor.text() === "") return status("There is no script to share.");
  const fragment = links.encode(editor.text());
  if (!fragment) return status(`The script is too long for a link of ${links.MOST} characters.`);
  history.replaceState(null, "", fragment);
  try {
    await navigator.clipboard.writeText(location.href);
    status("The link is in the clipboard, and in the address bar.");
  } catch {
    status("The link is in the address bar.");
  }
}

if (!readLink()) {
  const text = kept("script");
  if (text !== null) show(text, entries.get(kept("example")) || PLAIN);
  else show(FIRST.text, FIRST);
}
addEventListener("hashchange", readLink);

// ---- Buttons ----

setRunning(false);
element("line").disabled = !session;
element("run").onclick = run;
element("stop").onclick = () => stop("stopped; the state is new");
element("share").onclick = share;
element("clear").onclick = () => { output.clear(); status("Cleared."); };
addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.defaultPrevented) {
    event.preventDefault();
    run();
  }
});
