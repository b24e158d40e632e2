"""Times the steps of a loop and their phases for the log of steps: clocks and counters of the process, no profiler.

Phases exclude each other: a phase inside another one interrupts it, as an optimizer's closure does that runs forward
and backward. It never raises into a training run: the first error ends the log with one warning.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hpuprof.recorder.accelerator import Device, find_device, resident_bytes
from hpuprof.recorder.metadata import Who, environment, host, run_mode, versions
from hpuprof.recorder.step_log import StepLog, step_log_name
from hpuprof.recorder.timed_events import DeviceClock
from hpuprof.recorder.warn import tell
from hpuprof.step_log_format import FIELDS, FIRST, PROFILED, UNKNOWN

REST, INPUT, FORWARD, BACKWARD, OPTIMIZER, OTHER = range(6)
_HELD = 64
"""Batches of a loop without an optimizer step after which each batch is taken for a step."""
_SAMPLE_NS = 250_000_000
"""How often memory is sampled; the device's statistics take longer to collect than a short step."""
_NAMES = [name for name, _ in FIELDS[1:]]
_SUMS = [i for i, name in enumerate(_NAMES) if name in ("switches", "faults", "batches") or name[-3:] == "_ns"]


class Mark(NamedTuple):
    """How long each phase of a step has taken at a moment."""

    at_ns: int
    spent: tuple[int, ...]


