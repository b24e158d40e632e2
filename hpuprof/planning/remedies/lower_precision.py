"""Multiply matrices in fewer bits."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hpuprof.families import FAMILIES
from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.model.trace import Trace
from hpuprof.planning.lazy_actions import matrix_time
from hpuprof.planning.matrix_rows import SINGLE_TYPE, UNKNOWN_RATIO, MatrixRows, known_work
from hpuprof.planning.remedy import NO_PLACE, Effort, Remedy
from hpuprof.planning.row_edits import of_launches, of_recipes, scaled
from hpuprof.planning.situation import ProgramCalls, Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.recipe_model import RecipeModel
from hpuprof.what_if.schedule import KINDS
from hpuprof.what_if.step_model import StepModel

CASTS = (2 / 3, 2.0)
"""Casts for an operator on matrices. Autocast casts weight, bias and input of a linear layer in forward and their
gradients in backward (torch's `autocast_mode.cpp`, `ToCopyBackward0`): six for its three operators, as torch 2.13
counts in a transformer with norms in fp32. Parameters stay in fp32, so that the weight and its gradient are cast at
least: two for three, and for the two operators of a convolution without bias between norms that keep 16 bits."""
CAST = (0.85, 1.5)
"""Host's work for a cast (`to`, `_to_copy`, `empty_strided`, `copy_`, and a node of backward) over that for a typical
launch of forward and backward that multiplies nothing: 0.85 to 1.48 in 21 public recordings with 8 casts or more."""
BYTES_LEFT = 0.5
"""Share of the time of other kernels of the model that is left at least: they move tensors of half the size."""

FP8_PASSES = (0.5, 2.5)
"""How often casts to fp8 pass over a product's operands in 16 bits. Fused into what makes an operand, its half is
written; at worst it is read for its scale, read again and written in half: 5 bytes for 2. Compiled around linear layers
alone, published runs lose against bf16 (torchtitan #778); fused with the rest they gain up to 1.4 times (Megatron-LM
#396)."""
FP8_CASTS = (1.0, 4.0)
"""More launches for a product: one cast, or scale and cast of both operands. Small layers lose by them (7.1 to 9.8 s,
float8_experimental #280)."""


def find_half(situation: Situation) -> Iterator[Change]:
    """Find matrix operators on fp32."""
    of = situation.calls
    if isinstance(situation.model, RecipeModel):
        yield from _in_recipes(situation.model, SINGLE_TYPE)
    if of is not None and len((found := MatrixRows.find(of)).row):
        change = _change(of, found.row, found.least_in_half(), around=found.others)
        if _has_bfloat16(found, situation.view.trace):
            yield change
        else:
            yield replace(
                change,
                where=f"{change.where}; in float16, as it has no bfloat16",
                code=_code(situation, "lower_precision:float16"),
            )


def _in_recipes(model: RecipeModel, types: re.Pattern[str]) -> Iterator[Change]:
    """Find recipes in which the matrix engine multiplies in some types."""
    program, busy = model.program, matrix_time(model, types)
    if not busy.any():
        return
    part = busy / np.maximum(program.dur, 1.0)
    per_step = float(np.count_nonzero(busy)) / program.steps
    of_device = busy.sum() / max(1.0, program.dur.sum())
    where = f"{per_step:.3g} recipes with matrices in fp32, {of_device:.0%} of the device's time"

    def edit(model: RecipeModel, level: float) -> StepModel:
        return model.scaled(1.0 - part * (1.0 - UNKNOWN_RATIO) * (1.0 - level))

    def ideal(model: RecipeModel, _: float) -> StepModel:
        return model.scaled(np.maximum(1.0 - part, 0.0))

    yield Change(where, per_step, of_recipes(edit), of_recipes(ideal), uncertain=True)


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
    found = None if of is None or not _code(situation, "tf32") else MatrixRows.find(of)
    if of is None or found is None:
        return
    least = found.least_through_tf32()
    if least is not None and found.simple.any():
        yield _change(of, found.row[found.simple], least[found.simple])


def find_fp8(situation: Situation) -> Iterator[Change]:
    """Find products of linear layers in 16 bits, on devices that have fp8."""
    of = situation.calls
    found = None if of is None else MatrixRows.find_linear_in_half(of)
    if of is None or found is None or not len(found.row):
        return
    cast = found.bytes_ns() / np.maximum(of.program.dur[found.row], 1.0)
    few, many = (passes * cast for passes in FP8_PASSES)
    least = np.minimum(found.least_in_fp8() + few, 1.0)
    yield _change(of, found.row, least, np.zeros(0, dtype=np.int64), worst=1.0 + many, casts=FP8_CASTS, bits="16 bits")


def _change(
    of: ProgramCalls,
    rows: Ints,
    least: Floats,
    around: Ints | None = None,
    *,
    worst: Floats | None = None,
    casts: tuple[float, float] = CASTS,
    bits: str = "fp32",
) -> Change:
    """Return the change of some rows.

    `around`: others that then move half the bytes, with casts; None: neither. `worst`: shares of the rows' time at
    worst, all of it if None; `casts`: an operator's, at best and at worst; `bits`: what the products are in now.
    """
    program, with_casts = of.program, around is not None
    chosen = np.zeros(len(program.call), dtype=bool)
    chosen[rows] = True
    share, most = np.ones(len(chosen)), np.ones(len(chosen))
    share[rows] = least
    if worst is not None:
        most[rows] = worst
    if around is not None:
        share[around] = BYTES_LEFT
    calls = np.zeros(len(program.row), dtype=bool)
    calls[program.call[rows]] = True
    cast, rows_of_it = 0.0, np.zeros(KINDS, dtype=np.int64)
    like_it = of.launches & of.in_model & ~calls
    if with_casts and (launches := np.flatnonzero(like_it if like_it.any() else of.launches)).size:
        # Of what is handed over, the program's work alone: another thread launches it.
        work = (program.begin - of.since) + np.where(program.path.source >= 0, 0.0, program.useful)
        typical = launches[np.argsort(work[launches], kind="stable")[len(launches) // 2]]
        cast, within = float(work[typical]), (of.since[typical], program.end[typical])
        rows_of_it = np.array([np.diff(np.searchsorted(when, within))[0] for when in program.segments.events])
    cast_before = _first_of_operators(of, calls & of.launches)
    change = _Precision(chosen, share, most, cast_before, cast, rows_of_it, program.path.source, casts)
    per_step = float(len(rows)) / program.steps
    of_device = program.dur[rows].sum() / program.dur.sum()
    on_in = "on" if bits == "fp32" else "in"
    kernels = f"{per_step:,.0f} kernel{'' if round(per_step) == 1 else 's'}"
    where = f"{kernels} of matrix operators {on_in} {bits}, {of_device:.0%} of the device's time"
    return Change(where, per_step, of_launches(change.edit), of_launches(change.ideal), uncertain=True, touches=calls)


def _first_of_operators(of: ProgramCalls, calls: Mask) -> Mask:
    """Mark the first of the calls of each operator: it casts its inputs once, however many kernels it launches."""
    at = np.flatnonzero(calls)
    operator = of.operators[at]
    first: Mask = calls.copy()
    first[at[1:]] = (operator[1:] != operator[:-1]) | (operator[1:] < 0)
    return first


class _Precision(Struct, frozen=True, eq=False):
    chosen: Mask  # rows of matrix operators
    least: Floats  # share of each row's time that is left at least
    most: Floats  # share of it at worst
    calls: Mask  # first launch of each chosen row's operator
    cast: float  # host's work for one more launch, as recorded [ns]
    cast_rows: Ints  # the profiler's rows in it by kind: what they cost is no work
    source: Ints  # call that handed each launch over, -1 for none
    casts: tuple[float, float]  # for an operator, at best and at worst

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Scale rows between what can be and what they take at worst; casts are more launches each."""
        other = (self.least != 1.0) | (self.most != 1.0)
        faster = scaled(model, other, self.least + (self.most - self.least) * level)
        calls, (few, many) = faster.schedule.calls, self.casts
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

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Take the matrix operators' time away, and what others can save."""
        return scaled(model, self.least < 1.0, np.where(self.chosen, 0.0, self.least))


def _no_fp8(situation: Situation) -> tuple[str, ...]:
    of = situation.calls
    found = None if of is None else MatrixRows.find_linear_in_half(of)
    if found is None or found.peak is None:
        return "not_told", "peaks of the device are not known, or nothing is linked to launches"
    if "fp8" not in found.peak.dense_tflops:
        return "no_such_switch", "the device has no fp8"
    if not len(known_work(of).kind if of is not None else ()):
        return "not_told", "shapes of products were not recorded", "A recording with record_shapes=True."
    return NO_PLACE


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
    "peaks are not) and all of their time; casts are two thirds to two more launches for each operator, at 0.85 to "
    "1.5 times the host's work of a typical one. "
    "Other kernels of forward and backward take between half, for half the bytes, and all of their time.",
    needs=_NEEDS,
    effort=Effort.NUMERICS,
    by_recipe=True,
    mends=("HP210",),
    bounds=("device",),
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
    bounds=("device",),
    find=find_tf32,
)
FP8 = Remedy(
    name="fp8",
    title="Compute linear layers in fp8",
    advice="Convert large linear layers (torchao, Transformer Engine), together with torch.compile, which fuses the "
    "casts; leave small layers in bf16.",
    code="from torchao.float8 import convert_to_float8_training\n"
    "model = torch.compile(convert_to_float8_training(model))",
    costs="Results change in the second digit; check that training still converges.",
    unknown="Products take from the roofline in 8 bits to all of their time. Casts to fp8 and their scales pass over "
    "the operands half a time (fused) to two and a half times, and are one to four more launches each.",
    needs="A recording with record_shapes=True in which device rows are linked to their launches.",
    effort=Effort.NUMERICS,
    absent=_no_fp8,
    bounds=("device",),
    find=find_fp8,
)
REMEDIES = (HALF, TF32, FP8)
