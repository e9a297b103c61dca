"""Compares the speed of heed.tokenizers with Hugging Face's tokenizers, one thread each.

    python scripts/bench/bench_tokenizers.py HEED PATH...     (pip install tokenizers; gguf for a .gguf)

PATH: tokenizer.json, a folder or SmolLM2's GGUF file; `compare_tokenizers.py --keep FOLDER` leaves some. Prints a table
of processor times in ms: 20,000 mixed lines, and source in texts of twenty lines, encoded one by one by heed from Lua
and by `encode`, and all at once by `encode_batch`.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(TOKENIZERS_PARALLELISM="false", RAYON_NUM_THREADS="1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "dev"))

import compare_tokenizers  # noqa: E402
import tokenizer_lines  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

ROUNDS = 3


def best_time(run):
    times = []
    for _ in range(ROUNDS):
        start = time.process_time()
        run()
        times.append((time.process_time() - start) * 1000)
    return min(times)


def heed_time(heed, path, texts, folder):
    file = Path(folder) / "texts"
    file.write_text("".join(text.encode().hex() + "\n" for text in texts))
    script = Path(__file__).with_name("tokenizers.lua")
    done = subprocess.run([heed, str(script), str(path), str(file), str(ROUNDS)], capture_output=True, text=True,
                          check=True)
    loading, encoding, count = done.stdout.split()
    return float(loading), float(encoding), int(count)


def main():
    heed, *paths = sys.argv[1:]
    source = tokenizer_lines.source_lines()
    sets = [tokenizer_lines.make(), ["\n".join(source[i:i + 20]) for i in range(0, 20000, 20)]]
    for name in paths:
        path, row, loading = Path(name), [], 0
        if path.suffix == ".gguf":
            tokenizer = compare_tokenizers.twin(path)
        else:
            tokenizer = Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        for texts in sets:
            with tempfile.TemporaryDirectory() as folder:
                loading, ours, count = heed_time(heed, path, texts, folder)
            expected = sum(len(tokenizer.encode(text).ids) for text in texts)
            if expected != count:
                raise SystemExit(f"{name}: {count} ids instead of {expected}")
            row += [ours, best_time(lambda: [tokenizer.encode(text) for text in texts]),  # pylint: disable=W0640
                    best_time(lambda: tokenizer.encode_batch(texts))]  # pylint: disable=W0640
        print(f"| {path.stem} | " + " | ".join(f"{ms:.0f}" for ms in row) + f" | loaded in {loading:.1f} ms", flush=True)


if __name__ == "__main__":
    main()
