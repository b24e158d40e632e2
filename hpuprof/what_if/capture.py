"""Captures a region of a launch-by-launch program: its launches become graphs, the host work between them goes.

A *region* is a set of host windows. Launches inside a window are captured, except copies between host and device (they
fill static inputs or read results) and calls that wait, which cut the region into pieces with a graph each. Host work
inside a piece disappears; copies to the device precede the graph launch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property, lru_cache, partial

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.gaps import silences
from hpuprof.analysis.links import Links
from hpuprof.analysis.rank_view import RankView
from hpuprof.families import FAMILIES
from hpuprof.model.arrays import Floats, Ints, Mask, distinct, kinds_of
from hpuprof.model.intervals import EMPTY, Intervals, contains, intersect, subtract, union, union_of
from hpuprof.model.schema import Activity, Cause, DeviceKind, HostKind, Role
from hpuprof.model.trace import Trace
from hpuprof.what_if.edit import as_graphs, without_waits
from hpuprof.what_if.launch_program import Program
from hpuprof.what_if.schedule import MAIN, Schedule, Wait, Waits
from hpuprof.what_if.stored_gradients import StoredGradients

MIN_LAUNCHES = 3
"""Minimum launches for capturing a piece to pay: a replay costs about as much as two or three launches."""
COPYING = re.compile(
    r"^aten::(?:to|_to_copy|copy_|item|_local_scalar_dense|is_nonzero|equal|cpu|pin_memory|_pin_memory)$"
)
ACCUMULATE = re.compile(r"AccumulateGrad")


class Region(Struct, frozen=True, eq=False):
    """A candidate: windows to capture. `split`: forward and backward are separate graphs."""

    name: str
    windows: Intervals
    inputs: int = 1
    split: bool = False
    keeps_gradients: bool = False  # at their addresses, from where its graph reads them
    members: tuple[str, ...] = ()  # modules that it wraps
    borders: Ints | None = None  # instants at which another graph begins [ns]


class Around(Struct, frozen=True, eq=False, dict=True):
    """Host windows that capturing leaves outside, over the whole trace."""

    copying: Intervals = EMPTY  # operators around copies between host and device, and around waits
    accumulate: Intervals = EMPTY  # autograd storing gradients in parameters
    staying: Intervals = EMPTY  # operators on the CPU, which no graph holds, and long pauses of which nothing is known
    graphs: Mask | None = None  # calls of the program that launch graphs already, shape `(calls,)`
    gradients: StoredGradients | None = None  # those in `accumulate`; None for none, and where no stream is captured

    @classmethod
    def of(cls, view: RankView, program: Program) -> Around:
        """Find them."""
        trace, host, role = view.trace, view.trace.host, view.host_roles
        storing = ((role == Role.MAIN) | (role == Role.AUTOGRAD)) & (host.kind == HostKind.OP)
        storing &= trace.operators_named(ACCUMULATE.search).take(host.name)
        graphs = (program.row >= 0) & (host.activity[np.maximum(program.row, 0)] == Activity.GRAPH_LAUNCH)
        storing_when = union(host.start[storing], host.end[storing])
        staying = union_of(view.states[Cause.CPU_OPERATOR], silences(view))
        gradients = None
        if len(storing_when) and FAMILIES[trace.family].graphs_in(trace.mode).module:
            gradients = StoredGradients.of(view, program, storing_when, launched_work(program))
        return cls(_copying_operators(trace, view.links, program), storing_when, staying, graphs, gradients)

    @cached_property
    def cut(self) -> Callable[[Program, Region, bool], _Cut]:
        """What the graphs of a region take of a program, with or without its waits; the last few remembered."""
        return lru_cache(maxsize=4)(partial(_cut_out, self))

    def copying_in(self, program: Program, calls: Mask) -> Intervals:
        """Return the intervals of `copying` that hold some of the calls."""
        at = np.searchsorted(self.copying.start, program.begin[calls], side="right") - 1
        at = distinct(at[at >= 0])
        return Intervals(self.copying.start[at], self.copying.end[at])


class _Cut(Struct, frozen=True, eq=False):
    """What the graphs of a region take of a program, whatever else is edited; columns of shape `(calls,)`."""

    piece: Ints  # of each call, -1 outside
    captured: Mask
    apart: Mask  # left outside, and behind their piece's graph
    gone: Mask  # waits that are dropped
    free: Mask  # calls that cost nothing any more
    left: tuple[Ints, Ints]  # `Segments.whole` without the host time that goes
    order: Ints  # calls as they follow each other
    graphs: float
    inputs: float


class Captured(Struct, frozen=True, eq=False):
    """A schedule with a region captured, and per-step counts of it."""

    schedule: Schedule
    launches: float
    graphs: float
    inputs: float = 0.0
    split: float = 0.0  # recipes that the region covers only in part
    asynchronous: bool = False


def launched_work(program: Program) -> Mask:
    """Mark the calls that launch work a graph can hold: not waits or copies between host and device."""
    kinds = program.kind
    rows = np.bincount(program.call, minlength=len(program.row)) > 0
    useful = np.bincount(program.call[kinds != DeviceKind.COPY], minlength=len(program.row)) > 0
    inner = rows & ~useful & ~program.upload & ~program.read  # copies within the device, memset
    captured: Mask = (useful | inner) & ~program.waits & ~program.upload & ~program.read & ~program.marker
    return captured


def handed_over(program: Program, calls: Mask) -> Mask:
    """Mark the calls that count: of the launches that one row of the program handed over, the first."""
    source = np.where(calls, program.path.source, -1)
    at = np.flatnonzero(source >= 0)
    counted: Mask = calls.copy()
    counted[at] = False
    counted[at[kinds_of(source[at])[1]]] = True
    return counted


def capture(
    program: Program,
    unchanged: Schedule,
    around: Around,
    region: Region,
    *,
    drop_waits: bool = False,
    recipes: bool = False,
) -> Captured:
    """Return a program with a region captured.

    Args:
        program: the recorded calls and rows.
        unchanged: its schedule.
        around: what capturing leaves outside.
        region: what to capture.
        drop_waits: the host no longer waits for the device in a step.
        recipes: each captured launch remains one launch (HPU lazy mode replays recipe by recipe).

    Raises:
        CrosswiseError: the captured work would wait for itself.
    """
    cut = around.cut(program, region, drop_waits)
    captured, piece, apart = cut.captured, cut.piece, cut.apart
    schedule = _without_host_work(unchanged, program, cut)
    schedule = replace(schedule, waits=_still_full(schedule.waits, program, captured))
    schedule = replace(schedule, calls=schedule.calls.in_order(cut.order))
    if apart.any():
        schedule = replace(schedule, waits=_behind(schedule.waits, program, piece, captured, apart))
    of_each = 1.0 if region.split else cut.inputs / max(1.0, cut.graphs)
    schedule, heads = as_graphs(schedule, np.where(captured, piece, -1), each=recipes, inputs=of_each)
    schedule = _called_by_program(schedule, program, heads)
    if around.graphs is not None and around.graphs.any():
        schedule = _as_they_are(schedule, around.graphs)
    schedule = without_waits(schedule, cut.gone)  # sorts
    return Captured(
        schedule,
        launches=float(handed_over(program, captured).sum() / program.steps),
        graphs=cut.graphs,
        inputs=cut.inputs if cut.graphs else 0.0,
    )


def _cut_out(around: Around, program: Program, region: Region, drop_waits: bool) -> _Cut:  # noqa: FBT001
    """Find what the graphs of a region take of a program."""
    captured = launched_work(program) & contains(region.windows, program.begin)
    apart = np.zeros(len(captured), dtype=bool)
    if region.split:
        # Hooks run after a graphed backward, so their collectives stay outside and follow it. So does storing gradients
        # in parameters.
        apart[program.call[program.kind == DeviceKind.COMMUNICATION]] = True
        apart |= contains(around.accumulate, program.begin)
        apart &= captured
        captured &= ~apart
    waiting = (program.waits | program.read) & ~program.marker
    cuts = np.zeros(len(waiting), dtype=bool) if drop_waits else waiting & contains(region.windows, program.begin)
    kept = around.copying if not drop_waits else around.copying_in(program, program.upload & ~program.marker)
    kept = union_of(kept, around.staying)
    windows = subtract(region.windows, union_of(kept, around.accumulate) if region.split else kept)
    cuts |= _late_uploads(program, captured | apart, _pieces(program, region, cuts))
    piece = _pieces(program, region, cuts)
    used = _consumed(program, captured, apart, piece)
    captured, apart = captured | used, apart & ~used
    names, _, index = kinds_of(piece[handed_over(program, captured)])
    count = np.bincount(index, minlength=len(names))
    good = names[count >= MIN_LAUNCHES]
    captured &= np.isin(piece, good)
    removed = intersect(windows, _piece_bounds(region.windows, _instants(program, cuts), good))
    gone = waiting & drop_waits
    if drop_waits:
        removed = union_of(removed, around.copying_in(program, gone))
    inside = np.isin(piece, good) & (piece >= 0) & ~program.marker  # a step's end is where the next one begins
    uploads = inside & program.upload & ~captured
    graphs = len(distinct(piece[captured])) / program.steps
    inputs = float(region.inputs if region.inputs != 1 else max(1, round(uploads.sum() / max(1, program.steps))))
    free = (contains(removed, program.begin) | captured | apart) & ~apart
    return _Cut(
        piece=piece,
        captured=captured,
        apart=apart,
        gone=gone | (program.frees & free),
        free=free,
        left=program.segments.without(removed),
        order=_order(piece, good, inside, uploads, apart),
        graphs=graphs,
        inputs=inputs,
    )


def _as_they_are(schedule: Schedule, calls: Mask) -> Schedule:
    """Leave the rows of graphs that are there as recorded: they run and follow each other as in a graph already."""
    rows = schedule.rows
    there = calls[rows.call]
    kept = replace(rows, elastic=rows.elastic & ~there, captured=rows.captured & ~there)
    return replace(schedule, rows=kept)


def _called_by_program(schedule: Schedule, program: Program, heads: Mask) -> Schedule:
    """Let the program pay for graphs where a thread launches: it hands each over where it handed the first launch."""
    by_thread = np.flatnonzero(heads & (program.path.source >= 0))
    if not len(by_thread):
        return schedule
    costs = schedule.calls.graph_costs.copy()
    np.add.at(costs, program.path.source[by_thread], costs[by_thread])
    costs[by_thread] = 0.0
    return replace(schedule, calls=replace(schedule.calls, graph_costs=costs))


def _without_host_work(schedule: Schedule, program: Program, cut: _Cut) -> Schedule:
    """Take host time out of segments, and the calls in it; of an edited segment, the same share."""
    (left, rows), (whole, whole_rows) = cut.left, program.segments.whole
    freed = schedule.calls.free(cut.free)
    main = schedule.calls.thread == MAIN
    calls = replace(
        freed,
        segment=np.where(main, _scaled(freed.segment, left, whole), freed.segment),
        segment_rows=np.where(main[:, None], _scaled(freed.segment_rows, rows, whole_rows), freed.segment_rows),
    )
    return replace(schedule, calls=calls)


def _scaled(column: Floats, left: Ints, whole: Ints) -> Floats:
    """Return what is left of a column in proportion; exactly `left` where the column is as recorded."""
    return np.where(column == whole, left, column * left / np.maximum(whole, 1))


def _still_full(waits: Waits, program: Program, captured: Mask) -> Waits:
    """Keep waits for room in the queue only where every launch since the one that left it is still a launch."""
    captures = np.cumsum(captured)
    full = np.flatnonzero(waits.kind == Wait.QUEUE)
    keep = np.ones(len(waits), dtype=bool)
    keep[full] = captures[waits.waiting[full]] == captures[program.call[waits.source[full]]]
    return waits.only(keep)


def _order(piece: Ints, good: Ints, inside: Mask, uploads: Mask, apart: Mask) -> Ints:
    """Return the calls in their new order: uploads precede their piece's graph, what stays apart follows it."""
    key = np.arange(len(piece), dtype=np.int64)
    for name in good.tolist():
        members = np.flatnonzero(inside & (piece == name))
        if uploads[members].any() or apart[members].any():
            key[members] = members[0]
    rank = np.where(inside & apart, 2, np.where(inside & ~uploads, 1, 0))
    return np.lexsort((np.arange(len(key)), rank, key))


