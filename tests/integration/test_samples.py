"""Every sample trace: its hash, and the numbers that `sample_traces/manifest.json` says an analysis must find.

The numbers of the simulated samples come from the simulation's own schedule, those of the recorded ones from counting rows;
none of them comes from hpuprof.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sample_reports import report_of

import hpuprof

ROOT = Path(__file__).resolve().parents[2] / "sample_traces"
SAMPLES: dict[str, dict[str, Any]] = {
    s["name"]: s for s in json.loads((ROOT / "manifest.json").read_text(encoding="utf-8"))["samples"]
}
PER_STEP = {
    "step_wall_ns": "host_wall_ns",
    "device_busy_ns": "device_busy_ns",
    "compute_busy_ns": "compute_busy_ns",
    "communication_busy_ns": "communication_busy_ns",
    "copy_busy_ns": "copy_busy_ns",
    "exposed_communication_ns": "exposed_communication_ns",
    "compile_ns": "compile_ns",
}
STEPPED = [n for n, s in SAMPLES.items() if "step_wall_ns" in s["expected"] or "per_rank" in s["expected"]]
AHEAD = ("hpu_g1_lazy_graph_replay", "hpu_g1_lazy_marks")
"""The device sets the pace: steps are measured from completion to completion, not in the windows of the manifest."""
HOST_PACED = [n for n in STEPPED if n not in AHEAD]
RECORDED = [n for n, s in SAMPLES.items() if s["kind"] == "recorded"]
ON_GPU = [n for n, s in SAMPLES.items() if s["kind"] == "recorded on a GPU"]


def per_rank(name: str) -> dict[int, dict[str, Any]]:
    """Return the expected numbers by rank."""
    expected = SAMPLES[name]["expected"]
    return (
        {int(rank): numbers for rank, numbers in expected["per_rank"].items()}
        if "per_rank" in expected
        else {0: expected}
    )


def test_the_manifest_lists_every_sample_folder():
    folders = {
        p.name for p in ROOT.iterdir() if p.is_dir() and p.name != "generator" and not p.name.startswith(("_", "."))
    }
    assert folders == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_files_are_the_ones_of_the_manifest(name: str):
    for file in SAMPLES[name]["files"]:
        content = (ROOT / file["path"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"]), file["path"]


@pytest.mark.parametrize("name", SAMPLES)
def test_files_and_ranks(name: str):
    report, sample = report_of(name), SAMPLES[name]
    assert len(report.data.files) == len([f for f in sample["files"] if not f["path"].endswith(".steps")])
    assert sorted({f.rank for f in report.data.files}) == list(range(sample["ranks"]))


@pytest.mark.parametrize("name", STEPPED)
def test_steps(name: str):
    expected = SAMPLES[name]["expected"]
    for file in report_of(name).data.files:
        assert (file.steps_total, file.step_source) == (expected["steps_total"], expected["step_source"])


@pytest.mark.parametrize("name", STEPPED)
def test_step_times_are_those_until_the_work_is_done_where_the_host_runs_ahead(name: str):
    report = report_of(name)
    assert ("HP152" in {d.code for d in report.data.diagnostics}) is (name in AHEAD)
    for rank, expected in per_rank(name).items():
        walls = [s.wall_ns for s in report.data.steps if s.rank == rank]
        if name in AHEAD:
            assert walls == expected["step_until_done_ns"], f"rank {rank}"
        else:
            assert walls == expected["step_wall_ns"], f"rank {rank}"


@pytest.mark.parametrize("column", PER_STEP)
@pytest.mark.parametrize("name", HOST_PACED)
def test_every_step_of_every_rank(name: str, column: str):
    steps = report_of(name).data.steps
    for rank, expected in per_rank(name).items():
        assert [getattr(s, PER_STEP[column]) for s in steps if s.rank == rank] == expected[column], f"rank {rank}"


@pytest.mark.parametrize("name", HOST_PACED)
def test_engines_over_the_used_steps(name: str):
    report = report_of(name)
    for rank, expected in per_rank(name).items():
        used = [s.step for s in report.data.steps if s.rank == rank and s.used]
        busy = {e.engine: e.busy_fraction for e in report.data.engines if e.rank == rank and not e.lane}
        wall = sum(expected["step_wall_ns"][i] for i in used)
        for engine in ("MME", "TPC", "DMA", "NIC"):
            assert busy.get(engine, 0.0) == pytest.approx(
                sum(expected[f"{engine.lower()}_ns"][i] for i in used) / wall, abs=1e-12
            ), (rank, engine)


@pytest.mark.parametrize("name", STEPPED)
def test_bound_and_main_idle_cause(name: str):
    report, expected = report_of(name), SAMPLES[name]["expected"]
    assert report.headline.bound == expected["bound"]
    for rank, numbers in per_rank(name).items():
        idle: Counter[str] = Counter()
        for row in report.data.gap_causes:
            step = next(s for s in report.data.steps if (s.rank, s.step) == (row.rank, row.step))
            if row.rank == rank and step.used:
                idle[row.cause] += row.idle_ns
        assert idle.most_common(1)[0][0] == numbers["main_idle_cause"], f"rank {rank}: {idle}"


@pytest.mark.parametrize(
    ("name", "fix"),
    [(n, fix) for n, s in SAMPLES.items() for fix in s["expected"].get("fixes", [])],
    ids=lambda of: of if isinstance(of, str) else f"{of['remedy']} {of['where']}".strip(),
)
def test_a_fix_saves_what_the_program_with_it_does(name: str, fix: dict[str, Any]):
    step, saved = SAMPLES[name]["expected"]["unprofiled_step_ns"], fix["saves_ns"]
    plan = hpuprof.analyze(ROOT / name, jobs=1, cache="off", step_time=f"{step / 1e6}ms").data.plan
    (row,) = [row for row in plan if row.remedy == fix["remedy"] and fix["where"] in row.where]
    assert row.alone_ns == pytest.approx(saved, rel=0.25)
    assert row.alone_low_ns <= saved <= row.alone_high_ns


def test_the_straggler_is_named():
    expected = SAMPLES["hpu_g3_lazy_8_ranks"]["expected"]
    straggler = [f for f in report_of("hpu_g3_lazy_8_ranks").findings if f.code == "HP214"]
    assert [f.ranks for f in straggler] == [[expected["straggler_rank"]]]


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_samples(name: str):
    report = report_of(name)
    files = {Path(f.path).name: f for f in report.data.files}
    for file, expected in SAMPLES[name]["expected"]["per_file"].items():
        row = files[file]
        assert (row.steps_total, row.step_source, row.rows) == (
            expected["steps_total"],
            expected["step_source"],
            expected["rows_total"],
        )
        slices = {c: n for c, n in expected["rows_per_category"].items() if c in row.categories}
        assert row.categories == slices
        assert row.device_rows == 0
    assert {d.code for d in report.data.diagnostics if d.severity == "warning"} >= {"HP105"}
    assert all(s.device_busy_ns is None for s in report.data.steps)


@pytest.mark.parametrize("name", ON_GPU)
def test_samples_of_a_gpu(name: str):
    found = {Path(f.path).name: f for f in report_of(name).data.files}
    for file, expected in SAMPLES[name]["expected"]["per_file"].items():
        row = found[file]
        assert (row.steps_total, row.step_source) == (expected["steps_total"], expected["step_source"])
        assert row.device_rows
        assert row.device_name == SAMPLES[name]["device"]


@pytest.mark.parametrize("region", ["step", "forward+backward"])
def test_a_step_timed_in_graphs_on_a_gpu_lies_in_what_is_predicted(region: str):
    graphs, measured = (
        report_of("cuda_resnet18").data.graph_mode,
        SAMPLES["cuda_resnet18"]["expected"]["measured_step_ns"],
    )
    assert graphs.verdict == "yes"
    assert graphs.base_step_ns == measured["eager"]["median"]
    [option] = [o for o in graphs.options if (o.region, o.drops_sync, o.asynchronous) == (region, False, False)]
    assert option.step_time_ns.low <= measured[region]["median"] <= option.step_time_ns.high
    assert option.step_time_ns.median == pytest.approx(measured[region]["median"], rel=0.1)


def test_a_fit_on_a_gpu_is_read_with_its_step_time_and_its_log():
    report = report_of("lightning_cuda")
    assert [f.window_kind for f in report.data.files] == ["async", "sync"]
    base = report.data.answer.base
    assert (base.source, base.counted.ns) == ("unprofiled", report.data.files[0].unprofiled_step_ns)
    assert report.data.answer.run.startswith("Run: 80 steps")
    assert report.data.answer.bound == "host"


def test_lightning_steps_run_from_batch_to_batch_although_profiler_steps_repeat():
    name = "lightning_1_rank"
    [path] = [ROOT / f["path"] for f in SAMPLES[name]["files"] if "training_step" in f["path"]]
    rows = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    numbers = [
        r["name"]
        for r in sorted(
            (r for r in rows if str(r.get("name")).startswith("ProfilerStep#") and r["ph"] == "X"),
            key=lambda r: r["ts"],
        )
    ]
    assert numbers == [f"ProfilerStep#{i}" for i in (2, 1, 2, 3, 4)]
    batches = sorted(r["ts"] for r in rows if r.get("name") == "[pl][profile]run_training_batch")
    steps = [s for s in report_of(name).data.steps if s.action == "training_step"]
    assert [s.label for s in steps] == [f"batch {i}" for i in range(5)]
    assert [s.wall_ns for s in steps[:-1]] == pytest.approx([1000 * (b - a) for a, b in pairwise(batches)], abs=2)


def test_hardware_csv():
    report, expected = report_of("hpu_hw_csv"), SAMPLES["hpu_hw_csv"]["expected"]
    [step] = report.data.steps
    [file] = report.data.files
    assert (file.form, file.step_source, file.span_ns) == ("csv", "single_pass", expected["window_ns"])
    assert sum(e.rows for e in report.data.engines if not e.lane) == expected["activity_slices"]
    found = {
        c: getattr(step, c)
        for c in (
            "device_busy_ns",
            "compute_busy_ns",
            "communication_busy_ns",
            "copy_busy_ns",
            "exposed_communication_ns",
            "compile_ns",
        )
    }
    assert found == {c: expected[c] for c in found}
    busy = {e.engine: e.busy_ns for e in report.data.engines if not e.lane}
    assert busy == {"MME": expected["mme_ns"], "TPC": expected["tpc_ns"], "DMA": expected["dma_ns"]}
    assert report.headline.bound == "unknown"


def test_synapse_logger():
    report, expected = report_of("hpu_synapse_logger"), SAMPLES["hpu_synapse_logger"]["expected"]
    [file] = report.data.files
    assert (file.form, file.mode, file.span_ns) == ("bare", "lazy", expected["window_ns"])
    assert (file.rows, file.host_rows, file.device_rows) == (expected["complete_rows"], expected["paired_slices"], 0)
    troubles = Counter({d.text: d.count for d in report.data.diagnostics if d.code == "HP111"})
    assert troubles == {
        "begin rows without an end": expected["unmatched_begins"],
        "end rows without a begin": expected["unmatched_ends"],
    }
    cuts = sum(d.count for d in report.data.diagnostics if d.code in ("HP101", "HP102"))
    assert cuts == expected["cut_rows"]
