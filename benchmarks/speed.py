"""Measure hpuprof as a whole process: beside its peers on the same files in turns, against its bars alone, without the scanner.

`python -m benchmarks.speed --work DIR --recorded TRACE...` makes the files and the peers' environments (`--make`: only
that), measures, and prints Markdown; `--into docs/evidence/performance.md` puts it there. Every run goes to `speed.json`
under `--work`. Runs the hpuprof of this environment.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.util
import itertools
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.harness import cases, measure, tools
from benchmarks.large import DIALECTS, grow
from benchmarks.scale import machine_line, put_into, repeated

BEGIN, END = "<!-- bars:begin -->", "<!-- bars:end -->"
TIMES_CPU, TIMES_WALL = 20, 30  # less than HTA
MANY, SECOND = "1,000 small ranks", "1,000 small ranks, second run"
ENOUGH_S, MOST_GROWN = 0.15, 8  # CPU time that is told from noise, and times the size of the corpus
COSTS = (("cpu_s", 1.0, ".2f"), ("wall_s", 1.0, ".2f"), ("peak_tree_bytes", 1e6, ".0f"))  # field, unit, form
READ = "import sys; from hpuprof.ingest.read import read_trace; read_trace(sys.argv[1])"
NOTHING = "import hpuprof.ingest.read"


@dataclass(frozen=True, slots=True)
class Alone:
    """A bar for hpuprof alone; None: no bar."""

    what: str
    path: Path
    cpu_s: float | None = None
    wall_s: float | None = None
    peak_mb: float | None = None
    cache: str = "off"


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--work", type=Path, required=True, help="keep files and the peers' environments here")
    made.add_argument("--parts", nargs="+", choices=PARTS, default=["beside", "alone"])
    made.add_argument("--recorded", nargs="*", type=Path, default=[], help="recorded traces, repeated in time")
    made.add_argument("--sizes", nargs="+", type=float, default=[50], metavar="MB", help="of all ranks, 4 times")
    made.add_argument("--dialects", nargs="+", choices=DIALECTS, default=["cuda"])
    made.add_argument("--steps", nargs="+", type=int, default=[10, 100], metavar="N")
    made.add_argument("--stacks", choices=("no", "yes", "both"), default="both")
    made.add_argument("--ranks", type=int, default=8, help="of the folder that the tools read; 0: none")
    made.add_argument("--large-mb", type=float, default=1000, help="text of the file for hpuprof alone")
    made.add_argument("--many", type=int, default=1000, help="small ranks")
    made.add_argument("--tools", nargs="*", choices=tools.PEERS, default=["hta"], help="the peers")
    made.add_argument("--tracelens", type=Path, metavar="CHECKOUT", help="add TraceLens from this git checkout")
    for name in (*tools.PEERS, "tracelens"):
        made.add_argument(f"--python-{name}", type=Path, metavar="PATH", help=f"the interpreter that has {name}")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--timeout", type=float, default=1800, help="seconds after which a peer's run counts as failed")
    made.add_argument("--make", action="store_true", help="make the files and the environments, measure nothing")
    made.add_argument("--into", type=Path, help="a document whose marked part the tables replace")
    return made


# ------------------------------------------------------------------------------------------------------------------ files


def compared(options: argparse.Namespace) -> dict[str, Path]:
    """Return what all tools read, by name: generated files, recorded ones, and a folder of ranks."""
    found, work = {}, options.work
    stacks = {"no": [False], "yes": [True], "both": [False, True]}[options.stacks]
    for size, dialect, steps, stack in itertools.product(options.sizes, options.dialects, options.steps, stacks):
        words = [f"{size:g} MB"] * (len(options.sizes) > 1) + [dialect] * (len(options.dialects) > 1)
        words += [f"{steps} steps", *["python stacks"] * stack]
        found[", ".join(words)] = cases.make(cases.Case(dialect, size, steps, stack), work).path
    size = options.sizes[0]
    for trace in options.recorded:
        found[f"recorded, {trace.name.split('.')[0]}"] = grown(trace, size, work)
    if options.ranks:
        found[f"{options.ranks} ranks"] = cases.make(cases.Case("cuda", size, 50, ranks=options.ranks), work).path
    return found


def bars(options: argparse.Namespace) -> list[Alone]:
    """Return the bars for hpuprof alone."""
    work, found = options.work, []
    plain = cases.make(cases.Case("cuda", options.sizes[0], 10), work).path
    packed = work / "packed.pt.trace.json.gz"
    made_of(packed, lambda: subprocess.run(f"gzip -6 < '{plain}' > '{packed}'", shell=True, check=True))
    found += [Alone("a file", plain), Alone("the same, gzipped (at most 15 % more CPU)", packed)]
    for trace in options.recorded[:1]:
        found.append(Alone("a recorded file of 272 MB", grown(trace, 272, work), peak_mb=300))
        large = grown(trace, options.large_mb, work)
        found.append(Alone(f"{options.large_mb:g} MB", large, 12, 7, 800))
    ranks = work / "many"
    make = [sys.executable, "-m", "benchmarks.world.ranks", str(ranks), "--ranks", str(options.many), "--steps", "6"]
    made_of(ranks, lambda: subprocess.run(make, check=True, cwd=tools.CHECKOUT))
    return [*found, Alone(MANY, ranks, cpu_s=25), Alone(SECOND, ranks, cpu_s=3, cache=str(work / "cache"))]


def grown(trace: Path, size_mb: float, work: Path) -> Path:
    """Return a recorded trace repeated up to a size, made once."""
    path = work / f"{trace.name.split('.')[0]}-{size_mb:g}mb.pt.trace.json"

    def make() -> None:
        # In a process of its own: a launcher that has grown passes its size on to the peak RSS of its children.
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            pool.submit(grow_file, trace, path, int(size_mb * 1e6)).result()

    made_of(path, make)
    return path


def grow_file(trace: Path, path: Path, size_bytes: int) -> None:
    """Write a recorded trace again and again."""
    data = trace.read_bytes()
    grow(json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data), path, size_bytes=size_bytes)


def made_of(path: Path, make: Callable[[], object]) -> None:
    """Make a file or a folder unless it was made whole before."""
    mark = path.with_name(f"{path.name}.made")
    if not mark.exists():
        make()
        mark.touch()


# --------------------------------------------------------------------------------------------------------------- measuring


def beside(options: argparse.Namespace, kept: list[object]) -> str:
    """Run all tools on the same files; return a table."""
    chosen = {name: tools.PEERS[name]() for name in options.tools}
    if options.tracelens:
        chosen["tracelens"] = tools.tracelens_tool(options.tracelens)
    peers = [tools.ready(tool, options.work, getattr(options, f"python_{name}")) for name, tool in chosen.items()]
    ready = [tools.ready(tools.hpuprof_tool(), options.work, Path(sys.executable)), *peers]
    if options.make:
        compared(options)
        return ""
    names = [one.tool.name for one in ready]
    head = ["file", *(f"{name} CPU s | wall s | peak MB" for name in names)]
    head += [f"CPU, times less than {name} | wall, times less" for name in names[1:]]
    lines = [f"| {' | '.join(head)} |", f"|---|{'---:|' * (5 * len(names) - 2)}"]
    failures = []
    for what, path in compared(options).items():
        runs = in_turns(ready, path, options)
        wrong = [failure_of(one.tool, mine) for one, mine in zip(ready, runs, strict=True)]
        failures += [f"{name} on {what}: {why}." for name, why in zip(names, wrong, strict=True) if why]
        cells = ["-" if why else cell for mine, why in zip(runs, wrong, strict=True) for cell in shown(mine)]
        for mine, why in zip(runs[1:], wrong[1:], strict=True):
            cells += ["-", "-"] if why or wrong[0] else [times_less(runs[0], mine, f) for f in ("cpu_s", "wall_s")]
        lines.append(f"| {what} | {' | '.join(cells)} |")
        kept.append({"file": what, "tools": names, "runs": [[asdict(one) for one in mine] for mine in runs]})
    versions = ", ".join(f"{one.tool.name} {one.version}" for one in ready)
    about = f"Files of {' and '.join(f'{size:g}' for size in options.sizes)} MB"
    about += f", each of the {options.ranks} ranks {options.sizes[0]:g} MB" if options.ranks else ""
    about += (
        f"; {versions}. hpuprof analyses whole (`analyze --json`), HTA parses and makes its temporal, idle, kernel "
    )
    about += f"and overlap breakdowns. Bars: {TIMES_CPU} times less CPU than HTA, {TIMES_WALL} times less wall."
    return "\n\n".join([about, "\n".join(lines), *failures])


def in_turns(ready: list[tools.Installed], path: Path, options: argparse.Namespace) -> list[list[measure.Run]]:
    """Run all tools on a file in turns, so that a slow spell of the machine meets all of them; return each one's runs."""
    runs: list[list[measure.Run]] = [[] for _ in ready]
    for turn in range(options.repeats):
        for at in range(turn, turn + len(ready)):
            one, mine = ready[at % len(ready)], runs[at % len(ready)]
            # A tool that cannot read the file will not learn it in the second turn.
            if not failure_of(one.tool, mine):
                mine.append(one_run(one, path, options))
    return runs


