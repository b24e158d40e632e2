"""Operators and kernels over the steady steps: counts, host time, launched device time, percentiles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from hpuprof.analysis.groups import clusters, group, step_deviations
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Codes, Ints, Mask, distinct, kinds_of, stable_order
from hpuprof.model.intervals import contains
from hpuprof.model.schema import DeviceKind
from hpuprof.model.tables import KernelRow, OperatorRow
from hpuprof.model.trace import Trace

MAX_ROWS = 200
"""Rows kept of the operator and kernel tables, the largest first; the report says so if it cut a table."""


def operator_rows(view: RankView) -> tuple[list[OperatorRow], int]:
    """Summarize operators by name; also return the number of distinct operators."""
    trace, steady = view.trace, int(view.steps.steady.sum())
    found = _operators(view)
    if not len(found.name):
        return [], 0
    by_name = group(found.name, found.dur)

    def summed(values: Ints) -> Ints:
        return np.bincount(found.name, weights=values, minlength=len(trace.names)).astype(np.int64)

    total, self_total = summed(found.dur * found.outermost), summed(found.self_ns)
    device_total, device_self = summed(found.device_total * found.outermost), summed(found.device_self)
    launched = summed(found.launched)
    shapes = _shapes(trace, found)
    alphabetical = np.array([trace.names[int(code)] for code in by_name.key])
    kept = np.lexsort((alphabetical, -(device_self + self_total)[by_name.key]))[:MAX_ROWS]
    known = np.full(len(trace.names), bool((view.links.operator >= 0).any()))
    if trace.mode.startswith("lazy"):  # what accumulates runs in a recipe that another launches
        known &= device_total > 0
    deviation, device_deviation = step_deviations(
        found.name, found.start, view.steps.steady_windows(), by_name.key[kept], found.self_ns, found.device_self
    )
    out = []
    for i in kept.tolist():
        code = int(by_name.key[i])
        counted = shapes.get(code)
        out.append(
            OperatorRow(
                name=trace.names[code],
                count=int(by_name.count[i]),
                count_per_step=int(by_name.count[i]) / steady,
                host_total_ns=int(total[code]),
                host_self_ns=int(self_total[code]),
                host_total_per_step_ns=int(total[code]) / steady,
                host_self_per_step_ns=int(self_total[code]) / steady,
                host_p50_ns=int(by_name.p50[i]),
                host_p90_ns=int(by_name.p90[i]),
                device_total_ns=int(device_total[code]) if known[code] else None,
                device_self_ns=int(device_self[code]) if known[code] else None,
                device_total_per_step_ns=int(device_total[code]) / steady if known[code] else None,
                launches=int(launched[code]) if known[code] else None,
                shapes=counted[0] if counted else None,
                top_shape=counted[1] if counted else None,
                host_self_deviation_ns=deviation[code],
                device_self_deviation_ns=device_deviation[code] if known[code] else None,
            )
        )
    return out, len(by_name.key)


class _Operators(Struct, frozen=True, eq=False):
    """Operators that start in steady steps, columns of shape `(operators,)`, times in ns."""

    name: Ints
    start: Ints
    dur: Ints
    self_ns: Ints
    device_self: Ints  # of the device rows it launched itself
    device_total: Ints  # and of those launched by operators inside it
    launched: Ints  # device rows it launched itself, of recipes the launches
    outermost: Mask  # inside no other operator of its name
    shape: Codes


def _operators(view: RankView) -> _Operators:
    host, links, nesting = view.trace.host, view.links, view.links.nesting
    # Device rows without an operator count for one before all others.
    device_self = np.bincount(links.operator + 1, weights=links.work_ns, minlength=len(nesting.rows) + 1)[1:]
    device_self = device_self.astype(np.int64)
    counted = links.operator if links.by_order is None else links.operator[links.activations.first]
    launched = np.bincount(counted + 1, minlength=len(nesting.rows) + 1)[1:]
    names = host.name.take(nesting.rows)
    inside = np.flatnonzero(contains(view.steps.steady_windows(), nesting.start))
    return _Operators(
        name=names.take(inside).astype(np.int64),
        start=nesting.start.take(inside),
        dur=nesting.end.take(inside) - nesting.start.take(inside),
        self_ns=nesting.own_ns.take(inside),
        device_self=device_self.take(inside),
        device_total=nesting.sums(device_self).take(inside),
        launched=launched.take(inside),
        outermost=nesting.outermost(names).take(inside),
        shape=host.shape.take(nesting.rows.take(inside)),
    )


def _shapes(trace: Trace, operators: _Operators) -> dict[int, tuple[int, str]]:
    """Return for each operator name the number of distinct input shapes and the most frequent one."""
    shape = operators.shape
    rows = np.flatnonzero(shape >= 0)
    if not len(rows):
        return {}
    width = len(trace.shapes)
    pairs, _, which = kinds_of(operators.name.take(rows) * width + shape.take(rows))
    counts = np.bincount(which)
    seen: dict[int, Counter[int]] = {}
    for name, code, count in zip((pairs // width).tolist(), (pairs % width).tolist(), counts.tolist(), strict=True):
        seen.setdefault(name, Counter())[code] += count
    return {n: (len(c), trace.shapes[min(c, key=lambda s: (-c[s], trace.shapes[s]))]) for n, c in seen.items()}


def kernel_rows(view: RankView) -> tuple[list[KernelRow], int]:
    """Summarize device rows by name and engine; also return the number of distinct kernels."""
    trace, device, steps = view.trace, view.trace.device, view.steps
    rows = np.flatnonzero(contains(steps.steady_timed(), device.start) & (device.kind != DeviceKind.MARKER))
    if not len(rows):
        return [], 0
    width = len(trace.engines)
    # On engines whose rows are lanes of one kernel (tracks with an engine), overlapping rows of one name are one
    # activation.
    laned = np.array([t.engine is not None for t in trace.tracks], dtype=bool).take(device.track.take(rows))
    many, one = rows.compress(laned), rows.compress(~laned)
    key = device.name.astype(np.int64) * width + device.engine
    k, s, e, merged = clusters(key[many], device.start[many], device.end[many])
    keys = np.concatenate([k, key[one]])
    lengths = np.concatenate([e - s, device.dur[one]])
    starts = np.concatenate([s, device.start[one]])
    which = kinds_of(keys)[2]
    row_count = np.bincount(which, weights=np.concatenate([merged, np.ones(len(one))])).astype(np.int64)
    stats = group(keys, lengths)
    steady = int(steps.steady.sum())
    order = np.lexsort((stats.key, -stats.total))[:MAX_ROWS]
    [deviation] = step_deviations(which, starts, steps.steady_timed(), order, lengths)
    rows = rows.take(stable_order(key.take(rows)))
    sorted_keys, kinds, dtypes, recipes = (c.take(rows) for c in (key, device.kind, device.dtype, device.recipe))
    operator, dur = view.links.operator.take(rows), device.dur.take(rows)
    launcher = np.full(len(operator), -1)
    known = operator >= 0
    launcher[known] = trace.host.name.take(view.links.nesting.rows.take(operator[known]))
    out = []
    for i in order.tolist():
        code = int(stats.key[i])
        low, high = np.searchsorted(sorted_keys, [code, code + 1])
        dtype = distinct(dtypes[low:high])
        recipe = distinct(recipes[low:high])
        named = "+".join(trace.dtypes[d] for d in dtype.tolist() if d >= 0)
        out.append(
            KernelRow(
                name=trace.names[code // width],
                engine=trace.engines[code % width],
                kind=DeviceKind(int(kinds[low])).name.lower(),
                dtype=named or None,
                count=int(stats.count[i]),
                count_per_step=int(stats.count[i]) / steady,
                rows=int(row_count[i]),
                total_ns=int(stats.total[i]),
                total_per_step_ns=int(stats.total[i]) / steady,
                p50_ns=int(stats.p50[i]),
                p90_ns=int(stats.p90[i]),
                max_ns=int(stats.max[i]),
                recipes=int((recipe >= 0).sum()) or None,
                total_deviation_ns=deviation[i],
                operator=_most(launcher[low:high], dur[low:high], trace.names),
            )
        )
    return out, len(stats.key)


def _most(launcher: Ints, dur: Ints, names: Sequence[str]) -> str | None:
    """Return the operator that launched most of the time of some rows; None where none is known."""
    codes, _, which = kinds_of(launcher)
    times = np.bincount(which, weights=dur, minlength=len(codes))
    found = [(-float(ns), names[code]) for code, ns in zip(codes.tolist(), times.tolist(), strict=True) if code >= 0]
    return min(found)[1] if found else None
