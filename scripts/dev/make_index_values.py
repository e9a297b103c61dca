"""Makes the reference values of indexing and of operations with indices, indices.lua, with PyTorch.

    python scripts/dev/make_index_values.py [FOLDER]     (pip install torch numpy)

Cases, in which everything counts from 1:
    kind = "index": x[key] is y; after x[key] = value, x is written. A key is a list of {"at", i}, {"slice", first, last,
        step}, {"all"}, {"new"}, {"..."} and {"ids", tensor}, a tensor of indices or a mask.
    kind = the name of an operation: x:name(arguments…) is y; arguments may be tensors.
    kind = "multinomial": the samples y of weights x (transposed, if so) after manual_seed(seed), and a draw after it.
"""

import random
import warnings

import torch

import golden

warnings.simplefilter("ignore")  # scatter's reduce is deprecated


def integers(low, high, shape, dtype=torch.int64):
    return torch.randint(low, high, shape).to(dtype)


def ids(shape, size):
    """Indices from 0, and the same from 1, some of them negative."""
    zero = torch.randint(0, size, shape)
    return zero, torch.where(torch.rand(shape) < 0.3, zero - size, zero + 1)


# ---- x[key] ----


def random_key(shape):
    """A key for PyTorch, and as a list."""
    key, items, d = [], [], 0
    together = [random.randint(1, 3) for _ in range(random.randint(0, 2))]
    while d < len(shape):
        size, kind = shape[d], random.random()
        if kind < 0.1:
            key.append(None), items.append(["new"])
            continue
        if kind < 0.25:
            i = random.randrange(size)
            key.append(i), items.append(["at", i + 1 if random.random() < 0.5 else i - size])
        elif kind < 0.4:
            first, step = random.randrange(size), random.randint(1, 2)
            last = random.randrange(first, size)
            key.append(slice(first, last + 1, step)), items.append(["slice", first + 1, last + 1, step])
        elif kind < 0.5:
            key.append(slice(None)), items.append(["all"])
        elif kind < 0.6 and ["..."] not in items:
            key.append(Ellipsis), items.append(["..."])
            d += random.randint(0, len(shape) - d) - 1
        elif kind < 0.9:
            own = [random.choice([1, n]) for n in together][random.randint(0, len(together)):]
            zero, one = ids(own if random.random() < 0.4 else together, size)
            key.append(zero), items.append(["ids", one])
        else:
            dims = min(random.randint(1, 2), len(shape) - d)
            mask = torch.rand(shape[d:d + dims]) < 0.5
            key.append(mask), items.append(["ids", mask])
            d += dims - 1
        d += 1
    return tuple(key), items


def index_cases(count):
    while count > 0:
        shape = [random.randint(1, 4) for _ in range(random.randint(1, 4))]
        x = integers(-50, 50, shape, random.choice([torch.float32, torch.int64]))
        key, items = random_key(shape)
        try:
            y = x[key]
        except IndexError:
            continue
        sizes = [random.choice([1, size]) if size else size for size in y.shape]
        value = integers(-9, 9, sizes[random.randint(0, y.ndim):], x.dtype)
        written = x.clone()
        written[key] = value
        count -= 1
        yield {"kind": "index", "key": items, "x": x, "y": y, "value": value, "written": written}


# ---- Operations ----


def operation(name, x, y, *arguments):
    return {"kind": name, "x": x, "y": y, "arguments": arguments}


