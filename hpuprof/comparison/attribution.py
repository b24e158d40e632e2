"""Splits the step-time change into parts that sum to the change of the mean; remainders are named.

With the device traced, a step is device work plus idle time. Work splits into compute, communication not hidden by
compute, and copies hidden by neither; idle time splits by cause. Without it, a step is host work plus the kinds of
waiting. Each part names its kernels, operators and, for idle time, rows of the main thread; its remainder is
overlapping kernels, rows that span two steps, and rows too small to be listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hpuprof.comparison.comparable import Pair
from hpuprof.comparison.noise import Estimate, interval
from hpuprof.comparison.result import Part
from hpuprof.comparison.table_changes import SPECS, Match, matches, totals
from hpuprof.model.schema import BLOCKED_KINDS, CAUSE_TEXT

NAMED = 20
"""Parts of level 2 named in each part of level 1, the largest changes first."""
_CAUSE = {cause.name.lower(): text for cause, text in CAUSE_TEXT.items()}
_BUSY = (
    ("compute_busy_ns", "compute", "compute"),
    ("exposed_communication_ns", "communication", "exposed communication"),
    ("exposed_copy_ns", "copy", "exposed copies"),
    ("dispatch_ns", "dispatch", "dispatch"),
)
_WAITING = {
    "sync": "waiting in synchronizing calls",
    "queue": "waiting for room in the launch queue",
    "alloc": "allocating and freeing",
    "join": "waiting for the launch thread",
    "copy": "waiting in copies",
    "loader": "waiting for data-loader workers",
}
_REST = {
    "idle": "elsewhere",
    "busy": "overlapping and small kernels",
    "host": "outside operators or in parallel threads",
}
"""What the remainder of a part is."""
_BY_TABLE = {spec.table: spec for spec in SPECS}


@dataclass(frozen=True, kw_only=True)
class _Named:
    """What a part is, apart from its numbers: those fields of `Part`."""

    kind: str
    name: str
    text: str
    label: str = ""
    parent: str = ""
    remainder: bool = False


@dataclass(frozen=True)
class _Rows:
    """A table's rows on both sides: their means per step, where known."""

    a: dict[Match, Estimate]
    b: dict[Match, Estimate]

    @property
    def names(self) -> set[Match]:
        """What either side has."""
        return {*self.a, *self.b}


def step_parts(pair: Pair) -> list[Part]:
    """Account for the change of the mean step time. Returns one part, the rest, when a side cannot be split."""
    groups = pair.a, pair.b
    parts: list[Part] = []
    if all(g.column("device_busy_ns") is not None for g in groups):
        parts = [*_idle(pair), *_busy(pair)]
    elif all(g.column("host_working_ns") is not None for g in groups):
        parts = _host(pair)
    top = [p for p in parts if p.level == 1]
    rest = [
        float(g.mean("wall_ns").value or 0) - sum(getattr(p, side) for p in top)
        for g, side in zip(groups, "ab", strict=True)
    ]
    if not top or max(abs(r) for r in rest) > 0.5:
        what = _Named(kind="rest", name="rest", text="not attributed", remainder=True)
        parts.append(_part(pair, what, Estimate(rest[0]), Estimate(rest[1])))
    return parts


def _idle(pair: Pair) -> list[Part]:
    parts, rows = [], _rows(pair, "gap_operators")
    for cause in [c for c in _CAUSE if c in pair.a.idle or c in pair.b.idle]:
        what = _Named(kind="idle", name=cause, text=f"device idle, {_CAUSE[cause]}")
        whole = _part(pair, what, pair.a.idle_mean(cause), pair.b.idle_mean(cause))
        parts += [whole, *_inside(pair, whole, rows, (m for m in rows.names if m[0] == cause))]
    return parts


