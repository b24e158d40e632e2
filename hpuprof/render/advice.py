"""The graph-mode answer at length, as text. Values arrive ready."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from hpuprof.graph_mode.verdict_words import base_words
from hpuprof.model.prediction import GraphMode
from hpuprof.render.formats import UNKNOWN, clean, duration, percent
from hpuprof.render.sections import graph_options, ratio
from hpuprof.render.text import MIN_WIDTH, lay_out
from hpuprof.report.model import Report

if TYPE_CHECKING:
    from rich.console import Console


_BASIS = {
    "steps": "typical steps",
    "one_step": "a single step",
    "device_rows": "what the device did, without a replay",
}


def to_advice(report: Report, *, width: int = 80, color: bool = False) -> str:
    """Return verdict, numbers, options, evidence, assumptions, next measurement and code as text."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(
        file=out,
        width=max(MIN_WIDTH, width),
        force_terminal=color,
        no_color=not color,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    _print(report.graph_mode, console)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def numbers(graph: GraphMode) -> list[tuple[str, str]]:
    """Return the labelled numbers of a verdict, as text."""
    base, bounds = base_words(graph.base, graph.base_step_ns, graph.profiled_step_ns), graph.bounds
    found = [
        ("based on", _BASIS.get(graph.basis, UNKNOWN)),
        ("possible speed-up", f"{ratio(bounds.low)} to {ratio(bounds.high)}" if bounds else UNKNOWN),
        ("step time now", _with(_base(graph), base)),
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


def _with(value: str, words: str) -> str:
    return f"{value}, {words}" if words else value


def _base(graph: GraphMode) -> str:
    """Return the step time that speed-ups relate to, with its range where it was estimated."""
    now, between = duration(graph.base_step_ns), graph.base_range_ns
    return now if between is None else f"{now} ({duration(between.low)} to {duration(between.high)})"


def _overhead(graph: GraphMode) -> str:
    """Return what profiling cost, and what that is known from."""
    cost = graph.overhead
    return (
        UNKNOWN if cost is None else f"{cost.median:.1f} ({cost.low:.1f}–{cost.high:.1f}), from {graph.overhead_source}"
    )


def _ratio(value: float | None) -> str:
    return UNKNOWN if value is None else ratio(value)


def _print(graph: GraphMode, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    def title(text: str) -> None:
        console.print()
        console.print(Text(text, style="bold underline"))

    def line(text: str) -> None:
        console.print(Padding(Text(clean(text)), (0, 0, 0, 2)))

    console.print(Text(clean(graph.sentence), style="bold"))
    labelled = numbers(graph)
    if labelled:
        title("Numbers")
        wide = max(len(label) for label, _ in labelled)
        for label, value in labelled:
            line(f"{label.ljust(wide)}  {value}")
    if graph.options:
        section = graph_options(graph)
        title("Options, best first")
        console.print(Text(lay_out(section, console.width)), no_wrap=True, overflow="ignore", crop=False)
        for option in graph.options:
            if option.note and option.note != "asynchronous=True":
                line(f"{option.region}: {option.note}")
    for heading, lines in (("Evidence", graph.evidence), ("Assumptions", graph.assumptions)):
        if lines:
            title(heading)
            for text in lines:
                line(f"- {text}")
    if graph.code:
        title("Code")
        for text in graph.code.splitlines():
            console.print(Text(f"  {clean(text)}"), no_wrap=True, overflow="ignore", crop=False)
    if graph.next_measurement:
        title("Next measurement")
        line(graph.next_measurement)
        if graph.command:
            line(graph.command)
