"""What others do instead of playing a change: take its idle or waiting time off the step, or multiply a share by a factor.

All read the same recording as the plan, and tell which share of the step a remedy saves.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hpuprof.analysis.host_calls import HostCallKind
from hpuprof.analysis.rank_view import RankView
from hpuprof.ingest.read import read_trace
from hpuprof.model.intervals import Intervals, intersect, measure, subtract, union
from hpuprof.model.schema import Activity, HostKind
from hpuprof.planning.situation import ProgramCalls
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.launch_model import LaunchModel

SUBTRACTION, SHARE, NO_GAIN = "subtraction", "share × factor", "no gain"
ESTIMATORS = (SUBTRACTION, SHARE, NO_GAIN)
FACTOR = {"data_loading": 0.75, "read_backs": 1.0, "fused_optimizer": 0.85, "graphs": 0.9}
"""What a remedy is assumed to save of its places' time: three workers of four; waits altogether; the middle of
what the plan assumes of an optimizer's host work; nearly all of the host's work for graphs, by judgment."""


def saved_shares(path: Path) -> dict[str, dict[str, float]]:
    """Return by estimator and remedy the share of the step that is said to go; empty where launches are not linked."""
    trace = read_trace(path)
    view = RankView.of(trace)
    model = LaunchModel.of(view, constants_for(trace.family, trace.mode, None))
    if model is None:
        return {}
    low, high = model.low, model.high
    found: dict[str, dict[str, float]] = {name: {} for name in ESTIMATORS}
    for remedy, idle, all_of_it in _places(view, ProgramCalls(view, model.program)):
        lost, taken = (float(measure(w, low, high).sum() / (high - low).sum()) for w in (idle, all_of_it))
        found[SUBTRACTION][remedy] = lost
        found[SHARE][remedy] = FACTOR[remedy] * taken
        found[NO_GAIN][remedy] = 0.0
    return found


def _places(view: RankView, of: ProgramCalls) -> Iterator[tuple[str, Intervals, Intervals]]:
    """Yield each remedy with the idle or waiting time of its places, and with all the time that they take."""
    host, program, waiting, busy = view.trace.host, of.program, view.hosts.blocked, view.device.busy
    loader = (host.activity == Activity.DATA_LOADER) & (host.kind != HostKind.RUNTIME)
    fetching = union(host.start[loader], host.end[loader])
    yield "data_loading", fetching, fetching
    reads = of.of(HostCallKind.READ) | (of.completes == HostCallKind.READ)
    reading = union(program.begin[reads], program.end[reads])
    yield "read_backs", intersect(reading, waiting), reading
    optimizer = view.placement.optimizer
    yield "fused_optimizer", subtract(optimizer, busy), subtract(optimizer, waiting)
    steps = Intervals(program.step_low, program.step_high)
    yield "graphs", subtract(steps, busy), subtract(steps, waiting)
