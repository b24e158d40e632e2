"""What a recording lacks: device rows of launches, found before anything is blamed for the idle time they leave.

In whole recordings every launch has its device rows: none of 90,000 launches in 29 public traces lacks them. So a
launch without rows, a graph launch with few of those that its like shows or with a hole between them, a copy that holds
the host and has no row, and a host that waits for a device which seems to have nothing to do are lost rows, whichever
the reason. Where launches name their recipe and no rows, those of a recipe count, else steps are compared with each
other: order joins the k-th launch to the k-th work, so a single pass shows at most how many launches have none. Steps
that lack none are judged, the others left out.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hpuprof.analysis.activations import How, launches_around
from hpuprof.analysis.groups import members
from hpuprof.analysis.links import Links
from hpuprof.analysis.recipe_launches import named_launches
from hpuprof.families import FAMILIES
from hpuprof.ingest.dialect_activities import waits_for_all, waits_for_others
from hpuprof.model.arrays import Floats, Ints, Mask, any_of, kinds_of, percentiles, stable_order
from hpuprof.model.intervals import EMPTY, Intervals, measure, union
from hpuprof.model.once import once
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import Trace

LOST = "lost rows"
"""Why a step is left out."""
OVERLAPPING = 0.01
"""Share of the device's time from which rows of one stream cannot carry its times; by judgment."""
FEW_ROWS = 0.5
"""A graph launch shows few rows with less than this share of what others of its graph show (90th percentile)."""
TOLERATED = (0.0, 0.01, 0.25)
"""Shares of a step's launches that may lack rows where fewer leave no step to judge. By judgment: with more, what is
missing is no smaller than most causes of idle time."""
_WHOLE = TOLERATED[1]
FEW = 2
"""Fewer whole steps are joined by the recording's first one; by judgment."""
_IN_TURN = ((FEW, 0.0), (FEW, _WHOLE), (FEW, 0.1), (1, 0.0), (1, _WHOLE), (1, TOLERATED[-1]))
"""How many steps must lack no more than a share, the best first. By judgment: one whole step comes before several that
lack more than a tenth, as lost rows read as idle time, and steps are alike."""
_ENOUGH_OF_STEP = 1 / 5
"""Of a step's launches that must come before the first lost row; by judgment: less may be another phase."""
_LAUNCHES = 8
"""Of one of several steps before its first lost row, at least; by judgment."""
SILENT_NS, SILENT_SHARE = 500_000, 0.05
"""A wait for a device without work that lasts so long, and this share of its step. Waits return within 0.1 ms of the
last row; longer ones are the recorder's own, or lost rows. By judgment."""
_RECUR = 2
"""One such wait behind launches of no graph may be the system's, or a library's first use of the device."""

NEVER = 1 << 60
"""An instant after all others [ns]."""
COPIES_NS = 100_000
"""A copy's call that lasts so long moves something. In 21 public traces copies without rows, of nothing, take 9 µs."""
HOLE_SHARE, HOLE_ROWS = 0.04, 100
"""Of the time of a graph launch of so many rows, a hole between them: 2.8 % at most in 14 public traces."""


class _Waits(Struct, frozen=True, eq=False):
    """Waits for the device or a stream, in order [ns]. They return as soon as its last row is over."""

    begin: Ints
    quiet: Ints  # from when the device shows nothing to do
    end: Ints
    for_all: Mask  # of a stream or the device, and of nothing else

    @classmethod
    def of(cls, trace: Trace) -> _Waits:
        """Find them."""
        host, device = trace.host, trace.device
        waits = np.flatnonzero(host.activity == Activity.SYNC)
        waits = waits[np.argsort(host.start[waits], kind="stable")]
        begin, end = host.start[waits], np.maximum.accumulate(host.end[waits])
        real = device.kind != DeviceKind.MARKER
        until = np.maximum.accumulate(np.append(0, device.end[real]))
        for_all = trace.named(waits_for_all)[host.name[waits]] & (host.end[waits] == end)
        for_all &= not trace.named(waits_for_others)[host.name].any()
        return cls(begin, np.maximum(begin, until[np.searchsorted(device.start[real], end)]), end, for_all)

    @property
    def needless(self) -> Mask:
        """Those that go on for long while the device has nothing to do."""
        return self.end - self.quiet > SILENT_NS

    def seem_needless(self, when: Ints) -> Mask:
        """Tell of instants whether the next wait seems needless."""
        found: Mask = np.append(self.needless, False)[np.searchsorted(self.begin, when)]
        return found

    def silent_behind(self, launches: Ints, graph: Mask, lacking: Mask, least: float) -> Intervals:
        """Return the ends of needless waits with launches since the wait before them.

        Behind launches of no graph, waits for all of a stream or device count that recur, where no launch lacks rows.

        Args:
            launches: starts, in order [ns].
            graph: which of them launch a graph.
            lacking: which of them lack rows.
            least: what those behind launches of no graph must take together [ns].
        """

        def behind(when: Ints) -> Mask:
            launched = np.searchsorted(when, self.begin)
            found: Mask = (launched > np.append(0, launched[:-1])) & self.needless
            return found

        silent, plain = behind(launches[graph]), behind(launches) & ~behind(launches[lacking]) & self.for_all
        if plain.sum() >= _RECUR and int((self.end - self.quiet)[plain].sum()) > least:
            silent |= plain
        return Intervals(self.quiet[silent], self.end[silent])


