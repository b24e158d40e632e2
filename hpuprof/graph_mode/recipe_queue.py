"""Plays recipes through main path, launch thread and device, as recorded or captured; vectorised over samples.

Recipe i is handed over at a_i, launched at f_i = max(a_i, f_(i-1)) + F_i, and done at d_i = max(f_i + latency, d_(i-1)
+ gap) + D_i. The main path waits where it does in the trace, and before each flush for the launch thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from hpuprof.graph_mode.collective_skeleton import choose_step, reduce_step, shortest_over_steps
from hpuprof.graph_mode.recipes import Kind, RecipeProgram
from hpuprof.graph_mode.regions import Region
from hpuprof.graph_mode.step_model import CapturedStep
from hpuprof.graph_mode.uncertainty import Drawn, less_profiling
from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.intervals import EMPTY, Intervals, contains, measure
from hpuprof.model.prediction import CollectiveSkeleton


@dataclass(frozen=True)
class Job:
    """A recipe on the device, or a part of one. Times in ns."""

    recipe: int
    dur: float
    latency: float
    gap: float
    collectives_ns: float = 0.0  # collectives after it, which no graph changes
    captured: bool = False


@dataclass(frozen=True)
class Action:
    """One action of the main path; see `recipes.Kind`. `before`, `after`: host work before and in it [ns]."""

    kind: Kind
    before: float
    before_cost: float  # nominal profiling cost of it
    after: float = 0.0
    after_cost: float = 0.0
    tail: float = 0.0
    target: int = -1
    jobs: tuple[Job, ...] = ()
    launch: float = 0.0  # on the launch thread
    launch_cost: float = 0.0
    replays: tuple[Job, ...] = ()


@dataclass(frozen=True, eq=False)
class RecipeSchedule:
    """The main path's actions over all steps, and per-step counts of what a region captured."""

    actions: list[Action]
    launches: float = 0.0
    graphs: float = 0.0
    split: float = 0.0  # recipes that the region covers in part


@dataclass(frozen=True, eq=False)
class Costs:
    """Drawn constants; shape `(samples,)`, ns."""

    replay: Floats
    flush: Floats
    scale: Floats
    asynchronous: bool = False

    @classmethod
    def of(cls, drawn: Drawn) -> Costs:
        """Take the constants of recipes from the draws."""
        return cls(drawn.constant("replay", 1), drawn.constant("input_copy", 5), drawn.constant("kernel_scale", 4))

    def median(self) -> Costs:
        """Return one sample, the median of each."""
        replay, flush, scale = (np.median(values, keepdims=True) for values in (self.replay, self.flush, self.scale))
        return Costs(replay, flush, scale, self.asynchronous)


class Captured(Protocol):
    """A step with a region captured, per step; `overhead`: see `uncertainty.GRID`."""

    @property
    def launches(self) -> float:
        """Return the launches in its graphs."""

    @property
    def graphs(self) -> float:
        """Return the number of graphs launched."""

    @property
    def split(self) -> float:
        """Return the number of recipes covered in part."""

    def times(self, overhead: Floats, costs: Costs, outside: Floats) -> Floats:
        """Return step times, shape `(samples, steps)`, ns."""

    def skeleton(self, overhead: Floats, costs: Costs) -> CollectiveSkeleton | None:
        """Return the step reduced to its collectives, if they are known."""

    def host_ns(self, overhead: Floats, outside: Floats, percentile: float = 50) -> float:
        """Return the remaining host work, a percentile of the samples [ns]."""


def captured_steps(done: Captured, region: Region, drawn: Drawn, *, lazy: bool) -> Iterator[CapturedStep]:
    """Yield the step with replays on the caller's thread and, in lazy mode, asynchronous ones on the launch thread."""
    zero = np.zeros(1)
    for asynchronous in (False, True) if lazy else (False,):
        costs = replace(Costs.of(drawn), asynchronous=asynchronous)
        middle = costs.median()
        yield CapturedStep(
            times=done.times(drawn.overhead, costs, drawn.outside),
            uncorrected_ns=float(done.times(zero, replace(middle, scale=np.ones(1)), zero).mean()),
            host_outside_ns=done.host_ns(drawn.overhead, drawn.outside),
            host_outside_low_ns=done.host_ns(drawn.overhead, drawn.outside, 5),
            launches=done.launches,
            graphs=done.graphs,
            inputs=float(region.inputs),
            skeleton=done.skeleton(np.median(drawn.overhead, keepdims=True), middle),
            split=done.split,
            asynchronous=asynchronous,
        )


