"""Machine costs per launch, replay and copy: ranges with sources, or a profile measured by `hpuprof calibrate`.

A constant is a central value with a 90 % range. Samples are triangular on a logarithmic scale, over a range widened so
that `low` and `high` are its 5th and 95th percentiles.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np

from hpuprof.errors import ConfigError
from hpuprof.families import FAMILIES
from hpuprof.model.arrays import Floats, Ints
from hpuprof.model.prediction import Constant, MachineProfile
from hpuprof.model.schema import HostKind


def _constant(name: str, value: float, low: float, high: float, unit: str, source: str) -> Constant:
    return Constant(name=name, value=float(value), low=float(low), high=float(high), unit=unit, source=source)


_PROFILER = (
    _constant("profiler_op", 600, 400, 1000, "ns per row", "torch 2.13 CPU profiler: 0.4-0.8 µs an operator"),
    _constant("profiler_shapes", 1.8, 1.4, 2.2, "ratio", "torch 2.13: 0.7-1.5 µs an operator with record_shapes"),
    _constant("profiler_python", 750, 500, 1000, "ns per row", "torch 2.13 CPU profiler, with_stack"),
    _constant("profiler_annotation", 1300, 500, 4000, "ns per row", "torch 2.13: record_function from Python"),
    _constant("profiler_call", 1500, 700, 4000, "ns per row", "CUPTI callback per runtime call, 1-4 µs"),
)

PROFILER_ROWS = {
    HostKind.OP: "profiler_op",
    HostKind.PYTHON: "profiler_python",
    HostKind.ANNOTATION: "profiler_annotation",
    HostKind.RUNTIME: "profiler_call",
}
"""The constant with the profiling cost of each kind of row; counts of rows by kind have this order."""

KERNEL_LENGTHS = (6_000.0, 20_000.0, 100_000.0)
"""Eager durations [ns] that divide the kernels whose scale in a graph differs."""
KERNEL_SCALES = (
    "kernel_scale_below_6us",
    "kernel_scale_below_20us",
    "kernel_scale_below_100us",
    "kernel_scale_longer",
)
_PAIRED = "the same kernels of vLLM 0.25.1 in a graph and eager, two RTX 3060 boxes"

_CUDA = (
    _constant(
        "replay",
        9_000,
        3_000,
        25_000,
        "ns",
        "NVIDIA, constant-time launch: 2-2.5 µs; PyTorch's replay from Python 8-27 µs (pytorch#114860)",
    ),
    _constant(
        "replay_per_launch",
        10,
        1,
        200,
        "ns per launch",
        "NVIDIA: 1 ns a node since CUDA 12.6, 200 ns with older drivers",
    ),
    _constant(
        "graph_gap",
        200,
        20,
        600,
        "ns",
        "between rows inside a replayed graph: median 0 µs (RTX 3060, MI300X, MI350), 0.42 µs (H200)",
    ),
    _constant(
        "kernel_scale_below_6us", 0.92, 0.84, 1.0, "ratio", f"{_PAIRED}: 0.84-0.92 on one box, 0.87-1.00 on another"
    ),
    _constant("kernel_scale_below_20us", 0.95, 0.90, 0.99, "ratio", f"{_PAIRED}: 0.90-0.99"),
    _constant("kernel_scale_below_100us", 1.0, 0.99, 1.01, "ratio", f"{_PAIRED}: 0.99-1.01"),
    _constant("kernel_scale_longer", 0.995, 0.99, 1.0, "ratio", f"{_PAIRED}: 0.99-1.00"),
    _constant("input_copy", 5_000, 3_000, 10_000, "ns", "host cost of one copy into a static input"),
    _constant("input_copy_device", 2_000, 1_500, 4_000, "ns", "device cost of one small copy"),
    _constant(
        "graphed_parameter",
        1.1,
        0.6,
        2.0,
        "recorded stores of a gradient",
        "torch 2.13 on a CPU: 2.4 µs a parameter of `make_graphed_callables`; storing is recorded as 2.1",
    ),
)

_HPU_EAGER = (
    _constant(
        "replay", 150_000, 50_000, 500_000, "ns", "not measured on Gaudi; range of a recipe launch through the bridge"
    ),
    _constant("replay_per_launch", 0.1, 0.05, 0.2, "ns per launch", "a compiled region is one recipe"),
    _constant("graph_gap", 500, 100, 1_500, "ns", "inside a recipe there are no launches; not measured on Gaudi"),
    _constant("kernel_scale", 1.0, 0.90, 1.02, "ratio", "compiling also fuses: a lower bound of the gain"),
    _constant("input_copy", 20_000, 5_000, 60_000, "ns", "one eager copy through the bridge; not measured on Gaudi"),
    _constant("input_copy_device", 5_000, 2_000, 20_000, "ns", "one DMA descriptor; not measured on Gaudi"),
)

_HPU_LAZY = (
    _constant(
        "replay",
        150_000,
        50_000,
        500_000,
        "ns",
        "hash check, argument binding and synLaunch for each recipe (bridge 1.19); not measured on Gaudi",
    ),
    _constant("replay_per_launch", 0.1, 0.05, 0.2, "ns per launch", "recipes are replayed whole"),
    _constant("graph_gap", 500, 100, 1_500, "ns", "recipes are unchanged; not measured on Gaudi"),
    _constant("kernel_scale", 1.0, 0.98, 1.0001, "ratio", "the recipes stay the same"),
    _constant("input_copy", 40_000, 10_000, 120_000, "ns", "one lazy copy, flushed before the replay (bridge 1.19)"),
    _constant("input_copy_device", 5_000, 2_000, 20_000, "ns", "one DMA descriptor; not measured on Gaudi"),
)

MODEL_ERROR = _constant(
    "model_error",
    0.065,
    0.04,
    0.12,
    "ratio",
    "error of the speed-up over the speed-up, as logarithms: 0.07 and 0.04 where both step times were measured (vLLM "
    "decode, RTX 3060), up to 0.15 where the one without the profiler was not",
)
OUTSIDE_ERROR = _constant(
    "outside_error",
    0.12,
    0.05,
    0.25,
    "ratio",
    "relative error of the remaining host work when little remains; see docs/evidence/accuracy.md",
)


def constants_for(family: str, mode: str, measured: Mapping[str, Constant] | None = None) -> dict[str, Constant]:
    """Return the constants for a device family and mode; measured ones replace the defaults."""
    if FAMILIES[family].lazy_graphs:  # recipes
        table: tuple[Constant, ...] = _HPU_LAZY if mode.startswith("lazy") else _HPU_EAGER
    else:
        table = _CUDA
    out = {c.name: c for c in (*table, *_PROFILER, MODEL_ERROR, OUTSIDE_ERROR)}
    for name, constant in (measured or {}).items():
        if name in out:
            out[name] = constant
    return out


def kernel_scales(constants: Mapping[str, Constant]) -> list[Constant]:
    """Return the factor on kernels in a graph, by length; one for all lengths where recipes are replayed."""
    return [constants[name if name in constants else "kernel_scale"] for name in KERNEL_SCALES]


def kernel_lengths(dur: Floats) -> Ints:
    """Return for each eager duration [ns] which of `kernel_scales` applies."""
    return np.searchsorted(KERNEL_LENGTHS, dur, side="right")


def least_kernel_scale(dur: Floats, constants: Mapping[str, Constant]) -> Floats:
    """Return the share of each eager duration [ns] that a kernel keeps in a graph at least, 5th percentile."""
    low: Floats = np.array([scale.low for scale in kernel_scales(constants)])[kernel_lengths(dur)]
    return low


def draw(constant: Constant, uniform: Floats) -> Floats:
    """Map uniform numbers in (0, 1) to the constant: log-piecewise-linear through its 5 %, 50 % and 95 % points."""
    low, middle, high = (float(np.log(x)) for x in (constant.low, constant.value, constant.high))
    below, above = (middle - low) / 0.45, (high - middle) / 0.45
    points = np.array([middle - 0.5 * below, low, middle, high, middle + 0.5 * above])
    sampled: Floats = np.exp(np.interp(uniform, [0.0, 0.05, 0.5, 0.95, 1.0], points))
    return sampled


PROFILE_VERSION = 1
MOST = 1e12
"""Above it no constant is believed: no launch costs an hour [ns]."""


def read_profile(text: str) -> dict[str, Constant]:
    """Return the constants of a machine profile by name; none for empty text. Raises ConfigError."""
    if not text:
        return {}
    try:
        profile = msgspec.json.decode(text, type=MachineProfile)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(
            f"not a machine profile: {error}", hint="give a file written by `hpuprof calibrate -o FILE`"
        ) from None
    if profile.hpuprof_profile != PROFILE_VERSION:
        raise ConfigError(
            f"machine profile of version {profile.hpuprof_profile}; this hpuprof reads version {PROFILE_VERSION}",
            hint="measure again with `hpuprof calibrate`",
        )
    bad = [c.name for c in profile.constants if not 0 < c.low <= c.value <= c.high <= MOST]
    if bad:
        raise ConfigError(
            f"machine profile: {bad[0]} has an invalid range", hint=f"0 < low <= value <= high <= {MOST:g}"
        )
    return {c.name: c for c in profile.constants}
