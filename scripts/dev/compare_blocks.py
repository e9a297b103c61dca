#!/usr/bin/env python3
"""Compares heed's quantizing with ggml's: root mean square errors and times of x:to(dtype) and ggml_quantize_chunk, on
random matrices or the matrices of a .gguf file, and whether the bytes are the same.

    python scripts/dev/compare_blocks.py build/heed [FILE.gguf]     (pip install gguf llama-cpp-python numpy)
"""
import ctypes
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import gguf
import numpy as np

KINDS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
SCRIPT = """
local heed = require "heed"
local folder, columns = arg[1], tonumber(arg[2])
local file = assert(io.open(folder .. "/x", "rb"))
local text = file:read "*a"
file:close()
local x = heed.from_string(text, "float32", #text / 4 / columns, columns)
heed.set_num_threads(1)
for i = 3, #arg do
  local start = heed.clock()
  local y = x:to(arg[i])
  print(heed.clock() - start)
  local out = assert(io.open(folder .. "/" .. arg[i], "wb"))
  out:write(y:to_string())
  out:close()
end
"""


def ggml():
    import llama_cpp
    library = ctypes.CDLL(str(next((Path(llama_cpp.__file__).parent / "lib").glob("libggml-base.so"))))
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64,
                                            ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    return library


def compare(runner, library, name, x):
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x").write_bytes(x.tobytes())
        Path(folder, "run.lua").write_text(SCRIPT)
        kinds = [kind for kind in KINDS if x.shape[1] % gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind]][0] == 0]
        done = subprocess.run([runner, f"{folder}/run.lua", folder, str(x.shape[1]), *map(str.lower, kinds)],
                              capture_output=True, text=True, check=True)
        for kind, seconds in zip(kinds, done.stdout.split()):
            number = gguf.GGMLQuantizationType[kind]
            ours = np.fromfile(Path(folder, kind.lower()), np.uint8)
            theirs = np.empty_like(ours)
            start = time.perf_counter()
            library.ggml_quantize_chunk(number, x.ctypes.data, theirs.ctypes.data, 0, *x.shape, None)
            their_seconds = time.perf_counter() - start
            errors = [np.sqrt(np.mean((gguf.quants.dequantize(each, number).reshape(x.shape) - x) ** 2))
                      for each in (ours, theirs)]
            print(f"{name:28} {kind}: RMS error {errors[0]:.5g}, ggml {errors[1]:.5g}, ratio "
                  f"{errors[0] / errors[1]:.4f}; {float(seconds) * 1e3:.1f} ms, ggml {their_seconds * 1e3:.1f} ms; "
                  f"{np.mean(ours == theirs) * 100:.2f} % of the bytes are the same")


def main(runner, path=None):
    library = ggml()
    draw = np.random.default_rng(1)
    matrices = {"normal": draw.normal(0, 0.02, (256, 2048)), "uniform": draw.uniform(-1, 1, (256, 2048)),
                "Student's t, 3": draw.standard_t(3, (256, 2048)), "positive": draw.exponential(1, (256, 2048))}
    if path is not None:
        tensors = [t for t in gguf.GGUFReader(path).tensors if len(t.shape) == 2]
        matrices = {t.name: gguf.quants.dequantize(t.data, t.tensor_type)[:1024] for t in tensors[:12]}
    for name, x in matrices.items():
        compare(runner, library, name, np.ascontiguousarray(x, np.float32))


if __name__ == "__main__":
    main(*sys.argv[1:])
