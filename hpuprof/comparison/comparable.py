"""Pairs comparable recordings of two reports (stage, action, window kind, ranks) and says what limits them."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from hpuprof.analysis.idle import MAX_ROWS as MAX_IDLE_ROWS
from hpuprof.analysis.operators import MAX_ROWS
from hpuprof.analysis.step_groups import SLOW, period
from hpuprof.comparison.noise import MIN_STEPS, Estimate, Sample, Turns
from hpuprof.errors import InsufficientDataError
from hpuprof.model.arrays import Floats
from hpuprof.model.step_rows import left_out_of_loop
from hpuprof.model.tables import FileRow, Row, StepRow
from hpuprof.ranks.matching import ranges
from hpuprof.report.model import Report, ReportData
from hpuprof.report.recordings import (
    RecordingKind,
    answered_for,
    kind_of,
    lead_recording,
    recording_kinds,
    windows_named,
)

_DIFFERENCES = (
    ("device families", "family", "kernel and engine names differ, only times are comparable"),
    ("devices", "device_name", "the change includes the difference between the devices"),
    ("numbers of ranks", "world_size", "work per rank and communication may differ"),
    ("step sources", "step_source", "steps may have other boundaries"),
)
_LONGEST = {"operators": MAX_ROWS, "kernels": MAX_ROWS, "gap_operators": MAX_IDLE_ROWS}


@dataclass(frozen=True, eq=False)
class Population:
    """Some steps of one side: its typical ones, or all that recur."""

    steps: list[StepRow]
    _columns: dict[str, Floats | None] = field(default_factory=dict, repr=False)

    @cached_property
    def sample(self) -> Sample:
        """The steps; those of all ranks at one position of a window are not independent samples."""
        positions = [(s.window, s.step) for s in self.steps]
        index = {p: i for i, p in enumerate(sorted(set(positions)))}
        return Sample(
            cluster=np.array([index[p] for p in positions], dtype=np.int64),
            rank=np.array([s.rank for s in self.steps], dtype=np.int64),
            clusters=len(index),
            turns=self._turns(index),
        )

    def _turns(self, index: Mapping[tuple[str, int], int]) -> tuple[Turns, ...]:
        """Return the positions at which every n-th step is slow or of another kind, seen three times or more.

        `index`: number of each window and step.
        """
        windows: dict[str, list[int]] = {}
        for window, step in index:
            windows.setdefault(window, []).append(step)
        label: dict[tuple[str, int], str] = {}
        for s in self.steps:
            if not s.used and label.get((s.window, s.step)) != SLOW:
                label[s.window, s.step] = SLOW if s.slow else s.kind
        out = []
        for of in sorted(set(label.values())):
            members = sorted(at for at in label if label[at] == of)
            every = {
                period([step for w, step in members if w == window], min(steps), max(steps))
                for window, steps in windows.items()
            }
            if len(members) >= MIN_STEPS and len(every) == 1 and (turn := every.pop()) is not None:
                out.append(Turns(np.array([index[at] for at in members], dtype=np.int64), turn))
        return tuple(out)

    def column(self, name: str) -> Floats | None:
        """Return a column of the steps; None when a step does not know its value."""
        if name not in self._columns:
            values = [getattr(s, name) for s in self.steps]
            self._columns[name] = None if any(v is None for v in values) else np.array(values, dtype=np.float64)
        return self._columns[name]

    @cached_property
    def walls(self) -> Floats:
        """Lengths of the steps [ns]."""
        return np.array([s.wall_ns for s in self.steps], dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Group:
    """The recordings of one side that are compared, all of one kind."""

    data: ReportData
    files: tuple[FileRow, ...]
    whole: bool  # whether the report's own metrics cover exactly these recordings
    _tables: dict[str, list[Any]] = field(default_factory=dict, repr=False)

    @cached_property
    def members(self) -> frozenset[tuple[int, str, str, str]]:
        """Who the files are."""
        return frozenset(f.recording for f in self.files)

    def rows(self, table: str) -> list[Any]:
        """Return the rows of a table that belong to these recordings."""
        if table not in self._tables:
            rows = getattr(self.data, table, None) or []
            if rows and not isinstance(rows[0], Row):  # of all ranks together
                self._tables[table] = list(rows) if self.whole else []
            else:
                self._tables[table] = [r for r in rows if r.recording in self.members]
        return self._tables[table]

    @cached_property
    def steady(self) -> Population:
        """The steps that recur: what means, percentiles and shares are over."""
        return Population([s for s in self.rows("steps") if s.steady])

    @cached_property
    def typical(self) -> Population:
        """The typical steps: what medians are over."""
        return Population([s for s in self.rows("steps") if s.used])

    @property
    def steps(self) -> list[StepRow]:
        """The steady steps."""
        return self.steady.steps

    @cached_property
    def left_out(self) -> dict[str, float]:
        """What the steps left out of the loop would add to its time, by reason: shares of the steady steps' time."""
        of: dict[tuple[int, str, str, str], list[StepRow]] = {}
        for s in self.rows("steps"):
            of.setdefault(s.recording, []).append(s)
        found: dict[str, float] = {}
        for steps in of.values():
            for s in left_out_of_loop(steps):
                reason = "seen once" if s.standing == "once" else s.excluded
                found[reason] = found.get(reason, 0.0) + max(0, s.above_ns or 0)
        whole = float(self.walls.sum())
        return {reason: ns / whole for reason, ns in sorted(found.items()) if whole}

    @cached_property
    def steps_of(self) -> dict[tuple[int, str, str, str], int]:
        """Steady steps of each recording."""
        counts = dict.fromkeys(sorted(self.members), 0)
        for s in self.steps:
            counts[s.recording] += 1
        return counts

    @cached_property
    def ranks(self) -> frozenset[int]:
        """Ranks present."""
        return frozenset(f.rank for f in self.files)

    @property
    def sample(self) -> Sample:
        """The steady steps."""
        return self.steady.sample

    def column(self, name: str) -> Floats | None:
        """Return a column of the steady steps; None when a step does not know its value."""
        return self.steady.column(name)

    @property
    def walls(self) -> Floats:
        """Lengths of the steady steps [ns]."""
        return self.steady.walls

    @cached_property
    def idle(self) -> dict[str, Floats]:
        """Idle time by cause for each steady step [ns]; empty when the device was not traced."""
        if not self.steps or self.column("device_idle_ns") is None:
            return {}
        at = {(*s.recording, s.step): i for i, s in enumerate(self.steps)}
        out: dict[str, Floats] = {}
        for row in self.rows("gap_causes"):
            i = at.get((*row.recording, row.step))
            if i is not None:
                out.setdefault(row.cause, np.zeros(len(self.steps)))[i] += row.idle_ns
        return dict(sorted(out.items()))

    def idle_of(self, cause: str) -> Floats | None:
        """Return idle time of one cause for each steady step [ns]: 0 if there was none, None without a device."""
        if self.column("device_idle_ns") is None:
            return None
        return self.idle.get(cause, np.zeros(len(self.steps)))

    def mean(self, column: str) -> Estimate:
        """Estimate the mean of a column; unknown when a step does not know it."""
        return self._mean(self.column(column))

    def idle_mean(self, cause: str) -> Estimate:
        """Estimate the mean idle time of one cause; unknown when the device was not traced."""
        return self._mean(self.idle_of(cause))

    def _mean(self, values: Floats | None) -> Estimate:
        return Estimate(None) if values is None else self.sample.mean(values)

    def cut(self, what: str) -> bool:
        """Tell whether a table is as long as it may get, so that smaller rows may be missing."""
        longest = max(Counter(r.recording for r in self.rows(what) if isinstance(r, Row)).values(), default=0)
        return longest >= _LONGEST.get(what, sys.maxsize)


