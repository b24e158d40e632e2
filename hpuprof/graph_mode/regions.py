"""Candidate regions for graphs: parts of the training loop, found by annotations, autograd and launches."""

from __future__ import annotations

import re

import numpy as np
from msgspec import Struct

from hpuprof.analysis.links import Links
from hpuprof.analysis.modules import BackwardWindows, ModuleCalls
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.threads import BACKWARD
from hpuprof.graph_mode.module_regions import module_candidates
from hpuprof.model.arrays import Ints, Mask, any_of
from hpuprof.model.intervals import Intervals, clip, contains, measure, subtract, union, union_of
from hpuprof.model.schema import Activity, HostKind, Role
from hpuprof.model.trace import Trace
from hpuprof.what_if.capture import Around, Region, launched_work
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.launch_program import Program

LOSS = re.compile(r"loss|cross_entropy|nll_", re.IGNORECASE)
ZERO = re.compile(r"zero_grad", re.IGNORECASE)


class Phases(Struct, frozen=True, eq=False):
    """Host windows of the used steps by purpose, and the bounds of each step's capturable part."""

    optimizer: Intervals
    zero_grad: Intervals
    outside: Intervals  # data loading, callbacks: never part of a graph
    loss: Intervals  # outermost loss operators and their backward nodes
    first: Ints  # per step of the program: start of the first operator that launches device work
    last: Ints  # end of the last one
    called: Ints  # end of what precedes backward; until its start, the host hands it over to autograd's thread
    backward: Ints  # start of backward, -1 for none
    backward_end: Ints


class LoopParts(Struct, frozen=True, eq=False):
    """Parts of the training loop by annotations and autograd's rows, over the whole trace."""

    optimizer: Intervals  # without the closure and zero_grad
    zero_grad: Intervals
    outside: Intervals  # data loading, callbacks
    stepping: Ints  # host rows of optimizer steps
    backward: Ints  # host rows of backward operators


def loop_parts(view: RankView) -> LoopParts:
    """Find the parts."""
    trace, host, role = view.trace, view.trace.host, view.host_roles
    main = role == Role.MAIN

    def when(rows: Mask | Ints) -> Intervals:
        return union(host.start[rows], host.end[rows])

    loading = Activity.DATA_LOADER, Activity.LOADER_WAIT, Activity.CALLBACK
    known = np.flatnonzero(any_of(host.activity, (Activity.OPTIMIZER, Activity.CLOSURE, *loading)) & main)

    def doing(*activities: Activity) -> Ints:
        return known[any_of(host.activity[known], activities)]

    operators = np.flatnonzero((main | (role == Role.AUTOGRAD)) & (host.kind == HostKind.OP))
    named = trace.operators_named(BACKWARD.search)
    optimizing = doing(Activity.OPTIMIZER)
    zeroing = trace.named(ZERO.search)[host.name[optimizing]]
    zero, stepping = when(optimizing[zeroing]), optimizing[~zeroing]
    return LoopParts(
        optimizer=subtract(subtract(when(stepping), when(doing(Activity.CLOSURE))), zero),
        zero_grad=zero,
        outside=when(doing(*loading)),
        stepping=stepping,
        backward=operators[(role[operators] == Role.AUTOGRAD) | named[host.name[operators]]],
    )


def accumulates(optimizer: Intervals, low: Ints, high: Ints) -> bool:
    """Tell whether only some steps run the optimizer: gradients of several batches are summed."""
    with_optimizer = measure(optimizer, low, high) > 0
    return bool(with_optimizer.any() and not with_optimizer.all())


