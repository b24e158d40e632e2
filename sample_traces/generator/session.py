"""Simulate one profiled process: its threads, their annotations and operators, and the HPU bridge below.

How each row is spelled stands in ``kineto.py`` and ``gaudi.py``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from . import gaudi, kineto
from .device import Device
from .gaudi import DEVICE_MEMORY_BYTES, SYNAPSE_TID_BASE, Generation
from .rows import KINETO_PERIOD_S, Args, Row
from .schedule import Schedule

Shapes = tuple[tuple[int, ...], ...]

@dataclass(slots=True)
class Thread:
    """A thread of the profiled process and its clock."""

    tid: int
    now_ns: int
    synapse_tid: int
    name: str = "python"


@dataclass(slots=True)
class Step:
    """An open profiler annotation: its name and where it began."""

    name: str
    start_ns: int


@dataclass
class Session:
    """One rank being profiled; the builder of its trace."""

    generation: Generation
    seed: int
    pid: int
    base_periods: int
    start_ns: int
    synapse_pid: int
    profiled_us: float = 0.0  # what a row costs the thread that it is of
    queue_us: float = 700.0  # how much unfinished work the card's queue takes before a launch blocks
    rng: random.Random = field(init=False)
    schedule: Schedule = field(default_factory=Schedule)
    rows: list[Row] = field(default_factory=list)
    bridge_rows: list[Row] = field(default_factory=list)
    synapse_logger_rows: list[Row] = field(default_factory=list)
    synapse_rows: list[Row] = field(default_factory=list)
    memory_rows: list[Row] = field(default_factory=list)
    done: list[int] = field(default_factory=list)  # when host and device were through with each step

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.device = Device(self.schedule, self.rng, kineto=self.generation == 3)
        self.main = self._thread(0)
        self.autograd = self._thread(411)
        self.launch = self._thread(77)
        self.wait = self._thread(78)
        self._next_index = 0
        self._next_sequence = 0
        self._next_flow = 1
        self._next_frame = 0
        self._frames: dict[int, list[int]] = {}
        self._allocated = 1_340_211_200
        self._profiler_step: Step | None = None

    @property
    def base_ns(self) -> int:
        """Return Kineto's base time."""
        return self.base_periods * KINETO_PERIOD_S * 1_000_000_000

    @property
    def threads(self) -> tuple[Thread, ...]:
        """Return the process's threads: main, autograd, launch, wait."""
        return (self.main, self.autograd, self.launch, self.wait)

    def jitter(self, us: float) -> int:
        """Return about ``us`` microseconds in nanoseconds, ±8 %."""
        return round(us * 1000 * (0.92 + 0.16 * self.rng.random()))

    def work(self, us: float, thread: Thread | None = None) -> None:
        """Let a thread compute for about ``us`` microseconds."""
        target = thread or self.main
        target.now_ns += self.jitter(us)

    @contextmanager
    def annotation(self, name: str, *, finished: bool = True) -> Iterator[None]:
        """Write a ``user_annotation`` on the main thread around the block."""
        args: dict[str, object] = self._indexed({})
        if not finished:
            args["finished"] = False
        with self._slice(self.main, name, "user_annotation", args):
            self.work(2)
            yield
            self.work(1.5)

    @contextmanager
    def op(
        self,
        name: str,
        shapes: Shapes = (),
        *,
        thread: Thread | None = None,
        sequence: int | None = None,
        backward: bool = False,
        dtype: str = "c10::BFloat16",
    ) -> Iterator[None]:
        """Write a ``cpu_op`` around the block, with shapes and, if autograd knows it, its sequence number."""
        args: dict[str, object] = {}
        if sequence is not None:
            args |= {"Sequence number": sequence, "Fwd thread id": int(backward)}
        if shapes:
            args |= {
                "Concrete Inputs": ["" for _ in shapes],
                "Input type": [dtype for _ in shapes],
                "Input Dims": [list(shape) for shape in shapes],
            }
        with self._slice(thread or self.main, name, "cpu_op", self._indexed(args)):
            yield

    @contextmanager
    def python(self, name: str, thread: Thread | None = None) -> Iterator[None]:
        """Write a ``python_function`` row around the block, as ``with_stack=True`` does, with its caller."""
        where = thread or self.main
        frames = self._frames.setdefault(where.tid, [])
        self._next_frame += 1
        args = {"Python parent id": frames[-1] if frames else None, "Python id": self._next_frame}
        frames.append(self._next_frame)
        with self._slice(where, name, "python_function", args):
            yield
        frames.pop()

    @contextmanager
    def bridge(self, name: str, thread: Thread | None = None) -> Iterator[None]:
        """Write a function of the PyTorch bridge around the block."""
        where = thread or self.main
        start = where.now_ns
        where.now_ns += round(self.profiled_us * 1000)
        if self.generation == 3:
            yield
            self.rows.append(gaudi.bridge_row(name, self.pid, where.tid, start, where.now_ns))
            return
        self.bridge_rows.append(gaudi.bridge_half("B", name, self.pid, where.tid, start))
        yield
        self.bridge_rows.append(gaudi.bridge_half("E", name, self.pid, where.tid, where.now_ns))

    @contextmanager
    def synapse_call(self, name: str, args: Args, thread: Thread) -> Iterator[None]:
        """Write a Synapse API call as the Synapse Logger sees it; that logger is in generation 1 only."""
        if self.generation != 1:
            yield
            return
        rows, pid, tid = self.synapse_logger_rows, self.pid, thread.tid
        rows.append(gaudi.logger_half("B", name, pid, tid, thread.now_ns, args))
        yield
        rows.append(gaudi.logger_half("E", name, pid, tid, thread.now_ns, gaudi.CALL_ENDED))

    @contextmanager
    def synapse_host(self, name: str, thread: Thread, recipe: int = 0) -> Iterator[None]:
        """Write a row of Synapse's own host profiler, in a process that has no name; ``recipe``: that it enqueues."""
        start = thread.now_ns
        thread.now_ns += round(self.profiled_us * 1000)
        yield
        kineto_plugin, tid = self.generation == 3, thread.synapse_tid
        row = gaudi.synapse_row(
            name, self.synapse_pid, tid, start, thread.now_ns, kineto=kineto_plugin, recipe=recipe
        )
        self.synapse_rows.append(row)

    def sequence(self) -> int:
        """Return the next autograd sequence number."""
        self._next_sequence += 1
        return self._next_sequence

    def flow(self, start_ns: int, end_ns: int) -> None:
        """Write the ``fwdbwd`` arrow from an operator to its backward node."""
        flow_id, self._next_flow = self._next_flow, self._next_flow + 1
        main, autograd = self.main.tid, self.autograd.tid
        self.rows.append(kineto.flow("fwdbwd", "s", flow_id, self.pid, main, start_ns))
        self.rows.append(kineto.flow("fwdbwd", "f", flow_id, self.pid, autograd, end_ns))

    def memory(self, size_bytes: int) -> None:
        """Write a ``[memory]`` instant (``profile_memory=True``): an allocation, or a release if negative."""
        self._allocated += size_bytes
        args = {
            "Addr": 0x1001600000000000 + self._allocated,
            "Bytes": size_bytes,
            "Device Id": 0,
            "Device Type": 1,
            "Profiler Event Index": len(self.memory_rows),
            "Total Allocated": self._allocated,
            "Total Reserved": DEVICE_MEMORY_BYTES,
        }
        pid = self.pid + gaudi.MEMORY_LOGS_OFFSET
        row = Row(
            "i",
            "[memory]",
            pid,
            self.main.tid,
            self.main.now_ns,
            cat="cpu_instant_event",
            args=args,
            scope="t",
        )
        self.memory_rows.append(row)

    def dangle(self, ph: str, name: str, thread: Thread, ts_ns: int) -> None:
        """Write one half of a bridge row whose other half lies outside the window."""
        self.bridge_rows.append(gaudi.bridge_half(ph, name, self.pid, thread.tid, ts_ns))

    def profiler_step(self, number: int | None) -> tuple[int, int] | None:
        """End the open ``ProfilerStep#`` row, begin another if numbered; return the ended one's extent."""
        ended = None
        if self._profiler_step is not None:
            start, end = self._profiler_step.start_ns, self.main.now_ns
            args = self._indexed({})
            self.rows.append(
                Row(
                    "X",
                    self._profiler_step.name,
                    self.pid,
                    self.main.tid,
                    start,
                    end - start,
                    "user_annotation",
                    args,
                )
            )
            ended = (start, end)
            self.work(25)
        self._profiler_step = None if number is None else Step(f"ProfilerStep#{number}", self.main.now_ns)
        return ended

    def _thread(self, offset: int) -> Thread:
        known = 2 + (0, 411, 77, 78).index(offset)
        name = "python" if offset in (0, 411) else "AccThreadPool"
        return Thread(self.pid + offset, self.start_ns, SYNAPSE_TID_BASE + known, name)

    def _indexed(self, args: dict[str, object]) -> dict[str, object]:
        """Add Kineto's running numbers, in the order in which operators begin."""
        self._next_index += 1
        return kineto.numbered(self._next_index, self._next_index - 1, args)

    @contextmanager
    def _slice(self, thread: Thread, name: str, cat: str, args: Args) -> Iterator[None]:
        start = thread.now_ns
        thread.now_ns += round(self.profiled_us * 1000)
        yield
        self.rows.append(
            Row("X", name, self.pid, thread.tid, start, thread.now_ns - start, cat, args or None)
        )
