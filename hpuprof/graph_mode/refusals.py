"""Why a recording does not decide whether graph mode helps, and what would decide it. One typed reason each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hpuprof.analysis.bound import ALLOCATOR_FIRST
from hpuprof.analysis.window import ONCE
from hpuprof.families import FAMILIES
from hpuprof.graph_mode.bounds import Evidence
from hpuprof.graph_mode.job import pace_of
from hpuprof.model.durations import duration
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import Prediction, Reason
from hpuprof.model.schema import Cause
from hpuprof.what_if.settled import LARGE
from hpuprof.what_if.uncertainty import REPLAY_LIMIT

STAGES_LIMIT = 0.10  # largest error of recipes or totals: above REPLAY_LIMIT, as both are coarser
UNEXPLAINED_LIMIT = 0.15  # unexplained delay over the step: beyond, it outweighs the gain of most options
SHORTEST = 0.9
"""A step is not shorter than this share of the device's own work in it. By judgment: clocks and inputs differ."""
LONGER, LONGEST = 1.1, 3.0
"""A step time without the profiler that is so many times the recorded one is doubted, and refused. By judgment: other
load on the host doubles its work at most."""
UNLIKE = 10.0
"""Ranks of one job wait for each other, so that none takes so many times as long for a step as another. By judgment:
single recorded steps of the ranks of one job differ by 1.6 times in a public recording."""

_RECORD = 'Trainer(profiler=HPUProfiler(dirpath="traces"))  # or: with hpuprof.record("traces") as recording: …'
_LONGER = "HPUProfiler(active=10)"
_LINKED = "a trace of more steps, with correlations between launches and device rows"
_CACHE = "no empty_cache() in the step, and no setting that turns the allocator's cache off"
_MARKED = "prof.step() after each step, or HPUProfiler, which marks them"

PASS_ROWS = 8
"""Fewer device rows of a single pass or step price nothing, nor do fewer with a launch among more without one; by
judgment."""
LONG_SHARE = 0.5
"""Share of a single pass that the device is idle in long stretches, above which later passes hardly are like it. By
judgment: what compiles or loads at the first call takes most of it, and nothing else in the recording shows that."""


class Refusal(NamedTuple):
    """What the answer lacks, in words, which measurement would help, and how to take it."""

    reason: Reason
    why: str
    need: str
    command: str


NO_TRACE = Refusal("no_trace", "there is no trace to judge", "a trace", _RECORD)
STEP_TIME = Refusal(
    "step_time",
    "the answer depends on the unprofiled step time",
    "the step time without the profiler",
    "hpuprof advise TRACES --step-time 12.3ms  # or record with HPUProfiler, which times it",
)
ONE_STEP = Refusal("one_step", "a single step was recorded", "a recording of three steps or more", _LONGER)
LOADER = Refusal(
    "loader",
    "it is not known whether the data-loader workers keep up",
    "a recording with twice as many data-loader workers: where the step stays as long, they keep up",
    "hpuprof compare AS_IS MORE_WORKERS",
)
ONE_FETCH = LOADER._replace(need="a recording of five steps or more: one fetch shows no pace", command=_LONGER)
ONE_PASS = ONE_STEP._replace(why="one pass was recorded")
COLD = 0.5
"""Share of the recording that compiling and first use may take: with more, by judgment, the rest are first calls."""
BEHIND = 0.25
"""Share of a step, cut where its rows end, by which the device may be behind its launches then; by judgment. With more
the device sets the pace, whatever the host did before."""
DISTURBED: tuple[Reason, ...] = ("first_use", "lost_rows", "allocator_first", "graph_capture")
"""What makes the device idle though a settled run would not: there, only the pace of launches points somewhere."""
FEW_ROWS = Refusal("few_rows", "the trace holds too few device rows to judge", "a trace of whole steps", _LONGER)
NO_DEVICE = Refusal(
    "no_device_used",
    "nothing ran on a device, the operators computed on the CPU",
    "a recording of a run on a device",
    _RECORD,
)
FEW_LAUNCHES = Refusal(
    "no_launches",
    "no step holds launches enough to capture; the trace holds no device rows",
    "a trace of whole steps with device activity",
    _RECORD,
)
NO_NUMBER = Refusal("not_explained", "the replayed steps give no finite speed-up", _LINKED, _LONGER)
NOTHING_IN_COMMON = Refusal(
    "nothing_in_common", "no part of the step is the same on every rank", "traces of one job", ""
)
_PREDICTS_NOTHING: dict[Reason, Refusal] = {
    r.reason: r
    for r in (
        Refusal("no_device_rows", "the trace holds no device rows", "a trace with device activity", _RECORD),
        NO_DEVICE,
        Refusal("no_host_rows", "the trace holds no host rows of the step", "a trace with host activity", _RECORD),
        Refusal(
            "no_launches", "no part of the step holds enough launches to capture", "a trace of whole steps", _LONGER
        ),
        Refusal(
            "unknown_graphs",
            "what graphs cost on this device is not known",
            "the step time with graphs on this device",
            "hpuprof compare EAGER GRAPHS",
        ),
        Refusal("graph_capture", "every step captures graphs, so none is typical", "a trace of later steps", _LONGER),
        Refusal("no_steps", "no step has a length", "a trace with step markers", _MARKED),
        Refusal("not_explained", "replayed without the profiler, recorded steps take no time", _LINKED, _LONGER),
    )
}
_UNSOUND: tuple[tuple[str, Reason, str], ...] = (
    ("HP105", "no_device_rows", "a trace with device activity"),
    ("HP126", "no_host_rows", "a trace with host activity"),
    ("HP108", "lost_rows", "a trace that keeps the device rows of graph replays"),
    ("HP106", "lost_rows", "a trace whose device rows cover the steps"),
    ("HP156", "late_rows", "a trace that carries the times of the device"),
    ("HP153", "lost_rows", "a trace that keeps all device rows"),
    ("HP166", "lost_rows", "a trace whose device rows have their lengths"),
    ("HP158", "late_rows", "a trace that carries the times of the device"),
    ("HP159", "no_steps", "a trace of steps"),
    ("HP107", "one_row", "a trace of ordinary steps, without the one long row"),
    ("HP151", "unrecorded_work", "a trace that begins with an idle device"),
)
"""What each diagnostic that rules out a replay asks for; the first one found is reported."""


