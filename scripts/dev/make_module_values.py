"""Makes the reference values of the modules, functions and initializers that heed writes in Lua.

    python scripts/dev/make_module_values.py [FOLDER]     (pip install torch numpy)

torch_modules.lua  PyTorch's modules: initial parameters, text, results
functional.lua     torch.nn.functional and torch.nn.init: results

Dimensions and classes are PyTorch's, plus 1 where heed counts from 1.
"""

import torch
import torch.nn.functional as F
from torch import nn

import golden

g = torch.Generator().manual_seed(23)


def randn(*shape):
    return torch.randn(*shape, generator=g)


def named(values):
    """Without the options that are None."""
    return {key: value for key, value in values.items() if value is not None}


# ---- Modules ----


def shift(module):
    """Makes all parameters differ: the spec does the same."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.linspace(-0.3, 0.4, parameter.numel()).view(parameter.shape))


def counted(values, names=("start_dim", "dim")):
    """Options in heed's counting."""
    return {key: value + 1 if key in names and value >= 0 else value for key, value in values.items()}


def module_case(name, arguments, inputs, options=None, train=False, calls=1, torch_arguments=None, text=True):
    seed = 500 + len(name)
    torch.manual_seed(seed)
    module = getattr(nn, name)(**(torch_arguments or arguments))
    case = {"class": name, "arguments": counted(arguments), "seed": seed, "train": train, "calls": calls}
    if text:
        case["text"] = repr(module)
    case["drawn"] = [[key, value.clone()] for key, value in module.state_dict().items()]
    shift(module)
    module.train(train)
    case["inputs"], case["options"] = inputs, options or {}
    for _ in range(calls):
        result = module(*inputs, **(options or {}))
    case["outputs"] = [each for each in (result if isinstance(result, tuple) else (result,)) if each is not None]
    case["buffers"] = [[key, value] for key, value in module.named_buffers()]
    return case


def attention_cases():
    q, k = randn(3, 2, 4), randn(5, 2, 4)
    hidden = torch.tensor([[False, True, False], [False, False, True], [False, False, False]])
    padding = torch.tensor([[False, False, True, False, True], [False, False, False, False, True]])
    small = {"embed_dim": 4, "num_heads": 2}

    def attention(arguments, inputs, options=None):
        return module_case("MultiheadAttention", arguments, inputs, options)

    yield attention(small, [q, q, q])
    yield attention({**small, "bias": False}, [q, k, k], {"average_attn_weights": False})
    yield attention({**small, "batch_first": True}, [randn(2, 3, 4)] * 3, {"attn_mask": hidden})
    yield attention(small, [q, k, k], {"key_padding_mask": padding, "need_weights": False})
    yield attention(small, [q, q, q], {"attn_mask": randn(4, 3, 3), "key_padding_mask": padding[:, :3]})
    yield attention({**small, "add_bias_kv": True, "add_zero_attn": True}, [q, k, k], {"key_padding_mask": padding})
    yield attention({**small, "add_zero_attn": True}, [q, q, q], {"attn_mask": hidden, "need_weights": False})
    yield attention({**small, "kdim": 3, "vdim": 6}, [q, randn(5, 2, 3), randn(5, 2, 6)])
    yield attention({**small, "kdim": 3, "add_bias_kv": True}, [randn(3, 4), randn(5, 3), randn(5, 4)],
                    {"key_padding_mask": padding[0]})
    yield attention(small, [randn(3, 4)] * 3, {"attn_mask": hidden, "average_attn_weights": False})


def transformer_cases():
    src, tgt = randn(3, 2, 4), randn(4, 2, 4)
    small = {"d_model": 4, "nhead": 2, "dim_feedforward": 6, "dropout": 0.0}
    causal = nn.Transformer.generate_square_subsequent_mask(4)
    padding = torch.tensor([[False, False, True], [False, False, False]])
    yield module_case("TransformerEncoderLayer", small, [src])
    yield module_case("TransformerEncoderLayer", {**small, "norm_first": True, "activation": "gelu", "bias": False},
                      [src], {"src_key_padding_mask": padding})
    yield module_case("TransformerEncoderLayer", {**small, "batch_first": True, "layer_norm_eps": 0.1}, [randn(2, 4, 4)],
                      {"src_mask": causal, "is_causal": True})
    yield module_case("TransformerDecoderLayer", small, [tgt, src],
                      {"tgt_mask": causal, "memory_key_padding_mask": padding})
    yield module_case("TransformerDecoderLayer", {**small, "norm_first": True, "batch_first": True, "activation": "gelu"},
                      [randn(2, 4, 4), randn(2, 3, 4)])
    both = {"d_model": 4, "nhead": 2, "num_encoder_layers": 2, "num_decoder_layers": 2, "dim_feedforward": 5,
            "dropout": 0.0}
    yield module_case("Transformer", both, [src, tgt], {"tgt_mask": causal, "src_mask": torch.zeros(3, 3)})


