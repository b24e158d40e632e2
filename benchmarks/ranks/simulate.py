"""Simulates data-parallel training on many ranks in true time. Knows nothing of traces or of how they are analysed.

Each rank has a host thread that fetches a batch and launches kernels, a compute stream and a communication stream. A
collective starts on a rank when its inputs are computed and the stream is free, and ends once all ranks have come and the
transfer is done. At the end of a step the host waits for the device.

Styles: `ddp` (gradients all-reduced in buckets behind the backward pass) and `fsdp` (parameters gathered before each layer,
forward and backward; gradients reduce-scattered). Stragglers: see `KINDS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

KINDS = ("none", "compute", "input", "host", "rotating", "gc")
US, MS = 1_000, 1_000_000


@dataclass(frozen=True)
class Scenario:
    """What to simulate. Times in ns."""

    ranks: int = 8
    per_host: int = 4
    steps: int = 12
    layers: int = 6
    style: str = "ddp"
    kind: str = "none"
    seed: int = 0
    severity: float = 0.25  # of the step's compute
    jitter: float = 0.01  # relative spread of each layer's compute
    layer_ns: int = 3 * MS
    transfer_ns: int = 400 * US
    end_jitter_ns: int = 8 * US
    input_ns: int = 1 * MS
    offset_ns: int = 50 * MS
    drift_ppm: float = 50.0
    lost: float = 0.002  # share of rows that are lost
    numbered: bool = False  # whether collectives carry sequence numbers

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return -(-self.ranks // self.per_host)


@dataclass
class Ran:
    """One slice in true time. `comm`: number, operation and bytes of a collective."""

    thread: str  # host, compute, comm
    name: str
    start: float
    end: float
    launch: int = -1
    comm: tuple[int, str, int] | None = None


@dataclass
class Truth:
    """What was injected and what came of it. `walls`: true step lengths, shape (steps,)."""

    scenario: Scenario
    straggler: int | None
    offsets: np.ndarray
    drifts: np.ndarray
    middle: float
    walls: np.ndarray
    rows: list[list[Ran]] = field(default_factory=list)


@dataclass(frozen=True)
class Draws:
    """Every random number of a run, so that it can be run again with the straggler cured."""

    compute: np.ndarray  # (steps, ranks, segments)
    ends: np.ndarray  # (steps, segments * 2, ranks)
    input: np.ndarray  # (steps, ranks)
    slow: np.ndarray  # (steps, ranks): share of the step's compute
    straggler: int | None


def draw(s: Scenario) -> Draws:
    """Draw a run's random numbers."""
    rng = np.random.default_rng(s.seed)
    segments = 2 * s.layers + 1
    compute = np.exp(rng.normal(0, s.jitter, (s.steps, s.ranks, segments)))
    ends = rng.gamma(2.0, s.end_jitter_ns / 2, (s.steps, 4 * s.layers, s.ranks))
    fetch = s.input_ns * np.exp(rng.normal(0, 0.05, (s.steps, s.ranks)))
    slow = np.zeros((s.steps, s.ranks))
    straggler = None
    if s.kind in ("compute", "input", "host"):
        straggler = int(rng.integers(s.ranks))
        slow[:, straggler] = s.severity * rng.uniform(0.9, 1.1, s.steps)
    elif s.kind in ("rotating", "gc"):
        turn = rng.permutation(s.ranks)[: max(3, min(s.ranks, s.steps))]
        for step in range(s.steps):
            if s.kind == "rotating" or rng.random() < 0.8:
                slow[step, turn[step % len(turn)]] = s.severity * rng.uniform(0.7, 1.3)
    return Draws(compute, ends, fetch, slow, straggler)


def cure(draws: Draws, *, all_alike: bool = False) -> Draws:
    """Return the same run without stragglers; `all_alike`: without any difference between ranks either."""
    plain = replace(draws, slow=np.zeros_like(draws.slow))
    if not all_alike:
        return plain
    middle = np.median(draws.compute, axis=1, keepdims=True) + np.zeros_like(draws.compute)
    fetch = np.median(draws.input, axis=1, keepdims=True) + np.zeros_like(draws.input)
    return replace(plain, compute=middle, input=fetch)


