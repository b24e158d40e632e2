"""What rows say of recipes: ids and handles as numbers or texts, names, scopes."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder

from hpuprof.ingest.dialect_scopes import scope_of
from hpuprof.ingest.recipe_rows import identity
from hpuprof.model.trace import RecipeRows, Trace

HOST = (200, 1)
_HUGE = int("7" * 300)


def table(trace: Trace, rows: RecipeRows) -> list[tuple[int, str, str, str, str]]:
    """Return row, id, handle, name and scope of each row; empty for none."""
    of = trace.recipes
    columns = ((rows.id, of.ids), (rows.handle, of.handles), (rows.name, of.names), (rows.scope, of.scopes))
    texts = [[words[c] if c >= 0 else "" for c in codes.tolist()] for codes, words in columns]
    return list(zip(rows.rows.tolist(), *texts, strict=True))


@pytest.fixture(params=["auto", "python"])
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read with the scanner and without it."""
    monkeypatch.setenv("HPUPROF_SCAN", request.param)


def launch(b: TraceBuilder, start: float, **args: object) -> TraceBuilder:
    return b.host("enqueueWithExternalEventsExt (accel0)", start, 1, cat="hpu_op", thread=HOST, **args)


@pytest.mark.usefixtures("both")
def test_ids_handles_names_and_scopes(tmp_path: Path):
    """Number and text of one value are equal; rows without any are left out; rows are counted in order of start."""
    b = TraceBuilder()
    b.lane("relu", 20, 5, recipeId=60914, recipeHandle="140512", EventName="layers/4/mlp/act_bundle_3/op_7")
    b.lane("gemm", 10, 5, recipeId=" 60914 ", recipeHandle=140512, **{"Original Nodes": "layers/4/mlp/up"})
    b.lane("null", 16, 2, recipeId=0, recipeName="")
    launch(b, 5, recipeId="0xEDF2", recipeHandle="0x224e0", recipeName=".graph_dumps/graph_17")
    launch(b, 3)
    trace = b.trace(tmp_path)
    assert table(trace, trace.recipes.host) == [(1, "60914", "140512", ".graph_dumps/graph_17", "")]
    assert table(trace, trace.recipes.device) == [
        (0, "60914", "140512", "", "layers/4/mlp/up"),
        (2, "60914", "140512", "", "layers/4/mlp/act"),
    ]
    assert trace.device.recipe.tolist() == [60914, -1, 60914]


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("odd", [None, True, -1, 0, "", " ", "0", "-1", "0x0", 1.5, [], [1], {"a": 1}, _HUGE, 1e300])
def test_what_is_no_identity_costs_its_field_alone(odd: object, tmp_path: Path):
    b = TraceBuilder().lane("relu", 20, 5, recipeId=odd, recipeHandle=odd, recipeName="graph_1")
    launch(b, 5, recipeId=odd, recipeHandle=odd, recipeName="graph_1")
    trace = b.trace(tmp_path)
    assert table(trace, trace.recipes.host) == table(trace, trace.recipes.device) == [(0, "", "", "graph_1", "")]
    assert trace.device.recipe.tolist() == [-1]


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("odd", [None, True, 7, 1.5, [], {"a": 1}, ""])
def test_what_is_no_name_costs_its_field_alone(odd: object, tmp_path: Path):
    args = {"recipeName": odd, "EventName": odd, "Original Nodes": odd}
    trace = TraceBuilder().lane("relu", 20, 5, recipeId="eager 7", recipeHandle="h", **args).trace(tmp_path)
    assert table(trace, trace.recipes.device) == [(0, "eager 7", "h", "", "")]
    assert trace.device.recipe.tolist() == [-1]


def test_identities():
    said = (60914, "60914", 60914.0, "0xedf2", "0XEDF2", "+60914", "060914", "\t60914\n")
    assert {identity(value) for value in said} == {"60914"}
    assert identity(2**64 - 1) == identity("0x" + "f" * 16) == str(2**64 - 1)
    assert (identity("9" * 300), identity("0x1g"), identity("٣")) == ("9" * 300, "0x1g", "٣")


def test_rows_that_are_dropped_leave_the_others_their_names(tmp_path: Path):
    """Rows a day away, and device rows that stand twice."""
    b = TraceBuilder()
    launch(b, 5, recipeId=7)
    launch(b, 9e13, recipeId=8)
    for start in (10, 10, 30):
        b.lane("relu", start, 5, recipeId=7, EventName="a/b")
    b.lane("gemm", 20, 5, recipeId=9, EventName="a/c")
    trace = b.trace(tmp_path)
    assert table(trace, trace.recipes.host) == [(0, "7", "", "", "")]
    said = [(0, "7", "", "", "a/b"), (1, "9", "", "", "a/c"), (2, "7", "", "", "a/b")]
    assert table(trace, trace.recipes.device) == said


def test_traces_without_recipes_hold_nothing(tmp_path: Path):
    trace = TraceBuilder().host("aten::mm", 0, 5).kernel("gemm", 3, 2, launch=1, **{"graph id": 4}).trace(tmp_path)
    assert [len(part) for part in (trace.recipes.host, trace.recipes.device, trace.recipes.ids)] == [0, 0, 0]
    assert trace.device.recipe.tolist() == [4]


@pytest.mark.parametrize(
    ("node", "sources", "scope"),
    [
        ("fusedTPCNode_8_0/layers/2/mlp/add", "", "layers/2/mlp/add"),
        ("fusedTPCNode_8_0", "layers/3/mlp/add, layers/3/mlp/mul", "layers/3/mlp"),
        ("fusedTPCNode_8_0", "layers/3/mlp/add;layers/4/mlp/add", "layers"),
        ("fusedTPCNode_8_0", "embed/mul layers/4/mlp/add", "fusedTPCNode_8_0"),
        ("fusedTPCNode_8_0", "", "fusedTPCNode_8_0"),
        ("", "layers/3/mlp/up_bundle_2/op_1 layers/3/mlp/up_bundle_2/op_2", "layers/3/mlp/up"),
        ("layers/2/attention/matmul_bundle_1/op_0", "head/x", "layers/2/attention/matmul"),
    ],
)
def test_a_fused_node_is_of_what_its_sources_share(node: str, sources: str, scope: str):
    assert scope_of(node, sources) == scope