def _busy(pair: Pair) -> list[Part]:
    parts, rows = [], _rows(pair, "kernels")
    kernels = [k for g in (pair.a, pair.b) for k in g.rows("kernels")]
    for column, kind, text in _BUSY:
        whole = _column_part(pair, column, _Named(kind="busy", name=kind, text=f"device busy, {text}"))
        if whole.a or whole.b:
            of_kind = {matches(k, _BY_TABLE["kernels"]) for k in kernels if k.kind == kind}
            parts += [whole, *_inside(pair, whole, rows, rows.names & of_kind)]
    return parts


def _host(pair: Pair) -> list[Part]:
    whole = _column_part(pair, "host_working_ns", _Named(kind="host", name="working", text="host working"))
    rows = _rows(pair, "operators")
    parts = [whole, *_inside(pair, whole, rows, rows.names)]
    if all(g.column("no_operator_ns") is not None for g in (pair.a, pair.b)):
        what = _Named(kind="host", name="no_operator", text="no operator running")
        parts.append(_column_part(pair, "no_operator_ns", what))
    waiting = (
        _column_part(
            pair, f"blocked_{kind}_ns", _Named(kind="host", name=f"blocked_{kind}", text=f"host {_WAITING[kind]}")
        )
        for kind in BLOCKED_KINDS
    )
    return [*parts, *(part for part in waiting if part.a or part.b)]


def _column_part(pair: Pair, column: str, what: _Named) -> Part:
    return _part(pair, what, pair.a.mean(column), pair.b.mean(column))


def _part(pair: Pair, what: _Named, a: Estimate, b: Estimate) -> Part:
    span = interval(a, b)
    before, after = float(a.value or 0), float(b.value or 0)
    named = vars(what) | {"label": what.label or what.text}
    return Part(
        stage=pair.kind.stage,
        action=pair.kind.action,
        level=2 if what.parent else 1,
        **named,
        a=before,
        b=after,
        delta=after - before,
        low=span.low if span else None,
        high=span.high if span else None,
    )


def _inside(pair: Pair, whole: Part, rows: _Rows, names: Iterable[Match]) -> list[Part]:
    """Name what is inside a part; the last one is the remainder. Nothing when a side has no such rows."""
    names = sorted(names)
    for side, known in (("a", rows.a), ("b", rows.b)):
        if getattr(whole, side) > 0 and not any(m in known for m in names):
            return []  # a report of an earlier version, or nothing to name
    # What a cut table leaves out is smaller than its smallest row; it counts as 0 here and belongs to the remainder.
    if not names:
        return []
    zero = Estimate(0.0, 0.0, 1)
    found = []
    for match in names:
        label = _idle_label(match) if whole.kind == "idle" else match[0]
        what = _Named(
            kind=whole.kind,
            name=" ".join(w for w in match if w),
            text=f"{label} ({whole.text})" if whole.kind == "idle" else label,
            label=label,
            parent=whole.name,
        )
        found.append(_part(pair, what, rows.a.get(match, zero), rows.b.get(match, zero)))
    found.sort(key=lambda p: (-abs(p.delta), p.name))
    kept = found[:NAMED]
    rest = [getattr(whole, side) - sum(getattr(p, side) for p in kept) for side in "ab"]
    if max(abs(r) for r in rest) > 0.5:
        text = f"{whole.text}, {_REST[whole.kind]}"
        what = _Named(kind=whole.kind, name="rest", text=text, parent=whole.name, remainder=True)
        kept.append(_part(pair, what, Estimate(rest[0]), Estimate(rest[1])))
    return kept


def _rows(pair: Pair, table: str) -> _Rows:
    spec = _BY_TABLE[table]
    of_a, of_b = (
        {m: e for m, e in totals(g, spec, spec.measures[0]).items() if e.value is not None} for g in (pair.a, pair.b)
    )
    return _Rows(of_a, of_b)


def _idle_label(match: Match) -> str:
    _, row, within = match
    within = within.removeprefix("[pl][profile]")
    return f"{row} in {within}" if row and within else row or (f"{within} itself" if within else "nothing traced")
