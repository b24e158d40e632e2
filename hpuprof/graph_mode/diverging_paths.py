"""Calls that took different paths with the same inputs, and where they part.

A sequence holds a call's own operators, and one token for each call of another module inside it; so a path is reported
where it forks, not in every enclosing module. Whole steps are compared likewise: their tokens are module calls and the
operators between them (data loading, backward and optimizer left out). Reads of values are obstacles of their own
(HP302) and no tokens.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.modules import ModuleCalls
from hpuprof.analysis.placement import Phase, Placement
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.call_signatures import MAX_CALLS, ModuleShapes, alike_until
from hpuprof.graph_mode.dynamic_ops import COMMON_READS, NOISE
from hpuprof.model.arrays import Ints, among
from hpuprof.model.schema import Role

MAX_PERIOD = 20


class Tokens(Struct, frozen=True, eq=False):
    """Operators and inner calls of every call and step, by time; one slice of the arrays per owner.

    `token`: name code of an operator, or -1 - module code of an inner call; `position`: the operator in links.nesting,
    -1 for calls. Owners: calls by position, then steps.
    """

    first: Ints
    stop: Ints
    token: Ints
    position: Ints

    def of(self, owner: int) -> slice:
        """Return the slice of an owner's tokens."""
        return slice(int(self.first[owner]), int(self.stop[owner]))


class Fork(Struct, frozen=True):
    """Calls of one module (or steps: module -1) that took several paths under one signature.

    `away`: the calls off the most frequent path, among `calls` of that signature; `text`: the first difference of the
    two most frequent paths; `position`: the operator there, or the one before (in links.nesting, -1 for none).
    """

    module: int
    calls: Ints  # positions in ModuleCalls, or steps
    away: Ints  # positions in `calls`
    position: int
    text: str


def tokens(view: RankView, calls: ModuleCalls, placement: Placement) -> Tokens:
    """Collect the tokens of every call and step."""
    trace, nesting = view.trace, view.links.nesting
    base = np.zeros(len(calls) + 1, dtype=np.int64)
    has = np.flatnonzero(calls.op_stop > calls.op_first)
    base[has] = nesting.depth[calls.op_first[has]]
    quiet = trace.operators_named((NOISE | COMMON_READS).__contains__)[trace.host.name[nesting.rows]]
    level = np.zeros(int(nesting.depth.max(initial=0)) + 1, dtype=bool)
    level[base] = True
    keep = np.flatnonzero(~quiet & level[nesting.depth])
    track, start = nesting.track[keep], nesting.start[keep]
    owner = calls.nesting.innermost(track, start)
    free = np.flatnonzero((owner < 0) & (view.roles[track] == Role.MAIN))
    places = placement.of(track[free], start[free])
    owner[free] = np.where((places.phase == Phase.BETWEEN) & (places.step >= 0), len(calls) + places.step, -1)
    own = (owner >= 0) & (nesting.depth[keep] == base[np.minimum(owner, len(calls))])
    keep, owner = keep[own], owner[own]
    inner = np.flatnonzero(~calls.recompute)
    above = calls.parent[inner]
    in_step = (above < 0) & (calls.step[inner] >= 0)
    above = np.where(in_step, len(calls) + calls.step[inner], above)
    inner, above = inner[above >= 0], above[above >= 0]
    owners = np.concatenate([owner, above])
    name = trace.host.name[nesting.rows[keep]]
    token = np.concatenate([name.astype(np.int64), -1 - calls.module[inner].astype(np.int64)])
    position = np.concatenate([keep, np.full(len(inner), -1, dtype=np.int64)])
    order = np.lexsort((np.concatenate([nesting.start[keep], calls.start[inner]]), owners))
    every = np.arange(len(calls) + len(view.steps))
    first, stop = np.searchsorted(owners[order], every), np.searchsorted(owners[order], every, side="right")
    return Tokens(first, stop, token[order], position[order])


