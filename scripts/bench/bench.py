"""Measures heed beside PyTorch, ONNX Runtime and ggml: the first part of `make bench`.

Everything runs in one process, in rounds: in each round every contender runs once (short calls several times), and the
minimum of the rounds counts, so that all contenders meet the same conditions. A contender stops when it has used its
share of the row's time. Each call allocates its result if the library's usual call does (heed, PyTorch); other
libraries (ONNX Runtime, ggml) write to results that were bound before."""

import os

os.environ.pop("OPENBLAS_CORETYPE", None)  # pins OpenBLAS to older kernels
os.environ["OMP_WAIT_POLICY"] = "passive"  # spinning threads would slow down the other contenders

import argparse
import ctypes
import datetime
import gc
import importlib
import json
import math
import platform
import subprocess
import sys
import time
from pathlib import Path

sys.dont_write_bytecode = True  # leave nothing beside the sources

import chart
import report
import rows
from heed_side import Heed
from probes import Probes

PEERS = {"torch_side": "PyTorch", "ort_side": "ONNX Runtime", "ggml_side": "ggml"}
ROUNDS = 2  # the least number of rounds
SAMPLE = 1e-3  # seconds: the least time of a contender in a round
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h


class Progress:
    """A bar on a terminal, else a line for each row, on standard error."""

    def __init__(self, total):
        self.total, self.done, self.terminal = total, 0, sys.stderr.isatty()
        self.width = 0

    def step(self, text):
        self.say(text)
        self.done += 1

    def say(self, text):
        if not self.terminal:
            print(f"  BENCH {self.done + 1}/{self.total} {text}", file=sys.stderr, flush=True)
            return
        filled = 30 * self.done // max(1, self.total)
        line = f"[{'#' * filled}{'.' * (30 - filled)}] {100 * self.done // max(1, self.total):3d} %  {text}"
        print("\r" + line.ljust(self.width), end="", file=sys.stderr, flush=True)
        self.width = len(line)

    def end(self):
        if self.terminal:
            print("\r" + " " * self.width + "\r", end="", file=sys.stderr, flush=True)


class Contender:
    """One way to compute a row. The time of its first call determines how many calls make a sample."""

    def __init__(self, name, run, read, budget):
        self.name, self.run, self.budget = name, run, budget
        self.used, self.rounds, self.best = 0.0, 0, math.inf
        start = time.perf_counter()
        self.output = read()
        self.estimate = time.perf_counter() - start

    def measure(self, calls):
        start = time.perf_counter()
        for _ in range(calls):
            self.run()
        seconds = time.perf_counter() - start
        self.used += seconds
        return seconds / calls

    def take_part(self):
        """Runs in this round, unless its time is used up; returns whether it did."""
        if self.rounds >= ROUNDS and self.used >= self.budget:
            return False
        if self.estimate < SAMPLE:
            self.measure(1)  # fills the caches again
        self.best = min(self.best, self.measure(max(1, min(1000, int(SAMPLE / self.estimate)))))
        self.estimate = min(self.estimate, self.best)
        self.rounds += 1
        return True


def reason(problem):
    return (str(problem).strip() or type(problem).__name__).splitlines()[0]


def contenders_of(side, row, threads, budget):
    """The contenders of one library for a row, and if there are none, the reason."""
    found, problem = [], None
    try:
        for name, run, read in side.contenders(row, threads):
            try:
                found.append(Contender(name, run, read, budget))
            except Exception as refusal:  # one of several operators may not support these sizes
                problem = refusal
    except Exception as refusal:
        problem = refusal
    return found, reason(problem) if problem and not found else None


def measure(row, sides, probes, threads, budget):
    """A record of one row: the seconds and errors of each contender, and the machine's best rate."""
    contenders, missing = [], {}
    for side in sides:
        found, why = contenders_of(side, row, threads, budget)
        contenders += found
        if why:
            missing[side.name] = why
    errors = {c.name: row.errors(c.output) for c in contenders}
    largest, typical = ({name: error[i] for name, error in errors.items()} for i in range(2))
    missing.update({name: "wrong result" for name, error in largest.items() if not error < row.tolerance})
    contenders = [c for c in contenders if c.name not in missing]
    rate, best_rate, running = probes.rate_for(row, threads), 0.0, True
    while running:
        if rate:
            best_rate = max(best_rate, rate(), rate())
        running = any([c.take_part() for c in contenders])
    return dict(group=row.group, name=row.name, threads=threads, flops=row.flops, bytes=row.bytes, missing=missing,
                largest_errors=largest, typical_errors=typical, seconds={c.name: c.best for c in contenders},
                rate=best_rate or None)


