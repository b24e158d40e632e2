"""The vendor's numbers: formulas of habana_perf_tool against its five published outputs, and the hardware trace's oracle.

The figures are the tool's own output on five Gaudi2 traces of Swin-base, 3 steps each, as published in the notebooks of
github.com/HabanaAI/Gaudi-tutorials (PyTorch/Profiling_and_Optimization, commits 27268d7, 0e4bbd9 and 9af2759).
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path

import pytest
from builder import MAIN, TraceBuilder

import hpuprof
from hpuprof.analysis.device_time import device_time
from hpuprof.analysis.intel import HostShare, device_ratio, idle, overlap_degree
from hpuprof.ingest.read import read_trace
from hpuprof.model.intervals import intersect


@dataclass(frozen=True)
class Published:
    """One output: inputs in ms as printed, and what the tool derived from them."""

    wall: float
    device: float
    host: float
    shares: dict[str, tuple[float, str]]
    mme: float
    tpc: float
    dma: float
    ratio: str
    ratio_to_host: str
    overlap: str
    idle: str | None


OUTPUTS = {
    "UNOPT": Published(
        *(467.734, 288.393, 415.491),
        {
            "Graph Build": (60.240976, "14.50"),
            "DataLoader": (232.607, "55.98"),
            "Input Time": (19.187, "4.62"),
            "Compile Time": (6.31, "1.52"),
        },
        *(88.28, 165.36, 29.43),
        *("61.66 %", "61.66% / 38.34%", "81.88 %", "5.32 ms"),
    ),
    "1stOPT": Published(
        *(312.02, 283.428, 208.177),
        {
            "Graph Build": (59.886976, "28.77"),
            "DataLoader": (3.249, "1.56"),
            "Input Time": (24.109, "11.58"),
            "Compile Time": (4.746, "2.28"),
        },
        *(88.26, 165.50, 26.40),
        *("90.84 %", "90.84% / 9.16%", "86.27 %", "3.26 ms"),
    ),
    "2ndOPT": Published(
        *(305.698, 280.442, 201.314),
        {
            "Graph Build": (67.771976, "33.66"),
            "DataLoader": (3.412, "1.69"),
            "Input Time": (2.687, "1.33"),
            "Compile Time": (4.652, "2.31"),
        },
        *(88.22, 165.44, 33.71),
        *("91.74 %", "91.74% / 8.26%", "87.45 %", None),
    ),
    "2024-03": Published(
        *(716.607, 202.93, 713.275),
        {
            "Graph Build": (123.280976, "17.28"),
            "DataLoader": (371.417, "52.07"),
            "Input Time": (17.518, "2.46"),
            "Compile Time": (0.0, "0.00"),
        },
        *(78.11, 98.75, 26.52),
        *("28.32 %", "28.32% / 71.68%", "98.36 %", None),
    ),
    "2024-10": Published(
        *(513.299755, 193.313984, 507.41137),
        {
            "Graph Build": (70.039949, "13.80"),
            "DataLoader": (280.003883, "55.18"),
            "Input Time": (18.406094, "3.63"),
            "Compile Time": (0.0, "0.00"),
        },
        *(74.87, 93.33, 22.79),
        *("37.66 %", "37.66% / 62.34%", "96.95 %", "2.33 ms"),
    ),
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_device_ratio(name: str):
    out = OUTPUTS[name]
    percent = 100 * device_ratio(out.device, out.wall)
    assert f"{percent:.2f} %" == out.ratio
    # "Host" is only what is left of the wall time.
    assert f"{percent:.2f}% / {100 - percent:.2f}%" == out.ratio_to_host


@pytest.mark.parametrize("name", OUTPUTS)
def test_overlap_degree(name: str):
    out = OUTPUTS[name]
    degree = overlap_degree(out.host, out.device, out.wall)
    assert degree is not None
    assert f"{100 * degree:.2f} %" == out.overlap


@pytest.mark.parametrize("label", ["Graph Build", "DataLoader", "Input Time", "Compile Time"])
@pytest.mark.parametrize("name", OUTPUTS)
def test_host_shares(name: str, label: str):
    time, printed = OUTPUTS[name].shares[label]
    assert f"{100 * HostShare(label, time, OUTPUTS[name].host).fraction:.2f}" == printed


@pytest.mark.parametrize("name", OUTPUTS)
def test_idle(name: str):
    # Printed with two decimals from inputs printed with two: right to a hundredth. Left out when negative.
    out = OUTPUTS[name]
    rest = idle(out.device, out.mme, out.tpc, out.dma)
    if out.idle is None:
        assert rest is None
    else:
        assert rest == pytest.approx(float(out.idle.removesuffix(" ms")), abs=0.01)


def test_the_figures_are_the_published_ones(real_traces: Path):
    text = (real_traces / "hpu" / "habana_perf_tool_outputs_5_real_gaudi2_traces.txt").read_text(encoding="utf-8")
    for out in OUTPUTS.values():
        lines = [
            f"Device ratio: {out.ratio} ({out.device} ms, {out.wall} ms)",
            f"Device/Host ratio: {out.ratio_to_host}",
        ]
        lines += [
            f"Host Summary {label}: {printed} % ({time} ms, {out.host} ms)"
            for label, (time, printed) in out.shares.items()
        ]
        lines += [
            f"Device Host Overlapping degree: {out.overlap}",
            f"MME total time {out.mme:.2f} ms",
            f"TPC total time {out.tpc:.2f} ms",
        ]
        lines += [f"DMA total time {out.dma:.2f} ms", f"Idle total time: {out.idle}" if out.idle else ""]
        assert [line for line in lines if line not in text] == []


def test_nothing_overlaps_when_one_side_has_no_time():
    assert overlap_degree(0, 5, 10) is None
    assert overlap_degree(5, 0, 10) is None


def test_the_row_of_a_trace(tmp_path: Path):
    b = TraceBuilder().thread("python3", MAIN).step(0, 0, 100).step(1, 100, 100)
    for start in (0, 100):
        b.host("add_hpu_lazy", start + 5, 10, cat="privateuse1_runtime").annotation(
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start + 20, 30
        )
        b.lane("gemm", start + 60, 30, engine="MME", tid=6000, dataType="bf16").lane(
            "relu", start + 80, 20, dataType="bf16"
        )
        b.lane("dma", start + 110, 10, engine="SPDMA 0", tid=3000, cat="Runtime")
    [row] = b.reduce(tmp_path).intel
    # Step 0 holds 60..100 (the DMA row at 110 belongs to step 1); step 1 holds 110..120, 160..200 and the last DMA row, 210..220.
    assert (row.host_ns, row.wall_ns, row.device_ns) == (200_000, 220_000, 40_000 + 110_000)
    assert (row.device_ratio, row.overlap_degree) == (150 / 220, (200 + 150 - 220) / 150)
    assert (row.mme_ns, row.mme_tpc_overlap_ns, row.tpc_ns, row.dma_ns) == (60_000, 20_000, 20_000, 10_000)
    assert (row.graph_build_ns, row.dataloader_ns, row.compile_ns, row.mme_low_precision_ratio) == (
        20_000,
        60_000,
        0,
        1.0,
    )
    assert row.idle_ns == 150_000 - 60_000 - 20_000 - 10_000


def test_other_devices_have_no_such_row(tmp_path: Path):
    assert TraceBuilder().step(0, 0, 100).kernel("k", 10, 5, launch=5).reduce(tmp_path).intel == []


def test_hardware_trace_against_the_vendors_analysis(real_traces: Path):
    """Active time of an engine is a union over its lanes: what Intel's own analysis of the same Gaudi3 recording says."""
    folder = real_traces / "hpu"
    oracle: dict[str, float] = {}
    with (folder / "debug_hw_prof_accel0_001_analyzed_nodes.csv").open(newline="", encoding="utf-8") as handle:
        for row in csv.DictReader(handle):
            oracle[row["Unit"]] = oracle.get(row["Unit"], 0) + float(row["Active (us)"])
    report = hpuprof.analyze(folder / "debug_hw_prof_accel0_001.csv", jobs=1)
    busy = {e.engine: e.busy_ns / 1000 for e in report.data.engines if not e.lane}
    assert {k: round(v, 3) for k, v in oracle.items()} == {"TPC": 3.722, "MME": 18.814}
    assert busy == pytest.approx(oracle, abs=0.001)
    rows = {k.engine: k.rows for k in report.data.kernels}
    assert rows == {"TPC": 48, "MME": 8}


