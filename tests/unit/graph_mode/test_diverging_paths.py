"""Paths of calls: where they part, and what decides."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder
from hypothesis import given
from hypothesis import strategies as st

from hpuprof.graph_mode.diverging_paths import find_period
from hpuprof.model.partial import RankPartial

STEP = 1000


def forks(part: RankPartial) -> list[tuple[str, str, int, str]]:
    """Severity, module, calls off the usual path, text."""
    return [(o.severity, o.module, o.count, o.text) for o in part.obstacles if o.code == "HP309"]


def program(paths: list[list[str]], *, dims: list[int] | None = None) -> TraceBuilder:
    """One step a path: A calls the operators of the path, 20 µs apart; names without `aten::` are modules."""
    b = TraceBuilder().steps(len(paths), STEP)
    for i, path in enumerate(paths):
        at = i * STEP
        b.host("nn.Module: A_0", at + 100, 800, cat="python_function")
        for k, name in enumerate(path):
            start = at + 110 + 20 * k
            shape = {"Input Dims": [[dims[i], 4]], "Input type": ["float"]} if dims else {}
            if name.startswith("aten::"):
                b.host(name, start, 10, **shape)
            else:
                b.host(f"nn.Module: {name}", start, 15, cat="python_function").host("aten::mm", start + 2, 5, **shape)
    return b


PLAIN = ["aten::mm", "aten::relu", "aten::sum"]
OTHER = ["aten::mm", "aten::tanh", "aten::sum"]


@pytest.mark.parametrize(
    ("series", "period"),
    [
        ([0, 1] * 4, 2),
        ([0, 0, 0, 1] * 3, 4),
        ([0, 0, 1, 0, 0, 1, 0, 0], 3),
        ([0, 0, 0, 1, 0, 0, 0], None),  # one exception is no period
        ([0, 1, 1, 0, 1, 0, 0, 0, 1], None),
        ([0, 1, 0, 1, 0, 1], None),  # too short: by chance once in 16 times
        ([0] * 12, None),
    ],
)
def test_periods(series: list[int], period: int | None):
    assert find_period(series) == period


@given(st.lists(st.integers(0, 1), min_size=2, max_size=10), st.integers(2, 6))
def test_a_repeated_pattern_has_a_period_that_divides_it(pattern: list[int], times: int):
    series = pattern * (times + 5)
    found = find_period(series)
    if len(set(pattern)) == 1:
        assert found is None
    else:
        assert found is not None
        assert len(pattern) % found == 0


def test_where_two_paths_part(tmp_path: Path):
    part = program([PLAIN, PLAIN, OTHER, PLAIN, PLAIN, OTHER, OTHER, PLAIN]).reduce(tmp_path)
    assert forks(part) == [("blocker", "A_0", 3, "after mm: relu in 5 calls, tanh in 3")]


def test_an_operator_that_is_left_out_and_one_at_the_end(tmp_path: Path):
    short, long = ["aten::mm", "aten::sum"], [*PLAIN, "aten::exp"]
    part = program([PLAIN, PLAIN, short, PLAIN, short, PLAIN, long, PLAIN]).reduce(tmp_path)
    assert [text for *_, text in forks(part)] == ["after mm: relu in 5 calls, sum in 2, 1 more path"]
    part = program([PLAIN, PLAIN, long, PLAIN, PLAIN, long, long, PLAIN]).reduce(tmp_path)
    assert [text for *_, text in forks(part)] == ["after sum: nothing more in 5 calls, exp in 3"]


def test_a_read_is_an_obstacle_of_its_own_and_no_path(tmp_path: Path):
    reads = ["aten::mm", "aten::item", "aten::relu", "aten::sum"]
    part = program([PLAIN, reads, PLAIN, PLAIN, reads, reads, PLAIN, PLAIN]).reduce(tmp_path)
    assert [o.code for o in part.obstacles] == ["HP302"]


def test_paths_that_repeat(tmp_path: Path):
    part = program([OTHER, PLAIN, PLAIN, PLAIN] * 3).reduce(tmp_path)
    assert forks(part) == [
        ("periodic", "A_0", 3, "after mm: relu in 9 calls, tanh in 3; it repeats every 4 calls"),
    ]


def test_a_branch_between_modules_can_be_cut(tmp_path: Path):
    one, other = ["aten::mm", "B_0"], ["aten::mm", "C_0"]
    part = program([one, other, other, one, one, one, other, one]).reduce(tmp_path)
    ((severity, module, count, text),) = forks(part)
    assert (severity, module, count) == ("cut", "A_0", 3)
    assert text.startswith("after mm: B_0 in 5 calls, C_0 in 3")


def test_only_the_module_that_forks_is_named(tmp_path: Path):
    b = program([PLAIN, PLAIN, OTHER, PLAIN, PLAIN, OTHER, OTHER, PLAIN])
    for i in range(8):
        b.host("nn.Module: Outer_0", i * STEP + 50, 900, cat="python_function")
    part = b.reduce(tmp_path)
    assert [f[1] for f in forks(part)] == ["A_0"]
    assert {m.module: m.blockers for m in part.modules}["Outer_0"] == ["HP309"]


def test_other_shapes_may_take_other_paths(tmp_path: Path):
    dims = [8, 8, 5, 8, 8, 5, 5, 8]
    part = program([PLAIN, PLAIN, OTHER, PLAIN, PLAIN, OTHER, OTHER, PLAIN], dims=dims).reduce(tmp_path)
    assert forks(part) == []
    assert [o.code for o in part.obstacles] == ["HP307"]


@pytest.mark.parametrize(("odd", "which"), [(0, "first"), (7, "last")])
def test_the_first_or_last_call_may_do_more(tmp_path: Path, odd: int, which: str):
    paths = [[*PLAIN, "aten::randn"] if i == odd else PLAIN for i in range(8)]
    assert forks(program(paths).reduce(tmp_path)) == [
        ("harmless", "A_0", 1, f"after sum: nothing more in 7 calls, randn in 1; only the {which} call differs")
    ]


def test_steps_are_compared_too(tmp_path: Path):
    b = program([PLAIN] * 9)
    for i in (2, 3, 6):
        b.host("aten::exp", i * STEP + 950, 10)
    assert forks(b.reduce(tmp_path)) == [("cut", "(step)", 3, "after A_0: nothing more in 4 steps, exp in 3")]


def test_allocation_and_views_are_no_path(tmp_path: Path):
    noisy = ["aten::mm", "aten::empty", "aten::detach", "aten::relu", "aten::sum"]
    assert forks(program([PLAIN, noisy, PLAIN, PLAIN, noisy, noisy, PLAIN, PLAIN]).reduce(tmp_path)) == []


def test_equal_forks_of_one_class_are_one_row(tmp_path: Path):
    b = program([PLAIN, PLAIN, OTHER, PLAIN, PLAIN, OTHER, OTHER, PLAIN])
    for event in [e for e in b.events if e["cat"] != "user_annotation"]:
        name = event["name"].replace("A_0", "A_1")
        b.event(**{**event, "name": name, "ts": event["ts"] + 0.5, "pid": 200, "tid": 200})
    (row,) = [o for o in b.reduce(tmp_path).obstacles if o.code == "HP309"]
    assert (row.module, row.modules, row.count, row.steps) == ("A (2 modules)", ["A_0", "A_1"], 6, 3)
    assert row.text == "after mm: relu in 5 calls, tanh in 3"
