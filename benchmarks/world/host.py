"""The hosts: each runs its rank's program against its device, all ranks side by side, with or without a profiler watching."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from .device import Clock, Command, Device, Meetings, Ran, idle
from .machine import Machine, Noise
from .program import COMPUTE, LAUNCHER, MAIN, PROFILER_STEP, Instr, Op

Program = Callable[[int], Iterable[Instr]]
"""What a rank runs in step n."""
PREFETCHED = 2
"""Batches that each worker is told to fetch ahead, as torch's DataLoader does by default."""
_CALLS = {"compute": "cudaLaunchKernel", "comm": "cudaLaunchKernelExC", "recipe": "synLaunchWithExternalEvents"}


@dataclass(slots=True)
class HostRow:
    """A row of the trace on a host thread. `stream` and `event` say what a runtime call referred to."""

    name: str
    cat: str
    thread: str
    start_ns: int
    end_ns: int
    args: Mapping[str, Any]
    correlation: int = 0
    stream: int | None = None
    event: str = ""
    step: int = 0


@dataclass
class Run:
    """What a run of some steps took on a rank, and what a profiler saw of it."""

    step_starts_ns: list[int] = field(default_factory=list)
    step_ends_ns: list[int] = field(default_factory=list)  # of the host's work
    done_ns: list[int] = field(default_factory=list)  # when host and device were through with each step
    drained_ns: int = 0  # after the last step, when the device had finished as well
    rows: list[HostRow] = field(default_factory=list)
    device: list[Ran] = field(default_factory=list)
    busy_ns: int = 0
    blocked_ns: int = 0  # the host waited for the device
    gc_pauses: int = 0
    graphs: int = 0  # replays and recipes
    queue: dict[str, list[int]] = field(default_factory=dict)  # of the loader's workers, as the recorder samples it

    def step_ns(self) -> int:
        """Return the time per step of the block, the device drained at both ends."""
        return round((self.drained_ns - self.step_starts_ns[0]) / len(self.step_starts_ns))

    def taken_ns(self) -> list[int]:
        """Return what each step took from the end of the one before it; the first one began on its own."""
        return [end - before for before, end in pairwise([self.step_starts_ns[0], *self.done_ns])]

    def steady_ns(self) -> int:
        """Return the time per step from the end of the first one to the end of the last."""
        return round((self.done_ns[-1] - self.done_ns[0]) / (len(self.done_ns) - 1))


def run(program: Program, machine: Machine, **how: Any) -> Run:
    """Run one rank; see `run_ranks`."""
    return run_ranks([program], machine, **how)[0]


def run_ranks(
    programs: Sequence[Program],
    machine: Machine,
    *,
    steps: int,
    seed: str,
    profile: bool = False,
    lead: int = 0,
    drained: bool = True,
    paired: bool = False,
    label: Callable[[int], str] = PROFILER_STEP.format,
) -> list[Run]:
    """Run `steps` steps of all ranks on idle machines. With `profile`, `lead` steps run first unseen, and then rows are kept.

    `drained`: the device is drained between the lead and the steps that count. `paired`: as `Noise` has it. `label`: of the row around a step. Raises RuntimeError when somebody waits for ever.
    """
    clock, meetings = Clock(), Meetings(len(programs))
    ranks = []
    for number, program in enumerate(programs):
        noise = Noise(machine, f"{seed} rank {number}" if number else seed, paired=paired)
        rank = _Rank(machine, noise, Device(machine, noise, clock, meetings, keep=profile), clock)
        rank.main.start(rank.whole(program, range(lead, lead + steps), label, profile=profile, drained=drained))
        ranks.append(rank)
    clock.run()
    if not all(rank.finished for rank in ranks):
        raise RuntimeError("a host never goes on: its device never drains, since it waits for what nobody does")
    return [rank.result for rank in ranks]


