"""The part of a file that belongs to chosen steps, found by the analyzer's own rules."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hpuprof.analysis.rank_view import steps_of
from hpuprof.errors import InsufficientDataError, NotEnoughMemoryError, TraceFormatError, UsageError
from hpuprof.ingest.enough_memory import enough_memory
from hpuprof.ingest.read import read_trace

_NUMBER = re.compile(r"#(\d{1,18})$")
_TEXT = re.compile(r"(\d{0,18})(:?)(\d{0,18})")


@dataclass(frozen=True)
class Selection:
    """Steps from `first` up to but excluding `last` (None: to the end)."""

    first: int = 0
    last: int | None = None

    def __str__(self) -> str:
        return f"{self.first}:{'' if self.last is None else self.last}"

    def __contains__(self, number: int) -> bool:
        return self.first <= number and (self.last is None or number < self.last)


def parse_steps(text: str) -> Selection:
    """Read `10:13` (10, 11 and 12), `10:`, `:3` or `10`. Raises UsageError."""
    match = _TEXT.fullmatch(text.strip())
    if not match or not (match[1] or match[3]):
        raise UsageError(f"steps {text!r} cannot be read", hint="write them as 10:13 (without the last), 10: or 10")
    first = int(match[1] or 0)
    last = (int(match[3]) if match[3] else None) if match[2] else first + 1
    if last is not None and last <= first:
        raise UsageError(f"steps {text!r} select nothing", hint="the second number is the first step left out")
    return Selection(first, last)


class StepsFound(NamedTuple):
    """The window [ns) of the chosen steps in a file, absolute, None for none of them; and all its step numbers."""

    window: tuple[int, int] | None
    numbers: list[int]


def step_window(job: tuple[str, Selection]) -> StepsFound:
    """Find the chosen steps in a file.

    Steps are numbered as their rows are (`ProfilerStep#12`), or from 0 if rows have no number or numbers repeat.
    """
    path, chosen = job
    try:
        with enough_memory(path):
            steps = steps_of(trace := read_trace(path))
    except NotEnoughMemoryError:
        raise
    except TraceFormatError:
        return StepsFound(None, [])
    named = [match for label in steps.labels if (match := _NUMBER.search(label))]
    numbers = [int(match[1]) for match in named]
    if len(numbers) != len(steps) or len(set(numbers)) != len(numbers):
        numbers = list(range(len(steps)))
    inside = [i for i, number in enumerate(numbers) if number in chosen]
    if not inside:
        return StepsFound(None, numbers)
    low, high = int(steps.start[inside].min()), int(steps.end[inside].max())
    return StepsFound((low + trace.origin_ns, high + trace.origin_ns), numbers)


def no_such_step(chosen: Selection, found: Sequence[StepsFound], ranks: Sequence[int]) -> InsufficientDataError:
    """Return the error for steps that no file has; it lists those present."""
    present = sorted({number for file in found for number in file.numbers})
    files = f"{len(found)} file{'s' if len(found) != 1 else ''} of {_range('rank', sorted(set(ranks)))}"
    if not present:
        return InsufficientDataError(f"no step {chosen} in {files}: no step was found", hint="leave out --steps")
    return InsufficientDataError(
        f"no step {chosen} in {files}",
        hint=f"present: {_range('step', present)}, as in --steps {present[0]}:{present[-1] + 1}",
    )


def _range(what: str, numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"{what} {numbers[0]}"
    gapless = len(numbers) == numbers[-1] - numbers[0] + 1
    return f"{what}s {numbers[0]} to {numbers[-1]}" + ("" if gapless else f" ({len(numbers)} of them)")
