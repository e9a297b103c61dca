"""Blocks of code as HTML: highlighted, with their output and a link that opens them in the playground."""
import base64
import html
import re

from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

LABELS = {
    "lua": "Lua", "prompt": "the prompt", "c": "C", "sh": "shell", "python": "Python", "cmake": "CMake",
    "meson": "Meson", "text": "output",
}
LEXERS = {"sh": "bash"}
_formatter = HtmlFormatter(nowrap=True)

# What a script in a browser cannot have: threads, other programs, ranks, and files that only the repository has but for
# the models of the playground.
NOT_IN_BROWSER = re.compile(
    r"""get_num_threads|heed\.distributed|heed\.parallel|heed_mpi|\bio\.popen|\bos\.execute|"""
    r"""["'](build/|tests/|docs/|scripts/(?!examples/(induction|names_llama)["']))""")


def _lexed(code, language):
    return highlight(code, get_lexer_by_name(LEXERS.get(language, language), stripnl=False), _formatter)


def _session(code):
    """A session of the prompt: lines that were typed follow "> " or ">> "."""
    lines = []
    for line in code.rstrip("\n").split("\n"):
        typed = re.match(r"(>>? )(.*)$", line)
        if typed:
            lines.append('<span class="gp">%s</span>%s' % (html.escape(typed[1]), _lexed(typed[2], "lua").rstrip("\n")))
        else:
            lines.append('<span class="go">%s</span>' % html.escape(line))
    return "\n".join(lines) + "\n"


def highlighted(code, language):
    if language == "prompt":
        return _session(code)
    if language in ("text", ""):
        return html.escape(code)
    return _lexed(code, language)


def playground_fragment(script):
    """The part of the playground's address that carries a script: base64url of its UTF-8 text."""
    return "#lua=" + base64.urlsafe_b64encode(script.encode()).decode().rstrip("=")


def runs_in_browser(script):
    return not NOT_IN_BROWSER.search(script)


def script_runs_in_browser(script):
    """Whether a whole example does: without arguments, and without files that only the repository has."""
    return runs_in_browser(script) and not re.search(r"\barg\b|\.\.\.\s*$|scripts/|load_|\.load\(", script)


def render(code, language, output=None, playground=None):
    """`playground` is the address that opens the block there, or None."""
    tools = '<a class="open" href="%s">Open in the playground</a>' % html.escape(playground) if playground else ""
    parts = [
        '<div class="code">',
        '<div class="bar"><span class="language">%s</span>%s</div>' % (LABELS.get(language, language), tools),
        '<pre><code>%s</code></pre>' % highlighted(code, language),
    ]
    if output is not None:
        parts.append('<div class="output"><div class="bar"><span class="language">output</span></div>'
                     '<pre><samp>%s</samp></pre></div>' % html.escape(output))
    parts.append("</div>\n")
    return "".join(parts)
