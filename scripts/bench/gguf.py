"""Measures a model in a GGUF file in heed and in llama.cpp (llama-cpp-python, built for this processor), with one thread
each: reading a prompt, and decoding one token at a time.

    build/venv/bin/python scripts/bench/gguf.py FILE.gguf [--build build] [--rounds 5]

The sides alternate, and the minimum of the processor time counts: with one thread it is the elapsed time on an idle
machine. "Reads" is the size of the weights that a token needs, per second; "read loop" is how fast this processor adds up
as many bytes. The start is the time of a process until its first token of an answer."""

import argparse
import os
import subprocess
import sys
import time

import numpy as np

sys.dont_write_bytecode = True

from lua_side import LuaSide

PROMPT, TOKENS = 512, 64

PEER = """
import os, sys, time
import llama_cpp
llama = llama_cpp.Llama(sys.argv[1], n_ctx=1024, n_threads=1, n_threads_batch=1, verbose=False)
def prompt(n):
    return [(i + 1) * 7919 % 40000 + 100 for i in range(n)]
def prefill(n):
    llama.reset()
    start = time.process_time()
    llama.eval(prompt(n))
    return time.process_time() - start
def decode(n):
    llama.reset()
    llama.eval(prompt(32))
    start = time.process_time()
    for _ in range(n):
        llama.eval([llama.sample(temp=0)])
    return time.process_time() - start
print("ready", flush=True)
for line in sys.stdin:
    name, n = line.split()
    print(globals()[name](int(n)), flush=True)
"""

START = """
local heed = require "heed"
heed.set_matmul_precision({precision!r})
local model = heed.models.load({path!r})
local tok = model.tokenizer
local ids = tok.chat_template
  and tok:apply_chat_template({{ {{ role = "user", content = "Hello!" }} }},
    {{ add_generation_prompt = true, tokenize = true }})
  or tok:encode "Hello!"
model:generate(ids, {{ max_new_tokens = 1 }})
"""


class Peer:
    """llama.cpp in a process of its own."""

    def __init__(self, path):
        self.process = subprocess.Popen([sys.executable, "-c", PEER, path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.alive = self.process.stdout.readline().strip() == "ready"

    def seconds(self, command):
        if not self.alive:
            return float("inf")
        try:
            print(command, file=self.process.stdin, flush=True)
            return float(self.process.stdout.readline())
        except (BrokenPipeError, ValueError):
            self.alive = False
            return float("inf")


def read_loop(size):
    """Bytes per second at which one thread adds up an array that is larger than the caches."""
    data = np.ones(size // 8)
    best = float("inf")
    for _ in range(7):
        start = time.process_time()
        data.sum()
        best = min(best, time.process_time() - start)
    return data.nbytes / best


def start(build, path, precision):
    best = float("inf")
    for _ in range(7):
        begun = time.perf_counter()
        subprocess.run([f"{build}/heed", "-e", START.format(path=path, precision=precision)], check=True)
        best = min(best, time.perf_counter() - begun)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("file")
    parser.add_argument("--build", default="build")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    os.environ.pop("OPENBLAS_CORETYPE", None)
    peer, heed = Peer(arguments.file), LuaSide(arguments.build, "gguf.lua", arguments.file)
    precisions = ["highest", "high", "medium"]
    best = {}

    def note(row, seconds):
        best[row] = min(best.get(row, float("inf")), seconds)

    loop = 0
    for _ in range(arguments.rounds):
        for precision in precisions:
            heed.ask(f"precision {precision}")
            note((precision, "prefill"), float(heed.ask(f"prefill {PROMPT}")))
            note((precision, "decode"), float(heed.ask(f"decode {TOKENS}")))
        note(("llama.cpp", "prefill"), peer.seconds(f"prefill {PROMPT}"))
        note(("llama.cpp", "decode"), peer.seconds(f"decode {TOKENS}"))
        loop = max(loop, read_loop(128 << 20))
    size = os.path.getsize(arguments.file)
    print(f"{arguments.file}: {size / 1e6:.0f} MB; read loop {loop / 1e9:.1f} GB/s\n")
    print(f"| | {PROMPT} tokens read, tokens/s | decoded, tokens/s | reads at most | error of the logits | start |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name in precisions + ["llama.cpp"]:
        read, decoded = PROMPT / best[name, "prefill"], TOKENS / best[name, "decode"]
        more = "| |"
        if name != "llama.cpp":
            heed.ask(f"precision {name}")
            more = (f"| {float(heed.ask('error 128')):.1e} | "
                    f"{1e3 * start(arguments.build, arguments.file, name):.0f} ms |")
        print(f"| {name} | {read:.0f} | {decoded:.1f} | {size * decoded / 1e9:.1f} GB/s {more}")
    if not peer.alive:
        print("\nllama.cpp is not installed, or has crashed with this file")


main()
