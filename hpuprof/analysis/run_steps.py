"""A whole run by its logs of steps: step time, spread, trend, slow steps and their causes, growth, near the windows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpuprof.ingest.step_log_files import LoggedSteps
from hpuprof.model.step_log_rows import RunSlowStepRow, RunStepsRow
from hpuprof.step_log_format import FIRST, PROFILED

SLOW = 1.5
"""Times the median; by judgment: twice the spread of steps that vary by a fifth."""
MOST_SLOW = 20
NEAR = 20
"""Steps on either side of a window that are compared with the run."""
LEAST = 40
"""Steps below which quarters are not compared: ten in each."""
TIMED = 30
"""Steps without the profiler below which a log gives no step time: ten in each third. The blocks that the recorder
times are half of that, at the very start: a run on an H200 took 54 ms there, 29 by its log of 34 steps, 27 later."""
SETTLED = 1.1
"""How much longer than in either of the others a step takes in the first third of a log where that is left out."""
SETTLING = 100
"""Steps in which a program settles at most: a longer first third counts. Both by judgment."""
RECURS = 4
"""Slow steps of one cause below which no period is reported, by judgment: fewer are as far apart by chance."""
_IN_TURN = 0.8
"""Share of them that come in turn, and of the turns that are slow, from which they are periodic; by judgment."""
_SURE = 1.645
"""Standard errors to either side of a mean, between which it lies in nine of ten cases."""
_PHASES = {
    "input": "input_ns",
    "forward": "forward_ns",
    "backward": "backward_ns",
    "optimizer": "optimizer_ns",
    "elsewhere": "other_ns",
}
_CAUSES = (*_PHASES, "rest")


class StepTime(NamedTuple):
    """The step time of a log in the traces' unit of a step, and its spread over the run's thirds [ns]."""

    step_ns: int
    spread_ns: int


class RunPause(NamedTuple):
    """Slow steps of one cause that come in every n-th turn: how many, of how many steps, by how much longer [ns].

    `cost_ns` and its interval: what they cost of the mean step.
    """

    cause: str
    every: int
    steps: int
    of: int
    above_ns: float
    cost_ns: float
    cost_low_ns: float
    cost_high_ns: float


def run_steps(log: LoggedSteps) -> RunStepsRow:
    """Return one rank's whole run. Older blocks count in the number of steps, the trend and the medians."""
    records, clean = log.records, _clean(log)
    wall = clean["wall_ns"]
    time = int(wall.sum())
    oldest = int(log.summaries[0, 0]) if len(log.summaries) else int(records["sequence"][0])
    every = _unprofiled(log)
    # Blocks of older steps weigh as their medians, each as often as it has steps.
    medians, counts = log.older("wall_ns", "p50"), log.older("wall_ns", "count")
    walls = np.concatenate([np.repeat(medians, counts), wall]) if len(medians) else wall
    return RunStepsRow(
        **_who(log),
        path=log.name,
        host_name=log.text("host"),
        steps=int(records["sequence"][-1]) - oldest + 1,
        clean_steps=len(walls),
        ended=log.text("ended"),
        batches_per_step=_batches(records),
        step_p10_ns=_quantile(walls, 0.1),
        step_p50_ns=_quantile(walls, 0.5),
        step_p90_ns=_quantile(walls, 0.9),
        step_p99_ns=_quantile(walls, 0.99),
        trend_fraction=_trend(walls),
        input_fraction=_share(clean, "input_ns"),
        forward_fraction=_share(clean, "forward_ns"),
        backward_fraction=_share(clean, "backward_ns"),
        optimizer_fraction=_share(clean, "optimizer_ns"),
        elsewhere_fraction=_share(every, "other_ns"),
        slow_fraction=_slow_share(every),
        device_step_ns=_quantile(clean["device_ns"][clean["device_ns"] > 0], 0.5),
        cpus_used=_share(clean, "cpu_ns"),
        cpus=log.number("cpus"),
        threads=log.number("threads"),
        switches_per_second=float(clean["switches"].sum()) / time * 1e9 if time else None,
        faults_per_step=float(clean["faults"].mean()) if len(clean) else None,
        resident_bytes=_last(records["resident_bytes"]),
        resident_growth_bytes=_growth(every["resident_bytes"]),
        device_growth_bytes=_growth(every["device_bytes"]),
        near_windows_ns=_near_windows(records, clean),
    )


