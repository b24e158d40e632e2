"""The tables of what sets the step time, made from one rank's steady steps."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import msgspec
import numpy as np

from hpuprof.analysis.modules import ModuleCalls
from hpuprof.model.arrays import Floats, median, percentiles
from hpuprof.model.tables import ModuleRow
from hpuprof.model.trace import Trouble
from hpuprof.model.what_if_rows import CriticalRow, KernelSequenceRow, SensitivityRow
from hpuprof.what_if.criticality import Base
from hpuprof.what_if.cycle_mean import UnsettledError
from hpuprof.what_if.kernel_sequences import sequence_rows
from hpuprof.what_if.node_sequences import node_sequence_rows
from hpuprof.what_if.period import MOST_MUTUAL
from hpuprof.what_if.sensitivity import curve, no_gain_below
from hpuprof.what_if.step_model import StepModel
from hpuprof.what_if.uncertainty import GAIN_ERROR, standard_normal

MOST = 20
"""Parts solved for exactly, and those whose sensitivity is shown."""
MAX_ROWS = 100
ROUNDING = 1e-3  # ns
_ERRORS = 64  # quantiles of the model's error


class CriticalTables(msgspec.Struct, frozen=True):
    """Rows for the report; `modules` with their time on the cycle; `troubles`: what was not computed, and why."""

    critical_path: list[CriticalRow]
    sensitivity: list[SensitivityRow]
    kernel_sequences: list[KernelSequenceRow]
    modules: list[ModuleRow]
    troubles: list[Trouble]


def critical_tables(
    base: Base | None,
    model: StepModel | None,
    modules: list[ModuleRow],
    calls: ModuleCalls,
    step_ns: float | None = None,
) -> CriticalTables:
    """Solve the steps as they are, with each of the largest parts faster, and with sequences of kernels fused.

    `step_ns`: the step time that all gains count from; times of cycle and sensitivities are parts of it [ns].
    """
    nothing = CriticalTables([], [], [], modules, [])
    if base is None or model is None:
        return nothing
    mutual = len(base.period.chains.mutual)
    missing = f"slack is not computed: {mutual} chains wait for each other, more than {MOST_MUTUAL}"
    try:
        now = float(base.period.step_ns.mean())
        factor = step_ns / now if step_ns and now else 1.0
        return CriticalTables(
            [in_steps_of(row, factor) for row in critical_rows(base)],
            [in_steps_of(row, factor) for row in sensitivity_rows(base)],
            [*sequence_rows(base), *node_sequence_rows(base, model)],
            [in_steps_of(row, factor) for row in with_criticality(modules, base, calls)],
            [Trouble("HP176", mutual, missing)] if mutual > MOST_MUTUAL else [],
        )
    except UnsettledError as error:
        trouble = Trouble("HP176", 1, f"what sets the step time is not computed: {error}")
        return msgspec.structs.replace(nothing, troubles=[trouble])


R = TypeVar("R", CriticalRow, SensitivityRow, ModuleRow)


@cache
def _scaled_columns(kind: type[Any]) -> tuple[str, ...]:
    """Return the columns of a row that are reported in the step time that gains count from."""
    if kind is ModuleRow:
        return ("critical_per_step_ns",)
    return tuple(name for name in kind.__struct_fields__ if name.endswith("_ns"))


def in_steps_of(row: R, factor: float) -> R:
    """Return a row with its times as the same shares of a step time that is `factor` times as long."""
    if factor == 1.0:
        return row
    times = {name: ns * factor for name in _scaled_columns(type(row)) if (ns := getattr(row, name)) is not None}
    return msgspec.structs.replace(row, **times)


def critical_rows(base: Base) -> list[CriticalRow]:
    """Return what the critical cycle is made of, the longest first, then the same by module."""
    parts = base.parts
    every = len(parts.labels)
    time = np.concatenate([base.on_cycle.parts, base.modules()])
    labels = [*parts.labels, *((name, "module") for name in parts.modules)]
    mean = time.mean(axis=1)
    order = sorted(np.flatnonzero(time.any(axis=1)).tolist(), key=lambda i: (i >= every, -mean[i], labels[i]))
    total, slack = base.total(), median(base.slack(), axis=1)
    solved = sorted(order, key=lambda i: (-mean[i], labels[i]))[:MOST]
    drag = {i: base.step_without(i) if i < every else base.step_without_module(i - every) for i in solved}
    now = base.period.step_ns
    # Long parts that set nothing are the ones that look worth optimizing and are not.
    idle = [i for i in longest(base, total) if not time[i].any()]
    own, modules = [i for i in order if i < every], [i for i in order if i >= every]
    rows = [
        CriticalRow(
            what=labels[i][0],
            kind=labels[i][1],
            cycle_ns=float(mean[i]),
            fraction=float(mean[i] / now.mean()),
            criticality=float((time[i] > 0).mean()),
            total_ns=float(total[i]) if i < every and labels[i][1] != "latency" else None,
            slack_ns=float(slack[i]) if i < every and np.isfinite(slack[i]) else None,
            drag_ns=float((now - drag[i]).mean()) if i in drag else 0.0 if not time[i].any() else None,
        )
        for i in (*own[:MAX_ROWS], *idle, *modules[:MAX_ROWS])
    ]
    for kind, some in (("other", own), ("module", modules)):
        if len(some) > MAX_ROWS:
            rows.append(_other(time[some[MAX_ROWS:]].sum(axis=0), now, kind))
    return rows


def _other(time: Floats, now: Floats, kind: str) -> CriticalRow:
    return CriticalRow(
        what="(others)",
        kind=kind,
        cycle_ns=float(time.mean()),
        fraction=float(time.mean() / now.mean()),
        criticality=float((time > 0).mean()),
        total_ns=None,
        slack_ns=None,
        drag_ns=None,
    )


def with_criticality(rows: list[ModuleRow], base: Base, calls: ModuleCalls) -> list[ModuleRow]:
    """Return modules with their time on the critical cycle, modules inside them included."""
    if not base.parts.modules:
        return rows
    inner = base.on_cycle.places[: len(calls)]
    whole = np.array([calls.nesting.sums(column) for column in inner.T]).T
    codes = {name: code for code, name in enumerate(calls.names)}
    found = {}
    for name in {row.module for row in rows if row.depth >= 0}:
        mine = calls.of(codes[name])
        time = whole[mine[calls.outermost[mine]]].sum(axis=0)
        # Sums are differences of running sums.
        found[name] = (float(time.mean()), float((time > ROUNDING).mean()))
    return [
        msgspec.structs.replace(row, critical_per_step_ns=found[row.module][0], criticality=found[row.module][1])
        if row.depth >= 0
        else row
        for row in rows
    ]


def longest(base: Base, total: Floats) -> list[int]:
    """Return the parts that take longest, on the cycle or not; latencies are no one's to make faster."""
    labels = base.parts.labels
    real = [i for i in np.flatnonzero(total > 0).tolist() if labels[i][1] != "latency"]
    return sorted(real, key=lambda i: (-total[i], labels[i]))[:MOST]