def unsound(main: Sequence[RankPartial]) -> Refusal | None:
    """Return why the rows allow no replay; None where they do."""
    for code, reason, need in _UNSOUND:
        texts = [d.text for part in main for d in part.diagnostics if d.code == code]
        if texts:
            return Refusal(reason, texts[0], need, _RECORD)
    return None


def find_refusal(main: Sequence[RankPartial], predictions: Sequence[Prediction]) -> Refusal | None:
    """Return why the steps of sound rows allow no prediction of graphs; None where they do."""
    for prediction in predictions:
        if prediction.method == "none":
            return _PREDICTS_NOTHING[prediction.reason]
    if len(predictions) < len(main):
        return Refusal("rank_without_prediction", "not every rank has a prediction", "traces of all ranks", _RECORD)
    refusal = not_replayed(main, predictions)
    return refusal or next((_PREDICTS_NOTHING[p.reason] for p in predictions if not p.options and p.reason), None)


def without_device(predictions: Sequence[Prediction]) -> Refusal | None:
    """Return why graphs have nothing to do in recordings without device rows; None where they may have."""
    reasons = {p.reason for p in predictions if p.method == "none"}
    alike = len(reasons) == 1 and all(p.method == "none" and p.span is None for p in predictions)
    return {"no_device_used": NO_DEVICE, "no_launches": FEW_LAUNCHES}.get(reasons.pop()) if alike else None


def not_replayed(main: Sequence[RankPartial], predictions: Sequence[Prediction]) -> Refusal | None:
    """Return why replaying the steps of sound rows says nothing of steps to come; None where it does."""
    spans = [p.span for p in predictions if p.span is not None and p.method == "replay"]
    if any(span.launched < min(PASS_ROWS, span.rows / 2) for span in spans):
        return FEW_ROWS
    behind = max(spans, key=lambda span: span.behind_ns / max(1, span.wall_ns), default=None)
    if behind is not None and behind.behind_ns > BEHIND * behind.wall_ns:
        why = f"the device is {duration(behind.behind_ns)} behind its launches where its rows end"
        return Refusal("lost_rows", why, "a trace whose device rows cover the steps", _RECORD)
    setting_up = max(map(_setting_up, main), default=0.0)
    late = max(p.unexplained for p in predictions) > UNEXPLAINED_LIMIT
    if setting_up > LARGE and (late or not all_settled(predictions)):
        why = f"setting the device up for the first time takes {100 * setting_up:.0f} % of the step"
        return Refusal("first_use", why, "a trace of later steps", _LONGER)
    worst = max(predictions, key=lambda p: p.replay_error or 0.0)
    if (worst.replay_error or 0.0) > (REPLAY_LIMIT if worst.method == "replay" else STAGES_LIMIT):
        return _not_explained(worst)
    if late:
        return Refusal(
            "late_rows",
            "device rows start late for reasons the trace does not show",
            "a trace with events and synchronization recorded",
            FAMILIES[main[0].file.family].advice.get("late_rows", _LONGER),
        )
    return None


def all_settled(predictions: Sequence[Prediction]) -> bool:
    """Whether each rank is answered for as it runs once it is set up."""
    return bool(predictions) and all(p.settled for p in predictions)


