"""Tests of scripts/site: Markdown as HTML, and what the playground gets. Ends with "N passed, N failed"."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "site"))
import blocks  # noqa: E402
import build  # noqa: E402
import check  # noqa: E402
import pages  # noqa: E402


def resolve(page, target):
    if target == "dead.md":
        raise pages.PageError("dead.md does not exist")
    return "to:" + target


def rendered(text):
    page = pages.Page("docs/a.md", "a.html", "# Title\n\n" + text, "Guides")
    pages.Renderer(resolve, lambda page, target: ("picture:" + target, 600),
                   lambda page, code: "names#" + code if code == "x:sum" else None,
                   lambda page: "playground/index.html").render(page)
    return page


class Pages(unittest.TestCase):
    def test_headings_get_the_anchors_of_github(self):
        page = rendered("## `x:sum`, and *more*\n\n## Größe (2 %)\n\n## Again\n\n## Again\n")
        self.assertEqual([name for _, _, name in page.outline], ["xsum-and-more", "größe-2-", "again", "again-1"])

    def test_a_block_carries_those_above_it_until_heed_is_required_again(self):
        page = rendered('```lua\nlocal heed = require "heed"\n```\n\n```lua\nprint(1)\n```\n\n```text\n1\n```\n\n'
                        '```lua\nlocal heed = require "heed" -- 2\n```\n')
        self.assertEqual(page.scripts, [('local heed = require "heed"\n', None),
                                        ('local heed = require "heed"\n\nprint(1)\n', "1\n"),
                                        ('local heed = require "heed" -- 2\n', None)])

    def test_a_block_of_the_reference_is_a_script_of_its_own(self):
        page = rendered("<!-- examples run after: local a = 1; local b = 2 -->\n\n"
                        "```lua\nprint(a)\n```\n\n```lua\nprint(b)\n```\n")
        self.assertEqual([script for script, _ in page.scripts], ["local a = 1\nlocal b = 2\n\nprint(a)\n",
                                                                 "local a = 1\nlocal b = 2\n\nprint(b)\n"])

    def test_blocks_that_cannot_run_in_a_browser_do_not_open_there(self):
        for text in ("<!-- not run: needs a model -->\n```lua\nprint(1)\n```\n",
                     "<!-- runs with a model -->\n\n```lua\nprint(1)\n```\n",
                     '```lua\nlocal m = load "tests/golden/m"\n```\n', "```lua\nio.popen('ls')\n```\n"):
            page = rendered(text)
            self.assertEqual(page.scripts, [])
            self.assertNotIn("playground", page.body)
            self.assertNotIn("not run", page.body)

    def test_a_link_to_the_playground_gives_the_script_back(self):
        script = 'print("ä → 𝄞 <&>")\n' * 3
        self.assertEqual(check.carried("index.html" + blocks.playground_fragment(script)), script)
        self.assertRegex(blocks.playground_fragment(script), r"^#lua=[A-Za-z0-9_-]+$")

    def test_output_stands_with_its_code_and_markup_in_code_stays_text(self):
        body = rendered("```lua\nprint '<b>'\n```\n\n```text\n<b>\n```\n").body
        self.assertIn("<samp>&lt;b&gt;\n</samp>", body)
        self.assertNotIn("<b>", body)

    def test_what_is_typed_at_the_prompt_is_told_from_what_it_shows(self):
        body = rendered("```prompt\n> 1 + 1\n2\n```\n").body
        self.assertIn('<span class="gp">&gt; </span>', body)
        self.assertIn('<span class="go">2</span>', body)

    def test_comments_vanish_and_other_markup_is_an_error(self):
        self.assertNotIn("rows run", rendered("<!-- rows run after: x -->\n\ntext <!-- so --> text\n").body)
        for text in ("<script>x</script>\n", "text <img src=x> text\n"):
            with self.assertRaises(pages.PageError):
                rendered(text)

    def test_dead_links_are_errors(self):
        with self.assertRaises(pages.PageError):
            rendered("[dead](dead.md)\n")

    def test_names_in_code_spans_link_but_not_in_headings_and_links(self):
        body = rendered("## `x:sum`\n\n`y = x:sum() + x:sum { dim = 1 }`, `y`, `xx:sum`, [`x:sum`](b.md)\n").body
        self.assertIn('<code>y = <a href="names#x:sum">x:sum</a>() + <a href="names#x:sum">x:sum</a> {', body)
        self.assertEqual(body.count("names#x:sum"), 2)

    def test_a_head_of_a_table_that_says_nothing_is_left_out(self):
        self.assertNotIn("<thead>", rendered("| | |\n| --- | --- |\n| a | b |\n").body)
        self.assertIn("<td></td>", rendered("| | x |\n| --- | --- |\n| a | b |\n").body)

    def test_the_description_is_the_first_sentence_and_is_not_too_long(self):
        self.assertEqual(rendered("![p](p.svg)\n\nIt is `so`.\n").description, "It is so.")
        self.assertLessEqual(len(rendered("word " * 100).description), 161)

    def test_every_kind_of_page_has_a_place(self):
        self.assertEqual([build.output_of(source) for source in (
            "README.md", "docs/a.md", "docs/reference/b.md", "scripts/examples/c/README.md", "src/heed.h")],
            ["readme.html", "a.html", "reference/b.html", "examples/c.html", "source/src/heed.h.html"])


if __name__ == "__main__":
    result = unittest.TextTestRunner().run(unittest.defaultTestLoader.loadTestsFromTestCase(Pages))
    bad = len(result.failures) + len(result.errors)
    print("%d passed, %d failed" % (result.testsRun - bad, bad))
    sys.exit(bad > 0)
