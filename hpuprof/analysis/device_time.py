"""Device time: unions per kind and engine, what overlaps what, what is exposed. Sums of rows are never busy time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from hpuprof.analysis.groups import members
from hpuprof.analysis.steps import Steps
from hpuprof.model.arrays import Ints
from hpuprof.model.intervals import Intervals, contains, intersect, measure, subtract, union, union_of
from hpuprof.model.schema import DeviceKind
from hpuprof.model.tables import EngineRow, OverlapRow, PrecisionRow
from hpuprof.model.trace import Trace

LOW_PRECISION = (
    "bf16",
    "bfloat16",
    "fp16",
    "float16",
    "half",
    "fp8",
    "float8",
    "hf8",
    "f8",
    "c10::bfloat16",
    "c10::half",
)


@dataclass(frozen=True, eq=False)
class DeviceTime:
    """Busy intervals of the device, by kind and by engine class."""

    busy: Intervals
    compute: Intervals
    communication: Intervals
    copy: Intervals
    exposed_communication: Intervals
    exposed_copy: Intervals
    engines: dict[str, Intervals]


def device_time(trace: Trace) -> DeviceTime:
    """Merge device rows per kind and per engine; markers occupy nothing."""
    device = trace.device
    kinds = {
        k: union(device.start[device.kind == k], device.end[device.kind == k])
        for k in DeviceKind
        if k != DeviceKind.MARKER
    }
    compute, communication, copy = kinds[DeviceKind.COMPUTE], kinds[DeviceKind.COMMUNICATION], kinds[DeviceKind.COPY]
    real = device.kind != DeviceKind.MARKER
    rows = np.flatnonzero(real)
    engines = {}
    for code, places in members(device.engine[rows]):
        mine = rows[places]
        engines[trace.engines[code]] = union(device.start[mine], device.end[mine])
    return DeviceTime(
        busy=union_of(compute, communication, copy),
        compute=compute,
        communication=communication,
        copy=copy,
        exposed_communication=subtract(communication, compute),
        exposed_copy=subtract(copy, union_of(compute, communication)),
        engines=dict(sorted(engines.items())),
    )


def _median(values: Ints) -> int:
    return int(np.median(values)) if len(values) else 0


def _per_step(busy: Intervals, used: Intervals) -> tuple[int, int]:
    """Return the median over the used steps, and the sum, of what is busy in them [ns].

    Cost follows the intervals, not the steps: there may be many lanes that are busy in few of them.
    """
    pieces = intersect(busy, used)
    step = np.searchsorted(used.start, pieces.start, side="right") - 1
    sums = np.add.reduceat(pieces.dur, np.flatnonzero(np.append([True], step[1:] != step[:-1]))) if len(step) else step
    if 2 * len(sums) < len(used):
        return 0, int(sums.sum())
    return _median(np.append(np.zeros(len(used) - len(sums), dtype=np.int64), sums)), int(sums.sum())


def engine_rows(trace: Trace, times: DeviceTime, steps: Steps) -> list[EngineRow]:
    """Summarise each engine class and each of its lanes over the used steps."""
    device = trace.device
    used = steps.used_windows()
    wall = max(1, used.total_ns)
    rows = np.flatnonzero(device.kind != DeviceKind.MARKER)
    inside = contains(used, device.start)
    on_lane: dict[int, dict[int, Ints]] = {}
    for key, places in members(device.engine[rows].astype(np.int64) * len(trace.tracks) + device.track[rows]):
        code, lane = divmod(key, len(trace.tracks))
        on_lane.setdefault(code, {})[lane] = rows[places]
    out = []
    for engine, busy in times.engines.items():
        of_engine = on_lane[trace.engines.index(engine)]
        # By label, so that the order of rows in the file does not show.
        lanes = sorted(of_engine, key=lambda t: (len(trace.tracks[t].label), trace.tracks[t].label))
        per_step = measure(busy, used.start, used.end)
        count = sum(int(inside[mine].sum()) for mine in of_engine.values())
        out.append(
            EngineRow(
                engine=engine,
                lane="",
                lanes=len(lanes),
                rows=count,
                rows_per_step=count / max(1, len(used)),
                busy_ns=_median(per_step),
                busy_fraction=float(per_step.sum()) / wall,
            )
        )
        for lane in lanes:
            mine = of_engine[lane]
            median, total = _per_step(union(device.start[mine], device.end[mine]), used)
            out.append(
                EngineRow(
                    engine=engine,
                    lane=trace.tracks[lane].label,
                    lanes=1,
                    rows=(lane_count := int(inside[mine].sum())),
                    rows_per_step=lane_count / max(1, len(used)),
                    busy_ns=median,
                    busy_fraction=float(total) / wall,
                )
            )
    return out


def overlap_rows(times: DeviceTime, steps: Steps) -> list[OverlapRow]:
    """Measure for each pair of engine classes how long both ran."""
    used = steps.used_windows()
    out = []
    for a, b in combinations(times.engines, 2):
        both = times.engines[a], times.engines[b]
        together = measure(union_of(*both), used.start, used.end)
        alone = [measure(x, used.start, used.end) for x in both]
        overlap = alone[0] + alone[1] - together
        totals = [int(x.sum()) for x in alone]
        shares = [float(overlap.sum()) / t if t else None for t in totals]
        out.append(
            OverlapRow(
                engine_a=a, engine_b=b, overlap_ns=_median(overlap), fraction_of_a=shares[0], fraction_of_b=shares[1]
            )
        )
    return out


def precision_rows(trace: Trace, steps: Steps) -> list[PrecisionRow]:
    """Measure compute engines by data type; nothing when the trace names no data types."""
    device = trace.device
    used = steps.used_windows()
    compute = (device.kind == DeviceKind.COMPUTE) & contains(used, device.start)
    if not (device.dtype[compute] >= 0).any():
        return []
    out = []
    for engine in np.unique(device.engine[compute]).tolist():
        times: dict[str, int] = {}
        mine = compute & (device.engine == engine)
        for code in np.unique(device.dtype[mine]).tolist():
            rows = mine & (device.dtype == code)
            times[trace.dtypes[code] if code >= 0 else "unknown"] = union(device.start[rows], device.end[rows]).total_ns
        total = max(1, sum(times.values()))
        out += [
            PrecisionRow(engine=trace.engines[engine], dtype=name, busy_ns=ns, fraction=ns / total)
            for name, ns in sorted(times.items(), key=lambda item: (-item[1], item[0]))
        ]
    return out


def is_low_precision(dtype: str) -> bool:
    """Tell whether a data type has 16 bits or fewer of floating point."""
    return dtype.lower() in LOW_PRECISION or dtype.lower().startswith(("fp8", "float8", "hf8"))
