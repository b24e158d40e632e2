"""What a lazy step consists of, and the machine that it runs on."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class LazyMachine:
    """Constants of one Gaudi host and card, in nanoseconds unless named otherwise."""

    sync_ns: int = 25_000  # a flush, before it collects
    collect_op_ns: int = 1_500  # for each accumulated operator
    hand_over_ns: int = 9_000  # to the launch thread
    launch_ns: int = 60_000  # a launch on the launch thread, synLaunch included
    syn_launch_ns: int = 25_000
    latency_ns: int = 18_000
    recipe_gap_ns: int = 3_000
    queue_limit: int = 8  # recipes on the card before a launch blocks
    replay_ns: int = 150_000  # one captured recipe
    hash_ns: int = 25_000  # ModuleCacher's key of a call
    copy_op_ns: int = 12_000  # host: one copy into a static input, accumulated
    copy_work_ns: int = 4_000
    upload_call_ns: int = 30_000
    upload_work_ns: int = 20_000
    wake_ns: int = 30_000
    event_ns: int = 3_000  # recording an event after a launch
    copy_latency_ns: int = 12_000
    to_autograd_ns: int = 20_000
    from_autograd_ns: int = 18_000
    host_sigma: float = 0.0
    step_sigma: float = 0.0
    run_sigma: float = 0.0
    kernel_sigma: float = 0.0
    cost_sigma: float = 0.0
    gc_pause_ns: int = 0
    op_cost_ns: int = 0
    row_cost_ns: int = 0  # a row of the bridge
    whole_microseconds: bool = False
    shuffled: bool = False

    def clean(self) -> LazyMachine:
        """Return the same machine without noise, profiler cost and defects of the trace."""
        sigmas = dict.fromkeys(("host_sigma", "step_sigma", "run_sigma", "kernel_sigma", "cost_sigma"), 0.0)
        return replace(self, **sigmas, op_cost_ns=0, row_cost_ns=0, whole_microseconds=False, shuffled=False)

    def hidden(self) -> dict[str, Any]:
        """Return the constants as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class LazyOp:
    """An operator that accumulates: its host time, and the device work that it adds to the recipe (0 for none)."""

    name: str
    host_ns: int
    work_ns: int
    engine: str  # MME or TPC
    phase: str
    module: tuple[str, ...] = ()
    node: str = ""  # the autograd node, for backward operators
    sequence: int = 0


@dataclass(frozen=True)
class LazyStep:
    """A step: operators in order; `marks`: phases after which `mark_step` is called; `shapes`: factor on work, per input shape in turn."""

    ops: tuple[LazyOp, ...]
    marks: frozenset[str]
    read_every: int = 0  # loss.item() in each k-th step
    inputs: int = 1
    loader_ns: int = 100_000
    tail_ns: int = 20_000
    shapes: tuple[float, ...] = (1.0,)
    order: tuple[int, ...] = (0,)  # which shape each step has; repeated
    named: bool = True  # rows that name modules

    def shape(self, number: int) -> int:
        """Return the index of a step's input shape."""
        return self.order[number % len(self.order)]
