"""Names from traces are obeyed by nobody: not by the log of a CI job, not by GitHub's Markdown."""

from __future__ import annotations

import json
import re

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.cli.main import main
from hpuprof.render.markdown import escape

ORDERS = ("::error file=a.py::x", "\u00a0::stop-commands::x", "see ##[add-mask]x", "##vso[task.complete]x")


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    b = TraceBuilder()
    for i in range(6):
        b.step(i, 1000 * i, 1000)
        for place, name in enumerate(ORDERS):
            b.host(name, 1000 * i + 10 + 200 * place, 150 + place)
    return b.write(tmp_path_factory.mktemp("orders") / "::warning::_0.1.pt.trace.json")


def obeyed(text):
    """Lines that GitHub's runner would parse (ActionCommand.cs), and Azure's agent."""
    return [x for x in text.splitlines() if x.strip().startswith("::") or "##[" in x or "##vso[" in x]


@pytest.mark.parametrize(
    "command", ["analyze", "analyze --full", "analyze --brief", "analyze --json", "inspect", "inspect --json", "check", "advise", "export --table operators", "export --table operators --json"]
)  # fmt: skip
def test_a_ci_job_obeys_no_name(traces, capsys, command):
    name, *options = command.split()
    assert main([name, str(traces), *options]) == 0
    out = capsys.readouterr().out
    assert obeyed(out) == []
    if "--json" in options:
        assert name == "inspect" or all(order in str(json.loads(out)) for order in (ORDERS[2], ORDERS[3]))
    elif "--full" in options:
        assert re.search("^  ∶:error file=a.py::x ", out, re.M)


def test_a_saved_report_reads_back_the_same(traces, tmp_path):
    report = hpuprof.analyze(traces)
    saved = hpuprof.save(report, tmp_path / "r.json")
    assert obeyed(saved.read_text()) == []
    assert hpuprof.read_report(saved) == report


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ping @octocat", "ping @&#8203;octocat"),
        ("http://a.b", "http:&#8203;//a.b"),
        ("www.a.b Www.c", "www&#8203;.a.b Www&#8203;.c"),
        ("~~gone~~", "\\~\\~gone\\~\\~"),
        ("$x$", "<span>$</span>x<span>$</span>"),
        ("aten::mm [x](y)", "aten::mm \\[x\\](y)"),
    ],
)
def test_markdown_pings_nobody_and_links_nowhere(name, expected):
    assert escape(name) == expected
