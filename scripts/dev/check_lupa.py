"""Tests heed in Python through lupa: the output of scripts/examples/lupa_host.py, errors, bytes, memory limits. Ends
with "N passed, N failed"; fails if a test fails.

    check_lupa.py BUILD
"""
import array
import gc
import os
import subprocess
import sys

import lupa

with lupa.allow_lua_module_loading():
    from lupa import lua54

build = sys.argv[1]
passed = failed = 0


def check(name, holds, seen=None):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    if not holds:
        print(f"FAILED: {name}" + ("" if seen is None else f"\n  got: {seen}"))


def new_runtime(**options):
    lua = lua54.LuaRuntime(**options)
    lua.execute(f"package.cpath = [[{build}/?.so]]")
    return lua, lua.eval('(require "heed")')


def error_of(function, *arguments):
    try:
        function(*arguments)
    except lua54.LuaError as error:
        return str(error)
    return "no error"


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


example = subprocess.run([sys.executable, "scripts/examples/lupa_host.py", build], capture_output=True, text=True)
code = """local heed = require "heed"
heed.manual_seed(123)
local attention = heed.nn.CausalAttention(3, 2, 6, 0.0)
local context, info = attention(heed.rand(6, 3), {need_weights = true})
print("heed " .. heed.version .. " on " .. _VERSION)
print(context)
print(info.weights)"""
runner = subprocess.run([os.path.join(build, "heed"), "-e", code], capture_output=True, text=True)
check("the example succeeds", example.returncode == 0 and runner.returncode == 0, example.stderr + runner.stderr)
check("the example prints the same as the script", example.stdout == runner.stdout != "", example.stdout)

lua, heed = new_runtime()
message = error_of(heed.matmul, heed.ones(6, 3), heed.ones(2, 3))
check("heed's errors become exceptions with its message",
      message.startswith("matmul: a is [6, 3] and b is [2, 3]; the last size of a (3) must equal"), message)
message = error_of(heed.matmul, heed.ones(6, 3), object())
check("objects of Python are refused by name",
      message.startswith("matmul: b is ") and "; it must be a tensor" in message, message)
check("and the next call works", heed.ones(2, 2).sum(heed.ones(2, 2)).item(heed.ones(1)) == 1)

lua, heed = new_runtime(encoding=None)
numbers = array.array("f", [1.5, -2.0, 3.25, 0.0, 1e-30, 7.0])
x = heed.from_string(numbers.tobytes(), b"float32", 2, 3)
back = array.array("f", heed.to_string(heed.neg(x)))
check("bytes are passed in both directions", list(back) == [-v for v in numbers], back)

lua, heed = new_runtime(max_memory=8 << 20)
message = error_of(heed.zeros, 4096, 4096)
check("a runtime's memory limit includes tensors", "memory" in message, message)
check("and the next call within the limit works", heed.numel(heed.zeros(100, 100)) == 10000)

work = 'local heed = require "heed"; return heed.nn.MultiHeadAttention(8, 8, 6, 0.0, 2)(heed.rand(2, 6, 8)):numel()'
threads = None
for i in range(300):
    if i == 100:
        threads, before = len(os.listdir("/proc/self/task")), resident()
    lua, heed = new_runtime()
    assert lua.execute(work) == 96
    del lua, heed
    gc.collect()
check("closed runtimes leave no memory allocated", resident() - before < 1 << 20, resident() - before)
check("and no threads", len(os.listdir("/proc/self/task")) == threads)

print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
