"""Checks a site without a browser: check.py SITE [SCRIPTS HEED], where SCRIPTS is what build.py --scripts wrote.

Links and anchors, headings, titles, pictures, requests, and that what opens in the playground prints what the page
shows. Names each check that fails, and ends with "N passed, N failed".
"""
import base64
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from urllib.parse import unquote

from navigation import SEARCH_WEIGHTS

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Document(HTMLParser):
    """What one page has: ids, links (address, class), loaded files, pictures, headings, and unbalanced elements."""

    def __init__(self, path):
        super().__init__(convert_charrefs=True)
        self.ids, self.links, self.loaded, self.headings = [], [], [], []
        self.title, self.description, self.language, self.problems = "", None, None, []
        self.stack = []
        with open(path, encoding="utf-8") as file:
            self.feed(file.read())
        self.close()
        if self.stack:
            self.problems.append("not closed: %s" % self.stack)

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        if tag not in VOID:
            self.stack.append(tag)
        if "id" in a:
            self.ids.append(a["id"])
        if tag == "a" and "href" in a:
            self.links.append((a["href"], a.get("class", "")))
        if tag in ("img", "script", "iframe", "source", "audio", "video") and "src" in a:
            self.loaded.append(a["src"])
        if tag == "link":
            self.loaded.append(a["href"])
        if tag == "img" and not a.get("alt"):
            self.problems.append("a picture without a text: %s" % a.get("src"))
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self.headings.append(int(tag[1]))
        if tag == "html":
            self.language = a.get("lang")
        if tag == "meta" and a.get("name") == "description":
            self.description = a.get("content")

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        if not self.stack or self.stack.pop() != tag:
            self.problems.append("</%s> at line %d closes another element" % (tag, self.getpos()[0]))

    def handle_data(self, data):
        if self.stack and self.stack[-1] == "title":
            self.title += data

    def handle_comment(self, data):
        self.problems.append("a comment: %s" % data.strip())


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, problems):
        problems = list(problems)
        if problems:
            self.failed += 1
            print("FAILED: %s\n  %s" % (name, "\n  ".join(problems[:30])))
        else:
            self.passed += 1


def read_site(folder):
    """The pages of the site, by path; those of the playground are tested with it."""
    documents = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.relpath(os.path.join(where, name), folder)
            if name.endswith(".html") and not path.startswith("playground/"):
                documents[path] = Document(os.path.join(folder, path))
    return documents


def target_of(page, address):
    path, _, anchor = address.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(page), unquote(path))) if path else page
    return path, unquote(anchor)


def is_external(address):
    return address.startswith(("https://", "http://", "mailto:"))


def dead_links(folder, documents):
    for page, document in documents.items():
        for address, _ in document.links:
            if is_external(address):
                continue
            path, anchor = target_of(page, address)
            if not os.path.isfile(os.path.join(folder, path)):
                yield "%s: %s: there is no such file" % (page, address)
            elif anchor and path in documents and anchor not in documents[path].ids:
                yield "%s: %s: there is no such anchor" % (page, address)


def unreached(documents):
    reached, queue = {"index.html"}, ["index.html"]
    while queue:
        page = queue.pop()
        for address, _ in documents[page].links:
            path = target_of(page, address)[0]
            if not is_external(address) and path in documents and path not in reached:
                reached.add(path)
                queue.append(path)
    return sorted(set(documents) - reached)


def loaded_from_elsewhere(folder, documents):
    for page, document in documents.items():
        for address in document.loaded:
            if address.startswith("data:"):
                continue
            if is_external(address) or address.startswith(("/", "file:")):
                yield "%s loads %s" % (page, address)
            elif not os.path.isfile(os.path.join(folder, target_of(page, address)[0])):
                yield "%s loads %s, which is not there" % (page, address)


def heading_order(documents):
    for page, document in documents.items():
        if document.headings.count(1) != 1 or document.headings[0] != 1:
            yield "%s: headings of level 1: %d; it must be the first one alone" % (page, document.headings.count(1))
        for before, after in zip(document.headings, document.headings[1:]):
            if after > before + 1:
                yield "%s: a heading of level %d follows one of level %d" % (page, after, before)


def without_reference(documents):
    """Guides whose code spans name no function of the reference, though all but a few do."""
    guides = [page for page in documents if "/" not in page]
    return [page for page in guides if not any(target_of(page, address)[0].startswith("reference/") and "#" in address
                                               for address, _ in documents[page].links)]


def repeated(names):
    return [name for name, count in collections.Counter(names).items() if count > 1]


def carried(address):
    """The script in a link to the playground."""
    text = address.split("#lua=", 1)[1]
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()


def check_playground_links(checks, documents, scripts):
    wanted = collections.Counter((script["page"], script["script"]) for script in scripts)
    found = collections.Counter()
    for page, document in documents.items():
        for address, kind in document.links:
            if kind == "open" and "#lua=" in address and page != "index.html":
                found[page, carried(address)] += 1
    if found:  # the site links to the playground
        checks.check("links to the playground carry the scripts of their page",
                     (str(page) for (page, _) in (wanted - found) + (found - wanted)))


def normal(output):
    """Without what depends on the script's name, and without the line end that a page shows in any case."""
    return re.sub(r"\S+:\d+: ", "", output).rstrip()


def check_scripts(checks, scripts, heed):
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(TOP, "scripts"), os.path.join(folder, "scripts"))
        for i, script in list(enumerate(scripts))[::6 if os.environ.get("QUICK") else 1]:
            path = os.path.join(folder, "script.lua")
            with open(path, "w", encoding="utf-8") as file:
                file.write(script["script"])
            run = subprocess.run([os.path.abspath(heed), path], cwd=folder, capture_output=True, text=True, timeout=300)
            if run.returncode != 0 or run.stderr or not normal(run.stdout).endswith(normal(script["output"] or "")):
                what = run.stderr or "prints " + run.stdout[-400:]
                problems.append("%s, script %d: %s" % (script["page"], i + 1, what))
    checks.check("scripts that open in the playground print what their page shows", problems)


def main():
    folder = sys.argv[1]
    checks = Checks()
    documents = read_site(folder)
    checks.check("no dead links", dead_links(folder, documents))
    checks.check("every page is reached from the first", unreached(documents))
    checks.check("files are local", loaded_from_elsewhere(folder, documents))
    checks.check("each page has one first heading, and no level is left out", heading_order(documents))
    checks.check("elements are balanced, pictures have texts, and no comments are left",
                 ("%s: %s" % (page, problem) for page, document in documents.items() for problem in document.problems))
    checks.check("ids are unique", ("%s: %s" % (page, name) for page, document in documents.items()
                                    for name in repeated(document.ids)))
    checks.check("each page has a language, a title and a description",
                 (page for page, document in documents.items()
                  if document.language != "en" or not document.title.strip() or not document.description))
    checks.check("navigation.py weights pages that exist", (
        path for path in SEARCH_WEIGHTS
        if not path.startswith("docs/reference/") and not os.path.isfile(os.path.join(TOP, path))))
    few = without_reference(documents)
    checks.check("functions in pages link to the reference", few if len(few) > len(documents) / 4 else [])
    checks.check("titles are unique", repeated(document.title for document in documents.values()))
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="utf-8") as file:
            scripts = json.load(file)
        checks.check("there are scripts for the playground", [] if scripts else ["none"])
        check_playground_links(checks, documents, scripts)
        if len(sys.argv) > 3:
            check_scripts(checks, scripts, sys.argv[3])
    print("%d passed, %d failed" % (checks.passed, checks.failed))
    sys.exit(checks.failed > 0)


if __name__ == "__main__":
    main()