class Missing(Struct, frozen=True, eq=False):
    """Launches and waits whose device rows are not in the trace. Arrays of launches in the order of their start."""

    when: Ints  # start of each launch [ns]
    graph: Mask
    lacking: Mask
    silent: Intervals  # waits for a device that seems idle though work was launched, ns
    unseen: Intervals  # when the device may have done what has no rows, ns
    steps: bool = False  # whether steps stand for launches, as these do not show what they launched

    @classmethod
    def of(cls, trace: Trace, links: Links, steps: Ints) -> Missing:
        """Find them. `steps`: starts of the steps [ns]."""
        if not FAMILIES[trace.family].correlated:
            return cls.of_recipes(links)
        host, waits = trace.host, _Waits.of(trace)
        if not (trace.device.kind != DeviceKind.MARKER).any():
            calls = np.empty(0, dtype=np.int64)
        else:
            # What a capture records runs later, in the graph.
            kinds = (
                (Activity.GRAPH_LAUNCH,)
                if (host.activity == Activity.CAPTURE).any()
                else (Activity.LAUNCH, Activity.GRAPH_LAUNCH)
            )
            counts = any_of(host.activity, kinds)
            counts[_lost_copies(links, waits)] = True
            calls = np.flatnonzero(counts & (host.correlation >= 0))
        rows = np.bincount(links.launch[links.launch >= 0], minlength=len(host))[calls]
        graph, lacking = host.activity[calls] == Activity.GRAPH_LAUNCH, rows == 0
        if (replays := np.flatnonzero(graph)).size > 1:
            known = _graphs(trace, links, calls[replays], lacking[replays])
            groups = _places(steps, host.start[calls[replays]]) if known is None else known
            for _, same in members(groups):
                mine = replays[same]
                lacking[mine] |= rows[mine] < FEW_ROWS * percentiles(rows[mine], 90)
        if (large := np.flatnonzero(graph & (rows >= HOLE_ROWS))).size:
            lacking[large] |= _torn(trace, links.launch, calls[large])
        when = host.start[calls]
        # Rows that carry other times say nothing of when the device was idle.
        time = trace.end_ns - int(steps.min(initial=trace.end_ns)) if overlapping(trace) <= OVERLAPPING else np.inf
        silent = waits.silent_behind(when, graph, lacking, SILENT_SHARE * time)
        return cls(when, graph, lacking, silent, _unseen(trace, links.launch, calls, lacking, graph))

    @classmethod
    def of_recipes(cls, links: Links) -> Missing:
        """Find launches that name a recipe and show no row of it, or few of those that its like shows.

        What no later launch with rows and no wait for the device follows may have been queued as the recording ended. A
        recipe that is launched again and again says nothing where most of its launches show no row: it may have none,
        or its rows do not say where one run ends.
        """
        trace, host = links.trace, links.trace.host
        if not (links.how == How.RECIPE).any():
            return NOTHING_MISSING
        calls, first, _ = kinds_of(launches_around(trace))
        recipe = named_launches(trace)[1][first]
        rows = np.bincount(links.launch[links.launch >= 0], minlength=len(host))[calls]
        lacking = rows == 0
        for _, same in members(recipe):
            if len(same) > 1:
                mostly = 2 * np.count_nonzero(lacking[same]) <= len(same)
                lacking[same] = mostly & (rows[same] < FEW_ROWS * percentiles(rows[same], 90))
        when = host.start[calls]
        until = max(when[~lacking].max(initial=0), host.start[host.activity == Activity.SYNC].max(initial=0))
        lacking &= when <= until
        none = np.zeros_like(lacking)
        return cls(when, none, lacking, EMPTY, _unseen(trace, links.launch, calls, lacking, none))

    @classmethod
    def of_steps(cls, trace: Trace, windows: Intervals, alike: list[Ints], launched: Ints) -> Missing:
        """Find steps that show fewer device rows, and a device less busy, than steps whose host works alike.

        Their rows end early: a device that works up to the end does so behind it, too, as where the host runs ahead.
        One at either end of the recording may be: the device has not begun yet, or goes on behind it. None did where
        all launched as many rows as their like. `launched`: host row behind each device row, -1: unknown.
        """
        device, share = trace.device, 1 - TOLERATED[-1]
        real = device.kind != DeviceKind.MARKER
        known = real & (launched >= 0)
        made = np.searchsorted(windows.start, trace.host.start[launched[known]], side="right") - 1
        each = np.bincount(made[made >= 0], minlength=len(windows))
        inner = [steps[(steps > 0) & (steps < len(windows) - 1)] for steps in alike]
        as_many = all((each[steps] >= share * percentiles(each[steps], 90)).all() for steps in inner if len(steps))
        if 2 * np.count_nonzero(known) > np.count_nonzero(real) and as_many:
            return NOTHING_MISSING
        low, high = (np.searchsorted(device.start[real], at) for at in (windows.start, windows.end))
        busy = measure(union(device.start, device.end, real), windows.start, windows.end) / np.maximum(windows.dur, 1)
        over = np.maximum.accumulate(np.append(0, device.end[real]))[high]
        few, ends = np.zeros(len(windows), dtype=bool), over <= windows.start + share * windows.dur
        for mine in alike:
            rarely, idly = (shown[mine] < share * percentiles(shown[mine], 90) for shown in (high - low, busy))
            few[mine] = ends[mine] & rarely & idly
        few[[0, -1]] &= few[[1, -2]] if len(few) > 1 else False
        none = np.zeros_like(few)
        return cls(windows.start, none, few, EMPTY, Intervals(windows.start[few], windows.end[few]), steps=True)

    def shares(self, windows: Intervals) -> Floats:
        """Return the share of each window's launches that lack rows; of its graph launches, where that is more."""
        share = _share(self.when, self.lacking, windows)
        share = np.maximum(share, _share(self.when[self.graph], self.lacking[self.graph], windows))
        inside = np.searchsorted(self.silent.start, windows.end) > np.searchsorted(self.silent.start, windows.start)
        silent = inside & (_longest(self.silent, windows) > SILENT_SHARE * windows.dur)
        return np.where(silent, 1.0, share)

    def counts(self, windows: Intervals, *, graphs: bool) -> tuple[int, int]:
        """Return how many launches in the windows lack rows, and how many there are; of graphs, or of all others."""
        of = self.graph if graphs else ~self.graph
        at = np.searchsorted(windows.start, self.when, side="right") - 1
        inside = of & (at >= 0)
        inside[inside] = self.when[inside] < windows.end[at[inside]]
        return int((self.lacking & inside).sum()), int(inside.sum())


