"""Makes the reference values of elementwise operations and reductions with PyTorch: tests/golden/operations.lua.

    python scripts/dev/make_operation_values.py [FOLDER] [SEED] [ROUNDS]     (pip install torch==2.13.0 numpy)

A case is {name =, args =, results =, ulp =, slack =}: heed[name](args…) gives the results, within so many units in
the last place, plus slack; 0 for both: the same bits. Dimensions and indices count from 1 in the cases. Shapes are
random, so that another seed and more rounds test more.
"""

import math
import random
import sys

import torch

import golden

SHAPES = [[], [1], [7], [8], [17], [33], [3, 5], [4, 1, 9], [2, 3, 4, 5]]
inf, nan = math.inf, math.nan
cases = []


def case(name, args, results, ulp=0, slack=0.0):
    results = results if isinstance(results, (tuple, list)) else [results]
    cases.append({"name": name, "args": args, "results": [each.contiguous() for each in results],
                  "ulp": ulp or None, "slack": slack or None})


def shape():
    return random.choice(SHAPES)


def broadcast(sizes):
    """A shape that broadcasts to `sizes`."""
    sizes = [1 if random.random() < 0.3 else size for size in sizes]
    return sizes[random.randint(0, len(sizes)):] if random.random() < 0.3 else sizes


def reals(sizes, scale=3.0):
    return torch.randn(sizes) * scale


def wholes(sizes, low=-9, high=9):
    return torch.randint(low, high + 1, sizes)


def special(sizes):
    """With nan, inf, zeros and equal elements."""
    x = torch.round(reals(sizes))
    for value in (nan, inf, -inf, -0.0):
        x = torch.where(torch.rand(sizes) < 0.1, torch.tensor(value), x)
    return x


def dim_of(x):
    """A dimension of x as PyTorch counts it."""
    return random.randrange(-max(x.dim(), 1), max(x.dim(), 1))


def lua(dim):
    if isinstance(dim, (list, tuple)):
        return [lua(each) for each in dim]
    return dim + 1 if dim >= 0 else dim


# ---- Elementwise ----

EXACT = "floor ceil round trunc sign square reciprocal".split()
NEAR = "exp2 expm1 log2 log10 log1p erf".split()


