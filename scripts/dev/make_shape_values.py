"""Makes the reference values of operations on shapes and of products, shapes.lua, with PyTorch.

    python scripts/dev/make_shape_values.py [FOLDER [COUNT [SEED]]]     (pip install torch numpy)

COUNT random cases of each operation. A tensor is {of =, order =, dtype =}: the elements 0, 1, … modulo 7, minus 3, in
the shape `of`, as a view with its dimensions in that order; or, with wide =, one that is expanded to that shape. All
values are small integers, so that sums are exact in any order. Dimensions and indices count from 1.
"""

import random
import sys

import torch

import golden

COUNT = int(sys.argv[2]) if len(sys.argv) > 2 else 6
R = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 23)

# ---- Inputs ----


def sizes(ndim, zero=0.1, most=4):
    return [0 if R.random() < zero else R.randint(1, most) for _ in range(ndim)]


class View:
    """A view, as PyTorch's tensor and as the table that a spec reads."""

    def __init__(self, shape, dtype=None):
        dtype = dtype or R.choice(["float32", "int64", "bool"])
        order = list(range(len(shape)))
        R.shuffle(order)
        base = [0] * len(shape)
        for i, d in enumerate(order):
            base[d] = shape[i]
        wide = None
        if R.random() < 0.2 and shape:
            wide, d = list(shape), R.randrange(len(shape))
            base[order[d]] = 1 if shape[d] else 0
        x = torch.arange(torch.Size(base).numel()) % 7 - 3
        x = x.to(getattr(torch, dtype)).reshape(base).permute(order)
        self.tensor = x.expand(wide) if wide else x
        self.lua = {"of": base, "order": [d + 1 for d in order], "dtype": dtype, "wide": wide}
        self.ndim = len(shape)


def one_of(ndim):
    d = R.randint(-ndim, ndim - 1)
    return d, d + 1 if d >= 0 else d


def dims(ndim, count):
    """Different dimensions, some counted from the last: PyTorch's and Lua's numbers."""
    chosen = [d - ndim if R.random() < 0.3 else d for d in R.sample(range(ndim), count)]
    return chosen, [d + 1 if d >= 0 else d for d in chosen]


def tensor(least=1, most=4, **more):
    return View(sizes(R.randint(least, most), **more))


# ---- Cases: each returns PyTorch's result, the name in Lua, and the arguments there ----


def flip():
    x = tensor()
    ours, lua = dims(x.ndim, R.randint(0, x.ndim))
    return x.tensor.flip(ours), "flip", [x, lua]


def roll():
    x = tensor(0, 4)
    if x.ndim == 0 or R.random() < 0.2:
        shift = R.randint(-9, 9)
        return x.tensor.roll(shift), "roll", [x, shift]
    ours, lua = dims(x.ndim, R.randint(1, x.ndim))
    shifts = [R.randint(-9, 9) for _ in ours]
    return x.tensor.roll(shifts, ours), "roll", [x, shifts, lua]


def repeat():
    x = tensor(0, 3)
    counts = [R.choice([0, 1, 1, 2, 3]) for _ in range(x.ndim + R.randint(0, 2))] or [2]
    return x.tensor.repeat(counts), "repeat", [x, counts]


def tile():
    x = tensor(0, 3)
    counts = [R.choice([0, 1, 2, 3]) for _ in range(R.randint(1, 4))]
    return x.tensor.tile(counts), "tile", [x, counts]


def block_diag():
    views = [View(sizes(R.randint(0, 2))) for _ in range(R.randint(1, 4))]
    return torch.block_diag(*[x.tensor for x in views]), "block_diag", views


def repeat_interleave():
    x = tensor(0, 4)
    d, lua = one_of(x.ndim) if x.ndim and R.random() < 0.8 else (None, None)
    size = x.tensor.shape[d] if d is not None else x.tensor.numel()
    counts = R.randint(0, 3) if R.random() < 0.3 else [R.randint(0, 3) for _ in range(size)] or 2
    repeats = counts if isinstance(counts, int) else torch.tensor(counts)
    given = [x, counts] if d is None else [x, counts, lua]
    return x.tensor.repeat_interleave(repeats, dim=d), "repeat_interleave", given


def unbind():
    x = tensor()
    ours, lua = one_of(x.ndim)
    return list(x.tensor.unbind(ours)), "unbind", [x, lua]


def movedim():
    x = tensor()
    count = R.randint(1, x.ndim)
    (source, lua_source), (target, lua_target) = dims(x.ndim, count), dims(x.ndim, count)
    name = R.choice(["movedim", "moveaxis"])
    return getattr(x.tensor, name)(source, target), name, [x, lua_source, lua_target]


def swapdims():
    x = tensor()
    (a, lua_a), (b, lua_b) = one_of(x.ndim), one_of(x.ndim)
    name = R.choice(["swapdims", "swapaxes"])
    return getattr(x.tensor, name)(a, b), name, [x, lua_a, lua_b]


