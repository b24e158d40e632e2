"""The step's time as the parts of a bar, for the terminal's card and the notebook's. Shares arrive ready."""

from __future__ import annotations

from typing import NamedTuple

from hpuprof.render.formats import duration
from hpuprof.render.sections import causes
from hpuprof.report.headline import SMALLEST_SHARE
from hpuprof.report.model import Report

_BUSY = {
    "compute_fraction": ("compute", "█", "#228833"),
    "exposed_communication_fraction": ("exposed communication", "▓", "#aa3377"),
    "exposed_copy_fraction": ("exposed copies", "▒", "#66ccee"),
    "dispatch_fraction": ("dispatch", "░", "#ccbb44"),
}
_PHASES = {
    "input_fraction": ("fetching data", "░", "#ccbb44"),
    "operators_fraction": ("forward and other operators", "█", "#4477aa"),
    "backward_fraction": ("backward", "▓", "#ee6677"),
    "optimizer_fraction": ("optimizer", "▒", "#228833"),
    "no_operator_fraction": ("no operator", "·", "#999999"),
}
"""Of the host, where no device was traced."""
_IDLE = ("idle", "·", "#999999")
_UNLIKE = 0.1
"""By what share mean and median step time differ where both are reported."""
_APART = 0.02
"""By what share the mean differs from that of typical steps where both are reported."""


class StepPart(NamedTuple):
    """A part of the step: its name, its sign in a bar of text, its color in a drawn one, its share of the step."""

    words: str
    sign: str
    color: str
    share: float


def step_parts(report: Report) -> list[StepPart]:
    """Return the parts of the step by what its device did, or by the host's phases where none was traced."""
    device = report.metrics["device_busy_fraction"].value is not None
    parts = [
        StepPart(*drawn, float(value))
        for name, drawn in (_BUSY if device else _PHASES).items()
        if (value := report.metrics[name].value) and value >= SMALLEST_SHARE
    ]
    idle = report.metrics["device_idle_fraction"].value if device else None
    return [*parts, StepPart(*_IDLE, float(idle))] if idle else parts


def step_length(report: Report) -> str:
    """Return the mean step time in words; empty where no step is known."""
    mean = report.metrics["step_time_mean"].value
    return "" if mean is None else f"{report.headline.unit.capitalize()} {duration(mean)}"


def unlike_mean(report: Report) -> str:
    """Return the typical or median step time where it is unlike the mean; else empty."""
    mean, median = report.metrics["step_time_mean"].value, report.metrics["step_time_p50"].value
    typical = report.metrics["typical_step_time_mean"].value
    if mean and typical and abs(typical / mean - 1) > _APART:
        return f"(a typical one {duration(typical)})"
    return f"(median {duration(median)})" if mean and median and abs(median / mean - 1) > _UNLIKE else ""


def idle_causes(report: Report) -> str:
    """Return the largest three causes of device idle time with their shares of the step; empty where none is known."""
    if not report.metrics["device_idle_fraction"].value:
        return ""
    return ", ".join(f"{cause} {share}" for cause, share in causes(report).rows[:3])
