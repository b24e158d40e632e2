"""Make the eight-rank sample: lazy mode, generation 3, data parallel over HCCL, one rank slow to load data.

NIC rows exist only when the profiler runs with the template ``profile_api_with_nics``. That a NIC lane
shows one row from a rank's arrival to the common end is this generator's assumption (it is what NCCL
kernels look like); no published trace shows it.
"""

from __future__ import annotations

from pathlib import Path

from . import bridge, kineto, workload
from .export import write_trace
from .session import Session

RANKS, STEPS, FIRST_STEP = 8, 6, 2
STRAGGLER = 5
FAST_LOADING_US, SLOW_LOADING_US = 130.0, 2650.0
_FIRST_RECIPE, _SECOND_RECIPE, _OPTIMIZER_RECIPE = 9301, 9317, 9333
_TRANSFER_NS = (210_000, 320_000)
_NS = 1785263870114208533


def eight_ranks(folder: Path) -> dict[int, Session]:
    """Write ``hpu_g3_lazy_8_ranks``: seven ranks wait in the collectives for rank 5."""
    sessions = {rank: _session(rank) for rank in range(RANKS)}
    for session in sessions.values():
        session.profiler_step(FIRST_STEP)
    for index in range(STEPS):
        ready = {rank: _until_collectives(session, rank) for rank, session in sessions.items()}
        done_ns = _collectives(sessions, ready)
        for session in sessions.values():
            _after_collectives(session, done_ns)
            last = index == STEPS - 1
            ended = session.profiler_step(None if last else FIRST_STEP + index + 1)
            assert ended is not None
            session.schedule.steps.append(ended)
    for rank, session in sessions.items():
        name = f"gaudi-host0_{rank}.{_NS + rank * 1_204_771}.pt.trace.json.gz"
        write_trace(session, folder / name, distributed=kineto.distributed("hccl", rank, RANKS, config="hpu:hccl"), record_shapes=True)
    return sessions


def _session(rank: int) -> Session:
    """Begin a rank. All share one host, so one clock, and begin within microseconds of each other."""
    start_ns = 2_296_352_118_004_771 + rank * 3_217
    return Session(
        generation=3,
        seed=8101 + rank,
        pid=31200 + 600 * rank,
        base_periods=226,
        start_ns=start_ns,
        synapse_pid=22101,
    )


def _until_collectives(session: Session, rank: int) -> tuple[int, int]:
    """Run a step up to its two all-reduces; return when each bucket of gradients is ready on the device."""
    loading = session.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__")
    with loading, session.op("aten::stack", ((1024,), (1024,)), dtype="float"):
        session.work(SLOW_LOADING_US if rank == STRAGGLER else FAST_LOADING_US)
    bridge.copy_to_device(session, workload.BATCH * workload.WIDTH * 4, 24, lazy=True)
    layers = (*workload.MODULES, workload.LOSS)
    begun = workload.forward_lazy(session, layers, 38)
    workload.backward_lazy(session, layers, begun, 44)
    half = len(workload.BACKWARD) // 2
    first = workload.FORWARD + workload.LOSS_KERNELS + workload.BACKWARD[:half]
    ready = []
    for recipe, kernels in ((_FIRST_RECIPE, first), (_SECOND_RECIPE, workload.BACKWARD[half:])):
        bridge.mark_step(session, recipe, kernels)
        with session.op("c10d::allreduce_", ((workload.WIDTH, workload.WIDTH),)):
            session.work(14)
            with session.synapse_host("hcclAllReduce", session.main):
                session.work(21)
        ready.append(max(session.device.free_ns, session.main.now_ns) + session.jitter(4))
    return ready[0], ready[1]


def _collectives(sessions: dict[int, Session], ready: dict[int, tuple[int, int]]) -> int:
    """Run both all-reduces; each ends at one moment everywhere, a transfer after the last arrival."""
    done_ns = 0
    for bucket, transfer_ns in enumerate(_TRANSFER_NS):
        arrivals = {rank: max(times[bucket], done_ns) for rank, times in ready.items()}
        done_ns = max(arrivals.values()) + transfer_ns
        for rank, session in sessions.items():
            session.device.collective(arrivals[rank], done_ns, "hcclAllReduce")
            session.schedule.launches.append((ready[rank][bucket], done_ns))
    return done_ns


def _after_collectives(session: Session, done_ns: int) -> None:
    """Update the parameters once the gradients are reduced, then wait for the device."""
    with session.annotation("Optimizer.step#SGD.step"):
        workload.update_lazy(session, 24)
        session.device.free_ns = max(session.device.free_ns, done_ns)
        bridge.mark_step(session, _OPTIMIZER_RECIPE, workload.OPTIMIZER)
    with session.synapse_host("hcclSynchronize", session.main):
        session.main.now_ns = max(session.main.now_ns, session.device.free_ns) + session.jitter(12)
    session.work(10)
