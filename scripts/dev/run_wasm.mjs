// Runs a program for WASI (WebAssembly) in the current folder; ends with its exit code.
//   node --no-warnings --no-turbo-fast-api-calls --experimental-wasi-unstable-preview1 run_wasm.mjs PROGRAM [ARGUMENT...]
import { readFileSync } from "node:fs";
import { WASI } from "node:wasi";

const args = process.argv.slice(2);
const wasi = new WASI({ version: "preview1", args, env: process.env, preopens: { ".": "." }, returnOnExit: true });
const imports = { wasi_snapshot_preview1: wasi.wasiImport };
const { instance } = await WebAssembly.instantiate(readFileSync(args[0]), imports);
process.exitCode = wasi.start(instance);
