"""Which recordings an answer speaks of: one stage and action, and of it the windows that show how host and device overlap."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

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
