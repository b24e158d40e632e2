"""Regions from operators, annotations and mark_steps, for traces without links to device rows, as on HPU.

Lazy mode works in three stages: the main thread accumulates operators, the launch thread builds and enqueues recipes,
the device runs them. If recipes can be matched to their launches, `recipe_model.py` replays them; otherwise totals
decide (`bottleneck.py`).
"""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.modules import BackwardWindows, ModuleCalls
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.module_regions import module_candidates
from hpuprof.graph_mode.regions import LOSS, LoopParts
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.intervals import Intervals, contains, intersect, measure, subtract, union, union_of
from hpuprof.model.schema import Activity, HostKind
from hpuprof.model.trace import HostRows, Trace
from hpuprof.what_if.capture import COPYING, Region
from hpuprof.what_if.recipes import accumulated
from hpuprof.what_if.step_model import StepModel


def regions_without_links(
    model: StepModel, parts: LoopParts, calls: ModuleCalls, backward: BackwardWindows
) -> list[Region]:
    """Return the candidates of a model's steps: parts of the training loop, and modules."""
    view, low, high = model.view, model.low, model.high
    when = np.sort(view.trace.host.start[accumulated(view)])
    modules = module_candidates(calls, backward, when, int(low[0]), int(high[-1]), len(low), parts.outside)
    return _loop_regions(view, parts, low, high) + modules


def _loop_regions(view: RankView, parts: LoopParts, low: Ints, high: Ints) -> list[Region]:
    """Return the parts of the loop that the rows show: step, forward+backward, model, optimizer."""
    trace, host, nesting = view.trace, view.trace.host, view.links.nesting
    path = view.on_path
    kept = union_of(parts.outside, _copying(trace, path))
    top = nesting.rows[nesting.parent < 0]
    top = top[path[top] & ~contains(kept, host.start[top])]
    marks = np.flatnonzero(path & (host.activity == Activity.GRAPH_BUILD))
    work = np.concatenate([top, marks, parts.stepping])
    work = work[np.argsort(host.start[work], kind="stable")]
    begin, end = host.start[work], host.end[work]
    back = np.sort(host.start[parts.backward])
    whole, forward_end = [], []
    ranges = (np.searchsorted(starts, edge).tolist() for starts in (begin, back) for edge in (low, high))
    for b, first, stop, first_back, stop_back in zip(high.tolist(), *ranges, strict=True):
        if stop > first:
            whole.append((int(begin[first]), min(b, int(end[first:stop].max()))))
        if stop_back > first_back:
            forward_end.append(int(back[first_back]))
    if not whole:
        return []
    spans = union(np.array([w[0] for w in whole]), np.array([w[1] for w in whole]))
    windows = subtract(union_of(spans, parts.zero_grad), kept)
    out = [Region("step", windows)]
    inside_steps = union(low, high)
    if forward_end and len(optimizer := intersect(parts.optimizer, inside_steps)):
        optimizer = union_of(optimizer, _closing(host, marks, top, optimizer))
        both = subtract(windows, optimizer)
        operators = path & (host.kind == HostKind.OP) & trace.operators_named(LOSS.search).take(host.name)
        loss = union_of(union(host.start[operators], host.end[operators]), parts.zero_grad)
        borders = np.array(forward_end, dtype=np.int64)
        out += [
            Region("forward+backward", both),
            Region("model", subtract(both, loss), inputs=2, split=True, borders=borders),
            Region("optimizer", intersect(optimizer, windows), inputs=0),
        ]
    return out


def _closing(host: HostRows, marks: Ints, top: Ints, optimizer: Intervals) -> Intervals:
    """Return the mark_steps that flush the optimizer: no other operator runs between its end and theirs."""
    other = np.sort(host.start[top][~contains(optimizer, host.start[top])])
    at = np.searchsorted(optimizer.end, host.start[marks], side="right") - 1
    since = optimizer.end[np.maximum(at, 0)]
    behind = (at >= 0) & (np.searchsorted(other, since) == np.searchsorted(other, host.start[marks]))
    return union(host.start[marks[behind]], host.end[marks[behind]])


def _copying(trace: Trace, path: Mask) -> Intervals:
    """Return the operators around copies between host and device and around waits.

    If the trace draws copies, a copying operator without one inside moves nothing between host and device: a cast, a
    clone.
    """
    host = trace.host
    moving = path & np.isin(host.activity, [Activity.COPY_H2D, Activity.COPY_D2H, Activity.SYNC])
    around = path & (host.kind == HostKind.OP) & trace.operators_named(COPYING.search).take(host.name)
    drawn = union(host.start[moving & ~around], host.end[moving & ~around])
    if len(drawn):
        around &= moving | (measure(drawn, host.start, host.end) > 0)
    rows = around | moving
    return union(host.start[rows], host.end[rows])
