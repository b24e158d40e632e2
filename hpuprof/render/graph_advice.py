"""The graph-mode answer at length, as text. Values arrive ready."""

from __future__ import annotations

from hpuprof.model.durations import rounded
from hpuprof.model.prediction import GraphMode
from hpuprof.render.formats import UNKNOWN, duration, percent
from hpuprof.render.sections import graph_options, ratio
from hpuprof.render.text import Paper
from hpuprof.report.model import Report

_BASIS = {
    "steps": "typical steps",
    "one_step": "a single step",
    "device_rows": "what the device did, without a replay",
}


def to_advice(report: Report, *, width: int = 80, color: bool = False) -> str:
    """Return verdict, numbers, options, evidence, assumptions, next measurement and code as text."""
    graph, paper = report.graph_mode, Paper(width=width, color=color)
    paper.line(graph.sentence, style="bold")
    if report.answer.graphs.line:
        paper.line(f"It is line {report.answer.graphs.line} of the plan.")
    for said in filter(None, (report.answer.base.sentence, report.answer.caution)):
        paper.line(said)
    labeled = numbers(graph)
    if labeled:
        paper.heading("Numbers")
        wide = max(len(label) for label, _ in labeled)
        for label, value in labeled:
            paper.line(f"{label.ljust(wide)}  {value}", 2)
    if graph.options:
        paper.heading("Options, best first")
        paper.table(graph_options(graph))
        for option in graph.options:
            if option.note and option.note != "asynchronous=True":
                paper.line(f"{option.region}: {option.note}", 2)
    for heading, lines in (("Evidence", graph.evidence), ("Assumptions", graph.assumptions)):
        if lines:
            paper.heading(heading)
            for text in lines:
                paper.line(f"- {text}", 2)
    if graph.code:
        paper.heading("Code")
        paper.unbroken(graph.code, 2)
    if graph.next_measurement:
        paper.heading("Next measurement")
        paper.line(graph.next_measurement, 2)
        if graph.command:
            paper.line(graph.command, 2)
    return paper.text()


def numbers(graph: GraphMode) -> list[tuple[str, str]]:
    """Return the labeled numbers of a verdict, as text."""
    between, bounds = graph.base_range_ns, graph.bounds
    ends = (between.low, between.high) if between else (None, None)
    found = [
        ("based on", _BASIS.get(graph.basis, UNKNOWN)),
        ("possible speed-up", f"{ratio(bounds.low)} to {ratio(bounds.high)}" if bounds else UNKNOWN),
        ("step time now", rounded(graph.base_step_ns, *ends)),
        ("cost of profiling, in nominal ones", _overhead(graph)),
        ("as recorded, mean of the replayed steps", duration(graph.profiled_step_ns)),
        ("with the best option", duration(graph.step_time_ns.median) if graph.step_time_ns else UNKNOWN),
        ("probability of a gain above 5 %", percent(graph.probability_gain)),
        ("probability of a loss above 1 %", percent(graph.probability_loss)),
        ("upper bound of the options below", _ratio(graph.ceiling)),
        ("device busy time alone (unreachable)", _ratio(graph.unreachable)),
        ("error of the unchanged replay", percent(graph.replay_error)),
        ("error of the joint replay of all ranks", percent(graph.together_error)),
        ("unexplained delay", percent(graph.unexplained)),
    ]
    return [(label, value) for label, value in found if value != UNKNOWN]


def _overhead(graph: GraphMode) -> str:
    """Return what profiling cost, and what that is known from."""
    cost = graph.overhead
    return (
        UNKNOWN if cost is None else f"{cost.median:.1f} ({cost.low:.1f}–{cost.high:.1f}), from {graph.overhead_source}"
    )


def _ratio(value: float | None) -> str:
    return UNKNOWN if value is None else ratio(value)
