"""Measures decoding, one token at a time, through 100 MB (in float32) of a Llama's layers: heed's share of the memory
bandwidth.

    build/venv/bin/python scripts/bench/decode_stack.py [--build build] [--threads 2] [--parts]

Passes alternate with reads of the same number of bytes (probes.c), and the best of each counts. Needs
build/bench/probes.so, which `make bench` builds."""

import argparse
import ctypes
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True
import numpy as np

from lua_side import LuaSide
from probes import Probes

DTYPES = "float32", "bfloat16", "float16", "int8"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--kernels", default="avx512", help="vector width of the reads: avx512, avx2 or scalar")
    parser.add_argument("--seconds", type=float, default=8, help="for each dtype")
    parser.add_argument("--parts", action="store_true", help="show the parts of the time of a token")
    arguments = parser.parse_args()
    ctypes.CDLL(str(Path(arguments.build, "libheed.so").resolve()))  # the probes use its symbols
    probes = Probes(str(Path(arguments.build, "bench/probes.so").resolve()), arguments.kernels)
    heed = LuaSide(arguments.build, "decode_stack.lua", arguments.threads)
    for dtype in DTYPES:
        count = int(heed.ask(dtype).split()[1])
        block = np.ones(count, np.uint8)
        pointers, sizes = (ctypes.c_void_p * 1)(block.ctypes.data), (ctypes.c_int64 * 1)(count)
        seconds, rate, end = float("inf"), 0.0, time.monotonic() + arguments.seconds
        while time.monotonic() < end:
            seconds = min(seconds, float(heed.ask("3")))
            for _ in range(3):
                rate = max(rate, probes.lib.probe_read(probes.kernels, pointers, sizes, 1, arguments.threads))
        print(f"{dtype:9} {count / 1e6:6.1f} MB  {1e3 * seconds:7.2f} ms per token  "
              f"{count / seconds / 1e9:6.1f} GB/s of "
              f"{rate / 1e9:.1f}  {100 * count / seconds / rate:5.1f} %", flush=True)
        if arguments.parts:
            heed.print_parts()


main()
