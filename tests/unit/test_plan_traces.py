"""The judge of first lines: what counts as right, and that each opinion names what there is."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import msgspec
import pytest
from sample_reports import report_of

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("no benchmarks beside the tests", allow_module_level=True)
sys.path.append(str(ROOT))  # after the installed package, which is what is tested

from benchmarks.plan_traces import First, as_markdown, faults, first_in
from benchmarks.public_traces import LIST, Opinion, PlanOpinion
from hpuprof.model.prediction import Reason
from hpuprof.planning.remedies import BY_NAME
from hpuprof.report.job_plan import BALANCE, KEEP_PACE

LOADING = PlanOpinion(["data_loading"], (0.2, 0.5), "It waits.")


@pytest.mark.parametrize(
    ("first", "wrong"),
    [
        (First("data_loading", "", 1e6, (0.1, 0.3, 0.6)), 0),
        (First("graphs", "", 1e6, (0.1, 0.3, 0.6)), 1),
        (First("data_loading", "", 1e6, (0.1, 0.6, 0.7)), 1),  # more than the recorded step allows
        (First("data_loading", "", 1e6, (0.0, 0.1, 0.2)), 1),
        (First("nothing", ""), 1),
    ],
)
def test_a_first_line_is_right_when_its_remedy_and_its_gain_are(first, wrong):
    assert len(faults(LOADING, first)) == wrong


def test_each_opinion_names_remedies_or_reasons_that_there_are():
    opinions = [o for o in msgspec.json.decode(LIST.read_bytes(), type=list[Opinion]) if o.plan]
    known = {*BY_NAME, *get_args(Reason), KEEP_PACE, BALANCE, "not_linked", "one_rank", "nothing"}
    assert len(opinions) >= 25
    for o in opinions:
        assert o.plan.first, o.path
        assert set(o.plan.first) <= known, o.path
        assert o.plan.why.endswith("."), o.path


def test_the_first_line_of_a_report_and_its_row_in_the_table():
    first = first_in(report_of("hpu_g2_eager"))
    assert first.name == "data_loading"
    assert 0.2 < first.gain[0] <= first.gain[1] <= first.gain[2] < 1
    opinion = Opinion("a/b", "0" * 40, "t.json", "a step", "", ["no"], plan=LOADING)
    assert as_markdown([(opinion, LOADING, first, ["too much"])]).rstrip().endswith("| It waits. | no: too much |")
