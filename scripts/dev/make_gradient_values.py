"""Makes the gradients of elementwise operations, reductions, selections, activations and losses with PyTorch:
tests/golden/operation_gradients.lua.

    python scripts/dev/make_gradient_values.py [FOLDER] [SEED] [ROUNDS]     (pip install torch==2.13.0 numpy)

A case is {name =, args =, wrt =, weight =, grads =, grad_fn =, special =}: the result y = heed[name](args…), or
nn.functional's where the name begins with "F.", has that grad_fn, and (y · weight):sum():backward() gives these
gradients to the arguments wrt. Dimensions count from 1.
Gradients are computed in float64; special ones, with nan, infinities and equal elements, in float32, since they differ
where numbers overflow. Shapes are random, so that another seed and more rounds test more.
"""

import math
import random
import sys
import warnings

import torch
import torch.nn.functional as F

import golden

SHAPES = [[], [1], [7], [17], [33], [3, 5], [4, 1, 9], [2, 3, 4, 5], [0], [3, 0]]
inf, nan = math.inf, math.nan
cases = []
warnings.filterwarnings("ignore", message=".*degrees of freedom.*|.*target size.*")


def shape(least=0):
    return random.choice([each for each in SHAPES if len(each) >= least and (least == 0 or 0 not in each)])


def broadcast(sizes):
    """A shape that broadcasts to `sizes`."""
    sizes = [1 if random.random() < 0.3 else size for size in sizes]
    return sizes[random.randint(0, len(sizes)):] if random.random() < 0.3 else sizes


def reals(sizes, scale=2.0):
    return torch.randn(sizes) * scale


def positive(sizes):
    return torch.rand(sizes) * 3 + 0.2


def special(sizes, values=(nan, inf, -inf)):
    """With nan, infinities, zeros and equal elements."""
    x = torch.round(reals(sizes)) + 0.0
    for value in values:
        x = torch.where(torch.rand(sizes) < 0.1, torch.tensor(value), x)
    return x


def case(name, f, args, options=None, is_special=False, wrt=None):
    """f takes the tensors among args; the other arguments, and those that heed needs otherwise, are in options."""
    options = options or []
    is_float = [each.dtype == torch.float32 for each in args]
    wrt = [i for i, real in enumerate(is_float) if real and (wrt is None or i in wrt)]
    leaves = [each.double() if is_float[i] and not is_special else each.clone() for i, each in enumerate(args)]
    for i in wrt:
        leaves[i].requires_grad_()
    y = f(*leaves)
    weight = torch.round(reals(y.shape)) if is_special else reals(y.shape)
    (y * weight).sum().backward()
    grads = [torch.zeros_like(args[i]) if leaves[i].grad is None else leaves[i].grad.float() + 0.0 for i in wrt]
    grad_fn = y.grad_fn.name().replace("SortBackward1", "SortBackward0")  # 1: with the option stable
    inputs = [each + 0.0 if is_float[i] else each for i, each in enumerate(args)]
    cases.append({"name": name, "args": inputs + options, "wrt": [i + 1 for i in wrt], "weight": weight.float() + 0.0,
                  "grads": [each.contiguous() for each in grads], "grad_fn": grad_fn,
                  "special": True if is_special else None})


def dim_of(x):
    """A dimension of x as PyTorch counts it."""
    return random.randrange(-max(x.dim(), 1), max(x.dim(), 1))


def lua(dim):
    if isinstance(dim, (list, tuple)):
        return [lua(each) for each in dim]
    return dim + 1 if dim >= 0 else dim


# ---- Elementwise ----

ANYWHERE = "exp sin cos tanh sigmoid relu abs neg square exp2 expm1 erf floor ceil round trunc sign".split()
ABOVE_ZERO = "log sqrt rsqrt reciprocal log2 log10 log1p".split()


def unary():
    for name in ANYWHERE + ABOVE_ZERO:
        f = getattr(torch, name)
        case(name, f, [positive(shape()) if name in ABOVE_ZERO else reals(shape())])
        case(name, f, [special([19])], is_special=True)
    case("nan_to_num", torch.nan_to_num, [special([19])], is_special=True)


