"""Compares the stored reference values with newly computed ones. Ends with "N passed, N failed".

    python scripts/dev/check_golden.py [GENERATOR...]     GENERATOR: make_fill_values, by default all

Each generator writes its sets into a temporary folder. Numbers may differ from the stored ones by what the specs
allow; everything else must be equal. A generator whose packages are not installed is left out.
"""

import base64
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import golden

HERE = Path(__file__).resolve().parent
TOLERANCE = 2e-5  # absolute and relative, as in tests/golden/check.lua
ENVIRONMENT = {**os.environ, "ATEN_CPU_CAPABILITY": "avx2"}  # PyTorch rounds differently with AVX-512
MISSING = ("ModuleNotFoundError: ", "Missing: ")  # how the last line of a generator begins that lacks something
INPUTS = {"check.lua", "tiny_gpt2.safetensors", "tiny_llama.safetensors"}  # written by no generator


def config(path):
    """A model's configuration, which may come from another version of transformers."""
    return {key: value for key, value in json.loads(path.read_text()).items() if key != "transformers_version"}


def safetensors(path):
    """The header, whose metadata comes in any order, and the data."""
    data = path.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    return {"header": json.loads(data[8:end]), "data": data[end:].hex()}


READ = {".lua": golden.load, ".json": config, ".safetensors": safetensors}


def numbers(value):
    """A tensor's elements that are stored in base64 as a list."""
    if golden.is_tensor(value) and isinstance(value["data"], str) and value["dtype"] == "float32":
        return np.frombuffer(base64.b64decode(value["data"]), "<f4").tolist()
    return value


def difference(stored, new, where=""):
    """The largest difference of two numbers, relative to the larger of 1 and the stored number; where other values
    differ, a text that names one."""
    stored, new = numbers(stored), numbers(new)
    if isinstance(stored, dict) and isinstance(new, dict) and stored.keys() == new.keys():
        parts = [(each, new[key], f"{where}.{key}") for key, each in stored.items()]
    elif isinstance(stored, list) and isinstance(new, list) and len(stored) == len(new):
        parts = [(each, new[i], f"{where}[{i + 1}]") for i, each in enumerate(stored)]
    else:
        kinds = (int, float)
        if type(stored) in kinds and type(new) in kinds:
            if stored == new or (math.isnan(stored) and math.isnan(new)):
                return 0.0
            return abs(stored - new) / max(1.0, abs(stored))
        return 0.0 if stored == new else f"{where} is {str(new)[:60]}, stored: {str(stored)[:60]}"
    largest = 0.0
    for part in parts:
        found = difference(*part)
        if isinstance(found, str):
            return found
        if not math.isfinite(found):
            return f"{part[2]} is {part[1]}, stored: {part[0]}"
        largest = max(largest, found)
    return largest


def compare(name, new):
    """Whether a file that a generator wrote agrees with the stored one, and what to say about it."""
    stored = golden.GOLDEN / name
    if not stored.exists():
        return False, "is not stored"
    if stored.read_bytes() == new.read_bytes():
        return True, "identical"
    if stored.suffix not in READ:
        return False, "other bytes"
    found = difference(READ[stored.suffix](stored), READ[stored.suffix](new))
    if isinstance(found, str):
        return False, found
    return found <= TOLERANCE, "identical values" if found == 0 else f"numbers differ by up to {found:.2g}"


def main(generators):
    passed = failed = 0
    written = set()
    for generator in generators:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, HERE / f"{generator}.py", folder], env=ENVIRONMENT, text=True,
                                  capture_output=True, check=False)
            if done.returncode != 0:
                reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
                if reason.startswith(MISSING):
                    print(f"{generator}: left out: {reason.split(': ', 1)[1]}")
                else:
                    failed += 1
                    print(f"{generator}: exit code {done.returncode}\n{done.stderr}")
            files = sorted(path for path in Path(folder).rglob("*") if path.is_file())
            for path in files:
                name = str(path.relative_to(folder))
                good, message = compare(name, path)
                passed, failed = passed + good, failed + (not good)
                written.add(name)
                print(f"{generator}: {name}: {message}")
    if generators == ALL:
        stored = {str(path.relative_to(golden.GOLDEN)) for path in golden.GOLDEN.rglob("*") if path.is_file()}
        for name in sorted(stored - written - INPUTS):
            print(f"not written by any generator that ran: {name}")
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


ALL = sorted(path.stem for path in HERE.glob("make_*_values.py"))

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ALL))