def find_phases(view: RankView, program: Program, around: Around, parts: LoopParts) -> Phases:
    """Find data loading, forward, backward and optimizer of each step, by annotations and the autograd thread."""
    trace, host, links = view.trace, view.trace.host, view.links
    role = view.host_roles
    main = role == Role.MAIN
    optimizer, zero, outside = parts.optimizer, parts.zero_grad, parts.outside

    rows = np.flatnonzero((main | (role == Role.AUTOGRAD)) & (host.kind == HostKind.OP))
    rows = rows[trace.operators_named(LOSS.search)[host.name[rows]]]
    loss = union(host.start[rows], host.end[rows])
    captured = launched_work(program)
    fixed = union_of(outside, around.copying)
    roots = _roots(trace, links, (main & (host.activity == Activity.OPTIMIZER)) | _module_roots(trace, main))
    first = np.full(program.steps, -1, dtype=np.int64)
    last = np.full(program.steps, -1, dtype=np.int64)
    calls = np.flatnonzero(captured & ~contains(outside, program.begin))
    for step in range(program.steps):
        mine = calls[program.step[calls] == step]
        if len(mine):
            low, high = int(program.step_low[step]), int(program.step_high[step])
            begin = _around(roots, int(program.begin[mine[0]]))[0]
            first[step] = max(low, min(begin, _end_before(fixed, low, begin)))
            last[step] = min(high, max(int(program.end[mine[-1]]), _around(roots, int(program.begin[mine[-1]]))[1]))
    back = parts.backward
    called, backward, backward_end = np.full((3, program.steps), -1, dtype=np.int64)
    at = np.searchsorted(program.step_low, host.start[back], side="right") - 1
    for step in range(program.steps):
        rows = back[(at == step) & (host.start[back] < program.step_high[step])]
        if len(rows):
            backward[step], backward_end[step] = int(host.start[rows].min()), int(host.end[rows].max())
            called[step] = _end_before(roots, int(program.step_low[step]), int(backward[step]))
    return Phases(optimizer, zero, outside, loss, first, last, called, backward, backward_end)


def _module_roots(trace: Trace, main: Mask) -> Mask:
    modules = trace.named(lambda n: n.startswith("nn.Module:"))
    found: Mask = main & (trace.host.kind == HostKind.PYTHON) & modules[trace.host.name]
    return found


def _roots(trace: Trace, links: Links, more: Mask) -> Intervals:
    """Return the union of whole outermost operators on any thread and the given rows: optimizers, modules."""
    nesting = links.nesting
    top = nesting.parent < 0
    rows = np.flatnonzero(more)
    return union(
        np.concatenate([nesting.start[top], trace.host.start[rows]]),
        np.concatenate([nesting.end[top], trace.host.end[rows]]),
    )


def _end_before(fixed: Intervals, low: int, when: int) -> int:
    """Return the end of the step's last data loading or copy before an instant: Python then calls the model."""
    at = int(np.searchsorted(fixed.end, when, side="right")) - 1
    return int(fixed.end[at]) if at >= 0 and int(fixed.end[at]) > low else when


def _around(roots: Intervals, when: int) -> tuple[int, int]:
    at = int(np.searchsorted(roots.start, when, side="right")) - 1
    if at >= 0 and when < int(roots.end[at]):
        return int(roots.start[at]), int(roots.end[at])
    return when, when


def launch_regions(model: LaunchModel, parts: LoopParts, calls: ModuleCalls, backward: BackwardWindows) -> list[Region]:
    """Return the candidates of a launch-by-launch program: parts of the loop, and modules."""
    program = model.program
    phases = find_phases(model.view, program, model.around, parts)
    launched = program.begin[launched_work(program) & ~contains(phases.outside, program.begin)]
    low, high = int(program.step_low[0]), int(program.step_high[-1])
    modules = module_candidates(calls, backward, np.sort(launched), low, high, program.steps, phases.outside)
    return [*find_regions(program, phases), *modules]


def find_regions(program: Program, phases: Phases) -> list[Region]:
    """Return the candidates in the trace: step, forward+backward (one graph and two), optimizer."""
    known = phases.first >= 0
    if not known.any():
        return []
    whole = union(phases.first[known], phases.last[known])
    everything = union_of(whole, clip_to_steps(phases.zero_grad, program))
    out = [Region("step", subtract(everything, phases.outside))]
    optimizer = clip_to_steps(phases.optimizer, program)
    both = known & (phases.backward >= 0)
    if not len(optimizer) and both.any():  # no name for the optimizer: take everything after backward
        rest = both & (phases.last > phases.backward_end)
        optimizer = subtract(union(phases.backward_end[rest], phases.last[rest]), phases.outside)
    if both.any() and len(optimizer):
        without = subtract(subtract(everything, optimizer), phases.outside)
        out.append(Region("forward+backward", without))
        # Autograd is called, and returns, as without graphs.
        handed = union(phases.called[both], phases.backward[both] + 1)
        behind = union(phases.backward_end[both], phases.last[both])
        model = subtract(without, union_of(handed, behind, phases.loss, phases.zero_grad))
        out.append(Region("model", model, inputs=2, split=True))
        out.append(Region("optimizer", subtract(optimizer, phases.outside), inputs=0, keeps_gradients=True))
    return out


def clip_to_steps(a: Intervals, program: Program) -> Intervals:
    """Return the part of `a` that lies between the first and the last step of the program."""
    return clip(a, int(program.step_low[0]), int(program.step_high[-1]))