def _pieces(program: Program, region: Region, cuts: Mask) -> Ints:
    """Return the piece of each call, -1 outside: pieces are windows divided by cuts and by the steps' borders."""
    cut_at = _instants(program, cuts)
    window = np.searchsorted(region.windows.start, program.begin, side="right") - 1
    piece = window * (len(cut_at) + 1) + np.searchsorted(cut_at, program.begin, side="right")
    return np.where(contains(region.windows, program.begin), piece, -1)


def _instants(program: Program, cuts: Mask) -> Ints:
    """Return where pieces end, sorted: at cuts, and where a step begins, as a graph is replayed once a step."""
    return np.sort(np.concatenate([program.begin[cuts], program.step_low]))


def _waits_within(program: Program, piece: Ints) -> tuple[Ints, Ints]:
    """Return the calls whose rows wait for another lane's row launched in the same piece, and those rows' calls."""
    waits = program.lane_waits
    waiting, source = program.call[waits.row], program.call[waits.source]
    inside = (piece[waiting] >= 0) & (piece[waiting] == piece[source])
    return waiting[inside], source[inside]


def _late_uploads(program: Program, captured: Mask, piece: Ints) -> Mask:
    """Mark the uploads that wait for work of their own piece: unable to precede its graph, they start another."""
    late = np.zeros(len(captured), dtype=bool)
    waiting, source = _waits_within(program, piece)
    late[waiting[program.upload[waiting] & captured[source]]] = True
    return late & ~captured