def times_less(ours: list[measure.Run], theirs: list[measure.Run], field: str) -> str:
    """Return how many times less we took, the median over turns."""
    pairs = zip(ours, theirs, strict=True)
    return f"{statistics.median(getattr(b, field) / getattr(a, field) for a, b in pairs):.1f}"


def one_run(ready: tools.Installed, path: Path, options: argparse.Namespace) -> measure.Run:
    """Run a tool once on a file."""
    scratch, keep = options.work / "scratch", ready.tool.reports_device_rows
    command = ready.command(path, scratch)
    run = measure.run(command, timeout_s=options.timeout, env=tools.quiet_environment(), keep_stdout=keep)
    told = f"{run.cpu_s:.1f} s CPU, {run.wall_s:.1f} s wall, exit {run.exit_code}, load {run.load_before:.1f}"
    print(f"# {ready.tool.name}, {path.name}: {told}", file=sys.stderr, flush=True)
    shutil.rmtree(scratch, ignore_errors=True)
    return run


def failure_of(tool: tools.Tool, runs: list[measure.Run]) -> str:
    """Return why the runs do not count as an answer, or nothing."""
    for run in runs:
        if run.timed_out:
            return f"no answer within {run.wall_s:.0f} s"
        if run.exit_code:
            return f"exit {run.exit_code}: {run.stderr_last}"
        if tool.reports_device_rows and not json.loads(run.stdout_last or "{}").get("device_rows_seen"):
            return "ran, but saw no device work"
    return ""


