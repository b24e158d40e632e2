"""The table of recipes: their device time, who launched them, how that is known, and their largest nodes."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import MAIN, TraceBuilder

import hpuprof
from hpuprof.model.tables import RecipeRow

SYNAPSE = (22_101, 102)


def recipes(b: TraceBuilder, folder: Path) -> list[RecipeRow]:
    return hpuprof.analyze(b.write(folder / "t.pt.trace.json"), jobs=1).data.recipes


def run(
    b: TraceBuilder, at: float, handle: str, *, rows: int = 2, enqueued: bool = True, thread=SYNAPSE, **named: str
) -> None:
    """A run of recipe 7 as its operator enqueues it: 40 us of GEMM and on another lane 20 of relu at the same time."""
    identity = {"recipeId": 7, "recipeHandle": handle, **named}
    b.host("aten::mm", at, 30)
    if enqueued:
        b.host("enqueueWithExternalEventsExt (accel0)", at + 5, 10, cat="hpu_op", thread=thread, **identity)
    for k in range(rows):
        b.lane("GEMM", at + 40 + 50 * k, 40, engine="MME", tid=6000, cat="kernel", **identity)
        b.lane("relu", at + 60 + 50 * k, 20, tid=7000, cat="kernel", **identity)


def test_recipes_of_one_id_are_told_apart_by_their_handles(tmp_path: Path):
    b = TraceBuilder().steps(8, 400)
    for at in range(0, 3200, 400):
        run(b, at + 10, "11", rows=1)
        run(b, at + 200, "12")
    one, other = recipes(b, tmp_path)
    assert [(r.recipe, r.handle, r.runs_per_step, r.device_per_step_ns) for r in (one, other)] == [
        ("7", "12", 1.0, 80_000),
        ("7", "11", 1.0, 40_000),
    ]
    assert (one.fraction, other.fraction) == (0.2, 0.1)
    assert (one.basis, one.linked_fraction, one.launched_by) == ("recipe and handle", 1.0, "aten::mm")
    assert one.nodes == "GEMM 67%, relu 33%"


def test_runs_whose_enqueue_is_not_in_the_trace_are_of_no_launch(tmp_path: Path):
    b = TraceBuilder().steps(8, 400)
    for at in range(0, 3200, 400):
        run(b, at + 10, "11", enqueued=False)
    (row,) = recipes(b, tmp_path)
    assert (row.basis, row.linked_fraction, row.launched_by) == ("unknown", 0.0, "")
    assert row.device_per_step_ns == 80_000


def test_each_recipe_has_the_launches_of_its_own_runs(tmp_path: Path):
    b = TraceBuilder().steps(1, 1600)
    for i in range(8):
        run(b, 200 * i + 10, "11" if i < 4 else "12", enqueued=i < 4)
    found = {r.handle: (r.runs, r.basis, r.linked_fraction) for r in recipes(b, tmp_path)}
    assert found == {"11": (4, "recipe and handle", 1.0), "12": (4, "unknown", 0.0)}


@pytest.mark.parametrize("thread", [SYNAPSE, MAIN])
def test_the_only_operator_of_a_trace_launches_its_recipe(tmp_path: Path, thread):
    b = TraceBuilder().steps(1, 200)
    run(b, 10, "11", thread=thread, recipeName="graph_1.recipe")
    (row,) = recipes(b, tmp_path)
    assert row.name == "graph_1.recipe"
    assert (row.runs, row.runs_per_step, row.linked_fraction, row.launched_by) == (1, 1.0, 1.0, "aten::mm")


@pytest.mark.parametrize("sample", ["hpu_g1_lazy", "hpu_g1_lazy_graph_replay", "hpu_g3_compile"])
def test_in_lazy_and_compiled_mode_recipes_hold_all_computation(samples, sample):
    report = hpuprof.analyze(samples / sample, jobs=1)
    computing = report.metrics["compute_fraction"].value
    assert sum(r.fraction for r in report.data.recipes) == pytest.approx(computing, rel=0.03)
    assert {r.linked_fraction for r in report.data.recipes} == {1.0}
    assert all(r.launched_by for r in report.data.recipes)


def test_devices_without_recipes_have_no_such_table(tmp_path: Path):
    b = TraceBuilder().steps(4, 100)
    for at in (0, 100, 200, 300):
        b.kernel("gemm", at + 20, 40, launch=at + 5)
    assert recipes(b, tmp_path) == []
