"""Turn off activation checkpointing in backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from msgspec import Struct

from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.threads import backward_names
from hpuprof.efficiency.utilization import recomputed
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.intervals import EMPTY, Intervals, contains, union
from hpuprof.model.schema import DeviceKind
from hpuprof.model.trace import Trace
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.row_edits import of_launches, without_work
from hpuprof.planning.situation import Situation, shortened
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel

CHECKPOINT = "CheckpointFunctionBackward"
LEAST_OPERATORS = 8
"""Operators that record gradients in one autograd node above which it repeats a forward pass; a node of a gradient of a
gradient computes one formula, which takes fewer. By judgment."""
FULL = 0.9
"""Share of the device's memory in use at the peak above which no activations fit in; by judgment."""


def find(situation: Situation) -> Iterator[Change]:
    """Find forward passes that run again inside backward."""
    of = situation.calls
    if of is None:
        return
    program, view = of.program, situation.view
    windows = _again(view)
    calls = contains(windows, program.begin) & ~program.marker & ~of.waiting
    calls[program.call[program.kind == DeviceKind.COMMUNICATION]] = False  # parameters that backward needs, too
    launches = calls & of.launches
    used, total = memory_in_use(view.trace)
    if not launches.any() or not fitting(used, total):
        return
    per_step = float(launches.sum()) / program.steps
    change = _Kept(calls, windows, max(1, round(len(windows) / program.steps)))
    where = f"{per_step:,.0f} launches of forward run again in backward; {room(used, total)}"
    bends = as_many_as_fit(change.layers)[1]
    yield Change(
        where,
        per_step,
        of_launches(change.edit),
        of_launches(change.ideal),
        uncertain=True,
        bends=bends,
        touches=launches,
    )


def _again(view: RankView) -> Intervals:
    """Return when operators of a forward pass ran inside backward's nodes, one window for each such node."""
    host, nesting = view.trace.host, view.links.nesting
    if not len(nesting.rows):
        return EMPTY
    backward = backward_names(view.trace)[host.name[nesting.rows]]
    again = np.flatnonzero(recomputed(view, np.arange(len(nesting.rows))) & ~backward)
    node = _around(nesting.parent, again, backward)
    nodes, which, count = np.unique(node, return_inverse=True, return_counts=True)
    names = [view.trace.names[int(host.name[nesting.rows[n]])] for n in nodes.tolist()]
    fits = (count >= LEAST_OPERATORS) | np.array([CHECKPOINT in name for name in names], dtype=bool)
    low, high = np.full(len(nodes), np.iinfo(np.int64).max), np.zeros(len(nodes), dtype=np.int64)
    np.minimum.at(low, which, nesting.start[again])
    np.maximum.at(high, which, nesting.end[again])
    return union(low[fits], high[fits])


def _around(parent: Ints, rows: Ints, chosen: Mask) -> Ints:
    """Return the innermost of the chosen rows around each row, which has one."""
    at = parent[rows]
    while not (done := chosen[at]).all():
        at = np.where(done, at, parent[at])
    return at


def memory_in_use(trace: Trace) -> tuple[int | None, int | None]:
    """Return the most device memory allocated, and how much there is; None: unknown."""
    memory = trace.memory
    allocated = memory.allocated[memory.device & (memory.allocated >= 0)]
    return (int(allocated.max()) if len(allocated) else None), trace.device_memory_bytes


def fitting(used: int | None, total: int | None) -> bool:
    """Return whether anything more may fit into memory, as far as is known."""
    return used is None or total is None or used <= FULL * total


def room(used: int | None, total: int | None) -> str:
    """Say what is known of the room in memory."""
    if used is None:
        return "memory not recorded"
    return f"at most {used / 2**30:.1f} GiB" + (f" of {total / 2**30:.1f}" if total else "") + " in use"


def as_many_as_fit(parts: int) -> tuple[Callable[[float], float], tuple[float, ...]]:
    """Return the share of a step's parts that is left by how it turns out, and the outcomes at which that bends.

    Parts are kept in memory whole, any number of them as likely as another: all of them, and none, have a chance.
    """
    edge = 0.5 / (parts + 1)
    return lambda level: float(np.clip((level * (parts + 1) - 0.5) / parts, 0.0, 1.0)), (edge, 1.0 - edge)


class _Kept(Struct, frozen=True, eq=False):
    calls: Mask  # calls in windows
    windows: Intervals
    layers: int  # of a step

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Drop what runs again, down to nothing of it where memory does not allow more."""
        left = as_many_as_fit(self.layers)[0](level)
        kept = without_work(model, self.calls, left=left)
        return kept.without_host(shortened(self.windows, 1.0 - left))

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Drop all of it."""
        return self.edit(model, 0.0)


REMEDY = Remedy(
    name="recomputation",
    title="Turn off activation checkpointing",
    advice="Turn it off for as many layers as memory allows.",
    code="model.gradient_checkpointing_disable()  # transformers; else call the layer without checkpoint(...)",
    costs="Device memory for the activations that are kept.",
    unknown="The activations of how many layers fit into memory: none to all.",
    needs="A recording in which device rows are linked to their launches, with autograd's sequence numbers; "
    "profile_memory=True records how much memory is in use.",
    effort=Effort.FEW_LINES,
    about=lambda view: len(_again(view)) > 0,
    find=find,
)
