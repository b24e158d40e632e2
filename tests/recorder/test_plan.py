"""What happens in which step."""

from __future__ import annotations

from enum import Enum
from itertools import islice

import pytest

from hpuprof.recorder.plan import Schedule, Slot, slots_of_callable, window_slots

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
        (24, ".ttttTttttTttttTwrrRwrrR"),
        (23, ".tttTtttTtttTwrrRwrrR"),
        (12, ".TTTwrrRwrrR"),
        (9, ".TTTwrrR"),
        (8, ".TTTwrrR"),
        (7, ".wrrR"),
        (3, ".wR"),
    ],
)
def test_fitted_to_a_short_loop(available: int, expected: str) -> None:
    plan = Schedule().fitted(available)
    assert drawn(list(plan.slots())) == expected
    assert plan.cycle_steps <= available


def test_a_loop_without_room_for_one_step_keeps_the_plan() -> None:
    assert Schedule().fitted(2) == Schedule()


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