def small_cases():
    x = randn(3, 4) * 3
    wide = torch.cat([x.flatten(), torch.tensor([0.0, 25.0, -25.0, 100.0])])
    for name, arguments in (
        ("Tanh", {}), ("Sigmoid", {}), ("LogSigmoid", {}), ("Softplus", {}), ("Softplus", {"beta": 2.0, "threshold": 1.5}),
        ("LeakyReLU", {}), ("LeakyReLU", {"negative_slope": 0.3, "inplace": False}), ("ELU", {}), ("ELU", {"alpha": 0.5}),
    ):
        yield module_case(name, arguments, [wide])
    yield module_case("Softmax", {"dim": 1}, [x], text=False)
    yield module_case("Softmax", {"dim": -2}, [x])
    yield module_case("LogSoftmax", {"dim": -1}, [x])
    yield module_case("GLU", {}, [x])
    yield module_case("Identity", {}, [x])
    yield module_case("Flatten", {}, [randn(2, 2, 2)], text=False)
    yield module_case("Flatten", {"start_dim": 0, "end_dim": -2}, [randn(2, 2, 2)], text=False)
    yield module_case("BatchNorm1d", {"num_features": 4}, [x], train=True, calls=2)
    yield module_case("BatchNorm1d", {"num_features": 4}, [x])
    yield module_case("BatchNorm1d", {"num_features": 3, "eps": 0.1, "momentum": 0.5}, [randn(2, 3, 5)], train=True)
    yield module_case("BatchNorm1d", {"num_features": 3, "momentum": False}, [randn(2, 3, 5)], train=True, calls=3,
                      torch_arguments={"num_features": 3, "momentum": None})
    yield module_case("BatchNorm1d", {"num_features": 3, "affine": False, "track_running_stats": False},
                      [randn(2, 3, 5)])


# ---- Functions ----


def function_case(name, inputs, options=None, **changed):
    """changed: options whose values in heed differ from PyTorch's."""

    y = getattr(F, name)(*inputs, **(options or {}))
    return {"name": name, "inputs": [False if each is None else each for each in inputs],  # False: nil
            "options": {**named(options or {}), **changed}, "y": y}


def class_case(name, inputs, target, options=None):
    """A loss of classes, which count from 1 in heed; ignore_index in options is PyTorch's."""
    options = options or {}
    ignored = options.get("ignore_index", -100)
    case = function_case(name, [inputs, target], options)
    case["inputs"] = [inputs, torch.where(target == ignored, target, target + 1)]
    if ignored >= 0:
        case["inputs"][1] = target + 1
        case["options"]["ignore_index"] = ignored + 1
    return case


def loss_cases():
    x, classes, weight = randn(4, 5), torch.tensor([1, 0, 4, 2]), torch.rand(5, generator=g) + 0.5
    some = torch.tensor([1, -100, 4, -100])
    for options in ({}, {"weight": weight}, {"reduction": "sum"}, {"reduction": "none", "weight": weight},
                    {"label_smoothing": 0.2}, {"label_smoothing": 0.2, "weight": weight}, {"ignore_index": 2},
                    {"label_smoothing": 0.1, "weight": weight, "reduction": "none", "ignore_index": 4}):
        yield class_case("cross_entropy", x, classes, options)
        if "ignore_index" not in options:
            yield class_case("cross_entropy", x, some, options)
    yield class_case("cross_entropy", x[0], torch.tensor(3))
    deep, places = randn(2, 3, 2, 2), torch.randint(0, 3, (2, 2, 2), generator=g)
    yield class_case("cross_entropy", deep, places, {"weight": weight[:3], "label_smoothing": 0.3})
    for options in ({}, {"weight": weight, "reduction": "sum"}, {"label_smoothing": 0.2, "weight": weight},
                    {"reduction": "none"}):
        yield function_case("cross_entropy", [x, randn(4, 5).softmax(1)], options)
    logs = x.log_softmax(1)
    for options in ({}, {"weight": weight}, {"reduction": "none"}, {"ignore_index": 0, "reduction": "sum"}):
        yield class_case("nll_loss", logs, classes, options)
    yield class_case("nll_loss", deep.log_softmax(1), places)
    y = randn(4, 5)
    for reduction in ("mean", "sum", "none"):
        yield function_case("mse_loss", [x, y], {"reduction": reduction})
        yield function_case("l1_loss", [x, y], {"reduction": reduction})
    for options in ({}, {"beta": 0.5}, {"beta": 0.0}, {"reduction": "none", "beta": 2.0}):
        yield function_case("smooth_l1_loss", [x, y], options)
    for options in ({}, {"delta": 0.5, "reduction": "none"}):
        yield function_case("huber_loss", [x, y], options)
    p, t = torch.rand(4, 5, generator=g), torch.rand(4, 5, generator=g)
    p[0, 0], p[0, 1], t[1] = 0, 1, torch.tensor([0.0, 1.0, 0.0, 1.0, 1.0])
    for options in ({}, {"weight": weight, "reduction": "sum"}, {"reduction": "none"}):
        yield function_case("binary_cross_entropy", [p, t], options)
    for options in ({}, {"weight": weight, "reduction": "sum"}, {"pos_weight": weight}, {"reduction": "none"}):
        yield function_case("binary_cross_entropy_with_logits", [x * 20, t], options)
    for reduction in ("batchmean", "sum", "none"):
        yield function_case("kl_div", [logs, t], {"reduction": reduction})
    yield function_case("kl_div", [logs, y.log_softmax(1)], {"reduction": "batchmean", "log_target": True})


