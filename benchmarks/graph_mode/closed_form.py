"""Step time in closed form: what is physically possible with host work, device work and a pattern of synchronisation.

Arguments and results share one unit of time. *Region* is the part of the step that a graph captures, *rest* the host work outside.
Eager is `replay=0` with the region's host work; a graph replays the region: `host_region=0`, its launch in `replay`.
"""

from __future__ import annotations

from collections.abc import Sequence


def free_running(
    host_region: float, host_rest: float, device: float, replay: float = 0.0, copies: float = 0.0
) -> float:
    """Return the step time when nothing waits for the device within a step: the slower of host and device decides.

    `replay`: host cost of launching the graphs of one step; `copies`: cost of filling static inputs, paid on both sides.
    """
    return max(host_rest + host_region + replay + copies, device + copies)


def synced(
    host_region: float,
    host_rest: float,
    device: float,
    replay: float = 0.0,
    copies: float = 0.0,
    latency: float = 0.0,
) -> float:
    """Return the step time when every step ends by waiting for the device: host work outside the region is never hidden.

    `latency`: from a launch call to its device row when the device is idle.
    """
    return host_rest + latency + copies + (replay + device if replay else max(host_region, device))


def periodically_synced(every: int, free: float, waiting: float) -> float:
    """Mix a free-running and a synchronised step time for a wait in each `every`-th step. Raises ValueError below 1."""
    if every < 1:
        raise ValueError("a period is at least one step")
    return free + (waiting - free) / every


def linear_law(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Fit step time = intercept + slope * host time by least squares; return (slope, intercept).

    The law of a purely host-bound step: time that graphs cannot touch, plus the host time of the mode. Raises ValueError for
    fewer than two different host times.
    """
    n = len(points)
    mean_x = sum(x for x, _ in points) / n if n else 0.0
    mean_y = sum(y for _, y in points) / n if n else 0.0
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    if n < 2 or not spread:
        raise ValueError("a line needs two different host times")
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    return slope, mean_y - slope * mean_x
