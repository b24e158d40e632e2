"""Can a graph hold the step? Joins module tree, signatures, paths and occurrences into the report's tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from hpuprof.analysis.modules import BackwardWindows, ModuleCalls, Timeline, thread_codes
from hpuprof.analysis.placement import Phase
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.diverging_paths import find_forks, tokens
from hpuprof.graph_mode.dynamic_ops import find_operators
from hpuprof.graph_mode.obstacles import OPTIMIZER, STEP, Obstacle, graphs_needed, judge, topmost_varying
from hpuprof.graph_mode.occurrences import Context, find_occurrences
from hpuprof.graph_mode.shapes import DEFAULT_MAX_GRAPHS, coverage, suggest_buckets, unseen
from hpuprof.graph_mode.signatures import ModuleShapes, find_roots, module_shapes
from hpuprof.model.arrays import Ints
from hpuprof.model.intervals import measure
from hpuprof.model.tables import ModuleRow, ObstacleRow, ShapeRow

MAX_OBSTACLES, MAX_MODULES, MAX_SHAPES = 200, 200, 200
_SHAPES_PER_MODULE = 20
_FEW_CALLS = 3  # fewer calls say nothing about the next one
_MEMORY_CALLS = 5  # calls of each module to measure memory on
_LOOKED_FOR = ("HP301", "HP302", "HP309", "HP313", "HP314", "HP315", "HP317")
_WITH_DEVICE = ("HP303", "HP304", "HP306")
_WITH_SHAPES = ("HP307", "HP308", "HP313", "HP321")


@dataclass(frozen=True)
class Capturability:
    """Rows for the report; `found` counts them before tables are cut."""

    obstacles: list[ObstacleRow]
    modules: list[ModuleRow]
    shapes: list[ShapeRow]
    found: dict[str, int]


@dataclass(frozen=True, eq=False)
class CallCosts:
    """Costs of each module call, backward included; columns of shape `(calls,)`. ns and counts."""

    forward: Ints
    backward: Ints
    launches: Ints
    device: Ints
    has_launches: bool
    has_device: bool


def capturability(view: RankView, calls: ModuleCalls, windows: BackwardWindows) -> Capturability:
    """Find the obstacles to graph mode, and describe each module."""
    if not len(view.links.nesting.rows):
        return Capturability([], [], [], {"obstacles": 0, "modules": 0, "shapes": 0})
    hits = find_operators(view)
    roots = find_roots(view, calls)
    shapes = module_shapes(view, calls, roots, hits)
    stream = tokens(view, calls, roots, view.placement)
    context = Context(view, calls, view.placement, hits)
    obstacles = judge(context, find_occurrences(context, stream), find_forks(view, calls, shapes, stream), shapes)
    costs = call_costs(view, calls, windows)
    rows, count = _module_rows(context, windows, shapes, costs, obstacles)
    varied = _shape_rows(context, shapes, costs)
    return Capturability(
        obstacles=[o.row for o in obstacles[:MAX_OBSTACLES]],
        modules=rows,
        shapes=varied[:MAX_SHAPES],
        found={"obstacles": len(obstacles), "modules": count, "shapes": len(varied)},
    )


def call_costs(view: RankView, calls: ModuleCalls, windows: BackwardWindows) -> CallCosts:
    """Measure each call: host span, backward stretches, launches in both, and the device rows they launched."""
    trace, links, host = view.trace, view.links, view.trace.host
    rows = view.calls.launches
    linked = links.launch >= 0
    device = np.zeros(len(host), dtype=np.int64)
    np.add.at(device, links.launch[linked], trace.device.dur[linked])
    # A copy is not a launch call, but its device time belongs to its caller.
    launching = np.zeros(len(host), dtype=bool)
    launching[rows] = True
    owning = launching.copy()
    owning[links.launch[linked]] = True
    every = np.flatnonzero(owning)
    threads = thread_codes(trace)
    line = Timeline.of(threads[host.track[every]], host.start[every], trace.end_ns + 2)
    count = np.concatenate([[0], np.cumsum(launching[every[line.order]])])
    busy = np.concatenate([[0], np.cumsum(device[every[line.order]])])
    known = bool(np.isin(threads[host.track[rows]], threads[calls.track]).any())  # else another thread launches
    launches = np.zeros(len(calls), dtype=np.int64)
    spent = np.zeros(len(calls), dtype=np.int64)
    backward = np.zeros(len(calls), dtype=np.int64)
    everyone = np.arange(len(calls))
    for owner, track, start, end in (
        (everyone, calls.track, calls.start, calls.end),
        (windows.call, windows.track, windows.start, windows.end),
    ):
        first, stop = line.ranges(threads[track], start, end)
        np.add.at(launches, owner, count[stop] - count[first])
        np.add.at(spent, owner, busy[stop] - busy[first])
    np.add.at(backward, windows.call, windows.end - windows.start)
    return CallCosts(calls.end - calls.start, backward, launches, spent, known, bool(linked.any()))


def _module_rows(
    context: Context, windows: BackwardWindows, shapes: list[ModuleShapes], costs: CallCosts, obstacles: list[Obstacle]
) -> tuple[list[ModuleRow], int]:
    """Return the rows of the costliest modules, and the number of all."""
    calls = context.calls
    outer = [entry.calls[calls.outermost[entry.calls]] for entry in shapes]
    host = costs.forward + costs.backward
    order = sorted(
        range(len(shapes)),
        key=lambda i: (-int(host[outer[i]].sum()), int(calls.depth[outer[i]].min()), calls.paths[shapes[i].module]),
    )
    regions = _regions(context, obstacles)
    rows = [
        _module_row(
            context, windows, shapes[i], outer[i], costs, [o.row for o in obstacles if shapes[i].module in o.around]
        )
        for i in order[: max(0, MAX_MODULES - len(regions))]
    ]
    return [*regions, *rows], len(regions) + len(shapes)


def _verdict(rows: list[ObstacleRow]) -> tuple[str, list[str], list[str]]:
    """Return capturable, blockers and changes of a module from its obstacles."""
    blockers = sorted({r.code for r in rows if r.severity in ("blocker", "cut")})
    changes = sorted({r.code for r in rows if r.severity == "periodic"} - set(blockers))
    return "no" if blockers else "with changes" if changes else "yes", blockers, changes


def _unknowns(context: Context, rows: list[ObstacleRow]) -> tuple[list[str], list[str]]:
    """Return the codes looked for without a hit, and those that the recording could not show."""
    trace = context.trace
    seen = {r.code for r in rows}
    looked, blind = set(_LOOKED_FOR), set[str]()
    if trace.family == "hpu":
        looked |= {"HP310", "HP311", "HP312"}
    (looked if trace.family != "cpu" and len(trace.device) else blind).update(_WITH_DEVICE)
    shown = any(d.values for d in trace.details)
    (looked if trace.shapes else blind).update(_WITH_SHAPES)
    (looked if context.calls.source == "python" else blind).add("HP322")
    if not shown:
        blind.add("HP313")
    if trace.family == "hpu":
        looked.discard("HP306")  # launches are not linked to operators
        blind.add("HP306")
    return sorted(looked - blind - seen), sorted(blind - seen)


def _module_row(
    context: Context,
    windows: BackwardWindows,
    entry: ModuleShapes,
    mine: Ints,
    costs: CallCosts,
    rows: list[ObstacleRow],
) -> ModuleRow:
    """Describe a module; `mine`: its calls outside all of its other calls."""
    calls, total = context.calls, max(1, len(context.steps))
    capturable, blockers, changes = _verdict(rows)
    not_seen, not_checked = _unknowns(context, rows)
    host = int(costs.forward[mine].sum() + costs.backward[mine].sum())
    keys = entry.keys
    served = coverage(keys) if keys else None
    graphs, _ = graphs_needed(served) if served else (None, False)
    buckets = None
    if entry.lengths is not None:
        price = costs.device[entry.calls].astype(np.float64)
        buckets = suggest_buckets(entry.lengths, price if costs.has_device and (price > 0).all() else None)
    known = [b for b in entry.input_bytes if b is not None]
    joined = bool(np.isin(windows.call, mine).any())
    return ModuleRow(
        module=calls.names[entry.module],
        module_path=calls.paths[entry.module],
        type=calls.types[entry.module],
        depth=int(calls.depth[mine].min()),
        source=calls.source,
        calls=len(entry.calls),
        calls_per_step=len(entry.calls) / total,
        capturable=capturable,
        blockers=blockers,
        changes=changes,
        host_per_step_ns=host / total,
        backward_per_step_ns=int(costs.backward[mine].sum()) / total if joined else None,
        device_per_step_ns=int(costs.device[mine].sum()) / total if costs.has_device else None,
        launches_per_step=int(costs.launches[mine].sum()) / total if costs.has_launches else None,
        signatures=len(set(keys)) if keys else None,
        varying=entry.varying,
        max_graphs=served.smallest() if served else None,
        max_graphs_lfu=served.smallest(use_lfu=True) if served else None,
        coverage_10=served.at(DEFAULT_MAX_GRAPHS) if served else None,
        use_lfu=served.prefers_lfu if served else None,
        unseen_fraction=unseen(keys) if keys and len(keys) >= _FEW_CALLS else None,
        bucket_edges=list(buckets.edges) if buckets else [],
        bucket_padding_fraction=buckets.padding if buckets else None,
        input_bytes=max(known) if known else None,
        static_input_bytes=sum(known[: graphs or 0]) if known and graphs else None,
        pool_bytes=_pool(context, windows, mine),
        not_seen=not_seen,
        not_checked=not_checked,
    )


def _pool(context: Context, windows: BackwardWindows, mine: Ints) -> int | None:
    """Return the rise of allocated memory during a call and its backward, the largest of the first calls."""
    trace = context.trace
    memory = trace.memory
    device = memory.device if memory.device.any() or trace.family != "cpu" else ~memory.device
    rows = np.flatnonzero(device & (memory.allocated >= 0))
    if not len(rows):
        return None
    time, held = memory.time[rows], memory.allocated[rows]
    largest = None
    for call in mine[:_MEMORY_CALLS].tolist():
        back = windows.end[(windows.call == call)]
        start, end = int(context.calls.start[call]), int(max([context.calls.end[call], *back.tolist()]))
        first, stop = np.searchsorted(time, [start, end])
        if first and stop > first:
            largest = max(largest or 0, int(held[first:stop].max() - held[first - 1]), 0)
    return largest


def _regions(context: Context, obstacles: list[Obstacle]) -> list[ModuleRow]:
    """Describe the whole step and the optimizer."""
    steps, total = context.steps, max(1, len(context.steps))
    everything = [o.row for o in obstacles]
    optimizer = [o.row for o in obstacles if o.row.module == OPTIMIZER]
    found = [(STEP, everything, int(steps.wall.sum()), len(steps))]
    inside = measure(context.placement.optimizer, steps.start, steps.end)
    if inside.any():
        found.append((OPTIMIZER, optimizer, int(inside.sum()), int((inside > 0).sum())))
    out = []
    for name, rows, host, count in found:
        capturable, blockers, changes = _verdict(rows)
        between = {o.row.code for o in obstacles if o.phase == Phase.BETWEEN and o.row.code in ("HP302", "HP303")}
        within = {r.code for r in everything if r.severity in ("blocker", "cut")} - between
        if name == STEP and capturable == "no" and not within and not _inside_too(obstacles, between):
            capturable, blockers, changes = "with changes", [], sorted({*blockers, *changes})
        not_seen, not_checked = _unknowns(context, rows)
        out.append(
            ModuleRow(
                module=name,
                module_path=name,
                type="",
                depth=-1,
                source=context.calls.source,
                calls=count,
                calls_per_step=count / total,
                capturable=capturable,
                blockers=blockers,
                changes=changes,
                host_per_step_ns=host / total,
                backward_per_step_ns=None,
                device_per_step_ns=None,
                launches_per_step=None,
                signatures=None,
                varying="",
                max_graphs=None,
                max_graphs_lfu=None,
                coverage_10=None,
                use_lfu=None,
                unseen_fraction=None,
                bucket_edges=[],
                bucket_padding_fraction=None,
                input_bytes=None,
                static_input_bytes=None,
                pool_bytes=None,
                not_seen=not_seen,
                not_checked=not_checked,
            )
        )
    return out


def _inside_too(obstacles: list[Obstacle], codes: set[str]) -> bool:
    """Tell whether a code found between modules also occurs inside one."""
    return any(
        o.row.code in codes and o.phase != Phase.BETWEEN and o.row.severity in ("blocker", "cut") for o in obstacles
    )


def _shape_rows(context: Context, shapes: list[ModuleShapes], costs: CallCosts) -> list[ShapeRow]:
    out = []
    for entry in topmost_varying(context, shapes):
        keys = entry.keys or []
        first: dict[int, int] = {}
        for i, key in enumerate(keys):
            first.setdefault(key, i)
        often = Counter(keys)
        counted = sorted(first, key=lambda k: (-often[k], first[k]))[:_SHAPES_PER_MODULE]
        order = list(first)
        for key in counted:
            mine = entry.calls[[k == key for k in keys]]
            out.append(
                ShapeRow(
                    module=context.calls.names[entry.module],
                    signature=entry.texts[order.index(key)],
                    length=int(entry.lengths[first[key]]) if entry.lengths is not None else None,
                    calls=len(mine),
                    fraction=len(mine) / len(keys),
                    first_call=first[key],
                    device_ns=float(costs.device[mine].mean()) if costs.has_device else None,
                    input_bytes=entry.input_bytes[order.index(key)],
                )
            )
    return out