def schedule_recipes(
    program: RecipeProgram,
    windows: Intervals = EMPTY,
    *,
    borders: Ints | None = None,
    drop: bool = False,
    inputs: bool = True,
    launch_cost: float = 0.0,
) -> RecipeSchedule:
    """Return the steps with the host windows captured; no windows: as recorded.

    Each run of accumulated operators that no other operator, wait or border (`borders`, ns) interrupts is one graph. A
    graph replays all its recipes where its first operator was: a recipe covered in part is split, as graph mode flushes
    at the border; earlier operators are flushed first. Flushes inside the windows disappear. `drop`: the main path no
    longer waits for the device. `inputs`: each graph's inputs are copied. `launch_cost`: profiling cost of one launch
    [ns].
    """
    acts = program.actions
    piece, starts = _pieces(program, windows, borders, drop=drop)
    parts = _parts(program, piece)
    work = _Work(program, windows)
    # A step's end precedes the next step's beginning at the same instant.
    events = [(int(acts.begin[i]), -1 if acts.kind[i] == Kind.MARK else 2, i) for i in range(len(acts))]
    events += [(int(t), 1, p) for p, t in enumerate(starts.tolist())]
    events += [(int(program.op_start[first]), 0, k) for k, (label, first, *_) in enumerate(parts) if label < 0]
    events.sort()
    fixed, per_op = _flush_law(program)
    inside = contains(windows, acts.begin)
    by_piece: dict[int, list[_Part]] = {}
    for part in parts:
        by_piece.setdefault(part[0], []).append(part)
    count_of = np.bincount(program.op_action[program.op_action >= 0], minlength=len(acts))
    left = np.bincount(program.op_action[(piece < 0) & (program.op_action >= 0)], minlength=len(acts))
    usual = float(np.median(program.launch)) if program.threaded and len(program.launch) else 0.0
    usual_cost = float(np.median(program.launch_rows)) * launch_cost if len(program.launch_rows) else 0.0
    pending: list[tuple[int, Job]] = []  # with the action that hands it over as recorded
    out: list[Action] = []
    graphs = 0
    cursor, step = int(program.low[0]), 0
    for when, what, which in events:
        if what == 0:
            pending += [(parts[which][2], job) for job in _jobs(program, parts[which])]
            continue
        if what == 1:
            captured = [job for part in by_piece.get(which, ()) for job in _jobs(program, part, captured=True)]
            if not captured:
                continue
            before, cost = work.between(cursor, when)
            cursor = max(cursor, when)
            out.append(
                Action(
                    Kind.REPLAY,
                    before,
                    cost,
                    jobs=tuple(job for _, job in pending),
                    launch=usual if inputs or pending else 0.0,
                    launch_cost=usual_cost if inputs or pending else 0.0,
                    replays=tuple(captured),
                )
            )
            graphs += len(captured)
            pending = []
            continue
        kind, begin, end = Kind(int(acts.kind[which])), int(acts.begin[which]), int(acts.end[which])
        if kind in (Kind.FLUSH, Kind.CALL) and inside[which]:
            continue
        before, cost = work.between(cursor, begin)
        cursor = max(cursor, end)
        mine = slice(int(acts.first[which]), int(acts.stop[which]))
        if kind == Kind.MARK:
            out.append(Action(kind, before, cost))
            step += 1
            cursor = int(program.low[min(step, program.steps - 1)])
        elif kind in (Kind.WAIT, Kind.JOIN):
            gone = drop and (kind == Kind.JOIN or acts.target[which] >= 0)
            tail, target = (0.0, -1) if gone else (float(acts.tail[which]), int(acts.target[which]))
            out.append(Action(Kind.WAIT if gone else kind, before, cost, tail=tail, target=target))
        else:
            after, after_cost = work.between(int(acts.resume[which]) if kind == Kind.FLUSH else begin, end)
            given = mine.stop - mine.start
            jobs = tuple(job for action, job in pending if action <= which)
            pending = [(action, job) for action, job in pending if action > which]
            count = float(count_of[which])
            if count and left[which] < count:
                share = (fixed + per_op * left[which]) / max(1.0, fixed + per_op * count)
                after, after_cost = after * min(1.0, share), after_cost * min(1.0, share)
            launch = float(program.launch[mine].sum()) if given else usual
            launch_rows = float(program.launch_rows[mine].sum()) * launch_cost if given else usual_cost
            out.append(
                Action(
                    kind,
                    before,
                    cost,
                    after,
                    after_cost,
                    jobs=jobs,
                    launch=launch if jobs else 0.0,
                    launch_cost=launch_rows if jobs else 0.0,
                )
            )
    whole = {(p[2], p[0]) for p in parts if p[0] >= 0 and p[4] - p[3] < 1.0 - 1e-9}
    return RecipeSchedule(
        out,
        launches=float((piece >= 0).sum()) / program.steps,
        graphs=graphs / program.steps,
        split=len({action for action, _ in whole}) / program.steps,
    )


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


