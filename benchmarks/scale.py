"""Show how hpuprof's cost grows with the number of ranks, what combining costs, and how 8 large ranks compare with HTA.

`python -m benchmarks.scale --work DIR` prints Markdown tables; `--into docs/evidence/performance.md --plot docs/images/scale.svg` puts them there.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

from benchmarks.harness import cases, machine, measure, tools
from benchmarks.large import Spec, write_trace

BEGIN, END = "<!-- scale:begin -->", "<!-- scale:end -->"
Runs = list[measure.Run]


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--work", type=Path, help="keep traces and environments here (default: a temporary folder)")
    counts = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    made.add_argument("--ranks", nargs="+", type=int, default=counts, metavar="N")
    made.add_argument("--rank-mb", type=float, default=2, help="text of one small rank, in 10^6 bytes; gzipped on disk")
    made.add_argument("--steps", type=int, default=20, help="steps of a small rank")
    made.add_argument("--jobs", type=int, default=0, help="worker processes; 0 for one per core")
    made.add_argument("--combine", nargs="*", type=int, default=[1, 10, 100, 1000], metavar="N", help="partials")
    made.add_argument("--large", type=int, default=8, metavar="N", help="large ranks to compare on; 0 for none")
    made.add_argument("--large-mb", type=float, default=200)
    made.add_argument("--large-steps", type=int, default=50)
    made.add_argument("--tools", nargs="+", choices=("hpuprof", "hta"), default=["hpuprof", "hta"])
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--no-install", dest="install", action="store_false", help="use the environments as they are")
    made.add_argument("--python-hpuprof", type=Path, metavar="PATH", help="the interpreter that has hpuprof")
    made.add_argument("--python-hta", type=Path, metavar="PATH", help="the interpreter that has HTA")
    made.add_argument("--json", type=Path, help="where to write every run (default: scale.json under --work)")
    made.add_argument("--into", type=Path, help="a document whose marked part the tables replace")
    made.add_argument("--plot", type=Path, help="where to write the growth as SVG")
    return made


# ------------------------------------------------------------------------------------------------------------------ traces


def _write(spec: Spec, folder: Path, suffix: str) -> int:
    path = folder / f"host{spec.rank // 8:03d}_{spec.rank}.{1_700_000_000_000_000_000 + spec.rank}.pt.trace{suffix}"
    return path.stat().st_size if path.exists() else write_trace(spec, path).text_bytes


def make_ranks(spec: Spec, count: int, folder: Path, suffix: str) -> list[Path]:
    """Write one trace per rank, or find them there; return their paths in order of rank."""
    digest = hashlib.sha256((cases.generator_digest() + repr(spec)).encode()).hexdigest()
    note = folder / ".made"
    if note.exists() and note.read_text() != digest:
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    note.write_text(digest)
    specs = [replace(spec, rank=rank, world_size=count) for rank in range(count)]
    # Processes of their own: a launcher that has grown passes its size on to the peak of its children.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(partial(_write, folder=folder, suffix=suffix), specs))
    return sorted(folder.glob("*.pt.trace.json*"), key=lambda p: int(p.name.split("_")[1].split(".")[0]))


def linked(paths: list[Path], folder: Path) -> Path:
    """Return a folder with links to these files only."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for path in paths:
        os.link(path, folder / path.name)
    return folder


# --------------------------------------------------------------------------------------------------------------- measuring


def repeated(command: list[str], repeats: int, *, keep: bool = False) -> Runs:
    """Run a command several times; a failing run ends the program, for its time would mean nothing."""
    runs = []
    for _ in range(repeats):
        run = measure.run(command, env=tools.quiet_environment(), keep_stdout=keep, timeout_s=7200)
        if run.exit_code:
            raise SystemExit(f"{' '.join(command[:6])} …: exit {run.exit_code}: {run.stderr_last}")
        runs.append(run)
    return runs


def median(runs: Runs, field: str) -> float:
    """Return the median of one measured field."""
    return float(statistics.median(getattr(run, field) for run in runs))


def analyse(python: Path, folder: Path, jobs: int, cache: str) -> list[str]:
    """Return the command that analyses a folder."""
    return [str(python), "-P", "-m", "hpuprof", "analyze", str(folder), "--json", "-j", str(jobs), "--cache", cache]


