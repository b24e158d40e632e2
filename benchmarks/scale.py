"""Show how hpuprof's cost grows with the number of ranks, and what combining costs.

`python -m benchmarks.scale --work DIR` prints Markdown tables; `--into docs/evidence/performance.md --plot docs/images/scale.svg` puts them there.
Runs the hpuprof of this environment.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import statistics
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness import cases, tools
from benchmarks.harness.measure import Run, machine, median, run
from hpuprof import native

BEGIN, END = "<!-- scale:begin -->", "<!-- scale:end -->"
COMBINE = str(tools.HERE / "combine_partials.py")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--work", type=Path, help="keep traces here (default: a temporary folder)")
    counts = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    made.add_argument("--ranks", nargs="*", type=int, default=counts, metavar="N")
    made.add_argument("--rank-mb", type=float, default=2, help="text of one small rank, in 10^6 bytes; gzipped on disk")
    made.add_argument("--steps", type=int, default=20, help="steps of a small rank")
    made.add_argument("--jobs", type=int, default=0, help="worker processes; 0 for one per core")
    made.add_argument("--combine", nargs="*", type=int, default=[1, 10, 100, 1000], metavar="N", help="partials")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--json", type=Path, default=Path("scale.json"), help="where to write every run")
    made.add_argument("--into", type=Path, help="a document whose marked part the tables replace")
    made.add_argument("--plot", type=Path, help="where to write the growth as SVG")
    return made


def repeated(command: list[str], repeats: int, **environment: str) -> list[Run]:
    """Run a command of this Python several times; a failing run ends the program, for its time would mean nothing."""
    runs, env = [], tools.quiet_environment() | environment
    for _ in range(repeats):
        one = run([sys.executable, "-P", *command], env=env, keep_stdout=True, timeout_s=7200)
        if one.exit_code:
            raise SystemExit(f"{' '.join(command[:6])} …: exit {one.exit_code}: {one.stderr_last}")
        runs.append(one)
    return runs


def growth(options: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Measure `analyze` on more and more ranks, without a cache and with a full one."""
    case = cases.Case("cuda", options.rank_mb, options.steps, ranks=max(options.ranks), suffix=".json.gz")
    paths = cases.make(case, work).files
    rows = []
    for count in sorted(options.ranks):
        some, cache = work / "some", str(work / "cache")
        for folder in (some, cache):
            shutil.rmtree(folder, ignore_errors=True)
        some.mkdir()
        for path in paths[:count]:
            os.link(path, some / path.name)
        command = ["-m", "hpuprof", "analyze", str(some), "--json", "-j", str(options.jobs), "--cache"]
        cold = repeated([*command, "off"], options.repeats)
        repeated([*command, cache], 1)
        rows.append({"ranks": count, "cold": cold, "again": repeated([*command, cache], options.repeats)})
        print(f"# {count} ranks: {median(cold, 'wall_s'):.1f} s wall", file=sys.stderr, flush=True)
    return rows


def combining(options: argparse.Namespace, work: Path) -> list[dict[str, Any]]:
    """Measure combining the partials of 100-step traces, in a process that does nothing else."""
    trace, packed = cases.make(cases.Case("cuda", 60, 100), work).path, str(work / "packed")
    rows = []
    for count in options.combine:
        repeated([COMBINE, "make", str(trace), str(count), packed], 1)
        runs = repeated([COMBINE, "run", packed], options.repeats)
        rows.append({"partials": count, "runs": runs, "told": [json.loads(one.stdout_last) for one in runs]})
    return rows


def growth_table(rows: list[dict[str, Any]], options: argparse.Namespace) -> str:
    """Return the growth as Markdown."""
    lines = [
        f"### From one rank to many\n\nRanks of {options.rank_mb:g} MB of text and {options.steps} steps each, gzipped.\n",
        "| ranks | wall s | CPU s | CPU s a rank | peak MB, all processes | caller MB | largest worker MB | second run, wall s |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cold, count = row["cold"], row["ranks"]
        wall, cpu, again = median(cold, "wall_s"), median(cold, "cpu_s"), median(row["again"], "wall_s")
        tree, own, child = (median(cold, f"peak_{what}_bytes") / 1e6 for what in ("tree", "rss", "child"))
        lines.append(
            f"| {count:,} | {wall:.2f} | {cpu:.2f} | {cpu / count:.3f} | {tree:.0f} | {own:.0f} | "
            f"{f'{child:.0f}' if child else '-'} | {again:.2f} |"
        )
    return "\n".join(lines)


def growth_plot(rows: list[dict[str, Any]]) -> str:
    """Return the growth as SVG, the same text for the same numbers."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    shown = {
        "wall [s]": ("cold", "wall_s", 1.0),
        "CPU [s]": ("cold", "cpu_s", 1.0),
        "peak memory [MB]": ("cold", "peak_tree_bytes", 1e6),
        "second run [s]": ("again", "wall_s", 1.0),
    }
    figure = Figure(figsize=(8, 5), layout="tight")
    axes = figure.subplots()
    for label, (which, field, unit) in shown.items():
        costs = [median(row[which], field) / unit for row in rows]
        axes.loglog([row["ranks"] for row in rows], costs, marker="o", label=label)
    axes.set(title="Cost of `hpuprof analyze`", xlabel="ranks")
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "scale"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def combine_table(rows: list[dict[str, Any]]) -> str:
    """Return the cost of combining as Markdown."""
    lines = [
        "### Combining alone\n",
        "| partials | steps | bytes each | combine s | JSON s | peak MB |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        told, first, peak = row["told"], row["told"][0], median(row["runs"], "peak_rss_bytes") / 1e6
        combine, render = (statistics.median(t[name] for t in told) for name in ("combine_s", "render_s"))
        counts = " | ".join(f"{first[name]:,}" for name in ("ranks", "steps", "partial_bytes"))
        lines.append(f"| {counts} | {combine:.2f} | {render:.2f} | {peak:.0f} |")
    return "\n".join(lines)


def machine_line(about: dict[str, object], repeats: int) -> str:
    """Return what a measurement was taken on."""
    how = f"Python {about['python']}, medians of {repeats} runs; {native.in_use()}"
    return f"{about['cpu']}, {about['cores']} cores, {how}."


def put_into(document: Path, text: str, begin: str = BEGIN, end: str = END) -> None:
    """Replace the marked part of a document."""
    before, _, rest = document.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{document}: no part between {begin} and {end}")
    document.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def main() -> None:
    """Run what was asked for."""
    options = parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="hpuprof-scale-") as temporary:
        work = (options.work or Path(temporary)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        about = machine()
        parts = [machine_line(about, options.repeats)]
        grown = growth(options, work) if options.ranks else []
        combined = combining(options, work) if options.combine else []
        options.json.write_text(json.dumps({"machine": about, "growth": grown, "combine": combined}, default=asdict))
        parts += [growth_table(grown, options)] if grown else []
        parts += [combine_table(combined)] if combined else []
        if options.plot and grown:
            options.plot.write_text(growth_plot(grown), encoding="utf-8")
            parts.append(
                f"![Wall clock, CPU time and memory against the number of ranks](../images/{options.plot.name})"
            )
        text = "\n\n".join(parts)
        print(text)
        if options.into:
            put_into(options.into, text)


if __name__ == "__main__":
    main()