def find_forks(view: RankView, calls: ModuleCalls, shapes: list[ModuleShapes], stream: Tokens) -> list[Fork]:
    """Find the modules, and the steps, whose calls took several paths under one signature."""
    words = [*(name.removeprefix("aten::") for name in view.trace.names), *reversed(calls.names)]  # by token
    found = []
    for entry in _of_several_paths(stream, shapes):
        groups: dict[int, list[int]] = {}
        above = calls.parent[entry.calls]
        # A module that calls itself diverges where the recursion ends.
        itself = (above >= 0) & (calls.module[above] == entry.module)
        keys = entry.keys or [0] * len(entry.calls)
        for call, key, inner in zip(entry.calls.tolist(), keys, itself.tolist(), strict=True):
            if not inner:
                groups.setdefault(key, []).append(call)
        forks = (_fork(stream, words, entry.module, alike) for alike in sorted(groups.values(), key=len, reverse=True))
        found += [fork for fork in forks if fork][:1]
    # The recording may cut its first and last step.
    whole = [i for i, reason in enumerate(view.steps.excluded[:MAX_CALLS]) if reason not in ("first", "last")]
    fork = _fork(stream, words, -1, whole, len(calls)) if len(whole) >= 3 else None
    return [*found, *([fork] if fork else [])]


def _of_several_paths(stream: Tokens, shapes: list[ModuleShapes]) -> list[ModuleShapes]:
    """Return the modules not all of whose calls took one path."""
    if not shapes:
        return []
    owner = np.concatenate([entry.calls for entry in shapes])
    starts = np.cumsum([0, *(len(entry.calls) for entry in shapes[:-1])])
    low, count = stream.first[owner], stream.stop[owner] - stream.first[owner]
    shared = alike_until(stream.token, low, count, starts)
    return [
        entry for entry, alike in zip(shapes, shared == np.maximum.reduceat(count, starts), strict=True) if not alike
    ]


def _fork(stream: Tokens, words: list[str], module: int, alike: list[int], behind: int = 0) -> Fork | None:
    """Compare calls of one signature (or steps: their owners come `behind` the calls)."""
    paths: dict[bytes, list[int]] = {}
    for i, call in enumerate(alike):
        paths.setdefault(stream.token[stream.of(call + behind)].tobytes(), []).append(i)
    if len(paths) < 2:
        return None
    usual, rare, *others = sorted(paths.values(), key=lambda same: (-len(same), same[0]))
    one, here = (stream.of(alike[path[0]] + behind) for path in (usual, rare))
    a, b = stream.token[one].tolist(), stream.token[here].tolist()
    at = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    after = f"after {words[a[at - 1]]}" if at else "at the start"
    this, that = (words[path[at]] if at < len(path) else "nothing more" for path in (a, b))
    text = f"{after}: {this} in {many(len(usual), 'step' if module < 0 else 'call')}, {that} in {len(rare)}"
    text += f", {many(len(others), 'more path')}" if others else ""
    position = stream.position[here].tolist()
    near = (p for p in (*position[at : at + 1], *reversed(position[:at]), *position[at:]) if p >= 0)
    away = np.flatnonzero(~among(np.arange(len(alike)), np.array(usual)))
    return Fork(module, np.array(alike, dtype=np.int64), away, next(near, -1), text)


def many(count: int, what: str) -> str:
    """Return a number of things in words."""
    return f"{count} {what}{'s' if count != 1 else ''}"


def find_period(series: list[int]) -> int | None:
    """Return the shortest period from 2 to 20 of a series of paths, None without one.

    It takes two full periods and five comparisons that hold: by chance once in 32 times.
    """
    values = np.array(series)
    if not (values != values[0]).any():
        return None
    for period in range(2, MAX_PERIOD + 1):
        if len(values) >= max(2 * period, period + 5) and bool((values[period:] == values[:-period]).all()):
            return period
    return None
