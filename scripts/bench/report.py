"""The tables of a run, as text for a terminal and as Markdown."""

import textwrap

COLUMNS = "PyTorch fused", "PyTorch eager", "ONNX Runtime", "ggml"


def best_of(record, column, values="seconds"):
    """The best contender of a library, which may have several; None if it has none."""
    found = [v for name, v in record[values].items() if name.split(",")[0] == column]
    return min(found) if found else None


def duration(seconds):
    for unit, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            break
    value = seconds / unit
    return f"{value:.{0 if value >= 99.95 else 1 if value >= 9.995 else 2}f} {name}"


def share(record):
    """heed's share of the measured peak of multiply-adds or of reading, with that rate."""
    work, unit = (record["flops"], "Gflop/s") if record["flops"] else (record["bytes"], "GB/s")
    if not work or not record["rate"]:
        return ""
    rate = work / record["seconds"]["heed"]
    return f"{100 * rate / record['rate']:.0f} % of {record['rate'] / 1e9:.0f} {unit}"


def ratio(record, column):
    seconds = best_of(record, column)
    return None if seconds is None else seconds / record["seconds"]["heed"]


def times(value):
    return f"{value:.{0 if value >= 99.5 else 1 if value >= 9.95 else 2}f}×"


def errors(record, which):
    found = [best_of(record, column, which) for column in ("heed", "PyTorch fused")]
    return " / ".join("–" if e is None else f"{e:.1e}" if e else "0" for e in found)


def speedup(record, of_one):
    """heed's speed, divided by its speed on one thread."""
    return times(of_one[record["name"]] / record["seconds"]["heed"]) if record["name"] in of_one else ""


def cells(record, of_one):
    """The texts of a row; the last ones are the errors, or with several threads the speedup."""
    peers = []
    for column in COLUMNS:
        r = ratio(record, column)
        peers.append("–" if r is None else f"{duration(best_of(record, column))} ({times(r)})")
    last = ([errors(record, which) for which in ("largest_errors", "typical_errors")] if record["threads"] == 1 else
            [speedup(record, of_one)])
    return [record["name"], duration(record["seconds"]["heed"]), *peers, share(record), *last]


def by_threads(result):
    """For each number of threads the records with a result of heed."""
    counts = sorted({r["threads"] for r in result["records"]})
    return [(n, [r for r in result["records"] if r["threads"] == n and "heed" in r["seconds"]]) for n in counts]


def tables(result):
    """For each number of threads the records, and a table of texts with a heading."""
    found, of_one = [], {}
    for n, records in by_threads(result):
        head = [threads_text(n), "heed", *COLUMNS, "share of peak"]
        head += ["largest error: heed / PyTorch", "RMS error"] if n == 1 else ["speedup over 1 thread"]
        if n == 1:
            of_one = {r["name"]: r["seconds"]["heed"] for r in records}
        found.append((records, [head, *(cells(r, of_one) for r in records)]))
    return found


def heading(machine):
    """Lines that describe the machine, the libraries and the date."""
    blas = machine["blas"] + (f" ({machine['blas_core']})" if machine["blas_core"] else "")
    lines = [f"{machine['processor']}, {machine['cores']} cores, {machine['system']}; {machine['date']}",
             f"heed {machine['heed']}: kernels {machine['kernels']}, BLAS {blas}",
             f"compared with {', '.join(machine['peers'])}"]
    if machine["load"] > 0.5:
        lines.append(f"other programs were running (load {machine['load']:.1f}): the times are uncertain")
    return lines


def absent(result):
    lines = [f"{name} is missing: {why}" for name, why in result["machine"]["missing"].items()]
    seen = set()
    for record in result["records"]:
        for name, why in record["missing"].items():
            if (record["name"], name) not in seen:
                lines.append(f"{name} has no result for \"{record['name']}\": {why}")
            seen.add((record["name"], name))
    return lines


def small(result):
    if not result["small"]:
        return []
    return [f"MultiHeadAttention 2 × 6 × 3: {duration(result['small']['c'])} in C, "
            f"{duration(result['small']['lua'])} from Lua; the other libraries are called from Python"]


def guest(result):
    costs = result.get("guest")
    if not costs:
        return []
    calls = ", ".join(f"{name} {seconds * 1e9:.0f} ns" for name, seconds in costs["calls"].items())
    return [f"Opening and closing a Lua state with its libraries: {duration(costs['without'])}, with heed "
            f"{duration(costs['opened'])}; "
            f"heed, loaded but unused (BLAS=none), adds {costs['own_kib']:.0f} KiB of private memory "
            f"({costs['resident_kib']:.0f} KiB with pages that processes share)",
            f"Calls from Lua into C and back: {calls}"]


def threads_text(n):
    return "1 thread" if n == 1 else f"{n} threads"


def text(result):
    lines = heading(result["machine"])
    for records, table in tables(result):
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        group = None
        lines.append("")
        for row, record in zip(table, [None, *records]):
            if record and record["group"] != group:
                group = record["group"]
                lines.append(f"-- {group}")
            lines.append("  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths))))
    return "\n".join([*lines, "", "In parentheses: the time divided by heed's.", *small(result), *guest(result),
                      *absent(result)])


def markdown(result):
    about = ("; ".join(heading(result["machine"])) + ". In parentheses: the time divided by heed's; errors are "
             "differences from double precision on the same inputs.")
    lines = [textwrap.fill(about, 120)]
    for _, table in tables(result):
        rows = ["| " + " | ".join(row) + " |" for row in table]
        lines += ["", rows[0], "| --- |" + " ---: |" * (len(table[0]) - 1), *rows[1:]]
    return "\n".join([*lines, "", *(line + "." for line in small(result) + guest(result))]).rstrip()
