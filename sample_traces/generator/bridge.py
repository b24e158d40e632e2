"""Simulate how work reaches the device: mark_step, launch thread, graph replay, copies, blocking reads."""

from __future__ import annotations

from .device import Kernel
from .gaudi import event_args, launch_args, upload_args
from .session import Session, Thread

LAUNCH_LATENCY_US = 18.0


def mark_step(
    session: Session, recipe: int, kernels: list[Kernel], *, collect_us: float = 150, compile_us: float = 0
) -> None:
    """Flush the accumulated graph: collect and hash it on the main thread, hand it to the launch thread.

    Collecting costs more the more operators were accumulated. At most one launch is pending (the bridge's
    ``JoinPendingLaunchThread``), so a slow launch delays the next flush.
    """
    main, launch = session.main, session.launch
    with session.bridge("SyncTensorsGraphInternal"):
        session.work(20)
        main.now_ns = max(main.now_ns, launch.now_ns)
        session.work(collect_us)
        launch.now_ns = max(launch.now_ns, main.now_ns + session.jitter(9))
    with session.bridge("LaunchSyncTensorsGraph", launch):
        session.work(28, launch)
        if compile_us:
            start = launch.now_ns
            with session.synapse_host("compileGraph", launch):
                session.work(compile_us, launch)
            session.schedule.compiles.append((start, launch.now_ns))
        launch_recipe(session, launch, recipe, kernels, main.now_ns)


def launch_recipe(
    session: Session, thread: Thread, recipe: int, kernels: list[Kernel], handed_ns: int | None = None
) -> int:
    """Enqueue a compiled recipe from a thread; return when the device will have finished it.

    The call blocks while the card's queue is full. A thread of the bridge waits for the end; nobody waits
    for that thread. ``handed_ns``: when the program handed the recipe to the thread; None: it calls itself.
    """
    args = launch_args(recipe, len(kernels) + 4)
    handed_ns = thread.now_ns if handed_ns is None else handed_ns
    with session.synapse_call("synLaunchWithExternalEvents", args, thread):
        session.work(3, thread)
        with session.synapse_host("enqueueWithExternalEventsExt (accel0)", thread, recipe):
            thread.now_ns = max(thread.now_ns, session.device.free_ns - round(session.queue_us * 1000))
            session.work(20, thread)
        session.work(2, thread)
    ready_ns = thread.now_ns + session.jitter(LAUNCH_LATENCY_US)
    _, ended = session.device.run(ready_ns, recipe, kernels)
    session.schedule.launches.append((handed_ns, ended))
    record_event(session, thread)
    wait = session.wait
    wait.now_ns = max(wait.now_ns, thread.now_ns + session.jitter(6))
    with session.synapse_call("synEventSynchronize", event_args(), wait):
        wait.now_ns = max(wait.now_ns, ended) + session.jitter(5)
    return ended


def record_event(session: Session, thread: Thread) -> None:
    """Record an event behind the work that was just enqueued."""
    logged = session.synapse_call("synEventRecord", event_args(), thread)
    with logged, session.synapse_host("eventRecord", thread):
        session.work(3, thread)


def execute_cached_graph(session: Session, thread: Thread, recipe: int, kernels: list[Kernel]) -> None:
    """Replay one captured segment of an HPU graph on the caller's thread."""
    with session.bridge("ExecuteCachedGraph", thread):
        session.work(30, thread)
        launch_recipe(session, thread, recipe, kernels)
        session.work(5, thread)


def copy_to_device(session: Session, size_bytes: int, dur_us: float, *, lazy: bool) -> int:
    """Copy a batch to the device without waiting; return the end of the copy."""
    names = ("copy_hpu_lazy_", "copy_hpu_lazy_H2D") if lazy else ("copy_hpu_", "copy_hpu_H2D")
    with (
        session.op("aten::to", ((64, 1024),), dtype="float"),
        session.op("aten::_to_copy", ((64, 1024),), dtype="float"),
    ):
        session.work(9)
        copying = session.op("aten::copy_", ((64, 1024), (64, 1024)), dtype="float")
        with copying, session.bridge(names[0]), session.bridge(names[1]):
            session.work(10)
            logged = session.synapse_call("synMemCopyAsync", upload_args(size_bytes), session.main)
            with logged, session.synapse_host("memcpyAsync", session.main):
                session.work(8)
            end = session.device.copy(session.main.now_ns + session.jitter(12), "memcpy", dur_us)
            session.schedule.launches.append((session.main.now_ns, end))
            session.work(6)
    session.memory(size_bytes)
    return end


def read_scalar(session: Session, *, wake_us: float) -> None:
    """Read a device scalar on the main thread (``.item()``): wait for all device work, copy, wake up."""
    with session.op("aten::item", ((),)), session.op("aten::_local_scalar_dense", ((),)):
        session.work(12)
        end = session.device.copy(
            session.main.now_ns + session.jitter(20), "memcpyD2H", 4, after_compute=True
        )
        session.schedule.launches.append((session.main.now_ns, end))
        with session.synapse_host("synchronizeStream (accel0)", session.main):
            session.main.now_ns = max(session.main.now_ns, end) + session.jitter(wake_us)
        session.work(6)