def slow_steps(log: LoggedSteps) -> list[RunSlowStepRow]:
    """Return the slowest steps and where the excess over the median step went, the slowest first."""
    found = _slow(log)
    slowest = np.argsort(-found.over, kind="stable")[:MOST_SLOW].tolist()
    return [
        RunSlowStepRow(
            **_who(log),
            step=int(found.steps["step"][i]),
            start_ns=int(found.steps["start_ns"][i]),
            wall_ns=int(found.steps["wall_ns"][i]),
            over_ns=int(found.over[i]),
            cause=_CAUSES[found.cause[i]],
            cause_ns=int(found.cause_ns[i]),
            switches=int(found.steps["switches"][i]),
            faults=int(found.steps["faults"][i]),
        )
        for i in slowest
    ]


def run_pauses(log: LoggedSteps) -> list[RunPause]:
    """Return the pauses in every n-th step, the dearest first; validation and checkpoints that a hook timed are none.

    A step in a log is an optimizer update; costs are of the mean step in the traces' unit of a step.
    """
    found, every = _slow(log), _unprofiled(log)
    scale = (log.number("batches_per_trace_step") or 1) / _batches(log.records)
    pauses = []
    for cause in sorted(set(found.cause.tolist())):
        mine = found.cause == cause
        over, turn = found.over[mine], _turn(found.steps["sequence"][mine], every["sequence"])
        if turn is None or _CAUSES[cause] == "elsewhere":
            continue
        above, doubt = float(over.mean()), _SURE * float(over.std(ddof=1)) / len(over) ** 0.5
        share = scale * len(over) / len(every)
        costs = [share * max(0.0, above + sign * doubt) for sign in (0, -1, 1)]
        pauses.append(RunPause(_CAUSES[cause], turn, len(over), len(every), above, *costs))
    return sorted(pauses, key=lambda pause: -pause.cost_ns)


class _Slow(NamedTuple):
    """Slow steps, by how much they exceed the median, and where most of that went [ns]. Shapes `(slow,)`."""

    steps: npt.NDArray[np.void]
    over: npt.NDArray[np.int64]
    cause: npt.NDArray[np.int64]  # in _CAUSES
    cause_ns: npt.NDArray[np.int64]


def _slow(log: LoggedSteps) -> _Slow:
    """Return the slow steps of a log in their order; none where fewer than LEAST show what is usual."""
    records, clean = _unprofiled(log), _clean(log)
    if len(clean) < LEAST:
        none = np.zeros(0, dtype=np.int64)
        return _Slow(records[:0], none, none, none)
    usual = int(np.median(clean["wall_ns"]))
    slow = records[records["wall_ns"] >= SLOW * usual]
    parts = [(slow[column], clean[column]) for column in _PHASES.values()] + [(_rest(slow), _rest(clean))]
    excess = np.column_stack([mine - int(np.median(normal)) for mine, normal in parts])
    cause = excess.argmax(axis=1)
    return _Slow(slow, slow["wall_ns"] - usual, cause, excess[np.arange(len(slow)), cause])


def _turn(slow: npt.NDArray[np.uint64], seen: npt.NDArray[np.uint64]) -> int | None:
    """Return every how many steps slow ones come, by their and all steps' numbers in order; None: in no turn."""
    if len(slow) < RECURS:
        return None
    at, every = slow.astype(np.int64), round(float(np.median(np.diff(slow.astype(np.int64)))))
    phase = int(np.bincount(at % every).argmax())
    due = seen[(seen % every == phase) & (seen >= slow[0]) & (seen <= slow[-1])].astype(np.int64)
    kept = np.intersect1d(at, due)
    periodic = every > 1 and len(kept) >= _IN_TURN * max(len(at), len(due))
    return every if periodic else None