class StepClock:
    """The log of one loop. `batches`: in one optimizer update; None: a step ends with the batch that an update ends."""

    def __init__(
        self, dirpath: str, who: Who, *, batches: int | None = None, trace_batches: int = 1, derives: bool = True
    ) -> None:
        """Begin. `trace_batches`: in a step of the traces; `derives`: what follows a fetch is the forward pass."""
        self.path: Path | None = None
        self.off = "://" in dirpath.removeprefix("file://")
        self._dirpath, self._who = dirpath.removeprefix("file://"), who
        self._batches, self._trace_batches, self._derives = batches, trace_batches, derives
        self._thread = threading.get_ident()
        self._log: StepLog | None = None
        self._device: Device | None = None
        self._events: DeviceClock | None = None
        self._held: list[list[int]] | None = [] if batches is None else None
        self.updated = False  # an optimizer stepped since the step began
        self._updates = False  # it ever did
        self._seen = False  # a backward pass
        self._spent = [0] * 6
        self._stack: list[int] = []
        self._top = REST
        self._since = 0
        self._begun = 0  # by perf_counter_ns; 0: no step yet
        self._epoch = time.time_ns() - time.perf_counter_ns()
        self._in_step = 0
        self._number = 0
        self._flags = FIRST
        self._sampled = 0
        self._memory = (UNKNOWN, UNKNOWN)
        self._usage = (0, 0, 0)

    # ------------------------------------------------------------------------------------------------- calls of a loop

    def step(self, number: int | None = None) -> bool:
        """Begin a batch; where the batch before ended an update, its step ends. Return whether a step begins.

        `number`: of the step, if it begins here; default: one more than the last.
        """
        if self.off or threading.get_ident() != self._thread:
            return True
        try:
            return self._step(number)
        except Exception as error:  # noqa: BLE001  a recorder must not stop a training run
            self._fail(error)
            return True

    def profiled(self) -> None:
        """Note that a profiler runs in this step, or that a window is written."""
        self._flags |= PROFILED

    def enter(self, phase: int) -> None:
        """Begin a phase."""
        if self.off or threading.get_ident() != self._thread:
            return
        now = time.perf_counter_ns()
        self._spent[self._top] += now - self._since
        self._stack.append(self._top)
        self._since = now
        if self._top != OTHER:  # validation has fetches of its own
            self._top = phase

    def leave(self, phase: int) -> None:
        """End a phase; one that was not begun is ignored."""
        if self.off or self._top not in (phase, OTHER) or not self._stack or threading.get_ident() != self._thread:
            return
        now = time.perf_counter_ns()
        self._spent[self._top] += now - self._since
        self._since, self._top = now, self._stack.pop()
        if not self._derives or self._stack:
            return
        if phase == BACKWARD:
            self._seen, self._top = True, REST
        elif phase == INPUT:
            self._top = FORWARD

    def update(self) -> None:
        """Note that an optimizer stepped."""
        if threading.get_ident() == self._thread:
            self.updated = self._updates = True

    def mark(self) -> Mark:
        """Return where the time of this step stands."""
        now = time.perf_counter_ns()
        self._spent[self._top] += now - self._since
        self._since = now
        return Mark(now, tuple(self._spent))

    def aside(self, mark: Mark) -> None:
        """Count all time since a mark of this step as other than training, fetches included."""
        if self.off:
            return
        now = self._since = time.perf_counter_ns()
        self._spent = list(mark.spent)
        self._spent[OTHER] += now - mark.at_ns
        self._stack.clear()
        self._top = REST

    @property
    def evaluating(self) -> bool:
        """Whether a fetch is probably of a validation loop: no gradients, in a loop that trains."""
        if not self._seen:
            return False
        import torch

        return not torch.is_grad_enabled()

    def finish(self, *, failed: bool = False) -> None:
        """End the last step and the log. `failed`: an error ended the loop, and its last step is left out."""
        log = self._log
        if self.off or log is None:
            self.off = True
            return
        try:
            # A plain loop that calls `step()` at the end of its steps has begun one more, without an update.
            if not failed and (self.updated or not (self._derives or self._updates)):
                self._end(time.perf_counter_ns())
            self._flush()
            if self._events is not None:
                for sequence, device_ns in self._events.finished():
                    log.amend(sequence, device_ns)
            log.close(ended="failed" if failed else "whole", ended_ns=time.time_ns())
        except Exception as error:  # noqa: BLE001  a recorder must not stop a training run
            self._fail(error)
        self.off = True

    # ----------------------------------------------------------------------------------------------------------- inside

    def _step(self, number: int | None) -> bool:
        now = time.perf_counter_ns()
        self._stack.clear()
        if self._log is None:
            self._begin()
            now = time.perf_counter_ns()
        elif self._over():
            self._end(now)
        else:
            self._spent[self._top] += now - self._since
            self._since, self._top = now, FORWARD if self._derives else REST
            self._in_step += 1
            return False
        if number is None:
            number = (self._log.steps if self._log is not None else 0) + len(self._held or ())
        self._number = number
        self._in_step, self.updated = 1, False
        self._spent = [0] * 6
        self._since = self._begun = now
        self._top = FORWARD if self._derives else REST
        if self._log is not None and self._events is not None and self._held is None:
            self._events.mark(self._log.steps + 1)
        return True

    def _over(self) -> bool:
        """Whether the step is over where a batch begins."""
        known = self._batches is not None and self._in_step >= self._batches
        return self.updated or known or self._held is not None

    def _begin(self) -> None:
        self._device = find_device()
        self._events = DeviceClock(self._device)
        who, device = self._who, self._device
        began = time.time_ns()
        path = Path(self._dirpath) / step_log_name(host(), who.rank, began)
        self._log = StepLog(
            path,
            {
                **who.as_metadata(),
                "began_ns": began,
                "batches_per_step": self._batches,
                "batches_per_trace_step": self._trace_batches,
                "cpus": _cpus(),
                "threads": _threads(),
                "device": device.kind,
                "mode": run_mode(device.kind, compiled=who.compiled),
                "versions": versions(),
                "environment": {k: v for k, v in environment().items() if k.endswith("NUM_THREADS")},
            },
        )
        self.path = path
        self._usage = _usage()

    def _end(self, now: int) -> None:
        """End the step: write its record, or keep it until an optimizer shows how many batches a step has."""
        self._spent[self._top] += now - self._since
        self._since = now
        used = _usage()
        before, self._usage = self._usage, used
        if now - self._sampled > _SAMPLE_NS:
            self._sampled = now
            self._memory = (resident_bytes() or UNKNOWN, self._device_bytes())
        _, fetch, forward, backward, optimizer, other = self._spent
        record = [
            self._number,
            self._begun + self._epoch,
            now - self._begun,
            fetch,
            forward,
            backward,
            optimizer,
            other,
            used[0] - before[0],
            UNKNOWN,
            *self._memory,
            used[1] - before[1],
            used[2] - before[2],
            min(self._in_step, 0xFFFF),
            self._flags,
        ]
        self._flags = 0
        if self._held is None:
            self._write([record])
            return
        self._held.append(record)
        if self.updated:
            self._write([_merged(self._held)])
            self._held = None
        elif len(self._held) >= _HELD:
            self._flush()
            self._batches = 1

    def _flush(self) -> None:
        """Write the batches of a loop in which no optimizer stepped as a step each."""
        held, self._held = self._held or [], None
        self._write(held)

    def _write(self, records: Sequence[Sequence[int]]) -> None:
        log = self._log
        if log is None:
            return
        for record in records:
            log.write(record)
        if self._events is not None:
            for sequence, device_ns in self._events.finished():
                log.amend(sequence, device_ns)

    def _device_bytes(self) -> int:
        if self._device is None or self._device.kind == "cpu":
            return UNKNOWN
        return self._device.memory().get("allocated", UNKNOWN)

    def _fail(self, error: Exception) -> None:
        self.off = True
        tell(
            f"hpuprof stopped the log of steps; training and traces continue: {type(error).__name__}: {error}",
            RuntimeWarning,
        )


def _merged(records: Sequence[Sequence[int]]) -> list[int]:
    """Return the batches of one step as one record."""
    merged = list(records[-1])
    merged[0] = records[0][0]
    for column in _SUMS:
        merged[column] = sum(record[column] for record in records)
    merged[_NAMES.index("start_ns")] = records[0][1]
    merged[_NAMES.index("device_ns")] = UNKNOWN
    for record in records:
        merged[-1] |= record[-1]  # flags
    return merged


def _usage() -> tuple[int, int, int]:
    """Return CPU time of all threads [ns], involuntary context switches and major page faults of this process."""
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    return int((used.ru_utime + used.ru_stime) * 1e9), used.ru_nivcsw, used.ru_majflt


def _cpus() -> int | None:
    """Return how many CPUs this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count()


def _threads() -> int | None:
    import torch

    return int(torch.get_num_threads())