@dataclass(frozen=True)
class Pair:
    """Recordings of one kind, on both sides."""

    kind: RecordingKind
    a: Group
    b: Group


def pair_up(a: Report, b: Report) -> tuple[list[Pair], list[str]]:
    """Return the comparable kinds of recordings, the most important first, and cautions.

    Raises InsufficientDataError when the two have no stage and action in common, or no windows of one kind.
    """
    cautions = []
    of_a, of_b = recording_kinds(a.data.ranks), recording_kinds(b.data.ranks)
    twins = [(kind, kind) for kind in of_a if kind in of_b]
    if not twins and len(of_a) == len(of_b) == 1 and not (any(of_a[0]) and any(of_b[0])):
        twins = [(of_a[0], of_b[0])]
        which = "B" if any(of_a[0]) else "A"
        cautions.append(f"{which} does not name its stage; it is compared with {_said(*of_a, *of_b)}.")
    if not twins:
        raise InsufficientDataError(
            f"nothing to compare: A has {_list(of_a)}, B has {_list(of_b)}",
            hint="compare recordings of the same stage and action",
        )
    left_out = [p for p in of_a if p not in of_b] + [p for p in of_b if p not in of_a]
    if left_out and twins[0][0] == twins[0][1]:
        cautions.append(f"Only on one side, and not compared: {_list(left_out)}.")
    pairs = []
    refused = []
    for of_both in twins:
        said = _said(*of_both)
        (files_a, kind_a), (files_b, kind_b) = _windows(a.data, b.data, of_both)
        if {kind_a, kind_b} == {"sync", "async"}:
            refused.append(
                f"{said}: A holds {kind_a}hronous windows only, B {kind_b}hronous ones, "
                "and draining the device changes every time"
            )
            continue
        if kind_a != kind_b:
            cautions.append(
                f"A's windows are {kind_a or 'of unknown kind'}, B's {kind_b or 'of unknown kind'}: "
                "times may differ because of how they were recorded."
            )
        kept_a, kept_b, caution = _ranks(files_a, files_b)
        cautions += [caution] if caution else []
        group_a, group_b = (
            Group(data, tuple(kept), kind == _spoken_of(data) and len(kept) == len(files))
            for data, kept, files, kind in zip(
                (a.data, b.data), (kept_a, kept_b), (files_a, files_b), of_both, strict=True
            )
        )
        if not group_a.steps or not group_b.steps:
            refused.append(f"{said}: {'A' if not group_a.steps else 'B'} has no steady steps")
            continue
        pairs.append(Pair(next((kind for kind in of_both if any(kind)), of_both[1]), group_a, group_b))
    if not pairs:
        raise InsufficientDataError(
            f"nothing to compare: {refused[0]}",
            hint="record both runs in the same way; `hpuprof inspect` shows windows and steps",
        )
    cautions += [f"Not compared: {r}." for r in refused]
    return pairs, [*cautions, *_differences(pairs[0])]


