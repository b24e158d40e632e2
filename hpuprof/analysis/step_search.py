"""Finds where the steps of a trace lie. Owns the order of evidence; kinds and exclusions come later."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.engine_markers import engine_steps, engine_turns
from hpuprof.analysis.graph_period import graph_steps
from hpuprof.analysis.integrity import without_rows
from hpuprof.analysis.links import Links
from hpuprof.analysis.single_pass import edges
from hpuprof.analysis.window import ONCE
from hpuprof.model.arrays import Ints, Mask, any_of, distinct, median
from hpuprof.model.intervals import Intervals, union
from hpuprof.model.once import once
from hpuprof.model.schema import Activity, DeviceKind, HostKind, Role
from hpuprof.model.trace import HostRows, Trace

LIGHTNING_BATCH = "[pl][profile]run_training_batch"
LIGHTNING_EVAL = re.compile(r"\[Strategy\][\w.]*\.(validation|test|predict)_step$")
DIGITS = re.compile(r"\d+")
_FORWARD = re.compile("forward", re.IGNORECASE)
_PROFILER_STEP = re.compile(r"^ProfilerStep#\d+$")
_NOT_A_STEP = re.compile(
    r"^(?:enumerate\(DataLoader\)|nccl:|gloo:|mpi:|hccl:|ucc:|xccl:|\[pl\]\[module\]|Torch-Compiled|Optimizer\.zero_grad"
    r"|## Call CompiledFxGraph|TorchDynamo |AOTDispatcher |Pregraph bytecode)"
)
"""What frameworks annotate inside steps: loading, collectives, modules, compiled regions (once for each layer)."""
# Limits by judgment; the tests pin the steps of all real traces at hand.
_REPETITIONS = 3
"""A period needs two equal distances to show."""
_REGULAR_SHARE = 0.5
"""Median deviation of an annotation's distances over their median. By judgment: steps vary less, logging more."""
_COVERED_SHARE = 0.5
"""Of the trace; steps that cover less leave most of it unexplained."""
_WORK_SHARE = 0.5
"""Of the device work with a known launch. Markers that launch less leave most of it unexplained."""
_LINKED_SHARE = 0.5
"""Of the device's rows: with fewer known launches, nothing follows from who launched the rest."""
_SELDOM_SHARE = 0.5
"""Of the distances between markers. An annotation in more of them is a part of the step, not one of its own."""
_FEW_ROWS = 4
"""Of so few rows, the longest may well be the work."""
_OWN_WORK_SHARE = 0.1
"""Of the marker's median work. An annotation that launches less (a log, a checkpoint) is no step of its own."""
_MOST_COMPANIONS = 64  # names of annotations tried alongside the markers, the most frequent first, to bound time
_FEW_OPERATORS = 12
"""Three repetitions of the shortest period, four operators: forward, loss, backward, optimizer."""
_SHORTEST_PERIOD = 4
_EQUAL_SHARE = 0.9
"""Of the sequence that equals itself one period on; the rest may be logging or other work at every n-th step."""
_MOST_OPERATORS = 200_000  # searched for a period, to bound time: 200 steps of a thousand top-level operators
_MOST_NAMES = 400  # whose distances are candidate periods, to bound time
_MOST_PERIODS = 64  # candidates tried, the most frequent first, to bound time


class Windows(Struct, frozen=True, eq=False):
    """Steps as half-open windows in ns, disjoint and in order."""

    start: Ints
    end: Ints
    labels: list[str]
    source: str  # as `window.source_of` takes it
    name: str
    open_ends: int = 0  # trailing steps whose end is not the next one's start

    def __len__(self) -> int:
        return len(self.start)

    def ending(self, step: int, until: int) -> Windows:
        """Return them with one that ends earlier [ns]."""
        end = self.end.copy()
        end[step] = until
        return replace(self, end=end)