def time_from_lua(build, turns):
    command = [build / "heed", Path(__file__).with_name("small.lua"), str(turns)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def costs_of_loading(build):
    """The cost of heed in a host that loads but does not use it, and of calls from Lua, in seconds and KiB."""
    command = [build / "bench" / "guest", build / "plain" / "heed.so"]
    numbers = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    without, opened, own, resident = (float(n) for n in numbers)
    command = [build / "heed", Path(__file__).with_name("calls.lua")]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    calls = {name: float(seconds) for name, seconds in (line.split("\t") for line in lines)}
    return dict(without=without, opened=opened, own_kib=own, resident_kib=resident, calls=calls)


def last_cache():
    """The size of the level 3 cache in bytes: from Linux, or a usual size."""
    try:
        return int(Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip().rstrip("K")) << 10
    except (OSError, ValueError):
        return 32 << 20


def load_peers():
    """The installed libraries, and the reasons why the others are missing."""
    found, missing = [], {}
    for module, name in PEERS.items():
        try:
            found.append(importlib.import_module(module))
        except Exception as problem:
            missing[name] = reason(problem)
    return found, missing


def keep_memory():
    """Keeps freed memory in the process, so that no contender waits for new pages in each call."""
    try:
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 32 << 20)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
    except (OSError, AttributeError):
        pass  # another C library


def run(options):
    keep_memory()
    heed = Heed(str(options.build / "libheed.so"))
    info = heed.info()
    probes = Probes(str(options.build / "bench" / "probes.so"), info["kernels"])
    peers, missing = load_peers()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    all_rows = [r for r in rows.rows(last_cache()) if options.only in r.name]
    if options.quick:
        all_rows = [r for r in all_rows if r.name not in ("causal, 8192 tokens", "decode, 32768 keys, warm")]
    thread_counts = sorted({1, cores})
    budget = 0.06 if options.quick else 0.6
    progress = Progress(len(all_rows) * len(thread_counts))
    machine = dict(date=datetime.date.today().isoformat(), processor=info["processor"], cores=cores,
                   system=f"{platform.system()} {platform.machine()}", kernels=info["kernels"], blas=info["blas"],
                   blas_core=info["blas_core"], heed=info["version"], peers=[peer.version() for peer in peers],
                   missing=missing, load=os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0)
    records, small = [], {}
    for row in all_rows:
        row.prepare()
        for threads in thread_counts:
            progress.step(f"{row.name}, {threads} thread{'s'[:threads > 1]}")
            records.append(measure(row, [heed, *peers], probes, threads, budget))
            if row.op == "module" and not row.flops:
                # a call through ctypes takes longer than the work, so C measures this row
                seconds = min(probes.forward(*heed.module_and_input, 2000) for _ in range(50))
                records[-1]["seconds"]["heed"] = seconds
                if threads == 1:
                    small = dict(c=seconds, lua=time_from_lua(options.build, 10 if options.quick else 40))
        row.forget()
        gc.collect()
    progress.end()
    return dict(machine=machine, records=records, small=small, guest=costs_of_loading(options.build))


def main():
    parser = argparse.ArgumentParser(description="heed beside PyTorch, ONNX Runtime and ggml")
    parser.add_argument("--build", type=Path, default=Path("build"), help="the output folder of the build")
    parser.add_argument("--quick", action="store_true", help="less than a minute, without the longest rows")
    parser.add_argument("--only", default="", metavar="TEXT", help="only rows whose names contain this text")
    parser.add_argument("--markdown", action="store_true",
                        help="print the tables of the last run as Markdown; measure nothing")
    options = parser.parse_args()
    kept = options.build / "bench.json"
    if options.markdown:
        print(report.markdown(json.loads(kept.read_text())))
        return
    result = run(options)
    kept.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    kept.with_suffix(".svg").write_text(chart.svg(result))
    print(report.text(result))
    print(f"\nwritten: {kept}, {kept.with_suffix('.svg')}")


if __name__ == "__main__":
    main()
