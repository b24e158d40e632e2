"""The plan's first line on public traces: `python -m benchmarks.plan_traces FOLDER [--only WORD] [--markdown]`.

The traces are those of `benchmarks.public_traces`; `plan` in `public_traces.json` holds what an expert would change
first, and which share of the step that can give by the recorded times.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import hpuprof
from benchmarks.public_traces import Opinion, PlanOpinion, link_of, listed, scores
from hpuprof.model.durations import duration
from hpuprof.model.plan_rows import refused
from hpuprof.report.model import Report

SLACK = 0.02
"""Share of the step by which a gain may lie outside the range that the recorded times allow."""
UNREADABLE, NOTHING = "unreadable", "nothing"


@dataclass(frozen=True)
class First:
    """The first line: a remedy, why there is none, or `nothing` where none saves 1 %. Gains are shares of the step."""

    name: str
    line: str
    step_ns: float | None = None
    gain: tuple[float, float, float] | None = None


def first_of(trace: Path) -> First:
    """Analyze a trace and return its first line."""
    try:
        return first_in(hpuprof.analyze(trace, jobs=1))
    except hpuprof.HpuprofError as error:
        return First(UNREADABLE, str(error).replace(str(trace), trace.name))


def first_in(report: Report) -> First:
    """Return the first line of a report."""
    rows = report.data.plan
    line = next((row for row in rows if row.order == 1), None)
    if line is not None and line.before_ns:
        shares = [(ns or 0.0) / line.before_ns for ns in (line.gain_low_ns, line.gain_ns, line.gain_high_ns)]
        return First(line.remedy, f"{line.title}: {line.where}", line.before_ns, (shares[0], shares[1], shares[2]))
    asked = next((row for row in rows if row.reason == "one_rank"), None)
    if asked is not None:
        return First(asked.reason, report.headline.first)
    if (unknown := refused(rows)) is not None:
        return First(unknown.reason, f"Cannot say: {unknown.why}")
    unsure = max((r for r in rows if r.reason == "may_lose"), key=lambda row: row.alone_ns or 0.0, default=None)
    if unsure is not None:
        return First(unsure.remedy, f"Nothing is sure to save time: {unsure.title}")
    return First(NOTHING, "Nothing that is priced saves 1 %")


def faults(opinion: PlanOpinion, first: First) -> list[str]:
    """Return what an expert would not have said; empty when the line is right."""
    if first.name not in opinion.first:
        return [f"{first.name}, not {' or '.join(opinion.first)}"]
    if opinion.gain is None or first.gain is None:
        return []
    low, high = opinion.gain
    found, said = [], first.gain[1]
    if said > high + SLACK:
        found.append(f"saves {said:.0%} where at most {high:.0%} is to be had")
    if said < low - SLACK:
        found.append(f"saves {said:.0%} where at least {low:.0%} is to be had")
    return found


def judged(folder: Path, only: str = "") -> Iterator[tuple[Opinion, PlanOpinion, First, list[str]]]:
    """Yield each trace that is there with its first line and what is wrong with it."""
    for opinion, trace in listed(folder, only):
        if opinion.plan is not None:
            first = first_of(trace)
            yield opinion, opinion.plan, first, faults(opinion.plan, first)


def as_markdown(rows: Iterable[tuple[Opinion, PlanOpinion, First, list[str]]]) -> str:
    """Return the table of first lines."""
    lines = [
        "| trace | what it is | step now | first line | saves (90 %) | an expert, and why | right |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for opinion, plan, first, wrong in rows:
        step = "" if first.step_ns is None else duration(first.step_ns)
        gain = "" if first.gain is None else f"{first.gain[1]:.0%} ({first.gain[0]:.0%} to {first.gain[2]:.0%})"
        right = "yes" if not wrong else "no: " + "; ".join(wrong)
        cells = (link_of(opinion), opinion.what, step, first.line, gain, plan.why, right)
        lines.append("| " + " | ".join(cell.replace("|", "/") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Judge the first lines of the traces of a folder."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.plan_traces", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="traces whose repository or path holds this")
    parser.add_argument("--markdown", action="store_true", help="the table of docs/evidence/plan_traces.md")
    given = parser.parse_args()
    rows = list(judged(given.folder, given.only))
    if given.markdown:
        print(as_markdown(rows), end="")
    else:
        for opinion, _, first, wrong in rows:
            print(f"{'no ' if wrong else 'yes'} {opinion.path}: {first.line} {'; '.join(wrong)}", flush=True)
    priced = [wrong for _, _, first, wrong in rows if first.gain is not None]
    said = scores((plan.blind, not wrong) for _, plan, _, wrong in rows)
    print(f"\n{said}; {len(priced)} have a price, {sum(not wrong for wrong in priced)} right")


if __name__ == "__main__":
    main()
