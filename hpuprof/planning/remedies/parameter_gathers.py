"""Gather sharded parameters earlier, or only once in a step (FSDP, ZeRO 3)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.schema import DeviceKind
from hpuprof.planning.collective_rows import SLOWER_ALONGSIDE, CollectiveRows, without_collectives
from hpuprof.planning.remedies.recomputation import as_many_as_fit, fitting, memory_in_use, room
from hpuprof.planning.remedy import Effort, Remedy, communicates
from hpuprof.planning.row_edits import lasting, of_lanes, of_launches, scaled
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.edit import with_waits
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.schedule import Wait

TINY = 1e-9  # of a gather
ONE_LAYER = (1 / 32, 1 / 4)
"""Share of a model in one of its layers: the first one's gather and the last one's scatter stay alone. By judgment."""


def find_prefetch(situation: Situation) -> Iterator[Change]:
    """Find gathers of parameters that follow another one in the same pass over the modules."""
    found = _gathers(situation)
    if found is None:
        return
    mine = np.flatnonzero(found.parameters)
    program, call = found.of.program, found.call[mine]
    channel, backward = found.channel[mine], _in_backward(found)[mine]
    key = np.stack([program.step[call], channel, backward])
    order = np.lexsort((call, backward, channel, program.step[call]))
    follows = (key[:, order[1:]] == key[:, order[:-1]]).all(axis=0) & (call[order[1:]] > call[order[:-1]])
    later, before = found.row[mine[order[1:][follows]]], call[order[:-1][follows]]
    if not len(later):
        return
    per_step = len(later) / program.steps
    change = _Earlier(found, later, before)
    yield Change(
        f"{per_step:,.0f} gathers of parameters",
        per_step,
        of_launches(change.edit),
        of_launches(change.ideal),
        uncertain=True,
    )


def find_once(situation: Situation) -> Iterator[Change]:
    """Find gathers in backward of parameters that forward gathered."""
    found = _gathers(situation)
    used, total = memory_in_use(situation.view.trace)
    if found is None or not fitting(used, total):
        return
    backward = _in_backward(found)
    again = found.parameters & backward & np.isin(found.kind, found.kind[found.parameters & ~backward])
    if not again.any():
        return
    rows = found.row[again]
    per_step = len(rows) / found.of.program.steps
    change = _Once(found, rows, max(1, round(per_step)))
    calls = np.zeros(len(found.of.program.row), dtype=bool)
    calls[found.call[again]] = True
    where = f"{per_step:,.0f} gathers in backward of what forward gathered; {room(used, total)}"
    yield Change(
        where,
        per_step,
        of_launches(change.edit),
        of_launches(change.ideal),
        uncertain=True,
        bends=as_many_as_fit(change.units)[1],
        touches=calls,
    )


def find_by_layer(situation: Situation) -> Iterator[Change]:
    """Find a pass over the model whose parameters are gathered by one collective, and gradients scattered by one."""
    found = _gathers(situation)
    if found is None:
        return
    program = found.of.program
    backward = _in_backward(found)
    scatters = found.gradients & np.array([found.kinds[k].op == "reduce_scatter" for k in found.kind.tolist()])
    forward = _alone(found, found.parameters & ~backward)
    if not forward.any():
        return
    rows = found.row[forward | _alone(found, found.parameters & backward) | _alone(found, scatters)]
    per_step = len(rows) / program.steps
    change = _ByLayer(found, rows)
    where = f"{per_step:,.2g} collectives, each of the whole model"
    edits = of_launches(change.edit), of_launches(change.ideal)
    yield Change(where, per_step, *edits, uncertain=True)


def _alone(found: CollectiveRows, chosen: Mask) -> Mask:
    """Mark those of the chosen collectives that are the only one in their step."""
    alone: Mask = chosen & (np.bincount(found.step[chosen], minlength=found.of.program.steps) == 1)[found.step]
    return alone


def _gathers(situation: Situation) -> CollectiveRows | None:
    found = None if situation.calls is None else CollectiveRows.find(situation.calls)
    return found if found is not None and found.parameters.any() else None


def _in_backward(found: CollectiveRows) -> Mask:
    """Mark the collectives from the first call of backward on."""
    first = found.backward[0][found.step]
    mask: Mask = (first >= 0) & (found.call >= first)
    return mask


class _Earlier(Struct, frozen=True, eq=False):
    found: CollectiveRows
    rows: Ints  # gathers that are launched earlier
    before: Ints  # call of the gather before each

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Launch each gather right behind the one before it: it runs while that one is used."""
        return self._slower(self._moved(model), level)

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Take the gathers' time, and the waits for them, away."""
        moved, gone = self._moved(model), self._mask
        waits = moved.schedule.waits
        free = replace(moved, schedule=with_waits(moved.schedule, waits.only(~of_lanes(waits, gone, waiting=False))))
        return lasting(free, np.where(gone, 0.0, free.schedule.rows.dur))

    @property
    def _mask(self) -> Mask:
        chosen = np.zeros(len(self.found.of.program.call), dtype=bool)
        chosen[self.rows] = True
        return chosen

    def _moved(self, model: LaunchModel) -> LaunchModel:
        schedule, waits = model.schedule, model.schedule.waits
        call = np.array(schedule.rows.call)
        call[self.rows] = self.before
        # What is launched between the two cannot be waited for; a gather needs none of it.
        lane = waits.kind == Wait.LANE
        waiting, source = (np.where(lane, column, 0) for column in (waits.waiting, waits.source))
        place = schedule.calls.place
        late = lane & self._mask[waiting] & (place[schedule.rows.call[source]] > place[call[waiting]])
        edited = replace(schedule, rows=replace(schedule.rows, call=call))
        return replace(model, schedule=with_waits(edited, waits.only(~late)))

    def _slower(self, model: LaunchModel, level: float) -> LaunchModel:
        """Let gathers and what is computed meanwhile take longer, as far as both run."""
        program, dur = self.found.of.program, self.found.of.program.dur
        factor = np.ones(len(dur))
        computing = program.kind == DeviceKind.COMPUTE
        for row, low in zip(self.rows.tolist(), self.before.tolist(), strict=True):
            during = computing & (program.call > low) & (program.call < program.call[row])
            both = min(float(dur[during].sum()), float(dur[row]))
            factor[row] += SLOWER_ALONGSIDE * level * both / max(1.0, float(dur[row]))
            factor[during] += SLOWER_ALONGSIDE * level * both / max(1.0, float(dur[during].sum()))
        return scaled(model, np.ones(len(dur), dtype=bool), factor)


