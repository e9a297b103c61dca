"""The lines over which scripts/dev/compare_tokenizers.py and scripts/bench/tokenizers.py run: text of many languages,
code, and random Unicode. They are the same in each run of one version of Python, which must know no later Unicode than
heed's utf8proc: the libraries treat later characters as their own tables say."""

import random
import re
import unicodedata
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

SENTENCES = r"""
All human beings are born free; they aren't things, and we'll say so 1,234,567 times in 2024.
Alle Menschen sind frei und gleich an Würde und Rechten geboren: Größe, Übermut, Straße, ÄÖÜ.
Tous les êtres humains naissent libres; l’œuvre d'aujourd'hui coûte 12,50 € à Noël, n'est-ce pas ?
Todos los seres humanos nacen libres. ¿Cuántos años tienes? ¡Mañana, señor!
Wszyscy ludzie rodzą się wolni i równi; zażółć gęślą jaźń.
Tüm insanlar hür doğar: İstanbul'da ışık, ığdır IĞDIR.
Všichni lidé se rodí svobodní; příliš žluťoučký kůň úpěl ďábelské ódy.
Tất cả mọi người sinh ra đều được tự do và bình đẳng về nhân phẩm.
Все люди рождаются свободными и равными; съешь ещё этих мягких французских булок, 100 ₽.
Усі люди народжуються вільними; ґанок, їжак, єдність.
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι· ΟΔΥΣΣΕΥΣ, σοφός.
כל בני האדם נולדו בני חורין; שָׁלוֹם עֲלֵיכֶם.
يولد جميع الناس أحرارا متساوين في الكرامة والحقوق؛ ١٢٣٤٥ مُحَمَّد.
تمام افراد بشر آزاد به دنیا می‌آیند؛ ۱۲۳۴۵.
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता है। १२३
সমস্ত মানুষ স্বাধীনভাবে জন্মগ্রহণ করে। ১২৩
மனிதப் பிறவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர். ௧௨௩
ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులు.
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกัน ๑๒๓๔
មនុស្សទាំងអស់ កើតមកមានសេរីភាព និងសមភាព។
လူတိုင်းသည် တူညီလွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့်လည်းကောင်း။
所有人生而自由,在尊严和权利上一律平等。价格是123元!
人人生而自由,在尊嚴和權利上一律平等。「測試」
すべての人間は、生まれながらにして自由であり、ガギグゲゴ ガ ｶﾞ ２０２４年。
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 한글
ყველა ადამიანი იბადება თავისუფალი; ᲗᲐᲕᲘᲡᲣᲤᲐᲚᲘ.
Բոլոր մարդիկ ծնվում են ազատ ու հավասար։
ሁሉም የሰው ልጆች ነጻ ሆነው ይወለዳሉ።
ᎨᏥᎸᏉᏗ ᎾᏍᎩ ꭴꮎ ᏣᎳᎩ.
I’ve got “quotes” — dashes – and… ellipses; (brackets) [more] {yet} <tags/> & @signs #hash $5 50% ^ ~ `tick` \\ |
👩‍👧‍👦 family 👍🏽 thumbs 🇩🇪🇫🇷 flags ❤️ heart ☺︎ text 🏴󠁧󠁢󠁥󠁮󠁧󠁿 end 🫠🪿
½ ⅓ Ⅷ ⅷ ① ⒈ ² ₃ ㊿ ㋿ ㍿ ﬁ ﬃ ﬀ Å Ω K ſ ẞ ŉ ǆ ǅ Ǆ ﷺ ™ ℡
<|begin|>system<|end|><|begin|>user: Hello!<|end|> <tool> foo bar foo bars [CLS] [SEP] [MASK]text <s>a</s> <unk>
'tis he'S she'LL WE'VE i'M they'RE isn'T 'd'll ’s x'sx 'REal ''ll 'ſ
0 00 000 0000 12345678901234567890 3.14159 1e-10 0x1F 1_000_000 １２３４ 12a34b
\t\tindented\r\n\r\n  two\n \n   three   \n\n\n    \t end \u00a0nbsp\u00a0\u00a0 \u3000wide\u3000 \u2003em\u200bzero\u2028line\u2029
http://example.com/path?query=1&other=%20x#fragment user@example.org C:\\Windows\\system32 ../relative/path.txt
the quick brown fox jumps over the lazy dog THE QUICK BROWN FOX CamelCaseWords snake_case_words kebab-case-words
""".strip("\n").split("\n")
SENTENCES = [re.sub(r"\\(?:u[0-9a-f]{4}|[tnr])", lambda m: m[0].encode().decode("unicode_escape"), line)
             for line in SENTENCES]

