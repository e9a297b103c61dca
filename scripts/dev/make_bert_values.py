"""Makes the reference values of heed.models.bert and heed.tokenizers.wordpiece with Hugging Face's libraries.

    python scripts/dev/make_bert_values.py [FOLDER]     (pip install torch transformers safetensors)

tiny_bert/     a BERT with random weights, in the layout of sentence-transformers
bert.lua       its results
minilm.lua     results of all-MiniLM-L6-v2 (make model) for the texts stored in the set
wordpiece.lua  ids of many texts with the vocabulary of that model
Ids in the Lua files count from 0, as they do there.
"""

import json
import random
import sys

import torch
from safetensors.torch import save_file
from transformers import BertConfig, BertModel, BertTokenizer

import golden

MODEL = golden.TOP / "build/models/all-MiniLM-L6-v2"
LENGTH = 12  # the most tokens of a sentence of the tiny model


# ---- The tiny model ----

def make_tiny(folder):
    words = "the a of and to in is one step with your journey starts cafe uber word token café".split()
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words, *letters, *("##" + c for c in letters),
              "##ing", "##s", "##er", *".,!?'-", "日", "本", "か"]
    pieces = list(dict.fromkeys(pieces))
    (folder / "1_Pooling").mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("".join(piece + "\n" for piece in pieces))
    config = BertConfig(vocab_size=len(pieces), hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
                        intermediate_size=40, max_position_embeddings=20, hidden_act="gelu_new",
                        layer_norm_eps=1e-6, attn_implementation="eager")
    torch.manual_seed(5)
    model = BertModel(config).eval()
    with torch.no_grad():  # the usual initial weights are too small to show differences
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, folder / "model.safetensors")
    kept = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size",
            "max_position_embeddings", "hidden_act", "layer_norm_eps", "type_vocab_size", "model_type")
    files = {"config.json": {name: getattr(config, name) for name in kept},
             "tokenizer_config.json": {"do_lower_case": True, "strip_accents": None},
             "sentence_bert_config.json": {"max_seq_length": LENGTH},
             "1_Pooling/config.json": {"word_embedding_dimension": 24, "pooling_mode_mean_tokens": True}}
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")
    return model


def rows(tensor):
    return {"shape": list(tensor.shape), "data": [float(x) for x in tensor.flatten()]}


def tiny_cases(model, folder):
    generator = torch.Generator().manual_seed(6)
    tokenizer = BertTokenizer.from_pretrained(folder)
    with torch.no_grad():
        for note, lengths, typed in [("one text", [7], False), ("as many tokens as there may be", [20], False),
                                     ("padding at the end", [9, 4, 1], False), ("two types of token", [6, 6], True)]:
            ids = torch.randint(0, model.config.vocab_size, (len(lengths), max(lengths)), generator=generator)
            mask = (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).long()
            types = (torch.arange(max(lengths)) >= 3).long().expand_as(ids) if typed else torch.zeros_like(ids)
            out = model(ids, attention_mask=mask, token_type_ids=types, output_attentions=True)
            hidden = out.last_hidden_state * mask[:, :, None]  # padding has no meaningful values
            weights = out.attentions[-1] * mask[:, None, :, None]
            yield {"note": note, "ids": ids.tolist(), "lengths": lengths, "types": types.tolist(),
                   "hidden": rows(hidden), "weights": rows(weights), "pooled": rows(out.pooler_output)}
        for text in ["", "Your journey starts with one step", "Café, ÜBER tokens! 日本が",
                     "a text that is far longer than the twelve tokens which this model may take"]:
            batch = tokenizer([text], truncation=True, max_length=LENGTH, return_tensors="pt")
            hidden = model(**batch).last_hidden_state[0].mean(0)
            yield {"note": text[:30], "text": text, "ids": batch["input_ids"][0].tolist(),
                   "embedding": rows(torch.nn.functional.normalize(hidden, dim=0))}


# ---- Texts ----

BLOCKS = [(0x20, 0x7f), (0x80, 0x250), (0x300, 0x36f), (0x370, 0x3ff), (0x400, 0x52f), (0x530, 0x5ff), (0x600, 0x6ff),
          (0x900, 0xdff), (0xe00, 0x11ff), (0x1e00, 0x1fff), (0x2000, 0x2bff), (0x3000, 0x30ff), (0x3400, 0x9fff),
          (0xac00, 0xd7a3), (0xf900, 0xffff), (0x10000, 0x1ffff), (0x20000, 0x2fa1f)]


