"""Candidate regions for graphs, and the step with one of them captured.

A *region* is a set of host windows. Launches inside a window are captured, except copies between host and device (they
fill static inputs or read results) and calls that wait, which cut the region into pieces with a graph each. Host work
inside a piece disappears; copies to the device precede the graph launch.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from hpuprof.analysis.links import Links
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.threads import BACKWARD
from hpuprof.graph_mode.program import Program, rows_named
from hpuprof.graph_mode.replay import Schedule, check_order
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.intervals import EMPTY, Intervals, clip, contains, intersect, measure, subtract, union, union_of
from hpuprof.model.schema import Activity, DeviceKind, HostKind, Role
from hpuprof.model.trace import Trace

MIN_LAUNCHES = 3
"""Minimum launches for capturing a piece to pay: a replay costs about as much as two or three launches."""

COPYING = re.compile(
    r"^aten::(?:to|_to_copy|copy_|item|_local_scalar_dense|is_nonzero|equal|cpu|pin_memory|_pin_memory)$"
)
LOSS = re.compile(r"loss|cross_entropy|nll_", re.IGNORECASE)
ACCUMULATE = re.compile(r"AccumulateGrad")
ZERO = re.compile(r"zero_grad", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Phases:
    """Host windows of the used steps by purpose, and the bounds of each step's capturable part."""

    optimizer: Intervals
    zero_grad: Intervals
    outside: Intervals  # data loading, callbacks: never part of a graph
    loss: Intervals  # outermost loss operators and their backward nodes
    accumulate: Intervals  # autograd storing gradients in parameters
    copying: Intervals  # operators around copies between host and device, and around waits
    first: Ints  # per step of the program: start of the first operator that launches device work
    last: Ints  # end of the last one
    backward: Ints  # start of backward, -1 for none
    backward_end: Ints


@dataclass(frozen=True, eq=False)
class Region:
    """A candidate: windows to capture. `split`: forward and backward are separate graphs."""

    name: str
    windows: Intervals
    inputs: int = 1
    split: bool = False
    members: tuple[str, ...] = ()  # modules that it wraps
    borders: Ints | None = None  # instants at which another graph begins [ns]


@dataclass(frozen=True, eq=False)
class LoopParts:
    """Parts of the training loop by annotations and autograd's rows, over the whole trace."""

    optimizer: Intervals  # without the closure and zero_grad
    zero_grad: Intervals
    outside: Intervals  # data loading, callbacks
    stepping: Mask  # host rows of optimizer steps
    backward: Ints  # host rows of backward operators


def loop_parts(view: RankView) -> LoopParts:
    """Find the parts."""
    trace, host, role = view.trace, view.trace.host, view.host_roles
    main = role == Role.MAIN
    zero_name, backward_name = rows_named(trace, ZERO), rows_named(trace, BACKWARD)

    def when(mask: Mask) -> Intervals:
        return union(host.start[mask], host.end[mask])

    optimizing = main & (host.activity == Activity.OPTIMIZER)
    zero = when(optimizing & zero_name)
    stepping = optimizing & ~zero_name
    return LoopParts(
        optimizer=subtract(subtract(when(stepping), when(main & (host.activity == Activity.CLOSURE))), zero),
        zero_grad=zero,
        outside=when(main & np.isin(host.activity, [Activity.DATA_LOADER, Activity.LOADER_WAIT, Activity.CALLBACK])),
        stepping=stepping,
        backward=np.flatnonzero((host.kind == HostKind.OP) & ((role == Role.AUTOGRAD) | (main & backward_name))),
    )


def accumulates(optimizer: Intervals, low: Ints, high: Ints) -> bool:
    """Tell whether only some steps run the optimizer: gradients of several batches are summed."""
    with_optimizer = measure(optimizer, low, high) > 0
    return bool(with_optimizer.any() and not with_optimizer.all())