def growth(options: argparse.Namespace, python: Path, work: Path) -> list[dict[str, object]]:
    """Measure `analyze` on more and more ranks, without a cache and with a full one."""
    spec = Spec(size_mb=options.rank_mb, steps=options.steps)
    paths = make_ranks(spec, max(options.ranks), work / "ranks", ".json.gz")
    rows = []
    for count in sorted(options.ranks):
        folder = linked(paths[:count], work / "some")
        for path in paths[:count]:
            cases.warm(path)
        cache = work / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        cold = repeated(analyse(python, folder, options.jobs, "off"), options.repeats)
        repeated(analyse(python, folder, options.jobs, str(cache)), 1)
        again = repeated(analyse(python, folder, options.jobs, str(cache)), options.repeats)
        rows.append({"ranks": count, "cold": cold, "again": again})
        print(f"# {count} ranks: {median(cold, 'wall_s'):.1f} s wall", file=sys.stderr, flush=True)
    return rows


def combining(options: argparse.Namespace, python: Path, work: Path) -> list[dict[str, object]]:
    """Measure combining the partials of 100-step traces, in a process that does nothing else."""
    trace = work / "hundred.json"
    if not trace.exists():
        write_trace(Spec(size_mb=60, steps=100), trace)
    script, rows = str(tools.HERE / "combine_partials.py"), []
    for count in options.combine:
        packed = work / "packed"
        repeated([str(python), "-P", script, "make", str(trace), str(count), str(packed)], 1)
        runs = repeated([str(python), "-P", script, "run", str(packed)], options.repeats, keep=True)
        rows.append({"partials": count, "runs": runs, "told": [json.loads(run.stdout_last) for run in runs]})
    return rows


def compared(options: argparse.Namespace, ready: dict[str, tools.Installed], work: Path) -> list[dict[str, object]]:
    """Measure the tools on the same few large ranks, in turns."""
    spec = Spec(size_mb=options.large_mb, steps=options.large_steps)
    paths = make_ranks(spec, options.large, work / "large", ".json")
    folder = linked(paths, work / "some")
    for path in paths:
        cases.warm(path)
    rows: dict[str, Runs] = {name: [] for name in ready}
    for _ in range(options.repeats):
        for name, one in ready.items():
            rows[name] += repeated(one.command(folder, work / "scratch"), 1)
    return [{"tool": name, "runs": runs} for name, runs in rows.items()]


# --------------------------------------------------------------------------------------------------------------- reporting


