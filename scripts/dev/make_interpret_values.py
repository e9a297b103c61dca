"""Makes the reference values of heed.interpret with PyTorch, in double precision.

    python scripts/dev/make_interpret_values.py [FOLDER]     (pip install torch transformers safetensors)

The models are those of decoders.lua and all-MiniLM-L6-v2. Nothing of heed is used: activations come from hooks on the
modules of transformers. Ids in the file count from 0; layers, heads and positions by their order.
"""

import math
import sys

import torch
from safetensors.torch import load_file
from transformers import BertModel, BertTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

import golden

MODEL = golden.TOP / "build/models/all-MiniLM-L6-v2"
TEXT = "The cat sat because it was tired"


# ---- Attention weights ----


def agreement(p):
    """1 - JS / log 2 by the definition with Kullback-Leibler divergences; p [layers, h, l, s]."""
    a, b = p.unsqueeze(2), p.unsqueeze(1)
    m = (a + b) / 2
    divergence = (torch.special.xlogy(a, a / m.clamp_min(1e-300)) + torch.special.xlogy(b, b / m.clamp_min(1e-300))) / 2
    return (1 - divergence.sum(-1) / math.log(2)).mean(-1)


def rollout(p):
    rolled = torch.eye(p.shape[-1], dtype=p.dtype)
    for layer in p:
        rolled = (0.5 * layer.mean(0) + 0.5 * torch.eye(p.shape[-1], dtype=p.dtype)) @ rolled
    return rolled


def weights_case(p):
    """Analyses of weights [layers, h, n, n]."""
    n = p.shape[-1]
    distances = torch.tensor([[abs(i - j) for j in range(n)] for i in range(n)], dtype=p.dtype)
    flat = torch.nn.functional.normalize(p.flatten(2), dim=-1)
    return {"entropy": torch.special.entr(p).sum(-1), "distance": (p * distances).sum(-1), "sink_share": p[..., 0],
            "two_share": p[..., :2].sum(-1), "agreement": agreement(p), "cosine": flat @ flat.mT, "rollout": rollout(p),
            "previous": torch.stack([p[..., i, i - 1] for i in range(1, n)]).mean(0)}


def induction(p, ids):
    """The mean over queries of the weight on keys that follow earlier occurrences of the query's token."""
    rows = []
    for i, token in enumerate(ids):
        keys = [j + 1 for j in range(i) if ids[j] == token]
        if keys:
            rows.append(p[..., i, keys].sum(-1))
    return torch.stack(rows).mean(0)


# ---- Decoders ----