def find_phases(view: RankView, program: Program) -> Phases:
    """Find data loading, forward, backward and optimizer of each step, by annotations and the autograd thread."""
    trace, host, links = view.trace, view.trace.host, view.links
    role = view.host_roles
    main = role == Role.MAIN
    parts = loop_parts(view)
    optimizer, zero, outside = parts.optimizer, parts.zero_grad, parts.outside

    def when(mask: Mask) -> Intervals:
        return union(host.start[mask], host.end[mask])

    operators = (main | (role == Role.AUTOGRAD)) & (host.kind == HostKind.OP)
    loss = when(operators & rows_named(trace, LOSS))
    accumulate = when(operators & rows_named(trace, ACCUMULATE))
    captured = launched_work(program)
    copying = _copying_operators(trace, links, program)
    fixed = union_of(outside, copying)
    roots = _roots(trace, links, (main & (host.activity == Activity.OPTIMIZER)) | _module_roots(trace, main))
    first = np.full(program.steps, -1, dtype=np.int64)
    last = np.full(program.steps, -1, dtype=np.int64)
    calls = np.flatnonzero(captured & ~contains(outside, program.begin))
    for step in range(program.steps):
        mine = calls[program.step[calls] == step]
        if len(mine):
            low, high = int(program.step_low[step]), int(program.step_high[step])
            begin = _around(roots, int(program.begin[mine[0]]))[0]
            first[step] = max(low, min(begin, _end_before(fixed, low, begin)))
            last[step] = min(high, max(int(program.end[mine[-1]]), _around(roots, int(program.begin[mine[-1]]))[1]))
    back = parts.backward
    backward = np.full(program.steps, -1, dtype=np.int64)
    backward_end = np.full(program.steps, -1, dtype=np.int64)
    at = np.searchsorted(program.step_low, host.start[back], side="right") - 1
    for step in range(program.steps):
        rows = back[(at == step) & (host.start[back] < program.step_high[step])]
        if len(rows):
            backward[step], backward_end[step] = int(host.start[rows].min()), int(host.end[rows].max())
    return Phases(optimizer, zero, outside, loss, accumulate, copying, first, last, backward, backward_end)


def _module_roots(trace: Trace, main: Mask) -> Mask:
    modules = np.array([n.startswith("nn.Module:") for n in trace.names] or [False], dtype=bool)
    found: Mask = main & (trace.host.kind == HostKind.PYTHON) & modules[trace.host.name]
    return found


def _roots(trace: Trace, links: Links, more: Mask) -> Intervals:
    """Return the union of whole outermost operators on any thread and the given rows: optimizers, modules."""
    nesting = links.nesting
    top = nesting.parent < 0
    rows = np.flatnonzero(more)
    return union(
        np.concatenate([nesting.start[top], trace.host.start[rows]]),
        np.concatenate([nesting.end[top], trace.host.end[rows]]),
    )


def _end_before(fixed: Intervals, low: int, when: int) -> int:
    """Return the end of the step's last data loading or copy before an instant: Python then calls the model."""
    at = int(np.searchsorted(fixed.end, when, side="right")) - 1
    return int(fixed.end[at]) if at >= 0 and int(fixed.end[at]) > low else when


def _around(roots: Intervals, when: int) -> tuple[int, int]:
    at = int(np.searchsorted(roots.start, when, side="right")) - 1
    if at >= 0 and when < int(roots.end[at]):
        return int(roots.start[at]), int(roots.end[at])
    return when, when


def launched_work(program: Program) -> Mask:
    """Mark the calls that launch work a graph can hold: not waits or copies between host and device."""
    kinds = program.kind
    rows = np.bincount(program.call, minlength=len(program.row)) > 0
    useful = np.bincount(program.call[kinds != DeviceKind.COPY], minlength=len(program.row)) > 0
    inner = rows & ~useful & ~program.upload & ~program.read  # copies within the device, memset
    captured: Mask = (useful | inner) & ~program.waits & ~program.upload & ~program.read & ~program.marker
    return captured


def _copying_operators(trace: Trace, links: Links, program: Program) -> Intervals:
    """Return the outermost copying operators around uploads, reads and waits; else the calls alone."""
    nesting, host = links.nesting, trace.host
    calls = np.flatnonzero((program.upload | program.read | program.waits) & ~program.marker)
    if not len(calls):
        return EMPTY
    rows = program.row[calls]
    begin, end = program.begin[calls].copy(), program.end[calls].copy()
    if len(nesting.rows):
        copying = rows_named(trace, COPYING)[nesting.rows]
        at = nesting.innermost(host.track[rows], host.start[rows])
        while True:
            good = (at >= 0) & copying[np.maximum(at, 0)]
            if not good.any():
                break
            begin[good] = np.minimum(begin[good], nesting.start[at[good]])
            end[good] = np.maximum(end[good], nesting.end[at[good]])
            at = np.where(good, nesting.parent[np.maximum(at, 0)], -1)
    return union(begin, end)


