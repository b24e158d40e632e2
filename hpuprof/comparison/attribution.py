"""What the change of the step time consists of. An additive account: parts sum to the change of the mean step time, remainders are named.

With the device traced, a step is device work plus idle time. Work splits into compute, communication that no compute hides, and copies
that neither hides; idle time splits by cause. Without it, a step is the host working plus the kinds of waiting. Inside a part, kernels,
operators and what the main thread was in during idle time are named, the rest is the part's remainder: kernels that overlap, rows
that begin in one step and end in another, and rows that are too small to be listed.
"""

from __future__ import annotations

from collections.abc import Callable

from hpuprof.comparison.comparable import Group, Pair
from hpuprof.comparison.metric_changes import column_mean, idle_mean
from hpuprof.comparison.noise import Estimate, interval
from hpuprof.comparison.result import Part
from hpuprof.comparison.table_changes import SPECS, Match, Spec, totals
from hpuprof.model.schema import BLOCKED_KINDS, CAUSE_TEXT

NAMED = 20
"""Parts of level 2 named in each part of level 1, the largest changes first."""
_CAUSE = {cause.name.lower(): text for cause, text in CAUSE_TEXT.items()}
_BUSY = (
    ("compute_busy_ns", "compute", "compute"),
    ("exposed_communication_ns", "communication", "exposed communication"),
    ("exposed_copy_ns", "copy", "exposed copies"),
)
_WAITING = {
    "sync": "waiting in synchronising calls",
    "queue": "waiting for room in the launch queue",
    "alloc": "allocating and freeing",
    "join": "waiting for the launch thread",
    "copy": "waiting in copies",
    "loader": "waiting for data-loader workers",
}
_BY_TABLE = {spec.table: spec for spec in SPECS}


def step_parts(pair: Pair) -> list[Part]:
    """Account for the change of the mean step time. Returns no parts when neither side can be split."""
    a, b = pair.a, pair.b
    wall = column_mean(a, "wall_ns"), column_mean(b, "wall_ns")
    parts: list[Part] = []
    make = _maker(pair)
    if all(g.sample.columns["device_busy_ns"] is not None for g in (a, b)):
        for cause in [c for c in _CAUSE if c in a.idle or c in b.idle]:
            whole = idle_mean(a, cause), idle_mean(b, cause)
            text = f"device idle, {_CAUSE[cause]}"
            parts.append(make(1, "idle", "", cause, text, *whole))
            parts += _inside(make, pair, parts[-1], "gap_operators", _of_cause(cause), _idle_label)
        for column, kind, text in _BUSY:
            whole = column_mean(a, column), column_mean(b, column)
            if whole[0].value or whole[1].value:
                parts.append(make(1, "busy", "", kind, f"device busy, {text}", *whole))
                of_kind = {
                    (k.name, k.engine, k.dtype or "") for g in (a, b) for k in g.rows("kernels") if k.kind == kind
                }
                parts += _inside(make, pair, parts[-1], "kernels", of_kind.__contains__, _first)
    elif all(g.sample.columns["host_working_ns"] is not None for g in (a, b)):
        parts.append(
            make(1, "host", "", "working", "host working", *(column_mean(g, "host_working_ns") for g in (a, b)))
        )
        parts += _inside(make, pair, parts[-1], "operators", lambda _: True, _first)
        silent = column_mean(a, "no_operator_ns"), column_mean(b, "no_operator_ns")
        if silent[0].value is not None and silent[1].value is not None:
            parts.append(make(1, "host", "", "no_operator", "no operator running", *silent))
        for kind in BLOCKED_KINDS:
            whole = column_mean(a, f"blocked_{kind}_ns"), column_mean(b, f"blocked_{kind}_ns")
            if whole[0].value or whole[1].value:
                parts.append(make(1, "host", "", f"blocked_{kind}", f"host {_WAITING[kind]}", *whole))
    total = [p for p in parts if p.level == 1]
    rest = [float(w.value or 0) - sum(getattr(p, side) for p in total) for w, side in zip(wall, "ab", strict=True)]
    if not total or max(abs(r) for r in rest) > 0.5:
        parts.append(
            make(1, "rest", "", "rest", "not told apart", Estimate(rest[0]), Estimate(rest[1]), remainder=True)
        )
    return parts


_Maker = Callable[..., Part]


def _maker(pair: Pair) -> _Maker:
    def make(
        level: int,
        kind: str,
        parent: str,
        name: str,
        text: str,
        a: Estimate,
        b: Estimate,
        *,
        label: str = "",
        remainder: bool = False,
    ) -> Part:
        span = interval(a, b)
        before, after = float(a.value or 0), float(b.value or 0)
        return Part(
            stage=pair.place[0],
            action=pair.place[1],
            level=level,
            kind=kind,
            parent=parent,
            name=name,
            text=text,
            label=label or text,
            a=before,
            b=after,
            delta=after - before,
            low=span[0] if span else None,
            high=span[1] if span else None,
            remainder=remainder,
        )

    return make


def _inside(
    make: _Maker,
    pair: Pair,
    whole: Part,
    table: str,
    wanted: Callable[[Match], bool],
    called: Callable[[Match], str],
) -> list[Part]:
    """Name what is inside a part; the last one is the remainder. Nothing when a side has no such rows."""
    spec: Spec = _BY_TABLE[table]
    of_a, of_b = (_known(g, spec) for g in (pair.a, pair.b))
    names = {m for m in (*of_a, *of_b) if wanted(m)}
    for known, whole_ns in ((of_a, whole.a), (of_b, whole.b)):
        if whole_ns > 0 and not any(m in known for m in names):
            return []  # a report of an earlier version, or nothing to name
    # What a cut table leaves out is smaller than its smallest row; it counts as 0 here and belongs to the remainder.
    if not names:
        return []
    zero = Estimate(0.0, 0.0, 1)
    found = [
        make(
            2,
            whole.kind,
            whole.name,
            " ".join(w for w in m if w),
            f"{called(m)} ({whole.text})" if whole.kind == "idle" else called(m),
            of_a.get(m, zero),
            of_b.get(m, zero),
            label=called(m),
        )
        for m in sorted(names)
    ]
    found.sort(key=lambda p: (-abs(p.delta), p.name))
    kept = found[:NAMED]
    rest = [getattr(whole, side) - sum(getattr(p, side) for p in kept) for side in "ab"]
    if max(abs(r) for r in rest) > 0.5:
        text = {
            "idle": f"{whole.text}, elsewhere",
            "busy": f"{whole.text}, overlap of kernels and smaller ones",
            "host": f"{whole.text}, outside operators or several threads at once",
        }[whole.kind]
        kept.append(make(2, whole.kind, whole.name, "rest", text, Estimate(rest[0]), Estimate(rest[1]), remainder=True))
    return kept


def _known(group: Group, spec: Spec) -> dict[Match, Estimate]:
    return {m: e for m, e in totals(group, spec, spec.measures[0]).items() if e.value is not None}


def _of_cause(cause: str) -> Callable[[Match], bool]:
    return lambda match: match[0] == cause


def _first(match: Match) -> str:
    return match[0]


def _idle_label(match: Match) -> str:
    _, row, within = match
    within = within.removeprefix("[pl][profile]")
    return f"{row} in {within}" if row and within else row or (f"{within} itself" if within else "nothing traced")
