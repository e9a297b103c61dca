#!/usr/bin/env python3
"""Makes the gradients of whole models with PyTorch, in double precision: python scripts/dev/make_model_gradient_values.py

(pip install torch transformers safetensors.) For every parameter of the small models in tests/golden, by its name in the
file, the norm of the gradient, its sum with the weights cos(1), cos(2), … and the largest element. Ids count from 0.
"""

import torch
from transformers import AutoModelForCausalLM, BertModel

import golden
from make_interpret_values import Decoder

IDS = [5, 17, 9, 30, 2, 17, 40, 9]


def summary(parameters):
    rows = []
    for name, parameter in parameters:
        g = parameter.grad.flatten()
        weights = torch.cos(torch.arange(1, g.numel() + 1, dtype=torch.float64))
        rows.append({"name": name, "norm": g.norm().item(), "sum": (g * weights).sum().item(),
                     "most": g.abs().max().item()})
    return rows


def decoder_case(name, model):
    model.double().eval()
    logits = model(torch.tensor([IDS])).logits[0]
    loss = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(IDS[1:]))
    loss.backward()
    return {"name": name, "ids": IDS, "loss": loss.item(), "gradients": summary(model.named_parameters())}


def bert_case(folder):
    """The loss is the sum of the hidden states' squares, weighted along each."""
    model = BertModel.from_pretrained(folder, attn_implementation="eager", add_pooling_layer=False).double().eval()
    hidden = model(torch.tensor([IDS])).last_hidden_state
    loss = (hidden ** 2 * torch.cos(torch.arange(1, hidden.shape[-1] + 1, dtype=torch.float64))).sum()
    loss.backward()
    return {"name": "bert", "ids": IDS, "loss": loss.item(), "gradients": summary(model.named_parameters())}


def main():
    cases = []
    for case in golden.load(golden.GOLDEN / "decoders.lua"):
        cases.append(decoder_case(case["name"], Decoder(case).model))
    for case in golden.load(golden.GOLDEN / "decoder_variants.lua"):
        folder = golden.GOLDEN / "decoders" / case["name"]
        model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager")
        cases.append(decoder_case("decoders/" + case["name"], model))
    cases.append(bert_case(golden.GOLDEN / "tiny_bert"))
    golden.write(golden.folder() / "model_gradients.lua", "Gradients of small models. Made by "
                 "scripts/dev/make_model_gradient_values.py.", cases, digits=8)


if __name__ == "__main__":
    main()
