"""Finds the steps of a trace and which of them are typical. Owns the order of evidence and the exclusions."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.completion import completion_windows
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.intervals import Intervals, measure, union
from hpuprof.model.schema import Activity, HostKind, Role
from hpuprof.model.trace import HostRows, Trace

LIGHTNING_BATCH = "[pl][profile]run_training_batch"
_LIGHTNING_EVAL = re.compile(r"\[Strategy\][\w.]*\.(?:validation|test|predict)_step$")
_PROFILER_STEP = re.compile(r"^ProfilerStep#\d+$")
_NOT_A_STEP = re.compile(
    r"^(?:enumerate\(DataLoader\)|nccl:|gloo:|mpi:|hccl:|ucc:|\[pl\]\[module\]|Torch-Compiled|Optimizer\.zero_grad)"
)
_DIGITS = re.compile(r"\d+")
# Limits by judgement; the tests pin the steps of all real traces at hand.
_COMPILE_SHARE = 0.02
"""Share of a step's wall time: a steady step compiles nothing, and less does not move a median."""
_WARM_UP_RATIO = 1.5
"""Times the median of later steps; the first steps of settled runs take less."""
_WARM_UP_STEPS = 100
"""More long steps than this in a row are a phase of the run, not its warm-up."""
_EVEN_SHARE = 0.25
"""Median absolute deviation over median; only if later steps are this even are the first ones called long."""
_OUTLIER_MADS = 6.0
"""Scaled deviations from the median: of normally distributed steps, two in 10^9 lie that far out."""
_OUTLIER_SHARE = 0.2
"""An outlier also differs from the median by this share: very even steps have tiny deviations."""
_REPETITIONS = 3
"""A period needs two equal distances to show."""
_REGULAR_SHARE = 0.5
"""Median deviation of an annotation's distances over their median. By judgement: steps vary less, logging more."""
_COVERED_SHARE = 0.5
"""Of the trace; steps that cover less leave most of it unexplained."""
_FEW_OPERATORS = 12
"""Three repetitions of the shortest period, four operators: forward, loss, backward, optimizer."""
_SHORTEST_PERIOD = 4
_EQUAL_SHARE = 0.9
"""Of the sequence that equals itself one period on; the rest may be logging or other work at every n-th step."""
_MOST_OPERATORS = 200_000  # searched for a period, to bound time: 200 steps of a thousand top-level operators
_MOST_NAMES = 400  # whose distances are candidate periods, to bound time
_MOST_PERIODS = 64  # candidates tried, the most frequent first, to bound time
_SCALE_OF_MAD = 1.4826
"""Scales the median absolute deviation of normally distributed values to their standard deviation."""


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps of one trace as half-open windows of the host in ns, disjoint and in order."""

    start: Ints
    end: Ints
    labels: list[str]
    source: str  # lightning, profiler_step, annotation, operator_period, whole_trace
    name: str
    excluded: list[str]  # reason per step, "" if used
    untypical: bool = False  # every step had a reason for exclusion; the least bad ones are used anyway
    completion: Intervals | None = None  # windows from completion to completion, if the host runs ahead

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def timed(self) -> Intervals:
        """The windows in which time is measured: the host's, or those of completion where the host runs ahead."""
        return self.completion or Intervals(self.start, self.end)

    @property
    def wall(self) -> Ints:
        """Time that each step took, ns."""
        return self.timed.dur

    @property
    def used(self) -> Mask:
        """Mask of the steps that enter medians."""
        return np.array([not reason for reason in self.excluded], dtype=bool)

    def holding(self, when: Ints, windows: Intervals | None = None) -> Ints:
        """Return the step that holds each instant, -1 for none; in the host's windows or others of the steps."""
        start, end = (windows.start, windows.end) if windows else (self.start, self.end)
        at = np.searchsorted(start, when, side="right") - 1
        return np.where((at >= 0) & (when < np.append(end, 0)[np.maximum(at, 0)]), at, -1)

    def used_windows(self) -> Intervals:
        """Return the host's windows of the used steps (neighbours stay separate, so that steps can be told apart)."""
        used = self.used
        return Intervals(self.start[used], self.end[used])

    def used_timed(self) -> Intervals:
        """Return the windows in which the used steps' time is measured."""
        used = self.used
        return Intervals(self.timed.start[used], self.timed.end[used])


