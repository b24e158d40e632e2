"""Edits of calls and device rows that several remedies share. The numbers of calls and rows stay."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

import numpy as np
from msgspec.structs import replace

from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.what_if.change import Edit
from hpuprof.what_if.edit import scaled_rows
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.launch_program import Program
from hpuprof.what_if.recipe_model import RecipeModel
from hpuprof.what_if.schedule import Wait, Waits
from hpuprof.what_if.step_model import StepModel

Model = TypeVar("Model", bound=StepModel)


def lane_waits(row: Ints, source: Ints, tail: float) -> Waits:
    """Return waits of rows for rows on other lanes."""
    return Waits(np.full(len(row), int(Wait.LANE)), row, source, np.full(len(row), tail))


def of_lanes(waits: Waits, rows: Mask, *, waiting: bool) -> Mask:
    """Mark the waits between lanes of some rows (`waiting`), or for them."""
    lane = waits.kind == Wait.LANE
    found: Mask = lane & rows[np.where(lane, waits.waiting if waiting else waits.source, 0)]
    return found


def launched_or_awaited(program: Program, calls: Mask) -> Mask:
    """Mark the rows that some calls launch or wait for."""
    rows = calls[program.call]
    for call in np.flatnonzero(calls).tolist():
        rows[program.targets.get(call, [])] = True
    return rows


def lasting(model: LaunchModel, dur: Floats) -> LaunchModel:
    """Give rows other durations [ns]."""
    return replace(model, schedule=model.schedule.reweighted(dur=dur))


def scaled(model: LaunchModel, rows: Mask, factor: float | Floats) -> LaunchModel:
    """Let rows take `factor` times as long."""
    return replace(model, schedule=scaled_rows(model.schedule, rows, factor))


def without_work(model: LaunchModel, calls: Mask, *, left: float = 0.0) -> LaunchModel:
    """Let calls and their rows take a share of their time; the host work before them stays."""
    schedule = model.schedule
    of, rows = schedule.calls, schedule.rows
    kept = np.where(calls, left, 1.0)
    cheaper = replace(of, cost=of.cost * kept, cost_rows=of.cost_rows * kept[:, None])
    shorter = {name: getattr(rows, name) * kept[rows.call] for name in ("dur", "latency", "gap")}
    return replace(model, schedule=replace(schedule, calls=cheaper).reweighted(**shorter))


def without_cost(model: LaunchModel, calls: Mask) -> LaunchModel:
    """Let calls cost the host nothing; their rows and the work before them stay."""
    return replace(model, schedule=replace(model.schedule, calls=model.schedule.calls.free(calls)))


def first_after(rows: Ints, calls: Ints, of: Ints) -> Ints:
    """Return for each call the first of some rows launched after it, -1 for none.

    `rows`: candidates in order of their calls; `of`: call of each row of the program.
    """
    at = np.searchsorted(of[rows], calls, side="right")
    return np.where(at < len(rows), np.append(rows, -1)[at], -1)


def per_step(values: Floats, step: Ints, steps: int) -> Floats:
    """Sum values by step."""
    return np.bincount(step, weights=values, minlength=steps).astype(np.float64)


def of_launches(edit: Callable[[LaunchModel, float], StepModel]) -> Edit:
    """Return an edit of steps that are known launch by launch; a remedy finds a place for it in no others."""
    return _of(LaunchModel, edit)


def of_recipes(edit: Callable[[RecipeModel, float], StepModel]) -> Edit:
    """Return an edit of steps that are known recipe by recipe; a remedy finds a place for it in no others."""
    return _of(RecipeModel, edit)


def _of(kind: type[Model], edit: Callable[[Model, float], StepModel]) -> Edit:
    @wraps(edit)
    def of_any(model: StepModel, level: float) -> StepModel:
        if not isinstance(model, kind):
            raise TypeError(type(model))
        return edit(model, level)

    return of_any
