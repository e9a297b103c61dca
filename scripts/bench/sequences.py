"""Measures sequences and caches in heed and in PyTorch, with one thread each: documents packed, as a batch and behind
masks; windows; caches of different lengths, with a shared beginning, from a file; the gated delta rule.

    build/venv/bin/python scripts/bench/sequences.py [--build build] [--only documents] [--seconds 3] [--no-flex]

The rows of a group alternate, and the minimum of the processor time counts: with one thread it is the elapsed time on
an idle machine. In parentheses: the time divided by that of the group's first row. Work is what is useful: hidden pairs
of queries and keys do not count. FlexAttention is compiled, which needs a C++ compiler and takes up to a minute for
each group. (Sentences of different lengths through a model: model.py --ragged 1000.)"""

import argparse
import os
import sys
import time

os.environ.update(OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
os.environ.pop("OPENBLAS_CORETYPE", None)
sys.dont_write_bytecode = True

from lua_side import LuaSide
from report import duration, times

SCRIPTS = "sequences.lua", "caches.lua", "linear_attention.lua"
ROUNDS = 3  # the least number of rounds


def timed(run):
    def seconds():
        start = time.process_time()
        run()
        return time.process_time() - start

    return seconds


def reason(problem):
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


class Peers:
    """PyTorch's rows. Each method has the arguments of its group and yields (name, useful flops or 0, function)."""

    def __init__(self, flex):
        import torch

        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        self.torch, self.flex = torch, flex
        self.attend = torch.nn.functional.scaled_dot_product_attention
        self.groups = {
            "32 documents of 128, causal": lambda: self.documents(32, 128, 8, 64, True, True),
            "16 documents of 256, causal": lambda: self.documents(16, 256, 8, 64, True, True),
            "256 sequences of 16, 4 heads": lambda: self.documents(256, 16, 4, 64, False, False),
            "1024 sequences of 8, 8 heads of 32": lambda: self.documents(1024, 8, 8, 32, False, False),
            "window of 128, 8192 tokens": lambda: self.window(8192, 128),
            "one query for each of 8 items, 512 to 4096 keys": lambda: self.padded([512 * i for i in range(1, 9)]),
            "parts of the keys, 2048 tokens": lambda: self.whole(2048),
            "gated delta rule, 2048 tokens, 8 heads of 128": lambda: self.delta(2048, 8, 128),
        }

    def random(self, *shape):
        return [self.torch.randn(*shape) for _ in range(3)]

    def flex_attention(self, n, h, d, flops, visible):
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        blocks = create_block_mask(visible, None, None, n, n, device="cpu")
        q, k, v = self.random(1, h, n, d)
        self.torch.compiler.reset()
        compiled = self.torch.compile(flex_attention)
        compiled(q, k, v, block_mask=blocks)
        yield "PyTorch, FlexAttention", flops, lambda: compiled(q, k, v, block_mask=blocks)

    def documents(self, count, n, h, d, causal, masks):
        q, k, v = self.random(count, h, n, d)
        flops = 4 * count * h * n * n * d * (0.5 if causal else 1)
        yield "PyTorch, a batch", flops, lambda: self.attend(q, k, v, is_causal=causal)
        if not masks:
            return
        total, document = count * n, self.torch.arange(count * n) // n
        same = document[:, None] == document[None]
        mask = same & self.torch.ones(total, total, dtype=self.torch.bool).tril() if causal else same
        pq, pk, pv = self.random(1, h, total, d)
        yield "PyTorch, boolean mask", flops, lambda: self.attend(pq, pk, pv, mask)
        if self.flex:
            yield from self.flex_attention(total, h, d, flops,
                                           lambda b, head, i, j: (document[i] == document[j]) & (i >= j))

    def window(self, n, window):
        if self.flex:
            flops = 4 * 8 * 64 * (window * n - window * (window - 1) / 2)
            yield from self.flex_attention(n, 8, 64, flops, lambda b, head, i, j: (i >= j) & (i - j < window))

    def padded(self, lengths):
        n = max(lengths)
        q = self.torch.randn(len(lengths), 8, 1, 64)
        k, v = self.random(len(lengths), 8, n, 64)[:2]
        mask = (self.torch.arange(n)[None] < self.torch.tensor(lengths)[:, None])[:, None, None]
        yield "PyTorch, padded", 4 * 8 * 64 * sum(lengths), lambda: self.attend(q, k, v, mask)

    def whole(self, n):
        q, k, v = self.random(1, 8, n, 64)
        yield "PyTorch, whole", 4 * 8 * 64 * n * n, lambda: self.attend(q, k, v)

    def delta(self, n, heads, d):
        from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

        q, k, v = self.random(1, n, heads, d)
        beta, decay = self.torch.rand(1, n, heads), -0.2 * self.torch.rand(1, n, heads)
        yield "PyTorch, as in transformers", 0, lambda: torch_chunk_gated_delta_rule(
            q, k, v, decay, beta, use_qk_l2norm_in_kernel=True)

    def rows(self, group):
        """The rows of a group by its name. A row that cannot be computed has the reason instead of a function."""
        found = []
        try:
            for name, flops, run in self.groups.get(group, lambda: [])():
                found.append((name, flops, timed(run)))
        except Exception as problem:  # no compiler, or an operator that this version lacks
            found.append(("PyTorch", 0, reason(problem)))
        return found


def listed(heed, command):
    lines = [heed.ask(command)]
    while lines[-1] != ".":
        lines.append(heed.read())
    return lines[:-1]


def rows_of(heed, group):
    """heed's rows of a group, as those of Peers.rows."""
    found = []
    for i, line in enumerate(listed(heed, f"open {group}"), 1):
        name, what = line.split("\t")
        try:
            found.append((name, float(what), lambda i=i: float(heed.ask(f"time {i}"))))
        except ValueError:
            found.append((name, 0, what))
    return found


def measure(rows, seconds):
    """The least time of each row, in rounds in which all take turns; None for those without a function. Every round
    begins with another row, since each finds the caches as the one before it left them."""
    best = [float("inf") if callable(run) else None for _, _, run in rows]
    end, rounds = time.monotonic() + seconds * len(rows), 0
    while rounds < ROUNDS or time.monotonic() < end:
        for turn in range(len(rows)):
            i = (rounds + turn) % len(rows)
            run = rows[i][2]
            if callable(run):
                best[i] = min(best[i], run())
        rounds += 1
    return best


def useful(flops, seconds):
    return f"{flops / seconds / 1e9:.1f} Gflop/s" if flops else ""


def report(group, rows, best):
    first = next((seconds for seconds in best if seconds is not None), None)
    print(f"-- {group}")
    for (name, flops, why), seconds in zip(rows, best):
        if seconds is None:
            print(f"{name:32} has no result: {why}")
        else:
            print(f"{name:32} {duration(seconds):>10} {f'({times(seconds / first)})':>9}  {useful(flops, seconds)}")
    sys.stdout.flush()


def report_markdown(group, rows, best):
    """One row of a table: the first row of the group, and the others divided by it."""
    (name, flops, _), seconds = rows[0], best[0]
    if seconds is None:
        return
    rate = useful(flops, seconds)
    others = [f"{row[0]} {times(b / seconds)}" for row, b in zip(rows[1:], best[1:]) if b is not None]
    print(f"| {group}: {name} | {duration(seconds)}{rate and ', ' + rate} | {'; '.join(others)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--only", default="", metavar="TEXT", help="only groups whose names contain this text")
    parser.add_argument("--seconds", type=float, default=3, help="for each row")
    parser.add_argument("--no-flex", action="store_true", help="without PyTorch's FlexAttention, which compiles")
    parser.add_argument("--alone", action="store_true", help="without PyTorch")
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    arguments = parser.parse_args()
    peers = None if arguments.alone else Peers(not arguments.no_flex)
    if arguments.markdown:
        print("| 1 thread | heed | the others, divided by it |\n| --- | ---: | --- |")
    for script in SCRIPTS:
        heed = LuaSide(arguments.build, script)
        for group in listed(heed, "groups"):
            if arguments.only in group:
                rows = rows_of(heed, group) + (peers.rows(group) if peers else [])
                (report_markdown if arguments.markdown else report)(group, rows, measure(rows, arguments.seconds))
        heed.close()


if __name__ == "__main__":
    main()
