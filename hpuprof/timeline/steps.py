"""Which part of a file belongs to chosen steps, by the same rules that the analyzer finds steps with."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hpuprof.analysis.steps import compile_intervals, find_steps
from hpuprof.analysis.threads import track_roles
from hpuprof.errors import TraceFormatError, UsageError
from hpuprof.ingest.read import read_trace

_NUMBER = re.compile(r"#(\d+)$")
_TEXT = re.compile(r"(\d*)(:?)(\d*)")


@dataclass(frozen=True)
class Selection:
    """Steps `first` up to and without `last` (None: to the end)."""

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
        raise UsageError(f"steps {text!r} are none", hint="the second number is the first step left out")
    return Selection(first, last)


def step_window(job: tuple[str, Selection]) -> tuple[int, int] | None:
    """Return the absolute window [ns) of the chosen steps of a file; None when it has none of them.

    Steps are numbered as their rows are (`ProfilerStep#12`), or from 0 where rows have no number or numbers repeat.
    """
    path, chosen = job
    try:
        trace = read_trace(path)
    except TraceFormatError:
        return None
    steps = find_steps(trace, track_roles(trace), compile_intervals(trace))
    named = [match for label in steps.labels if (match := _NUMBER.search(label))]
    numbers = [int(match[1]) for match in named]
    if len(numbers) != len(steps) or len(set(numbers)) != len(numbers):
        numbers = list(range(len(steps)))
    inside = [i for i, number in enumerate(numbers) if number in chosen]
    if not inside:
        return None
    low, high = int(steps.start[inside].min()), int(steps.end[inside].max())
    return low + trace.origin_ns, high + trace.origin_ns