@cache
def _error_factors() -> Floats:
    return np.exp(GAIN_ERROR * standard_normal((np.arange(_ERRORS) + 0.5) / _ERRORS))


def _with_model_error(gain: Floats, now: Floats) -> Floats:
    """Return samples of gains with the model's own error, none above the step time; shape `(levels, S * _ERRORS)`."""
    out: Floats = np.minimum(gain[:, :, None] * _error_factors(), now[:, None]).reshape(len(gain), -1)
    return out


def sensitivity_rows(base: Base) -> list[SensitivityRow]:
    """Return the curves of the longest parts, those that could gain most first."""
    total, now = base.total(), base.period.step_ns
    rows = []
    for i in longest(base, total):
        steps = curve(base, i)
        middle = steps.mean(axis=1)
        low, high = percentiles(_with_model_error(now - steps[1:], now).T, [5, 95])
        columns: dict[str, Any] = {}
        for k, level in enumerate((75, 50, 25, 0)):
            columns[f"step_{level}_ns"] = float(middle[k + 1])
            columns[f"gain_{level}_low_ns"], columns[f"gain_{level}_high_ns"] = float(low[k]), float(high[k])
        rows.append(
            SensitivityRow(
                what=base.parts.labels[i][0],
                kind=base.parts.labels[i][1],
                total_ns=float(total[i]),
                fraction=float(total[i] / now.mean()),
                step_100_ns=float(middle[0]),
                no_gain_below=no_gain_below(middle),
                **columns,
            )
        )
    return sorted(rows, key=lambda row: (row.step_0_ns, -row.total_ns, row.kind, row.what))
