"""What a notebook shows of a run, a report and a comparison: the answer, escaped, without script, below 30 kB."""

import dataclasses
import re
from html.parser import HTMLParser

import msgspec
import pytest
from hostile import HOSTILE, hostile
from sample_reports import SAMPLES, report_of

import hpuprof
from hpuprof.render.notebook import MOST_BYTES

NAMES = sorted(p.name for p in SAMPLES.iterdir() if p.is_dir() and p.name != "generator")
ALLOWED = {"div", "p", "strong", "span", "table", "thead", "tbody", "tr", "th", "td", "br", "code", "pre", "details", "summary", "ul", "li"}  # fmt: skip
LONG = "<\"&'>" * 2000


class View(HTMLParser):
    """The text of a view; its elements are closed in order, and none of them loads or runs anything."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open, self.text = [], ""
        self.feed(html)
        self.close()
        assert self.open == []
        assert len(html.encode()) < MOST_BYTES
        self.text = " ".join(self.text.split())

    def handle_starttag(self, tag, attrs):
        assert tag in ALLOWED
        assert set(dict(attrs)) <= {"style", "class"}
        assert "url(" not in dict(attrs).get("style", "")
        if tag != "br":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown(result) -> str:
    return View(result._repr_html_()).text


def compared() -> hpuprof.Comparison:
    return hpuprof.compare(report_of("hpu_g1_lazy"), report_of("hpu_g1_lazy_graph_replay"))


@pytest.mark.parametrize("sample", NAMES)
def test_a_report_shows_its_card_and_its_plan(sample):
    report = report_of(sample)
    text, answer = shown(report), report.answer
    told = [answer.bound_sentence, answer.base.sentence, answer.nothing, answer.end.sentence, answer.beyond]
    told += [answer.graphs.sentence, answer.caution, *(fix.what for fix in answer.lines)]
    told += [fix.saves for fix in answer.lines] + [fix.how.replace("`", "") for fix in answer.lines]
    for said in filter(None, told):
        assert " ".join(said.split()) in text


@pytest.mark.parametrize("sample", NAMES)
def test_a_run_shows_its_files(sample):
    run = hpuprof.load(SAMPLES / sample)
    text = shown(run)
    assert all(file.name in text for file in run.files)
    assert text.startswith(run.summary)


def test_a_comparison_shows_its_sentences_and_what_changed():
    comparison = compared()
    text = shown(comparison)
    assert all(" ".join(said.replace("`", "").split()) in text for said in comparison.leads)
    assert "Got better, per step" in text
    assert "_GraphedBackward" in text


def test_repeats_are_short():
    for result in (compared(), report_of("hpu_g1_lazy"), hpuprof.load(SAMPLES / "hpu_g3_lazy_8_ranks")):
        assert len(repr(result)) < 500
    assert repr(hpuprof.load(SAMPLES / "hpu_g3_lazy_8_ranks")) == "<Run of 8 files, 8 ranks>"


@pytest.mark.parametrize("sample", NAMES)
def test_hostile_names_stay_text(sample):
    data = hostile(report_of(sample).data)
    fixes = [msgspec.structs.replace(fix, what=HOSTILE, how=HOSTILE, code=f"{HOSTILE}\nnext", costs=HOSTILE) for fix in data.answer.fixes]  # fmt: skip
    answer = msgspec.structs.replace(data.answer, bound_sentence=HOSTILE, fixes=fixes)
    html = hpuprof.Report(msgspec.structs.replace(data, answer=answer))._repr_html_()
    assert "<img" not in html
    assert not re.search(r"[\x1b\u202e\u2028]", html)
    assert "alert(1)" in View(html).text


def test_hostile_names_of_files_and_changes_stay_text():
    run = hpuprof.load(SAMPLES / "hpu_g3_lazy_8_ranks")
    files = tuple(msgspec.structs.replace(file, name=HOSTILE) for file in run.files)
    assert "alert(1)" in shown(dataclasses.replace(run, files=files))
    comparison = compared()
    changes = [msgspec.structs.replace(change, name=HOSTILE, match={}) for change in comparison.changes]
    shown_of = shown(msgspec.structs.replace(comparison, changes=changes, sentence=HOSTILE, cautions=[HOSTILE]))
    assert shown_of.count("alert(1)") > 5


def test_long_texts_give_way_to_the_bound():
    report = report_of("hpu_g2_eager")
    fix = msgspec.structs.replace(report.answer.lines[0], what=LONG, saves=LONG, how=LONG, code=f"{LONG}\n" * 90, costs=LONG, unknown=LONG, explains=[LONG])  # fmt: skip
    answer = msgspec.structs.replace(report.answer, bound_sentence=LONG, fixes=[fix] * 40, nothing=LONG, beyond=LONG, caution=LONG)  # fmt: skip
    text = shown(hpuprof.Report(msgspec.structs.replace(report.data, answer=answer)))
    assert "more: report.answer.lines" in text
    run = hpuprof.load(SAMPLES / "hpu_g3_lazy_8_ranks")
    many = dataclasses.replace(run, files=run.files * 1000, identities=run.identities * 1000)
    assert "7980 more: run.files" in shown(many)
    files = tuple(msgspec.structs.replace(file, name=LONG) for file in run.files)
    shown(dataclasses.replace(run, files=files))
    comparison = compared()
    changes = [msgspec.structs.replace(change, name=LONG, match={}, remark=LONG) for change in comparison.changes]
    parts = [msgspec.structs.replace(part, text=LONG, label=LONG) for part in comparison.parts]
    longest = msgspec.structs.replace(comparison, changes=changes, parts=parts, cautions=[LONG] * 50, sentence=LONG)
    assert "Where the step time changed" in shown(longest)