@once
def without_rows(links: Links) -> Ints:
    """Return the launch calls of which no device row is there though the family names launches in rows, ascending.

    What a capture records runs later, in the graph.
    """
    trace, host = links.trace, links.trace.host
    if not FAMILIES[trace.family].correlated or (host.activity == Activity.CAPTURE).any():
        return _NO_TIMES
    return np.flatnonzero((host.activity == Activity.LAUNCH) & (host.correlation >= 0) & ~links.launching)


_NO_TIMES, _NO_MARKS = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.bool_)
NOTHING_MISSING = Missing(_NO_TIMES, _NO_MARKS, _NO_MARKS, EMPTY, EMPTY)


def _lost_copies(links: Links, waits: _Waits) -> Ints:
    """Return the calls of copies that lasted, with and without rows, and those without behind which a wait is needless.

    A copy of nothing has no row. Where launches lack rows, they tell more than copies.
    """
    host = links.trace.host
    copies = any_of(host.activity, (Activity.COPY, Activity.COPY_H2D, Activity.COPY_D2H))
    calls = np.flatnonzero(copies & (host.kind == HostKind.RUNTIME))
    lasting = host.dur[calls] >= COPIES_NS
    if not len(without_rows(links)):
        lasting |= ~links.launching[calls] & waits.seem_needless(host.start[calls])
    return calls[lasting]


