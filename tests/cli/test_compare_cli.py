"""compare, gates, export, redaction and completion on the command line."""

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from sample_reports import report_of

from hpuprof.cli.main import COMMANDS

pytestmark = pytest.mark.usefixtures("remembered")


@pytest.fixture
def pair(samples):
    return samples / "hpu_g1_lazy", samples / "hpu_g1_lazy_graph_replay"


def test_compare_answers_first(run, pair):
    code, out, err = run("compare", *pair)
    assert (code, err) == (0, "")
    assert out.startswith("Faster: 1.12 ms per step against 3.33 ms (−2.21 ms, −66.3 %, noise ±")
    assert "device idle, operator launch" in out
    assert len(out.splitlines()) <= 15
    code, full, err = run("compare", *pair, "--full")
    assert full.startswith("Faster: 1.12 ms per step against 3.33 ms")
    out = full
    worse, better = out.index("\nGot worse"), out.index("\nGot better")
    assert worse < better < out.index("\nWhere the step time changed") < out.index("\nMetrics")


@pytest.mark.parametrize("columns", [72, 80, 100, 160])
@pytest.mark.parametrize(
    "command",
    [
        ("compare", "hpu_g1_lazy", "hpu_g2_eager"),
        ("compare", "hpu_g3_lazy_8_ranks", "hpu_g3_compile"),
        ("inspect", "hpu_g1_lazy"),
        ("analyze", "hpu_g1_lazy", "--fail-on", "device_idle_fraction > 30%", "--fail-on", "finding:HP201"),
    ],
    ids=lambda c: "-".join(c[:2]),
)
def test_text_fits_its_width(run, samples, monkeypatch, columns, command):
    monkeypatch.setenv("COLUMNS", str(columns))
    out = run(*(samples / a if (samples / a).is_dir() else a for a in command))[1]
    assert max(len(line) for line in out.splitlines()) <= columns


@pytest.mark.parametrize("command", ["explain HP201", "explain", "--help", *(f"{name} --help" for name in COMMANDS)])
def test_help_and_explanations_fit_80_columns(run, command):
    assert max(len(line) for line in run(*command.split())[1].splitlines()) <= 80


def test_color_only_when_asked(run, pair, monkeypatch):
    assert "\x1b[" not in run("compare", *pair)[1]
    monkeypatch.setenv("FORCE_COLOR", "1")
    colored = run("compare", *pair)[1]
    assert "\x1b[" in colored
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in run("compare", *pair)[1]


def test_compare_json_is_one_document_that_fits_its_schema(run, pair):
    from importlib.resources import files

    code, out, _ = run("compare", *pair, "--json", "--fail-on", "step_time_p50:5%")
    document = json.loads(out)
    schema = json.loads(files("hpuprof.report").joinpath("comparison.schema.json").read_text())
    jsonschema.validate(document, schema)
    assert (code, document["verdict"], document["gates"][0]["outcome"]) == (0, "better", "passed")


def test_a_check_is_recorded_as_one_line(run, pair):
    code, out, err = run("compare", *pair, "--record-check")
    assert (code, err, out.count("\n")) == (0, "", 1)
    line = json.loads(out)
    assert (line["fixes"], line["verdict"], line["reason"]) == (["graphs"], "not scored", "recorded_only")
    assert line["predicted_ns"][0] <= line["predicted_ns"][1] <= line["predicted_ns"][2]
    assert "hpu_g1" not in out
    code, out, err = run("compare", pair[0], pair[0], "--record-check")
    assert (code, out, "no fix was found" in err) == (3, "", True)
    assert run("compare", *pair, "--record-check", "--json")[0] == 2
    assert run("compare", *pair, "--full", "-o", "-")[0] == 2


def test_hostile_names_stay_text(run, tmp_path):
    from builder import TraceBuilder

    evil = "\x1b[31mred\u202e</script><img src=x onerror=alert(1)>[bold]|`x`"

    def trace(name, extra):
        b = TraceBuilder()
        for i in range(8):
            at = i * (1000 + extra)
            b.step(i, at, 1000 + extra).host(evil, at + 1, 300 + extra).annotation(evil, at, 400 + extra)
            b.kernel(evil, at + 500 + extra, 200, launch=at + 450 + extra)
        return b.write(tmp_path / name)

    a, b = trace("a.json", 0), trace("b.json", 200)
    _, out, _ = run("compare", a, b)
    assert "\x1b" not in out
    assert "\u202e" not in out
    assert "[31mred" in out
    run("compare", a, b, "-o", tmp_path / "c.md")
    text = (tmp_path / "c.md").read_text()
    assert "<img" not in text
    assert "&lt;img src=x onerror=alert(1)&gt;\\[bold\\]\\|\\`x\\`" in text


