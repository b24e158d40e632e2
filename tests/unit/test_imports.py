"""No two modules import each other, directly or in a circle; imports inside functions count."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def imported(path: Path, module: str) -> Iterator[str]:
    """Yield the absolute names that a module imports, each imported name as if it were a module."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def graph_of(folder: Path) -> dict[str, set[str]]:
    """Return which modules of a package import which others of it."""
    paths = {}
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    found: dict[str, set[str]] = {}
    for module, path in paths.items():
        # A name that is no module is one that its package or module defines.
        names = ((name if name in paths else name.rpartition(".")[0]) for name in imported(path, module))
        found[module] = {name for name in names if name in paths and name != module}
    return found


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module."""

    def reach(start: str) -> set[str]:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for name in graph[todo.pop()] - seen:
                seen.add(name)
                todo.append(name)
        return seen

    reached = {module: reach(module) for module in graph}
    found = {frozenset(other for other in reached[m] if m in reached[other]) for m in graph}
    return sorted(sorted(circle) for circle in found if len(circle) > 1)


def test_a_circle_is_found(tmp_path):
    package = tmp_path / "house"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("def late():\n    from house import b\n")
    (package / "b.py").write_text("from .c import something\n")
    (package / "c.py").write_text("import house.a\n")
    assert circles(graph_of(package)) == [["house.a", "house.b", "house.c"]]


@pytest.mark.parametrize("package", ["hpuprof", "benchmarks"])
def test_no_circle_of_imports(package):
    graph = graph_of(ROOT / package)
    assert any(graph.values())
    assert circles(graph) == []