@once
def overlapping(trace: Trace) -> float:
    """Return the share of device time in which rows of one stream overlap; 0 where several may run on a lane.

    In 41 public traces it is 0.01 % at most.
    """
    device = trace.device
    if not FAMILIES[trace.family].correlated:
        return 0.0
    rows = np.flatnonzero(device.kind != DeviceKind.MARKER)
    overlap = 0
    for _, places in members(device.track[rows]):
        mine = rows[places]
        until = np.maximum.accumulate(device.end[mine])[:-1]
        overlap += int(np.maximum(0, np.minimum(until, device.end[mine][1:]) - device.start[mine][1:]).sum())
    return overlap / max(1, int(device.dur[rows].sum()))


_LITTLE = 0.1
"""Of a step's time, behind launches that lost their rows: so little is said, and the step stands; by judgment. What
comes behind the first of them may be most of the step: in 14 recordings that lost up to a tenth of their rows, 4 to
86 %."""
_TAIL = 0.9
"""Of the launches from the first lost row on: with so many lost, recording ended there; by judgment."""


def damaged_steps(missing: Missing, windows: Intervals, excluded: Mask) -> Mask:
    """Mark the steps to leave out, as they lack rows that others have; none where no step would be left.

    `excluded`: those that are left out anyway.
    """
    shares = missing.shares(windows)
    for enough, tolerated in _IN_TURN:
        if (~excluded & (shares <= tolerated)).sum() >= enough:
            damaged: Mask = shares > tolerated
            return damaged
    return np.zeros(len(shares), dtype=bool)


def whole_steps(missing: Missing, windows: Intervals) -> Mask:
    """Mark the steps that launch something and lack next to nothing of it."""
    launches = np.searchsorted(missing.when, windows.end) - np.searchsorted(missing.when, windows.start)
    whole: Mask = (launches > 0) & (missing.shares(windows) <= _WHOLE)
    return whole


def rows_end(missing: Missing, start: int, end: int) -> int | None:
    """Return when the first launch without rows begins in a step, if that step is to end there [ns].

    None where so few rows are lost that the step stands with them (of a tail, fewer than of rows here and there: it
    reads as one long pause), or so many that what is left may be another phase.
    """
    low, high = np.searchsorted(missing.when, [start, end]).tolist()
    launches, lacking = high - low, np.flatnonzero(missing.lacking[low:high])
    if not len(lacking):
        return None
    first = int(lacking[0])
    unseen = int(measure(missing.unseen, np.array([start]), np.array([end]))[0])
    tail = len(lacking) >= _TAIL * (launches - first) and unseen > _LITTLE * (end - start)
    if len(lacking) <= (_WHOLE if tail else TOLERATED[-1]) * launches or first < _ENOUGH_OF_STEP * launches:
        return None
    return int(missing.when[low + first])


def step_in_which_rows_end(missing: Missing, windows: Intervals, excluded: Mask) -> tuple[int, int] | None:
    """Return the first step that shows enough before its first lost row, and when that one's launch begins [ns].

    None where steps lack so little that they are judged with it, or lose rows anew in each of them: such rows are never
    recorded. `excluded`: steps left out.
    """
    damaged, steps = missing.shares(windows) > TOLERATED[-1], np.flatnonzero(~excluded)
    anew = np.count_nonzero(missing.lacking[1:] & ~missing.lacking[:-1]) >= max(2, len(steps))
    if missing.steps or anew or (~excluded & ~damaged).any():
        return None
    for i in steps.tolist():
        until = rows_end(missing, int(windows.start[i]), int(windows.end[i]))
        if until is not None and np.diff(np.searchsorted(missing.when, [windows.start[i], until])) >= _LAUNCHES:
            return i, until
    return None


def _share(when: Ints, lacking: Mask, windows: Intervals) -> Floats:
    lost = np.append(0, np.cumsum(lacking))
    low, high = np.searchsorted(when, windows.start), np.searchsorted(when, windows.end)
    found: Floats = (lost[high] - lost[low]) / np.maximum(high - low, 1)
    return found


def _longest(silent: Intervals, windows: Intervals) -> Ints:
    """Return the longest silent wait that begins in each window [ns]."""
    found = np.zeros(len(windows), dtype=np.int64)
    at = np.searchsorted(windows.start, silent.start, side="right") - 1
    inside = at >= 0
    np.maximum.at(found, at[inside], (silent.end - silent.start)[inside])
    return found