def find_steps(trace: Trace, roles: npt.NDArray[np.int8], compiling: Intervals, launched: Ints) -> Steps:
    """Find the steps by the best evidence in the trace, then mark the untypical ones.

    In order: the step rows of hpuprof's own recorder; Lightning's training batches, start to start (its `ProfilerStep#`
    rows run from forward to forward, and their numbers repeat); Lightning's evaluation batches; `ProfilerStep#`; an
    annotation that repeats; the period of the operator sequence; the whole trace. `launched`: the launch call of each
    device row.
    """
    host = trace.host
    # Our recorder's ProfilerStep# rows are whole batches, start to start, including the last.
    recorded = trace.header.get("hpuprof")
    found = (
        (_lasting(_profiler_steps(trace)) if recorded else None)
        or _lasting(
            _start_to_start(trace, np.array([n == LIGHTNING_BATCH for n in trace.names], dtype=bool), "lightning")
        )
        or _lasting(
            _start_to_start(
                trace, np.array([bool(_LIGHTNING_EVAL.search(n)) for n in trace.names], dtype=bool), "lightning"
            )
        )
        or _lasting(_profiler_steps(trace))
        or _lasting(_repeating_annotation(trace, roles))
        or _lasting(_operator_period(trace, roles))
    )
    if found is None:
        end = trace.end_ns
        start = int(host.start[0]) if len(host) and host.start[0] < end else 0
        found = _Found(
            np.array([start], dtype=np.int64), np.array([end], dtype=np.int64), ["whole trace"], "whole_trace", "", 0
        )
    kind = str(recorded.get("window_kind", "")) if isinstance(recorded, dict) else ""
    completion = completion_windows(trace, launched, found.start, found.end)
    timed = completion or Intervals(found.start, found.end)
    setting_up = _when(trace, Activity.FIRST_USE)
    excluded, untypical = _classify(found, timed.dur, compiling, setting_up, kind, _with_validation(trace, found))
    return Steps(found.start, found.end, found.labels, found.source, found.name, excluded, untypical, completion)


@dataclass(frozen=True, eq=False)
class _Found:
    start: Ints
    end: Ints
    labels: list[str]
    source: str
    name: str
    open_ends: int  # trailing steps whose end is not the next one's start


def _lasting(found: _Found | None) -> _Found | None:
    """Return the steps if any has a length; shares of empty steps are undefined."""
    return found if found is not None and (found.end > found.start).any() else None


def _rows(trace: Trace, wanted: Mask) -> Ints:
    host = trace.host
    kind_ok = (host.kind == HostKind.ANNOTATION) | (host.kind == HostKind.OP)
    return np.flatnonzero(wanted[host.name] & kind_ok)


def _start_to_start(trace: Trace, wanted: Mask, source: str) -> _Found | None:
    rows = _rows(trace, wanted)
    if not len(rows):
        return None
    host = trace.host
    start = host.start[rows]
    end = np.append(start[1:], host.end[rows[-1]])
    name = trace.names[int(host.name[rows[0]])]
    return _Found(start, end, [f"batch {i}" for i in range(len(rows))], source, name, 1)


def _profiler_steps(trace: Trace) -> _Found | None:
    rows = _rows(trace, np.array([bool(_PROFILER_STEP.match(n)) for n in trace.names], dtype=bool))
    if not len(rows):
        return None
    host = trace.host
    start, end = host.start[rows].copy(), host.end[rows].copy()
    end[:-1] = np.minimum(end[:-1], start[1:])
    keep = end > start
    labels = [trace.names[int(n)] for n in host.name[rows[keep]]]
    return _Found(start[keep], end[keep], labels, "profiler_step", "ProfilerStep#", 0)


