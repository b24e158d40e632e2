"""Matrix operators in fewer bits, by hand.

A step of 100 µs: a matrix kernel of 80 launched at 2, 5 later on its lane; the host waits for it, sees it 2 after its
end and works on to the step's end.
"""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from remedy_bench import Bench

from hpuprof.planning.remedies import lower_precision

A100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA A100-SXM4-80GB"}]}
LARGE, THIN = 1024, 1


def loop(
    kernel: str, *, kind: str | None = None, inner: int = LARGE, header: dict | None = None, dur: float = 80
) -> TraceBuilder:
    out = TraceBuilder(**(A100 if header is None else header)).steps(4, 100)
    shapes = {"Input Dims": [[1024, inner], [inner, 1024]], "Input type": [kind, kind]} if kind else {}
    for at in range(0, 400, 100):
        out.host("aten::mm", at + 1, 6, **shapes)
        out.kernel(kernel, at + 7, dur, launch=at + 2)
        out.host("cudaStreamSynchronize", at + 10, dur - 1, cat="cuda_runtime", stream=7)
    return out


def test_half_the_bits_take_at_least_the_ratio_of_the_peaks(tmp_path):
    bench = Bench.of(loop("cutlass_80_tensorop_s1688gemm_256x128"), lower_precision.HALF, tmp_path)
    assert bench.now == 100
    assert bench.with_it(0.0) == 100 - 80 * (1 - 156 / 312)
    assert bench.with_it(1.0) == 100
    assert bench.changes[0].where == "1 kernel of matrix operators on fp32, 100% of the device's time"


def test_casts_cost_the_host_two_more_launches(tmp_path):
    bench = Bench.of(loop("sgemm", dur=5), lower_precision.HALF, tmp_path)
    # 1 before it and 2 in it, at worst half as much again, of which 2 hid behind the kernel.
    assert bench.with_it(1.0) == pytest.approx(100 + 2 * 1.5 * 3 - 2)


def training(kernels: int = 1) -> TraceBuilder:
    """Steps of 300 µs of host work: forward with a product of some kernels and an addition, 20 µs to launch each, then
    backward, then an optimizer with ten launches of 3 µs."""
    out = TraceBuilder(**A100).steps(4, 300)
    for at in range(0, 1200, 300):
        out.host("aten::addmm", at + 10, 50)
        for i in range(kernels):
            out.kernel("sgemm", at + 36 + 4 * i, 3, launch=at + 28 + 4 * i)
        out.host("aten::add", at + 70, 24).kernel("add", at + 100, 3, launch=at + 88)
        out.host("autograd::engine::evaluate_function: AddBackward0", at + 110, 24)
        out.kernel("add", at + 140, 3, launch=at + 128)
        out.annotation("Optimizer.step#AdamW.step", at + 150, 50)
        for i in range(10):
            out.host("aten::mul_", at + 151 + 4 * i, 3.5).kernel("mul", at + 160 + 4 * i, 1, launch=at + 152 + 4 * i)
    return out


def test_a_cast_costs_what_a_launch_of_the_model_does_not_one_of_the_optimizer(tmp_path):
    bench = Bench.of(training(), lower_precision.HALF, tmp_path)
    assert bench.with_it(1.0) == pytest.approx(bench.now + 2 * 1.5 * (18 + 2))


def test_an_operator_of_several_kernels_casts_once(tmp_path):
    """Layouts converted around a convolution, products split over K: more kernels, as many tensors to cast."""
    added = []
    for kernels in (1, 3):
        bench = Bench.of(training(kernels), lower_precision.HALF, tmp_path / str(kernels))
        calls = bench.changes[0].edit(bench.model, 1.0).schedule.calls
        added.append(calls.cost.sum() - bench.model.schedule.calls.cost.sum())
    assert added[1] == pytest.approx(added[0])


def test_what_profiling_cost_is_no_part_of_a_cast(tmp_path):
    bench = Bench.of(loop("sgemm", dur=5), lower_precision.HALF, tmp_path)
    after = bench.changes[0].edit(bench.model, 1.0)
    added = after.schedule.calls.cost_rows - bench.model.schedule.calls.cost_rows
    assert added.sum(axis=1).max() == 2 * 1.5 * 2, "two casts, half as costly again as two rows: operator and launch"


def test_kernels_without_tf32_gain_more_and_have_a_remedy_of_their_own(tmp_path):
    trace = loop("ampere_sgemm_128x64_nn")
    assert Bench.of(trace, lower_precision.HALF, tmp_path).with_it() == pytest.approx(100 - 80 * (1 - 19.5 / 312))
    tf32 = Bench.of(trace, lower_precision.TF32, tmp_path)
    assert tf32.with_it() == pytest.approx(100 - 80 * (1 - 19.5 / 156))
    assert tf32.with_it(1.0) == 100
    assert not Bench.of(loop("cutlass_80_tensorop_s1688gemm"), lower_precision.TF32, tmp_path).changes


def test_where_memory_is_the_limit_bytes_count(tmp_path):
    thin = loop("ampere_sgemm_128x64_nn", kind="float", inner=THIN)
    assert Bench.of(thin, lower_precision.HALF, tmp_path).with_it() == pytest.approx(100 - 40)
    assert Bench.of(thin, lower_precision.TF32, tmp_path).with_it() == 100
    large = loop("ampere_sgemm_128x64_nn", kind="float")
    assert Bench.of(large, lower_precision.HALF, tmp_path).with_it() < 100 - 60


