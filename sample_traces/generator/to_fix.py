"""Make the samples with places for fixes, and play the same programs with each fix made.

What a fix saves is what the simulated program takes less with it: nothing of it comes from the analyser.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from . import bridge, g2, g3, workload
from .device import Kernel
from .export import write_trace
from .gaudi import Generation
from .session import Session

STEPS = 10
LONG = 240
"""Steps of a run that tells what a step takes: luck that two runs do not share evens out."""
FIRST_STEP = 2
LEAD = 3
"""Steps at the start that are not timed: the first ones find an idle device."""
PROFILED_US = 0.8
"""What the profiler costs a thread for each of its rows."""
HAND_OVER_US = 350.0
"""What the main thread needs to take a batch from a worker."""
_LAYERS = (*workload.MODULES, workload.LOSS)
_BLOCKS = ((0, 3), (3, 6), (6, 8))
"""Layers of the first block, the second, and the head with the loss."""
FEW_UPDATES = 3
"""Kernels of an optimizer that takes lists of parameters."""
_KERNELS = {**g2.KERNELS, "aten::add_": ("add_fwd_bf16", "tpc", 24, 58.0)}
_RECIPE_OF = {op: 4096 + 16 * index for index, op in enumerate(_KERNELS)}
_RECIPE = 61_411
_BFLOAT_16 = 0.7
"""Time of a product in bf16 over that in fp32, casts and all: made up, as all times here."""

Mode = Literal["eager", "lazy", "compile"]


@dataclass(frozen=True, slots=True)
class Program:
    """What a step does.

    `matrices`: factor on the length of matrix products; `updates`: kernels of the optimizer; `reads`: values read at
    the end of the step; `stops`: waits for the device alone, after forward; `marks`: in lazy mode, after which of the
    seven parts of a step (two blocks and the head, forward and back, and the optimizer) the graph is flushed;
    `repeat`: how often the device's work of a lazy graph's blocks is done.
    """

    mode: Mode = "eager"
    generation: Generation = 2
    fetch_us: float = 40
    workers: bool = False
    dtype: str = "bf16"
    matrices: float = 1.0
    updates: int = 1
    reads: int = 1
    stops: int = 0
    marks: tuple[int, ...] = (5, 6)
    operator_us: float = 22
    queue_us: float = 700
    seed: int = 7


Fix = Callable[[Program], Program]


@dataclass(frozen=True, slots=True)
class Sample:
    """A program with places for fixes. Of each: the remedy, what its line says of the place, the program with it."""

    program: Program
    fixes: tuple[tuple[str, str, Fix], ...]
    file: str


def _with(**changes: object) -> Fix:
    return lambda program: replace(program, **changes)  # type: ignore[arg-type]


SAMPLES = {
    "hpu_g3_lazy_fp32": Sample(
        Program("lazy", 3, dtype="float32", matrices=10.0, operator_us=20, queue_us=8000, seed=4101),
        (
            ("lower_precision", "", _with(dtype="bf16", matrices=10.0 * _BFLOAT_16)),
            ("read_backs", "", _with(reads=0)),
        ),
        "gaudi-host0_31877.1785263870114208533.pt.trace.json.gz",
    ),
    "hpu_g2_eager_item": Sample(
        Program("eager", 2, fetch_us=1600, reads=3, stops=1, seed=4102),
        (
            ("read_backs", "", _with(reads=0)),
            ("synchronisation", "", _with(stops=0)),
            ("data_loading", "", _with(fetch_us=HAND_OVER_US, workers=True)),
        ),
        "gaudi-host0_20418.1748636011209337418.pt.trace.json.gz",
    ),
    "hpu_g3_eager_updates": Sample(
        Program("eager", 3, updates=48, operator_us=45, seed=4103),
        (
            ("fused_optimizer", "", _with(updates=FEW_UPDATES)),
            ("read_backs", "", _with(reads=0)),
        ),
        "gaudi-host0_26402.1785176289771604552.pt.trace.json.gz",
    ),
    "hpu_g1_lazy_marks": Sample(
        Program("lazy", 1, fetch_us=60, reads=0, marks=tuple(range(7)), operator_us=40, seed=4104),
        (
            ("flushes", "after the optimizer", _with(marks=(5, 6))),
            ("flushes", "all but the last", _with(marks=(6,))),
        ),
        "host0_14734.1731544768124906113.pt.trace.json.gz",
    ),
}


def fixable(name: str, folder: Path) -> tuple[Session, dict[str, object]]:
    """Write a sample; return its session, and what a step takes and each fix saves without the profiler [ns]."""
    sample = SAMPLES[name]
    session = played(sample.program, profiled_us=PROFILED_US)
    write_trace(session, folder / sample.file)
    now = step_ns(played(sample.program, steps=LONG))
    saved = [
        {"remedy": remedy, "where": where, "saves_ns": round(now - step_ns(played(fix(sample.program), steps=LONG)))}
        for remedy, where, fix in sample.fixes
    ]
    return session, {"unprofiled_step_ns": round(now), "fixes": saved}


def played(program: Program, *, profiled_us: float = 0.0, steps: int = STEPS) -> Session:
    """Return the program after some steps."""
    generation = program.generation
    base, start = {1: (219, 3_801_442_181_530_417), 2: (221, 5_114_209_662_018_905), 3: (226, 2_208_771_004_662_118)}[
        generation
    ]
    session = Session(generation, program.seed, 20417, base, start, 32619, profiled_us, program.queue_us)
    session.profiler_step(FIRST_STEP)
    for number in range(steps):
        _step(session, program)
        session.done.append(max(session.main.now_ns, session.device.free_ns))
        ended = session.profiler_step(None if number == steps - 1 else FIRST_STEP + number + 1)
        assert ended is not None
        session.schedule.steps.append(ended)
    return session


def step_ns(session: Session) -> float:
    """Return the mean time of a step until host and device are through [ns]."""
    return (session.done[-1] - session.done[LEAD - 1]) / (len(session.done) - LEAD)


def _step(session: Session, program: Program) -> None:
    kind = "_MultiProcessingDataLoaderIter" if program.workers else "_SingleProcessDataLoaderIter"
    with session.annotation(f"enumerate(DataLoader)#{kind}.__next__"):
        session.work(program.fetch_us)
    lazy = program.mode == "lazy"
    bridge.copy_to_device(session, workload.BATCH * workload.WIDTH * 4, 24, lazy=lazy)
    {"eager": _eager, "lazy": _lazy, "compile": _compiled}[program.mode](session, program)
    for _ in range(program.reads):
        bridge.read_scalar(session, wake_us=60)
    session.work(30)


def _eager(session: Session, program: Program) -> None:
    for layer in _LAYERS * 2:
        with session.op(layer.op, layer.shapes, sequence=session.sequence()):
            _run(session, layer.inner, program)
        session.work(6)
    _stop(session, program)
    _update(session, program)


def _compiled(session: Session, program: Program) -> None:
    with session.op("Torch-Compiled Region: 0/0"):
        session.work(30)
        kernels = [*g3.FORWARD[:11], *g3.BACKWARD[:12]]
        g3.launch(session, session.main, 7201, [_of(kernel, program) for kernel in kernels])
    _stop(session, program)
    _update(session, program)


def _lazy(session: Session, program: Program) -> None:
    """Accumulate a step, and flush after the parts that are marked."""
    pending: list[Kernel] = []
    operators = flushed = 0

    def part(number: int, kernels: list[Kernel], count: int) -> None:
        nonlocal operators, flushed
        pending.extend(_of(kernel, program) for kernel in kernels)
        operators += count
        if number in program.marks:
            bridge.mark_step(session, _RECIPE + 16 * flushed, list(pending), collect_us=12 + 4 * operators)
            pending.clear()
            operators, flushed = 0, flushed + 1

    begun: list[tuple[int, int]] = []
    forward = [workload.FORWARD[:2], workload.FORWARD[2:4], [*workload.FORWARD[4:], *workload.LOSS_KERNELS]]
    backward = [workload.BACKWARD[:2], workload.BACKWARD[2:4], workload.BACKWARD[4:]]
    us = program.operator_us
    for number, (first, stop) in enumerate(_BLOCKS):
        begun += workload.forward_lazy(session, _LAYERS[first:stop], us)
        part(number, forward[number], stop - first)
    for number, (first, stop) in enumerate(reversed(_BLOCKS)):
        layers = _LAYERS[first:stop]
        workload.backward_lazy(session, layers, begun[first:stop], us)
        part(3 + number, backward[number], sum(len(layer.backward) for layer in layers))
    with session.annotation("Optimizer.step#SGD.step"):
        workload.update_lazy(session, us)
        part(6, workload.OPTIMIZER, len(workload.PARAMETERS))


def _stop(session: Session, program: Program) -> None:
    for _ in range(program.stops):
        with session.synapse_host("synchronizeStream (accel0)", session.main):
            session.main.now_ns = max(session.main.now_ns, session.launch.now_ns, session.device.free_ns)
            session.work(12)


def _update(session: Session, program: Program) -> None:
    with session.annotation("Optimizer.step#SGD.step"):
        for _ in range(program.updates):
            op = "aten::add_" if program.updates > FEW_UPDATES else "aten::_foreach_add_"
            _run(session, op, program, 58 / program.updates)


def _of(kernel: Kernel, program: Program) -> Kernel:
    matrix = kernel.engine == "mme"
    dur, dtype = (kernel.dur_us * program.matrices, program.dtype) if matrix else (kernel.dur_us, kernel.dtype)
    return replace(kernel, dur_us=dur, dtype=dtype)


def _run(session: Session, op: str, program: Program, us: float | None = None) -> None:
    with session.op(op, workload.PARAMETERS[:2], dtype="float" if program.dtype == "float32" else "c10::BFloat16"):
        session.work(program.operator_us)
    name, engine, lanes, usual = _KERNELS[op]
    kernel = _of(Kernel(name, f"{name}_0", engine, lanes, us or usual), program)
    launch = session.launch
    launch.now_ns = max(launch.now_ns, session.main.now_ns + session.jitter(4))
    with session.bridge("LaunchRecipeTask", launch):
        session.work(2, launch)
        bridge.launch_recipe(session, launch, _RECIPE_OF[op], [kernel], session.main.now_ns)
