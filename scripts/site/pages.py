"""Markdown pages as HTML: headings with GitHub's anchors, links between pages, blocks of code, parts for the search.

The rules for blocks of code are those of tests/pages.lua, which runs them: `text` below a block is its output, and a
Lua block continues those above it until one contains `require "heed"`.
"""
import html
import os
import re

from markdown_it import MarkdownIt

import blocks

NOT_RUN = re.compile(r"<!-- not run: .* -->")
COMMENTS = re.compile(r"\s*(<!--.*?-->\s*)*", re.S)
# Files to whose pages code spans and commands link.
SOURCES = re.compile(r"(?<![\w/])(?:scripts/(?:examples|notebooks)/\w+\.\w+|src/heed\.h)")
# Names in code spans: of such files; with dots or colons; or at the beginning.
NAMES = re.compile(SOURCES.pattern + r"|(?<![\w.:/\"'])[A-Za-z]\w*(?:[.:][A-Za-z]\w*)+|^[A-Za-z]\w*(?=$|[({ ])")
# Markup that pages may have; anything else is an error, so that nothing is shown by mistake.
MARKUP = re.compile(r'\s*(</?(a id="[^"]*"|a|br|sub|sup|kbd|details|summary)>\s*)+')


# Markdown's tables have a head even where it says nothing.
EMPTY_HEAD = re.compile(r"<thead>\s*<tr>\s*(<th[^>]*></th>\s*)+</tr>\s*</thead>\n")


class PageError(Exception):
    pass


