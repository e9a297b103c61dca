"""Makes the reference values of layers and rotary positions.

    python scripts/dev/make_layer_values.py [FOLDER]     (pip install torch numpy)

layers.lua  PyTorch's modules: initial and other weights, text, results
rope.lua    rotary positions and ALiBi's slopes, by positions.py
"""

import numpy as np
import torch
from torch import nn

import golden
from positions import alibi_slopes, rotate

# ---- Modules ----


def text_of(module):
    """PyTorch's text, with a padding index that counts from 1."""
    if isinstance(module, nn.Embedding) and module.padding_idx is not None:
        return f"Embedding({module.num_embeddings}, {module.embedding_dim}, padding_idx={module.padding_idx + 1})"
    return repr(module)


def module_case(name, arguments, x, torch_arguments=None, randomize=True):
    seed = 1000 + len(name) + x.numel()
    torch.manual_seed(seed)
    module = getattr(nn, name)(**(torch_arguments or arguments))
    case = {"class": name, "arguments": arguments, "seed": seed, "text": text_of(module)}
    case["drawn"] = [[key, value.clone()] for key, value in module.state_dict().items()]
    if randomize:
        for parameter in module.parameters():
            nn.init.normal_(parameter, 1, 0.5)
        case["state"] = [[key, value] for key, value in module.state_dict().items()]
    case["x"] = x + 1 if x.dtype == torch.int64 else x
    case["y"] = module(x)
    return case


def module_cases():
    g = torch.Generator().manual_seed(1)
    wide = torch.randn(3, 70, generator=g)
    deep = torch.randn(2, 3, 4, generator=g) * 3 + 1
    ids = torch.randint(0, 9, (2, 5), generator=g)
    yield module_case("Embedding", {"num_embeddings": 9, "embedding_dim": 3}, ids, randomize=False)
    yield module_case("Embedding", {"num_embeddings": 3, "embedding_dim": 5}, ids[0] % 3, randomize=False)
    yield module_case("Embedding", {"num_embeddings": 9, "embedding_dim": 17, "padding_idx": 3}, ids,
                                        {"num_embeddings": 9, "embedding_dim": 17, "padding_idx": 2}, randomize=False)
    yield module_case("Embedding", {"num_embeddings": 9, "embedding_dim": 2, "padding_idx": -1}, ids[1],
                                        randomize=False)
    yield module_case("LayerNorm", {"normalized_shape": 70}, wide)
    yield module_case("LayerNorm", {"normalized_shape": 4, "eps": 1e-12}, deep)
    yield module_case("LayerNorm", {"normalized_shape": [3, 4]}, deep)
    yield module_case("LayerNorm", {"normalized_shape": [2, 3, 4], "eps": 0.25, "bias": False}, deep)
    yield module_case("LayerNorm", {"normalized_shape": [4], "elementwise_affine": False}, deep)
    yield module_case("RMSNorm", {"normalized_shape": 70}, wide)
    yield module_case("RMSNorm", {"normalized_shape": [3, 4], "eps": 1e-6}, deep)
    yield module_case("RMSNorm", {"normalized_shape": 4, "eps": 10.0, "elementwise_affine": False}, deep)
    for name, arguments in (("GELU", {}), ("GELU", {"approximate": "tanh"}), ("SiLU", {}), ("ReLU", {})):
        yield module_case(name, arguments, wide * 3)


# ---- Rotary positions ----


def rope_cases():
    random = np.random.default_rng(7)
    yarn = {"type": "yarn", "factor": 4.0, "original_context_length": 4096}
    llama3 = {"type": "llama3", "factor": 8.0, "original_context_length": 8192}
    plans = [  # shape, options, positions (from 0): None, a list, or the highest of random ones
        ((3, 8), {}, None),
        ((2, 3, 5, 6), {}, None),
        ((2, 3, 5, 6), {"style": "interleaved", "base": 500.0}, None),
        ((4, 70), {"dims": 20}, [0, 7, 1023, 100000]),
        ((4, 13), {"dims": 6, "style": "interleaved"}, [5, 5, 4, 3]),
        ((4, 32), {"base": 500000.0}, [131071, 65, 64, 63]),
        ((2, 2, 3, 16), {}, (2, 1, 3)),
        ((2, 140, 4), {}, None),
        ((140, 4), {"style": "interleaved"}, (140,)),
        ((4, 16), {"scaling": {"type": "linear", "factor": 4.0}}, [0, 1, 10, 9999]),
        ((4, 16), {"scaling": {"type": "ntk", "factor": 8.0}}, [0, 1, 10, 9999]),
        ((4, 64), {"scaling": yarn}, [0, 1, 100, 9999]),
        ((4, 64), {"scaling": yarn, "dims": 32, "style": "interleaved", "base": 1000000.0}, [0, 1, 100, 9999]),
        ((4, 128), {"scaling": dict(yarn, beta_fast=20.0, beta_slow=2.0, attention_factor=1.5)}, [0, 1, 100, 9999]),
        ((4, 8), {"scaling": dict(yarn, original_context_length=16)}, [0, 1, 100, 9999]),
        ((4, 16), {"scaling": dict(yarn, factor=0.5)}, [0, 1, 100, 9999]),
        ((4, 128), {"scaling": llama3, "base": 500000.0}, [0, 1, 5000, 99999]),
        ((4, 64), {"scaling": dict(llama3, factor=32.0, low_freq_factor=2.0, high_freq_factor=16.0)}, [0, 3, 40, 700]),
        ((140, 10), {"scaling": llama3, "base": 500000.0}, (140,)),
        ((4, 8), {"scaling": {"type": "factors", "factors": [1.0, 1.25, 2.5, 40.0]}}, [0, 1, 100, 9999]),
        ((140, 10), {"dims": 6, "scaling": {"type": "factors", "factors": [1.0, 3.3, 7.1], "attention_factor": 1.2}},
         (140,)),
    ]
    for shape, options, positions in plans:
        x = random.standard_normal(shape).astype(np.float32)
        if isinstance(positions, tuple):
            positions = random.integers(0, 5000, positions)
        at = np.arange(shape[-2]) if positions is None else np.asarray(positions, dtype=np.int64)
        case = {"x": x, "positions": None if positions is None else at + 1, "options": options}
        case["y"] = rotate(x, at, **options)
        yield case


def main():
    made = "reference values made by scripts/dev/make_layer_values.py"
    golden.write(golden.folder() / "layers.lua", f"layers: {made}", module_cases())
    slopes = [{"slopes": np.array(alibi_slopes(heads))} for heads in (1, 2, 3, 5, 8, 12, 16, 20, 40)]
    golden.write(golden.folder() / "rope.lua", f"rotary positions and slopes: {made}", [*rope_cases(), *slopes])


if __name__ == "__main__":
    main()
