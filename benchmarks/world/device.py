"""The devices: streams that run their commands in order, slow each other down, wait for each other's events, and meet in collectives."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from .machine import Machine, Noise
from .program import Instr, Op


class Clock:
    """True time: what is to happen, in order."""

    def __init__(self) -> None:
        self.now = 0
        self._todo: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._count = 0

    def at(self, when: int, act: Callable[[Any], None], about: Any = None) -> None:
        """Let something happen at a time that is not past."""
        self._count += 1
        heapq.heappush(self._todo, (when, self._count, act, about))

    def run(self) -> None:
        """Let everything happen."""
        while self._todo:
            self.now, _, act, about = heapq.heappop(self._todo)
            act(about)


@dataclass(slots=True)
class Command:
    """An instruction that was enqueued on a stream, and when it can start at the earliest."""

    instr: Instr
    ready_ns: int
    correlation: int = 0
    event: str = ""
    step: int = 0


@dataclass(eq=False, slots=True)
class Lane:
    """A stream, or a branch of a graph that runs. `depth`: pieces of work that have not ended."""

    stream: int
    gap_ns: int
    queue: deque[Command] = field(default_factory=deque)
    running: Command | None = None
    started_ns: int = 0
    remaining: float = 0.0
    rate: float = 0.0
    rated_ns: int = 0
    turn: int = 0  # changes whenever the end of what runs moves
    free_ns: int | None = None
    not_before_ns: int = 0
    depth: int = 0
    graph: Graph | None = None  # the graph that this lane is a branch of
    replaying: bool = False
    waiters: list[Callable[[Any], None]] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether nothing is left."""
        return not self.queue and self.running is None and not self.replaying

    def wait(self, resume: Callable[[Any], None]) -> None:
        """Let somebody know, once, when work has ended or nothing is left."""
        if resume not in self.waiters:
            self.waiters.append(resume)


@dataclass(eq=False, slots=True)
class Graph:
    """A graph that runs: how many of its lanes are still busy and which stream waits for it. `captured`: or it is a recipe."""

    owner: Lane
    lanes: int
    step: int
    captured: bool


@dataclass(frozen=True, slots=True)
class Ran:
    """One piece of device work that ran."""

    instr: Instr
    stream: int
    start_ns: int
    end_ns: int
    correlation: int


