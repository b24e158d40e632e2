"""Which kernels of A others replaced in B: matched by the operator that launches them and by what they compute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hpuprof.comparison.comparable import Group, Pair
from hpuprof.comparison.kernel_kinds import kind_of_kernel
from hpuprof.comparison.result import Replaced
from hpuprof.model.durations import duration
from hpuprof.model.kernel_names import readable

LEAST = 0.005
"""Share of the step that a kernel must take on a side to be reported."""
MOST = 20
ALIKE = 10.0
"""Factor between both times up to which one kernel may do the work of the other; by judgment: the gain of tensor cores
over fp32 is at most as large."""
GONE = 0.1
"""Share of A's activations below which a kernel counts as gone, and the other way round as new."""


class _Kernel(NamedTuple):
    """A kernel of one side: time and activations per step."""

    name: str
    engine: str
    place: str
    total_ns: float
    often: float


def replaced_kernels(pair: Pair) -> list[Replaced]:
    """Return the kernels that went and those that came in their place, by the longer of both times.

    Kernels that went and came at one operator, or without links anywhere, and of one kind, are paired by how often they
    run: the nearest first.
    """
    a, b = (_kernels(group) for group in (pair.a, pair.b))
    if pair.a.cut("kernels") or pair.b.cut("kernels"):
        return []
    step_ns = max(float(g.mean("wall_ns").value or 0) for g in (pair.a, pair.b))
    went = [k for key, k in a.items() if key not in b or b[key].often < GONE * k.often]
    came = [k for key, k in b.items() if key not in a or a[key].often < GONE * k.often]
    found = [
        _replaced(kind, place, old, new)
        for place, kind in sorted({(k.place, kind_of_kernel(k.name, k.engine)) for k in went})
        if kind
        for old, new in _paired([k for k in went if _is(k, place, kind)], [k for k in came if _is(k, place, kind)])
        if max(old.total_ns, new.total_ns) >= LEAST * step_ns
    ]
    return sorted(found, key=lambda r: (-max(r.a_ns, r.b_ns), r.a, r.b))[:MOST]


def _is(kernel: _Kernel, place: str, kind: str) -> bool:
    return (kernel.place, kind_of_kernel(kernel.name, kernel.engine)) == (place, kind)


def _kernels(group: Group) -> dict[tuple[str, str], _Kernel]:
    steps = sum(group.steps_of.values()) or 1
    found: dict[tuple[str, str], _Kernel] = {}
    for row in group.rows("kernels"):
        if row.kind != "compute":
            continue
        key = row.name, row.operator or ""
        old = found.get(key)
        found[key] = _Kernel(
            row.name,
            row.engine,
            row.operator or "",
            row.total_ns / steps + (old.total_ns if old else 0.0),
            row.count / steps + (old.often if old else 0.0),
        )
    return found


def _paired(went: Sequence[_Kernel], came: Sequence[_Kernel]) -> Iterator[tuple[_Kernel, _Kernel]]:
    """Pair kernels that run about as often; each is in one pair."""
    pairs = sorted(
        (abs(old.often - new.often) / max(old.often, new.often), -old.total_ns - new.total_ns, old.name, new.name, i, j)
        for i, old in enumerate(went)
        for j, new in enumerate(came)
        if old.often and new.often and max(old.total_ns, new.total_ns) <= ALIKE * min(old.total_ns, new.total_ns)
    )
    used_a, used_b = set(), set()
    for *_, i, j in pairs:
        if i not in used_a and j not in used_b:
            used_a.add(i)
            used_b.add(j)
            yield went[i], came[j]


def _replaced(kind: str, place: str, old: _Kernel, new: _Kernel) -> Replaced:
    where = f" at {place}" if place else ""
    names = readable(old.name), readable(new.name)
    variant = "another variant of it" if names[0] == names[1] else names[1]
    return Replaced(
        kind=kind,
        place=place,
        a=old.name,
        b=new.name,
        a_ns=old.total_ns,
        b_ns=new.total_ns,
        a_count=old.often,
        b_count=new.often,
        sentence=(
            f"Kernel replaced{where} ({kind}): {names[0]} became {variant}, "
            f"{duration(old.total_ns)} → {duration(new.total_ns)} a step."
        ),
    )
