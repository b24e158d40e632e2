"""Conversions of layouts around a convolution, by hand: 10 before it, 5 after it, in a step of 100 µs."""

from __future__ import annotations

from pathlib import Path

from builder import TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import layouts

TO = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>"
FROM = "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, true, false, (cudnnKernelDataType_t)0>"


def loop(before: str, after: str) -> TraceBuilder:
    out = TraceBuilder().steps(4, 100)
    for at in range(0, 400, 100):
        out.host("aten::cudnn_convolution", at + 2, 20)
        out.kernel(before, at + 10, 10, launch=at + 3)
        out.kernel("implicit_convolve_sgemm", at + 21, 60, launch=at + 7)
        out.kernel(after, at + 82, 5, launch=at + 11)
        out.host("cudaStreamSynchronize", at + 25, 64, cat="cuda_runtime", stream=7)
    return out


def test_conversions_go_or_half_of_them_stays(tmp_path: Path) -> None:
    bench = Bench.of(loop(TO, FROM), layouts.REMEDY, tmp_path)
    assert bench.now == 100
    assert bench.changes[0].where == "2 conversions between NCHW and NHWC"
    # The convolution starts 9 earlier: 4 behind the work before it, not behind a launch; 6 behind it are gone, too.
    assert (bench.with_it(), bench.with_it(1.0)) == (85, 89)


def test_other_transpositions_are_the_program_s(tmp_path: Path) -> None:
    assert not Bench.of(loop("void transpose_readWrite", "copy_kernel"), layouts.REMEDY, tmp_path).changes
    assert Bench.of(loop("batched_transpose_32x32_half.kd", "copy_kernel"), layouts.REMEDY, tmp_path).changes
