"""How long the HTML report of many ranks takes to write and to open, and how large it is.

`python -m benchmarks.html_report [--ranks 1000] [--operators 200] [--steps 100]` clones the 8-rank sample's report, with memory curves; `--browser` opens the page in Chromium too.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import msgspec

import hpuprof
from hpuprof.model.tables import TABLES, MemoryPoint
from hpuprof.render.html import to_html
from hpuprof.report.model import Report

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "sample_traces" / "hpu_g3_lazy_8_ranks"


def many_ranks(report: Report, ranks: int, *, operators: int = 0, steps: int = 0, memory: bool = False) -> Report:
    """Return a report with `ranks` copies of a report's ranks, each with `operators` more operators.

    `steps`: repeat the steps of each rank until there are as many. `memory`: give each rank full memory curves of its own.
    """
    data = report.data
    old = sorted({r.rank for r in data.ranks})
    changed = {}
    for name in TABLES:
        rows = getattr(data, name)
        if name == "diagnostics" or not rows or not hasattr(rows[0], "rank"):
            continue
        by_rank: dict[int, list[msgspec.Struct]] = {}
        for row in rows:
            by_rank.setdefault(row.rank, []).append(row)
        if name == "operators" and operators:
            for mine in by_rank.values():
                mine += [msgspec.structs.replace(mine[0], name=f"operator_{i}") for i in range(operators)]
        if name in ("steps", "step_waits") and steps:
            for rank, mine in by_rank.items():
                by_rank[rank] = [msgspec.structs.replace(mine[i % len(mine)], step=i) for i in range(steps)]
        changed[name] = [
            msgspec.structs.replace(row, rank=rank)
            for rank in range(ranks)
            for row in by_rank.get(old[rank % len(old)], [])
        ]
    if memory:
        changed["memory_points"] = [
            MemoryPoint(
                rank=rank,
                space=space,
                start_ns=612_347 * i,
                allocated_bytes=(held := 1_000_000_000 + (rank * 7919 + i * 104_729) % 99_991 * 4096),
                reserved_bytes=held + 2**28,
            )
            for rank in range(ranks)
            for space in ("device", "host")
            for i in range(200)
        ]
    return Report(msgspec.structs.replace(data, **changed))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--operators", type=int, default=200)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--browser", action="store_true", help="Also time until Chromium has drawn every chart.")
    options = parser.parse_args()
    report = many_ranks(
        hpuprof.analyze(SAMPLE), options.ranks, operators=options.operators, steps=options.steps, memory=True
    )
    rows = sum(len(getattr(report.data, name)) for name in TABLES)
    begin = time.perf_counter()
    page = to_html(report)
    took = time.perf_counter() - begin
    print(f"{options.ranks} ranks, {rows:,} rows: {len(page.encode()) / 1e6:.2f} MB in {took:.2f} s")
    if options.browser:
        sys.path.insert(0, str(ROOT / "tests"))
        from browser import Browser

        with tempfile.TemporaryDirectory() as folder, Browser() as browser:
            path = Path(folder) / "report.html"
            path.write_text(page, encoding="utf-8")
            begin = time.perf_counter()
            browser.open(path.as_uri())
            browser.wait("document.readyState === 'complete' && !!window.hpuprofDraw")
            loaded = time.perf_counter() - begin
            browser.value("window.hpuprofDraw()")
            print(f"opened in {loaded:.2f} s, every chart drawn after {time.perf_counter() - begin:.2f} s")


if __name__ == "__main__":
    main()
