// Tests heed in WebAssembly, in node: run.js BUILD, with build/heed, and build/playground of `make playground`. Names
// each test, and ends with "N passed, N failed".
"use strict";
const assert = require("assert");
const fs = require("fs");
const path = require("path");
const zlib = require("zlib");
const { playground, start, native, compare, filesIn } = require("./support.js");

const MOST_BYTES = 900e3; // of heed.wasm.gz; with the page, everything that is loaded has to stay below 1 MB (2 ** 20)

const tests = [];
const test = (name, run) => tests.push({ name, run });
const both = (name, run) => {
  for (const module of ["heed", "heed_scalar"]) test(`${name} (${module})`, () => run(module));
};

// Runs a script in a new state; it must succeed, and write no error.
async function outputOf(module, script, name, options) {
  const heed = await start(module, options);
  const done = heed.run(script, name), { out, err } = heed.take();
  assert.strictEqual(err, "");
  assert.strictEqual(done, true);
  return { out, heed };
}

// Runs a script that fails; its error.
function errorOf(heed, script) {
  assert.strictEqual(heed.run(script, "=demo"), false);
  return heed.take().err;
}

// ---- What is computed ----

for (const name of ["simple_attention", "coding_attention", "production_attention", "step_by_step", "weight_split"]) {
  both(`the notebook ${name} prints the expected text`, async (module) => {
    const script = fs.readFileSync(`scripts/notebooks/${name}.lua`);
    compare(fs.readFileSync(`tests/expected/${name}.txt`), (await outputOf(module, script, `@${name}.lua`)).out);
  });
}

both("numbers are those of the command", async (module) => {
  const file = "tests/playground/numbers.lua", script = fs.readFileSync(file);
  compare(native([file]).out, (await outputOf(module, script, "@numbers.lua")).out);
});

test("the kernels are those that the module and HEED_CPU say", async () => {
  const script = "print(heed.info().kernels, heed.info().processor, heed.get_num_threads())";
  assert.strictEqual((await outputOf("heed", script)).out, "wasm\tWebAssembly\t1\n");
  assert.strictEqual((await outputOf("heed_scalar", script)).out, "scalar\tWebAssembly\t1\n");
  const scalar = { environment: { HEED_CPU: "scalar" } };
  assert.strictEqual((await outputOf("heed", script, "=demo", scalar)).out, "scalar\tWebAssembly\t1\n");
});

for (const [name, folder] of [["hello"], ["attention_zoo"], ["induction", "scripts/examples/induction"], ["logit_lens"]]) {
  test(`the example ${name} prints what the command prints`, async () => {
    const file = `scripts/examples/${name}.lua`;
    const files = { ...filesIn("scripts/examples/induction"), ...(folder ? filesIn(folder) : {}) };
    const heed = await start("heed", { files });
    heed.run(`arg = { [0] = "${file}" }`);
    heed.run(fs.readFileSync(file), "@" + file);
    const { out, err } = heed.take();
    assert.strictEqual(err, "");
    compare(native([file]).out, out);
  });
}

test("a Llama continues a text", async () => {
  const file = "scripts/examples/chat_with_tiny_llama.lua";
  const files = { "tests/golden/tiny_llama.safetensors": fs.readFileSync("tests/golden/tiny_llama.safetensors") };
  const heed = await start("heed", { files });
  heed.run(`arg = { [0] = "${file}", "Once " }`);
  heed.run(fs.readFileSync(file), "@" + file);
  assert.strictEqual(heed.take().out, native([file, "Once "]).out);
});

// ---- Errors ----

both("errors are printed with a traceback, as by the command", async (module) => {
  const heed = await start(module);
  assert.strictEqual(errorOf(heed, "heed.ones(2, 3):matmul(heed.ones(2, 3))"),
    "heed: demo:1: matmul: a is [2, 3] and b is [2, 3]; the last size of a (3) must equal the first size of b (2)\n" +
    "stack traceback:\n\t[C]: in function 'heed.matmul'\n\tdemo:1: in main chunk\n");
  assert.strictEqual(errorOf(heed, "x = = 3"), "heed: demo:1: unexpected symbol near '='\n");
  assert.match(errorOf(heed, "error {}"), /^heed: \(error object is a table value\)\nstack traceback:/);
  assert.match(errorOf(heed, "error()"), /^heed: \(error object is a nil value\)\nstack traceback:/);
  assert.strictEqual(errorOf(heed, "error(setmetatable({}, { __tostring = function() return 'mine' end }))"), "heed: mine\n");
  assert.match(errorOf(heed, "print(heed.softmx)"), /'softmx'; did you mean 'softmax'\?/);
  assert.match(errorOf(heed, "\x1bLua"), /^heed: .*binary chunk/);
});