def operation_cases(count):
    for _ in range(count):
        shape = [random.randint(1, 4) for _ in range(random.randint(1, 3))]
        dtype, dim = random.choice([torch.float32, torch.int64]), random.randrange(len(shape))
        place = random.choice([dim + 1, dim - len(shape)])
        x = integers(-5, 5, shape, dtype)
        smaller = [random.randint(1, size) for size in shape]
        smaller[dim] = random.randint(1, 5)
        zero, one = ids(smaller, shape[dim])
        src = integers(-5, 5, [size + random.randint(0, 2) for size in smaller], dtype)
        yield operation("gather", x, x.gather(dim, zero), place, one)
        yield operation("scatter", x, x.scatter(dim, zero, src), place, one, src)
        yield operation("scatter", x, x.scatter(dim, zero, 3), place, one, 3)
        yield operation("scatter_add", x, x.scatter_add(dim, zero, src), place, one, src)
        for reduce in "add", "multiply":
            yield operation("scatter", x, x.clone().scatter_(dim, zero, src, reduce=reduce), place, one, src, reduce)
        zero, one = ids([random.randint(1, 4)], shape[dim])
        slices = list(shape)
        slices[dim] = len(zero)
        source = integers(-5, 5, slices, dtype)
        yield operation("index_select", x, x.index_select(dim, zero), place, one)
        yield operation("index_add", x, x.index_add(dim, zero, source, alpha=2), place, one, source, 2)
        yield operation("index_copy", x, x.index_copy(dim, zero, source), place, one, source)
        yield operation("index_fill", x, x.index_fill(dim, zero, 7), place, one, 7)
        along = list(shape)
        along[dim] = 2
        zero, one = ids([random.choice([1, size]) for size in along], shape[dim])
        yield operation("take_along_dim", x, x.take_along_dim(zero, dim), one, place)
        yield operation("nonzero", x, x.nonzero() + 1)
        values = integers(0, 4, shape)
        yield operation("one_hot", values + 1, torch.nn.functional.one_hot(values))
        values, weights = integers(1, 9, [6]), integers(-9, 9, [6], torch.float32)
        yield operation("bincount", values, values.bincount()[1:])
        yield operation("bincount", values, values.bincount(weights)[1:], weights)


def search_cases(count):
    for _ in range(count):
        rows, n, m = random.randint(1, 3), random.randint(0, 6), random.randint(0, 4)
        dtype = random.choice([torch.float32, torch.int64])
        boundaries, values = integers(-4, 5, [rows, n], dtype).sort(-1)[0], integers(-5, 6, [rows, m], dtype)
        if dtype == torch.float32 and m > 1:
            values[0, 0] = torch.inf
        for right in False, True:
            found = torch.searchsorted(boundaries, values, right=right) + 1
            yield operation("searchsorted", boundaries, found, values, right)
            yield operation("bucketize", values, torch.bucketize(values, boundaries[0], right=right) + 1,
                            boundaries[0], right)


def unique_cases(count):
    for _ in range(count):
        x = integers(-3, 4, [random.randint(0, 4), 3], random.choice([torch.float32, torch.int64, torch.bool]))
        y, inverse, counts = x.unique(return_inverse=True, return_counts=True)
        yield {"kind": "unique", "x": x, "y": y, "inverse": inverse + 1, "counts": counts}


def multinomial_cases(count):
    for number in range(count):
        n, rows = random.choice([1, 2, 5, 17, 40]), random.randint(1, 3)
        weights = (torch.rand(rows, n) * random.choice([1, 10])).floor() + torch.rand(rows, n)
        transposed = random.random() < 0.3
        x = weights.T.contiguous().T if transposed else weights if random.random() < 0.7 else weights[0].clone()
        replacement = random.random() < 0.5
        samples = random.randint(1, 20 if replacement else n)
        torch.manual_seed(number)
        y = torch.multinomial(x, samples, replacement) + 1
        yield {"kind": "multinomial", "seed": number, "x": x.T.contiguous() if transposed else x,
               "transposed": transposed, "samples": samples, "replacement": replacement, "y": y,
               "after": torch.rand(1)}


def main():
    random.seed(23)
    torch.manual_seed(23)
    cases = [*index_cases(250), *operation_cases(25), *search_cases(8), *unique_cases(15), *multinomial_cases(60)]
    golden.write(golden.folder() / "indices.lua", "indices: reference values made by scripts/dev/make_index_values.py "
                 f"with PyTorch {torch.__version__}", cases, functions=True)


main()
