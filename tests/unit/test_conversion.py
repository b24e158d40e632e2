"""Converting for the stock TensorBoard tab: what is written, and that reading it gives what the source gives."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_reports import report_of

import hpuprof
from hpuprof.ingest.stamps import duration_ns
from hpuprof.viewers.tensorboard.spelling import shortened

STOCK = ("Kernel", "Runtime", "cpu_op", "gpu_memcpy", "gpu_memset", "Trace", "python_function")  # 0.4.0 minds the case
TABLES = (
    "steps", "gap_causes", "gaps", "threads", "engines", "overlaps", "actions", "operators", "kernels", "launches", "queue", "memory",
    "precision", "intel",
)  # fmt: skip
SAMPLES = [
    "cpu_1_rank", "cpu_2_ranks_ddp", "lightning_1_rank", "hpu_g1_lazy", "hpu_g1_lazy_graph_replay", "hpu_g2_eager", "hpu_g3_compile",
    "hpu_g3_lazy_8_ranks", "hpu_hw_csv", "hpu_synapse_logger",
]  # fmt: skip


def read(path: str | Path) -> dict[str, Any]:
    data = Path(path).read_bytes()
    found: dict[str, Any] = json.loads(gzip.decompress(data) if str(path).endswith(".gz") else data)
    return found


def written(events: list[dict[str, Any]], folder: Path, **header: Any) -> dict[str, Any]:
    """Convert a trace of these events; return the result."""
    source = folder / "source" / "t.pt.trace.json"
    source.parent.mkdir(parents=True)
    source.write_text(json.dumps({**header, "traceEvents": events}), encoding="utf-8")
    done = hpuprof.convert(source, folder / "out", compress=False)
    return read(done.files[0].path)


def slices(trace: dict[str, Any], cat: str) -> list[dict[str, Any]]:
    return [row for row in trace["traceEvents"] if row["ph"] == "X" and row["cat"] == cat]


def op(
    name: str, ts: float, dur: float, number: int | None = None, *, cat: str = "cpu_op", tid: int = 1
) -> dict[str, Any]:
    args = {} if number is None else {"External id": number}
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


# ------------------------------------------------------------------------------------------------------------ round trip


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_converted_trace_analyzes_to_the_same_report(sample: str, samples: Path, tmp_path: Path) -> None:
    before = report_of(sample)
    done = hpuprof.convert(samples / sample, tmp_path / "tab")
    after = hpuprof.analyze(tmp_path / "tab")
    assert after.headline == before.headline
    assert {n: m.value for n, m in after.metrics.items()} == {n: m.value for n, m in before.metrics.items()}
    for table in TABLES:
        assert msgspec.to_builtins(getattr(after.data, table)) == msgspec.to_builtins(getattr(before.data, table)), (
            table
        )
    facts = (
        "family",
        "generation",
        "mode",
        "form",
        "device_name",
        "device_memory_bytes",
        "host_rows",
        "device_rows",
        "step_source",
        "world_size",
    )
    assert [[getattr(f, fact) for fact in facts] for f in after.data.files] == [
        [getattr(f, fact) for fact in facts] for f in before.data.files
    ]
    assert len(done.files) == len(before.data.files)
    for report in (before, after):
        assert [f.linked_fraction for f in report.data.files] == [f.linked for f in done.files], "one matching"


@pytest.mark.parametrize("case", sorted(p.name for p in (Path(__file__).parents[1] / "cases").glob("*.trace.*")))
def test_hand_worked_cases_keep_their_numbers(case: str, tmp_path: Path) -> None:
    source = Path(__file__).parents[1] / "cases" / case
    hpuprof.convert(source, tmp_path / "tab")
    before, after = hpuprof.analyze(source), hpuprof.analyze(tmp_path / "tab")
    assert {n: m.value for n, m in after.metrics.items()} == {n: m.value for n, m in before.metrics.items()}
    assert after.headline == before.headline


def test_real_traces_keep_their_numbers(real_traces: Path, tmp_path: Path) -> None:
    for number, name in enumerate(
        (
            "dlrm_8_ranks",
            "hta/amd_trace",
            "hta/critical_path/alexnet",
            "hta/mtia_inference_trace",
            "hpu/g1_habana_writer_1.19_real_gaudi3_device+real_lazy_host.pt.trace.json",
            "hpu/debug_hw_prof_accel0_001.csv",
        )
    ):
        hpuprof.convert(real_traces / name, tmp_path / str(number))
        before, after = hpuprof.analyze(real_traces / name), hpuprof.analyze(tmp_path / str(number))
        assert {n: m.value for n, m in after.metrics.items()} == {n: m.value for n, m in before.metrics.items()}, name


@given(st.integers(0, 10**13))
def test_a_shortened_length_reads_as_the_length(ns: int) -> None:
    read_back, good = duration_ns([float(shortened(ns))])
    assert good[0]
    assert read_back[0] == ns


@given(st.integers(1, 10**9), st.integers(0, 10**9))
def test_the_shorter_of_two_rows_that_end_together_ends_first(inner: int, more: int) -> None:
    outer = inner + more
    begin = 1_500_000_000
    inner_end = (begin + more) / 1000 + float(shortened(inner))
    outer_end = begin / 1000 + float(shortened(outer))
    if more > outer // 50:  # nearly equal rows may end together to the last bit
        assert inner_end <= outer_end


# ---------------------------------------------------------------------------------------------------------- what is written


def test_one_kernel_on_many_lanes_is_one_kernel_of_its_whole_length(samples: Path, tmp_path: Path) -> None:
    done = hpuprof.convert(samples / "hpu_g1_lazy", tmp_path)
    trace = read(done.files[0].path)
    kernels = slices(trace, "Kernel")
    known = {(k.name, k.engine): k for k in report_of("hpu_g1_lazy").data.kernels}
    assert kernels
    assert all(row["pid"] == row["args"]["device"] == 0 for row in kernels)
    lanes = {row["args"]["lanes"] for row in kernels if row["name"].startswith("fused_kernel")}
    assert lanes == {24}, "Gaudi2 has 24 TPCs"
    assert {row["name"] for row in kernels} == {name for name, engine in known if engine != "DMA"}
    by_track: dict[int, list[tuple[float, float]]] = {}
    for row in kernels:
        by_track.setdefault(row["tid"], []).append((row["ts"], row["ts"] + row["dur"]))
    for spans in by_track.values():
        assert all(end <= begin + 1e-6 for (_, end), (begin, _) in zip(sorted(spans), sorted(spans)[1:], strict=False))


@pytest.mark.parametrize(
    ("sample", "operator"),
    [
        ("hpu_g1_lazy", "SyncTensorsGraphInternal"),
        ("hpu_g1_lazy_graph_replay", "_GraphedBackward"),
        ("hpu_g2_eager", "LaunchRecipeTask"),
        ("hpu_g3_compile", "LaunchRecipeTask"),
    ],
)
def test_kernels_hang_on_a_call_and_an_operator(sample: str, operator: str, samples: Path, tmp_path: Path) -> None:
    trace = read(hpuprof.convert(samples / sample, tmp_path).files[0].path)
    calls = {row["args"]["correlation"]: row for row in slices(trace, "Runtime") if row["args"]["correlation"] >= 0}
    operators: dict[int, list[dict[str, Any]]] = {}
    for row in slices(trace, "cpu_op"):
        operators.setdefault(row["args"].get("External id"), []).append(row)
    names = set()
    for kernel in slices(trace, "Kernel"):
        call = calls[kernel["args"]["correlation"]]
        assert call["ts"] <= kernel["ts"], "no kernel begins before its launch"
        assert call["args"]["External id"] == kernel["args"]["External id"]
        (found,) = operators[call["args"]["External id"]]
        names.add(found["name"])
    assert operator in names


def test_the_same_work_is_linked_as_many_times_as_it_was_launched(samples: Path, tmp_path: Path) -> None:
    trace = read(hpuprof.convert(samples / "hpu_g2_eager", tmp_path).files[0].path)
    launched = {row["args"]["correlation"] for row in slices(trace, "Kernel")}
    launches = [row for row in slices(trace, "Runtime") if row["name"] == "LaunchRecipeTask"]
    assert len(launches) == 230
    assert {row["args"]["correlation"] for row in launches} == launched, "recipes that repeat at once are told apart"


def test_metadata_stands_before_the_events_and_names_no_framework(samples: Path, tmp_path: Path) -> None:
    done = hpuprof.convert(samples / "lightning_1_rank", tmp_path, compress=False)
    for file in done.files:
        text = Path(file.path).read_text(encoding="utf-8")
        trace = json.loads(text)
        assert list(trace)[-1] == "traceEvents"
        assert "Framework" not in trace
        assert trace["hpuprof_converted"]["header"]["Framework"] == "pytorch-lightning"
        assert text.rindex("]") > text.rindex('"ph"'), "the tab cuts the file at its last bracket"


def test_lightning_steps_are_the_batches_and_not_from_forward_to_forward(samples: Path, tmp_path: Path) -> None:
    done = hpuprof.convert(samples / "lightning_1_rank", tmp_path)
    (path,) = (f.path for f in done.files if "training" in f.run)
    trace = read(path)
    steps = [row for row in slices(trace, "cpu_op") if row["name"].startswith("ProfilerStep#")]
    assert [row["name"] for row in steps] == [f"ProfilerStep#{i}" for i in range(5)]
    assert all(a["ts"] + a["dur"] <= b["ts"] for a, b in pairwise(steps))
    optimizers = [row for row in slices(trace, "cpu_op") if row["name"].startswith("Optimizer.step")]
    for row in optimizers:
        assert sum(s["ts"] <= row["ts"] and row["ts"] + row["dur"] <= s["ts"] + s["dur"] for s in steps) == 1


def test_data_loading_and_collectives_become_operators(tmp_path: Path) -> None:
    trace = written(
        [
            op("ProfilerStep#1", 0, 100, 1, cat="user_annotation"),
            op("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1, 5, 2, cat="user_annotation"),
            op("nccl:_all_gather_base", 10, 5, 3, cat="user_annotation"),
            op("my part", 20, 5, 4, cat="user_annotation"),
            op("aten::mm", 30, 5, 5),
        ],
        tmp_path,
    )
    assert [row["name"] for row in slices(trace, "cpu_op")] == [
        "ProfilerStep#1",
        "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
        "nccl:all_gather",
        "aten::mm",
    ]
    assert [row["name"] for row in slices(trace, "user_annotation")] == ["my part"]


def test_a_call_that_names_another_operator_gets_the_one_around_it(tmp_path: Path) -> None:
    call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 12, "dur": 2}
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 9}
    trace = written(
        [
            op("aten::empty", 1, 2, 26),  # has the number that Kineto wrote instead of an operator's until 2023
            op("aten::mm", 10, 8, 7),
            {**call, "args": {"correlation": 26, "External id": 26}},
            {**kernel, "args": {"correlation": 26, "External id": 26, "device": 0, "stream": 7}},
        ],
        tmp_path,
    )
    assert [row["args"]["External id"] for row in slices(trace, "Runtime") + slices(trace, "Kernel")] == [7, 7]


def test_memory_of_any_device_counts_as_device_memory(tmp_path: Path) -> None:
    sample = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": 1, "tid": 1, "ts": 3}
    trace = written(
        [
            op("aten::mm", 0, 10, 1),
            {**sample, "args": {"Device Type": 20, "Device Id": 0, "Bytes": 8, "Total Allocated": 8}},
            {**sample, "args": {"Device Type": 0, "Device Id": -1, "Bytes": 8, "Total Allocated": 8}},
        ],
        tmp_path,
    )
    types = [row["args"]["Device Type"] for row in trace["traceEvents"] if row["name"] == "[memory]"]
    assert types == [1, 0]


def test_rows_that_break_the_tab_are_mended_or_left_out(tmp_path: Path) -> None:
    good = op("aten::mm", 10, 5, 1)
    bad = [
        {**good, "ts": "20.5", "dur": "1.5"},
        {k: v for k, v in good.items() if k != "dur"},
        {k: v for k, v in good.items() if k != "cat"},
        {**good, "tid": "main"},
        {**good, "name": None},
        {"ph": "i", "s": "g", "pid": 1, "tid": 1, "ts": 5},
    ]
    trace = written([good, *bad], tmp_path)
    for row in trace["traceEvents"]:
        assert isinstance(row["name"], str)
        if row["ph"] == "X":
            assert isinstance(row["cat"], str)
            assert isinstance(row["ts"], float)
            assert isinstance(row["dur"], float)
            if row["cat"] == "cpu_op":
                int(row["tid"])


def test_members_that_the_tab_does_not_know_stay(tmp_path: Path) -> None:
    more = {"tts": 3, "tdur": 2, "cname": "good", "id2": {"local": "0x1"}, "scope": "s"}
    begin = {
        "ph": "b",
        "cat": "async",
        "name": "a",
        "pid": 1,
        "tid": 1,
        "ts": 12,
        **more,
        "args": {"deep": [{"x": 1.5}]},
    }
    trace = written([op("aten::mm", 10, 5, 1) | more, begin], tmp_path)
    for row, source in zip(trace["traceEvents"], [more, begin], strict=False):
        assert row | source | {"ts": row["ts"]} == row


def test_columns_of_the_hardware_profiler_are_arguments(samples: Path, tmp_path: Path) -> None:
    trace = read(hpuprof.convert(samples / "hpu_hw_csv", tmp_path).files[0].path)
    (first, *_) = [row for row in trace["traceEvents"] if row["ph"] == "X"]
    assert {"dataType", "recipeId", "HW event name", "recipeHandle", "recipeName"} <= set(first["args"])


def test_device_properties_are_there_for_every_device(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 3, "tid": 7, "ts": 20, "dur": 9, "args": {"device": 3}}
    trace = written(
        [op("aten::mm", 0, 30, 1), kernel], tmp_path, deviceProperties=[{"name": "A", "totalGlobalMem": "64"}]
    )
    assert [d["name"] for d in trace["deviceProperties"]] == ["A", *["CUDA device"] * 3]
    assert trace["deviceProperties"][0]["totalGlobalMem"] == 64, "the tab divides by it"


# ------------------------------------------------------------------------------------------------------ files and mistakes


def test_every_stage_is_a_run_and_every_rank_a_worker(samples: Path, tmp_path: Path) -> None:
    done = hpuprof.convert(samples / "lightning_1_rank", tmp_path / "a")
    assert done.runs == ["fit-training_step", "fit-validation_step"]
    done = hpuprof.convert(samples / "cpu_2_ranks_ddp", tmp_path / "b")
    names = sorted(Path(f.path).name for f in done.files)
    assert [n.split(".")[0] for n in names] == ["host0_0", "host0_1"], "the tab reads host and process from the name"
    assert not list(tmp_path.rglob("*.part"))


def test_an_existing_file_is_kept_without_force(samples: Path, tmp_path: Path) -> None:
    first = hpuprof.convert(samples / "cpu_1_rank", tmp_path)
    path = Path(first.files[0].path)
    path.write_bytes(b"mine")
    with pytest.raises(hpuprof.OutputError, match="exists"):
        hpuprof.convert(samples / "cpu_1_rank", tmp_path)
    assert path.read_bytes() == b"mine"
    hpuprof.convert(samples / "cpu_1_rank", tmp_path, force=True)
    assert path.read_bytes() != b"mine"


def test_the_same_input_gives_the_same_bytes(samples: Path, tmp_path: Path) -> None:
    results = [Path(hpuprof.convert(samples / "hpu_g3_compile", tmp_path / x).files[0].path).read_bytes() for x in "ab"]
    assert results[0] == results[1]


def test_a_result_among_its_sources_is_refused(samples: Path, tmp_path: Path) -> None:
    source = tmp_path / "traces" / "t.pt.trace.json"
    source.parent.mkdir()
    source.write_text(json.dumps({"traceEvents": [op("aten::mm", 0, 1, 1)]}), encoding="utf-8")
    for place in (source.parent, source.parent / "tab"):
        with pytest.raises(hpuprof.UsageError, match="among the traces"):
            hpuprof.convert(source.parent, place)


def test_what_was_converted_is_not_converted_again(samples: Path, tmp_path: Path) -> None:
    hpuprof.convert(samples / "cpu_1_rank", tmp_path / "a")
    with pytest.raises(hpuprof.InputError, match="already converted"):
        hpuprof.convert(tmp_path / "a", tmp_path / "b")


def test_one_broken_file_costs_itself_only(samples: Path, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    folder.mkdir()
    good = next((samples / "cpu_1_rank").glob("*.gz"))
    (folder / "host0_0.1.pt.trace.json.gz").write_bytes(good.read_bytes())
    (folder / "host0_1.1.pt.trace.json").write_text('{"traceEvents": [{"ph": "q"}]}', encoding="utf-8")
    done = hpuprof.convert(folder, tmp_path / "tab")
    assert [f.source for f in done.files] == ["host0_0.1.pt.trace.json.gz"]
    assert [f.source for f in done.failed] == ["host0_1.1.pt.trace.json"]


def test_a_cut_file_is_converted_as_far_as_it_goes(samples: Path, tmp_path: Path) -> None:
    data = next((samples / "hpu_g1_lazy").glob("*.json")).read_bytes()
    source = tmp_path / "cut.pt.trace.json"
    source.write_bytes(data[: len(data) // 2])
    done = hpuprof.convert(source, tmp_path / "tab")
    assert any("ends inside" in problem or "not closed" in problem for problem in done.files[0].problems)
    assert slices(read(done.files[0].path), "cpu_op")


def test_an_unknown_target_is_refused(samples: Path, tmp_path: Path) -> None:
    with pytest.raises(hpuprof.UsageError, match="cannot convert for"):
        hpuprof.convert(samples / "cpu_1_rank", tmp_path, target="xprof")


def test_categories_are_spelled_as_both_versions_read_them(samples: Path, tmp_path: Path) -> None:
    for sample in SAMPLES:
        for file in hpuprof.convert(samples / sample, tmp_path / sample).files:
            cats = {row["cat"] for row in read(file.path)["traceEvents"] if row["ph"] == "X"}
            misread = {
                c
                for c in cats
                if c not in STOCK and c.lower() in {s.lower() for s in STOCK} | {"memcpy", "operator", "memory"}
            }
            assert not misread, (sample, misread)


@pytest.mark.parametrize("field", ["cat", "name", "pid", "tid", "args"])
@pytest.mark.parametrize(
    "value",
    [b"1e400", b"-" + b"9" * 30, b"9" * 5000, b'"' + b"9" * 5000 + b'"', b'"a\xff"', b"[[1]]", b'"/x/y"', b"true"],
)
@pytest.mark.parametrize("cat", ["user_annotation", "cpu_op", "cuda_runtime", "kernel", "python_function"])
def test_any_value_in_any_field_costs_at_most_its_row(field: str, value: bytes, cat: str, tmp_path: Path) -> None:
    row = {
        "ph": "X",
        "cat": cat,
        "name": "ProfilerStep#1",
        "pid": 1,
        "tid": 1,
        "ts": 20,
        "dur": 5,
        "args": {},
        field: "?",
    }
    text = json.dumps({"traceEvents": [row, op("aten::mm", 1, 3)]}).encode()
    assert text.count(b'"?"') == 1
    (tmp_path / "t.pt.trace.json").write_bytes(text.replace(b'"?"', value))
    (done,) = hpuprof.convert(tmp_path / "t.pt.trace.json", tmp_path / "tab", compress=False).files
    assert (done.rows, done.lost) == (2, 0)
    assert "aten::mm" in [row["name"] for row in read(done.path)["traceEvents"]], (
        "and Python can parse it, as the tab does"
    )
    hpuprof.analyze(done.path)


@pytest.mark.parametrize(
    "value", [b"1e400", b"9" * 5000, b'"a\xff"', b"[1]", b"{}", b'"' + b"9" * 5000 + b'"', b"null"]
)
def test_any_value_in_the_metadata_is_taken(value: bytes, tmp_path: Path) -> None:
    keys = ("schemaVersion", "deviceProperties", "distributedInfo", "Framework", "hpuprof", "host_name", "anything")
    for key in (*keys, "totalGlobalMem", "stage", "host"):
        where = {
            "totalGlobalMem": '{"deviceProperties":[{%s}],',
            "stage": '{"hpuprof":{%s},',
            "host": '{"hpuprof":{%s},',
        }
        head = where.get(key, "{%s,").encode() % (b'"%s":%s' % (key.encode(), value))
        rows = json.dumps([op("aten::mm", 1, 3)]).encode()
        (tmp_path / "t.pt.trace.json").write_bytes(head + b'"traceEvents":' + rows + b"}")
        (done,) = hpuprof.convert(tmp_path / "t.pt.trace.json", tmp_path / "tab" / key, compress=False).files
        assert "aten::mm" in [row["name"] for row in read(done.path)["traceEvents"]], key


def test_marks_of_any_type_are_taken(tmp_path: Path) -> None:
    for number, mark in enumerate(({"added": [["device"], {}, "device", 1]}, {"was": 3}, {"was": {"pid": [1]}}, 5)):
        row = {**op("aten::mm", 1, 3), "args": {"hpuprof": mark}}
        path = tmp_path / f"{number}.pt.trace.json"
        path.write_text(json.dumps({"hpuprof_converted": {}, "traceEvents": [row]}), encoding="utf-8")
        assert hpuprof.analyze(path).data.files[0].host_rows == 1
