"""Jobs of several ranks with known truth: `python -m benchmarks.graph_mode.jobs --cases 60 --seed 0 -o DIR`.

Every rank has a host and a device of its own and works at its own speed in each phase of a step; a collective after each phase starts
when the last rank is ready. So ranks hold each other up in turn, and what a graph gives depends on who is late then. Eager steps, the
profiled ones and the captured ones are all played by the same rules, which share no code with `hpuprof.analysis`.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import deque
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median

from benchmarks.graph_mode.case import Case, Unprofiled, rounds, write_case
from sample_traces.generator import kineto
from sample_traces.generator.rows import Row, kineto_layout, write_text

WARM, BLOCKS, BLOCK_STEPS, RECORDED = 20, 7, 12, 8
LATENCY, GAP, WAKE = 5_000.0, 1_200.0, 4_000.0
QUEUE = 1000
BASE_NS = 1_760_000_000_000_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
OPTIMIZER = "optimizer"
PID = 100


@dataclass(frozen=True)
class Phase:
    """Launches of one rank between two collectives: host and device time of each [ns]; `name` as regions call it."""

    name: str
    launches: int
    host_ns: float
    kernel_ns: float
    collective_ns: float  # after it; 0: none


@dataclass(frozen=True)
class Job:
    """What a job is; nothing of it reaches a predictor but through traces."""

    ranks: list[list[Phase]]
    outside_ns: list[float]  # host time of each rank that launches nothing
    overlap: bool  # compute goes on while a collective runs, and only the optimizer waits
    sync: bool
    jitter: float
    kernel_jitter: float
    row_ns: float  # what the profiler costs per row
    replay_ns: float
    node_ns: float
    graph_gap_ns: float
    kernel_scale: float


@dataclass
class Played:
    """Rows of one rank: (name, category, start, end, correlation, stream or thread)."""

    rows: list[tuple[str, str, float, float, int, int]] = field(default_factory=list)
    steps: list[tuple[float, float]] = field(default_factory=list)
    done: list[float] = field(default_factory=list)  # when host and device were through with each step


@dataclass
class _Rank:
    now: float = 0.0
    compute: float = 0.0  # when the compute stream is free
    comm: float = 0.0
    told: bool = False  # the next launch comes behind a call that makes its stream wait for the other one
    pending: deque[float] = field(default_factory=deque)  # starts of launched rows
    correlation: int = 0
    played: Played = field(default_factory=Played)


def draw(seed: int) -> Job:
    """Draw a job: how many ranks, how their phases differ, what its machines cost."""
    rng = random.Random(seed)
    count, phases = rng.choice([2, 2, 3, 4, 8]), rng.randint(2, 6)
    host, kernel = rng.uniform(8e3, 40e3), math.exp(rng.uniform(math.log(3e3), math.log(60e3)))
    unlike = rng.choice([0.0, 0.3, 0.8])  # how much ranks differ in a phase
    transfer = rng.uniform(20e3, 300e3)
    ranks = []
    launches = [rng.randint(6, 30) for _ in range(phases)]
    for _ in range(count):
        mine = [
            Phase(
                "forward" if p == 0 else "backward",
                launches[p],
                host * rng.lognormvariate(0, unlike),
                kernel * rng.lognormvariate(0, 0.3 * unlike),
                0.0 if p == 0 else transfer,
            )
            for p in range(phases)
        ]
        mine.append(Phase(OPTIMIZER, rng.choice([3, 12]), host, kernel, 0.0))
        ranks.append(mine)
    return Job(
        ranks,
        [rng.uniform(20e3, 300e3) for _ in range(count)],
        overlap=rng.random() < 0.5,
        sync=rng.random() < 0.5,
        jitter=rng.uniform(0.02, 0.15),
        kernel_jitter=rng.uniform(0, 0.02),
        row_ns=rng.uniform(400, 1200),
        replay_ns=rng.uniform(8e3, 22e3),
        node_ns=rng.uniform(5, 60),
        graph_gap_ns=rng.uniform(500, 1500),
        kernel_scale=rng.uniform(0.92, 1.0),
    )


def play(
    job: Job, steps: int, captured: Collection[str], rng: random.Random, *, profiled: bool = False
) -> list[Played]:
    """Play steps of all ranks side by side. `captured`: names of phases that a graph replays."""
    ranks = [_Rank() for _ in job.ranks]
    for _ in range(steps):
        begin = [r.now for r in ranks]
        for rank, outside in zip(ranks, job.outside_ns, strict=True):
            rank.now += outside * rng.lognormvariate(0, job.jitter)
        for p in range(len(job.ranks[0])):
            ready = []
            for rank, phases in zip(ranks, job.ranks, strict=True):
                inside = phases[p].name in captured
                first = inside and (p == 0 or phases[p - 1].name not in captured)
                if phases[p].name == OPTIMIZER:
                    rank.compute, rank.told = max(rank.compute, rank.comm), True
                if first:
                    nodes = sum(q.launches + (q.collective_ns > 0) for q in phases if q.name in captured)
                    rank.now += job.replay_ns + nodes * job.node_ns
                for _ in range(phases[p].launches):
                    _launch(job, rank, phases[p], rng, inside=inside, profiled=profiled)
                if phases[p].collective_ns:
                    ready.append(_reach(job, rank, phases[p], rng, inside=inside, profiled=profiled))
            if ready:
                end = max(start for start, _ in ready) + job.ranks[0][p].collective_ns * rng.lognormvariate(0, 0.01)
                for rank, (start, correlation) in zip(ranks, ready, strict=True):
                    rank.played.rows.append((NCCL, "kernel", start, end, correlation, 20))
                    rank.comm = end
                    if not job.overlap:
                        rank.compute, rank.told = max(rank.compute, end), True
        for rank, start in zip(ranks, begin, strict=True):
            if job.sync:
                done = max(rank.compute, rank.comm)
                until = max(rank.now + 2_000, done + WAKE)
                rank.played.rows.append(("cudaStreamSynchronize", "cuda_runtime", rank.now, until, 0, 0))
                rank.now = until
            rank.played.steps.append((start, rank.now))
            rank.played.done.append(max(rank.now, rank.compute, rank.comm))
    return [r.played for r in ranks]


def _host(
    job: Job, rank: _Rank, phase: Phase, rng: random.Random, name: str, *, profiled: bool, phase_ends: bool = False
) -> float:
    """Let the host work on one operator; return when it launches. `phase_ends`: the row waits for the compute stream."""
    while len(rank.pending) > QUEUE:
        rank.now = max(rank.now, rank.pending.popleft())
    begin = rank.now
    rank.now += phase.host_ns * rng.lognormvariate(0, job.jitter) + (2 * job.row_ns if profiled else 0.0)
    rank.correlation += 1
    thread = 1 if phase.name == "backward" else 0
    called = rank.now - 3_000
    if rank.told or phase_ends:
        rank.played.rows.append(("cudaStreamWaitEvent", "cuda_runtime", called - 1_500, called - 500, 0, thread))
        rank.told = False
    rank.played.rows.append((name, "cpu_op", begin, rank.now, 0, thread))
    rank.played.rows.append(("cudaLaunchKernel", "cuda_runtime", called, rank.now - 500, rank.correlation, thread))
    return called


def _launch(job: Job, rank: _Rank, phase: Phase, rng: random.Random, *, inside: bool, profiled: bool) -> None:
    long = phase.kernel_ns * rng.lognormvariate(0, job.kernel_jitter)
    if inside:
        rank.compute = max(rank.now + LATENCY, rank.compute + job.graph_gap_ns) + long * job.kernel_scale
        return
    name = {"forward": "aten::addmm", "backward": "autograd::engine::evaluate_function: AddmmBackward0"}
    called = _host(job, rank, phase, rng, name.get(phase.name, "aten::_foreach_addcdiv_"), profiled=profiled)
    start = max(called + LATENCY, rank.compute + GAP)
    rank.compute = start + long
    rank.pending.append(start)
    rank.played.rows.append(("gemm", "kernel", start, rank.compute, rank.correlation, 7))


def _reach(
    job: Job, rank: _Rank, phase: Phase, rng: random.Random, *, inside: bool, profiled: bool
) -> tuple[float, int]:
    """Bring a rank to its collective; return when it is ready, and its launch."""
    if inside:
        return max(rank.now + LATENCY, rank.comm + job.graph_gap_ns, rank.compute + job.graph_gap_ns), 0
    called = _host(job, rank, phase, rng, "c10d::allreduce_", profiled=profiled, phase_ends=True)
    start = max(called + LATENCY, rank.comm + GAP, rank.compute + GAP)
    rank.pending.append(start)
    return start, rank.correlation


def step_ns(job: Job, captured: Collection[str], seed: str) -> list[float]:
    """Return the step time of several blocks, the slowest rank's, from the end of one step to the end of a later one."""
    rng = random.Random(seed)
    found = []
    for _ in range(BLOCKS):
        played = play(job, WARM + BLOCK_STEPS, captured, rng)
        found.append(max((p.done[-1] - p.done[WARM - 1]) / BLOCK_STEPS for p in played))
    return found


