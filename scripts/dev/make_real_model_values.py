"""Makes the reference values of the GGUF models of `make model` with transformers, which widens their blocks to float32.

    python scripts/dev/make_real_model_values.py [FOLDER [MODELS]]     (pip install torch transformers accelerate gguf)

real_models.lua   of each model in MODELS (build/models): a text, its ids, logits after it and the most likely next ids
"""

import sys
from pathlib import Path

import golden

try:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    import accelerate  # noqa: F401  (transformers needs it for GGUF files)
except ImportError as problem:
    sys.exit(f"Missing: {problem.name}, for real_models.lua")

TEXTS = {
    "SmolLM2-135M-Instruct": "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "gemma-3-270m": "The attention mechanism lets a model",
}
LOGITS, TOKENS = 12, 24


def case(name, text, models):
    folder = models / name
    if not (folder / "model.gguf").exists():
        sys.exit(f"Missing: {folder}, for real_models.lua")
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file="model.gguf", dtype=torch.float32).eval()
    ids = AutoTokenizer.from_pretrained(folder, gguf_file="model.gguf")(text, return_tensors="pt").input_ids
    with torch.no_grad():
        logits = model(ids).logits[0, -1]
        found = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=TOKENS, do_sample=False)
    return {"name": name, "text": text, "ids": ids[0].tolist(), "logits": logits[:LOGITS].tolist(),
            "greedy": found[0, ids.shape[1]:].tolist()}


models = Path(sys.argv[2]) if len(sys.argv) > 2 else golden.TOP / "build/models"
cases = [case(name, text, models) for name, text in TEXTS.items()]
golden.write(golden.folder() / "real_models.lua", "Logits and greedy tokens of real models. Made by "
             "scripts/dev/make_real_model_values.py.", cases, digits=7)
