#!/usr/bin/env python3
"""Exchanges files with safetensors, numpy and gguf: heed loads the files that they write and saves them again, and they
read the result. If safetensors refuses a file with a few changed bytes, heed must refuse it too. GGUF files of models
that heed saves must have the fields, types and names that llama.cpp reads. Ends with "N passed, N failed".

    python3 scripts/dev/check_files.py build/heed [SEED [MUTATIONS]]
"""
import json
import random
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import gguf
import numpy as np
from safetensors import deserialize, safe_open

from make_file_values import serialize

# The dtype's name in the serializer and in files of safetensors, numpy's dtype of the same size, the name after heed
# has loaded and saved the tensor
KINDS = [("float32", "F32", "<f4", "F32"), ("float16", "F16", "<f2", "F16"), ("bfloat16", "BF16", "<u2", "BF16"),
         ("int64", "I64", "<i8", "I64"), ("int8", "I8", "|i1", "I8"), ("bool", "BOOL", "|b1", "BOOL"),
         ("float64", "F64", "<f8", "F32"), ("int32", "I32", "<i4", "I64"), ("int16", "I16", "<i2", "I64"),
         ("uint8", "U8", "|u1", "I64"), ("uint16", "U16", "<u2", "I64"), ("uint32", "U32", "<u4", "I64"),
         ("uint64", "U64", "<u8", "I64")]
AFTER = {"F64": ("<f8", "<f4"), "I32": ("<i4", "<i8"), "I16": ("<i2", "<i8"), "U8": ("|u1", "<i8"),
         "U16": ("<u2", "<i8"), "U32": ("<u4", "<i8"), "U64": ("<u8", "<i8")}
LETTERS = ["a", "Z", ".", "_", "0", " ", '"', "\\", "/", "\n", "\x01", "\x7f", "\u00e9", "\u6ce8", "\U0001f600"]


def some_name(rng):
    return "".join(rng.choice(LETTERS) for _ in range(rng.randrange(1, 12)))


def some_shape(rng):
    return tuple(rng.choice([0, 1, 2, 3, 5, 17, 64]) for _ in range(rng.randrange(0, 4)))


def some_bytes(rng, dtype, shape):
    count = int(np.prod(shape, dtype=np.int64))
    if dtype == "|b1":
        return bytes(rng.choices([0, 1], k=count))
    if dtype in ("<f8", ">f8"):  # no nan, whose bits change
        return np.array([rng.gauss(0, 1) * 10.0 ** rng.randrange(-45, 40) for _ in range(count)], dtype).tobytes()
    if dtype in ("<u8", ">u8"):  # what int64 can represent
        return np.array([rng.randrange(2 ** 63) for _ in range(count)], dtype).tobytes()
    return rng.randbytes(count * np.dtype(dtype).itemsize)


def converted(kind, data):
    """The bytes after heed has loaded and saved them."""
    if kind not in AFTER:
        return data
    before, after = AFTER[kind]
    with np.errstate(all="ignore"):  # numbers that float32 cannot represent
        return np.frombuffer(data, before).astype(after).tobytes()


