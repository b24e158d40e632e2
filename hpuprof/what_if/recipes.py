"""The used steps of a trace with matched recipes: the main path's actions, the recipes handed over, their durations.

Lazy mode is a queue of three stages in a row. The main path accumulates operators and flushes them (`mark_step`), the
launch thread enqueues the recipe, the device runs it; each stage is first in, first out. Device rows carry a recipe's
id and host rows do not, so the k-th launch is matched to the k-th activation (`activations.py`), and a launch to the
last flush that ended before it began: the bridge keeps one launch pending at most (`JoinPendingLaunchThread`, bridge
1.19), so no other flush lies between.
"""

from __future__ import annotations

from collections import Counter
from enum import IntEnum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.activations import Activations, launch_calls
from hpuprof.analysis.forest import outermost
from hpuprof.analysis.host_time import HostTime
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Floats, Ints, Mask, among, distinct, median, percentiles
from hpuprof.model.intervals import Intervals, contains, intersect, measure, subtract, union, union_of
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import Trace
from hpuprof.what_if.constants import PROFILER_ROWS
from hpuprof.what_if.launch_program import neighbors, waits_for_device

COARSE = 2_000
"""Stamps in whole microseconds: an end may read up to 2 µs early."""
WAITED = 30_000
"""ns before the end of a wait within which a recipe's end explains it."""
FULL_RATIO = 1.5
"""Ratio to the shortest launch above which a launch may have waited for a full queue."""
UNEXPLAINED = 10_000.0
"""ns of delay above which a late recipe counts as unexplained."""
MAX_MIXED = 0.1
"""Share of recipes with unusual operators above which the match counts as wrong."""
MAX_ACTIONS = 3_000
"""Maximum flushes and launches to replay; of more, steps enter that are as long as all."""
DEFAULT_LATENCY, DEFAULT_GAP = 5_000.0, 1_000.0


class Kind(IntEnum):
    """Effect of a main-path action on the pipeline."""

    FLUSH = 1  # waits for the launch thread, then hands over what has accumulated
    CALL = 2  # launches a recipe itself
    WAIT = 3  # waits for a recipe to end
    JOIN = 4  # waits for the launch thread
    MARK = 5  # the step's end


class Actions(Struct, frozen=True, eq=False):
    """The main path's actions in the used steps, in order.

    Columns of shape `(actions,)`; times in ns on the trace's clock.
    """

    step: Ints
    kind: Ints
    begin: Ints
    end: Ints
    joins: Ints  # FLUSH: when it began to wait for the launch thread, within [begin, resume]; else its beginning
    resume: Ints  # FLUSH: when the launch thread was free, within [begin, end]
    tail: Floats  # WAIT, JOIN: from the end of the awaited work to the return; all of it if that end is unknown
    target: Ints  # WAIT: recipe it waits for, -1 for none
    first: Ints  # recipes [first, stop) are handed over here
    stop: Ints

    def __len__(self) -> int:
        return len(self.step)

    @property
    def awaits(self) -> Mask:
        """Waits for a recipe that is known."""
        found: Mask = (self.kind == Kind.WAIT) & (self.target >= 0)
        return found


class FlushLaw(Struct, frozen=True):
    """A flush's work on the main path [ns]: `fixed`, and `per_op` for each accumulated operator, `least` to `most`."""

    fixed: float = 0.0
    per_op: float = 1.0
    least: float = 0.0
    most: float = 1.0

    def at(self, outcome: float) -> FlushLaw:
        """Return it with operators that cost what an outcome says, 0 to 1."""
        return replace(self, per_op=self.least + outcome * (self.most - self.least))