def _main_rows(host: HostRows, roles: npt.NDArray[np.int8], kind: HostKind) -> Ints:
    return np.flatnonzero((host.kind == kind) & (roles[host.track] == Role.MAIN))


def _repeating_annotation(trace: Trace, roles: npt.NDArray[np.int8]) -> _Found | None:
    """Take the main thread's repeating annotation (digits ignored) whose repetitions cover the most time."""
    host = trace.host
    rows = _main_rows(host, roles, HostKind.ANNOTATION)
    groups: dict[str, list[int]] = {}
    for row in rows.tolist():
        name = trace.names[int(host.name[row])]
        if not _NOT_A_STEP.match(name):
            groups.setdefault(_DIGITS.sub("#", name), []).append(row)
    best: tuple[float, int, str] | None = None
    span = max(1, trace.end_ns)
    for name, members in groups.items():
        if len(members) < _REPETITIONS:
            continue
        start, end = host.start[members], host.end[members]
        gaps = np.diff(start)
        if (end[:-1] > start[1:]).any() or np.median(gaps) <= 0:
            continue
        regular = float(np.median(np.abs(gaps - np.median(gaps))) / np.median(gaps))
        covered = float(start[-1] - start[0] + np.median(gaps)) / span
        if regular > _REGULAR_SHARE or covered < _COVERED_SHARE:
            continue
        key = (round(covered, 2), -len(members), name)
        best = max(best, key) if best else key
    if best is None:
        return None
    members = groups[best[2]]
    start = host.start[members]
    end = np.append(start[1:], host.end[members[-1]])
    return _Found(start, end, [trace.names[int(host.name[m])] for m in members], "annotation", best[2], 1)


