"""Products far from the roofline, by hand: one a step of 1,000 µs, whose kernel takes 800 where 278 would do."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

from hpuprof.analysis.rank_view import RankView
from hpuprof.planning.remedies.faster_products import REMEDY
from hpuprof.planning.situation import Situation
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.launch_model import LaunchModel

H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
V100 = {"deviceProperties": [{"id": 0, "name": "Tesla V100-SXM2-32GB"}]}
A100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]}
INNER = 2048
ROOF = 2 * 8192 * 8192 * INNER / 989e6  # µs


def product(
    *,
    inner: int = INNER,
    kind: str = "c10::BFloat16",
    header: dict = H100,
    operator: str = "aten::mm",
    dur: float = 800,
) -> TraceBuilder:
    out = TraceBuilder(**header).steps(4, 1000)
    for at in range(0, 4000, 1000):
        out.host(operator, at + 1, 6, **{"Input Dims": [[8192, inner], [inner, 8192]], "Input type": [kind, kind]})
        out.kernel("nvjet_hsh_128x256", at + 7, dur, launch=at + 2)
        out.host("cudaStreamSynchronize", at + 10, dur - 1, cat="cuda_runtime", stream=7)
    return out


def test_a_product_comes_to_four_fifths_of_the_roofline_at_best(tmp_path):
    bench = Bench.of(product(), REMEDY, tmp_path)
    (change,) = bench.changes
    assert change.where == (
        "100% of the device's time, at 35% of the roofline; most in aten::mm of 8192x2048 by 2048x8192"
    )
    assert change.per_step == 1
    assert change.uncertain
    most = 800 - ROOF / 0.8
    assert bench.now - bench.with_it(0.0) == pytest.approx(most, abs=0.1)
    assert bench.now - bench.with_it(0.5) == pytest.approx(most / 4, abs=0.1)
    assert bench.with_it(1.0) == bench.now
    assert change.ideal is not None
    assert change.touches.sum() == bench.model.program.steps


def test_several_rows_of_one_product_are_measured_together(tmp_path):
    """Each of the two takes less than the roofline says of the whole product."""
    trace = product(dur=200)
    for at in range(0, 4000, 1000):
        trace.kernel("splitKreduce_kernel", at + 207, 200, launch=at + 4)
    bench = Bench.of(trace, REMEDY, tmp_path)
    assert bench.changes[0].where.startswith("100% of the device's time, at 69%")
    assert Bench.of(product(dur=200), REMEDY, tmp_path / "one").changes == []


def test_the_first_two_matrices_are_named(tmp_path):
    trace = TraceBuilder(**H100).steps(4, 1000)
    shapes = {"Input Dims": [[8, 4096, 64], [8, 4096, 2048], [8, 2048, 64]], "Input type": ["c10::BFloat16"] * 3}
    for at in range(0, 4000, 1000):
        trace.host("aten::baddbmm", at + 1, 6, **shapes).kernel("gemm", at + 7, 800, launch=at + 2)
    (change,) = Bench.of(trace, REMEDY, tmp_path).changes
    assert change.where.endswith("most in aten::baddbmm of 8x4096x64 by 8x4096x2048")


@pytest.mark.parametrize(
    ("first", "second", "named"),
    [
        ([4097, 4097], [4097, 4097], "4097x4097 by 4097x4097: no multiple of 8 is 4097"),
        ([8, 4000, 100], [8, 100, 3001], "8x4000x100 by 8x100x3001: no multiple of 8 is 100, 3001"),
        ([3, 4096, 64], [3, 64, 4096], "3x4096x64 by 3x64x4096"),
        ([4096, 1], [1, 4096], "4096x1 by 1x4096"),
    ],
)
def test_sizes_that_fast_kernels_do_not_take_are_named(first, second, named, tmp_path):
    """A batch is no row of a matrix, and nothing can be done for a vector."""
    trace = TraceBuilder(**H100).steps(4, 1000)
    shapes = {"Input Dims": [first, second], "Input type": ["c10::BFloat16"] * 2}
    operator = "aten::mm" if len(first) == 2 else "aten::bmm"
    for at in range(0, 4000, 1000):
        trace.host(operator, at + 1, 6, **shapes).kernel("gemm", at + 7, 800, launch=at + 2)
    (change,) = Bench.of(trace, REMEDY, tmp_path).changes
    assert change.where.endswith(f"most in {operator} of {named}")


def test_a_short_kernel_is_left(tmp_path):
    """Of 64x64 by 64x64 the roofline says 0.01 µs, and no kernel takes so little."""
    trace = TraceBuilder(**H100).steps(4, 100)
    small = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["c10::BFloat16"] * 2}
    for at in range(0, 400, 100):
        trace.host("aten::mm", at + 1, 6, **small).kernel("gemm", at + 7, 4.9, launch=at + 2)
    assert Bench.of(trace, REMEDY, tmp_path).changes == []


@pytest.mark.parametrize(
    ("trace", "reason"),
    [
        (product(dur=300), "no_place"),
        (product(kind="float", header=A100, dur=900), "no_place"),
        (product(kind="double"), "no_place"),
        (product(header=V100, dur=900), "no_place"),
        (product(header={}), "not_told"),
        (product(operator="aten::add"), "not_told"),
    ],
    ids=[
        "near the roofline",
        "fp32, where fewer bits come first",
        "fp64",
        "no peak of the type",
        "unknown peaks",
        "no product",
    ],
)
def test_other_products_are_left_with_the_reason(tmp_path, trace, reason):
    assert Bench.of(trace, REMEDY, tmp_path).changes == []
    view = RankView.of(trace.trace(tmp_path / "again"))
    model = LaunchModel.of(view, constants_for(view.trace.family, view.trace.mode, None))
    assert model is not None
    assert REMEDY.absent is not None
    assert REMEDY.absent(Situation(model))[0] == reason
