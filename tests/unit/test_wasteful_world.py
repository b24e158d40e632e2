"""Wasteful steps of the simulated world: each waste stands in the step, and its cure takes it away."""

from __future__ import annotations

import random

import pytest

from benchmarks.plan.cures import Outcome, cures
from benchmarks.world.host import run
from benchmarks.world.program import COPY, Op
from benchmarks.world.wasteful import WASTES, draw

SAVES = ("uploads", "synchronisation", "allocations", "copies", "tf32", "pointwise_fusion", "recomputation")
LARGE = 64 << 20


def cured(seed: int):
    """Return the case of a seed and its cures, on a machine without noise."""
    case = draw(seed)
    return case, dict(cures(case, Outcome.draw(random.Random(seed)), LARGE))


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
