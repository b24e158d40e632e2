"""Every form of an answer says where no estimate was ever checked on the device."""

from __future__ import annotations

import json

import pytest
from builder import TraceBuilder, waited_for
from conftest import ROOT

SAMPLES = ROOT / "sample_traces"
WORDS = "Estimates were never checked on this device"
FORMS = ([], ["--full"], ["-o", "md"], ["-o", "html"], ["-o", "txt"])


def renamed(family: str) -> TraceBuilder:
    """The same program, as recorded on another device."""
    b = waited_for()
    for event in b.events:
        if family == "rocm":
            event["name"] = event["name"].replace("cuda", "hip")
        elif family == "xpu":
            event["cat"] = event["cat"].replace("cuda", "xpu")
    return b


def said(run, path, tmp_path, form) -> str:
    if not form or form[0] == "--full":
        return run("analyze", path, *form)[1]
    target = tmp_path / f"out.{form[1]}"
    assert run("analyze", path, "-f", "-o", target)[0] == 0
    return target.read_text()


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
@pytest.mark.parametrize(("family", "title"), [("xpu", "XPU"), ("rocm", "ROCm device")])
def test_other_devices_say_so(run, tmp_path, family, title, form):
    path = renamed(family).write(tmp_path / "t.json")
    assert said(run, path, tmp_path, form).count(f"{WORDS} ({title}).") == 1


@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_cuda_and_cpu_do_not(run, tmp_path, form):
    path = renamed("cuda").write(tmp_path / "t.json")
    assert "What to change first" in said(run, path, tmp_path, form)
    assert WORDS not in said(run, path, tmp_path, form) + said(run, SAMPLES / "cpu_1_rank", tmp_path, form)


@pytest.mark.parametrize("command", ["plan", "advise"])
def test_plan_and_advise_say_so_too(run, command):
    assert f"{WORDS} (HPU)." in run(command, SAMPLES / "hpu_g2_eager")[1]


def test_json_and_brief_hold_it_in_one_field(run):
    full, brief = (json.loads(run("analyze", SAMPLES / "hpu_g2_eager", form)[1]) for form in ("--json", "--brief"))
    assert full["headline"]["never_checked_on"] == brief["never_checked_on"] == "HPU"


def test_a_fix_that_was_checked_elsewhere_says_so(run, tmp_path):
    """What data loading saves was checked on changed programs, of a CPU and of CUDA."""
    words = set()
    for family in ("xpu", "cuda"):
        b = renamed(family)
        for at in range(0, 6000, 1000):
            b.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 620, 350, cat="user_annotation")
        fixes = json.loads(run("analyze", b.write(tmp_path / f"{family}.json"), "--json")[1])["answer"]["fixes"]
        words |= {(family, fix["evidence"]) for fix in fixes if fix["name"] in ("data_loading", "synchronisation")}
    assert words == {
        ("xpu", "checked on other devices"),
        ("xpu", "simulated"),
        ("cuda", "checked"),
        ("cuda", "simulated"),
    }


def test_where_nothing_is_estimated_nothing_is_said(run, tmp_path):
    b = TraceBuilder().lane("gemm", 5, 10, cat="kernel")
    code, out, _ = run("analyze", b.write(tmp_path / "t.json"), "--json")
    assert (code, json.loads(out)["headline"]["never_checked_on"]) == (0, "")