def broadcast_to():
    shape = sizes(R.randint(0, 3))
    x = View([1 if R.random() < 0.3 else n for n in shape])
    wanted = sizes(R.randint(0, 1)) + shape
    if not wanted:
        return broadcast_to()
    return x.tensor.broadcast_to(wanted), "broadcast_to", [x, wanted]


def squeeze():
    x = View([R.choice([1, 1, 2, 3]) for _ in range(R.randint(1, 5))])
    ours, lua = dims(x.ndim, R.randint(1, x.ndim))
    return x.tensor.squeeze(ours), "squeeze", [x, lua]


def unflatten():
    parts = sizes(R.randint(1, 3), 0.05)
    shape = sizes(R.randint(0, 2)) + [torch.Size(parts).numel()] + sizes(R.randint(0, 1))
    x = View(shape)
    d = next(i for i, n in enumerate(shape) if n == torch.Size(parts).numel())
    wanted = list(parts)
    if 0 not in parts and R.random() < 0.5:
        wanted[R.randrange(len(wanted))] = -1
    return x.tensor.unflatten(d, wanted), "unflatten", [x, d + 1, wanted]


def stacks():
    name = R.choice(["hstack", "vstack", "dstack", "column_stack"])
    ndim = R.randint(0, 3)
    shape = sizes(ndim)
    views = [View(shape) for _ in range(R.randint(1, 3))]
    return getattr(torch, name)([x.tensor for x in views]), name, [views]


def meshgrid():
    views = [View(sizes(R.randint(0, 1)), "int64") for _ in range(R.randint(1, 4))]
    indexing = R.choice(["ij", "xy"])
    result = torch.meshgrid(*[x.tensor for x in views], indexing=indexing)
    return list(result), "meshgrid", [*views, {"indexing": indexing}]


def pad():
    x = View(sizes(R.randint(1, 4), 0.05))
    counts = [R.randint(-1, 3) for _ in range(2 * R.randint(1, x.ndim))]
    value = R.choice([0, 2, -1]) if x.lua["dtype"] != "bool" else 0
    try:
        return torch.nn.functional.pad(x.tensor, counts, value=value), "pad", [x, counts, {"value": value}]
    except RuntimeError:
        return pad()


def pad_by_mode():
    mode = R.choice(["reflect", "replicate", "circular"])
    ndim = R.randint(1, 3)
    x = View(sizes(ndim + 1, 0, 5), "float32")
    counts = [R.randint(0, 4) for _ in range(2 * ndim)]
    try:
        return torch.nn.functional.pad(x.tensor[None], counts, mode)[0], "pad", [x, counts, mode]
    except RuntimeError:
        return pad_by_mode()


def diagonal():
    x = tensor(2, 4)
    (a, b), lua = dims(x.ndim, 2)
    offset = R.randint(-4, 4)
    return x.tensor.diagonal(offset, a, b), "diagonal", [x, offset, *lua]


def diag():
    x = tensor(1, 2)
    offset = R.randint(-3, 3)
    return torch.diag(x.tensor, offset), "diag", [x, offset]


def diag_embed():
    x = tensor(1, 3)
    (a, b), lua = dims(x.ndim + 1, 2)
    offset = R.randint(-2, 2)
    return torch.diag_embed(x.tensor, offset, a, b), "diag_embed", [x, offset, *lua]


def diagflat():
    x = tensor(0, 3)
    offset = R.randint(-2, 2)
    return torch.diagflat(x.tensor, offset), "diagflat", [x, offset]


def trace():
    x = View(sizes(2), R.choice(["float32", "int64"]))
    return torch.trace(x.tensor), "trace", [x]


def triangles():
    name = R.choice(["tril_indices", "triu_indices"])
    row, col, offset = R.randint(0, 5), R.randint(0, 5), R.randint(-4, 4)
    return getattr(torch, name)(row, col, offset) + 1, name, [row, col, offset]


def unfold():
    x = View(sizes(R.randint(1, 3), 0.05, 6))
    d = R.randrange(x.ndim)
    size, step = R.randint(0, x.tensor.shape[d]), R.randint(1, 4)
    return x.tensor.unfold(d, size, step), "unfold", [x, d + 1, size, step]


def arange():
    if R.random() < 0.5:
        start, step = R.randint(-5, 5), R.choice([-3, -1, 1, 2, 4])
        given = [start, start + R.randint(0, 9) * (1 if step > 0 else -1), step]
    else:
        start, step = R.choice([0.5, -1.25, 2.0]), R.choice([-0.75, 0.25, 1.5])
        given = [start, start + R.randint(0, 9) * step + R.choice([0, step / 2]), step]
    return torch.arange(*given), "arange", given


# ---- Products ----


def numeric(shape):
    return View(shape, R.choice(["float32", "float32", "int64"]))


def alike(*shapes):
    dtype = R.choice(["float32", "float32", "int64"])
    return [View(shape, dtype) for shape in shapes]


def products():
    n, m, p, b = sizes(4)
    name = R.choice(["mv", "bmm", "outer"])
    shapes = {"mv": [[n, m], [m]], "bmm": [[b, n, m], [b, m, p]], "outer": [[n], [m]]}[name]
    x, y = alike(*shapes)
    return getattr(torch, name)(x.tensor, y.tensor), name, [x, y]