def unary():
    for name in EXACT + NEAR:
        ulp = 0 if name in EXACT else 3
        f = getattr(torch, name)
        for x in (reals(shape()), special([11]), wholes(shape())):
            case(name, [x], f(x), ulp)
    x = reals(shape())
    case("round", [x * 4 // 1 / 2], torch.round(x * 4 // 1 / 2))
    for decimals in (1, 2, -1):
        case("round", [x * 20, {"decimals": decimals}], torch.round(x * 20, decimals=decimals))
    case("sign", [x > 0], torch.sign(x > 0))
    case("square", [x > 0], torch.square(x > 0))


def binary():
    for name in ("floor_divide", "fmod", "remainder"):
        f = getattr(torch, name)
        sizes = shape()
        a, b = reals(sizes), reals(broadcast(sizes), 1.0)
        whole = wholes(broadcast(sizes), 1, 5) * random.choice([-1, 1])
        case(name, [a, b], f(a, b))
        case(name, [a, whole], f(a, whole))
        i = wholes(sizes)
        case(name, [i, whole], f(i, whole))
        x, y = special([19]), special([19])
        case(name, [x, y], f(x, y))
        case(name, [x, 2.5], f(x, 2.5))
    sizes = shape()
    a, b, i, j = reals(sizes), reals(broadcast(sizes)), wholes(sizes), wholes(broadcast(sizes), 1, 6)
    for mode in ("floor", "trunc"):
        options = {"rounding_mode": mode}
        case("div", [a, b, options], torch.div(a, b, **options))
        case("div", [i, j, options], torch.div(i, j, **options))
        case("div", [i, -j, options], torch.div(i, -j, **options))
        x = special([9])
        case("div", [x, 2, options], torch.div(x, 2, **options))
    for alpha in (2, -1.5, 0.3):
        case("add", [a, b, {"alpha": alpha}], torch.add(a, b, alpha=alpha), 1, 1e-6)
        case("sub", [a, j, {"alpha": alpha}], torch.sub(a, j, alpha=alpha), 1, 1e-6)
    case("add", [i, j, {"alpha": 3}], torch.add(i, j, alpha=3))
    case("sub", [i, j, {"alpha": 3}], torch.sub(i, j, alpha=3))


def combined():
    sizes = shape()
    x, a, b = reals(sizes), reals(broadcast(sizes)), reals(broadcast(sizes))
    i, j, k = wholes(sizes), wholes(broadcast(sizes)), wholes(broadcast(sizes))
    for value in (1, 0.7, -3):
        case("addcmul", [x, a, b, {"value": value}], torch.addcmul(x, a, b, value=value), 1, 1e-6)
        case("addcdiv", [x, a, b, {"value": value}], torch.addcdiv(x, a, b, value=value))
    case("addcmul", [i, j, k, {"value": 2}], torch.addcmul(i, j, k, value=2))
    for weight in (0.3, 0.5, 0.9, 1.5, -1):
        case("lerp", [x, a, weight], torch.lerp(x, a, weight), 1, 1e-6)
    weight = torch.rand(sizes)
    case("lerp", [x, a, weight], torch.lerp(x, a, weight), 1, 1e-6)
    y = special([23])
    case("nan_to_num", [y], torch.nan_to_num(y))
    case("nan_to_num", [y, {"nan": 2, "neginf": -1}], torch.nan_to_num(y, nan=2, neginf=-1))
    case("nan_to_num", [i], torch.nan_to_num(i))
    case("clip", [x, -1, 2], torch.clip(x, -1, 2))
    near = torch.where(torch.rand(sizes) < 0.5, x * (1 + 9e-6), x + 1e-4)
    case("isclose", [x, near], torch.isclose(x, near))
    case("isclose", [x, near, {"rtol": 0, "atol": 2e-4}], torch.isclose(x, near, rtol=0, atol=2e-4))
    case("isclose", [y, y], torch.isclose(y, y))
    case("isclose", [y, y, {"equal_nan": True}], torch.isclose(y, y, equal_nan=True))
    case("isclose", [i, j], torch.isclose(i, j))


# ---- Reductions ----


def over_dims(name, f, x, ulp, slack=0.0, lists=True, first=()):
    """All elements, one dimension, several, with and without keepdim."""
    case(name, [x, *first], f(x), ulp, slack)
    if x.dim() == 0:
        return
    dim = dim_of(x)
    case(name, [x, *first, lua(dim)], f(x, dim=dim), ulp, slack)
    case(name, [x, *first, {"dim": lua(dim), "keepdim": True}], f(x, dim=dim, keepdim=True), ulp, slack)
    if lists and x.dim() > 1:
        dims = random.sample(range(x.dim()), random.randint(1, x.dim()))
        case(name, [x, *first, lua(dims)], f(x, dim=dims), ulp, slack)


EITHER_ZERO = 0.25  # ulp, less than between two numbers: the order of 0 and -0 depends on the processor


def reductions():
    for x in (reals(shape()), special(shape()), wholes(shape()), reals(shape()) > 0):
        if x.dtype != torch.bool:
            over_dims("prod", torch.prod, x, 20, lists=False)
        over_dims("amax", torch.amax, x, EITHER_ZERO)
        over_dims("amin", torch.amin, x, EITHER_ZERO)
        case("count_nonzero", [x], torch.count_nonzero(x))
        if x.dim() > 0:
            dim = dim_of(x)
            case("count_nonzero", [x, lua(dim)], torch.count_nonzero(x, dim=dim))
            case("cumprod", [x, lua(dim)], torch.cumprod(x, dim), 2)
            case("logsumexp", [x, lua(dim)], torch.logsumexp(x, dim), 3, 1e-6)
            case("logsumexp", [x, lua(dim), True], torch.logsumexp(x, dim, keepdim=True), 3, 1e-6)
        if x.dtype != torch.bool:
            case("median", [x], torch.median(x), EITHER_ZERO)
    for x in (reals(shape()), special(shape())):
        for p in (2, 1, inf, -inf, 0, 3, 0.5, -1):
            over_dims("norm", lambda x, p=p, **options: torch.norm(x, p, **options), x, 20, first=(p,))
        case("norm", [x], torch.norm(x), 20)
        case("norm", [x, "fro", {"keepdim": True}], torch.norm(x, "fro", keepdim=True), 20)


def medians():
    for sizes in (shape(), shape()):
        x = torch.randperm(math.prod(sizes)).reshape(sizes)  # distinct: PyTorch may choose any of equal elements
        for y in (x, x * 0.5, torch.where(x == 3, nan, x * 0.5)):
            dim = dim_of(y)
            for keepdim in (False, True):
                values, indices = torch.median(y, dim, keepdim)
                case("median", [y, lua(dim), keepdim], (values, indices + 1))


def quantiles():
    for x in (reals(shape()), special(shape())):
        for interpolation in ("linear", "lower", "higher", "midpoint", "nearest"):
            q, dim = round(random.random(), 3), dim_of(x)
            several = torch.rand(random.randint(1, 4))
            options = {"interpolation": interpolation}
            case("quantile", [x, q, options], torch.quantile(x, q, **options), 1, 1e-6)
            case("quantile", [x, several, lua(dim), options], torch.quantile(x, several, dim, **options), 1, 1e-6)
            case("quantile", [x, several, {**options, "dim": lua(dim), "keepdim": True}],
                 torch.quantile(x, several, dim, True, **options), 1, 1e-6)
            case("quantile", [x, q, {**options, "keepdim": True}], torch.quantile(x, q, keepdim=True, **options), 1,
                 1e-6)


def main():
    path = golden.folder()
    seed, rounds = (int(each) for each in (sys.argv[2:] + ["23", "1"])[:2])
    torch.manual_seed(seed)
    random.seed(seed)
    for _ in range(rounds):
        for make in (unary, binary, combined, reductions, medians, quantiles):
            make()
    golden.write(path / "operations.lua",
                 "operations: reference values computed with PyTorch 2.13.0, by scripts/dev/make_operation_values.py",
                 cases, functions=True)


main()
