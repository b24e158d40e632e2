"""Multiply matrices with kernels that come nearer to what the device can do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
from msgspec import Struct

from hpuprof.efficiency.formulas import recorded_inputs
from hpuprof.efficiency.utilization import AT_THE_ROOF, Utilization
from hpuprof.model.arrays import Floats, Ints, kinds_of
from hpuprof.model.once import once
from hpuprof.model.schema import DeviceKind
from hpuprof.planning.matrix_rows import holding, known_work
from hpuprof.planning.remedy import NO_PLACE, Effort, Remedy
from hpuprof.planning.row_edits import lasting, of_launches
from hpuprof.planning.situation import ProgramCalls, Situation
from hpuprof.what_if.change import Change
from hpuprof.what_if.launch_model import LaunchModel

REACHED = 0.8
"""Share of the roofline to which a better kernel may come; by judgment, see `AT_THE_ROOF`."""
SKEW = 2.0
"""Of what a kernel at `REACHED` would save, a share u ** `SKEW` is saved, u even from 0 to 1: half of the products gain
less than a quarter of it. By judgment: most kernels of a library are near the best of their kind for their size."""
LEAST_NS = 5e3
"""No kernel takes less, however little it computes: filling the device and draining it; by judgment."""
ALIGNED = 8
"""Numbers of 16 bits in 16 bytes, which NVIDIA's guide to matrix multiplication asks sizes to be multiples of."""
NARROW = frozenset({"bf16", "fp16", "fp8"})
"""Types of products that are looked at: for those on fp32, fewer bits come first."""


class _Far(Struct, frozen=True, eq=False):
    """Device rows of products far from the roofline; columns of shape `(found,)`."""

    row: Ints  # of the program
    left: Floats  # share of each one's time that a better kernel takes at least
    roof_ns: float  # what all of them take at the roofline, and now
    now_ns: float
    longest: str  # the operator that takes most of the time, with its operands


@once
def _find(of: ProgramCalls) -> _Far | None:
    known, program = known_work(of), of.program
    view = of.view
    around = holding(known, view.links.nesting.stop, view.links.operator[program.device_row])
    around = np.where(program.kind == DeviceKind.COMPUTE, around, -1)
    mine = np.flatnonzero(around >= 0)
    if not len(mine):
        return None
    calls = len(known.position)
    took = np.bincount(around[mine], weights=program.dur[mine], minlength=calls)
    roof = _roof_ns(known)
    with np.errstate(divide="ignore", invalid="ignore"):
        far = roof < AT_THE_ROOF * took
        left = np.minimum(np.maximum(roof / REACHED, LEAST_NS) / took, 1.0)
    far &= left < 1.0  # unknown roofs are NaN
    rows = mine[far[around[mine]]]
    if not len(rows):
        return None
    chosen = np.flatnonzero(far)
    _, _, of_kind = kinds_of(known.key[chosen])
    most = chosen[np.flatnonzero(of_kind == int(np.argmax(np.bincount(of_kind, weights=took[chosen]))))[0]]
    trace, host = view.trace, int(view.links.nesting.rows[known.position[most]])
    name, shapes = trace.names[int(trace.host.name[host])], trace.shapes[int(trace.host.shape[host])]
    return _Far(
        row=rows,
        left=left[around[rows]],
        roof_ns=float(roof[chosen].sum()),
        now_ns=float(took[chosen].sum()),
        longest=f"{name} of {_operands(shapes)}",
    )


def _operands(shapes: str) -> str:
    """Return the shapes of the first two tensors of more than one dimension: `8192x4096 by 4096x12288`.

    Sizes at which rows of 16 bits do not start at multiples of 16 bytes are named, as the fast kernels need those.
    """
    found = recorded_inputs(shapes, b"", b"").shapes
    sizes = [shape for shape in found if isinstance(shape, list) and len(shape) > 1][:2]
    odd = sorted({size for shape in sizes for size in shape[-2:] if size > 1 and size % ALIGNED})
    named = " by ".join("x".join(str(size) for size in shape) for shape in sizes)
    return f"{named}: no multiple of {ALIGNED} is {', '.join(map(str, odd))}" if odd else named


def _roof_ns(known: Utilization) -> Floats:
    """Return the least time of each call by the roofline [ns]; NaN for other types, and where peaks are not known."""
    narrow = np.array([work.dtype in NARROW for work in known.work], dtype=bool)[known.kind]
    return np.where(narrow, known.at_roof, np.nan)


def find(situation: Situation) -> Iterator[Change]:
    """Find products in 16 or 8 bits that take much longer than the roofline says."""
    of = situation.calls
    found = None if of is None else _find(of)
    if of is None or found is None:
        return
    program = of.program
    calls = np.zeros(len(program.row), dtype=bool)
    calls[program.call[found.row]] = True
    part, reach = found.now_ns / program.dur.sum(), found.roof_ns / found.now_ns
    where = f"{part:.0%} of the device's time, at {reach:.0%} of the roofline; most in {found.longest}"
    yield Change(
        where,
        float(len(found.row)) / program.steps,
        of_launches(partial(_faster, found=found)),
        of_launches(partial(_without, found=found)),
        uncertain=True,
        touches=calls,
    )


def _faster(model: LaunchModel, level: float, *, found: _Far) -> LaunchModel:
    """Let rows take between what a kernel near the roofline takes and what they take now."""
    return _lasting(model, found, 1.0 - (1.0 - found.left) * (1.0 - level) ** SKEW)


def _without(model: LaunchModel, _: float, *, found: _Far) -> LaunchModel:
    return _lasting(model, found, 0.0)


def _lasting(model: LaunchModel, found: _Far, share: float | Floats) -> LaunchModel:
    dur = model.schedule.rows.dur.copy()
    dur[found.row] *= share
    return lasting(model, dur)


def _absent(situation: Situation) -> tuple[str, ...]:
    of = situation.calls
    known = None if of is None else known_work(of)
    if known is None or known.peak is None:
        return "not_told", "peaks of the device are not known, or nothing is linked to launches"
    if not len(known.position):
        return "not_told", "shapes of products were not recorded", "A recording with record_shapes=True."
    return NO_PLACE


REMEDY = Remedy(
    name="faster_products",
    title="Speed up products that are far from the roofline",
    advice="Make sizes multiples of 64 (heads, vocabulary, hidden size), put more rows into one product, and let the "
    "compiler try tiles. Take kernels made for the case: attention with a head size that they are written for, grouped "
    "products for experts. The report lists all operators and shapes.",
    code='model = torch.compile(model, mode="max-autotune")',
    costs="The compiler tries many kernels at the first step and at new shapes; other sizes change the model.",
    unknown="How near a better kernel comes: to 80 % of the roofline at best, as tuned libraries reach 70 to 90 %, no "
    "nearer than now at worst, a quarter of the way in half of all cases; none takes less than 5 µs.",
    needs="A recording with record_shapes=True in which device rows are linked to their launches, on a device whose "
    "peaks are known.",
    effort=Effort.RESTRUCTURING,
    proof="bound",
    mends=("HP222",),
    absent=_absent,
    bounds=("device",),
    find=find,
)
