"""Makes tests/golden/data.lua: the orders of torch.utils.data's loaders, samplers and splits, and nanoGPT's batches.

    python scripts/dev/make_data_values.py [FOLDER]

A case is {kind =, …}: its arguments, and what PyTorch gives, with indices counted from 1. `next` is the random number
after it, of the generator that was drawn from.
"""

import torch
import golden
from torch.utils import data


def following(generator):
    return torch.rand(1, generator=generator).item()


def loaders():
    """Two epochs of a loader. own: it has a generator of its own, else the default one is drawn from."""
    for n, batch, shuffle, drop_last, own in (
            (10, 4, True, False, False), (10, 4, True, False, True), (10, 5, True, False, True),
            (10, 4, True, True, True), (10, 5, False, False, False), (7, 3, False, True, True), (1, 1, True, False, True),
            (100, 32, True, False, True)):
        seed = 1000 + n + batch
        torch.manual_seed(seed)
        generator = torch.Generator().manual_seed(seed + 1) if own else None
        loader = data.DataLoader(torch.arange(1, n + 1), batch, shuffle=shuffle, drop_last=drop_last, generator=generator)
        epochs = [[each.tolist() for each in loader] for _ in range(2)]
        yield {"kind": "loader", "n": n, "batch_size": batch, "shuffle": shuffle, "drop_last": drop_last, "own": own,
               "seed": seed, "epochs": epochs, "length": len(loader), "next": following(generator)}


def stopped():
    """A loop that ends after its first batch, then a whole epoch."""
    generator = torch.Generator().manual_seed(3)
    loader = data.DataLoader(torch.arange(1, 11), 4, shuffle=True, generator=generator)
    first = next(iter(loader)).tolist()
    yield {"kind": "stopped", "n": 10, "batch_size": 4, "seed": 3, "first": first, "epoch": [b.tolist() for b in loader],
           "next": following(generator)}


def samplers():
    source = range(9)
    weights = [0.1, 0.4, 0.0, 2.0, 1.0]
    for name, arguments, make in (
            ("random", {}, lambda g: data.RandomSampler(source, generator=g)),
            ("random", {"num_samples": 25}, lambda g: data.RandomSampler(source, num_samples=25, generator=g)),
            ("random", {"num_samples": 70, "replacement": True},
             lambda g: data.RandomSampler(source, replacement=True, num_samples=70, generator=g)),
            ("subset", {"indices": [5, 3, 9, 1, 2]}, lambda g: data.SubsetRandomSampler([4, 2, 8, 0, 1], generator=g)),
            ("weighted", {"weights": weights, "num_samples": 20},
             lambda g: data.WeightedRandomSampler(weights, 20, generator=g)),
            ("weighted", {"weights": weights, "num_samples": 3, "replacement": False},
             lambda g: data.WeightedRandomSampler(weights, 3, replacement=False, generator=g))):
        for own in (True, False):
            torch.manual_seed(17)
            generator = torch.Generator().manual_seed(18) if own else None
            order = [i + 1 for i in make(generator)]
            yield {"kind": "sampler", "name": name, **arguments, "own": own, "order": order, "next": following(generator)}


def splits():
    for lengths in ([7, 3, 1], [0.7, 0.2, 0.1], [0.5, 0.5], [11], [1 / 3, 1 / 3, 1 / 3]):
        for own in (True, False):
            torch.manual_seed(5)
            generator = torch.Generator().manual_seed(6) if own else torch.default_generator
            parts = data.random_split(range(11), lengths, generator=generator)
            yield {"kind": "split", "n": 11, "lengths": [float(each) if each < 1 else each for each in lengths],
                   "own": own, "parts": [[i + 1 for i in part.indices] for part in parts], "next": following(generator)}


def get_batch(ids, block_size, batch_size, generator):
    """nanoGPT's get_batch."""
    ix = torch.randint(len(ids) - block_size, (batch_size,), generator=generator)
    x = torch.stack([ids[i:i + block_size] for i in ix])
    y = torch.stack([ids[i + 1:i + 1 + block_size] for i in ix])
    return x, y


def tokens():
    for n, context, batch in ((50, 8, 4), (6, 5, 3), (1000, 16, 2)):
        generator = torch.Generator().manual_seed(n)
        ids = torch.arange(1, n + 1)
        batches = [get_batch(ids, context, batch, generator) for _ in range(3)]
        yield {"kind": "tokens", "n": n, "context": context, "batch": batch, "seed": n,
               "x": [x.tolist() for x, _ in batches], "y": [y.tolist() for _, y in batches], "next": following(generator)}


cases = [*loaders(), *stopped(), *samplers(), *splits(), *tokens()]
golden.write(golden.folder() / "data.lua", f"data: reference values computed with PyTorch {torch.__version__}", cases, 17)
