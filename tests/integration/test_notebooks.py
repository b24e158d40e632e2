"""The notebooks tell stories: they run from top to bottom, use public calls only, and are stored with what they show."""

import ast
import base64
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from needs import module

import hpuprof
from hpuprof import plots

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
RECORDS = ("data_loader", "slow_rank")
SECTIONS = ["## Problem", "## Recording", "## Answer", "## Change", "## Compare"]
MOST_BYTES = 400_000
notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda p: p.stem)


def cells(path, kind="code"):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"] >= 5) == (4, True)
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def shown(cell):
    """Return what a cell shows, pictures left out."""
    return [
        {**output, "data": {k: v for k, v in output["data"].items() if k != "image/png"}}
        if "data" in output
        else output
        for output in cell["outputs"]
    ]


def ran(path, folder):
    """Run a notebook in a process of its own; return its cells."""
    if path.stem in RECORDS:
        module("torch", "torch")
    command = [sys.executable, ROOT / "notebooks" / "run.py", "--to", folder, path.stem]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return cells(folder / path.name)


def test_there_are_three():
    assert [p.stem for p in NOTEBOOKS] == ["data_loader", "launch_bound_to_graphs", "slow_rank"]


@notebooks
def test_a_story_is_complete(path):
    told = "\n".join("".join(cell["source"]) for cell in cells(path, "markdown"))
    assert re.findall(r"^## (?:Problem|Recording|Answer|Change|Compare)$", told, re.MULTILINE) == SECTIONS
    assert "ever run on a Gaudi" in " ".join(told.split())


@notebooks
def test_a_notebook_is_stored_with_its_pictures(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < MOST_BYTES
    assert not re.search(r"/(?:tmp|home|root|work|usr)/", text)
    code = cells(path)
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    data = [output["data"] for cell in code for output in cell["outputs"] if "data" in output]
    assert all("text/plain" in forms for forms in data)
    pictures = [base64.b64decode(forms["image/png"]) for forms in data if "image/png" in forms]
    assert len(pictures) >= 3
    assert all(picture.startswith(b"\x89PNG") for picture in pictures)
    assert sum("text/html" in forms for forms in data) >= 3
    assert max(len("".join(forms["text/plain"])) for forms in data) < 600


@notebooks
def test_a_notebook_runs_and_shows_what_is_stored(path, tmp_path):
    fresh, stored = ran(path, tmp_path), cells(path)
    assert [cell["source"] for cell in fresh] == [cell["source"] for cell in stored]
    for new, old in zip(fresh, stored, strict=True):
        recorded = path.stem in RECORDS and "eight" not in "".join(new["source"])
        if not recorded:
            assert shown(new) == shown(old), "python notebooks/run.py stores it anew"
        kinds = [[sorted(output.get("data", ())) for output in shown(cell) if "data" in output] for cell in (new, old)]
        assert kinds[0] == kinds[1]
        for output in old["outputs"]:
            assert ("image/png" in output.get("data", ())) == ("Figure of" in str(output.get("data")))


@notebooks
def test_a_notebook_uses_public_calls(path):
    for cell in cells(path):
        for node in ast.walk(ast.parse("".join(cell["source"]))):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
                assert set(names) <= {"hpuprof", "pathlib", "subprocess", "sys", "time", "torch", "torch.utils.data"}
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "hpuprof":
                assert node.attr in hpuprof.__all__
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "hpuprof.plots":
                assert node.attr in plots.__all__
