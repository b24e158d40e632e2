"""What each call and device row of a schedule belongs to: operator, call, host range or kernel, and module.

Times of a schedule are cut into *parts*, so that each ns belongs to one of them: durations of rows, costs of calls,
pieces of the host work between calls, and waits that are no one's work (latencies). Modules cut the same times again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np
from msgspec import Struct, field

from hpuprof.analysis.forest import Nesting, nest_rows
from hpuprof.analysis.host_calls import program_tracks
from hpuprof.analysis.placement import Phase
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Codes, Floats, Ints, Mask, among, distinct, kinds_of, stable_order
from hpuprof.model.schema import Activity, DeviceKind, HostKind, Role
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.launch_program import Program
from hpuprof.what_if.recipe_model import RecipeModel
from hpuprof.what_if.recipes import Kind, RecipeProgram
from hpuprof.what_if.schedule import LAUNCHER, MAIN
from hpuprof.what_if.step_model import StepModel
from hpuprof.what_if.totals import TotalsModel

LATENCIES = ("launch to start", "between rows of a lane", "between lanes", "end of a row to the host's return")
"""Parts of kind `latency`, in the order of `Parts.latency`."""
BETWEEN = "(between operators)"
_THREADS = ("main path", "launch thread", "host before device")
"""What the calls of each thread of a schedule without links to launches are called."""
_PHASES = {
    Phase.BETWEEN: "(between modules)",
    Phase.FORWARD: "(forward)",
    Phase.BACKWARD: "(backward)",
    Phase.OPTIMIZER: "(optimizer)",
    Phase.LOADER: "(data loading)",
}


class Owners(Struct, frozen=True, eq=False, dict=True):
    """Who owns each time of a schedule, as numbers of one list of names; -1: no one."""

    row: Ints
    """Of each row's duration."""
    cost: Ints
    """Of each call's cost."""
    piece: Ints
    """Of each piece of host work."""

    def pieces_of(self, owner: int) -> Ints:
        """Return the pieces that one owns, ascending."""
        order, owners = self._pieces
        low, high = np.searchsorted(owners, [owner, owner + 1])
        return order[low:high]

    @cached_property
    def _pieces(self) -> tuple[Ints, Ints]:
        order = stable_order(self.piece)
        return order, self.piece[order]


class Parts(Struct, frozen=True, eq=False, dict=True):
    """The parts of a schedule. Pieces are sorted by call; a call's shares add up to 1."""

    labels: list[tuple[str, str]]
    """What and kind of each part."""
    owners: Owners
    latency: Ints
    """The parts of `LATENCIES`."""
    modules: list[str]
    """Names of modules, then of what happens in none; empty where nothing is known of them."""
    places: Owners
    """Innermost module call, as a position in `ModuleCalls`; behind those, by phase, what happens in none."""
    module_of: Ints
    """Module of each place."""
    piece_call: Ints
    piece_share: Floats

    @cached_property
    def module_owners(self) -> Owners:
        """Modules that own each time."""
        places = self.places
        return Owners(*(self.module_of[of] for of in (places.row, places.cost, places.piece)))


class _Labels(Struct):
    """Numbers labels in the order in which they come."""

    known: dict[tuple[str, str], int] = field(default_factory=dict)

    def of(self, what: str, kind: str) -> int:
        return self.known.setdefault((what, kind), len(self.known))

    def each(self, codes: Ints | Codes, names: list[str], kind: str) -> Ints:
        """Return the labels of names given by code."""
        codes, _, which = kinds_of(codes)
        return np.array([self.of(names[code], kind) for code in codes.tolist()], dtype=np.int64)[which]


def parts_of(model: StepModel) -> Parts:
    """Cut the times of a model's schedule into parts, as finely as its builder knows them."""
    if isinstance(model, LaunchModel):
        return _launched(model.view, model.program)
    view, schedule, labels = model.view, model.schedule, _Labels()
    calls, rows = schedule.calls, schedule.rows
    thread = np.array([labels.of(name, "host range") for name in _THREADS])[calls.thread]
    row = np.full(len(rows), labels.of("device work" if isinstance(model, TotalsModel) else "recipes", "kernel"))
    if rows.collective.any():
        row[rows.collective] = labels.of("collectives", "collective")
    call, low, high = main_windows(model)
    main, lanes = _main_track(view), np.flatnonzero(program_tracks(view))
    nesting = view.links.nesting
    near = np.isin(nesting.track, lanes)
    ranges = _ranges(view)
    seen = np.isin(ranges.track, [main, *lanes.tolist()])
    edges = [nesting.start[near], nesting.end[near], ranges.start[seen], ranges.end[seen]]
    within, when, length = _cut(distinct(np.concatenate(edges)), low, high)
    # Main and autograd take turns: whichever runs an operator is at work.
    track = np.full(len(when), main)
    for lane in lanes[lanes != main].tolist():
        track[nesting.innermost(np.full(len(when), lane, dtype=np.int32), when) >= 0] = lane
    owner = _host_labels(view, labels, ranges, track, when, main)
    whole = np.bincount(call[within], weights=length, minlength=len(calls))
    rest = np.flatnonzero(whole == 0)
    piece_call = np.concatenate([call[within], rest])
    order = np.argsort(piece_call, kind="stable")
    share = np.concatenate([length / whole[call[within]], np.ones(len(rest))])
    unowned = Owners(*(np.full(len(column), -1, dtype=np.int64) for column in (row, thread, piece_call)))
    return Parts(
        labels=[*labels.known, *((name, "latency") for name in LATENCIES)],
        owners=Owners(row, thread, np.concatenate([owner, thread[rest]])[order]),
        latency=np.arange(len(LATENCIES)) + len(labels.known),
        modules=[],
        places=unowned,
        module_of=np.empty(0, dtype=np.int64),
        piece_call=piece_call[order],
        piece_share=share[order],
    )


