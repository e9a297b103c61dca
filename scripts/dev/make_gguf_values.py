#!/usr/bin/env python3
"""Makes blocks.gguf of tests/golden/files with PyPI's gguf: of each block type that heed reads, Q4_0 and so on, two rows
of random blocks as tensor "q4_0" …, and what gguf's dequantize makes of them as the float32 tensor "q4_0.wide" …; and
"x", float32, with what gguf's quantize makes of it as "x.q4_0" … "x.q8_0".

And small.gguf, with most types of values and of elements, for the fuzzer.

    python scripts/dev/make_gguf_values.py [FOLDER]     (pip install gguf numpy)
"""
import gguf
import numpy as np

import golden

# type: where the float16 scales are in a block, in units of 2 bytes
HALVES = {"Q4_0": [0], "Q4_1": [0, 1], "Q5_0": [0], "Q5_1": [0, 1], "Q8_0": [0], "Q4_K": [0, 1], "Q5_K": [0, 1],
          "Q6_K": [104]}


def blocks(draw, kind, count):
    """Any bytes are valid but for the scales, which are small numbers of both signs."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    raw = draw.integers(0, 256, (count, size), dtype=np.uint8)
    scales = raw.view(np.float16)
    for at in HALVES[kind.name]:
        scales[:, at] = draw.uniform(-0.05, 0.05, count).astype(np.float16)
    return raw


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_small(path, draw):
    writer = gguf.GGUFWriter(path, "test")
    writer.add_custom_alignment(8)
    for kind in ["UINT8", "INT16", "UINT32", "INT64", "FLOAT32", "FLOAT64"]:
        writer.add_key_value(f"a.{kind.lower()}", 1, gguf.GGUFValueType[kind])
    writer.add_bool("a.bool", True)
    writer.add_array("a.strings", ["a", "", "bc"])
    writer.add_array("a.floats", [1.5, 2.5])
    for name, dtype in {"f32": "f4", "f16": "f2", "i8": "i1", "i32": "i4", "f64": "f8"}.items():
        writer.add_tensor(name, np.arange(3, dtype=dtype))
    for name in ["Q4_0", "Q4_K"]:
        kind = gguf.GGMLQuantizationType[name]
        writer.add_tensor(name.lower(), blocks(draw, kind, 1), raw_dtype=kind)
    writer.add_tensor("q2_k", np.zeros((1, 84), np.uint8), raw_dtype=gguf.GGMLQuantizationType.Q2_K)
    write(writer)


def main():
    path = golden.folder() / "files"
    path.mkdir(exist_ok=True)
    draw = np.random.default_rng(28)
    writer = gguf.GGUFWriter(path / "blocks.gguf", "test")
    writer.add_string("general.name", "blocks")
    writer.add_array("tokenizer.ggml.tokens", ["a", "é", ""])
    writer.add_array("tokenizer.ggml.scores", [0.5, -1.0, 0.0])
    writer.add_bool("tokenizer.ggml.add_bos_token", True)
    for name in HALVES:
        kind = gguf.GGMLQuantizationType[name]
        raw = blocks(draw, kind, 4).reshape(2, -1)
        writer.add_tensor(name.lower(), raw, raw_dtype=kind)
        writer.add_tensor(name.lower() + ".wide", gguf.quants.dequantize(raw, kind))
    x = draw.normal(0, 1, (3, 64)).astype(np.float32)
    x[0, :32] = 0
    writer.add_tensor("x", x)
    for name in ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]:
        kind = gguf.GGMLQuantizationType[name]
        writer.add_tensor(f"x.{name.lower()}", gguf.quants.quantize(x, kind), raw_dtype=kind)
    write(writer)
    make_small(path / "small.gguf", draw)


if __name__ == "__main__":
    main()