def find_regions(program: Program, phases: Phases) -> list[Region]:
    """Return the candidates in the trace: step, forward+backward (one graph and two), optimizer."""
    known = phases.first >= 0
    if not known.any():
        return []
    whole = union(phases.first[known], phases.last[known])
    everything = union_of(whole, clip_to_steps(phases.zero_grad, program))
    out = [Region("step", subtract(everything, phases.outside))]
    optimizer = clip_to_steps(phases.optimizer, program)
    both = known & (phases.backward >= 0)
    if not len(optimizer) and both.any():  # no name for the optimizer: take everything after backward
        rest = both & (phases.last > phases.backward_end)
        optimizer = subtract(union(phases.backward_end[rest], phases.last[rest]), phases.outside)
    if both.any() and len(optimizer):
        without = subtract(subtract(everything, optimizer), phases.outside)
        out.append(Region("forward+backward", without))
        border = Intervals(phases.backward[both], phases.backward[both] + 1)
        model = subtract(subtract(subtract(without, border), phases.loss), phases.zero_grad)
        out.append(Region("model", model, inputs=2, split=True))
        out.append(Region("optimizer", subtract(optimizer, phases.outside), inputs=0))
    return out


def clip_to_steps(a: Intervals, program: Program) -> Intervals:
    """Return the part of `a` that lies between the first and the last step of the program."""
    return clip(a, int(program.step_low[0]), int(program.step_high[-1]))


@dataclass(frozen=True, eq=False)
class Transformed:
    """A schedule and its captured launches, graph launches and copies into static inputs, per step."""

    schedule: Schedule
    launches: float
    graphs: float
    inputs: float
    removed: Intervals


def unchanged(program: Program, *, blocking: bool = False) -> Schedule:
    """Return the schedule of the program as recorded. `blocking`: launches wait for their work, as they did."""
    return _schedule(program, EMPTY, np.zeros(len(program.row), dtype=bool), blocking=blocking)


def capture(
    program: Program,
    phases: Phases,
    region: Region,
    *,
    drop_waits: bool = False,
    recipes: bool = False,
) -> Transformed:
    """Return the schedule with a region captured. `drop_waits`: the host no longer waits for the device in a step.

    `recipes`: each captured launch remains one launch (HPU lazy mode replays recipe by recipe).
    """
    captured = launched_work(program) & contains(region.windows, program.begin)
    apart = np.zeros(len(captured), dtype=bool)
    if region.split:
        # Hooks run after a graphed backward, so their collectives stay outside and follow it. So does storing gradients
        # in parameters.
        apart[program.call[program.kind == DeviceKind.COMMUNICATION]] = True
        apart |= contains(phases.accumulate, program.begin)
        apart &= captured
        captured &= ~apart
    waiting = (program.waits | program.read) & ~program.marker
    cuts = np.zeros(len(waiting), dtype=bool) if drop_waits else waiting & contains(region.windows, program.begin)
    around = phases.copying
    kept = around if not drop_waits else _only(around, program, program.upload & ~program.marker)
    windows = subtract(region.windows, union_of(kept, phases.accumulate) if region.split else kept)
    cuts |= _late_uploads(program, captured | apart, _pieces(program, region, cuts))
    piece = _pieces(program, region, cuts)
    used = _consumed(program, captured, apart, piece)
    captured, apart = captured | used, apart & ~used
    names, index = np.unique(piece[captured], return_inverse=True)
    count = np.bincount(index, minlength=len(names))
    good = names[count >= MIN_LAUNCHES]
    captured &= np.isin(piece, good)
    cut_at = program.begin[cuts]
    bounds = _piece_bounds(region.windows, np.sort(cut_at), good, len(cut_at) + 1)
    removed = intersect(windows, bounds)
    gone = waiting & drop_waits
    if drop_waits:
        reads = _only(phases.copying, program, gone)
        removed = union_of(removed, reads)
    schedule = _schedule(program, removed, captured, gone=gone, stays=apart)
    # Uploads precede their piece's graph; rows follow their calls.
    inside = np.isin(piece, good) & (piece >= 0)
    uploads = inside & program.upload & ~captured
    key = np.arange(len(piece), dtype=np.int64)
    for name in good.tolist():
        members = np.flatnonzero(inside & (piece == name))
        if uploads[members].any():
            key[members] = members[0]
        if apart[members].any():
            key[members] = members[0]
    rank = np.where(inside & apart, 2, np.where(inside & ~uploads, 1, 0))
    order = np.lexsort((np.arange(len(key)), rank, key))
    inputs = float(region.inputs if region.inputs != 1 else max(1, round(uploads.sum() / max(1, program.steps))))
    if apart.any():
        schedule = _behind(schedule, program, piece, captured, apart)
    schedule = _reorder(schedule, order)
    head, launches = _heads(piece[order], captured[order])
    replay_count = np.where(head, launches if recipes else 1, 0)
    filled = np.where(head, inputs / max(1.0, head.sum() / program.steps) if not region.split else 1.0, 0.0)
    check_order(schedule)
    schedule = _with(
        schedule,
        replay=head,
        replay_launches=np.where(head, launches, 0),
        replay_count=replay_count,
        inputs=filled,
        copies=_copies(schedule, filled),
    )
    return Transformed(
        schedule,
        launches=float(captured.sum() / program.steps),
        graphs=float(head.sum() / program.steps),
        inputs=inputs if head.any() else 0.0,
        removed=removed,
    )