class LaunchedWork(Struct, frozen=True, eq=False):
    """Device work at the instants of its launches, ascending; markers excluded. Arrays have shape `(linked rows,)`."""

    when: Ints  # start of the launch call [ns]
    own: Ints  # length of the device row [ns]; 0 for communication, whose length is mostly waiting for other ranks
    dur: Ints  # length of the device row [ns]
    lost: Ints  # start of each launch call without rows [ns], ascending; shares of the work count it as a usual one
    known: bool  # most device rows have a known launch

    @staticmethod
    @once
    def of(links: Links) -> LaunchedWork:
        """Sort device rows by launch."""
        trace, device, launched = links.trace, links.trace.device, links.caused
        real = device.kind != DeviceKind.MARKER
        rows = np.flatnonzero(real & (launched >= 0))
        when = trace.host.start.take(launched.take(rows))
        order = np.argsort(when, kind="stable")
        rows, when = rows.take(order), when.take(order)
        dur = device.dur.take(rows)
        own = np.where(device.kind.take(rows) == DeviceKind.COMMUNICATION, 0, dur)
        lost = trace.host.start[without_rows(links)]
        return LaunchedWork(when, own, dur, lost, len(rows) > 0 and len(rows) >= _LINKED_SHARE * int(real.sum()))

    def rows_in(self, low: Ints, high: Ints) -> Ints:
        """Return the number of device rows launched in each window."""
        rows: Ints = np.searchsorted(self.when, high) - np.searchsorted(self.when, low)
        return rows

    def own_in(self, low: Ints, high: Ints) -> Ints:
        """Return the device work launched in each window, communication excluded [ns]."""
        return self._sums(self.own, low, high)

    def all_in(self, low: Ints, high: Ints) -> Ints:
        """Return the device work launched in each window, communication included [ns]."""
        return self._sums(self.dur, low, high)

    def share_in(self, low: Ints, high: Ints) -> float:
        """Return the share of the device work that was launched in these disjoint windows; 1 if that is unknown."""
        return self._share(self.dur, low, high)

    def mostly_in(self, low: Ints, high: Ints) -> bool:
        """Tell whether most of the device work was launched in these disjoint windows; True if that is unknown."""
        return self.share_in(low, high) >= _WORK_SHARE

    def marked(self, low: Ints, high: Ints) -> bool:
        """Tell as `mostly_in` of windows that marks show, whatever one row does that takes longer than all others.

        It says little about where the work is: early ranks wait in a collective until the last one starts to record.
        """
        dominates = (2 * self.dur > self.dur.sum()) & (len(self.dur) > _FEW_ROWS)
        return self._share(np.where(dominates, 0, self.dur), low, high) >= _WORK_SHARE

    def _share(self, values: Ints, low: Ints, high: Ints) -> float:
        total = int(values.sum())
        if not self.known or not total:
            return 1.0
        lost = int((np.searchsorted(self.lost, high) - np.searchsorted(self.lost, low)).sum())
        usual = total / len(values)
        return (int(self._sums(values, low, high).sum()) + usual * lost) / (total + usual * len(self.lost))

    def _sums(self, values: Ints, low: Ints, high: Ints) -> Ints:
        total = np.append([0], np.cumsum(values))
        sums: Ints = total[np.searchsorted(self.when, high)] - total[np.searchsorted(self.when, low)]
        return sums