def binary():
    for name in ("add", "sub", "mul", "div", "remainder", "fmod", "maximum", "minimum"):
        f = getattr(torch, name)
        sizes = shape()
        a, b = reals(sizes), positive(broadcast(sizes))
        case(name, f, [a, b])
        case(name, f, [b, a])
        case(name, f, [special([29]), special([29])], is_special=True)
        if name not in ("maximum", "minimum"):
            case(name, lambda x, f=f: f(x, 1.5), [a], [1.5])
        case(name, f, [a, torch.randint(1, 5, broadcast(sizes))])
    for mode in ("floor", "trunc"):
        case("div", lambda x, y, mode=mode: torch.div(x, y, rounding_mode=mode), [reals([5]), positive([5])],
             [{"rounding_mode": mode}])


def powers():
    sizes = shape()
    a, b = positive(sizes), reals(broadcast(sizes))
    case("pow", torch.pow, [a, b])
    for power in (2, 3, 0.5, -1, 0, 1, 2.5):
        case("pow", lambda x, power=power: torch.pow(x, power), [a], [power])
        case("pow", lambda x, power=power: torch.pow(x, power), [special([19])], [power], is_special=True)
    base = torch.tensor([0., 0., 0., 0., 1, 1, 2, 2, -2, -2, -2])
    power = torch.tensor([0., 1, -1, 2.5, 0, -2, 0, -1, 0, 3, -1])
    case("pow", torch.pow, [base, power], is_special=True)


def combined():
    sizes = shape()
    x, a, b = reals(sizes), reals(broadcast(sizes)), positive(broadcast(sizes))
    case("add", lambda x, y: torch.add(x, y, alpha=-0.5), [x, a], [{"alpha": -0.5}])
    for value in (1, 0.7, -3):
        case("addcmul", lambda x, y, z, v=value: torch.addcmul(x, y, z, value=v), [x, a, b], [{"value": value}])
        case("addcdiv", lambda x, y, z, v=value: torch.addcdiv(x, y, z, value=v), [x, a, b], [{"value": value}])
    case("lerp", lambda x, y: torch.lerp(x, y, 0.3), [x, a], [0.3])
    weight = torch.rand(broadcast(sizes))
    case("lerp", torch.lerp, [x, a, weight])


def choices():
    for is_special in (False, True):
        sizes = [31] if is_special else shape()
        x = special(sizes) if is_special else reals(sizes)
        low, high = torch.round(reals(sizes)), torch.round(reals(sizes) + 1)
        case("clamp", lambda x: torch.clamp(x, -1, 1), [x], [-1, 1], is_special)
        case("clamp", lambda x: torch.clamp(x, min=-0.5), [x], [{"min": -0.5}], is_special)
        case("clamp", lambda x: torch.clamp(x, max=1), [x], [{"max": 1}], is_special)
        case("clamp", torch.clamp, [x, low, high], None, is_special)
        case("clamp", torch.clamp, [x, low], None, is_special)
        mask = torch.rand(broadcast(sizes)) < 0.5
        case("where", torch.where, [mask, x, low], None, is_special)
        case("masked_fill", lambda x, mask: torch.masked_fill(x, mask, 3), [x, mask], [3], is_special)
    case("where", lambda m, x: torch.where(m, x, 0.5), [reals([5]) > 0, reals([5])], [0.5])
    for name in ("tril", "triu"):
        for diagonal in (0, 1, -2):
            f = getattr(torch, name)
            case(name, lambda x, f=f, d=diagonal: f(x, d), [reals(random.choice([[3, 5], [4, 1, 9], [2, 3, 4, 5]]))],
                 [diagonal])


# ---- Reductions ----