def _consumed(program: Program, captured: Mask, apart: Mask, piece: Ints) -> Mask:
    """Mark the calls kept after their graph that launch work which the graph needs: they belong inside.

    Nothing in the region uses a hook's gradient reduction; it does use a module's gathers.
    """
    used = np.zeros(len(captured), dtype=bool)
    waiting, source = _waits_within(program, piece)
    while True:
        more = source[(captured | used)[waiting] & (apart & ~used)[source]]
        if not len(more):
            return used
        used[more] = True


def _behind(waits: Waits, program: Program, piece: Ints, captured: Mask, apart: Mask) -> Waits:
    """Let rows of calls outside a piece's graph wait for the graph's last row, and for nothing else."""
    row_piece, launched = piece[program.call], captured[program.call]
    added: list[tuple[int, int, int, float]] = []
    follows = np.zeros(len(program.call), dtype=bool)
    for name in distinct(piece[apart]).tolist():
        graph = np.flatnonzero(launched & (row_piece == name))
        if len(graph):
            mine = np.flatnonzero(apart[program.call] & (row_piece == name))
            follows[mine] = True
            added += [(int(Wait.LANE), row, int(graph[-1]), program.typical_gap) for row in mine.tolist()]
    replaced = (waits.kind == Wait.LANE) & follows[np.where(waits.kind == Wait.LANE, waits.waiting, 0)]
    return waits.only(~replaced).also(Waits.of(added))


