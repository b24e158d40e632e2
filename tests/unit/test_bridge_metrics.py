"""What the device's bridge counted (`PT_HPU_METRICS_FILE`), and what a server did (`server_events_*.json`), alone and with traces."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import hpuprof
from hpuprof.cli.main import cli
from hpuprof.errors import InputError
from hpuprof.ingest.bridge_metrics import BridgeMetrics, read_bridge_metrics
from hpuprof.ingest.discover import Companion, search
from hpuprof.ingest.server_events import Phase, ServerEvents, read_server_events


def counted(metric: str, **statistics: Any) -> dict[str, Any]:
    return {"metric_name": metric, "triggered_by": "process_exit", "generated_on": "", "statistics": statistics}


FIRST = counted("graph_compilation", TotalNumber=1, TotalTime=20_400, AvgTime=20_400.0)
LAST = counted("graph_compilation", TotalNumber=3, TotalTime=61_200, AvgTime=20_400.0)
FALLBACKS = counted("cpu_fallback", TotalNumber=70, FallbackOps={"aten::index": 6, "aten::nonzero": 64})
MOVED = counted("memory_defragmentation", TotalNumber=2, TotalSuccessful=2, AvgTime=1.5, MaxTime=2.0)
CACHE = counted("recipe_cache", TotalHit=9, RecipeHit={}, TotalMiss=4, RecipeMiss={})


def write(folder: Path, *objects: dict[str, Any], name: str = "metrics-rank3.json", end: str = "\n]") -> Path:
    path = folder / name
    path.write_text("[\n" + ",\n".join(map(json.dumps, objects)) + end, encoding="utf-8")
    return path


@pytest.mark.parametrize("end", ["\n]", "", ",\n", ',\n{"metric_name":"memory_defrag'])
def test_the_last_totals_count_also_while_the_process_lives(tmp_path: Path, end: str):
    path = write(tmp_path, FIRST, FALLBACKS, LAST, MOVED, CACHE, end=end)
    assert search([tmp_path]) == ([], [], [Companion(path, "metrics")])
    assert read_bridge_metrics(path) == BridgeMetrics(
        name=path.name,
        rank=3,
        graphs=3,
        compile_us=61_200.0,
        fallbacks=(("aten::nonzero", 64), ("aten::index", 6)),
        defragmentations=2,
        cache_misses=4,
    )


@pytest.mark.parametrize(
    ("name", "rank"), [("m.json", 0), ("m-rank12.json", 12), ("m-rank7.json.2", 7), ("m-rank7.1", 7), ("rank5.json", 0)]
)
def test_the_rank_is_in_the_name(tmp_path: Path, name: str, rank: int):
    assert read_bridge_metrics(write(tmp_path, LAST, name=name)).rank == rank


def test_the_file_alone_is_an_input(tmp_path: Path):
    write(tmp_path, LAST, FALLBACKS)
    result = CliRunner().invoke(cli, ["analyze", str(tmp_path)])
    assert result.exit_code == 0
    text = " ".join(result.stdout.split())
    assert "What the device's bridge counted, without traces: rank 3: 3 graphs compiled in 0.0612 s." in text
    assert "HP189 Operators fall back to the CPU" in text


def test_so_it_is_by_its_own_name(tmp_path: Path):
    path = write(tmp_path, LAST)
    assert hpuprof.analyze(path).data.answer.bound_sentence.startswith("What the device's bridge counted")


def test_workers_are_asked_for_what_is_not_here(tmp_path: Path):
    """What lies next to traces is looked for with them, and no sooner."""

    class Workers:
        def submit(self, *asked: Any) -> Any:
            raise RuntimeError(f"asked for {asked[1]}")

    with pytest.raises(RuntimeError, match=r"asked for .*nowhere"):
        hpuprof.analyze(tmp_path / "nowhere", executor=Workers())


def test_it_lies_with_the_traces_and_is_no_lost_file(tmp_path: Path, samples: Path):
    shutil.copytree(samples / "hpu_g1_lazy", tmp_path / "run")
    before = hpuprof.analyze(tmp_path / "run", cache="off").data
    write(tmp_path / "run", LAST, FALLBACKS, MOVED, CACHE)
    data = hpuprof.analyze(tmp_path / "run", cache="off").data
    said = {d.code: d.text for d in data.diagnostics if d not in before.diagnostics}
    assert said == {
        "HP188": "rank 3: 3 graphs compiled in 0.0612 s, 4 recipes not in the cache, device memory defragmented 2 times",
        "HP189": "rank 3: 70 calls of 2 operators ran on the CPU: aten::nonzero 64, aten::index 6",
    }
    (fix,) = [fix for fix in data.answer.fixes if fix.finding == "HP189"]
    assert (fix.status, fix.why) == ("not_priced", "the bridge counts calls, not what they cost")
    assert data.plan == before.plan


@pytest.mark.parametrize(
    "statistics",
    [
        {"TotalNumber": "x", "TotalTime": None},
        {"TotalNumber": 1e300, "TotalTime": -5},
        {"TotalNumber": True, "TotalTime": [1]},
        {"FallbackOps": 7},
    ],
)
def test_what_is_no_number_counts_as_none(tmp_path: Path, statistics: dict[str, Any]):
    objects = [counted(name, **statistics) for name in ("graph_compilation", "cpu_fallback", "recipe_cache")]
    found = read_bridge_metrics(write(tmp_path, *objects))
    assert (found.graphs, found.compile_us, found.fallbacks) == (0, 0.0, ())


def test_a_file_without_totals_is_named(tmp_path: Path):
    path = tmp_path / "metrics.json"
    path.write_text('[{"metric_name": "graph_compilation"', encoding="utf-8")
    with pytest.raises(InputError, match="hold no totals"):
        read_bridge_metrics(path)
    with pytest.raises(InputError, match="hold no totals"):
        hpuprof.analyze(tmp_path)


def served(folder: Path, *more: dict[str, Any], end: str = ",") -> Path:
    """Write a server's events: a warm-up that compiles, then 30 decodes of 90 sequences in buckets of 128."""
    at, rows = 1.79e15, []

    def ran(name: str, dur: float) -> None:
        rows.append({"pid": 4711, "tid": 3, "ph": "X", "name": name, "ts": at, "dur": dur, "args": None})

    ran("GRAPH COMPILE: first", 2e6)
    ran("warmup", 5e6)
    at += 6e6
    ran("prefill", 40_000)
    for step in range(30):
        at += 18_000
        sizes = {"decode_bucket_batch_size": 128, "decode_batch_size": 90, "engine_iteration": step}
        rows.append({"pid": 4711, "tid": 1, "ph": "C", "name": "utils", "ts": at, "args": sizes})
        ran("model_forward_bs128_seq1_ctx128_graphsT", 15_000)
        ran("decode", 17_000)
    path = folder / "server_events_vllm-instance-4711-0a.json"
    path.write_text("[" + ",".join(map(json.dumps, [*rows, *more])) + end, encoding="utf-8")
    return path