def over_dims(name, f, x, lists=True, first=(), is_special=False, whole=True):
    """All elements, one dimension, several, with and without keepdim."""
    if whole:
        case(name, f, [x], list(first), is_special)
    if x.dim() == 0:
        return
    dim = dim_of(x)
    case(name, lambda x: f(x, dim=dim), [x], [*first, {"dim": lua(dim)}], is_special)
    case(name, lambda x: f(x, dim=dim, keepdim=True), [x], [*first, {"dim": lua(dim), "keepdim": True}], is_special)
    if lists and x.dim() > 1:
        dims = random.sample(range(x.dim()), random.randint(1, x.dim()))
        case(name, lambda x: f(x, dim=dims), [x], [*first, {"dim": lua(dims)}], is_special)


def reductions():
    for is_special in (False, True):
        def drawn(special_values=(nan, inf)):
            if is_special:
                return special(random.choice([[17], [3, 5], [4, 3]]), special_values)
            return reals(shape(random.randint(0, 2)))
        for x in (drawn(), special([4, 6], ()) if is_special else drawn()):
            over_dims("sum", torch.sum, x, is_special=is_special)
            if x.numel() > 0:
                over_dims("mean", torch.mean, x, is_special=is_special)
                for name in ("amax", "amin"):
                    over_dims(name, getattr(torch, name), x, is_special=is_special)
                for name in ("max", "min"):
                    case(name, getattr(torch, name), [x], [], is_special)
        for p in (2, 1, inf, 0, 3, 1.5, 0.5):
            over_dims("norm", lambda x, p=p, **o: torch.linalg.vector_norm(x, p, **o),
                      special([4, 3], ()) if is_special else reals(shape(random.randint(1, 2))), first=(p,),
                      is_special=is_special)
    case("norm", torch.norm, [torch.zeros(3)], [], True)
    case("norm", torch.linalg.vector_norm, [reals([0])])
    case("norm", lambda x: torch.linalg.vector_norm(x, -inf), [reals([7])], [-inf])
    over_dims("var", torch.var, reals([4, 7, 3]))
    over_dims("std", torch.std, reals([4, 7, 3]))
    for name in ("var", "std"):
        case(name, getattr(torch, name), [reals([300]) + 1000])  # the rounding of the mean must not show
    for name, f in (("var", torch.var), ("std", torch.std)):
        case(name, lambda x, f=f: f(x, dim=-1, correction=0), [reals([4, 7])], [{"dim": -1, "correction": 0}])
        case(name, lambda x, f=f: f(x, dim=0), [reals([1, 3])], [{"dim": 1}], True)
        case(name, f, [torch.ones(4)], [], True)
        case(name, lambda x, f=f: f(x + 0, dim=0, correction=2), [reals([2, 3])], [{"dim": 1, "correction": 2}], True)


def products():
    over_dims("prod", torch.prod, reals([3, 5, 2]), lists=False)
    for zeros in (0, 1, 2):
        x = reals([4, 5])
        for _ in range(zeros):
            x[random.randrange(4), 1] = 0
            x[2, random.randrange(5)] = 0
        over_dims("prod", torch.prod, x, lists=False)
        case("cumprod", lambda x: torch.cumprod(x, 1), [x], [2])
        case("cumprod", lambda x: torch.cumprod(x, 0), [x], [1])
    case("prod", torch.prod, [torch.tensor([2.0, 0, 3])])
    case("prod", torch.prod, [torch.tensor(3.0)])
    for x in (reals(shape()), special([13], ())):
        dim = dim_of(x)
        case("cumsum", lambda x, dim=dim: torch.cumsum(x, dim), [x], [lua(dim)])
        case("cumprod", lambda x, dim=dim: torch.cumprod(x, dim), [x], [lua(dim)])


