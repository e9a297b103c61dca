"""Reference values for layers and rotary positions: python make_layer_values.py tests/golden

Writes layers.lua, made by PyTorch's modules (weights, text, outputs), and rope.lua, made in double precision from
the formulas: RoPE arXiv:2104.09864; linear scaling arXiv:2306.15595; NTK by formula base * factor^(d / (d - 2));
YaRN arXiv:2309.00071, section 3; Llama 3.1's ramp. Angles of whole positions, so double is exact enough.
"""

import math
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn


# ---- Lua text ----


def number(value):
  if isinstance(value, float):
    text = f"{value:.9g}"
    return {"inf": "math.huge", "-inf": "-math.huge", "nan": "0/0"}.get(text, text)
  return str(value)


def lua(value):
  """A Python value as Lua; arrays and tensors as {shape =, dtype =, data =}."""
  if isinstance(value, torch.Tensor):
    value = value.detach().numpy()
  if isinstance(value, np.ndarray):
    dtype = "int64" if value.dtype == np.int64 else "float32"
    data = ",".join(number(v) for v in value.astype(value.dtype if dtype == "int64" else np.float32).flatten().tolist())
    return f'{{shape={lua(list(value.shape))},dtype="{dtype}",data={{{data}}}}}'
  if value is None:
    return "nil"
  if isinstance(value, bool):
    return "true" if value else "false"
  if isinstance(value, str):
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
  if isinstance(value, dict):
    return "{" + ",".join(f"{key}={lua(each)}" for key, each in value.items() if each is not None) + "}"
  if isinstance(value, (list, tuple)):
    return "{" + ",".join(lua(each) for each in value) + "}"
  return number(value)


def write(path, title, cases):
  lines = [f"-- {title}: reference values made by scripts/dev/make_layer_values.py", "return {"]
  lines += [f"  {lua(case)}," for case in cases] + ["}", ""]
  path.write_text("\n".join(lines))


# ---- Modules ----


def text_of(module):
  """PyTorch's repr, its padding index counted from 1."""
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


def frequencies(dims, base, scaling):
  """Radians a position of each pair, and what cosines and sines are multiplied by."""
  kind, factor = scaling.get("type"), scaling.get("factor", 1.0)
  exponents = np.arange(0, dims, 2, dtype=np.float64) / dims
  if kind == "ntk":
    base = base * factor ** (dims / (dims - 2))
  inverse = 1.0 / base**exponents
  if kind == "linear":
    return inverse / factor, 1.0
  if kind == "yarn":
    length = scaling["original_context_length"]

    def dimension(rotations):
      return dims * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(dimension(scaling.get("beta_fast", 32.0))), 0)
    high = min(math.ceil(dimension(scaling.get("beta_slow", 1.0))), dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / (high - low if high != low else 0.001), 0, 1)
    extrapolated = 1 - ramp
    magnitude = scaling.get("attention_factor", 0.1 * math.log(factor) + 1 if factor > 1 else 1.0)
    return inverse / factor * (1 - extrapolated) + inverse * extrapolated, magnitude
  if kind == "llama3":
    length, low, high = (scaling.get(name, default) for name, default in (
      ("original_context_length", None), ("low_freq_factor", 1.0), ("high_freq_factor", 4.0)))
    wavelength = 2 * math.pi / inverse
    smooth = (length / wavelength - low) / (high - low)
    between = (1 - smooth) * inverse / factor + smooth * inverse
    scaled = np.where(wavelength > length / low, inverse / factor, inverse)
    medium = (wavelength <= length / low) & (wavelength >= length / high)
    return np.where(medium, between, scaled), 1.0
  return inverse, 1.0


def rope(x, positions, base=10000.0, style="half", dims=None, scaling=None):
  """x [..., n, d] by positions [..., n] from 0, in double."""
  x = x.astype(np.float64)
  dims = dims or x.shape[-1]
  inverse, magnitude = frequencies(dims, base, scaling or {})
  angle = positions[..., None].astype(np.float64) * inverse
  cosine, sine = np.cos(angle) * magnitude, np.sin(angle) * magnitude
  turned = x.copy()
  if style == "half":
    first, second = np.arange(dims // 2), np.arange(dims // 2, dims)
  else:
    first, second = np.arange(0, dims, 2), np.arange(1, dims, 2)
  turned[..., first] = x[..., first] * cosine - x[..., second] * sine
  turned[..., second] = x[..., second] * cosine + x[..., first] * sine
  return turned


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
  ]
  for shape, options, positions in plans:
    x = random.standard_normal(shape).astype(np.float32)
    if isinstance(positions, tuple):
      positions = random.integers(0, 5000, positions)
    places = np.arange(shape[-2]) if positions is None else np.asarray(positions, dtype=np.int64)
    case = {"x": x, "positions": None if positions is None else places + 1, "options": options}
    case["y"] = rope(x, places, **options)
    yield case


def alibi_slopes(heads):
  """As in the authors' code (arXiv:2108.12409)."""

  def of_power(n):
    start = 2 ** (-(2 ** -(math.log2(n) - 3)))
    return [start * start**i for i in range(n)]

  if math.log2(heads).is_integer():
    return of_power(heads)
  nearest = 2 ** math.floor(math.log2(heads))
  return of_power(nearest) + alibi_slopes(2 * nearest)[0::2][: heads - nearest]


def main():
  folder = Path(sys.argv[1])
  write(folder / "layers.lua", "layers", list(module_cases()))
  slopes = [{"slopes": np.array(alibi_slopes(heads))} for heads in (1, 2, 3, 5, 8, 12, 16, 20, 40)]
  write(folder / "rope.lua", "rotary positions and slopes", list(rope_cases()) + slopes)


main()
