"""What happens in which step: waiting, timing without the profiler, warming up, recording. Pure; knows neither torch nor clocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

ASYNC, SYNC = "async", "sync"


class Phase(Enum):
    """What a step is used for."""

    IDLE = "idle"
    TIMED = "timed"  # unprofiled, timed as part of a block
    WARMUP = "warmup"  # the profiler runs, its rows are thrown away
    RECORD = "record"


@dataclass(frozen=True)
class Slot:
    """The use of one step. `first` and `last` mark the borders of its block or window; `window` is async or sync."""

    phase: Phase
    first: bool = False
    last: bool = False
    window: str = ""
    cycle: int = 0


IDLE = Slot(Phase.IDLE)


@dataclass(frozen=True)
class Schedule:
    """Numbers of steps. A cycle is: wait, timed blocks, then one window for each kind, each with a warm-up.

    `repeat`: cycles, 0 for no end; `every_n_steps`: distance between the starts of cycles, None for back to back.
    """

    skip_first: int = 0
    wait: int = 1
    baseline_steps: int = 5
    baseline_blocks: int = 3
    warmup: int = 1
    active: int = 3
    repeat: int = 1
    windows: tuple[str, ...] = (ASYNC, SYNC)
    every_n_steps: int | None = None

    @property
    def cycle_steps(self) -> int:
        """Steps of one cycle."""
        return self.wait + self.baseline_steps * self.baseline_blocks + len(self.windows) * (self.warmup + self.active)

    def fitted(self, available: float) -> Schedule:
        """Shorten a schedule to a loop of `available` steps: fewer timed steps first, then no second window, then fewer active steps.

        The last step ends with the loop. Loops too short for one recorded step keep the schedule as it is; whoever runs it will
        say that no window completed.
        """
        plan = self
        while plan.skip_first + plan.cycle_steps > available:
            if plan.baseline_steps > 1:
                plan = replace(plan, baseline_steps=plan.baseline_steps - 1)
            elif len(plan.windows) > 1:
                plan = replace(plan, windows=plan.windows[:1])
            elif plan.baseline_blocks > 0:
                plan = replace(plan, baseline_blocks=0, baseline_steps=0)
            elif plan.active > 1:
                plan = replace(plan, active=plan.active - 1)
            else:
                return self
        return plan

    def slots(self) -> Iterator[Slot]:
        """Yield the use of each step, from the first step of the loop on; ends after the last cycle."""
        for _ in range(self.skip_first):
            yield IDLE
        cycle = 0
        while not self.repeat or cycle < self.repeat:
            yield from self._cycle(cycle)
            cycle += 1
            if self.every_n_steps and (not self.repeat or cycle < self.repeat):
                for _ in range(max(0, self.every_n_steps - self.cycle_steps)):
                    yield IDLE

    def _cycle(self, cycle: int) -> Iterator[Slot]:
        for _ in range(self.wait):
            yield Slot(Phase.IDLE, cycle=cycle)
        for _ in range(self.baseline_blocks):
            for i in range(self.baseline_steps):
                yield Slot(Phase.TIMED, i == 0, i == self.baseline_steps - 1, cycle=cycle)
        for window in self.windows:
            yield from window_slots(window, self.warmup, self.active, cycle)


def window_slots(window: str, warmup: int, active: int, cycle: int) -> Iterator[Slot]:
    """Yield the steps of one window."""
    for i in range(warmup):
        yield Slot(Phase.WARMUP, first=i == 0, window=window, cycle=cycle)
    for i in range(active):
        yield Slot(Phase.RECORD, first=i == 0, last=i == active - 1, window=window, cycle=cycle)


def slots_of_callable(schedule: Callable[[int], Any], window: str = ASYNC) -> Iterator[Slot]:
    """Yield slots for a user's `torch.profiler.schedule`-like callable, which returns a ProfilerAction for each step."""
    step, cycle, before = 0, 0, "NONE"
    while True:
        action = getattr(schedule(step), "name", "NONE")
        if action in ("RECORD", "RECORD_AND_SAVE"):
            yield Slot(
                Phase.RECORD, first=before != "RECORD", last=action == "RECORD_AND_SAVE", window=window, cycle=cycle
            )
            cycle += action == "RECORD_AND_SAVE"
        elif action == "WARMUP":
            yield Slot(Phase.WARMUP, first=before != "WARMUP", window=window, cycle=cycle)
        else:
            yield IDLE
        before = action
        step += 1
