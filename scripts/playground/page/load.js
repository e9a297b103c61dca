// Loads heed's WebAssembly and the files of examples: scripts that call window.playground(name, base64), since a page
// of file:// may not fetch.
import contents from "playground:contents";

const waiting = new Map(); // name → resolve

window.playground = (name, code) => {
  const resolve = waiting.get(name);
  waiting.delete(name);
  if (resolve) resolve(code);
};

/* The bytes of a script made by pack.mjs. */
function loadScript(name) {
  return new Promise((resolve, reject) => {
    waiting.set(name, resolve);
    const script = document.createElement("script");
    script.src = name + ".js";
    script.onerror = () => reject(new Error(`${name}.js could not be loaded`));
    document.head.append(script);
  });
}

export function fromBase64(code) {
  const binary = atob(code), bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/* The models that a script names, as "induction" or "scripts/examples/induction". */
export const modelsIn = (text) => contents.models.filter((name) =>
  new RegExp(`scripts/examples/${name}\\b|["'\\[]${name}["'\\]]`).test(text));

/* {path: bytes} of a model, loaded when a script first names it. */
const models = new Map();
export function loadModel(name) {
  if (!models.has(name)) {
    models.set(name, loadScript("model_" + name).then((files) => Object.fromEntries(Object.entries(files).flatMap(
      ([path, code]) => [path, "scripts/examples/" + path].map((name) => [name, fromBase64(code)])))));
    models.get(name).catch(() => models.delete(name));
  }
  return models.get(name);
}

// Small modules: one uses a vector, the other an exception's tag.
const VECTORS = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98,
  11];
const EXCEPTIONS = [0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 13, 3, 1, 0, 0];
const can = (bytes) => WebAssembly.validate(new Uint8Array(bytes));

/* What this browser lacks: "everything" if heed can't run here, "vectors" if it runs without SIMD, or null. */
export function lacking() {
  if (typeof WebAssembly !== "object" || typeof DecompressionStream !== "function" || !can(EXCEPTIONS)) return "everything";
  return can(VECTORS) ? null : "vectors";
}

let compiled;
/* The compiled module, which all workers share. */
export function loadModule() {
  if (!compiled) {
    compiled = loadScript(lacking() === "vectors" ? "heed_scalar" : "heed").then((code) => {
      const stream = new Blob([fromBase64(code)]).stream().pipeThrough(new DecompressionStream("gzip"));
      return new Response(stream).arrayBuffer();
    }).then((bytes) => WebAssembly.compile(bytes));
    compiled.catch(() => { compiled = null; });
  }
  return compiled;
}
