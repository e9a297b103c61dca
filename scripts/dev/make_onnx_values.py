"""Makes onnx_attention.lua, ONNX's own node tests of the operator Attention: the inputs and outputs that the package
onnx (Apache-2.0) makes.

    python scripts/dev/make_onnx_values.py [FOLDER]     (pip install onnx numpy)

Inputs of three dimensions are split into heads here; such a test is skipped if there is the same test with four
dimensions. Keys and values of bfloat16 and float16 keep their dtype; queries and float masks become float32.
present_key and present_value are skipped: they are the past and the new ones, concatenated. Elements are stored
little-endian in base64, bit for bit."""

import base64
import warnings

import numpy as np

warnings.filterwarnings("ignore")  # the reference implementation warns about nan in its own tests

import onnx  # noqa: E402
from onnx.backend.test.case.node import collect_testcases  # noqa: E402

import golden  # noqa: E402

TAPS = ["logits", "capped_logits", "biased_logits", "weights"]  # by qk_matmul_output_mode
INPUTS = ["q", "k", "v", "attn_mask", "past_key", "past_value", "kv_lengths"]
STORED = {"float32": "<f4", "int64": "<i8", "bool": "u1", "float16": "<u2", "bfloat16": "<u2"}
# The error of arithmetic in these dtypes; heed computes in float32 throughout.
TOLERANCE = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 2e-2}


def tensor(x):
    name = str(x.dtype)
    data = x.view(np.uint16) if name in ("float16", "bfloat16") else x
    text = base64.b64encode(np.ascontiguousarray(data).astype(STORED[name]).tobytes()).decode()
    return {"shape": list(x.shape), "dtype": name, "data": text}


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

    options = {name: tensor(given[name]) for name in INPUTS[3:] if name in given}
    if attributes.get("is_causal"):
        options["is_causal"] = True
    options.update({name: attributes[name] for name in ("scale", "softcap") if name in attributes})
    sides = {side: attributes.get(f"{side}_window_size", -1) for side in ("left", "right")}
    sides = {side: size for side, size in sides.items() if size >= 0}
    if sides:
        options["window"] = sides

    result = {"name": test.name, "opset": test.model.opset_import[0].version,
              "tolerance": golden.Raw(TOLERANCE[dtype]), **{name: tensor(given[name]) for name in INPUTS[:3]},
              "options": options, "expect": tensor(widened(heads(y, q_heads)))}
    if len(node.output) > 3:
        tap = TAPS[attributes.get("qk_matmul_output_mode", 0)]
        result["taps"] = {tap: tensor(widened(others[-1]))}
    return result


def main():
    tests = [t for t in collect_testcases("Attention") if "_expanded" not in t.name]
    names = {t.name for t in tests}
    tests = [t for t in tests if "_3d_" not in t.name or t.name.replace("_3d_", "_4d_") not in names]
    title = ("ONNX's node tests of Attention, made by scripts/dev/make_onnx_values.py from onnx "
             f"{onnx.__version__} (Apache-2.0).")
    golden.write(golden.folder() / "onnx_attention.lua", title, map(case, tests))


if __name__ == "__main__":
    main()
