#!/usr/bin/env python3
"""Tests scripts/examples/lighttpd/ with lighttpd itself, over the loopback interface, with the tests' tiny encoder and,
if it was downloaded, with all-MiniLM-L6-v2. Ends with "N passed, N failed".

    python3 scripts/dev/check_lighttpd.py BUILD
"""
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import quote

TOP = Path(__file__).resolve().parents[2]
EXAMPLE = TOP / "scripts/examples/lighttpd"
TINY = TOP / "tests/golden/tiny_bert"
SECONDS = 60  # time limit of each step, also on a busy machine

TEXTS = ["Is there a train to the sea?", "who pays for repairs", "Caf\u00e9 \u2615 & cr\u00e8me br\u00fbl\u00e9e, s'il vous pla\u00eet",
         '"quoted" \\ back\\slash', "a\tb\r\nc\x01\x7f", "\u0000 a zero byte", "\u65e5\u672c\u8a9e", "\U0001f600", "100% of 1 + 1",
         "x" * 2000, "<script>alert(1)</script>", "?a=b&c#d"]


class Server:
    def __init__(self, folder, model=TINY, lines=EXAMPLE / "lines.txt", workers=0, example=EXAMPLE,
                 chat_model=TINY):
        self.log = Path(folder, "log")
        with socket.socket() as probe:  # finds a free port
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("LUA_", "HEED_"))}
        environment.update(PORT=str(self.port), WORKERS=str(workers), HEED_MODEL=str(model), HEED_LINES=str(lines),
                           HEED_CHAT_MODEL=str(chat_model), LUA_CPATH=f"{BUILD}/?.so;;", OPENBLAS_NUM_THREADS="1")
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([LIGHTTPD, "-D", "-f", str(Path(example, "lighttpd.conf"))], cwd="/",
                                            env=environment, stdout=log, stderr=log,
                                            start_new_session=True)  # it signals its whole process group
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.kill()
                    raise RuntimeError("lighttpd does not start:\n" + self.log.read_text()) from None
                time.sleep(0.02)

    def ask(self, target, method="GET", body=None):
        """(status, headers, body) of a request to a path with its query."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
        try:
            connection.request(method, target, body)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def similar(self, text):
        return self.ask("/similar?text=" + quote(text, safe=""))

    def ask_at_once(self, texts):
        """The answers to all texts, requested at the same time, each on a connection of its own."""
        answers, start = [None] * len(texts), threading.Barrier(len(texts))

        def ask(at):
            start.wait(SECONDS)
            try:
                answers[at] = self.similar(texts[at])
            except OSError as problem:
                answers[at] = (repr(problem), None, None)

        threads = [threading.Thread(target=ask, args=[at]) for at in range(len(texts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return answers

    def workers(self):
        """The processes that answer requests: the children, or the server itself if it has none."""
        main = self.process.pid
        return [int(pid) for pid in Path(f"/proc/{main}/task/{main}/children").read_text().split()] or [main]

    def loads(self):
        return len(re.findall(r"\d+ lines of '.*' read", self.log.read_text()))

    def stop(self, number=signal.SIGTERM):
        """Whether the server and all its workers exit. (lighttpd exits with 1 if a connection was open at SIGTERM.)"""
        workers = self.workers()
        self.process.send_signal(number)
        fine = self.process.wait(SECONDS) in (0, 1)
        deadline = time.monotonic() + SECONDS
        while any(self.is_running(pid) for pid in workers) and time.monotonic() < deadline:
            time.sleep(0.02)
        return fine and not any(self.is_running(pid) for pid in workers)

    @staticmethod
    def is_running(pid):
        try:
            return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def kill(self):
        if self.process.poll() is None:
            for pid in {*self.workers(), self.process.pid}:
                os.kill(pid, signal.SIGKILL)
        self.process.wait(SECONDS)


def nearest_by_command(model, lines, text):
    """The result of search.lua, run by the command heed: [(score with three digits, line), …], best first."""
    found = subprocess.run([BUILD / "heed", TOP / "scripts/examples/search.lua", text, lines], check=True,
                           env={**os.environ, "HEED_MODEL": str(model)}, capture_output=True, text=True).stdout
    return re.findall(r"^ *(-?\d\.\d{3})  [^:]*:(\d+): ", found, re.MULTILINE)


class Lighttpd(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    @contextmanager
    def server(self, **settings):
        server = Server(self.folder.name, **settings)
        try:
            yield server
        except BaseException:
            print(server.log.read_text(), file=sys.stderr)
            raise
        finally:
            server.kill()

    def expect_answer(self, answer, text, lines):
        status, headers, body = answer
        self.assertEqual(200, status, body)
        self.assertEqual("application/json", headers["Content-Type"])
        found = json.loads(body)
        self.assertEqual(text, found["text"])
        self.assertEqual([lines[at["line"] - 1] for at in found["nearest"]], [at["text"] for at in found["nearest"]])
        scores = [at["score"] for at in found["nearest"]]
        self.assertEqual(sorted(scores, reverse=True), scores)
        return [(f"{at['score']:.3f}", str(at["line"])) for at in found["nearest"]]

    def expect_error(self, answer, status, words):
        self.assertEqual(status, answer[0], answer[2])
        self.assertEqual("application/json", answer[1]["Content-Type"])
        message = json.loads(answer[2])
        self.assertEqual(["error"], list(message))
        self.assertIn(words, message["error"])

    def check_answers(self, model):
        lines = (EXAMPLE / "lines.txt").read_text().splitlines()
        with self.server(model=model) as server:
            for text in TEXTS:
                found = self.expect_answer(server.similar(text), text, lines)
                if "\0" not in text:  # a command's argument cannot contain it
                    wanted = nearest_by_command(model, EXAMPLE / "lines.txt", text)
                    self.assertEqual(5, len(wanted))
                    self.assertEqual(wanted, found)
            self.assertEqual(1, server.loads())

    def check_at_once(self, model, workers):
        texts = [f"{TEXTS[i % len(TEXTS)][:50]} {i}" for i in range(200)]
        with self.server(model=model, workers=workers) as server:
            one_by_one = [server.similar(text) for text in texts[:100]]
            self.assertEqual({200}, {status for status, _, _ in one_by_one})
            at_once = server.ask_at_once(texts)
            self.assertEqual([200] * 200, [status for status, _, _ in at_once])
            for text, answer in zip(texts, at_once):
                self.assertEqual(text, json.loads(answer[2])["text"])
            one_by_one += [server.similar(text) for text in texts[100:]]
            self.assertEqual([body for _, _, body in one_by_one], [body for _, _, body in at_once])
            self.assertEqual(max(workers, 1), len(server.workers()))
            self.assertIn(server.loads(), range(1, max(workers, 1) + 1))
            for pid in server.workers():
                self.assertEqual(1, len(os.listdir(f"/proc/{pid}/task")), "threads")
            self.assertTrue(server.stop())

    def test_answers_with_the_lines_that_the_command_finds(self):
        self.check_answers(TINY)

    def test_200_requests_at_once_get_the_same_answers_as_one_by_one(self):
        self.check_at_once(TINY, 0)

    def test_200_requests_at_once_with_two_workers(self):
        self.check_at_once(TINY, 2)

    def test_reports_what_is_wrong_with_a_request(self):
        with self.server() as server:
            for target, status, words in [
                    ("/similar", 400, "text is missing"), ("/similar?", 400, "text is missing"),
                    ("/similar?texts=a", 400, "text is missing"), ("/similar?text", 400, "text is empty"),
                    ("/similar?text=", 400, "text is empty"), ("/similar?text=%20+%0a", 400, "text is empty"),
                    ("/similar?text=" + "x" * 2001, 400, "text has 2001 bytes; 2000 are the most"),
                    ("/similar?text=%ff", 400, "text is not valid UTF-8 at byte 1"),
                    ("/similar?text=a%c3", 400, "text is not valid UTF-8 at byte 2"),
                    ("/similar?text=%ed%a0%80", 400, "text is not valid UTF-8 at byte 1"),  # half of a surrogate pair
                    ("/similar?text=%c0%80", 400, "text is not valid UTF-8 at byte 1"),  # not the shortest encoding
                    ("/similar?text=ab%zz", 400, "byte 3 of text is not a valid escape"),
                    ("/similar?text=%", 400, "byte 1 of text is not a valid escape"),
                    ("/similar?text=%4", 400, "byte 1 of text is not a valid escape"),
                    ("/similar?text=%25%2", 400, "byte 4 of text is not a valid escape"),
                    ("/similar?text=a&text=b", 400, "text is given twice"),
                    ("/", 404, "there is only /similar here"), ("/similar.lua", 404, "there is only /similar here"),
                    ("/similar/?text=a", 404, "there is only /similar here")]:
                with self.subTest(target[:40]):
                    self.expect_error(server.ask(target), status, words)
            for method in "POST", "PUT", "DELETE":
                answer = server.ask("/similar?text=a", method, "text=b")
                self.expect_error(answer, 405, "the method must be GET, and was " + method)
                self.assertEqual("GET, HEAD", answer[1]["Allow"])
            self.assertEqual((200, b""), server.ask("/similar?text=a", "HEAD")[::2])
            self.assertEqual(200, server.ask("/similar?other=1&text=a+b&=&")[0])
            self.assertNotIn("traceback", server.log.read_text())

    def test_continues_after_its_own_errors(self):
        model = Path(self.folder.name, "model")
        with self.server(model=model) as server:
            for _ in range(3):
                self.expect_error(server.similar("a"), 500, "the server's log says what")
            self.assertIn(f"'{model}'", server.log.read_text())
            self.assertIn("stack traceback", server.log.read_text())
            self.expect_error(server.ask("/similar"), 400, "text is missing")
            shutil.copytree(TINY, model)
            self.assertEqual(200, server.similar("a")[0])
            self.assertTrue(server.stop())

    def chat_model(self):
        model = Path(self.folder.name, "chat model")
        model.mkdir()
        subprocess.run([BUILD / "heed", "-e", f'require("tests.byte_chat").write("{model}", 1024)'], check=True, cwd=TOP,
                       env={**os.environ, "LUA_PATH": "?.lua;;"})
        return model

    def hear(self, server, target):
        """The chat and the whole text of its answer."""
        pieces = []
        while True:
            status, _, body = server.ask(target)
            self.assertEqual(200, status, body)
            answer = json.loads(body)
            self.assertEqual(["chat", "text", "done"], list(answer))
            pieces.append(answer["text"])
            if answer["done"]:
                return answer["chat"], "".join(pieces)
            target = "/chat?chat=" + answer["chat"]

    def test_chats_in_slices(self):
        with self.server(chat_model=self.chat_model()) as server:
            chat, text = self.hear(server, "/chat?text=Hello")
            self.assertRegex(chat, "^[0-9a-f]{32}$")
            self.assertEqual((chat, ""), self.hear(server, "/chat?chat=" + chat))  # all was said
            other, _ = self.hear(server, "/chat?text=Hello")
            self.assertNotEqual(chat, other)
            self.assertEqual(chat, self.hear(server, f"/chat?text=again&chat={chat}")[0])
            for target, status, words in [
                    ("/chat", 400, "text is missing"), ("/chat?text=%ff", 400, "text is not valid UTF-8"),
                    ("/chat?text=", 400, "text is empty"), ("/chat?chat=%4", 400, "byte 1 of chat is not a valid escape"),
                    ("/chat?chat=1&chat=2", 400, "chat is given twice"), ("/chat?chat=1", 404, "there is no such chat"),
                    ("/chat?chat=1&text=a", 404, "there is no such chat"),
                    ("/chat?text=" + "x" * 1000, 409, "tokens, and an answer up to 200; begin a new one")]:
                with self.subTest(target[:40]):
                    self.expect_error(server.ask(target), status, words)
            self.expect_error(server.ask("/chat?text=a", "POST", "text=b"), 405, "the method must be GET")
            self.assertNotIn("traceback", server.log.read_text())
            self.assertEqual(200, server.similar("a")[0])

    def test_bounds_the_number_of_chats(self):
        model, example = self.chat_model(), Path(self.folder.name, "an example")
        with self.server(chat_model=model) as server:
            chats = {json.loads(server.ask("/chat?text=a")[2])["chat"] for _ in range(16)}
            self.assertEqual(16, len(chats))
            self.expect_error(server.ask("/chat?text=a"), 409, "too many chats; try again later")
            self.assertIn(self.hear(server, "/chat?chat=" + min(chats))[0], chats)
        shutil.copytree(EXAMPLE, example)
        script = example / "chats.lua"
        script.write_text(script.read_text().replace("MOST, IDLE = 16, 300", "MOST, IDLE = 2, 0"))
        with self.server(chat_model=model, example=example) as server:
            first, _ = self.hear(server, "/chat?text=a")
            self.hear(server, "/chat?text=a")  # the first has been idle for more than 0 seconds
            self.expect_error(server.ask("/chat?chat=" + first), 404, "there is no such chat")

    def test_needs_a_chat_model(self):
        with self.server() as server:
            self.expect_error(server.ask("/chat?text=a"), 500, "the server's log says what")
            self.assertIn("has no chat template", server.log.read_text())

    def test_skips_lines_that_are_not_text(self):
        lines = Path(self.folder.name, "my lines.txt")
        lines.write_bytes(b'\xff\n\n  \n"a"\tb\\\x01\nlast')
        with self.server(lines=lines) as server:
            found = json.loads(server.similar("a")[2])["nearest"]
            self.assertEqual({4: '"a"\tb\\\x01', 5: "last"}, {at["line"]: at["text"] for at in found})
            self.assertIn("line 1 of", server.log.read_text())
        lines.write_bytes(b"\n")
        with self.server(lines=lines) as server:
            self.expect_error(server.similar("a"), 500, "the server's log says what")
            self.assertIn("has no lines with text", server.log.read_text())

    def test_keeps_the_model_when_the_script_changes(self):
        example = Path(self.folder.name, "an example")
        shutil.copytree(EXAMPLE, example)
        with self.server(example=example) as server:
            before = server.similar("a")[2]
            script = example / "similar.lua"
            script.write_text(script.read_text().replace('"nearest"', '"closest"'))
            deadline = time.monotonic() + SECONDS  # lighttpd checks files every two seconds
            while server.similar("a")[2] == before and time.monotonic() < deadline:
                time.sleep(0.1)
            self.assertEqual(before.replace(b"nearest", b"closest"), server.similar("a")[2])
            self.assertEqual(1, server.loads())

    def test_does_not_grow(self):
        def memory():
            status = Path(f"/proc/{server.workers()[0]}/status").read_text()
            return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1])

        with self.server() as server:
            connection = HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
            for i in range(2000):
                connection.request("GET", f"/similar?text=request+{i}")
                self.assertEqual(200, self.read(connection))
                if i == 500:
                    before = memory()
            connection.close()
            self.assertLess(memory() - before, 2048, "KiB more than after 500 requests")

    @staticmethod
    def read(connection):
        answer = connection.getresponse()
        answer.read()
        return answer.status

    def test_restarts_when_asked_and_stops_when_asked(self):
        with self.server() as server:
            before = server.similar("a")[2]
            server.process.send_signal(signal.SIGUSR1)  # a graceful restart, with new Lua states
            deadline = time.monotonic() + SECONDS
            while server.loads() < 2 and time.monotonic() < deadline:
                try:
                    server.similar("a")
                except OSError:
                    time.sleep(0.05)
            self.assertEqual(before, server.similar("a")[2])
            self.assertEqual(2, server.loads())
            self.assertTrue(server.stop(signal.SIGINT))
        with self.server(workers=2) as server:
            server.ask_at_once(["a"] * 20)
            self.assertTrue(server.stop())

    def test_finds_lines_by_their_meaning(self):
        if not MINILM.exists():
            self.skipTest("all-MiniLM-L6-v2 is missing; `make model` downloads it")
        self.check_answers(MINILM)
        self.check_at_once(MINILM, 2)
        with self.server(model=MINILM) as server:
            for text, line in [("When can I go to the seaside by rail?", 4), ("a kitten having a nap by the window", 1),
                               ("Which repairs must a tenant pay for?", 10), ("my code crashes", 18)]:
                self.assertEqual(line, json.loads(server.similar(text)[2])["nearest"][0]["line"], text)


if __name__ == "__main__":
    BUILD = Path(sys.argv[1]).resolve()
    MINILM = Path(os.environ.get("MODELS", BUILD / "models")).resolve() / "all-MiniLM-L6-v2"
    LIGHTTPD = shutil.which("lighttpd", path=os.environ["PATH"] + ":/usr/sbin")
    result = unittest.main(argv=sys.argv[:1] + sys.argv[2:], exit=False, verbosity=2).result
    bad = len({test.id().split(" ")[0] for test, _ in result.failures + result.errors})
    print(f"{result.testsRun - bad - len(result.skipped)} passed, {bad} failed")
    sys.exit(bad > 0)
