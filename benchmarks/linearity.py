"""Show how hpuprof's CPU time grows with rows and with steps: a flat last column means linear.

`python -m benchmarks.linearity --python-hpuprof PATH`
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from benchmarks.harness import cases, machine, measure, tools

Series = list[tuple[cases.Made, list[measure.Run]]]


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--work", type=Path, help="keep traces and the environment here (default: a temporary folder)")
    made.add_argument("--dialect", choices=("cuda", "hpu_g1", "hpu_g3"), default="cuda")
    made.add_argument("--stacks", action="store_true", help="with python_function rows")
    made.add_argument("--sizes", nargs="+", type=int, default=[25, 50, 100, 200], metavar="MB", help="at 10 steps")
    made.add_argument("--steps", nargs="+", type=int, default=[10, 30, 100], metavar="N", help="at 100 MB")
    made.add_argument("--repeats", type=int, default=3)
    made.add_argument("--tool", choices=("hpuprof", "hta", "tb"), default="hpuprof")
    made.add_argument("--no-install", dest="install", action="store_false")
    made.add_argument("--python-hpuprof", "--python", dest="python", type=Path, help="the interpreter of the tool")
    made.add_argument("--json", type=Path, help="where to write every run")
    return made


def run_series(which: list[cases.Case], tool: tools.Installed, repeats: int, work: Path) -> Series:
    """Measure the tool on each file; a failing run ends the program, for its time would mean nothing."""
    series: Series = []
    for case in which:
        made = cases.make(case, work / "traces")
        cases.warm(made.path)
        command = tool.command(made.path, work / "scratch")
        runs = [measure.run(command, env=tools.quiet_environment()) for _ in range(repeats)]
        for run in runs:
            if run.exit_code:
                raise SystemExit(f"{case.label}: {tool.tool.name} exit {run.exit_code}: {run.stderr_last}")
        series.append((made, runs))
    return series


def table(title: str, series: Series) -> str:
    """Return one Markdown table with the CPU time per million rows."""
    lines = [f"### {title}", "", "| file | rows | steps | CPU s | peak MB | CPU s per million rows |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    for made, runs in series:
        cpu = statistics.median(run.cpu_s for run in runs)
        peak = statistics.median(run.peak_tree_bytes for run in runs) / 1e6
        cells = (
            made.case.label,
            f"{made.rows:,}",
            made.case.steps,
            f"{cpu:.2f}",
            f"{peak:.0f}",
            f"{cpu / made.rows * 1e6:.2f}",
        )
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run both series."""
    options = parser().parse_args()
    known = {"hpuprof": tools.hpuprof_tool, "hta": tools.hta_tool, "tb": tools.tb_tool}
    tool = known[options.tool]()
    with tempfile.TemporaryDirectory(prefix="hpuprof-linearity-") as folder:
        work = (options.work or Path(folder)).absolute()
        given = {tool.name: options.python.absolute()} if options.python else {}
        ready = tools.prepare([tool], work, given, install=options.install)[0]
        by_rows = [cases.Case(options.dialect, size, 10, options.stacks) for size in options.sizes]
        by_steps = [cases.Case(options.dialect, 100, steps, options.stacks) for steps in options.steps]
        rows = run_series(by_rows, ready, options.repeats, work)
        steps = run_series(by_steps, ready, options.repeats, work)
        print(table(f"{tool.name}: against rows, 10 steps", rows))
        print(table(f"{tool.name}: against steps, 100 MB", steps))
        if options.json:
            kept = [
                {"case": made.case.label, "rows": made.rows, "cpu_s": [run.cpu_s for run in runs]}
                for made, runs in (*rows, *steps)
            ]
            stored = {"machine": machine.describe(), "version": ready.version, "series": kept}
            options.json.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
