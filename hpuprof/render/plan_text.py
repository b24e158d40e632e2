"""The plan at length, as text: what to change first, what it gives, how to do it. Values arrive ready."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from hpuprof.model.tables import PlanRow
from hpuprof.render.formats import clean, duration
from hpuprof.render.text import printed
from hpuprof.render.what_to_do import between, gives, refused, told, what_to_do
from hpuprof.report.model import Report

if TYPE_CHECKING:
    from rich.console import Console

_BOUND = {"host": "Then the host sets the step time.", "device": "Then the device sets the step time."}
_PROOF = {
    "edited": "tried on programs that were changed and run, on a virtual device",
    "injected": "tried by adding a known delay and finding it",
    "simulated": "tried on generated traces only",
}


def to_plan(report: Report, *, width: int = 80, color: bool = False) -> str:
    """Return the plan with advice, code, costs and unknowns, what adds too little, and what cannot be said."""
    return printed(lambda console: _print(report, console), width=width, color=color)


def _print(report: Report, console: Console) -> None:
    from rich.padding import Padding
    from rich.text import Text

    rows = report.data.plan
    taken = [row for row in rows if row.order is not None]
    said = report.headline.first or (report.headline.sentence if taken else refused(rows))
    console.print(Text(clean(said), style="bold"))
    if all(row.why for row in rows) and report.graph_mode.verdict in ("likely", "marginal"):
        console.print(Text(clean(f"Graph mode: {report.graph_mode.sentence}")))
    lines = what_to_do(report).lines
    for row, item in zip(taken, lines, strict=True):
        console.print()
        console.print(Text(f"{row.order}. {clean(row.title)}: {clean(row.where)}", style="bold underline"))
        for line in _lines(row):
            console.print(Padding(Text(clean(line)), (0, 0, 0, 3)))
        for line in row.code.splitlines():
            console.print(Text(f"     {clean(line)}"), no_wrap=True, overflow="ignore", crop=False)
        for finding in item.explains:
            console.print(Padding(Text(clean(f"Explains {told(finding)}"), style="dim"), (0, 0, 0, 3)))
    if taken and taken[-1].then in _BOUND:
        console.print()
        console.print(Text(_BOUND[taken[-1].then]))
    for title, chosen in (
        ("Looked at, and worth less than 1 % after these", ("adds_nothing", "excluded")),
        ("Not chosen", ("not_chosen",)),
        ("Worth a new recording once these are done", ("record_again",)),
    ):
        left = [row for row in rows if row.order is None and row.reason in chosen]
        if left:
            console.print()
            console.print(Text(title, style="bold underline"))
            for row in left:
                alone = f"alone {between(row.alone_ns, row.alone_low_ns, row.alone_high_ns)}"
                console.print(Padding(Text(clean(f"{row.title} ({row.where}): {alone}")), (0, 0, 0, 3)))
    for row in rows:
        if row.reason == "not_found":
            console.print()
            console.print(Text(clean(f"Nothing in the steps is called {row.where}. {row.advice}")))
    unsaid = [row for row in rows if row.why]
    if len(unsaid) < len(rows) and unsaid:
        console.print()
        console.print(Text("Not priced from this recording", style="bold underline"))
        for line in _unsaid(unsaid):
            console.print(Padding(Text(clean(line)), (0, 0, 0, 3)))


def _unsaid(rows: list[PlanRow]) -> Iterator[str]:
    """Yield what cannot be said of single remedies, one line for each reason."""
    for why in dict.fromkeys(row.why for row in rows):
        names = [row.remedy for row in rows if row.why == why]
        yield f"{', '.join(names)}: {why}."


def _lines(row: PlanRow) -> Iterator[str]:
    """Yield what a line of the plan says in words."""
    yield f"{gives(row)}; alone it saves {duration(row.alone_ns)}"
    yield row.advice
    if row.costs:
        yield f"Costs: {row.costs}"
    if row.unknown:
        yield f"Not known: {row.unknown}"
    if row.proof in _PROOF:
        yield f"This price was {_PROOF[row.proof]}."
