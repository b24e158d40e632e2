"""Device time: unions, kinds, engines, overlaps, precision; nothing is a sum of rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import MAIN, TraceBuilder

from hpuprof.analysis.device_time import is_low_precision

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"


def test_rows_of_several_streams_count_once(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).device("a", 10, 30).device("b", 20, 30, stream=8).device("c", 70, 10)
    [step] = b.reduce(tmp_path).steps
    assert (step.device_busy_ns, step.device_idle_ns, step.compute_busy_ns, step.device_rows) == (
        50_000,
        50_000,
        50_000,
        3,
    )


def test_exposed_communication_and_copies(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 200).device("gemm", 10, 40).device(NCCL, 30, 60, stream=20)
    b.device("Memcpy HtoD (Pinned -> Device)", 40, 70, cat="gpu_memcpy", stream=21).device(
        "Memset (Device)", 150, 10, cat="gpu_memset"
    )
    [step] = b.reduce(tmp_path).steps
    # compute 10..50; communication 30..90, exposed from 50; copies 40..110 and 150..160, exposed 90..110 and 150..160.
    assert (step.compute_busy_ns, step.communication_busy_ns, step.copy_busy_ns) == (40_000, 60_000, 80_000)
    assert (step.exposed_communication_ns, step.exposed_copy_ns, step.device_busy_ns) == (40_000, 30_000, 110_000)


def test_rows_are_clipped_to_steps(tmp_path: Path):
    part = TraceBuilder().steps(2, 100).device("k", 80, 50).device("k", 190, 40).reduce(tmp_path)
    assert [(s.device_busy_ns, s.device_rows) for s in part.steps] == [(20_000, 1), (40_000, 1)]


def test_waits_and_annotations_drawn_on_the_device_are_no_work(tmp_path: Path):
    b = TraceBuilder().step(0, 0, 100).device("k", 10, 10)
    b.device("Stream Wait Event", 20, 50, cat="cuda_sync").device("ProfilerStep#0", 0, 100, cat="gpu_user_annotation")
    part = b.reduce(tmp_path)
    assert (part.steps[0].device_busy_ns, part.file.device_rows, part.file.ignored) == (
        10_000,
        1,
        {"cuda_sync": 1, "gpu_user_annotation": 1},
    )


def test_lanes_of_one_kernel_are_not_summed(tmp_path: Path):
    b = TraceBuilder().thread("python3", MAIN).step(0, 0, 100)
    for i in range(8):
        b.lane("relu_fwd_f32", 10 + i, 20, engine=f"TPC {i}", tid=7000 + i)
    b.lane("gemm", 20, 40, engine="MME", tid=6000).lane("dma", 60, 20, engine="SPDMA 0", tid=3000, cat="Runtime")
    part = b.reduce(tmp_path)
    [step] = part.steps
    # TPC 10..37, MME 20..60, DMA 60..80.
    assert (step.device_busy_ns, step.compute_busy_ns, step.copy_busy_ns) == (70_000, 50_000, 20_000)
    classes = {e.engine: (e.lanes, e.rows, e.busy_ns, e.busy_fraction) for e in part.engines if not e.lane}
    assert classes == {"TPC": (8, 8, 27_000, 0.27), "MME": (1, 1, 40_000, 0.4), "DMA": (1, 1, 20_000, 0.2)}
    assert {e.lane: e.busy_ns for e in part.engines if e.engine == "TPC" and e.lane} == {
        f"[HD0] TPC {i}": 20_000 for i in range(8)
    }
    overlaps = {(o.engine_a, o.engine_b): (o.overlap_ns, o.fraction_of_a, o.fraction_of_b) for o in part.overlaps}
    assert overlaps == {
        ("DMA", "MME"): (0, 0.0, 0.0),
        ("DMA", "TPC"): (0, 0.0, 0.0),
        ("MME", "TPC"): (17_000, 17 / 40, 17 / 27),
    }


def test_markers_occupy_no_engine(tmp_path: Path):
    b = (
        TraceBuilder()
        .thread("python3", MAIN)
        .step(0, 0, 100)
        .lane("relu", 10, 20, **{"HW event name": "TPC_SPU_START_TO_SPU_HALT"})
    )
    part = b.lane("relu", 40, 20, **{"HW event name": "TPC_QMAN_CMD_EXE"}).reduce(tmp_path)
    assert (part.steps[0].device_busy_ns, part.steps[0].device_rows, part.file.device_rows) == (20_000, 1, 2)


def test_precision_by_engine(tmp_path: Path):
    b = TraceBuilder().thread("python3", MAIN).step(0, 0, 100)
    b.lane("gemm", 0, 30, engine="MME", tid=6000, dataType="bf16").lane(
        "gemm", 20, 10, engine="MME", tid=6001, dataType="bf16"
    )
    b.lane("gemm", 40, 10, engine="MME", tid=6000, dataType="float32").lane("relu", 60, 10)
    rows = [(p.engine, p.dtype, p.busy_ns, p.fraction) for p in b.reduce(tmp_path).precision]
    assert rows == [("MME", "bf16", 30_000, 0.75), ("MME", "float32", 10_000, 0.25), ("TPC", "unknown", 10_000, 1.0)]


def test_without_data_types_there_is_no_precision_table(tmp_path: Path):
    assert TraceBuilder().step(0, 0, 100).device("k", 0, 10).reduce(tmp_path).precision == []


@pytest.mark.parametrize(
    ("dtype", "low"),
    [
        ("bf16", True),
        ("c10::BFloat16", True),
        ("fp16", True),
        ("fp8_143", True),
        ("float8_e4m3fn", True),
        ("float32", False),
        ("int32", False),
    ],
)
def test_low_precision(dtype: str, low: bool):
    assert is_low_precision(dtype) is low


def test_a_device_that_was_not_traced_is_not_idle(tmp_path: Path):
    [step] = TraceBuilder().step(0, 0, 100).host("aten::add", 1, 5).reduce(tmp_path).steps
    assert (step.device_busy_ns, step.device_idle_ns, step.compute_busy_ns, step.device_rows) == (
        None,
        None,
        None,
        None,
    )


def test_engines_of_other_devices_are_the_kinds_of_work(tmp_path: Path):
    b = TraceBuilder().steps(4, 100)
    for i in range(4):
        b.device("gemm", 100 * i, 10 + i).device(NCCL, 100 * i + 50, 20, stream=20)
    rows = {(e.engine, e.lane): (e.lanes, e.rows, e.busy_ns) for e in b.reduce(tmp_path).engines}
    # The first of four steps is left out; the median of 11, 12, 13 is 12.
    assert rows == {
        ("communication", ""): (1, 3, 20_000),
        ("communication", "0/20"): (1, 3, 20_000),
        ("compute", ""): (1, 3, 12_000),
        ("compute", "0/7"): (1, 3, 12_000),
    }
