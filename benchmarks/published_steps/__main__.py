"""Published before and after, end to end: `python -m benchmarks.published_steps [--only NAME …] [--unknown] [--markdown] [--effort N]`.

Each case is a program with the published figures in the simulated world, recorded without any cost of profiling but
where the case says so, and analyzed as a stranger's trace with the step time given (`--unknown`: not given).
"""

from __future__ import annotations

import argparse
import gzip
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import hpuprof
from benchmarks.harness.effort import add_effort, weigh
from benchmarks.world.host import run_ranks
from benchmarks.world.machine import Machine
from benchmarks.world.trace import Source, cuda_trace
from hpuprof.report.model import Report

from .cases import CASES, Case

HEAD = """| case | program | published, ms | simulated, ms | asked | must be | said | right |
| --- | --- | --- | ---: | --- | --- | --- | --- |"""
MACHINE = Machine(host_sigma=0.03, kernel_sigma=0.01)
STEPS, LEAD, TIMED = 8, 4, 20
LONG_MS = 1_000
"""Longer steps are recorded less often."""
MS = 1e6
BUSY = 0.05
"""How far the simulated step may be from the published one."""


@dataclass(frozen=True)
class Said:
    """One thing that was asked of a report."""

    case: Case
    asked: str
    said: str
    must: str
    right: bool


def report_of(case: Case, *, known: bool = True) -> tuple[Report, float]:
    """Return hpuprof's report of a case, and the step time without the profiler [ms]."""
    step = case.write()
    many = case.before_ms < LONG_MS
    steps, lead, timed = (STEPS, LEAD, TIMED) if many else (4, 2, 4)
    programs = [step] * case.ranks
    of_row, of_call = case.cost_ns
    machine = replace(MACHINE, op_cost_ns=of_row, python_cost_ns=of_row, runtime_cost_ns=of_call, cost_sigma=0.2)
    seen = run_ranks(programs, machine, seed=f"{case.name} seen", profile=True, steps=steps, lead=lead, drained=False)
    now = run_ranks(programs, machine, seed=f"{case.name} alone", steps=timed, lead=lead, drained=False)[0].steady_ns()
    with tempfile.TemporaryDirectory() as folder:
        for rank, one in enumerate(seen):
            text = cuda_trace(one, machine, Source(rank=rank, world=case.ranks), f"{case.name} {rank}")
            (Path(folder) / f"job_{rank}.pt.trace.json.gz").write_bytes(gzip.compress(text.encode(), 1))
        step_time = f"{now}ns" if known else None
        return hpuprof.analyze(folder, cache="off", jobs=1, step_time=step_time), now / MS


