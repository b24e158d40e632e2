"""Whether a recording supports conclusions: detects the populations that fooled other tools."""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.groups import members
from hpuprof.analysis.links import Links
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.steps import Steps
from hpuprof.ingest.dialects import FAMILIES
from hpuprof.model.arrays import Ints, median, percentiles
from hpuprof.model.durations import duration
from hpuprof.model.intervals import EMPTY, Intervals, measure
from hpuprof.model.schema import Activity, Cause, DeviceKind
from hpuprof.model.trace import Trace, Trouble

ONE_ROW_SHARE = 0.5
"""Share of the used steps' device time; by judgement."""
ONE_ROW_SHARE_OF_ONE_STEP = 0.9
"""As above, for a single step, where a long collective or upload may well hold half of the time; by judgement."""
STEP_SHARE = 0.5
"""Used steps that must show device rows. By judgement: steps are alike, so half of them empty means lost rows."""
REPLAY_SHARE = 0.5
"""Graph launches that must show their device rows; by judgement, as for steps."""
FEW_ROWS = 0.5
"""A graph launch shows few rows with less than this share of what others of its graph show (90th percentile)."""
MIN_ROWS = 4
"""With fewer device rows, one may well hold most of the time."""
MIN_REPLAYS = 2
"""A single graph launch has nothing to compare with."""
MIN_LAUNCHES = 20
"""From this many linked launch calls LATE_SHARE is not chance: 1 in 50,000 if early and late are equally likely."""
LATE_SHARE = 0.9
"""Launch calls that end after their device row; by judgement: nearly all, as each drains the queue."""
UNRECORDED_SHARE = 0.25
"""Of the used steps in which the device worked without rows; by judgement: more of it than of most causes."""
OUTSIDE_SHARE = 0.1
"""Of the device's work in no step, above which the steps do not stand for the recording; by judgement."""
FEW_STEPS = 3
"""With fewer used steps the median is an extreme."""


def degenerate(view: RankView) -> list[Trouble]:
    """Return why no conclusion about the device may be drawn; empty if the device rows look sound.

    - HP105: no device rows at all (the device was not traced; that does not mean it was idle).
    - HP126: no host rows: the causes of device idle time are unknown.
    - HP106: device rows in fewer than half of the used steps, or for fewer than half of the launches in them.
    - HP107: one row holds more than half of the used steps' device time (more than 90 % for a single step).
    - HP108: more than half of the graph launches lack device rows.
    - HP151: for a quarter of the used steps the device worked on what was launched before the recording.
    """
    trace, device = view.trace, view.trace.device
    real = device.kind != DeviceKind.MARKER
    if not real.any():
        unknown = sum(count for _, _, count in view.trace.health.unknown)
        beside = f"; {unknown:,} rows are of a kind that is not known here" if unknown else ""
        return [Trouble("HP105", 1, f"the trace holds no device rows{beside}")]
    found = []
    if not len(trace.host):
        found.append(Trouble("HP126", 1, "the trace holds no host rows"))
    used = view.steps.used_timed()
    per_step = measure(view.device.busy, used.start, used.end)
    with_rows = int((per_step > 0).sum())
    if len(used) >= 2 and with_rows < STEP_SHARE * len(used):
        found.append(Trouble("HP106", with_rows, f"device rows in {with_rows} of {len(used)} used steps"))
    found += _without_rows(view) if not found else []
    inside = measure(Intervals(used.start, used.end), device.start, device.end)
    longest = int(inside[real].max(initial=0))
    total = int(per_step.sum())
    limit = ONE_ROW_SHARE if len(used) >= 2 else ONE_ROW_SHARE_OF_ONE_STEP
    if int(real.sum()) >= MIN_ROWS and total and longest > limit * total:
        name = trace.names[int(device.name[np.flatnonzero(real)[np.argmax(inside[real])]])]
        found.append(
            Trouble(
                "HP107", 1, f"one row, {name[:80]}, holds {longest / total:.0%} of the device time of the used steps"
            )
        )
    return found + _incomplete_replays(view) + _unrecorded(view, used)


def _without_rows(view: RankView) -> list[Trouble]:
    """Find launches that never ran as far as the trace shows: it ended while the device was far behind.

    Those that a capture records run later, in the graph.
    """
    host = view.trace.host
    if not FAMILIES[view.trace.family].correlated or (host.activity == Activity.CAPTURE).any():
        return []
    calls = np.flatnonzero((host.activity == Activity.LAUNCH) & (host.correlation >= 0))
    windows = view.steps.used_windows()
    calls = calls[measure(windows, host.start[calls], host.start[calls] + 1) > 0]
    ran = int(np.isin(calls, view.links.launch).sum())
    if len(calls) < MIN_LAUNCHES or ran >= STEP_SHARE * len(calls):
        return []
    return [Trouble("HP106", len(calls) - ran, f"device rows for {ran} of {len(calls)} launches in the used steps")]


def _unrecorded(view: RankView, used: Intervals) -> list[Trouble]:
    part = view.gaps.by_cause.get(Cause.UNRECORDED, EMPTY)
    share = int(measure(part, used.start, used.end).sum()) / max(1, used.total_ns)
    if share < UNRECORDED_SHARE:
        return []
    return [Trouble("HP151", 1, f"{share:.0%} of the used steps went to work that was launched before the recording")]


