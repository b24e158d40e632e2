"""Programs with published figures, end to end: the smallest ones; all of them by `python -m benchmarks.published_steps`."""

from __future__ import annotations

import pytest

from benchmarks.published_steps.__main__ import as_rows, as_text, judged, report_of, summary
from benchmarks.published_steps.cases import CASES
from hpuprof.planning.remedies import BY_NAME

SMALL = ("B1", "B14a", "C3b", "C6")


def test_each_case_names_fixes_that_there_are_and_asks_something():
    assert len({case.name for case in CASES}) == len(CASES) >= 38
    for case in CASES:
        truth = case.truth
        assert {*truth.first, *truth.saves, *truth.absent} <= set(BY_NAME), case.name
        assert truth.verdicts or truth.first or truth.saves or truth.bound or truth.base or truth.exposed, case.name
        assert "#" in case.source
        assert case.program


@pytest.mark.parametrize("name", SMALL)
def test_what_is_said_of_a_small_one_is_what_was_measured(name):
    case = next(case for case in CASES if case.name == name)
    report, now = report_of(case)
    said = list(judged(case, report, now))
    assert said
    assert [one.asked for one in said if not one.right] == []


def test_a_wrong_answer_is_counted_against_its_program():
    case = next(case for case in CASES if case.name == "B14a")
    report, now = report_of(case)
    said = list(judged(case, report, now))
    wrong = [type(one)(one.case, one.asked, "yes", one.must, right=False) for one in said]
    assert "0 of 1 right; 0 of 1 programs without a miss" in summary(wrong)
    assert "1 of 1 right; 1 of 1 programs" in summary(said)
    assert "✗" in as_text(case, now, wrong)
    assert "| **no** |" in as_rows(case, now, wrong)
    assert "| yes |" in as_rows(case, now, said)