def shown(runs: list[measure.Run]) -> list[str]:
    """Return the medians of what runs cost."""
    return [f"{measure.median(runs, field) / unit:{form}}" for field, unit, form in COSTS]


def alone(options: argparse.Namespace, kept: list[object]) -> str:
    """Run hpuprof alone; return a table. A bar stands in brackets."""
    found = bars(options)
    if options.make:
        return ""
    shutil.rmtree(options.work / "cache", ignore_errors=True)
    lines = ["Bars in brackets.\n", "| hpuprof alone | CPU s | wall s | peak MB |", "|---|---:|---:|---:|"]
    for bar in found:
        command = ["-m", "hpuprof", "analyze", str(bar.path), "--json", "--cache", bar.cache]
        if bar.what == SECOND:
            repeated(command, 1)  # fills the cache
        runs = repeated(command, options.repeats)
        limits = (bar.cpu_s, bar.wall_s, bar.peak_mb)
        cells = [f"{text} ({limit:g})" if limit else text for text, limit in zip(shown(runs), limits, strict=True)]
        lines.append(f"| {bar.what} | {' | '.join(cells)} |")
        kept.append({"file": bar.what, "runs": [asdict(one) for one in runs]})
    return "\n".join(lines)


def scanner(options: argparse.Namespace, kept: list[object]) -> str:
    """Run reading and the analysis of the first recorded trace with the native scanner and without; return a table."""
    path = str(grown(options.recorded[0], options.sizes[0], options.work))
    if options.make:
        return ""
    lines = [f"Reading and analyzing {Path(path).name} with the native scanner and without.", ""]
    lines += ["| user CPU s | with the scanner | without | ratio |", "|---|---:|---:|---:|"]
    whole = ["-m", "hpuprof", "analyze", path, "--json", "--quiet", "-j", "1", "--cache", "off"]
    for what, command, idle in (("read", ["-c", READ, path], ["-c", NOTHING]), ("analyze --json", whole, None)):
        found = []
        for scan in ("auto", "python"):
            runs = [repeated(one, options.repeats, HPUPROF_SCAN=scan) for one in (command, idle) if one]
            found.append(measure.median(runs[0], "user_s") - (measure.median(runs[1], "user_s") if idle else 0))
            kept.append({"file": what, "scan": scan, "runs": [asdict(one) for one in runs[0]]})
        lines.append(f"| {what} | {found[0]:.2f} | {found[1]:.2f} | {found[1] / found[0]:.2f} |")
    return "\n".join([*lines, "", *scan_floor(options)])


