"""Measure every bar for speed and memory in one run: against HTA on the same files in turns, then hpuprof alone.

`python -m benchmarks.bars --work DIR --recorded TRACE... --python-hta PATH` makes the files (`--make`: only that), measures,
and prints Markdown; `--into docs/evidence/performance.md` puts it there. Runs the hpuprof of this environment.
"""

from __future__ import annotations

import argparse
import gzip
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

from benchmarks.harness import cases, measure, tools
from benchmarks.large import grow
from benchmarks.scale import machine_line, put_into

BEGIN, END = "<!-- bars:begin -->", "<!-- bars:end -->"
TIMES_CPU, TIMES_WALL = 20, 30  # less than HTA
MANY, SECOND = "1,000 small ranks", "1,000 small ranks, second run"


@dataclass(frozen=True, slots=True)
class Alone:
    """A bar for hpuprof alone; None: no bar."""

    what: str
    path: Path
    cpu_s: float | None = None
    wall_s: float | None = None
    peak_mb: float | None = None
    options: tuple[str, ...] = ("--cache", "off")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--work", type=Path, required=True, help="keep files and HTA's environment here")
    made.add_argument("--recorded", nargs="*", type=Path, default=[], help="recorded traces, repeated in time")
    made.add_argument(
        "--size-mb", type=float, default=50, help="text of a file that HTA reads, too; of all ranks, 4 times"
    )
    made.add_argument("--large-mb", type=float, default=1000, help="text of the file for hpuprof alone")
    made.add_argument("--many", type=int, default=1000, help="small ranks")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--python-hta", type=Path, help="the interpreter that has HTA; else one is installed")
    made.add_argument("--make", action="store_true", help="make the files and the environment, measure nothing")
    made.add_argument("--into", type=Path, help="a document whose marked part the tables replace")
    return made


def compared(options: argparse.Namespace) -> dict[str, Path]:
    """Return what both tools read, by name: generated files, recorded ones, and eight ranks."""
    size, work = options.size_mb, options.work
    found = {}
    for steps in (10, 100):
        for stacks in (False, True):
            case = cases.Case("cuda", size, steps, stacks)
            found[f"{steps} steps{', python stacks' if stacks else ''}"] = cases.make(case, work).path
    for trace in options.recorded:
        found[f"recorded, {trace.name.split('.')[0]}"] = grown(trace, size, work)
    found["8 ranks"] = cases.make(cases.Case("cuda", size / 2, 50, ranks=8), work).path
    return found


def alone(options: argparse.Namespace) -> list[Alone]:
    """Return the bars for hpuprof alone. The cache of the second run is filled by the first."""
    work, found = options.work, []
    plain = cases.make(cases.Case("cuda", options.size_mb, 10), work).path
    packed = work / "packed.pt.trace.json.gz"
    made_of(packed, lambda: subprocess.run(f"gzip -6 < '{plain}' > '{packed}'", shell=True, check=True))
    found += [Alone("a file", plain), Alone("the same, gzipped (at most 15 % more CPU)", packed)]
    for trace in options.recorded[:1]:
        found.append(Alone("a recorded file of 272 MB", grown(trace, 272, work), peak_mb=300))
        large = grown(trace, options.large_mb, work)
        found.append(Alone(f"{options.large_mb:g} MB", large, 12, 7, 800))
    ranks, cache = work / "many", ("--cache", str(work / "cache"))
    make = [sys.executable, "-m", "benchmarks.world.ranks", str(ranks), "--ranks", str(options.many), "--steps", "6"]
    made_of(ranks, lambda: subprocess.run(make, check=True, cwd=tools.CHECKOUT))
    return [*found, Alone(MANY, ranks, cpu_s=25), Alone(SECOND, ranks, cpu_s=3, options=cache)]


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


def run(command: list[str], *, keep: bool = False) -> measure.Run:
    """Run a tool; a failing run ends the program, for its time would mean nothing."""
    one = measure.run(command, env=tools.quiet_environment(), keep_stdout=keep)
    if one.exit_code:
        raise SystemExit(f"{' '.join(command)}: exit {one.exit_code}: {one.stderr_last}")
    print(f"# {one.cpu_s:.1f} s CPU, {one.wall_s:.1f} s wall: {' '.join(command[-3:])}", file=sys.stderr, flush=True)
    return one