def test_saved_reports_are_compared_like_traces(run, pair, tmp_path):
    assert run("analyze", pair[0], "-o", tmp_path / "a.json")[0] == 0
    saved = run("compare", tmp_path / "a.json", pair[1])[1]
    fresh = run("compare", *pair)[1]
    assert saved.split("\nCompared")[0] == fresh.split("\nCompared")[0]


@pytest.mark.parametrize(
    ("gates", "code", "message"),
    [
        (
            ["device_idle_fraction > 30%"],
            1,
            "gate failed: device_idle_fraction > 30%: device_idle_fraction is 64.6952 %",
        ),
        (["finding:HP201"], 1, "gate failed: finding:HP201: HP201 was found"),
        (["device_idle_fraction > 99%", "finding:HP203"], 0, ""),
        (["unprofiled_step_time > 1ms"], 3, "gate cannot be evaluated: unprofiled_step_time > 1ms"),
        (["unprofiled_step_time > 1ms", "device_idle_fraction > 30%"], 1, "cannot be evaluated"),
        (["device_idel_fraction > 30%"], 2, "did you mean device_idle_fraction"),
        (["step_time_p50:5%"], 2, "needs two runs to compare"),
    ],
)
def test_gates_of_analyze(run, samples, gates, code, message):
    options = [word for gate in gates for word in ("--fail-on", gate)]
    found, out, err = run("analyze", samples / "hpu_g1_lazy", *options)
    assert found == code
    assert message in err
    assert ("\nGates: " in out) == (code != 2)


def test_gates_of_compare(run, pair, tmp_path):
    slow, fast = pair[0], pair[1]
    code, out, err = run("compare", fast, slow, "--fail-on", "step_time_p50:5%")
    assert code == 1
    assert "gate failed: step_time_p50:5%: step_time_p50 got worse by 196 %" in err
    assert "beyond noise" in out
    assert run("compare", slow, fast, "--fail-on", "step_time_p50:5%")[0] == 0
    assert run("compare", slow, fast, "--fail-on", "finding:HP201")[0] == 0
    assert run("compare", fast, slow, "--fail-on", "finding:HP201")[0] == 1
    assert run("compare", fast, slow, "--fail-on", "step_time_p90:5%")[0] == 3  # six steps have no 90th percentile


def test_gate_outcomes_as_json_markdown_and_junit(run, samples, tmp_path):
    gates = ("--fail-on", "device_idle_fraction > 30%", "--fail-on", "overlap_degree < 10%")
    code, out, _ = run("analyze", samples / "hpu_g1_lazy", *gates, "--json", "--junit", tmp_path / "j.xml")
    assert code == 1
    assert [g["outcome"] for g in json.loads(out)["gates"]] == ["failed", "passed"]
    suite = ET.parse(tmp_path / "j.xml").getroot()[0]
    assert (suite.get("name"), suite.get("tests"), suite.get("failures")) == ("hpuprof analyze", "2", "1")
    assert run("analyze", samples / "hpu_g1_lazy", *gates, "-o", tmp_path / "r.md")[0] == 1
    assert "| device\\_idle\\_fraction &gt; 30% | failed |" in (tmp_path / "r.md").read_text()
    assert run("analyze", samples / "hpu_g1_lazy", "--junit", tmp_path / "no" / "j.xml")[0] == 2


def test_gates_from_settings(run, pair, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(
        '[tool.hpuprof]\nfail-on = ["device_idle_fraction > 30%", "step_time_p50:5%"]\n'
    )
    assert run("analyze", pair[0])[0] == 1
    assert run("analyze", pair[1])[0] == 0  # a gate on a change waits for a comparison
    assert run("compare", pair[1], pair[0])[0] == 1
    assert run("analyze", pair[0], "--fail-on", "device_idle_fraction > 90%")[0] == 0
    monkeypatch.setenv("HPUPROF_FAIL_ON", "device_idle_fraction > 90%; overlap_degree < 1%")
    assert run("analyze", pair[0])[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["compare", "{a}"], 2, "Missing argument 'B'"),
        (["compare", "{a}", "{b}", "--threshold", "some"], 2, "is not a percentage"),
        (["compare", "{a}", "{b}", "--threshold", "0.05"], 2, "is not a percentage"),
        (["compare", "{a}", "{b}", "-o", "c.pdf"], 2, "no format"),
        (["compare", "{a}", "none"], 3, "no such file"),
        (["compare", "{a}", "{test}"], 3, "nothing to compare"),
        (["export", "{a}", "--table", "step"], 2, "did you mean steps"),
        (["export", "{a}"], 2, "Missing option '--table'"),
        (["export", "{a}", "--table", "steps", "-o", "x.xls"], 2, "no format of a table"),
        (["completion", "cmd"], 2, "bash"),
    ],
)
def test_wrong_calls(run, samples, pair, tmp_path, arguments, code, message):
    places = {"a": pair[0], "b": pair[1], "test": tmp_path}
    if "{test}" in arguments:
        good = next((samples / "cpu_1_rank").glob("*.gz"))
        shutil.copy(good, tmp_path / "test-host_0-0-[Strategy]SingleDevice.test_step.1.pt.trace.json.gz")
    found, out, err = run(*(a.format(**places) for a in arguments))
    assert (found, out) == (code, "")
    assert message in err
    assert "hint:" in err


