"""Compares heed.tokenizers with Hugging Face's tokenizers on mixed lines, for tokenizers with the settings of real
models that are trained here, and for the tokenizers of the folders and files that are named.

    python scripts/dev/compare_tokenizers.py HEED [--lines 20000] [--only NAME] [PATH...]     (pip install tokenizers)

Ids without and with the template, ids with special tokens, and decoded text must be equal. Ends with
"N passed, N failed", counting tokenizers. One difference is not tested: tokenizers 0.23 decodes added tokens that are
searched in normalised text in their normalised form, heed as the file has them.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import tokenizer_lines

GPT4 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
        r"\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
          r"\s+(?!\S)|\s+")
O200K = "|".join([
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"])
CLIP = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
SPECIAL = ["<|begin|>", "<|end|>"]
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def byte_level(**more):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, **more})


def after(*splits):
    return pre_tokenizers.Sequence([*splits, byte_level(use_regex=False)])


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def bpe(splits, texts, normalizer=None, size=4000, extra=(), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    tokenizer.normalizer = normalizer or tokenizer.normalizer
    tokenizer.pre_tokenizer = splits
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False, lstrip=True), AddedToken("foo bar", single_word=True),
                          AddedToken("[mask]", rstrip=True, normalized=True), *extra])
    return tokenizer


def framed(tokenizer, single, *names):
    pairs = [(name, tokenizer.token_to_id(name)) for name in names]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=pairs)
    return tokenizer


def roberta(texts):
    tokenizer = bpe(byte_level(add_prefix_space=True), texts)
    tokenizer.post_processor = processors.RobertaProcessing(("<|end|>", 1), ("<|begin|>", 0))
    return tokenizer


def bert(texts, lowercase, post=None):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=4000, special_tokens=BERT,
                                                                   show_progress=False))
    if post:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
        return tokenizer
    return framed(tokenizer, "[CLS] $A [SEP]", "[CLS]", "[SEP]")


def fallback(texts, normalizer, splits=None, decoder=None):
    """Llama 2's, Gemma's and Mistral's: SentencePiece's BPE as tokenizer.json writes it."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    if normalizer:
        tokenizer.normalizer = normalizer
    if splits:
        tokenizer.pre_tokenizer = splits
    tokenizer.decoder = decoder or decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                                      decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(vocab_size=3000, special_tokens=["<unk>", "<s>", "</s>", *BYTES], show_progress=False,
                                  limit_alphabet=400, max_token_length=16)
    tokenizer.train_from_iterator([word for text in texts for word in text.split("\n")], trainer)
    return framed(tokenizer, "<s> $A", "<s>")


def unigram(normalizer, splits):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splits
    tokenizer.decoder = decoders.Metaspace()
    names = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=3000, special_tokens=names, unk_token="<unk>", show_progress=False)
    texts = [text for text in tokenizer_lines.SENTENCES + tokenizer_lines.source_lines()[:5000] if "s>" not in text]
    tokenizer.train_from_iterator(texts, trainer)
    return framed(tokenizer, "<s> $A </s>", "<s>", "</s>")


def makers():
    llama2 = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    spaces = normalizers.Replace(" ", "▁")
    plain = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    squeeze = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    clip = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Lowercase()])
    meta = pre_tokenizers.Metaspace()
    digits = pre_tokenizers.Digits
    return {
        "gpt2": lambda t: bpe(byte_level(), t),
        "roberta": roberta,
        "smollm": lambda t: bpe(pre_tokenizers.Sequence([digits(individual_digits=True), byte_level()]), t),
        "llama3": lambda t: framed(bpe(after(split(GPT4)), t, ignore_merges=True), "<|begin|> $A", "<|begin|>"),
        "qwen2": lambda t: bpe(after(split(GPT4.replace("{1,3}", ""))), t, normalizers.NFC()),
        "gpt4": lambda t: bpe(after(split(CL100K)), t),
        "o200k": lambda t: bpe(after(split(O200K)), t),
        "clip": lambda t: bpe(after(split(CLIP, "removed", True)), t, clip),
        "whitespace": lambda t: bpe(after(pre_tokenizers.Whitespace(), digits()), t, normalizers.NFKD()),
        "punctuation": lambda t: bpe(after(pre_tokenizers.Punctuation("merged_with_previous"), digits()), t,
                                     normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(),
                                                           normalizers.Strip()])),
        "merged": lambda t: bpe(after(split(r"\s+", "merged_with_next"), split("[a-z]+", "contiguous")), t,
                                normalizers.NFKC()),
        "uncased": lambda t: bert(t, True),
        "cased": lambda t: bert(t, False, "bert"),
        "llama2": lambda t: fallback(t, llama2),
        "gemma": lambda t: fallback(t, spaces, pre_tokenizers.Split(" ", "merged_with_previous"), plain),
        "mistral": lambda t: fallback(t, None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
        "xlm": lambda _: unigram(squeeze, meta),
        "t5": lambda _: unigram(normalizers.NFKC(),
                                pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), meta])),
    }


