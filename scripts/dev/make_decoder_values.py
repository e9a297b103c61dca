"""Makes the reference values of the decoders in heed.models with transformers.

    python scripts/dev/make_decoder_values.py [FOLDER]     (pip install torch transformers safetensors)

decoders/             small models with random weights
decoder_variants.lua  their logits, and tokens generated greedily
decoders.lua          the same of tiny_gpt2.safetensors and tiny_llama.safetensors, for the prompts stored in the set
Ids in the Lua files count from 0, as they do there.
"""

import json
import shutil

import torch
from safetensors.torch import load_file
from transformers import (Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel, LlamaConfig,
                          LlamaForCausalLM, MistralConfig, MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Phi3Config,
                          Phi3ForCausalLM, Qwen2Config, Qwen2ForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM, SmolLM3Config, SmolLM3ForCausalLM)

import golden

NEW = 24  # generated tokens
SHORT = 9  # tokens of the longest text for which longrope has its short factors

GPT2 = dict(vocab_size=53, n_positions=64, n_embd=24, n_layer=2, n_head=3)
LLAMA = dict(vocab_size=61, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)


def rope(kind, **more):
    return dict(rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **more})


LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
GEMMA = {**LLAMA, "head_dim": 8, "sliding_window": 5, "pad_token_id": 0}
VARIANTS = [
    ("gpt2", GPT2LMHeadModel, GPT2Config(**GPT2)),
    ("gpt2_untied", GPT2LMHeadModel, GPT2Config(**{**GPT2, "n_inner": 31}, activation_function="relu",
                                                tie_word_embeddings=False, layer_norm_epsilon=1e-3)),
    ("gpt2_scales", GPT2LMHeadModel, GPT2Config(**GPT2, scale_attn_by_inverse_layer_idx=True)),
    ("gpt2_unscaled", GPT2LMHeadModel, GPT2Config(**GPT2, scale_attn_weights=False)),
    ("llama", LlamaForCausalLM, LlamaConfig(**LLAMA)),
    ("llama_tied", LlamaForCausalLM, LlamaConfig(**{**LLAMA, "num_key_value_heads": 1}, tie_word_embeddings=True)),
    ("llama_biases", LlamaForCausalLM, LlamaConfig(**{**LLAMA, "num_key_value_heads": 4}, attention_bias=True,
                                                   mlp_bias=True, head_dim=12, hidden_act="gelu")),
    ("llama_linear", LlamaForCausalLM, LlamaConfig(**LLAMA, **rope("linear", factor=4.0))),
    ("llama_dynamic", LlamaForCausalLM, LlamaConfig(**LLAMA, **rope("dynamic", factor=2.0))),
    ("llama_yarn", LlamaForCausalLM, LlamaConfig(**LLAMA, **rope("yarn", factor=4.0,
                                                                 original_max_position_embeddings=16))),
    ("llama_yarn_scales", LlamaForCausalLM, LlamaConfig(**LLAMA, **rope(
        "yarn", factor=4.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=2.0, mscale=0.7,
        mscale_all_dim=0.3))),
    ("llama3", LlamaForCausalLM, LlamaConfig(**LLAMA, **rope("llama3", **LLAMA3))),
    ("mistral", MistralForCausalLM, MistralConfig(**LLAMA, sliding_window=5)),
    ("qwen2", Qwen2ForCausalLM, Qwen2Config(**LLAMA)),
    ("qwen2_window", Qwen2ForCausalLM, Qwen2Config(**LLAMA, use_sliding_window=True, sliding_window=4,
                                                   max_window_layers=1, tie_word_embeddings=True)),
    ("qwen3", Qwen3ForCausalLM, Qwen3Config(**LLAMA, head_dim=12)),
    ("qwen3_biases", Qwen3ForCausalLM, Qwen3Config(**LLAMA, head_dim=8, attention_bias=True, rms_norm_eps=1e-2)),
    ("gemma3", Gemma3ForCausalLM, Gemma3TextConfig(**GEMMA, layer_types=["sliding_attention", "full_attention"])),
    ("gemma3_scaled", Gemma3ForCausalLM, Gemma3TextConfig(**{**GEMMA, "num_hidden_layers": 3},
        sliding_window_pattern=3, query_pre_attn_scalar=20, final_logit_softcapping=3.0, attention_bias=True,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})),
    ("phi3", Phi3ForCausalLM, Phi3Config(**LLAMA, pad_token_id=0)),
    ("phi3_partial", Phi3ForCausalLM, Phi3Config(**LLAMA, pad_token_id=0, sliding_window=6, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})),
    ("smollm3", SmolLM3ForCausalLM, SmolLM3Config(**LLAMA, pad_token_id=0, no_rope_layer_interval=2)),
    ("smollm3_window", SmolLM3ForCausalLM, SmolLM3Config(**LLAMA, pad_token_id=0, no_rope_layers=[0, 1],
        use_sliding_window=True, sliding_window=4, tie_word_embeddings=False)),
    ("phi3_longrope", Phi3ForCausalLM, Phi3Config(**LLAMA, pad_token_id=0, original_max_position_embeddings=SHORT,
        rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.5, 2.25],
                         "long_factor": [1.0, 2.5, 7.75, 31.0]})),
    ("mixtral", MixtralForCausalLM, MixtralConfig(**LLAMA, num_local_experts=4, num_experts_per_tok=2)),
    ("qwen3_moe", Qwen3MoeForCausalLM, Qwen3MoeConfig(**LLAMA, num_experts=5, num_experts_per_tok=3,
                                                      moe_intermediate_size=12)),
    ("qwen3_moe_normalized", Qwen3MoeForCausalLM, Qwen3MoeConfig(**LLAMA, num_experts=3, num_experts_per_tok=1,
                                                                 moe_intermediate_size=12, norm_topk_prob=True)),
]


