"""The steps of a trace, their kinds, and the two populations of steps: typical ones, and all that recur.

Medians and estimates are of typical steps of one kind. Means, percentiles and shares are of the steady steps: the
typical ones and whatever else recurs, for the run pays for it. Owns the standing of each step and the kind that medians
are of.
"""

from __future__ import annotations

from collections import Counter
from functools import cached_property

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.activations import launch_calls
from hpuprof.analysis.device_time import idle_in
from hpuprof.analysis.first_use import first_use
from hpuprof.analysis.integrity import (
    FEW,
    LOST,
    NOTHING_MISSING,
    TOLERATED,
    Missing,
    damaged_steps,
    rows_end,
    step_in_which_rows_end,
    whole_steps,
)
from hpuprof.analysis.links import Links
from hpuprof.analysis.recording_ends import (
    PAUSED,
    PAUSED_SHARE,
    SKEW,
    Skew,
    closing_wait,
    late_rows,
    opening_wait,
    start_skew,
)
from hpuprof.analysis.searching import search_sorted
from hpuprof.analysis.step_completion import completion_windows
from hpuprof.analysis.step_kinds import (
    ACCUMULATING,
    CAPTURE,
    COMPILING,
    SPECIAL,
    UPDATING,
    VALIDATION,
    StepKind,
    clusters,
    counted,
    describe,
    names_of,
    purposes,
    step_at,
)
from hpuprof.analysis.step_outliers import OUTLIER, mark_unusual
from hpuprof.analysis.step_search import LIGHTNING_EVAL, LaunchedWork, Windows, find_windows, marker_rows
from hpuprof.analysis.threads import on_host_path
from hpuprof.analysis.window import ONCE as ONE_PASS
from hpuprof.analysis.window import Window, source_of
from hpuprof.families import FAMILIES
from hpuprof.model.arrays import Ints, Mask, any_of, median
from hpuprof.model.intervals import Intervals, measure, union, union_of
from hpuprof.model.schema import Activity, DeviceKind
from hpuprof.model.trace import Trace

# Limits by judgment; the tests pin the steps of all real traces at hand.
_COMPILE_SHARE = 0.02
"""Share of a step's wall time: a steady step compiles nothing, and less does not move a median."""
_BEHIND_SHARE = 0.25
"""Of a step's time: a decode that waits for so much of a prefill's device work is no equal of other decodes."""
MATTERS = 0.1
"""Share of the time from which a kind matters; by judgment: less changes the whole by less than a tenth."""
_RECURS = 2
"""Typical steps: what comes once may never come again."""
_NAMES_PAUSE = 0.5
"""Share of the time above a typical step from which a row names a pause."""
_AS_LONG = 0.5
"""Two waits for batches are as long as each other if the shorter one is this share of the longer; by judgment."""
TYPICAL, STEADY = "typical", "steady"
"""The two populations: steady steps are the typical ones and those that recur."""
RECURS, ONCE, LEFT_OUT = "recurs", "once", "left out"
"""The standing of a step that is not typical."""
ANOTHER, BEHIND = "another kind", "behind another"
"""Reasons, as OUTLIER is, for which a step of the loop is not typical; all others leave it out of the loop."""
BORDERS = ("first", "last")
"""Reasons for which a step is left out of the loop, although it does what the others do."""
COMPILES = "compiling"
"""The reason of steps that compile: between typical steps, twice or more, they are the loop's."""
_REASONS = {CAPTURE: "graph capture", COMPILING: COMPILES, VALIDATION: "validation"}


