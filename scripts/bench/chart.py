"""The chart of a run: a bar for each row and library, the time divided by heed's, on a log scale."""

import math
from html import escape

import report

LEFT, PLOT, RIGHT = 300, 520, 90
BAR, GAP, TITLE = 9, 8, 26
CLASSES = {column: f"c{i}" for i, column in enumerate(report.COLUMNS)}
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .small { font-size: 9px; } .title { font-size: 14px; font-weight: 600; } .head { font-weight: 600; }
  .grid { stroke: #d0d7de; } .one { stroke: #24292f; stroke-width: 1.5; }
  .c0 { fill: #c2410c; } .c1 { fill: #f59e6b; } .c2 { fill: #2563a8; } .c3 { fill: #6b8e23; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .grid { stroke: #30363d; } .one { stroke: #e6edf3; }
    .c0 { fill: #f0703a; } .c1 { fill: #b8754f; } .c2 { fill: #5b9be0; } .c3 { fill: #9bbf4a; }
  }"""


def svg(result):
    tables = [(n, records) for n, records in report.by_threads(result) if records]
    ratios = [r for _, records in tables for record in records for column in report.COLUMNS
              if (r := report.ratio(record, column))]
    low = min(0.5, *ratios) * 0.95 if ratios else 0.5
    high = max(10, *ratios) * 1.05 if ratios else 10

    def x(ratio):
        return LEFT + PLOT * math.log(ratio / low) / math.log(high / low)

    marks, body, y = [r for r in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500) if low <= r <= high], [], 60
    legend = LEFT
    for column, style in CLASSES.items():
        body.append(f'<rect class="{style}" x="{legend}" y="34" width="12" height="10"/>'
                    f'<text x="{legend + 17}" y="43">{column}</text>')
        legend += 130
    for n, records in tables:
        y += TITLE
        body.append(f'<text class="head" x="10" y="{y - 8}">{report.threads_text(n)}</text>')
        top = y
        bars = []
        for record in records:
            present = [(c, r) for c in report.COLUMNS if (r := report.ratio(record, c))]
            height = max(2, len(present)) * BAR
            label = escape(f"{record['name']}: {report.duration(record['seconds']['heed'])}")
            bars.append(f'<text x="{LEFT - 10}" y="{y + height / 2 + 4}" text-anchor="end">{label}</text>')
            for i, (column, r) in enumerate(present):
                start, end = sorted((x(1), x(r)))
                bars.append(f'<rect class="{CLASSES[column]}" x="{start:.1f}" y="{y + i * BAR}" '
                            f'width="{max(1, end - start):.1f}" height="{BAR - 1}"/>'
                            f'<text class="small" x="{max(end, x(1)) + 4:.1f}" y="{y + i * BAR + 8}">'
                            f'{report.times(r)}</text>')
            y += height + GAP
        for mark in marks:
            style = "one" if mark == 1 else "grid"
            body.append(f'<line class="{style}" x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="{top - 4}" y2="{y}"/>'
                        f'<text class="small" x="{x(mark):.1f}" y="{y + 11}" text-anchor="middle">{mark:g}×</text>')
        body += bars
        y += 20
    machine = result["machine"]
    title = escape(f"Times divided by heed's (longer is slower): {machine['processor']}, kernels {machine['kernels']}, "
                   f"{machine['date']}")
    width = LEFT + PLOT + RIGHT
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{y}" viewBox="0 0 {width} {y}">\n'
            f"<style>{STYLE}\n</style>\n" f'<text class="title" x="10" y="20">{title}</text>\n'
            + "\n".join(body) + "\n</svg>\n")
