"""Spend less time in one kernel, operator, host range, collective or module that the user names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.kernel_names import readable
from hpuprof.model.tables import PlanRow
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.parts import Owners, Parts, parts_of
from hpuprof.what_if.step_model import StepModel

_SHOWN = 2
"""Names of several that are said."""
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
    """Return the changes that texts wish for, and rows for names that nothing in the steps has.

    A name that nothing has as a whole stands for all that hold it, in whatever case.
    """
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
        mine = matching(wish.name, names)
        if mine:
            edit, ideal = (partial(_shorter, parts=parts, names=mine, gone=gone) for gone in (wish.share, 1.0))
            found.append((remedy, Change(_where(mine, names), None, edit, ideal)))
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


def matching(name: str, names: Iterable[str]) -> list[str]:
    """Return the name itself where it is one of several, else those that hold it, in whatever case."""
    known = list(names)
    return [name] if name in known else [one for one in known if name.lower() in one.lower()]


def _where(mine: Sequence[str], names: Mapping[str, Sequence[str]]) -> str:
    """Say what kinds of parts names are of, and, of several, which."""
    kinds = ", ".join(sorted({kind for name in mine for kind in names[name]}))
    shown = ", ".join(map(readable, mine[:_SHOWN]))
    more = f" and {len(mine) - _SHOWN} more" if len(mine) > _SHOWN else ""
    return kinds if len(mine) == 1 else f"{shown}{more} ({kinds})"


def _shorter(model: StepModel, _: float, *, parts: Parts, names: Sequence[str], gone: float) -> StepModel:
    """Take a share of the time that has one of some names off rows, calls and host work, whose numbers stay."""
    schedule = model.schedule
    calls, rows = schedule.calls, schedule.rows
    owners, mine = _owned(parts, names)
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


def _owned(parts: Parts, names: Sequence[str]) -> tuple[Owners, Ints]:
    """Return the owners of times and which of them have one of some names: parts, else modules."""
    labels = np.flatnonzero([what in names for what, _ in parts.labels])
    if len(labels):
        return parts.owners, labels
    return parts.module_owners, np.flatnonzero([module in names for module in parts.modules])