def make_case(seed: int, folder: Path) -> Case:
    """Write the traces of a job and its case."""
    job = draw(seed)
    name = f"job-{seed}"
    truth = {
        "eager": step_ns(job, (), f"{seed} eager"),
        "step": step_ns(job, ("forward", "backward", OPTIMIZER), f"{seed} step"),
        "forward+backward": step_ns(job, ("forward", "backward"), f"{seed} both"),
        "optimizer": step_ns(job, (OPTIMIZER,), f"{seed} optimizer"),
    }
    eager = {"step_ns": int(median(truth["eager"])), "spread_ns": int(max(truth["eager"]) - min(truth["eager"]))}
    played = play(job, WARM + RECORDED, (), random.Random(f"{seed} profiled"), profiled=True)
    for rank, rows in enumerate(played):
        _write(rows, rank, len(played), eager, folder / name)
    modes = {mode: rounds(times) for mode, times in truth.items()}
    case = Case(
        name, "jobs", "cuda", name, modes, Unprofiled(**eager), max(r.spread for r in modes.values()),
        "step" if job.sync else "none", f"{len(played)} ranks", {"overlap": job.overlap, **asdict(job)},
    )  # fmt: skip
    write_case(case, folder)
    return case


def _write(played: Played, rank: int, world: int, eager: dict[str, int], folder: Path) -> None:
    """Write the recorded steps of one rank as Kineto does."""
    steps = played.steps[WARM:]
    low, high = steps[0][0], steps[-1][1]
    rows = [_slice(f"ProfilerStep#{i}", "user_annotation", *step) for i, step in enumerate(steps)]
    optimizer: dict[int, list[float]] = {}
    for name, category, begin, end, correlation, where in played.rows:
        if begin < low or begin >= (high if category != "kernel" else math.inf):
            continue
        if category == "kernel":
            args: dict[str, object] = {"correlation": correlation}
            if name == NCCL:
                args |= kineto.collective("allreduce", (1 << 20, 1 << 20), "Float", world)
            rows.append(kineto.device(name, where, *_stamps(begin, end), args))
        elif category == "cuda_runtime":
            linked = correlation or None  # 0: launches nothing
            rows.append(kineto.runtime(name, (PID, PID + where), *_stamps(begin, end), correlation=linked))
        else:
            rows.append(_slice(name, category, begin, end, PID + where))
            if name == "aten::_foreach_addcdiv_":
                at = next(i for i, (a, b) in enumerate(steps) if a <= begin < b)
                optimizer.setdefault(at, []).extend((begin, end))
    rows += [_slice("Optimizer.step#AdamW.step", "user_annotation", min(at), max(at)) for at in optimizer.values()]
    header = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "simulated CUDA device", "totalGlobalMem": 80 << 30}],
        "distributedInfo": kineto.distributed("nccl", rank, world),
        "baseTimeNanoseconds": BASE_NS,
        "hpuprof": {"rank": rank, "world_size": world, "host": "job", "device": "cuda", "unprofiled": eager},
    }
    path = folder / f"job_{rank}.{BASE_NS + rank}.pt.trace.json.gz"
    write_text(path, kineto_layout(header, path.name).text(rows))


def _stamps(begin: float, end: float) -> tuple[int, int]:
    """Return start and duration on the trace's clock, which is a second ahead."""
    return 1_000_000_000 + round(begin), round(end) - round(begin)


def _slice(name: str, category: str, begin: float, end: float, tid: int = PID) -> Row:
    return Row("X", name, PID, tid, *_stamps(begin, end), category)


def main() -> None:
    """Write the cases of seeds S to S + N - 1."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.graph_mode.jobs", description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20, help="how many cases to write")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first case; 0 to 99 are for tuning")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    for seed in range(args.seed, args.seed + args.cases):
        case = make_case(seed, args.out)
        eager = case.step_time["eager"].median
        gains = "  ".join(f"{m} {eager / r.median:.2f}x" for m, r in case.step_time.items() if m != "eager")
        print(f"{case.name:9} {case.model:8} {eager / 1e6:8.3f} ms  noise {case.noise:.3f}  {gains}", flush=True)


if __name__ == "__main__":
    main()
