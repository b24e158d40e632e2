"""Recipes as a schedule: main path, launch thread and device, as recorded or with host windows captured.

A flush waits for the launch thread, then hands over what has accumulated; the launch thread enqueues the recipe; the
device runs recipes in order. The main path waits where it does in the trace.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import NamedTuple

import numpy as np
from msgspec import Struct, field
from msgspec.structs import replace

from hpuprof.model.arrays import Floats, Ints, Mask, median
from hpuprof.model.intervals import EMPTY, Intervals, contains, union_of
from hpuprof.what_if.capture import Captured
from hpuprof.what_if.constants import PROFILER_ROWS
from hpuprof.what_if.recipes import Kind, RecipeProgram
from hpuprof.what_if.schedule import GRAPH_COSTS, KINDS, LAUNCHER, MAIN, Calls, Rows, Schedule, Wait, Waits

_NO_ROWS = np.zeros(KINDS)
_CALL_ROW = np.array([float(name == "profiler_call") for name in PROFILER_ROWS.values()])
_NO_COSTS = np.zeros(len(GRAPH_COSTS))


class _Job(NamedTuple):
    """A recipe on the device, or a part of one. Times in ns."""

    recipe: int
    dur: float
    latency: float
    gap: float
    collectives_ns: float  # collectives after it, which no graph changes
    captured: bool


class _Part(NamedTuple):
    """A run of operators of one graph (or none) that one action hands over."""

    graph: int  # -1 for none
    first: int  # operator
    action: int
    low: float  # share of the action's operators before it
    high: float  # and with it

    @property
    def whole(self) -> bool:
        """Whether it holds all operators of its action."""
        return self.high - self.low > 1.0 - 1e-9


class _Piece(NamedTuple):
    """Host work [ns] and the profiler rows in it by kind."""

    ns: float
    rows: Floats

    def scaled(self, share: float) -> _Piece:
        """Return a share of it."""
        return _Piece(self.ns * share, self.rows * share)


_NOTHING = _Piece(0.0, _NO_ROWS)


class _Writer(Struct):
    """Collects calls, rows and waits in program order."""

    program: RecipeProgram
    calls: list[tuple[int, int, int, bool, float, float]] = field(default_factory=list)
    segment_rows: list[Floats] = field(default_factory=list)
    graph_costs: list[Floats] = field(default_factory=list)
    rows: list[tuple[int, _Job, bool]] = field(default_factory=list)
    waits: list[tuple[int, int, int, float]] = field(default_factory=list)
    last_row: dict[int, int] = field(default_factory=dict)  # of each recipe handed over so far
    launcher: int = -1  # its last call
    step: int = 0

    def call(
        self,
        work: _Piece = _NOTHING,
        *,
        cost: float = 0.0,
        thread: int = MAIN,
        ends_step: bool = False,
        graph: dict[str, float] | None = None,
    ) -> int:
        """Add a call behind `work` and return its number."""
        costs = np.array([graph.get(name, 0.0) for name in GRAPH_COSTS]) if graph else _NO_COSTS
        self.calls.append((thread, self.step, len(self.calls), ends_step, work.ns, cost))
        self.segment_rows.append(work.rows)
        self.graph_costs.append(costs)
        return len(self.calls) - 1

    def returns_after(self, call: int, kind: Wait, source: int, tail: float = 0.0) -> None:
        self.waits.append((int(kind), call, source, tail))

    def launch(self, after: int, work: _Piece = _NOTHING, *, replays: float = 0.0) -> int:
        """Add a call of the launch thread that begins when a call of the main path has happened."""
        made = self.call(work, thread=LAUNCHER, graph={"replay": replays} if replays else None)
        self.waits.append((int(Wait.HANDED), made, after, 0.0))
        self.launcher = made
        return made

    def run(self, call: int, jobs: list[_Job]) -> None:
        """Add the device work of a call."""
        for job in jobs:
            self.rows.append((call, job, False))
            if job.collectives_ns:
                self.rows.append((call, job, True))
            self.last_row[job.recipe] = len(self.rows) - 1

    def schedule(self) -> Schedule:
        """Return what was collected."""
        program, steps = self.program, self.program.steps
        thread, step, place, ends_step, segment, cost = (np.array(c) for c in zip(*self.calls, strict=True))
        count = len(self.calls)
        jobs, behind = [job for _, job, _ in self.rows], np.array([c for _, _, c in self.rows], dtype=bool)

        def column(name: str) -> Floats:
            return np.array([getattr(job, name) for job in jobs], dtype=np.float64)

        captured = np.array([job.captured for job in jobs], dtype=bool)
        return Schedule.of(
            Calls(
                thread=thread,
                place=place,
                step=step,
                row=np.full(count, -1),
                ends_step=ends_step,
                segment=segment,
                segment_rows=np.array(self.segment_rows),
                cost=cost,
                cost_rows=np.zeros((count, KINDS)),
                graph_costs=np.array(self.graph_costs),
            ),
            Rows(
                call=np.array([call for call, _, _ in self.rows], dtype=np.int64),
                lane=np.zeros(len(jobs), dtype=np.int64),
                row=np.array([job.recipe for job in jobs], dtype=np.int64),
                dur=np.where(behind, column("collectives_ns"), column("dur")),
                latency=column("latency"),
                gap=np.where(behind, 0.0, column("gap")),
                collective=behind,
                elastic=captured & ~behind,
                captured=np.zeros(len(jobs), dtype=bool),
                copies=np.zeros(len(jobs)),
            ),
            Waits.of(self.waits),
            np.array([0.0, program.thread_backlog, 0.0, program.device_backlog]),
            steps,
        )


def recorded_recipes(program: RecipeProgram) -> Schedule:
    """Return the steps as recorded."""
    return capture_recipes(program, EMPTY).schedule


def capture_recipes(
    program: RecipeProgram,
    windows: Intervals,
    *,
    borders: Ints | None = None,
    drop: bool = False,
    inputs: int = 1,
    removed: Intervals = EMPTY,
    skipped: Mask | None = None,
) -> Captured:
    """Return the steps with host windows captured and replayed while the caller waits; see `asynchronously`.

    Each run of accumulated operators that no other operator, wait or border (`borders`, ns) interrupts is one graph. A
    graph replays all its recipes where its first operator was: a recipe covered in part is split, as graph mode flushes
    at the border; earlier operators are flushed first. Flushes inside the windows disappear.

    Args:
        program: the steps.
        windows: what to capture.
        borders: where another graph begins.
        drop: the main path no longer waits for the device.
        inputs: static inputs; without any nothing is copied before a replay.
        removed: host time that no longer happens, whether captured or not; operators in it are not collected.
        skipped: actions that no longer happen: waits return at once, what a flush handed over goes with the next one.
    """
    gone = np.zeros(len(program.actions), dtype=bool) if skipped is None else skipped
    return _Capture(program, windows, borders, removed, gone, drop=drop, inputs=inputs).run()


def asynchronously(captured: Captured) -> Captured:
    """Return the same with asynchronous replays: the caller does not wait for them."""
    schedule = captured.schedule
    waits = schedule.waits.only(schedule.waits.kind != Wait.REPLAY)
    free = schedule.sorted_with(waits=waits)
    return replace(captured, schedule=free, asynchronous=True)


class _Capture:
    """One walk along the actions, the operators that no graph holds, and the beginnings of graphs."""

    def __init__(
        self,
        program: RecipeProgram,
        windows: Intervals,
        borders: Ints | None,
        removed: Intervals,
        skipped: Mask,
        *,
        drop: bool,
        inputs: int,
    ) -> None:
        acts = program.actions
        self.program, self.drop, self.inputs = program, drop, inputs
        self.piece, self.starts = _pieces(program, windows, borders, drop=drop)
        self.parts = _parts(program, self.piece)
        self.by_graph: dict[int, list[_Part]] = {}
        for part in self.parts:
            self.by_graph.setdefault(part.graph, []).append(part)
        self.work = _Work(program, union_of(windows, removed))
        self.inside = contains(windows, acts.begin)
        handed, left = program.op_action >= 0, (self.piece < 0) & (program.op_action >= 0)
        self.count_of = np.bincount(program.op_action[handed], minlength=len(acts))
        left &= ~contains(removed, program.op_start)  # what no longer runs is not collected
        self.left = np.bincount(program.op_action[left], minlength=len(acts))
        self.skipped = skipped
        self.law = program.flush_law
        usual = np.array([0.0, 0.0])
        if len(program.launch):
            usual = np.array([median(program.launch) if program.threaded else 0.0, median(program.launch_rows)])
        self.usual = _Piece(float(usual[0]), _CALL_ROW * usual[1])
        self.pending: list[tuple[int, _Job]] = []  # with the action that hands it over as recorded
        self.out = _Writer(program)
        self.cursor = int(program.low[0])
        self.replays = 0

    def run(self) -> Captured:
        program, acts, out = self.program, self.program.actions, self.out
        if program.threaded:
            out.launcher = out.call(thread=LAUNCHER)  # earlier launches
        # A step's end precedes the next step's beginning at the same instant.
        events = [(int(acts.begin[i]), -1 if acts.kind[i] == Kind.MARK else 2, i) for i in range(len(acts))]
        events += [(int(t), 1, p) for p, t in enumerate(self.starts.tolist())]
        events += [(int(program.op_start[p.first]), 0, k) for k, p in enumerate(self.parts) if p.graph < 0]
        for when, what, which in sorted(events):
            if what == 0:
                part = self.parts[which]
                self.pending += [(part.action, job) for job in _jobs(program, part)]
            elif what == 1:
                self.replay(which, when)
            else:
                self.action(which)
        split = {(p.action, p.graph) for p in self.parts if p.graph >= 0 and not p.whole}
        return Captured(
            out.schedule(),
            launches=float((self.piece >= 0).sum()) / program.steps,
            graphs=self.replays / program.steps,
            inputs=float(self.inputs),
            split=len({action for action, _ in split}) / program.steps,
        )

    def until(self, when: int, cursor: int) -> _Piece:
        """Return the host work up to an instant, and go on behind `cursor`."""
        work = self.work.between(self.cursor, when)
        self.cursor = max(self.cursor, cursor)
        return work

    def replay(self, which: int, when: int) -> None:
        jobs = [job for part in self.by_graph.get(which, ()) for job in _jobs(self.program, part, captured=True)]
        if not jobs:
            return
        out = self.out
        begin = out.call(self.until(when, when), graph={"input_copy": 1.0})
        if out.launcher >= 0:
            out.returns_after(begin, Wait.JOIN, out.launcher)
        ready = out.call()
        # Input copies are a recipe of their own, which takes earlier accumulated operators with it.
        sent = out.launch(ready, self.usual if self.inputs or self.pending else _NOTHING)
        out.run(sent, [job for _, job in self.pending])
        for job in jobs:
            sent = out.launch(ready, replays=1.0)
            out.run(sent, [job])
        out.returns_after(ready, Wait.REPLAY, sent)
        self.replays += len(jobs)
        self.pending = []

    def action(self, which: int) -> None:
        program, acts, out = self.program, self.program.actions, self.out
        kind, begin, end = Kind(int(acts.kind[which])), int(acts.begin[which]), int(acts.end[which])
        if kind in (Kind.FLUSH, Kind.CALL) and self.inside[which]:
            return
        before = self.until(begin if self.skipped[which] else int(acts.joins[which]), end)
        if kind == Kind.MARK:
            out.call(before, ends_step=True)
            out.step += 1
            self.cursor = int(program.low[min(out.step, program.steps - 1)])
        elif self.skipped[which]:
            out.call(before)
        elif kind in (Kind.WAIT, Kind.JOIN):
            self.wait(which, kind, before)
        else:
            self.flush(which, kind, before)

    def wait(self, which: int, kind: Kind, before: _Piece) -> None:
        acts, out = self.program.actions, self.out
        if self.drop and (kind == Kind.JOIN or acts.target[which] >= 0):
            out.call(before)
            return
        tail = float(acts.tail[which])
        call = out.call(before, cost=tail)
        row = out.last_row.get(int(acts.target[which]), -1)
        if kind == Kind.JOIN and out.launcher >= 0:
            out.returns_after(call, Wait.JOIN, out.launcher, tail)
        elif row >= 0:
            out.returns_after(call, Wait.DEVICE, row, tail)

    def flush(self, which: int, kind: Kind, before: _Piece) -> None:
        """Hand over what has accumulated: to the launch thread, or to the device itself."""
        acts, out, law = self.program.actions, self.out, self.law
        begin, end = int(acts.resume[which] if kind == Kind.FLUSH else acts.begin[which]), int(acts.end[which])
        after = self.work.between(begin, end)
        jobs = [job for action, job in self.pending if action <= which]
        merged = [a for a in dict.fromkeys(a for a, _ in self.pending if a < which) if self.skipped[a]]
        self.pending = [(action, job) for action, job in self.pending if action > which]
        count, left = float(self.count_of[which]), float(self.left[[*merged, which]].sum())
        if merged:
            after = _Piece(max(0.0, after.ns + law.per_op * (left - count)), after.rows)
        elif left < count and (whole := law.fixed + law.per_op * count) > 0.0:
            after = after.scaled((law.fixed + law.per_op * left) / whole)
        call = out.call(before)
        ready = out.call(after)
        if kind == Kind.CALL:
            out.run(ready, jobs)
            return
        if out.launcher >= 0:
            out.returns_after(call, Wait.JOIN, out.launcher)
        if jobs:
            out.run(out.launch(ready, max(map(self.launch_of, (*merged, which)), key=lambda piece: piece.ns)), jobs)

    def launch_of(self, flush: int) -> _Piece:
        """Return the launch thread's work for what a flush hands over."""
        program = self.program
        mine = slice(int(program.actions.first[flush]), int(program.actions.stop[flush]))
        if mine.stop <= mine.start:
            return self.usual
        return _Piece(float(program.launch[mine].sum()), _CALL_ROW * float(program.launch_rows[mine].sum()))


