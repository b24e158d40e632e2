"""Storing gradients next to graphs: a built training step of five layers, with a kernel and a gradient each."""

from __future__ import annotations

import numpy as np
import pytest
from builder import AUTOGRAD, TraceBuilder
from msgspec.structs import replace

from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.regions import find_phases, find_regions, loop_parts
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.play import Sample, pace
from hpuprof.what_if.schedule import GRAPH_COSTS

LAYERS, HANDED, STORE, STEP = 5, 200, 8, 1500  # count, us, us, us


def training(*, adds: bool = False, clips: bool = False) -> TraceBuilder:
    """Return three steps, µs: forward to 300, backward from 500 to 900, optimizer from 1,100 to 1,400."""
    out = TraceBuilder().thread("python", (100, 100)).thread("pt_autograd_0", AUTOGRAD)
    for step in range(3):
        at = step * STEP
        out.step(step, at, STEP)

        def op(name, when, dur, *, thread=(100, 100)):
            out.host(name, when, dur, thread=thread).kernel("k", when + dur, 4, launch=when + dur / 2, thread=thread)

        for layer in range(LAYERS):
            op("aten::mm", at + 10 + 50 * layer, 40)
        op("aten::mse_loss", at + 270, 30)
        for layer in range(LAYERS):
            when = at + 300 + HANDED + 80 * layer
            op("MmBackward0", when, 50, thread=AUTOGRAD)
            name = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"
            out.host(name, when + 60, STORE, thread=AUTOGRAD)
            if adds:
                out.kernel("add", when + 70, 4, launch=when + 62, thread=AUTOGRAD)
        for k in range(4 * clips):
            op("aten::_foreach_norm", at + 900 + 45 * k, 40)
        out.annotation("Optimizer.step#SGD.step", at + 1100, 300)
        for k in range(4):
            op("aten::_foreach_add_", at + 1110 + 70 * k, 60)
    return out


def captured(out: TraceBuilder, folder, region: str, **costs: float) -> float:
    """Return the step time [µs] with a region launched as graphs, which cost nothing but what is given [thousands]."""
    view = RankView.of(out.trace(folder))
    model = LaunchModel.of(view, constants_for("cuda", "eager", None))
    assert model is not None
    phases = find_phases(view, model.program, model.around, loop_parts(view))
    chosen = next(r for r in find_regions(model.program, phases) if r.name == region)
    (done,) = model.capture(chosen, drop_waits=False)
    each = np.array([[costs.get(name, 0.0) * 1000 for name in GRAPH_COSTS]])
    sample = replace(Sample.unchanged(), graph_costs=each)
    return float(pace(done.schedule, sample).step_times[0, -1]) / 1000


@pytest.mark.parametrize("clips", [False, True])
def test_autograd_is_called_and_returns_as_without_graphs(clips, tmp_path):
    """Of a step, 260 us of forward and 388 us of backward go, but for the five stores; ways to its thread stay, and clipping."""
    assert captured(training(clips=clips), tmp_path, "model") == pytest.approx(
        STEP - 260 - 388 + LAYERS * STORE, abs=0.01
    )
    assert captured(training(clips=clips), tmp_path, "forward+backward") == 110 + 300


def test_a_graphed_module_pays_for_each_parameter_pass_and_input(tmp_path):
    """Twice a store of 8 us for each parameter, as for nine of them for each pass; each pass copies an input."""
    free = captured(training(), tmp_path, "model")
    paid = captured(training(), tmp_path, "model", graphed_parameter=2 / 1000)
    assert paid == pytest.approx(free + 2 * STORE * (LAYERS + 2 * 9))
    assert captured(training(), tmp_path, "model", input_copy=100) == pytest.approx(free + 2 * 100)
    assert captured(training(), tmp_path, "model", extra_input=100) == free
    whole = captured(training(), tmp_path, "forward+backward")
    assert captured(training(), tmp_path, "forward+backward", graphed_parameter=2 / 1000) == whole


@pytest.mark.parametrize(("adds", "more"), [(False, LAYERS * 40), (True, 0)])
def test_a_captured_optimizer_has_gradients_added_in_place(adds, more, tmp_path):
    """By as many launches, of 40 us as the quickest quarter of its operators; unless they are added up already."""
    assert captured(training(adds=adds), tmp_path, "optimizer") == STEP - 300 + more


def test_gradients_made_outside_of_the_graphs_pass_through_none(tmp_path):
    view = RankView.of(training().trace(tmp_path))
    model = LaunchModel.of(view, constants_for("cuda", "eager", None))
    assert model is not None
    assert model.around.gradients is not None
    costs = model.around.gradients.as_arguments(model.schedule).calls.graph_costs
    assert not costs.any()
