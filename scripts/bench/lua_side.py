"""A Lua script that runs in the command heed and answers lines: heed's side of decode_stack.py and model.py."""

import subprocess
import sys
from pathlib import Path


class LuaSide:
    """The script's first line must begin with "ready"."""

    def __init__(self, build, script, *arguments):
        path = Path(__file__).with_name(script)
        self.process = subprocess.Popen([f"{build}/heed", path, *map(str, arguments)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        if not self.read().startswith("ready"):
            sys.exit(f"{script}: did not start")

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit("heed has ended")
        return line.strip()

    def send(self, line):
        print(line, file=self.process.stdin, flush=True)

    def ask(self, line):
        self.send(line)
        return self.read()

    def print_parts(self):
        """Prints the answer to "parts": lines "seconds name", then "."."""
        line = self.ask("parts")
        while line != ".":
            seconds, name = line.split(None, 1)
            print(f"    {name:22} {1e3 * float(seconds):8.3f} ms")
            line = self.read()

    def close(self):
        self.process.stdin.close()