def _pieces(program: RecipeProgram, windows: Intervals, borders: Ints | None, *, drop: bool) -> tuple[Ints, Ints]:
    """Return the graph of each operator (-1 for none), and where each graph begins."""
    acts = program.actions
    when = program.op_start
    inside = contains(windows, when) & (program.op_action >= 0)
    waits = np.isin(acts.kind, [Kind.WAIT, Kind.JOIN]) & ((acts.target >= 0) | (acts.kind == Kind.JOIN))
    cuts = [program.low, np.empty(0, dtype=np.int64) if borders is None else borders]
    cuts += [] if drop else [acts.begin[waits]]
    cut = np.searchsorted(np.sort(np.concatenate(cuts)), when, side="right")
    before = np.append([False], inside[:-1])
    new = inside & (~before | np.append([True], cut[1:] != cut[:-1]))[: len(when)]
    return np.where(inside, np.cumsum(new) - 1, -1), when[new]


def _parts(program: RecipeProgram, piece: Ints) -> list[_Part]:
    """Cut the operators into runs of one graph (or none) and one action."""
    action = program.op_action
    known = np.flatnonzero(action >= 0)
    if not len(known):
        return []
    a, p = action[known], piece[known]
    first = np.flatnonzero(np.append([True], (a[1:] != a[:-1]) | (p[1:] != p[:-1])))
    stop = np.append(first[1:], len(known))
    count = np.bincount(a)[a]
    # A replay between an operator and its flush has its own operator, so those of one action need not be adjacent.
    order = np.argsort(a, kind="stable")
    place = np.empty(len(a), dtype=np.int64)
    place[order] = np.arange(len(a)) - np.searchsorted(a[order], a[order], side="left")
    return [
        _Part(int(p[i]), int(known[i]), int(a[i]), float(place[i] / count[i]), float((place[j - 1] + 1) / count[i]))
        for i, j in zip(first.tolist(), stop.tolist(), strict=True)
    ]