def find_windows(trace: Trace, roles: npt.NDArray[np.int8], launched: Ints, work: LaunchedWork) -> Windows:
    """Find the steps by the best evidence in the trace.

    In order: the step rows of hpuprof's own recorder; Lightning's training batches, start to start (its `ProfilerStep#`
    rows run from forward to forward, and their numbers repeat); Lightning's evaluation batches, if they themselves
    launch most of the device work; the runs of a server's engine; `ProfilerStep#`; an annotation that repeats; the
    period of the operator sequence, or of graph launches; one pass. What repeats within one pass are layers, not steps.
    Evidence counts if most of the device work was launched inside; markers that were set on purpose count rather than
    one pass even if not.
    """
    evaluating = trace.named(LIGHTNING_EVAL.search)
    training = trace.named(lambda n: n == LIGHTNING_BATCH)
    rows = marker_rows(trace, evaluating)
    # Start to start, batches of a validation within training would hold the training between two validations, too.
    evaluates = work.marked(trace.host.start[rows], trace.host.end[rows])
    marked = [
        # Our recorder's ProfilerStep# rows are whole batches, start to start, including the last.
        *([_profiler_steps(trace)] if trace.header.get("hpuprof") else []),
        _start_to_start(trace, training, "lightning"),
        _start_to_start(trace, evaluating, "lightning") if evaluates else None,
        _of_engine(trace, engine_steps(trace)),
        _profiler_steps(trace),
        _of_engine(trace, engine_turns(trace)),
    ]
    # Shares of empty steps are undefined.
    lasting = [w for w in marked if w is not None and (w.end > w.start).any()]
    for windows in lasting:
        if work.marked(windows.start, windows.end):
            return windows
    passes = _passes(trace, roles)
    for inferred in (
        _repeating_annotation(trace, roles, work, passes),
        _operator_period(trace, roles, work, passes),
        _graph_period(trace, launched, work, passes),
    ):
        if inferred is not None and (inferred.end > inferred.start).any():
            return inferred
    if lasting:
        return lasting[0]
    start, end = edges(trace, roles, launched)
    return Windows(np.array([start], dtype=np.int64), np.array([end], dtype=np.int64), ["one pass"], ONCE, "")


def marker_rows(trace: Trace, wanted: Mask) -> Ints:
    """Return annotations and operators of some names (a mask of `trace.names`)."""
    host = trace.host
    kind_ok = (host.kind == HostKind.ANNOTATION) | (host.kind == HostKind.OP)
    return np.flatnonzero(wanted.take(host.name) & kind_ok if wanted.any() else wanted[:0])


def _start_to_start(trace: Trace, wanted: Mask, source: str) -> Windows | None:
    rows = marker_rows(trace, wanted)
    if not len(rows):
        return None
    host = trace.host
    start = host.start[rows]
    end = np.append(start[1:], host.end[rows[-1]])
    name = trace.names[int(host.name[rows[0]])]
    return Windows(start, end, [f"batch {i}" for i in range(len(rows))], source, name, 1)


def _of_engine(trace: Trace, rows: Ints) -> Windows | None:
    if not len(rows):
        return None
    host = trace.host
    labels = [trace.names[int(code)] for code in host.name[rows]]
    end = np.append(host.start[rows[1:]], host.end[rows[-1]])
    return Windows(host.start[rows], end, labels, "engine", DIGITS.sub("#", labels[0]), 1)


def _profiler_steps(trace: Trace) -> Windows | None:
    rows = marker_rows(trace, trace.named(_PROFILER_STEP.match))
    if not len(rows):
        return None
    host = trace.host
    start, end = host.start[rows].copy(), host.end[rows].copy()
    end[:-1] = np.minimum(end[:-1], start[1:])
    keep = end > start
    labels = [trace.names[int(n)] for n in host.name[rows[keep]]]
    return Windows(start[keep], end[keep], labels, "profiler_step", "ProfilerStep#")


def _main_rows(trace: Trace, roles: npt.NDArray[np.int8], kind: HostKind) -> Ints:
    return np.flatnonzero((trace.host.kind == kind) & (roles[trace.host.track] == Role.MAIN))