both("recursion without end is an error, and the state stays usable", async (module) => {
  const heed = await start(module);
  const scripts = [
    "local function f() return 1 + f() end f()",
    "local function f() local ok, e = pcall(f) if not ok then error(e, 0) end end f()",
    "local t = setmetatable({}, {}) getmetatable(t).__index = function(_, k) return t[k + 1] end print(t[1])",
    "local function g() return (('x'):gsub('x', function() return g() end)) end g()",
    "local function g() table.sort({ 3, 2, 1 }, function() g() end) end g()",
    "local function g(f) coroutine.wrap(f)(f) end g(g)",
    "local t = setmetatable({}, {}) getmetatable(t).__tostring = function(x) return tostring(x) end print(t)",
    "local m = heed.nn.Module.class('M') function m:forward(x) return self(x) end m()(heed.ones(1))",
    "assert(load('return ' .. ('('):rep(10000)))",
    "assert(load(('do '):rep(10000)))",
  ];
  for (const script of scripts) {
    assert.match(errorOf(heed, script), /stack overflow|C stack overflow|nested|too many/i, script);
    assert.strictEqual(heed.ended, null, script);
  }
  assert.ok(heed.run("print(heed.ones(2))"));
  assert.strictEqual(heed.take().out, "tensor([1., 1.])\n");
});

test("allocation without end is an error, and the state stays usable", async () => {
  const heed = await start("heed");
  assert.match(errorOf(heed, "t = {} while true do t[#t + 1] = heed.zeros(1024, 1024) end"),
    /^heed: demo:1: zeros: out of memory \(4\.0 MiB requested\)\nstack traceback:/);
  assert.match(errorOf(heed, "while true do t[#t + 1] = heed.zeros(8) end"), /out of memory|not enough memory/);
  assert.match(errorOf(heed, "t = {} while true do t[#t + 1] = ('x'):rep(1e6) .. #t end"), /^heed: not enough memory\n/);
  assert.match(errorOf(heed, "t = {} while true do t = { t } end"), /^heed: not enough memory\n/);
  assert.match(errorOf(heed, "local s = ('x'):rep(2 ^ 31)"), /resulting string too large|not enough memory/);
  assert.ok(heed.memory() <= 512 * 2 ** 20);
  assert.ok(heed.run("t = nil collectgarbage() print(heed.zeros(2000, 2000):sum():item())"));
  assert.strictEqual(heed.take().out, "0.0\n");
  assert.match(errorOf(heed, "heed.zeros(2 ^ 20, 2 ^ 20)"), /must fit in the address space/);
});

// ---- Output ----

test("a script that prints without end is stopped by an error when no more is wanted", async () => {
  let size = 0;
  const heed = await start("heed", { print: (text) => (size += text.length) < 1e5 });
  assert.match(errorOf(heed, "while true do print(('x'):rep(100)) end"), /demo:1: stopped: this script prints more than is shown/);
  assert.ok(size < 2e5);
  assert.match(errorOf(heed, "while true do io.write 'x' end"), /demo:1: stopped/);
  size = 0;
  assert.ok(heed.run("print 'again'"));
  assert.strictEqual(size, 6);
});

test("a script that goes on printing after that is ended", async () => {
  const heed = await start("heed", { print: () => false });
  assert.strictEqual(errorOf(heed, "while true do pcall(io.stdout.write, io.stdout, 'x\\n') end"),
    "heed: the script went on printing after it was told to stop\n");
  assert.strictEqual(heed.ended, "the script went on printing after it was told to stop");
  assert.strictEqual(heed.run("print(1)"), false);
});

test("much text arrives in pieces, complete and in order", async () => {
  const pieces = [];
  const heed = await start("heed", { print: (text) => { pieces.push(text); } });
  assert.ok(heed.run("for i = 1, 20000 do print('line', i, 'ä') end"));
  const lines = pieces.join("").split("\n");
  assert.strictEqual(lines.length, 20001);
  lines.slice(0, -1).forEach((line, i) => assert.strictEqual(line, `line\t${i + 1}\tä`));
  assert.ok(pieces.length < 1000, `${pieces.length} pieces`);
});

test("text without an end of line arrives when the script ends", async () => {
  const heed = await start("heed");
  assert.ok(heed.run("io.write('half')"));
  assert.strictEqual(heed.take().out, "half");
});

// ---- The prompt ----

test("a chunk's values are printed as at the prompt, and its locals are kept", async () => {
  const heed = await start("heed");
  assert.strictEqual(heed.call("local a = heed.arange(3)"), true);
  assert.strictEqual(heed.call("a, 'x', { 1, { b = heed.ones(2) } }, nil"), true);
  assert.strictEqual(heed.take().out, "tensor([0, 1, 2])\n" + '"x"\n{\n  1,\n  {\n    b = tensor [2] float32,\n  },\n}\nnil\n');
  assert.strictEqual(heed.call("for i = 1, 2 do"), "incomplete");
  assert.strictEqual(heed.call("for i = 1, 2 do\nprint(i) end"), true);
  assert.strictEqual(heed.take().out, "1\n2\n");
  assert.strictEqual(heed.call("error 'no'"), false);
  assert.match(heed.take().err, /^heed: stdin:1: no\nstack traceback:/);
  assert.strictEqual(heed.call("local b = a + 1\nb:sum():item()", "@two.lua"), true);
  assert.strictEqual(heed.take().out, "6\n");
  assert.strictEqual(heed.call("x = = 2", "@two.lua"), false);
  assert.strictEqual(heed.take().err, "heed: two.lua:1: unexpected symbol near '='\n");
});