def anchor(heading):
    """The name of a heading in links, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def plain(inline):
    """The text of an inline token without markup."""
    parts = []
    for token in inline.children or []:
        if token.type in ("text", "code_inline"):
            parts.append(token.content)
        elif token.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif token.type == "image":
            parts.append(token.content)
    return "".join(parts)


class Page:
    """source: path from the top folder; output: path in the site; text: its Markdown; group: of the navigation."""

    def __init__(self, source, output, text, group, nav_title=None):
        self.source, self.output, self.text, self.group = source, output, text, group
        self.nav_title = nav_title
        self.title = ""
        self.description = ""
        self.body = ""
        self.outline = []   # (level, text, anchor) of h2 and h3
        self.sections = []  # parts for the search: {anchor, title, text, code}
        found = re.search(r"^<!-- examples run after: (.*) -->$", text, re.M)
        # Code that runs before each block of Lua, which is then a script of its own.
        self.prelude = found[1].replace("; ", "\n") + "\n\n" if found else None
        self.scripts = []   # what the playground can run: (script, output of its last block or None)

    def title_in_navigation(self):
        return self.nav_title or self.title

    def read_title(self):
        """The first heading, which the navigation needs before pages are rendered."""
        found = re.search(r"^# +(.+)$", self.text, re.M)
        if not found:
            raise PageError("%s: a page needs a first heading, '# Title'" % self.source)
        self.title = plain(MarkdownIt("commonmark").parseInline(found[1])[0])


class Renderer:
    """Renders pages of a site. resolve(page, target) -> the relative address of a link, or raises PageError;
    picture(page, target) -> (address, width or None); name_link(page, code) -> the address of a function, or None;
    playground(page) -> the address of the playground, or None."""

    def __init__(self, resolve, picture, name_link, playground):
        self.resolve, self.picture, self.name_link, self.playground = resolve, picture, name_link, playground
        self.md = MarkdownIt("commonmark").enable(["table", "strikethrough"])

    def render(self, page):
        tokens = self.md.parse(page.text)
        out, anchors = [], {}
        section = None
        script, reason = "", False
        with_model = re.search(r"^<!-- runs with a model -->$", page.text, re.M) is not None
        i = 0
        while i < len(tokens):
            token = tokens[i]
            if token.type == "heading_open":
                inline = tokens[i + 1]
                title = plain(inline)
                name = anchor(title)
                count = anchors.get(name, 0)
                anchors[name] = count + 1
                name = "%s-%d" % (name, count) if count else name
                level = int(token.tag[1])
                if level in (2, 3):
                    page.outline.append((level, title, name))
                section = {"anchor": name if level > 1 else "", "title": title, "text": [], "code": []}
                page.sections.append(section)
                name, shown = html.escape(name), self._inline(page, inline, links=False)
                mark = '<a class="anchor" href="#%s" tabindex="-1" aria-hidden="true">#</a>' % name
                out.append('<%s id="%s">%s%s</%s>\n' % (token.tag, name, shown, mark, token.tag))
                i += 3
                continue
            if token.type == "fence":
                language = token.info.strip()
                below = next_block(tokens, i)
                output = below.content if below is not None and language != "text" else None
                address = None
                if language == "lua" and not reason:
                    if page.prelude:
                        script = page.prelude + token.content
                    elif 'require "heed"' in token.content:
                        script = token.content
                    else:
                        script += ("\n" if script else "") + token.content
                    if not with_model and blocks.runs_in_browser(script):
                        page.scripts.append((script, output_of(tokens, i)))
                        playground = self.playground(page)
                        address = playground and playground + blocks.playground_fragment(script)
                if section and language != "text":
                    section["code"].append(token.content)
                block = blocks.render(token.content, language, output, address)
                if language == "sh":
                    block = SOURCES.sub(lambda found: self._link(page, found[0]), block)
                out.append(block)
                reason = False
                i += 2 if output is not None else 1
                continue
            if token.type == "html_block":
                reason = NOT_RUN.search(token.content) is not None
                if not COMMENTS.fullmatch(token.content):
                    if not MARKUP.fullmatch(token.content):
                        raise PageError("%s: HTML is not shown: %s" % (page.source, token.content.strip()))
                    out.append(token.content)
                i += 1
                continue
            reason = False
            if token.type == "inline":
                text = plain(token)
                if section:
                    section["text"].append(text)
                if not page.description and tokens[i - 1].type == "paragraph_open" and not is_picture(token):
                    page.description = shortened(text, 160)
                out.append(self._inline(page, token))
            elif token.type == "table_open":
                out.append('<div class="wide"><table>\n')
            elif token.type == "table_close":
                out.append("</table></div>\n")
            else:
                out.append(self.md.renderer.renderToken(tokens, i, self.md.options, {}))
            i += 1
        page.body = EMPTY_HEAD.sub("", "".join(out)).replace("<th></th>", "<td></td>")
        page.description = page.description or page.title

    def _link(self, page, name):
        address = self.name_link(page, name)
        return '<a href="%s">%s</a>' % (html.escape(address), name) if address else name

    def _linked(self, page, code):
        """A code span whose names of functions and files are links."""
        parts, end = [], 0
        for found in NAMES.finditer(code):
            parts += [html.escape(code[end:found.start()]), self._link(page, found[0])]
            end = found.end()
        return "".join(parts) + html.escape(code[end:])

    def _inline(self, page, inline, links=True):
        out, inside = [], 0
        children = inline.children or []
        for i, token in enumerate(children):
            if token.type == "link_open":
                inside += 1
                target = token.attrGet("href")
                address = self.resolve(page, target)
                out.append('<a href="%s">' % html.escape(address) if links else "")
            elif token.type == "link_close":
                inside -= 1
                out.append("</a>" if links else "")
            elif token.type == "code_inline":
                can_link = links and not inside
                code = self._linked(page, token.content) if can_link else html.escape(token.content)
                out.append("<code>%s</code>" % code)
            elif token.type == "image":
                address, width = self.picture(page, token.attrGet("src"))
                size = ' style="min-width:%dpx"' % min(width, 560) if width and width > 400 else ""
                out.append('<span class="picture"><img src="%s" alt="%s"%s></span>' % (
                    html.escape(address), html.escape(token.content), size))
            elif token.type == "html_inline":
                if not COMMENTS.fullmatch(token.content):
                    if not MARKUP.fullmatch(token.content):
                        raise PageError("%s: HTML is not shown: %s" % (page.source, token.content))
                    out.append(token.content)
            else:
                out.append(self.md.renderer.render([token], self.md.options, {}) if token.type != "text"
                           else html.escape(token.content, quote=False))
        return "".join(out)


def is_picture(inline):
    return len(inline.children or []) == 1 and inline.children[0].type == "image"


def next_block(tokens, i):
    """The block of text that directly follows a fence, or None."""
    if i + 1 < len(tokens) and tokens[i + 1].type == "fence" and tokens[i + 1].info.strip() == "text" \
            and tokens[i + 1].level == tokens[i].level:
        return tokens[i + 1]
    return None


def output_of(tokens, i):
    """The output of a fence: the next block of code, if that is text; there may be words between them."""
    following = next((token for token in tokens[i + 1:] if token.type == "fence"), None)
    return following.content if following is not None and following.info.strip() == "text" else None


def shortened(text, most):
    text = re.sub(r"\s+", " ", text).strip()
    if len(text) <= most:
        return text
    return text[:most].rsplit(" ", 1)[0].rstrip(" ,;:.") + "…"


def joined(page_path, target):
    """A link's path seen from the top folder."""
    return os.path.normpath(os.path.join(os.path.dirname(page_path), target))