class _ByLayer(Struct, frozen=True, eq=False):
    found: CollectiveRows
    rows: Ints  # collectives of the whole model

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Hide each behind what its pass computes, but for the part of one layer; both take longer meanwhile."""
        program, (few, many) = self.found.of.program, ONE_LAYER
        left, dur = few + (many - few) * level, program.dur
        computing, step = program.kind == DeviceKind.COMPUTE, program.step[program.call]
        first = self.found.backward[0][step]
        backward = (first >= 0) & (program.call >= first)
        factor, free = np.ones(len(dur)), dict[tuple[int, bool], float]()
        for row in self.rows.tolist():
            at = int(step[row]), bool(backward[row])
            mine = computing & (step == at[0]) & (backward == at[1])
            work = float(dur[mine].sum())
            hidden = min((1.0 - left) * float(dur[row]), free.get(at, work))
            free[at] = free.get(at, work) - hidden
            factor[row] = 1.0 - hidden / max(1.0, float(dur[row]))
            factor[mine] += SLOWER_ALONGSIDE * level * hidden / max(1.0, work)
        return scaled(model, np.ones(len(dur), dtype=bool), factor)

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Take them away."""
        gone = np.zeros(len(model.schedule.rows), dtype=bool)
        gone[self.rows] = True
        return scaled(model, gone, 0.0)


class _Once(Struct, frozen=True, eq=False):
    found: CollectiveRows
    rows: Ints  # gathers in backward
    units: int  # of a step

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Drop the second gathers, spread evenly, down to none of them where memory does not allow more."""
        fits = 1.0 - as_many_as_fit(self.units)[0](level)
        dropped = np.floor(fits * np.arange(len(self.rows) + 1) + TINY)
        return without_collectives(model, self.found.of, self.rows[np.diff(dropped) > 0])

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Drop all of them."""
        return self.edit(model, 0.0)


_NEEDS = "A recording in which device rows are linked to their launches, with annotations of FSDP or stacks of ZeRO."
REMEDIES = (
    Remedy(
        name="gather_prefetch",
        title="Gather the next layer's parameters earlier (prefetch)",
        advice="Let each module start the gather of the next one's parameters before it computes, in forward and in "
        "backward.",
        code="for one, following in zip(layers, layers[1:]):  # of fully_shard\n"
        "    one.set_modules_to_forward_prefetch([following])\n"
        "    following.set_modules_to_backward_prefetch([one])\n"
        "# FSDP1: forward_prefetch=True, backward_prefetch=BackwardPrefetch.BACKWARD_PRE",
        costs="Device memory for one more module's parameters.",
        unknown="A collective and what runs at the same time take up to 1.35 times as long while both run (Daydream, "
        "ATC'20).",
        needs=_NEEDS,
        bounds=("communication",),
        effort=Effort.FEW_LINES,
        mends=("HP206",),
        about=communicates,
        find=find_prefetch,
    ),
    Remedy(
        name="shard_by_layer",
        title="Shard layer by layer, so that gathers overlap",
        advice="Shard each layer by itself, then the model: a layer's parameters are gathered while the one before it "
        "computes.",
        code="for layer in model.layers:\n    fully_shard(layer)\nfully_shard(model)\n"
        "# FSDP1: auto_wrap_policy=ModuleWrapPolicy({Layer})",
        costs="None; less memory at the peak.",
        unknown="A thirty-second to a quarter of each collective, that of one layer, stays alone; a collective and "
        "what runs at the same time take up to 1.35 times as long (Daydream, ATC'20).",
        needs=_NEEDS,
        bounds=("communication",),
        effort=Effort.FEW_LINES,
        mends=("HP206",),
        about=communicates,
        find=find_by_layer,
    ),
    Remedy(
        name="gather_once",
        title="Keep gathered parameters until backward",
        advice="Do not shard parameters again after forward for as many modules as memory allows.",
        code="fully_shard(module, reshard_after_forward=False)\n"
        "# FSDP1: sharding_strategy=ShardingStrategy.SHARD_GRAD_OP; DeepSpeed: stage 2",
        costs="Device memory for the parameters that are kept between forward and backward.",
        unknown="The parameters of how many modules fit into memory: none to all.",
        needs=_NEEDS,
        bounds=("communication",),
        effort=Effort.ARGUMENT,
        mends=("HP206",),
        about=communicates,
        find=find_once,
    ),
)
