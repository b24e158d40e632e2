"""The judge of public traces: what counts as right, and that the list can be read."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec
import pytest

ROOT = Path(__file__).resolve().parents[2]
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("no benchmarks beside the tests", allow_module_level=True)
sys.path.append(str(ROOT))  # after the installed package, which is what is tested

from benchmarks.public_traces import LIST, Opinion, Said, as_markdown, faults, said_of, scores

AT_MOST = Opinion("a/b", "0" * 40, "t.json", "a step", "at most 1.2", ["no", "marginal"], (1.0, 1.2), "allocat|copies")


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        (Said("marginal", "", 1.0, 1.15, 1.3, "copies fill the step"), 0),
        (Said("marginal", "", 1.0, None, 1.45, "the host allocates"), 0),
        (Said("marginal", "", 1.0, None, 1.6, "the host allocates"), 1),  # a bound that is none
        (Said("yes", "", 1.0, 1.15, 1.3, "copies"), 1),  # another verdict
        (Said("marginal", "", 1.2, 1.29, 1.35, "copies"), 1),  # more than the recorded step allows
        (Said("marginal", "", 0.8, 0.9, 1.0, "copies"), 1),  # a loss where none can be
        (Said("cannot say", "", text="Cannot say."), 2),  # and the finding is missing
    ],
)
def test_an_answer_is_right_when_verdict_range_and_finding_are(said, wrong):
    assert len(faults(AT_MOST, said)) == wrong


def test_no_limit_is_no_fault():
    bare = Opinion("a/b", "0" * 40, "t.json", "", "", ["likely"], (1.0, None))
    assert faults(bare, Said("likely", "", 1.5, 40.0, 90.0)) == []


def test_each_trace_of_the_list_names_its_commit_and_a_verdict_that_there_is():
    opinions = msgspec.json.decode(LIST.read_bytes(), type=list[Opinion])
    assert len(opinions) >= 40
    assert len({(o.repo, o.path) for o in opinions}) == len(opinions)
    for o in opinions:
        assert re.fullmatch("[0-9a-f]{40}", o.commit), o.path
        assert set(o.verdicts) <= {"yes", "likely", "marginal", "unlikely", "no", "cannot say"}, o.path
        assert o.range is None or o.range[1] is None or o.range[0] <= o.range[1], o.path


def test_the_table_links_to_the_commit_and_tells_what_is_wrong():
    table = as_markdown([(AT_MOST, Said("yes", "Yes."), ["yes, not no"])])
    assert f"https://github.com/a/b/blob/{'0' * 12}/t.json" in table
    assert table.rstrip().endswith("| no: yes, not no |")


def test_what_was_right_at_first_is_told_apart_from_what_is_right_now():
    assert scores([(None, True), (None, False)]) == "2 traces: 1 right"
    blind = scores([(None, True), (True, True), (False, True), (False, False)])
    assert blind == "4 traces: 3 right; of 3 whose opinion was written before, 1 were at first and 2 are now"


def test_a_file_that_cannot_be_read_is_named_without_the_folder_that_it_lies_in(tmp_path):
    (tmp_path / "trace.json").write_text('{"traceEvents": [{"ph": "X", "name": "a"}]}')
    said = said_of(tmp_path / "trace.json")
    assert said.verdict == "error"
    assert said.sentence.startswith("trace.json: ")
    assert str(tmp_path) not in said.sentence
