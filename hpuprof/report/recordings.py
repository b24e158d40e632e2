"""Which recordings an answer speaks of: one stage and action, and of it the windows that show how host and device overlap."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from hpuprof.model.tables import RankRow
from hpuprof.report.model import ReportData

_ACTIONS = ("training_step", "", "validation_step", "test_step", "predict_step")
_STAGES = ("fit", "", "validate", "test", "predict")

Place = tuple[str, str]
"""Stage and action."""


class Placed(Protocol):
    """Whatever knows its stage and action: an identity, or a row of a table."""

    @property
    def stage(self) -> str:
        """Stage, or empty."""

    @property
    def action(self) -> str:
        """Action, or empty."""


def places(rows: Iterable[Placed]) -> list[Place]:
    """Return the distinct stages and actions, training before the rest."""

    def rank(kind: Place) -> tuple[int, int, str, str]:
        stage, action = kind
        return (
            _ACTIONS.index(action) if action in _ACTIONS else len(_ACTIONS),
            _STAGES.index(stage) if stage in _STAGES else len(_STAGES),
            stage,
            action,
        )

    return sorted({(row.stage, row.action) for row in rows}, key=rank)


def lead_recording(data: ReportData) -> RankRow | None:
    """Return the first of the recordings that the headline speaks of: its stage and action, its kind of window."""
    lead = data.headline.lead
    if lead is None:  # a report of an earlier version
        first = next(iter(places(data.ranks)), None)
        return next((r for r in data.ranks if (r.stage, r.action) == first), None)
    of = (lead.rank, lead.stage, lead.action, lead.window)
    return next((r for r in data.ranks if (r.rank, r.stage, r.action, r.window) == of), None)
