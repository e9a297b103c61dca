#!/usr/bin/env python3
"""Trains the model of scripts/examples/induction: python3 scripts/dev/train_induction.py [FOLDER]

Two layers of GPT-2's architecture, which learn to continue repeated random text. The alphabet has 64 characters: id 0
is the beginning (written ^), then come the dot, the digits, and the letters. Needs PyTorch, safetensors, and five
minutes on one thread. The seed is fixed; another version of PyTorch may give other weights.
"""
import json
import math
import os
import sys
import time

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

VOCAB, LENGTH, WIDTH, HEADS, LAYERS, MLP = 64, 96, 64, 4, 2, 64
BATCH, STEPS, PEAK, WARM_UP = 48, 3000, 3e-3, 200


def parameters(generator):
    """GPT-2's names and initial values."""
    def normal(*shape, scale=1.0):
        return torch.randn(*shape, generator=generator) * 0.02 * scale

    # Positions begin as waves (Vaswani et al., 2017), with which attention to the position before is soon learnt.
    waves = torch.arange(LENGTH)[:, None] * 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
    p = {"lm_head.weight": normal(VOCAB, WIDTH), "wte.weight": normal(VOCAB, WIDTH),
         "wpe.weight": 0.1 * torch.cat([waves.sin(), waves.cos()], 1)}
    for layer in range(LAYERS):
        h = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            p[h + norm + ".weight"], p[h + norm + ".bias"] = torch.ones(WIDTH), torch.zeros(WIDTH)
        for name, rows, columns, scale in (("attn.c_attn", WIDTH, 3 * WIDTH, 1),
                                           ("attn.c_proj", WIDTH, WIDTH, (2 * LAYERS) ** -0.5),
                                           ("mlp.c_fc", WIDTH, MLP, 1),
                                           ("mlp.c_proj", MLP, WIDTH, (2 * LAYERS) ** -0.5)):
            p[h + name + ".weight"] = normal(rows, columns, scale=scale)
            p[h + name + ".bias"] = torch.zeros(columns)
    p["ln_f.weight"], p["ln_f.bias"] = torch.ones(WIDTH), torch.zeros(WIDTH)
    return {name: value.requires_grad_() for name, value in p.items()}


def forward(p, ids):
    """Logits [b, n, vocab], and the attention weights [b, heads, n, n] of every layer."""
    b, n = ids.shape
    x = p["wte.weight"][ids] + p["wpe.weight"][:n]
    hidden = torch.full((n, n), -math.inf).triu(1)
    weights = []
    for layer in range(LAYERS):
        h = f"h.{layer}."
        y = F.layer_norm(x, (WIDTH,), p[h + "ln_1.weight"], p[h + "ln_1.bias"])
        y = y @ p[h + "attn.c_attn.weight"] + p[h + "attn.c_attn.bias"]
        q, k, v = (t.view(b, n, HEADS, -1).transpose(1, 2) for t in y.split(WIDTH, -1))
        w = (q @ k.transpose(2, 3) * (WIDTH // HEADS) ** -0.5 + hidden).softmax(-1)
        weights.append(w)
        z = (w @ v).transpose(1, 2).reshape(b, n, WIDTH)
        x = x + z @ p[h + "attn.c_proj.weight"] + p[h + "attn.c_proj.bias"]
        y = F.layer_norm(x, (WIDTH,), p[h + "ln_2.weight"], p[h + "ln_2.bias"])
        y = F.gelu(y @ p[h + "mlp.c_fc.weight"] + p[h + "mlp.c_fc.bias"], approximate="tanh")
        x = x + y @ p[h + "mlp.c_proj.weight"] + p[h + "mlp.c_proj.bias"]
    x = F.layer_norm(x, (WIDTH,), p["ln_f.weight"], p["ln_f.bias"])
    return x @ p["lm_head.weight"].T, weights


def batch(generator, size, length, distinct=False):
    """Ids [size, length] of texts that repeat, each with its own period, and where the next id is known."""
    period = torch.randint(4, length // 2, (size, 1), generator=generator)
    texts = torch.rand(size, VOCAB - 1, generator=generator).argsort(1) + 1  # no character twice
    if not distinct:  # in a quarter of the texts, characters may come twice
        free = torch.randint(1, VOCAB, (size, VOCAB - 1), generator=generator)
        texts = torch.where(torch.rand(size, 1, generator=generator) < 0.25, free, texts)
    positions = torch.arange(length - 1)[None]
    ids = torch.cat([torch.zeros(size, 1, dtype=torch.int64), texts.gather(1, positions % period)], 1)
    return ids, positions > period  # the character after position i + 1 has come before, and its predecessor


def loss_and_accuracy(p, ids, known):
    logits, _ = forward(p, ids[:, :-1])
    target = ids[:, 1:]
    loss = F.cross_entropy(logits[known], target[known])
    return loss, (logits.argmax(-1) == target)[known].float().mean()


def train():
    torch.manual_seed(24)
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(24)
    p = parameters(generator)
    decayed = [value for value in p.values() if value.ndim == 2]
    others = [value for value in p.values() if value.ndim == 1]
    optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0}],
                                  lr=PEAK, betas=(0.9, 0.98))
    began = time.time()
    for step in range(STEPS):
        progress = step / STEPS
        for group in optimiser.param_groups:
            group["lr"] = PEAK * min((step + 1) / WARM_UP, 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))
        length = 32 if progress < 0.3 else 64 if progress < 0.6 else LENGTH  # short texts first: learnt sooner
        loss, accuracy = loss_and_accuracy(p, *batch(generator, BATCH, length))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(p.values(), 1.0)
        optimiser.step()
        if step % 250 == 0 or step == STEPS - 1:
            print(f"step {step}: loss {loss.item():.4f}, accuracy {accuracy.item():.3f}, {time.time() - began:.0f} s",
                  flush=True)
    return {name: value.detach() for name, value in p.items()}


def report(p):
    """Copying, and the scores of the heads, on texts of one period."""
    generator = torch.Generator().manual_seed(1)
    ids, known = batch(generator, 256, LENGTH, distinct=True)
    loss, accuracy = loss_and_accuracy(p, ids, known)
    print(f"repeated text: loss {loss.item():.4f}, accuracy {accuracy.item():.4f}")
    period = 40
    texts = torch.rand(64, VOCAB - 1, generator=generator).argsort(1)[:, :period] + 1
    ids = torch.cat([torch.zeros(64, 1, dtype=torch.int64), texts, texts], 1)
    for layer, weights in enumerate(forward(p, ids)[1]):
        previous = weights.diagonal(-1, 2, 3).mean((0, 2))
        induction = weights.diagonal(1 - period, 2, 3).mean((0, 2))
        print(f"layer {layer + 1}: previous token", [round(x, 3) for x in previous.tolist()], "induction",
              [round(x, 3) for x in induction.tolist()])


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "scripts/examples/induction"
    p = train()
    p = {name: value.half() for name, value in p.items()}  # as stored
    report({name: value.float() for name, value in p.items()})
    os.makedirs(folder, exist_ok=True)
    save_file({name: value.contiguous() for name, value in p.items()}, os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": VOCAB, "n_embd": WIDTH,
                   "n_head": HEADS, "n_layer": LAYERS, "n_inner": MLP, "n_positions": LENGTH,
                   "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
                   "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}, file, indent=2)
        file.write("\n")


main()
