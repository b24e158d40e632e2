"""Whether a recording supports conclusions: detects the populations that fooled other tools."""

from __future__ import annotations

import numpy as np

from hpuprof.analysis.activations import How, launch_calls
from hpuprof.analysis.device_time import occupies
from hpuprof.analysis.groups import members
from hpuprof.analysis.integrity import LOST, OVERLAPPING, TOLERATED, overlapping
from hpuprof.analysis.links import Links
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.recording_ends import PAUSED, PAUSED_SHARE, closing_wait
from hpuprof.analysis.steps import Steps
from hpuprof.families import FAMILIES
from hpuprof.model.arrays import any_of, median, percentiles
from hpuprof.model.durations import duration
from hpuprof.model.intervals import EMPTY, Intervals, intersect, measure, subtract, union
from hpuprof.model.kernel_names import readable
from hpuprof.model.schema import Activity, Cause, DeviceKind, HostKind
from hpuprof.model.trace import Trace, Trouble

ONE_ROW_SHARE = 0.5
"""Share of the used steps' device time; by judgment."""
ONE_ROW_SHARE_OF_ONE_STEP = 0.9
"""As above, for a single step, where a long collective or upload may well hold half of the time; by judgment."""
STEP_SHARE = 0.5
"""Used steps that must show device rows. By judgment: steps are alike, so half of them empty means lost rows."""
MIN_ROWS = 4
"""With fewer device rows, one may well hold most of the time."""
MIN_LAUNCHES = 20
"""From this many linked launch calls LATE_SHARE is not chance: 1 in 50,000 if early and late are equally likely."""
LATE_SHARE = 0.9
"""Launch calls that end after their device row; by judgment: nearly all, as each drains the queue."""
UNRECORDED_SHARE = 0.25
"""Of the used steps in which the device worked without rows; by judgment: more of it than of most causes."""
NO_PASS = 8
"""With so many launches the work is a pass, however long the recording goes on before and after; by judgment."""
NO_WORK = 0.01
"""Of a pass, that operators and device fill; by judgment: even a small model's pass fills a tenth."""
LENGTHS_SHARE = 0.05
"""Of the used steps' device time, what rows without a length would take; by judgment: less changes no bound."""
OUTSIDE_SHARE = 0.1
"""Of the device's work in no step, above which the steps do not stand for the recording; by judgment."""
_CONTRADICT_SHARE, _ROUNDED = 0.01, 2_000
"""Share of calls, and ns: a call that begins so long before or after its operator is none of its own (stamps are cut to
whole microseconds)."""
DOUBTFUL = 0.1
"""Share of a queue's work with a doubtful launch from which the match is doubted; by judgment: a few wait for an event
of another stream."""
FEW_STEPS = 3
"""With fewer used steps the median is an extreme."""


def degenerate(view: RankView) -> list[Trouble]:
    """Return why no conclusion about the device may be drawn; empty if the device rows look sound.

    - HP105: no device rows at all (the device was not traced; that does not mean it was idle).
    - HP126: no host rows: the causes of device idle time are unknown.
    - HP106: device rows in fewer than half of the used steps, or none for a quarter of their launches or their time.
    - HP107: one row holds more than half of the used steps' device time (more than 90 % for a single step).
    - HP108: a quarter of the graph launches in the used steps lack device rows.
    - HP153: the host waits for a device that shows no work behind launches.
    - HP156: rows of one stream overlap.
    - HP166: rows have no length whose like takes more than 5 % of the device's time.
    - HP158: rows come behind the steps that launched them.
    - HP159: the program did nothing.
    - HP151: for a quarter of the used steps the device worked on what was launched before the recording.
    """
    trace, device = view.trace, view.trace.device
    real = device.kind != DeviceKind.MARKER
    if not real.any():
        unknown = sum(count for _, _, count in view.trace.health.unknown)
        more = f"; {unknown:,} rows are of a kind that is not known here" if unknown else ""
        calls = int(any_of(trace.host.activity, (Activity.LAUNCH, Activity.GRAPH_LAUNCH)).sum())
        failed = f" for {calls:,} launches: recording the device failed"
        of = failed if calls and FAMILIES[trace.family].correlated else ""
        return [Trouble("HP105", 1, f"the trace holds no device rows{of}{more}")]
    found = []
    if not len(trace.host):
        found.append(Trouble("HP126", 1, "the trace holds no host rows"))
    used = view.steps.used_timed()
    per_step = measure(view.device.busy, used.start, used.end)
    with_rows = int((per_step > 0).sum())
    if len(used) >= 2 and with_rows < STEP_SHARE * len(used):
        found.append(Trouble("HP106", with_rows, f"device rows in {with_rows} of {len(used)} used steps"))
    inside = measure(Intervals(used.start, used.end), device.start, device.end)
    longest = int(inside[real].max(initial=0))
    total = int(per_step.sum())
    limit = ONE_ROW_SHARE if len(used) >= 2 else ONE_ROW_SHARE_OF_ONE_STEP
    if int(real.sum()) >= MIN_ROWS and total and longest > limit * total:
        name = trace.names[int(device.name[np.flatnonzero(real)[np.argmax(inside[real])]])]
        found.append(
            Trouble(
                "HP107",
                1,
                f"one row, {readable(name)[:80]}, holds {longest / total:.0%} of the device time of the used steps",
            )
        )
    lost = [] if any(t.code == "HP106" for t in found) else _lost_rows(view)
    if (share := overlapping(trace)) > OVERLAPPING:
        found.append(Trouble("HP156", 1, f"rows of one stream overlap for {share:.0%} of the device's time"))
    bare, lacks = _without_length(view)
    if lacks > LENGTHS_SHARE * total:
        text = f"{bare:,} device rows have no length; at the median of their names they would take {duration(lacks)}"
        found.append(Trouble("HP166", bare, text))
    return found + lost + _outside_the_work(view) + _unrecorded(view, used)


