"""Makes the reference values of random fills of views, fills.lua, with PyTorch.

    python scripts/dev/make_fill_values.py [FOLDER]     (pip install torch numpy)

Each case is a view of range(1, n) in a base shape, and for each kind of draw the bits of the result, in row-major order
as hexadecimal bytes: for draws in place of the whole base, which shows changes outside the view, else of the new
tensor. The last two numbers are a uniform and a normal one drawn afterwards from the same generator. `stride` is the
layout of rand_like's result. Dimensions and indices count from 1.
"""

import torch
from torch.nn.functional import dropout

import golden

# ---- Views: a base shape, and operations as tests/spec/fills_spec.lua performs them ----

VIEWS = [
    ([40], []),
    ([5, 7], []),
    ([3, 4], [["T"]]),
    ([4, 4], [["T"]]),
    ([4, 5], [["T"]]),
    ([6, 7], [["T"]]),
    ([2, 3, 4], [["T"]]),
    ([2, 3, 4], [["permute", 1, 3, 2]]),
    ([2, 3, 4], [["permute", 3, 1, 2]]),
    ([3, 2, 3], [["transpose", 1, 2]]),
    ([2, 3, 2, 2], [["permute", 4, 2, 1, 3]]),
    ([2, 3, 2, 2], [["permute", 1, 3, 2, 4], ["permute", 4, 1, 2, 3]]),
    ([2, 2, 5, 2], [["narrow", 3, 2, 3], ["permute", 2, 4, 1, 3]]),
    ([5, 8], [["slice", 2, 1, 8, 2]]),
    ([5, 8], [["slice", 1, 2, 5, 2], ["slice", 2, 1, 8, 3], ["T"]]),
    ([40], [["slice", 1, 2, 40, 2]]),
    ([40], [["slice", 1, 1, 40, 3]]),
    ([5, 6], [["narrow", 2, 2, 4]]),
    ([5, 6], [["narrow", 1, 2, 3]]),
    ([5, 6], [["select", 2, 3]]),
    ([18, 2], [["select", 2, 2]]),
    ([3, 3, 4], [["select", 2, 2], ["T"]]),
    ([3, 2, 4], [["select", 3, 1]]),
    ([], []),
    ([5], [["select", 1, 2]]),
    ([0, 3], [["T"]]),
    ([2, 0, 3], [["permute", 3, 1, 2]]),
    ([1, 20], [["T"]]),
    ([3, 1, 5], [["permute", 3, 2, 1]]),
    ([1, 3, 1, 6], [["permute", 3, 4, 1, 2]]),
    ([4, 5], [["T"], ["unsqueeze", 2]]),
    ([24], [["view", 4, 6], ["T"]]),
    ([16], [["view", 4, 4], ["T"], ["narrow", 1, 2, 2]]),
    ([17, 1], [["expand", 17, 2], ["select", 2, 1]]),
    ([3, 1], [["expand", 3, 4]]),
    ([1, 4], [["expand", 5, 4]]),
    ([4], [["expand", 3, 4], ["T"]]),
    ([1], [["expand", 3, 4]]),
    ([2, 1, 3], [["permute", 3, 2, 1], ["expand", 3, 3, 2]]),
    ([2, 1, 1], [["expand", 2, 2, 3], ["permute", 2, 3, 1]]),
    ([2, 2, 3], [["permute", 3, 2, 1], ["unsqueeze", 2], ["expand", 3, 2, 2, 2]]),
    ([2, 3, 1], [["permute", 3, 2, 1], ["expand", 4, 3, 2]]),
    ([3, 4], [["T"], ["expand", 1, 4, 3]]),
    ([4], [["expand", 1, 4], ["permute", 2, 1], ["unsqueeze", 2], ["expand", 4, 5, 1]]),
]


def apply(x, operation):
    kind, *given = operation
    if kind == "T":
        return x.permute(list(range(x.ndim))[::-1])
    if kind == "slice":
        dim, first, last, step = given
        return x[tuple([slice(None)] * (dim - 1) + [slice(first - 1, last, step)])]
    if kind == "permute":
        return x.permute([d - 1 for d in given])
    if kind in ("expand", "view"):
        return getattr(x, kind)(given)
    if kind == "select":
        return x.select(given[0] - 1, given[1] - 1)
    if kind == "narrow":
        return x.narrow(given[0] - 1, given[1] - 1, given[2])
    return getattr(x, kind)(*[d - 1 for d in given])  # transpose, unsqueeze


# ---- Draws ----

IN_PLACE = {
    "uniform": lambda x: x.uniform_(),
    "uniform_ends": lambda x: x.uniform_(-0.5, 2),
    "normal": lambda x: x.normal_(),
    "normal_scaled": lambda x: x.normal_(0.5, 2),
}
NEW = {
    "rand_like": torch.rand_like,
    "randn_like": torch.randn_like,
    "randint_like": lambda x: torch.randint_like(x, 1, 1001),
    "bernoulli": lambda x: torch.bernoulli(x / 64),
    "dropout": lambda x: dropout(x, 0.25),
    "dropout_twice": lambda x: dropout(dropout(x, 0.25), 0.5),
    "filled_zeros_like": lambda x: torch.zeros_like(x).uniform_(),
    "filled_rand_like": lambda x: torch.rand_like(x).normal_(),
}


def bits(x):
    return x.contiguous().numpy().tobytes().hex()


def draw(shape, operations, name, seed):
    """The bits, or None where PyTorch refuses to write because elements share memory."""
    count = torch.Size(shape).numel()
    base = torch.arange(1, count + 1, dtype=torch.float32).reshape(shape)
    x = base
    for operation in operations:
        x = apply(x, operation)
    torch.manual_seed(seed)
    try:
        result = NEW[name](x) if name in NEW else IN_PLACE[name](x)
    except RuntimeError as problem:
        assert "more than one element of the written-to tensor" in str(problem)
        return None
    return bits(result if name in NEW else base) + bits(torch.rand(1)) + bits(torch.randn(1))


def stride(shape, operations):
    x = torch.zeros(shape)
    for operation in operations:
        x = apply(x, operation)
    return torch.rand_like(x).stride()


def main():
    sets, cases = [], 0
    for number, (shape, operations) in enumerate(VIEWS, 1):
        draws = []
        for name in [*IN_PLACE, *NEW]:
            seed = 1000 * number + cases
            found = draw(shape, operations, name, seed)
            draws.append(f"    {golden.lua([name, seed, False if found is None else found])},\n")
            cases += 1
        sets.append({"shape": shape, "operations": operations, "stride": stride(shape, operations),
                     "draws": golden.Raw("{\n" + "".join(draws) + "  }")})
    golden.write(golden.folder() / "fills.lua", "fills: reference values made by scripts/dev/make_fill_values.py with "
                 f"PyTorch {torch.__version__}", sets)


if __name__ == "__main__":
    main()
