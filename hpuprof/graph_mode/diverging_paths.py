"""Calls that took different paths with the same inputs: where they fork, and the cause.

A sequence holds a call's own operators, and one token for each call of another module inside it; so a path is reported
where it forks, not in every enclosing module. Whole steps are compared likewise: their tokens are module calls and the
operators between them (data loading, backward and optimizer left out).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Literal

import numpy as np

from hpuprof.analysis.links import Links
from hpuprof.analysis.modules import ModuleCalls
from hpuprof.analysis.placement import Phase, Placement
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.dynamic_ops import COMMON_READS, NOISE, named
from hpuprof.graph_mode.signatures import MAX_CALLS, ModuleShapes, Roots
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.schema import Role
from hpuprof.model.trace import Trace

MAX_PERIOD = 20
_NEAR = 8  # tokens before a fork in which reading a value counts as its cause
_LONGEST = 500  # tokens compared in sequences that differ

Cause = Literal["data", "periodic", "first", "last", "unknown"]


@dataclass(frozen=True, eq=False)
class Tokens:
    """Operators and inner calls of every call and step, by time; one slice of the arrays per owner.

    `token`: name code of an operator, or -1 - module code of an inner call; `position`: the operator in links.nesting,
    -1 for calls; `reads`: whether the operator hands a value to Python. Owners: calls by position, then steps.
    """

    first: Ints
    stop: Ints
    token: Ints
    position: Ints
    reads: Mask

    def of(self, owner: int) -> slice:
        """Return the slice of an owner's tokens."""
        return slice(int(self.first[owner]), int(self.stop[owner]))


@dataclass(frozen=True)
class Fork:
    """Calls of one module (or steps: module -1) that diverge under one signature.

    `calls`: the number on each path, most frequent first; `position`: the operator before the fork (in links.nesting,
    -1 for none); `after`, `one`, `other`: names of the token before the fork and of those on the two sides.
    """

    module: int
    calls: tuple[int, ...]
    cause: Cause
    period: int | None
    steps: tuple[int, ...]  # steps with calls off the most frequent path
    position: int
    after: str
    one: str
    other: str


def tokens(view: RankView, calls: ModuleCalls, roots: Roots, placement: Placement) -> Tokens:
    """Collect the tokens of every call and step."""
    trace, nesting = view.trace, view.links.nesting
    name = trace.host.name[nesting.rows].astype(np.int64)
    quiet = named(trace, NOISE)[name]
    base = np.zeros(len(calls) + 1, dtype=np.int64)
    has = np.flatnonzero(calls.op_stop > calls.op_first)
    base[has] = roots.depth[calls.op_first[has]]
    places = placement.of(nesting.track, nesting.start)
    owner = roots.owner.copy()
    main = view.roles[nesting.track] == Role.MAIN
    step_level = (owner < 0) & main & (places.phase == Phase.BETWEEN) & (places.step >= 0)
    owner[step_level] = len(calls) + places.step[step_level]
    keep = np.flatnonzero((owner >= 0) & ~quiet & (roots.depth == base[np.minimum(owner, len(calls))]))
    reads = _reads(trace, view.links)
    inner = np.flatnonzero(~calls.recompute)
    above = calls.parent[inner]
    in_step = (above < 0) & (calls.step[inner] >= 0)
    above = np.where(in_step, len(calls) + calls.step[inner], above)
    inner, above = inner[above >= 0], above[above >= 0]
    owners = np.concatenate([owner[keep], above])
    start = np.concatenate([nesting.start[keep], calls.start[inner]])
    token = np.concatenate([name[keep], -1 - calls.module[inner].astype(np.int64)])
    position = np.concatenate([keep, np.full(len(inner), -1, dtype=np.int64)])
    read = np.concatenate([reads[keep], np.zeros(len(inner), dtype=bool)])
    order = np.lexsort((start, owners))
    every = np.arange(len(calls) + len(view.steps))
    first, stop = np.searchsorted(owners[order], every), np.searchsorted(owners[order], every, side="right")
    return Tokens(first, stop, token[order], position[order], read[order])


def _reads(trace: Trace, links: Links) -> Mask:
    """Mark the operators that are, or hold, a read of a value."""
    read = named(trace, COMMON_READS)[trace.host.name[links.nesting.rows]]
    holds: Mask = links.nesting.sums(read.astype(np.int64)) > 0
    return holds


