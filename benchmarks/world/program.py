"""A training step as a list of instructions, as a host runs them: the program that every mode of a case executes.

Times are integer nanoseconds. A step is linear because the main thread waits while the autograd thread runs backward; `THREAD` says who
runs from there on. Only the launch thread of lazy mode runs beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, NamedTuple

COMPUTE, COPY, SIDE, COMM = 7, 13, 20, 24
MAIN, AUTOGRAD, LAUNCHER = "main", "autograd", "launcher"
NET, ENCODER = "Net_0", "Encoder_0"
PROFILER_STEP = "ProfilerStep#{}"


class Op(Enum):
    """What an instruction does."""

    BEGIN = auto()  # a profiler row opens: `name`, `cat`, `args`
    END = auto()  # the innermost row of the thread closes
    HOST = auto()  # the thread computes for `ns`
    LAUNCH = auto()  # the thread enqueues `work_ns` of device work on `stream`; the call itself takes `ns`
    GRAPH = (
        auto()
    )  # the thread enqueues many at once (`nodes`): a captured graph or, of kind `recipe`, what lazy mode collected
    RECORD = auto()  # an event is recorded on `stream`
    WAIT = auto()  # `stream` waits for the event
    SYNC = auto()  # the thread waits for `stream`, or for the device when `stream` is None, and takes `ns` then
    THREAD = auto()  # another thread goes on, after `ns` of hand-over
    TASK = auto()  # the launch thread is given `nodes` to run; it gets them `ns` later
    BATCH = auto()  # the thread takes, in `ns`, a batch of one of `workers`, which each fetch one in `work_ns`
    JOIN = auto()  # the thread waits until the launch thread has run all that it was given


class Instr(NamedTuple):
    """One instruction. `phase` and `module` tell which captured region it belongs to; `every`: runs in each k-th step only.

    `kind` of device work: compute, comm, h2d, d2h, d2d. `late_ns`: how much later than the others a rank leaves a collective. `cat`: of a
    row, or the engine of a recipe's node. `args`: of a row, or of what ran on the device. `call`: the runtime function, where its name
    does not follow from the kind. `members`: the ranks that meet in a collective, all if empty; (from, to) of a transfer. `back`: how many
    steps ago the event was recorded that is waited for; what no step recorded is not waited for. `marks`: what `wasteful` wrote it for.
    """

    op: Op
    name: str = ""
    ns: int = 0
    work_ns: int = 0
    stream: int | None = COMPUTE
    kind: str = "compute"
    event: str = ""
    cat: str = ""
    args: Mapping[str, Any] = {}
    nodes: tuple[Instr, ...] = ()
    thread: str = MAIN
    phase: str = ""
    module: tuple[str, ...] = ()
    every: int = 1
    late_ns: int = 0
    call: str = ""
    members: tuple[int, ...] = ()
    back: int = 0
    marks: tuple[str, ...] = ()
    workers: int = 0


@dataclass(frozen=True)
class Step:
    """The program of a step, and the number of input tensors that each module and the whole step take."""

    instrs: tuple[Instr, ...]
    step_inputs: int = 0
    module_inputs: dict[str, int] = field(default_factory=dict)

    def __call__(self, number: int) -> Iterator[Instr]:
        """Yield what runs in step `number`."""
        return (i for i in self.instrs if i.every == 1 or number % i.every == i.every - 1)


@dataclass(frozen=True)
class Mix:
    """A program whose steps are of several kinds, in an order that repeats.

    `labels`: what the rows around steps of a kind are called, `{size}` being different from step to step.
    """

    kinds: Mapping[str, Step]
    order: tuple[str, ...]
    labels: Mapping[str, str] = field(default_factory=dict)

    def kind(self, number: int) -> str:
        """Return the kind of step `number`."""
        return self.order[number % len(self.order)]

    def __call__(self, number: int) -> Iterator[Instr]:
        """Yield what runs in step `number`."""
        return self.kinds[self.kind(number)](number)

    def label(self, number: int) -> str:
        """Return what the row around step `number` is called."""
        name = self.labels.get(self.kind(number), PROFILER_STEP)
        return name.format(number, size=200 + number * 37 % 1000)


class Builder:
    """Write a step instruction by instruction. Blocks set the phase, the module and the thread of what is written in them."""

    def __init__(self) -> None:
        self.instrs: list[Instr] = []
        self._where: dict[str, Any] = {}
        self._event = 0

    def add(self, op: Op, **fields: Any) -> None:
        """Append an instruction in the current phase, module and thread."""
        self.instrs.append(Instr(op, **fields, **self._where))

    @contextmanager
    def where(self, **fields: Any) -> Iterator[None]:
        """Everything in the block has these fields: `phase`, `every`, `module`."""
        before, self._where = self._where, self._where | fields
        yield
        self._where = before

    @contextmanager
    def marked(self, *marks: str) -> Iterator[None]:
        """Everything in the block has these marks, too."""
        with self.where(marks=(*self._where.get("marks", ()), *marks)):
            yield

    @contextmanager
    def row(self, name: str, cat: str = "cpu_op", **args: Any) -> Iterator[None]:
        """A profiler row around the block."""
        self.add(Op.BEGIN, name=name, cat=cat, args=args)
        yield
        self.add(Op.END)

    @contextmanager
    def on_autograd(self, there_ns: int, back_ns: int) -> Iterator[None]:
        """The autograd thread runs the block, while the main thread waits."""
        with self.where(thread=AUTOGRAD):
            self.add(Op.THREAD, ns=there_ns, name=AUTOGRAD)
            yield
        self.add(Op.THREAD, ns=back_ns, name=MAIN)

    def host(self, ns: float) -> None:
        """Let the thread compute."""
        if ns > 0:
            self.add(Op.HOST, ns=round(ns))

    def launch(self, name: str, ns: int, work_ns: float, **fields: Any) -> None:
        """Enqueue device work."""
        self.add(Op.LAUNCH, name=name, ns=ns, work_ns=round(work_ns), **fields)

    def order(self, first: int, then: int, ns: int) -> None:
        """Let stream `then` wait for what stream `first` has been given so far: event record and event wait."""
        self._event += 1
        self.add(Op.RECORD, stream=first, event=f"e{self._event}", ns=ns)
        self.add(Op.WAIT, stream=then, event=f"e{self._event}", ns=ns)

    def sync(self, stream: int | None = COMPUTE, call: str = "", ns: int = 0) -> None:
        """Let the thread wait for a stream, or for the device when None; the call takes `ns` itself."""
        call = call or ("cudaDeviceSynchronize" if stream is None else "cudaStreamSynchronize")
        self.add(Op.SYNC, stream=stream, call=call, ns=ns)