def main_windows(model: StepModel) -> tuple[Ints, Ints, Ints]:
    """Return calls of the main path and the host time that their segments stand for: call, begin and end [ns]."""
    calls = np.flatnonzero(model.schedule.calls.thread == MAIN)
    if isinstance(model, TotalsModel):
        # Each step has a call for its begin, one for its work and one for its end.
        working = model.stages.working
        _, begin, length = _cut(distinct(np.concatenate([model.low, model.high])), working.start, working.end)
        step = np.searchsorted(model.low, begin, side="right") - 1
        inside = (step >= 0) & (begin < model.high[np.maximum(step, 0)])
        return calls[1::3][step[inside]], begin[inside], (begin + length)[inside]
    if not isinstance(model, RecipeModel):
        raise TypeError(type(model))
    windows = np.array(list(_recipe_windows(model.program)), dtype=np.int64).reshape(-1, 2)
    return calls, windows[:, 0], np.maximum(windows[:, 1], windows[:, 0])


def _recipe_windows(program: RecipeProgram) -> Iterator[tuple[int, int]]:
    """Yield the host time before each call of the main path, as `recipe_schedule` lays it out without captures."""
    acts, step, cursor = program.actions, 0, int(program.low[0])
    order = np.lexsort((acts.kind != Kind.MARK, acts.begin))
    for which in order.tolist():
        kind, begin, end = int(acts.kind[which]), int(acts.begin[which]), int(acts.end[which])
        yield cursor, int(acts.joins[which])
        cursor = max(cursor, end)
        if kind == Kind.MARK:
            step += 1
            cursor = int(program.low[min(step, program.steps - 1)])
        elif kind in (Kind.FLUSH, Kind.CALL):
            yield int(acts.resume[which]) if kind == Kind.FLUSH else begin, end


def _launched(view: RankView, program: Program) -> Parts:
    trace, labels = view.trace, _Labels()
    names, host = trace.names, trace.host
    main = _main_track(view)
    track = np.where(program.row >= 0, host.track[np.maximum(program.path.stands, 0)], main)
    ranges = _ranges(view)
    call, when, length = _pieces(view, program, ranges, track, main)
    piece_part = _host_labels(view, labels, ranges, track[call], when, main)
    cost_part = np.full(len(program.row), labels.of("(step end)", "call"))
    known = np.flatnonzero(program.row >= 0)
    operator = view.links.nesting.innermost(view.placement.lane[track[known]], program.begin[known])
    by_thread = program.path.thread == LAUNCHER
    inside = (operator >= 0) & ~by_thread[known]
    cost_part[known[inside]] = _operators(view, labels, operator[inside])
    cost_part[known[~inside]] = labels.each(host.name[program.row[known[~inside]]], names, "call")
    row_part = np.empty(len(program.device_row), dtype=np.int64)
    many = _of_many_kernels(view, program)
    for kind, word in (
        (DeviceKind.COMPUTE, "kernel"),
        (DeviceKind.COPY, "copy"),
        (DeviceKind.COMMUNICATION, "collective"),
        (DeviceKind.DISPATCH, "kernel"),
    ):
        mine = (program.kind == kind) & ~many
        row_part[mine] = labels.each(trace.device.name[program.device_row[mine]], names, word)
        mine = (program.kind == kind) & many
        row_part[mine] = labels.each(host.name[program.path.stands[program.call[mine]]], names, word)
    modules = {name: i for i, name in enumerate(dict.fromkeys([*view.modules.names, *_PHASES.values()]))}
    known_calls = len(view.modules)

    def place(track: Ints, when: Ints) -> Ints:
        found = view.placement.of(track.astype(np.int32), when)
        return np.where(found.call >= 0, found.call, known_calls + found.phase.astype(np.int64))

    cost_place = place(track, program.begin)
    by_code = np.array([modules[name] for name in view.modules.names], dtype=np.int64)
    by_phase = np.array([modules[_PHASES[phase]] for phase in Phase], dtype=np.int64)
    share = length / np.maximum((program.begin - program.before)[call], 1)
    leading = np.flatnonzero(program.path.lead > 0)  # a thread's work before its launches
    if len(leading):
        order = np.argsort(np.concatenate([call, leading]), kind="stable")
        call = np.concatenate([call, leading])[order]
        when = np.concatenate([when, program.begin[leading]])[order]
        share = np.concatenate([share, np.ones(len(leading))])[order]
        piece_part = np.concatenate([piece_part, cost_part[leading]])[order]
    return Parts(
        labels=[*labels.known, *((name, "latency") for name in LATENCIES)],
        owners=Owners(row_part, cost_part, piece_part),
        latency=np.arange(len(LATENCIES)) + len(labels.known),
        modules=list(modules),
        places=Owners(cost_place[program.call], cost_place, place(track[call], when)),
        module_of=np.concatenate([by_code[view.modules.module], by_phase]),
        piece_call=call,
        piece_share=share,
    )


