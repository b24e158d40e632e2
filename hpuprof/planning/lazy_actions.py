"""What of lazy mode's main path can go: reads of values with all they cause, and flushes that end a graph early."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from hpuprof.model.arrays import Floats, Mask
from hpuprof.model.intervals import Intervals, contains, measure, subtract, union
from hpuprof.planning.matrix_rows import in_types, on_matrix_engine
from hpuprof.what_if.recipe_model import RecipeModel
from hpuprof.what_if.recipes import Kind

_OF_A_VALUE = re.compile(r"^aten::(?:item|_local_scalar_dense|is_nonzero|__bool__|equal)$")
"""Operators that read one value."""


class Actions(NamedTuple):
    """Actions of the main path that would go, how many per step, and the host's time that goes with them."""

    chosen: Mask
    per_step: float
    windows: Intervals


def reads(model: RecipeModel) -> Actions:
    """Return the waits in operators that read a value, with what is flushed for them alone.

    The last flush of a step stays: else nothing would hand over what the step has accumulated.
    """
    program, view, acts = model.program, model.view, model.program.actions
    nesting, host = view.links.nesting, view.trace.host
    reading = nesting.rows[nesting.parent < 0]
    reading = reading[view.on_path[reading] & view.trace.named(_OF_A_VALUE.match)[host.name[reading]]]
    all_of = union(host.start[reading], host.end[reading])
    waits = acts.awaits
    at = np.searchsorted(all_of.start, acts.begin[waits], side="right") - 1
    at = np.unique(at[contains(all_of, acts.begin[waits])])
    windows = Intervals(all_of.start[at], all_of.end[at])
    chosen = contains(windows, acts.begin) & (acts.kind != Kind.MARK) & ~last_flush(model)
    kept = contains(windows, acts.begin) & ~chosen
    windows = subtract(windows, union(acts.begin[kept], acts.end[kept]))
    return Actions(chosen, float((chosen & waits).sum()) / program.steps, windows)


def flushes(model: RecipeModel) -> Mask:
    """Mark the actions that hand accumulated operators over; what a graph's replay hands over is none of them."""
    acts = model.program.actions
    found: Mask = np.isin(acts.kind, (Kind.FLUSH, Kind.CALL)) & (acts.stop > acts.first)
    found[found] = ~model.program.replayed[acts.first[found]]
    return found


def last_flush(model: RecipeModel) -> Mask:
    """Mark the last flush of each step."""
    acts, found = model.program.actions, np.zeros(len(model.program.actions), dtype=bool)
    at = np.flatnonzero(flushes(model))
    found[at[np.append(acts.step[at][1:] != acts.step[at][:-1], True)[: len(at)]]] = True
    return found


def early_flushes(model: RecipeModel, *, but_before_optimizer: bool) -> Actions:
    """Return the flushes before the last of their step, those left out whose results are waited for.

    `but_before_optimizer`: the last one before the optimizer stays, too, as the vendor asks for.
    """
    acts, every = model.program.actions, flushes(model)
    chosen = every & ~last_flush(model)
    handed = np.flatnonzero(acts.stop > acts.first)
    awaited = handed[np.searchsorted(acts.stop[handed], acts.target[acts.awaits], side="right")]
    chosen[awaited] = False
    if but_before_optimizer:
        at, optimizer = np.flatnonzero(every), model.view.placement.optimizer
        before = np.searchsorted(acts.begin[at], optimizer.start, side="right") - 1
        chosen[at[before[before >= 0]]] = False
    return Actions(chosen, float(chosen.sum()) / model.program.steps, union(acts.begin[chosen], acts.end[chosen]))


def matrix_time(model: RecipeModel, types: re.Pattern[str]) -> Floats:
    """Return how long a matrix engine works in some types of data during each recipe [ns], shape `(recipes,)`."""
    trace = model.view.trace
    device, work = trace.device, model.view.links.work
    rows = on_matrix_engine(trace) & in_types(trace, types) & (work.of_row >= 0)
    busy, mine = union(device.start[rows], device.end[rows]), model.program.activation
    return measure(busy, work.start[mine], work.end[mine]).astype(np.float64)
