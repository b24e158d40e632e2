"""The host: runs the instructions of each step against a device, with or without a profiler watching."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .device import Command, Device, Ran
from .machine import Machine, Noise
from .program import COMPUTE, MAIN, Instr, Op, Step

_CALL = {"compute": "cudaLaunchKernel", "comm": "cudaLaunchKernelExC"}


@dataclass(slots=True)
class HostRow:
    """A row of the trace on a host thread. `stream` and `event` say what a runtime call referred to."""

    name: str
    cat: str
    thread: str
    start_ns: int
    end_ns: int
    args: dict[str, Any]
    correlation: int = 0
    stream: int | None = None
    event: str = ""
    step: int = 0


@dataclass
class Run:
    """What a run of some steps took, and what a profiler saw of it."""

    step_starts_ns: list[int] = field(default_factory=list)
    end_ns: int = 0  # after the last step's host work
    drained_ns: int = 0  # after the device had finished as well
    rows: list[HostRow] = field(default_factory=list)
    device: list[Ran] = field(default_factory=list)
    busy_ns: int = 0
    blocked_ns: int = 0  # the host waited for the device
    gc_pauses: int = 0

    def step_ns(self) -> int:
        """Return the time per step of the block, the device drained at both ends."""
        return round((self.drained_ns - self.step_starts_ns[0]) / len(self.step_starts_ns))


def run(
    step: Step, machine: Machine, *, steps: int, seed: str, profile: bool = False, lead: int = 0, drained: bool = True
) -> Run:
    """Run `steps` steps on an idle machine. With `profile`, `lead` steps run first unseen, and then rows are kept.

    `drained`: the device is drained between the lead and the steps that count.
    """
    player = _Player(machine, Noise(machine, seed), profile=profile)
    for number in range(lead):
        player.play(step, number)
    if drained and lead:
        player.drain()
    player.watch(on=profile)
    result = player.result
    for number in range(lead, lead + steps):
        result.step_starts_ns.append(player.now)
        player.begin_step(number)
        player.play(step, number)
        player.end_step()
    result.end_ns = player.now
    player.drain(record=profile)
    result.drained_ns = player.now
    result.device = player.device.log
    result.busy_ns = player.device.busy_ns
    return result


class _Player:
    def __init__(self, machine: Machine, noise: Noise, *, profile: bool) -> None:
        self.machine, self.noise = machine, noise
        self.device = Device(machine, noise.work, keep=profile)
        self.now = 0
        self.result = Run()
        self._watched = False
        self._open: list[tuple[str, str, int, dict[str, Any]]] = []
        self._thread = MAIN
        self._correlation = 1000
        self._worked_ns = 0
        self._step = 0
        self._prefix = ""
        self._do = {op: getattr(self, name) for op, name in _DO.items()}

    def watch(self, *, on: bool) -> None:
        """Start keeping rows."""
        self._watched = on

    def begin_step(self, number: int) -> None:
        """Open the profiler's step row."""
        self._step = number
        if self._watched:
            self._begin(Instr(Op.BEGIN, f"ProfilerStep#{number}", cat="user_annotation"))

    def end_step(self) -> None:
        """Close the profiler's step row."""
        if self._watched:
            self._end()

    def play(self, step: Step, number: int) -> None:
        """Run one step's instructions."""
        self.noise.next_step()
        self._prefix = f"{number}:"
        for instr in step.instrs:
            if instr.every > 1 and number % instr.every != instr.every - 1:
                continue
            self._do[instr.op](instr)

    def drain(self, *, record: bool = False) -> None:
        """Wait until the device has nothing left."""
        self._sync(Instr(Op.SYNC, "cudaDeviceSynchronize", stream=None), quiet=not record)

    # ------------------------------------------------------------------------------------------------ instructions

    def _begin(self, instr: Instr) -> None:
        if not self._watched:
            return
        self._open.append((instr.name, instr.cat, self.now, instr.args))
        self.now += self._cost(instr.cat) * 6 // 10

    def _end(self, _: Instr | None = None) -> None:
        if not self._watched or not self._open:
            return
        name, cat, start, args = self._open.pop()
        self.result.rows.append(HostRow(name, cat, self._thread, start, self.now, args, step=self._step))
        self.now += self._cost(cat) * 4 // 10

    def _host(self, instr: Instr) -> None:
        self.now += self.noise.host(instr.ns)
        self._worked_ns += instr.ns
        if self.machine.gc_every_ns and self._worked_ns >= self.machine.gc_every_ns:
            self._worked_ns = 0
            self.now += self.noise.pause()
            self.result.gc_pauses += 1

    def _to_thread(self, instr: Instr) -> None:
        self.now += self.noise.host(instr.ns)
        self._thread = instr.name

    def _launch(self, instr: Instr) -> None:
        start, stream = self.now, instr.stream or COMPUTE
        self._enter(stream)
        command = Command(
            Op.LAUNCH, self.now + self.machine.latency_ns, instr.name, instr.work_ns, instr.kind,
            correlation=self._next_correlation(),
        )  # fmt: skip
        self.device.submit(stream, command)
        self.now += self.noise.host(instr.ns)
        call = _CALL.get(instr.kind, "cudaMemcpyAsync")
        self._leave(call, start, stream)

    def _graph(self, instr: Instr) -> None:
        start, stream = self.now, instr.stream or COMPUTE
        self._enter(stream)
        nodes = sum(n.op is Op.LAUNCH for n in instr.nodes)
        self.now += self.noise.host(self.machine.graph_ns(nodes))
        ready = self.now + self.machine.latency_ns
        self.device.submit(
            stream, Command(Op.GRAPH, ready, "graph", nodes=instr.nodes, correlation=self._next_correlation())
        )
        self._leave("cudaGraphLaunch", start, stream)

    def _record(self, instr: Instr) -> None:
        start, stream = self.now, instr.stream or COMPUTE
        self._enter(None)
        event = self._prefix + instr.event
        self.device.submit(stream, Command(Op.RECORD, self.now, event=event, correlation=self._next_correlation()))
        self.now += self.noise.host(instr.ns)
        self._leave("cudaEventRecord", start, stream, event)

    def _wait(self, instr: Instr) -> None:
        start, stream = self.now, instr.stream or COMPUTE
        self._enter(None)
        event = self._prefix + instr.event
        self._next_correlation()
        self.device.submit(stream, Command(Op.WAIT, self.now, event=event))
        self.now += self.noise.host(instr.ns)
        self._leave("cudaStreamWaitEvent", start, stream, event)

    def _sync(self, instr: Instr, *, quiet: bool = False) -> None:
        start = self.now
        if not quiet:
            self._enter(None)
        self._next_correlation()
        self.device.advance(self.now)
        self.now = max(self.now, self.device.until_idle(instr.stream)) + self.noise.host(self.machine.wake_ns)
        self.result.blocked_ns += self.now - start
        if not quiet:
            self._leave(instr.name or "cudaStreamSynchronize", start, instr.stream)

    # ----------------------------------------------------------------------------------------------------- helpers

    def _enter(self, stream: int | None) -> None:
        """Pay the profiler's callback, then wait while the stream's queue is full."""
        if self._watched:
            self.now += self._cost("cuda_runtime") // 2
        if stream is not None and self.device.depth(stream) >= self.machine.queue_limit:
            self.device.advance(self.now)
            if self.device.depth(stream) >= self.machine.queue_limit:
                before = self.now
                self.now = max(self.now, self.device.until_depth(stream, self.machine.queue_limit))
                self.result.blocked_ns += self.now - before

    def _leave(self, name: str, start: int, stream: int | None, event: str = "") -> None:
        if self._watched:
            self.now += self._cost("cuda_runtime") - self._cost("cuda_runtime") // 2
            self.result.rows.append(
                HostRow(
                    name, "cuda_runtime", self._thread, start, self.now, {}, self._correlation, stream, event, self._step
                )
            )  # fmt: skip

    def _next_correlation(self) -> int:
        self._correlation += 1
        return self._correlation

    def _cost(self, cat: str) -> int:
        machine = self.machine
        base = {"python_function": machine.python_cost_ns, "cuda_runtime": machine.runtime_cost_ns}.get(
            cat, machine.op_cost_ns
        )
        return self.noise.cost(base) if base else 0


_DO = {
    Op.BEGIN: "_begin",
    Op.END: "_end",
    Op.HOST: "_host",
    Op.LAUNCH: "_launch",
    Op.RECORD: "_record",
    Op.WAIT: "_wait",
    Op.SYNC: "_sync",
    Op.THREAD: "_to_thread",
    Op.GRAPH: "_graph",
}
