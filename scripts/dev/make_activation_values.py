"""Makes the reference values of the points of models: activations under TransformerLens' names, computed with PyTorch
in the steps of its HookedTransformer and HookedEncoder.

    python scripts/dev/make_activation_values.py [FOLDER]     (pip install torch safetensors)

activations.lua  for each of three small models in tests/golden, activations by name. Ids count from 0.
"""

import torch
import torch.nn.functional as F
from safetensors.torch import load_file

import golden

IDS = [3, 1, 4, 1, 5]
N = len(IDS)


class Model:
    """Weights in double precision, and what was computed of them so far, by name."""

    def __init__(self, name):
        self.weights = {key: value.double() for key, value in load_file(golden.GOLDEN / name / "model.safetensors").items()}
        self.seen = {}

    def see(self, name, x):
        self.seen[name] = x.float()
        return x

    def linear(self, name, x, transposed=False):
        weight = self.weights[name + ".weight"]
        y = x @ (weight if transposed else weight.T)
        return y + self.weights.get(name + ".bias", 0)

    def layer_norm(self, point, name, x, eps):
        x = x - x.mean(-1, keepdim=True)
        scale = self.see(point + ".hook_scale", (x.pow(2).mean(-1, keepdim=True) + eps).sqrt())
        y = x / scale * self.weights[name + ".weight"] + self.weights[name + ".bias"]
        return self.see(point + ".hook_normalized", y)

    def rms_norm(self, point, name, x, eps):
        scale = self.see(point + ".hook_scale", (x.pow(2).mean(-1, keepdim=True) + eps).sqrt())
        return self.see(point + ".hook_normalized", x / scale) * self.weights[name + ".weight"]

    def attention(self, at, q, k, v, causal, rotate=None):
        """z [n, h, d] of q [n, h, d], k and v [n, hkv, d]."""
        q, k, v = self.see(at + ".hook_q", q), self.see(at + ".hook_k", k), self.see(at + ".hook_v", v)
        if rotate:
            q, k = self.see(at + ".hook_rot_q", rotate(q)), self.see(at + ".hook_rot_k", rotate(k))
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / q.shape[-1] ** 0.5
        if causal:
            scores = scores.masked_fill(torch.ones(N, N).triu(1).bool(), -torch.inf)
        pattern = self.see(at + ".hook_pattern", self.see(at + ".hook_attn_scores", scores).softmax(-1))
        return self.see(at + ".hook_z", torch.einsum("hqk,khd->qhd", pattern, v))


def gpt2():
    m, heads, eps = Model("decoders/gpt2"), 3, 1e-5
    x = m.see("hook_embed", m.weights["transformer.wte.weight"][IDS])
    x = x + m.see("hook_pos_embed", m.weights["transformer.wpe.weight"][:N])
    for i in range(2):
        at, name = f"blocks.{i}", f"transformer.h.{i}"
        m.see(at + ".hook_resid_pre", x)
        y = m.linear(name + ".attn.c_attn", m.layer_norm(at + ".ln1", name + ".ln_1", x, eps), True)
        q, k, v = (each.view(N, heads, -1) for each in y.chunk(3, -1))
        z = m.attention(at + ".attn", q, k, v, True)
        x = x + m.see(at + ".hook_attn_out", m.linear(name + ".attn.c_proj", z.flatten(1), True))
        y = m.layer_norm(at + ".ln2", name + ".ln_2", m.see(at + ".hook_resid_mid", x), eps)
        y = m.see(at + ".mlp.hook_pre", m.linear(name + ".mlp.c_fc", y, True))
        y = m.see(at + ".mlp.hook_post", F.gelu(y, approximate="tanh"))
        x = x + m.see(at + ".hook_mlp_out", m.linear(name + ".mlp.c_proj", y, True))
        m.see(at + ".hook_resid_post", x)
    m.layer_norm("ln_final", "transformer.ln_f", x, eps)
    return m.seen


