"""Compile in one piece what runs as many: graph breaks, and parts that are compiled by themselves."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from hpuprof.analysis.host_alone import used_no_device
from hpuprof.analysis.rank_view import RankView
from hpuprof.model.arrays import Ints
from hpuprof.model.intervals import Intervals, contains, subtract, union
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.situation import Situation, shortened
from hpuprof.what_if.change import Change
from hpuprof.what_if.step_model import StepModel

LEAST = 4
"""Pieces per step up to which nothing is broken: a model, its loss and the optimizer may be compiled by themselves."""
LEFT = (0.05, 0.6)
"""Share of the pieces' own time on the host that stays, at least what one piece takes; by judgment: one piece checks
and passes on the parameters and inputs of all."""
_FORWARD = re.compile(r"^(?:Torch-Compiled Region|TorchDynamo Cache Lookup)")
_BACKWARD = re.compile(r"^autograd::engine::evaluate_function: CompiledFunctionBackward")
_GRAPH, _EAGER = re.compile(r"^## Call CompiledFxGraph"), re.compile(r"^(?!autograd::engine)\w+::")


def find(situation: Situation) -> Iterator[Change]:
    """Find the host's time around compiled graphs, where a step has many."""
    view = situation.view
    if situation.calls is None and (view.device_traced or not used_no_device(view.trace)):
        return
    forward, graphs = _rows(view, _FORWARD), _rows(view, _GRAPH)
    per_step = _pieces(view, forward, graphs) / max(1, len(view.steps))
    if per_step <= LEAST:
        return
    around = _union(view, np.append(forward, _rows(view, _BACKWARD)))
    windows = subtract(around, _union(view, np.append(graphs, _rows(view, _EAGER))))
    least = max(LEFT[0], 1.0 / per_step)

    def edit(model: StepModel, level: float) -> StepModel:
        left = least + max(0.0, LEFT[1] - least) * level
        return model.without_host(shortened(windows, 1.0 - left))

    yield Change(f"{per_step:,.0f} compiled pieces a step", per_step, edit, uncertain=True, occurs=windows)


def _pieces(view: RankView, forward: Ints, graphs: Ints) -> int:
    """Return how many operators of compiled regions call graphs; a server's one may call a graph for each layer."""
    host = view.trace.host
    mine = graphs[contains(_union(view, forward), host.start[graphs])]
    inside = view.links.nesting.innermost(host.track[mine], host.start[mine])
    return len(set(inside[inside >= 0].tolist()))


def _rows(view: RankView, fits: re.Pattern[str]) -> Ints:
    """Return the host rows of a kind in the steps."""
    host = view.trace.host
    rows = np.flatnonzero(view.trace.host_named(fits.match))
    return rows[contains(Intervals(view.steps.start, view.steps.end), host.start[rows])]


def _union(view: RankView, rows: Ints) -> Intervals:
    return union(view.trace.host.start[rows], view.trace.host.end[rows])


REMEDY = Remedy(
    name="graph_breaks",
    title="Compile the step in one piece, without graph breaks",
    advice="TORCH_LOGS=graph_breaks names each place: move prints, .item() and unsupported calls out of the compiled "
    "code, or compile the whole model where parts are compiled by themselves.",
    code="model = torch.compile(model, fullgraph=True)  # an error names the first break\n"
    "# torch._dynamo.config.capture_scalar_outputs = True for .item()",
    costs="Compiling one large graph takes longer than several equal small ones.",
    unknown="Of the host's time around the graphs one piece's share (5 % at least) to 60 % is left; that larger graphs "
    "fuse more counts as nothing.",
    needs="A recording of a program that torch.compile compiled, with host activity.",
    effort=Effort.FEW_LINES,
    proof="edited",
    by_call=False,
    mends=("HP201",),
    find=find,
)