def _repeating_annotation(
    trace: Trace, roles: npt.NDArray[np.int8], work: LaunchedWork, passes: Intervals
) -> Windows | None:
    """Take the main thread's repeating annotation (digits ignored) that covers most time, then holds most work.

    Most of the device work is launched inside it. Annotations that stand next to it now and then and launch work of
    their own are steps, too: a prefill among decodes.
    """
    host = trace.host
    groups: dict[str, list[int]] = {}
    for row in _main_rows(trace, roles, HostKind.ANNOTATION).tolist():
        name = trace.names[int(host.name[row])]
        if not _NOT_A_STEP.match(name):
            groups.setdefault(DIGITS.sub("#", name), []).append(row)
    working = _working(trace, groups, work)
    best: tuple[tuple[float, float, int, str], Ints] | None = None
    span = max(1, trace.end_ns)
    for name, members in groups.items():
        rows = np.array(members, dtype=np.int64)
        gaps = np.diff(host.start[rows])
        if len(rows) < _REPETITIONS or not _disjoint(trace, rows) or median(gaps) <= 0:
            continue
        if _of_one_pass(passes, host.start[rows]):
            continue
        regular = float(median(np.abs(gaps - median(gaps))) / median(gaps))
        if regular > _REGULAR_SHARE:
            continue
        marks = _with_companions(trace, rows, working, work)
        start, end = host.start[marks], host.end[marks]
        covered = float(start[-1] - start[0] + median(gaps)) / span
        # An optimizer runs once in each update by its nature; anything else marks steps if it holds their work. Time
        # would count what a run does once, before its first update.
        updates = host.activity[rows[0]] == Activity.OPTIMIZER
        held = np.append(start[1:], end[-1]) if updates else end
        if (covered < _COVERED_SHARE and not (updates and work.known)) or not work.marked(start, held):
            continue
        found = (round(covered, 2), round(work.share_in(start, end), 1), -len(rows), name), marks
        best = max(best, found, key=lambda f: f[0]) if best else found
    if best is None:
        return None
    (_, _, _, name), marks = best
    start = host.start[marks]
    end = np.append(start[1:], host.end[marks[-1]])
    return Windows(start, end, [trace.names[int(host.name[m])] for m in marks], "annotation", name, 1)


def _passes(trace: Trace, roles: npt.NDArray[np.int8]) -> Intervals:
    """Return the main thread's outermost module calls and annotations of a forward pass."""
    host = trace.host
    modules = trace.named(lambda n: n.startswith("nn.Module: "))
    forward = trace.named(_FORWARD.search)
    named = np.where(host.kind == HostKind.PYTHON, modules[host.name], forward[host.name])
    calls = named & ((host.kind == HostKind.PYTHON) | (host.kind == HostKind.ANNOTATION))
    calls &= roles[host.track] == Role.MAIN
    return union(host.start[calls], host.end[calls])


def _of_one_pass(passes: Intervals, marks: Ints) -> bool:
    """Tell whether most marks lie in the same pass as the mark before: then they are layers, not steps."""
    at = np.searchsorted(passes.start, marks, side="right") - 1
    held = (at >= 0) & (marks < np.append(passes.end, 0)[np.maximum(at, 0)])
    return bool(len(passes)) and 2 * int((held[1:] & (at[1:] == at[:-1])).sum()) > len(marks) - 1


def _disjoint(trace: Trace, rows: Ints) -> bool:
    return not (trace.host.end[rows[:-1]] > trace.host.start[rows[1:]]).any()


def _working(trace: Trace, groups: dict[str, list[int]], work: LaunchedWork) -> list[tuple[Ints, float]]:
    """Return annotations that may be steps with others: their rows, and the device work of each, the median [ns]."""
    host, found = trace.host, []
    for members in sorted(groups.values(), key=lambda rows: (-len(rows), rows[0]))[:_MOST_COMPANIONS]:
        rows = np.array(members, dtype=np.int64)
        usual = float(median(work.own_in(host.start[rows], host.end[rows])))
        if work.known and usual and (host.activity[rows] == Activity.NONE).all():
            found.append((rows, usual))
    return found


def _with_companions(trace: Trace, rows: Ints, working: list[tuple[Ints, float]], work: LaunchedWork) -> Ints:
    """Add the annotations that are steps alongside the ones of these rows."""
    start = trace.host.start
    usual = float(median(work.own_in(start[rows], trace.host.end[rows])))
    marks = rows
    for more, its_work in working:
        pauses = distinct(np.searchsorted(start[rows], start[more]))
        between = int(((pauses > 0) & (pauses < len(rows))).sum())
        both = np.sort(np.concatenate([marks, more]))
        seldom = between <= _SELDOM_SHARE * (len(rows) - 1)
        if more[0] != rows[0] and its_work >= _OWN_WORK_SHARE * usual and seldom and _disjoint(trace, both):
            marks = both
    return marks


