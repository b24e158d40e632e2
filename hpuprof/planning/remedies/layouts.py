"""Keep images in the layout that convolutions compute in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

import numpy as np

from hpuprof.model.arrays import Mask
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.row_edits import of_launches, without_work
from hpuprof.planning.situation import Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel

CONVERTS = re.compile(r"nchwToNhwc|nhwcToNchw|^batched_transpose_\d", re.IGNORECASE)
"""Kernels that turn a tensor into the other layout and back: cuDNN's, and MIOpen's (`batched_transpose_32x32_half`)."""
STAY = 0.5
"""Share of the conversions that may stay: operators without a kernel for the layout turn their inputs back. By
judgment."""


def find(situation: Situation) -> Iterator[Change]:
    """Find conversions of layouts around convolutions."""
    of = situation.calls
    if of is None:
        return
    program, trace = of.program, of.view.trace
    converts = trace.named(CONVERTS.search)[trace.device.name[program.device_row]]
    calls = np.zeros(len(program.row), dtype=bool)
    calls[program.call[converts]] = True
    calls[program.call[~converts]] = False  # launched together with others
    if not calls.any():
        return
    per_step = float(calls.sum()) / program.steps
    where = f"{per_step:,.0f} conversions between NCHW and NHWC"
    kept, gone = of_launches(partial(_kept, calls=calls)), of_launches(partial(_gone, calls=calls))
    yield Change(where, per_step, kept, gone, uncertain=True)


def _kept(model: LaunchModel, level: float, *, calls: Mask) -> LaunchModel:
    return without_work(model, calls, left=STAY * level)


def _gone(model: LaunchModel, _: float, *, calls: Mask) -> LaunchModel:
    return without_work(model, calls)


REMEDY = Remedy(
    name="layouts",
    title="Keep images in channels_last",
    advice="Convert model and batches once to channels_last, the layout that tensor cores convolve in.",
    code="model = model.to(memory_format=torch.channels_last)\n"
    "batch = batch.to(memory_format=torch.channels_last)  # each batch",
    costs="None but the change; code that views tensors by their strides must be looked at.",
    unknown="From none to half of the conversions stay, where an operator has no kernel for the layout. What "
    "convolutions gain is left out.",
    needs="A recording in which device rows are linked to their launches.",
    effort=Effort.FEW_LINES,
    bounds=("device",),
    about=lambda view: bool(view.trace.named(CONVERTS.search)[view.trace.device.name].any()),
    find=find,
)