def selections():
    for sizes in ([7], [3, 5], [4, 3, 2]):
        for x in (torch.randperm(math.prod(sizes)).reshape(sizes) * 0.5, special(sizes, ())):
            dim = dim_of(x)
            if torch.unique(x).numel() == x.numel():  # PyTorch may choose any of equal elements
                for name in ("max", "min"):
                    f = getattr(torch, name)
                    case(name, lambda x, f=f: f(x, dim)[0], [x], [lua(dim)])
                    case(name, lambda x, f=f: f(x, dim, True)[0], [x], [lua(dim), True])
                for largest in (True, False):
                    case("topk", lambda x, largest=largest: torch.topk(x, 2, dim, largest)[0], [x],
                         [2, lua(dim), largest])
            case("sort", lambda x: torch.sort(x, dim=dim, stable=True)[0], [x], [lua(dim)])
            case("sort", lambda x: torch.sort(x, dim=dim, descending=True, stable=True)[0], [x], [lua(dim), True])
    case("max", lambda x: torch.max(x, 0)[0], [torch.tensor([1.0, 3, 3, 2])], [1])
    case("sort", lambda x: torch.sort(x)[0], [torch.tensor(2.0)], [1])


# ---- Activations and losses: also where branches meet, and where numbers overflow ----


EDGES = torch.tensor([0.0, -0.0, 1, -1, 20, -20, 21, 50, -50, 100, -100, 3e38, -3e38, inf, -inf])


def activations():
    for name, arguments in (("softplus", ()), ("softplus", (2, 3)), ("softplus", (-1,)), ("logsigmoid", ()),
                            ("elu", ()), ("elu", (0.3,)), ("leaky_relu", ()), ("leaky_relu", (-0.2,)),
                            ("relu", ()), ("silu", ())):
        def f(x, name=name, arguments=arguments):
            return getattr(F, name)(x, *arguments)
        case("F." + name, f, [reals(shape())], list(arguments))
        case("F." + name, f, [EDGES], list(arguments), is_special=True)
    for inplace in ("elu", "leaky_relu"):
        case("F." + inplace, getattr(F, inplace), [reals(shape())], [{"inplace": False}])


def losses():
    for reduction in ("none", "mean", "sum"):
        for name in ("binary_cross_entropy", "binary_cross_entropy_with_logits"):
            f, sizes = getattr(F, name), shape(1)
            with_logits = name.endswith("logits")
            whole = torch.tensor([0.0, 1, 0, 1, 0.5, 0, 1, 0, 1])
            x = torch.tensor([0.0, 0, 1, 1, 0, -1, -1, 5, 5] if with_logits else [0.0, 0, 1, 1, 0, 0.5, 0.5, 1, 0])
            for both in (False, True):
                case("F." + name, lambda x, y, f=f: f(x, y, reduction=reduction),
                     [reals(sizes) if with_logits else torch.rand(sizes), torch.rand(sizes)],
                     [{"reduction": reduction}], wrt=None if both else [0])
            case("F." + name, lambda x, y, f=f: f(x, y, reduction=reduction), [x, whole], [{"reduction": reduction}],
                 is_special=True, wrt=[0])
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"):
            f, sizes = getattr(F, name), shape(1)
            case("F." + name, lambda x, y, f=f: f(x, y, reduction=reduction), [reals(sizes), reals(broadcast(sizes))],
                 [{"reduction": reduction}])
            case("F." + name, lambda x, y, f=f: f(x, y, reduction=reduction),
                 [torch.round(reals([17])), torch.round(reals([17]))], [{"reduction": reduction}], is_special=True)
            case("F." + name, lambda x, y, f=f: f(x, y, reduction=reduction),
                 [torch.tensor([inf, -inf, 1e30, 0, 1]), torch.zeros(5)], [{"reduction": reduction}], is_special=True)
    for x in ([1.0, 2, 2, 3], [[3.0, 1], [2, 2]], [nan, 1, nan], 3.0):
        case("median", torch.median, [torch.tensor(x)], is_special=True)


def main():
    path = golden.folder()
    seed, rounds = (int(each) for each in (sys.argv[2:] + ["25", "1"])[:2])
    torch.manual_seed(seed)
    random.seed(seed)
    for _ in range(rounds):
        for make in (unary, binary, powers, combined, choices, reductions, products, selections, activations,
                     losses):
            make()
    golden.write(path / "operation_gradients.lua",
                 "operation_gradients: computed with PyTorch 2.13.0, by scripts/dev/make_gradient_values.py",
                 cases, functions=True)


main()
