"""A training step as a list of instructions, as the host would run them: the program that every mode of a case executes.

Times are integer nanoseconds. The step is linear because the main thread waits while the autograd thread runs backward; `THREAD`
says who runs from there on.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

COMPUTE, SIDE, COMM = 7, 20, 24
MAIN, AUTOGRAD = "main", "autograd"


class Op(Enum):
    """What an instruction does."""

    BEGIN = auto()  # a profiler row opens: `name`, `cat`, `args`
    END = auto()  # the innermost row of the thread closes
    HOST = auto()  # the thread computes for `ns`
    LAUNCH = auto()  # the thread enqueues `work_ns` of device work on `stream`; the call itself takes `ns`
    RECORD = auto()  # an event is recorded on `stream`
    WAIT = auto()  # `stream` waits for the event
    SYNC = auto()  # the thread waits for `stream`, or for the device when `stream` is None
    THREAD = auto()  # another thread goes on, after `ns` of hand-over
    GRAPH = auto()  # the thread replays a captured graph (`nodes`) on `stream`


@dataclass(frozen=True, slots=True)
class Instr:
    """One instruction. `phase` and `module` tell which captured region it belongs to; `every`: runs in each k-th step only."""

    op: Op
    name: str = ""
    ns: int = 0
    work_ns: int = 0
    stream: int | None = COMPUTE
    kind: str = "compute"  # of device work: compute, comm, h2d, d2h, d2d
    event: str = ""
    cat: str = ""
    args: dict[str, Any] = field(default_factory=dict)
    nodes: tuple[Instr, ...] = ()
    thread: str = MAIN
    phase: str = ""
    module: tuple[str, ...] = ()
    every: int = 1


@dataclass(frozen=True)
class Step:
    """The program of a step, the number of input tensors that each module and the whole step take, and the modules' names."""

    instrs: tuple[Instr, ...]
    step_inputs: int = 0
    module_inputs: dict[str, int] = field(default_factory=dict)
    modules: tuple[str, ...] = ()

    def launches(self) -> int:
        """Return how many launches a step makes; graphs count as one."""
        return sum(i.op in (Op.LAUNCH, Op.GRAPH) for i in self.instrs)


class Builder:
    """Write a step instruction by instruction. Blocks set the phase, the module and the thread of what is written in them."""

    def __init__(self) -> None:
        self.instrs: list[Instr] = []
        self._phase = ""
        self._module: tuple[str, ...] = ()
        self._thread = MAIN
        self._every = 1
        self._sequence = 0
        self._event = 0

    def add(self, op: Op, **fields: Any) -> None:
        """Append an instruction in the current phase, module and thread."""
        instr = Instr(op, **fields)
        self.instrs.append(
            replace(instr, phase=self._phase, module=self._module, thread=self._thread, every=self._every)
        )

    @contextmanager
    def phase(self, name: str, *, every: int = 1) -> Iterator[None]:
        """Everything in the block belongs to this phase and runs in each `every`-th step."""
        before = self._phase, self._every
        self._phase, self._every = name, every
        yield
        self._phase, self._every = before

    @contextmanager
    def inside(self, module: tuple[str, ...]) -> Iterator[None]:
        """Everything in the block belongs to this module path."""
        before, self._module = self._module, module
        yield
        self._module = before

    @contextmanager
    def row(self, name: str, cat: str, **args: Any) -> Iterator[None]:
        """A profiler row around the block."""
        self.add(Op.BEGIN, name=name, cat=cat, args=args)
        yield
        self.add(Op.END)

    def thread(self, name: str, hand_over_ns: int) -> None:
        """Let another thread go on."""
        self._thread = name
        self.add(Op.THREAD, ns=hand_over_ns, name=name)

    def host(self, ns: int) -> None:
        """Let the thread compute."""
        if ns > 0:
            self.add(Op.HOST, ns=ns)

    def launch(self, name: str, ns: int, work_ns: int, *, stream: int = COMPUTE, kind: str = "compute") -> None:
        """Enqueue device work."""
        self.add(Op.LAUNCH, name=name, ns=ns, work_ns=work_ns, stream=stream, kind=kind)

    def order(self, first: int, then: int, ns: int) -> None:
        """Let stream `then` wait for what stream `first` has been given so far: event record and event wait."""
        self._event += 1
        self.add(Op.RECORD, stream=first, event=f"e{self._event}", ns=ns)
        self.add(Op.WAIT, stream=then, event=f"e{self._event}", ns=ns)

    def add_sync(self, stream: int | None = COMPUTE) -> None:
        """Let the thread wait for a stream, or for the device when None."""
        self.add(
            Op.SYNC, name="cudaStreamSynchronize" if stream is not None else "cudaDeviceSynchronize", stream=stream
        )

    def sequence(self) -> int:
        """Return the next autograd sequence number of the step."""
        self._sequence += 1
        return self._sequence
