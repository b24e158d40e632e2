"""Spend less time in one kernel, operator, host range, collective or module that the user names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.tables import PlanRow
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.parts import Owners, Parts, parts_of
from hpuprof.what_if.step_model import StepModel

_WISH = re.compile(r"(?P<name>.+)=\s*(?P<percent>\d{1,3}(\.\d*)?)\s*%\s*", re.DOTALL)


class Wish(NamedTuple):
    """What the user wants to know: what the step takes if a share of the time of what has a name goes."""

    text: str
    name: str
    share: float


def wished(text: str) -> Wish | None:
    """Read `NAME=30%`; None for what is written otherwise, or beyond 100 %."""
    found = _WISH.fullmatch(text)
    if found is None or not 0 < (share := float(found["percent"]) / 100) <= 1:
        return None
    return Wish(text, found["name"].strip(), share)


REMEDY = Remedy(
    name="NAME=PERCENT%",
    title="Spend less time in a part of the step",
    advice="The table `sensitivity` says of the largest parts from where on being faster gains nothing.",
    costs="",
    unknown="Nothing: a share of its own time goes, wherever it is, and that of what it calls stays.",
    needs="",
    effort=Effort.RESTRUCTURING,
    proof="injected",
    find=lambda _: iter(()),
)


def shortened_parts(situation: Situation, texts: Iterable[str]) -> tuple[list[tuple[Remedy, Change]], list[PlanRow]]:
    """Return the changes that texts wish for, and rows for names that nothing in the steps has."""
    wishes = [wish for wish in map(wished, texts) if wish is not None]
    if not wishes:
        return [], []
    parts = parts_of(situation.model)
    names: dict[str, list[str]] = {}
    for what, kind in parts.labels:
        names.setdefault(what, []).append(kind)
    for module in parts.modules:
        names.setdefault(module, ["module"])
    found, unknown = list[tuple[Remedy, Change]](), list[PlanRow]()
    for wish in wishes:
        remedy = replace(REMEDY, name=wish.text, title=f"Spend {100 * wish.share:.3g} % less time in {wish.name}")
        if wish.name in names:
            where = ", ".join(sorted(set(names[wish.name])))
            edit = partial(_shorter, parts=parts, name=wish.name, gone=wish.share)
            found.append((remedy, Change(where, None, edit, partial(_shorter, parts=parts, name=wish.name, gone=1.0))))
        else:
            from difflib import get_close_matches

            near = get_close_matches(wish.name, names, n=3, cutoff=0.4)
            hint = f"Names are those of the tables critical_path and modules{'; near it: ' if near else ''}"
            unknown.append(
                PlanRow(
                    order=None,
                    remedy=remedy.name,
                    title=remedy.title,
                    where=wish.name,
                    reason="not_found",
                    advice=f"{hint}{', '.join(near)}.",
                )
            )
    return found, unknown


def _shorter(model: StepModel, _: float, *, parts: Parts, name: str, gone: float) -> StepModel:
    """Take a share of the time that has a name off rows, calls and host work. The numbers of calls and rows stay."""
    schedule = model.schedule
    calls, rows = schedule.calls, schedule.rows
    owners, mine = _owned(parts, name)
    pieces = np.isin(owners.piece, mine)
    held = np.bincount(parts.piece_call[pieces], weights=parts.piece_share[pieces], minlength=len(calls))
    left = 1.0 - gone * np.minimum(held, 1.0)
    left_cost = 1.0 - gone * np.isin(owners.cost, mine)
    cheaper = replace(
        calls,
        segment=calls.segment * left,
        segment_rows=calls.segment_rows * left[:, None],
        cost=calls.cost * left_cost,
        cost_rows=calls.cost_rows * left_cost[:, None],
    )
    dur: Floats = rows.dur * (1.0 - gone * np.isin(owners.row, mine))
    return replace(model, schedule=replace(schedule, calls=cheaper).reweighted(dur=dur))


def _owned(parts: Parts, name: str) -> tuple[Owners, Ints]:
    """Return the owners of times and which of them have a name: parts, else modules."""
    labels = np.flatnonzero([what == name for what, _ in parts.labels])
    if len(labels):
        return parts.owners, labels
    return parts.module_owners, np.flatnonzero([module == name for module in parts.modules])