class Meetings:
    """Where the ranks of a job meet: the n-th collectives of a group are one."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._came: dict[tuple[tuple[int, ...], int], list[tuple[Device, Lane]]] = defaultdict(list)

    def come(self, members: tuple[int, ...], number: int, device: Device, lane: Lane) -> None:
        """A rank is ready; when it is the last one of the group, all transfer."""
        came = self._came[members, number]
        came.append((device, lane))
        if len(came) == (len(members) or self._ranks):
            lasts = lane.remaining
            for device_, lane_ in self._came.pop((members, number)):
                assert lane_.running is not None
                lane_.remaining = lasts + lane_.running.instr.late_ns
                lane_.rate, lane_.rated_ns = 0.0, device.clock.now
                device_.contend()
            return
        lane.remaining = inf


class Device:
    """The device of one rank. `log` keeps what ran, if asked to."""

    def __init__(self, machine: Machine, noise: Noise, clock: Clock, meetings: Meetings, *, keep: bool) -> None:
        self.machine, self.noise, self.clock = machine, noise, clock
        self._meetings, self._met = meetings, Counter[tuple[int, ...]]()
        self.streams: dict[int, Lane] = {}
        self._running: list[Lane] = []
        self._events: dict[str, int] = {}
        self._blocked: dict[str, list[Lane]] = defaultdict(list)
        self._graphs = 0
        self._keep = keep
        self.log: list[Ran] = []
        self.busy_ns = 0
        self.done_ns: dict[int, int] = {}  # when the last work of each step ended

    def stream(self, number: int) -> Lane:
        """Return a stream."""
        if number not in self.streams:
            self.streams[number] = Lane(number, self.machine.gap_ns)
        return self.streams[number]

    def submit(self, number: int, command: Command) -> None:
        """Enqueue a command on a stream, now."""
        lane = self.stream(number)
        lane.queue.append(command)
        lane.depth += command.instr.op in (Op.LAUNCH, Op.GRAPH)
        self._pump(lane)

    def _pump(self, lane: Lane) -> None:
        """Settle events at the head of the queue and start the work behind them, now or when it can start."""
        while lane.queue and lane.running is None and not lane.replaying:
            head = lane.queue[0]
            if head.instr.op is Op.RECORD:
                self._events[head.event] = max(head.ready_ns, lane.free_ns or 0, lane.not_before_ns)
                for other in self._blocked.pop(head.event, ()):
                    self.clock.at(self.clock.now, self._pump, other)
            elif head.instr.op is Op.WAIT:
                if head.event not in self._events:
                    if lane not in self._blocked[head.event]:
                        self._blocked[head.event].append(lane)
                    return
                if seen := self._events[head.event]:
                    lane.not_before_ns = max(lane.not_before_ns, seen + self.machine.event_gap_ns)
            else:
                queued = 0 if lane.free_ns is None else lane.free_ns + lane.gap_ns
                start = max(head.ready_ns, queued, lane.not_before_ns)
                if start > self.clock.now:
                    self.clock.at(start, self._pump, lane)
                    return
                lane.not_before_ns = 0
                self._start(lane, head)
            lane.queue.popleft()
        if lane.waiters and lane.idle:
            self._tell(lane)

    def _start(self, lane: Lane, command: Command) -> None:
        if command.instr.op is Op.GRAPH:
            self._replay(lane, command)
            return
        lane.running, lane.started_ns = command, self.clock.now
        work = float(command.instr.work_ns)
        if lane.graph is not None and lane.graph.captured:
            work *= self.machine.graph_factor(work)
        lane.remaining = float(self.noise.work(round(work)))
        lane.rate, lane.rated_ns = 0.0, self.clock.now
        self._running.append(lane)
        if command.instr.kind == "comm":
            members = command.instr.members
            self._met[members] += 1
            self._meetings.come(members, self._met[members], self, lane)
        self.contend()

    def _end(self, about: tuple[Lane, int]) -> None:
        lane, turn = about
        if turn != lane.turn or lane.running is None:
            return
        ran, now = lane.running, self.clock.now
        lane.running, lane.free_ns = None, now
        lane.turn += 1
        self._running.remove(lane)
        self.busy_ns += now - lane.started_ns
        if self._keep:
            self.log.append(Ran(ran.instr, lane.stream, lane.started_ns, now, ran.correlation))
        self.contend()
        if lane.graph is None:
            lane.depth -= 1
            self.done_ns[ran.step] = now
            self._tell(lane)
        elif not any(c.instr.op is Op.LAUNCH for c in lane.queue):
            self._leave(lane.graph)
        self._pump(lane)

    def _tell(self, lane: Lane) -> None:
        """Let those who wait for a lane look at it."""
        waiters, lane.waiters = lane.waiters, []
        for resume in waiters:
            self.clock.at(self.clock.now, resume)

    def _replay(self, lane: Lane, command: Command) -> None:
        """Start a graph: its kernels run on lanes of their own, and the stream is busy until the last one has ended."""
        self._graphs += 1
        now, recipe = self.clock.now, command.instr.kind == "recipe"
        recorded = {n.event for n in command.instr.nodes if n.op is Op.RECORD}
        branches: dict[int, Lane] = {}
        graph = Graph(lane, 0, command.step, captured=not recipe)
        for node in command.instr.nodes:
            if node.op is Op.WAIT and node.event not in recorded:
                continue  # recorded before the graph: stream order has settled it
            number = node.stream or 0
            if number not in branches:
                branches[number] = Lane(number, 0 if recipe else self.machine.graph_gap_ns, graph=graph)
            event = f"graph {self._graphs} {node.event}"
            branches[number].queue.append(Command(node, now, command.correlation, event))
        graph.lanes = sum(any(c.instr.op is Op.LAUNCH for c in b.queue) for b in branches.values())
        lane.replaying = True
        if not graph.lanes:
            graph.lanes = 1
            self._leave(graph)
        for branch in branches.values():
            self._pump(branch)

    def _leave(self, graph: Graph) -> None:
        """A branch has ended; the last one frees the stream."""
        graph.lanes -= 1
        if graph.lanes == 0:
            graph.owner.replaying, graph.owner.free_ns = False, self.clock.now
            graph.owner.depth -= 1
            self.done_ns[graph.step] = self.clock.now
            self._tell(graph.owner)
            self.clock.at(self.clock.now, self._pump, graph.owner)

    def contend(self) -> None:
        """Set the rate of everything that runs from what else runs."""
        now = self.clock.now
        for lane in self._running:
            rate = self._rate(lane) if len(self._running) > 1 else 1.0
            if rate == lane.rate:
                continue
            lane.remaining = max(lane.remaining - (now - lane.rated_ns) * lane.rate, 0.0)
            lane.rate, lane.rated_ns = rate, now
            lane.turn += 1
            if lane.remaining < inf:
                self.clock.at(round(now + lane.remaining / rate), self._end, (lane, lane.turn))

    def _rate(self, lane: Lane) -> float:
        machine = self.machine
        others = {o.running.instr.kind for o in self._running if o is not lane and o.running is not None}
        kind = lane.running.instr.kind if lane.running is not None else ""
        slow = 1.0
        if kind == "compute":
            slow *= machine.comm_slows_compute if "comm" in others else 1.0
            slow *= machine.compute_slows_compute if "compute" in others else 1.0
            slow *= machine.copy_slows_compute if others & {"h2d", "d2h"} else 1.0
        elif kind == "comm" and "compute" in others:
            slow *= machine.compute_slows_comm
        return 1.0 / slow


def idle(lanes: Iterable[Lane]) -> bool:
    """Whether nothing is left on any of the lanes."""
    return all(lane.idle for lane in lanes)