class Decoder:
    def __init__(self, case):
        c = case["config"]
        self.is_gpt2 = case["name"] == "gpt2"
        if self.is_gpt2:
            self.model = GPT2LMHeadModel(GPT2Config(**c, attn_implementation="eager"))
        else:
            self.model = LlamaForCausalLM(LlamaConfig(**c, attn_implementation="eager"))
        missing, unknown = self.model.load_state_dict(load_file(golden.GOLDEN / case["file"]), strict=False)
        assert not unknown and set(missing) <= {"lm_head.weight"}, (missing, unknown)
        if missing:
            self.model.tie_weights()
        self.model.double().eval()
        body = self.model.transformer if self.is_gpt2 else self.model.model
        self.layers, self.norm = (body.h, body.ln_f) if self.is_gpt2 else (body.layers, body.norm)
        self.attentions = [layer.attn if self.is_gpt2 else layer.self_attn for layer in self.layers]
        self.projections = [each.c_proj if self.is_gpt2 else each.o_proj for each in self.attentions]
        self.heads = self.model.config.num_attention_heads
        self.eps = c.get("layer_norm_epsilon", c.get("rms_norm_eps"))

    def run(self, ids, patch=None):
        """Logits [n, v], weights [layers, h, n, n] and what hooks see. patch: a function of (kind, layer, x)."""
        seen, handles = {}, []

        def before(kind, layer):
            def hook(_, args, kwargs):
                x = args[0] if args else kwargs["hidden_states"]
                seen[kind, layer] = x.detach().clone()
                if patch is None:
                    return None
                x = patch(kind, layer, x)
                return ((x,) + args[1:], kwargs) if args else (args, {**kwargs, "hidden_states": x})
            return hook

        def after(kind, layer):
            def hook(_, args, result):
                seen[kind, layer] = (result[0] if isinstance(result, tuple) else result).detach().clone()
            return hook

        for i, layer in enumerate(self.layers):
            handles += [layer.register_forward_pre_hook(before("pre", i), with_kwargs=True),
                        self.projections[i].register_forward_pre_hook(before("z", i), with_kwargs=True),
                        layer.register_forward_hook(after("post", i)),
                        self.attentions[i].register_forward_hook(after("attention", i)),
                        layer.mlp.register_forward_hook(after("mlp", i))]
        with torch.no_grad():
            out = self.model(torch.tensor([ids]), output_attentions=True)
        for handle in handles:
            handle.remove()
        return out.logits[0], torch.stack([each[0] for each in out.attentions]), seen

    def lens(self, seen):
        states = [seen["pre", 0]] + [seen["post", i] for i in range(len(self.layers))]
        with torch.no_grad():
            return torch.stack([self.model.lm_head(self.norm(x))[0] for x in states])

    def attribution(self, seen, token, against, heads):
        """The parts at the last position. The scale of the norm is a constant."""
        count = len(self.layers)
        parts = [seen["pre", 0][0, -1]]
        for i in range(count):
            written = seen["attention", i][0, -1]
            if heads:
                weight = self.projections[i].weight if not self.is_gpt2 else self.projections[i].weight.mT
                z, d = seen["z", i][0, -1], weight.shape[1] // self.heads
                each = [weight[:, h * d:(h + 1) * d] @ z[h * d:(h + 1) * d] for h in range(self.heads)]
                parts += each + [written - torch.stack(each).sum(0)]
            else:
                parts.append(written)
            parts.append(seen["mlp", i][0, -1])
        x = seen["post", count - 1][0, -1]
        u = self.model.lm_head.weight[token] - (self.model.lm_head.weight[against] if against is not None else 0)
        values = []
        for part in parts:
            if self.is_gpt2:
                part = (part - part.mean()) / (x.var(correction=0) + self.eps).sqrt()
            else:
                part = part / (x.pow(2).mean() + self.eps).sqrt()
            values.append(part * self.norm.weight @ u)
        values.append(self.norm.bias @ u if self.is_gpt2 else torch.zeros((), dtype=u.dtype))
        return torch.stack(values).detach()

    def patching(self, clean, corrupted, metric, kind):
        """[layers, positions] for "pre", [layers, heads] for "z"."""
        _, _, seen = self.run(clean)
        rows = []
        for layer in range(len(self.layers)):
            row = []
            for at in range(len(clean) if kind == "pre" else self.heads):
                def patch(this, i, x, at=at, layer=layer):
                    if (this, i) != (kind, layer):
                        return x
                    x, size = x.clone(), x.shape[-1] // self.heads
                    part = (slice(None), at) if kind == "pre" else (..., slice(at * size, (at + 1) * size))
                    x[part] = seen[kind, layer][part]
                    return x
                row.append(metric(self.run(corrupted, patch)[0]).item())
            rows.append(row)
        return rows


    def gradients(self, ids, metric):
        """The activations (kind, layer) of a run and the metric's gradients with respect to them."""
        seen, handles = {}, []

        def before(kind, layer):
            def hook(_, args, kwargs):
                x = args[0] if args else kwargs["hidden_states"]
                seen[kind, layer] = x
                x.retain_grad()
            return hook

        for i, layer in enumerate(self.layers):
            handles += [layer.register_forward_pre_hook(before("pre", i), with_kwargs=True),
                        self.projections[i].register_forward_pre_hook(before("z", i), with_kwargs=True)]
        metric(self.model(torch.tensor([ids])).logits[0]).backward()
        for handle in handles:
            handle.remove()
        return {key: x.detach() for key, x in seen.items()}, {key: x.grad for key, x in seen.items()}

    def attributions(self, clean, corrupted, metric):
        """Activation patching to first order: [layers, positions] for "pre", [layers, heads] for "z"."""
        _, _, seen = self.run(clean)
        start = metric(self.run(corrupted)[0]).item()
        at, slope = self.gradients(corrupted, metric)
        effect = {key: (seen[key] - at[key]) * slope[key] for key in at}
        layers = range(len(self.layers))
        return (torch.stack([start + effect["pre", i][0].sum(-1) for i in layers]),
                torch.stack([start + effect["z", i][0].unflatten(-1, (self.heads, -1)).sum((0, 2)) for i in layers]))

    def integrated_gradients(self, ids, metric, steps, other):
        """Of the token embeddings, from zeros, or from those of other ids."""
        embedding = self.model.get_input_embeddings()
        x = embedding(torch.tensor([ids])).detach()
        start = torch.zeros_like(x) if other is None else embedding(torch.tensor([other])).detach()
        total, at = torch.zeros_like(x), None
        handle = embedding.register_forward_hook(lambda *_: at)
        for step in range(steps):
            at = (start + (x - start) * ((step + 0.5) / steps)).requires_grad_()
            total += torch.autograd.grad(metric(self.model(torch.tensor([ids])).logits[0]), at)[0]
        handle.remove()
        return ((x - start) * total / steps).sum(-1)[0]


