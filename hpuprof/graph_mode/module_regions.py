"""Modules worth their own graph: outermost ones, all their children together, their largest children."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from hpuprof.analysis.modules import BackwardWindows, ModuleCalls
from hpuprof.model.arrays import Ints, Mask, distinct
from hpuprof.model.intervals import Intervals, subtract, union
from hpuprof.what_if.capture import MIN_LAUNCHES, Region

CHILD_SHARE = 0.1
"""Minimum share of a module's launches for a child to be considered by itself."""
MAX_CHILDREN = 4
MAX_TOPS = 3


def module_candidates(
    calls: ModuleCalls, backward: BackwardWindows, when: Ints, low: int, high: int, steps: int, outside: Intervals
) -> list[Region]:
    """Return the modules worth their own graph: each outermost one, all its children together, its largest children.

    One graph for each call's forward and one for its backward, as in `make_graphed_callables`. `when`: sorted instants
    of the launches, or of the accumulated operators, of `steps` steps in [low, high) ns; `outside` is never captured.
    """
    if calls.source not in ("python", "range") or not len(calls):
        return []
    inside = (calls.start >= low) & (calls.start < high) & ~calls.recompute & (calls.step >= 0)
    hull_low, hull_high = _hulls(backward, len(calls))

    def windows(chosen: Mask) -> Intervals:
        back = chosen & (hull_high > hull_low)
        return union(
            np.concatenate([calls.start[chosen], hull_low[back]]), np.concatenate([calls.end[chosen], hull_high[back]])
        )

    def borders(chosen: Mask) -> Ints:
        back = chosen & (hull_high > hull_low)
        return np.sort(np.concatenate([calls.start[chosen], hull_low[back]]))

    def launches(chosen: Mask) -> int:
        found = windows(chosen)
        return int((np.searchsorted(when, found.end) - np.searchsorted(when, found.start)).sum())

    out: list[Region] = []
    sizes = {m: launches(inside & (calls.module == m) & (calls.depth == 0)) for m in _codes(calls, inside, 0)}
    for module in _largest(sizes, MIN_LAUNCHES * steps, MAX_TOPS):
        top = inside & (calls.module == module) & (calls.depth == 0)
        out.append(Region(f"module:{calls.names[module]}", windows(top), split=True, borders=borders(top)))
        children = inside & (calls.parent >= 0) & top[np.maximum(calls.parent, 0)]
        parts = {c: launches(children & (calls.module == c)) for c in distinct(calls.module[children]).tolist()}
        worth = _largest(parts, CHILD_SHARE * sizes[module], len(parts))
        if len(worth) > 1:
            together = children & np.isin(calls.module, worth)
            out.append(
                Region(
                    "modules",
                    windows(together),
                    split=True,
                    borders=borders(together),
                    members=tuple(calls.names[code] for code in worth),
                )
            )
        for code in worth[:MAX_CHILDREN]:
            mine = children & (calls.module == code)
            out.append(Region(f"module:{calls.names[code]}", windows(mine), split=True, borders=borders(mine)))
    # Several outermost modules may hold children of the same name; a name is one candidate.
    out = list({region.name: region for region in reversed(out)}.values())
    return [replace(r, windows=subtract(r.windows, outside)) for r in out]


def _codes(calls: ModuleCalls, inside: Mask, depth: int) -> list[int]:
    codes: list[int] = distinct(calls.module[inside & (calls.depth == depth)]).tolist()
    return codes


def _largest(sizes: dict[int, int], least: float, count: int) -> list[int]:
    """Return at most `count` keys with sizes of at least `least`, largest first."""
    return [key for key, size in sorted(sizes.items(), key=lambda item: (-item[1], item[0])) if size >= least][:count]


def _hulls(backward: BackwardWindows, count: int) -> tuple[Ints, Ints]:
    """Return the span of autograd's work on each call; empty for calls without backward."""
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, np.iinfo(np.int64).min)
    np.minimum.at(low, backward.call, backward.start)
    np.maximum.at(high, backward.call, backward.end)
    return np.where(high > low, low, 0), np.where(high > low, high, 0)
