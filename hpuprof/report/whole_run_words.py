"""The whole run in one line: steps without the profiler, spread, trend, and where slow steps lose time."""

from __future__ import annotations

from collections import Counter

from hpuprof.model.durations import duration
from hpuprof.model.step_log_rows import RunStepsRow
from hpuprof.report.model import ReportData
from hpuprof.report.rule import percent

_TREND = 0.05
"""A smaller change over the run is not reported."""
_SLOW = 0.01
"""Slow steps that cost less of the time are not reported."""


def run_line(data: ReportData) -> str:
    """Return the line; empty without a log of steps. The rank with the most steps speaks, the slowest is named."""
    runs = [row for row in data.run_steps if row.step_p50_ns is not None]
    if not runs:
        return ""
    row = max(runs, key=lambda row: (row.clean_steps, -row.rank))
    parts = [f"Run: {row.steps:,} steps, {duration(row.step_p50_ns)} ({_span(row)})"]
    if row.trend_fraction is not None and abs(row.trend_fraction) >= _TREND:
        parts.append(
            f"{'slower' if row.trend_fraction > 0 else 'faster'} by {percent(abs(row.trend_fraction))} at the end"
        )
    if row.slow_fraction and row.slow_fraction >= _SLOW:
        causes = Counter(slow.cause for slow in data.run_slow_steps if slow.recording == row.recording)
        cause = f", most in {causes.most_common(1)[0][0]}" if causes else ""
        parts.append(f"slow steps cost {percent(row.slow_fraction)}{cause}")
    if row.input_fraction is not None and row.input_fraction >= _TREND:
        parts.append(f"waiting for input {percent(row.input_fraction)}")
    return "; ".join(parts) + "."


def _span(row: RunStepsRow) -> str:
    return f"{duration(row.step_p10_ns)} to {duration(row.step_p90_ns)}"