def _spoken_of(data: ReportData) -> RecordingKind | None:
    """Return the kind of recording of a report's headline."""
    lead = lead_recording(data)
    return kind_of(lead) if lead else None


def _list(of: Sequence[RecordingKind]) -> str:
    return ", ".join(_said(kind) for kind in of)


def _said(*of: RecordingKind) -> str:
    return next((str(kind) for kind in of if any(kind)), "unnamed steps")


def _windows(
    a: ReportData, b: ReportData, kinds: tuple[RecordingKind, RecordingKind]
) -> tuple[tuple[list[FileRow], str], tuple[list[FileRow], str]]:
    """Return the files to compare on both sides, and of which kind of window they are.

    Asynchronous windows where both sides have some, else those of another kind that both have, else what each has.
    """
    sides = [
        [f for f in data.files if kind_of(f) == kind and answered_for(data, f)]
        for data, kind in zip((a, b), kinds, strict=True)
    ]
    of = [{f.window_kind or "" for f in files} for files in sides]
    both = next((kind for kind in ("async", "", "sync") if all(kind in mine for mine in of)), None)
    if both is not None and both != "async":
        (files_a, files_b) = ([f for f in files if (f.window_kind or "") == both] for files in sides)
        return (files_a, both), (files_b, both)
    first, second = (_preferred(files) for files in sides)
    return first, second


