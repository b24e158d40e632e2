"""The device: streams that run their commands in order, slow each other down, and wait for each other's events.

Event driven. The owner advances it no further than the host's clock, except while the host is blocked and nothing new can arrive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from .machine import Machine
from .program import Instr, Op

Key = tuple[object, ...]
NEVER = 1 << 62


@dataclass(slots=True)
class Command:
    """Something enqueued on a stream: device work, an event to record or to wait for, or a graph."""

    op: Op
    ready_ns: int
    name: str = ""
    work_ns: float = 0
    kind: str = "compute"
    event: str = ""
    correlation: int = 0
    nodes: tuple[Instr, ...] = ()
    tag: str = ""


@dataclass(slots=True)
class Lane:
    """A stream, or a branch of a graph that runs. `depth`: commands of work that have not ended."""

    key: Key
    gap_ns: int
    queue: deque[Command] = field(default_factory=deque)
    running: Command | None = None
    started_ns: int = 0
    remaining: float = 0.0
    rate: float = 1.0
    free_ns: int | None = None
    not_before_ns: int = 0
    depth: int = 0
    graph: Graph | None = None  # the graph that this lane is a branch of
    replaying: Graph | None = None  # the graph that this stream is busy with


@dataclass(slots=True)
class Graph:
    """A graph that runs: how many of its lanes are still busy and which stream waits for it."""

    owner: Lane
    lanes: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Ran:
    """One piece of device work that ran."""

    name: str
    kind: str
    stream: Key
    start_ns: int
    end_ns: int
    correlation: int


class Device:
    """A device. `log` keeps what ran, if asked to. `work` gives each kernel's duration in this run from its nominal one."""

    def __init__(self, machine: Machine, work: Callable[[int], int], *, keep: bool = False) -> None:
        self._machine = machine
        self._work = work
        self._lanes: dict[Key, Lane] = {}
        self._events: dict[str, int] = {}
        self._now = 0
        self._graphs = 0
        self._settled = False
        self._keep = keep
        self.log: list[Ran] = []
        self.busy_ns = 0

    def submit(self, stream: int, command: Command) -> None:
        """Enqueue a command on a stream."""
        lane = self._stream(stream)
        lane.queue.append(command)
        if command.op in (Op.LAUNCH, Op.GRAPH):
            lane.depth += 1

    def depth(self, stream: int) -> int:
        """Return how much enqueued work of a stream had not ended when the device was last advanced."""
        return self._stream(stream).depth

    def advance(self, limit_ns: int) -> None:
        """Let everything happen that happens up to `limit_ns`."""
        while self._next(limit_ns):
            pass

    def until_depth(self, stream: int, below: int) -> int:
        """Run until a stream holds less than `below` pieces of work; return that moment. The host is blocked meanwhile."""
        lane = self._stream(stream)
        while lane.depth >= below:
            if not self._next(NEVER):
                raise RuntimeError(f"stream {stream} never drains: it waits for an event that nobody records")
        return self._now

    def until_idle(self, stream: int | None) -> int:
        """Run until a stream (None: every stream) has nothing left; return when its last work ended, 0 for none."""
        if stream is None:
            return max((self.until_idle(s) for s in [k[0] for k in self._lanes if len(k) == 1]), default=0)
        lane = self._stream(stream)
        while lane.queue or lane.running or lane.replaying:
            if not self._next(NEVER):
                raise RuntimeError(f"stream {stream} never drains: it waits for an event that nobody records")
        return max(lane.free_ns or 0, lane.not_before_ns)

    def _stream(self, stream: int) -> Lane:
        lane = self._lanes.get((stream,))
        if lane is None:
            lane = self._lanes[(stream,)] = Lane((stream,), self._machine.gap_ns)
        return lane

    def _next(self, limit_ns: int) -> bool:
        """Handle the earliest thing that happens up to the limit; False when there is none."""
        best, best_lane = self._earliest(limit_ns)
        while self._settled:  # an event that one lane has just recorded may release another
            best, best_lane = self._earliest(limit_ns)
        if best_lane is None:
            return False
        self._progress(max(best, self._now))
        if best_lane.running is not None:
            self._finish(best_lane)
        else:
            self._start(best_lane)
        self._contend()
        return True

    def _earliest(self, limit_ns: int) -> tuple[int, Lane | None]:
        best, best_lane = limit_ns + 1, None
        self._settled = False
        for lane in self._lanes.values():
            if lane.running is not None:
                moment = round(self._now + lane.remaining / lane.rate)
            else:
                moment = self._start_of_head(lane)
            if moment < best:
                best, best_lane = moment, lane
        return best, best_lane

    def _start_of_head(self, lane: Lane) -> int:
        """Settle events at the head of the queue; return when the work behind them can start."""
        while lane.queue and not lane.replaying:
            head = lane.queue[0]
            if head.op is Op.RECORD:
                self._events[head.event] = max(head.ready_ns, lane.free_ns or 0, lane.not_before_ns)
            elif head.op is Op.WAIT:
                if head.event not in self._events:
                    return NEVER
                seen = self._events[head.event]
                lane.not_before_ns = max(lane.not_before_ns, seen + self._machine.event_gap_ns if seen else 0)
            else:
                queued = 0 if lane.free_ns is None else lane.free_ns + lane.gap_ns
                return max(head.ready_ns, queued, lane.not_before_ns)
            lane.queue.popleft()
            self._settled = True
        return NEVER

    def _progress(self, now_ns: int) -> None:
        passed = now_ns - self._now
        if passed:
            for lane in self._lanes.values():
                if lane.running is not None:
                    lane.remaining = max(lane.remaining - passed * lane.rate, 0.0)
            self._now = now_ns

    def _start(self, lane: Lane) -> None:
        command = lane.queue.popleft()
        lane.not_before_ns = 0
        if command.op is Op.GRAPH:
            self._replay(lane, command)
            return
        lane.running, lane.started_ns = command, self._now
        scale = self._machine.graph_kernel_factor if lane.graph else 1.0
        lane.remaining = float(self._work(round(command.work_ns * scale)))

    def _finish(self, lane: Lane) -> None:
        command = lane.running
        assert command is not None
        lane.running, lane.free_ns = None, self._now
        self.busy_ns += self._now - lane.started_ns
        if self._keep:
            self.log.append(Ran(command.name, command.kind, lane.key, lane.started_ns, self._now, command.correlation))
        if lane.graph is None:
            lane.depth -= 1
            return
        if not any(c.op is Op.LAUNCH for c in lane.queue):
            self._start_of_head(lane)  # trailing records release other lanes
            self._leave(lane)

    def _replay(self, lane: Lane, command: Command) -> None:
        """Start a graph: its kernels run on lanes of their own, and the stream is busy until the last one has ended."""
        self._graphs += 1
        tag = f"g{self._graphs}:"
        by_stream: dict[int, list[Instr]] = {}
        recorded = {n.event for n in command.nodes if n.op is Op.RECORD}
        for node in command.nodes:
            if node.op is Op.WAIT and node.event not in recorded:
                continue  # recorded before the graph: stream order has settled it
            by_stream.setdefault(node.stream or 0, []).append(node)
        busy = {s: n for s, n in by_stream.items() if any(i.op is Op.LAUNCH for i in n)}
        graph = Graph(lane, len(busy), self._now)
        lane.replaying = graph
        for stream, nodes in by_stream.items():
            branch = Lane((*lane.key, tag, stream), self._machine.graph_gap_ns, graph=graph)
            for node in nodes:
                branch.queue.append(Command(node.op, self._now, node.name, node.work_ns, node.kind, tag + node.event))
            self._lanes[branch.key] = branch
        if not busy:
            graph.lanes = 1
            self._leave(Lane((*lane.key, tag), 0, graph=graph))

    def _leave(self, branch: Lane) -> None:
        """Take a finished branch out of its graph; the last one frees the stream."""
        graph = branch.graph
        assert graph is not None
        graph.lanes -= 1
        if graph.lanes == 0:
            owner = graph.owner
            owner.replaying, owner.free_ns = None, self._now
            owner.depth -= 1
            prefix = branch.key[: len(owner.key) + 1]
            for key in [k for k in self._lanes if k[: len(prefix)] == prefix]:
                del self._lanes[key]

    def _contend(self) -> None:
        """Set the rate of everything that runs from what else runs."""
        machine = self._machine
        running = [lane for lane in self._lanes.values() if lane.running is not None]
        for lane in running:
            lane.rate = 1.0
            if len(running) == 1 or lane.running is None:
                continue
            others = {o.running.kind for o in running if o is not lane and o.running is not None}
            slow = 1.0
            if lane.running.kind == "compute":
                slow *= machine.comm_slows_compute if "comm" in others else 1.0
                slow *= machine.compute_slows_compute if "compute" in others else 1.0
            elif lane.running.kind == "comm" and "compute" in others:
                slow *= machine.compute_slows_comm
            lane.rate = 1.0 / slow
