"""Methods of strings in templates as Jinja renders them, that is as Python does: tests/golden/template_strings.lua."""

import golden
import jinja2

TEXTS = ["", " ", "abc", "  1  2   3  ", "a,b,,c,", "aaaa", "äöä", "\u3000a\u00a0b\u001c", "\t\nx\v\f", "日本、日本", "🙂🙂 🙂"]
PARTS = ["a", "aa", ",", " ", "ä", "日本", "🙂", "\u3000", "x\t", "aaaaa"]
SETS = ["", "a", "ab,", "ä", "ö a", "本🙂", "^-]%", "\t\n"]


def calls():
    yield from ("strip()", "lstrip()", "rstrip()", "split()", "rsplit()")
    for most in (-1, 0, 1, 2):
        yield from (f"split(none, {most})", f"rsplit(none, {most})")
    for characters in SETS:
        yield from (f"strip({characters!r})", f"lstrip({characters!r})", f"rstrip({characters!r})")
    for part in PARTS:
        yield from (f"split({part!r})", f"rsplit({part!r})", f"split({part!r}, 1)", f"rsplit({part!r}, 1)",
                    f"split({part!r}, 0)", f"partition({part!r})", f"find({part!r})", f"count({part!r})",
                    f"replace({part!r}, '<>')", f"replace({part!r}, '', 1)")
    yield from ("find('')", "count('')")


def main():
    environment = jinja2.Environment()
    cases = []
    for text in TEXTS:
        expressions = [f"x.{call}" for call in calls()] + [f"{part!r} in x" for part in ["", *PARTS]]
        cases.append({"text": text, "expressions": expressions, "values": [
            environment.from_string("{% set y = " + expression + " %}{{ y if y is string or y is number else y | join('|') }}"
                                    ).render(x=text) for expression in expressions]})
    golden.write(golden.folder() / "template_strings.lua",
                 "Jinja's text of expressions, from scripts/dev/make_template_values.py.", cases)


main()
