"""The rows of the bench: inputs, amount of work, and the reference result in double precision."""

import itertools

import numpy as np

LINE = 64  # bytes of a cache line
CHECKED = 64  # queries of each head at which attention is checked: all 8192 would take longer than the bench


class Row:
    """One line of the table. op: what is computed; group: the heading; flops or bytes: the amount of work, for the
    share of the machine's peak (the other one is None); tolerance: the largest accepted difference from double
    precision."""

    def __init__(self, group, name, op, inputs, reference, flops=None, bytes=None, sets=1, tolerance=1e-2, **sizes):
        self.group, self.name, self.op, self.tolerance = group, name, op, tolerance
        self.make_inputs, self.make_reference = inputs, reference
        self.flops, self.bytes, self.sets, self.sizes = flops, bytes, sets, sizes
        self.turn = itertools.cycle(range(sets))  # the next buffers to use; shared by the contenders

    def __getattr__(self, name):
        try:
            return self.__dict__["sizes"][name]
        except KeyError:
            raise AttributeError(name) from None

    def prepare(self):
        made = self.make_inputs(np.random.default_rng(len(self.name)))
        self.inputs = {name: aligned(x) for name, x in made.items()}
        self.reference = self.make_reference(self.inputs)

    def forget(self):
        self.inputs = self.reference = None

    def errors(self, output):
        """The largest and the root mean square difference from double precision. Outputs of attention have the shape
        [heads, n, d], its gradients [3, heads, n, d]."""
        if self.op == "attention":
            output = output[:, checked_queries(output.shape[1])]
        if self.op == "attention_gradients":
            output = output[:, 0]
        apart = np.abs(output.astype(np.float64).reshape(self.reference.shape) - self.reference)
        return float(np.max(apart)), float(np.sqrt(np.mean(apart**2)))


def aligned(x):
    """A copy of x that begins at a cache line, as the libraries' own memory does. numpy's large arrays begin 16 bytes
    after one, which would slow down heed and PyTorch but not ONNX Runtime and ggml, which copy them."""
    block = np.empty(x.nbytes + LINE, np.uint8)
    first = -block.ctypes.data % LINE
    y = block[first:first + x.nbytes].view(x.dtype).reshape(x.shape)
    y[...] = x
    return y


def normal(rng, *shape):
    return rng.standard_normal(shape, dtype=np.float32)


def double(inputs, *names):
    return [inputs[name].astype(np.float64) for name in names]


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def checked_queries(n):
    return np.unique(np.linspace(0, n - 1, CHECKED).astype(int))


# ---- Attention ----


def added(mask):
    """A mask as numbers to add to scores; False in a boolean mask hides a key."""
    return np.where(mask, 0, -np.inf).astype(np.float32) if mask.dtype == bool else mask


def attention_reference(causal, softcap):
    def reference(inputs):
        q, k, v = double(inputs, "q", "k", "v")
        k, v = k[0], v[0]
        queries = checked_queries(q.shape[1])
        scores = q[:, queries] @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2])
        if softcap:
            scores = softcap * np.tanh(scores / softcap)
        if causal:
            scores[:, np.arange(k.shape[1]) > queries[:, None]] = -np.inf
        if "mask" in inputs:
            scores += added(inputs["mask"])[queries]
        return softmax(scores) @ v

    return reference


MASKS = dict(float=lambda rng, n, s: normal(rng, n, s), bool=lambda rng, n, s: rng.random((n, s)) < 0.9)


def same_document(n, length):
    """A mask of documents of that length, one after another."""
    document = np.arange(n) // length
    return document[:, None] == document


def attention(group, name, heads, n, d, causal, s=None, sets=1, mask=None, softcap=0.0, documents=0, rule=False):
    """q [heads, n, d], k and v [sets, heads, s, d]; the calls use the sets of keys in turn. mask: "float" or "bool",
    [n, s] for all heads; softcap: 0 for none; documents: the length of each, 0 for none, as a boolean mask or, by
    `rule`, in the library's own form."""
    s = s or n

    def inputs(rng):
        k, v = normal(rng, heads, s, d), normal(rng, heads, s, d)
        copies = [np.stack([x] * sets) for x in (k, v)]
        masks = dict(mask=MASKS[mask](rng, n, s)) if mask else {}
        if documents:
            masks = dict(mask=same_document(n, documents))
        return dict(q=normal(rng, heads, n, d), k=copies[0], v=copies[1], **masks)

    work = dict(flops=4.0 * heads * n * (documents or s) * d * (0.5 if causal else 1))
    if n == 1:
        work = dict(bytes=2.0 * heads * s * d * 4)
    return Row(group, name, "attention", inputs, attention_reference(causal, softcap), sets=sets, heads=heads, n=n,
               s=s, d=d, causal=causal, softcap=softcap, documents=documents, rule=rule, **work)


