#!/usr/bin/env python3
"""Tests scripts/examples/recipes with nginx, haproxy, pandoc and texlua themselves, over the loopback interface and with
the tests' tiny encoder. A program that is missing fails its tests. Ends with "N passed, N failed".

    python3 scripts/dev/check_recipes.py BUILD JIT LUA53 [NAME...]    NAME: Nginx, Haproxy, Pandoc, Texlua

BUILD, JIT and LUA53 are folders with heed.so for Lua 5.4, LuaJIT and 5.3. BUILD/nginx/root has nginx's files, unpacked:
its module for Lua replaces the LuaJIT of other programs when it is installed.
"""
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

TOP = Path(__file__).resolve().parents[2]
RECIPES = TOP / "scripts/examples/recipes"
TINY = TOP / "tests/golden/tiny_bert"
LINES = TOP / "scripts/examples/lighttpd/lines.txt"
SECONDS = 60  # time limit of each step, also on a busy machine


def environment(**more):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LUA_", "HEED_"))}
    return {**kept, "HEED_MODEL": str(TINY), **more}


def by_command(code, *arguments):
    """What the command heed prints for a Lua chunk, which has the arguments as `...`."""
    return subprocess.run([BUILD / "heed", "-", *map(str, arguments)], input=code, check=True, env=environment(),
                          capture_output=True, text=True, timeout=SECONDS).stdout


class Recipe(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        os.chmod(folder.name, 0o755)


class Server(Recipe):
    def start(self, command, **more):
        self.log = self.folder / "log"
        with open(self.log, "w") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=environment(PORT=str(self.port), **more), stdout=log,
                                       stderr=log)
        self.process = process
        self.addCleanup(self.end, process)
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    self.fail("the server does not start:\n" + self.log.read_text())
                time.sleep(0.02)

    @staticmethod
    def end(process):
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()

    def free_port(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]

    def ask(self, target, body=None):
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request("POST" if body is not None else "GET", target, body)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(), answer.headers
        finally:
            connection.close()

    def first_ended(self, *requests):
        """The path of the request that the server answers first; it writes the path of each when it has ended. The
        server is stopped while they are sent, so that all have arrived when the first one is computed."""
        self.process.send_signal(signal.SIGSTOP)
        connections = []
        for method, target, body in requests:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
            self.addCleanup(connection.close)
            connection.request(method, target, body)
            connections.append(connection)
        self.process.send_signal(signal.SIGCONT)
        for connection in connections:
            answer = connection.getresponse()
            self.assertEqual((200, True), (answer.status, bool(answer.read())))
        deadline = time.monotonic() + SECONDS
        while True:
            ended = re.findall(r"^ended (\S+)$", self.ended.read_text(), re.MULTILINE)
            ended = [path for path in ended if any(path == target for _, target, _ in requests)]
            if len(ended) == len(requests):
                return ended[0]
            self.assertLess(time.monotonic(), deadline, ended)
            time.sleep(0.01)