_Part = tuple[int, int, int, float, float]
"""Graph or -1, first operator, action that hands it over, and the share of the action's operators it spans, from and
to."""


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
        (int(p[i]), int(known[i]), int(a[i]), float(place[i] / count[i]), float((place[j - 1] + 1) / count[i]))
        for i, j in zip(first.tolist(), stop.tolist(), strict=True)
    ]


def _jobs(program: RecipeProgram, part: _Part, *, captured: bool = False) -> list[Job]:
    """Return the device work of a run of operators: the recipe's rows at the same places, as rows follow operators."""
    _, _, action, low, high = part
    out = []
    for recipe in range(int(program.actions.first[action]), int(program.actions.stop[action])):
        starts = program.starts[recipe]
        if low == 0.0 and high == 1.0:
            dur = float(program.dur[recipe])
        else:
            begin, end = np.interp([low, high], np.linspace(0.0, 1.0, len(starts)), starts)
            dur = float(end - begin)
        whole = low == 0.0
        out.append(
            Job(
                recipe,
                dur,
                program.typical_latency if captured or not whole else float(program.latency[recipe]),
                float(program.gap[recipe]) if whole else program.typical_gap,
                float(program.collectives_ns[recipe]) if high == 1.0 else 0.0,
                captured,
            )
        )
    return out


class _Work:
    """Host work between two instants, without windows and without the waits that actions represent."""

    def __init__(self, program: RecipeProgram, windows: Intervals) -> None:
        when, cost = program.rows
        keep = ~contains(windows, when) if len(windows) else np.ones(len(when), dtype=bool)
        self._when, self._windows = when[keep], windows
        self._sum = np.append([0.0], np.cumsum(cost[keep]))

    def between(self, low: int, high: int) -> tuple[float, float]:
        if high <= low:
            return 0.0, 0.0
        gone = int(measure(self._windows, np.array([low]), np.array([high]))[0]) if len(self._windows) else 0
        first, stop = np.searchsorted(self._when, [low, high])
        return float(high - low - gone), float(self._sum[stop] - self._sum[first])


def _flush_law(program: RecipeProgram) -> tuple[float, float]:
    """Return a flush's cost on the main path, fixed and per accumulated operator: a line through the recorded ones."""
    acts = program.actions
    flushes = np.flatnonzero(acts.kind == Kind.FLUSH)
    count = np.bincount(program.op_action[program.op_action >= 0], minlength=len(acts))[flushes].astype(np.float64)
    took = (acts.end - acts.resume)[flushes].astype(np.float64)
    if not len(flushes) or not count.any():
        return 0.0, 1.0
    middle, spread = count.mean(), count.var()
    slope = float(((count - middle) * (took - took.mean())).mean() / spread) if spread > 1.0 else 0.0
    fixed = float(np.clip(took.mean() - slope * middle, 0.0, took.min())) if slope > 0 else 0.0
    return fixed, max(slope, 1e-3)


def work_of(actions: list[Action], overhead: Floats, extra: Floats | None = None) -> tuple[Floats, Floats, Floats]:
    """Return host work before and inside each action, and on the launch thread, without profiling.

    Shapes `(samples, actions)`, ns; `overhead`: see `uncertainty.GRID`, `extra`: factor on the main path's work.
    """

    def corrected(work: list[float], cost: list[float]) -> Floats:
        return less_profiling(np.array(work), np.array(cost), overhead)

    more = 1.0 if extra is None else extra[:, None]
    before = corrected([a.before for a in actions], [a.before_cost for a in actions]) * more
    after = corrected([a.after for a in actions], [a.after_cost for a in actions]) * more
    return before, after, corrected([a.launch for a in actions], [a.launch_cost for a in actions])


