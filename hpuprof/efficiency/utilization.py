"""How much of the device's peak the steps reach: operations of matrix operators, from shapes, against time and peak.

Shapes stand on host rows, so the utilization of a step needs no link between host and device: it is known on Gaudi in
lazy mode, too. What a single operator reaches needs the links.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec
import numpy as np

from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.threads import backward_names
from hpuprof.efficiency.formulas import FORMULAS, Work, matrix_work
from hpuprof.efficiency.peaks import Peak, device_of, peak_of
from hpuprof.ingest.dialect_engines import MATRIX_ENGINE
from hpuprof.model.arrays import Floats, Ints, Mask, kinds_of
from hpuprof.model.intervals import contains, measure, union
from hpuprof.model.schema import Activity, DeviceKind
from hpuprof.model.tables import ModuleRow, UtilisationRow
from hpuprof.model.trace import Detail, Trouble

MAX_ROWS = 100
"""Rows kept of the table, those with most operations first."""
AT_THE_ROOF = 0.7
"""From this share of the roofline on, a kernel has little to gain; by judgment: tuned libraries reach 70 to 90 %."""
MME = "MME"
_NO_DETAIL = Detail(b"", b"", b"")


class Utilization(msgspec.Struct, frozen=True, eq=False, dict=True):
    """The matrix operators of one trace: what they compute, and when. Arrays have shape `(calls,)`."""

    view: RankView
    peak: Peak | None
    position: Ints  # of each call in `links.nesting`
    work: list[Work]  # each distinct one
    kind: Ints  # of each call, into `work`
    key: Ints  # of each call: equal for equal names and shapes
    complete: bool  # whether every matrix operator has its work
    recomputed: Mask

    @classmethod
    def of(cls, view: RankView) -> Utilization:
        """Find the matrix operators; of nested ones, the innermost, whose types are those of the kernel."""
        trace, nesting = view.trace, view.links.nesting
        host, rows = trace.host, nesting.rows
        counted = trace.named(lambda name: name in FORMULAS)
        named = np.flatnonzero(counted.take(host.name.take(rows)))
        calls = rows.take(named)
        name, shape, detail = (c.take(calls).astype(np.int64) for c in (host.name, host.shape, host.detail))
        # Shapes are keys of the table, types and values are not: calls with equal ones are one row.
        key = name * (len(trace.shapes) + 1) + shape
        _, first, which = np.unique(key * (len(trace.details) + 1) + detail, return_index=True, return_inverse=True)
        found = [_work(view, int(name[i]), int(shape[i]), int(detail[i])) for i in first.tolist()]
        known = np.array([work is not None for work in found], dtype=bool)[which]
        with_work = np.zeros(len(rows), dtype=bool)
        with_work[named[known]] = True
        before = np.cumsum(np.append(False, with_work), dtype=np.int64)
        worked = before[nesting.stop[named]] - before[named]  # by the operator and those inside it
        innermost = known & (worked == 1)
        # An operator without shapes does no harm around or inside one that has them.
        alone = np.flatnonzero(~known & (worked == 0))
        harmful = bool(len(alone)) and bool((nesting.around(with_work)[named[alone]] == 0).any())
        position = named[innermost]
        return cls(
            view,
            peak_of(device_of(trace)),
            position,
            [work or Work(0, None, "") for work in found],
            which[innermost],
            key[innermost],
            bool(len(position)) and not harmful and not (host.activity == Activity.GRAPH_LAUNCH).any(),
            recomputed(view, position),
        )

    @cached_property
    def flops(self) -> Ints:
        """Operations of each call."""
        return np.array([work.flops for work in self.work], dtype=np.int64)[self.kind]

    @cached_property
    def at_peak(self) -> Floats:
        """Least time of each call at the device's dense peak for its type [ns]; NaN where the peak is unknown."""
        tflops = self.peak.dense_tflops if self.peak else {}
        per_ns = np.array([1e3 * tflops.get(work.dtype, np.nan) for work in self.work])
        result: Floats = self.flops / per_ns[self.kind]
        return result

    @cached_property
    def at_roof(self) -> Floats:
        """Least time of each call by the roofline [ns]: at its peak or its bytes' way through memory, the longer."""
        per_ns = 1e3 * self.peak.memory_tb_per_s if self.peak else np.nan
        moving = np.array([np.nan if work.bytes is None else work.bytes / per_ns for work in self.work])
        result: Floats = np.maximum(self.at_peak, moving[self.kind])
        return result

    def step_columns(self) -> dict[str, list[Any]]:
        """Return the columns of the step table; None for what the trace or the vendor does not tell."""
        count = len(self.view.steps)
        begin = self.view.links.nesting.start[self.position]
        once = ~self.recomputed
        peak_known = self.complete and not np.isnan(self.at_peak).any()
        busy = self._matrix_busy() if self.complete else None
        return {
            "flops": self._summed(begin, self.flops) if self.complete else [None] * count,
            "recomputed_flops": self._summed(begin, self.flops * self.recomputed) if self.complete else [None] * count,
            "at_peak_ns": self._summed(begin, self.at_peak) if peak_known else [None] * count,
            "model_at_peak_ns": self._summed(begin[once], self.at_peak[once]) if peak_known else [None] * count,
            "matrix_busy_ns": [None] * count if busy is None else busy,
        }

    def _summed(self, when: Ints, values: Ints | Floats) -> list[int]:
        """Sum the values of calls by the step in which they begin."""
        step = self.view.steps.holding(when)
        inside = step >= 0
        sums = np.zeros(len(self.view.steps), dtype=values.dtype)
        np.add.at(sums, step[inside], values[inside])
        return [round(value) for value in sums.tolist()]

    def _matrix_busy(self) -> list[int] | None:
        """Measure when matrix units worked [ns]: Gaudi's MME, elsewhere rows that matrix operators launched."""
        view = self.view
        low, high = view.steps.timed.start, view.steps.timed.end
        if MATRIX_ENGINE in view.device.engines:
            busy = view.device.engines[MATRIX_ENGINE]
        else:
            rows = self._launched()
            if rows is None:
                return None
            busy = union(view.trace.device.start[rows], view.trace.device.end[rows])
        found: list[int] = measure(busy, low, high).tolist()
        return found

    def _launched(self) -> Mask | None:
        """Mark the compute rows that matrix operators launched; None if a matrix operator shows none."""
        links, device = self.view.links, self.view.trace.device
        if not len(device):
            return None
        inside = np.zeros(len(links.nesting.rows) + 1, dtype=np.int64)
        np.add.at(inside, self.position, 1)
        np.add.at(inside, links.nesting.stop[self.position], -1)
        within = np.cumsum(inside)[:-1] > 0
        linked = links.operator >= 0
        rows: Mask = linked & (device.kind == DeviceKind.COMPUTE)
        rows[linked] &= within[links.operator[linked]]
        return rows if rows.any() else None

    def with_flops(self, rows: list[ModuleRow]) -> list[ModuleRow]:
        """Return modules with the operations in their calls and in the backward of these, modules inside included."""
        if not self.complete:
            return rows
        view, calls, nesting = self.view, self.view.modules, self.view.links.nesting
        call = view.placement.of(nesting.track[self.position], nesting.start[self.position]).call
        inner = np.zeros(len(calls), dtype=np.int64)
        np.add.at(inner, call[call >= 0], self.flops[call >= 0])
        whole, total = calls.nesting.sums(inner), max(1, len(view.steps))
        found = {}
        for code, name in enumerate(calls.names):
            mine = calls.of(code)
            found[name] = int(whole[mine[calls.outermost[mine]]].sum()) / total
        return [
            msgspec.structs.replace(row, flops_per_step=found[row.module]) if row.depth >= 0 else row for row in rows
        ]

    def rows(self) -> tuple[list[UtilisationRow], int, list[Trouble]]:
        """Summarize matrix operators by name and shape over the steady steps; also return how many there are.

        What lies above the peak is a fault of formula, peak or link: unknown, and counted.
        """
        view, nesting = self.view, self.view.links.nesting
        steady = max(1, int(view.steps.steady.sum()))
        inside = contains(view.steps.steady_windows(), nesting.start[self.position])
        if not inside.any():
            return [], 0, []
        # Device rows without an operator count for one before all others.
        direct = np.bincount(view.links.operator + 1, weights=view.links.work_ns, minlength=len(nesting.rows) + 1)
        direct[0] = 0
        before = np.cumsum(direct.astype(np.int64))
        device = before[nesting.stop[self.position]] - before[self.position]
        keys, first, which = kinds_of(self.key[inside])
        count = np.bincount(which)
        total = np.bincount(which, weights=device[inside]).astype(np.int64)
        flops = np.bincount(which, weights=self.flops[inside])
        out, beyond = [], 0
        host = view.trace.host
        for i in np.argsort(-flops, kind="stable")[:MAX_ROWS].tolist():
            call = np.flatnonzero(inside)[first[i]]
            row = nesting.rows[self.position[call]]
            work = self.work[self.kind[call]]
            reached = _reached(work, int(count[i]), int(total[i]), self.peak)
            beyond += reached.beyond
            out.append(
                UtilisationRow(
                    name=view.trace.names[host.name[row]],
                    shape=view.trace.shapes[host.shape[row]],
                    dtype=work.dtype or None,
                    count_per_step=int(count[i]) / steady,
                    flops=work.flops,
                    bytes=work.bytes,
                    intensity=work.flops / work.bytes if work.bytes else None,
                    device_per_step_ns=int(total[i]) / steady if total[i] else None,
                    flops_per_second=reached.rate,
                    peak_fraction=reached.of_peak,
                    roofline_fraction=reached.of_roofline,
                    bound=reached.bound,
                )
            )
        text = f"kinds of operators faster than the peaks of {self.peak.name}" if self.peak else ""
        return out, len(keys), [Trouble("HP191", beyond, text)] if beyond else []


