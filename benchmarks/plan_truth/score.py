"""Holds prices against what the edited programs took, and writes the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

import msgspec
import numpy as np

import hpuprof
from benchmarks.graph_mode.case import EAGER, Case
from hpuprof.analysis.modules import backward_windows
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.predict import Settings, predict_and_keep
from hpuprof.ingest.read import read_trace
from hpuprof.model.schema import DeviceKind
from hpuprof.model.tables import PlanRow
from hpuprof.planning.greedy import SHOWN
from hpuprof.planning.row_edits import scaled
from hpuprof.report.model import Report
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel

from .programs import KERNELS, TOGETHER, Edit, Program

GRAPHS = "graphs "
LEAST = 0.03
"""Share of the step below which a measured gain is not scored by its relative error."""


@dataclass(frozen=True)
class Row:
    """An edit of a program. Times in ns; None: nothing has a price for it."""

    program: str
    edit: str
    now_ns: float
    true_ns: float
    true_low_ns: float  # quartiles of the rounds
    true_high_ns: float
    said_ns: float | None
    low_ns: float | None
    high_ns: float | None
    remedy: str  # empty: not one of the plan's
    order: int | None  # of the remedy in the plan

    @property
    def inside(self) -> str:
        """Whether the measured step lies in the interval: by its median, or only as far as the rounds can tell."""
        if self.low_ns <= self.true_ns <= self.high_ns:
            return "yes"
        return "rounds" if self.low_ns <= self.true_high_ns and self.true_low_ns <= self.high_ns else "no"

    @property
    def gain(self) -> float:
        """What was gained [ns]."""
        return self.now_ns - self.true_ns


def report(programs: list[Program], folder: Path) -> Iterator[str]:
    """Yield the tables of all cases that are there, in Markdown."""
    rows: list[Row] = []
    for program in programs:
        path = folder / f"{program.file}.json"
        if path.is_file():
            rows += score(program, msgspec.json.decode(path.read_bytes(), type=Case), folder)
    yield "| program | edit | recorded | predicted | measured | error | gain predicted / measured | in interval | place |"
    yield "|---|---|---|---|---|---|---|---|---|"
    yield from map(_line, rows)
    yield ""
    priced = [row for row in rows if row.said_ns is not None]
    yield from (*_scores(priced), "", *_choices(rows)) if priced else ()


def score(program: Program, case: Case, folder: Path) -> Iterator[Row]:
    """Yield the rows of a program.

    Each round ran it and an edit one after the other: their ratio counts. Gains are shares of what it takes now, which
    the recorder timed before it recorded.
    """
    now = case.step_time[EAGER].median
    trace = folder / case.trace
    said = hpuprof.analyze(trace, cache="off")
    wishes = {edit.name: wish for edit in program.edits if (wish := _wish(said, edit))}
    told = list(said.data.plan)
    if wishes:
        told += hpuprof.analyze(trace, cache="off", apply=list(dict.fromkeys(wishes.values()))).data.plan
    for edit in program.edits:
        if edit.name not in case.step_time:
            continue
        if TOGETHER in edit.priced_by:
            gain, low, high, remedy, order = _all_together(trace, edit)
        elif edit.priced_by.startswith(GRAPHS):
            gain, low, high, remedy, order = _in_graphs(said, edit.priced_by.removeprefix(GRAPHS))
        elif edit.priced_by == KERNELS:
            gain, low, high, remedy, order = _all_faster(trace, said, edit)
        else:
            name = wishes.get(edit.name, "" if edit.left is not None else edit.priced_by)
            gain, low, high, remedy, order = _price(told, name, said.data.graph_mode.base_step_ns)
        if gain is None and edit.priced_by.startswith(GRAPHS):
            continue  # that region is no option
        ratio = np.array(case.step_time[edit.name].rounds) / np.array(case.hidden["beside"][edit.name])
        below, true, above = (float(now * q) for q in np.percentile(ratio, [25, 50, 75]))
        times = [None if share is None else now * (1.0 - share) for share in (gain, high, low)]
        yield Row(program.name, edit.name, now, true, below, above, *times, remedy, order)


Price = tuple[float | None, float | None, float | None, str, int | None]


def _wish(said: Report, edit: Edit) -> str:
    """Return how the plan is asked for a part that takes less; empty for a remedy, and where nothing has the name."""
    found = [r.what for r in said.data.sensitivity if edit.left is not None and edit.priced_by in r.what]
    return f"{found[0]}={100 * (1 - edit.left):.0f}%" if found else ""


def _price(told: list[PlanRow], name: str, now: float) -> Price:
    """Return the share of the step that an edit is said to gain, its interval, the remedy, and its place in the plan."""
    rows = [r for r in told if r.remedy == name and r.alone_ns is not None]
    if name and not rows and any(r.alone_ns is not None for r in told):
        return 0.0, 0.0, SHOWN, name, None
    if not rows:
        return None, None, None, name, None
    best = max(rows, key=lambda r: r.alone_ns)
    order = min((r.order for r in rows if r.order is not None), default=None)
    low, high = best.alone_low_ns / now, best.alone_high_ns / now
    return best.alone_ns / now, low, high, "" if "=" in name else name, None if "=" in name else order


def _in_graphs(said: Report, region: str) -> Price:
    """Return what a region captured as it is gains, with what stands in its way removed."""
    found = [
        o for o in said.data.graph_mode.options if (o.region, o.drops_sync, o.asynchronous) == (region, False, False)
    ]
    if not found or found[0].speedup is None:
        return None, None, None, "graphs", None
    speedup, lines = found[0].speedup, [r.order for r in said.data.plan if r.remedy == "graphs"]
    return 1 - 1 / speedup.median, 1 - 1 / speedup.low, 1 - 1 / speedup.high, "graphs", lines[0] if lines else None


def _all_together(trace: Path, edit: Edit) -> Price:
    """Return what several remedies gain together, in whatever order the plan applies them."""
    report = hpuprof.analyze(trace, cache="off", apply=edit.priced_by.split(TOGETHER))
    applied = [row for row in report.data.plan if row.order is not None]
    if not applied:
        return 0.0, 0.0, SHOWN, TOGETHER, None
    last, base = max(applied, key=lambda row: row.order), report.data.graph_mode.base_step_ns
    low, high = (1.0 - ns / base for ns in (last.after_high_ns, last.after_low_ns))
    return 1.0 - last.after_ns / base, low, high, TOGETHER, None


def _all_faster(trace: Path, said: Report, edit: Edit) -> Price:
    """Return what all kernels together gain if they take less: no table tells it, the engine does."""
    view = RankView.of(read_trace(trace))
    windows = backward_windows(view, view.modules)
    _, replay = predict_and_keep(view, view.modules, windows, Settings(unprofiled_ns=said.data.graph_mode.base_step_ns))
    if replay is None or not isinstance(replay.model, LaunchModel):
        return None, None, None, "", None
    kernels = replay.model.program.kind == DeviceKind.COMPUTE
    pricing = replay.pricing
    share = pricing.share([Change("", None, lambda model, _: scaled(model, kernels, edit.left))])
    low, middle, high = (float(q) for q in np.percentile((1.0 - share) * pricing.error, [5, 50, 95]))
    return middle, low, high, "", None


def _line(row: Row) -> str:
    measured = f"{_ms(row.true_ns)} ({_ms(row.true_low_ns)}–{_ms(row.true_high_ns)})"
    if row.said_ns is None:
        return f"| {row.program} | {row.edit} | {_ms(row.now_ns)} | no price | {measured} | | / {_ms(row.gain)} | | |"
    return (
        f"| {row.program} | {row.edit} | {_ms(row.now_ns)} | {_ms(row.said_ns)} ({_ms(row.low_ns)}–{_ms(row.high_ns)}) "
        f"| {measured} | {row.said_ns / row.true_ns - 1:+.0%} | {_ms(row.now_ns - row.said_ns)} / {_ms(row.gain)} "
        f"| {row.inside} | {row.order or ''} |"
    )


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.2f}"


def _scores(rows: list[Row]) -> Iterator[str]:
    """Yield errors by kind of price."""
    yield "| price | rows | step time, mean error | gain, median error | in interval | + rounds |"
    yield "|---|---|---|---|---|---|"
    called = {"": "a part faster", TOGETHER: "several together"}
    for name in ["all", *dict.fromkeys(called.get(row.remedy, row.remedy) for row in rows)]:
        mine = [row for row in rows if name in ("all", called.get(row.remedy, row.remedy))]
        steps = mean(abs(r.said_ns - r.true_ns) / r.true_ns for r in mine)
        gains = [abs(r.true_ns - r.said_ns) / abs(r.gain) for r in mine if abs(r.gain) > LEAST * r.now_ns]
        inside, near = (mean(r.inside in which for r in mine) for which in (("yes",), ("yes", "rounds")))
        yield f"| {name} | {len(mine)} | {steps:.1%} | {f'{median(gains):.0%}' if gains else '-'} | {inside:.0%} | {near:.0%} |"


def _choices(rows: list[Row]) -> Iterator[str]:
    """Yield where the plan's first choice stands among the remedies as they turned out."""
    yield "| program | first choice | its rank among the remedies tried | step lost by it |"
    yield "|---|---|---|---|"
    for name in dict.fromkeys(row.program for row in rows):
        best: dict[str, float] = {}
        for row in rows:
            if row.program == name and row.remedy not in ("", TOGETHER):
                best[row.remedy] = min(best.get(row.remedy, np.inf), row.true_ns)
        first = next((r for r in rows if r.program == name and r.order == 1), None)
        if first is not None and len(best) > 1:
            order = sorted(best, key=best.__getitem__)
            lost = (best[first.remedy] - best[order[0]]) / first.now_ns
            yield f"| {name} | {first.remedy} | {order.index(first.remedy) + 1} of {len(order)} | {lost:.1%} |"
