"""What one worker runs: a trace file to its reduced tables. Everything here is picklable and depends on the file alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpuprof.analysis.actions import action_rows
from hpuprof.analysis.activations import linked_share
from hpuprof.analysis.collective_search import collective_calls
from hpuprof.analysis.device_time import DeviceTime, engine_rows, overlap_rows, precision_rows
from hpuprof.analysis.evidence import degenerate, synchronous
from hpuprof.analysis.gaps import cause_rows, gap_rows
from hpuprof.analysis.host_time import HostTime
from hpuprof.analysis.idle import gap_operator_rows
from hpuprof.analysis.intel import intel_row
from hpuprof.analysis.links import Links, launch_calls
from hpuprof.analysis.memory import memory_points, memory_rows
from hpuprof.analysis.operators import kernel_rows, launch_rows, operator_rows
from hpuprof.analysis.phases import phase_columns
from hpuprof.analysis.steps import Steps
from hpuprof.analysis.view import RankView
from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.graph_mode.capturability import capturability
from hpuprof.graph_mode.constants import read_profile
from hpuprof.graph_mode.modules import MAX_DEPTH, backward_windows, module_calls
from hpuprof.graph_mode.predict import predict
from hpuprof.ingest.discover import TraceFile, identity_inside
from hpuprof.model.arrays import Ints
from hpuprof.model.intervals import Intervals, complement, intersect, measure
from hpuprof.model.partial import RankPartial
from hpuprof.model.schema import BLOCKED_KINDS, Cause, DeviceKind, Role
from hpuprof.model.tables import DiagnosticRow, FileRow, StepRow, ThreadRow
from hpuprof.model.trace import Trace, Trouble
from hpuprof.naming import METADATA_KEY
from hpuprof.options import ReduceOptions

DEFAULTS = ReduceOptions()


def reduce_trace(trace: Trace, file: TraceFile, settings: ReduceOptions = DEFAULTS) -> RankPartial:
    """Measure one trace. All numbers of a report come from here or are combined from here."""
    view = RankView.of(trace)
    roles, steps, links, launched = view.roles, view.steps, view.links, view.launched
    hosts, device, states, gaps, compiling = view.hosts, view.device, view.states, view.gaps, view.compiling
    problems = degenerate(trace, links, steps, device.busy)
    comm_calls, comm_count = collective_calls(trace, steps, roles, links, hosts, device, gaps, states, compiling)
    operators, operator_count = operator_rows(trace, links, steps)
    kernels, kernel_count = kernel_rows(trace, steps)
    launches, queue = launch_rows(trace, links, launched, steps)
    calls = module_calls(trace, steps, links, roles)
    windows = backward_windows(trace, steps, links, calls)
    capture = capturability(trace, steps, links, roles, hosts, calls, windows)
    intel = intel_row(trace, roles, steps, device, states)
    cut = [
        Trouble("HP123", n - len(rows), f"{what} beyond the largest {len(rows)}")
        for n, rows, what in (
            (operator_count, operators, "operators"),
            (kernel_count, kernels, "kernels"),
            (capture.found["obstacles"], capture.obstacles, "obstacles to graph mode"),
            (capture.found["modules"], capture.modules, "modules"),
            (capture.found["shapes"], capture.shapes, "shapes"),
        )
        if n > len(rows)
    ]
    if comm_count > len(comm_calls):
        cut.append(
            Trouble("HP123", comm_count - len(comm_calls), f"collective calls after the first {len(comm_calls)}")
        )
    if calls.left_out:
        cut.append(Trouble("HP175", calls.left_out, f"{calls.left_out:,} module calls inside {MAX_DEPTH} others"))
    row = _file_row(trace, file, steps, launched)
    given = settings.step_time_ns
    prediction = predict(
        trace,
        roles,
        steps,
        links,
        hosts,
        device,
        calls,
        windows,
        unprofiled_ns=given or row.unprofiled_step_ns,
        spread_ns=None if given else row.unprofiled_spread_ns,
        given=given is not None,
        measured=read_profile(settings.constants),
    )
    return RankPartial(
        file=row,
        inside={k: v for k, v in identity_inside(trace.header).items() if isinstance(v, (int, str))},
        sound=not problems,
        steps=_step_rows(trace, roles, steps, hosts, device, states, compiling),
        gap_causes=cause_rows(gaps, steps),
        gaps=gap_rows(trace, gaps, steps, roles, links),
        gap_operators=gap_operator_rows(trace, gaps, steps, roles, links),
        threads=_thread_rows(trace, roles, hosts, steps),
        engines=engine_rows(trace, device, steps),
        overlaps=overlap_rows(device, steps),
        actions=action_rows(trace, device.busy, steps),
        operators=operators,
        kernels=kernels,
        launches=launches,
        queue=queue,
        memory=memory_rows(trace),
        memory_points=memory_points(trace, steps),
        precision=precision_rows(trace, steps),
        intel=[intel] if intel else [],
        obstacles=capture.obstacles,
        modules=capture.modules,
        shapes=capture.shapes,
        diagnostics=_diagnostics(trace, file, steps, links, launched, [*problems, *cut]),
        prediction=prediction,
        calls=comm_calls.pack(),
    )


def _step_rows(
    trace: Trace,
    roles: npt.NDArray[np.int8],
    steps: Steps,
    hosts: HostTime,
    device: DeviceTime,
    states: dict[Cause, Intervals],
    compiling: Intervals,
) -> list[StepRow]:
    low, high = steps.start, steps.end
    wall = steps.wall
    count = len(steps)
    host_known, device_known = bool(len(trace.host)), bool(len(device.busy))

    def host(a: Intervals) -> list[int | None]:
        return measure(a, low, high).tolist() if host_known else [None] * count

    def dev(a: Intervals) -> list[int | None]:
        return measure(a, low, high).tolist() if device_known else [None] * count

    blocked = measure(hosts.blocked, low, high)
    busy = measure(device.busy, low, high)
    phases = {} if device_known else phase_columns(trace, roles, hosts, states, steps)
    silent = phases.get("no_operator_ns", [0] * count)
    working = wall - blocked - np.array([ns or 0 for ns in silent], dtype=np.int64)
    unblocked = complement(hosts.blocked, int(low[0]), int(high[-1])) if count else hosts.blocked
    both = measure(intersect(device.busy, unblocked), low, high)
    launch = launch_calls(trace)
    columns: dict[str, list[Any]] = {
        "host_working_ns": working.tolist() if host_known else [None] * count,
        "host_blocked_ns": host(hosts.blocked),
        **{f"blocked_{kind}_ns": host(hosts.blocked_by[kind]) for kind in BLOCKED_KINDS},
        "host_traced_ns": host(hosts.traced),
        "device_busy_ns": dev(device.busy),
        "device_idle_ns": (wall - busy).tolist() if device_known else [None] * count,
        "compute_busy_ns": dev(device.compute),
        "communication_busy_ns": dev(device.communication),
        "copy_busy_ns": dev(device.copy),
        "exposed_communication_ns": dev(device.exposed_communication),
        "exposed_copy_ns": dev(device.exposed_copy),
        "host_device_overlap_ns": both.tolist() if host_known and device_known else [None] * count,
        "overlap_degree": [
            _ratio(b, min(w, d)) if host_known and device_known else None
            for b, w, d in zip(both.tolist(), working.tolist(), busy.tolist(), strict=True)
        ],
        "input_ns": host(states[Cause.DATA_LOADER]),
        "compile_ns": measure(compiling, low, high).tolist(),
        "launches": _count(trace.host.start[launch], low, high),
        "device_rows": _count(trace.device.start[trace.device.kind != DeviceKind.MARKER], low, high)
        if device_known
        else [None] * count,
        **phases,
    }
    return [
        StepRow(
            step=i,
            label=steps.labels[i],
            start_ns=int(low[i]),
            wall_ns=int(wall[i]),
            used=not steps.excluded[i],
            excluded=steps.excluded[i],
            **{name: values[i] for name, values in columns.items()},
        )
        for i in range(count)
    ]


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole > 0 else None


def _count(when: Ints, low: Ints, high: Ints) -> list[int]:
    """Count instants (sorted) in each window."""
    counts: list[int] = (np.searchsorted(when, high) - np.searchsorted(when, low)).tolist()
    return counts


def _thread_rows(trace: Trace, roles: npt.NDArray[np.int8], hosts: HostTime, steps: Steps) -> list[ThreadRow]:
    used = steps.used_windows()
    out = []
    for role, (traced, blocked) in sorted(hosts.by_role.items()):
        threads = {trace.tracks[i].runs_on for i in np.flatnonzero(roles == role).tolist()}
        medians = [
            int(np.median(measure(part, used.start, used.end))) if len(used) else 0 for part in (traced, blocked)
        ]
        out.append(
            ThreadRow(role=Role(role).name.lower(), threads=len(threads), traced_ns=medians[0], blocked_ns=medians[1])
        )
    return out


def _file_row(trace: Trace, file: TraceFile, steps: Steps, launched: Ints) -> FileRow:
    properties = trace.header.get("deviceProperties")
    first = properties[0] if isinstance(properties, list) and properties and isinstance(properties[0], dict) else {}
    memory = first.get("totalGlobalMem")
    inside = identity_inside(trace.header)
    own = trace.header.get(METADATA_KEY)
    recorded: dict[str, Any] = own if isinstance(own, dict) else {}
    timed = recorded.get("unprofiled")
    timed = timed if isinstance(timed, dict) else {}
    return FileRow(
        path=file.name,
        bytes=file.bytes,
        provenance="",
        host_name=str(inside["host"]) if "host" in inside else None,
        world_size=int(inside["world_size"]) if str(inside.get("world_size", "")).isdigit() else None,
        device_name=str(first["name"]) if "name" in first else None,
        device_memory_bytes=int(memory) if isinstance(memory, (int, float)) and 0 < memory < 2**62 else None,
        family=trace.family,
        generation=trace.generation,
        mode=trace.mode,
        form=trace.form,
        rows=trace.health.rows,
        host_rows=trace.health.host_rows,
        device_rows=trace.health.device_rows,
        origin_ns=trace.origin_ns,
        span_ns=trace.end_ns,
        step_source=steps.source,
        step_name=steps.name,
        steps_total=len(steps),
        steps_used=int(steps.used.sum()),
        linked_fraction=linked_share(trace, launched),
        window_kind=str(recorded["window_kind"]) if recorded.get("window_kind") else None,
        unprofiled_step_ns=_whole(timed.get("step_ns"), least=1),
        unprofiled_spread_ns=_whole(timed.get("spread_ns"), least=0),
        ignored=trace.health.ignored,
        unknown=list(trace.health.unknown),
        categories=dict(sorted(trace.categories.items())),
    )


def _whole(value: object, *, least: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**62 else None


def _diagnostics(
    trace: Trace, file: TraceFile, steps: Steps, links: Links, launched: Ints, problems: list[Trouble]
) -> list[DiagnosticRow]:
    found = [*trace.health.troubles, *problems]
    if trace.health.unknown:
        total = sum(n for _, _, n in trace.health.unknown)
        kinds = ", ".join(sorted({f"{c} on {t}" for c, t, _ in trace.health.unknown})[:3])
        found.append(Trouble("HP104", total, f"rows that no rule knows: {kinds}"))
    if steps.source not in ("lightning", "profiler_step"):
        how = {
            "annotation": f"the annotation {steps.name!r}",
            "operator_period": f"the operators' period, from {steps.name!r} on",
        }.get(steps.source, "the whole trace as one step")
        found.append(Trouble("HP109", 1, f"no step markers; steps are {how}"))
    used = int(steps.used.sum())
    if used < 3:
        found.append(Trouble("HP110", used, f"{used} of {len(steps)} steps used"))
    if len(steps) > 1 and steps.untypical:
        found.append(Trouble("HP124", len(steps), "no step is typical"))
    if links.nesting.clipped:
        found.append(Trouble("HP115", links.nesting.clipped, "operators that outlive their parent"))
    real = trace.device.kind != DeviceKind.MARKER
    loose = int((real & (launched < 0)).sum())
    by_order = int((real & (links.launch < 0)).sum()) - loose
    if loose:
        found.append(
            Trouble("HP116", loose, f"{loose:,} of {int(real.sum()):,} device rows have no launch in the trace")
        )
    if by_order:
        found.append(
            Trouble(
                "HP190", by_order, f"{by_order:,} of {int(real.sum()):,} device rows matched to their launch by order"
            )
        )
    devices = {trace.tracks[t].pid for t in np.unique(trace.device.track[real]).tolist()}
    if len(devices) > 1:
        found.append(Trouble("HP117", len(devices), f"device rows of {len(devices)} devices"))
    if synchronous(trace, links):
        found.append(Trouble("HP121", 1, "launch calls outlive the device rows they launch"))
    return [
        DiagnosticRow(
            code=t.code,
            severity=DIAGNOSTICS[t.code].severity,
            path=file.name,
            count=t.count,
            text=t.text,
            offset=t.offset,
        )
        for t in found
    ]
