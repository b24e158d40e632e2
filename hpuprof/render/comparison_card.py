"""A comparison on fifteen lines of a terminal: what changed, which fix shows, predicted and achieved."""

from __future__ import annotations

from collections.abc import Iterator

from hpuprof.comparison.result import Comparison
from hpuprof.render.text import MIN_WIDTH, Paper, fitted

LINES = 15
"""Of a card at most, 80 columns wide; more where columns are fewer."""
_REPLACED = 2
_MORE = "More: --full, -o comparison.html"


def to_card(comparison: Comparison, *, width: int = 80, color: bool = False) -> str:
    """Return the answer in at most 15 lines of `width` columns (at least 60), more where those are fewer than 80.

    Sentences stand whole; where all are too many, the least needed are left out.
    """
    width = max(MIN_WIDTH, width)
    blocks = [(spare, _printed(text, style, width, color)) for spare, text, style in _blocks(comparison)]
    return fitted(blocks, LINES, width)


def _printed(text: str, style: str, width: int, color: bool) -> str:  # noqa: FBT001  as Paper has it
    paper = Paper(width=width, color=color)
    paper.line(text, style=style)
    return paper.text()


def _blocks(c: Comparison) -> Iterator[tuple[int, str, str]]:
    """Yield what the card may hold: the higher the first, the sooner it is left out (0: never); text and style."""
    yield 0, c.sentence, {"worse": "bold red", "better": "bold green"}.get(c.verdict, "bold")
    if c.unlike:
        yield 0, c.unlike, "yellow"
    if c.explanation:
        yield 1, c.explanation, ""
    for place, fix in enumerate(c.applied):
        yield (2 + place if place else 0), fix.sentence, "cyan"
    if last := c.checked_sentence:
        yield 0, last, "bold"
    for place, replaced in enumerate(c.replaced[:_REPLACED]):
        yield 40 + place, replaced.sentence, ""
    failed = [gate for gate in c.gates if gate.outcome != "passed"]
    for gate in failed[:2]:
        yield 0, f"Gate {gate.outcome}: {gate.gate}: {gate.text}", "red"
    if c.gates and not failed:
        yield 30, "Gates: all passed", ""
    if said := c.findings_sentence:
        yield 35, said, ""
    for place, caution in enumerate(c.cautions):
        yield 20 + place, f"Caveat: {caution}", "yellow"
    yield 50, _MORE, "dim"
