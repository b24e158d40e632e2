"""The notebooks run from top to bottom on the samples, use public calls only, and are stored without outputs."""

import ast
import json
from pathlib import Path

import pytest

import hpuprof
from hpuprof import plots

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells(path):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"] >= 5) == (4, True)
    return notebook["cells"]


def run(path, monkeypatch):
    """Execute the code cells as a notebook does; return the namespace and what each cell showed."""
    monkeypatch.chdir(path.parent)
    space = {"__name__": "__main__"}
    shown = []
    for cell in cells(path):
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(path), "exec"), space)
        shown.append(eval(compile(ast.Expression(last.value), str(path), "eval"), space) if last else None)
    return space, shown


def test_there_are_two():
    assert [p.stem for p in NOTEBOOKS] == ["guided_analysis", "many_ranks"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_runs_and_draws(path, monkeypatch, capsys):
    import plotly.graph_objects as go

    space, shown = run(path, monkeypatch)
    figures = [value for value in shown if isinstance(value, go.Figure)]
    assert len(figures) >= 4
    assert all(len(figure.data) for figure in figures)
    assert space["report"].headline.sentence in capsys.readouterr().out
    if path.stem == "many_ranks":
        assert space["slowest"] == 5, "rank 5 of the sample loads data slowly"
        assert space["comparison"].sentence.startswith("Faster")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)
def test_notebook_is_stored_clean_and_uses_public_calls(path):
    for cell in cells(path):
        if cell["cell_type"] != "code":
            continue
        assert (cell["outputs"], cell["execution_count"]) == ([], None)
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                assert set(names) <= {"pathlib", "hpuprof"}
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                if node.value.id == "hpuprof":
                    assert node.attr in hpuprof.__all__
                if node.value.id == "plots":
                    assert node.attr in plots.__all__
