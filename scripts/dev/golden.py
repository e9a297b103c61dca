"""The reference values in tests/golden: reading them, and writing them as Lua tables. What the generators share.

Each generator make_*_values.py FOLDER writes its sets into FOLDER, by default tests/golden. A set is a Lua file that
returns a list of cases. Tensors are {shape =, dtype =, data =} with the elements in row-major order.
check_golden.py compares what the generators write with what is stored.
"""

import math
import re
import sys
from pathlib import Path

import numpy as np

sys.dont_write_bytecode = True  # leave nothing beside the sources

TOP = Path(__file__).resolve().parents[2]
GOLDEN = TOP / "tests/golden"


def folder():
    """The folder to write to."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN
    path.mkdir(parents=True, exist_ok=True)
    return path


# ---- Writing ----


class Raw(str):
    """Text that is written as it is."""


def number(value, digits=9):
    """-0 as -0.0, for -0 is the integer 0 in Lua 5.3 and later."""
    if isinstance(value, float) and not math.isfinite(value):
        return "0/0" if math.isnan(value) else "1/0" if value > 0 else "-1/0"
    text = f"{value:.{digits}g}" if isinstance(value, float) else str(value)
    return "-0.0" if text == "-0" else text


def string(value):
    """Only escapes that every Lua version reads."""
    def escaped(c):
        if c in '"\\':
            return "\\" + c
        return c if " " <= c <= "~" else "\\n" if c == "\n" else "".join(f"\\{byte:03d}" for byte in c.encode())
    return '"' + "".join(map(escaped, value)) + '"'


def lua_key(key):
    """`function`, a name in tools, is a word of Lua's."""
    return f"[{string(key)}]" if key == "function" else key


def lua(value, digits=9):
    """A Python value as Lua text, floats with that many digits. Keys with the value None are left out."""
    if hasattr(value, "detach"):  # a torch.Tensor
        value = value.detach().numpy()
    if isinstance(value, np.ndarray):
        dtype = {"f": "float32", "i": "int64", "b": "bool"}[value.dtype.kind]
        value = {"shape": list(value.shape), "dtype": dtype,
                 "data": value.astype(dtype).flatten().tolist()}
    if isinstance(value, Raw):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return string(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{lua_key(key)}={lua(each, digits)}" for key, each in value.items() if each is not None) + "}"
    if isinstance(value, (list, tuple)):
        return "{" + ",".join(lua(each, digits) for each in value) + "}"
    return number(value, digits)


def write(path, title, cases, digits=9, functions=False):
    """Writes a set. functions: each case in a function of its own, for interpreters that limit the constants of one."""
    before, after = ("(function() return ", " end)()") if functions else ("", "")
    lines = "".join(f"  {before}{lua(case, digits)}{after},\n" for case in cases)
    Path(path).write_text(f"-- {title}\nreturn {{\n{lines}}}\n", encoding="utf-8")


# ---- Reading ----

TOKEN = re.compile(r'\s*(?:--[^\n]*\s*)*'  # blanks and comments, then one of
                   r'(?:("(?:[^"\\]|\\.)*")|([A-Za-z_]\w*)|(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)|(.))', re.S)
ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r"}


def unescaped(text):
    def byte(match):
        code = match[1]
        return bytes([int(code)]) if code.isdigit() else ESCAPES.get(code, code.encode())
    parts = re.split(r"\\(\d{1,3}|.)", text[1:-1], flags=re.S)
    return b"".join(byte([None, part]) if i % 2 else part.encode() for i, part in enumerate(parts)).decode()


class Reader:
    """Reads the Lua text that lua() writes, and calls of functions that only return a table."""

    def __init__(self, text):
        self.tokens = [match.groups() for match in TOKEN.finditer(text.rstrip())]
        self.at = 0

    def take(self, wanted=None):
        token = self.tokens[self.at]
        self.at += 1
        text = next(each for each in token if each)
        assert wanted is None or text == wanted, f"{wanted} expected, got {text}"
        return token

    def peek(self):
        return next(each for each in self.tokens[self.at] if each)

    def value(self):
        text, name, digits, sign = self.take()
        if text:
            return unescaped(text)
        if name:
            return {"true": True, "false": False}[name]
        if digits:
            result = float(digits) if re.search(r"[.e]", digits) else int(digits)
            if self.peek() == "/":  # 1/0, -1/0, 0/0
                self.take("/"), self.take("0")
                result = result * math.inf if result else math.nan
            return result
        if sign == "{":
            return self.table()
        for each in ("function", "(", ")", "return"):
            self.take(each)
        result = self.value()
        for each in ("end", ")", "(", ")"):
            self.take(each)
        return result

    def table(self):
        """A list, or a dict where the entries have names."""
        items, named = [], {}
        while self.peek() != "}":
            bracket = self.peek() == "["
            if bracket or self.tokens[self.at][1] and self.tokens[self.at + 1][3] == "=":
                if bracket:
                    self.take("[")
                key = unescaped(self.take()[0]) if bracket else self.take()[1]
                if bracket:
                    self.take("]")
                self.take("=")
                named[key] = self.value()
            else:
                items.append(self.value())
            if self.peek() == ",":
                self.take(",")
        self.take("}")
        return named or items


def load(path):
    """The cases of a set: lists, dicts, numbers, strings and bools."""
    reader = Reader(Path(path).read_text(encoding="utf-8"))
    reader.take("return")
    return reader.value()


def is_tensor(value):
    return isinstance(value, dict) and "shape" in value and "data" in value


def array(value):
    """A stored tensor as a numpy array."""
    return np.array(value["data"], dtype=value.get("dtype", "float32")).reshape(value["shape"])
