"""Reduce gradients, or exchange activations, in 16 bits: half the bytes cross the links."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from msgspec import Struct

from hpuprof.model.arrays import Floats, Ints, Mask
from hpuprof.planning.collective_rows import CollectiveRows, without_collectives
from hpuprof.planning.remedy import Effort, Remedy, communicates
from hpuprof.planning.row_edits import of_launches, scaled
from hpuprof.planning.situation import ProgramCalls, Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel

SINGLE = ("float", "float32", "fp32")
"""Types of four bytes as collectives name them."""
SAVED = 0.5
"""Share of a collective's time for its bytes that half of them save; waiting for other ranks inside it stays."""


def _find(which: Callable[[CollectiveRows], Mask], name: str, situation: Situation) -> Iterator[Change]:
    """Find collectives in fp32. `which`: marks those that may be shortened; `name`: theirs."""
    found = None if situation.calls is None else CollectiveRows.find(situation.calls)
    if found is None:
        return
    single = np.array([kind.dtype.lower() in SINGLE for kind in found.kinds], dtype=bool)
    mine = single[found.kind] & which(found)
    if not mine.any():
        return
    rows, program = found.row[mine], found.of.program
    shortest = situation.model.collectives.shortest
    moving = np.array([shortest[row] for row in program.device_row[rows].tolist()], dtype=np.float64)
    per_step = len(rows) / program.steps
    change = _Halved(found.of, rows, moving)
    edits = of_launches(change.edit), of_launches(change.ideal)
    yield Change(f"{per_step:,.0f} {name} in fp32", per_step, *edits, uncertain=True)


class _Halved(Struct, frozen=True, eq=False):
    of: ProgramCalls
    rows: Ints
    moving: Floats  # of each: its time without waiting for others [ns]

    def edit(self, model: LaunchModel, level: float) -> LaunchModel:
        """Save half of the time for the bytes, down to nothing of it where links are not what takes the time."""
        dur = self.of.program.dur[self.rows]
        factor = np.ones(len(self.of.program.call))
        saved = SAVED * (1.0 - level) * self.moving / np.maximum(dur, 1e-9)
        factor[self.rows] = np.maximum(1.0 - saved, 0.0)
        return scaled(model, factor != 1.0, factor)

    def ideal(self, model: LaunchModel, _: float) -> LaunchModel:
        """Take the collectives away."""
        return without_collectives(model, self.of, self.rows)


_in_16_bits = partial(
    Remedy,
    needs="A recording in which device rows are linked to their launches and collectives tell their type.",
    bounds=("communication",),
    meets=True,
    about=communicates,
    effort=Effort.NUMERICS,
    mends=("HP206",),
)
REMEDIES = (
    _in_16_bits(
        name="gradient_compression",
        title="Reduce gradients in bf16 (hook of DDP, policy of FSDP)",
        advice="Cast each bucket to bf16 for its reduction and back: a communication hook of DDP, or reduce_dtype in "
        "FSDP's MixedPrecision.",
        code="from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n"
        "model.register_comm_hook(None, default_hooks.bf16_compress_hook)",
        costs="Gradients are summed with 8 bits of mantissa; check that training still converges.",
        unknown="Between half of a reduction's time without waiting and nothing is saved: casts, and the start-up of "
        "small ones, take a part.",
        find=partial(_find, lambda found: found.gradients, "reductions of gradients"),
    ),
    _in_16_bits(
        name="exchange_compression",
        title="Exchange activations in bf16 (all-to-all)",
        advice="Cast what all-to-all sends to bf16 and back: TorchRec's QCommsConfig for embeddings; tokens before "
        "they go to their experts, and what comes back.",
        code="from torchrec.distributed.fbgemm_qcomm_codec import CommType, QCommsConfig, get_qcomm_codecs_registry\n"
        "codecs = QCommsConfig(forward_precision=CommType.BF16, backward_precision=CommType.BF16)\n"
        "sharder = EmbeddingBagCollectionSharder(qcomm_codecs_registry=get_qcomm_codecs_registry(codecs))",
        costs="Activations and their gradients keep 8 bits of mantissa; check that training still converges.",
        unknown="Between half of an exchange's time without waiting and nothing is saved: casts, and the start-up of "
        "small ones, take a part.",
        find=partial(_find, lambda found: found.exchanges, "exchanges"),
    ),
)
