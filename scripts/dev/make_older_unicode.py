"""Writes src/text/older_unicode.def: the characters that tokenizers treats differently from current Unicode.

    python scripts/dev/make_older_unicode.py     (pip install tokenizers unicodedata2)

tokenizers takes its tables from several libraries, some of which have Unicode 8 or 9.
"""

from pathlib import Path

import unicodedata2
from tokenizers import __version__, normalizers, pre_tokenizers

TARGET = Path(__file__).resolve().parents[2] / "src/text/older_unicode.def"
CATEGORIES = {"-": 5, "Mn": 6, "Mc": 7, "P": 18, "C": 27}  # numbers of utf8proc: Lo, Mn, Mc, Po, Cf

HEAD = f"""/* Made by scripts/dev/make_older_unicode.py, with tokenizers {__version__} and Unicode
 * {unicodedata2.unidata_version}. Ranges of characters: OTHER_CATEGORY(first, last, category in utf8proc's order),
 * NOT_NORMALISED(first, last): neither decomposed, composed nor reordered. */
"""

CHARACTERS = [chr(c) for c in range(0x80, 0xF0000) if not 0xD800 <= c < 0xF900 and c != 0xFFFD]
ACCENTS, PUNCTUATION = normalizers.StripAccents(), pre_tokenizers.Punctuation()
OFF = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
MARKS = normalizers.BertNormalizer(**{**OFF, "strip_accents": True})
CLEAN = normalizers.BertNormalizer(**{**OFF, "clean_text": True})


def current_kind(c):
    category = unicodedata2.category(c)
    if category == "Mn" or category[0] == "P":
        return category if category == "Mn" else "P"
    return "Mc" if category[0] == "M" else "C" if category in ("Cc", "Cf", "Co") else "-"


def kind(c):
    if ACCENTS.normalize_str(c) == "":
        return "Mn" if MARKS.normalize_str(c) == "" else "Mc"
    if CLEAN.normalize_str(c) == "":
        return "C"
    return "P" if len(PUNCTUATION.pre_tokenize_str("\x01" + c + "\x01")) > 1 else "-"


def not_normalised():
    """Characters whose decomposition, combining class or composition is not known."""
    found = set()
    for c in CHARACTERS:
        text = c
        if unicodedata2.combining(c):  # a mark of another class, which must change places with it
            text = "a" + c + "\u0334" if unicodedata2.combining(c) > 1 else "a\u0301" + c
        if normalizers.NFKD().normalize_str(text) != unicodedata2.normalize("NFKD", text):
            found.add(c)
        parts = unicodedata2.normalize("NFD", c)
        if parts != c and normalizers.NFC().normalize_str(parts) != unicodedata2.normalize("NFC", parts):
            found.update(part for part in parts if ord(part) > 0xFFFF)
    return {c: "-" for c in found}


def rows(kinds, row_of):
    ranges = []
    for code, name in sorted((ord(c), name) for c, name in kinds.items()):
        if ranges and ranges[-1][1:] == [code - 1, name]:
            ranges[-1][1] = code
        else:
            ranges.append([code, code, name])
    return "".join(row_of(first, last, CATEGORIES[name]) + "\n" for first, last, name in ranges)


def main():
    changed = {c: kind(c) for c in CHARACTERS if kind(c) != current_kind(c)}
    TARGET.write_text(HEAD + rows(changed, "OTHER_CATEGORY(0x{:x}, 0x{:x}, {})".format)
                      + rows(not_normalised(), "NOT_NORMALISED(0x{:x}, 0x{:x})".format))


if __name__ == "__main__":
    main()
