"""The whole run in one line: steps without the profiler, spread, trend, and where slow steps lose time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import median

from hpuprof.model.durations import duration
from hpuprof.model.step_log_rows import RunStepsRow
from hpuprof.report.model import ReportData
from hpuprof.report.rule import percent

_TREND = 0.05
"""A smaller change over the run is not reported."""
_SLOW = 0.01
"""Slow steps that cost less of the time are not reported."""
_AHEAD = 0.05
"""By how much of the step a rank's phase exceeds the median rank's before it is named; by judgment."""
_LEAST = 200  # steps of a rank that is compared
_OWN = {
    "input_fraction": "waits for input",
    "forward_fraction": "is in forward",
    "optimizer_fraction": "is in optimizers",
}
"""Phases that are a rank's own; in backward and between the phases it may wait for others. Of two ranks the one that is
longer in forward may be the one that waits there, so forward and optimizers are compared between three and more."""


def run_line(data: ReportData) -> str:
    """Return the line; empty without a log of steps. The rank with the most steps speaks; one that lags is named."""
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
    parts += filter(None, [_lagging([run for run in runs if run.clean_steps >= _LEAST])])
    return "; ".join(parts) + "."


def _lagging(runs: Sequence[RunStepsRow]) -> str:
    """Name the rank that is longer than the others in a phase of its own; empty for none."""
    found = []
    for name, does in _OWN.items():
        shares = [(getattr(row, name) or 0.0, row.rank) for row in runs]
        if len(shares) < (2 if name == "input_fraction" else 3):
            continue
        most, rank = max(shares)
        others = median(share for share, other in shares if other != rank)
        found.append((most - others, f"rank {rank} {does} {percent(most)} of the step, others {percent(others)}"))
    ahead, said = max(found, default=(0.0, ""))
    return said if ahead >= _AHEAD else ""


def _span(row: RunStepsRow) -> str:
    return f"{duration(row.step_p10_ns)} to {duration(row.step_p90_ns)}"