def _piece_bounds(windows: Intervals, cuts: Ints, good: Ints) -> Intervals:
    low, high = [], []
    for name in good.tolist():
        window, part = divmod(name, len(cuts) + 1)
        begin, end = int(windows.start[window]), int(windows.end[window])
        low.append(max(begin, int(cuts[part - 1])) if part else begin)
        high.append(min(end, int(cuts[part])) if part < len(cuts) else end)
    return union(np.array(low, dtype=np.int64), np.array(high, dtype=np.int64))


def _copying_operators(trace: Trace, links: Links, program: Program) -> Intervals:
    """Return the outermost copying operators around uploads, reads and waits; else the calls alone."""
    nesting, host = links.nesting, trace.host
    calls = np.flatnonzero((program.upload | program.read | program.waits) & ~program.marker)
    if not len(calls):
        return EMPTY
    rows = program.row[calls]
    begin, end = program.begin[calls].copy(), program.end[calls].copy()
    if len(nesting.rows):
        copying = trace.operators_named(COPYING.search).take(host.name.take(nesting.rows))
        at = nesting.innermost(host.track[rows], host.start[rows])
        while True:
            good = (at >= 0) & copying[np.maximum(at, 0)]
            if not good.any():
                break
            begin[good] = np.minimum(begin[good], nesting.start[at[good]])
            end[good] = np.maximum(end[good], nesting.end[at[good]])
            at = np.where(good, nesting.parent[np.maximum(at, 0)], -1)
    return union(begin, end)