def _jobs(program: RecipeProgram, part: _Part, *, captured: bool = False) -> list[_Job]:
    """Return the device work of a run of operators: the recipe's rows at the same places, as rows follow operators."""
    out = []
    begins, ends = part.low == 0.0, part.high == 1.0
    for recipe in range(int(program.actions.first[part.action]), int(program.actions.stop[part.action])):
        dur = float(program.dur[recipe])
        if not (begins and ends):
            starts = program.starts[recipe]
            begin, end = np.interp([part.low, part.high], np.linspace(0.0, 1.0, len(starts)), starts)
            dur = float(end - begin)
        out.append(
            _Job(
                recipe,
                dur,
                program.typical_latency if captured or not begins else float(program.latency[recipe]),
                float(program.gap[recipe]) if begins else program.typical_gap,
                float(program.collectives_ns[recipe]) if ends else 0.0,
                captured,
            )
        )
    return out


class _Work:
    """Host work between two instants, without windows and without the waits that actions represent."""

    def __init__(self, program: RecipeProgram, windows: Intervals) -> None:
        when, kind = program.rows
        keep = ~contains(windows, when) if len(windows) else np.ones(len(when), dtype=bool)
        self._when: list[int] = when[keep].tolist()
        seen = kind[keep, None] == np.arange(KINDS)
        self._seen = np.concatenate([np.zeros((1, KINDS)), np.cumsum(seen, axis=0)])
        self._starts: list[int] = windows.start.tolist()
        self._ends: list[int] = windows.end.tolist()
        self._before: list[int] = [0, *np.cumsum(windows.end - windows.start).tolist()]

    def between(self, low: int, high: int) -> _Piece:
        if high <= low:
            return _NOTHING
        first, stop = bisect_left(self._when, low), bisect_left(self._when, high)
        return _Piece(
            float(high - low - self._covered(high) + self._covered(low)), self._seen[stop] - self._seen[first]
        )

    def _covered(self, when: int) -> int:
        """Return how much of the windows lies before an instant."""
        at = bisect_left(self._starts, when)
        return self._before[at] - max(0, self._ends[at - 1] - when if at else 0)