def find_forks(view: RankView, calls: ModuleCalls, shapes: list[ModuleShapes], stream: Tokens) -> list[Fork]:
    """Find the modules, and the steps, whose calls diverge under one signature."""
    trace, steps = view.trace, view.steps
    found = []
    for entry in shapes:
        if len(entry.calls) < 2:
            continue
        groups: dict[int, list[int]] = {}
        above = calls.parent[entry.calls]
        # A module that calls itself diverges where the recursion ends.
        itself = (above >= 0) & (calls.module[above] == entry.module)
        keys = entry.keys or [0] * len(entry.calls)
        for call, key, inner in zip(entry.calls.tolist(), keys, itself.tolist(), strict=True):
            if not inner:
                groups.setdefault(key, []).append(call)
        for members in sorted(groups.values(), key=len, reverse=True):
            where = calls.step[np.array(members, dtype=np.int64)].tolist()
            fork = _fork(trace, calls, stream, entry.module, members, where)
            if fork:
                found.append(fork)
                break
    # The recording may cut its first and last step.
    whole = [len(calls) + i for i, reason in enumerate(steps.excluded[:MAX_CALLS]) if reason not in ("first", "last")]
    if len(whole) >= 3:
        fork = _fork(trace, calls, stream, -1, whole, [o - len(calls) for o in whole])
        if fork:
            found.append(fork)
    return found


def _fork(
    trace: Trace,
    calls: ModuleCalls,
    stream: Tokens,
    module: int,
    owners: list[int],
    where: list[int],
) -> Fork | None:
    paths: dict[bytes, list[int]] = {}
    labels = []
    for i, owner in enumerate(owners):
        key = stream.token[stream.of(owner)].tobytes()
        paths.setdefault(key, []).append(i)
        labels.append(key)
    if len(paths) < 2:
        return None
    ranked = sorted(paths.values(), key=lambda members: (-len(members), members[0]))
    usual, rare = ranked[0], ranked[1]
    series = [int(label != labels[usual[0]]) for label in labels]
    a, b = owners[usual[0]], owners[rare[0]]
    at, one, other = _difference(stream.token[stream.of(a)], stream.token[stream.of(b)])
    cause, period = _cause(series, stream, b, at)
    here = stream.of(b)
    behind = stream.position[here][:at]
    known = behind[behind >= 0]
    before = stream.token[here][at - 1 : at]
    named_steps = sorted({s for s, off in zip(where, series, strict=True) if off and s >= 0})
    return Fork(
        module=module,
        calls=tuple(len(members) for members in ranked),
        cause=cause,
        period=period,
        steps=tuple(named_steps),
        position=int(known[-1]) if len(known) else int(next((p for p in stream.position[here].tolist() if p >= 0), -1)),
        after=_names(trace, calls, before),
        one=_names(trace, calls, one),
        other=_names(trace, calls, other),
    )


def _difference(a: Ints, b: Ints) -> tuple[int, Ints, Ints]:
    """Return where two sequences first diverge (in b), and the tokens there that are only in a and only in b."""
    shared = min(len(a), len(b))
    differ = np.flatnonzero(a[:shared] != b[:shared])
    at = int(differ[0]) if len(differ) else shared
    matcher = SequenceMatcher(None, a[at : at + _LONGEST].tolist(), b[at : at + _LONGEST].tolist(), autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal":
            return at, a[at + i1 : at + i2], b[at + j1 : at + j2]
    return at, a[at:], b[at:]


def _cause(series: list[int], stream: Tokens, owner: int, at: int) -> tuple[Cause, int | None]:
    """Return the cause of the fork. `series`: per call 0 for the most frequent path, 1 for another."""
    if sum(series) == series[0] == 1 and len(series) > 2:
        return "first", None
    period = find_period(series)
    if period:
        return "periodic", period
    read = stream.reads[stream.of(owner)][max(0, at - _NEAR) : at]
    if read.any():
        return "data", None
    if sum(series) == series[-1] == 1 and len(series) > 2:
        return "last", None
    return "unknown", None


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


def _names(trace: Trace, calls: ModuleCalls, codes: Ints, most: int = 3) -> str:
    """Write the first few tokens as text."""
    words = [
        trace.names[c].removeprefix("aten::") if c >= 0 else calls.names[-1 - c] for c in codes[: most + 1].tolist()
    ]
    counted = [f"{w} ×{n}" if n > 1 else w for w, n in Counter(words[:most]).items()]
    return ", ".join(counted) + (" …" if len(words) > most else "")
