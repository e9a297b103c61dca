"""Makes small encoders with random weights and their reference values with Hugging Face's libraries.

    python scripts/dev/make_encoder_values.py [FOLDER]     (pip install torch transformers sentencepiece safetensors)

encoders/NAME/   the models, with tokenizers: BERT as a cross-encoder, RoBERTa, XLM-RoBERTa and DistilBERT as
                 classifiers, RoBERTa without a head, and a BERT with the further files of sentence-transformers
encoders.lua     hidden states of ids, logits, scores and labels of texts and pairs
sentences.lua    sentence vectors, by the arithmetic of sentence-transformers
Ids count from 0, as they do there.
"""

import io
import json

import sentencepiece
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, BertTokenizer

import golden
from make_bert_values import rows

LENGTH = 20  # the most tokens of the models
SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
CORPUS = ["the journey starts with one step", "one step is enough for a journey", "a cross encoder reads two texts",
          "naïve café, über alles! 日本か", "words and more words are read at once", "what is the price of it?"] * 8
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]",
          *"the a of is one step your journey starts with word".split(),
          *"abcdefghijklmnopqrstuvwxyz", *("##" + c for c in "abcdefghijklmnopqrstuvwxyz"), "##s", *".,!?'"]
PIECES = list(dict.fromkeys(PIECES))
TEXTS = ["", "one step", "the journey, starts!", "word " * 30]
PAIRS = [["one step", "the journey starts"], ["", "word"], ["a " * 30, "the"], ["one", "step " * 30],
         ["a " * 30, "of " * 30], ["a " * 9, "of " * 8]]


# ---- Tokenizers ----

def wordpiece(folder):
    (folder / "vocab.txt").write_text("".join(piece + "\n" for piece in PIECES))
    settings = {"do_lower_case": True, "model_max_length": LENGTH}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings) + "\n")
    return BertTokenizer.from_pretrained(folder), len(PIECES), {"pad_token_id": 0, "max_position_embeddings": LENGTH}


def byte_level(folder):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(CORPUS, trainers.BpeTrainer(
        vocab_size=290, special_tokens=special, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    names = {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>",
             "unk_token": "<unk>", "mask_token": "<mask>", "model_max_length": LENGTH}
    (folder / "tokenizer_config.json").write_text(json.dumps(names) + "\n")
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)
    return fast, tokenizer.get_vocab_size(), {"pad_token_id": 1, "max_position_embeddings": LENGTH + 2}


class Fairseq:
    """XLM-RoBERTa's tokenizer: SentencePiece's ids plus 1, with <s>, <pad>, </s>, <unk> first, as in Hugging Face's
    class before version 5."""

    def __init__(self, file):
        self.spm = sentencepiece.SentencePieceProcessor(model_file=str(file))

    def body(self, text):
        return [id + 1 if id else 3 for id in self.spm.encode(text)]


def unigram(folder):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=model, vocab_size=70,
                                             hard_vocab_limit=False, normalization_rule_name="identity", minloglevel=2)
    (folder / "sentencepiece.bpe.model").write_bytes(model.getvalue())
    fairseq = Fairseq(folder / "sentencepiece.bpe.model")
    return fairseq, fairseq.spm.vocab_size() + 2, {"pad_token_id": 1, "max_position_embeddings": LENGTH + 2}


def encoded(tokenizer, item):
    """Ids and token types of a text or a pair."""
    pair = item if isinstance(item, list) else [item]
    if not isinstance(tokenizer, Fairseq):
        got = tokenizer(*pair, truncation="longest_first", max_length=LENGTH)
        ids = got["input_ids"]
        types = got.get("token_type_ids") or [0] * len(ids)
        return ids, types if isinstance(tokenizer, BertTokenizer) else [0] * len(ids)
    parts = [tokenizer.body(text) for text in pair]
    most = LENGTH - (4 if len(parts) == 2 else 2)
    while sum(map(len, parts)) > most:  # longest first; of equal ones the first
        max(parts, key=len).pop()
    ids = [0] + parts[0] + [2] + ([2] + parts[1] + [2] if len(parts) == 2 else [])
    return ids, [0] * len(ids)


