"""Laws of the plan: what no edit of a schedule may do, whatever the program."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from builder import TraceBuilder
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import hpuprof
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.intervals import EMPTY
from hpuprof.model.tables import PlanRow
from hpuprof.planning.remedies import REMEDIES
from hpuprof.planning.row_edits import without_work
from hpuprof.planning.situation import Situation, folded
from hpuprof.what_if.change import Change
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.edit import on_lane, scaled_host, scaled_rows
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.play import Sample, play
from hpuprof.what_if.pricing import LEVELS, applied
from hpuprof.what_if.schedule import Schedule
from hpuprof.what_if.step_model import StepModel

STEPS = 4
ROUNDING = 1e-9  # of the step, where sums come in another order
FACTORS = (1.0, 0.75, 0.5, 0.1, 0.0)
COPY = {"call": "cudaMemcpyAsync", "cat": "gpu_memcpy"}


@dataclass(frozen=True)
class Operator:
    """An operator of the host that gives the device some work. Times in µs."""

    kind: str  # mm, add, read, upload
    host: int
    work: int
    lane: int = 7


operators = st.builds(
    Operator,
    kind=st.sampled_from(["mm", "mm", "add", "add", "read", "upload"]),
    host=st.integers(8, 60),
    work=st.integers(1, 80),
    lane=st.sampled_from([7, 7, 7, 20]),
)
lists = st.lists(operators, min_size=1, max_size=12)


@dataclass(frozen=True)
class Training:
    """Steps alike: fetch a batch, run operators, then an optimizer of small kernels."""

    operators: list[Operator]
    load: int = 0  # µs
    launches: int = 0  # of the optimizer

    def written(self, shift: float = 0.0, **header: object) -> TraceBuilder:
        """Record it as a device would run it, in order on each lane."""
        out, at, free = TraceBuilder(**header), shift, dict.fromkeys((7, 20), 0.0)
        for step in range(STEPS):
            begin, mark = at, len(out.events)
            if self.load:
                out.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 1, self.load)
                at += self.load + 2
            for operator in self.operators:
                at = self._run(out, operator, at + 1, free)
            if self.launches:
                out.annotation("Optimizer.step#AdamW.step", at + 1, 12 * self.launches + 2)
                for _ in range(self.launches):
                    at = self._run(out, Operator("add", 11, 2), at + 1, free)
                at += 2
            at += 5
            out.step(step, begin, at - begin)
            out.events.insert(mark, out.events.pop())
        return out

    def _run(self, out: TraceBuilder, op: Operator, at: float, free: dict[int, float]) -> float:
        """Run an operator at an instant; return when the host is through."""
        lane = op.lane if op.kind in ("mm", "add") else 7
        start = max(at + 7, free[lane] + 1)
        free[lane] = end = start + op.work
        if op.kind in ("mm", "add"):
            kernel = "ampere_sgemm_128x64_nn" if op.kind == "mm" else "vectorized_elementwise_kernel"
            out.host(f"aten::{op.kind}", at, op.host)
            out.kernel(kernel, start, op.work, launch=at + 2, call_dur=3, stream=lane)
            return at + op.host
        name, copy = (
            ("item", "DtoH (Device -> Pageable)") if op.kind == "read" else ("copy_", "HtoD (Pageable -> Device)")
        )
        out.host(f"aten::{name}", at, end + 5 - at)
        out.kernel(f"Memcpy {copy}", start, op.work, launch=at + 2, call_dur=end + 3 - (at + 2), stream=lane, **COPY)
        return end + 5


trainings = st.builds(
    Training, operators=lists, load=st.sampled_from([0, 0, 40, 3000]), launches=st.sampled_from([0, 0, 9, 30])
)


def model_of(training: Training) -> LaunchModel:
    with tempfile.TemporaryDirectory() as folder:
        view = RankView.of(training.written().trace(Path(folder)))
    model = LaunchModel.of(view, constants_for(view.trace.family, view.trace.mode, None))
    assert model is not None
    return model


def changes(model: LaunchModel) -> list[Change]:
    """Return what all remedies find, but for graphs, which ask for a verdict."""
    situation = Situation(model)
    return [change for remedy in REMEDIES if remedy.name != "graphs" for change in remedy.find(situation)]


def step_time(schedule: Schedule) -> float:
    """Return the mean step time of a long run, in which a device that lags behind has caught up [ns]."""
    return float(play(schedule, Sample.unchanged(), repeats=40).step_times(schedule.steps).mean())


def some_of(step: Ints, rng: Random) -> Mask:
    """Mark the same ones in every step; `step` is that of each."""
    place = np.arange(len(step)) - np.searchsorted(step, step)
    chosen: Mask = np.array([rng.random() < 0.5 for _ in range(int(place.max()) + 1)])[place]
    return chosen


def rows_of(builder: TraceBuilder) -> list[PlanRow]:
    with tempfile.TemporaryDirectory() as folder:
        return hpuprof.analyze(builder.write(Path(folder) / "t.json"), jobs=1, cache="off").data.plan


@settings(max_examples=30)
@given(trainings)
def test_an_edit_of_nothing_gains_nothing(training):
    model = model_of(training)
    no_calls, no_rows = (np.zeros(len(c), dtype=bool) for c in (model.schedule.calls, model.schedule.rows))
    now = step_time(model.schedule)
    edited = [
        model.without_waits(no_calls, free=True).schedule,
        model.without_host(EMPTY).schedule,
        without_work(model, no_calls).schedule,
        folded(model, np.full(len(no_calls), -1), 0.0).schedule,
        scaled_rows(model.schedule, no_rows, 0.0),
        scaled_host(model.schedule, no_calls, 0.0),
        on_lane(model.schedule, no_rows),
        applied(model, [], 1.0).schedule,
    ]
    assert [step_time(schedule) for schedule in edited] == [now] * len(edited)


@settings(max_examples=30)
@given(trainings, st.randoms(use_true_random=False))
def test_the_gain_grows_with_how_much_of_a_selection_goes(training, rng):
    schedule = model_of(training).schedule
    step = schedule.calls.step
    calls, rows = some_of(step, rng), some_of(step[schedule.rows.call], rng)
    for some in (partial(scaled_host, schedule, calls), partial(scaled_rows, schedule, rows)):
        times = [step_time(some(factor)) for factor in FACTORS]
        assert times == sorted(times, reverse=True)


@settings(max_examples=30)
@given(trainings)
def test_a_remedy_gains_less_the_worse_it_turns_out_and_never_beyond_its_ideal(training):
    model = model_of(training)
    for change in changes(model):
        times = [step_time(applied(model, [change], level).schedule) for level in LEVELS]
        ideal = step_time(applied(model, [change], 0.0, ideal=True).schedule)
        assert [ideal, *times] == sorted([ideal, *times]), change.where


@settings(max_examples=30)
@given(st.lists(operators, min_size=2, max_size=10), st.randoms(use_true_random=False), st.sampled_from(FACTORS))
def test_gains_of_disjoint_edits_add_where_nothing_overlaps(some, rng, factor):
    """Each operator's work is read back before the next one begins: host and device take turns."""
    turns = [op for one in some for op in (Operator("mm", one.host, one.work), Operator("read", 9, 2))]
    schedule = model_of(Training(turns)).schedule
    first = some_of(schedule.calls.step[schedule.rows.call], rng)
    part = [partial(scaled_rows, rows=rows, factor=factor) for rows in (first, ~first)]
    now, one, other = step_time(schedule), *(step_time(edit(schedule)) for edit in part)
    both = step_time(part[1](part[0](schedule)))
    assert now - both == pytest.approx((now - one) + (now - other), abs=ROUNDING * now)