def judged(case: Case, report: Report, now: float) -> Iterator[Said]:
    """Yield what was asked of a report, what it said and whether that is right; `now`: the step time [ms]."""
    truth, graph, plan = case.truth, report.graph_mode, report.data.plan
    if truth.verdicts:
        yield Said(case, "graphs", graph.verdict, " or ".join(truth.verdicts), graph.verdict in truth.verdicts)
    if truth.step_with_graphs is not None:
        low, high = truth.step_with_graphs
        found = graph.step_time_ns.median / MS if graph.step_time_ns else None
        right = found is not None and low <= found <= high
        yield Said(case, "step with graphs", _ms(found), f"{low:.4g} to {high:.4g}", right)
    if truth.first:
        ordered = sorted((row for row in plan if row.order), key=lambda row: row.order or 0)
        first = [row.remedy for row in ordered[: truth.lines]] or ["nothing"]
        asked = "first" if truth.lines == 1 else f"first {truth.lines}"
        yield Said(case, asked, ", ".join(first), " or ".join(truth.first), not {*first}.isdisjoint(truth.first))
    for name, (low, high) in truth.saves.items():
        rows = [row.alone_ns / MS for row in plan if row.remedy == name and row.alone_ns is not None]
        best = max(rows, default=None)
        absent = best is None and low == 0.0
        yield Said(
            case,
            f"{name} saves",
            _ms(best),
            f"{low:.4g} to {high:.4g}",
            absent or (best is not None and low <= best <= high),
        )
    lines = {row.remedy for row in plan if row.order}
    for name in truth.absent:
        yield Said(case, f"no {name}", "a line" if name in lines else "none", "none", name not in lines)
    if truth.bound:
        bound = report.answer.bound
        yield Said(case, "bound", bound, " or ".join(truth.bound), bound in truth.bound)
    used = [step for step in report.data.steps if step.used]
    if truth.busy is not None:
        found = sum(step.device_busy_ns or 0 for step in used) / max(1, sum(step.wall_ns for step in used))
        yield Said(case, "busy", f"{found:.1%}", f"{truth.busy:.1%}", abs(found - truth.busy) < BUSY)
    counted = report.answer.base.counted
    if truth.base and counted.low_ns is not None and counted.high_ns is not None and graph.base != "given":
        low, high = counted.low_ns / MS, counted.high_ns / MS
        yield Said(case, "step time now", f"{low:.4g} to {high:.4g} ms", f"holds {now:.4g} ms", low <= now <= high)
    if truth.exposed is not None:
        low, high = truth.exposed
        found = sum(step.exposed_communication_ns or 0 for step in used) / max(1, len(used)) / MS
        yield Said(case, "exposed communication", _ms(found), f"{low:.4g} to {high:.4g}", low <= found <= high)
    if truth.nobody:
        named = ", ".join(row.name for row in report.data.suspects if row.named) or "none"
        yield Said(case, "rank that holds others up", named, "none", named == "none")


def main() -> None:
    """Run the cases and print what was said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--unknown", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    add_effort(parser)
    args = parser.parse_args()
    weigh(args.effort)
    found: list[Said] = []
    print(HEAD if args.markdown else "")
    for case in CASES:
        if args.only and case.name not in args.only:
            continue
        report, now = report_of(case, known=not args.unknown)
        said = list(judged(case, report, now))
        found += said
        print(as_rows(case, now, said) if args.markdown else as_text(case, now, said), flush=True)
    print(f"\n{summary(found)}")


def summary(found: Sequence[Said]) -> str:
    """Count what was said rightly, by figure and by program, those apart whose device time was set to the answer."""
    right = sum(one.right for one in found)
    programs = {one.case.program for one in found}
    wrong = {one.case.program for one in found if not one.right}
    set_to = {one.case.program for one in found if one.case.busy_is_the_answer}
    first = [one.right for one in found if one.asked.startswith("first")]
    return (
        f"{right} of {len(found)} right; {len(programs - wrong)} of {len(programs)} programs without a miss "
        f"({len(set_to)} of them have a device time that was set to the answer). "
        f"{sum(first)} of {len(first)} first choices are as measured."
    )


def as_text(case: Case, now: float, said: Sequence[Said]) -> str:
    """Return the lines of a case."""
    lines = [f"{case.name:5} {case.before_ms:g} ms published, {now:.4g} ms simulated; {case.work}"]
    lines += [f"      {'  ' if one.right else '✗ '}{one.asked}: {one.said} (must: {one.must})" for one in said]
    return "\n".join(lines)


def as_rows(case: Case, now: float, said: Sequence[Said]) -> str:
    """Return the rows of a case in the evidence's table."""
    after = "" if case.after_ms is None else f" → {case.after_ms:g}"
    first = [case.name, case.work, f"{case.before_ms:g}{after}", f"{now:.4g}"]
    rows = []
    for i, one in enumerate(said):
        cells = [*(first if i == 0 else [""] * 4), one.asked, one.must, one.said, "yes" if one.right else "**no**"]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _ms(found: float | None) -> str:
    return "unknown" if found is None else f"{found:.4g} ms"


if __name__ == "__main__":
    main()
