#!/usr/bin/env python3
"""Makes the .pt files of tests/golden/files, which the specs load, with PyTorch. Element i of every tensor is i / 2 - 3, of
integers i - 3, of bools i % 3 == 0.

    python scripts/dev/make_torch_values.py [FOLDER]     (pip install torch numpy)
"""
import collections
import io
import re
import sys
import types

import torch

import golden

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "bool"]


def tensor(dtype="float32", shape=(2, 3, 4)):
    dtype = getattr(torch, dtype)
    i = torch.arange(int(torch.tensor(shape).prod()))
    values = i % 3 == 0 if dtype == torch.bool else i / 2 - 3 if dtype.is_floating_point else i - 3
    return values.to(dtype).reshape(shape)


def views():
    base = tensor("float32", (4, 6))
    state = collections.OrderedDict(base=base, transposed=base.T, part=base[1:3, ::2],
                                    expanded=base[:, :1].expand(4, 3))
    state["number"] = torch.tensor(2.5)
    state["empty"] = torch.zeros(2, 0)
    state["parameter"] = torch.nn.Parameter(tensor("float32", (2, 3)))
    return state


def checkpoint():
    model = torch.nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(tensor("float32", (2, 3)))
        model.bias.copy_(tensor("float32", (2,)))
    return {"model": model.state_dict(), "iter_num": 2000, "best": 1.5, "done": False,
            "config": {"name": "gpt", "none": None},
            "optimizer": {"state": {0: {"step": torch.tensor(3.0)}}, "groups": [{"lr": 0.1, "betas": (0.9, 0.95)}]},
            "low": torch.ones(2).to(torch.float8_e4m3fn), "wide": torch.tensor([7], dtype=torch.uint16),
            "dtype": torch.float32, "size": torch.Size([2, 3]), "device": torch.device("cpu"), "bytes": b"ab"}


def legacy(make):
    """The contents of a file of make() as PyTorch wrote it before 1.6. The keys of storages are addresses, in whose order
    the storages follow: they are numbered, once their order is that of the tensors."""
    kept = []
    while True:
        file, keys = io.BytesIO(), {}
        kept.append(make())  # new addresses
        torch.save(kept[-1], file, _use_new_zipfile_serialization=False)

        def numbered(match):
            key = b"%d" % keys.setdefault(match[1], len(keys))
            return b"X" + len(key).to_bytes(4, "little") + key

        contents = re.sub(rb"X[\x0a-\x14]\0\0\0(\d{10,20})(?=q)", numbered, file.getvalue())
        if list(keys) == sorted(keys):
            return contents


class Thing:
    """Something that needs Python."""


def main():
    folder = golden.folder() / "files"
    folder.mkdir(exist_ok=True)
    torch.manual_seed(1)
    state = {name: tensor(name) for name in DTYPES}
    Thing.__module__ = "mine"
    sys.modules["mine"] = types.ModuleType("mine")
    sys.modules["mine"].Thing = Thing
    for name, value in [("dtypes", state), ("views", views()), ("checkpoint", checkpoint()),
                        ("alone", tensor("float32", (2, 3))), ("list", [torch.ones(2), (torch.zeros(1), torch.ones(1))]),
                        ("object", {"x": torch.ones(1), "thing": Thing()})]:
        torch.save(value, folder / f"{name}.pt")
    (folder / "legacy.pt").write_bytes(legacy(lambda: {name: tensor(name) for name in DTYPES[:3]}))
    (folder / "legacy_views.pt").write_bytes(legacy(views))


if __name__ == "__main__":
    main()