def old_style(path):
    """The config as transformers before version 5 wrote it."""
    config = json.loads(path.read_text())
    parameters = config.pop("rope_parameters")
    config["rope_theta"] = parameters.pop("rope_theta")
    parameters["type"] = parameters.pop("rope_type")
    config["rope_scaling"] = parameters if parameters["type"] != "default" else None
    path.write_text(json.dumps(config, indent=2) + "\n")


def greedy(model, ids, count):
    """The `count` tokens that follow ids [1, n]."""
    text = ids
    for _ in range(count):
        text = torch.cat([text, model(text).logits[:, -1:].argmax(-1)], 1)
    return text[0, ids.shape[1]:].tolist()


def variant(folder, seed, name, model_class, config):
    config._attn_implementation = "eager"
    config.bos_token_id = config.eos_token_id = None
    torch.manual_seed(seed)
    model = model_class(config).eval()
    with torch.no_grad():  # the usual initial weights are too small to show differences
        is_gemma = name.startswith("gemma")  # its norms add 1 to their weights
        for each, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in each and "weight" in each and not is_gemma else 0.0, 0.3)
    model.tie_weights()
    model.save_pretrained(folder / name)
    (folder / name / "generation_config.json").unlink(missing_ok=True)
    if name in ("llama_linear", "llama3", "mistral"):
        old_style(folder / name / "config.json")
    ids = torch.randint(0, config.vocab_size, (2, 13))
    with torch.no_grad():
        case = {"name": name, "ids": ids.tolist(), "greedy": greedy(model, ids[:1], NEW),
                "logits": model(ids).logits.flatten().tolist()}
        if "longrope" in name:
            case["short_logits"] = model(ids[:, :SHORT]).logits.flatten().tolist()
        return case


def tiny(case):
    """The logits of the prompt's last position, and as many tokens as are stored."""
    c = case["config"]
    if case["name"] == "gpt2":
        model = GPT2LMHeadModel(GPT2Config(**c, attn_implementation="eager"))
    else:
        model = LlamaForCausalLM(LlamaConfig(**c, attn_implementation="eager"))
    missing, unknown = model.load_state_dict(load_file(golden.GOLDEN / case["file"]), strict=False)
    assert not unknown and set(missing) <= {"lm_head.weight"}, (missing, unknown)
    model.tie_weights() if missing else None
    prompt = torch.tensor([case["prompt"]])
    with torch.no_grad():
        return {**case, "logits": model.eval()(prompt).logits[0, -1].tolist(),
                "greedy": greedy(model, prompt, len(case["greedy"]))}


def main():
    folder = golden.folder()
    shutil.rmtree(folder / "decoders", ignore_errors=True)
    variants = [variant(folder / "decoders", seed, *each) for seed, each in enumerate(VARIANTS, 1)]
    made = "Made by scripts/dev/make_decoder_values.py."
    golden.write(folder / "decoder_variants.lua", "Logits [2, 13, vocab_size] of the models in tests/golden/decoders, "
                 f"and what they generate greedily from the first ids (from 0). {made}", variants, digits=7)
    golden.write(folder / "decoders.lua", "Two small decoders with random weights, in the layout and with the names of "
                 f"Hugging Face: logits of the prompt's last position, and what they generate greedily. {made}",
                 [tiny(case) for case in golden.load(golden.GOLDEN / "decoders.lua")], digits=7)


if __name__ == "__main__":
    main()