def rotated(x):
    """Rotary embedding of x [n, h, d], in halves."""
    half = x.shape[-1] // 2
    angle = torch.outer(torch.arange(N).double(), 10000.0 ** (-torch.arange(half).double() / half))
    cos, sin = angle.cos().unsqueeze(1), angle.sin().unsqueeze(1)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def llama():
    m, eps = Model("decoders/llama"), 1e-6
    x = m.see("hook_embed", m.weights["model.embed_tokens.weight"][IDS])
    for i in range(2):
        at, name = f"blocks.{i}", f"model.layers.{i}"
        m.see(at + ".hook_resid_pre", x)
        y = m.rms_norm(at + ".ln1", name + ".input_layernorm", x, eps)
        q, k, v = (m.linear(f"{name}.self_attn.{each}_proj", y).view(N, -1, 8) for each in "qkv")
        z = m.attention(at + ".attn", q, k, v, True, rotated)
        x = x + m.see(at + ".hook_attn_out", m.linear(name + ".self_attn.o_proj", z.flatten(1)))
        y = m.rms_norm(at + ".ln2", name + ".post_attention_layernorm", m.see(at + ".hook_resid_mid", x), eps)
        gate = m.see(at + ".mlp.hook_pre", m.linear(name + ".mlp.gate_proj", y))
        up = m.see(at + ".mlp.hook_pre_linear", m.linear(name + ".mlp.up_proj", y))
        y = m.see(at + ".mlp.hook_post", F.silu(gate) * up)
        x = x + m.see(at + ".hook_mlp_out", m.linear(name + ".mlp.down_proj", y))
        m.see(at + ".hook_resid_post", x)
    m.rms_norm("ln_final", "model.norm", x, eps)
    return m.seen


def bert():
    m, heads, eps = Model("tiny_bert"), 3, 1e-6
    x = m.see("embed.hook_embed", m.weights["embeddings.word_embeddings.weight"][IDS])
    x = x + m.see("embed.hook_pos_embed", m.weights["embeddings.position_embeddings.weight"][:N])
    x = x + m.see("embed.hook_token_type_embed", m.weights["embeddings.token_type_embeddings.weight"][[0] * N])
    x = m.see("hook_full_embed", m.layer_norm("embed.ln", "embeddings.LayerNorm", x, eps))
    for i in range(2):
        at, name = f"blocks.{i}", f"encoder.layer.{i}"
        m.see(at + ".hook_resid_pre", x)
        q, k, v = (m.linear(f"{name}.attention.self.{each}", x).view(N, heads, -1) for each in ("query", "key", "value"))
        z = m.attention(at + ".attn", q, k, v, False)
        x = x + m.see(at + ".hook_attn_out", m.linear(name + ".attention.output.dense", z.flatten(1)))
        x = m.layer_norm(at + ".ln1", name + ".attention.output.LayerNorm", m.see(at + ".hook_resid_mid", x), eps)
        y = m.see(at + ".mlp.hook_pre", m.linear(name + ".intermediate.dense", x))
        y = m.see(at + ".mlp.hook_post", F.gelu(y, approximate="tanh"))
        x = m.see(at + ".hook_resid_post", x + m.see(at + ".hook_mlp_out", m.linear(name + ".output.dense", y)))
        x = m.see(at + ".hook_normalized_resid_post", m.layer_norm(at + ".ln2", name + ".output.LayerNorm", x, eps))
    return m.seen


def main():
    cases = []
    for name, make in (("gpt2", gpt2), ("llama", llama), ("bert", bert)):
        seen = [{"name": point, "x": x} for point, x in make().items()]
        cases.append({"name": name, "ids": IDS, "activations": seen})
    golden.write(golden.folder() / "activations.lua", "Activations of small models under TransformerLens' names. "
                 "Made by scripts/dev/make_activation_values.py.", cases, digits=7)


if __name__ == "__main__":
    main()
