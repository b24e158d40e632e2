"""HPU lazy mode: main thread, launch thread and device as a pipeline, and what capture and replay change in it.

Semantics after the published source of the PyTorch bridge 1.19: operators accumulate; `mark_step` joins the pending launch, collects
the graph and hands it to the one launch thread; a recipe runs as a whole. A replay flushes what has accumulated, joins, and executes
each captured recipe on the caller's thread, or, asynchronously, on the launch thread.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from .lazy_program import LazyMachine, LazyOp, LazyStep
from .machine import Noise

MAIN, AUTOGRAD, LAUNCH, WAITER = "main", "autograd", "launch", "wait"
READ_BACK_WORK_NS = 3_000


@dataclass(slots=True)
class LazyRow:
    """A row on a thread: kind is op, annotation, python, bridge or syn."""

    name: str
    kind: str
    thread: str
    start_ns: int
    end_ns: int
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Activation:
    """A kernel of a recipe that ran, or a copy."""

    name: str
    engine: str
    recipe: int
    start_ns: int
    end_ns: int


@dataclass
class LazyRun:
    """What a block of steps took, and what the profiler saw."""

    step_starts_ns: list[int] = field(default_factory=list)
    step_ends_ns: list[int] = field(default_factory=list)
    drained_ns: int = 0
    rows: list[LazyRow] = field(default_factory=list)
    device: list[Activation] = field(default_factory=list)
    busy_ns: int = 0
    recipes: int = 0

    def step_ns(self) -> int:
        """Return the time per step of the block, the device drained at both ends."""
        return round((self.drained_ns - self.step_starts_ns[0]) / len(self.step_starts_ns))


def run_lazy(
    step: LazyStep,
    machine: LazyMachine,
    *,
    mode: str,
    steps: int,
    seed: str,
    profile: bool = False,
    max_graphs: int = 10,
) -> LazyRun:
    """Run a block of steps. `mode`: eager, step, forward+backward, optimizer or module:<name>, with `:asynchronous` after it if asked for."""
    player = _Pipeline(step, machine, Noise(machine, seed), mode, profile=profile, max_graphs=max_graphs)  # type: ignore[arg-type]
    for number in range(steps):
        player.play(number)
    player.drain()
    player.result.drained_ns = player.now
    return player.result


class _Pipeline:
    def __init__(
        self, step: LazyStep, machine: LazyMachine, noise: Noise, mode: str, *, profile: bool, max_graphs: int
    ) -> None:
        self.step, self.machine, self.noise = step, machine, noise
        self.asynchronous = mode.endswith(":asynchronous")
        self.mode = mode.removesuffix(":asynchronous")
        self.profile, self.max_graphs = profile, max_graphs
        self.now = 0
        self.launch_free = 0
        self.device_free: int | None = None
        self.ends: deque[int] = deque()  # of recipes on the card
        self.pending: list[LazyOp] = []
        self.cached: list[int] = []  # shapes that have a graph, first come first served
        self.thread = MAIN
        self.result = LazyRun()
        self._recipes: dict[tuple[object, ...], int] = {}
        self._scale = 1.0
        self._shape = 0
        self._open: list[tuple[str, int]] = []

    # ------------------------------------------------------------------------------------------------------- a step

    def play(self, number: int) -> None:
        """Run one step."""
        step, machine, phases = self.step, self.machine, ("forward", "loss", "backward", "optimizer")
        self.noise.next_step()
        self._shape = step.shape(number)
        self._scale = step.shapes[self._shape]
        started = self.now
        self.result.step_starts_ns.append(started)
        self._span("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "annotation", step.loader_ns)
        for _ in range(step.inputs):
            self._upload()
        graphed = self._graph_is_there()
        replayed: set[str] = set()
        for phase in phases:
            on_autograd = phase == "backward" and not (graphed and self._inside(phase))
            if on_autograd:
                self.now += self.noise.host(machine.to_autograd_ns)
                self.thread = AUTOGRAD
            began = self.now
            for op in (o for o in step.ops if o.phase == phase):
                if phase == "forward":
                    self._enter(op.module)
                key = self._graph_of(op) if graphed else None
                if key is None:
                    self._accumulate(op)
                elif key not in replayed:
                    replayed.add(key)
                    self._replay(key)
            self._enter(())
            if on_autograd:
                self.thread = MAIN
                self.now += self.noise.host(machine.from_autograd_ns)
            if phase == "optimizer":
                self._row("Optimizer.step#SGD.step", "annotation", MAIN, began, self.now)
            if phase in step.marks and not (graphed and self._inside(phase)):
                self._mark_step()
        if step.read_every and number % step.read_every == step.read_every - 1:
            self._read_back()
        self.now += self.noise.host(step.tail_ns)
        self.result.step_ends_ns.append(self.now)
        self._row(f"ProfilerStep#{number}", "annotation", MAIN, started, self.now)

    def drain(self) -> None:
        """Flush, join and wait until the card has nothing left."""
        if self.pending:
            self._mark_step()
        start = self.now = max(self.now, self.launch_free)
        self.now = max(self.now, self.device_free or 0) + self.noise.host(self.machine.wake_ns)
        self._row("synchronizeDevice", "syn", MAIN, start, self.now)

    # -------------------------------------------------------------------------------------------------------- regions

    def _graph_of(self, op: LazyOp) -> str | None:
        if self.mode.startswith("module:"):
            inside = self.mode.removeprefix("module:") in op.module and op.phase in ("forward", "backward")
            return f"{op.phase}" if inside else None
        return self.mode if self._inside(op.phase) else None

    def _inside(self, phase: str) -> bool:
        """Whether a whole phase, and the mark_step behind it, lies in the captured region."""
        return phase in {
            "step": ("forward", "loss", "backward", "optimizer"),
            "forward+backward": ("forward", "loss", "backward"),
            "optimizer": ("optimizer",),
        }.get(self.mode, ())

    def _graph_is_there(self) -> bool:
        """Whether this step's shape has a graph: the first `max_graphs` shapes get one, later ones never do."""
        if self.mode == "eager":
            return False
        if self.mode.startswith("module:"):
            self.now += self.noise.host(self.machine.hash_ns)
        if self._shape not in self.cached and len(self.cached) < self.max_graphs:
            self.cached.append(self._shape)
        return self._shape in self.cached

    def _captured(self, key: str) -> list[list[LazyOp]]:
        """Return the operators of a graph, one list for each recipe in it: every mark_step inside the region begins another."""
        recipes: list[list[LazyOp]] = [[]]
        phase = ""
        for op in self.step.ops:
            if self._graph_of(op) != key:
                continue
            if phase and op.phase != phase and any(p in self.step.marks for p in _between(phase, op.phase)):
                recipes.append([])
            phase = op.phase
            recipes[-1].append(op)
        return recipes

    # -------------------------------------------------------------------------------------------------- what the host does

    def _enter(self, path: tuple[str, ...]) -> None:
        """Open and close the rows of modules until exactly those of `path` are open."""
        if not self.step.named:
            return
        while self._open and tuple(name for name, _ in self._open) != path[: len(self._open)]:
            name, start = self._open.pop()
            self._row(f"nn.Module: {name}", "python", MAIN, start, self.now)
        for name in path[len(self._open) :]:
            self._open.append((name, self.now))

    def _accumulate(self, op: LazyOp) -> None:
        start = self.now
        self.now += self._cost(self.machine.op_cost_ns)
        inner = self.now + self.noise.host(op.host_ns) // 2
        self.now = inner + self._cost(self.machine.row_cost_ns)
        lazy_start = inner
        self.now += self.noise.host(op.host_ns - op.host_ns // 2)
        args: dict[str, Any] = {"Input Dims": [[64 * (self._shape + 1), 512]], "Input type": ["c10::BFloat16"]}
        if op.sequence:
            step = len(self.result.step_starts_ns)
            args |= {"Sequence number": step * 100_000 + op.sequence, "Fwd thread id": int(op.phase == "backward")}
        if op.node:
            self._row(f"autograd::engine::evaluate_function: {op.node}", "op", self.thread, start, self.now, args)
            self._row(op.node, "op", self.thread, start, self.now, args)
        self._row(
            op.name,
            "op",
            self.thread,
            start,
            self.now,
            {k: args[k] for k in ("Input Dims", "Input type")} if op.node else args,
        )
        short = op.name.removeprefix("aten::")
        self._row(f"{short}_hpu_lazy", "bridge", self.thread, lazy_start, self.now)
        self.pending.append(op)

    def _mark_step(self) -> None:
        """Flush what has accumulated: join the pending launch, collect, hand over to the launch thread."""
        machine, start = self.machine, self.now
        self.now += self._cost(machine.row_cost_ns) + self.noise.host(machine.sync_ns)
        self.now = max(self.now, self.launch_free)
        if self.pending:
            self.now += self.noise.host(machine.collect_op_ns * len(self.pending))
        self._row("SyncTensorsGraphInternal", "bridge", self.thread, start, self.now)
        if not self.pending:
            return
        began = max(self.launch_free, self.now + self.noise.host(machine.hand_over_ns))
        self.launch_free = self._launch(LAUNCH, "LaunchSyncTensorsGraph", began, machine.launch_ns, self.pending)
        self.pending = []

    def _launch(self, thread: str, row: str, began: int, cost_ns: int, ops: list[LazyOp]) -> int:
        """Enqueue a recipe from a thread, waiting while the card's queue is full; return when the thread is through."""
        machine, now = self.machine, began
        now += self._cost(machine.row_cost_ns) + self.noise.host(cost_ns - machine.syn_launch_ns)
        call = now
        while self.ends and self.ends[0] <= now:
            self.ends.popleft()
        if len(self.ends) >= machine.queue_limit:
            now = max(now, self.ends[len(self.ends) - machine.queue_limit])
        ready = now + machine.latency_ns
        now += self.noise.host(machine.syn_launch_ns)
        recipe = self._recipe(ops)
        end = self._execute(ready, recipe, ops)
        self._row("synLaunchWithExternalEvents", "syn", thread, call, now, {"recipe": recipe, "tensors": len(ops) + 4})
        self._row("synEventRecord", "syn", thread, now, now + machine.event_ns)
        now += machine.event_ns
        self._row(row, "bridge", thread, began, now)
        self._row("synEventSynchronize", "syn", WAITER, now + 6_000, max(end, now + 6_000) + 5_000)
        self.result.recipes += 1
        return now

    def _execute(self, ready: int, recipe: int, ops: list[LazyOp]) -> int:
        queued = 0 if self.device_free is None else self.device_free + self.machine.recipe_gap_ns
        now = max(ready, queued)
        for op in ops:
            if op.work_ns:
                end = now + self.noise.work(round(op.work_ns * self._scale))
                self._device(op.name.removeprefix("aten::"), op.engine, recipe, now, end)
                now = end
        self.device_free = now
        self.ends.append(now)
        return now

    def _replay(self, key: str) -> None:
        """Replay a captured graph, after the copies into its static inputs and a flush of what has accumulated."""
        machine = self.machine
        copies = (1 if key == "backward" else self.step.inputs) if self.mode != "optimizer" else 0
        for _ in range(copies):
            self._accumulate(LazyOp("aten::copy_", machine.copy_op_ns, machine.copy_work_ns, "DMA", "copy"))
        if self.asynchronous:
            self._replay_on_thread(key)
            return
        self._mark_step()
        self.now = max(self.now, self.launch_free)  # a synchronous flush waits for the launch thread
        for ops in self._captured(key):
            self.now = self._launch(self.thread, "ExecuteCachedGraph", self.now, self._replay_cost(), ops)

    def _replay_on_thread(self, key: str) -> None:
        machine = self.machine
        self.now = max(self.now, self.launch_free) + self.noise.host(machine.hand_over_ns)
        thread_now = self.now
        if self.pending:
            thread_now += self.noise.host(machine.sync_ns + machine.collect_op_ns * len(self.pending))
            thread_now = self._launch(LAUNCH, "LaunchSyncTensorsGraph", thread_now, machine.launch_ns, self.pending)
            self.pending = []
        for ops in self._captured(key):
            thread_now = self._launch(LAUNCH, "ExecuteCachedGraph", thread_now, self._replay_cost(), ops)
        self.launch_free = thread_now

    def _replay_cost(self) -> int:
        return max(self.machine.replay_ns, self.machine.syn_launch_ns)

    def _upload(self) -> None:
        """Copy an input to the card, on a DMA engine of its own."""
        start = self.now
        self.now += self._cost(self.machine.op_cost_ns) + self.noise.host(self.machine.upload_call_ns)
        self._row("aten::copy_", "op", MAIN, start, self.now)
        self._row("copy_hpu_lazy_H2D", "bridge", MAIN, start + 500, self.now)
        self._row("synMemCopyAsync", "syn", MAIN, start + 1_000, self.now)
        began = self.now + self.machine.copy_latency_ns
        self._device("memcpy", "PDMA", 0, began, began + self.machine.upload_work_ns)

    def _read_back(self) -> None:
        """`loss.item()`: flush, join, wait for the card, copy."""
        start = self.now
        if self.pending:
            self._mark_step()
        self.now = max(self.now, self.launch_free)
        wait = self.now
        end = max(self.now + self.machine.latency_ns, (self.device_free or 0) + self.machine.recipe_gap_ns)
        self._device("memcpyD2H", "PDMA", 0, end, end + READ_BACK_WORK_NS)
        self.now = end + READ_BACK_WORK_NS + self.noise.host(self.machine.wake_ns)
        self._row("synEventSynchronize", "syn", MAIN, wait, self.now)
        self._row("aten::_local_scalar_dense", "op", MAIN, start, self.now)
        self._row("aten::item", "op", MAIN, start, self.now)

    # ------------------------------------------------------------------------------------------------------- helpers

    def _span(self, name: str, kind: str, ns: int) -> None:
        start = self.now
        self.now += self.noise.host(ns)
        self._row(name, kind, MAIN, start, self.now)

    def _row(self, name: str, kind: str, thread: str, start: int, end: int, args: dict[str, Any] | None = None) -> None:
        if self.profile:
            self.result.rows.append(LazyRow(name, kind, thread, start, end, args or {}))

    def _device(self, name: str, engine: str, recipe: int, start: int, end: int) -> None:
        if engine != "PDMA":
            self.result.busy_ns += end - start
        if self.profile:
            self.result.device.append(Activation(name, engine, recipe, start, end))

    def _recipe(self, ops: list[LazyOp]) -> int:
        key = (self._shape, *((o.name, o.phase, o.work_ns) for o in ops))
        return self._recipes.setdefault(key, 60_931 + 16 * len(self._recipes))

    def _cost(self, ns: int) -> int:
        return self.noise.cost(ns) if self.profile and ns else 0


def _between(first: str, then: str) -> tuple[str, ...]:
    """Return the phases whose end lies between an operator of `first` and one of `then`."""
    phases = ("forward", "loss", "backward", "optimizer")
    return phases[phases.index(first) : phases.index(then)]
