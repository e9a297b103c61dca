"""Rotary positions and ALiBi's slopes in double precision, from the formulas: RoPE arXiv:2104.09864; linear scaling
arXiv:2306.15595; NTK by formula base * factor^(d / (d - 2)); YaRN arXiv:2309.00071, section 3; Llama 3.1's ramp; ALiBi
arXiv:2108.12409. Angles are those of integer positions, for which double precision is exact enough."""

import math

import numpy as np


def frequencies(dims, base, scaling):
    """The angle of each pair for one position, in radians, and the factor of cosines and sines."""
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
    if kind == "factors":
        return inverse / np.asarray(scaling["factors"], dtype=np.float32), scaling.get("attention_factor", 1.0)
    return inverse, 1.0


def rotate(x, positions, base=10000.0, style="half", dims=None, scaling=None):
    """x [..., n, d] at positions [..., n], which count from 0, as float64."""
    x = x.astype(np.float64)
    dims = dims or x.shape[-1]
    inverse, magnitude = frequencies(dims, base, scaling or {})
    angle = positions[..., None].astype(np.float64) * inverse
    cosine, sine = np.cos(angle) * magnitude, np.sin(angle) * magnitude
    rotated = x.copy()
    if style == "half":
        first, second = np.arange(dims // 2), np.arange(dims // 2, dims)
    else:
        first, second = np.arange(0, dims, 2), np.arange(1, dims, 2)
    rotated[..., first] = x[..., first] * cosine - x[..., second] * sine
    rotated[..., second] = x[..., second] * cosine + x[..., first] * sine
    return rotated


def alibi_slopes(heads):
    """One slope for each head, as in the authors' code."""

    def of_power(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return of_power(heads)
    nearest = 2 ** math.floor(math.log2(heads))
    return of_power(nearest) + alibi_slopes(2 * nearest)[0::2][: heads - nearest]
