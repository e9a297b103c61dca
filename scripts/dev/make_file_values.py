#!/usr/bin/env python3
"""Makes the small files of tests/golden/files, which the specs load, with numpy and safetensors.

    python scripts/dev/make_file_values.py [FOLDER]     (pip install numpy safetensors)

Element i (from 0, row-major) of every tensor is i / 2 - 3, of integers i - 3, of unsigned ones 2^(bits - 1) + i or, of
64 bits, 2^62 + i, of bools i % 3 == 0. These numbers are exact in all dtypes. Each run writes the same bytes.
"""
import io
import json
import zipfile

import numpy as np
import safetensors

import golden

SHAPE = (2, 3, 4)
NUMPY = ["<f4", "<f8", "<f2", "<i2", "<i4", "<i8", "|i1", "|u1", "<u2", "<u4", "<u8", "|b1", ">f4", ">f8", ">f2",
         ">i2", ">i4", ">i8", ">u2", ">u4", ">u8"]


def array(dtype, shape=SHAPE):
    i = np.arange(int(np.prod(shape)))
    kind = np.dtype(dtype).kind
    if kind == "u":
        return (2 ** min(8 * np.dtype(dtype).itemsize - 1, 62) + i).astype(dtype).reshape(shape)
    values = i % 3 == 0 if kind == "b" else i - 3 if kind == "i" else i / 2 - 3
    return values.astype(dtype).reshape(shape)


def bfloat16(shape=SHAPE):
    """The upper halves of float32."""
    return (array("<f4", shape).view("<u4") >> 16).astype("<u2").tobytes()


def serialize(entries, metadata=None):
    """The contents of a .safetensors file; entries: name -> (dtype, bytes, shape)."""
    if not hasattr(safetensors, "TensorSpec"):  # versions before 0.8
        specs = {n: {"dtype": d, "data": data, "shape": list(shape)} for n, (d, data, shape) in entries.items()}
        return safetensors.serialize(specs, metadata)
    arrays = {name: np.frombuffer(data, "u1") for name, (_, data, _) in entries.items()}  # keeps the memory alive
    specs = {name: safetensors.TensorSpec(dtype=dtype, shape=list(shape), data_ptr=arrays[name].ctypes.data,
                                          data_len=len(data)) for name, (dtype, data, shape) in entries.items()}
    return bytes(safetensors.serialize(specs, metadata))


def main():
    folder = golden.folder() / "files"
    folder.mkdir(exist_ok=True)

    def path(name):
        return folder / name

    for dtype in NUMPY:
        order = "big_" if dtype[0] == ">" else ""
        np.save(path(f"{order}{dtype[1:]}.npy"), array(dtype))
    np.save(path("fortran.npy"), np.asfortranarray(array("<f4")))
    np.save(path("scalar.npy"), np.array(2.5, "<f4"))
    np.save(path("one_dimension.npy"), array("<i8", (5,)))
    np.save(path("empty.npy"), np.zeros((2, 0), "<f4"))
    for version in (2, 3):
        with open(path(f"version_{version}.npy"), "wb") as file:
            np.lib.format.write_array(file, array("<f4"), version=(version, 0))
    np.save(path("refused_c8.npy"), np.arange(3, dtype="c8"))
    np.save(path("refused_records.npy"), np.zeros(2, dtype=[("a", "<f4")]))

    tensors = {"weight": array("<f4"), "ids": array("<i4", (5,)), "mask": array("|b1", (3, 3)), "scale": np.array(2.5)}
    np.savez(path("stored.npz"), **tensors)
    np.savez_compressed(path("deflated.npz"), **tensors)
    np.savez(path("partly.npz"), weight=array("<f4"), wave=np.arange(3, dtype="c8"), scale=np.array(2.5),
             records=np.zeros(2, dtype=[("a", "<f4")]), text=np.array(["ab"]), count=array("|u1", (3,)))
    with zipfile.ZipFile(path("without_endings.npz"), "w") as file:
        for name, value in tensors.items():
            text = io.BytesIO()
            np.save(text, value)
            file.writestr(zipfile.ZipInfo(name), text.getvalue())

    everything = {
        "float32": ("float32", array("<f4").tobytes(), SHAPE),
        "float16": ("float16", array("<f2").tobytes(), SHAPE),
        "bfloat16": ("bfloat16", bfloat16(), SHAPE),
        "int64": ("int64", array("<i8").tobytes(), SHAPE),
        "int32": ("int32", array("<i4").tobytes(), SHAPE),
        "int8": ("int8", array("|i1").tobytes(), SHAPE),
        "bool": ("bool", array("|b1").tobytes(), SHAPE),
        "scalar": ("float32", np.array(2.5, "<f4").tobytes(), ()),
        "empty": ("float32", b"", (2, 0)),
        'a "quoted"\n\u6ce8\u610f': ("float32", array("<f4", (3,)).tobytes(), (3,)),
    }
    metadata = {"format": "pt", "note": "\u00e9\n"}
    with open(path("everything.safetensors"), "wb") as file:
        file.write(serialize(everything, metadata))
    converted = {name: (name, array(dtype).tobytes(), SHAPE) for name, dtype in [
        ("float64", "<f8"), ("int16", "<i2"), ("int32", "<i4"), ("uint8", "|u1"), ("uint16", "<u2"), ("uint32", "<u4"),
        ("uint64", "<u8")]}
    with open(path("converted.safetensors"), "wb") as file:
        file.write(serialize(converted))
    with open(path("partly.safetensors"), "wb") as file:
        file.write(serialize({"weight": everything["float32"], "low": ("float8_e4m3fn", bytes(6), (2, 3)),
                              "large": ("uint64", (2 ** 63).to_bytes(8, "little") * 2, (2,)),
                              "wave": ("complex64", bytes(16), (2,)), "count": converted["uint8"]}))

    shards = {"sharded-1-of-2.safetensors": ["float32", "int64"], "sharded-2-of-2.safetensors": ["bfloat16", "bool"]}
    weight_map = {}
    for name, keys in shards.items():
        with open(path(name), "wb") as file:
            file.write(serialize({key: everything[key] for key in keys}, {"format": "pt"}))
        weight_map.update({key: name for key in keys})
    with open(path("sharded.safetensors.index.json"), "w", encoding="utf-8") as file:
        json.dump({"metadata": {"total_size": 312}, "weight_map": weight_map}, file, indent=2)


if __name__ == "__main__":
    main()
