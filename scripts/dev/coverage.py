"""What the tests run of heed's source, from the counts of a build with gcov (make coverage).

    python3 scripts/dev/coverage.py BUILD [PATH...]

Prints a table of the folders below src and one of the kernel tables. For each PATH, it prints the lines and branches
of the file that did not run, or a table of the folder's files. Ends with "N passed, N failed": one for each folder and
bound, and one for each entry of uncovered.txt that is wrong.

uncovered.txt, beside this script, lists what no test can run, with the reason. Those lines and branches are left out of
the table; an entry that matches nothing is a failure.
"""

import json
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

BOUNDS = {"lines": 98.0, "branches": 92.0}  # percent, for each folder
HERE = Path(__file__).resolve().parent
AT_ONCE = 40  # files for each gcov
HEAD = "{:<32} {:>8} {:>7} {:>10} {:>7}"


class Line:
    """The counts of a line, added up over the objects that contain it."""

    def __init__(self):
        self.function = ""
        self.count = 0
        self.branches = {}  # number of branches: their counts. Conditional compilation makes them differ.

    def add(self, line):
        self.function = line.get("function_name", self.function)
        self.count += line["count"]
        taken = [branch["count"] for branch in line["branches"]]
        before = self.branches.get(len(taken), [0] * len(taken))
        self.branches[len(taken)] = [a + b for a, b in zip(before, taken)]

    def taken(self):
        return [count for counts in self.branches.values() for count in counts]


def measured(notes):
    """[(object file, {source file: {number: Line}})] of the .gcno files"""
    for first in range(0, len(notes), AT_ONCE):
        some = notes[first : first + AT_ONCE]
        command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", *some]
        output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        texts = [text for text in output.stdout.splitlines() if text.startswith("{")]
        if len(texts) != len(some):
            sys.exit(f"gcov: {len(texts)} of {len(some)} files: {output.stderr}")
        sys.stderr.write(output.stderr)  # such as counts of an object that was built again, which are left out
        for note, text in zip(some, texts):
            sources = {}
            for file in json.loads(text)["files"]:
                if not file["file"].startswith("src/"):
                    continue
                lines = sources.setdefault(file["file"], defaultdict(Line))
                for line in file["lines"]:
                    lines[line["line_number"]].add(line)
            yield note, sources


def merge(total, sources):
    for name, lines in sources.items():
        into = total.setdefault(name, {})
        for number, line in lines.items():
            if number not in into:
                into[number] = line
                continue
            into[number].count += line.count
            for length, counts in line.branches.items():
                before = into[number].branches.get(length, [0] * length)
                into[number].branches[length] = [a + b for a, b in zip(before, counts)]


def exceptions():
    """{(file, function, text): reason}. A paragraph of the file is a reason, after "# ", and its lines."""
    found, reason = {}, ""
    for line in (HERE / "uncovered.txt").read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            place, text = line.split(": ", 1)
            file, function = place.split(" ")
            found[f"src/{file}", function, text] = reason
    return found


class Tally:
    def __init__(self):
        self.lines = Counter()  # total, run
        self.branches = Counter()

    def add(self, line, excepted=False):
        taken = line.taken()
        self.lines["run"] += line.count > 0
        self.branches["run"] += sum(count > 0 for count in taken)
        if excepted:
            self.lines["total"] += line.count > 0
            self.branches["total"] += sum(count > 0 for count in taken)
        else:
            self.lines["total"] += 1
            self.branches["total"] += len(taken)

    @staticmethod
    def percent(counts):
        return 100 * counts["run"] / counts["total"] if counts["total"] else 100.0

    def row(self):
        cells = [self.lines["total"], self.percent(self.lines), self.branches["total"], self.percent(self.branches)]
        return "{:>8} {:>7.2f} {:>10} {:>7.2f}".format(*cells)


def print_file(name, lines, excepted):
    """Each line that did not run, or of whose branches some were never taken."""
    tally = Tally()
    text = Path(name).read_text().splitlines()
    shown = []
    for number, line in sorted(lines.items()):
        known = (name, line.function, text[number - 1].strip()) in excepted
        tally.add(line, known)
        taken = line.taken()
        never = sum(count == 0 for count in taken)
        if known or (line.count and not never):
            continue
        what = f"{never} of {len(taken)} branches" if line.count else "not run"
        shown.append(f"{number:>6}  {what:<18}  {text[number - 1]}")
    print(f"{name:<32} {tally.row()}")
    print("".join(line + "\n" for line in shown))


def print_folder(path, total, excepted):
    for name, lines in sorted(total.items()):
        if name.startswith(path):
            text = Path(name).read_text().splitlines()
            tally = Tally()
            for number, line in lines.items():
                tally.add(line, (name, line.function, text[number - 1].strip()) in excepted)
            print(f"{name:<32} {tally.row()}")
    print()


def main():
    build, *paths = sys.argv[1:]
    objects = Path(build) / "obj"
    notes = sorted(str(path) for part in ("src", "loading", "plain") for path in (objects / part).rglob("*.gcno"))
    if not notes:
        sys.exit(f"coverage.py: {build} was not built with --coverage; make coverage builds it")
    total, tables = {}, {}
    for note, sources in measured(notes):
        if "/kernels/isa/" in note or "/kernels/scalar/" in note:
            table = tables.setdefault(Path(note).stem if "/isa/" in note else "scalar", Tally())
            for name, lines in sources.items():
                if name.startswith("src/kernels/"):
                    for line in lines.values():
                        table.add(line)
        merge(total, {name: lines for name, lines in sources.items() if not name.startswith("src/kernels/")})

    excepted = exceptions()
    used, reasons, folders = set(), Counter(), defaultdict(Tally)
    for name, lines in sorted(total.items()):
        text = Path(name).read_text().splitlines()
        for number, line in lines.items():
            key = (name, line.function, text[number - 1].strip())
            missing = (line.count == 0) + sum(count == 0 for count in line.taken())
            if key in excepted and missing:
                used.add(key)
                reasons[excepted[key]] += missing
            folders[name.split("/")[1]].add(line, key in excepted)

    for path in paths:
        if path in total:
            print_file(path, total[path], excepted)
        else:
            print_folder(path.rstrip("/") + "/", total, excepted)
    print(HEAD.format("folder", "lines", "%", "branches", "%"))
    failures = []
    for name, tally in sorted(folders.items()):
        print(f"{name:<32} {tally.row()}")
        for what in BOUNDS:
            percent = tally.percent(getattr(tally, what))
            if percent < BOUNDS[what]:
                failures.append(f"{name}: {percent:.2f} % of {what} ran; it must be at least {BOUNDS[what]} %")
    print("\n" + HEAD.format("kernel table", "lines", "%", "branches", "%"))
    for name, tally in tables.items():
        if tally.lines["total"]:  # not those of other processors
            print(f"{name:<32} {tally.row()}")
    print(f"\nlines and branches that no test can run: {sum(reasons.values())}")
    for reason, count in reasons.most_common():
        print(f"{count:>6}  {reason}")
    for file, function, text in sorted(set(excepted) - used):
        failures.append(f"uncovered.txt: {file} {function}: {text}: there is no such line, or it ran in full")
    print("\n".join(failures))
    print(f"{2 * len(folders) - len(failures)} passed, {len(failures)} failed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
