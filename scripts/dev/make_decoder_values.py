"""Makes tests/golden/decoder_variants.lua and the small models with random weights that it speaks of, in
tests/golden/decoders, with transformers: logits, and tokens generated greedily, as tests/spec/decoders_spec.lua
compares them with heed's.

    python scripts/dev/make_decoder_values.py     (needs torch, transformers and safetensors)
Ids in the Lua file count from 0, as there.
"""
import json
import pathlib
import shutil

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig, MistralForCausalLM

TOP = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = TOP / "tests" / "golden"
FOLDER = GOLDEN / "decoders"
NEW = 24  # tokens that are generated

GPT2 = dict(vocab_size=53, n_positions=64, n_embd=24, n_layer=2, n_head=3)
LLAMA = dict(vocab_size=61, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64)


def rope(kind, **more):
    return dict(rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **more})


LLAMA3 = dict(factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)
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
]


def numbers(tensor):
    return "{" + ",".join(f"{x:.7g}" for x in tensor.flatten().tolist()) + "}"


def whole(values):
    return "{" + ",".join(map(str, values)) + "}"


def old_style(path):
    """The config as transformers before version 5 wrote it."""
    config = json.loads(path.read_text())
    parameters = config.pop("rope_parameters")
    config["rope_theta"] = parameters.pop("rope_theta")
    parameters["type"] = parameters.pop("rope_type")
    config["rope_scaling"] = parameters if parameters["type"] != "default" else None
    path.write_text(json.dumps(config, indent=2) + "\n")


def case(number, name, model_class, config):
    config._attn_implementation = "eager"
    config.bos_token_id = config.eos_token_id = None
    torch.manual_seed(number)
    model = model_class(config).eval()
    with torch.no_grad():  # the usual ones are so small that nothing would show
        for each, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in each and "weight" in each else 0.0, 0.3)
    model.tie_weights()
    model.save_pretrained(FOLDER / name)
    (FOLDER / name / "generation_config.json").unlink(missing_ok=True)
    if name in ("llama_linear", "llama3", "mistral"):
        old_style(FOLDER / name / "config.json")
    ids = torch.randint(0, config.vocab_size, (2, 13))
    with torch.no_grad():
        logits = model(ids).logits
        text = ids[:1]
        for _ in range(NEW):
            text = torch.cat([text, model(text).logits[:, -1:].argmax(-1)], 1)
    return (f'  {{name="{name}",ids={{{whole(ids[0].tolist())},{whole(ids[1].tolist())}}},'
            f"greedy={whole(text[0, 13:].tolist())},\n   logits={numbers(logits)}}},\n")


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    lines = "".join(case(number, *variant) for number, variant in enumerate(VARIANTS, 1))
    about = ("Logits [2, 13, vocab_size] of the models in tests/golden/decoders, and what they generate greedily from "
             "the first ids (from 0).")
    (GOLDEN / "decoder_variants.lua").write_text(f"-- {about} Made by scripts/dev/make_decoder_values.py.\n"
                                                 f"return {{\n{lines}}}\n")


main()
