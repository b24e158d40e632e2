"""Which steps are of one kind: those that launch about the same. Owns descriptions, clusters and names of kinds.

What a step is for (training, updating, validating, compiling, capturing) comes first; then its annotation, the
operators, launches and device rows, and last the device work launched. Lengths of steps play no part: the same work
may take longer, and different work equally long.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.analysis.activations import launch_calls
from hpuprof.analysis.engine_markers import phase_of
from hpuprof.analysis.forest import Nesting
from hpuprof.analysis.step_search import DIGITS, LIGHTNING_EVAL, LaunchedWork, Windows
from hpuprof.analysis.threads import backward_names
from hpuprof.analysis.window import ONCE
from hpuprof.model.arrays import Floats, Ints, Mask, kinds_of, median
from hpuprof.model.schema import Activity
from hpuprof.model.tables import StepKindRow
from hpuprof.model.trace import Trace

CAPTURE, COMPILING, VALIDATION = "graph capture", "compiling", "step with validation"
SPECIAL = (CAPTURE, COMPILING, VALIDATION)
"""Kinds that are no typical steps of a run."""
TRAINING, ACCUMULATING, UPDATING = "training step", "accumulating step", "update step"
_COUNTS_DIFFER = 0.2
"""Share by which counts of operators, launches and rows differ within a kind. By judgment: logging adds a few, an
optimizer, a head or another phase more."""
_FEW = 4
"""Operators, launches or rows that never tell kinds apart: a log, a check."""
_WORK_DIFFERS = 2.0
"""Ratio of device work between neighbors in size that parts kinds. By judgment: lengths of sequences and the
device's clock vary less from one step to the next larger one, a prefill launches ten times a decode's work."""
_NOISE = 0.05
"""Of device work, by which equal work seems to differ. By judgment: clocks and caches change kernels by less."""
_RECURS = 2
_MOST_CELLS = 20_000_000
"""Counts of operators by step and name; beyond, to bound memory, operators of all names count together."""
_MOST_KINDS = 16
"""Of one purpose, to bound time; further steps join the nearest kind."""


class StepKind(Struct, frozen=True, eq=False):
    """One kind of step; `steps`, `typical` and `whole` are positions of its steps, ascending."""

    name: str
    steps: Ints
    typical: Ints  # those that enter medians
    whole: Ints  # those that lost no device rows
    special: bool  # compiling, capturing or validating

    @property
    def shown(self) -> Ints:
        """Its typical steps; the whole ones where none is, then all."""
        return next((some for some in (self.typical, self.whole) if len(some)), self.steps)


class Launched(Struct, frozen=True, eq=False):
    """What each step launches. Arrays have shape `(steps,)`, `operators` `(steps, names)`."""

    operators: Ints  # top-level operators by name, on any thread
    launches: Ints
    graph_launches: Ints
    rows: Ints  # device rows launched, 0 where launches are unknown
    work_ns: Ints  # their device work, communication excluded
    trains: Mask  # holds rows of backward or of an optimizer
    works: Mask  # any device row begins in it

    @property
    def on_host(self) -> Launched:
        """What the host shows of them."""
        none = np.zeros_like(self.rows)
        return replace(self, rows=none, work_ns=none)

    @property
    def empty(self) -> Mask:
        """Steps in which nothing runs or is launched where others hold some, as a marker behind the last step is."""
        holds = self.operators.any(axis=1) | self.totals.any(axis=1)
        found: Mask = ~(self.works | holds) & holds.any()
        return found

    @property
    def totals(self) -> Ints:
        """Counts that are compared one by one, shape `(steps, 3)`."""
        return np.column_stack([self.launches, self.graph_launches, self.rows])


def describe(trace: Trace, nesting: Nesting, work: LaunchedWork, windows: Windows) -> Launched:
    """Count what each step launches."""
    host, count = trace.host, len(windows)
    top = nesting.rows.compress(nesting.parent < 0)
    step = step_at(windows, host.start.take(top))
    top, step = top.compress(step >= 0), step.compress(step >= 0)
    plain: dict[str, int] = {}
    codes = [plain.setdefault(DIGITS.sub("#", n), len(plain)) for n in trace.names]
    code = np.array(codes, dtype=np.int64)[host.name[top]]
    seen, _, column = kinds_of(code)
    if count * len(seen) > _MOST_CELLS:
        seen, column = seen[:1], np.zeros(len(top), dtype=np.int64)
    operators = np.bincount(step * len(seen) + column, minlength=count * len(seen)).reshape(count, len(seen))
    calls = launch_calls(trace)
    replays = calls[host.activity[calls] == Activity.GRAPH_LAUNCH]
    trains = backward_names(trace).take(host.name)
    trains |= host.activity == Activity.OPTIMIZER
    none = np.zeros(count, dtype=np.int64)
    return Launched(
        operators=operators,
        launches=counted(windows, host.start[calls]),
        graph_launches=counted(windows, host.start[replays]),
        rows=work.rows_in(windows.start, windows.end) if work.known else none,
        work_ns=work.own_in(windows.start, windows.end) if work.known else none,
        trains=counted(windows, host.start.compress(trains)) > 0,
        works=counted(windows, trace.device.start) > 0,
    )


def step_at(windows: Windows, when: Ints) -> Ints:
    """Return the step at each instant, -1 for none."""
    at = np.searchsorted(windows.start, when, side="right") - 1
    return np.where((at >= 0) & (when < windows.end[np.maximum(at, 0)]), at, -1)


def counted(windows: Windows, when: Ints) -> Ints:
    """Count instants (ascending) in each step."""
    count: Ints = np.searchsorted(when, windows.end) - np.searchsorted(when, windows.start)
    return count


def purposes(trace: Trace, windows: Windows, launched: Launched, special: dict[str, Mask]) -> list[str]:
    """Return what each step is for, "" if unknown. `special`: masks by kind of `SPECIAL`, the first one counts."""
    updates = _updates(trace, windows, launched)
    evaluates = LIGHTNING_EVAL.search(windows.name)
    plain = f"{evaluates.group(1)} step" if evaluates else ""
    # Operators need not show what the recorder says.
    trains = launched.trains if updates is None or launched.trains.any() else np.ones(len(windows), dtype=bool)
    out = []
    for i in range(len(windows)):
        training = (UPDATING if updates[i] else ACCUMULATING) if updates is not None else TRAINING
        usual = training if trains[i] else plain or phase_of(windows.labels[i]) or ""
        out.append(next((kind for kind in SPECIAL if special[kind][i]), usual))
    return out


def _updates(trace: Trace, windows: Windows, launched: Launched) -> Mask | None:
    """Mark the steps in which the optimizer runs; None if it runs in each, or nothing shows.

    From our recorder's metadata. Else optimizers show as annotations, never in two steps in a row, and at least two
    other steps hold a backward pass; a step without update now and then is one that a gradient scaler skipped.
    """
    recorded = trace.header.get("hpuprof")
    if isinstance(recorded, dict) and isinstance(numbers := recorded.get("steps_with_update"), list):
        every = recorded.get("accumulate_grad_batches")
        labels = {f"ProfilerStep#{number}" for number in numbers}
        labeled = np.array([label in labels for label in windows.labels], dtype=bool)
        return labeled if isinstance(every, int) and every > 1 else None
    host = trace.host
    runs = trace.named(lambda name: "zero_grad" not in name)[host.name]
    updates = counted(windows, host.start[(host.activity == Activity.OPTIMIZER) & runs]) > 0
    between = launched.trains & ~updates
    often = np.diff(np.flatnonzero(updates))
    return updates if updates.any() and int(between.sum()) >= 2 and (often >= 2).all() else None


def steps_per_update(trace: Trace, kinds: list[str]) -> int | None:
    """Return how many steps make one update of the optimizer; None where gradients do not accumulate, or unknown.

    As our recorder wrote it, else from the kind of each step.
    """
    if not any(kind.startswith((UPDATING, ACCUMULATING)) for kind in kinds):
        return None
    recorded = trace.header.get("hpuprof")
    every = recorded.get("accumulate_grad_batches") if isinstance(recorded, dict) else None
    if isinstance(every, int) and 0 < every < 2**31:
        return every
    often = np.diff(np.flatnonzero([kind.startswith(UPDATING) for kind in kinds]))
    return int(median(often)) if len(often) else None


def clusters(launched: Launched, purpose: list[str], windows: Windows, lost: Mask) -> tuple[list[Ints], set[int]]:
    """Return the positions of the steps of each kind, and the steps that the recording cut.

    Kinds differ in purpose, annotation, counts or device work, and steps without any from those with some. The first
    or last step of a recording may be cut: alone of its kind, and launching less than a kind that recurs (or than any,
    where nothing marks the step's end), it is one of those. A step that `lost` device rows is of the kind that the host
    shows.
    """
    groups: dict[tuple[str, str, bool], list[int]] = {}
    empty = launched.empty
    for i, (what, label) in enumerate(zip(purpose, windows.labels, strict=True)):
        groups.setdefault((what, "" if what in SPECIAL else DIGITS.sub("#", label), bool(empty[i])), []).append(i)
    found: list[Ints] = []
    for (what, *_), members in groups.items():
        steps = np.array(members, dtype=np.int64)
        if what in SPECIAL:
            found.append(steps)
            continue
        launched = _as_whole(launched, steps[lost[steps]], steps[~lost[steps]])
        for alike in _by_counts(launched, steps):
            found += _by_work(launched, alike)
    cut = set()
    for border in {0, len(windows) - 1}:
        if (
            purpose[border] not in SPECIAL
            and (near := _cut_from(launched, found, border, purpose, windows)) is not None
        ):
            found = [steps for steps in found if steps[0] != border and steps is not near]
            found.append(np.sort(np.append(near, border)))
            cut.add(border)
    return sorted(found, key=lambda steps: int(steps[0])), cut


def _as_whole(launched: Launched, lost: Ints, whole: Ints) -> Launched:
    """Give steps that lost device rows those of the whole step that is most alike on the host, and nearest in time."""
    if not len(lost) or not len(whole):
        return launched
    names, nearest = launched.operators.shape[1], np.empty_like(lost)
    counts = np.column_stack([launched.operators, launched.launches, launched.graph_launches])
    known, of_whole = np.unique(counts[whole], axis=0, return_inverse=True)
    asked, of_lost = np.unique(counts[lost], axis=0, return_inverse=True)
    for i, row in enumerate(asked):
        like = whole[of_whole.reshape(-1) == int(np.argmin(_distances(known, row, names)))]
        mine = of_lost.reshape(-1) == i
        at = np.searchsorted((like[1:] + like[:-1]) // 2, lost[mine])
        nearest[mine] = like[at]
    rows, work = launched.rows.copy(), launched.work_ns.copy()
    rows[lost], work[lost] = rows[nearest], work[nearest]
    return replace(launched, rows=rows, work_ns=work)


def _cut_from(launched: Launched, found: list[Ints], border: int, purpose: list[str], windows: Windows) -> Ints | None:
    """Return the kind that a step at the border was cut from: the nearest in counts; None if it is whole."""
    if not any(len(steps) == 1 and steps[0] == border for steps in found):
        return None
    size = np.column_stack([launched.totals, launched.work_ns])
    if not size.any():
        size = launched.operators.sum(axis=1, keepdims=True)
    least = 1 if border and windows.open_ends else _RECURS
    others = [
        steps for steps in found if steps[0] != border and len(steps) >= least and purpose[int(steps[0])] not in SPECIAL
    ]
    larger = [steps for steps in others if (median(size[steps], axis=0) >= (1 - _NOISE) * size[border]).all()]
    counts = np.column_stack([launched.operators, launched.totals])
    middle = np.array([median(counts[steps], axis=0) for steps in larger])
    names = launched.operators.shape[1]
    return larger[int(np.argmin(_distances(middle, counts[border], names)))] if larger else None


def alike_in_work(launched: Launched, some: Ints, others: Ints) -> bool:
    """Whether two sets of steps of one kind launch the same, but for a few calls; False where launches are unknown."""
    size = np.column_stack([launched.totals, launched.work_ns])
    one, other = median(size[some], axis=0), median(size[others], axis=0)
    few = np.append(np.full(launched.totals.shape[1], _FEW), 0)
    return bool(one[-1]) and bool((np.abs(one - other) <= np.maximum(few, _NOISE * np.maximum(one, other))).all())


def kinds_alike(one: StepKindRow, other: StepKindRow) -> bool:
    """Whether kinds of two recordings are one, by launches and device work; operators are not compared."""
    counts = ((row.launches, row.graph_launches) for row in (one, other))
    as_many = all(abs(a - b) <= max(_FEW, _COUNTS_DIFFER * max(a, b)) for a, b in zip(*counts, strict=True))
    work = [row.device_work_ns for row in (one, other) if row.device_work_ns is not None]
    return as_many and (len(work) < 2 or max(work) <= _WORK_DIFFERS * max(1, min(work)))


def _by_counts(launched: Launched, steps: Ints) -> list[Ints]:
    """Part steps whose counts differ. Each distinct row joins or founds one: the most frequent, then the earliest."""
    names = launched.operators.shape[1]
    distinct, first, inverse, often = np.unique(
        np.column_stack([launched.operators[steps], launched.totals[steps]]),
        axis=0,
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    founders = np.empty(0, dtype=np.int64)
    kind = np.empty(len(distinct), dtype=np.int64)
    for i in np.lexsort((first, -often)).tolist():  # the order of names in a file says nothing
        apart = _distances(distinct[founders], distinct[i], names)
        if len(founders) and (apart.min() <= 1.0 or len(founders) >= _MOST_KINDS):
            kind[i] = int(np.argmin(apart))
        else:
            kind[i] = len(founders)
            founders = np.append(founders, i)
    of_step = kind[inverse.reshape(-1)]
    return [steps[of_step == k] for k in range(len(founders))]


def _distances(others: Ints | Floats, one: Ints, names: int) -> Floats:
    """Return how far rows of counts are from one of them: 1 is the limit of a kind, shape `(others,)`."""
    moved = np.abs(others - one)
    size = np.maximum(others, one)
    ops = moved[:, :names].sum(axis=1) / np.maximum(_FEW, _COUNTS_DIFFER * size[:, :names].sum(axis=1))
    totals = moved[:, names:] / np.maximum(_FEW, _COUNTS_DIFFER * size[:, names:])
    apart: Floats = np.maximum(ops, totals.max(axis=1, initial=0.0))
    return apart


def _by_work(launched: Launched, steps: Ints) -> list[Ints]:
    """Part steps where the device work, sorted by size, leaps; the lengths of a few rows tell nothing."""
    if launched.rows[steps].max() <= _FEW:
        return [steps]
    order = steps[np.argsort(launched.work_ns[steps], kind="stable")]
    sizes = np.maximum(launched.work_ns[order], 1)
    leaps = np.flatnonzero(sizes[1:] > _WORK_DIFFERS * sizes[:-1]) + 1
    return [np.sort(part) for part in np.split(order, leaps)]


def names_of(found: list[Ints], purpose: list[str], windows: Windows, work_ns: Ints) -> list[str]:
    """Name each kind by its purpose; a rarer kind of the same purpose, or of none, by a step of median work."""
    whats = [Counter(purpose[i] for i in steps.tolist()).most_common(1)[0][0] for steps in found]
    largest = {what: max((len(s), -i) for i, s in enumerate(found) if whats[i] == what) for what in whats}
    out: list[str] = []
    for i, (steps, what) in enumerate(zip(found, whats, strict=True)):
        middle = steps[np.argsort(work_ns[steps], kind="stable")[(len(steps) - 1) // 2]]
        plain = what and largest[what] == (len(steps), -i)
        name = what if plain else f"{what or 'steps'} like {windows.labels[int(middle)]}"
        out.append(windows.labels[0] if windows.source == ONCE and what not in SPECIAL else name)
    seen: Counter[str] = Counter()
    for i, name in enumerate(out):
        seen[name] += 1
        out[i] = name if seen[name] == 1 else f"{name} ({seen[name]})"
    return out
