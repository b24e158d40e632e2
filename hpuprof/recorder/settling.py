"""Finds a run that has settled at another step time than that of its windows, which are recorded near its start."""

from __future__ import annotations

from collections import deque
from statistics import median

LOOKS = 20
"""Looks at the run, half a second apart or one step, whose halves must agree; by judgment."""
APART, FLOOR_S = 0.15, 0.5e-3
"""By how much of the windows' step a settled one differs from it at least (HP181 speaks from 0.1), and by how many
seconds; by judgment."""
AGREEING = 0.25
"""How much of that difference the halves may have between themselves; by judgment."""


class Settling:
    """Compares the steps since the windows with those timed before them.

    `windows_s`: a step without the profiler near the windows [s].
    """

    def __init__(self, windows_s: float) -> None:
        self._windows_s = windows_s
        self._looks: deque[float] = deque(maxlen=LOOKS)

    def add(self, step_s: float) -> bool:
        """Note the mean step since the last look [s]; return whether the run has settled elsewhere."""
        self._looks.append(step_s)
        if len(self._looks) < LOOKS:
            return False
        looks = list(self._looks)
        before, after = median(looks[: LOOKS // 2]), median(looks[LOOKS // 2 :])
        apart = abs(after - self._windows_s)
        return apart > max(APART * self._windows_s, FLOOR_S) and abs(after - before) <= AGREEING * apart