def inner():
    last = R.randint(0, 4)
    x, y = alike(*[sizes(R.randint(0, 2)) + [last] for _ in range(2)])
    if R.random() < 0.2:
        x, y = alike([], sizes(R.randint(0, 2)))
    return torch.inner(x.tensor, y.tensor), "inner", [x, y]


def added():
    n, m, p, b = sizes(4)
    name = R.choice(["addmm", "addmv", "baddbmm"])
    shapes = {"addmm": [[n, p], [n, m], [m, p]], "addmv": [[n], [n, m], [m]],
              "baddbmm": [[b, n, p], [b, n, m], [b, m, p]]}[name]
    if 0 not in [n, m]:  # else PyTorch's addmv does not broadcast
        shapes[0] = [1 if R.random() < 0.3 else k for k in shapes[0]]
    x, y, z = alike(*shapes)
    options = {"beta": R.choice([0, 1, 2]), "alpha": R.choice([1, -3])}
    return getattr(torch, name)(x.tensor, y.tensor, z.tensor, **options), name, [x, y, z, options]


def tensordot():
    shared = sizes(R.randint(0, 2), 0.05, 3)
    left, right = sizes(R.randint(0, 2), 0.05, 3), sizes(R.randint(0, 2), 0.05, 3)
    if R.random() < 0.5:
        x, y = alike(left + shared, shared + right)
        return torch.tensordot(x.tensor, y.tensor, len(shared)), "tensordot", [x, y, len(shared)]
    a, b = list(range(len(left + shared))), list(range(len(right + shared)))
    R.shuffle(a), R.shuffle(b)
    a, b = a[:len(shared)], b[:len(shared)]

    def shape(own, at):
        own, whole = list(own), []
        for d in range(len(own) + len(at)):
            whole.append(shared[at.index(d)] if d in at else own.pop(0))
        return whole
    x, y = alike(shape(left, a), shape(right, b))
    lua = [[d + 1 for d in a], [d + 1 for d in b]]
    return torch.tensordot(x.tensor, y.tensor, (a, b)), "tensordot", [x, y, lua]


def cross():
    shape = sizes(R.randint(0, 2))
    d = R.randint(0, len(shape))
    shape.insert(d, 3)
    x, y = alike(*[[1 if n != 3 and R.random() < 0.3 else n for n in shape] for _ in range(2)])
    return torch.cross(x.tensor, y.tensor, d), "cross", [x, y, d + 1]


def einsum():
    letters = R.sample("abcijkXYZ", R.randint(1, 5))
    size = {letter: R.randint(0, 3) if R.random() < 0.1 else R.randint(1, 3) for letter in letters}
    dots = sizes(R.randint(0, 2), 0, 3) if R.random() < 0.4 else None
    operands, shapes = [], []
    for _ in range(R.choice([1, 2, 2, 2, 3])):
        own = [R.choice(letters) for _ in range(R.randint(0, 4))]
        once = {letter for letter in own if own.count(letter) == 1}
        text = [(letter, [1 if letter in once and R.random() < 0.1 else size[letter]]) for letter in own]
        if dots is not None and R.random() < 0.8:
            covered = [1 if R.random() < 0.2 else n for n in dots[R.randint(0, len(dots)):]]
            text.insert(R.randint(0, len(text)), ("...", covered))
        operands.append("".join(letter for letter, _ in text))
        shapes.append([n for _, covered in text for n in covered])
    equation = R.choice([",", ", "]).join(operands)
    if R.random() < 0.7:
        used = sorted({letter for operand in operands for letter in operand if letter != "."})
        output = R.sample(used, R.randint(0, len(used)))
        if "..." in equation and R.random() < 0.8:
            output.insert(R.randint(0, len(output)), "...")
        equation += R.choice(["->", " -> "]) + "".join(output)
    views = alike(*shapes)
    try:
        return torch.einsum(equation, *[x.tensor for x in views]), "einsum", [equation, *views]
    except RuntimeError as problem:
        assert "does not broadcast" in str(problem) or "dimension" in str(problem), (equation, problem)
        return einsum()


CASES = [flip, roll, repeat, tile, unbind, movedim, swapdims, broadcast_to, squeeze, unflatten, stacks, meshgrid, pad,
         pad_by_mode, diagonal, diag, diag_embed, diagflat, trace, triangles, unfold, arange, products, inner, added,
         tensordot, cross, einsum, einsum, einsum, repeat_interleave, block_diag]


def lua_argument(value):
    if isinstance(value, View):
        return value.lua
    if isinstance(value, list):
        return [lua_argument(each) for each in value]
    return value


def main():
    cases = []
    for make in CASES:
        for _ in range(COUNT):
            result, name, given = make()
            parts = result if isinstance(result, list) else [result]
            cases.append({"name": name, "given": lua_argument(given), "several": isinstance(result, list) or None,
                          "want": parts})
    golden.write(golden.folder() / "shapes.lua", "shapes: reference values made by scripts/dev/make_shape_values.py "
                 f"with PyTorch {torch.__version__}", cases)


if __name__ == "__main__":
    main()