class Steps(Struct, frozen=True, eq=False, dict=True):
    """Steps of one trace as half-open windows of the host in ns, disjoint and in order."""

    start: Ints
    end: Ints
    labels: list[str]
    source: str  # as `window.source_of` takes it
    name: str
    excluded: list[str]  # reason per step, "" if typical
    standing: list[str]  # typical, recurs, once or left out
    untypical: bool = False  # every step had a reason for exclusion; the least bad ones are used anyway
    kinds: tuple[StepKind, ...] = ()  # the one that medians are of first, then by time
    completion: Intervals | None = None  # windows from completion to completion, if the host runs ahead
    missing: Missing = NOTHING_MISSING
    skew: Skew | None = None
    late: int = 0  # steps whose work has rows behind all steps only, while the device idled
    cut_ns: int = 0  # of the only step that is judged, which ends where its rows do

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def timed(self) -> Intervals:
        """The windows in which time is measured: the host's, or those of completion where the host runs ahead."""
        return self.completion or Intervals(self.start, self.end)

    @cached_property
    def window(self) -> Window:
        """What the numbers are of."""
        start, end = int(self.timed.start[0]), int(self.timed.end[-1])
        return Window(start, end, self.kinds[0].name, len(self), int(self.used.sum()), source_of(self.source))

    @property
    def single_pass(self) -> bool:
        """Whether the recording shows no steps: its one window is played once, nothing in it repeats."""
        return self.source == ONE_PASS

    @property
    def played_once(self) -> bool:
        """Whether nothing shows that work overlaps between steps: the only one waits for none before it.

        A marked step that the host leaves after its device work may be followed at once.
        """
        if len(self) > 1 or self.completion is None:
            return self.single_pass
        return bool(self.completion.start[0] <= self.start[0])

    @property
    def wall(self) -> Ints:
        """Time that each step took, ns."""
        return self.timed.dur

    @property
    def used(self) -> Mask:
        """Mask of the typical steps, which enter medians."""
        return np.array([standing == TYPICAL for standing in self.standing], dtype=bool)

    @property
    def steady(self) -> Mask:
        """Mask of the steps that enter means, percentiles and shares: the typical ones and those that recur."""
        return np.array([standing in (TYPICAL, RECURS) for standing in self.standing], dtype=bool)

    def holding(self, when: Ints, windows: Intervals | None = None) -> Ints:
        """Return the step that holds each instant, -1 for none; in the host's windows or others of the steps."""
        start, end = (windows.start, windows.end) if windows else (self.start, self.end)
        at = search_sorted(start, when, right=True) - 1
        # The place before all steps is the last one, which no instant precedes.
        return np.where(when < np.append(end, np.iinfo(np.int64).min).take(at, mode="wrap"), at, -1)

    def used_windows(self) -> Intervals:
        """Return the host's windows of the used steps (neighbors stay separate, so that steps can be distinguished)."""
        used = self.used
        return Intervals(self.start[used], self.end[used])

    @cached_property
    def above(self) -> Ints:
        """How much longer than a typical one each step took, ns; an outlier than those of its own kind."""
        return _above(self.wall, self.excluded, self.kinds)

    def like(self, chosen: Ints | Mask) -> Mask:
        """Return a mask of the steps like some: the typical ones; outliers that recur, too, where some chosen are."""
        outlying = np.array([reason == OUTLIER for reason in self.excluded], dtype=bool)
        return self.used | (self.steady & outlying) if outlying[chosen].any() else self.used

    def cut(self, run: Ints, keep: int) -> Ints:
        """Return `keep` successive ones of a run: of a mean closest to that of all like them, then the middle ones."""
        if len(run) <= keep:
            return run
        sums = np.cumsum(np.append(0, self.wall[run]))
        off = np.abs((sums[keep:] - sums[:-keep]) / keep - self.wall[self.like(run)].mean())
        aside = np.abs(np.arange(len(off)) - (len(run) - keep) // 2)
        first = int(np.lexsort((aside, off))[0])
        return run[first : first + keep]

    def steady_windows(self) -> Intervals:
        """Return the host's windows of the steady steps; neighbors stay separate."""
        steady = self.steady
        return Intervals(self.start[steady], self.end[steady])

    def kind_names(self) -> list[str]:
        """Return the name of each step's kind."""
        names = [""] * len(self)
        for kind in self.kinds:
            for i in kind.steps.tolist():
                names[i] = kind.name
        return names

    def share(self, kind: StepKind) -> float:
        """Return the share of the time of all steps that a kind holds."""
        return float(self.wall[kind.steps].sum() / max(1, int(self.wall.sum())))

    def of_kind(self, kind: StepKind) -> Steps:
        """Return the steps with those of another kind as the typical ones."""
        mine = set(kind.steps.tolist())
        excluded = [reason or ANOTHER if i in mine else ANOTHER for i, reason in enumerate(self.excluded)]
        standing = [LEFT_OUT if found == TYPICAL else found for found in self.standing]
        for i in kind.shown.tolist():
            excluded[i], standing[i] = "", TYPICAL
        return replace(self, excluded=excluded, standing=standing)

    def used_timed(self) -> Intervals:
        """Return the windows in which the used steps' time is measured."""
        used = self.used
        return Intervals(self.timed.start[used], self.timed.end[used])

    def steady_timed(self) -> Intervals:
        """Return the windows in which the steady steps' time is measured."""
        steady = self.steady
        return Intervals(self.timed.start[steady], self.timed.end[steady])


def find_steps(trace: Trace, roles: npt.NDArray[np.int8], compiling: Intervals, links: Links) -> Steps:
    """Find the steps, sort them into kinds, and mark the untypical ones of each kind."""
    launched = links.caused
    work = LaunchedWork.of(links)
    windows = _without_ends(
        find_windows(trace, roles, launched, work), opening_wait(trace, launched), closing_wait(trace)
    )
    missing = Missing.of(trace, links, windows.start)
    until = rows_end(missing, int(windows.start[0]), int(windows.end[0])) if len(windows) == 1 else None
    return _steps_in(trace, roles, compiling, links, windows, missing, None if until is None else (0, until))


def _steps_in(
    trace: Trace,
    roles: npt.NDArray[np.int8],
    compiling: Intervals,
    links: Links,
    windows: Windows,
    missing: Missing,
    judged: tuple[int, int] | None,
) -> Steps:
    """Sort steps into kinds; `judged`: the only one to judge, and when it is to end, as its rows do [ns]."""
    launched, work = links.caused, LaunchedWork.of(links)
    cut_ns = 0
    if judged is not None:
        windows, cut_ns = windows.ending(*judged), int(windows.end[judged[0]]) - judged[1]
    skew = start_skew(trace)
    seen = describe(trace, links.nesting, work, windows)
    completion = completion_windows(trace, launched, windows.start, windows.end)
    wall = completion.dur if completion else windows.end - windows.start
    limit = _COMPILE_SHARE * np.maximum(1, wall)
    first, on_path = first_use(links), on_host_path(roles.take(trace.host.track))
    first_uses = union_of(union(trace.host.start, trace.host.end, first.rows & on_path), first.loads)
    sets_up = measure(first_uses, windows.start, windows.end) > limit
    special = {
        CAPTURE: counted(windows, trace.host.start[trace.host.activity == Activity.CAPTURE]) > 0,
        COMPILING: measure(compiling, windows.start, windows.end) > limit,
        VALIDATION: _with_validation(trace, windows),
    }
    purpose = purposes(trace, windows, seen, special)
    excluded = [_REASONS.get(p, "warm-up" if sets_up[i] else "") for i, p in enumerate(purpose)]
    _mark_borders(trace, windows, excluded)
    paused = measure(trace.paused, windows.start, windows.end) > PAUSED_SHARE * (windows.end - windows.start)
    if not paused.all():
        for i in np.flatnonzero(paused).tolist():
            excluded[i] = excluded[i] or PAUSED
    timed = Intervals(windows.start, windows.end)
    correlated = FAMILIES[trace.family].correlated
    if not (len(launch_calls(trace)) > 0 if correlated else missing.lacking.any()):
        alike, _ = clusters(seen.on_host, purpose, windows, np.zeros(len(windows), dtype=bool))
        alike = [steps for steps in alike if seen.operators[steps].any() or seen.launches[steps].any()]
        missing = Missing.of_steps(trace, timed, alike, launched)
    whole = whole_steps(missing, timed)
    if missing.lacking.any() and sum(whole[i] for i, reason in enumerate(excluded) if not reason) < FEW:
        # A first step that looks too idle shows more than steps that lost rows; a last one drains the device's queue.
        excluded = ["" if whole[i] and reason == "first" else reason for i, reason in enumerate(excluded)]
    lost = damaged_steps(missing, timed, np.array([bool(x) for x in excluded]))
    if judged is None and missing.lacking.any() and not lost.any():
        aside = np.array([bool(x) and x != "first" for x in excluded])
        if (last := step_in_which_rows_end(missing, timed, aside)) is not None:
            return _steps_in(trace, roles, compiling, links, windows, missing, last)
    for i in np.flatnonzero(lost).tolist():
        excluded[i] = excluded[i] or LOST
    if skew is not None and (apart := (windows.end <= skew.start) | (windows.start >= skew.end)).any():
        for i in np.flatnonzero(~apart).tolist():
            excluded[i] = SKEW
    found, borders = clusters(seen, purpose, windows, missing.shares(timed) > TOLERATED[1])
    for i in borders:
        excluded[i] = excluded[i] or ("last" if i else "first")
    _mark_behind(trace, launched, windows, completion, found, excluded)
    fetches = _when(trace, Activity.DATA_LOADER, Activity.LOADER_WAIT)
    kinds = []
    for steps, name in zip(found, names_of(found, purpose, windows, seen.work_ns), strict=True):
        mark_unusual(wall, excluded, steps, seen, lambda: idle_in(trace, completion or timed, fetches))
        typical = steps[[not excluded[i] for i in steps.tolist()]]
        kinds.append(StepKind(name, steps, typical, steps[~lost[steps]], purpose[int(steps[0])] in SPECIAL))
    kinds = _in_order(kinds, wall, None if judged is None else judged[0])
    lead = kinds[0]
    for kind in kinds[1:]:
        for i in kind.typical.tolist():
            excluded[i] = ANOTHER
    # A typical number of an untypical step beats none; the report says that no step was typical.
    for i in lead.shown.tolist():
        excluded[i] = ""
    untypical = not len(lead.typical)
    named = measure(_when(trace, Activity.GARBAGE, Activity.CALLBACK), windows.start, windows.end)
    return Steps(
        windows.start,
        windows.end,
        windows.labels,
        windows.source,
        windows.name,
        excluded,
        _standing(excluded, kinds, _above(wall, excluded, kinds), named, measure(fetches, windows.start, windows.end)),
        untypical,
        tuple(kinds),
        completion,
        missing,
        skew,
        late_rows(trace, launched, timed, missing.unseen),
        cut_ns,
    )


def _without_ends(windows: Windows, opening: Intervals, closing: Intervals) -> Windows:
    """Cut from the first step what waits for earlier work, from the last one the wait with which the profiler ends."""
    if len(opening) and windows.start[0] < opening.end[0] < windows.end[0]:
        windows = replace(windows, start=np.append(opening.end, windows.start[1:]))
    if len(closing) and windows.start[-1] < closing.start[0] < windows.end[-1]:
        windows = replace(windows, end=np.append(windows.end[:-1], closing.start))
    return windows


def _in_order(kinds: list[StepKind], wall: Ints, judged: int | None) -> list[StepKind]:
    """Put the kind to speak of first: of those that recur and matter the one with most time. Then by time.

    `judged`: the only step to judge, if there is one.
    """
    time = {id(kind): int(wall[kind.steps].sum()) for kind in kinds}
    settled = sum(time[id(kind)] for kind in kinds if not kind.special)

    def weight(kind: StepKind) -> tuple[bool, bool, int, int, int]:
        matters = time[id(kind)] >= MATTERS * settled
        recurs = min(len(kind.typical), _RECURS) if matters else 0
        return judged in kind.steps, not kind.special, recurs, time[id(kind)], -int(kind.steps[0])

    lead = max(kinds, key=weight)
    return [lead, *sorted((k for k in kinds if k is not lead), key=lambda k: (-time[id(k)], int(k.steps[0])))]


def _with_validation(trace: Trace, windows: Windows) -> Mask:
    """Mark training steps that contain a validation: from our recorder's metadata or Lightning's rows.

    If every step contains one, it belongs to the steps (or they are validation batches), and none is marked.
    """
    recorded = trace.header.get("hpuprof")
    numbers = recorded.get("steps_with_validation") if isinstance(recorded, dict) else None
    labels = {f"ProfilerStep#{number}" for number in numbers} if isinstance(numbers, list) else set()
    marked = np.array([label in labels for label in windows.labels], dtype=bool)
    rows = marker_rows(trace, trace.named(LIGHTNING_EVAL.search))
    marked |= counted(windows, trace.host.start[rows]) > 0
    return np.zeros(len(marked), dtype=bool) if marked.all() else marked


def _mark_borders(trace: Trace, windows: Windows, excluded: list[str]) -> None:
    """Mark the first and the last step where the recording distorts them."""
    recorded = trace.header.get("hpuprof")
    window_kind = str(recorded.get("window_kind", "")) if isinstance(recorded, dict) else ""
    count = len(excluded)
    if window_kind:
        # Our recorder warms up, ends with a whole step, and drains a synchronous window. Work in flight at the start of
        # an asynchronous one left no rows, so its first step looks too idle.
        if window_kind != "sync" and count >= 3 and not excluded[0]:
            excluded[0] = "first"
        return
    if count >= 2 and windows.open_ends and not excluded[-1]:
        excluded[-1] = "last"
    if count >= 4 and not excluded[0]:
        excluded[0] = "first"
    if count >= 5 and not excluded[-1]:
        excluded[-1] = "last"


def _mark_behind(
    trace: Trace, launched: Ints, windows: Windows, completion: Intervals | None, found: list[Ints], excluded: list[str]
) -> None:
    """Mark steps in whose time the device worked on what a step of another kind launched: it measures that one, too."""
    if len(found) < 2:
        return
    kind = np.full(len(windows) + 1, -1)
    for k, steps in enumerate(found):
        kind[steps] = k
    rows = np.flatnonzero((trace.device.kind != DeviceKind.MARKER) & (launched >= 0))
    kind_of_row = kind[step_at(windows, trace.host.start.take(launched.take(rows)))]
    timed = completion or Intervals(windows.start, windows.end)
    for k, steps in enumerate(found):
        other = rows[(kind_of_row >= 0) & (kind_of_row != k)]
        foreign = measure(
            union(trace.device.start[other], trace.device.end[other]), timed.start[steps], timed.end[steps]
        )
        for i in steps[foreign > _BEHIND_SHARE * timed.dur[steps]].tolist():
            excluded[i] = excluded[i] or BEHIND


def _above(wall: Ints, excluded: list[str], kinds: tuple[StepKind, ...] | list[StepKind]) -> Ints:
    """Return how much longer than a typical step each one took: an outlier than its kind's, others than the lead's."""
    above: Ints = wall - int(median(wall[kinds[0].shown]))
    for kind in kinds[1:]:
        mine = [i for i in kind.steps.tolist() if excluded[i] == OUTLIER]
        above[mine] = wall[mine] - int(median(wall[kind.shown]))
    return above


def _standing(excluded: list[str], kinds: list[StepKind], above: Ints, named: Ints, fetching: Ints) -> list[str]:
    """Return the standing of each step. What is seen twice recurs, and so does what its name calls periodic.

    Steps are seen together where they are typical of one kind, or outliers on the same side of one. A step that waited
    for its batch is also seen again in a first or last step that waited about as long: workers deliver in turns. What
    compiles before the first typical step warms up, between typical ones it is the loop's.

    Args:
        excluded: why each step is not typical.
        kinds: the kinds, that of the used steps first.
        above: by how much each step is longer than a typical one [ns].
        named: time in rows of the garbage collector, of callbacks, loggers and checkpoints in each step [ns].
        fetching: time in fetches of batches in each step [ns].
    """
    out = [LEFT_OUT if reason else TYPICAL for reason in excluded]
    usual = kinds[0].shown
    pauses = (above > 0) & (named - median(named[usual]) >= _NAMES_PAUSE * above)
    waited = fetching - median(fetching[usual])
    fed_late = (above > 0) & (waited >= _NAMES_PAUSE * above)
    at_borders = [waited[i] for i, reason in enumerate(excluded) if reason in BORDERS]
    for i in np.flatnonzero(fed_late).tolist():
        pauses[i] |= any(_AS_LONG * waited[i] <= other <= waited[i] / _AS_LONG for other in at_borders)
    for kind in kinds:
        mine = [i for i in kind.steps.tolist() if excluded[i] in (ANOTHER, OUTLIER, BEHIND)]
        sides = [(excluded[i], excluded[i] == OUTLIER and bool(above[i] > 0)) for i in mine]
        often, by_turns = Counter(sides), kind.name.startswith((ACCUMULATING, UPDATING))
        for i, side in zip(mine, sides, strict=True):
            out[i] = RECURS if often[side] >= _RECURS or pauses[i] or by_turns else ONCE
    within = range(int(usual[0]), int(usual[-1])) if len(usual) else ()
    again = [i for i in within if excluded[i] == COMPILES and above[i] > 0]
    for i in again if len(again) >= _RECURS else ():
        out[i] = RECURS
    return out


def compile_intervals(trace: Trace) -> Intervals:
    """Return when anything was compiled, on any thread."""
    return _when(trace, Activity.COMPILE)


def _when(trace: Trace, *activities: Activity) -> Intervals:
    rows = any_of(trace.host.activity, activities)
    return union(trace.host.start, trace.host.end, rows)
