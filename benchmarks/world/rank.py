"""One rank of a run with many: what to simulate, its random numbers, and the writer of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sample_traces.generator import kineto

from .program import COMM, Builder

US, MS = 1_000, 1_000_000
_BYTES_PER_ELEMENT = 2
_SPOKEN = {"AllReduce": "allreduce", "AllGather": "_allgather_base", "ReduceScatter": "_reduce_scatter_base",
           "AllToAll": "all_to_allv"}  # fmt: skip


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
    kernels: int = 1  # per layer
    op_ns: int = 0  # host time of each kernel beyond the usual
    stall: float = 0.0  # probability that the host stalls, by the time of a layer, before a layer; on any rank
    wide: int = 0  # ranks of a tensor- or expert-parallel group; stages of a pipeline

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return math.ceil(self.ranks / self.per_host)


@dataclass(frozen=True)
class Draws:
    """Every random number of a run."""

    compute: np.ndarray  # (steps, ranks, segments)
    ends: np.ndarray  # (steps, segments * 2, ranks)
    input: np.ndarray  # (steps, ranks)
    slow: np.ndarray  # (steps, ranks): share of the step's compute
    stalls: np.ndarray  # (steps, ranks, segments) [ns]
    culprits: tuple[int, ...]  # the ranks that are slow in each step; of a link, those of its group
    link: float = 1.0  # by how much the transfers of the culprits' group take longer


class Rank(Builder):
    """Writes a rank's step: segments of compute, of given lengths, and collectives."""

    def __init__(
        self, s: Scenario, rank: int, work: np.ndarray, stalls: np.ndarray, late: Iterator[float], draws: Draws
    ) -> None:
        super().__init__()
        self.s, self.rank, self.work, self.stalls, self.late, self.draws = s, rank, work, stalls, late, draws

    def segment(self, at: int, name: str) -> None:
        """Launch the compute of a segment."""
        self.host(float(self.stalls[at]))
        for _ in range(self.s.kernels):
            self.kernel(name, self.work[at] / self.s.kernels)

    def kernel(self, name: str, work_ns: float, **fields: object) -> None:
        """Launch one kernel from an operator."""
        with self.row("aten::linear"):
            self.host(4 * US + self.s.op_ns)
            self.launch(name, 6 * US, work_ns, **fields)
            self.host(2 * US)
        self.host(3 * US)

    def collective(
        self, op: str, size: int, share: float, members: tuple[int, ...] = (), stream: int = COMM, **args: object
    ) -> None:
        """Launch a collective of `size` bytes: its kernel tells the operation, the group, and what goes in and comes out on a rank."""
        s, ranks = self.s, len(members) or self.s.ranks
        whole = size // _BYTES_PER_ELEMENT
        elements = (whole // ranks if op == "AllGather" else whole, whole // ranks if op == "ReduceScatter" else whole)
        told = kineto.collective(_SPOKEN.get(op, op), elements, "BFloat16", ranks)
        if members:
            told |= {
                "Process Group Ranks": f"[{', '.join(map(str, members))}]",
                "Process Group Description": "undefined",
            }
            told |= {"Process Group Name": f"{members[0]}_{members[-1]}_{ranks}"}
        work, late = s.transfer_ns * share, round(next(self.late, 0.0))
        if members and set(members) == set(self.draws.culprits):
            work *= self.draws.link
        kernel = "SendRecv" if op in ("send", "recv") else op
        self.kernel(
            f"ncclDevKernel_{kernel}", work, stream=stream, kind="comm", late_ns=late, members=members,
            args=told | args,
        )  # fmt: skip
