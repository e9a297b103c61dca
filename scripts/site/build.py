"""Makes the site: build.py OUTPUT [--reference FOLDER] [--playground FOLDER] [--minisearch FILE] [--scripts FILE]

Reads the Markdown pages of the top folder and those of the reference (what scripts/site/reference.lua writes, with
links as in a folder docs/reference), and writes static HTML with relative links.
Without the playground's folder no page links to it; without the search library pages have no search.
"""
import argparse
import glob
import gzip
import html
import json
import os
import re
import shutil
import sys

import blocks
import navigation
import pages
from pages import Page, PageError

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))
LANGUAGE_OF = {".lua": "lua", ".c": "c", ".h": "c", ".py": "python", ".sh": "sh"}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def filled(template, values):
    return re.sub(r"\{\{(\w+)\}\}", lambda found: values[found[1]], template)


def output_of(source):
    """docs/x.md -> x.html, scripts/examples/x/README.md -> examples/x.html, other files -> source/PATH.html"""
    found = re.fullmatch(r"docs/(.+)\.md", source) or re.fullmatch(r"(?!.*/)(.+)\.md", source)
    if found:
        return found[1].lower() + ".html"
    found = re.fullmatch(r"scripts/(examples/.+)/README\.md", source)
    return found[1] + ".html" if found else "source/" + source + ".html"


def relative(page_output, target):
    return os.path.relpath(target, os.path.dirname(page_output) or ".")


def path_of(entry):
    """The path of an entry of the navigation."""
    return entry if isinstance(entry, str) else entry[0]


def first_comment(path):
    """The comment that a source begins with, as text without blank lines and commands; "" if there is none."""
    lines = []
    for line in read(path).split("\n"):
        found = re.match(r"(?:--|//|#(?!!)|/?\*+/?)(?: (.*))?$", line.strip())
        if not found:
            if lines or not line.startswith("#!"):
                break
            continue
        if not found[1] and lines:
            break
        if found[1] and not line.startswith(("--  ", "//  ")):
            lines.append(found[1])
    return " ".join(lines)


def sizes(folder):
    plain = packed = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(where, name), "rb") as file:
                data = file.read()
            plain += len(data)
            packed += len(gzip.compress(data))
    return "%.1f MB, %.1f MB gzipped" % (plain / 1e6, packed / 1e6)


