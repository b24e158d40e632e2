"""The card and the brief: the answer within their room, whatever the report; and the numbers of the report."""

import json
from pathlib import Path

import pytest
from builder import TraceBuilder
from first_screen import fits
from sample_reports import report_of

import hpuprof
from hpuprof.render.brief import LIMIT, to_brief
from hpuprof.render.formats import duration, percent

SAMPLES = ("hpu_g1_lazy", "hpu_g2_eager", "hpu_g3_compile", "hpu_g3_lazy_8_ranks", "cpu_1_rank", "cpu_2_ranks_ddp")


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("sample", SAMPLES)
def test_the_answer_fits_one_screen_and_says_what_the_report_says(sample, width):
    report = report_of(sample)
    card, document = fits(report, width)
    assert duration(report.metrics["step_time_mean"].value) in card
    busy = report.metrics["device_busy_fraction"].value
    if busy is not None:
        parts = [
            report.metrics[f"{name}_fraction"].value
            for name in ("compute", "exposed_communication", "exposed_copy", "device_idle")
        ]
        assert sum(parts) == pytest.approx(1)
        for part in parts:
            assert part < 0.0005 or percent(part) in card.replace("\n", " ")
    for row in report.data.plan:
        if row.order == 1:
            fix = report.answer.lines[0]
            assert fix.saves in " ".join(card.split())
            assert document["plan"][0]["gain_ns"][1] == round(row.gain_ns)
    assert document["graph_mode"]["verdict"] == report.graph_mode.verdict
    assert document["next"][0] == "hpuprof plan traces"


def test_many_long_names_and_broken_files_keep_their_room(tmp_path, run):
    out = TraceBuilder()
    for step in range(4):
        out.step(step, 1000 * step, 1000)
        for i in range(40):
            out.host(f"{'é' * 400}::{i}", 1000 * step + 20 * i, 15)
            out.kernel(f"{'名' * 300}{i}", 1000 * step + 20 * i + 5, 9, launch=1000 * step + 20 * i + 2)
    out.write(tmp_path / "host_0.1.pt.trace.json")
    for rank in range(1, 30):
        Path(tmp_path / f"{'b' * 150}_{rank}.1.pt.trace.json").write_text('{"traceEvents": [')
    fits(hpuprof.analyze(tmp_path))
    code, text, _ = run("analyze", tmp_path)
    assert code == 0
    assert "bbb" in text, "a broken file is named"
    code, text, _ = run("analyze", tmp_path, "--brief")
    assert (code, json.loads(text)["brief_version"]) == (0, 2)


def test_lists_give_way_one_line_at_a_time():
    import msgspec

    report = report_of("hpu_g3_lazy_8_ranks")
    findings = [msgspec.structs.replace(f, evidence="e" * 290) for f in report.findings for _ in range(6)]
    crowded = type(report)(msgspec.structs.replace(report.data, findings=findings))
    document = json.loads(to_brief(crowded))
    assert len(to_brief(crowded).encode()) <= LIMIT
    assert 1 < len(document["findings"]) < len(findings)
    assert len(document["findings"]) + document["left_out"]["findings"] == len(findings)
    assert document["plan"]


def test_one_form_at_a_time(run, samples):
    code, _, err = run("analyze", samples / "hpu_g1_lazy", "--brief", "--full")
    assert code == 2
    assert "exclude each other" in err
