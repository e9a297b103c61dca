"""Makes the reference values of tests/golden/check.lua again with PyTorch: calls, dropout, modules, printing, random
and sdpa.

    python scripts/dev/make_reference_values.py [FOLDER]     (pip install torch==2.13.0 numpy)

The inputs, seeds and settings are those in the stored cases, whose origin is unknown; only the results are computed.
Add a case by adding its input to a set, with any result. Dimensions and indices count from 1 in the cases.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F

import golden


def build(value):
    """A stored value with its tensors as torch.Tensor."""
    if golden.is_tensor(value):
        return torch.from_numpy(golden.array(value))
    if isinstance(value, dict):
        return {key: build(each) for key, each in value.items()}
    return [build(each) for each in value] if isinstance(value, list) else value


# ---- calls ----


def from_one(dim):
    """A dimension or index of heed as one of PyTorch: from 1, or negative, counted from the end."""
    return dim - 1 if dim > 0 else dim


def by_dimensions(f):
    return lambda x, *dims: f(x, *(from_one(dim) for dim in dims))


def reduction(f, **settings):
    """f over all elements or one dimension; of values and indices, the values."""
    def call(x, dim=None, keepdim=False):
        result = f(x, **settings) if dim is None else f(x, dim=from_one(dim), keepdim=keepdim, **settings)
        return result[0] if isinstance(result, tuple) else result
    return call


CALLS = {name: getattr(torch, name) for name in """exp tanh sigmoid relu abs neg sin cos log sqrt rsqrt add sub mul div
    maximum minimum pow eq ne lt le gt ge matmul dot flatten squeeze tril triu masked_fill where full linspace
    eye""".split()}
CALLS.update({name: reduction(getattr(torch, name)) for name in "sum mean var std max min".split()})
CALLS.update({name: by_dimensions(getattr(torch, name))
              for name in "transpose unsqueeze cumsum softmax log_softmax cat stack".split()})
CALLS.update(
    gelu=lambda x, options=None: F.gelu(x, **(options or {})),
    silu=F.silu,
    clamp=torch.clamp,
    linear=F.linear,
    argmax=lambda x, dim: x.argmax(from_one(dim)) + 1,
    argmin=lambda x, dim: x.argmin(from_one(dim)) + 1,
    permute=lambda x, *dims: x.permute([from_one(dim) for dim in dims]),
    reshape=lambda x, *shape: x.reshape(shape),
    view=lambda x, *shape: x.view(shape),
    expand=lambda x, *shape: x.expand(shape),
    narrow=lambda x, dim, start, length: x.narrow(from_one(dim), from_one(start), length),
    select=lambda x, dim, index: x.select(from_one(dim), from_one(index)),
    index_select=lambda x, dim, index: x.index_select(from_one(dim), index - 1),
    gather=lambda x, dim, index: x.gather(from_one(dim), index - 1),
    layer_norm=lambda x, weight, bias, eps: F.layer_norm(x, x.shape[-1:], weight, bias, eps),
    rms_norm=lambda x, weight, eps: F.rms_norm(x, x.shape[-1:], weight, eps),
    range=lambda first, last: torch.arange(float(first), last + 1.0),
)


def calls(case):
    case["expect"] = CALLS[case["fn"]](*build(case["args"])).contiguous()


# ---- random, dropout ----


def draw(name, *arguments):
    if name == "randperm":
        return torch.randperm(*arguments) + 1
    if name == "randint":  # heed's last value is included
        low, high, shape = arguments
        return torch.randint(low, high + 1, shape)
    return getattr(torch, name)(*arguments)


def random(case):
    torch.manual_seed(case["seed"])
    case["expect"] = [draw(*each) for each in case["draws"]]


def mkl_uniform(count):
    """The numbers of Intel's MCG31m1 generator, seeded by one 32-bit number of PyTorch's generator."""
    state = torch.get_rng_state()
    seed = (int(torch.empty(1, dtype=torch.int64).random_(-2**63, None)) >> 32) & 0xffffffff
    torch.set_rng_state(state)
    torch.rand(1)  # consumes one 32-bit number
    x, numbers = seed % (2**31 - 1) or 1, []
    for _ in range(count):
        numbers.append(x / (2**31 - 1))
        x = 1132489760 * x % (2**31 - 1)
    return torch.tensor(numbers, dtype=torch.float64)


def dropout_of(x, p, stream):
    """Dropout as PyTorch draws it on Intel processors ("mkl") and on all others ("native"), computed on any."""
    if p == 0:
        return x
    u = mkl_uniform(x.numel()).reshape(x.shape) if stream == "mkl" else torch.rand(x.shape, dtype=torch.float64)
    return torch.where(u < 1 - p, x / (1 - p), 0)


def dropout(case):
    torch.manual_seed(case["seed"])
    case["expect"] = dropout_of(build(case["x"]), case["p"], case["stream"])


# ---- modules ----


class Attention(nn.Module):
    """SelfAttention, CausalAttention and MultiHeadAttention. x is [n, d_in] or [b, n, d_in]."""

    def __init__(self, c, causal, stream, heads=None):
        super().__init__()
        self.causal, self.heads, self.p, self.stream = causal, heads, c.get("dropout", 0), stream
        self.kv_heads = c.get("num_kv_heads", heads)
        self.dim = from_one(c.get("softmax_dim", -1))
        kv_size = c["d_out"] // heads * self.kv_heads if heads else c["d_out"]
        for name, size in (("W_query", c["d_out"]), ("W_key", kv_size), ("W_value", kv_size)):
            setattr(self, name, nn.Linear(c["d_in"], size, bias=c.get("qkv_bias", False)))
        if heads:
            self.out_proj = nn.Linear(c["d_out"], c["d_out"])

    def split(self, x, heads):
        """[b, n, h * d] to [b, h, n, d]; a group of query heads shares a key head."""
        x = x.view(*x.shape[:2], heads, -1).transpose(1, 2)
        return x.repeat_interleave(self.heads // heads, 1)

    def forward(self, x, key_padding_mask=None):
        q, k, v = self.W_query(x), self.W_key(x), self.W_value(x)
        if self.heads:
            q, k, v = self.split(q, self.heads), self.split(k, self.kv_heads), self.split(v, self.kv_heads)
        scores = q @ k.transpose(-2, -1)
        masked = scores
        if self.causal:
            masked = masked.masked_fill(torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1), -math.inf)
        if key_padding_mask is not None:
            masked = masked.masked_fill(key_padding_mask[:, None, None], -math.inf)
        weights = dropout_of(torch.softmax(masked / k.shape[-1]**0.5, self.dim), self.p, self.stream)
        y = weights @ v
        if self.heads:
            y = self.out_proj(y.transpose(1, 2).flatten(2))
        return y, {"scores": masked, "weights": weights, "queries": q, "keys": k, "values": v}


class Wrapper(nn.Module):
    """MultiHeadAttentionWrapper: heads of their own, joined."""

    def __init__(self, c, stream):
        super().__init__()
        self.heads = nn.ModuleList(Attention(c, True, stream) for _ in range(c["num_heads"]))

    def forward(self, x):
        return torch.cat([head(x)[0] for head in self.heads], -1), {}


class Linear(nn.Linear):
    def forward(self, x):
        return super().forward(x), {}


def modules(case):
    torch.manual_seed(case["seed"])
    c, stream = case["config"], case.get("stream", "native")
    module = {
        "SelfAttention": lambda: Attention(c, False, stream),
        "CausalAttention": lambda: Attention(c, True, stream),
        "MultiHeadAttention": lambda: Attention(c, c.get("causal", True), stream, c["num_heads"]),
        "MultiHeadAttentionWrapper": lambda: Wrapper(c, stream),
        "Linear": lambda: Linear(c["d_in"], c["d_out"]),
    }[case["class"]]()
    state = module.state_dict()
    case["names"] = list(state)
    if "state" in case:
        case["state"] = [[name, value.clone()] for name, value in state.items()]
    case["expect"], internals = module(build(case["x"]), **build(case.get("options") or {}))
    if "internals" in case:
        case["internals"] = {name: internals[name].contiguous() for name in case["internals"]}


# ---- sdpa, printing ----


def in_double(value):
    return value.double() if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value


def sdpa(case):
    """In double precision, which does not depend on PyTorch's choice of an algorithm."""
    q, k, v = (in_double(build(case[name])) for name in "qkv")
    options = {name: in_double(each) for name, each in build(case.get("options") or {}).items()}
    case["expect"] = F.scaled_dot_product_attention(q, k, v, **options).float()


def printing(case):
    case["expect"] = str(build(case["x"]))


def main():
    for make in (calls, random, dropout, modules, sdpa, printing):
        name = make.__name__
        cases = golden.load(golden.GOLDEN / f"{name}.lua")
        with torch.no_grad():
            for case in cases:
                make(case)
        title = f"{name}: reference values computed with PyTorch 2.13.0, by scripts/dev/make_reference_values.py"
        golden.write(golden.folder() / f"{name}.lua", title, cases, functions=True)


if __name__ == "__main__":
    main()
