"""Would graph mode help each kind of step, and all of them together? Joins kinds across ranks."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

import msgspec
import numpy as np

from hpuprof.graph_mode.verdict import Decision, decide
from hpuprof.graph_mode.verdict_words import together
from hpuprof.model.arrays import median
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import GraphMode, Interval
from hpuprof.model.tables import StepKindRow
from hpuprof.what_if.uncertainty import interval

_DIGITS = re.compile(r"\d+")
_COUNTED = re.compile(r" \(\d+\)$")

KindKey = tuple[str, int]
"""What a kind is called on any rank: its name without digits, its place by device work among those of that name."""


class ByKind(msgspec.Struct, frozen=True, eq=False):
    """The answer of a report, and that for each kind of each recording, in the order of the recordings."""

    answer: GraphMode
    of_kind: list[dict[str, GraphMode]]  # by name
    disagree: str = ""  # what the recordings call typical, where they differ


def decide_by_kind(main: Sequence[RankPartial], played: Sequence[RankPartial]) -> ByKind:
    """Decide for each kind of step of the chosen recordings.

    Args:
        main: the chosen recordings.
        played: those of them that are played together, one of each rank; the answer is that of the first one's used
            kind.
    """
    if not played or not all(part.step_kinds for part in main):
        return ByKind(decide(played).answer, [{} for _ in main])
    every, ranks = [_Kinds(part) for part in main], [_Kinds(part) for part in played]
    lead = ranks[0]
    decided: dict[KindKey, Decision] = {lead.used: decide([rank.of_kind(lead.used) or rank.part for rank in ranks])}
    for key, name in lead.names.items():
        parts = [rank.of_kind(key) for rank in ranks]
        if name in lead.part.kind_predictions and (known := [part for part in parts if part]) == parts:
            decided[key] = decide(known)
    mix, fraction = _mix(lead, decided)
    answer = msgspec.structs.replace(
        decided[lead.used].answer, kind=lead.names[lead.used], mix=mix, mix_fraction=fraction
    )
    if mix is not None and fraction is not None:
        answer = msgspec.structs.replace(answer, sentence=f"{answer.sentence} {together(answer.kind, mix, fraction)}")
    differ = sorted({rank.names[rank.used] for rank in every if rank.used != lead.used})
    return ByKind(
        answer,
        [{rank.names[key]: d.answer for key, d in decided.items() if key in rank.names} for rank in every],
        f"the first one's are of {lead.names[lead.used]}, others' of {', '.join(differ)}" if differ else "",
    )


def _mix(lead: _Kinds, decided: dict[KindKey, Decision]) -> tuple[Interval | None, float | None]:
    """Return the speed-up of all decided kinds and their share of the time; None for one, or where none gains.

    Samples of kinds are aligned: each is one draw of the machine's and the profiler's costs.
    """
    now, then, fraction, paying = 0.0, np.zeros(1), 0.0, False
    known = {key: d for key, d in decided.items() if d.speedup is not None and d.answer.base_step_ns}
    if len(known) < 2 or lead.used not in known:
        return None, None
    for key, decision in known.items():
        row, base, gain = lead.rows[key], decision.answer.base_step_ns or 0.0, decision.speedup
        pays = decision.answer.verdict != "no" and gain is not None and float(median(gain)) > 1.0
        paying |= pays
        now += row.steps * base
        then = then + row.steps * base / (gain if gain is not None and pays else np.ones(1))
        fraction += row.time_fraction
    mix = interval(now / then) if paying else None
    return mix, fraction if mix else None


class _Kinds(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The kinds of one recording by what all ranks call them."""

    part: RankPartial

    @cached_property
    def rows(self) -> dict[KindKey, StepKindRow]:
        """Its rows."""
        groups: dict[str, list[StepKindRow]] = {}
        for row in self.part.step_kinds:
            groups.setdefault(_DIGITS.sub("#", _COUNTED.sub("", row.kind)), []).append(row)
        return {
            (name, i): row
            for name, rows in groups.items()
            for i, row in enumerate(sorted(rows, key=lambda r: (r.device_work_ns or 0, r.launches, r.kind)))
        }

    @cached_property
    def names(self) -> dict[KindKey, str]:
        """Their names here."""
        return {key: row.kind for key, row in self.rows.items()}

    @cached_property
    def used(self) -> KindKey:
        """The kind of the used steps."""
        return next(key for key, row in self.rows.items() if row.used)

    def of_kind(self, key: KindKey) -> RankPartial | None:
        """Return the recording with the steps of one kind used; None if it has no such kind, or no prediction of it."""
        row = self.rows.get(key)
        if row is None or row.used:
            return self.part if row else None
        prediction = self.part.kind_predictions.get(row.kind)
        if prediction is None:
            return None
        mine = [s for s in self.part.steps if s.kind == row.kind]
        typical = [s for s in mine if s.excluded == "another kind"] or mine
        return msgspec.structs.replace(
            self.part,
            prediction=prediction,
            steps=[msgspec.structs.replace(s, used=True, excluded="") for s in typical],
            file=msgspec.structs.replace(self.part.file, steps_used=len(typical)),
        )