test("os.exit ends the state with its code", async () => {
  for (const [script, code] of [["os.exit()", 0], ["os.exit(3)", 3], ["os.exit(false)", 1]]) {
    const heed = await start("heed");
    assert.strictEqual(heed.run(`print "before" ${script} print "after"`), code === 0);
    assert.deepStrictEqual([heed.ended, heed.exitCode], ["the script called os.exit", code]);
    assert.deepStrictEqual(heed.take(), { out: "before\n", err: "" });
  }
});

// ---- Files ----

test("files that a script writes are readable, and those that it is given are found", async () => {
  const { out, heed } = await outputOf("heed", `
    for line in io.lines "given/text.txt" do print(line) end
    local f = assert(io.open("made.txt", "w")) f:write("one\\n", "two\\n") f:seek("set", 1) f:write "N" f:close()
    f = io.open("made.txt", "a+") f:write "three" f:seek "set" print(f:read "a") f:close()
    print(io.open "missing.txt")
    print(os.remove "missing.txt")
    print(os.rename("made.txt", "moved.txt"))
    for _, name in ipairs { "x.npy", "x.npz", "x.safetensors" } do
      local x = heed.arange(6):reshape(2, 3)
      heed.save(name, name == "x.npy" and x or { x = x })
      local y = heed.load(name)
      print(name, (name == "x.npy" and y or y.x):equal(x))
    end
    local plot = require "heed.plot"
    for _, name in ipairs { "chart.svg", "chart.png", "chart.html" } do plot.heatmap(heed.rand(4, 4), { file = name }) end
    local t = io.tmpfile() t:write "x" t:seek "set" print(t:read(1)) t:close()
  `, "=demo", { files: { "given/text.txt": "ä\nb\n" } });
  const missing = "nil\tmissing.txt: No such file or directory\t44\n";
  assert.strictEqual(out, "ä\nb\noNe\ntwo\nthree\n" + missing + missing +
    "true\nx.npy\ttrue\nx.npz\ttrue\nx.safetensors\ttrue\nx\n");
  assert.deepStrictEqual(heed.files.names().filter((name) => !name.startsWith("tmp/")),
    ["chart.html", "chart.png", "chart.svg", "given/text.txt", "moved.txt", "x.npy", "x.npz", "x.safetensors"]);
  assert.strictEqual(Buffer.from(heed.files.read("moved.txt")).toString(), "oNe\ntwo\nthree");
  assert.match(Buffer.from(heed.files.read("./chart.svg")).toString(), /^<svg[^]*<\/svg>\s*$/);
  assert.strictEqual(heed.files.read("chart.png")[1], "P".charCodeAt(0));
  assert.strictEqual(heed.files.read("nothing"), undefined);
});

test("files have a limit", async () => {
  const heed = await start("heed");
  assert.match(errorOf(heed, "local f = io.open('big', 'w') local s = ('x'):rep(2 ^ 20) while true do assert(f:write(s)) end"),
    /No space left on device/);
  assert.ok(heed.files.read("big").length <= 256 * 2 ** 20);
  assert.ok(heed.run("os.remove 'big' assert(io.open('big', 'w')):write('x')"));
});

test("there is no shell, no input and no process", async () => {
  const { out } = await outputOf("heed", "print(io.read(), os.execute(), pcall(io.popen, 'ls'))");
  assert.strictEqual(out, "nil\tfalse\tfalse\t'popen' not supported\n");
});

// ---- Size ----

test("what the page loads is small, and what was built", () => {
  for (const name of ["heed.wasm", "heed_scalar.wasm"]) {
    const bytes = fs.readFileSync(path.join(playground, name)), zipped = fs.readFileSync(path.join(playground, name + ".gz"));
    console.log(`  ${name}: ${bytes.length} bytes, ${zipped.length} compressed; at most ${MOST_BYTES}`);
    assert.ok(zlib.gunzipSync(zipped).equals(bytes));
    assert.ok(zipped.length <= MOST_BYTES);
  }
});

(async () => {
  let failed = 0;
  for (const { name, run } of tests) {
    try {
      await run();
      console.log(`ok: ${name}`);
    } catch (problem) {
      failed++;
      console.log(`not ok: ${name}\n${problem.stack}`);
    }
  }
  console.log(`${tests.length - failed} passed, ${failed} failed`);
  process.exitCode = failed ? 1 : 0;
})();