def _pieces(program: Program, region: Region, cuts: Mask) -> Ints:
    """Return the piece of each call, -1 outside: pieces are windows divided by cuts."""
    cut_at = program.begin[cuts]
    window = np.searchsorted(region.windows.start, program.begin, side="right") - 1
    piece = window * (len(cut_at) + 1) + np.searchsorted(cut_at, program.begin, side="right")
    return np.where(contains(region.windows, program.begin), piece, -1)


def _waits_within(program: Program, piece: Ints) -> Ints:
    """Return the rows that wait for another lane's row launched in the same piece."""
    rows = np.flatnonzero(program.edge >= 0)
    mine, theirs = piece[program.call[rows]], piece[program.call[program.edge[rows]]]
    found: Ints = rows[(mine >= 0) & (mine == theirs)]
    return found


def _late_uploads(program: Program, captured: Mask, piece: Ints) -> Mask:
    """Mark the uploads that wait for work of their own piece: unable to precede its graph, they start another."""
    late = np.zeros(len(captured), dtype=bool)
    rows = _waits_within(program, piece)
    rows = rows[program.upload[program.call[rows]] & captured[program.call[program.edge[rows]]]]
    late[program.call[rows]] = True
    return late & ~captured


def _consumed(program: Program, captured: Mask, apart: Mask, piece: Ints) -> Mask:
    """Mark the calls kept after their graph that launch work which the graph needs: they belong inside.

    Nothing in the region uses a hook's gradient reduction; it does use a module's gathers.
    """
    used = np.zeros(len(captured), dtype=bool)
    rows = _waits_within(program, piece)
    waiting, source = program.call[rows], program.call[program.edge[rows]]
    while True:
        more = source[(captured | used)[waiting] & (apart & ~used)[source]]
        if not len(more):
            return used
        used[more] = True


def _copies(schedule: Schedule, inputs: Floats) -> Floats:
    """Return the device's copies into static inputs before each row: the first row of a graph waits for them."""
    out = np.zeros(len(schedule.call))
    calls = np.flatnonzero(inputs)
    first = np.searchsorted(schedule.call, calls)
    there = first < len(out)
    there[there] = schedule.call[first[there]] == calls[there]
    out[first[there]] = inputs[calls[there]]
    return out


def _behind(schedule: Schedule, program: Program, piece: Ints, captured: Mask, apart: Mask) -> Schedule:
    """Let rows of calls outside a piece's graph wait for the graph's last row."""
    edge, edge_gap = schedule.edge.copy(), schedule.edge_gap.copy()
    row_piece = piece[program.call]
    for name in np.unique(piece[apart]).tolist():
        inside = np.flatnonzero(captured[program.call] & (row_piece == name))
        if len(inside):
            mine = np.flatnonzero(apart[program.call] & (row_piece == name))
            edge[mine] = inside[-1]
            edge_gap[mine] = program.typical_gap
    return replace(schedule, edge=edge, edge_gap=edge_gap)


def _only(around: Intervals, program: Program, calls: Mask) -> Intervals:
    """Return the intervals of `around` that hold one of the calls."""
    at = np.searchsorted(around.start, program.begin[calls], side="right") - 1
    at = np.unique(at[at >= 0])
    return Intervals(around.start[at], around.end[at])


def _piece_bounds(windows: Intervals, cuts: Ints, good: Ints, base: int) -> Intervals:
    low, high = [], []
    for name in good.tolist():
        window, part = divmod(name, base)
        begin, end = int(windows.start[window]), int(windows.end[window])
        low.append(max(begin, int(cuts[part - 1])) if part else begin)
        high.append(min(end, int(cuts[part])) if part < len(cuts) else end)
    return union(np.array(low, dtype=np.int64), np.array(high, dtype=np.int64))