class Nginx(Server):
    def begin(self, **more):
        self.free_port()
        root = BUILD / "nginx/root"
        modules = "".join(f"load_module {root}/usr/lib/nginx/modules/{name}.so;\n"
                          for name in ("ndk_http_module", "ngx_http_lua_module"))
        text = (RECIPES / "nginx.conf").read_text()
        text, found = re.subn(r"include /etc/nginx/modules-enabled/\S+;\n", modules, text)
        self.assertEqual(1, found)
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{self.port}")
        text = text.replace("nginx_similar.lua", str(RECIPES / "nginx_similar.lua"))
        text = text.replace("env HEED_LINES;", "env HEED_LINES; env HEED_SLICE;" + ("user root;" if os.getuid() == 0 else ""))
        for kind in "client_body", "proxy", "fastcgi", "uwsgi", "scgi":
            text = text.replace("access_log off;", f"access_log off;\n  {kind}_temp_path {self.folder}/{kind};")
        self.ended = self.folder / "ended"
        text = text.replace("access_log off;", f"log_format ended 'ended $request_uri';\n  access_log {self.ended} ended;")
        (self.folder / "nginx.conf").write_text(text)
        self.start([root / "usr/sbin/nginx", "-p", self.folder, "-c", self.folder / "nginx.conf", "-e", "stderr", "-g",
                    "daemon off; master_process off;"],
                   LUA_CPATH=f"{JIT}/?.so;;", LUA_PATH=f"{root}/usr/share/lua/5.1/?.lua;;",
                   LD_LIBRARY_PATH=f"{root}/usr/lib/{TRIPLET}", HEED_LINES=str(LINES), **more)

    def test_answers_with_the_lines_that_the_command_finds(self):
        self.begin()
        for text in "Is there a train to the sea?", "who pays for repairs", "Caf\u00e9 \u2615":
            status, body, headers = self.ask("/similar?text=" + quote(text))
            self.assertEqual(200, status, self.log.read_text())
            wanted = by_command("""
                local model = assert(require "heed".models.load(os.getenv "HEED_MODEL"))
                local path, text = ...
                local lines = {}
                for line in io.lines(path) do if line:find "%S" then lines[#lines + 1] = line end end
                local scores, order = model:encode(lines):matmul(model:encode({ text })[1]):topk(5)
                for i, at in ipairs(order:tolist()) do print(("%.3f  %s"):format(scores[i], lines[at])) end""",
                                LINES, text)
            self.assertEqual(wanted, body)
            self.assertEqual("text/plain; charset=utf-8", headers["Content-Type"])

    def test_says_what_is_wrong_with_a_request(self):
        self.begin()
        for target, words in [("/similar", "text is missing"), ("/similar?text", "text is missing"),
                              ("/similar?text=%20", "text is missing"), ("/similar?text=a&text=b", "text is missing"),
                              ("/similar?text=" + "x" * 2001, "text has 2001 bytes; it must have at most 2000"),
                              ("/similar?text=%ff", "UTF-8")]:
            status, body, _ = self.ask(target)
            self.assertEqual((400, True), (status, words in body), body)
        self.assertEqual(200, self.ask("/similar?text=a")[0])

    def test_serves_other_requests_between_slices(self):
        self.begin(HEED_SLICE="0")
        self.ask("/similar?text=a")  # loads
        long = ("GET", "/similar?text=" + quote("the sea " * 200), None)
        self.assertEqual("/ping", self.first_ended(long, ("GET", "/ping", None)))


class Haproxy(Server):
    def begin(self, examples=None, **more):
        self.free_port()
        path = self.folder / "examples.txt"
        path.write_text(examples or "spam: Buy cheap watches now\nspam: You have won a prize\n"
                                    "good: The meeting is at ten\ngood: Thank you for the report\n")
        text = (RECIPES / "haproxy.cfg").read_text()
        # One thread, which must serve both requests.
        text, found = re.subn("^global$", "global\n  nbthread 1\n  log stdout format raw daemon", text, flags=re.MULTILINE)
        self.assertEqual(1, found)
        text = text.replace("  mode http\n", '  mode http\n  log global\n  log-format "ended %HP"\n')
        (self.folder / "haproxy.cfg").write_text(text)
        self.start([HAPROXY, "-db", "-f", self.folder / "haproxy.cfg"], HEED_RECIPES=str(RECIPES), HEED_EXAMPLES=str(path),
                   LUA_CPATH=f"{LUA53}/?.so;;", **more)

    def test_refuses_what_is_nearer_to_spam(self):
        self.begin()
        for text in ["Buy cheap watches now", "You have won a prize", "The meeting is at ten", "Thank you for the report",
                     "the sea", "ten watches"]:
            score = float(by_command("""
                local model = assert(require "heed".models.load(os.getenv "HEED_MODEL"))
                local v = model:encode { ..., "Buy cheap watches now", "You have won a prize", "The meeting is at ten",
                  "Thank you for the report" }
                local s = v:matmul(v[1]):tolist()
                print(math.max(s[2], s[3]) - math.max(s[4], s[5]))""", text))
            status, body, headers = self.ask("/", text)
            self.assertEqual(403 if score > 0 else 200, status, body)
            found = headers["X-Spam"] if score > 0 else body.removeprefix("accepted ")
            self.assertAlmostEqual(score, float(found), delta=0.002)

    def test_refuses_what_is_not_text_and_accepts_what_is_empty(self):
        self.begin()
        self.assertEqual(403, self.ask("/", b"\xff\xfe")[0])
        self.assertEqual(200, self.ask("/", b"")[0])
        self.assertEqual(200, self.ask("/")[0])
        self.assertIn(self.ask("/", ("\u00e9" * 5000).encode())[0], (200, 403))

    def test_serves_other_requests_between_slices(self):
        self.begin(HEED_SLICE="0")
        self.ended = self.log
        self.assertEqual("/short", self.first_ended(("POST", "/long", "the sea " * 200), ("GET", "/short", None)))

    def test_says_what_its_file_lacks(self):
        path = self.folder / "examples.txt"
        path.write_text("spam: a\n")
        found = subprocess.run([HAPROXY, "-db", "-f", RECIPES / "haproxy.cfg"], capture_output=True, text=True,
                               timeout=SECONDS, env=environment(HEED_RECIPES=str(RECIPES), HEED_EXAMPLES=str(path),
                                                                PORT="1", LUA_CPATH=f"{LUA53}/?.so;;"))
        self.assertNotEqual(0, found.returncode)
        self.assertIn("HEED_EXAMPLES has no line that begins with 'good:'", found.stderr)


