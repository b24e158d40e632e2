"""The machine of a case: its constants, which no predictor may read, and its noise."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace

SHORT_NS, MIDDLE_NS = 6_000, 20_000


@dataclass(frozen=True)
class Machine:
    """Constants of one machine, in nanoseconds unless named otherwise. `sigma`: of lognormal factors with median 1."""

    # device
    latency_ns: int = 6000  # from the launch call's start to the kernel's, on an empty stream
    gap_ns: int = 1200  # between queued kernels of a stream
    event_gap_ns: int = 1500  # from an event to the kernel that waited for it
    graph_gap_ns: int = 200  # between kernels of a lane inside a graph
    graph_short_factor: float = (
        0.92  # kernels inside graphs against eager ones: those under 6 µs, under 20 µs, and longer
    )
    graph_middle_factor: float = 0.95
    graph_long_factor: float = 1.0
    queue_limit: int = 1024  # commands of a stream before a launch blocks
    comm_slows_compute: float = 1.0  # factor on compute kernels while a collective runs, and the other way round
    compute_slows_comm: float = 1.0
    compute_slows_compute: float = 1.0  # two compute streams at once
    copy_slows_compute: float = 1.0  # while a copy between host and device runs
    # host
    graph_call_ns: int = 9000  # c0, the Python around it included
    graph_node_ns: float = 10.0  # c1
    copy_call_ns: int = 5000  # one copy into a static input
    copy_work_ns: int = 2500
    wake_ns: int = 2500  # a blocked thread goes on
    gc_every_ns: int = 0  # host work between garbage collections; 0: none
    gc_pause_ns: int = 4_000_000
    # noise
    host_sigma: float = 0.0
    step_sigma: float = 0.0
    run_sigma: float = 0.0
    kernel_sigma: float = 0.0
    # profiler: what it adds to a row of each category, and the factor on all of that
    op_cost_ns: int = 0
    python_cost_ns: int = 0
    runtime_cost_ns: int = 0
    cost_multiple: float = 1.0
    cost_sigma: float = 0.0
    # how the trace is written
    clock_offset_ns: int = 0
    lost_flows: float = 0.0
    whole_microseconds: bool = False
    shuffled: bool = False
    sync_rows: bool = True  # Kineto's `cuda_sync` rows, which name streams and events
    unresolved_events: bool = False  # they do not tell which event was waited for (CUDA 12.9 and later)
    unseen_lead: bool = False  # rows of work that was launched before the recording are missing

    def clean(self) -> Machine:
        """Return the same machine without noise, contention, profiler cost and defects of the trace."""
        plain = Machine()
        kept = ("latency", "gap", "graph_", "queue", "copy_", "wake")
        cleaned = {k: v for k, v in vars(plain).items() if not k.startswith(kept)}
        return replace(self, **cleaned | {"event_gap_ns": self.gap_ns})

    def cost_ns(self, cat: str) -> float:
        """Return what profiling a row of a category costs."""
        if cat in ("cpu_op", "user_annotation"):
            return self.op_cost_ns * self.cost_multiple
        return {"python_function": self.python_cost_ns, "syn": 0}.get(cat, self.runtime_cost_ns) * self.cost_multiple

    def graph_factor(self, work_ns: float) -> float:
        """Return the factor on the time of a kernel of this length inside a graph."""
        if work_ns < SHORT_NS:
            return self.graph_short_factor
        return self.graph_middle_factor if work_ns < MIDDLE_NS else self.graph_long_factor


class Noise:
    """Random factors of one run of one rank.

    `paired`: host and device draw apart, and anew in each step, so that two programs differ by no more luck than they must.
    """

    def __init__(self, machine: Machine, seed: str, *, paired: bool = False) -> None:
        self._machine = machine
        self._rng = self._device = random.Random(seed)
        self._seeds = random.Random(f"{seed} steps") if paired else None
        self._run = self._factor(machine.run_sigma)
        self._step = 1.0
        self._still = not (machine.run_sigma or machine.step_sigma or machine.host_sigma)

    def next_step(self) -> None:
        """Draw the factor that all host work of a step shares."""
        if self._seeds:
            self._rng, self._device = (random.Random(self._seeds.random()) for _ in range(2))
        self._step = self._factor(self._machine.step_sigma)

    def host(self, ns: int) -> int:
        """Return how long host work takes this time."""
        return ns if self._still else round(ns * self._run * self._step * self._factor(self._machine.host_sigma))

    def work(self, ns: float) -> int:
        """Return how long device work takes this time."""
        sigma = self._machine.kernel_sigma
        return round(ns * math.exp(self._device.gauss(0, sigma))) if sigma else round(ns)

    def cost(self, cat: str) -> int:
        """Return what the profiler adds for one row this time."""
        ns = self._machine.cost_ns(cat)
        return round(ns * self._factor(self._machine.cost_sigma)) if ns else 0

    def pause(self) -> int:
        """Return the length of a garbage collection."""
        return round(self._machine.gc_pause_ns * self._factor(0.4))

    def _factor(self, sigma: float) -> float:
        return math.exp(self._rng.gauss(0, sigma)) if sigma else 1.0
