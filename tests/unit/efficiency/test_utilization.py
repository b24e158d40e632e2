"""What share of the peak steps and operators reach, worked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from builder import AUTOGRAD, TraceBuilder

from hpuprof.efficiency.peaks import peak_of, peaks
from hpuprof.model.partial import RankPartial
from hpuprof.model.tables import StepRow

H100: dict[str, Any] = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
SIDE = 1000
FLOPS = 2 * SIDE**3
SHAPES = [[SIDE, SIDE], [SIDE, SIDE]]


def product(trace: TraceBuilder, start: float, dur: float = 8, *, dtype: str = "c10::BFloat16", **args: Any) -> None:
    trace.host("aten::mm", start, dur, **{"Input Dims": SHAPES, "Input type": [dtype] * 2, **args})


def trace(count: int = 4, *, kernel: float = 5, **options: Any) -> TraceBuilder:
    """Steps of 100 µs with two products, each in a matmul and with a kernel."""
    built = TraceBuilder(**H100).steps(count, 100)
    for step in range(count):
        for at in (10, 30):
            now = 100 * step + at
            built.host("aten::matmul", now - 1, 10, **{"Input Dims": SHAPES, "Input type": ["float", "float"]})
            product(built, now, **options)
            built.kernel("gemm", now + 20, kernel, launch=now + 3)
    return built


def steps(part: RankPartial) -> list[StepRow]:
    return [row for row in part.steps if row.used]


def test_a_step_and_its_operators(tmp_path: Path) -> None:
    part = trace().reduce(tmp_path)
    at_peak = 2 * FLOPS / 989e3  # ns: 989 TFLOP/s are 989,000 FLOP a ns
    for row in steps(part):
        assert (row.flops, row.recomputed_flops) == (2 * FLOPS, 0)
        assert row.at_peak_ns == row.model_at_peak_ns == round(at_peak)
        assert row.matrix_busy_ns == 10_000
    (row,) = part.utilisation
    assert (row.name, row.dtype, row.flops, row.count_per_step) == ("aten::mm", "bf16", FLOPS, 2)
    assert row.bytes == 3 * SIDE**2 * 2
    assert row.intensity == pytest.approx(FLOPS / row.bytes)
    assert row.device_per_step_ns == 10_000
    assert row.flops_per_second == pytest.approx(FLOPS / 5e-6)
    assert row.peak_fraction == pytest.approx(FLOPS / 5e-6 / 989e12)
    assert row.bound == "compute"  # 333 operations a byte; the ridge is at 295
    assert row.roofline_fraction == pytest.approx(row.peak_fraction)


def test_memory_bounds_thin_products(tmp_path: Path) -> None:
    built = TraceBuilder(**H100).steps(3, 100)
    for step in range(3):
        thin = {"Input Dims": [[1, SIDE], [SIDE, SIDE]], "Input type": ["c10::BFloat16"] * 2}
        built.host("aten::mm", 100 * step + 10, 8, **thin).kernel("gemv", 100 * step + 40, 2, launch=100 * step + 12)
    (row,) = built.reduce(tmp_path).utilisation
    moved = 2 * (SIDE + SIDE**2 + SIDE)
    assert row.bound == "memory"
    assert row.roofline_fraction == pytest.approx(moved / 3.35e12 / 2e-6)


def test_a_forward_pass_run_again_is_hardware_work_but_not_the_models(tmp_path: Path) -> None:
    built = TraceBuilder(**H100).steps(3, 100)
    forward = {"Sequence number": 3, "Fwd thread id": 0}
    for step in range(3):
        now = 100 * step
        product(built, now + 5, **forward)
        built.host("autograd::engine::evaluate_function: CheckpointFunctionBackward", now + 20, 60, thread=AUTOGRAD)
        product(built, now + 30, thread=AUTOGRAD, **forward)  # again
        product(built, now + 50, thread=AUTOGRAD)  # its gradient: autograd is off
        built.kernel("gemm", now + 60, 5, launch=now + 6)
    for row in steps(built.reduce(tmp_path)):
        assert (row.flops, row.recomputed_flops) == (3 * FLOPS, FLOPS)
        assert row.at_peak_ns is not None
        assert row.model_at_peak_ns == pytest.approx(2 / 3 * row.at_peak_ns, abs=1)


def test_what_is_faster_than_the_peak_is_unknown_and_told(tmp_path: Path) -> None:
    part = trace(kernel=1).reduce(tmp_path)  # 2 GFLOP in 1 µs: twice the peak
    (row,) = part.utilisation
    assert row.flops_per_second is None
    assert row.peak_fraction is None
    assert [d.count for d in part.diagnostics if d.code == "HP191"] == [1]


@pytest.mark.parametrize(
    "lost",
    ["shapes", "graph", "device", "type"],
)
def test_unknown_is_never_zero(tmp_path: Path, lost: str) -> None:
    built = trace(dtype="c10::complex<float>" if lost == "type" else "c10::BFloat16")
    if lost == "shapes":
        built.host("aten::mm", 150, 5)
    if lost == "graph":
        built.host("cudaGraphLaunch", 150, 5, cat="cuda_runtime", correlation=99)
    if lost == "device":
        built.header["deviceProperties"] = [{"id": 0, "name": "Tesla Roadster"}]
    rows = steps(built.reduce(tmp_path))
    assert rows
    for row in rows:
        assert row.at_peak_ns is None
        assert (row.flops is None) == (lost in ("shapes", "graph"))


def test_on_gaudi_no_links_are_needed(tmp_path: Path) -> None:
    built = TraceBuilder(deviceProperties=[{"id": 0, "name": "GAUDI2"}]).steps(3, 100)
    for step in range(3):
        product(built, 100 * step + 10)
        built.lane("GEMM", 100 * step + 40, 20, engine="MME", tid=6000)
    for row in steps(built.reduce(tmp_path)):
        assert row.at_peak_ns == round(FLOPS / 432e3)
        assert row.matrix_busy_ns == 20_000


def test_every_peak_has_a_source_and_a_pattern_of_its_own() -> None:
    names = ["GAUDI2", "GAUDI3", "Tesla V100-SXM2-32GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-PG509-200"]
    names += ["NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA B200", "AMD Instinct MI300X"]
    assert [peak_of(name) for name in names] == list(peaks())
    for peak in peaks():
        assert peak.source
        assert peak.dense_tflops
        assert [p for p in peaks() if p.name == peak.name] == [peak]
    assert peak_of(None) is None
    assert peak_of("NVIDIA GeForce RTX 2080 Ti") is None
    assert peak_of("NVIDIA H100 PCIe") is None
