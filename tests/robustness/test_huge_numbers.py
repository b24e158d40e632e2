"""A number of any size in any field costs its row or its field, in every command, and never the run."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
from builder import TraceBuilder

VALUES = {
    "300 digits": "9" * 300,
    "400 digits": "9" * 400,
    "400 digits, negative": "-" + "9" * 400,
    "5000 digits": "9" * 5000,
    "5000 decimals": "1." + "3" * 5000,
    "an exponent": "1E+1000999999",
    "a small exponent": "1e-1000999999",
    "400 digits as text": '"' + "9" * 400 + '"',
    "5000 digits as text": '"' + "9" * 5000 + '"',
    "an exponent as text": '"1E+1000999999"',
    "infinity as text": '"-Infinity"',
}
COMMANDS = {
    "analyze": ["analyze", "{}", "--json"],
    "full": ["analyze", "{}", "--full"],
    "brief": ["analyze", "{}", "--brief"],
    "plan": ["plan", "{}"],
    "advise": ["advise", "{}"],
    "inspect": ["inspect", "{}"],
    "compare": ["compare", "{}", "{}"],
    "export": ["export", "{}", "--table", "operators"],
    "slices": ["export", "{}", "--table", "slices", "--redact"],
    "merge": ["merge", "{}", "-o", "merged.json"],
    "merge of steps": ["merge", "{}", "-o", "merged.json", "--steps", "1:3", "--critical"],
    "view": ["view", "{}", "--no-open"],
    "check": ["check", "{}"],
    "convert": ["convert", "{}", "-o", "tab"],
}
_HUGE = "@huge@"
_FIELDS = ("ts", "dur", "pid", "tid")
_ARGUMENTS = (
    "correlation", "External id", "Sequence number", "Fwd thread id", "Python id", "Python module id", "device",
    "stream", "bytes", "graph id", "recipeId", "In msg nelems", "Out msg nelems", "Group size", "Src Rank", "Dst Rank",
    "Seq", "Global rank start", "Global rank stride", "wait_on_stream", "Input Dims", "Concrete Inputs",
    "Process Group Ranks",
)  # fmt: skip


def trace() -> TraceBuilder:
    """Four sound steps, and rows of each kind that have the number in one of their fields."""
    b = TraceBuilder(
        distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2, "pg_config": [{"ranks": [0, _HUGE]}]},
        deviceProperties=[{"id": 0, "name": "X", "totalGlobalMem": _HUGE, "computeMajor": _HUGE}],
        hpuprof={
            "accumulate_grad_batches": _HUGE,
            "steps_with_update": [1, 3, _HUGE],
            "unprofiled": {"step_ns": _HUGE, "spread_ns": _HUGE},
        },
        baseTimeNanoseconds=_HUGE,
    )
    b.steps(4, 1000)
    for at in range(0, 4000, 1000):
        b.host("aten::mm", at + 10, 300, **{"Input Dims": [[2, 3], [3, 4]]})
        b.kernel("gemm", at + 60, 500, launch=at + 20)
        b.host("record_param_comms", at + 600, 50, **{"Collective name": "allreduce", "In msg nelems": 10})
    sound = [e for e in b.events if e["ts"] >= 1000 and not e["name"].startswith("ProfilerStep")]
    for row in sound:
        for field in _FIELDS:
            b.event(**{**row, field: _HUGE})
        for argument in _ARGUMENTS:
            for value in (_HUGE, [_HUGE], [[_HUGE]]):
                b.event(**{**row, "args": {**row["args"], argument: value}})
    for phase in "BEbeNsftCiM":
        row = {"ph": phase, "cat": "cpu_op", "name": "x", "pid": 100, "tid": 100, "ts": 1500, "id": 7, "args": {"a": 1}}
        for field in (*_FIELDS, "id", "name"):
            b.event(**{**row, field: _HUGE})
        b.event(**{**row, "args": {"a": _HUGE}})
    for argument in ("Bytes", "Device Type", "Total Allocated", "Total Reserved", "allocated", "reserved", "limit"):
        for phase, name in (("i", "[memory]"), ("C", "memory")):
            known = {"Bytes": 8, "Device Type": 1, "Total Allocated": 8, argument: _HUGE}
            b.event(ph=phase, name=name, cat="cpu_instant_event", pid=100, tid=100, ts=1500, s="t", args=known)
    for name in ("process_sort_index", "thread_sort_index"):
        b.event(ph="M", name=name, pid=100, tid=100, ts=0, args={"sort_index": _HUGE})
    return b


@cache
def text_of_trace() -> str:
    return trace().text()


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_huge_number_costs_no_run(run, tmp_path, monkeypatch, command, value):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hpuprof.viewers.serving.perfetto_files", lambda: tmp_path)
    monkeypatch.setattr("hpuprof.viewers.serving.Viewer.serve_forever", lambda _: None)
    path = Path("t.pt.trace.json")
    path.write_text(text_of_trace().replace(f'"{_HUGE}"', VALUES[value]))
    code, out, err = run(*(path if a == "{}" else a for a in COMMANDS[command]))
    assert (code, "bug" in err) == (0, False), err
    if command == "analyze":
        report = json.loads(out)
        assert [step["wall_ns"] for step in report["steps"]] == [1_000_000] * 4
    elif command.startswith("merge"):
        assert Path("merged.json").read_text().count('"name":"gemm"') >= 2


@pytest.mark.parametrize("stamp", ["1E+1000999999", "-1e999999999", "9" * 5000, "1E+300", "NaN", "-Infinity", ""])
@pytest.mark.parametrize("kind", ["BEGIN", "END"])
@pytest.mark.parametrize("command", ["analyze", "inspect", "merge", "slices", "convert", "check"])
def test_a_bad_stamp_in_a_csv_costs_its_row(run, tmp_path, monkeypatch, command, kind, stamp):
    monkeypatch.chdir(tmp_path)
    rows = [
        f"a,MME0,{kind},{stamp}",
        *(f"a,MME0,{k},{10 * i + (k == 'END') * 4}" for i in range(3) for k in ("BEGIN", "END")),
    ]
    path = Path("hw.csv")
    path.write_text("\n".join(["Name,Engine,Event type,Timestamp[usec]", *rows]))
    code, out, err = run(*(path if a == "{}" else a for a in COMMANDS[command]))
    assert (code, "bug" in err) == (0, False), err
    if command == "analyze":
        report = json.loads(out)
        (kernel,) = report["kernels"]
        assert (kernel["count"], kernel["total_ns"]) == (3, 12_000)
        assert sum(d["count"] for d in report["diagnostics"] if d["code"] in ("HP111", "HP112")) == 1


@pytest.mark.parametrize("value", ["9" * 400, "9" * 5000, "1e400", "1e308", '"x"'])
def test_huge_numbers_in_files_of_settings_are_refused_in_words(run, tmp_path, good_trace, value):
    path = tmp_path / "clock.json"
    for text in (
        '{"h": %s}',
        '{"h": {"offset_ns": %s}}',
        '{"h": {"offset_ns": 1, "drift_ppm": 1, "reference_ns": %s}}',
    ):
        path.write_text(text % value)
        code, _, err = run("analyze", good_trace, "--clock", f"manifest:{path}")
        assert (code, "bug" in err) == (2, False), err


@pytest.mark.parametrize("option", ["--ranks", "--steps"])
@pytest.mark.parametrize("text", ["9" * 5000, "0-" + "9" * 5000, "0:" + "9" * 5000])
def test_huge_numbers_in_options_are_refused_in_words(run, tmp_path, good_trace, option, text):
    code, _, err = run("merge", good_trace, "-o", tmp_path / "m.json", option, text)
    assert (code, "cannot be read" in err) == (2, True), err


@pytest.mark.parametrize("name", ["rank%s.json", "worker%s.json", "h_%s.7.pt.trace.json", "h_0.%s.pt.trace.json"])
def test_huge_numbers_in_names_of_files(run, tmp_path, monkeypatch, good_trace, name):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / (name % ("9" * 200))
    path.write_bytes(good_trace.read_bytes())
    for command in ("analyze", "inspect", "merge", "export"):
        code, _, err = run(*(path if a == "{}" else a for a in COMMANDS[command]))
        assert (code, "bug" in err) == (0, False), err