def ours(path: Path, *options: str) -> list[str]:
    """Return hpuprof's command line."""
    return [sys.executable, "-P", "-m", "hpuprof", "analyze", str(path), "--json", *options]


def against(paths: dict[str, Path], hta: tools.Installed, options: argparse.Namespace) -> tuple[str, list[object]]:
    """Run both tools in turns; return a table and every run."""
    about = (
        f"Files of {options.size_mb:g} MB, 8 ranks of {options.size_mb / 2:g} MB; hpuprof analyses whole "
        f"(`analyze --json`), HTA {hta.version} parses and makes its temporal, idle, kernel and overlap breakdowns. "
        f"Bars: {TIMES_CPU} times less CPU, {TIMES_WALL} times less wall."
    )
    lines = [
        f"{about}\n",
        "| file | hpuprof CPU s | wall s | peak MB | HTA CPU s | wall s | peak MB | CPU, times less | wall, times less |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    kept: list[object] = []
    for what, path in paths.items():
        turns = [
            (run(ours(path, "--cache", "off")), run(hta.command(path, options.work), keep=True))
            for _ in range(options.repeats)
        ]
        if not all(json.loads(theirs.stdout_last or "{}").get("device_rows_seen") for _, theirs in turns):
            raise SystemExit(f"{path}: HTA saw no device rows")
        sides = list(zip(*turns, strict=True))
        cells = [f"{measure.median(side, 'cpu_s'):.2f} | {measure.median(side, 'wall_s'):.2f} | "
                 f"{measure.median(side, 'peak_tree_bytes') / 1e6:.0f}" for side in sides]  # fmt: skip
        ratios = [statistics.median(getattr(b, f) / getattr(a, f) for a, b in turns) for f in ("cpu_s", "wall_s")]
        lines.append(f"| {what} | {' | '.join(cells)} | {' | '.join(f'{ratio:.1f}' for ratio in ratios)} |")
        kept.append({"file": what, "turns": [[asdict(one) for one in turn] for turn in turns]})
    return "\n".join(lines), kept


def by_itself(bars: list[Alone], options: argparse.Namespace) -> tuple[str, list[object]]:
    """Run hpuprof alone; return a table and every run. A bar stands in brackets."""
    shutil.rmtree(options.work / "cache", ignore_errors=True)
    lines = ["| hpuprof alone | CPU s | wall s | peak MB |", "|---|---:|---:|---:|"]
    kept: list[object] = []
    for bar in bars:
        if bar.what == SECOND:
            run(ours(bar.path, *bar.options))
        runs = [run(ours(bar.path, *bar.options)) for _ in range(options.repeats)]
        found = [measure.median(runs, f) for f in ("cpu_s", "wall_s", "peak_tree_bytes")]
        shown = [f"{found[0]:.2f}", f"{found[1]:.2f}", f"{found[2] / 1e6:.0f}"]
        limits = (bar.cpu_s, bar.wall_s, bar.peak_mb)
        cells = [f"{text} ({limit:g})" if limit else text for text, limit in zip(shown, limits, strict=True)]
        lines.append(f"| {bar.what} | {' | '.join(cells)} |")
        kept.append({"file": bar.what, "runs": [asdict(one) for one in runs]})
    return "\n".join(lines), kept


def main() -> None:
    """Make the files, measure, print."""
    options = parser().parse_args()
    options.work = options.work.absolute()
    options.work.mkdir(parents=True, exist_ok=True)
    given = {"HTA": options.python_hta.absolute()} if options.python_hta else {}
    (hta,) = tools.prepare([tools.hta_tool()], options.work, given, install=not given)
    both, single = compared(options), alone(options)
    if options.make:
        return
    first, kept = against(both, hta, options)
    second, more = by_itself(single, options)
    about = measure.machine()
    (options.work / "bars.json").write_text(json.dumps({"machine": about, "runs": [*kept, *more]}))
    text = "\n\n".join([machine_line(about, options.repeats), first, f"Bars in brackets.\n\n{second}"])
    print(text)
    if options.into:
        put_into(options.into, text, BEGIN, END)


if __name__ == "__main__":
    main()