# The types of the fields of models, for which llama.cpp (src/llama-model-loader.cpp) accepts no other, without the name
# of the architecture.
UINT32, FLOAT32 = [gguf.GGUFValueType.UINT32], [gguf.GGUFValueType.FLOAT32]
STRING, BOOL, ARRAY = [gguf.GGUFValueType.STRING], [gguf.GGUFValueType.BOOL], [gguf.GGUFValueType.ARRAY]
FIELDS = {
    "general.architecture": STRING, "general.file_type": UINT32, "general.quantization_version": UINT32,
    "general.name": STRING, "block_count": UINT32, "context_length": UINT32, "embedding_length": UINT32,
    "feed_forward_length": UINT32, "vocab_size": UINT32, "attention.head_count": UINT32,
    "attention.head_count_kv": UINT32, "attention.key_length": UINT32, "attention.value_length": UINT32,
    "attention.sliding_window": UINT32, "attention.layer_norm_rms_epsilon": FLOAT32, "rope.dimension_count": UINT32,
    "rope.freq_base": FLOAT32, "rope.scaling.type": STRING, "rope.scaling.factor": FLOAT32,
    "rope.scaling.attn_factor": FLOAT32, "rope.scaling.original_context_length": UINT32,
    "tokenizer.chat_template": STRING, "tokenizer.ggml.model": STRING, "tokenizer.ggml.pre": STRING,
    "tokenizer.ggml.bos_token_id": UINT32, "tokenizer.ggml.eos_token_id": UINT32,
    "tokenizer.ggml.unknown_token_id": UINT32, "tokenizer.ggml.padding_token_id": UINT32,
    "tokenizer.ggml.add_bos_token": BOOL, "tokenizer.ggml.tokens": ARRAY + STRING,
    "tokenizer.ggml.merges": ARRAY + STRING, "tokenizer.ggml.token_type": ARRAY + [gguf.GGUFValueType.INT32],
    "tokenizer.ggml.scores": ARRAY + FLOAT32,
}
# Fields of config.json for keys of every architecture.
SETTINGS = {"block_count": "num_hidden_layers", "context_length": "max_position_embeddings",
            "embedding_length": "hidden_size", "feed_forward_length": "intermediate_size",
            "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
            "attention.layer_norm_rms_epsilon": "rms_norm_eps"}
MODELS = ["llama", "llama_linear", "llama_tied", "llama_yarn", "mistral", "phi3", "phi3_partial", "qwen2", "qwen3"]


class Stream:
    """A file without seek: zip writes the sizes and checksums of the entries after their data, as descriptors."""

    def __init__(self, file):
        self.write, self.flush, self.read = file.write, file.flush, None  # numpy checks for the attribute read


