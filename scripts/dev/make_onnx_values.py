"""Writes ONNX's own node tests of the operator Attention as tests/golden/onnx_attention.lua, for
tests/spec/onnx_attention_spec.lua: the inputs and outputs as the package onnx (Apache-2.0) makes them.

    pip install onnx && python scripts/dev/onnx_attention_tests.py > tests/golden/onnx_attention.lua

Inputs of three dimensions are split into heads here, so a test with a twin of four is left out (--all: is not).
Keys and values of bfloat16 and float16 stay so; queries
and float masks become float32. present_key and present_value are left out: they are past and new ones put
together. Elements are stored little-endian in base64: bit for bit, and no larger than need be."""

import base64
import sys
import warnings

import numpy as np

warnings.filterwarnings("ignore")  # of the reference implementation, about nan in its own tests

import onnx  # noqa: E402
from onnx.backend.test.case.node import collect_testcases  # noqa: E402

TAPS = ["logits", "capped_logits", "biased_logits", "weights"]  # by qk_matmul_output_mode
INPUTS = ["q", "k", "v", "attn_mask", "past_key", "past_value", "kv_lengths"]
STORED = {"float32": "<f4", "int64": "<i8", "bool": "u1", "float16": "<u2", "bfloat16": "<u2"}
# What arithmetic in these dtypes may be off by; ours is float32 throughout.
TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}


def tensor(x):
    name = str(x.dtype)
    data = x.view(np.uint16) if name in ("float16", "bfloat16") else x
    text = base64.b64encode(np.ascontiguousarray(data).astype(STORED[name]).tobytes()).decode()
    shape = ",".join(str(n) for n in x.shape)
    return f'{{shape={{{shape}}},dtype="{name}",data="{text}"}}'


def heads(x, count):
    """[b, n, count * d] as [b, count, n, d]."""
    return x.reshape(x.shape[0], x.shape[1], count, -1).transpose(0, 2, 1, 3) if x.ndim == 3 else x


def widened(x):
    return x.astype(np.float32) if str(x.dtype) in ("float16", "bfloat16") else x


def case(test):
    node = test.model.graph.node[0]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    arrays, results = (list(map(np.asarray, part)) for part in test.data_sets[0])
    given = dict(zip([INPUTS[i] for i, name in enumerate(node.input) if name], arrays))
    y, *others = results
    dtype = str(y.dtype)
    q_heads, kv_heads = attributes.get("q_num_heads"), attributes.get("kv_num_heads")
    given["q"] = widened(heads(given["q"], q_heads))
    given["k"], given["v"] = heads(given["k"], kv_heads), heads(given["v"], kv_heads)
    if "attn_mask" in given:
        given["attn_mask"] = widened(given["attn_mask"])

    options = [f"{name}={tensor(given[name])}" for name in INPUTS[3:] if name in given]
    if attributes.get("is_causal"):
        options.append("is_causal=true")
    for name in ("scale", "softcap"):
        if name in attributes:
            options.append(f"{name}={attributes[name]:.9g}")
    sides = [(side, attributes.get(f"{side}_window_size", -1)) for side in ("left", "right")]
    sides = [f"{side}={size}" for side, size in sides if size >= 0]
    if sides:
        options.append(f"window={{{','.join(sides)}}}")

    fields = [f'name="{test.name}"', f"opset={test.model.opset_import[0].version}", f"tolerance={TOLERANCE[dtype]}"]
    fields += [f"{name}={tensor(given[name])}" for name in INPUTS[:3]]
    fields.append(f"options={{{','.join(options)}}}")
    fields.append(f"expect={tensor(widened(heads(y, q_heads)))}")
    if len(node.output) > 3:
        tap = TAPS[attributes.get("qk_matmul_output_mode", 0)]
        fields.append(f"taps={{{tap}={tensor(widened(others[-1]))}}}")
    return "  {" + ",".join(fields) + "},"


def main():
    print("-- ONNX's node tests of Attention, made by scripts/dev/onnx_attention_tests.py from onnx "
          f"{onnx.__version__} (Apache-2.0).")
    print("return {")
    tests = [t for t in collect_testcases("Attention") if "_expanded" not in t.name]
    names = {t.name for t in tests}
    if "--all" not in sys.argv:
        tests = [t for t in tests if "_3d_" not in t.name or t.name.replace("_3d_", "_4d_") not in names]
    for test in tests:
        print(case(test))
    print("}")
    print(f"{len(tests)} cases", file=sys.stderr)


main()
