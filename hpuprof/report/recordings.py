"""Kinds of recordings, and the recording that leads an answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from hpuprof.model.tables import RankRow, Row
from hpuprof.report.model import ReportData

_ACTIONS = ("training_step", "", "validation_step", "test_step", "predict_step")
_DIGITS = 9  # of a window's number
_STAGES = ("fit", "", "validate", "test", "predict")


class RecordingKind(NamedTuple):
    """The subject of a recording; either part may be empty."""

    stage: str
    action: str

    def __str__(self) -> str:
        return " ".join(word for word in self if word)


class Recorded(Protocol):
    """Anything with a stage and an action: an identity, or a row of a table."""

    @property
    def stage(self) -> str:
        """Stage, or empty."""

    @property
    def action(self) -> str:
        """Action, or empty."""


def kind_of(row: Recorded) -> RecordingKind:
    """Return the kind of a row's recording."""
    return RecordingKind(row.stage, row.action)


def recording_kinds(rows: Iterable[Recorded]) -> list[RecordingKind]:
    """Return the distinct kinds, training before the rest."""

    def order(kind: RecordingKind) -> tuple[int, int, RecordingKind]:
        return (
            _ACTIONS.index(kind.action) if kind.action in _ACTIONS else len(_ACTIONS),
            _STAGES.index(kind.stage) if kind.stage in _STAGES else len(_STAGES),
            kind,
        )

    return sorted({kind_of(row) for row in rows}, key=order)


def lead_recording(data: ReportData) -> RankRow | None:
    """Return the first recording that the headline covers."""
    lead = data.headline.lead
    if lead is None:  # a report of an earlier version
        first = next(iter(recording_kinds(data.ranks)), None)
        return next((r for r in data.ranks if kind_of(r) == first), None)
    return next((r for r in data.ranks if r.recording == lead.recording), None)


def answered_for(data: ReportData, row: Row) -> bool:
    """Whether the headline covers the window of a row's recording; of other kinds of recordings, it covers none."""
    lead = lead_recording(data)
    return not data.windows or lead is None or kind_of(row) != kind_of(lead) or row.window in data.windows[0].windows


def natural(window: str) -> tuple[int, int, str]:
    """Sort numbered windows by number, before named ones."""
    number = window.isdecimal() and len(window) <= _DIGITS
    return (0, int(window), "") if number else (1, 0, window)


def windows_named(windows: Sequence[str]) -> str:
    """Return what some windows are called in a sentence."""
    return f"window{'s' if len(windows) > 1 else ''} {', '.join(windows)}"