# ---- Models ----

def distil(settings):
    names = {"hidden_size": "dim", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads",
             "intermediate_size": "hidden_dim"}
    return {names.get(key, key): value for key, value in settings.items()}


def labels(*names):
    return {"id2label": dict(enumerate(names)), "label2id": {name: i for i, name in enumerate(names)}}


MODELS = {
    "bert_cross": ("bert", wordpiece, labels("LABEL_0"), True),
    "bert_labels": ("bert", wordpiece, {**labels("no", "maybe", "yes"), "problem_type": "multi_label_classification"},
                    True),
    "roberta": ("roberta", byte_level, {"type_vocab_size": 1}, False),
    "roberta_labels": ("roberta", byte_level, {**labels("negative", "neutral", "positive"), "type_vocab_size": 1},
                       True),
    "xlm_roberta_cross": ("xlm-roberta", unigram, {**labels("LABEL_0"), "type_vocab_size": 1, "sentence_transformers": {
        "activation_fn": "torch.nn.modules.linear.Identity", "version": "4.1.0"}}, True),
    "distilbert": ("distilbert", wordpiece, labels("bad", "good"), True),
}
KEPT = ("model_type", "vocab_size", "max_position_embeddings", "pad_token_id", "type_vocab_size", "problem_type",
        "sentence_transformers", *SIZES, *distil(SIZES))


def make(folder, kind, tokenizer_of, settings, headed, seed):
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer, vocab_size, tied = tokenizer_of(folder)
    settings = {**SIZES, **tied, "vocab_size": vocab_size, **settings}
    if kind == "distilbert":
        settings = distil(settings)
    config = AutoConfig.for_model(kind, **settings)
    torch.manual_seed(seed)
    model = (AutoModelForSequenceClassification if headed else AutoModel).from_config(config).eval()
    with torch.no_grad():  # the usual initial weights are too small to show differences
        for parameter in model.parameters():
            parameter.normal_(0, 0.3)
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, folder / "model.safetensors")
    kept = {"architectures": [type(model).__name__], "model_type": kind,
            **{name: settings[name] for name in KEPT if name in settings}}
    if headed:
        kept["id2label"] = {str(i): name for i, name in settings["id2label"].items()}
    (folder / "config.json").write_text(json.dumps(kept, indent=2) + "\n")
    return model, tokenizer


# ---- Values ----

def text_case(name, model, tokenizer, item):
    """Logits, score and labels; or the mean of the hidden states if there is no head."""
    ids, types = encoded(tokenizer, item)
    batch = {"input_ids": torch.tensor([ids])}
    if isinstance(tokenizer, BertTokenizer) and model.config.model_type == "bert":
        batch["token_type_ids"] = torch.tensor([types])
    case = {"model": name, "ids": ids}
    case.update({"pair": item} if isinstance(item, list) else {"text": item})
    with torch.no_grad():
        out = model(**batch)
    if not hasattr(out, "logits"):
        hidden = out.last_hidden_state[0]
        return {**case, "embedding": rows(torch.nn.functional.normalize(hidden.mean(0), dim=0))}
    logits = out.logits[0]
    one, several = len(logits) == 1, model.config.problem_type == "multi_label_classification"
    found = torch.sigmoid(logits) if one or several else torch.softmax(logits, 0)
    order = torch.argsort(found, descending=True)
    return {**case, "logits": rows(logits),
            "labels": [{"label": model.config.id2label[int(i)], "score": float(found[i])} for i in order]}


def hidden_cases(name, model, generator):
    base = getattr(model, model.base_model_prefix, model)
    vocab, pad = model.config.vocab_size, model.config.pad_token_id
    for note, lengths, inside in [("one text", [7], 0), ("as many tokens as there may be", [LENGTH], 0),
                                  ("padding at the end", [9, 4, 1], 0), ("padding tokens inside", [8, 8], 3)]:
        ids = torch.randint(5, vocab, (len(lengths), max(lengths)), generator=generator)
        mask = (torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]).long()
        ids = torch.where(mask == 1, ids, pad)
        if inside:
            ids[0, inside] = pad
        with torch.no_grad():
            out = base(input_ids=ids, attention_mask=mask)
        yield {"model": name, "note": note, "ids": ids.tolist(), "lengths": lengths,
               "hidden": rows(out.last_hidden_state * mask[:, :, None])}


