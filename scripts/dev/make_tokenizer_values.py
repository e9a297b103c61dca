"""Makes the reference values of heed.tokenizers with Hugging Face's library.

    python scripts/dev/make_tokenizer_values.py [FOLDER]     (pip install tokenizers)

tokenizers/NAME.json  small tokenizers with the settings of real models, trained on the texts below
tokenizers.lua        their ids of texts, and the decoded texts
Ids in the Lua file count from 0, as they do there.
"""

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import golden

TEXTS = [
    "Hello, world! It's 2024; they'LL see I've 12345 things.", "  two  spaces \n\n\tand lines\r\n", "",
    "naïve café cafe\u0301 日本語のテキスト 한국어 Привет мир", "🎉 emoji 👩\u200d👧 ½ Ⅷ ١٢٣",
    "<|begin|>user text<|end|>", "def f(x):\n    return x**2  # squares", "a" * 70, "foo bar foo bars <tool> x",
]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")


def byte_level(splits, normalizer=None, ignore_merges=False):
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = splits
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=360, special_tokens=["<|begin|>", "<|end|>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(TEXTS, trainer)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False, lstrip=True), AddedToken("foo bar", single_word=True)])
    return tokenizer


def with_template(tokenizer, single, *names):
    pairs = [(name, tokenizer.token_to_id(name)) for name in names]
    tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=pairs)
    return tokenizer


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(TEXTS[:4], trainers.WordPieceTrainer(vocab_size=160, special_tokens=names,
                                                                       show_progress=False))
    return with_template(tokenizer, "[CLS] $A [SEP]", "[CLS]", "[SEP]")


def fallback():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokenizer.train_from_iterator(TEXTS[:1], trainers.BpeTrainer(vocab_size=320, special_tokens=names,
                                                                 max_token_length=6, show_progress=False))
    return with_template(tokenizer, "<s> $A", "<s>")


def main():
    folder = golden.folder()
    (folder / "tokenizers").mkdir(exist_ok=True)
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain])
    made = {
        "gpt2": byte_level(plain), "smollm": byte_level(digits), "bert": bert(), "fallback": fallback(),
        "llama3": with_template(byte_level(split(LLAMA3), ignore_merges=True), "<|begin|> $A", "<|begin|>"),
        "qwen2": byte_level(split(LLAMA3.replace("{1,3}", "")), normalizers.NFC()),
    }
    cases = []
    for name, tokenizer in made.items():
        tokenizer.save(str(folder / "tokenizers" / f"{name}.json"), pretty=False)
        for text in TEXTS:
            tokenizer.encode_special_tokens = True
            plain_ids = tokenizer.encode(text, add_special_tokens=False).ids
            ids = tokenizer.encode(text).ids
            tokenizer.encode_special_tokens = False
            special = tokenizer.encode(text).ids
            cases.append({"name": name, "text": text, "plain": plain_ids, "ids": ids, "special": special,
                          "decoded": tokenizer.decode(special, skip_special_tokens=False),
                          "skipped": tokenizer.decode(special)})
    about = "Ids of texts by Hugging Face's tokenizers."
    golden.write(folder / "tokenizers.lua", f"{about} Made by scripts/dev/make_tokenizer_values.py.", cases)


if __name__ == "__main__":
    main()