class RecipeProgram(Struct, frozen=True, eq=False):
    """The used steps as actions, recipes and accumulated operators.

    Columns of recipes have shape `(recipes,)`, in order of launch: `launch` is time on the launch thread [ns], with the
    hand-over, without waiting for a full queue; `launch_rows`: profiler rows in it; the recipe starts at max(launched +
    latency, end of the recipe before + gap) and takes `dur` + `collectives_ns`. `starts` are the starts of a recipe's
    rows relative to its own, then `dur`.
    """

    low: Ints
    high: Ints
    actions: Actions
    launch: Floats
    launch_rows: Ints
    latency: Floats
    gap: Floats
    dur: Floats
    collectives_ns: Floats  # collectives between it and the recipe after it
    end: Ints  # on the trace's clock
    starts: list[Floats]
    typical_latency: float
    typical_gap: float
    op_start: Ints  # accumulated operators, by start
    op_action: Ints  # the action that hands them over, -1 for none
    flush_law: FlushLaw
    rows: tuple[Ints, Ints]  # profiler rows on the main path: sorted starts, kind of each as in PROFILER_ROWS
    thread_backlog: float  # until when earlier launches and recipes last, relative to the first step's start
    device_backlog: float
    unexplained: float  # unexplained delay of recipes over the steps' time
    threaded: bool  # launches happen on their own thread
    replayed: Mask  # of each recipe: launched by a graph's replay
    activation: Ints  # of each recipe, as a position in `Links.work`

    @property
    def steps(self) -> int:
        """Return the number of steps."""
        return len(self.low)

    def completed(self) -> float:
        """Return when the last step was complete in the trace, steps laid end to end [ns]."""
        total = float((self.high - self.low).sum())
        return max(total, self._last_end())

    def _last_end(self) -> float:
        acts = self.actions
        given = np.flatnonzero(acts.stop > acts.first)
        if not len(given):
            return 0.0
        shift = self.low - np.append([0], np.cumsum(self.high - self.low)[:-1])
        return float(max(self.end[acts.stop[a] - 1] - shift[acts.step[a]] for a in given.tolist()))


