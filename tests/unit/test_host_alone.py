"""Recordings without device rows: which of them show that no device was used."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.graph_mode.verdict import decide


def operators(count: int = 24, name: str = "aten::mm") -> TraceBuilder:
    trace = TraceBuilder()
    for k in range(count):
        trace.host(name, 100 * k, 80)
    return trace


def said(trace: TraceBuilder, tmp_path) -> tuple[str, str]:
    graph = decide([trace.reduce(tmp_path)]).answer
    assert graph.command
    return graph.verdict, graph.reason


NONE_USED, NOT_RECORDED = ("no", "no_device_used"), ("cannot say", "no_device_rows")


def test_operators_alone_do_not_tell_where_they_ran(tmp_path):
    assert said(operators(), tmp_path) == NOT_RECORDED


@pytest.mark.parametrize(
    ("device", "answer"),
    [
        ({"kind": "cpu"}, NONE_USED),
        ({"kind": "cpu", "unrecorded": "mps"}, NOT_RECORDED),
        ({"kind": "cuda"}, NOT_RECORDED),
    ],
)
def test_our_recorder_tells_that_there_was_no_accelerator(tmp_path, device, answer):
    trace = operators()
    trace.header["hpuprof"] = {"device": device}
    assert said(trace, tmp_path) == answer


def test_without_a_device_nothing_waits_for_one(tmp_path):
    trace = operators().steps(4, 600)
    trace.header["hpuprof"] = {"device": {"kind": "cpu"}}
    plan = trace.reduce(tmp_path).plan
    assert {row.reason for row in plan if row.remedy in ("read_backs", "uploads", "fp8")} == {"no_place"}
    assert "used no device" in next(row.why for row in plan if row.remedy == "uploads")


@pytest.mark.parametrize(
    ("calls", "count", "answer"),
    [
        (["cudaGetDeviceCount", "cudaDeviceSynchronize"], 24, NONE_USED),
        (["cudaGetDeviceCount", "cudaDeviceSynchronize"], 4, NOT_RECORDED),  # the work may lie outside
        (["cudaLaunchKernel"], 24, NOT_RECORDED),  # its rows are missing
        (["cudaMemcpyAsync"], 24, NOT_RECORDED),
    ],
)
def test_recorded_calls_tell_by_giving_a_device_work_or_not(tmp_path, calls, count, answer):
    trace = operators(count)
    for k, call in enumerate(calls):
        trace.host(call, 5_000 + 10 * k, 5, cat="cuda_runtime")
    assert said(trace, tmp_path) == answer


@pytest.mark.parametrize(
    ("device_type", "every", "answer"),
    [(0, 1, NONE_USED), (1, 1, NOT_RECORDED), (0, 6, NOT_RECORDED)],  # the last: small tensors beside a device's
)
def test_allocations_tell_where_results_lie(tmp_path, device_type, every, answer):
    trace = operators()
    for k in range(0, 24, every):
        trace.event(
            ph="i", name="[memory]", ts=100 * k + 5, pid=1, tid=1, args={"Device Type": device_type, "Bytes": 4096}
        )
    assert said(trace, tmp_path) == answer


@pytest.mark.parametrize(
    ("products", "held", "answer"),
    [(24, 24, NONE_USED), (24, 23, NOT_RECORDED), (19, 19, NOT_RECORDED), (0, 24, NOT_RECORDED)],
)
def test_products_tell_by_what_the_implementation_of_the_cpu_calls(tmp_path, products, held, answer):
    trace = TraceBuilder()
    for k in range(24):
        trace.host("aten::addmm" if k < products else "aten::linear", 100 * k, 30)
        trace.host("aten::relu", 100 * k + 40, 40)  # most of the time
        if k < held:
            trace.host("aten::resolve_conj", 100 * k + 5, 1)
    assert said(trace, tmp_path) == answer


@pytest.mark.parametrize("every", [100, 200_000])
def test_products_of_a_long_recording_on_several_threads_are_found_by_time(tmp_path, every):
    """Tracks times the length of the recording fit no 32 bits: 2.4 ms, and 4.8 s, in ns."""
    trace = TraceBuilder()
    for k in range(24):
        thread = (100, 100 + k % 3)
        trace.host("aten::mm", every * k, 30, thread=thread).host("aten::resolve_conj", every * k + 5, 1, thread=thread)
        trace.host("aten::relu", every * k + 40, 40, thread=thread)
    assert said(trace, tmp_path) == NONE_USED


@pytest.mark.parametrize(
    ("inner", "answer"),
    [
        ("aten::mkldnn_convolution", NONE_USED),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", NONE_USED),
        ("aten::cudnn_convolution", NOT_RECORDED),
        ("aten::_flash_attention_forward", NOT_RECORDED),
    ],
)
def test_kernels_that_one_kind_of_device_has_tell(tmp_path, inner, answer):
    trace = operators(name="aten::conv2d")
    for k in range(24):
        trace.host(inner, 100 * k + 5, 70)
    assert said(trace, tmp_path) == answer


@pytest.mark.parametrize(
    ("name", "head"),
    [("aten::cudnn_convolution", "The device was not recorded:"), ("aten::convolution", "CPU-only recording:")],
)
def test_an_operator_that_only_a_device_has_is_no_recording_of_the_cpu_alone(tmp_path, name, head):
    report = hpuprof.analyze(operators(name=name).write(tmp_path / "t.json"), jobs=1, cache="off")
    assert report.headline.sentence.startswith(head)


def test_a_range_of_the_users_around_all_is_no_operator(tmp_path):
    """One augmentation on the CPU says nothing of the model within the same range."""
    trace = operators().host("model_inference", 0, 3_000).host("aten::mkldnn_convolution", 5, 60)
    assert said(trace, tmp_path) == NOT_RECORDED


@pytest.mark.parametrize(("launches", "answer"), [(0, NOT_RECORDED), (2, ("no", "no_launches")), (3, NOT_RECORDED)])
def test_steps_of_two_launches_have_nothing_to_capture_whatever_their_rows(tmp_path, launches, answer):
    trace = operators().steps(4, 600)
    for k in range(4 * launches):
        trace.host("cudaLaunchKernel", 600 * (k // launches) + 20 * (k % launches) + 5, 5, cat="cuda_runtime")
    if not launches:
        trace.host("cudaMemcpyAsync", 5, 5, cat="cuda_runtime")
    assert said(trace, tmp_path) == answer
