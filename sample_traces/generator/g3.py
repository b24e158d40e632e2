"""Make the compiled sample of generation 3: device-bound, with a blocking read every step."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from . import bridge, workload
from .device import Kernel
from .export import write_trace
from .session import Session, Thread

STEPS = 10
FIRST_STEP = 2
FORWARD_RECIPE, BACKWARD_RECIPE, OPTIMIZER_RECIPE = 7201, 7217, 7233
_PIPELINE = ("LaunchRecipeTask", "launch_recipe", "Launch", "run")
FORWARD = [*workload.FORWARD * 4, *workload.LOSS_KERNELS[:1]]
BACKWARD = [*workload.LOSS_KERNELS[1:], *workload.BACKWARD * 4]


def compiled(folder: Path) -> Session:
    """Write ``hpu_g3_compile``: the device is busy nine tenths of each step and idles during ``.item()``."""
    session = Session(
        generation=3,
        seed=3101,
        pid=26398,
        base_periods=226,
        start_ns=2_208_771_004_662_118,
        synapse_pid=32619,
    )
    session.profiler_step(FIRST_STEP)
    for index in range(STEPS):
        _step(session)
        last = index == STEPS - 1
        ended = session.profiler_step(None if last else FIRST_STEP + index + 1)
        assert ended is not None
        session.schedule.steps.append(ended)
    write_trace(session, folder / "gaudi-host0_26398.1785176289771604552.pt.trace.json.gz")
    return session


def _step(session: Session) -> None:
    with session.annotation("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
        session.work(24)
    bridge.copy_to_device(session, workload.BATCH * workload.WIDTH * 4, 24, lazy=False)
    sequence, start = session.sequence(), session.main.now_ns
    with session.op("Torch-Compiled Region: 0/0"):
        session.work(8)
        with session.op("CompiledFunction", (workload.MODULES[0].shapes[0],), sequence=sequence):
            session.work(18)
            launch(session, session.main, FORWARD_RECIPE, FORWARD)
    _backward(session, sequence, start)
    with session.annotation("Optimizer.step#SGD.step"), session.op("Torch-Compiled Region: 1/0"):
        session.work(20)
        launch(session, session.main, OPTIMIZER_RECIPE, workload.OPTIMIZER)
    bridge.read_scalar(session, wake_us=250)
    session.work(8)


def _backward(session: Session, sequence: int, start: int) -> None:
    thread = session.autograd
    thread.now_ns = max(thread.now_ns, session.main.now_ns + session.jitter(25))
    session.flow(start, thread.now_ns)
    node = "CompiledFunctionBackward"
    evaluate = f"autograd::engine::evaluate_function: {node}"
    evaluation = session.op(evaluate, thread=thread, sequence=sequence, backward=True)
    with evaluation, session.op(node, thread=thread, sequence=sequence, backward=True):
        session.work(26, thread)
        launch(session, thread, BACKWARD_RECIPE, BACKWARD)
    session.main.now_ns = thread.now_ns + session.jitter(15)


def launch(session: Session, thread: Thread, recipe: int, kernels: list[Kernel]) -> None:
    """Queue a compiled graph; the bridge's own thread launches it."""
    session.work(6, thread)
    launch = session.launch
    launch.now_ns = max(launch.now_ns, thread.now_ns + session.jitter(4))
    with ExitStack() as stack:
        for function in _PIPELINE:
            stack.enter_context(session.bridge(function, launch))
            session.work(2, launch)
        bridge.launch_recipe(session, launch, recipe, kernels, thread.now_ns)