def _without_length(view: RankView) -> tuple[int, int]:
    """Return how many rows in the used steps lack their length, and how long rows of their names take in median [ns].

    Rounding to whole microseconds takes it from short rows only: nine tenths of those with one are longer than that.
    """
    device, steps, names = view.trace.device, view.steps, view.trace.names
    inside = np.append(steps.used, False)[steps.holding(device.start, steps.timed)]
    rows = np.flatnonzero(inside & (device.kind == DeviceKind.COMPUTE))
    empty = np.zeros(len(names), dtype=bool)
    empty[device.name[rows[device.dur[rows] == 0]]] = True
    rows = rows[empty[device.name[rows]]]
    count, lacks = 0, 0
    for _, places in members(device.name[rows]):
        length = device.dur[rows[places]]
        seen = length[length > 0]
        if len(seen) and percentiles(seen, 10) > _ROUNDED:
            count += len(length) - len(seen)
            lacks += (len(length) - len(seen)) * int(median(seen))
    return count, lacks


def _outside_the_work(view: RankView) -> list[Trouble]:
    """Find rows that come behind the steps that launched them, and a recording in which the program did nothing."""
    steps, found = view.steps, []
    if steps.late:
        text = f"the work of {steps.late} of {len(steps)} steps has rows behind the last step only"
        found.append(Trouble("HP158", steps.late, text))
    host = view.trace.host
    length = int(host.end.max() - host.start[0]) if len(host) else 0
    operators = union(host.start, host.end, (host.kind == HostKind.OP) & (host.activity != Activity.STEP))
    launches = int(any_of(host.activity, (Activity.LAUNCH, Activity.GRAPH_LAUNCH)).sum())
    idle = max(operators.total_ns, view.device.busy.total_ns) < NO_WORK * length
    if steps.single_pass and idle and launches < NO_PASS:
        text = f"operators and device fill less than {NO_WORK:.0%} of {duration(length)}, and nothing repeats"
        found.append(Trouble("HP159", 1, text))
    return found


def _lost_rows(view: RankView) -> list[Trouble]:
    """Find launches in the used steps whose rows are lost, and the steps that were left out for theirs."""
    missing, steps, found = view.steps.missing, view.steps, []
    windows = steps.used_windows()
    limit = TOLERATED[-1]
    lost, all_of = missing.counts(windows, graphs=True)
    if lost > limit * all_of:
        text = f"{lost} of {all_of} graph launches show few or none of their device rows"
        found.append(Trouble("HP108", lost, text))
    lost, all_of = missing.counts(windows, graphs=False)
    if all_of >= MIN_LAUNCHES and lost > limit * all_of and not missing.steps:
        found.append(Trouble("HP106", lost, f"device rows for {all_of - lost} of {all_of} launches in the used steps"))
    silent = int((missing.shares(windows) >= 1.0).sum()) if len(missing.silent) else 0
    longest = duration(int(missing.silent.dur.max(initial=0)))
    waits = f"the host waits for a device that shows no work for up to {longest}, behind launches"
    if silent and not found:
        found.append(Trouble("HP153", silent, waits))
    unseen = _share_of(intersect(view.gaps.by_cause.get(Cause.UNRECORDED, EMPTY), missing.unseen), steps.used_timed())
    if not found and unseen >= UNRECORDED_SHARE:
        text = f"for {unseen:.0%} of the used steps the device shows no rows behind launches"
        found.append(Trouble("HP106", int(missing.lacking.sum()), text))
    left, lost = sum(reason == LOST for reason in steps.excluded), int(missing.lacking.sum())
    if found or not (lost or left):
        return found
    of = "steps have few or no" if missing.steps else "launches have no"
    lacking = f"{lost:,} of {len(missing.lacking):,} {of} device rows" if lost else waits
    where = f"; {left} of {len(steps)} steps left out" if left else ""
    if steps.cut_ns:
        what = "pass" if steps.single_pass else "step"
        where = f"; the {what} is judged up to the first of them, without its last {duration(steps.cut_ns)}"
    return [Trouble("HP154", lost or left, f"{lacking}{where}")]