def _preferred(files: list[FileRow]) -> tuple[list[FileRow], str]:
    """Return the files of one side, asynchronous windows before synchronous ones, and which of the two they are."""
    if any(f.window_kind == "async" for f in files):
        files = [f for f in files if f.window_kind != "sync"]
    kinds = {f.window_kind or "" for f in files}
    return files, kinds.pop() if len(kinds) == 1 else "async" if "async" in kinds else ""


def _ranks(a: list[FileRow], b: list[FileRow]) -> tuple[list[FileRow], list[FileRow], str]:
    in_a, in_b = {f.rank for f in a}, {f.rank for f in b}
    if in_a == in_b:
        return a, b, ""
    world_a, world_b = (max((f.world_size or 0 for f in files), default=0) for files in (a, b))
    both = in_a & in_b
    if world_a and world_a == world_b and both:
        return (
            [f for f in a if f.rank in both],
            [f for f in b if f.rank in both],
            f"Of {world_a} ranks, A has {len(in_a)} and B {len(in_b)}; the {len(both)} in both are compared.",
        )
    return a, b, f"A has {_who(a)}, B {_who(b)}: numbers are means per rank, and work per rank may differ."


def _who(files: list[FileRow]) -> str:
    """Name the ranks, and the size of their job where the traces name it."""
    ranks = sorted({f.rank for f in files})
    sizes = sorted({f.world_size for f in files if f.world_size})
    named = f"rank{'s' * (len(ranks) > 1)} {ranges(ranks)}"
    return f"{named} of {' and '.join(map(str, sizes))}" if sizes else named


def _differences(pair: Pair) -> list[str]:
    """Return how the runs differ apart from the measurements."""
    out = []
    for label, attribute, what in _DIFFERENCES:
        of_a, of_b = (
            " + ".join(sorted({str(getattr(f, attribute)) for f in g.files if getattr(f, attribute)})) or "none named"
            for g in (pair.a, pair.b)
        )
        named_above = attribute == "world_size" and pair.a.ranks != pair.b.ranks
        if of_a != of_b and not named_above:
            out.append(f"The {label} differ ({of_a}; {of_b}): {what}.")
    if pair.a.data.hpuprof_version != pair.b.data.hpuprof_version:
        out.append(
            f"The reports were made by hpuprof {pair.a.data.hpuprof_version} and {pair.b.data.hpuprof_version}: "
            "definitions may differ."
        )
    for side, group in (("A", pair.a), ("B", pair.b)):
        if group.whole and (rows := group.data.windows):
            others = ", ".join(windows_named(row.windows) for row in rows[1:])
            out.append(f"{side} is {windows_named(rows[0].windows)}; other work, not compared: {others}.")
        if group.sample.clusters < MIN_STEPS:
            count = group.sample.clusters
            out.append(
                f"{side} has {count} steady step{'s' * (count != 1)}: "
                f"noise cannot be estimated below {MIN_STEPS}, so step times get no verdict."
            )
        if group.whole and group.data.headline.bound == "unknown":
            out.append(f"{side}: {group.data.headline.sentence}")
    unknown = [any(s.excluded and not s.standing for s in g.rows("steps")) for g in (pair.a, pair.b)]
    if unknown[0] != unknown[1]:
        out.append(
            f"{'A' if unknown[0] else 'B'} is of a version whose means leave out slow steps that recur: analyze "
            "its traces again."
        )
    traced = [g.column("device_busy_ns") is not None for g in (pair.a, pair.b)]
    if traced[0] != traced[1]:
        out.append(f"The device was traced in {'A' if traced[0] else 'B'} only: its time is not compared.")
    return out