def growth_table(rows: list[dict[str, object]], options: argparse.Namespace) -> str:
    """Return the growth as Markdown."""
    lines = [
        f"Ranks of {options.rank_mb:g} MB of text and {options.steps} steps each, gzipped.",
        "",
        "| ranks | wall s | CPU s | CPU s a rank | peak MB, all processes | caller MB | largest worker MB | second run, wall s |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cold, again, count = row["cold"], row["again"], row["ranks"]
        cells = (
            f"{count:,}",
            f"{median(cold, 'wall_s'):.2f}",
            f"{median(cold, 'cpu_s'):.2f}",
            f"{median(cold, 'cpu_s') / count:.3f}",
            f"{median(cold, 'peak_tree_bytes') / 1e6:.0f}",
            f"{median(cold, 'peak_rss_bytes') / 1e6:.0f}",
            f"{child / 1e6:.0f}" if (child := median(cold, "peak_child_bytes")) else "-",
            f"{median(again, 'wall_s'):.2f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def growth_series(rows: list[dict[str, object]]) -> dict[str, list[tuple[float, float]]]:
    """Return what the plot shows, by label: points of ranks and cost."""
    shown = (
        ("wall [s]", "cold", "wall_s", 1.0),
        ("CPU [s]", "cold", "cpu_s", 1.0),
        ("peak memory [MB]", "cold", "peak_tree_bytes", 1e6),
        ("second run [s]", "again", "wall_s", 1.0),
    )
    return {
        label: [(row["ranks"], median(row[which], field) / unit) for row in rows] for label, which, field, unit in shown
    }


def growth_plot(series: dict[str, list[tuple[float, float]]]) -> str:
    """Return the growth as SVG, the same text for the same numbers."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="tight")
    axes = figure.subplots()
    for label, points in series.items():
        axes.loglog(*zip(*points, strict=True), marker="o", label=label)
    axes.set(title="Cost of `hpuprof analyze`", xlabel="ranks")
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    out = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "scale"}):
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def combine_table(rows: list[dict[str, object]]) -> str:
    """Return the cost of combining as Markdown."""
    lines = ["| partials | steps | bytes each | combine s | JSON s | peak MB |", "|---:|---:|---:|---:|---:|---:|"]
    for row in rows:
        told, runs = row["told"], row["runs"]
        first = told[0]
        cells = (
            f"{first['ranks']:,}",
            f"{first['steps']:,}",
            f"{first['partial_bytes']:,}",
            f"{statistics.median(t['combine_s'] for t in told):.2f}",
            f"{statistics.median(t['render_s'] for t in told):.2f}",
            f"{median(runs, 'peak_rss_bytes') / 1e6:.0f}",
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def compare_table(rows: list[dict[str, object]], options: argparse.Namespace) -> str:
    """Return the comparison as Markdown."""
    lines = [
        f"{options.large} ranks of {options.large_mb:g} MB and {options.large_steps} steps each.",
        "",
        "| tool | wall s | CPU s | peak MB, all processes | wall / hpuprof | CPU / hpuprof | memory / hpuprof |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    base = next((row["runs"] for row in rows if row["tool"] == tools.HPUPROF), None)
    for row in rows:
        cells = [row["tool"]]
        fields = (("wall_s", 1.0, ".2f"), ("cpu_s", 1.0, ".2f"), ("peak_tree_bytes", 1e6, ".0f"))
        cells += [f"{median(row['runs'], name) / unit:{form}}" for name, unit, form in fields]
        cells += [f"{median(row['runs'], n) / median(base, n):.1f}" if base else "-" for n, _, _ in fields]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def put_into(document: Path, text: str) -> None:
    """Replace the marked part of a document."""
    old = document.read_text(encoding="utf-8")
    before, _, rest = old.partition(BEGIN)
    _, found, after = rest.partition(END)
    if not found:
        raise SystemExit(f"{document}: no part between {BEGIN} and {END}")
    document.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")


def _plain(value: object) -> object:
    return asdict(value) if isinstance(value, measure.Run) else str(value)


def main() -> None:
    """Run what was asked for."""
    options = parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="hpuprof-scale-") as temporary:
        work = (options.work or Path(temporary)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        known = {"hpuprof": tools.hpuprof_tool(), "hta": tools.hta_tool()}
        given = {known[n].name: p.absolute() for n in known if (p := getattr(options, f"python_{n}"))}
        wanted = [known[n] for n in options.tools if n == "hpuprof" or options.large]
        ready = {one.tool.name: one for one in tools.prepare(wanted, work, given, install=options.install)}
        python = ready[tools.HPUPROF].python
        parts, kept = [], {"machine": machine.describe(), "versions": {n: one.version for n, one in ready.items()}}
        if options.ranks and max(options.ranks):
            kept["growth"] = growth(options, python, work)
            parts.append("### From one rank to many\n\n" + growth_table(kept["growth"], options))
        if options.combine:
            kept["combine"] = combining(options, python, work)
            parts.append("### Combining alone\n\n" + combine_table(kept["combine"]))
        if options.large:
            kept["compare"] = compared(options, ready, work)
            parts.append("### Few large ranks\n\n" + compare_table(kept["compare"], options))
        out = options.json or (work / "scale.json" if options.work else Path("scale.json"))
        out.write_text(json.dumps(kept, indent=1, default=_plain) + "\n")
        about = kept["machine"]
        text = (
            f"{about['cpu']}, {about['cores']} cores, Python {about['python']}; medians of {options.repeats} runs.\n\n"
        )
        text += "\n\n".join(parts)
        if options.plot and "growth" in kept:
            text += f"\n\n![Wall clock, CPU time and memory against the number of ranks]({options.plot.name})"
        print(text)
        if options.into:
            put_into(options.into, text)
        if options.plot and "growth" in kept:
            options.plot.write_text(growth_plot(growth_series(kept["growth"])), encoding="utf-8")


if __name__ == "__main__":
    main()
