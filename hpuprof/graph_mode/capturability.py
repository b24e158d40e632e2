"""Can a graph hold the step? Joins module tree, signatures, paths and occurrences into the report's tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from msgspec import Struct

from hpuprof.analysis.modules import BackwardWindows, ModuleCalls, Timeline, thread_codes
from hpuprof.analysis.placement import Phase
from hpuprof.analysis.rank_view import RankView
from hpuprof.families import FAMILIES
from hpuprof.graph_mode.call_signatures import ModuleShapes, module_shapes
from hpuprof.graph_mode.diverging_paths import find_forks, tokens
from hpuprof.graph_mode.dynamic_ops import find_operators
from hpuprof.graph_mode.obstacles import OPTIMIZER, STEP, Obstacle, judge, topmost_varying
from hpuprof.graph_mode.occurrences import Context, find_occurrences
from hpuprof.graph_mode.shapes import graphs_needed
from hpuprof.model.arrays import Ints
from hpuprof.model.intervals import measure
from hpuprof.model.schema import Activity
from hpuprof.model.tables import ModuleRow, ObstacleRow, ShapeRow
from hpuprof.model.trace import Trace

MAX_OBSTACLES, MAX_MODULES, MAX_SHAPES = 200, 200, 200
_SHAPES_PER_MODULE = 20
_MEMORY_CALLS = 5  # calls of each module to measure memory on
_LOOKED_FOR = ("HP301", "HP302", "HP309", "HP314", "HP315", "HP317")
_WITH_DEVICE = ("HP303", "HP304")
_WITH_SHAPES = ("HP307", "HP308", "HP321")
_WITH_VALUES = ("HP313",)
_ON_HPU = ("HP310", "HP311", "HP312")


class Capturability(Struct, frozen=True):
    """Rows for the report; `found` counts them before tables are cut."""

    obstacles: list[ObstacleRow]
    modules: list[ModuleRow]
    shapes: list[ShapeRow]
    found: dict[str, int]


class CallCosts(Struct, frozen=True, eq=False):
    """Costs of each module call, backward included; columns of shape `(calls,)`, None where the trace shows none.

    `host`: span of the call and of its backward stretches, ns; `launches`: launch calls in them; `device`: device rows
    launched in them, summed, ns.
    """

    host: Ints
    launches: Ints | None
    device: Ints | None


class _Known(Struct, frozen=True, eq=False):
    """What module rows are made of. `looked`, `blind`: codes that this recording could and could not show."""

    context: Context
    windows: BackwardWindows
    costs: CallCosts
    looked: frozenset[str]
    blind: frozenset[str]


def capturability(view: RankView, calls: ModuleCalls, windows: BackwardWindows) -> Capturability:
    """Find the obstacles to graph mode, and describe each module."""
    if not len(view.links.nesting.rows):
        return Capturability([], [], [], {"obstacles": 0, "modules": 0, "shapes": 0})
    hits = find_operators(view)
    shapes = module_shapes(view, calls, hits)
    stream = tokens(view, calls, view.placement)
    context = Context(view, calls, view.placement, hits)
    obstacles = judge(context, find_occurrences(context, stream), find_forks(view, calls, shapes, stream), shapes)
    known = _Known(context, windows, call_costs(view, calls, windows), *_looked_for(context.trace))
    regions = _regions(known, obstacles)
    varied = _shape_rows(context, shapes, known.costs)
    return Capturability(
        obstacles=[o.row for o in obstacles[:MAX_OBSTACLES]],
        modules=[*regions, *_modules(known, shapes, obstacles, MAX_MODULES - len(regions))],
        shapes=varied[:MAX_SHAPES],
        found={"obstacles": len(obstacles), "modules": len(regions) + len(shapes), "shapes": len(varied)},
    )


def call_costs(view: RankView, calls: ModuleCalls, windows: BackwardWindows) -> CallCosts:
    """Measure each call: host span, backward stretches, launches in both, and the device rows they launched.

    What a thread launches counts where the program handed it over; a graph that lazy mode flushes is of many modules.
    """
    trace, links, host = view.trace, view.links, view.trace.host
    of_one = host.activity != Activity.GRAPH_BUILD
    rows = links.behind[view.calls.launches]
    rows = rows[of_one[rows]]
    linked = np.flatnonzero(links.caused >= 0)
    linked = linked[of_one[links.caused[linked]]]
    device, launching = np.zeros(len(host), dtype=np.int64), np.bincount(rows, minlength=len(host))
    np.add.at(device, links.caused[linked], links.work_ns[linked])
    # A copy is not a launch call, but its device time belongs to its caller.
    every = np.flatnonzero((launching > 0) | (device > 0))
    threads = thread_codes(trace)
    line = Timeline.of(threads[host.track[every]], host.start[every], trace.end_ns + 2)
    owner = np.concatenate([np.arange(len(calls)), windows.call])
    track, start, end = (np.concatenate([getattr(calls, c), getattr(windows, c)]) for c in ("track", "start", "end"))
    first, stop = line.ranges(threads[track], start, end)

    def summed(values: Ints) -> Ints:
        before = np.concatenate([[0], np.cumsum(values[every[line.order]])])
        return per_call(before[stop] - before[first])

    def per_call(values: Ints) -> Ints:
        out = np.zeros(len(calls), dtype=np.int64)
        np.add.at(out, owner, values)
        return out

    known = np.isin(threads[host.track[rows]], threads[calls.track]).any()  # else another thread launches
    return CallCosts(
        host=per_call(end - start),
        launches=summed(launching) if known else None,
        device=summed(device) if len(linked) else None,
    )


def _looked_for(trace: Trace) -> tuple[frozenset[str], frozenset[str]]:
    """Return the codes that this recording could show, and those that it could not."""
    device = trace.family != "cpu" and len(trace.device) > 0
    shapes = bool(trace.shapes)
    looked, blind = set(_LOOKED_FOR), set[str]()
    (looked if device else blind).update(_WITH_DEVICE)
    (looked if shapes else blind).update(_WITH_SHAPES)
    (looked if shapes and any(d.values for d in trace.details) else blind).update(_WITH_VALUES)
    if FAMILIES[trace.family].lazy_graphs:
        looked.update(_ON_HPU)
    return frozenset(looked), frozenset(blind)


def _modules(known: _Known, shapes: list[ModuleShapes], obstacles: list[Obstacle], most: int) -> list[ModuleRow]:
    """Describe the `most` costliest modules."""
    calls, costs, total = known.context.calls, known.costs, max(1, len(known.context.steps))
    every = np.concatenate([calls.start[:0], *(entry.calls for entry in shapes)])
    outermost = every[calls.outermost[every]]
    host, depth = np.zeros(len(calls.names), dtype=np.int64), np.full(len(calls.names), len(calls))
    np.add.at(host, calls.module[outermost], costs.host[outermost])
    np.minimum.at(depth, calls.module[outermost], calls.depth[outermost])
    ranks = list(zip((-host).tolist(), depth.tolist(), calls.paths, strict=True))
    order = sorted(shapes, key=lambda e: ranks[e.module])
    return [
        ModuleRow(
            module=calls.names[entry.module],
            module_path=calls.paths[entry.module],
            depth=int(depth[entry.module]),
            calls_per_step=len(entry.calls) / total,
            host_per_step_ns=int(host[entry.module]) / total,
            device_per_step_ns=None if costs.device is None else int(costs.device[outer].sum()) / total,
            launches_per_step=None if costs.launches is None else int(costs.launches[outer].sum()) / total,
            signatures=len(set(entry.keys)) if entry.keys else None,
            varying=entry.varying,
            max_graphs=graphs_needed(entry.keys)[0] if entry.keys else None,
            memory_bytes=_memory(known, entry, outer),
            **_verdict(known, [o for o in obstacles if entry.module in o.around]),
        )
        for entry, outer in ((e, e.calls[calls.outermost[e.calls]]) for e in order[:most])
    ]


def _verdict(known: _Known, obstacles: list[Obstacle], *, whole: bool = False) -> dict[str, Any]:
    """Return the columns of a module that its obstacles decide; `whole`: of the step."""
    stops = [o for o in obstacles if o.row.severity in ("blocker", "cut")]
    blockers = {o.row.code for o in stops}
    changes = {o.row.code for o in obstacles if o.row.severity == "periodic"} - blockers
    if whole and all(o.phase == Phase.BETWEEN and o.row.code in ("HP302", "HP303") for o in stops):
        blockers, changes = set(), blockers | changes  # a read between modules can be moved behind the replay
    return {
        "source": known.context.calls.source,
        "capturable": "no" if blockers else "with changes" if changes else "yes",
        "blockers": sorted(blockers),
        "changes": sorted(changes),
        "not_seen": sorted(known.looked - {o.row.code for o in obstacles}),
        "not_checked": sorted(known.blind - {o.row.code for o in obstacles}),
    }


def _memory(known: _Known, entry: ModuleShapes, mine: Ints) -> int | None:
    """Return the memory of a capture: inputs of the graphs needed, and the rise during a call and its backward.

    The rise is the largest of the first calls. None without shapes or memory rows.
    """
    trace, calls, windows = known.context.trace, known.context.calls, known.windows
    inputs = [size for size in entry.input_bytes if size is not None]
    memory = trace.memory
    device = memory.device if memory.device.any() or trace.family != "cpu" else ~memory.device
    rows = np.flatnonzero(device & (memory.allocated >= 0))
    if not len(rows) or not inputs:
        return None
    time, held = memory.time[rows], memory.allocated[rows]
    rises = []
    for call in mine[:_MEMORY_CALLS].tolist():
        end = max([int(calls.end[call]), *windows.end[windows.call == call].tolist()])
        first, stop = np.searchsorted(time, [int(calls.start[call]), end])
        if first and stop > first:
            rises.append(max(0, int(held[first:stop].max() - held[first - 1])))
    return max(rises) + sum(inputs[: graphs_needed(entry.keys)[0]]) if rises else None


def _regions(known: _Known, obstacles: list[Obstacle]) -> list[ModuleRow]:
    """Describe the whole step and the optimizer."""
    steps, total = known.context.steps, max(1, len(known.context.steps))
    optimizer = measure(known.context.placement.optimizer, steps.start, steps.end)
    found = [(STEP, len(steps), steps.wall, _verdict(known, obstacles, whole=True))]
    if optimizer.any():
        inside = [o for o in obstacles if o.row.module == OPTIMIZER]
        found.append((OPTIMIZER, int((optimizer > 0).sum()), optimizer, _verdict(known, inside)))
    return [
        ModuleRow(
            module=name,
            module_path=name,
            depth=-1,
            calls_per_step=count / total,
            host_per_step_ns=int(host.sum()) / total,
            **verdict,
        )
        for name, count, host, verdict in found
    ]


def _shape_rows(context: Context, shapes: list[ModuleShapes], costs: CallCosts) -> list[ShapeRow]:
    """Describe the most frequent signatures of the modules whose shapes change."""
    return [
        ShapeRow(
            module=context.calls.names[entry.module],
            signature=entry.texts[key],
            calls=often,
            fraction=often / len(entry.keys),
            device_ns=None
            if costs.device is None
            else float(costs.device[entry.calls[np.array(entry.keys) == key]].mean()),
            input_bytes=entry.input_bytes[key],
        )
        for entry in topmost_varying(context, shapes)
        for key, often in Counter(entry.keys).most_common(_SHAPES_PER_MODULE)
    ]
