"""Makes linear_attention.lua: ONNX's own node tests of the operators LinearAttention and CausalConvWithState, and results
and gradients of transformers' Qwen3NextGatedDeltaNet.

    python scripts/dev/make_linear_attention_values.py [FOLDER]     (pip install onnx numpy torch transformers)

Inputs of ONNX are split into heads here; float16 is widened. A case has the name of heed's function, its tensors in
order, options, and the results."""

import warnings

import numpy as np
import torch

warnings.filterwarnings("ignore")

import onnx  # noqa: E402
import transformers  # noqa: E402
from onnx.backend.test.case.node import collect_testcases  # noqa: E402
from transformers.models.qwen3_next.configuration_qwen3_next import Qwen3NextConfig  # noqa: E402
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextGatedDeltaNet  # noqa: E402

import golden  # noqa: E402


def tests_of(tests, operator):
    return [t for t in tests if t.model.graph.node[0].op_type == operator and "_expanded" not in t.name]


def parts(test, names):
    """The inputs by name as float32, the results, and the attributes."""
    node = test.model.graph.node[0]
    inputs, results = (list(map(np.asarray, part)) for part in test.data_sets[0])
    given = dict(zip([names[i] for i, name in enumerate(node.input) if name], inputs))
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    dtype = str(results[0].dtype)
    return {name: x.astype(np.float32) for name, x in given.items()}, [y.astype(np.float32) for y in results], \
        attributes, {"float32": 2e-6, "float16": 2e-3}[dtype]


def heads(x, count):
    """[b, n, count * d] as [b, count, n, d]."""
    return np.ascontiguousarray(x.reshape(x.shape[0], x.shape[1], count, -1).transpose(0, 2, 1, 3))


def attention_case(test):
    names = ["query", "key", "value", "past_state", "decay", "beta"]
    given, (y, state), attributes, tolerance = parts(test, names)
    hq, hkv = attributes["q_num_heads"], attributes["kv_num_heads"]
    options = {"rule": attributes.get("update_rule", b"gated_delta").decode(), "past_state": given.get("past_state")}
    if attributes.get("scale"):
        options["scale"] = attributes["scale"]
    if "beta" in given:
        options["beta"] = np.ascontiguousarray(given["beta"].transpose(0, 2, 1))
    if "decay" in given:
        each = heads(given["decay"], hkv)
        options["decay"] = each[..., 0] if each.shape[-1] == 1 else each
    return {"name": test.name[len("test_"):], "call": "linear_attention", "tolerance": golden.Raw(tolerance),
            "inputs": [heads(given["query"], hq), heads(given["key"], hkv), heads(given["value"], hkv)],
            "options": options, "results": [heads(y, hq), state]}


def convolution_case(test):
    given, results, attributes, tolerance = parts(test, ["input", "weight", "bias", "past_state"])
    options = {name: given.get(name) for name in ("bias", "past_state")}
    options["activation"] = attributes.get("activation", b"none").decode()
    return {"name": test.name[len("test_"):], "call": "causal_conv", "tolerance": golden.Raw(tolerance),
            "inputs": [given["input"], given["weight"]], "options": options, "results": results}


def module_case(key_heads, value_heads, key_dim, value_dim, kernel, n):
    torch.manual_seed(n)
    config = Qwen3NextConfig(hidden_size=10, linear_num_key_heads=key_heads, linear_num_value_heads=value_heads,
                             linear_key_head_dim=key_dim, linear_value_head_dim=value_dim,
                             linear_conv_kernel_dim=kernel, rms_norm_eps=1e-5)
    module = Qwen3NextGatedDeltaNet(config, 0)
    for parameter in module.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    x = torch.randn(2, n, 10, requires_grad=True)
    factor = torch.randn(2, n, 10)
    y = module(x)
    (y * factor).sum().backward()
    state = {name: p.detach() for name, p in module.state_dict().items()}
    settings = {"num_key_heads": key_heads, "key_head_dim": key_dim, "value_head_dim": value_dim,
                "conv_kernel_size": kernel, "eps": golden.Raw(1e-5)}

    def named(tensors):
        return [{"name": name, "value": value} for name, value in tensors]
    return {"name": f"{value_heads} value heads, {key_heads} key heads, {n} tokens", "call": "GatedDeltaNet",
            "value_heads": value_heads, "settings": settings, "state": named(state.items()), "x": x, "y": y,
            "factor": factor, "dx": x.grad, "gradients": named((name, p.grad) for name, p in module.named_parameters())}


def main():
    tests = collect_testcases()  # the first call counts: it collects what later ones return
    cases = [*map(attention_case, tests_of(tests, "LinearAttention")),
             *map(convolution_case, tests_of(tests, "CausalConvWithState")),
             module_case(2, 2, 4, 3, 4, 5), module_case(1, 3, 3, 4, 2, 66)]
    title = (f"linear attention: made by scripts/dev/make_linear_attention_values.py from onnx {onnx.__version__} and "
             f"transformers {transformers.__version__} (both Apache-2.0)")
    golden.write(golden.folder() / "linear_attention.lua", title, cases, functions=True)


if __name__ == "__main__":
    main()