class Machine:
    """Hosts and devices of all ranks, advanced together; times are arrays of shape (ranks,)."""

    def __init__(self, s: Scenario, *, keep: bool) -> None:
        self.s, self.keep = s, keep
        self.host = np.zeros(s.ranks)
        self.compute = np.zeros(s.ranks)
        self.comm = np.zeros(s.ranks)
        self.rows: list[list[Ran]] = [[] for _ in range(s.ranks)]
        self.launches = 0
        self.collectives = 0

    def add(self, thread: str, name: str, start: np.ndarray, end: np.ndarray, **kwargs: object) -> None:
        """Record a slice of every rank; slices of no length are left out."""
        if self.keep:
            for rows, b, e in zip(self.rows, start.tolist(), end.tolist(), strict=True):
                if e > b:
                    rows.append(Ran(thread, name, b, e, **kwargs))  # type: ignore[arg-type]

    def on_host(self, name: str | None, length: np.ndarray) -> None:
        """Let the host do something, or nothing that a trace would show."""
        if name:
            self.add("host", name, self.host, self.host + length)
        self.host = self.host + length

    def launch(self) -> int:
        """Let the host launch something on the device."""
        self.launches += 1
        ops = np.full(self.s.ranks, 12.0 * US)
        self.add("host", "aten::linear", self.host, self.host + ops)
        calls = self.host + 4 * US
        self.add("host", "cudaLaunchKernel", calls, calls + 6 * US, launch=self.launches)
        self.host = self.host + ops + 3 * US
        return self.launches

    def kernel(self, name: str, length: np.ndarray, after: np.ndarray | None = None) -> np.ndarray:
        """Run a kernel on the compute stream; return when it ends."""
        launch = self.launch()
        begin = np.maximum(self.compute, self.host + 2 * US)
        if after is not None:
            begin = np.maximum(begin, after + 2 * US)
        self.compute = begin + length
        self.add("compute", name, begin, self.compute, launch=launch)
        return self.compute

    def collective(self, op: str, size: int, ready: np.ndarray, length: float, jitter: np.ndarray) -> np.ndarray:
        """Run a collective on the communication stream; return when it ends on each rank."""
        launch = self.launch()
        self.collectives += 1
        begin = np.maximum(np.maximum(self.comm, ready + 3 * US), self.host + 2 * US)
        self.comm = begin.max() + length + jitter
        self.add("comm", f"ncclDevKernel_{op}", begin, self.comm, launch=launch, comm=(self.collectives, op, size))
        return self.comm


def simulate(s: Scenario, draws: Draws, *, keep: bool = True) -> tuple[np.ndarray, list[list[Ran]]]:
    """Run; return the step lengths, shape (steps,), the mean over ranks, and each rank's rows."""
    m = Machine(s, keep=keep)
    size = 16 << 20
    # The shape of the work: layers of different weight, buckets of different size.
    weight = 1 + 0.3 * np.sin(np.arange(2 * s.layers + 1))
    total = s.layer_ns * weight.sum()
    walls = []
    for step in range(s.steps):
        begin = m.host.copy()
        slow = draws.slow[step] * total
        m.on_host(
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            draws.input[step] + (slow if s.kind == "input" else 0),
        )
        stall = slow if s.kind in ("host", "gc") else np.zeros(s.ranks)
        m.on_host("<built-in function collect>" if s.kind == "gc" else None, stall)
        stretch = 1 + (draws.slow[step] if s.kind in ("compute", "rotating") else 0)
        ends = draws.ends[step]
        used = 0
        done = m.compute
        for layer in range(s.layers):
            after = None
            if s.style == "fsdp":
                after = m.collective("AllGather", size >> (layer % 3), m.compute * 0, s.transfer_ns * 0.8, ends[used])
                used += 1
            m.kernel(
                f"gemm_forward_{layer}", s.layer_ns * weight[layer] * draws.compute[step, :, layer] * stretch, after
            )
        for layer in reversed(range(s.layers)):
            after = None
            if s.style == "fsdp":
                after = m.collective("AllGather", size >> (layer % 3), m.compute * 0, s.transfer_ns * 0.8, ends[used])
                used += 1
            at = s.layers + layer
            ready = m.kernel(
                f"gemm_backward_{layer}", s.layer_ns * weight[at] * draws.compute[step, :, at] * stretch, after
            )
            op = "AllReduce" if s.style == "ddp" else "ReduceScatter"
            done = m.collective(op, size >> (layer % 3), ready, s.transfer_ns * (0.6 + 0.4 * (layer % 3)), ends[used])
            used += 1
        m.kernel("adamw", 0.2 * s.layer_ns * draws.compute[step, :, -1] * stretch, done)
        wait = np.maximum(m.compute - m.host, 5 * US)
        m.on_host("cudaStreamSynchronize", wait)
        m.on_host("aten::item", np.full(s.ranks, 20.0 * US))
        m.add("step", f"ProfilerStep#{step + 3}", begin, m.host)
        walls.append(float(np.mean(m.host - begin)))
        if step == s.steps - 1:
            break
    return np.array(walls), m.rows


def truth(s: Scenario) -> tuple[Truth, Draws]:
    """Simulate a scenario and draw its clocks."""
    draws = draw(s)
    walls, rows = simulate(s, draws)
    rng = np.random.default_rng(s.seed + 1_000_003)
    offsets = rng.uniform(-s.offset_ns, s.offset_ns, s.hosts)
    drifts = rng.uniform(-s.drift_ppm, s.drift_ppm, s.hosts) * 1e-6
    middle = float(walls.sum() / 2)
    return Truth(s, draws.straggler, offsets, drifts, middle, walls, rows), draws