def unlike_others(main: Sequence[RankPartial]) -> Refusal | None:
    """Return why the one pass or step of a recording says little about others; None where it may stand for them."""
    for part in main:
        span = part.prediction.span if part.prediction else None
        if part.file.steps_used > 1 or span is None:
            continue
        if span.rows < PASS_ROWS:
            return FEW_ROWS
        settled = part.prediction is not None and part.prediction.settled
        if part.file.step_source == ONCE and not settled and span.long_idle_ns > LONG_SHARE * span.wall_ns:
            idle = f"the device is idle in long stretches for {duration(span.long_idle_ns)}, more than half of the pass"
            why = f"{idle}: a first call that compiles or loads kernels, or work of the host alone"
            return Refusal("first_use", why, "a recording of later calls", "")
    return None


def _setting_up(part: RankPartial) -> float:
    """Return the share of the used steps in which the device was idle while the host set it up."""
    used = {step.step: step.wall_ns for step in part.steps if step.used}
    idle = sum(row.idle_ns for row in part.gap_causes if row.cause == Cause.FIRST_USE.name.lower() and row.step in used)
    return idle / max(1, sum(used.values()))


def points_nowhere(found: Evidence) -> Refusal | None:
    """Return why the idle time of a recording does not show that a gain is unlikely; None where it does."""
    if found.one_off >= COLD:
        share = f"{100 * found.one_off:.0f} % of the recording"
        return Refusal(
            "first_use",
            f"compiling and setting the device up take {share}, so that its other calls are first ones, too",
            "a trace of later steps",
            _LONGER,
        )
    if found.hidden:
        return Refusal(
            "untraced_host",
            f"the device is {100 * found.untraced:.0f} % of the time idle while nothing is traced on the host",
            "a trace with stacks: they show Python between operators",
            "HPUProfiler(with_stack=True)",
        )
    return None


def allocator_first(main: Sequence[RankPartial]) -> Refusal | None:
    """Return that the allocator comes first, where it takes too much of the used steps for anything else to matter."""
    steps = [s for part in main for s in part.steps if s.used]
    share = sum(s.blocked_alloc_ns or 0 for s in steps) / max(1, sum(s.wall_ns for s in steps))
    if share < ALLOCATOR_FIRST:
        return None
    return Refusal(
        "allocator_first",
        f"allocating and freeing memory takes {100 * share:.0f} % of the step and is no launch overhead; the "
        "allocator comes first, and graphs need its cache",
        "a trace in which the allocator's cache serves the steps",
        FAMILIES[main[0].file.family].advice.get("allocator_first", _CACHE),
    )


def unlike_given(predictions: Sequence[Prediction]) -> Refusal | None:
    """Return why the given step time cannot be that of these steps; None if it can, or none is given."""
    found = (_step_time_does_not_fit(p) for p in predictions if p.base == "given")
    return next((refusal for refusal in found if refusal), None)


def unlike_ranks(predictions: Sequence[Prediction]) -> Refusal | None:
    """Return that the steps of ranks cannot be those of one job; None where they can."""
    times = [p.profiled_step_ns for p in predictions if p.profiled_step_ns]
    if not times or max(times) < UNLIKE * min(times):
        return None
    why = f"a step takes {duration(min(times))} on one rank and {duration(max(times))} on another"
    return Refusal("nothing_in_common", f"{why}: they are not ranks of one job", "traces of one job", "")


def _step_time_does_not_fit(lead: Prediction) -> Refusal | None:
    # Where workers set the pace, typical steps are those that did not wait; the given time is the mean of all.
    longest = max(lead.profiled_step_ns, pace_of(lead))
    given, recorded = duration(lead.base_step_ns), duration(longest)
    if lead.base_step_ns < SHORTEST * lead.device_ns:
        work = duration(lead.device_ns)
        why = f"the given step time of {given} is shorter than the device's own work in a step, {work}"
    elif lead.base_step_ns > LONGEST * longest:
        times = f"{lead.base_step_ns / longest:.3g} times the recorded one, {recorded}"
        why = f"the given step time of {given} is {times}: profiling makes no step shorter"
    else:
        return None
    return Refusal(
        "given_step_time", why, "the step time of the recorded steps without the profiler", STEP_TIME.command
    )


def _not_explained(worst: Prediction) -> Refusal:
    off = f"{100 * (worst.replay_error or 0):.0f} % off"
    if worst.fell_back is not None:
        off = f"{100 * worst.fell_back:.0f} % off, and from stage times {off}"
    return Refusal(
        "not_explained",
        f"the recorded step cannot be reproduced: replayed unchanged, it is {off}",
        _LINKED,
        _LONGER,
    )
