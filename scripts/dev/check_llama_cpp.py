#!/usr/bin/env python3
"""Compares small decoders with llama.cpp: heed saves those in tests/golden/decoders, and some new ones, as GGUF files,
for which llama.cpp must give the same logits. Ends with "N passed, N failed".

    python scripts/dev/check_llama_cpp.py build/heed     (pip install llama-cpp-python numpy)
"""
import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import llama_cpp
import numpy as np

MODELS = Path(__file__).resolve().parents[2] / "tests/golden/decoders"
NEAR = 5e-3  # of logits, whose standard deviation is about 2: llama.cpp reads GELU from a table in float16
NEW = ["gemma3", "llama", "smollm3"]  # whose golden models have settings without a place in GGUF files

# Saves a model without a tokenizer. Prints the number of tokens of a text, whose ids are 7 i modulo vocab_size, and the
# logits of the last one. llama.cpp ignores the windows of Mistral and Phi-3: they have texts of that length.
SAVE = """
local heed = require "heed"
local configs = {
  gemma3 = { num_key_value_heads = 1, head_dim = 16, sliding_window = 4, query_pre_attn_scalar = 16,
    num_hidden_layers = 7 },
  llama = { num_hidden_layers = 2, max_position_embeddings = 16384, rope_theta = 500000, rope_scaling = {
    rope_type = "llama3", factor = 32, low_freq_factor = 1, high_freq_factor = 4,
    original_max_position_embeddings = 8192 } },
  smollm3 = { num_key_value_heads = 2, num_hidden_layers = 5 },
}
local model
if configs[arg[1]] then
  local c = configs[arg[1]]
  c.vocab_size, c.hidden_size, c.intermediate_size, c.num_attention_heads = 61, 32, 48, 4
  c.initializer_range = 0.3
  heed.manual_seed(3)
  model = require("heed.models." .. arg[1])(c):eval()
else
  model = assert(heed.models.load(arg[1]))
end
local ignored = { mistral = true, phi3 = true }
local count = ignored[model.config.model_type] and model.config.sliding_window or 20
local done, problem = model:save_pretrained(arg[2])
if not done then
  print(problem)
  os.exit(0)
end
local state, tensors = assert(heed.load(arg[2])), {}
local metadata = state.metadata
for name, value in heed.pairs(state) do tensors[name] = value:clone() end
metadata["tokenizer.ggml.model"] = "no_vocab"
assert(heed.save(arg[2], tensors, { metadata = metadata }))
local ids = {}
for i = 1, count do ids[i] = 7 * i % model.config.vocab_size + 1 end
print(count)
for _, value in ipairs(model(ids)[count]:tolist()) do print(("%.9g"):format(value)) end
"""


def logits_of(path, count, vocab_size):
    """llama.cpp's logits of the same token; None if it does not load the file."""
    settings = llama_cpp.llama_model_default_params()
    settings.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), settings)
    if not model:
        return None
    settings = llama_cpp.llama_context_default_params()
    settings.n_ctx = settings.n_batch = 64
    settings.type_k = settings.type_v = llama_cpp.GGML_TYPE_F32
    settings.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama_cpp.llama_init_from_model(model, settings)
    ids = (llama_cpp.llama_token * count)(*(7 * i % vocab_size for i in range(1, count + 1)))
    status = llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(ids, count))
    logits = llama_cpp.llama_get_logits_ith(context, -1)
    found = None if status else np.ctypeslib.as_array(logits, shape=(vocab_size,)).copy()
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return found


def main(heed):
    @llama_cpp.llama_log_callback
    def be_quiet(level, text, _):
        if level >= 4:  # an error
            print(text.decode(), end="", file=sys.stderr)

    llama_cpp.llama_log_set(be_quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "save.lua")
        script.write_text(SAVE)
        for model in [*sorted(MODELS.iterdir()), *map(Path, NEW)]:
            path = Path(folder, model.name + ".gguf")
            said = subprocess.run([heed, script, model, path], check=True, capture_output=True, text=True).stdout
            first, *lines = said.splitlines()
            if not lines:
                print(f"{model.name}: not saved: {first}")
                continue
            want = np.array([float(line) for line in lines])
            found = logits_of(path, int(first), len(want))
            off = np.inf if found is None else np.abs(found - want).max()
            print(f"{model.name}: the largest difference is {off:.1e}")
            passed, failed = passed + int(off <= NEAR), failed + int(off > NEAR)
    print(f"{passed} passed, {failed} failed")
    return failed > 0 or passed == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
