"""Which row of the program handed a launch over to the thread that made it.

Gaudi's bridge and torch_npu launch from a thread of their own: the program runs an operator or flushes what it has
accumulated, and goes on; the thread enqueues. Nothing in the trace joins the two. The thread works first in, first out,
so the k-th operator that computes on the device made the k-th launch, and in lazy mode the last flush that ended before
a launch made it: the bridge keeps one launch pending at most (`JoinPendingLaunchThread`, bridge 1.19).
"""

from __future__ import annotations

import re

import numpy as np

from hpuprof.analysis.alignment import align
from hpuprof.analysis.forest import Nesting, outermost
from hpuprof.model.arrays import Ints, any_of
from hpuprof.model.intervals import contains, union
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.trace import Trace

COARSE_NS = 2_000
"""Stamps in whole microseconds: an end may read up to 2 µs late."""
MAX_APART = 0.05
"""Operators and launches may differ by this share, for what the recording cut; by judgment."""
OF_MEMORY = re.compile(
    r"^aten::(?:_?(?:unsafe_)?(?:view|reshape)(?:_as|_alias|_as_real|_as_complex)?|as_strided_?|expand(?:_as)?|broadcast_to"
    r"|t_?|transpose_?|permute|movedim|swapaxes|numpy_T|slice|select|narrow|un?squeeze_?|squeeze_?|(?:unsafe_)?split\w*"
    r"|chunk|unbind|unfold|(?:un)?flatten|detach_?|alias|diagonal|resolve_(?:conj|neg)|real|imag"
    r"|(?:new_)?empty\w*|resize\w*|set_|lift_fresh|item|_local_scalar_dense|is_nonzero|result_type"
    r"|_?pin_memory|is_pinned|record_stream)$"
)
"""Operators that touch no value, or one; where they take long, the thread was held up."""
_COPIES = (Activity.COPY, Activity.COPY_D2H, Activity.COPY_H2D)
_NO_LAUNCH = (*_COPIES, Activity.STEP, Activity.SYNC, Activity.COLLECTIVE)


def handed_over(trace: Trace, nesting: Nesting, calls: Ints) -> Ints:
    """Return the host row that handed each launch over, -1 where that is unknown; itself where no thread lies between.

    Args:
        trace: the trace.
        nesting: its operators.
        calls: host rows of launches, in any order.
    """
    host = trace.host
    found: Ints = calls.copy()
    with_operators = {trace.tracks[t].os_thread for t in np.flatnonzero(np.bincount(nesting.track)).tolist()}
    own = np.array([not t.threadless and t.os_thread in with_operators for t in trace.tracks], dtype=bool)
    launching = any_of(host.activity.take(calls), (Activity.LAUNCH, Activity.GRAPH_LAUNCH))
    other = np.flatnonzero(launching & ~own[host.track.take(calls)])
    if not len(other) or not own.any():
        return found
    other = other[np.argsort(host.start.take(calls.take(other)), kind="stable")]
    begins = host.start.take(calls.take(other))
    flushes = outermost(trace, np.flatnonzero((host.activity == Activity.GRAPH_BUILD) & own[host.track]))
    if len(flushes):
        ends = np.sort(host.end.take(flushes))
        last = np.searchsorted(ends - COARSE_NS, begins, side="right") - 1
        found[other] = np.where(last >= 0, flushes[np.argsort(host.end[flushes], kind="stable")][last], -1)
        return found
    operators = _computing(trace, nesting)
    at = align(host.start.take(operators), begins).at
    apart = abs(len(operators) - len(other)) > max(1, MAX_APART * len(other))
    found[other] = -1 if apart else np.where(at >= 0, np.append(operators, -1)[at], -1)
    return found


def program_track(trace: Trace, nesting: Nesting) -> Ints:
    """Return for each track the one that holds the operators of its thread, itself where none does.

    A runtime's rows may lie on a track of their own, whose thread the reader knows.
    """
    operators = np.bincount(nesting.track, minlength=len(trace.tracks))
    holding: dict[str, int] = {}
    for track in np.argsort(operators, kind="stable").tolist():
        if operators[track]:
            holding[trace.tracks[track].runs_on] = track
    return np.array([holding.get(track.runs_on, i) for i, track in enumerate(trace.tracks)], dtype=np.int64)


def _computing(trace: Trace, nesting: Nesting) -> Ints:
    """Return the operators with no other one inside that compute on the device, in order of start.

    Not those that touch no value or copy between host and device, nor what a data loader does.
    """
    host = trace.host
    at = nesting.leaves
    views = trace.named(lambda name: name == "aten::to" or bool(OF_MEMORY.match(name)))  # a cast is a copy inside it
    rows = nesting.rows[at]
    at = at[~views[host.name[rows]] & ~any_of(host.activity[rows], _NO_LAUNCH) & (host.kind[rows] == HostKind.OP)]
    span = trace.end_ns + 2
    base = program_track(trace, nesting) * span
    copies = np.flatnonzero((host.kind == HostKind.RUNTIME) & any_of(host.activity, _COPIES))
    copied = np.sort(base[host.track[copies]] + host.start[copies])
    rows, of = nesting.rows[at], base[nesting.track[at]]
    bare = np.searchsorted(copied, of + nesting.start[at]) == np.searchsorted(copied, of + nesting.end[at])
    loading = np.flatnonzero(host.activity == Activity.DATA_LOADER)
    loaded = union(base[host.track[loading]] + host.start[loading], base[host.track[loading]] + host.end[loading])
    found: Ints = np.sort(rows[bare & ~contains(loaded, of + nesting.start[at])])
    return found
