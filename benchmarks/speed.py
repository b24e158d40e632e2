"""Compare hpuprof with its peers as whole processes on the same files: wall clock, CPU time, peak memory.

`python -m benchmarks.speed` makes the traces, installs the tools and prints a Markdown table.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.harness import cases, measure, tools


@dataclass(frozen=True, slots=True)
class Outcome:
    """All runs of one tool on one file; `failure` is empty when every run gave an answer about the device."""

    made: cases.Made
    tool: str
    runs: tuple[measure.Run, ...]
    failure: str


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--work", type=Path, help="keep traces and environments here (default: a temporary folder)")
    made.add_argument("--dialects", nargs="+", choices=("cuda", "hpu_g1"), default=["cuda"])
    made.add_argument("--sizes", nargs="+", type=int, default=[200], metavar="MB")
    made.add_argument("--steps", nargs="+", type=int, default=[10, 100], metavar="N")
    made.add_argument("--ranks", type=int, default=1, metavar="N", help="folders of so many ranks in place of files")
    made.add_argument("--stacks", choices=("no", "yes", "both"), default="both")
    made.add_argument("--full", action="store_true", help="add 1000 MB and HPU; takes hours")
    made.add_argument("--tools", nargs="+", choices=("hpuprof", "hta", "tb"), default=["hpuprof", "hta", "tb"])
    made.add_argument("--tracelens", type=Path, metavar="CHECKOUT", help="add TraceLens from this git checkout")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--timeout", type=float, default=1800, help="seconds after which a run counts as failed")
    made.add_argument("--no-install", dest="install", action="store_false", help="use the environments as they are")
    for name in ("hpuprof", "hta", "tb", "tracelens"):
        made.add_argument(f"--python-{name}", type=Path, metavar="PATH", help=f"the interpreter that has {name}")
    made.add_argument("--json", type=Path, help="where to write every run (default: speed.json under --work)")
    return made


def chosen_cases(options: argparse.Namespace) -> list[cases.Case]:
    """Return the files to measure, small ones first."""
    sizes = sorted({*options.sizes, *([1000] if options.full else [])})
    dialects = ["cuda", "hpu_g1"] if options.full else options.dialects
    stacks = {"no": [False], "yes": [True], "both": [False, True]}[options.stacks]
    product = itertools.product(sizes, dialects, options.steps, stacks)
    return [cases.Case(dialect, size, steps, stack, options.ranks) for size, dialect, steps, stack in product]


def chosen_tools(options: argparse.Namespace, work: Path) -> list[tools.Installed]:
    """Return the tools to run, installed."""
    known = {"hpuprof": tools.hpuprof_tool, "hta": tools.hta_tool, "tb": tools.tb_tool}
    picked = {name: known[name]() for name in options.tools}
    if options.tracelens:
        picked["tracelens"] = tools.tracelens_tool(options.tracelens)
    given = {name: getattr(options, f"python_{name}") for name in picked}
    interpreters = {picked[name].name: path.absolute() for name, path in given.items() if path}
    return tools.prepare(list(picked.values()), work, interpreters, install=options.install)


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


def run_case(made: cases.Made, ready: list[tools.Installed], options: argparse.Namespace, work: Path) -> list[Outcome]:
    """Run every tool on one file, in turns, so that a slow spell of the machine meets all of them."""
    collected: dict[str, list[measure.Run]] = {one.tool.name: [] for one in ready}
    for turn in range(options.repeats):
        for one in ready[turn % len(ready) :] + ready[: turn % len(ready)]:
            runs = collected[one.tool.name]
            if runs and failure_of(one.tool, runs[:1]):
                continue  # a tool that cannot read the file will not learn it in the second turn
            command = one.command(made.path, work / "scratch")
            keep = one.tool.reports_device_rows
            env = tools.quiet_environment()
            run = measure.run(command, timeout_s=options.timeout, env=env, keep_stdout=keep)
            runs.append(run)
            cost = f"{run.wall_s:.1f} s wall, {run.cpu_s:.1f} s CPU, {run.peak_tree_bytes / 1e6:.0f} MB"
            note = f"{cost}, exit {run.exit_code}, load {run.load_before:.1f}"
            print(f"# {made.case.label} {one.tool.name}: {note}", file=sys.stderr, flush=True)
            shutil.rmtree(work / "scratch", ignore_errors=True)
    return [
        Outcome(
            made,
            one.tool.name,
            tuple(collected[one.tool.name]),
            failure_of(one.tool, collected[one.tool.name]),
        )
        for one in ready
    ]


def _cells(outcome: Outcome, base: Outcome | None) -> list[str]:
    cells = [outcome.tool]
    fields = (("wall_s", 1.0, ".2f"), ("cpu_s", 1.0, ".2f"), ("peak_tree_bytes", 1e6, ".0f"))
    cells += [f"{measure.median(outcome.runs, name) / unit:{form}}" for name, unit, form in fields]
    cells.append(f"{measure.median(outcome.runs, 'cpu_s') / outcome.made.rows * 1e6:.2f}")
    comparable = base is not None and not outcome.failure and not base.failure
    for name, _, _ in fields:
        cells.append(
            f"{measure.median(outcome.runs, name) / measure.median(base.runs, name):.1f}"
            if base and comparable
            else "-"
        )
    return [*cells, outcome.failure.replace("|", "/")]


def table(outcomes: list[Outcome]) -> str:
    """Return the medians and their ratios to hpuprof as Markdown, one table a file."""
    head = "| tool | wall s | CPU s | peak MB | CPU s a million rows | wall / hpuprof | CPU / hpuprof | memory / hpuprof | failure |\n"
    rule = "|---|---:|---:|---:|---:|---:|---:|---:|---|\n"
    parts = []
    for made, group in itertools.groupby(outcomes, key=lambda outcome: outcome.made):
        members = list(group)
        base = next((one for one in members if one.tool == tools.HPUPROF), None)
        rows = "".join("| " + " | ".join(_cells(one, base)) + " |\n" for one in members)
        title = f"{made.case.label}: {made.text_bytes / 1e6:.0f} MB, {made.rows:,} rows"
        parts.append(f"### {title}\n\n{head}{rule}{rows}")
    return "\n".join(parts)


def record(outcomes: list[Outcome], ready: list[tools.Installed]) -> dict[str, object]:
    """Return every run with the machine and the versions, for storing."""
    return {
        "machine": measure.machine(),
        "versions": {one.tool.name: one.version for one in ready},
        "outcomes": [
            {
                "case": asdict(outcome.made.case),
                "bytes": outcome.made.text_bytes,
                "rows": outcome.made.rows,
                "tool": outcome.tool,
                "failure": outcome.failure,
                "runs": [asdict(run) for run in outcome.runs],
            }
            for outcome in outcomes
        ],
    }


def main() -> None:
    """Run the comparison."""
    options = parser().parse_args()
    with tempfile.TemporaryDirectory(prefix="hpuprof-speed-") as folder:
        work = (options.work or Path(folder)).absolute()
        work.mkdir(parents=True, exist_ok=True)
        ready = chosen_tools(options, work)
        out = options.json or (work / "speed.json" if options.work else Path("speed.json"))
        outcomes: list[Outcome] = []
        for case in chosen_cases(options):
            outcomes += run_case(cases.make(case, work / "traces"), ready, options, work)
            # Written after each file: a long run that is cut short keeps what it has.
            out.write_text(json.dumps(record(outcomes, ready), indent=1) + "\n")
        print(table(outcomes))
        print(f"Every run: {out}", file=sys.stderr)


if __name__ == "__main__":
    main()