def test_unknown_peaks_allow_half(tmp_path):
    assert Bench.of(loop("sgemm", header={}), lower_precision.HALF, tmp_path).with_it() == 60
    assert not Bench.of(loop("sgemm", header={}), lower_precision.TF32, tmp_path).changes


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [("ampere_fp16_s16816gemm_fp16_128x64", None), ("ampere_bf16_s16816gemm", None), ("gemm", "c10::BFloat16")],
)
def test_what_is_in_fewer_bits_already_stays(tmp_path, kernel, kind):
    assert not Bench.of(loop(kernel, kind=kind), lower_precision.HALF, tmp_path).changes


def test_a_matrix_kernel_counts_whichever_operator_launched_it(tmp_path):
    out = TraceBuilder(**A100).steps(4, 100)
    for at in range(0, 400, 100):
        out.host("fbgemm::custom", at + 1, 6).kernel("volta_sgemm_128x32_nt", at + 7, 80, launch=at + 2)
        out.host("cudaStreamSynchronize", at + 10, 79, cat="cuda_runtime", stream=7)
    assert Bench.of(out, lower_precision.HALF, tmp_path).with_it() < 100 - 40


@pytest.mark.parametrize(
    ("kernel", "saved"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", 5),
        ("void at::native::(anonymous namespace)::indexSelectLargeIndex<float>", 0),
        ("split_embedding_codegen_forward_unweighted_kernel<float>", 0),
    ],
)
def test_kernels_that_compute_on_what_matrix_operators_give_move_half_the_bytes(tmp_path, kernel, saved):
    out = TraceBuilder(**A100).steps(4, 100)
    for at in range(0, 400, 100):
        out.host("forward", at, 99, cat="user_annotation").host("aten::mm", at + 1, 3).host("aten::add", at + 4, 3)
        out.kernel("cutlass_80_tensorop_s1688gemm_256x128", at + 7, 70, launch=at + 2)
        out.kernel(kernel, at + 77, 10, launch=at + 5)
        out.host("cudaStreamSynchronize", at + 10, 79, cat="cuda_runtime", stream=7)
    bench = Bench.of(out, lower_precision.HALF, tmp_path)
    assert bench.with_it() == pytest.approx(bench.now - 35 - saved)


@pytest.mark.parametrize(("single", "saved"), [(30, 15), (50, 25 + 5)])
def test_what_a_model_on_16_bits_casts_up_on_purpose_stays(tmp_path, single, saved):
    """A product of 80 µs in all, `single` of them on fp32, then 10 µs of additions: they follow what most products are on."""
    out = TraceBuilder(**A100).steps(4, 100)
    for at in range(0, 400, 100):
        out.host("forward", at, 99, cat="user_annotation").host("aten::mm", at + 1, 2)
        out.host("aten::mm", at + 3, 2).host("aten::add", at + 5, 2)
        out.kernel("cutlass_80_tensorop_s1688gemm_256x128", at + 7, single, launch=at + 2)
        out.kernel("ampere_bf16_s16816gemm_bf16_128x64", at + 7 + single, 80 - single, launch=at + 4)
        out.kernel("void at::native::vectorized_elementwise_kernel<4, Add<float>>", at + 87, 10, launch=at + 6)
        out.host("cudaStreamSynchronize", at + 10, 89, cat="cuda_runtime", stream=7)
    bench = Bench.of(out, lower_precision.HALF, tmp_path)
    assert bench.with_it() == pytest.approx(bench.now - saved)


H100 = {"deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}]}
HALVES = "c10::BFloat16"


def of_half(operator: str = "aten::mm", *, inner: int = 8192, kind: str = HALVES, header: dict = H100) -> TraceBuilder:
    """A product of 16 bits that takes 800 of 1000 µs."""
    out = TraceBuilder(**header).steps(4, 1000)
    for at in range(0, 4000, 1000):
        out.host(operator, at + 1, 6, **{"Input Dims": [[8192, inner], [inner, 8192]], "Input type": [kind, kind]})
        out.kernel("nvjet_hsh_128x256", at + 7, 800, launch=at + 2)
        out.host("cudaStreamSynchronize", at + 10, 799, cat="cuda_runtime", stream=7)
    return out


def test_fp8_takes_at_least_the_ratio_of_the_peaks_and_half_a_pass_for_casts(tmp_path):
    bench = Bench.of(of_half(), lower_precision.FP8, tmp_path)
    passes = 3 * 8192 * 8192 * 2 / 3.35e6  # µs for operands and result
    assert bench.changes[0].where == "1 kernel of matrix operators in 16 bits, 100% of the device's time"
    assert bench.with_it(0.0) == pytest.approx(1000 - 800 * (1 - 989 / 1979) + 0.5 * passes, abs=0.1)
    assert bench.with_it(1.0) == pytest.approx(1000 + 2.5 * passes, abs=0.1)


def test_thin_products_lose_in_fp8(tmp_path):
    bench = Bench.of(of_half(inner=16), lower_precision.FP8, tmp_path)
    assert bench.with_it(1.0) > 1000


@pytest.mark.parametrize(
    "trace",
    [of_half("aten::bmm"), of_half(kind="float"), of_half(header=A100)],
    ids=["attention", "fp32", "a device without fp8"],
)
def test_fp8_is_for_linear_layers_in_16_bits_where_the_device_has_it(tmp_path, trace):
    assert Bench.of(trace, lower_precision.FP8, tmp_path).changes == []
