"""HPU lazy mode as a program: operators accumulate, a launch thread beside the main one launches them as recipes.

Semantics after the published source of the PyTorch bridge 1.19: `mark_step` joins the pending launch, collects the graph and hands it to
the one launch thread; a recipe runs as a whole. A replay flushes what has accumulated, joins, and executes each captured recipe on the
caller's thread, or, asynchronously, on the launch thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import Any

from sample_traces.generator import gaudi

from .program import COMPUTE, COPY, Builder, Instr, Op

PHASES = ("forward", "loss", "backward", "optimizer")
ASYNCHRONOUS = ":asynchronous"
_REGIONS = {"step": PHASES, "forward+backward": PHASES[:3], "optimizer": PHASES[3:]}


@dataclass(frozen=True)
class Bridge:
    """What the bridge costs a host [ns]."""

    sync_ns: int = 25_000  # a flush, before it collects
    collect_op_ns: int = 1_500  # for each accumulated operator
    hand_over_ns: int = 9_000  # to the launch thread
    launch_ns: int = 60_000  # a launch on the launch thread, synLaunch included
    syn_launch_ns: int = 25_000
    replay_ns: int = 150_000  # one captured recipe
    hash_ns: int = 25_000  # ModuleCacher's key of a call
    copy_op_ns: int = 12_000  # host: one copy into a static input, accumulated
    copy_work_ns: int = 4_000
    upload_call_ns: int = 30_000
    upload_work_ns: int = 20_000
    event_ns: int = 3_000  # recording an event after a launch
    to_autograd_ns: int = 20_000
    from_autograd_ns: int = 18_000


@dataclass(frozen=True)
class LazyOp:
    """An operator that accumulates: its host time, and the device work that it adds to the recipe (0 for none)."""

    name: str
    host_ns: int
    work_ns: int
    engine: str  # MME, TPC or DMA
    phase: str
    module: tuple[str, ...] = ()
    node: str = ""  # the autograd node, for backward operators
    sequence: int = 0
    dtype: str = "bf16"


@dataclass(frozen=True)
class LazyStep:
    """A step: operators in order; `marks`: phases after which `mark_step` is called; `shapes`: factor on work, per input shape in turn."""

    ops: tuple[LazyOp, ...]
    marks: frozenset[str]
    read_every: int = 0  # loss.item() in each k-th step
    inputs: int = 1
    loader_ns: int = 100_000
    tail_ns: int = 20_000
    shapes: tuple[float, ...] = (1.0,)
    order: tuple[int, ...] = (0,)  # which shape each step has; repeated
    named: bool = True  # rows that name modules


def lazy_program(step: LazyStep, bridge: Bridge, mode: str, max_graphs: int = 10) -> Callable[[int], tuple[Instr, ...]]:
    """Return what a step runs. `mode`: eager, step, forward+backward, optimizer or module:<name>, with `:asynchronous` after it if so.

    With several input shapes the first `max_graphs` get a graph, first come, first served; later ones run eagerly, as in ModuleCacher.
    """
    recipes: dict[object, int] = {}

    def program(number: int) -> tuple[Instr, ...]:
        met = list(dict.fromkeys(step.order[n % len(step.order)] for n in range(number + 1)))
        shape = step.order[number % len(step.order)]
        graphed = mode != "eager" and shape in met[:max_graphs]
        return _Writer(step, bridge, mode, shape, recipes, graphed=graphed).step_of(number)

    return program


class _Writer:
    def __init__(
        self, step: LazyStep, bridge: Bridge, mode: str, shape: int, recipes: dict[object, int], *, graphed: bool
    ) -> None:
        self.step, self.bridge, self.shape, self.recipes, self.graphed = step, bridge, shape, recipes, graphed
        self.mode, self.asynchronous = mode.removesuffix(ASYNCHRONOUS), mode.endswith(ASYNCHRONOUS)
        self.out = Builder()
        self.pending: list[LazyOp] = []
        self.module: tuple[str, ...] = ()

    def step_of(self, number: int) -> tuple[Instr, ...]:
        step, bridge, out = self.step, self.bridge, self.out
        with out.row("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "user_annotation"):
            out.host(step.loader_ns)
        for _ in range(step.inputs):
            self._upload()
        if self.mode.startswith("module:"):
            out.host(bridge.hash_ns)
        self.replayed: set[str] = set()
        for phase in PHASES:
            if phase == "backward" and not self._captured_whole(phase):
                with out.on_autograd(bridge.to_autograd_ns, bridge.from_autograd_ns):
                    self._phase(phase)
            elif phase == "optimizer":
                with out.row("Optimizer.step#SGD.step", "user_annotation"):
                    self._phase(phase)
            else:
                self._phase(phase)
            if phase in step.marks and not self._captured_whole(phase):
                self._flush()
        if step.read_every and number % step.read_every == step.read_every - 1:
            self._read_back()
        out.host(step.tail_ns)
        return tuple(out.instrs)

    def _phase(self, phase: str) -> None:
        for op in (o for o in self.step.ops if o.phase == phase):
            if phase == "forward":
                self._enter(op.module)
            key = self._graph_of(op) if self.graphed else None
            if key is None:
                self._accumulate(op)
            elif key not in self.replayed:
                self.replayed.add(key)
                self._replay(key)
        self._enter(())

    def _captured_whole(self, phase: str) -> bool:
        """Whether a whole phase, and the mark_step behind it, lies in the captured region."""
        return self.graphed and phase in _REGIONS.get(self.mode, ())

    def _graph_of(self, op: LazyOp) -> str | None:
        if self.mode.startswith("module:"):
            inside = self.mode.removeprefix("module:") in op.module and op.phase in ("forward", "backward")
            return op.phase if inside else None
        return self.mode if op.phase in _REGIONS.get(self.mode, ()) else None

    def _enter(self, path: tuple[str, ...]) -> None:
        """Open and close the rows of modules until exactly those of `path` are open."""
        if not self.step.named:
            return
        while self.module != path[: len(self.module)]:
            self.module = self.module[:-1]
            self.out.add(Op.END)
        for name in path[len(self.module) :]:
            self.out.add(Op.BEGIN, name=f"nn.Module: {name}", cat="python_function")
        self.module = path

    def _accumulate(self, op: LazyOp) -> None:
        out = self.out
        dims: dict[str, Any] = {"Input Dims": [[64 * (self.shape + 1), 512]], "Input type": ["c10::BFloat16"]}
        known = {"Sequence number": op.sequence, "Fwd thread id": int(op.phase == "backward")} if op.sequence else {}
        rows = [(op.name, dims | known)]
        if op.node:
            rows = [
                (f"autograd::engine::evaluate_function: {op.node}", dims | known),
                (op.node, dims | known),
                (op.name, dims),
            ]
        for name, args in rows:
            out.add(Op.BEGIN, name=name, cat="cpu_op", args=args)
        out.host(op.host_ns // 2)
        with out.row(f"{op.name.removeprefix('aten::')}_hpu_lazy", "bridge"):
            out.host(op.host_ns - op.host_ns // 2)
        for _ in rows:
            out.add(Op.END)
        self.pending.append(op)

    def _flush(self) -> None:
        """`mark_step`: join the pending launch, collect what has accumulated, hand it over to the launch thread."""
        with self.out.row("SyncTensorsGraphInternal", "bridge"):
            self._collect()
        if self.pending:
            launch = self._launch("LaunchSyncTensorsGraph", self.bridge.launch_ns, self.pending)
            self.out.add(Op.TASK, ns=self.bridge.hand_over_ns, nodes=launch)
            self.pending = []

    def _collect(self) -> None:
        self.out.host(self.bridge.sync_ns)
        self.out.add(Op.JOIN)
        self.out.host(self.bridge.collect_op_ns * len(self.pending))

    def _launch(self, row: str, cost_ns: int, ops: list[LazyOp]) -> tuple[Instr, ...]:
        """Return what launches a recipe of these operators."""
        factor = self.step.shapes[self.shape]
        key = (self.shape, *((o.name, o.phase, o.work_ns) for o in ops))
        recipe = self.recipes.setdefault(key, 60_931 + 16 * len(self.recipes))
        nodes = tuple(
            Instr(
                Op.LAUNCH,
                o.name.removeprefix("aten::"),
                work_ns=round(o.work_ns * factor),
                cat=o.engine,
                args={"recipe": recipe, "dtype": o.dtype},
            )
            for o in ops
            if o.work_ns
        )
        args = gaudi.launch_args(recipe, len(ops) + 4)
        out = Builder()
        with out.row(row, "bridge"):
            out.host(cost_ns - self.bridge.syn_launch_ns)
            out.add(Op.GRAPH, ns=self.bridge.syn_launch_ns, kind="recipe", nodes=nodes, args=args)
            with out.row("synEventRecord", "syn", **gaudi.event_args()):
                out.host(self.bridge.event_ns)
        return tuple(out.instrs)

    def _replay(self, key: str) -> None:
        """Replay a captured graph, after the copies into its static inputs and a flush of what has accumulated."""
        bridge, out = self.bridge, self.out
        copies = (1 if key == "backward" else self.step.inputs) if self.mode != "optimizer" else 0
        for _ in range(copies):
            self._accumulate(LazyOp("aten::copy_", bridge.copy_op_ns, bridge.copy_work_ns, "DMA", "copy"))
        cost = max(bridge.replay_ns, bridge.syn_launch_ns)
        launches = tuple(
            chain.from_iterable(self._launch("ExecuteCachedGraph", cost, ops) for ops in self._recipes_of(key))
        )
        if not self.asynchronous:
            self._flush()
            out.add(Op.JOIN)  # a synchronous flush waits for the launch thread
            out.instrs += launches
            return
        out.add(Op.JOIN)
        out.host(bridge.hand_over_ns)
        if self.pending:
            first = self._launch("LaunchSyncTensorsGraph", bridge.launch_ns, self.pending)
            flush = Instr(Op.HOST, ns=bridge.sync_ns + bridge.collect_op_ns * len(self.pending))
            launches, self.pending = (flush, *first, *launches), []
        out.add(Op.TASK, nodes=launches)

    def _recipes_of(self, key: str) -> list[list[LazyOp]]:
        """Return the operators of a graph, one list for each recipe in it: every mark_step inside the region begins another."""
        recipes: list[list[LazyOp]] = [[]]
        before = ""
        for op in (o for o in self.step.ops if self._graph_of(o) == key):
            between = PHASES[PHASES.index(before or op.phase) : PHASES.index(op.phase)]
            if self.step.marks.intersection(between):
                recipes.append([])
            before = op.phase
            recipes[-1].append(op)
        return recipes

    def _upload(self) -> None:
        """Copy an input to the card, on a DMA engine of its own."""
        bridge, args = self.bridge, gaudi.upload_args(1 << 18)
        with self.out.row("aten::copy_"), self.out.row("copy_hpu_lazy_H2D", "bridge"):
            copy = {"stream": COPY, "kind": "h2d", "cat": "PDMA", "args": args, "call": "synMemCopyAsync"}
            self.out.launch("memcpy", bridge.upload_call_ns, bridge.upload_work_ns, **copy)

    def _read_back(self) -> None:
        """`loss.item()`: flush, join, wait for the card, copy."""
        out, args = self.out, gaudi.event_args()
        with out.row("aten::item"), out.row("aten::_local_scalar_dense"):
            if self.pending:
                self._flush()
            out.add(Op.JOIN)
            out.launch("memcpyD2H", 0, 3_000, kind="d2h", cat="PDMA", args=args, call="synMemCopyAsync")
            out.add(Op.SYNC, stream=COMPUTE, call="synEventSynchronize", args=args)
