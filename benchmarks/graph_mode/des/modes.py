"""Rewrite a step for a graph mode: captured instructions leave the host program and become nodes of graphs."""

from __future__ import annotations

from dataclasses import replace

from .machine import Machine
from .program import COMPUTE, Instr, Op, Step

EAGER, STEP, FORWARD_BACKWARD, OPTIMIZER = "eager", "step", "forward+backward", "optimizer"
DROP_SYNC = "step:drop-sync"
_PHASES = {
    STEP: {"zero_grad", "forward", "loss", "backward", "collective", "optimizer"},
    FORWARD_BACKWARD: {"zero_grad", "forward", "loss", "backward", "collective"},
    OPTIMIZER: {"optimizer"},
}
SYNC_PHASE = "sync"
_ON_DEVICE = (Op.LAUNCH, Op.RECORD, Op.WAIT)


def rewrite(step: Step, mode: str, machine: Machine) -> Step:
    """Return the step as it runs in a mode: one of the names above or `module:<name>`.

    A host sync inside a region cuts it into several graphs. What a module's backward does not own (collectives that hooks start) runs
    after the module's graph. Each graph of a module copies the module's tensor inputs, or the gradients of its outputs, into static
    memory first; graphs of a step copy those inputs that lie on the device already.
    """
    if mode == EAGER:
        return step
    instrs = step.instrs
    if mode == DROP_SYNC:
        instrs, mode = tuple(i for i in instrs if i.phase != SYNC_PHASE), STEP
    out: list[Instr] = []
    graphs: dict[str, int] = {}  # open graph -> its position in `out`
    nodes: dict[int, list[Instr]] = {}
    copied: set[str] = set()
    for instr in instrs:
        key = _graph_of(instr, mode)
        if key is None:
            if instr.phase == SYNC_PHASE:
                graphs.clear()
            out.append(instr)
            continue
        if key not in graphs:
            copies = _copies(step, mode, key) if key not in copied else 0
            copied.add(key)
            out += [_copy(machine, instr)] * copies
            graphs[key] = len(out)
            out.append(replace(instr, op=Op.GRAPH, name=key, ns=0, stream=COMPUTE, args={}, cat="", event=""))
            nodes[graphs[key]] = []
        if instr.op in _ON_DEVICE:
            nodes[graphs[key]].append(instr)
    for position, captured in nodes.items():
        out[position] = replace(out[position], nodes=tuple(captured))
    kept = (i for i in out if i.op is not Op.GRAPH or any(n.op is Op.LAUNCH for n in i.nodes))
    return replace(step, instrs=tuple(kept))


def _graph_of(instr: Instr, mode: str) -> str | None:
    if mode.startswith("module:"):
        name = mode.removeprefix("module:")
        captured = name in instr.module and instr.phase in ("forward", "backward")
        return f"{name} {instr.phase}" if captured else None
    return mode if instr.phase in _PHASES[mode] else None


def _copies(step: Step, mode: str, key: str) -> int:
    if mode.startswith("module:"):
        name = mode.removeprefix("module:")
        return step.module_inputs.get(name, 1) if key.endswith("forward") else 1
    return step.step_inputs if mode != OPTIMIZER else 0


def _copy(machine: Machine, at: Instr) -> Instr:
    return replace(
        at, op=Op.LAUNCH, name="Memcpy DtoD (Device -> Device)", ns=machine.copy_call_ns, work_ns=machine.copy_work_ns,
        kind="d2d", stream=COMPUTE, args={}, cat="", event="",
    )  # fmt: skip