class _Rank:
    """One process: its main line of execution, the launch thread of lazy mode, its device."""

    def __init__(self, machine: Machine, noise: Noise, device: Device, clock: Clock) -> None:
        self.machine, self.noise, self.device, self.clock = machine, noise, device, clock
        self.result = Run()
        self.watched = self.finished = False
        self.step = self.worked_ns = 0
        self.correlation = 1000
        self.main, self.launcher = _Line(self, MAIN), _Line(self, LAUNCHER)
        self.tasks: deque[tuple[int, tuple[Instr, ...]]] = deque()
        self.launching = False
        self.fetched: list[int] = []  # when each batch of the workers is there

    def whole(
        self, program: Program, counted: range, label: Callable[[int], str], *, profile: bool, drained: bool
    ) -> Iterator[None]:
        """Run everything on the main line; steps before those that count are the lead."""
        main, result = self.main, self.result
        drain = [Instr(Op.JOIN), Instr(Op.SYNC, stream=None, call="cudaDeviceSynchronize")]
        for number in range(counted.stop):
            if number == counted.start:
                if drained and number:
                    yield from main.play(drain)
                self.watched = profile
            self.step = number
            self.noise.next_step()
            seen = number in counted
            if seen:
                result.step_starts_ns.append(main.now)
                main.open(Instr(Op.BEGIN, label(number), cat="user_annotation"))
            yield from main.play(program(number))
            if seen:
                main.close()
                result.step_ends_ns.append(main.now)
        yield from main.play(drain)
        result.drained_ns = main.now
        result.device, result.busy_ns = self.device.log, self.device.busy_ns
        done = self.device.done_ns
        result.done_ns = [max(end, done.get(counted.start + i, 0)) for i, end in enumerate(result.step_ends_ns)]
        self.finished = True

    def launches(self) -> Iterator[None]:
        """Run the launch thread's tasks until there are none."""
        while self.tasks:
            given_ns, instrs = self.tasks.popleft()
            self.launcher.now = max(self.launcher.now, given_ns)
            yield from self.launcher.play(instrs)
        self.launching = False
        self.main.wake()


