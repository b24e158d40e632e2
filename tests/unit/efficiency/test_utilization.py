"""What share of the peak steps and operators reach, worked by hand."""

from __future__ import annotations

import re
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


NAMES = {
    "GAUDI2": "Gaudi 2",
    "GAUDI3": "Gaudi 3",
    "Tesla T4": "T4",
    "NVIDIA GeForce RTX 2080 Ti": "RTX 2080 Ti",
    "Quadro RTX 6000": "Quadro RTX 6000",
    "Tesla V100-PCIE-32GB": "V100 PCIe",
    "Tesla V100-SXM2-32GB": "V100 SXM2",
    "Tesla V100-DGXS-32GB": "V100 SXM2",
    "NVIDIA A10": "A10",
    "NVIDIA A10G": "A10G",
    "NVIDIA A30": "A30",
    "NVIDIA A40": "A40",
    "NVIDIA RTX A6000": "RTX A6000",
    "NVIDIA GeForce RTX 3090": "RTX 3090",
    "NVIDIA A100-PCIE-40GB": "A100 PCIe, 40 GB",
    "NVIDIA A100 80GB PCIe": "A100 PCIe, 80 GB",
    "NVIDIA A100-SXM4-80GB": "A100 SXM, 80 GB",
    "NVIDIA A100-SXM4-40GB": "A100 SXM, 40 GB",
    "NVIDIA A100-PG509-200": "A100 SXM, 40 GB",
    "NVIDIA L4": "L4",
    "NVIDIA L40": "L40",
    "NVIDIA L40S": "L40S",
    "NVIDIA RTX 6000 Ada Generation": "RTX 6000 Ada",
    "NVIDIA GeForce RTX 4090": "RTX 4090",
    "NVIDIA H100 PCIe": "H100 PCIe",
    "NVIDIA H100 NVL": "H100 NVL",
    "NVIDIA H100 80GB HBM3": "H100 SXM",
    "NVIDIA H200": "H200 SXM",
    "NVIDIA GH200 480GB": "GH200, 96 GB",
    "NVIDIA B200": "B200",
    "NVIDIA B300 SXM6 AC": "B300",
    "AMD Instinct MI100": "MI100",
    "AMD Instinct MI210": "MI210",
    "AMD Instinct MI250": "MI250, one of two dies",
    "AMD Instinct MI250X": "MI250X, one of two dies",
    "AMD Instinct MI300A": "MI300A",
    "AMD Instinct MI300X": "MI300X",
    "AMD Instinct MI300X VF": "MI300X",
    "AMD Instinct MI325X": "MI325X",
    "AMD Instinct MI350X": "MI350X",
    "AMD Instinct MI355X": "MI355X",
    "gfx908": "MI100",
    "gfx90a": "gfx90a (MI210, MI250, MI250X)",
    "gfx942": "gfx942 (MI300A, MI300X, MI325X)",
    "gfx950": "gfx950 (MI350X, MI355X)",
}
"""Devices as traces name them, and the peaks that are theirs."""


def test_each_device_has_the_peaks_of_its_own_name() -> None:
    for device, name in NAMES.items():
        fitting = [peak.name for peak in peaks() if re.search(peak.match, device, re.IGNORECASE)]
        assert fitting == [name], device
        assert peak_of(device) in peaks()
    assert {peak.name for peak in peaks()} == set(NAMES.values())
    assert len({peak.name for peak in peaks()}) == len(peaks())
    unknown = ["NVIDIA GeForce RTX 4090 D", "NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3090 Ti"]
    assert [peak_of(name) for name in (None, "", "NVIDIA A1000", "Tesla V100S-PCIE-32GB", *unknown)] == [None] * 7


def test_peaks_fit_each_other() -> None:
    for peak in peaks():
        tflops = peak.dense_tflops
        half = tflops.get("bf16", tflops.get("fp16", 0))
        assert peak.source, peak.name
        assert half > 0, peak.name
        assert half <= tflops.get("fp8", half) <= 2.05 * half, peak.name
        assert tflops.get("fp64", 0) <= tflops.get("fp32", half) <= half, peak.name
        assert (peak.without_tf32_tflops or 0) <= tflops.get("fp32", 0), peak.name
        assert 0.2 < peak.memory_tb_per_s < 10, peak.name


TENSILE = "Cijk_Ailk_Bljk_BBS_BH_MT256x112x64_MI16x16x16x1_SN_GSU1_ISA{}_IU1_K1_KLA"


@pytest.mark.parametrize(
    ("kernels", "header", "found"),
    [
        ([TENSILE.format("942")], {}, "gfx942"),
        ([TENSILE.format("942"), TENSILE.format("90a"), TENSILE.format("90a")], {}, "gfx90a"),
        ([TENSILE.format("942")], {"deviceProperties": [{"id": 0, "name": ""}]}, "gfx942"),
        (
            [TENSILE.format("942")],
            {"deviceProperties": [{"id": 0, "name": "AMD Instinct MI300X"}]},
            "AMD Instinct MI300X",
        ),
        ([TENSILE.format("1100")], {}, None),
        (["triton_ISA942_", "void at::native::elementwise_kernel"], {}, None),
    ],
)
def test_kernels_say_for_which_chip_they_were_built(kernels, header, found, tmp_path: Path) -> None:
    built = TraceBuilder(**header).steps(4, 100)
    for step in range(4):
        product(built, 100 * step + 10)
        for i, kernel in enumerate(kernels):
            at = 100 * step + 11 + 2 * i
            built.kernel(kernel, at + 20, 2, launch=at, call="hipLaunchKernel", call_dur=1)
    part = built.reduce(tmp_path)
    assert (part.file.family, part.file.device_name) == ("rocm", found)
    assert {row.at_peak_ns for row in steps(part)} == {None if peak_of(found) is None else round(FLOPS / PEAK[found])}


PEAK = {"gfx942": 1307e3, "gfx90a": 191.5e3, "AMD Instinct MI300X": 1307e3}
"""Operations a ns in 16 bits."""


def test_kernels_of_other_families_name_no_chip(tmp_path: Path) -> None:
    built = TraceBuilder().steps(4, 100)
    for step in range(4):
        built.kernel(TENSILE.format("942"), 100 * step + 30, 5, launch=100 * step + 13)
    assert built.reduce(tmp_path).file.device_name is None