class Check:
    def __init__(self, runner, folder, seed):
        self.runner, self.folder, self.rng = runner, Path(folder), random.Random(seed)
        self.passed = self.failed = 0

    def expect(self, what, good):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print("failed:", what)

    def resave(self, pairs):
        """heed's answer for each pair of paths, from one process."""
        lines = "".join(f"{source}\t{target}\n" for source, target in pairs)
        done = subprocess.run([self.runner, "scripts/dev/resave.lua"], input=lines.encode(), capture_output=True,
                              check=False)
        answers = done.stdout.decode(errors="replace").splitlines()
        self.expect(f"heed exits with 0: {done.returncode} {done.stderr.decode()}",
                    done.returncode == 0 and len(answers) == len(pairs))
        return answers

    # ---- safetensors ----

    def safetensors(self, count):
        pairs, contents = [], []
        for i in range(count):
            entries, expected = {}, {}
            for _ in range(self.rng.randrange(0, 8)):
                dtype, name, numpy_dtype, after = self.rng.choice(KINDS)
                key, shape = some_name(self.rng), some_shape(self.rng)
                data = some_bytes(self.rng, numpy_dtype, shape)
                entries[key] = (dtype, data, shape)
                expected[key] = (after, converted(name, data), list(shape))
            metadata = {some_name(self.rng): some_name(self.rng) for _ in range(self.rng.randrange(0, 3))} or None
            source, target = self.folder / f"{i}.safetensors", self.folder / f"{i}.out.safetensors"
            source.write_bytes(serialize(entries, metadata))
            pairs.append((source, target))
            contents.append((expected, metadata))
        for answer, (_, target), (expected, metadata) in zip(self.resave(pairs), pairs, contents):
            text = target.read_bytes() if target.exists() else b""
            found = {key: (e["dtype"], bytes(e["data"]), e["shape"]) for key, e in deserialize(text)} if text else None
            self.expect(f"safetensors {answer} {sorted(expected)}", answer == "ok" and found == expected)
            with safe_open(target, framework="np") as file:
                self.expect("its metadata", file.metadata() == metadata)

    def mutations(self, count):
        """Changed files that heed loads, safetensors loads too, with the same tensors."""
        base = serialize({"a": ("float32", bytes(range(24)), (2, 3)), "b": ("int64", bytes(16), (2,)),
                          "c": ("bool", b"\1\0\1", (3,))}, {"k": "v"})
        header = 8 + int.from_bytes(base[:8], "little")
        pairs = []
        for i in range(count):
            text = bytearray(base)
            for _ in range(self.rng.randrange(1, 4)):
                at = self.rng.randrange(0, header)
                kind = self.rng.randrange(4)
                if kind == 0:
                    text[at] = self.rng.randrange(256)
                elif kind == 1:
                    text[at] = self.rng.choice(b'0123456789{}[],:"-. eE\\u+abAB')
                elif kind == 2:
                    del text[at]
                else:
                    text.insert(at, self.rng.choice(b'0123456789{}[],:"-. eE\\u'))
            if self.rng.random() < 0.5:  # corrects the length, so that the rest is read
                text[:8] = (header - 8 + len(text) - len(base)).to_bytes(8, "little")
            source, target = self.folder / f"m{i}.safetensors", self.folder / f"m{i}.out.safetensors"
            source.write_bytes(text)
            pairs.append((source, target))
        taken = 0
        for answer, (source, target) in zip(self.resave(pairs), pairs):
            if answer != "ok":
                self.expect(f"a message for {source.read_bytes()}: {answer}", answer.startswith("load: "))
                continue
            taken += 1
            try:
                before = {key: (e["shape"], converted(e["dtype"], bytes(e["data"])))
                          for key, e in deserialize(source.read_bytes())}
            except Exception as error:  # safetensors' reason
                self.expect(f"heed loads {source.read_bytes()[:header]}; safetensors: {error}", False)
                continue
            after = {key: (e["shape"], bytes(e["data"])) for key, e in deserialize(target.read_bytes())}
            flags = {key: (shape, bytes(min(b, 1) for b in data)) if key == "c" else (shape, data)
                     for key, (shape, data) in before.items()}
            self.expect(f"the same tensors in {source.read_bytes()[:header]}", after in (before, flags))
        print(f"changed files: {count}, of which heed loads {taken}")

    # ---- gguf ----

    def some_value(self, kind):
        rng = self.rng
        if kind == gguf.GGUFValueType.STRING:
            return some_name(rng)
        if kind == gguf.GGUFValueType.BOOL:
            return rng.random() < 0.5
        if kind in (gguf.GGUFValueType.FLOAT32, gguf.GGUFValueType.FLOAT64):
            return float(np.float32(rng.choice([rng.gauss(0, 1), 10000.0])))
        bits = int(kind.name.lstrip("UINT"))
        low = 0 if kind.name[0] == "U" else -2 ** (bits - 1)
        return rng.choice([low, low + 2 ** min(bits, 63) - 1, rng.randrange(low, low + 2 ** min(bits, 50))])

    def some_gguf(self, path):
        """The fields with their types, and the tensors with their types."""
        fields, tensors, rng = {}, {}, self.rng
        writer = gguf.GGUFWriter(path, "test")
        if rng.random() < 0.3:
            writer.add_custom_alignment(rng.choice([64, 256]))
        kinds = [kind for kind in gguf.GGUFValueType if kind != gguf.GGUFValueType.ARRAY]
        for i in range(rng.randrange(0, 12)):
            kind = rng.choice(kinds)
            if rng.random() < 0.3:
                value = [self.some_value(kind) for _ in range(rng.randrange(1, 5))]
                writer.add_key_value(f"list.{i}", value, gguf.GGUFValueType.ARRAY, sub_type=kind)
                fields[f"list.{i}"] = ([gguf.GGUFValueType.ARRAY, kind], value)
            else:
                value = self.some_value(kind)
                writer.add_key_value(f"key.{i}", value, kind)
                fields[f"key.{i}"] = ([kind], value)
        elements = ["F32", "F16", "BF16", "I64", "I8"]
        blocks = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
        for i in range(rng.randrange(0, 8)):
            kind = gguf.GGMLQuantizationType[rng.choice(elements + blocks)]
            size, width = gguf.GGML_QUANT_SIZES[kind]
            shape = tuple(rng.choice([1, 2, 3, 5]) for _ in range(rng.randrange(0, 3))) + (rng.choice([1, 2]) * width,)
            raw = np.frombuffer(rng.randbytes(int(np.prod(shape))), np.uint8).reshape(shape)
            writer.add_tensor(f"tensor {i} \u6ce8", raw, raw_dtype=kind)
            tensors[f"tensor {i} \u6ce8"] = (kind, [*shape[:-1], shape[-1] // width * size], raw.tobytes())
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return fields, tensors

    def gguf(self, count):
        """heed saves the types of numbers and the blocks as they were."""
        pairs, contents = [], []
        for i in range(count):
            source, target = self.folder / f"{i}.gguf", self.folder / f"{i}.out.gguf"
            contents.append(self.some_gguf(source))
            pairs.append((source, target))
        for answer, (_, target), (fields, tensors) in zip(self.resave(pairs), pairs, contents):
            self.expect(f"gguf {answer}", answer == "ok")
            if answer != "ok":
                continue
            reader = gguf.GGUFReader(target)
            for key, (types, value) in fields.items():
                field = reader.fields[key]
                found = field.contents()
                self.expect(f"{key}: {types} {value!r}, found {field.types} {found!r}",
                            list(field.types) == types and found == value)
            found = {t.name: (t.tensor_type, [int(n) for n in reversed(t.shape)], t.data.tobytes())
                     for t in reader.tensors}
            self.expect(f"the tensors {sorted(tensors)}", found == tensors)

    # ---- models ----

    def save_models(self, rows):
        """Saves models, rows of source, target and dtype, from one process."""
        lines = "".join(f"{source}\t{target}\t{dtype}\n" for source, target, dtype in rows)
        done = subprocess.run([self.runner, "scripts/dev/save_models.lua"], input=lines.encode(), capture_output=True,
                              check=False)
        answers = done.stdout.decode(errors="replace").splitlines()
        self.expect(f"heed saves {len(rows)} models: {answers} {done.stderr.decode()}", answers == ["ok"] * len(rows))

    def fields_of(self, path):
        """The fields of a model's file by name without the architecture, and the names of its tensors, both checked."""
        reader = gguf.GGUFReader(path)
        name = reader.fields["general.architecture"].contents()
        arch = next(each for each, text in gguf.MODEL_ARCH_NAMES.items() if text == name)
        fields = {key.removeprefix(name + "."): field for key, field in reader.fields.items()
                  if not key.startswith("GGUF.")}
        for key, field in fields.items():
            self.expect(f"{path}: {key} has the types {field.types}", list(field.types) == FIELDS.get(key))
        layers = range(fields["block_count"].contents())
        known = {gguf.TENSOR_NAMES[kind].format(bid=i) + end for kind in gguf.MODEL_TENSORS[arch]
                 for i in layers for end in (".weight", ".bias")}
        for tensor in reader.tensors:
            self.expect(f"{path}: {name} has no tensor {tensor.name}", tensor.name in known)
        return reader, fields

    def models(self):
        """The files have the types, the names and the values that llama.cpp reads."""
        folder = Path("tests/golden/decoders")
        rows = [(folder / name, self.folder / f"{name}{dtype}.gguf", dtype)
                for name in MODELS for dtype in ("", "q8_0")]
        self.save_models(rows)
        for source, target, _ in rows:
            config = json.loads((source / "config.json").read_text())
            reader, fields = self.fields_of(target)
            for key, setting in SETTINGS.items():
                found, wanted = fields[key].contents(), config[setting]
                self.expect(f"{target}: {key} is {found}, not {wanted}", np.float32(found) == np.float32(wanted))
            with safe_open(source / "model.safetensors", framework="np") as file:
                wanted = file.get_tensor("model.embed_tokens.weight").astype("<f4")
            tensor = next(each for each in reader.tensors if each.name == "token_embd.weight")
            found = gguf.dequantize(tensor.data, tensor.tensor_type).reshape(wanted.shape)
            self.expect(f"{target}: the embeddings", np.abs(found - wanted).max() <= np.abs(wanted).max() / 127)

    def tokenizers(self):
        """A model's file keeps the tokenizer of the file that it came from, with all types."""
        rows = [(Path("tests/golden/decoders/llama"), self.folder / "bare.gguf", "")]
        self.save_models(rows)
        bare = gguf.GGUFReader(rows[0][1])
        for name in ("smollm", "bpe"):
            source, target = self.folder / f"with_{name}.gguf", self.folder / f"again_{name}.gguf"
            writer = gguf.GGUFWriter(source, "llama")
            tokens = gguf.GGUFReader(f"tests/golden/tokenizers/{name}.gguf")
            for key, field in [*bare.fields.items(), *tokens.fields.items()]:
                if key.startswith(("llama.", "tokenizer.")):
                    writer.add_key_value(key, field.contents(), field.types[0],
                                         sub_type=field.types[1] if len(field.types) > 1 else None)
            for tensor in bare.tensors:
                writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.close()
            self.save_models([(source, target, "q8_0")])
            _, fields = self.fields_of(target)
            for key, field in tokens.fields.items():
                if key.startswith("tokenizer."):
                    found = fields[key]
                    self.expect(f"{name}: {key}", found.types == field.types and found.contents() == field.contents())

    # ---- numpy ----

    def arrays(self):
        for dtype in ["<f4", "<f8", "<f2", "<i8", "<i4", "<i2", "|i1", "|u1", "<u2", "<u4", "<u8", "|b1",
                      ">f4", ">f8", ">f2", ">i8", ">i4", ">i2", ">u2", ">u4", ">u8"]:
            for shape in [(), (0,), (3,), (2, 3), (4, 1, 5), (2, 0, 3), (2, 3, 4, 5), (70, 33)]:
                array = np.frombuffer(some_bytes(self.rng, dtype, shape), dtype).reshape(shape)
                yield array
                if len(shape) > 1:
                    yield np.asfortranarray(array)

    @staticmethod
    def as_loaded(array):
        kind = array.dtype.kind + str(array.dtype.itemsize)
        integer = kind in ("i4", "i2", "u1", "u2", "u4", "u8")
        to = "<f4" if kind == "f8" else "<i8" if integer else array.dtype.newbyteorder("<")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about numbers that float32 cannot represent
            return array.astype(to)

    def same(self, found, array):
        wanted = self.as_loaded(array)
        return (found.dtype == wanted.dtype and found.shape == wanted.shape and
                np.array_equal(found, wanted, equal_nan=wanted.dtype.kind == "f"))

    def numpy(self):
        arrays = list(self.arrays())
        pairs = []
        for i, array in enumerate(arrays):
            source, target = self.folder / f"{i}.npy", self.folder / f"{i}.out.npy"
            np.save(source, array)
            pairs.append((source, target))
        for answer, (_, target), array in zip(self.resave(pairs), pairs, arrays):
            self.expect(f"npy {array.dtype} {array.shape} {answer}",
                        answer == "ok" and self.same(np.load(target), array))

        names = [f"{i} \u6ce8/{array.dtype}" for i, array in enumerate(arrays)]
        archive = dict(zip(names, arrays))
        pairs = [(self.folder / "stored.npz", self.folder / "stored.out.npz"),
                 (self.folder / "deflated.npz", self.folder / "deflated.out.npz"),
                 (self.folder / "streamed.npz", self.folder / "streamed.out.npz")]
        np.savez(pairs[0][0], **archive)
        np.savez_compressed(pairs[1][0], **archive)
        with open(pairs[2][0], "wb") as file:
            np.savez_compressed(Stream(file), **archive)
        for answer, (_, target) in zip(self.resave(pairs), pairs):
            self.expect(f"npz {answer}", answer == "ok" and zipfile.ZipFile(target).testzip() is None)
            found = np.load(target)
            self.expect("its names", found.files == names)
            self.expect("its arrays", all(self.same(found[name], archive[name]) for name in names))
        self.expect("the same bytes", len({target.read_bytes() for _, target in pairs}) == 1)

    def many(self):
        """More entries than a zip archive can have without zip64."""
        source, target = self.folder / "many.npz", self.folder / "many.out.npz"
        names = [str(i) for i in range(66000)]
        np.savez(source, **{name: np.int8(i % 100) for i, name in enumerate(names)})
        answer = next(iter(self.resave([(source, target)])))
        with np.load(target) as found:
            self.expect(f"many entries {answer}", answer == "ok" and found.files == names)
            self.expect("the last of many", found[names[-1]] == 65999 % 100)


def main(runner, seed=1, mutations=3000):
    with tempfile.TemporaryDirectory() as folder:
        check = Check(runner, folder, int(seed))
        check.safetensors(100)
        check.mutations(int(mutations))
        check.gguf(100)
        check.models()
        check.tokenizers()
        check.numpy()
        check.many()
        print(f"{check.passed} passed, {check.failed} failed")
        return check.failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
