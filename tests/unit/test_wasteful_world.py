"""Wasteful steps of the simulated world: each waste stands in the step, and its cure takes it away."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from benchmarks.plan.cures import Outcome, cures
from benchmarks.world.host import run
from benchmarks.world.machine import Machine, Noise
from benchmarks.world.program import COPY, Instr, Op, Step
from benchmarks.world.wasteful import WASTES, draw

SAVES = ("uploads", "synchronisation", "allocations", "copies", "tf32", "pointwise_fusion", "recomputation", "results")  # fmt: skip
LARGE = 64 << 20


def cured(seed: int):
    """Return the case of a seed and its cures, on a machine without noise."""
    case = draw(seed)
    return case, dict(cures(case, replace(Outcome.draw(random.Random(seed)), more=2), LARGE))


def step_ns(step, machine) -> int:
    return run(step, machine.clean(), steps=6, seed="wasteful", drained=False).step_ns()


@pytest.mark.parametrize("waste", WASTES)
def test_each_waste_has_a_cure_that_changes_the_step(waste):
    case, found = cured(WASTES.index(waste))
    assert case.wastes[0] == waste
    mended = found[waste](case.step)
    assert mended.instrs != case.step.instrs
    if waste in SAVES:
        assert step_ns(mended, case.machine) <= step_ns(case.step, case.machine)


def test_cures_may_be_done_together_in_any_number():
    for seed in range(2 * len(WASTES)):
        case, found = cured(seed)
        step = case.step
        for cure in found.values():
            step = cure(step)
        assert step_ns(step, case.machine) > 0


def fed(workers: int, batch_us: int):
    """Steps of 100 µs that take batches of workers, 10 µs each."""
    taken = Instr(Op.BATCH, ns=10_000, work_ns=batch_us * 1000, workers=workers)
    return run(Step((taken, Instr(Op.HOST, ns=90_000))), Machine(), steps=20, lead=20, seed="", drained=False).step_ns()


@pytest.mark.parametrize(
    ("workers", "batch_us", "step_us"), [(1, 50, 100), (1, 150, 150), (2, 150, 100), (2, 300, 150), (4, 1000, 250)]
)
def test_workers_that_are_slower_than_the_step_set_its_pace(workers, batch_us, step_us):
    assert fed(workers, batch_us) == pytest.approx(step_us * 1000, rel=0.01)


def test_forty_cases_hold_each_waste_ten_times():
    cases = [draw(seed).wastes for seed in range(40)]
    assert min(sum(waste in wastes for wastes in cases) for waste in WASTES) >= 12


def test_nothing_waits_for_uploads_from_pinned_memory():
    case, found = cured(WASTES.index("uploads"))
    waits = [sum(i.op is Op.SYNC for i in s.instrs) for s in (case.step, found["uploads"](case.step))]
    assert waits[0] - waits[1] == sum(i.op is Op.LAUNCH and "uploads" in i.marks for i in case.step.instrs)


def test_batches_copied_ahead_leave_the_stream_that_computes():
    case, found = cured(WASTES.index("copies"))
    mended = found["copies"](case.step)
    assert {i.stream for i in mended.instrs if "copies" in i.marks and i.op is Op.LAUNCH} == {COPY}
    assert [i.back for i in mended.instrs if i.event == "batch"] == [1, 0]


def test_reductions_merge_into_one_and_move_into_backward():
    case, found = cured(WASTES.index("buckets"))
    reductions = [i for i in case.step.instrs if i.kind == "comm"]
    merged = [i for i in found["buckets"](case.step).instrs if i.kind == "comm"]
    assert len(merged) < len(reductions)
    case, found = cured(WASTES.index("collectives"))
    places = [n for n, i in enumerate(found["collectives"](case.step).instrs) if i.kind == "comm"]
    threads = [n for n, i in enumerate(found["collectives"](case.step).instrs) if i.op is Op.THREAD]
    assert all(threads[0] < place < threads[1] for place in places)


def test_paired_runs_of_unlike_programs_have_the_same_luck_from_the_next_step_on():
    one, other = (Noise(Machine(host_sigma=0.1, kernel_sigma=0.1), "seed", paired=True) for _ in range(2))
    one.next_step(), other.next_step()
    one.host(1000)
    assert one.work(1000) == other.work(1000), "the device's luck is its own"
    assert one.host(1000) != other.host(1000)
    one.next_step(), other.next_step()
    assert one.host(1000) == other.host(1000)