def gradients_reference(causal):
    """The gradients of q, k and v of the first head: all would take longer than the bench."""

    def reference(inputs):
        q, k, v, dy = (x[0] for x in double(inputs, "q", "k", "v", "dy"))
        scores = q @ k.T / np.sqrt(q.shape[1])
        if causal:
            scores[np.triu_indices(len(q), 1)] = -np.inf
        weights = softmax(scores)
        products = dy @ v.T
        scores = weights * (products - (weights * products).sum(-1, keepdims=True)) / np.sqrt(q.shape[1])
        return np.stack([scores @ k, scores.T @ q, weights.T @ dy])

    return reference


def gradients(group, name, heads, n, d, causal, forward):
    """The gradients of q, k and v [heads, n, d]; forward: the time of the forward pass counts, too."""

    def inputs(rng):
        return {name: normal(rng, heads, n, d) for name in ("q", "k", "v", "dy")}

    flops = (14.0 if forward else 10.0) * heads * n * n * d * (0.5 if causal else 1)
    return Row(group, name, "attention_gradients", inputs, gradients_reference(causal), flops=flops, heads=heads, n=n,
               d=d, causal=causal, forward=forward)


def module_reference(heads):
    def reference(inputs):
        x, wq, wk, wv, wo, bo = double(inputs, "x", "wq", "wk", "wv", "wo", "bo")
        b, n, _ = x.shape

        def split(w):
            return (x @ w.T).reshape(b, n, heads, -1).transpose(0, 2, 1, 3)

        q, k, v = split(wq), split(wk), split(wv)
        scores = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
        scores[:, :, np.triu(np.ones((n, n), bool), 1)] = -np.inf
        return (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(b, n, -1) @ wo.T + bo

    return reference


def module(name, b, n, d_in, d_out, heads):
    """MultiHeadAttention, causal: weights [out, in] as in nn.Linear."""

    def inputs(rng):
        def weight(rows, columns):
            return normal(rng, rows, columns) / np.float32(np.sqrt(columns))

        return dict(x=normal(rng, b, n, d_in), wq=weight(d_out, d_in), wk=weight(d_out, d_in), wv=weight(d_out, d_in),
                    wo=weight(d_out, d_out), bo=normal(rng, d_out))

    flops = 2.0 * b * n * (3 * d_in * d_out + d_out * d_out) + 2.0 * b * n * n * d_out
    return Row("modules", f"MultiHeadAttention {name}", "module", inputs, module_reference(heads),
               flops=flops if n >= 64 else None, b=b, n=n, d_in=d_in, d_out=d_out, heads=heads)


# ---- The rest of a layer ----


def matmul(n):
    def inputs(rng):
        return dict(a=normal(rng, n, n), b=normal(rng, n, n))

    return Row("products", f"matmul {n} × {n} × {n}", "matmul", inputs, lambda i: np.matmul(*double(i, "a", "b")),
               flops=2.0 * n**3)


def linear(rows, d_in, d_out):
    def inputs(rng):
        return dict(x=normal(rng, rows, d_in), w=normal(rng, d_out, d_in) / np.float32(np.sqrt(d_in)),
                    bias=normal(rng, d_out))

    def reference(inputs):
        x, w, bias = double(inputs, "x", "w", "bias")
        return x @ w.T + bias

    return Row("products", f"linear {rows} × {d_in} → {d_out}", "linear", inputs, reference,
               flops=2.0 * rows * d_in * d_out)


STORED = {"float32": (4, 1e-2), "bfloat16": (2, 2e-2), "float16": (2, 1e-2), "int8": (1 + 4 / 64, 5e-2)}


def matrix_vector(dtype, last_cache, d=4096):
    """One token through a Linear whose weight, stored in that dtype, is not in the caches: the calls use copies of it
    in turn, together four times as large as the last cache, and at least 200 MB."""
    element, tolerance = STORED[dtype]
    weight = int(d * d * element)
    sets = max(2, -(-max(4 * last_cache, 200 << 20) // weight))

    def inputs(rng):
        return dict(x=normal(rng, 1, d), w=normal(rng, d, d) / np.float32(np.sqrt(d)))

    def reference(inputs):
        x, w = double(inputs, "x", "w")
        return x @ w.T

    return Row("one token, weights of 4096 × 4096", f"matrix-vector {d} × {d}, {dtype}, cold", "matrix_vector", inputs,
               reference, bytes=weight, sets=sets, tolerance=tolerance, dtype=dtype)


def erf(x):
    # the power series for small x, an asymptotic formula for large x; accurate to 1e-13 (numpy has no erf)
    small = np.minimum(np.abs(x), 5.5)
    term, total = small.copy(), small.copy()
    for n in range(1, 160):
        term *= -small * small / n
        total += term / (2 * n + 1)
    return np.sign(x) * np.where(small > 4.2, 1 - np.exp(-small**2) / (small * np.sqrt(np.pi)),
                                 2 / np.sqrt(np.pi) * total)


def normalized(x, epsilon=1e-5):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)


REFERENCES = {
    "softmax": softmax,
    "log_softmax": lambda x: x - x.max(-1, keepdims=True)
    - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True)),
    "layer_norm": normalized,
    "rms_norm": lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
    "gelu": lambda x: x * 0.5 * (1 + erf(x / np.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "transpose": lambda x: x.T,
    "sum_rows": lambda x: x.sum(0),
}


def of_one(op, name, moved=2, n=1024):
    """moved: the elements that are read or written, divided by those of x."""

    def inputs(rng):
        return dict(x=normal(rng, n, n), weight=normal(rng, n), bias=normal(rng, n))

    def reference(inputs):
        x, weight, bias = double(inputs, "x", "weight", "bias")
        result = REFERENCES[op](x)
        if op in ("layer_norm", "rms_norm"):
            result = result * weight
        return result + bias if op == "layer_norm" else result

    return Row("1024 × 1024", name, op, inputs, reference, bytes=4.0 * moved * n * n)


def add(name, other, n=1024):
    def inputs(rng):
        return dict(x=normal(rng, n, n), other=normal(rng, *other))

    return Row("1024 × 1024", name, "add", inputs, lambda i: np.add(*double(i, "x", "other")), bytes=8.0 * n * n)


def add_transposed(n=1024):
    def inputs(rng):
        return dict(x=normal(rng, n, n), other=normal(rng, n, n))

    def reference(inputs):
        x, other = double(inputs, "x", "other")
        return x + other.T

    return Row("1024 × 1024", "add a transposed matrix", "add_transposed", inputs, reference, bytes=12.0 * n * n)


def rows(last_cache):
    """All rows. Cold keys come from buffers that are four times as large as the last cache."""

    def cold(s, d=64):
        return max(2, int(4 * last_cache / (2 * 8 * s * d * 4)) + 1)

    result = [attention("causal, 8 heads of 64", f"causal, {n} tokens", 8, n, 64, True) for n in (128, 512, 2048, 8192)]
    result += [attention("dense, 8 heads of 64", f"dense, {n} tokens", 8, n, 64, False) for n in (512, 2048)]
    result += [attention("dense, 8 heads of 64", f"dense, 2048 tokens, {text} mask", 8, 2048, 64, False, mask=mask)
               for mask, text in (("bool", "boolean"), ("float", "float"))]
    result.append(attention("dense, 8 heads of 64", "dense, 2048 tokens, soft cap 30", 8, 2048, 64, False,
                            softcap=30.0))
    result += [attention("documents, 8 heads of 64", f"32 documents of 128 tokens, {text}", 8, 4096, 64, False,
                         documents=128, rule=rule)
               for text, rule in (("boolean mask", False), ("by rule", True))]
    for s in (4096, 32768):
        result.append(attention("one query, 8 heads of 64", f"decode, {s} keys, warm", 8, 1, 64, False, s))
        result.append(attention("one query, 8 heads of 64", f"decode, {s} keys, cold", 8, 1, 64, False, s, cold(s)))
    result.append(attention("one query, 8 heads of 128", "decode, 4096 keys of 128, cold", 8, 1, 128, False, 4096,
                            cold(4096, 128)))
    for text, causal, n in (("causal", True, 512), ("causal", True, 2048), ("dense", False, 2048)):
        result.append(gradients("training, 8 heads of 64", f"backward, {text}, {n} tokens", 8, n, 64, causal, False))
    result.append(gradients("training, 8 heads of 64", "forward and backward, causal, 2048 tokens", 8, 2048, 64, True,
                            True))
    result.append(module("2 × 6 × 3, 2 heads", 2, 6, 3, 2, 2))
    result.append(module("1024 × 768, 12 heads", 1, 1024, 768, 768, 12))
    result += [matmul(1024), linear(1024, 768, 768)]
    result += [matrix_vector(dtype, last_cache) for dtype in STORED]
    result += [of_one(op, op) for op in ("softmax", "log_softmax", "layer_norm", "rms_norm", "gelu", "silu")]
    result.append(of_one("transpose", "transposed copy"))
    result += [add("add a row to each row", (1024,)), add("add a column to each column", (1024, 1))]
    result += [add_transposed(), of_one("sum_rows", "sum of the rows", moved=1)]
    return result
