// Packs the playground: pack.mjs TOOLS WASM OUT
//   TOOLS  a folder in whose node_modules npm has installed the packages of package.json
//   WASM   a folder with heed.wasm.gz and heed_scalar.wasm.gz
//   OUT    gets index.html, style.css, page.js, heed.js, heed_scalar.js and model_NAME.js
// Everything that a page loads is a script, since pages of file:// may not fetch: WebAssembly and models are texts in
// base64, WebAssembly also as gzip.
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { fileURLToPath } from "node:url";

const [tools, wasm, out] = process.argv.slice(2).map((folder) => path.resolve(folder));
const here = path.dirname(fileURLToPath(import.meta.url)), top = path.resolve(here, "../..");
const esbuild = createRequire(path.join(tools, "package.json"))("esbuild");
const read = (...parts) => fs.readFileSync(path.join(...parts), "utf8");
const escapeMarkup = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;");

const SHARED = {
  bundle: true, minify: true, write: false, format: "iife", target: "es2022", loader: { ".lua": "text" },
  nodePaths: [path.join(tools, "node_modules")], logLevel: "warning",
};
async function build(file, more) {
  const { outputFiles } = await esbuild.build({ ...SHARED, entryPoints: [path.join(here, file)], ...more });
  return outputFiles[0].text;
}

// ---- What the page contains ----

const contents = JSON.parse(read(here, "contents.json"));
const models = ["induction", "names_llama"]; // of scripts/examples
for (const entry of contents.flatMap((group) => group.entries)) {
  entry.text = read(top, entry.file);
  entry.name = path.basename(entry.file);
  delete entry.file;
}

const worker = await build("worker.js", {});
const virtual = {
  name: "virtual",
  setup(builder) {
    builder.onResolve({ filter: /^(worker|playground):/ }, ({ path: name }) => ({ path: name, namespace: "virtual" }));
    builder.onLoad({ filter: /./, namespace: "virtual" }, ({ path: name }) => name === "worker:text"
      ? { contents: worker, loader: "text" }
      : { contents: JSON.stringify({ groups: contents, models }), loader: "json" });
  },
};
const page = await build("page/main.js", { plugins: [virtual] });

// ---- Files ----

fs.mkdirSync(out, { recursive: true });
const write = (name, text) => fs.writeFileSync(path.join(out, name), text);
const call = (name, value) => `playground(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`;

write("index.html", read(here, "index.html").replace("@FIRST@", () => escapeMarkup(contents[0].entries[0].text)));
write("style.css", read(here, "style.css"));
write("page.js", page);
for (const name of ["heed", "heed_scalar"]) {
  const bytes = fs.readFileSync(path.join(wasm, name + ".wasm.gz"));
  write(name + ".js", call(name, bytes.toString("base64")));
}
for (const model of models) {
  const files = {};
  for (const file of fs.readdirSync(path.join(top, "scripts/examples", model)).sort())
    files[`${model}/${file}`] = fs.readFileSync(path.join(top, "scripts/examples", model, file)).toString("base64");
  write(`model_${model}.js`, call("model_" + model, files));
}