def texts(vocabulary, count, seed=7):
    """Texts from pieces of the vocabulary, special tokens, and characters of many scripts."""
    draw = random.Random(seed)

    def word():
        kind = draw.random()
        if kind < 0.3:
            return draw.choice(vocabulary).replace("##", "")
        if kind < 0.35:
            return draw.choice(["[MASK]", "[CLS]", "[SEP]", "[PAD]", "[UNK]", "[mask]", "[[MASK]]", "##"])
        if kind < 0.4:  # marks in any order
            return "".join(chr(draw.choice([0x41, 0x61, 0x301, 0x323, 0x302e, 0x1d165, 0x5b4, 0x3099]))
                           for _ in range(draw.randint(1, 12)))
        first, last = draw.choice(BLOCKS)
        length = draw.randint(1, 8) if draw.random() < 0.97 else draw.randint(95, 105)
        return "".join(chr(draw.randint(first, last)) for _ in range(length))

    for _ in range(count):
        yield "".join(word() + draw.choice([" ", "", "\t", "\u3000", "\n"]) for _ in range(draw.randint(0, 8)))


def minilm_cases():
    """The embedding of each text, and the weights of the last layer's first head for the query [CLS]."""
    tokenizer = BertTokenizer.from_pretrained(MODEL)
    model = BertModel.from_pretrained(MODEL, attn_implementation="eager").eval()
    for case in golden.load(golden.GOLDEN / "minilm.lua"):
        batch = tokenizer([case["text"]], return_tensors="pt")
        with torch.no_grad():
            out = model(**batch, output_attentions=True)
        embedding = torch.nn.functional.normalize(out.last_hidden_state[0].mean(0), dim=0)
        yield {"text": case["text"], "ids": batch["input_ids"][0].tolist(),
               "cls_weights": out.attentions[-1][0, 0, 0].tolist(), "embedding": embedding.tolist()}


def text_cases(folder):
    vocabulary = [line for line in (folder / "vocab.txt").read_text().split("\n") if line and line[0] != "["]
    by_hand = ["", " ", "Hello, World!", "isn't it? U.S.A. 3.14%", "Ærøskøbing Ångström İstanbul ΟΔΥΣΣΕΎΣ ﬁne",
               "北京 is 首都; 東京は日本の首都です。", "한국어 텍스트", "مرحبا بالعالم", "naïve café — “quotes” …", "a\u0301e\u0300",
               "zero\u200bwidth\u00adsoft\ufeffmark\x00\ufffd", "antidisestablishmentarianism", "x" * 100, "x" * 101,
               "[MASK] [mask] [SEP]x", "😀 emoji 👩‍👩‍👧", "１２３ ｆｕｌｌ", "tab\tnew\nline\r\x0b\x85\u2028end"]
    for options in [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}]:
        tokenizer = BertTokenizer.from_pretrained(folder, **options)
        some = by_hand + list(texts(vocabulary, 150)) if not options else by_hand
        for text in some:
            case = {"text": text, "ids": tokenizer(text)["input_ids"]}
            yield {**case, "options": options} if options else case


def main():
    folder = golden.folder()

    def write(name, about, cases):
        golden.write(folder / name, f"{about} Made by scripts/dev/make_bert_values.py.", cases, digits=7)

    model = make_tiny(folder / "tiny_bert")
    write("bert.lua", "What tests/golden/tiny_bert gives: hidden states and the last layer's weights where there is a "
          "token (0 in padding), or embeddings of texts.", tiny_cases(model, folder / "tiny_bert"))
    if not MODEL.exists():
        sys.exit(f"Missing: {MODEL.relative_to(golden.TOP)} (make model), for minilm.lua and wordpiece.lua")
    write("minilm.lua", "all-MiniLM-L6-v2: ids of the tokens (from 0), the last layer's weights of head 1 for the "
          "query [CLS], and the mean of the hidden states, normalized.", minilm_cases())
    write("wordpiece.lua", "Ids of texts with the vocabulary of all-MiniLM-L6-v2, from 0.", text_cases(MODEL))


if __name__ == "__main__":
    main()