class _Reached(msgspec.Struct, frozen=True):
    rate: float | None = None  # operations per second
    of_peak: float | None = None
    of_roofline: float | None = None
    bound: str | None = None  # what limits it at best: compute or memory
    beyond: bool = False


def _reached(work: Work, count: int, device_ns: int, peak: Peak | None) -> _Reached:
    """Compare the calls of one operator and shape with the peak and with the roofline.

    The roofline is the smaller of the peak and of intensity times memory bandwidth (Williams et al., CACM 2009).
    """
    rate = 1e9 * work.flops * count / device_ns if device_ns else None
    tflops = peak.dense_tflops.get(work.dtype) if peak else None
    if not peak or tflops is None:
        return _Reached(rate)
    top = 1e12 * tflops
    roof = min(top, work.flops / work.bytes * 1e12 * peak.memory_tb_per_s) if work.bytes else None
    bound = None if roof is None else "compute" if roof == top else "memory"
    if rate is None:
        return _Reached(None, bound=bound)
    if rate > top:
        return _Reached(None, bound=bound, beyond=True)
    # Caches may serve operands again and again, so the memory's roof is no wall.
    return _Reached(rate, rate / top, min(1.0, rate / roof) if roof else None, bound)


def _work(view: RankView, name: int, shape: int, detail: int) -> Work | None:
    trace = view.trace
    if shape < 0:
        return None
    recorded = trace.details[detail] if detail >= 0 else _NO_DETAIL
    return matrix_work(trace.names[name], trace.shapes[shape], recorded.types, recorded.values)


def recomputed(view: RankView, position: Ints) -> Mask:
    """Mark operators that belong to a forward pass run again inside backward (activation checkpointing).

    Inside a backward row, autograd is on only while a forward pass is repeated; then operators carry a sequence number
    and the forward thread's id 0.
    """
    host, nesting = view.trace.host, view.links.nesting
    rows = nesting.rows.take(position)
    again: Mask = (host.sequence.take(rows) >= 0) & (host.forward_thread.take(rows) == 0)
    backward = backward_names(view.trace)
    if again.any() and backward.any():
        return again & (nesting.around(backward.take(host.name.take(nesting.rows))).take(position) > 0)
    return np.zeros(len(position), dtype=bool)