def _incomplete_replays(view: RankView) -> list[Trouble]:
    host, launch = view.trace.host, view.links.launch
    replays = np.flatnonzero((host.activity == Activity.GRAPH_LAUNCH) & (host.correlation >= 0))
    if len(replays) < MIN_REPLAYS:
        return []
    linked = launch >= 0
    rows = np.bincount(launch[linked], minlength=len(host))[replays]
    lacking = rows == 0
    graph = np.full(len(host), -1)
    graph[launch[linked]] = view.trace.device.recipe[linked]
    known = (graph[replays] >= 0) | lacking
    for _, same in members(graph[replays] if known.all() else _places(view.steps, host.start[replays])):
        lacking[same] |= rows[same] < FEW_ROWS * percentiles(rows[same], 90)
    missing = int(lacking.sum())
    if missing <= REPLAY_SHARE * len(replays):
        return []
    text = f"{missing} of {len(replays)} graph launches show few or none of their device rows"
    return [Trouble("HP108", missing, text)]


def _places(steps: Steps, when: Ints) -> Ints:
    """Return a number for each launch, equal for launches at the same place of steps with as many launches.

    Graphs differ in size, so a launch is compared with what launched the same graph, where rows do not name it most
    likely one at the same place. `when`: of launches, ascending.
    """
    step = np.searchsorted(steps.start, when, side="right")
    first = np.searchsorted(step, step, side="left")
    count = np.searchsorted(step, step, side="right") - first
    place: Ints = count * len(when) + np.arange(len(when)) - first
    return place


def doubts(view: RankView) -> list[Trouble]:
    """Return the caveats: unknown rows, doubtful steps, nesting and launches."""
    found = []
    if unknown := view.trace.health.unknown:
        kinds = ", ".join(sorted({f"{category} on {thread}" for category, thread, _ in unknown})[:3])
        found.append(Trouble("HP104", sum(n for _, _, n in unknown), f"unknown rows: {kinds}"))
    return found + _about_steps(view.steps) + _about_pace(view) + _about_links(view)


def _about_steps(steps: Steps) -> list[Trouble]:
    found = []
    if steps.window.source != "marker":
        how = {
            "annotation": f"steps are the annotation {steps.name!r}",
            "operator_period": f"steps are the operators' period, from {steps.name!r} on",
        }.get(steps.source, "nothing repeats, so the recording is one pass")
        found.append(Trouble("HP109", 1, f"no step markers; {how}"))
    used, count = steps.window.used, steps.window.count
    if used < FEW_STEPS:
        text = "one pass was recorded" if steps.single_pass else f"{used} of {count} steps used"
        found.append(Trouble("HP110", used, text))
    if len(steps) > 1 and steps.untypical:
        found.append(Trouble("HP124", len(steps), "no step is typical"))
    return found


def _about_pace(view: RankView) -> list[Trouble]:
    steps, busy = view.steps, view.device.busy
    found = []
    outside = busy.total_ns - int(measure(busy, steps.timed.start, steps.timed.end).sum())
    if outside > OUTSIDE_SHARE * busy.total_ns:
        text = f"{outside / busy.total_ns:.0%} of the device's work lies in no step"
        found.append(Trouble("HP150", 1, text))
    if steps.completion is not None:
        used = steps.used
        own, pace = (duration(int(median(x[used]))) for x in (steps.end - steps.start, steps.wall))
        found.append(Trouble("HP152", 1, f"a step takes {own} on the host, {pace} from completion to completion"))
    return found


def _about_links(view: RankView) -> list[Trouble]:
    trace, links = view.trace, view.links
    found = []
    if links.nesting.clipped:
        found.append(Trouble("HP115", links.nesting.clipped, "operators that outlive their parent"))
    real = trace.device.kind != DeviceKind.MARKER
    rows = int(real.sum())
    loose = int((real & (view.launched < 0)).sum())
    by_order = int((real & (links.launch < 0)).sum()) - loose
    if loose:
        found.append(Trouble("HP116", loose, f"{loose:,} of {rows:,} device rows have no launch in the trace"))
    if by_order:
        found.append(
            Trouble("HP190", by_order, f"{by_order:,} of {rows:,} device rows matched to their launch by order")
        )
    devices = {trace.tracks[t].pid for t in np.flatnonzero(np.bincount(trace.device.track.compress(real))).tolist()}
    if len(devices) > 1:
        found.append(Trouble("HP117", len(devices), f"device rows of {len(devices)} devices"))
    if synchronous(trace, links):
        found.append(Trouble("HP121", 1, "launch calls outlive the device rows they launch"))
    return found


def synchronous(trace: Trace, links: Links) -> bool:
    """Whether launches were synchronous: nine in ten linked launch calls end after their device row."""
    linked = np.flatnonzero(links.launch >= 0)
    host = trace.host
    linked = linked[host.activity[links.launch[linked]] == Activity.LAUNCH]
    if len(linked) < MIN_LAUNCHES:
        return False
    return bool(np.mean(host.end[links.launch[linked]] >= trace.device.end[linked]) > LATE_SHARE)
