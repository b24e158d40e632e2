"""Make the sample of generation 2 (mid-2025): eager mode, starved by its data loader.

The Synapse Logger is gone in this generation and the bridge logs carry the names of the eager pipeline. How
those names nest is taken from a published bridge log (``Launch`` > ``run`` > ``launch``) and otherwise
inferred.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from . import bridge, workload
from .device import Kernel
from .export import write_trace
from .session import Session, Shapes, Thread

STEPS = 10
FIRST_STEP = 2
_PIPELINE = ("LaunchRecipeTask", "launch_recipe", "Launch", "run", "launch")
#: In eager mode every operator is a recipe of its own: name, engine, lanes, microseconds.
KERNELS = {
    "aten::addmm": ("GEMM", "mme", 4, 84.0),
    "aten::mm": ("GEMM", "mme", 4, 78.0),
    "aten::sum": ("reduce_sum_fwd_bf16", "tpc", 8, 12.0),
    "aten::native_layer_norm": ("layer_norm_fwd_bf16", "tpc", 24, 44.0),
    "aten::native_layer_norm_backward": ("layer_norm_bwd_bf16", "tpc", 24, 71.0),
    "aten::gelu": ("gelu_fwd_bf16", "tpc", 24, 31.0),
    "aten::gelu_backward": ("gelu_bwd_bf16", "tpc", 24, 38.0),
    "aten::_log_softmax": ("log_softmax_fwd_bf16", "tpc", 4, 7.0),
    "aten::_log_softmax_backward_data": ("log_softmax_bwd_bf16", "tpc", 4, 8.0),
    "aten::_foreach_add_": ("optimizer_sgd_fwd_bf16", "tpc", 24, 58.0),
}
_RECIPE_OF = {op: 4096 + 16 * index for index, op in enumerate(KERNELS)}


def eager(folder: Path) -> Session:
    """Write ``hpu_g2_eager``: input-bound, because single-process data loading takes most of each step."""
    session = Session(
        generation=2,
        seed=2101,
        pid=20417,
        base_periods=221,
        start_ns=5_114_209_662_018_905,
        synapse_pid=32619,
    )
    session.profiler_step(FIRST_STEP)
    for index in range(STEPS):
        _step(session, new_recipes=index == 0)
        last = index == STEPS - 1
        ended = session.profiler_step(None if last else FIRST_STEP + index + 1)
        assert ended is not None
        session.schedule.steps.append(ended)
    write_trace(session, folder / "gaudi-host0_20417.1748636011209337418.pt.trace.json.gz")
    return session


def _step(session: Session, *, new_recipes: bool) -> None:
    with session.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"):
        for _ in range(4):
            with session.op("aten::to", ((224, 224, 3),), dtype="unsigned char"):
                session.work(1250)
        with session.op("aten::stack", ((1024,), (1024,)), dtype="float"):
            session.work(420)
    bridge.copy_to_device(session, workload.BATCH * workload.WIDTH * 4, 24, lazy=False)
    begun = []
    layers = (*workload.MODULES, workload.LOSS)
    for layer in layers:
        sequence, start = session.sequence(), session.main.now_ns
        with session.op(layer.op, layer.shapes, sequence=sequence):
            session.work(5)
            _run(session, session.main, layer.inner, layer.inner_shapes or layer.shapes, new_recipes=new_recipes)
        begun.append((sequence, start))
        session.work(6)
    _backward(session, layers, begun, new_recipes=new_recipes)
    with session.annotation("Optimizer.step#SGD.step"):
        _run(session, session.main, "aten::_foreach_add_", workload.PARAMETERS, new_recipes=new_recipes)
    session.work(30)


def _backward(
    session: Session, layers: tuple[workload.Layer, ...], begun: list[tuple[int, int]], *, new_recipes: bool
) -> None:
    thread = session.autograd
    thread.now_ns = max(thread.now_ns, session.main.now_ns + session.jitter(25))
    for layer, (sequence, start) in reversed(list(zip(layers, begun, strict=True))):
        session.flow(start, thread.now_ns)
        evaluate = f"autograd::engine::evaluate_function: {layer.node}"
        with session.op(evaluate, thread=thread, sequence=sequence, backward=True):
            session.work(3, thread)
            with session.op(layer.node, thread=thread, sequence=sequence, backward=True):
                for op, shapes in layer.backward:
                    _run(session, thread, op, shapes, new_recipes=new_recipes)
        session.work(3, thread)
    session.main.now_ns = thread.now_ns + session.jitter(15)


def _run(session: Session, thread: Thread, op: str, shapes: Shapes, *, new_recipes: bool) -> None:
    """Run an operator: the calling thread only queues it, a pipeline thread launches its recipe."""
    with session.op(op, shapes, thread=thread):
        session.work(22, thread)
    name, engine, lanes, us = KERNELS[op]
    launch = session.launch
    launch.now_ns = max(launch.now_ns, thread.now_ns + session.jitter(4))
    with ExitStack() as stack:
        for function in _PIPELINE:
            stack.enter_context(session.bridge(function, launch))
            session.work(1.5, launch)
            if new_recipes and function == "LaunchRecipeTask":
                with session.bridge("add_new_recipe", launch):
                    session.work(9, launch)
        kernel = Kernel(name, f"{name}_0", engine, lanes, us)
        bridge.launch_recipe(session, launch, _RECIPE_OF[op], [kernel], thread.now_ns)