def build_recipes(view: RankView) -> RecipeProgram | None:
    """Match the recipes of the used steps; None if one of them lacks its launch or its device work."""
    trace, steps, hosts = view.trace, view.steps, view.hosts
    host = trace.host
    calls = launch_calls(trace)
    if not len(calls) or not steps.used.any():
        return None
    path = view.on_path
    on_path = path[calls]
    builds = outermost(trace, np.flatnonzero(path & (host.activity == Activity.GRAPH_BUILD)))
    launching = union(host.start[calls[~on_path]], host.end[calls[~on_path]])
    joining = intersect(union(host.start[builds], host.end[builds]), launching)
    chosen = neighbors(view, union_of(waits_for_device(hosts), joining))
    held = int(np.isin(steps.holding(host.start[np.concatenate([builds, calls[on_path]])]), chosen).sum())
    chosen = steps.cut(chosen, max(1, len(chosen) * MAX_ACTIONS // max(held, MAX_ACTIONS)))
    low, high = steps.start[chosen], steps.end[chosen]
    own = union(host.start[calls[on_path]], host.end[calls[on_path]])
    # A flush that launches by itself hands nothing over.
    builds = builds[measure(own, host.start[builds], host.end[builds]) == 0]
    work = view.links.work
    until_over, busy = _collectives(trace, work)
    done = replace(work, end=work.end + until_over)  # with the following collectives
    launches = _match(trace, calls, on_path, builds, work)
    if launches is None:
        return None
    activation = launches.activation
    actions, order = _actions(trace, hosts, launches, done, Intervals(low, high))
    if actions is None or not len(order):
        return None
    latency, gap, typical_latency, typical_gap, unexplained, early = _pin(host.end[calls], activation, done, order)
    launch, launch_rows = _launch_thread(trace, launches, work)
    threaded = np.flatnonzero(~on_path)
    before = threaded[host.start[calls[threaded]] < low[0]]
    first = int(order[0])
    earlier = done.end[: activation[first]]
    op_start, op_action, op_name = _operators(view, actions, low, high)
    if _mixed(actions, op_action, op_name, _recipe_ids(trace, work)[activation[order]]) > MAX_MIXED:
        return None
    law, joins = _flush_law(actions, op_action)
    return RecipeProgram(
        low=low,
        high=high,
        actions=replace(actions, joins=joins),
        launch=launch[order],
        launch_rows=launch_rows[order],
        latency=latency,
        gap=gap,
        dur=(work.end - work.start)[activation[order]].astype(np.float64),
        collectives_ns=np.where(np.append(early[1:], True), busy[activation[order]], until_over[activation[order]]),
        starts=_row_starts(trace, work, activation[order]),
        typical_latency=typical_latency,
        typical_gap=typical_gap,
        op_start=op_start,
        op_action=op_action,
        flush_law=law,
        rows=_profiler_rows(trace, path, hosts),
        thread_backlog=float(host.end[calls[before]].max() - low[0]) if len(before) else -1e12,
        device_backlog=float(earlier.max() - low[0]) if len(earlier) else -1e12,
        unexplained=unexplained / float((high - low).sum()),
        threaded=bool(len(threaded)),
        replayed=host.activity[calls[order]] == Activity.GRAPH_LAUNCH,
        end=done.end[activation[order]],
        activation=activation[order],
    )


class _Launches(Struct, frozen=True, eq=False):
    """The launches of a trace with their flushes and activations; columns of shape `(launches,)`."""

    calls: Ints  # host rows
    on_path: Mask  # the main path launches by itself
    builds: Ints  # host rows of all flushes
    source: Ints  # flush of each launch, as a position in `builds`, -1 for none
    activation: Ints  # activation of each launch, -1 for none


def _match(trace: Trace, calls: Ints, on_path: Mask, builds: Ints, work: Activations) -> _Launches | None:
    """Match each launch to its flush and to its activation."""
    host = trace.host
    if not on_path.all() and not len(builds):
        return None
    ends = host.end[builds]
    source = np.searchsorted(ends - COARSE, host.start[calls], side="right") - 1
    source[on_path] = -1
    place = {int(row): i for i, row in enumerate(calls.tolist())}
    activation = np.full(len(calls), -1, dtype=np.int64)
    for i, row in enumerate(work.call.tolist()):
        if row >= 0:
            activation[place[row]] = i
    return _Launches(calls, on_path, builds, source.astype(np.int64), activation)


def _actions(
    trace: Trace, hosts: HostTime, launches: _Launches, work: Activations, steps: Intervals
) -> tuple[Actions | None, Ints]:
    """Return the actions of the used steps and their launches, in order; None if one is not matched."""
    host = trace.host
    calls, on_path, builds = launches.calls, launches.on_path, launches.builds
    source, activation = launches.source, launches.activation
    by_build: dict[int, list[int]] = {}
    for i, at in enumerate(source.tolist()):
        if not on_path[i]:
            by_build.setdefault(at, []).append(i)
    occupied = union(
        np.concatenate([host.start[builds], host.start[calls[on_path]]]),
        np.concatenate([host.end[builds], host.end[calls[on_path]]]),
    )
    handed = np.where(on_path, host.end[calls], host.end[builds][np.maximum(source, 0)] if len(builds) else 0)
    thread_ends = host.end[calls[~on_path]]
    thread_starts = host.start[calls[~on_path]]
    items: list[tuple[int, int, int, int]] = [
        (int(host.start[b]), int(host.end[b]), int(Kind.FLUSH), k) for k, b in enumerate(builds.tolist())
    ]
    items += [
        (int(host.start[calls[i]]), int(host.end[calls[i]]), int(Kind.CALL), i)
        for i in np.flatnonzero(on_path).tolist()
    ]
    join = hosts.blocked_by["join"]
    device = union(
        np.concatenate([hosts.blocked_by[k].start for k in ("sync", "copy")]),
        np.concatenate([hosts.blocked_by[k].end for k in ("sync", "copy")]),
    )
    other = subtract(subtract(hosts.blocked, join), device)
    for waiting, kind in ((device, Kind.WAIT), (join, Kind.JOIN), (other, 0)):
        pieces = subtract(waiting, occupied)
        items += [(a, b, int(kind), -1) for a, b in zip(pieces.start.tolist(), pieces.end.tolist(), strict=True)]
    items.sort()
    columns: list[tuple[int, int, int, int, int, float, int, int, int]] = []
    order: list[int] = []
    at = 0
    for step, (a, b) in enumerate(zip(steps.start.tolist(), steps.end.tolist(), strict=True)):
        while at < len(items) and items[at][0] < a:
            at += 1
        while at < len(items) and items[at][0] < b:
            begin, end, kind, ref = items[at]
            at += 1
            end = min(end, b)
            first, resume, tail, target = len(order), begin, 0.0, -1
            if kind in (Kind.FLUSH, Kind.CALL):
                mine = by_build.get(ref, []) if kind == Kind.FLUSH else [ref]
                if any(activation[i] < 0 for i in mine):
                    return None, np.empty(0, dtype=np.int64)
                order += mine
                if kind == Kind.FLUSH:
                    busy = thread_ends[thread_starts < begin]
                    resume = int(min(max(begin, busy.max(initial=begin)), end))
            else:
                tail = float(end - begin)
                if kind == Kind.WAIT:
                    recipe = _waited_for(begin, end, handed, activation, work)
                    target = recipe
                    if recipe >= 0:
                        tail = float(max(0, end - max(begin, int(work.end[activation[recipe]]))))
                elif kind == Kind.JOIN:
                    busy = thread_ends[thread_starts < begin]
                    tail = float(max(0, end - max(begin, int(busy.max(initial=begin)))))
                kind = kind or int(Kind.WAIT)
            columns.append((step, kind, begin, end, resume, tail, target, first, len(order)))
        columns.append((step, int(Kind.MARK), b, b, b, 0.0, -1, len(order), len(order)))
    table = np.array(columns, dtype=np.float64).T
    ints = [c.astype(np.int64) for c in table]
    number = np.full(len(calls) + 1, -1, dtype=np.int64)
    number[np.array(order, dtype=np.int64)] = np.arange(len(order))
    actions = Actions(
        step=ints[0],
        kind=ints[1],
        begin=ints[2],
        end=ints[3],
        joins=ints[2],
        resume=ints[4],
        tail=table[5],
        target=number[ints[6]],
        first=ints[7],
        stop=ints[8],
    )
    return actions, np.array(order, dtype=np.int64)


def _waited_for(begin: int, end: int, handed: Ints, activation: Ints, work: Activations) -> int:
    """Return the launch that a wait was for: the last handed over, else one whose end explains the return, else -1."""
    given = np.flatnonzero((handed <= begin + COARSE) & (activation >= 0))[-64:]
    if not len(given):
        return -1
    ends = work.end[activation[given]]
    if ends[-1] <= end + COARSE:
        return int(given[-1])
    near = given[(ends <= end + COARSE) & (ends > begin) & (ends >= end - WAITED)]
    return int(near[-1]) if len(near) else -1


def _launch_thread(trace: Trace, launches: _Launches, work: Activations) -> tuple[Floats, Ints]:
    """Return each launch's duration on its thread [ns] once it could begin, without waiting, and its profiler rows."""
    host = trace.host
    calls, on_path, builds = launches.calls, launches.on_path, launches.builds
    source, activation = launches.source, launches.activation
    start, end = host.start[calls], host.end[calls]
    took = np.zeros(len(calls))
    rows = np.zeros(len(calls), dtype=np.int64)
    thread = np.flatnonzero(~on_path)
    if not len(thread):
        return took, rows
    reach = np.maximum.accumulate(np.append([np.iinfo(np.int64).min // 4], end[thread])[:-1])
    given = host.end[builds][np.maximum(source[thread], 0)]
    took[thread] = np.maximum(0, end[thread] - np.maximum(np.minimum(given, start[thread]), reach))
    tracks = distinct(host.track[calls[thread]])
    drawn = np.sort(host.start[np.isin(host.track, tracks)])
    rows[thread] = np.searchsorted(drawn, end[thread]) - np.searchsorted(drawn, start[thread])
    # A launch into a full queue waits for the end of the recipe that many places before it.
    ends = np.where(activation >= 0, work.end[np.maximum(activation, 0)], 0)
    known = np.sort(ends[activation >= 0])
    size = 1 + int((np.arange(len(calls)) - np.searchsorted(known, end, side="right")).max(initial=0))
    calling = np.sort(host.start[(host.kind == HostKind.RUNTIME) & (host.activity == Activity.LAUNCH)])
    slow = host.dur[calls[thread]] > FULL_RATIO * host.dur[calls[thread]].min()
    for i in thread[slow & (thread >= size)].tolist():
        inner = calling[max(0, int(np.searchsorted(calling, end[i])) - 1)]
        room = int(ends[i - size])
        if max(int(start[i]), int(inner)) < room < end[i]:
            took[i] = max(0.0, took[i] - (room - max(int(start[i]), int(inner))))
    return took, rows


def _pin(
    launched: Ints, activation: Ints, work: Activations, order: Ints
) -> tuple[Floats, Floats, float, float, float, Mask]:
    """Find for each recipe which of launch and device decided its start, and take that term from the trace.

    Returns latencies, gaps, the typical latency and gap, the sum of delays that neither explains [ns], and where the
    launch decided.
    """
    mine = activation[order]
    start = work.start[mine]
    reach = np.maximum.accumulate(np.append([np.iinfo(np.int64).min // 4], work.end)[:-1])
    previous, called = reach[mine], launched[order]
    idle = previous <= called
    latency0 = float(median((start - called)[idle])) if idle.sum() >= 3 else DEFAULT_LATENCY
    gaps = (start - previous)[called + latency0 < previous]
    gap0 = max(0.0, float(percentiles(gaps, 25))) if len(gaps) >= 3 else DEFAULT_GAP
    early = called + latency0 > previous + gap0
    observed = (start - previous).astype(np.float64)
    latency = np.where(early, start - called, np.minimum(latency0, start - called)).astype(np.float64)
    gap = np.where(early, np.minimum(gap0, observed), observed)
    late = np.maximum(0.0, start - np.maximum(called + latency0, previous + gap0))
    return latency, gap, latency0, gap0, float(late[late > UNEXPLAINED].sum()), early


def _collectives(trace: Trace, work: Activations) -> tuple[Ints, Ints]:
    """Return how long collectives last beyond each activation's end, and their busy time in it [ns].

    Only those count that end before the next activation begins, which may have waited for them; others overlap with it.
    """
    device = trace.device
    rows = device.kind == DeviceKind.COMMUNICATION
    busy = union(device.start[rows], device.end[rows])
    if not len(busy) or not len(work):
        none = np.zeros(len(work), dtype=np.int64)
        return none, none
    following = np.append(work.start[1:], np.iinfo(np.int64).max)
    at = np.searchsorted(busy.end, following, side="right") - 1
    until = np.where(at >= 0, busy.end[np.maximum(at, 0)], 0)
    until = np.maximum(until, work.end)
    return until - work.end, measure(busy, work.end, until)


def _row_starts(trace: Trace, work: Activations, chosen: Ints) -> list[Floats]:
    rows = np.flatnonzero(work.of_row >= 0)
    rows = rows[np.argsort(work.of_row[rows], kind="stable")]
    first = np.searchsorted(work.of_row[rows], chosen, side="left")
    stop = np.searchsorted(work.of_row[rows], chosen, side="right")
    return [
        np.append(distinct(trace.device.start[rows[a:b]] - work.start[k]), work.end[k] - work.start[k]).astype(
            np.float64
        )
        for k, a, b in zip(chosen.tolist(), first.tolist(), stop.tolist(), strict=True)
    ]


def accumulated(view: RankView) -> Ints:
    """Return host rows of operators that reach the device: accumulated ones in lazy mode, else all outermost ones.

    An operator that accumulates inside another is part of it; copies between host and device belong to no recipe.
    """
    trace, host, path = view.trace, view.trace.host, view.on_path
    kinds = [Activity.ACCUMULATE, Activity.COPY_H2D, Activity.COPY_D2H]
    rows = outermost(trace, np.flatnonzero(path & np.isin(host.activity, kinds)))
    rows = rows[host.activity[rows] == Activity.ACCUMULATE]
    if not len(rows):
        top = view.links.nesting.rows[view.links.nesting.parent < 0]
        rows = np.sort(top[path[top]])
    return rows


def _operators(view: RankView, actions: Actions, low: Ints, high: Ints) -> tuple[Ints, Ints, Ints]:
    """Return starts of the used steps' accumulated operators, the action that flushes each, and names (-1 for none).

    An action that hands over recipes without visible operators gets one at its beginning; so does every graph replay,
    for which nothing accumulates.
    """
    host = view.trace.host
    rows = accumulated(view)
    rows = rows[contains(Intervals(low, high), host.start[rows])]
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    start = host.start[rows]
    replays = np.sort(host.start[view.on_path & (host.activity == Activity.GRAPH_LAUNCH)])
    replay = (actions.kind == Kind.CALL) & among(actions.begin, replays)
    giving = np.flatnonzero((actions.stop > actions.first) & ~replay)
    at = np.searchsorted(actions.begin[giving], start, side="left")
    action = np.where(at < len(giving), giving[np.minimum(at, max(0, len(giving) - 1))] if len(giving) else -1, -1)
    bare = distinct(np.append(giving[~among(giving, action)], np.flatnonzero(replay))).astype(np.int64)
    start = np.concatenate([start, actions.begin[bare]])
    action = np.concatenate([action, bare])
    order = np.argsort(start, kind="stable")
    name = np.concatenate([host.name[rows], np.full(len(bare), -1)])
    return start[order], action[order].astype(np.int64), name[order].astype(np.int64)


def _flush_law(actions: Actions, op_action: Ints) -> tuple[FlushLaw, Ints]:
    """Return what flushes cost the main path, and when each action began to wait for the launch thread.

    Versions of the bridge wait before they collect the graph, after it, or not at all, and no row shows where. So
    flushes that waited have a line of their own, parallel to that of the others, and what one lacks on the line of the
    others after the launch thread was free, it did before.
    """
    flushes = np.flatnonzero(actions.kind == Kind.FLUSH)
    begin, resume, end = actions.begin[flushes], actions.resume[flushes], actions.end[flushes]
    count = np.bincount(op_action[op_action >= 0], minlength=len(actions))[flushes].astype(np.float64)
    took = (end - resume).astype(np.float64)
    if not count.any():
        return FlushLaw(), actions.begin
    free = resume == begin
    if not free.any():
        free[:] = True
    groups = [group for group in (free, ~free & (resume < end)) if group.any()]
    ops, ns = (np.concatenate([of[group] - of[group].mean() for group in groups]) for of in (count, took))
    if float((ops**2).mean()) <= 1.0:
        ops, ns = count - count.mean(), took - took.mean()
    most = float(took[free].mean() / max(count[free].mean(), 1.0))
    spread = float((ops**2).sum())
    law = FlushLaw(0.0, most, 0.0, most)
    if spread > len(ops):
        slope = min(max(float((ops * ns).sum()) / spread, 0.0), most)
        # As wide as a uniform distribution with the slope's standard error.
        error = float(np.sqrt(3.0 * ((ns - slope * ops) ** 2).sum() / max(1, len(ops) - 2) / spread))
        fixed = float(took[free].mean()) - slope * float(count[free].mean())
        law = FlushLaw(max(0.0, fixed), max(slope, 1e-3), max(0.0, slope - error), min(most, slope + error))
    joins = actions.begin.copy()
    joins[flushes] += np.clip(law.fixed + law.per_op * count - took, 0, resume - begin).astype(np.int64)
    return law, joins


def _recipe_ids(trace: Trace, work: Activations) -> Ints:
    """Return the recipe id of each activation, -1 where rows carry none."""
    ids = np.full(len(work), -1, dtype=np.int64)
    rows = np.flatnonzero(work.of_row >= 0)
    ids[work.of_row[rows]] = trace.device.recipe[rows]
    return ids


def _mixed(actions: Actions, op_action: Ints, op_name: Ints, recipe: Ints) -> float:
    """Return the share of recipes matched to other operators than their id usually is.

    A recipe is one sequence of operators: a launch missing from the trace shifts all later matches and shows here.
    """
    known = np.flatnonzero(op_name >= 0)
    handed: dict[int, list[int]] = {}
    for action, name in zip(op_action[known].tolist(), op_name[known].tolist(), strict=True):
        handed.setdefault(action, []).append(name)
    by_id: dict[str, Counter[tuple[int, ...]]] = {}
    for action, names in handed.items():
        if action >= 0 and actions.stop[action] - actions.first[action] == 1 and recipe[actions.first[action]] >= 0:
            by_id.setdefault(str(recipe[actions.first[action]]), Counter())[tuple(names)] += 1
    total = sum(sum(seen.values()) for seen in by_id.values())
    return 1.0 - sum(max(seen.values()) for seen in by_id.values()) / total if total else 0.0


def _profiler_rows(trace: Trace, path: Mask, hosts: HostTime) -> tuple[Ints, Ints]:
    host = trace.host
    number = np.full(max(HostKind) + 1, -1)
    number[list(PROFILER_ROWS)] = np.arange(len(PROFILER_ROWS))
    rows = np.flatnonzero(path & (number[host.kind] >= 0) & ~contains(hosts.blocked, host.start))
    rows = rows[np.argsort(host.start[rows], kind="stable")]
    return host.start[rows], number[host.kind[rows]]