def test_export_csv_is_the_table(run, samples):
    code, out, err = run("export", samples / "hpu_g1_lazy", "--table", "steps")
    assert (code, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    steps = report_of("hpu_g1_lazy").data.steps
    assert [int(r["wall_ns"]) for r in rows] == [s.wall_ns for s in steps]
    assert [r["used"] for r in rows] == [str(s.used).lower() for s in steps]
    assert list(rows[0]) == list(type(steps[0]).__struct_fields__)


def test_export_slices_streams_every_row(run, samples, tmp_path):
    target = tmp_path / "slices.csv"
    code, out, err = run("export", samples / "hpu_g3_lazy_8_ranks", "--table", "slices", "-o", target)
    assert (code, out, err) == (0, "", f"wrote {target}\n")
    with target.open(newline="") as handle:
        rows = list(csv.DictReader(handle))
    files = report_of("hpu_g3_lazy_8_ranks").data.files
    for f in files:
        mine = [r for r in rows if r["path"] == f.path]
        assert sum(r["side"] == "host" for r in mine) == f.host_rows
        assert sum(r["side"] == "device" for r in mine) == f.device_rows
        assert {r["rank"] for r in mine} == {str(f.rank)}
    assert run("export", samples / "cpu_1_rank", "--table", "slices", "-o", target)[0] == 2
    assert run("export", samples / "cpu_1_rank", "--table", "slices", "-o", target, "-f")[0] == 0


def test_export_takes_saved_reports_but_not_their_slices(run, samples, tmp_path):
    saved = tmp_path / "r.json"
    run("analyze", samples / "hpu_g1_lazy", "-o", saved)
    assert (
        run("export", saved, "--table", "kernels")[1] == run("export", samples / "hpu_g1_lazy", "--table", "kernels")[1]
    )
    code, _, err = run("export", saved, "--table", "slices")
    assert (code, "holds no slices" in err) == (3, True)


def test_export_json(run, samples):
    rows = json.loads(run("export", samples / "hpu_g1_lazy", "--table", "metrics", "--json")[1])
    assert rows[0]["name"] == "step_time_p50"
    assert json.loads(run("export", samples / "cpu_1_rank", "--table", "kernels", "--json")[1]) == []


def test_a_broken_file_costs_only_itself_in_slices(run, samples, tmp_path):
    shutil.copy(next((samples / "cpu_1_rank").glob("*.gz")), tmp_path / "host_0.1.pt.trace.json.gz")
    (tmp_path / "host_1.1.pt.trace.json").write_text('{"traceEvents": [')
    code, out, err = run("export", tmp_path, "--table", "slices")
    assert (code, out.count("\n") > 10) == (0, True)
    assert "left out:" in err
    assert "host_1.1" in err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(run, shell):
    code, out, err = run("completion", shell)
    assert (code, err) == (0, "")
    assert "_HPUPROF_COMPLETE" in out
    assert f"{shell}_complete" in out


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
def test_bash_accepts_the_script(run):
    script = run("completion", "bash")[1]
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("hpuprof comp", {"compare", "completion"}),
        ("hpuprof export --table ste", {"steps", "step_groups", "step_kinds", "step_waits"}),
        ("hpuprof compare --fail-on step_time_p", {"step_time_p50", "step_time_p90"}),
        ("hpuprof explain HP20", {f"HP20{i}" for i in range(1, 10)}),
        ("hpuprof completion f", {"fish"}),
    ],
)
def test_completion_completes(words, expected):
    environment = {
        **os.environ,
        "_HPUPROF_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - 1),
    }
    code = "import sys; sys.argv[0] = 'hpuprof'; from hpuprof.cli.main import run; run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {line.split(",", 1)[1] for line in done.stdout.splitlines()} == expected
