"""Evaluates the Python side of tests/expressions.lua with PyTorch: tests/golden/expressions.lua.

    python scripts/dev/make_expression_values.py [FOLDER]     (pip install torch==2.13.0 numpy)

A case is {name =, results =}: one result for a value, several for a list that contains tensors.
"""

import copy
import math
import re

import torch
import torch.nn.functional as F
from torch import nn

import golden

SOURCE = (golden.TOP / "tests/expressions.lua").read_text(encoding="utf-8")
PRELUDE = re.search(r"prelude_python = \[=\[\n(.*?)\]=\]\n", SOURCE, re.S).group(1)
ROW = re.compile(r'^  \{ "([^"]*)", \[=\[(.*?)\]=\], \[=\[(.*)\]=\] \},$', re.M)


def evaluate(code):
    names = {"torch": torch, "nn": nn, "F": F, "math": math, "copy": copy}
    with torch.no_grad():
        exec(PRELUDE, names)
        try:
            compiled = compile(code, "expression", "eval")
        except SyntaxError:
            exec(code, names)
            return names["r"]
        return eval(compiled, names)


def plain(value):
    """What golden.lua writes: tensors as they are, sizes as lists."""
    if isinstance(value, torch.Tensor):
        return value.detach().contiguous()
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value


def main():
    cases = []
    for name, _, code in ROW.findall(SOURCE):
        cases.append({"name": name, "result": plain(evaluate(code))})
    golden.write(golden.folder() / "expressions.lua", "expressions: reference values computed with PyTorch "
                 f"{torch.__version__.split('+')[0]}, by scripts/dev/make_expression_values.py", cases, functions=True)


main()
