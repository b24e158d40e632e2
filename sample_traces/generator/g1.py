"""Make the two samples of generation 1 (Habana 1.19, lazy): without and with HPU graph replay."""

from __future__ import annotations

from pathlib import Path

from . import bridge, workload
from .export import write_trace
from .lightning import Loop, fit
from .session import Session

BATCHES = 8
TRAIN_RECIPE, OPTIMIZER_RECIPE, FORWARD_RECIPE, BACKWARD_RECIPE, LOSS_RECIPE = (
    60931,
    60947,
    60963,
    60979,
    60995,
)
FILE = "fit-perf-logs-_Strategy_SingleHPUStrategy_training_step.{ns}.pt.trace.json"
GRAPHS_PY = "habana_frameworks/torch/hpu/graphs.py"
_BATCH_BYTES = workload.BATCH * workload.WIDTH * 4
_ACTIVATION_BYTES = workload.BATCH * workload.WIDTH * 2


def _session(seed: int) -> Session:
    return Session(
        generation=1,
        seed=seed,
        pid=14734,
        base_periods=219,
        start_ns=3_801_442_181_530_417,
        synapse_pid=22101,
    )


def _fetch(session: Session, us: float) -> None:
    for name in ("aten::stack", "aten::stack"):
        with session.op(name, ((1024,), (1024,)), dtype="float"):
            session.work(us / 2)


def _window_borders(session: Session) -> None:
    """Add the halves of rows that began before the window or end after it."""
    first, last = session.start_ns, session.main.now_ns
    session.dangle("E", "LaunchSyncTensorsGraph", session.launch, first + 14_000)
    session.dangle("E", "SyncTensorsGraphInternal", session.main, first + 31_000)
    session.dangle("B", "SyncTensorsGraphInternal", session.main, last + 9_000)
    session.dangle("B", "LaunchSyncTensorsGraph", session.launch, last + 26_000)


def lazy(folder: Path) -> Session:
    """Write ``hpu_g1_lazy``: host-bound, because accumulating operators takes longer than running them."""
    session = _session(1101)
    begun: list[tuple[int, int]] = []
    layers = (*workload.MODULES, workload.LOSS)

    def forward(_: int) -> None:
        begun[:] = workload.forward_lazy(session, layers, 105)
        session.memory(_ACTIVATION_BYTES * 6)

    def backward(batch: int) -> None:
        workload.backward_lazy(session, layers, begun, 140)
        session.memory(-_ACTIVATION_BYTES * 6 - _BATCH_BYTES)
        graph = workload.FORWARD + workload.LOSS_KERNELS + workload.BACKWARD
        bridge.mark_step(session, TRAIN_RECIPE, graph, compile_us=5200 if batch == 0 else 0)

    def update(_: int) -> None:
        workload.update_lazy(session, 52)
        bridge.mark_step(session, OPTIMIZER_RECIPE, workload.OPTIMIZER)

    loop = Loop(lambda: _fetch(session, 70), lambda: _to_device(session), forward, backward, update)
    fit(session, loop, BATCHES)
    _window_borders(session)
    write_trace(session, folder / FILE.format(ns=1731544768124906113))
    return session


def replay(folder: Path) -> Session:
    """Write ``hpu_g1_lazy_graph_replay``: the same training with ``ModuleCacher``, paced by the device."""
    session = _session(1102)
    begun: list[tuple[int, int]] = []

    def forward(_: int) -> None:
        _replayed_forward(session)
        begun[:] = workload.forward_lazy(session, (workload.LOSS,), 60)

    def backward(_: int) -> None:
        workload.backward_lazy(session, (workload.LOSS,), begun, 60)
        session.memory(-_BATCH_BYTES)
        bridge.mark_step(session, LOSS_RECIPE, workload.LOSS_KERNELS, collect_us=28)
        _replayed_backward(session)

    def update(_: int) -> None:
        added = session.op("aten::_foreach_add_", workload.PARAMETERS)
        with added, session.bridge("_foreach_add_hpu_lazy_"):
            session.work(70)
        bridge.mark_step(session, OPTIMIZER_RECIPE, workload.OPTIMIZER, collect_us=28)

    loop = Loop(lambda: _fetch(session, 70), lambda: _to_device(session), forward, backward, update)
    fit(session, loop, BATCHES)
    _window_borders(session)
    write_trace(session, folder / (FILE.format(ns=1731545291770418022) + ".gz"))
    return session


def _to_device(session: Session) -> None:
    bridge.copy_to_device(session, _BATCH_BYTES, 21, lazy=True)


def _replayed_forward(session: Session) -> None:
    """Replay the captured forward pass on the main thread: hash the inputs, flush, execute."""
    with session.python(f"{GRAPHS_PY}(884): forward"):
        with session.python(f"{GRAPHS_PY}(131): input_hash"):
            session.work(24)
        with session.python(f"{GRAPHS_PY}(402): replayV3"):
            with session.bridge("SyncTensorsGraphInternal"):
                session.work(16)
            bridge.execute_cached_graph(session, session.main, FORWARD_RECIPE, workload.FORWARD)


def _replayed_backward(session: Session) -> None:
    """Replay the captured backward pass on the autograd thread, in two segments; the main thread waits."""
    thread = session.autograd
    thread.now_ns = max(thread.now_ns, session.main.now_ns + session.jitter(20))
    replaying = session.python(f"{GRAPHS_PY}(402): replayV3", thread)
    with session.op("_GraphedBackward", thread=thread), replaying:
        with session.bridge("SyncTensorsGraphInternal", thread):
            session.work(14, thread)
        half = len(workload.BACKWARD) // 2
        bridge.execute_cached_graph(session, thread, BACKWARD_RECIPE, workload.BACKWARD[:half])
        bridge.execute_cached_graph(session, thread, BACKWARD_RECIPE + 16, workload.BACKWARD[half:])
    session.main.now_ns = thread.now_ns + session.jitter(15)
