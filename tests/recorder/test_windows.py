"""What happens in which step."""

from __future__ import annotations

from enum import Enum
from itertools import islice

import pytest

from hpuprof.recorder.windows import Ahead, Outlook, Placement, Schedule, Slot, placed, slots_of_callable, window_slots

LETTER = {"idle": ".", "timed": "t", "warmup": "w", "record": "r"}


def drawn(slots: list[Slot]) -> str:
    """Draw slots as letters; the last step of a block or window is a capital."""
    return "".join(LETTER[s.phase.value].upper() if s.last else LETTER[s.phase.value] for s in slots)


def test_a_cycle_waits_times_and_records_each_window() -> None:
    plan = Schedule(baseline_steps=2, baseline_blocks=2, active=2)
    slots = list(plan.slots())
    assert drawn(slots) == ".tTtTwrRwrR"
    assert len(slots) == plan.cycle_steps == 11
    assert [s.window for s in slots] == [""] * 5 + ["async"] * 3 + ["sync"] * 3
    assert [s.first for s in slots] == [False, True, False, True, False, True, True, False, True, True, False]


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (Schedule(skip_first=2, wait=0, baseline_blocks=0, warmup=0, active=1, windows=("async",)), "..R"),
        (Schedule(wait=1, baseline_blocks=0, warmup=1, active=1, repeat=3, windows=("async",)), ".wR.wR.wR"),
        (
            Schedule(wait=0, baseline_blocks=0, warmup=1, active=1, repeat=2, every_n_steps=5, windows=("async",)),
            "wR...wR",
        ),
        (
            Schedule(wait=0, baseline_blocks=0, warmup=1, active=1, repeat=2, every_n_steps=1, windows=("async",)),
            "wRwR",
        ),
    ],
)
def test_repeat_and_distance(plan: Schedule, expected: str) -> None:
    assert drawn(list(plan.slots())) == expected


def test_repeat_zero_has_no_end() -> None:
    plan = Schedule(wait=0, baseline_blocks=0, warmup=0, active=1, repeat=0, windows=("async",))
    assert [s.cycle for s in islice(plan.slots(), 4)] == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        (30, ".ttttTttttTttttTwrrrrrRwrrrrrR"),
        (29, ".tttTtttTtttTwrrrrrRwrrrrrR"),
        (18, ".TTTwrrrrrRwrrrrrR"),
        (17, ".TTTwrrrrrR"),
        (10, ".TTTwrrrrR"),
        (9, ".TTTwrrrR"),
        (8, ".wrrrrrR"),
        (7, ".wrrrrR"),
        (3, ".wR"),
        (2, "wR"),
        (1, "R"),
    ],
)
def test_fitted_to_a_short_loop(available: int, expected: str) -> None:
    plan = Schedule().fitted(available)
    assert drawn(list(plan.slots())) == expected
    assert plan.cycle_steps <= available


def test_a_loop_that_ends_before_it_may_begin_keeps_the_plan() -> None:
    assert Schedule(skip_first=2).fitted(2) == Schedule(skip_first=2)


@pytest.mark.parametrize(
    ("every", "steps", "active"), [(1, 5, 6), (2, 6, 6), (4, 8, 8), (5, 5, 10), (8, 8, 8), (16, 16, 16), (32, 32, 6)]
)
def test_blocks_and_windows_are_whole_optimizer_updates_while_they_stay_small(
    every: int, steps: int, active: int
) -> None:
    plan = Schedule().whole_updates(every)
    assert (plan.baseline_steps, plan.active) == (steps, active)


@pytest.mark.parametrize(
    ("every", "phase", "needed"),
    [(1, 0, 30), (4, 0, 4 + 24 + 4 + 8 + 4 + 8), (4, 3, 1 + 24 + 4 + 8 + 4 + 8), (32, 0, 32 + 96 + 32 + 32)],
)
def test_what_a_cycle_needs_with_gradient_accumulation(every: int, phase: int, needed: int) -> None:
    assert Schedule().whole_updates(every).needed(every, phase) == needed


@pytest.mark.parametrize(
    ("available", "active", "warmup"), [(20, 8, 1), (16, 8, 1), (15, 8, 0), (8, 8, 0), (3, 3, 0), (1, 1, 0)]
)
def test_a_short_loop_keeps_a_whole_update_as_long_as_it_can(available: int, active: int, warmup: int) -> None:
    plan = Schedule().whole_updates(8).fitted(available, 8)
    assert (plan.active, plan.warmup, plan.baseline_blocks) == (active, warmup, 0)


class Loop(Outlook):
    """Updates of `every` batches from step 0 on, validation after each `validation` steps."""

    def __init__(self, every: int = 1, validation: int = 10**6, now: int = 0) -> None:
        self.every, self.validation, self.now = every, validation, now

    @property
    def accumulate(self) -> int:
        return self.every

    def ahead(self, steps: int) -> Ahead:
        at = self.now + steps
        return Ahead(at % self.every == 0, (at + 1) % self.every == 0, (at + 1) % self.validation == 0)


@pytest.mark.parametrize(
    ("loop", "warmup", "active", "remaining", "expected"),
    [
        (Loop(), 1, 6, 99, Placement(0, 1, 6, aligned=True, updates=True)),
        (Loop(every=4), 1, 8, 99, Placement(3, 1, 8, aligned=True, updates=True)),
        (Loop(every=32), 1, 6, 99, Placement(25, 1, 6, aligned=False, updates=True)),
        (Loop(every=32), 1, 6, 20, Placement(0, 1, 6, aligned=False, updates=False)),
        (Loop(validation=19, now=15), 1, 3, 99, Placement(0, 1, 3, aligned=True, updates=True)),  # ends before it
        (Loop(validation=19, now=16), 1, 6, 99, Placement(2, 1, 6, aligned=True, updates=True)),  # from 19 on
        (Loop(validation=3), 1, 6, 99, Placement(0, 1, 6, aligned=True, updates=True)),  # nowhere without
        (Loop(every=4, validation=6), 0, 4, 99, Placement(0, 0, 4, aligned=True, updates=True)),
        (Loop(), 1, 6, 5, Placement(0, 0, 5, aligned=True, updates=True)),
    ],
)
def test_where_a_window_goes(loop: Loop, warmup: int, active: int, remaining: int, expected: Placement) -> None:
    assert placed(warmup, active, remaining, loop) == expected


def test_an_extra_window() -> None:
    slots = list(window_slots("async", 1, 2, 7))
    assert drawn(slots) == "wrR"
    assert {s.cycle for s in slots} == {7}


def test_a_callable_schedule() -> None:
    action = Enum("action", "NONE WARMUP RECORD RECORD_AND_SAVE")
    slots = list(
        islice(
            slots_of_callable(
                lambda step: (action.NONE, action.WARMUP, action.RECORD, action.RECORD_AND_SAVE)[step % 4]
            ),
            8,
        )
    )
    assert drawn(slots) == ".wrR.wrR"
    assert [s.cycle for s in slots if s.last] == [0, 1]