class Site:
    def __init__(self, options):
        self.options = options
        self.out = options.output
        self.pages = {}       # by source
        self.order = []       # pages in the navigation's order
        self.groups = []      # (name, pages)
        self.copied = {}      # files that pages refer to: source -> path in the site
        self.menu = {}        # examples of the playground's menu: source -> name
        self.names = {}       # function -> address in the site
        self.renderer = pages.Renderer(self.resolve, self.picture, self.name_link, self.playground)

    # ---- The list of pages ----------------------------------------------------------------------

    def add(self, source, text, group, nav_title=None):
        page = Page(source, output_of(source), text, group, nav_title)
        page.read_title()
        for other in self.pages.values():
            if other.output == page.output:
                raise PageError("%s and %s are both written to %s" % (other.source, source, page.output))
        self.pages[source] = page
        return page

    def collect(self):
        named = {path_of(entry) for _, group in navigation.GROUPS for entry in group}
        others = sorted(set(self.markdown_files()) - named)
        for name, entries in navigation.GROUPS:
            group = [self.add_file(entry, name) for entry in entries]
            if name == "Examples":
                group += [self.add_file(source, name) for source in others
                          if source.startswith(("docs/example-", "scripts/"))]
                group.append(self.add_scripts())
            elif name == "Guides":
                group += [self.add_file(source, name) for source in others
                          if source.startswith("docs/") and not source.startswith("docs/example-")]
            elif name == "Reference":
                group += self.add_reference()
            if group:
                self.groups.append((name, group))
                self.order += group

    def markdown_files(self):
        for pattern in ("*.md", "docs/*.md", "scripts/examples/*/README.md"):
            for path in glob.glob(os.path.join(TOP, pattern)):
                yield os.path.relpath(path, TOP)

    def add_file(self, entry, group):
        source, nav_title = path_of(entry), None if isinstance(entry, str) else entry[1]
        if not os.path.isfile(os.path.join(TOP, source)):
            raise PageError("navigation.py: %s does not exist" % source)
        return self.add(source, read(os.path.join(TOP, source)), group, nav_title)

    def add_scripts(self):
        """A page that lists the notebooks and examples, and a page with the source of each."""
        lines = ["# Sources of the examples", "", "The sources of the five notebooks and of the examples. "
                 "`build/heed FILE` runs a script; the small ones open in the playground, too.", ""]
        for title, folder in (("Notebooks", "scripts/notebooks"), ("Examples", "scripts/examples")):
            lines += ["## " + title, "", "| script | what it shows |", "| --- | --- |"]
            for path in sorted(glob.glob(os.path.join(TOP, folder, "*.*"))):
                source = os.path.relpath(path, TOP)
                about = pages.shortened(first_comment(path).split(". ")[0], 160).rstrip(".").replace("|", "\\|")
                lines.append("| [%s](../%s) | %s |" % (os.path.basename(path), source, about))
            lines.append("")
        return self.add("docs/scripts.md", "\n".join(lines), "Examples")

    def add_reference(self):
        folder = self.options.reference
        if not folder or not os.path.isdir(folder):
            return []
        index = read(os.path.join(folder, "index.md"))
        names = ["index.md"] + re.findall(r"^\| \[[^\]]*\]\(([\w-]+\.md)\)", index, re.M)
        lost = set(os.listdir(folder)) - set(names) - {"names.json"}
        if lost:
            raise PageError("reference/index.md does not list %s" % ", ".join(sorted(lost)))
        return [self.add("docs/reference/" + name, read(os.path.join(folder, name)), "Reference") for name in names]

    def source_page(self, source):
        """The page of a file of the repository that pages link to."""
        page = self.pages.get(source)
        if page:
            return page
        text = read(os.path.join(TOP, source))
        page = Page(source, output_of(source), text, "Examples" if source.startswith("scripts/") else "Reference")
        page.title = source
        about = first_comment(os.path.join(TOP, source))
        page.description = pages.shortened(about or source, 160)
        language = LANGUAGE_OF.get(os.path.splitext(source)[1], "text")
        address = None
        if source in self.menu:
            address = self.playground(page) and self.playground(page) + "#open=" + self.menu[source]
        elif re.fullmatch(r"scripts/examples/\w+\.lua", source) and blocks.script_runs_in_browser(text):
            page.scripts.append((text, None))
            address = self.playground(page)
            address = address and address + blocks.playground_fragment(text)
        page.body = "<h1>%s</h1>\n%s" % (html.escape(source), blocks.render(text, language, None, address))
        page.sections = [{"anchor": "", "title": source, "text": [about], "code": []}]
        self.pages[source] = page
        return page

    # ---- Links ----------------------------------------------------------------------------------

    def resolve(self, page, target):
        if re.match(r"[a-z]+:", target):
            return target
        path, _, name = target.partition("#")
        if not path:
            return target
        source = pages.joined(page.source, path)
        full = os.path.join(TOP, source)
        if source in self.pages or os.path.isfile(full):
            found = self.pages.get(source) or self.source_page(source)
            return relative(page.output, found.output) + ("#" + name if name else "")
        raise PageError("%s: %s does not exist" % (page.source, target))

    def picture(self, page, target):
        if re.match(r"[a-z]+:", target):
            raise PageError("%s: the picture %s is not local" % (page.source, target))
        source = pages.joined(page.source, target)
        full = os.path.join(TOP, source)
        if not os.path.isfile(full):
            raise PageError("%s: the picture %s does not exist" % (page.source, target))
        self.copied[source] = "pictures/" + re.sub(r"^docs/(images/)?", "", source)
        found = source.endswith(".svg") and re.search(r'<svg[^>]*\swidth="([\d.]+)"', read(full))
        return relative(page.output, self.copied[source]), found and int(float(found[1]))

    def playground(self, page):
        return relative(page.output, "playground/index.html") if self.options.playground else None

    def name_link(self, page, name):
        """The address of what a name in code stands for: a function, as heed.randn or x:sum, or a file; or None."""
        if pages.SOURCES.fullmatch(name):
            there = os.path.isfile(os.path.join(TOP, name))
            return relative(page.output, self.source_page(name).output) if there else None
        # Other names that stand alone are words and arguments as well.
        target = self.names.get(name) or "_" in name and self.names.get("heed." + name)
        if not target or target.split("#")[0] == page.output:
            return None
        return relative(page.output, target.split("#")[0]) + "#" + target.split("#")[1]

    def read_names(self):
        path = os.path.join(self.options.reference or "", "names.json")
        if os.path.isfile(path):
            self.names = {name: "reference/" + target.replace(".md", ".html", 1)
                          for name, target in json.loads(read(path)).items()}

    def read_menu(self):
        path = os.path.join(TOP, "scripts/playground/contents.json")
        if self.options.playground and os.path.isfile(path):
            self.menu = {entry["file"]: entry["id"] for group in json.loads(read(path)) for entry in group["entries"]}

    # ---- Writing --------------------------------------------------------------------------------

    def navigation_for(self, page):
        parts = []
        for name, group in self.groups:
            is_open = " open" if name == (page.group if page else "Start") else ""
            parts.append("<details%s><summary>%s</summary><ul>" % (is_open, name))
            for other in group:
                here = ' aria-current="page"' if other is page else ""
                parts.append('<li><a href="%s"%s>%s</a></li>' % (
                    relative(page.output if page else "index.html", other.output), here,
                    html.escape(other.title_in_navigation())))
            parts.append("</ul></details>")
        return "".join(parts)

    def outline_of(self, page):
        if len(page.outline) < 2:
            return ""
        items = "".join('<li class="level%d"><a href="#%s">%s</a></li>' % (level, html.escape(name), html.escape(text))
                        for level, text, name in page.outline)
        return '<nav class="outline" aria-label="On this page"><details><summary>On this page</summary>' \
               '<ul>%s</ul></details></nav>' % items

    def neighbours(self, page):
        if page not in self.order:
            return ""
        at = self.order.index(page)
        parts = []
        for step, word, kind in ((-1, "Previous", "prev"), (1, "Next", "next")):
            if 0 <= at + step < len(self.order):
                other = self.order[at + step]
                parts.append('<a rel="%s" href="%s"><span>%s</span> %s</a>' % (
                    kind, relative(page.output, other.output), word, html.escape(other.title_in_navigation())))
        return '<nav class="neighbours" aria-label="Previous and next page">%s</nav>' % "".join(parts)

    def write(self, output, text):
        path = os.path.join(self.out, output)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def write_page(self, output, title, description, body, page=None, kind="page"):
        root = relative(output, ".")
        playground = relative(output, "playground/index.html") if self.options.playground else None
        self.write(output, filled(self.template, {
            "title": html.escape(title), "description": html.escape(description), "root": root, "kind": kind,
            "search": "" if self.options.minisearch else " data-nosearch",
            "playground": '<a href="%s">Playground</a>' % playground if playground else "",
            "navigation": self.navigation_for(page), "outline": self.outline_of(page) if page else "",
            "body": body, "neighbours": self.neighbours(page) if page else "",
        }))

    def start_page(self):
        """The page of its own: its text in start.html, and the first example of the README with its output."""
        readme = self.pages["README.md"]
        tokens = self.renderer.md.parse(readme.text)
        at = next(i for i, token in enumerate(tokens) if token.type == "fence" and token.info == "lua")
        printed = next(token for token in tokens[at:] if token.type == "fence" and token.info == "text")
        start = Page("index.html", "index.html", "", "")
        address = self.playground(start)
        example = blocks.render(tokens[at].content, "lua", printed.content,
                                address and address + blocks.playground_fragment(tokens[at].content))
        body = filled(read(os.path.join(HERE, "start.html")), {
            "example": example,
            "try": '<a class="button" href="%s">Try it in the browser</a>' % address if address else "",
        })
        body = re.sub(r'(href)="([^"#]+\.md)(#[^"]*)?"', lambda found: 'href="%s%s"' % (
            html.escape(self.resolve(start, found[2])), found[3] or ""), body)
        body = re.sub(r'src="([^"]+)"', lambda found: 'src="%s"' % self.picture(start, found[1])[0], body)
        self.write_page("index.html", "heed: attention for Lua scripts and C hosts",
                        "Tensors and attention modules with PyTorch's names, numbers and printed text, in one small C "
                        "library, scripted from Lua.", body, kind="start")

    def search_index(self):
        entries = []
        for page in self.pages.values():
            weight = navigation.SEARCH_WEIGHTS.get(page.source, 1)
            for section in page.sections:
                entries.append({
                    "url": page.output + ("#" + section["anchor"] if section["anchor"] else ""),
                    "title": section["title"], "page": page.title, "group": page.group, "weight": weight,
                    "text": re.sub(r"\s+", " ", " ".join(section["text"])).strip(),
                    "code": " ".join(sorted(set(re.findall(r"[A-Za-z_][\w.]*\w", " ".join(section["code"]))))),
                })
        return entries

    def copy_playground(self):
        """The playground, with a way back to the site."""
        shutil.copytree(self.options.playground, os.path.join(self.out, "playground"),
                        ignore=shutil.ignore_patterns("*.wasm", "*.gz"))  # its page has them as text
        page = read(os.path.join(self.options.playground, "index.html"))
        heading, linked = "<h1>heed ", '<h1><a href="../index.html" style="color:inherit">heed</a> '
        if page.count(heading) != 1:
            raise PageError("the playground's page needs a heading '%s…'" % heading)
        self.write("playground/index.html", page.replace(heading, linked))

    def build(self):
        shutil.rmtree(self.out, ignore_errors=True)
        self.template = read(os.path.join(HERE, "template.html"))
        self.read_names()
        self.read_menu()
        self.collect()
        for page in self.order:
            self.renderer.render(page)
        self.start_page()
        for page in list(self.pages.values()):
            title = page.title + (" · reference" if page.group == "Reference" and page in self.order else "")
            title = title if title.startswith("heed") else title + " · heed"
            self.write_page(page.output, title, page.description, page.body, page)
        for name in ("style.css", "site.js"):
            shutil.copy(os.path.join(HERE, name), os.path.join(self.out, name))
        for source, output in self.copied.items():
            os.makedirs(os.path.dirname(os.path.join(self.out, output)), exist_ok=True)
            shutil.copy(os.path.join(TOP, source), os.path.join(self.out, output))
        if self.options.minisearch:
            library = re.sub(r"\n//# sourceMappingURL=.*", "", read(self.options.minisearch))
            self.write("minisearch.js", library)
            self.write("search-index.js", "heedSearchIndex = %s;\n" % json.dumps(
                self.search_index(), ensure_ascii=False, separators=(",", ":")))
        if self.options.playground:
            self.copy_playground()
        if self.options.scripts:
            with open(self.options.scripts, "w", encoding="utf-8") as file:
                json.dump([{"page": page.output, "script": script, "output": output}
                           for page in self.pages.values() for script, output in page.scripts], file)
        print("%s: %d pages, %d scripts for the playground; %s" % (
            self.out, len(self.pages) + 1, sum(len(page.scripts) for page in self.pages.values()), sizes(self.out)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--reference")
    parser.add_argument("--playground")
    parser.add_argument("--minisearch")
    parser.add_argument("--scripts", help="gets the scripts that open in the playground, for the tests")
    try:
        Site(parser.parse_args()).build()
    except PageError as error:
        sys.exit("build.py: %s" % error)


if __name__ == "__main__":
    main()
