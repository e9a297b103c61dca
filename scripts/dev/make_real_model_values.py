"""Makes the reference values of the real models that `make model` fetches as GGUF files: transformers computes with
their weights, widened to float32.

    python scripts/dev/make_real_model_values.py [FOLDER]     (pip install torch transformers gguf)

real_models.lua   ids of a prompt, the largest logits of its last position, and the ids that follow greedily; all ids
                  count from 0
"""

import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import golden

NEW = 40
TOP = 16
FRANCE = "The capital of France is"
# What heed's tokenizer and chat template must make of these is in the set, too.
MODELS = [("SmolLM2-135M-Instruct", [{"role": "user", "content": "What is the capital of France?"}]),
          ("gemma-3-270m", FRANCE)]


def case(name, prompt):
    folder = golden.TOP / "build/models" / name
    if not (folder / "model.gguf").exists():
        sys.exit(f"Missing: {folder}/model.gguf, for real_models.lua; 'make model NAME={name}' fetches it")
    files = {"gguf_file": "model.gguf"}
    tokenizer = AutoTokenizer.from_pretrained(folder, **files)
    if isinstance(prompt, str):
        ids, question = tokenizer(prompt)["input_ids"], prompt
    else:
        text = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, tokenize=False)
        ids, question = tokenizer(text, add_special_tokens=False)["input_ids"], prompt[0]["content"]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **files).eval()
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1]
        texts = model.generate(torch.tensor([ids]), max_new_tokens=NEW, do_sample=False, eos_token_id=None)
    top = logits.topk(TOP)
    return {"name": name, "question": question, "ids": ids, "top": top.indices.tolist(), "logits": top.values.tolist(),
            "greedy": texts[0, len(ids):].tolist()}


torch.manual_seed(0)
golden.write(golden.folder() / "real_models.lua", "Real models in GGUF files: the largest logits after a prompt, and the "
             "ids that follow greedily, from 0. Made by scripts/dev/make_real_model_values.py.",
             [case(*each) for each in MODELS], digits=7)