def scan_floor(options: argparse.Namespace) -> list[str]:
    """Return a table of two passes over each file: from quote to quote, and the scanner's (bar: 1.5 times as long)."""
    program, native = options.work / "scan_floor", tools.CHECKOUT / "native"
    sources = [tools.CHECKOUT / "benchmarks" / "harness" / "scan_floor.cpp", native / "row_scanner.cpp"]
    subprocess.run(["g++", "-std=c++17", "-O3", f"-I{native}", *sources, "-o", program], check=True)
    lines = [
        "A pass over each file, read in pieces of 1 MB: from quote to quote, and by the scanner. Bar: 1.5 times.",
        "",
    ]
    lines += ["| file | from quote to quote, CPU s | scanner, CPU s | ratio |", "|---|---:|---:|---:|"]
    for name, path in compared(options).items():
        file = path if path.is_file() else min(path.glob("*.json"))
        done = subprocess.run([program, file], check=True, capture_output=True, text=True)
        quotes, scan, odd = map(float, done.stdout.split())
        ratio = "not all rows are plain" if odd else f"{scan / quotes:.2f}"
        lines.append(f"| {name} | {quotes:.3f} | {scan:.3f} | {ratio} |")
    return lines


def growth(options: argparse.Namespace, kept: list[object]) -> str:
    """Double the shapes that once cost more than their size (tests/corpus/grown.py); return a table (bar: 2.3)."""
    spec = importlib.util.spec_from_file_location("grown", tools.CHECKOUT / "tests" / "corpus" / "grown.py")
    assert spec is not None
    assert spec.loader is not None
    sys.modules["grown"] = grown = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(grown)
    if options.make:
        return ""

    def cost(case: Any, size: int) -> float:
        path = options.work / f"grown-{case.file_name}"
        path.write_bytes(case.make(size))
        command = ["-m", "hpuprof", "analyze", str(path), "--json", "--quiet"]
        runs = repeated(command, options.repeats, HPUPROF_CACHE="off")
        path.unlink()
        kept.append({"file": f"{case.name}, {size}", "runs": [asdict(one) for one in runs]})
        return min(one.cpu_s for one in runs)

    lines = ["Shapes that once cost more than their size, and the same twice as large. Bar: 2.3 times.", ""]
    lines += ["| shape | size | CPU s beyond starting | of twice the size | times |", "|---|---:|---:|---:|---:|"]
    for case in (one for one in grown.CASES if one.exits == (0,)):
        idle, size = cost(case, 8), case.size
        once = cost(case, size) - idle
        while once < ENOUGH_S and size < MOST_GROWN * case.size:
            size *= 2
            once = cost(case, size) - idle
        twice = cost(case, 2 * size) - idle
        lines.append(f"| {case.name.replace('_', ' ')} | {size:,} | {once:.2f} | {twice:.2f} | {twice / once:.2f} |")
    return "\n".join(lines)


PARTS = {"beside": beside, "alone": alone, "scanner": scanner, "growth": growth}


def main() -> None:
    """Make the files, measure, print."""
    options = parser().parse_args()
    options.work = options.work.absolute()
    options.work.mkdir(parents=True, exist_ok=True)
    about, kept = measure.machine(), []
    texts = []
    for part in options.parts:
        texts.append(PARTS[part](options, kept))
        # Written after each part: a long run that is cut short keeps what it has.
        (options.work / "speed.json").write_text(json.dumps({"machine": about, "runs": kept}))
    if options.make:
        return
    text = "\n\n".join([machine_line(about, options.repeats), *texts])
    print(text)
    if options.into:
        put_into(options.into, text, BEGIN, END)


if __name__ == "__main__":
    main()
