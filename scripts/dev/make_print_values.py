"""Makes the reference values of heed.set_printoptions with PyTorch: tests/golden/print_options.lua.

    python scripts/dev/make_print_values.py [FOLDER]     (pip install torch==2.13.0 numpy)

A case is {options =, x =, text =}: what a tensor prints as after heed.set_printoptions(options), called once for each
case, after set_printoptions{profile = "default"}.
"""

import torch

import golden

inf, nan = float("inf"), float("nan")

OPTIONS = [
    {}, {"precision": 0}, {"precision": 2}, {"precision": 8}, {"precision": 12}, {"sci_mode": True},
    {"sci_mode": False}, {"sci_mode": True, "precision": 1}, {"linewidth": 40}, {"linewidth": 120}, {"linewidth": 5},
    {"threshold": 5}, {"threshold": 0, "edgeitems": 1}, {"threshold": 10, "edgeitems": 2, "linewidth": 30},
    {"profile": "short"}, {"profile": "full"}, {"profile": "short", "precision": 3}, {"profile": "full", "edgeitems": 1},
]


def tensors():
    torch.manual_seed(5)
    yield torch.tensor(3.14159)
    yield torch.tensor([1.0, 2.0, 1000.0])
    yield torch.tensor([1.0, nan, inf, -2.0])
    yield torch.tensor([nan, inf])
    yield torch.tensor([1e-7, 1.5, 123456.0])
    yield torch.tensor([3e38, 1.0])
    yield torch.randn(12)
    yield torch.randn(3, 7)
    yield torch.randn(2, 3, 8) * 100
    yield torch.arange(20)
    yield torch.arange(24).reshape(2, 3, 4) * 1000
    yield torch.tensor([[True, False, True]])
    yield torch.zeros(2, 0)
    yield torch.randn(30, 40) * torch.tensor(1e5)


def main():
    cases = []
    for options in OPTIONS:
        for x in tensors():
            if x.numel() > 1000 and options not in ({}, {"precision": 2}, {"profile": "short"}):
                continue  # long, and nothing new
            torch.set_printoptions(profile="default")
            torch.set_printoptions(**options)
            cases.append({"options": options or None, "x": x, "text": str(x).replace("torch.", "heed.")})
    golden.write(golden.folder() / "print_options.lua",
                 "print_options: reference values computed with PyTorch 2.13.0, by scripts/dev/make_print_values.py",
                 cases, functions=True)


main()