def _heads(piece: Ints, captured: Mask) -> tuple[Mask, Ints]:
    """Mark the first captured call of each piece, and count the captured calls of its piece."""
    head = np.zeros(len(piece), dtype=bool)
    launches = np.zeros(len(piece), dtype=np.int64)
    rows = np.flatnonzero(captured)
    if len(rows):
        _, first, count = np.unique(piece[rows], return_index=True, return_counts=True)
        head[rows[first]] = True
        launches[rows[first]] = count
    return head, launches


def _schedule(
    program: Program,
    removed: Intervals,
    captured: Mask,
    *,
    gone: Mask | None = None,
    stays: Mask | None = None,
    blocking: bool = False,
) -> Schedule:
    segment, rows = program.host_work(removed)
    cost = program.useful.copy()
    inside = contains(removed, program.begin) | captured
    if stays is not None:
        inside &= ~stays
    cost[inside] = 0.0
    dur = program.dur.copy()
    waits, targets, tail = program.waits.copy(), program.targets, program.tail
    if gone is not None and gone.any():
        waits &= ~gone
        cost[gone] = 0.0
        dur[gone[program.call]] = 0.0
    if program.queued:
        targets = dict(targets)
        captures = np.cumsum(captured)
        for i, freed in program.queued.items():
            # The queue is full only while every launch since the one that left it is still a launch.
            if captures[i] == captures[program.call[freed]]:
                waits[i] = True
                targets[i] = [freed]
    if blocking and program.blocking:
        waits = waits | ~program.marker
        first = np.searchsorted(program.call, np.arange(len(waits)), side="left")
        stop = np.searchsorted(program.call, np.arange(len(waits)), side="right")
        targets = dict(targets)
        tail = tail.copy()
        ends = program.start + program.dur
        for i in np.flatnonzero((stop > first) & ~program.waits).tolist():
            targets[i] = list(range(int(first[i]), int(stop[i])))
            tail[i] = max(0.0, float(program.end[i] - ends[first[i] : stop[i]].max()))
    return Schedule(
        segment=segment.astype(np.float64),
        segment_rows=rows,
        cost=cost,
        cost_rows=np.where(inside[:, None], 0, program.call_rows()),
        replay=np.zeros(len(cost), dtype=bool),
        replay_launches=np.zeros(len(cost), dtype=np.int64),
        replay_count=np.zeros(len(cost), dtype=np.int64),
        inputs=np.zeros(len(cost)),
        marker=program.marker,
        waits=waits,
        targets=targets,
        tail=tail,
        call=program.call,
        identity=np.arange(len(program.call)),
        lane=program.lane,
        dur=dur,
        latency=program.latency,
        gap=program.gap,
        edge=program.edge,
        edge_gap=program.edge_gap,
        captured=captured[program.call],
        elastic=captured[program.call] & (program.kind != DeviceKind.COMMUNICATION),
        copies=np.zeros(len(program.call)),
        lanes=program.lanes,
    )


def _with(schedule: Schedule, **changes: object) -> Schedule:
    return replace(schedule, **changes)  # type: ignore[arg-type]


def _reorder(schedule: Schedule, order: Ints) -> Schedule:
    """Put calls into a new order; rows move with them, targets stay tied to their calls."""
    if (order == np.arange(len(order))).all():
        return schedule
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    call = place[schedule.call]
    rows = np.argsort(call, kind="stable")
    return _with(
        schedule,
        segment=schedule.segment[order],
        segment_rows=schedule.segment_rows[order],
        cost=schedule.cost[order],
        cost_rows=schedule.cost_rows[order],
        marker=schedule.marker[order],
        waits=schedule.waits[order],
        tail=schedule.tail[order],
        targets={int(place[i]): rows_ for i, rows_ in schedule.targets.items()},
        call=call[rows],
        identity=schedule.identity[rows],
        lane=schedule.lane[rows],
        dur=schedule.dur[rows],
        latency=schedule.latency[rows],
        gap=schedule.gap[rows],
        edge=schedule.edge[rows],
        edge_gap=schedule.edge_gap[rows],
        captured=schedule.captured[rows],
        elastic=schedule.elastic[rows],
        copies=schedule.copies[rows],
    )