LATE = {
    "pid": 4711,
    "tid": 3,
    "ph": "X",
    "name": "GRAPH COMPILE: late",
    "ts": 1.79e15 + 7e6,
    "dur": 1.5e6,
    "args": None,
}


@pytest.mark.parametrize("end", [",", "", "]", ',{"pid": 4711, "ti'])
def test_the_phases_of_a_server_and_its_padding(tmp_path: Path, end: str):
    found = read_server_events(served(tmp_path, LATE, end=end))
    assert found == ServerEvents(
        name=found.name,
        phases=(Phase("prefill", 1, 40_000.0), Phase("decode", 30, 510_000.0)),
        padding=pytest.approx(1 - 90 / 128),
        compiled=1,
        compile_us=1.5e6,
    )


def test_events_of_a_server_alone_are_an_input(tmp_path: Path):
    served(tmp_path, LATE)
    data = hpuprof.analyze(tmp_path).data
    assert {d.code: d.text for d in data.diagnostics if d.code in ("HP192", "HP193")} == {
        "HP192": "prefill: 1 of 40.00 ms on average; decode: 30 of 17.00 ms on average; 29.7 % of the decoded batches is padding",
        "HP193": "graphs compiled after the warm-up: 1, 1.5 s in all",
    }
    assert [fix.finding for fix in data.answer.fixes] == ["HP193"]
    assert data.answer.bound_sentence.startswith("What the server counted, without traces: prefill: 1 of")


def test_a_server_that_compiles_in_its_warm_up_alone_has_nothing_to_mend(tmp_path: Path, samples: Path):
    shutil.copytree(samples / "hpu_g1_lazy", tmp_path / "run")
    served(tmp_path / "run")
    data = hpuprof.analyze(tmp_path / "run", cache="off").data
    assert [d.code for d in data.diagnostics if d.code in ("HP192", "HP193", "HP120", "HP114")] == ["HP192"]


def test_events_without_a_phase_are_named(tmp_path: Path):
    (tmp_path / "server_events_x.json").write_text("[", encoding="utf-8")
    with pytest.raises(InputError, match="no phase of a server"):
        hpuprof.analyze(tmp_path)