def _unrecorded(view: RankView, used: Intervals) -> list[Trouble]:
    part = subtract(view.gaps.by_cause.get(Cause.UNRECORDED, EMPTY), view.steps.missing.unseen)
    share = _share_of(part, used)
    if share < UNRECORDED_SHARE:
        return []
    return [Trouble("HP151", 1, f"{share:.0%} of the used steps went to work that was launched before the recording")]


def _share_of(part: Intervals, windows: Intervals) -> float:
    return int(measure(part, windows.start, windows.end).sum()) / max(1, windows.total_ns)


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
            "graph_period": f"steps are the period of graph launches ({steps.name!r})",
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
    if (skew := steps.skew) is not None:
        lasts, longest = duration(skew.end - skew.start), duration(skew.longest)
        text = f"the first {skew.name[:80]} takes {lasts}, {skew.others:,} others {longest} at most"
        found.append(Trouble("HP157", 1, text))
    held = measure(view.trace.paused, steps.start, steps.end)
    if (held > PAUSED_SHARE * (steps.end - steps.start)).any():
        out = sum(reason == PAUSED for reason in steps.excluded)
        text = f"the profiler asks for buffers for {duration(int(held.sum()))} of the steps; {out} left out"
        found.append(Trouble("HP165", int((held > 0).sum()), text))
    closing = closing_wait(view.trace)
    if len(closing) and steps.end[-1] == closing.start[0]:
        text = f"after the device's last row the host waits for {duration(closing.total_ns)}, left out of the last step"
        found.append(Trouble("HP164", 1, text))
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
    real = occupies(trace.device.kind)
    rows = int(real.sum())
    loose = int((real & (view.links.launch < 0)).sum())
    by_order = int((real & (links.how == How.ORDER)).sum())
    if loose:
        found.append(Trouble("HP116", loose, f"{loose:,} of {rows:,} device rows have no launch in the trace"))
    doubtful = np.append(links.activations.doubt > DOUBTFUL, [False])[links.activations.of_row]
    unsure = int((real & (links.launch >= 0) & doubtful).sum())
    if by_order or unsure:
        said = [f"{by_order:,} of {rows:,} device rows matched to their launch by order"] if by_order else []
        calls = launch_calls(trace)
        bare = int((~links.launching[calls]).sum()) if by_order else 0
        said += [f"{bare:,} of {len(calls):,} launches have no work"] if bare else []
        said += [f"another launch fits {unsure:,} of {rows:,} device rows as well"] if unsure else []
        found.append(Trouble("HP190", by_order or unsure, "; ".join(said)))
    devices = {trace.tracks[t].pid for t in np.flatnonzero(np.bincount(trace.device.track.compress(real))).tolist()}
    if len(devices) > 1:
        found.append(Trouble("HP117", len(devices), f"device rows of {len(devices)} devices"))
    numbered, contradict = _contradictions(trace)
    if contradict > _CONTRADICT_SHARE * numbered:
        text = f"{contradict:,} of {numbered:,} calls bear the number of an operator that runs at another time"
        found.append(Trouble("HP172", contradict, text))
    if synchronous(trace, links):
        found.append(Trouble("HP121", 1, "launch calls outlive the device rows they launch"))
    return found


def _contradictions(trace: Trace) -> tuple[int, int]:
    """Return how many calls bear the `External id` of one operator, and how many of them do not run within it."""
    host = trace.host
    numbered = host.external >= 0
    operators, calls = (np.flatnonzero(numbered & (host.kind == kind)) for kind in (HostKind.OP, HostKind.RUNTIME))
    if not len(operators) or not len(calls):
        return 0, 0
    numbers, first, count = np.unique(host.external[operators], return_index=True, return_counts=True)
    at = np.minimum(np.searchsorted(numbers, host.external[calls]), len(numbers) - 1)
    known = (numbers[at] == host.external[calls]) & (count[at] == 1)
    mine, calls = operators[first[at[known]]], calls[known]
    within = (host.start[mine] - _ROUNDED <= host.start[calls]) & (host.start[calls] <= host.end[mine] + _ROUNDED)
    return len(calls), int((~within).sum())


def synchronous(trace: Trace, links: Links) -> bool:
    """Whether launches were synchronous: nine in ten linked launch calls end after their device row."""
    work, host = links.activations, trace.host
    known = np.flatnonzero(work.call >= 0)
    known = known[host.activity[work.call[known]] == Activity.LAUNCH]
    if len(known) < MIN_LAUNCHES:
        return False
    return bool(np.mean(host.end[work.call[known]] >= work.end[known]) > LATE_SHARE)
