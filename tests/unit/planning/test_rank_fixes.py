"""What a rank of a job could change: which place of each fix, at which outcomes, and which of them at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from hpuprof.graph_mode.region_names import OptionKey
from hpuprof.planning import rank_fixes as module
from hpuprof.planning.rank_fixes import rank_fixes
from hpuprof.planning.remedy import Effort, Remedy
from hpuprof.planning.situation import NOWHERE
from hpuprof.what_if.change import Change
from hpuprof.what_if.graph import CrosswiseError


class Steps(SimpleNamespace):
    """Steps that remember what was done to them; that is what their collectives are."""

    def along_the_cost(self, schedule: tuple) -> tuple:
        if any(name == "crosswise" for name, _ in schedule):
            raise CrosswiseError
        return schedule

    def without_host(self, windows: str) -> Steps:
        return Steps(**{**vars(self), "schedule": (*self.schedule, (f"without {windows}", 0.0))})


def change(name: str, touches: Sequence[int] | None = None, **more) -> Change:
    mask = None if touches is None else np.isin(np.arange(6), touches)

    def edit(model: Steps, level: float) -> Steps:
        return Steps(**{**vars(model), "schedule": (*model.schedule, (name, level))})

    return Change(where=name, per_step=1.0, edit=edit, touches=mask, **more)


def remedy(name: str, *changes: Change, effort: Effort = Effort.ARGUMENT, **more) -> Remedy:
    def find(_: object) -> Iterator[Change]:
        yield from changes

    words = dict.fromkeys(("title", "advice", "costs", "unknown", "needs"), name)
    return Remedy(name=name, **words, effort=effort, find=find, **more)


@pytest.fixture
def fixes(monkeypatch):
    def of(
        *remedies: Remedy,
        wished: Sequence[str] = (),
        collectives: int = 1,
        captures: Sequence[OptionKey] = (),
        loader: SimpleNamespace | None = None,
    ):
        found = [(one, change) for one in remedies for change in one.find(None)]
        chosen = SimpleNamespace(chosen={1: np.arange(collectives)} if collectives else {})
        model = Steps(schedule=(), collectives=chosen)
        monkeypatch.setattr(module, "changes_in", lambda _: found)
        edits = {key: change(f"{key.region} as graphs").edit for key in captures}
        situation = SimpleNamespace(model=model, place=lambda *_: NOWHERE, captures=edits, loader=loader)
        return rank_fixes(situation, "cuda", wished)

    return of


def test_each_fix_is_made_where_it_touches_most(fixes):
    found = fixes(remedy("a", change("here", [1]), change("all", [1, 2, 3]), change("there", [2, 3])))
    assert [row.where for row in found.rows] == ["all"]
    assert [(step.names, step.levels, step.skeletons) for step in found.alone] == [(["a"], [0.0], [(("all", 0.0),)])]


def test_a_place_without_calls_is_one_too(fixes):
    found = fixes(remedy("a", change("whole")), remedy("b", change("whole"), change("one", [1])))
    assert [row.where for row in found.rows] == ["whole", "one"]


def test_what_is_not_known_is_played_at_three_outcomes(fixes):
    found = fixes(remedy("a", change("x", uncertain=True)), remedy("b", change("y")))
    assert [step.levels for step in found.alone] == [[0.0, 0.5, 1.0], [0.0]]
    assert found.alone[0].skeletons == [(("x", level),) for level in (0.0, 0.5, 1.0)]
    assert (found.together.names, found.together.levels) == (["a", "b"], [0.0, 0.5, 1.0])
    assert found.together.skeletons[1] == (("x", 0.5), ("y", 0.5))


def test_communication_and_graphs_are_priced_otherwise(fixes):
    found = fixes(
        remedy("buckets", change("x"), bounds=("communication",)),
        remedy("graphs", change("x")),
        remedy("copies", change("x"), bounds=("copy",)),
    )
    assert [row.remedy for row in found.rows] == ["copies"]
    assert found.alone[0].every == []


def test_batches_that_come_sooner_are_a_pace_and_steps_without_the_wait_for_them(fixes):
    """The job says how often they come, so they are not made with others at once."""
    found = fixes(
        remedy("data_loading", change("x", paces=lambda level: (1 + level) / 4, uncertain=True)),
        remedy("copies", change("y")),
        loader=SimpleNamespace(waiting="waits"),
    )
    assert [row.remedy for row in found.rows] == ["data_loading", "copies"]
    (step, copies) = found.alone
    assert (step.levels, step.every) == ([0.0, 0.5, 1.0], [0.25, 0.375, 0.5])
    assert step.skeletons == [(("without waits", 0.0),)] * 3
    assert copies.every == []
    assert found.together.names == ["copies"]


def test_what_is_made_at_once_changes_no_numerics_and_shares_no_calls(fixes):
    found = fixes(
        remedy("a", change("a", [1, 2])),
        remedy("same_calls", change("b", [2, 3])),
        remedy("restructured", change("c", [3]), effort=Effort.RESTRUCTURING),
        remedy("numerics", change("d"), effort=Effort.NUMERICS),
        remedy("hardware", change("e"), effort=Effort.HARDWARE),
        remedy("left_out", change("g")),
    )
    assert [row.remedy for row in found.rows] == [
        "a", "same_calls", "restructured", "numerics", "hardware", "left_out",
    ]  # fmt: skip
    assert found.together.names == ["a", "restructured", "left_out"]
    assert found.apart == [("a", "same_calls"), ("same_calls", "restructured")]


def test_fixes_that_are_wished_for_are_made_whatever_they_ask(fixes):
    remedies = (remedy("a", change("a")), remedy("numerics", change("n"), effort=Effort.NUMERICS))
    found = fixes(*remedies, wished=("numerics",))
    assert (found.together.names, found.wished) == (["numerics"], ["numerics"])
    assert len(found.rows) == 2
    assert fixes(*remedies, wished=("other",)).together is None


def test_work_that_would_wait_for_itself_is_no_fix(fixes):
    found = fixes(remedy("a", change("crosswise")), remedy("c", change("c")))
    assert [row.remedy for row in found.rows] == ["c"]
    assert found.together.names == ["c"]


def test_a_rank_that_meets_no_others_has_fixes_too(fixes):
    assert [row.remedy for row in fixes(remedy("a", change("a")), collectives=0).rows] == ["a"]


def test_steps_as_graphs_are_made_with_no_fix_with_each_and_with_all_at_once(fixes):
    """Graphs capture what fixes left, at the middle outcome where there are several; what drops waits is another's."""
    captures = [
        OptionKey("step", drops_sync=True, asynchronous=False),
        OptionKey("model", drops_sync=False, asynchronous=False),
        OptionKey("forward+backward", drops_sync=False, asynchronous=False),
        OptionKey("step", drops_sync=False, asynchronous=True),
    ]
    unsure, numerics = remedy("a", change("x", uncertain=True)), remedy("n", change("z"), effort=Effort.NUMERICS)
    found = fixes(unsure, remedy("b", change("y")), numerics, captures=captures)
    graphs = "forward+backward as graphs"
    assert found.captured == "forward+backward"
    assert {tuple(step.names): step.skeletons for step in found.graphed} == {
        (): [((graphs, 0.0),)],
        ("a",): [(("x", 0.5), (graphs, 0.5))],
        ("b",): [(("y", 0.0), (graphs, 0.0))],
        ("n",): [(("z", 0.0), (graphs, 0.0))],
        ("a", "b"): [(("x", 0.5), ("y", 0.5), (graphs, 0.5))],
    }


def test_what_cannot_be_captured_is_not_played_as_graphs(fixes):
    found = fixes(remedy("a", change("x")))
    assert (found.captured, found.graphed) == ("", [])
