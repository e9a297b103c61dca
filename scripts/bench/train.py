"""Measures a step of training a character GPT in heed and in PyTorch, with one thread each.

    build/venv/bin/python scripts/bench/train.py [--build build] [--seconds 20]

A step is forward, cross entropy, backward, a limit on the norm of the gradient, and AdamW (PyTorch's fused one). Both
begin with the same weights, and the losses of the first steps are compared. They alternate, and the minimum of the
processor time counts. Memory is what PyTorch's process (Linux only) and heed's allocator took at most above the start.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
sys.dont_write_bytecode = True

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from lua_side import LuaSide

VOCAB = 65
ROWS = {"6 layers of 384, 4 × 256 tokens": (6, 6, 384, 256, 4), "4 layers of 64, 16 × 32 tokens": (4, 4, 64, 32, 16)}
HERE = Path(__file__).parent


class Block(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.attn, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.up, self.down = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x):
        b, n, d = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.attn(self.ln_1(x)).split(d, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class GPT(torch.nn.Module):
    def __init__(self, layers, heads, width, context):
        super().__init__()
        self.wte, self.wpe = torch.nn.Embedding(VOCAB, width), torch.nn.Embedding(context, width)
        self.h = torch.nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.ln_f = torch.nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1]))
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)

    def load(self, folder):
        names = {"attn.c_attn": "attn", "attn.c_proj": "proj", "mlp.c_fc": "up", "mlp.c_proj": "down"}
        state = {}
        for name, value in load_file(folder / "model.safetensors").items():
            name = name.removeprefix("transformer.")
            for theirs, ours in names.items():
                if f".{theirs}." in name:
                    name, value = name.replace(theirs, ours), value.T.contiguous() if value.ndim == 2 else value
                    break
            state[name] = value
        self.load_state_dict(state)


class Torch:
    def __init__(self, folder, layers, heads, width, context, batch):
        torch.set_num_threads(1)
        self.model = GPT(layers, heads, width, context)
        self.model.load(folder)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, weight_decay=0.1, fused=True)
        self.position, self.batch, self.context = 0, batch, context

    def ids(self):
        count = self.batch * (self.context + 1)
        at = torch.arange(self.position, self.position + count)
        self.position += count
        ids = ((7 * at + at * at // 3) % VOCAB).view(self.batch, -1)
        return ids[:, :-1], ids[:, 1:]

    def step(self, x, y):
        loss = F.cross_entropy(self.model(x).flatten(0, 1), y.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.item()

    def seconds(self):
        x, y = self.ids()
        start = time.process_time()
        self.step(x, y)
        return time.process_time() - start


def peak():
    """MiB; not of getrusage, which counts what the parent had before."""
    line = next(line for line in open("/proc/self/status", encoding="ascii") if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024


def print_memory(folder, sizes):
    """In a process of its own: what some steps of PyTorch take above its libraries."""
    F.linear(torch.ones(8, 8), torch.ones(8, 8))
    before = peak()
    side = Torch(folder, *sizes)
    for _ in range(3):
        side.step(*side.ids())
    print(peak() - before)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--seconds", type=float, default=20, help="for each row")
    parser.add_argument("--memory", nargs=6, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory:
        return print_memory(Path(arguments.memory[0]), [int(x) for x in arguments.memory[1:]])
    for name, sizes in ROWS.items():
        with tempfile.TemporaryDirectory() as folder:
            texts = [folder] + [str(x) for x in sizes]
            subprocess.run([f"{arguments.build}/heed", HERE / "train.lua", *texts, "save"], check=True)
            heed, peer = LuaSide(arguments.build, "train.lua", *texts), Torch(Path(folder), *sizes)
            ours, theirs = [float(x) for x in heed.ask("losses 5").split()], [peer.step(*peer.ids()) for _ in range(5)]
            worst = max(abs(a - b) for a, b in zip(ours, theirs))
            if worst > 1e-3:
                sys.exit(f"train.py: the losses differ: {ours} and {theirs}")
            ours = theirs = float("inf")
            end = time.monotonic() + arguments.seconds
            while time.monotonic() < end:
                ours = min(ours, float(heed.ask("step 1")))
                theirs = min(theirs, peer.seconds())
            print(f"{name:32} heed {1e3 * ours:9.2f} ms   PyTorch {1e3 * theirs:9.2f} ms   {theirs / ours:6.2f} times"
                  f"   (losses differ by {worst:.0e})")
            ours = float(heed.ask("memory"))
            theirs = float(subprocess.run([sys.executable, __file__, "--memory", *texts], stdout=subprocess.PIPE,
                                          text=True, check=True).stdout)
            print(f"{'  memory':32} heed {ours:9.1f} MiB  PyTorch {theirs:9.1f} MiB  {ours / theirs:6.2f} of it")
            heed.close()
    return None


main()
