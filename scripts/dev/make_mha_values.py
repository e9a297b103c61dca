"""Makes mha.lua, the results of MultiHeadAttention with its options, with a plain implementation in double precision:
loops over batch items and heads, masks from positions, concatenated caches.

    python scripts/dev/make_mha_values.py [FOLDER]     (pip install torch numpy)

Weights and inputs are not stored: the specs draw them from the same seed (heed.rand gives torch.rand's numbers, bit for
bit), in this order: W_query, W_key, W_value, out_proj; then, in ±1, sinks and the weights of q_norm and k_norm; then,
in ±2, x, key, value and a float mask.
"""

import math

import numpy as np
import torch

import golden
from positions import alibi_slopes, rotate

# ---- The module ----


def rotated(x, first, rope):
    """x [h, n, d], the first token at position `first`, which counts from 0."""
    at = np.arange(first, first + x.shape[1])
    return torch.from_numpy(rotate(x.detach().numpy(), at, **rope))


class Attention:
    def __init__(self, c):
        self.c = c
        h, self.kv = c["num_heads"], c.get("num_kv_heads", c["num_heads"])
        self.d = c.get("head_dim", c["d_out"] // h)
        bias = c.get("qkv_bias", False)
        self.query = torch.nn.Linear(c["d_in"], h * self.d, bias)
        self.key = torch.nn.Linear(c.get("kdim", c["d_in"]), self.kv * self.d, bias)
        self.value = torch.nn.Linear(c.get("vdim", c["d_in"]), self.kv * self.d, bias)
        self.out = None
        if c.get("out_proj", True):
            self.out = torch.nn.Linear(h * self.d, c["d_out"], c.get("out_bias", True))
        self.sinks = draw(1, h) if c.get("sinks") else None
        self.q_norm = draw(1, self.d) if c.get("qk_norm") else None
        self.k_norm = draw(1, self.d) if c.get("qk_norm") else None

    def heads(self, linear, x, count):
        """x [n, d_in] to [count, n, d]."""
        y = x.double() @ linear.weight.double().T
        if linear.bias is not None:
            y = y + linear.bias.double()
        return y.view(x.shape[0], count, self.d).transpose(0, 1)

    def norm(self, x, weight):
        options = self.c["qk_norm"]
        eps = options["eps"] if isinstance(options, dict) else 1e-6
        return x / (x.pow(2).mean(-1, keepdim=True) + eps).sqrt() * weight.double()

    def item(self, x, key, value, past, offset, seen):
        """One batch item. past: (keys, values) or None; offset: the position of the first query; seen(head, i, j):
        whether the masks let query i see key j, and what they add to its score."""
        c = self.c
        q, k = self.heads(self.query, x, c["num_heads"]), self.heads(self.key, key, self.kv)
        v = self.heads(self.value, value, self.kv)
        if c.get("qk_norm"):
            q, k = self.norm(q, self.q_norm), self.norm(k, self.k_norm)
        if c.get("rope") is not None:
            first = past[0].shape[1] if past else 0
            q, k = rotated(q, first, c["rope"]), rotated(k, first, c["rope"])
        if past:
            k, v = torch.cat([past[0], k], 1), torch.cat([past[1], v], 1)
        h, n, s = q.shape[0], q.shape[1], k.shape[1]
        scores = torch.full((h, n, s), -math.inf, dtype=torch.float64)
        weights = torch.zeros(h, n, s, dtype=torch.float64)
        scale, cap, window = c.get("scale", self.d**-0.5), c.get("softcap"), c.get("window", {})
        for a in range(h):
            group = a * self.kv // h
            for i in range(n):
                position = i + offset
                logits, at = [], []
                for j in range(s):
                    if c.get("causal", True) and j > position:
                        continue
                    if "left" in window and j < position - window["left"]:
                        continue
                    if "right" in window and j > position + window["right"]:
                        continue
                    visible, more = seen(a, i, j)
                    if not visible:
                        continue
                    scores[a, i, j] = q[a, i] @ k[group, j]
                    logit = scale * scores[a, i, j].item()
                    if cap:
                        logit = cap * math.tanh(logit / cap)
                    if c.get("alibi"):
                        logit -= alibi_slopes(h)[a] * abs(position - j)
                    logits.append(logit + more)
                    at.append(j)
                if self.sinks is not None:
                    logits.append(self.sinks[a].item())
                if at:
                    weights[a, i, at] = torch.tensor(logits, dtype=torch.float64).softmax(0)[: len(at)]
        y = weights @ v.repeat_interleave(h // self.kv, 0)
        y = y.transpose(0, 1).reshape(n, h * self.d)
        if self.out is not None:
            y = y @ self.out.weight.double().T
            if self.out.bias is not None:
                y = y + self.out.bias.double()
        return y, {"scores": scores, "weights": weights, "queries": q, "keys": k, "values": v}


def draw(bound, *shape):
    return torch.rand(*shape) * (2 * bound) - bound


# ---- Cases ----


def run(case):
    c = case["config"]
    torch.manual_seed(case["seed"])
    m = Attention(c)
    b, n = case["b"], case["n"]
    x = draw(2, b, n, c["d_in"])
    key = draw(2, b, case["s"], c.get("kdim", c["d_in"])) if "s" in case else None
    value = draw(2, b, case["s"], c["vdim"]) if "vdim" in c else key
    s = case.get("s", n)
    mask = draw(2, *case["float_mask"]) if "float_mask" in case else None
    lengths, padding = case.get("kv_lengths"), case.get("padding")

    def one(i, part, past, offset):
        def seen(a, q, j):
            if lengths and j >= lengths[i]:
                return False, 0.0
            if padding and j >= s - padding[i]:
                return False, 0.0
            if mask is None:
                return True, 0.0
            if j >= mask.shape[-1] and mask.shape[-1] != 1:
                return False, 0.0
            row = mask.expand(b, c["num_heads"], n, mask.shape[-1])[i, a, q + (past[0].shape[1] if past else 0)]
            return True, row[j].item()

        source = part if key is None else key[i]
        return m.item(part, source, source if key is None else value[i], past, offset, seen)

    results = []
    for i in range(b):
        offset = lengths[i] - n if lengths and key is not None else 0  # x attends to itself: the same positions
        if "chunks" not in case:
            results.append(one(i, x[i], None, offset))
            continue
        past, rows, at = None, [], 0
        for size in case["chunks"]:
            y, found = one(i, x[i, at : at + size], past, at)
            past, at = (found["keys"], found["values"]), at + size
            rows.append(y)
        results.append((torch.cat(rows), found))
    expect = torch.stack([y for y, _ in results])
    internals = {name: torch.stack([f[name] for _, f in results]) for name in case.get("internals", [])}
    return expect, internals


SMALL = {"d_in": 6, "d_out": 8, "context_length": 12, "dropout": 0, "num_heads": 4}
ALL = ["scores", "weights", "queries", "keys", "values"]
LINEAR = {"type": "linear", "factor": 4.0}
NTK = {"type": "ntk", "factor": 4.0}
YARN = {"type": "yarn", "factor": 4.0, "original_context_length": 64}
LLAMA3 = {"type": "llama3", "factor": 8.0, "original_context_length": 16}


def cases():
    def case(name, seed, b=2, n=7, more=None, **config):
        return {"name": name, "seed": seed, "b": b, "n": n, "config": {**SMALL, **config}, **(more or {})}

    yield case("plain", 1, more={"internals": ALL})
    yield case("groups", 2, num_kv_heads=2, qkv_bias=True, more={"internals": ALL})
    yield case("one key head, head_dim 3, no out_proj", 3, num_kv_heads=1, head_dim=3, out_proj=False)
    yield case("window to the left", 4, window={"left": 2}, more={"internals": ["scores", "weights"]})
    yield case("window of 0", 5, window={"left": 0})
    yield case("window to both sides, not causal", 6, window={"left": 1, "right": 2}, causal=False)
    yield case("window to the right", 7, window={"right": 1}, causal=False)
    yield case("softcap", 8, softcap=0.5, scale=1.0, more={"internals": ["scores", "weights"]})
    yield case("alibi", 9, alibi=True, more={"internals": ["scores", "weights"]})
    yield case("alibi, 6 heads, not causal", 10, alibi=True, causal=False, num_heads=6, d_out=12)
    yield case("sinks", 11, sinks=True, more={"internals": ["weights"]})
    yield case("qk_norm", 12, qk_norm=True, num_kv_heads=2, head_dim=4, more={"internals": ALL})
    yield case("qk_norm with an eps", 13, qk_norm={"eps": 0.1})
    half = {"head_dim": 8, "num_kv_heads": 2}
    yield case("rope, half", 14, rope={}, **half, more={"internals": ALL})
    yield case("rope, interleaved", 15, rope={"style": "interleaved", "base": 100.0}, **half, more={"internals": ALL})
    yield case("rope, some dims", 16, rope={"dims": 4}, **half)
    yield case("rope, linear", 17, rope={"scaling": LINEAR}, **half)
    yield case("rope, ntk", 18, rope={"scaling": NTK, "style": "interleaved"}, **half)
    yield case("rope, yarn", 19, rope={"scaling": YARN}, **half)
    yield case("rope, llama3", 20, rope={"scaling": LLAMA3}, **half)
    every = {"window": {"left": 3}, "softcap": 2.0, "alibi": True, "sinks": True, "qk_norm": True, "rope": {}}
    yield case("everything", 21, **half, **every, more={"internals": ALL})
    yield case("everything, not causal", 22, **half, **{**every, "window": {"left": 2, "right": 1}}, causal=False)
    yield case("float mask", 23, **half, **every, more={"float_mask": [2, 4, 7, 7]})
    yield case("float mask of a row, shorter than the keys", 24, more={"float_mask": [1, 5]})
    yield case("padding", 25, more={"padding": [3, 0], "internals": ["weights"]}, sinks=True)
    yield case("lengths", 26, more={"kv_lengths": [5, 7], "internals": ["weights"]})
    yield case("lengths, not causal", 27, more={"kv_lengths": [0, 4]}, causal=False, sinks=True)

    cross = {"kdim": 5, "vdim": 3}
    yield case("cross attention", 28, n=4, causal=False, **cross, more={"s": 9, "internals": ALL})
    yield case("cross attention, causal", 29, n=5, **cross, more={"s": 3})
    yield case("cross attention, keys are values", 30, n=4, kdim=5, vdim=5, causal=False, more={"s": 6})
    yield case("cross attention, everything", 31, n=5, **cross, **half, **every, more={"s": 8})
    yield case("cross attention with lengths", 32, n=3, **cross, **half, more={"s": 8, "kv_lengths": [8, 5]})
    yield case("cross attention with padding", 33, n=3, causal=False, **cross, more={"s": 8, "padding": [2, 5]})

    def cached(name, seed, chunks, **config):
        return case(name, seed, n=sum(chunks), more={"chunks": chunks}, **config)

    for number, chunks in enumerate([[7], [1] * 7, [3, 1, 3], [1, 6]]):
        yield cached(f"cache {chunks}", 40 + number, chunks)
        yield cached(f"cache {chunks}, rope in groups", 50 + number, chunks, **half, rope={"style": "interleaved"})
        yield cached(f"cache {chunks}, everything", 60 + number, chunks, **half, **every)
        yield cached(f"cache {chunks}, window, not causal", 70 + number, chunks, window={"left": 2}, causal=False)
    masked = case("cache with a float mask", 80, more={"chunks": [4, 3], "float_mask": [7, 7]}, alibi=True)
    yield masked


def main():
    def plain(tensor):
        return {"shape": list(tensor.shape), "data": tensor.flatten().tolist()}

    def finished(case):
        expect, internals = run(case)
        internals = {name: plain(each) for name, each in internals.items()}
        return {**case, "internals": internals, "expect": plain(expect)}

    title = "MultiHeadAttention with its options, made by scripts/dev/make_mha_values.py, which describes the inputs."
    golden.write(golden.folder() / "mha.lua", title, map(finished, cases()), digits=8)


if __name__ == "__main__":
    main()