@settings(max_examples=30)
@given(trainings)
def test_the_order_of_edits_does_not_matter(training):
    model = model_of(training)
    for one, other in itertools.combinations(changes(model), 2):
        if one.touches is not None and other.touches is not None and (one.touches & other.touches).any():
            continue
        there, back = (step_time(_both(model, pair)) for pair in ((one, other), (other, one)))
        assert there == pytest.approx(back, rel=ROUNDING), (one.where, other.where)


def _both(model: StepModel, pair: Sequence[Change]) -> Schedule:
    return applied(model, pair, 0.5).schedule


@settings(max_examples=12)
@given(trainings)
def test_no_line_gains_more_than_its_ceiling_or_than_there_is(training):
    lines = rows_of(training.written())
    assume(any(row.ceiling_ns for row in lines))
    for row in lines:
        if row.ceiling_ns is not None:
            assert row.alone_low_ns <= row.alone_ns <= row.alone_high_ns <= row.ceiling_ns * (1 + ROUNDING), row.remedy
        if row.order is not None:
            assert 0 <= row.gain_ns <= row.before_ns
            assert row.before_low_ns <= row.before_ns <= row.before_high_ns
            assert row.gain_high_ns <= row.before_high_ns * (1 + ROUNDING)
            assert row.after_ns == pytest.approx(row.before_ns - row.gain_ns, rel=0.05)
    taken = sorted((row for row in lines if row.order), key=lambda row: row.order)
    for line, following in pairwise(taken):
        assert _step_time(following, "before") == _step_time(line, "after"), "a line begins where the one above it ends"


def _step_time(row: PlanRow, when: str) -> tuple[float, ...]:
    return tuple(getattr(row, f"{when}_{bound}ns") for bound in ("low_", "", "high_"))


@settings(max_examples=8)
@given(trainings, st.sampled_from([12_345, 10**9, 1_700_000_000_000_000]))
def test_when_it_was_recorded_changes_nothing(training, shift):
    assert rows_of(training.written(shift=shift)) == rows_of(training.written())


@settings(max_examples=8)
@given(trainings)
def test_a_job_of_one_rank_has_the_plan_of_a_single_rank(training):
    job = {"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1}}
    assert rows_of(training.written(**job)) == rows_of(training.written())