class _Line:
    """A line of execution with a clock of its own, which meets true time where it touches what others see."""

    def __init__(self, rank: _Rank, thread: str) -> None:
        self.rank, self.thread, self.now = rank, thread, 0
        self._open: list[tuple[Instr, int]] = []
        self._code: Iterator[None] = iter(())
        self._until = 0

    def start(self, code: Iterator[None]) -> None:
        """Begin to run something."""
        self._code = code
        self.rank.clock.at(self.rank.clock.now, self._resume)

    def wake(self, _: object = None) -> None:
        """Let the line look whether what it waits for has happened."""
        self.rank.clock.at(self.rank.clock.now, self._resume)

    def _resume(self, _: object) -> None:
        if self.rank.clock.now >= self._until:
            next(self._code, None)

    def open(self, instr: Instr) -> None:
        """Open a profiler row."""
        if self.rank.watched:
            self._open.append((instr, self.now))
            self.now += self.rank.noise.cost(instr.cat) * 6 // 10

    def close(self) -> None:
        """Close the innermost row."""
        if self.rank.watched and self._open:
            row, start = self._open.pop()
            self._row(row.name, row.cat, start, row.args)
            self.now += self.rank.noise.cost(row.cat) * 4 // 10

    def play(self, instrs: Iterable[Instr]) -> Iterator[None]:
        """Run instructions. Yields while waiting for true time or for somebody."""
        noise = self.rank.noise
        for instr in instrs:
            op = instr.op
            if op is Op.HOST:
                self._work(instr)
            elif op is Op.BEGIN:
                self.open(instr)
            elif op is Op.END:
                self.close()
            elif op is Op.THREAD:
                self.now += noise.host(instr.ns)
                self.thread = instr.name
            elif op is Op.TASK:
                self._give(instr)
            elif op is Op.BATCH:
                self._take(instr)
            elif op is Op.JOIN:
                while self.rank.launching:
                    yield
                self.now = max(self.now, self.rank.launcher.now)
            else:
                yield from self._call(instr)

    def _work(self, instr: Instr) -> None:
        rank, machine = self.rank, self.rank.machine
        self.now += rank.noise.host(instr.ns)
        rank.worked_ns += instr.ns
        if machine.gc_every_ns and rank.worked_ns >= machine.gc_every_ns:
            rank.worked_ns = 0
            self.now += rank.noise.pause()
            rank.result.gc_pauses += 1

    def _take(self, instr: Instr) -> None:
        """Take the next batch once it is there. Workers fetch in turns; one is told to go on when a batch was taken."""
        noise, fetched, workers = self.rank.noise, self.rank.fetched, instr.workers

        def tell(now: int) -> None:
            free = fetched[-workers] if len(fetched) >= workers else 0
            fetched.append(max(free, now) + noise.host(instr.work_ns))

        while len(fetched) < workers * PREFETCHED:
            tell(0)
        if self.rank.watched:
            asked = fetched[self.rank.step :]
            finished = sum(when <= self.now for when in asked)
            waited = int(fetched[self.rank.step] > self.now)
            seen = {"finished": finished, "under_way": len(asked) - finished, "workers": workers, "waited": waited}
            for name, number in seen.items():
                self.rank.result.queue.setdefault(name, []).append(number)
        self.now = max(self.now, fetched[self.rank.step])
        tell(self.now)
        self.now += noise.host(instr.ns)

    def _give(self, instr: Instr) -> None:
        rank = self.rank
        rank.tasks.append((self.now + rank.noise.host(instr.ns), instr.nodes))
        if not rank.launching:
            rank.launching = True
            rank.launcher.start(rank.launches())

    def _call(self, instr: Instr) -> Iterator[None]:
        """Run a call into the runtime: it finds the device as it is at that moment."""
        rank, op = self.rank, instr.op
        device, noise, clock, cost = rank.device, rank.noise, rank.clock, 0
        start, stream = self.now, instr.stream or COMPUTE
        call = instr.call or _CALLS.get(instr.kind, "cudaMemcpyAsync")
        cat = "syn" if call.startswith("syn") else "cuda_runtime"
        if rank.watched:
            cost = noise.cost(cat)
            self.now += cost // 2
        while self.now > clock.now:
            self._until = self.now
            clock.at(self.now, self._resume)
            yield
        rank.correlation += 1
        correlation, event = rank.correlation, f"{rank.step - instr.back}:{instr.event}" if instr.event else ""
        if op is Op.SYNC:
            lanes = device.streams.values() if instr.stream is None else [device.stream(instr.stream)]
            while not idle(lanes):
                for lane in lanes:
                    if not lane.idle:
                        lane.wait(self._resume)
                yield
            last = max((max(lane.free_ns or 0, lane.not_before_ns) for lane in lanes), default=0)
            self.now = (
                max(self.now, last) + noise.host(rank.machine.wake_ns) + (noise.host(instr.ns) if instr.ns else 0)
            )
            rank.result.blocked_ns += self.now - start
        else:
            if op in (Op.LAUNCH, Op.GRAPH):
                lane = device.stream(stream)
                while lane.depth >= rank.machine.queue_limit:
                    lane.wait(self._resume)
                    yield
                rank.result.blocked_ns += clock.now - self.now
                self.now = clock.now
                rank.result.graphs += op is Op.GRAPH
            if op is Op.GRAPH and instr.kind != "recipe":
                self.now += noise.host(instr.ns)
                call = "cudaGraphLaunch"
            ready = self.now + (rank.machine.latency_ns if op in (Op.LAUNCH, Op.GRAPH) else 0)
            if rank.step >= instr.back:
                device.submit(stream, Command(instr, ready, correlation, event, rank.step))
            if op is not Op.GRAPH or instr.kind == "recipe":
                self.now += noise.host(instr.ns)
            if op in (Op.RECORD, Op.WAIT):
                call = "cudaEventRecord" if op is Op.RECORD else "cudaStreamWaitEvent"
        self.now += cost - cost // 2
        self._row(call, cat, start, instr.args if cat == "syn" else {}, correlation, instr.stream, event)

    def _row(self, name: str, cat: str, start: int, args: Mapping[str, Any], *call: Any) -> None:
        rank = self.rank
        if rank.watched:
            row = HostRow(name, cat, self.thread, start, self.now, args, *call)
            row.step = rank.step
            rank.result.rows.append(row)