def form_cases():
    x, y = randn(3, 4), randn(3, 4)
    for name in ("relu", "silu", "tanh", "sigmoid", "logsigmoid", "softplus", "leaky_relu", "elu", "gelu", "glu"):
        yield function_case(name, [x])
    yield function_case("gelu", [x], {"approximate": "tanh"})
    yield function_case("softmax", [x], {"dim": 0}, dim=1)
    yield function_case("log_softmax", [x], {"dim": 1}, dim=2)
    yield function_case("linear", [x, randn(2, 4), randn(2)])
    deep, weight, bias = randn(2, 3, 4), randn(3, 4), randn(3, 4)
    yield function_case("layer_norm", [x, [4]], {"weight": randn(4), "bias": randn(4), "eps": 0.1})
    yield function_case("layer_norm", [deep, [3, 4]], {"weight": weight, "bias": bias})
    yield function_case("layer_norm", [deep, [3, 4]])
    yield function_case("rms_norm", [x, [4]], {"weight": randn(4)})
    yield function_case("rms_norm", [deep, [3, 4]], {"weight": weight, "eps": 0.1})
    yield function_case("batch_norm", [x, randn(4), torch.rand(4, generator=g) + 0.5])
    yield function_case("batch_norm", [deep, None, None], {"training": True, "weight": randn(3), "eps": 0.1})
    yield function_case("normalize", [x])
    yield function_case("normalize", [x], {"p": 1.0, "dim": 0}, dim=1)
    yield function_case("cosine_similarity", [x, y])
    yield function_case("cosine_similarity", [x, y], {"dim": 0, "eps": 2.0}, dim=1)
    for options in ({}, {"is_causal": True}, {"attn_mask": torch.tensor([[True, False, True]] * 3)}):
        yield function_case("scaled_dot_product_attention", [randn(2, 3, 4), randn(2, 3, 4), randn(2, 3, 4)], options)


def init_cases():
    plans = [
        ("uniform_", (3, 4), {}), ("uniform_", (3, 4), {"a": -1.0, "b": 3.0}), ("normal_", (3, 4), {}),
        ("normal_", (5, 4), {"mean": 1.0, "std": 0.5}), ("xavier_uniform_", (3, 4), {}),
        ("xavier_uniform_", (3, 4, 2), {"gain": 2.0}), ("xavier_normal_", (3, 4), {}), ("kaiming_uniform_", (3, 4), {}),
        ("kaiming_uniform_", (3, 4), {"a": 2.0, "mode": "fan_out"}), ("kaiming_normal_", (5, 4), {"nonlinearity": "relu"}),
        ("kaiming_normal_", (3, 4), {"nonlinearity": "tanh"}), ("trunc_normal_", (5, 7), {}),
        ("trunc_normal_", (5, 7), {"mean": 0.5, "std": 0.7, "a": -0.25, "b": 1.0}),
        ("trunc_normal_", (5, 7), {"std": 3.0, "a": -2.0, "b": 0.7}), ("trunc_normal_", (40,), {"a": 2.0, "b": 3.0}),
        ("trunc_normal_", (3, 5), {"mean": 0.5, "std": 4.0, "a": -0.5, "b": 0.7}), ("ones_", (2, 2), {}),
        ("zeros_", (2, 2), {}), ("eye_", (2, 3), {}),
    ]
    for name, shape, options in plans:
        torch.manual_seed(len(name))
        y = getattr(nn.init, name)(torch.full(shape, 7.0), **options)
        yield {"init": name, "seed": len(name), "shape": list(shape), "options": options, "y": y}


def main():
    made = "reference values made by scripts/dev/make_module_values.py"
    modules = [*small_cases(), *attention_cases(), *transformer_cases()]
    golden.write(golden.folder() / "torch_modules.lua", f"modules: {made}", modules, functions=True)
    functions = [*form_cases(), *loss_cases(), *init_cases()]
    golden.write(golden.folder() / "functional.lua", f"functions: {made}", functions, functions=True)


if __name__ == "__main__":
    main()
