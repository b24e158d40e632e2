"""Runs the notebooks from top to bottom and stores what their cells show.

`python notebooks/run.py [NAME ...]` writes them anew with pictures, which forges show, as PNG: that takes Chromium and
Playwright. `--to FOLDER` writes what they show there instead, figures by their titles only. They run in a temporary
folder, so that recordings do not stay.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "notebooks"
WIDTH = 900
"""Of pictures, in pixels."""
Draw = Callable[[Any], dict[str, str]]


class Said(io.StringIO):
    """A stream of a cell, which keeps what both streams said in order."""

    def __init__(self, name: str, outputs: list[dict[str, Any]]) -> None:
        super().__init__()
        self.of, self.outputs = name, outputs

    def write(self, text: str) -> int:
        """Add to the last output if it is of this stream."""
        if text and not (self.outputs and self.outputs[-1].get("name") == self.of):
            self.outputs.append({"output_type": "stream", "name": self.of, "text": ""})
        if text:
            self.outputs[-1]["text"] += text
        return len(text)


def run(path: Path, folder: Path, draw: Draw) -> dict[str, Any]:
    """Return a notebook with the outputs of its cells, run in a folder in which sample_traces lies."""
    notebook: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    space: dict[str, Any] = {"__name__": "__main__"}
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with _inside(folder):
        for count, cell in enumerate(code, 1):
            cell["outputs"] = _outputs("".join(cell["source"]), f"cell {count}", space, draw)
            cell["execution_count"] = count
            for output in cell["outputs"]:
                if output["output_type"] == "execute_result":
                    output["execution_count"] = count
    return notebook


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _outputs(source: str, name: str, space: dict[str, Any], draw: Draw) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body[-1] if tree.body else None
    if isinstance(last, ast.Expr):
        tree.body.pop()
    outputs: list[dict[str, Any]] = []
    value = None
    with (
        contextlib.redirect_stdout(Said("stdout", outputs)),
        contextlib.redirect_stderr(Said("stderr", outputs)),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        exec(compile(tree, name, "exec"), space)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), space)
    for output in outputs:
        output["text"] = output["text"].splitlines(keepends=True)
    if value is not None:
        outputs.append({"output_type": "execute_result", "metadata": {}, "data": _shown(value, draw)})
    return outputs


def _shown(value: Any, draw: Draw) -> dict[str, Any]:
    """Return a value in the forms that a notebook stores, text as a list of lines."""
    if type(value).__module__.startswith("plotly"):
        forms = draw(value)
    else:
        forms = {"text/plain": repr(value)}
        if hasattr(value, "_repr_html_"):
            forms["text/html"] = value._repr_html_()
    return {kind: text if kind == "image/png" else text.splitlines(keepends=True) for kind, text in forms.items()}


def titled(figure: Any) -> dict[str, str]:
    """Return a figure as a line of text."""
    drawn = [trace.name or trace.type for trace in figure.data]
    said = [note.text.replace("<br>", " ") for note in figure.layout.annotations]
    return {"text/plain": f"Figure of {', '.join(dict.fromkeys(drawn))}" if drawn else f"Figure of nothing: {said[0]}"}


@contextlib.contextmanager
def pictures() -> Iterator[Draw]:
    """Yield what draws a figure as PNG in a browser."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import Browser, stop
    from plotly.offline import get_plotlyjs

    with Browser(width=WIDTH) as browser:
        browser.open("about:blank")
        browser.value(f"{get_plotlyjs()}; 0")

        def draw(figure: Any) -> dict[str, str]:
            size = f"{{format: 'png', width: {WIDTH}, height: {figure.layout.height}, scale: 1}}"
            address: str = browser.value(f"Plotly.toImage({figure.to_json()}, {size})")
            return {**titled(figure), "image/png": address.partition(",")[2]}

        yield draw
    stop()


def store(notebook: dict[str, Any], path: Path) -> None:
    """Write a notebook as Jupyter does."""
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--to", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    paths = sorted(p for p in FOLDER.glob("*.ipynb") if not options.names or p.stem in options.names)
    with contextlib.nullcontext(titled) if options.to else pictures() as draw:
        for path in paths:
            began = time.monotonic()
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "sample_traces").symlink_to(ROOT / "sample_traces")
                notebook = run(path, Path(folder), draw)
            store(notebook, (options.to or FOLDER) / path.name)
            print(f"{path.stem}: {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
