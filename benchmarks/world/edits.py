"""Edits of a step: capture a region as graphs, wait no more, change what an operator costs. An edited step is simulated like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from .machine import Machine
from .program import COMPUTE, Instr, Mix, Op, Step

EAGER, STEP, FORWARD_BACKWARD, OPTIMIZER = "eager", "step", "forward+backward", "optimizer"
DROP_SYNC = "step:drop-sync"
SYNC_PHASE = "sync"
_BOTH = {"zero_grad", "forward", "loss", "backward", "collective"}
_PHASES = {STEP: _BOTH | {"optimizer"}, FORWARD_BACKWARD: _BOTH, OPTIMIZER: {"optimizer"}}


def in_mode(step: Step, mode: str, machine: Machine) -> Step:
    """Return the step as it runs in a mode: `eager`, a region, `module:<name>`, or a captured step that waits no more."""
    if mode == EAGER:
        return step
    return capture(without_waits(step), STEP, machine) if mode == DROP_SYNC else capture(step, mode, machine)


def mixed(mix: Mix, mode: str, machine: Machine) -> Mix:
    """Return the mix as it runs in a mode, with graphs of their own for each kind of step."""
    return replace(mix, kinds={kind: in_mode(step, mode, machine) for kind, step in mix.kinds.items()})


def delivering(step: Step, every_ns: float) -> Step:
    """Let workers deliver a batch so often."""
    return _of_batches(step, lambda i: i._replace(work_ns=round(every_ns * i.workers)))


def with_more_workers(step: Step, more: int, longer: float) -> Step:
    """Start `more` times the workers, each of which takes `longer` times as long for a batch; once: as it is."""
    if more == 1:
        return step
    return _of_batches(step, lambda i: i._replace(workers=i.workers * more, work_ns=round(i.work_ns * longer)))


def _of_batches(step: Step, change: Callable[[Instr], Instr]) -> Step:
    return _changed(step, lambda i: change(i) if i.op is Op.BATCH else i)


def _changed(step: Step, change: Callable[[Instr], Instr]) -> Step:
    return replace(step, instrs=tuple(map(change, step.instrs)))


def without(step: Step, *phases: str) -> Step:
    """Return the step without some of its phases."""
    return replace(step, instrs=tuple(i for i in step.instrs if i.phase not in phases))


def without_waits(step: Step) -> Step:
    """Return the step without any read-back."""
    return without(step, SYNC_PHASE)


def scaled(step: Step, changes: Callable[[Instr], bool], *, host: float = 1.0, work: float = 1.0) -> Step:
    """Return the step with host work and device work of the instructions that are to change multiplied."""

    def change(i: Instr) -> Instr:
        ns = round(i.ns * host) if i.op is Op.HOST else i.ns
        return i._replace(ns=ns, work_ns=round(i.work_ns * work)) if changes(i) else i

    return _changed(step, change)


def in_fp32(step: Step) -> Step:
    """Return the step with collectives that carry fp32."""

    return _changed(step, lambda i: i._replace(args={**i.args, "dtype": "Float"}) if "dtype" in i.args else i)


def overlapped(step: Step) -> Step:
    """Return the step whose computation waits for collectives at the end of backward only."""
    waits = [
        i for i, x in enumerate(step.instrs) if x.op is Op.WAIT and x.phase == "collective" and x.stream == COMPUTE
    ]
    gone = set(waits[:-1])
    return replace(step, instrs=tuple(x for i, x in enumerate(step.instrs) if i not in gone))


def capture(step: Step, region: str, machine: Machine) -> Step:
    """Return the step with a region's device work in graphs and its host work gone.

    A host sync inside a region cuts it into several graphs. What a module's backward does not own (collectives that hooks start) runs
    after the module's graph. Each graph of a module copies the module's tensor inputs, or the gradients of its outputs, into static
    memory first; graphs of a step copy those inputs that lie on the device already.
    """
    return _in_graphs(step, lambda i: _graph_of(i, region), lambda key: _copies(step, region, key), machine)


def in_pieces(step: Step, pieces: Mapping[tuple[str, ...], str], machine: Machine) -> Step:
    """Return the step whose forward pass replays graphs already: `pieces` names the graph of the modules at some paths."""

    def piece(i: Instr) -> str | None:
        inside = (pieces.get(i.module[:depth]) for depth in range(1, len(i.module) + 1))
        return next(filter(None, inside), None) if i.phase == "forward" else None

    return _in_graphs(step, piece, lambda _: 0, machine)


def _in_graphs(
    step: Step, graph_of: Callable[[Instr], str | None], copies_of: Callable[[str], int], machine: Machine
) -> Step:
    """Return the step with the device work of each graph launched at once where its first instruction stood."""
    out: list[Instr] = []
    graphs: dict[str, int] = {}  # open graph -> its position in `out`
    nodes: dict[int, list[Instr]] = {}
    copied: set[str] = set()
    for instr in step.instrs:
        key = graph_of(instr)
        if key is None:
            if instr.phase == SYNC_PHASE:
                graphs.clear()
            out.append(instr)
            continue
        at = Instr(Op.GRAPH, key, kind="graph", phase=instr.phase, module=instr.module, thread=instr.thread)
        if key not in graphs:
            copies = copies_of(key) if key not in copied else 0
            copied.add(key)
            name, costs = (
                "Memcpy DtoD (Device -> Device)",
                {"ns": machine.copy_call_ns, "work_ns": machine.copy_work_ns},
            )
            out += [at._replace(op=Op.LAUNCH, name=name, kind="d2d", stream=COMPUTE, **costs)] * copies
            graphs[key] = len(out)
            nodes[len(out)] = []
            out.append(at)
        if instr.op in (Op.LAUNCH, Op.RECORD, Op.WAIT):
            nodes[graphs[key]].append(instr)
    for position, captured in nodes.items():
        launches = sum(i.op is Op.LAUNCH for i in captured)
        cost = round(machine.graph_call_ns + machine.graph_node_ns * launches)
        out[position] = out[position]._replace(nodes=tuple(captured), ns=cost)
    kept = (i for i in out if i.op is not Op.GRAPH or any(n.op is Op.LAUNCH for n in i.nodes))
    return replace(step, instrs=tuple(kept))


def _graph_of(instr: Instr, region: str) -> str | None:
    if region.startswith("module:"):
        name = region.removeprefix("module:")
        captured = name in instr.module and instr.phase in ("forward", "backward")
        return f"{name} {instr.phase}" if captured else None
    return region if instr.phase in _PHASES[region] else None


def _copies(step: Step, region: str, key: str) -> int:
    if region.startswith("module:"):
        return step.module_inputs.get(region.removeprefix("module:"), 1) if key.endswith("forward") else 1
    return step.step_inputs if region != OPTIMIZER else 0
