"""The stock profiler tab over converted samples, driven through its HTTP API: every view of every dialect answers."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from board import ROOT, Board

HOME = "/data/plugin/pytorch_profiler"
DEVICE = {
    "hpu_g1_lazy",
    "hpu_g1_lazy_graph_replay",
    "hpu_g2_eager",
    "hpu_g3_compile",
    "hpu_g3_lazy_8_ranks",
    "hpu_hw_csv",
}
HOST = {"cpu_1_rank", "cpu_2_ranks_ddp", "lightning_1_rank", "hpu_synapse_logger"}
VIEWS = {"hpu_g1_lazy": {"Memory"}, "hpu_g1_lazy_graph_replay": {"Memory"}, "hpu_g2_eager": {"Memory"}, "hpu_g3_lazy_8_ranks": {"Distributed"}, "cpu_2_ranks_ddp": {"Distributed"}}  # fmt: skip


@pytest.fixture(scope="module")
def runs(board: Board, stock_version: str) -> list[str]:
    found = board.wait(
        f"{HOME}/runs", lambda body: body["runs"] and not body["loading"] and len(body["runs"]) >= 12, seconds=180
    )
    return sorted(found["runs"])


def of(runs: list[str], sample: str) -> list[str]:
    return [run for run in runs if run.split("/")[0] == sample]


def query(board: Board, run: str, view: str) -> dict[str, Any]:
    _, workers = board.get(f"{HOME}/workers", run=run, view=view)
    _, spans = board.get(f"{HOME}/spans", run=run, worker=workers[0])
    return {"run": run, "worker": workers[0], "span": spans[0]}


def good(board: Board, path: str, **asked: Any) -> Any:
    status, body = board.get(f"{HOME}{path}", **asked)
    assert status == 200, f"{path} {asked}: {status} {str(body)[:300]}"
    return body


@pytest.mark.parametrize("sample", sorted(DEVICE | HOST))
def test_every_view_of_every_dialect_answers(board: Board, runs: list[str], sample: str) -> None:
    mine = of(runs, sample)
    assert mine, f"{sample} is not in the tab"
    for run in mine:
        views = set(good(board, "/views", run=run))
        expected = (
            {"Overview", "Operator", "Trace"} | ({"Kernel"} if sample in DEVICE else set()) | VIEWS.get(sample, set())
        )
        assert expected <= views
        overview = good(board, "/overview", **query(board, run, "Overview"))
        shown = steps_shown(overview)
        assert overview["performance"][0]["value"] == pytest.approx(sum(shown) / len(shown), abs=1), "their mean"
        operators = good(board, "/operation/table", group_by="Operation", **query(board, run, "Operator"))["data"]
        for path, asked in (
            ("/operation", {"group_by": "Operation"}),
            ("/operation/table", {"group_by": "OperationAndInputShape"}),
        ):
            good(board, path, **asked, **query(board, run, "Operator"))
        trace = good(board, "/trace", **query(board, run, "Trace"))
        assert len(trace["traceEvents"]) > 20
        if sample in DEVICE:
            device_views(board, run, sample, overview, operators)
        else:
            assert operators, "the host's operators are listed"
        if "Memory" in views:
            for path in ("/memory", "/memory_curve", "/memory_events"):
                good(board, path, **query(board, run, "Memory"))
        if "Distributed" in views:
            asked = {**query(board, run, "Distributed"), "worker": "All"}
            for path in ("gpuinfo", "waittime", "commops"):
                good(board, f"/distributed/{path}", **asked)
            overlap = good(board, "/distributed/overlap", **asked)["data"]["all"]
            assert len(overlap) == (8 if sample.startswith("hpu") else 2), "every rank is a worker"
            assert all(communication > 0 for _, _, communication, _ in overlap.values())


def steps_shown(overview: Any) -> list[float]:
    """Length of each step in the tab, us: its parts, which come with a text each."""
    return [sum(row[1::2]) for row in overview["steps"]["rows"]]


def true_steps(run: str, worker: str) -> list[int]:
    """Length of each step, ns: until its device work was done as the simulation knows it; of real recordings as annotated."""
    sample, name = run.split("/")
    rank = int(worker.rsplit("_", 1)[1])
    samples = json.loads((ROOT / "sample_traces/manifest.json").read_text())["samples"]
    (told,) = (entry["expected"] for entry in samples if entry["name"] == sample)
    told = told.get("per_rank", {}).get(str(rank), told)
    if "per_file" not in told:
        found: list[int] = told.get("step_until_done_ns") or [told["window_ns"]]
        return found
    stage = name.removeprefix("fit-") if name.startswith("fit-") else ""
    path = sorted(file for file in told["per_file"] if stage in file)[rank]
    rows = json.loads(gzip.decompress((ROOT / "sample_traces" / sample / path).read_bytes()))["traceEvents"]
    mark = {"training_step": "]run_training_batch", "validation_step": ".validation_step", "": "ProfilerStep#"}[stage]
    steps = sorted((row["ts"], row["dur"]) for row in rows if row["ph"] == "X" and mark in row["name"])
    ends = [start for start, _ in steps[1:]] if stage else [start + length for start, length in steps[:-1]]
    return [round((end - start) * 1000) for (start, _), end in zip(steps, [*ends, sum(steps[-1])], strict=True)]


@pytest.mark.parametrize("sample", sorted(DEVICE | HOST))
def test_every_step_takes_in_the_tab_what_it_took_until_its_work_was_done(
    board: Board, runs: list[str], sample: str
) -> None:
    for run in of(runs, sample):
        for worker in good(board, "/workers", run=run, view="Overview"):
            (span,) = good(board, "/spans", run=run, worker=worker)
            shown = steps_shown(good(board, "/overview", run=run, worker=worker, span=span, view="Overview"))
            true = true_steps(run, worker)
            cut = len(true) - len(shown)
            assert cut == (1 if sample.startswith("hpu_g1") else 0), (
                "the tab leaves out a last step with little device work"
            )
            assert [us * 1000 for us in shown] == [pytest.approx(ns, rel=0.1) for ns in true[: len(shown)]]


def device_views(board: Board, run: str, sample: str, overview: Any, operators: list[Any]) -> None:
    summary = {row["title"]: row["value"] for row in overview["gpu_metrics"]["data"]}
    assert summary["Name"] == ("HPU" if sample == "hpu_hw_csv" else "GAUDI2")
    assert float(summary["GPU Utilization"].split()[0]) > 5
    kernels = good(board, "/kernel/table", group_by="Kernel", **query(board, run, "Kernel"))["data"]
    rows = kernels["rows"]
    total = [c["name"] for c in kernels["columns"]].index("Total Duration (us)")
    ran = sum(row[total] for row in rows)
    good(board, "/kernel", group_by="Kernel", **query(board, run, "Kernel"))
    good(board, "/kernel/tc_pie", **query(board, run, "Kernel"))
    if sample != "hpu_hw_csv":  # a hardware trace holds no host, and no operator
        owned = sum(op["device_self_duration"] for op in operators)
        assert owned == pytest.approx(ran, rel=0.1), "kernels and the few copies belong to operators"


def test_utilization_is_a_union_over_lanes(board: Board, runs: list[str]) -> None:
    """24 lanes of one kernel must not make 24 times its length: the device cannot be busier than the clock."""
    (run,) = of(runs, "hpu_g1_lazy_graph_replay")
    overview = good(board, "/overview", **query(board, run, "Overview"))
    summary = {row["title"]: row["value"] for row in overview["gpu_metrics"]["data"]}
    assert 90 < float(summary["GPU Utilization"].split()[0]) <= 100
    operators = good(board, "/operation/table", group_by="Operation", **query(board, run, "Operator"))["data"]
    step = overview["performance"][0]["value"]
    steps = len(overview["steps"]["rows"])
    # Engines run beside each other, at most MME, TPC and DMA at once.
    assert sum(op["device_self_duration"] for op in operators) <= 3 * step * (steps + 1)


def test_modules_have_device_time(board: Board, runs: list[str]) -> None:
    (run,) = of(runs, "modules")
    assert "Module" in good(board, "/views", run=run), "although Lightning's `Framework` hides it"
    rows = good(board, "/module", **query(board, run, "Module"))
    (linear,) = rows["data"]
    keys = {column["name"]: column["key"] for column in rows["columns"]}
    assert linear["name"] == "Linear_0"
    assert linear[keys["Occurences"]] == 4
    assert linear[keys["Device Total Time"]] == 4 * 250
    good(board, "/tree", **query(board, run, "Module"))


def test_data_loading_is_counted(board: Board, runs: list[str]) -> None:
    (run,) = of(runs, "hpu_g2_eager")
    overview = good(board, "/overview", **query(board, run, "Overview"))
    shares = {part["name"]: part["value"] for part in overview["performance"][0]["children"]}
    assert shares["DataLoader"] > 0.5 * overview["performance"][0]["value"]
    assert "data loading" in overview["recommendations"]
