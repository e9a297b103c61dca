"""Measures sequences of different lengths in heed and in PyTorch, with one thread each: documents packed, as a batch
and behind masks, windows, many small sequences, ragged decoding, parts of the keys, loading a cache.

    build/venv/bin/python scripts/bench/sequences.py [--build build] [--only documents] [--flex] [--seconds 3]

The rows of a group alternate, and the minimum of the processor time counts: only ratios within a group mean something.
Work is what is useful: hidden pairs of queries and keys do not count. Rows that this build of heed cannot compute are
named. --flex adds PyTorch's compiled FlexAttention; compiling takes a minute for each group, and a C++ compiler.
(1000 sentences of different lengths through a model: model.py --ragged 1000.)"""

import argparse
import os
import sys
import time

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
os.environ.pop("OPENBLAS_CORETYPE", None)
sys.dont_write_bytecode = True

from lua_side import LuaSide


def timed(run):
    def seconds():
        start = time.process_time()
        run()
        return time.process_time() - start

    return seconds


class Peers:
    """PyTorch's rows of each group, by its name: (name, function)."""

    def __init__(self, flex):
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self.torch, self.flex = torch, flex
        self.attend = torch.nn.functional.scaled_dot_product_attention

    def random(self, *shape):
        return [self.torch.randn(*shape) for _ in range(3)]

    def flex_row(self, n, h, d, visible):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        blocks = create_block_mask(visible, None, None, n, n, device="cpu")
        q, k, v = self.random(1, h, n, d)
        compiled = self.torch.compile(flex_attention)
        compiled(q, k, v, block_mask=blocks)
        return "PyTorch, FlexAttention", lambda: compiled(q, k, v, block_mask=blocks)

    def documents(self, count, n, h, d, causal, masks):
        q, k, v = self.random(count, h, n, d)
        yield "PyTorch, batch", lambda: self.attend(q, k, v, is_causal=causal)
        if not masks:
            return
        total, document = count * n, self.torch.arange(count * n) // n
        same = document[:, None] == document[None]
        mask = same & self.torch.ones(total, total, dtype=self.torch.bool).tril() if causal else same
        pq, pk, pv = self.random(1, h, total, d)
        yield "PyTorch, dense mask", lambda: self.attend(pq, pk, pv, mask)
        if self.flex:
            yield self.flex_row(total, h, d, lambda b, head, i, j: (document[i] == document[j]) & (i >= j))

    def window(self, n, window):
        if self.flex:
            yield self.flex_row(n, 8, 64, lambda b, head, i, j: (i >= j) & (i - j < window))

    def decode(self, lengths):
        n = max(lengths)
        q = self.torch.randn(len(lengths), 8, 1, 64)
        k, v = self.random(len(lengths), 8, n, 64)[:2]
        mask = (self.torch.arange(n)[None] < self.torch.tensor(lengths)[:, None])[:, None, None]
        yield "PyTorch, padded", lambda: self.attend(q, k, v, mask)

    def whole(self, n):
        q, k, v = self.random(1, 8, n, 64)
        yield "PyTorch, whole", lambda: self.attend(q, k, v)

    def rows(self, group):
        made = {
            "32 documents of 128, causal": lambda: self.documents(32, 128, 8, 64, True, True),
            "16 documents of 256, causal": lambda: self.documents(16, 256, 8, 64, True, True),
            "256 sequences of 16, 4 heads": lambda: self.documents(256, 16, 4, 64, False, False),
            "1024 sequences of 8, 8 heads of 32": lambda: self.documents(1024, 8, 8, 32, False, False),
            "window, 8192 tokens": lambda: self.window(8192, 128),
            "decode, 8 items of 512 to 4096 keys": lambda: self.decode([512 * i for i in range(1, 9)]),
            "parts of the keys, 2048 tokens": lambda: self.whole(2048),
        }
        try:
            return [(name, timed(run)) for name, run in made.get(group, lambda: [])()]
        except Exception as problem:  # no compiler, or an operator that this version lacks
            print(f"  PyTorch: {str(problem).strip().splitlines()[0]}")
            return []


def read_rows(heed, only):
    """[(group, [(name, flops or the reason why it is missing)])]"""
    groups, line = {}, heed.ask(f"rows {only}")
    while line != ".":
        group, name, what = line.split("\t")
        try:
            what = float(what)
        except ValueError:
            pass
        groups.setdefault(group, []).append((name, what))
        line = heed.read()
    return groups.items()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default="", metavar="TEXT", help="only groups whose names contain this text")
    parser.add_argument("--seconds", type=float, default=3, help="for each row")
    parser.add_argument("--flex", action="store_true", help="also PyTorch's compiled FlexAttention")
    parser.add_argument("--alone", action="store_true", help="without PyTorch")
    arguments = parser.parse_args()
    heed = LuaSide(arguments.build, "sequences.lua")
    peers = None if arguments.alone else Peers(arguments.flex)
    for group, listed in read_rows(heed, arguments.only):
        print(group)
        rows, flops = [], max([what for _, what in listed if not isinstance(what, str)])
        for name, what in listed:
            if isinstance(what, str):
                print(f"  {name:36} {what}")
                continue
            rows.append([name, what, lambda row=f"{group}: {name}": float(heed.ask(f"time {row}")), float("inf")])
        for name, run in peers.rows(group) if peers else []:
            rows.append([name, listed[0][1] if "window" in group else flops, run, float("inf")])
        end = time.monotonic() + arguments.seconds * len(rows)
        while time.monotonic() < end:
            for row in rows:
                row[3] = min(row[3], row[2]())
        first = rows[0][3]
        for name, work, _, best in rows:
            rate = f"{work / best / 1e9:7.1f} useful Gflop/s" if work else ""
            print(f"  {name:36} {1e3 * best:9.3f} ms  {best / first:6.2f} of the first  {rate}", flush=True)
    heed.close()


main()