def decoder_case(case):
    decoder = Decoder(case)
    ids = case["prompt"][:6] * 2
    logits, weights, seen = decoder.run(ids)
    token, against = int(logits[-1].argmax()), ids[0]
    clean, corrupted = case["prompt"][:7], [case["prompt"][7]] + case["prompt"][1:7]

    def metric(y):
        return y[-1, token] - y[-1, against]

    lens = decoder.lens(seen)[:, -1]
    attributed, attributed_heads = decoder.attributions(clean, corrupted, metric)
    return {"name": case["name"], "file": case["file"], "config": case["config"], "ids": ids, "period": 6,
            **weights_case(weights), "induction": induction(weights, ids), "lens": lens.log_softmax(-1)[:, :40],
            "best": lens.argmax(-1), "token": token, "against": against, "logit": logits[-1, token].item(),
            "attribution": decoder.attribution(seen, token, None, False),
            "attribution_heads": decoder.attribution(seen, token, against, True),
            "clean": clean, "corrupted": corrupted, "metrics": [metric(decoder.run(x)[0]).item() for x in (clean, corrupted)],
            "patched": decoder.patching(clean, corrupted, metric, "pre"),
            "patched_heads": decoder.patching(clean, corrupted, metric, "z"),
            "attributed": attributed, "attributed_heads": attributed_heads,
            "integrated": decoder.integrated_gradients(clean, metric, 8, None),
            "integrated_other": decoder.integrated_gradients(clean, metric, 8, corrupted)}


def minilm_case():
    tokenizer = BertTokenizer.from_pretrained(MODEL)
    model = BertModel.from_pretrained(MODEL, attn_implementation="eager").double().eval()
    batch = tokenizer([TEXT], return_tensors="pt")
    with torch.no_grad():
        out = model(**batch, output_attentions=True)
    values = weights_case(torch.stack([each[0] for each in out.attentions]))
    values["agreement"], values["cosine"] = values["agreement"][-1:], values["cosine"][-1:]
    return {"name": "minilm", "text": TEXT, "ids": batch["input_ids"][0].tolist(), **values}


def main():
    folder = golden.folder()
    if not MODEL.exists():
        sys.exit(f"Missing: {MODEL.relative_to(golden.TOP)} (make model), for interpret.lua")
    cases = [decoder_case(case) for case in golden.load(golden.GOLDEN / "decoders.lua")] + [minilm_case()]
    golden.write(folder / "interpret.lua", "Analyses of attention weights [layers, h, n, n] and of models. Ids count "
                 "from 0. Made by scripts/dev/make_interpret_values.py.", cases, digits=7, functions=True)


if __name__ == "__main__":
    main()