def play(
    program: RecipeProgram,
    actions: list[Action],
    work: tuple[Floats, Floats, Floats],
    costs: Costs | None = None,
    *,
    repeats: int = 1,
    collectives_ns: Mapping[int, Floats] | None = None,
    ends: dict[int, Floats] | None = None,
) -> Floats:
    """Return when each step was complete: host at its end, recipes done; shape `(samples, repeats * steps)`, ns.

    `collectives_ns`: in the last repetition, durations of the collectives after some recipes, shape `(samples,)` each;
    `ends`: filled with each recipe's end in that repetition, its collectives included.
    """
    before, after, launch = work
    count = len(before)
    now = np.zeros(count)
    thread = np.full(count, program.thread_backlog)
    device = np.full(count, program.device_backlog)
    ends = {} if ends is None else ends
    changed: Mapping[int, Floats] = {}
    done = []

    def run(jobs: tuple[Job, ...], ready: Floats) -> None:
        nonlocal device
        for job in jobs:
            dur = job.dur * costs.scale if costs is not None and job.captured else job.dur
            behind = changed.get(job.recipe, job.collectives_ns) if job.collectives_ns else 0.0
            device = np.maximum(ready + job.latency, device + job.gap) + dur + behind
            ends[job.recipe] = device

    for repetition in range(repeats):
        if collectives_ns is not None and repetition == repeats - 1:
            changed = collectives_ns
        for i, action in enumerate(actions):
            now = now + before[:, i]
            if action.kind == Kind.FLUSH:
                now = np.maximum(now, thread) + after[:, i]
                if action.jobs:
                    thread = np.maximum(now, thread) + launch[:, i]
                    run(action.jobs, thread)
            elif action.kind == Kind.CALL:
                now = now + after[:, i]
                run(action.jobs, now)
            elif action.kind == Kind.REPLAY and costs is not None:
                now = np.maximum(now + costs.flush, thread)
                # Input copies are a recipe of their own, which takes earlier accumulated operators with it.
                sent = np.maximum(now, thread) + launch[:, i]
                run(action.jobs, sent)
                for job in action.replays:
                    sent = sent + costs.replay
                    run((job,), sent)
                thread = sent
                if not costs.asynchronous:
                    now = sent
            elif action.kind == Kind.JOIN:
                now = np.maximum(now, thread) + action.tail
            elif action.kind == Kind.WAIT:
                waited = ends.get(action.target)
                now = (now if waited is None else np.maximum(now, waited)) + action.tail
            elif action.kind == Kind.MARK:
                done.append(np.maximum(now, device))
    return np.stack(done, axis=1)


def find_skeleton(
    program: RecipeProgram, of: RecipeSchedule, overhead: Floats, costs: Costs | None = None, *, host: bool = True
) -> CollectiveSkeleton | None:
    """Reduce one step to its collectives, those between two recipes taken as one; None if it has none or too many.

    `overhead` and `costs` hold one sample; `host=False` leaves out all host work.
    """
    followed = np.flatnonzero(program.collectives_ns > 0)
    acts = program.actions
    given = np.flatnonzero(acts.stop > acts.first)
    step = acts.step[given[np.searchsorted(acts.first[given], followed, side="right") - 1]] if len(given) else followed
    which, nodes = choose_step(followed, step, program.steps)
    if not len(nodes):
        return None
    work = work_of(of.actions, overhead)
    if not host:
        work = (np.zeros_like(work[0]), np.zeros_like(work[1]), np.zeros_like(work[2]))

    def run(durations: Floats) -> tuple[Floats, Floats, Floats]:
        count = len(durations)
        ends: dict[int, Floats] = {}
        before, after, launch = (np.repeat(w, count, axis=0) for w in work)
        done = play(
            program,
            of.actions,
            (before, after, launch),
            costs,
            repeats=2,
            collectives_ns={int(recipe): durations[:, i] for i, recipe in enumerate(nodes)},
            ends=ends,
        )
        column = np.stack([ends[int(recipe)] for recipe in nodes], axis=1)
        return done[:, program.steps + which - 1], column, done[:, program.steps + which]

    least = np.zeros(len(program.collectives_ns))
    least[followed] = shortest_over_steps(program.collectives_ns[followed], step, program.steps)
    return reduce_step(
        run, program.collectives_ns[nodes], least[nodes], np.arange(len(nodes)), len(program.collectives_ns)
    )