# ---- Sentences ----

def pool(mode, hidden):
    n = hidden.shape[0]
    weights = torch.arange(1, n + 1).float()[:, None]
    return {"cls": hidden[0], "max": hidden.max(0).values, "mean": hidden.mean(0),
            "mean_sqrt_len": hidden.sum(0) / n**0.5,
            "weightedmean": (hidden * weights).sum(0) / weights.sum(), "lasttoken": hidden[-1]}[mode]


def make_sentence_model(folder):
    model, tokenizer = make(folder, "bert", wordpiece, {}, False, 40)
    dense = torch.nn.Linear(32, 6)
    torch.nn.init.normal_(dense.weight, 0, 0.3)
    kinds = ["Transformer", "Pooling", "Dense", "Normalize"]
    for i, kind in enumerate(kinds[1:], 1):
        (folder / f"{i}_{kind}").mkdir(exist_ok=True)
    save_file({"linear.weight": dense.weight.detach(), "linear.bias": dense.bias.detach()},
              folder / "2_Dense/model.safetensors")
    written = {
        "modules.json": [{"idx": i, "name": str(i), "path": "" if i == 0 else f"{i}_{kind}",
                          "type": f"sentence_transformers.models.{kind}"} for i, kind in enumerate(kinds)],
        "1_Pooling/config.json": {
            "word_embedding_dimension": 16, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": True, "pooling_mode_mean_sqrt_len_tokens": False, "include_prompt": True},
        "2_Dense/config.json": {"in_features": 32, "out_features": 6, "bias": True,
                                "activation_function": "torch.nn.modules.activation.Tanh"},
        "sentence_bert_config.json": {"max_seq_length": 12, "do_lower_case": False},
        "config_sentence_transformers.json": {
            "prompts": {"query": "one word, ", "passage": ""}, "default_prompt_name": "passage",
            "similarity_fn_name": "cosine"},
    }
    for name, value in written.items():
        (folder / name).write_text(json.dumps(value, indent=2) + "\n")
    return model, tokenizer, dense


def sentence_cases(model, tokenizer, dense):
    modes = ["cls", "max", "mean", "mean_sqrt_len", "weightedmean", "lasttoken"]
    with torch.no_grad():
        for text in TEXTS:
            for prompt in ["passage", "query"]:
                ids = tokenizer(("one word, " if prompt == "query" else "") + text, truncation=True,
                                max_length=12)["input_ids"]
                hidden = model(torch.tensor([ids])).last_hidden_state[0]
                joined = torch.cat([pool("max", hidden), pool("mean", hidden)])
                vector = torch.nn.functional.normalize(torch.tanh(dense(joined)), dim=0)
                yield {"text": text, "prompt": prompt, "vector": rows(vector),
                       **{mode: rows(pool(mode, hidden)) for mode in modes}}


def main():
    folder = golden.folder()
    generator = torch.Generator().manual_seed(6)
    cases = []
    for i, (name, (kind, tokenizer_of, settings, headed)) in enumerate(MODELS.items()):
        model, tokenizer = make(folder / "encoders" / name, kind, tokenizer_of, settings, headed, 30 + i)
        cases += hidden_cases(name, model, generator)
        cases += [text_case(name, model, tokenizer, item) for item in TEXTS + PAIRS * headed]
    golden.write(folder / "encoders.lua", "What the models in tests/golden/encoders give: hidden states where there "
                 "is a token, embeddings of texts, or logits. Made by scripts/dev/make_encoder_values.py.", cases,
                 digits=7)
    golden.write(folder / "sentences.lua", "Sentence vectors of tests/golden/encoders/sentence, and those before "
                 "further layers by pooling. Made by scripts/dev/make_encoder_values.py.",
                 sentence_cases(*make_sentence_model(folder / "encoders/sentence")), digits=7)


if __name__ == "__main__":
    main()
