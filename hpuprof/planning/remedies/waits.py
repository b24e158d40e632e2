"""Take away waits of the host for the device: reads, synchronization, uploads from pageable memory, allocations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from msgspec.structs import replace

from hpuprof.analysis.host_calls import HostCallKind
from hpuprof.analysis.workload import INFERENCE, SERVING, workload
from hpuprof.ingest.dialect_activities import copies_pageable
from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.intervals import measure
from hpuprof.planning.cpu_work import CpuWork
from hpuprof.planning.lazy_actions import Actions, reads
from hpuprof.planning.pinning import Pinning
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.row_edits import launched_or_awaited, of_launches, of_recipes, scaled, without_cost
from hpuprof.planning.situation import Group, ProgramCalls, Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.recipe_model import RecipeModel
from hpuprof.what_if.step_model import StepModel

DECIDES_SHAPES = ("aten::nonzero", "aten::masked_select", "aten::unique", "aten::_unique2", "aten::repeat_interleave")
"""Operators whose read decides the shape of what follows: it cannot be dropped or put off."""

PINNED_LEFT = (0.4, 1.0)
"""Share of the time of a copy from pageable memory that one from pinned memory takes: 0.40 (a notebook's card) and 0.87
(a desktop's) in NVIDIA's "How to Optimize Data Transfers in CUDA C/C++"; none is saved at worst."""
STAGED = 0.5
"""Share of a copy's time for which its call must last alongside it to be the one that moves the data: into and out of a
buffer that the driver pinned, piece by piece. By judgment; a call that only hands the copy over is gone before it."""
MOSTLY = 0.5
"""Share of the waits from which all of them together are called the allocator's; by judgment."""
MOST_OF_A_VALUE = 1 << 16
"""Bytes up to which what is read is a value to decide or log by, and can stay on the device. By judgment: 16,000
numbers; more of them are wanted on the host, so that the copy stays and only the wait can go."""


def _gone(model: LaunchModel, _: float, *, calls: Mask, free: bool) -> StepModel:
    return model.without_waits(calls, free=free)


def _pinned(
    model: LaunchModel,
    level: float,
    *,
    calls: Mask,
    copied: Mask,
    staged: Mask,
    free: bool,
    pinning: Pinning | None = None,
) -> StepModel:
    """Copy from or to pinned memory: no one waits or moves the data, and the copy takes less time.

    `copied`: rows that may be faster; `staged`: calls that move the data; `pinning`: of batches.
    """
    program, (low, high) = model.program, PINNED_LEFT
    mine = launched_or_awaited(program, calls) & copied
    moving = np.zeros(len(calls), dtype=bool)
    moving[program.call[mine]] = True
    faster = without_cost(scaled(model, mine, low + (high - low) * level), moving & staged)
    if pinning is not None and not free:
        faster = pinning.by_host(faster, mine, level)
    return faster.without_waits(calls, free=free)


def _unread(model: LaunchModel, _: float, *, calls: Mask, free: bool) -> StepModel:
    """Drop reads with all that the operators around them (`aten::item`) do on the host."""
    operators = model.around.copying_in(model.program, calls)
    return model.without_waits(calls, free=free).without_host(operators)


def _unread_lazily(model: RecipeModel, _: float, *, found: Actions) -> StepModel:
    """Drop reads with the flush and the wait in them."""
    return model.without_actions(found.chosen).without_host(found.windows)


def _changes(of: ProgramCalls, calls: Mask, *, free: bool, edit: Callable[..., StepModel] = _gone) -> Iterator[Change]:
    """Yield a change for each place, and one for all of them where there are several."""
    groups = [g for g in of.groups(calls) if not g.operator.startswith(DECIDES_SHAPES)]
    if free:  # copies that no one waits for cost the host little, and may be wanted
        groups = [g for g in groups if (g.calls & (of.waiting | of.of(HostCallKind.ALLOCATION))).any()]
    if len(groups) > 1:
        every = np.logical_or.reduce([g.calls for g in groups])
        per_step = sum(g.per_step for g in groups)
        groups.append(Group(f"all {len(groups)} places", "", every, per_step))
    for group in groups:
        yield Change(
            group.where,
            group.per_step,
            of_launches(partial(edit, calls=group.calls, free=free)),
            None if free else of_launches(partial(edit, calls=group.calls, free=True)),
            uncertain=edit not in (_gone, _unread),
            touches=group.calls,
        )


def find_reads(situation: Situation) -> Iterator[Change]:
    """Find reads of values for which the host waits, in the copy or in the wait that completes it."""
    of = situation.calls
    if of is not None:
        yield from _changes(of, _reads(of) & ~_results(of), free=True, edit=_unread)
    elif isinstance(situation.model, RecipeModel) and (found := reads(situation.model)).per_step:
        where = f"reads of a value, {found.per_step:.3g} a step"
        yield Change(where, found.per_step, of_recipes(partial(_unread_lazily, found=found)), occurs=found.windows)


def find_results(situation: Situation) -> Iterator[Change]:
    """Find reads of what the step was computed for, which cannot be dropped."""
    of = situation.calls
    if of is not None:
        trace = of.view.trace
        pageable = trace.named(copies_pageable)[trace.device.name[of.program.device_row]]
        pinned = partial(_pinned, copied=pageable, staged=np.zeros(len(of.phase), dtype=bool))
        yield from _changes(of, _results(of), free=False, edit=pinned if pageable.any() else _gone)


def _reads(of: ProgramCalls) -> Mask:
    """Mark reads; an operator on the CPU that follows at once needs what was read."""
    found: Mask = (of.of(HostCallKind.READ) | (of.completes == HostCallKind.READ)) & ~CpuWork.find(of).reads
    return found


def _results(of: ProgramCalls) -> Mask:
    """Mark reads of more than a value, and in programs that infer or serve those after the last launch of a step."""
    waiting = _reads(of) & of.waiting
    large = waiting & (_copied(of) > MOST_OF_A_VALUE)
    if workload(of.view.trace).kind not in (INFERENCE, SERVING):
        return large
    launches = np.flatnonzero(of.launches)
    last = np.full(of.program.steps, -1)
    last[of.program.step[launches]] = launches
    found: Mask = large | (waiting & (np.arange(len(of.phase)) > last[of.program.step]))
    return found


def _copied(of: ProgramCalls) -> Ints:
    """Return how much each call copies, a wait what the copy does that it completes [bytes]; unknown: -1."""
    program, calls = of.program, of.view.calls
    copied, at = np.full(len(program.row), -1), np.full(len(calls.row) + 1, -1)
    np.maximum.at(copied, program.call, of.view.trace.device.bytes[program.device_row])
    known = np.flatnonzero(of.known >= 0)
    at[of.known[known]] = known
    behind = at[np.where(of.known >= 0, calls.completes[of.known], -1)]
    return np.where(behind >= 0, copied[behind], copied)


def _never(model: StepModel, _: float) -> StepModel:
    return model.never_waiting() or model


def find_synchronisation(situation: Situation) -> Iterator[Change]:
    """Find calls that do nothing but wait; those that complete a copy belong to it.

    A model without calls knows all waits for the device together, reads among them.
    """
    of = situation.calls
    if of is None and _allocating(situation) < MOSTLY and situation.model.never_waiting() is not None:
        yield Change("all waits, .item() too", None, _never, mends=("HP203", "HP215"))
    if of is not None:
        yield from _changes(of, of.waiting & of.of(HostCallKind.WAIT) & (of.completes == 0), free=True)


def find_uploads(situation: Situation) -> Iterator[Change]:
    """Find copies to the device whose calls return only when the data is moved, or that their operator waits for."""
    of = situation.calls
    if of is not None:
        copies, staged = of.of(HostCallKind.UPLOAD) | (of.completes == HostCallKind.UPLOAD), _staged(of)
        pinning = Pinning.find(of)
        edit = partial(_pinned, copied=of.program.upload[of.program.call], staged=staged, pinning=pinning)
        for change in _changes(of, (of.waiting & copies) | staged, free=False, edit=edit):
            yield replace(change, after=pinning.after, last=bool(pinning.after))


def _staged(of: ProgramCalls) -> Mask:
    """Mark the uploads whose calls move the data themselves, for `STAGED` of the copy's time and more."""
    program = of.program
    call, start, end = program.call, program.start, program.start + program.dur
    alongside = np.minimum(program.end[call], end) - np.maximum(program.begin[call], start)
    found = np.zeros(len(program.row), dtype=bool)
    found[call[program.upload[call] & (alongside > 0) & (alongside >= STAGED * program.dur)]] = True
    return found & ~of.waiting


def find_allocations(situation: Situation) -> Iterator[Change]:
    """Find calls in which device memory is allocated or freed in the steps.

    A model without calls knows all waits together: they are the allocator's where most of their time is.
    """
    of = situation.calls
    if of is None and (share := _allocating(situation)) >= MOSTLY and situation.model.never_waiting() is not None:
        yield Change(f"all waits, {share:.0%} of them to allocate or free".replace("%", " %"), None, _never)
    if of is not None:
        yield from _changes(of, of.of(HostCallKind.ALLOCATION), free=True)


def _allocating(situation: Situation) -> float:
    """Return the allocator's share of the time for which the host waits in the steps, data loading left out."""
    model, blocked = situation.model, situation.view.hosts.blocked_by
    waits = {name: float(measure(blocked[name], model.low, model.high).sum()) for name in blocked if name != "loader"}
    return waits["alloc"] / max(1.0, sum(waits.values()))


_NEEDS = "A recording in which device rows are linked to their launches."

READS = Remedy(
    name="read_backs",
    title="Defer .item() and .cpu() out of the step",
    advice="Keep the value on the device (torch.where, tensor arithmetic), or read it after the step or in every n-th "
    "one. A read that decides control flow cannot be dropped, only deferred.",
    code="if step % 50 == 0:\n    logger.log(loss.item())",
    costs="The value comes later.",
    unknown="Nothing: the wait, the copy and the operator around them go.",
    needs=_NEEDS,
    effort=Effort.FEW_LINES,
    proof="edited",
    by_recipe=True,
    mends=("HP203",),
    find=find_reads,
)
RESULTS = Remedy(
    name="results",
    title="Launch the next batch before reading this result",
    advice="Keep two batches in flight: prepare and launch the next one, then read this one's result; copy it "
    "into pinned memory.",
    code="pending = None\nfor batch in batches:\n    result = model(batch.to(device, non_blocking=True))\n"
    "    if pending is not None:\n        deliver(pending.cpu())\n    pending = result",
    costs="Each result comes a batch later; device memory for a second batch. A server that has no next request in "
    "time gains nothing.",
    unknown="How fast the copy then is, where it went to pageable memory: 0.4 of its time to all of it; the wait goes.",
    needs=_NEEDS,
    effort=Effort.FEW_LINES,
    about=lambda view: view.calls.waits_per_step(np.flatnonzero(view.steps.used))[1] > 0,
    find=find_results,
)
SYNCHRONIZATION = Remedy(
    name="synchronisation",
    title="Remove synchronization points",
    advice="Remove synchronize() and its callers (timers, logging, empty_cache), or call them in every n-th step. "
    "Order work with streams and events.",
    costs="Timers around a synchronize() no longer measure the device.",
    unknown="Nothing: the wait goes.",
    needs=_NEEDS,
    effort=Effort.FEW_LINES,
    by_call=False,
    mends=("HP215",),
    find=find_synchronisation,
)
UPLOADS = Remedy(
    name="uploads",
    title="Pin host memory for copies to the device",
    advice="Pass pin_memory=True to the DataLoader and non_blocking=True to .to(): the copy then runs asynchronously. "
    "A DataLoader without workers pins each batch on the main thread: give it workers first.",
    code="DataLoader(..., pin_memory=True)\nbatch = batch.to(device, non_blocking=True)",
    costs="Pinned memory; the tensor must not be changed before the copy is done.",
    unknown="How fast the copy then is: 0.4 of its time (published for one card) to all of it; the wait goes. Without "
    "workers the main thread pins for 0.4 to 1.6 times the copy's time.",
    needs=_NEEDS,
    bounds=("copy",),
    effort=Effort.FEW_LINES,
    proof="edited",
    mends=("HP204",),
    about=lambda view: view.calls.waits_per_step(np.flatnonzero(view.steps.used))[2] > 0,
    find=find_uploads,
)
ALLOCATIONS = Remedy(
    name="allocations",
    title="Stop allocating device memory in the step",
    advice="Keep the allocator's cache (no empty_cache(), no setting that turns it off), leave it room, or lower "
    "fragmentation.",
    costs="Memory stays reserved.",
    unknown="Nothing: calls and the waits in them go.",
    needs=_NEEDS,
    effort=Effort.FEW_LINES,
    mends=("HP211", "HP218"),
    about=lambda view: bool(view.calls.of(HostCallKind.ALLOCATION).any()),
    find=find_allocations,
)
REMEDIES = (READS, RESULTS, SYNCHRONIZATION, UPLOADS, ALLOCATIONS)