def step_time(log: LoggedSteps) -> StepTime | None:
    """Return the step time without the profiler, once it has settled; None with fewer than TIMED steps."""
    wall = _clean(log)["wall_ns"]
    if len(wall) < TIMED:
        return None
    scale = (log.number("batches_per_trace_step") or 1) / _batches(log.records)
    first, *others = np.array_split(wall, 3)
    thirds = [float(np.median(part)) for part in (first, *others)]
    if len(first) <= SETTLING and thirds[0] > SETTLED * max(thirds[1:]):
        wall, thirds = np.concatenate(others), thirds[1:]
    return StepTime(max(1, round(float(np.median(wall)) * scale)), round((max(thirds) - min(thirds)) * scale))


def _who(log: LoggedSteps) -> dict[str, Any]:
    return {
        "rank": log.number("rank") or 0,
        "stage": log.text("stage"),
        "action": log.text("action"),
        "window": "",
    }


def _unprofiled(log: LoggedSteps) -> npt.NDArray[np.void]:
    """Return the steps without the profiler, but the first."""
    chosen: npt.NDArray[np.void] = log.records[(log.records["flags"] & (PROFILED | FIRST)) == 0]
    return chosen


def _clean(log: LoggedSteps) -> npt.NDArray[np.void]:
    """Return the steps of the usual number of batches, without the profiler, validation and checkpoints."""
    records = log.records
    usual: npt.NDArray[np.bool_] = (
        (records["flags"] == 0) & (records["other_ns"] <= 0) & (records["batches"] == _batches(records))
    )
    clean: npt.NDArray[np.void] = records[usual]
    return clean


def _batches(records: npt.NDArray[np.void]) -> int:
    return max(1, int(np.bincount(records["batches"]).argmax())) if len(records) else 1


def _rest(records: npt.NDArray[np.void]) -> npt.NDArray[np.int64]:
    left: npt.NDArray[np.int64] = records["wall_ns"] - sum(records[column] for column in _PHASES.values())
    return left


def _quantile(values: npt.NDArray[np.int64], share: float) -> int | None:
    return int(np.quantile(values, share)) if len(values) else None


def _share(records: npt.NDArray[np.void], column: str) -> float | None:
    time = int(records["wall_ns"].sum())
    return float(records[column].sum() / time) if time else None


def _trend(walls: npt.NDArray[np.int64]) -> float | None:
    if len(walls) < LEAST:
        return None
    quarter = len(walls) // 4
    first, last = float(np.median(walls[:quarter])), float(np.median(walls[-quarter:]))
    return last / first - 1 if first else None


def _slow_share(records: npt.NDArray[np.void]) -> float | None:
    walls = records["wall_ns"]
    if len(walls) < LEAST:
        return None
    usual = float(np.median(walls))
    slow = walls[walls >= SLOW * usual]
    return float((slow - usual).sum() / walls.sum())


def _last(values: npt.NDArray[np.int64]) -> int | None:
    return int(values[-1]) if len(values) and values[-1] >= 0 else None


def _growth(values: npt.NDArray[np.int64]) -> int | None:
    """Compare the last quarter with the second: the first fills caches."""
    values = values[values >= 0]
    if len(values) < LEAST:
        return None
    quarter = len(values) // 4
    return int(np.median(values[-quarter:]) - np.median(values[quarter : 2 * quarter]))


def _near_windows(records: npt.NDArray[np.void], clean: npt.NDArray[np.void]) -> int | None:
    """Return the median of the steps near a window; of several windows the one nearest to the run's median."""
    recorded = records["sequence"][(records["flags"] & PROFILED) != 0]
    near = []
    for window in np.split(recorded, np.flatnonzero(np.diff(recorded) > NEAR) + 1) if len(recorded) else []:
        wall = clean["wall_ns"][(clean["sequence"] >= window[0] - NEAR) & (clean["sequence"] <= window[-1] + NEAR)]
        if len(wall) >= NEAR // 2:
            near.append(int(np.median(wall)))
    middle = np.median(clean["wall_ns"]) if near else 0
    return min(near, key=lambda ns: abs(ns - middle), default=None)
