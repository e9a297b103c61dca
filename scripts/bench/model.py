"""Measures all-MiniLM-L6-v2 in heed and in PyTorch with transformers, including the tokenizer, with one thread each.

    build/venv/bin/python scripts/bench/model.py [--build build] [--model build/models/all-MiniLM-L6-v2] [--parts]
        [--ragged 1000]

Both alternate for some seconds, and the minimum of the processor time counts: with one thread it is the elapsed time on
an idle machine. The embeddings are compared first. "Start to first embedding" is the time of a process that loads the
model and encodes one sentence; memory (Linux only) is its largest resident set. --ragged N adds N sentences of 5 to 200
words: PyTorch gets them in padded batches of 32, sorted by length, as sentence-transformers does, and in their own
order; heed encodes them as it does, and in padded batches of 256 tokens, sorted by length."""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1")
sys.dont_write_bytecode = True

from lua_side import LuaSide

SENTENCE = "Your journey starts with one step"
WORDS = """the model reads a line of text and gives back numbers that say what it means so lines which mean
the same lie close together even if they share no word at all""".split()
SENTENCES = [SENTENCE] + [" ".join(WORDS[(3 * i + j) % len(WORDS)] for j in range(4 + (7 * i) % 25))
                          for i in range(1, 32)]
BATCH = 32


def ragged_sentences(count):
    """Of 5 to 200 words, each number of words about as often."""
    return [" ".join(WORDS[(3 * i + j * (1 + i % 5)) % len(WORDS)] for j in range(5 + (73 * i) % 196))
            for i in range(count)]


ONE_PROCESS = """
import torch
from transformers import AutoModel, AutoTokenizer
torch.set_num_threads(1)
tokenizer = AutoTokenizer.from_pretrained({model!r})
model = AutoModel.from_pretrained({model!r})
with torch.inference_mode():
    batch = tokenizer([{text!r}], return_tensors="pt")
    hidden = model(**batch).last_hidden_state.mean(1)
    print(torch.nn.functional.normalize(hidden)[0, 0].item())
print(*[line for line in open("/proc/self/status") if line.startswith("VmHWM")])
"""
ONE_SCRIPT = """
print(require("heed.models.bert").load({model!r}):encode{{ {text!r} }}[1][1])
for line in io.lines "/proc/self/status" do if line:find "VmHWM" then print(line) end end
"""


class Torch:
    def __init__(self, folder):
        import torch
        from transformers import AutoModel, AutoTokenizer, logging

        logging.disable_progress_bar()
        torch.set_num_threads(1)
        self.torch = torch
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()

    def encode(self, texts):
        """As in sentence-transformers: padded, the mean of the tokens, normalized."""
        torch = self.torch
        with torch.inference_mode():
            batch = self.tokenizer(texts, padding=True, truncation=True, max_length=256, return_tensors="pt")
            hidden = self.model(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1).float()
            mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
            return torch.nn.functional.normalize(mean)

    def encode_in_order(self, texts):
        return self.torch.cat([self.encode(texts[i:i + BATCH]) for i in range(0, len(texts), BATCH)])

    def encode_sorted(self, texts):
        """In batches of similar lengths; the order of the texts is kept."""
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        found = self.encode_in_order([texts[i] for i in order])
        return found[self.torch.tensor(order).argsort()]

    def seconds(self, encode, texts):
        start = time.process_time()
        encode(texts)
        return time.process_time() - start


class Heed(LuaSide):
    def __init__(self, build, folder):
        super().__init__(build, "model.lua", folder)
        self.count = 0
        self.use(SENTENCES)

    def use(self, texts):
        """Replaces the sentences."""
        self.send("forget")
        for text in texts:
            self.send("text " + text)
        self.count = len(texts)

    def embeddings(self):
        self.send("embeddings")
        return [[float(x) for x in self.read().split()] for _ in range(self.count)]

    def seconds(self, command):
        return float(self.ask(f"{command} 1"))


def process(command):
    """Seconds and MiB of a process, the minima of three runs."""
    best = (float("inf"), float("inf"))
    for _ in range(3):
        start = time.perf_counter()
        said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
        seconds = time.perf_counter() - start
        best = (min(best[0], seconds), min(best[1], int(said.split()[-2]) / 1024))  # "VmHWM: 123 kB"
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--model", default="build/models/all-MiniLM-L6-v2")
    parser.add_argument("--seconds", type=float, default=10, help="for each row")
    parser.add_argument("--parts", action="store_true", help="show the parts of heed's time for one sentence")
    parser.add_argument("--ragged", type=int, default=0, metavar="N", help="also N sentences of 5 to 200 words")
    arguments = parser.parse_args()
    if not (Path(arguments.model) / "model.safetensors").exists():
        print(f"model.py: {arguments.model} does not exist; `make model` downloads it")
        return
    heed, peer = Heed(arguments.build, arguments.model), Torch(arguments.model)

    def compare(texts, want):
        worst = (peer.torch.tensor(heed.embeddings()) - want).abs().max().item()
        print(f"embeddings of {len(texts)} sentences differ by at most {worst:.1e}")
        if worst > 1e-5:
            sys.exit("model.py: the embeddings differ by more than 1e-5")

    def measure(name, command, encode, texts, *others):
        """The least times in rounds in which all take turns; others: (name, column, function) for other ways."""
        runs = [lambda: heed.seconds(command), lambda: peer.seconds(encode, texts), *(run for _, _, run in others)]
        best, end = [float("inf")] * len(runs), time.monotonic() + arguments.seconds
        while time.monotonic() < end or best[-1] == float("inf"):
            best = [min(seconds, run()) for seconds, run in zip(best, runs)]
        ours, theirs, *rest = best
        print(f"{name:24} heed {1e3 * ours:9.2f} ms   PyTorch {1e3 * theirs:9.2f} ms   {theirs / ours:6.2f} times")
        for (name, column, _), seconds in zip(others, rest):
            print(f"{name:24} {column:7} {1e3 * seconds:6.0f} ms   {seconds / ours:6.2f} times")

    compare(SENTENCES, peer.encode(SENTENCES))
    measure("one sentence, 8 tokens", "one", peer.encode, [SENTENCE])
    measure("32 sentences", "many", peer.encode, SENTENCES)
    if arguments.parts:
        heed.print_parts()
    if arguments.ragged > 0:
        texts = ragged_sentences(arguments.ragged)
        heed.use(texts)
        compare(texts, peer.encode_sorted(texts))
        measure(f"{len(texts)} of 5 to 200 words", "many", peer.encode_sorted, texts,
                ("  padded batches", "heed", lambda: heed.seconds("padded")),
                ("  in their own order", "PyTorch", lambda: peer.seconds(peer.encode_in_order, texts)))
    heed.close()

    names = {"model": arguments.model, "text": SENTENCE}
    ours = process([f"{arguments.build}/heed", "-e", ONE_SCRIPT.format(**names)])
    theirs = process([sys.executable, "-c", ONE_PROCESS.format(**names)])
    print(f"{'start to first embedding':24} heed {1e3 * ours[0]:9.2f} ms   PyTorch {1e3 * theirs[0]:9.2f} ms   "
          f"{theirs[0] / ours[0]:6.2f} times")
    weights = (Path(arguments.model) / "model.safetensors").stat().st_size / 2**20
    print(f"{'memory of that process':24} heed {ours[1]:9.1f} MiB  PyTorch {theirs[1]:9.1f} MiB  "
          f"weights {weights:.1f} MiB")


main()