def twin(path):
    """The tokenizer in a GGUF file with the splitting rule of SmolLM, made from its tokens and merges. (pip install
    gguf)"""
    import gguf  # pylint: disable=import-outside-toplevel
    fields = {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items() if "tokenizer" in key}
    if (fields["tokenizer.ggml.model"], fields["tokenizer.ggml.pre"]) != ("gpt2", "smollm"):
        raise SystemExit(f"{path}: its tokenizer is not SmolLM's")
    tokens = fields["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(tokens)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level()])
    tokenizer.decoder = decoders.ByteLevel()
    control = [i for i, kind in enumerate(fields["tokenizer.ggml.token_type"]) if kind == 3]
    tokenizer.add_special_tokens([AddedToken(tokens[i], normalized=False, special=True) for i in control])
    return tokenizer


def results_of_heed(heed, path, lines, folder):
    file = Path(folder) / "lines"
    file.write_text("".join(line.encode().hex() + "\n" for line in lines))
    script = Path(__file__).with_name("tokenize_lines.lua")
    done = subprocess.run([heed, str(script), str(path), str(file)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return None, done.stderr.strip()
    return done.stdout.splitlines(), None


def expected(tokenizer, line):
    def text(ids):
        return " ".join(map(str, ids))
    tokenizer.encode_special_tokens = True
    plain = tokenizer.encode(line, add_special_tokens=False).ids
    ids = tokenizer.encode(line).ids
    tokenizer.encode_special_tokens = False
    special = tokenizer.encode(line).ids
    return "|".join([text(plain), text(ids), text(special), tokenizer.decode(special, skip_special_tokens=False)
                     .encode().hex(), tokenizer.decode(special).encode().hex()])


def compare(name, path, tokenizer, lines, options, folder):
    """Prints what differs; whether nothing does."""
    found, problem = results_of_heed(options.heed, path, lines, folder)
    if problem:
        print(f"{name}: {problem}")
        return False
    wrong = [i for i, line in enumerate(lines) if found[i] != expected(tokenizer, line)]
    print(f"{name}: {len(lines) - len(wrong)} of {len(lines)} lines are equal")
    for i in wrong[:options.show]:
        for part, ours, theirs in zip(("plain", "framed", "special", "decoded", "skipped"), found[i].split("|"),
                                      expected(tokenizer, lines[i]).split("|")):
            if ours != theirs:
                print(f"  {lines[i][:200]!r}\n  {part}: heed {ours[:300]}\n  {part}: them {theirs[:300]}")
                break
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heed")
    parser.add_argument("paths", nargs="*")
    parser.add_argument("--lines", type=int, default=20000)
    parser.add_argument("--only")
    parser.add_argument("--show", type=int, default=3, help="lines that differ")
    parser.add_argument("--keep", help="a folder for the trained tokenizers")
    options = parser.parse_args()
    lines = tokenizer_lines.make(options.lines)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(options.keep or folder)
        kept.mkdir(exist_ok=True)
        tokenizers = [(path, Path(path)) for path in options.paths]
        for name, make in makers().items() if not options.paths else ():
            if options.only and name not in options.only.split(","):
                continue
            file = kept / f"{name}.json"
            if not file.exists():
                make(lines[:3000]).save(str(file), pretty=False)
            tokenizers.append((name, file))
        for name, path in tokenizers:
            if path.suffix == ".gguf":
                tokenizer = twin(path)
            else:
                tokenizer = Tokenizer.from_file(str(path / "tokenizer.json" if path.is_dir() else path))
            tokenizer.no_truncation()
            tokenizer.no_padding()
            equal = compare(name, path, tokenizer, lines, options, folder)
            passed, failed = passed + equal, failed + (not equal)
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