def _operator_period(
    trace: Trace, roles: npt.NDArray[np.int8], work: LaunchedWork, passes: Intervals
) -> Windows | None:
    """Take the shortest period of top-level operators that the main thread repeats at least three times.

    It launches most of the device work, or covers most of the host's time where launches are unknown: layers of one
    pass are no steps.
    """
    host = trace.host
    rows = _main_rows(trace, roles, HostKind.OP)
    if len(rows) < _FEW_OPERATORS:
        return None
    reach = np.maximum.accumulate(host.end[rows])
    top = rows[np.append([True], host.start[rows[1:]] >= reach[:-1])]
    names = host.name[top].astype(np.int64)
    found = (_marks(host, top, period) for period in _periods(names))
    marks = next((m for m in found if len(m) >= _REPETITIONS and not _of_one_pass(passes, host.start[top[m]])), None)
    if marks is None:
        return None
    if _layers(trace, top, marks, work):
        return None
    start = host.start[top[marks]]
    end = np.append(start[1:], host.end[top[-1]])
    # Where launches are known their work decides; time would count what a run does once, before its steps.
    lasting = int(end[-1] - start[0]) >= _COVERED_SHARE * (int(host.end.max()) - int(host.start[0]))
    if not (work.mostly_in(start, end) if work.known else lasting):
        return None
    name = trace.names[int(names[marks[0]])]
    return Windows(start, end, [f"period {i}" for i in range(len(marks))], "operator_period", name, 1)


def _graph_period(trace: Trace, launched: Ints, work: LaunchedWork, passes: Intervals) -> Windows | None:
    rows, last = graph_steps(trace, launched)
    if not len(rows) or _of_one_pass(passes, trace.host.start[rows]):
        return None
    start = trace.host.start[rows]
    end = np.append(start[1:], last)
    name = trace.names[int(trace.host.name[rows[0]])]
    labels = [f"period {i}" for i in range(len(rows))]
    return Windows(start, end, labels, "graph_period", name, 1) if work.mostly_in(start, end) else None


def _layers(trace: Trace, top: Ints, marks: Ints, work: LaunchedWork) -> bool:
    """Tell whether repeated operators are the layers of one pass: it does what no layer does before and after them.

    An embedding comes before, a head behind; and the host neither copies to or from the device nor waits for it between
    two layers, as steps do with their inputs and results. `top`: outermost operators, `marks`: where a period begins.
    """
    host = trace.host
    apart = int(median(np.diff(marks)))
    first, last = int(marks[0]), min(int(marks[-1]) + apart, len(top))
    own = set(host.name[top[first:last]].tolist())
    launches = work.rows_in(host.start[top], host.end[top]) > 0
    once = launches & ~np.isin(host.name[top], list(own))
    if not work.known or not once[:first].any() or not once[last:].any():
        return False
    low, high = np.searchsorted(host.start, [host.start[top[first]], host.start[top[marks[-1]]]])
    return not any_of(host.activity[low:high], (Activity.SYNC, Activity.COPY_H2D, Activity.COPY_D2H)).any()


def _marks(host: HostRows, top: Ints, period: int) -> Ints:
    """Return where in the top-level operators a period begins: behind its longest pause."""
    names = host.name[top]
    gaps = np.append([0], host.start[top[1:]] - host.end[top[:-1]])
    phase = max(range(period), key=lambda p: (float(median(gaps[p::period][1:] if p == 0 else gaps[p::period])), -p))
    marks = np.arange(phase, len(top), period)
    same = [i for i, m in enumerate(marks) if names[m] == names[marks[len(marks) // 2]]]
    return marks[same[0] : same[-1] + 1]


def _periods(names: Ints) -> Iterator[int]:
    """Yield each period p, the shortest first: repeated three times, 90 % of the sequence equal to itself p on."""
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
            yield period
