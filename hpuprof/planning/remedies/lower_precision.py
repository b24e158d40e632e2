"""Multiply matrices in fewer bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.families import FAMILIES
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.trace import Trace
from hpuprof.planning.matrix_rows import MatrixRows
from hpuprof.planning.remedy import NO_PLACE, Change, Effort, Remedy
from hpuprof.planning.row_edits import scaled
from hpuprof.planning.situation import ProgramCalls, Situation
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.schedule import KINDS
from hpuprof.what_if.step_model import StepModel

CASTS = (2 / 3, 2.0)
"""Casts for a kernel of a matrix operator. Autocast casts weight, bias and input of a linear operator in forward and
their gradients in backward (torch's `autocast_mode.cpp`, `ToCopyBackward0`): six for its three kernels. Parameters stay
in fp32, so that the weight and its gradient are cast at least: two."""
CAST = (0.5, 1.0)
"""Host's work for a cast over that for a typical launch: 0.5, 0.6 and 1.0 of a matrix operator's in three recordings
that cast (HTA's test data)."""
BYTES_LEFT = 0.5
"""Share of the time of other kernels of the model that is left at least: they move tensors of half the size."""


def find_half(situation: Situation) -> Iterator[Change]:
    """Find matrix operators on fp32."""
    of = situation.calls
    if of is not None and len((found := of.once(MatrixRows.find)).row):
        change = _change(of, found.row, found.least_in_half(), around=found.others)
        if _has_bfloat16(found, situation.view.trace):
            yield change
        else:
            yield replace(
                change, where=f"{change.where}; it has no bfloat16", code=_code(situation, "lower_precision:float16")
            )


def _code(situation: Situation, name: str) -> str:
    return FAMILIES[situation.view.trace.family].code.get(name, "")


def _has_bfloat16(found: MatrixRows, trace: Trace) -> bool:
    """Tell whether the device multiplies in bfloat16; NVIDIA's do from compute capability 8.0."""
    if found.peak is not None:
        return "bf16" in found.peak.dense_tflops
    capability = trace.first_device.get("computeMajor")
    reported = FAMILIES[trace.family].cuda_properties
    return not reported or not isinstance(capability, int) or capability >= 8


def find_tf32(situation: Situation) -> Iterator[Change]:
    """Find fp32 kernels that do not go through TF32, on devices that have it."""
    of = situation.calls
    found = None if of is None or not _code(situation, "tf32") else of.once(MatrixRows.find)
    if of is None or found is None:
        return
    least = found.least_through_tf32()
    if least is not None and found.simple.any():
        yield _change(of, found.row[found.simple], least[found.simple])


def _change(of: ProgramCalls, rows: Ints, least: Floats, around: Ints | None = None) -> Change:
    """Return the change of some rows. `around`: others that then move half the bytes, with casts; None: neither."""
    program, casts = of.program, around is not None
    chosen = np.zeros(len(program.call), dtype=bool)
    chosen[rows] = True
    share = np.ones(len(chosen))
    share[rows] = least
    if around is not None:
        share[around] = BYTES_LEFT
    calls = np.zeros(len(program.row), dtype=bool)
    calls[program.call[rows]] = True
    cast, rows_of_it = 0.0, np.zeros(KINDS, dtype=np.int64)
    if casts and (launches := np.flatnonzero(of.launches)).size:
        # Of what is handed over, the program's work alone: another thread launches it.
        work = (program.begin - of.since) + np.where(program.path.source >= 0, 0.0, program.useful)
        typical = launches[np.argsort(work[launches], kind="stable")[len(launches) // 2]]
        cast, within = float(work[typical]), (of.since[typical], program.end[typical])
        rows_of_it = np.array([np.diff(np.searchsorted(when, within))[0] for when in program.segments.events])
    change = _Precision(chosen, share, calls & of.launches, cast, rows_of_it, program.path.source)
    per_step = float(len(rows)) / program.steps
    of_device = program.dur[rows].sum() / program.dur.sum()
    where = f"{per_step:,.0f} kernels of matrix operators on fp32, {of_device:.0%} of the device's time"
    return Change(where, per_step, change.edit, change.ideal, uncertain=True, touches=calls)


class _Precision(Struct, frozen=True, eq=False):
    chosen: Mask  # rows of matrix operators
    least: Floats  # share of each row's time that is left at least
    calls: Mask  # launches of chosen rows
    cast: float  # host's work for one more launch, as recorded [ns]
    cast_rows: Ints  # the profiler's rows in it by kind: what they cost is no work
    source: Ints  # call that handed each launch over, -1 for none

    def edit(self, model: StepModel, level: float) -> LaunchModel:
        """Scale rows between what can be and what they take now; casts cost `CASTS` more launches each."""
        assert isinstance(model, LaunchModel)
        faster = scaled(model, self.least < 1.0, self.least + (1.0 - self.least) * level)
        calls, (few, many) = faster.schedule.calls, CASTS
        each = CAST[0] + (CAST[1] - CAST[0]) * level
        count = np.where(self.calls, each * (few + (many - few) * level), 0.0)
        rows = calls.cost_rows + count[:, None] * self.cast_rows
        cost = calls.cost + count * self.cast
        if len(handed := np.flatnonzero(self.source >= 0)):
            # The program runs the cast's operator, and the thread launches it.
            source, by_thread = self.source[handed], calls.cost[handed]
            cost[handed] = by_thread * (1.0 + count[handed])
            np.add.at(cost, source, count[handed] * self.cast)
            rows = calls.cost_rows * (1.0 + count)[:, None]
            np.add.at(rows, source, count[handed, None] * self.cast_rows)
        dearer = replace(calls, cost=cost, cost_rows=rows)
        return replace(faster, schedule=replace(faster.schedule, calls=dearer))

    def ideal(self, model: StepModel, _: float) -> LaunchModel:
        """Take the matrix operators' time away, and what others can save."""
        assert isinstance(model, LaunchModel)
        return scaled(model, self.least < 1.0, np.where(self.chosen, 0.0, self.least))


_NEEDS = (
    "A recording in which device rows are linked to their launches, with record_shapes=True or kernels whose names "
    "tell their type."
)
HALF = Remedy(
    name="lower_precision",
    title="Use mixed precision (bf16 autocast)",
    advice="Run forward under torch.autocast(dtype=torch.bfloat16); parameters stay in fp32. Take float16 with a "
    "GradScaler where the device has no bfloat16.",
    costs="Results change in the third digit; check that training still converges.",
    unknown="Matrix operators take between the ratio of the peaks (of the roofline where shapes are known; half where "
    "peaks are not) and all of their time; casts are two thirds to two more launches each, at half to all of "
    "the host's work of one. "
    "Other kernels of forward and backward take between half, for half the bytes, and all of their time.",
    needs=_NEEDS,
    effort=Effort.NUMERICS,
    mends=("HP210",),
    find=find_half,
)


def _no_tf32(situation: Situation) -> tuple[str, str]:
    return NO_PLACE if _code(situation, "tf32") else ("no_such_switch", "the device has no TF32")


TF32 = Remedy(
    name="tf32",
    title="Allow TF32 for fp32 matmuls",
    advice="Allow TF32: fp32 stays the type of all tensors, products are rounded to 10 bits.",
    costs="Results change in the fourth digit.",
    unknown="Matrix operators take between the ratio of the peaks (of the roofline where shapes are known) and all of "
    "their time.",
    needs=_NEEDS,
    effort=Effort.NUMERICS,
    mends=("HP210",),
    absent=_no_tf32,
    find=find_tf32,
)
REMEDIES = (HALF, TF32)
