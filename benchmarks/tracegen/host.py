"""Plays the model on host threads and writes the host's rows. Device work is handed to a `Device`.

All times are integer nanoseconds. A row opens before its children run and is written once its end is
known, so rows stay in the order of their starts, as profilers write them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from sample_traces.generator import kineto
from sample_traces.generator.rows import Args, Row

from .model import Call, Node, Op

PID = 41_000
_BEFORE_NS, _AFTER_NS = 1700, 1200
"""What an operator or frame costs before its first child and after its last one."""

MAIN, AUTOGRAD = 1, 2
"""Kineto numbers the threads that run operators from 1; `Fwd thread id` speaks of these numbers."""

_OPEN = Row("X", "", 0, 0, 0)
"""Stands where a row will be, until its end is known."""


@dataclass(slots=True)
class Thread:
    """A host thread: its OS id, the number the recorder gave it, and its clock."""

    tid: int
    number: int
    now: int


class Jitter:
    """A repeatable source of durations around a typical value."""

    def __init__(self, seed: int, *, integer_us: bool) -> None:
        rng = random.Random(seed)
        # Long right tail: a host call now and then takes several times its usual time.
        self._factors = [
            0.75 + 0.5 * rng.random() + (4 * rng.random() if rng.random() < 0.01 else 0) for _ in range(4093)
        ]
        self._next = 0
        self._quantum = 1000 if integer_us else 1

    def take(self, typical_ns: float) -> int:
        """Return a duration of about `typical_ns`; in whole µs at least 1, so that rows nest strictly."""
        self._next = (self._next + 1) % 4093
        quantum = self._quantum
        return max(quantum, int(typical_ns * self._factors[self._next]) // quantum * quantum)


@dataclass(slots=True)
class Note:
    """An open `user_annotation`; `streams` has the first start and last end of its device work on each."""

    name: str
    streams: dict[int, list[int]] = field(default_factory=dict)


class Device(Protocol):
    """What executes the calls. It writes its own rows and moves the calling thread's clock."""

    def call(self, call: Call, thread: Thread, host: Host) -> None:
        """Run `call`."""
        ...

    def close_note(self, note: Note) -> None:
        """Write what the device shows of a finished annotation."""
        ...

    def mark_step(self, thread: Thread, host: Host) -> None:
        """Flush work that was only collected so far."""
        ...


class Host:
    """The recorder of one process. `rows` is emptied by its owner after each step."""

    def __init__(self, jitter: Jitter, device: Device, start: int, *, stacks: bool) -> None:
        self.jitter, self.device, self.stacks = jitter, device, stacks
        self.main = Thread(PID, MAIN, start)
        self.autograd = Thread(PID + 231, AUTOGRAD, start)
        self.rows: list[Row] = []
        self.notes: list[Note] = []
        self.external_id = 0
        self.op_name = ""
        self.kernel_pick = 0
        self._frames: list[int] = []
        self._python_id = 0
        self._sequence = 0
        self._tape: list[tuple[Op, int]] = []

    def run(self, node: Node, thread: Thread) -> None:
        """Run one node and everything below it."""
        if isinstance(node, Op):
            with self.frame(f"<built-in method {node.name.rpartition(':')[2]} of type object>", thread):
                self._run_op(node, thread)
        elif isinstance(node, Call):
            self.device.call(node, thread, self)
        else:
            with self.frame(node.name, thread):
                for child in node.body:
                    self.run(child, thread)

    def backward(self, between: int, node: Node) -> None:
        """Run the gradients of all ops since the last call, and `node` after every `between` of them."""
        self.autograd.now = self.main.now + self.jitter.take(9000)
        for done, (grad, sequence) in enumerate(reversed(self._tape), 1):
            self._run_op(grad, self.autograd, sequence)
            if done % between == 0:
                self.run(node, self.autograd)
        self._tape.clear()
        self.main.now = self.autograd.now + self.jitter.take(7000)

    @contextmanager
    def note(self, name: str, thread: Thread) -> Iterator[None]:
        """Write a `user_annotation` around the body."""
        start, slot = self._open(thread)
        self.external_id += 1
        args = kineto.numbered(self.external_id, self.external_id - 1)
        note = Note(name)
        self.notes.append(note)
        yield
        self.notes.remove(note)
        self._close(slot, "user_annotation", name, thread, start, args)
        self.device.close_note(note)

    @contextmanager
    def frame(self, name: str, thread: Thread) -> Iterator[None]:
        """Write a `python_function` row around the body, when stacks are recorded."""
        if not self.stacks:
            yield
            return
        start, slot = self._open(thread)
        self._python_id += 1
        args: dict[str, object] = {
            "Python parent id": self._frames[-1] if self._frames else None,
            "Python id": self._python_id,
        }
        if name.startswith("nn.Module"):
            args["Python module id"] = self._python_id % 97
        args["Ev Idx"] = self.external_id + self._python_id
        self._frames.append(self._python_id)
        yield
        self._frames.pop()
        self._close(slot, "python_function", name, thread, start, args)

    def flow(self, phase: str, sequence: int, thread: Thread, at: int) -> None:
        """Write one end of the arrow from a forward op to its backward op."""
        self.rows.append(kineto.flow("fwdbwd", phase, sequence, PID, thread.tid, at))

    def _open(self, thread: Thread) -> tuple[int, int]:
        start, slot = thread.now, len(self.rows)
        self.rows.append(_OPEN)
        thread.now += self.jitter.take(_BEFORE_NS)
        return start, slot

    def _close(self, slot: int, cat: str, name: str, thread: Thread, start: int, args: Args) -> None:
        self.rows[slot] = Row("X", name, PID, thread.tid, start, thread.now - start, cat, args)
        thread.now += self.jitter.take(_AFTER_NS)

    def _run_op(self, op: Op, thread: Thread, sequence: int | None = None) -> None:
        start, slot = self._open(thread)
        forward = 0
        if sequence is not None:
            forward = MAIN
            if op.name.startswith("autograd::engine"):
                self.flow("f", sequence, thread, start)
        elif op.grad is not None:
            self._sequence += 1
            sequence = self._sequence
            self._tape.append((op.grad, sequence))
            self.flow("s", sequence, thread, start)
        external, args = self._op_args(op, sequence, forward)
        for child in op.body:
            if isinstance(child, Op):
                inherits = forward == MAIN and child.name.endswith("Backward0")
                self._run_op(child, thread, sequence if inherits else None)
            else:
                self.external_id, current = external, self.external_id
                self.op_name = op.name
                self.device.call(child, thread, self)
                self.external_id = current
        self._close(slot, "cpu_op", op.name, thread, start, args)

    def _op_args(self, op: Op, sequence: int | None, forward: int) -> tuple[int, Args]:
        self.external_id += 1
        known = {} if sequence is None else {"Sequence number": sequence, "Fwd thread id": forward}
        return self.external_id, kineto.numbered(self.external_id, self.external_id - 1, known | op.args)


def thread_rows(host: Host, at: int) -> list[Row]:
    """Return the metadata that names the process and its threads."""
    rows = kineto.process(PID, at, "python", "CPU", PID)
    for thread, name in ((host.main, "python"), (host.autograd, "pt_autograd_0")):
        rows += kineto.track(PID, thread.tid, at, f"thread {thread.tid} ({name})", thread.tid)
    return rows
