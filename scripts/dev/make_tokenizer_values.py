"""Makes the reference values of heed.tokenizers with the libraries of Hugging Face and of SentencePiece.

    python scripts/dev/make_tokenizer_values.py [FOLDER]     (pip install tokenizers sentencepiece gguf)

tokenizers/NAME.json    small tokenizers with the settings of real models, trained on the texts below
tokenizers/NAME.model   the same of SentencePiece
tokenizers/NAME.gguf    some of them in the metadata of GGUF files
tokenizers.lua          their ids of texts, and the decoded texts
Ids in the Lua file count from 0, as they do there.
"""

import collections
import io
import json
import math

import gguf
import sentencepiece
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
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    letters = sorted(set("".join(TEXTS[:4]).lower()) - set(" \t\r\n"))
    words = ["hello", "world", "thing", "##ings", "line", "##45"]
    pieces = [*names, *letters, *(f"##{letter}" for letter in letters), *words]
    tokenizer = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(names)
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


def unigram():
    words = [f"▁{word}" for text in (TEXTS[0], TEXTS[8], TEXTS[6]) for word in text.split()]
    counts = collections.Counter(word[first:last] for word in words for first in range(len(word))
                                 for last in range(first + 1, len(word) + 1))
    scores = {piece: round(math.log(count / counts.total()), 6) for piece, count in counts.items()
              if count > 1 or len(piece) == 1}
    pieces = [("<s>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), *sorted(scores.items())]
    tokenizer = Tokenizer(models.Unigram(pieces, 2, False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>"])
    return with_template(tokenizer, "<s> $A </s>", "<s>", "</s>")


def sentencepiece_model(kind, **options):
    """The bytes of a .model file."""
    model = io.BytesIO()
    texts = [line for text in (TEXTS[0], TEXTS[6], TEXTS[8], TEXTS[1]) for line in text.split("\n")]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type=kind, hard_vocab_limit=False, minloglevel=2,
        **{"vocab_size": 330, "byte_fallback": kind == "bpe", "num_threads": 1, **options})
    return model.getvalue()


def write_gguf(path, model, tokens, types, scores=None, merges=None, **more):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(model)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if scores:
        writer.add_token_scores(scores)
    if merges:
        writer.add_token_merges(merges)
    for name, value in more.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def gguf_of_json(path, name, pre):
    parts = json.loads((path / f"{name}.json").read_text())
    vocab, added = parts["model"]["vocab"], {entry["content"]: entry for entry in parts["added_tokens"]}
    tokens = {**vocab, **{token: entry["id"] for token, entry in added.items()}}
    ordered = sorted(tokens, key=tokens.get)
    types = [1 if token not in added else 3 if added[token]["special"] else 4 for token in ordered]
    write_gguf(path / f"{name}.gguf", "gpt2", ordered, types, merges=[" ".join(m) for m in parts["model"]["merges"]],
               tokenizer_pre=pre, bos_token_id=tokens["<|begin|>"], eos_token_id=tokens["<|end|>"],
               chat_template="{{ messages[0].content }}")


def gguf_of_model(path, data, name):
    pieces = sentencepiece.SentencePieceProcessor(model_proto=data)
    count = range(pieces.vocab_size())
    types = [2 if pieces.is_unknown(i) else 3 if pieces.is_control(i) else 6 if pieces.is_byte(i) else 1 for i in count]
    write_gguf(path / f"{name}.gguf", "llama", [pieces.id_to_piece(i) for i in count], types,
               scores=[pieces.get_score(i) for i in count], bos_token_id=pieces.bos_id(), eos_token_id=pieces.eos_id(),
               unk_token_id=pieces.unk_id())


def model_cases(name, data, before=(), after=()):
    """Of a SentencePiece model; `before` and `after` are the pieces of heed's template."""
    pieces = sentencepiece.SentencePieceProcessor(model_proto=data)
    for text in TEXTS:
        plain = pieces.encode(text)
        ids = [*map(pieces.piece_to_id, before), *plain, *map(pieces.piece_to_id, after)]
        yield {"name": name, "text": text, "plain": plain, "ids": ids, "special": ids,
               "decoded": "".join([*before, pieces.decode(plain), *after]), "skipped": pieces.decode(plain)}


def main():
    folder = golden.folder()
    (folder / "tokenizers").mkdir(exist_ok=True)
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), plain])
    made = {
        "gpt2": byte_level(plain), "smollm": byte_level(digits), "bert": bert(), "fallback": fallback(),
        "llama3": with_template(byte_level(split(LLAMA3), ignore_merges=True), "<|begin|> $A", "<|begin|>"),
        "unigram": unigram(), "qwen2": byte_level(split(LLAMA3.replace("{1,3}", "")), normalizers.NFC()),
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
            cases.append({"name": f"{name}.json", "text": text, "plain": plain_ids, "ids": ids, "special": special,
                          "decoded": tokenizer.decode(special, skip_special_tokens=False),
                          "skipped": tokenizer.decode(special)})
    bpe = sentencepiece_model("bpe", normalization_rule_name="identity", remove_extra_whitespaces=False)
    (folder / "tokenizers" / "bpe.model").write_bytes(bpe)
    pieces = sentencepiece_model("unigram", vocab_size=90, normalization_rule_name="identity")
    (folder / "tokenizers" / "unigram.model").write_bytes(pieces)
    gguf_of_json(folder / "tokenizers", "smollm", "smollm")
    gguf_of_model(folder / "tokenizers", bpe, "bpe")
    cases += [{**case, "name": "smollm.gguf"} for case in cases if case["name"] == "smollm.json"
              and "foo bar" not in case["text"] and "<tool>" not in case["text"]]
    for name in ("bpe.model", "bpe.gguf"):
        cases += model_cases(name, bpe, before=["<s>"])
    cases += model_cases("unigram.model", pieces, after=["</s>"])
    about = "Ids of texts by Hugging Face's tokenizers and by SentencePiece."
    golden.write(folder / "tokenizers.lua", f"{about} Made by scripts/dev/make_tokenizer_values.py.", cases)


if __name__ == "__main__":
    main()