def _unseen(trace: Trace, launch: Ints, calls: Ints, lacking: Mask, graph: Mask) -> Intervals:
    """Return when the device may have done what launches without rows launched.

    It does so behind what was launched before, and until the first row of the next launch that has some: from that call
    on, as its work waits, and while the host waits for the device; before, as long as launches with rows take on
    average, copies as long as their calls, and graphs, where none shows all of its rows, all the time.

    Args:
        trace: the trace.
        launch: host row that launched each device row, -1 for none.
        calls: host rows of launches, ascending.
        lacking: which of them lack rows.
        graph: which of them launch a graph.
    """
    if not lacking.any():
        return EMPTY
    host, device = trace.host, trace.device
    linked = np.flatnonzero(launch >= 0)
    first, last, work = (np.full(len(host), at) for at in (NEVER, 0, 0))
    np.minimum.at(first, launch[linked], device.start[linked])
    np.maximum.at(last, launch[linked], device.end[linked])
    np.add.at(work, launch[linked], device.dur[linked])
    usual = np.where(host.activity[calls] == Activity.LAUNCH, 0.0, host.dur[calls].astype(np.float64))
    for kind, unknown in ((host.activity[calls] == Activity.LAUNCH, 0.0), (graph, float(NEVER))):
        seen = work[calls[kind & ~lacking]]
        usual[kind] = seen.mean() if len(seen) else unknown
    after = np.minimum.accumulate(np.where(lacking, NEVER, first[calls])[::-1])[::-1]
    before = np.maximum.accumulate(np.where(lacking, 0, last[calls]))
    lost = np.flatnonzero(lacking)
    runs = np.flatnonzero(np.append(True, np.diff(lost) > 1))
    begin = np.maximum(host.start[calls[lost[runs]]], before[lost[runs]])
    until = begin + np.minimum(np.add.reduceat(usual[lost], runs), float(NEVER))
    end, ends = after[lost[runs]], np.append(lost[runs[1:] - 1], lost[-1])
    queued = np.append(host.end[calls], NEVER)[ends + 1]
    # A wait for the device returns once it is done with them.
    waits = np.flatnonzero(host.activity == Activity.SYNC)
    waits = np.append(waits, -1)[np.searchsorted(host.start[waits], host.start[calls[ends]])]
    waited = (waits >= 0) & (host.start[waits] < queued)
    wait, done = (np.where(waited, at[waits], NEVER) for at in (host.start, host.end))
    return union(
        np.concatenate([begin, np.maximum(begin, queued), np.maximum(begin, wait)]),
        np.concatenate([np.minimum(np.minimum(until.astype(np.int64), end), done), end, np.minimum(done, end)]),
    )


def _torn(trace: Trace, launch: Ints, replays: Ints) -> Mask:
    """Mark graph launches whose rows have a hole between them, or before what was queued behind them by then.

    `launch`: host row that launched each device row, -1 for none; `replays`: host rows of the graph launches.
    """
    device, found = trace.device, np.zeros(len(replays), dtype=bool)
    linked = np.flatnonzero(launch >= 0)
    lanes = {track: (linked[same], device.start[linked[same]]) for track, same in members(device.track[linked])}
    by_launch = linked[stable_order(launch[linked])]
    low, high = (np.searchsorted(launch[by_launch], replays, side=side) for side in ("left", "right"))
    for i in range(len(replays)):
        rows = by_launch[low[i] : high[i]]  # by start, as all device rows are
        starts, until = device.start[rows], np.maximum.accumulate(device.end[rows])
        over = int(until[-1])
        lane, begins = lanes[int(device.track[rows[-1]])]
        # Also what starts as the last row ends, which may take no time itself.
        later = lane[max(np.searchsorted(begins, over), np.searchsorted(lane, rows[-1]) + 1) :][:1]
        if len(later) and trace.host.start[launch[later[0]]] < over:
            starts, until = np.append(starts, device.start[later]), np.append(until, over)
        hole = int((starts[1:] - until[: len(starts) - 1]).max(initial=0))
        found[i] = hole > HOLE_SHARE * (over - int(starts[0]))
    return found


def _graphs(trace: Trace, links: Links, replays: Ints, lacking: Mask) -> Ints | None:
    """Return the graph that each launch launched; None where the rows of some do not say."""
    linked = links.launch >= 0
    graph = np.full(len(trace.host), -1)
    graph[links.launch[linked]] = trace.device.recipe[linked]
    known = graph[replays]
    return known if ((known >= 0) | lacking).all() and not lacking.all() else None


def _places(steps: Ints, when: Ints) -> Ints:
    """Return a number for each launch, equal for launches at the same place of steps with as many launches.

    Graphs differ in size, so a launch is compared with what launched the same graph, where rows do not name it most
    likely one at the same place. `steps`: their starts; `when`: of launches, ascending.
    """
    step = np.searchsorted(steps, when, side="right")
    first = np.searchsorted(step, step, side="left")
    count = np.searchsorted(step, step, side="right") - first
    place: Ints = count * len(when) + np.arange(len(when)) - first
    return place
