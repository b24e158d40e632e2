"""Operators, kernels and launches over the used steps: counts, host time, device time they launched, percentiles."""

from __future__ import annotations

from collections import Counter

import numpy as np

from hpuprof.analysis.deviation import step_deviations
from hpuprof.analysis.groups import clusters, group, members, percentile
from hpuprof.analysis.links import Links, launch_calls
from hpuprof.analysis.steps import Steps
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.intervals import Intervals, contains
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.tables import KernelRow, LaunchRow, OperatorRow, QueuePoint
from hpuprof.model.trace import Trace

MAX_ROWS = 200
"""Rows kept of the operator and kernel tables, the largest first; the report says when a table was cut."""
QUEUE_POINTS = 200


def operator_rows(trace: Trace, links: Links, steps: Steps) -> tuple[list[OperatorRow], int]:
    """Summarise operators by name; also return how many distinct operators there were."""
    host, device, nesting = trace.host, trace.device, links.nesting
    inside = contains(steps.used_windows(), nesting.start)
    if not inside.any():
        return [], 0
    dur = nesting.end - nesting.start
    has_parent = nesting.parent >= 0
    covered = np.bincount(nesting.parent[has_parent], weights=dur[has_parent], minlength=len(dur)).astype(np.int64)
    self_ns = dur - covered
    names = host.name[nesting.rows].astype(np.int64)
    outermost = nesting.outermost(names)
    by_name = group(names[inside], dur[inside])
    size = len(trace.names)
    total = np.bincount(names[inside & outermost], weights=dur[inside & outermost], minlength=size).astype(np.int64)
    self_total = np.bincount(names[inside], weights=self_ns[inside], minlength=size).astype(np.int64)
    device_self = np.zeros(size, dtype=np.int64)
    device_total = np.zeros(size, dtype=np.int64)
    launched = np.zeros(size, dtype=np.int64)
    per_op = np.zeros(len(dur), dtype=np.int64)
    linked = links.operator >= 0
    if linked.any():
        per_op = np.bincount(links.operator[linked], weights=device.dur[linked], minlength=len(dur)).astype(np.int64)
        rows_per_op = np.bincount(links.operator[linked], minlength=len(dur))
        subtree = nesting.sums(per_op)
        device_self = np.bincount(names[inside], weights=per_op[inside], minlength=size).astype(np.int64)
        device_total = np.bincount(
            names[inside & outermost], weights=subtree[inside & outermost], minlength=size
        ).astype(np.int64)
        launched = np.bincount(names[inside], weights=rows_per_op[inside], minlength=size).astype(np.int64)
    shapes = _shapes(trace, links, inside, names)
    weight = device_self[by_name.key] + self_total[by_name.key]
    alphabetical = np.array([trace.names[int(code)] for code in by_name.key])
    order = np.lexsort((alphabetical, -weight))
    known = bool(linked.any())
    used = int(steps.used.sum())
    kept = order[:MAX_ROWS]
    inside_rows = (names[inside], nesting.start[inside], steps.used_windows(), by_name.key[kept])
    deviation = _deviations(self_ns[inside], *inside_rows)
    device_deviation = _deviations(per_op[inside], *inside_rows) if known else {}
    out = []
    for i in kept.tolist():
        code = int(by_name.key[i])
        counted = shapes.get(code)
        out.append(
            OperatorRow(
                name=trace.names[code],
                count=int(by_name.count[i]),
                count_per_step=int(by_name.count[i]) / used,
                host_total_ns=int(total[code]),
                host_self_ns=int(self_total[code]),
                host_total_per_step_ns=int(total[code]) / used,
                host_self_per_step_ns=int(self_total[code]) / used,
                host_p50_ns=int(by_name.p50[i]),
                host_p90_ns=int(by_name.p90[i]),
                device_total_ns=int(device_total[code]) if known else None,
                device_self_ns=int(device_self[code]) if known else None,
                device_total_per_step_ns=int(device_total[code]) / used if known else None,
                launches=int(launched[code]) if known else None,
                shapes=counted[0] if counted else None,
                top_shape=counted[1] if counted else None,
                host_self_deviation_ns=deviation[code],
                device_self_deviation_ns=device_deviation.get(code),
            )
        )
    return out, len(by_name.key)


