"""PyTorch as a contender: "fused" is its best function for a row, "eager" the formula in separate operations."""

import math

import torch
import torch.nn.functional as F

name = "PyTorch"
torch.set_grad_enabled(False)


def version():
    return f"PyTorch {torch.__version__}"


def contenders(row, threads):
    torch.set_num_threads(threads)
    tensors = {name: torch.from_numpy(x) for name, x in row.inputs.items()}
    for contender, run in globals()[row.op](row, **tensors):
        yield contender, run, lambda run=run: run().numpy()


def explicit(q, k, v, hidden, bias=None, softcap=0.0):
    scores = q @ k.transpose(-1, -2)
    scores *= 1 / math.sqrt(q.shape[-1])
    if softcap:
        scores.div_(softcap).tanh_().mul_(softcap)
    if bias is not None:
        scores += bias
    if hidden is not None:
        scores.masked_fill_(hidden, -math.inf)
    return torch.softmax(scores, -1) @ v


def later_keys(n):
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def flex(row, q, k, v):
    """Compiled FlexAttention, which skips blocks that a rule hides."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    document = torch.arange(row.n) // row.documents
    blocks = create_block_mask(lambda b, h, i, j: document[i] == document[j], None, None, row.n, row.s, device="cpu")
    attend = torch.compile(flex_attention)
    return lambda: attend(q, k[next(row.turn)], v[0], block_mask=blocks)[0]


def attention(row, q, k, v, mask=None):
    # without a batch dimension, PyTorch's fused function uses its slow implementation
    batched = q[None], k[:, None], v[:, None]
    hidden, bias = later_keys(row.n) if row.causal else None, mask
    if mask is not None and mask.dtype == torch.bool:
        hidden, bias = ~mask, None

    def fused():
        i = next(row.turn)
        return F.scaled_dot_product_attention(batched[0], batched[1][i], batched[2][i], mask, is_causal=row.causal)[0]

    def eager():
        i = next(row.turn)
        return explicit(q, k[i], v[i], hidden, bias, row.softcap)

    if row.rule:
        yield "PyTorch flex", flex(row, *batched)
        return
    if not row.softcap:  # the fused function has no soft cap
        yield "PyTorch fused", fused
    yield "PyTorch eager", eager


def attention_gradients(row, q, k, v, dy):
    inputs = [x[None].requires_grad_() for x in (q, k, v)]
    kept = None

    def forward():
        with torch.enable_grad():
            return F.scaled_dot_product_attention(*inputs, is_causal=row.causal)

    def fused():
        nonlocal kept
        if kept is None or row.forward:
            kept = forward()
        gradients = torch.autograd.grad(kept, inputs, dy[None], retain_graph=not row.forward)
        return torch.stack([x[0] for x in gradients]) if stacks else gradients

    stacks = False

    class Gradients:
        """What is timed; numpy() is not."""

        def __call__(self):
            fused()
            return self

        def numpy(self):
            nonlocal stacks
            stacks = True
            result = fused().numpy()
            stacks = False
            return result

    yield "PyTorch fused", Gradients()


def module(row, x, wq, wk, wv, wo, bo):
    def projection(weight, bias=None):
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
        layer.weight.data = weight
        if bias is not None:
            layer.bias.data = bias
        return layer

    class MultiHeadAttention(torch.nn.Module):
        def __init__(self, fused):
            super().__init__()
            self.W_query, self.W_key, self.W_value = projection(wq), projection(wk), projection(wv)
            self.out_proj, self.fused = projection(wo, bo), fused
            self.register_buffer("hidden", later_keys(row.n))

        def forward(self, x):
            b, n, _ = x.shape

            def split(y):
                return y.view(b, n, row.heads, -1).transpose(1, 2)

            q, k, v = split(self.W_query(x)), split(self.W_key(x)), split(self.W_value(x))
            if self.fused:
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:
                y = explicit(q, k, v, self.hidden)
            return self.out_proj(y.transpose(1, 2).reshape(b, n, -1))

    for name, fused in ("PyTorch fused", True), ("PyTorch eager", False):
        m = MultiHeadAttention(fused).eval()
        yield name, lambda m=m: m(x)


def matmul(row, a, b):
    yield "PyTorch fused", lambda: torch.matmul(a, b)


def linear(row, x, w, bias):
    yield "PyTorch fused", lambda: F.linear(x, w, bias)


def matrix_vector(row, x, w):
    if row.dtype == "int8":
        raise NotImplementedError("no product of float32 with int8 in blocks")
    dtype = getattr(torch, row.dtype)
    weights, small = [w.to(dtype, copy=True) for _ in range(row.sets)], x.to(dtype)
    yield "PyTorch fused", lambda: F.linear(small, weights[next(row.turn)]).float()


def softmax(row, x, **_):
    yield "PyTorch fused", lambda: torch.softmax(x, -1)


def log_softmax(row, x, **_):
    yield "PyTorch fused", lambda: torch.log_softmax(x, -1)


def layer_norm(row, x, weight, bias):
    yield "PyTorch fused", lambda: F.layer_norm(x, weight.shape, weight, bias, 1e-5)


def rms_norm(row, x, weight, bias):
    yield "PyTorch fused", lambda: F.rms_norm(x, weight.shape, weight, 1e-5)


def gelu(row, x, **_):
    yield "PyTorch fused", lambda: F.gelu(x)


def silu(row, x, **_):
    yield "PyTorch fused", lambda: F.silu(x)


def transpose(row, x, **_):
    yield "PyTorch fused", lambda: x.T.contiguous()


def add(row, x, other):
    yield "PyTorch fused", lambda: x + other


def add_transposed(row, x, other):
    yield "PyTorch fused", lambda: x + other.T


def sum_rows(row, x, **_):
    yield "PyTorch fused", lambda: x.sum(0)