def test_exposed_and_hidden_time_of_the_mme_against_the_vendors_analysis(real_traces: Path):
    """The vendor's efficiency of the MME is empty in this recording, which names no shapes; so is ours."""
    folder = real_traces / "hpu"
    with (folder / "debug_hw_prof_accel0_001_analyzed_nodes.csv").open(newline="", encoding="utf-8") as handle:
        nodes = list(csv.DictReader(handle))
    oracle = {}
    for unit in ("MME", "TPC"):
        for kind in ("Exposed", "Unexposed"):
            column = f"{kind} {unit.lower()} (us)"
            oracle[unit, kind] = sum(float(node[column]) for node in nodes if node["Unit"] == unit)
    assert [node["MME Compute Utilization (%)"] for node in nodes] == ["nan"] * len(nodes)
    assert {node["MME expected vs actual (%)"] for node in nodes} <= {"", "nan"}
    engines = device_time(read_trace(folder / "debug_hw_prof_accel0_001.csv")).engines
    mme, tpc = engines["MME"], engines["TPC"]
    both = intersect(mme, tpc).total_ns / 1000
    found = {("MME", "Unexposed"): both, ("TPC", "Unexposed"): both}
    found |= {("MME", "Exposed"): mme.total_ns / 1000 - both, ("TPC", "Exposed"): tpc.total_ns / 1000 - both}
    assert found == pytest.approx(oracle, abs=0.001)
    report = hpuprof.analyze(folder / "debug_hw_prof_accel0_001.csv", jobs=1)
    assert report.steps["matrix_busy_ns"].isna().all()


def test_the_same_recording_through_the_vendors_json_writer(real_traces: Path):
    [file] = (real_traces / "hpu").glob("g1_*.json")
    engines = device_time(read_trace(file)).engines
    assert {name: busy.total_ns / 1000 for name, busy in engines.items()} == pytest.approx(
        {"TPC": 3.722, "MME": 18.814}, abs=0.001
    )