def _deviations(values: Ints, keys: Ints, start: Ints, used: Intervals, wanted: Ints) -> dict[int, float | None]:
    return dict(zip(wanted.tolist(), step_deviations(keys, values, start, used, wanted), strict=True))


def _shapes(trace: Trace, links: Links, inside: Mask, names: Ints) -> dict[int, tuple[int, str]]:
    """Return for each operator name the number of distinct input shapes and the most frequent one."""
    shape = trace.host.shape[links.nesting.rows]
    rows = inside & (shape >= 0)
    if not rows.any():
        return {}
    width = len(trace.shapes)
    pairs, counts = np.unique(names[rows] * width + shape[rows], return_counts=True)
    seen: dict[int, Counter[int]] = {}
    for name, code, count in zip((pairs // width).tolist(), (pairs % width).tolist(), counts.tolist(), strict=True):
        seen.setdefault(name, Counter())[code] += count
    return {n: (len(c), trace.shapes[min(c, key=lambda s: (-c[s], trace.shapes[s]))]) for n, c in seen.items()}


def kernel_rows(trace: Trace, steps: Steps) -> tuple[list[KernelRow], int]:
    """Summarise device rows by name and engine; also return how many distinct kernels there were."""
    device = trace.device
    inside = contains(steps.used_windows(), device.start) & (device.kind != DeviceKind.MARKER)
    if not inside.any():
        return [], 0
    width = len(trace.engines)
    # On engines whose rows are lanes of one kernel (tracks with an engine), overlapping rows of a name are one activation.
    laned = np.array([t.engine is not None for t in trace.tracks], dtype=bool)[device.track]
    key = device.name.astype(np.int64) * width + device.engine
    many, one = inside & laned, inside & ~laned
    k, s, e, rows = clusters(key[many], device.start[many], device.end[many])
    keys = np.concatenate([k, key[one]])
    lengths = np.concatenate([e - s, device.dur[one]])
    starts = np.concatenate([s, device.start[one]])
    row_count = np.bincount(
        np.unique(keys, return_inverse=True)[1], weights=np.concatenate([rows, np.ones(int(one.sum()))])
    ).astype(np.int64)
    stats = group(keys, lengths)
    used = int(steps.used.sum())
    order = np.lexsort((stats.key, -stats.total))[:MAX_ROWS]
    deviation = _deviations(lengths, keys, starts, steps.used_windows(), stats.key[order])
    sort = np.argsort(key[inside], kind="stable")
    sorted_keys, kinds, dtypes, recipes = (
        key[inside][sort],
        device.kind[inside][sort],
        device.dtype[inside][sort],
        device.recipe[inside][sort],
    )
    out = []
    for i in order.tolist():
        code = int(stats.key[i])
        low, high = np.searchsorted(sorted_keys, [code, code + 1])
        dtype = np.unique(dtypes[low:high])
        recipe = np.unique(recipes[low:high])
        named = "+".join(trace.dtypes[d] for d in dtype.tolist() if d >= 0)
        out.append(
            KernelRow(
                name=trace.names[code // width],
                engine=trace.engines[code % width],
                kind=DeviceKind(int(kinds[low])).name.lower(),
                dtype=named or None,
                count=int(stats.count[i]),
                count_per_step=int(stats.count[i]) / used,
                rows=int(row_count[i]),
                total_ns=int(stats.total[i]),
                total_per_step_ns=int(stats.total[i]) / used,
                p50_ns=int(stats.p50[i]),
                p90_ns=int(stats.p90[i]),
                max_ns=int(stats.max[i]),
                recipes=int((recipe >= 0).sum()) or None,
                total_deviation_ns=deviation[code],
            )
        )
    return out, len(stats.key)


def launch_rows(trace: Trace, links: Links, launched: Ints, steps: Steps) -> tuple[list[LaunchRow], list[QueuePoint]]:
    """Summarise launch calls and the depth of the launch queue.

    `launched`: the launch of each device row as far as it is known (`matched_launches`); it tells which calls are linked, and
    their latency. What compares or counts single rows (`short_fraction`, the queue) needs a row for each launch, so it counts
    only what the writer says: a recipe's rows are its engines' lanes.
    """
    host, device = trace.host, trace.device
    used = steps.used_windows()
    is_launch = (host.kind == HostKind.RUNTIME) & (
        (host.activity == Activity.LAUNCH) | (host.activity == Activity.GRAPH_LAUNCH)
    )
    calls = np.flatnonzero(is_launch & contains(used, host.start))
    if not len(calls):
        return [], []
    known = np.flatnonzero(launched >= 0)
    first_start = np.full(len(host), -1, dtype=np.int64)
    # Device rows are sorted by start, so writing them backwards leaves the first row of each call.
    first_start[launched[known][::-1]] = device.start[known][::-1]
    plain = np.flatnonzero(links.launch >= 0)
    plain = plain[np.isin(links.launch[plain], calls)]
    plain = plain[host.activity[links.launch[plain]] == Activity.LAUNCH]
    short = device.dur[plain] < host.dur[links.launch[plain]]
    depth, points = _queue(trace, links, steps)

    def row(name: str, counted: Ints, called: Ints, quick: Mask, *, everything: bool) -> LaunchRow:
        start = first_start[called]
        has = start >= 0
        latency = np.maximum(start[has] - host.end[called[has]], 0)
        return LaunchRow(
            call=name,
            count=len(counted),
            count_per_step=len(counted) / len(used),
            host_p50_ns=percentile(host.dur[counted], 0.5) or 0,
            host_p90_ns=percentile(host.dur[counted], 0.9) or 0,
            linked=int(has.sum()),
            latency_p50_ns=percentile(latency, 0.5),
            latency_p90_ns=percentile(latency, 0.9),
            short_fraction=float(quick.mean()) if len(quick) else None,
            queue_mean=depth[0] if everything and depth else None,
            queue_max=depth[1] if everything and depth else None,
        )

    groups = sorted(members(host.name[calls]), key=lambda part: (-len(part[1]), trace.names[part[0]]))
    short_of = {n: short[places] for n, places in members(host.name[links.launch[plain]])}
    chosen = np.zeros(len(host), dtype=bool)
    chosen[calls] = True
    outermost = launch_calls(trace)
    outermost = outermost[chosen[outermost]]
    out = [row("(all)", outermost, calls, short, everything=True)]
    for n, places in groups:
        mine = calls[places]
        out.append(row(trace.names[n], mine, mine, short_of.get(n, short[:0]), everything=False))
    return out, points


def _queue(trace: Trace, links: Links, steps: Steps) -> tuple[tuple[float, int] | None, list[QueuePoint]]:
    """Measure how many device rows were launched and not started, over time."""
    linked = np.flatnonzero(links.launch >= 0)
    used = steps.used_windows()
    if not len(linked) or not len(used):
        return None, []
    put, taken = trace.host.start[links.launch[linked]], trace.device.start[linked]
    time = np.concatenate([put, taken])
    change = np.concatenate([np.ones(len(put), dtype=np.int64), -np.ones(len(taken), dtype=np.int64)])
    order = np.lexsort((-change, time))
    time, depth = time[order], np.cumsum(change[order])
    low, high = int(steps.start[0]), int(steps.end[-1])
    # Area under the depth curve up to any instant, so that windows cost a lookup each.
    area = np.concatenate([[0], np.cumsum(depth[:-1] * np.diff(time))]).astype(np.float64)

    def area_before(when: Ints) -> Floats:
        at = np.searchsorted(time, when, side="right") - 1
        safe = np.maximum(at, 0)
        return np.where(at >= 0, area[safe] + depth[safe] * (when - time[safe]), 0.0)

    mean = float((area_before(used.end) - area_before(used.start)).sum()) / max(1, used.total_ns)
    inside = contains(used, time)
    width = max(1, -(-(high - low) // QUEUE_POINTS))
    shown = (time >= low) & (time < high)
    slot = (time[shown] - low) // width
    deepest = np.full(int((high - low - 1) // width) + 1, 0, dtype=np.int64)
    # A slice without a change keeps the depth that it began with.
    begin = np.searchsorted(time, low + width * np.arange(len(deepest)), side="right") - 1
    deepest = np.where(begin >= 0, depth[np.maximum(begin, 0)], 0)
    np.maximum.at(deepest, slot, depth[shown])
    points = [QueuePoint(start_ns=low + width * i, depth=int(d)) for i, d in enumerate(deepest.tolist())]
    return (mean, int(depth[inside].max(initial=0))), points