def _operator_period(trace: Trace, roles: npt.NDArray[np.int8]) -> _Found | None:
    """Take the shortest period of top-level operators that the main thread repeats at least three times."""
    host = trace.host
    rows = _main_rows(host, roles, HostKind.OP)
    if len(rows) < _FEW_OPERATORS:
        return None
    reach = np.maximum.accumulate(host.end[rows])
    top = rows[np.append([True], host.start[rows[1:]] >= reach[:-1])]
    names = host.name[top].astype(np.int64)
    period = _period(names)
    if period is None:
        return None
    gaps = np.append([0], host.start[top[1:]] - host.end[top[:-1]])
    phase = max(range(period), key=lambda p: (float(np.median(gaps[p::period][1:] if p == 0 else gaps[p::period])), -p))
    marks = np.arange(phase, len(top), period)
    same = [i for i, m in enumerate(marks) if names[m] == names[marks[len(marks) // 2]]]
    marks = marks[same[0] : same[-1] + 1]
    if len(marks) < _REPETITIONS:
        return None
    start = host.start[top[marks]]
    end = np.append(start[1:], host.end[top[-1]])
    name = trace.names[int(names[marks[0]])]
    return _Found(start, end, [f"period {i}" for i in range(len(marks))], "operator_period", name, 1)


def _period(names: Ints) -> int | None:
    """Return the shortest period p, repeated three times, with 90 % of the sequence equal to itself shifted by p."""
    names = names[:_MOST_OPERATORS]
    candidates: Counter[int] = Counter()
    codes, counts = np.unique(names, return_counts=True)
    for code in codes[counts >= _REPETITIONS][:_MOST_NAMES]:
        steps = np.diff(np.flatnonzero(names == code))
        values, often = np.unique(steps, return_counts=True)
        candidates.update(dict(zip(values.tolist(), often.tolist(), strict=True)))
    likely = sorted(
        {p for p, _ in candidates.most_common(_MOST_PERIODS) if _SHORTEST_PERIOD <= p <= len(names) // _REPETITIONS}
    )
    for period in likely:
        if np.mean(names[period:] == names[:-period]) >= _EQUAL_SHARE:
            return period
    return None


def _with_validation(trace: Trace, found: _Found) -> Mask:
    """Mark training steps that contain a validation: from our recorder's metadata or Lightning's rows.

    If every step contains one, it belongs to the steps (or they are validation batches), and none is marked.
    """
    recorded = trace.header.get("hpuprof")
    numbers = recorded.get("steps_with_validation") if isinstance(recorded, dict) else None
    labels = {f"ProfilerStep#{number}" for number in numbers} if isinstance(numbers, list) else set()
    marked = np.array([label in labels for label in found.labels], dtype=bool)
    rows = _rows(trace, np.array([bool(_LIGHTNING_EVAL.search(n)) for n in trace.names], dtype=bool))
    begin = trace.host.start[rows]
    marked |= np.searchsorted(begin, found.end) > np.searchsorted(begin, found.start)
    return np.zeros(len(marked), dtype=bool) if marked.all() else marked


def _classify(
    found: _Found, wall: Ints, compiling: Intervals, setting_up: Intervals, window_kind: str, validating: Mask
) -> tuple[list[str], bool]:
    """Return why each step is left out, and whether all had a reason. `wall`: the time that each took, ns."""
    count = len(found.start)
    excluded = [""] * count
    compile_ns, setting_up_ns = (measure(what, found.start, found.end) for what in (compiling, setting_up))
    for i in range(count):
        if compile_ns[i] > _COMPILE_SHARE * max(1, wall[i]):
            excluded[i] = "compiling"
        elif setting_up_ns[i] > _COMPILE_SHARE * max(1, wall[i]):
            excluded[i] = "warm-up"
        elif validating[i]:
            excluded[i] = "validation"
    _mark_borders(found, excluded, window_kind)
    _mark_warm_up(wall, excluded)
    _mark_outliers(wall, excluded)
    untypical = all(excluded)
    if untypical:
        # A typical number of an untypical step beats none; the report says that no step was typical.
        other = ("compiling", "validation")
        keep = [i for i, reason in enumerate(excluded) if reason not in other] or list(range(count))
        for i in keep:
            excluded[i] = ""
    return excluded, untypical


def _mark_borders(found: _Found, excluded: list[str], window_kind: str) -> None:
    """Mark the first and the last step where the recording distorts them."""
    count = len(excluded)
    if window_kind:
        # Our recorder warms up, ends with a whole step, and drains a synchronous window. Work in flight at the start of
        # an asynchronous one left no rows, so its first step looks too idle.
        if window_kind != "sync" and count >= 3 and not excluded[0]:
            excluded[0] = "first"
        return
    if count >= 2 and found.open_ends and not excluded[-1]:
        excluded[-1] = "last"
    if count >= 4 and not excluded[0]:
        excluded[0] = "first"
    if count >= 5 and not excluded[-1]:
        excluded[-1] = "last"


def _mark_warm_up(wall: Ints, excluded: list[str]) -> None:
    """Mark leading steps that take much longer than the median of the later ones."""
    open_steps = [i for i, reason in enumerate(excluded) if not reason]
    lengths = wall[open_steps]
    for i in range(min(_WARM_UP_STEPS, len(open_steps) - 3)):
        rest = lengths[i + 1 :]
        middle = np.median(rest)
        if lengths[i] <= _WARM_UP_RATIO * middle or np.median(np.abs(rest - middle)) > _EVEN_SHARE * middle:
            return
        excluded[open_steps[i]] = "warm-up"


def _mark_outliers(wall: Ints, excluded: list[str]) -> None:
    open_steps = [i for i, reason in enumerate(excluded) if not reason]
    if len(open_steps) < 4:
        return
    values = wall[open_steps].astype(np.float64)
    middle = float(np.median(values))
    mad = _SCALE_OF_MAD * float(np.median(np.abs(values - middle)))
    for i in open_steps:
        distance = abs(float(wall[i]) - middle)
        if distance > max(_OUTLIER_MADS * mad, _OUTLIER_SHARE * middle):
            excluded[i] = "outlier"


def compile_intervals(trace: Trace) -> Intervals:
    """Return when anything was compiled, on any thread."""
    return _when(trace, Activity.COMPILE)


def _when(trace: Trace, activity: Activity) -> Intervals:
    rows = trace.host.activity == activity
    return union(trace.host.start[rows], trace.host.end[rows])