SECTIONS = {"rent": "The tenant pays rent on the first day.", "trains": "A train leaves for the sea.",
            "payment": "Rent is due each month.", "beach": "The sea is near."}


class Pandoc(Recipe):
    def pandoc(self, text, **more):
        return subprocess.run(["pandoc", "-L", RECIPES / "pandoc_related.lua", "-f", "markdown", "-t", "markdown"],
                              input=text, capture_output=True, text=True, timeout=SECONDS,
                              env=environment(LUA_CPATH=f"{LUA53}/?.so;;", **more))

    def test_relates_sections(self):
        text = "Before.\n\n" + "\n".join(f"# {name.title()}\n\n{words}\n" for name, words in SECTIONS.items())
        found = self.pandoc(text, HEED_RELATED="1")
        self.assertEqual(0, found.returncode, found.stderr)
        wanted = by_command("""
            local model = assert(require "heed".models.load(os.getenv "HEED_MODEL"))
            local v = model:encode { ... }
            local scores = v:matmul(v:transpose(1, 2))
            scores:diagonal():fill_(-2)
            for i = 1, #scores do print(scores[i]:argmax():item()) end""",
                            *(f"{name.title()}\n{words}" for name, words in SECTIONS.items()))
        names = list(SECTIONS)
        self.assertEqual([names[int(at) - 1] for at in wanted.split()],
                         re.findall(r"\*Related:\* \[\w+\]\(#(\w+)\)", found.stdout))
        self.assertTrue(found.stdout.startswith("Before.\n\n# Rent"), found.stdout)

    def test_leaves_short_documents_and_says_what_is_missing(self):
        self.assertEqual("# A\n\nb\n", self.pandoc("# A\n\nb\n").stdout)
        self.assertEqual("b\n", self.pandoc("b\n").stdout)
        found = self.pandoc("# A\n\n# B\n", HEED_MODEL="/nowhere")
        self.assertNotEqual(0, found.returncode)
        self.assertIn("/nowhere", found.stderr)


class Texlua(Recipe):
    def texlua(self, *arguments):
        return subprocess.run(["texlua", RECIPES / "texlua_repeats.lua", *map(str, arguments)], capture_output=True,
                              text=True, timeout=SECONDS, env=environment(HEED_CPATH=f"{LUA53}/?.so"), cwd=self.folder)

    def test_finds_paragraphs_that_repeat(self):
        path = self.folder / "my text.tex"
        path.write_text("\\section{Rent} % short\n\nThe tenant pays \\emph{rent} on the\nfirst day. % or later\n\n"
                        "A train leaves for the sea at noon, 10\\% full.\n\nThe tenant pays rent on the first day.\n")
        found = self.texlua(TINY, path, "-1")
        self.assertEqual(0, found.returncode, found.stderr)
        lines = found.stdout.splitlines()
        self.assertEqual((3, f"{path}:3: 1.00 like line 8"), (len(lines), lines[0]))
        self.assertEqual("", self.texlua(TINY, path, "1.1").stdout)

    def test_says_what_is_wrong(self):
        for arguments, code, words in [((), 2, "usage: texlua"), ((TINY,), 2, "usage: texlua"),
                                       ((TINY, "a.tex", "x"), 2, "usage: texlua"),
                                       ((TINY, "none.tex"), 1, "'none.tex' cannot be read"),
                                       (("nowhere", "none.tex"), 1, "nowhere")]:
            found = self.texlua(*arguments)
            self.assertEqual((code, True), (found.returncode, words in found.stderr), found.stderr)


if __name__ == "__main__":
    BUILD, JIT, LUA53 = (Path(path).resolve() for path in sys.argv[1:4])
    TRIPLET = subprocess.run(["cc", "-print-multiarch"], capture_output=True, text=True, check=True).stdout.strip()
    HAPROXY = shutil.which("haproxy") or "/usr/sbin/haproxy"
    os.environ.pop("LUA_PATH", None)
    os.environ.pop("LUA_CPATH", None)
    loader = unittest.TestLoader()
    module = sys.modules["__main__"]
    suite = loader.loadTestsFromNames(sys.argv[4:], module) if sys.argv[4:] else loader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    failed = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - failed} passed, {failed} failed")
    sys.exit(failed != 0 or result.testsRun == 0)
