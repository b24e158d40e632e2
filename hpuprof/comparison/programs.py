"""Whether two recordings are of one program: how much of operators, kernels and modules they share."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from hpuprof.comparison.comparable import Group, Pair
from hpuprof.comparison.kernel_kinds import ATTENTION, CONVOLUTION, MATRIX, kind_of_kernel

SAME = 0.6
"""Share of any of the three below which two recordings are of two programs: half-way between pairs of one program in
public recordings and samples (0.77 to 1.0) and pairs of two (up to 0.52; see docs/evidence/checks.md). Replays show
none of the operators, compiled and mixed-precision programs few of the kernels, so the best of the three counts."""
_ANYWHERE = re.compile(
    r"^(?!aten::|\w+Backward)|^aten::(?:_foreach\w*|_fused\w*"
    r"|(?:add|sub|mul|div|lerp|addcmul|addcdiv|sqrt|zero|fill|copy|neg)_?"
    r"|_?to(?:_copy)?|item|_local_scalar_dense|is_nonzero|empty\w*|zeros\w*|ones\w*|new_\w+|resize_|set_|detach_?|lift_fresh"
    r"|as_strided|slice|select|view|_?reshape\w*|_?unsafe_view|t|transpose|permute|expand\w*|squeeze_?|unsqueeze_?|narrow"
    r"|clone|contiguous|alias)$"
)
"""Operators that fixes add and take away in any program: of optimizers, casts, copies, reads, views; and names of calls
and annotations."""
FUSED = "triton_"
"""What names of kernels begin with that torch.compile generates: they take the place of pointwise ones."""
_NAMED = ("python", "range")
"""Sources of modules that are names of the program's own classes."""
_MEASURES: tuple[tuple[str, str, Callable[[Any], str], Callable[[Any], float]], ...] = (
    ("operators", "operators", lambda r: r.name, lambda r: 0.0 if _ANYWHERE.match(r.name) else r.count),
    ("kernels", "kernels", lambda r: r.name, lambda r: r.total_ns),
    ("modules", "modules", lambda r: r.module, lambda r: r.calls_per_step if r.source in _NAMED else 0.0),
)


def shares_of_program(pair: Pair) -> dict[str, float]:
    """Return the share of each measure that both sides have in common, where both know it.

    Operators and modules count by calls, kernels by time, each as a share of its side: the smaller of both, summed.
    """
    found = {}
    fused = len({any(r.name.startswith(FUSED) for r in group.rows("kernels")) for group in (pair.a, pair.b)}) > 1
    for name, table, key, weight in _MEASURES:
        of = _of_matrices if fused and name == "kernels" else weight
        a, b = (_weights(group, table, key, of) for group in (pair.a, pair.b))
        if a and b:
            found[name] = sum(min(a[k], b[k]) for k in a.keys() & b.keys())
    return found


def _of_matrices(row: Any) -> float:
    """Return the time of a kernel that a compiler leaves as it is; 0 for others."""
    return row.total_ns if kind_of_kernel(row.name, row.engine) in (MATRIX, CONVOLUTION, ATTENTION) else 0.0


def _weights(group: Group, table: str, key: Callable[[Any], str], weight: Callable[[Any], float]) -> dict[str, float]:
    """Return the share of each name in one side's whole."""
    found: dict[str, float] = {}
    for row in group.rows(table):
        found[key(row)] = found.get(key(row), 0.0) + weight(row)
    whole = sum(found.values())
    return {name: value / whole for name, value in found.items() if value > 0} if whole > 0 else {}


def unlike(pair: Pair) -> str:
    """Say that the two are different programs; empty where they share enough, or nothing is known."""
    shares = shares_of_program(pair)
    if not shares or max(shares.values()) >= SAME:
        return ""
    said = ", ".join(f"{100 * share:.0f} % of {name}" for name, share in shares.items())
    return f"A and B are different programs: they share {said}. The difference is no effect of one change."