def _of_many_kernels(view: RankView, program: Program) -> Mask:
    """Mark units with kernels of several names, which what handed them over names; none where launches are given."""
    many = np.zeros(len(program.device_row), dtype=bool)
    if program.matrix is None:
        return many
    device, of_row = view.trace.device, view.links.activations.of_row
    rows = np.flatnonzero(of_row >= 0)
    unlike = distinct(of_row[rows][device.name[rows] != device.name[view.links.activations.first[of_row[rows]]]])
    return among(of_row[program.device_row], unlike)


def _main_track(view: RankView) -> int:
    """Return the main thread's track with most operators, where work after the last call of a step is looked up.

    Without operators it is the main thread's all the same, or that of the steps: the order of rows decides nothing.
    """
    host, tracks = view.trace.host, view.trace.tracks
    main = np.flatnonzero(view.roles == Role.MAIN)
    found = main if len(main) else distinct(host.track[host.activity == Activity.STEP])
    operators = np.bincount(view.links.nesting.track, minlength=len(tracks))
    return max(found.tolist(), key=lambda t: (operators[t], tracks[t].pid, tracks[t].tid), default=0)


def _pieces(view: RankView, program: Program, ranges: Nesting, track: Ints, main: int) -> tuple[Ints, Ints, Ints]:
    """Cut the host work before each call where operators or ranges begin or end: call, begin, length.

    Operators are those of its thread, ranges those of its thread and of the main one.
    """
    nesting, span = view.links.nesting, view.trace.end_ns + 2
    lane = view.placement.lane[track].astype(np.int64) * span
    base = nesting.track.astype(np.int64) * span
    edges, of_main = np.concatenate([ranges.start, ranges.end]), np.tile(ranges.track == main, 2)
    own = np.tile(view.placement.lane[ranges.track].astype(np.int64) * span, 2) + edges
    shared = np.add.outer(distinct(lane), edges[of_main]).ravel()
    near = (nesting.end > program.step_low[0]) & (nesting.start < program.step_high[-1])
    cuts = distinct(np.concatenate([(base + nesting.start)[near], (base + nesting.end)[near], own, shared]))
    call, begin, length = _cut(cuts, lane + program.before, lane + program.begin)
    return call, begin - lane[call], length


def _cut(cuts: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Cut windows where `cuts` (ascending) lie in them: window, begin and length of each piece; none is empty."""
    first, stop = np.searchsorted(cuts, low, side="right"), np.searchsorted(cuts, high, side="left")
    inner = np.maximum(stop - first, 0)
    count = np.where(high > low, inner + 1, 0)
    window = np.repeat(np.arange(len(count)), count)
    number = np.arange(len(window)) - np.repeat(np.cumsum(count) - count, count)
    edges = np.append(cuts, 0)
    starts = np.where(number > 0, edges[np.minimum(first[window] + number - 1, len(cuts))], low[window])
    ends = np.where(number < inner[window], edges[np.minimum(first[window] + number, len(cuts))], high[window])
    return window, starts, ends - starts


def _ranges(view: RankView) -> Nesting:
    """Return the annotations that are no steps, nested."""
    host = view.trace.host
    return nest_rows(view.trace, np.flatnonzero((host.kind == HostKind.ANNOTATION) & (host.activity != Activity.STEP)))


def _host_labels(view: RankView, labels: _Labels, ranges: Nesting, track: Ints, when: Ints, main: int) -> Ints:
    """Return the part of host work at each instant: the innermost operator, else annotation."""
    host, names = view.trace.host, view.trace.names
    operator = view.links.nesting.innermost(view.placement.lane[track], when)
    out = np.full(len(when), labels.of(BETWEEN, "host range"))
    inside = operator >= 0
    out[inside] = _operators(view, labels, operator[inside])
    bare = np.flatnonzero(~inside)
    # Work of autograd's thread outside its operators belongs to what the main thread does meanwhile.
    found = ranges.innermost(track[bare].astype(np.int32), when[bare])
    found = np.where(found >= 0, found, ranges.innermost(np.full(len(bare), main, dtype=np.int32), when[bare]))
    bare, found = bare[found >= 0], found[found >= 0]
    if len(bare):
        out[bare] = labels.each(host.name[ranges.rows[found]], names, "host range")
    return out


def _operators(view: RankView, labels: _Labels, position: Ints) -> Ints:
    host, rows = view.trace.host, view.links.nesting.rows
    return labels.each(host.name[rows[position]], view.trace.names, "operator")
