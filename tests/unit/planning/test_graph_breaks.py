"""Compiled pieces of a step, by hand: each takes 40 µs of the host, of which 10 launch its kernel."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies.graph_breaks import LEAST, LEFT, REMEDY

STEP, PIECE, LAUNCH = 1000, 40, 10


def pieces(count: int, *, kernel: float = 4, backward: bool = False) -> TraceBuilder:
    """Write steps of so many compiled pieces, each a region around a call of its graph; the lookup before is part of it."""
    out = TraceBuilder()
    for step in range(6):
        begin = STEP * step
        out.step(step, begin, STEP)
        for k in range(count):
            at = begin + 10 + (PIECE + 10) * k
            if backward:  # behind forward, whose pieces take no time here
                out.host(f"Torch-Compiled Region: {min(k, 1)}/{k}", begin + 1 + k, 0.5)
                out.annotation("## Call CompiledFxGraph fdef ##", begin + 1.1 + k, 0.4)
                out.host("autograd::engine::evaluate_function: CompiledFunctionBackward", at, PIECE)
            else:
                out.host("TorchDynamo Cache Lookup", at, 5)
                out.host(f"Torch-Compiled Region: {min(k, 1)}/{k}", at + 5, PIECE - 5)
            out.annotation("## Call CompiledFxGraph fabc ##", at + 20, LAUNCH)
            start = max(at + 26, begin + 36 + (kernel + 1) * k)  # one after the other
            out.kernel(f"triton_poi_{k}", start, kernel, launch=at + 22)
    return out


@pytest.mark.parametrize("backward", [False, True])
def test_the_time_around_the_graphs_goes_but_for_one_piece(tmp_path, backward):
    bench = Bench.of(pieces(8, backward=backward), REMEDY, tmp_path)
    (change,) = bench.changes
    assert change.where == "8 compiled pieces a step"
    assert change.per_step == 8
    around = 8 * (PIECE - LAUNCH)
    assert bench.now - bench.with_it(level=0.0) == pytest.approx(around * 7 / 8, abs=2)
    assert bench.now - bench.with_it(level=1.0) == pytest.approx(around * (1 - LEFT[1]), abs=2)


def test_nothing_is_gained_where_the_device_is_what_the_step_waits_for(tmp_path):
    bench = Bench.of(pieces(8, kernel=123), REMEDY, tmp_path)
    assert bench.now == pytest.approx(STEP, abs=10)
    assert bench.now - bench.with_it() == pytest.approx(0, abs=10)


def test_a_model_its_loss_and_the_optimizer_are_no_breaks(tmp_path):
    assert Bench.of(pieces(LEAST), REMEDY, tmp_path).changes == []
    assert len(Bench.of(pieces(LEAST + 1), REMEDY, tmp_path / "more").changes) == 1


def test_a_server_that_calls_a_graph_for_each_layer_has_no_breaks(tmp_path):
    layers = TraceBuilder()
    for step in range(6):
        begin = STEP * step
        layers.step(step, begin, STEP)
        layers.host("Torch-Compiled Region: 0/0", begin + 10, 500)
        for k in range(8):
            at = begin + 20 + 60 * k
            layers.annotation("## Call CompiledFxGraph fabc ##", at, 20)
            layers.kernel(f"triton_poi_{k}", at + 6, 4, launch=at + 2)
            layers.host("vllm::unified_attention", at + 22, 30)
    assert Bench.of(layers, REMEDY, tmp_path).changes == []


def test_eager_operators_between_the_pieces_keep_their_time(tmp_path):
    plain, mixed = pieces(8), pieces(8)
    for step in range(6):
        for k in range(8):
            mixed.host("aten::item", STEP * step + 10 + (PIECE + 10) * k + 32, 6)
    saved = []
    for name, builder in (("plain", plain), ("mixed", mixed)):
        bench = Bench.of(builder, REMEDY, tmp_path / name)
        saved.append(bench.now - bench.with_it())
    assert saved[0] - saved[1] == pytest.approx(8 * 6 * 7 / 8, abs=3)
