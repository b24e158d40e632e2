"""Load data in workers instead of in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from msgspec.structs import replace

from hpuprof.analysis.rank_view import RankView
from hpuprof.model.intervals import Intervals, measure, union
from hpuprof.model.schema import Activity, HostKind, Role
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.situation import Situation, shortened
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.loader_workers import HAND_OVER
from hpuprof.what_if.step_model import StepModel

WORKERS = 4
"""Workers that the advice starts where there are none; by judgment."""
MORE = 4.0
"""Times the workers there are that the advice leads to: they are doubled until nothing is gained. By judgment: a
device has 8 to 32 processors, and loaders that are waited for 2 to 8 workers."""
NO_PROCESSOR = 0.9
"""Outcome from which on more workers deliver no sooner, as no processor or no bandwidth is left; by judgment."""
SLOWER = 2.0
"""How much longer a batch may take in a worker alongside others than alone on the main thread; by judgment."""


def find(situation: Situation) -> Iterator[Change]:
    """Find time of the main thread in waiting for workers or, without workers, in fetching the batch itself."""
    view, low, high = situation.view, situation.model.low, situation.model.high
    if situation.loader is not None:
        if situation.loader.waits:
            where = "waiting for data-loader workers"
            yield Change(
                where, 1.0, lambda model, _: model, uncertain=True, bends=(0.25, 0.75, NO_PROCESSOR), paces=_sooner
            )
        return
    windows = _fetching(view)
    inside = float(measure(windows, low, high).mean())
    if inside <= 0:
        return
    share = partial(_fetched, float((high - low).mean()), inside)
    # No straight line: what taking a batch costs is spread over powers of ten, and no one fetches for longer than now.
    bends = (0.25, 0.75, _nothing_gained(share))
    yield Change(
        "fetching batches on the main thread",
        1.0,
        lambda model, level: _in_workers(model, shortened(windows, 1.0 - share(level))),
        lambda model, _: _in_workers(model, windows),
        uncertain=True,
        bends=bends,
        occurs=windows,
    )


def _in_workers(model: StepModel, windows: Intervals) -> StepModel:
    """Take away some of the main thread's fetching."""
    left = model.without_host(windows)
    return replace(left, in_workers=True) if isinstance(left, LaunchModel) else left


def _sooner(level: float) -> float:
    """Return the share left of the time between two batches: `MORE` times the workers, or no processor for any."""
    return float(MORE ** min(0.0, level / NO_PROCESSOR - 1.0))


def _nothing_gained(share: Callable[[float], float]) -> float:
    """Return the outcome from which on all of the time is left; 1 where some of it always goes."""
    levels = np.linspace(0.0, 1.0, 101)
    return float(next((level for level in levels if share(float(level)) >= 1.0), 1.0))


def _fetching(view: RankView) -> Intervals:
    host = view.trace.host
    rows = (host.activity == Activity.DATA_LOADER) & (host.kind != HostKind.RUNTIME)
    rows &= view.host_roles == Role.MAIN
    return union(host.start[rows], host.end[rows])


def _fetched(step: float, fetching: float, level: float) -> float:
    """Return the share of the fetching that is left: waiting for `WORKERS` workers, and taking their batches."""
    every = fetching * (1.0 + (SLOWER - 1.0) * level) / WORKERS
    hand_over = HAND_OVER[0] * (HAND_OVER[1] / HAND_OVER[0]) ** level
    return float(np.clip((max(0.0, every - (step - fetching)) + hand_over) / fetching, 0.0, 1.0))


REMEDY = Remedy(
    name="data_loading",
    title="Load data in workers",
    advice="DataLoader(num_workers=4, persistent_workers=True, pin_memory=True); double the workers while waiting "
    "falls. Where no processor is idle, make samples cheaper to decode.",
    code="DataLoader(..., num_workers=4, persistent_workers=True, pin_memory=True, prefetch_factor=4)",
    costs="Memory and processor time of the workers.",
    unknown="How long workers take for a batch is not in a trace: with more workers between a quarter as long and as "
    "long as now; moved to four workers, once to twice the time on the main thread each.",
    needs="A recording with data-loader rows on the main thread.",
    bounds=("input",),
    effort=Effort.ARGUMENT,
    proof="edited",
    by_call=False,
    mends=("HP202",),
    find=find,
)
