"""What an assumption is, and what a file says of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from hpuprof.dialect_report.facts import Facts

Verdict = Literal["confirmed", "contradicted", "not seen"]
Certainty = Literal["read", "written", "derived", "assumed"]
CERTAINTY = {
    "read": "read by programs that were run on real files",
    "written": "stands in the writer's source",
    "derived": "follows from those",
    "assumed": "a heuristic, without a source",
}


class Judgment(Struct, frozen=True):
    """What one file says of an assumption, and the figure behind it."""

    verdict: Verdict
    figure: str = ""


NOT_SEEN = Judgment("not seen")


class Assumption(Struct, frozen=True):
    """Something that hpuprof takes for granted of Gaudi's files.

    `source`: where that is public; `falsifier`: what contradicts it, in words; `judge`: the same, of a file.
    """

    id: str
    statement: str
    source: str
    certainty: Certainty
    falsifier: str
    judge: Callable[[Facts], Judgment]


def all_of(good: int, total: int, what: str, *, enough: float = 1.0) -> Judgment:
    """Judge by a share: confirmed from `enough` of the total on, not seen without any."""
    if not total:
        return NOT_SEEN
    figure = f"{good:,} of {total:,} {what}"
    return Judgment("confirmed" if good >= enough * total else "contradicted", figure)


def at_most(found: int, limit: int, what: str) -> Judgment:
    """Judge a count against a limit: not seen where it is 0."""
    if not found:
        return NOT_SEEN
    return Judgment("confirmed" if found <= limit else "contradicted", f"{found} {what}")
