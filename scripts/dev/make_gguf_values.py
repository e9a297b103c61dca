#!/usr/bin/env python3
"""Makes blocks.gguf of tests/golden/files with PyPI's gguf: of each block type that heed reads, Q4_0 and so on, two rows
of random blocks as tensor "q4_0" …, and what gguf's dequantize makes of them as the float32 tensor "q4_0.wide" …; and
"x", float32, with what gguf's quantize makes of it as "x.q8_0".

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
    writer.add_tensor("x.q8_0", gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0),
                      raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