# Of scripts, punctuation, symbols, marks and control characters.
RANGES = [(0, 0x80), (0x20, 0x7f), (0x80, 0x250), (0x250, 0x370), (0x370, 0x590), (0x590, 0x8ff), (0x900, 0xe00),
          (0xe00, 0x1200), (0x1200, 0x2000), (0x2000, 0x2070), (0x2070, 0x2c00), (0x2c00, 0x3040), (0x3040, 0x3400),
          (0x4e00, 0x9fff), (0xa000, 0xac00), (0xac00, 0xd7b0), (0xf900, 0xfb50), (0xfb50, 0x10000), (0x300, 0x370),
          (0x10000, 0x11000), (0x11000, 0x12000), (0x1d000, 0x1f000), (0x1f000, 0x1fb00), (0x20000, 0x20100),
          (0xe0000, 0xe01f0)]
UNASSIGNED = [(0x378, 0x380), (0x2fe0, 0x2ff0), (0xfdd0, 0xfdf0), (0xffff, 0x10000), (0xe0080, 0xe0100)]
GLUE = [" ", "  ", "\n", "\t", "'", "'s", ".", "1", "a", "\u0301", "\u200d", "\u00a0", "<|end|>", "<tool>", "foo bar", ""]


def is_allowed(c):
    return unicodedata.category(c) not in ("Cn", "Cs") or any(low <= ord(c) < high for low, high in UNASSIGNED)


def character(generator):
    while True:
        c = chr(generator.randrange(*generator.choice(RANGES)))
        if is_allowed(c):
            return c


def source_lines():
    """Lines of this project: prose, C, Lua, Python, shell."""
    files = sorted(p for pattern in ("docs/*.md", "src/*/*.c", "lua/heed/*.lua", "scripts/*/*.py", "scripts/*/*.sh")
                   for p in ROOT.glob(pattern))
    return [line for path in files for line in path.read_text().split("\n") if line]


def make(count=20000, seed=1):
    """`count` texts: a third of this project's lines, a third of sentences that are cut and joined, a third random."""
    generator = random.Random(seed)
    project, lines = source_lines(), []
    while len(lines) < count:
        kind = len(lines) % 6
        if kind < 2:
            first = generator.randrange(len(project))
            lines.append("\n".join(project[first:first + generator.choice([1, 1, 1, 2, 5])]))
        elif kind == 2:
            lines.append(generator.choice(["", " ", "\n"]) + " ".join(generator.sample(SENTENCES, 2)))
        elif kind == 3:
            parts = []
            for _ in range(generator.randrange(1, 6)):
                sentence = generator.choice(SENTENCES)
                begin = generator.randrange(len(sentence))
                parts.append(sentence[begin:begin + generator.randrange(1, 30)])
            lines.append(generator.choice(GLUE).join(parts))
        elif kind == 4:
            parts = []
            for _ in range(generator.randrange(1, 12)):
                low, high = generator.choice(RANGES)
                run = [chr(generator.randrange(low, high)) for _ in range(generator.randrange(1, 8))]
                parts.append("".join(filter(is_allowed, run)))
            lines.append(generator.choice(GLUE).join(parts))
        elif len(lines) % 60 == 5:
            lines.append(generator.choice(["a", " ", "\n", "1", "\u0301", "!", "日", "ab", " \n", "e\u0301", "\0"])
                         * generator.randrange(50, 700))
        else:
            lines.append("".join(generator.choice([character(generator), generator.choice(GLUE)])
                                 for _ in range(generator.randrange(1, 40))))
    return lines
