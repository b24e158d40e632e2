"""`hpuprof doctor`: what it finds on machines with and without torch, Lightning, a bridge and its variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import needs
import pytest

from hpuprof.recorder import machine
from hpuprof.recorder.machine import Check, examine
from hpuprof.recorder.metadata import environment

STUB = Path(__file__).parent / "device" / "stub"
NOTHING_WRONG = {
    "torch": "2.13.0",
    "bridge": "",
    "device": "cpu",
    "count": 0,
    "missing": [],
    "mode": "eager",
    "trial": "",
}


@pytest.fixture
def told(run):
    """The exit code and the checks by name."""

    def call(*options: str) -> tuple[int, dict[str, dict[str, str]]]:
        code, out, _ = run("doctor", "--json", *options)
        return code, {check["name"]: check for check in json.loads(out)["checks"]}

    return call


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Say what torch answers, without asking it: it need not be there."""
    there = machine.find_spec
    monkeypatch.setattr(machine, "find_spec", lambda name: name == "torch" or there(name))

    def answer(**facts: object) -> dict[str, Check]:
        monkeypatch.setattr(machine, "_asked", lambda *_, **__: NOTHING_WRONG | facts)
        return {check.name: check for check in examine().checks}

    return answer


def test_a_machine_with_all_of_it_is_fit_and_its_trial_is_a_trace(told) -> None:
    needs.module("torch", "torch")
    needs.module("recorder", "lightning.pytorch")
    code, checks = told("--trial")
    assert (code, {c["status"] for c in checks.values()} - {"note"}) == (0, {"ok"})
    assert checks["trial"]["found"].startswith("3 steps recorded and analyzed: ")
    assert int(checks["trial"]["found"].split(": ")[1].split()[0].replace(",", "")) > 30
    assert checks["device"]["found"] == "none: the CPU alone can be recorded"


def test_the_bridge_is_asked_in_a_process_of_its_own(told, monkeypatch: pytest.MonkeyPatch) -> None:
    needs.module("torch", "torch")
    monkeypatch.syspath_prepend(str(STUB))
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "1")
    code, checks = told("--trial")
    assert checks["device"]["found"] == "1 × hpu"
    assert checks["HABANA_PROFILE"]["status"] == "ok"
    assert checks["mode"]["found"] == "lazy: graph mode is HPU Graphs (PT_HPU_LAZY_MODE=1)"
    # The stub's device has no tensors: the trial says so, and the command goes on.
    assert (code, checks["trial"]["status"]) == (1, "fails")
    assert checks["trial"]["found"].startswith("recording failed: ")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("HABANA_PROFILE", "1", "Intel Gaudi Profiler"),
        ("HABANA_PROFILE", "0", "no device rows"),
        ("PT_COMPILE_ONLY_MODE", "1", "nothing is launched"),
    ],
)
def test_variables_that_cost_the_device_rows_fail(asked, run, monkeypatch, name, value, words) -> None:
    monkeypatch.setenv(name, value)
    monkeypatch.setenv("PT_HPU_LAZY_MODE", "0")
    found = asked(device="hpu", count=8, bridge="1.19")[name]
    assert found.status == "fails"
    assert words in found.found
    assert "unset" in found.advice
    code, out, _ = run("doctor")
    assert code == 1
    assert "fit to analyze traces and not fit to record" in out.splitlines()[0]


def test_without_torch_it_is_not_set_up_to_record(run, monkeypatch: pytest.MonkeyPatch) -> None:
    there = machine.find_spec
    monkeypatch.setattr(machine, "find_spec", lambda name: None if name == "torch" else there(name))
    code, out, _ = run("doctor")
    assert code == 0
    assert out.splitlines()[0].endswith("this machine is fit to analyze traces and not set up to record.")


def test_variables_as_they_should_be_do_not(asked, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HABANA_PROFILE": "profile_api_light", "PT_COMPILE_ONLY_MODE": "0"}.items():
        monkeypatch.setenv(name, value)
    checks = asked(device="hpu", count=8, bridge="1.19", mode=None)
    assert {c.status for c in checks.values()} <= {"ok", "note"}
    assert "lazy up to its version 1.20" in checks["mode"].found


@pytest.mark.parametrize(
    ("name", "text", "status", "words"),
    [
        ("QUANT_CONFIG", '{"mode": "MEASURE", "method": "HOOKS"}', "note", "steps take longer"),
        ("QUANT_CONFIG", '{"mode": "QUANTIZE"}', "ok", ": QUANTIZE"),
        ("QUANT_CONFIG", "{}", "ok", ": AUTO"),
        ("QUANT_CONFIG", "[1]", "note", "cannot be read"),
        ("QUANT_CONFIG", "{", "note", "cannot be read"),
        ("QUANT_CONFIG", None, "note", "cannot be read"),
        ("LOWER_LIST", "linear\nmm\n", "ok", ": 2 operators"),
        ("FP32_LIST", None, "note", "cannot be read"),
    ],
)
def test_files_that_choose_precisions(asked, monkeypatch, tmp_path, name, text, status, words) -> None:
    if text is not None:
        (tmp_path / "chosen").write_text(text)
    monkeypatch.setenv(name, str(tmp_path / "chosen"))
    found = asked(device="hpu", count=8, bridge="1.19")[name]
    assert found.status == status
    assert words in found.found
    assert environment()[name] == str(tmp_path / "chosen")[:200]


def test_a_bridge_without_a_device_fails(asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(STUB))
    found = asked(bridge="1.19")["device"]
    assert (found.status, "hl-smi" in found.advice) == ("fails", True)


def test_a_bridge_that_does_not_fit_its_torch_fails(asked) -> None:
    found = asked(bridge="!ImportError: undefined symbol")["bridge"]
    assert found.status == "fails"
    assert "undefined symbol" in found.found


def test_a_profiler_that_does_not_know_the_device_fails(asked) -> None:
    found = asked(device="hpu", count=1, missing=["hpu"])["profiler"]
    assert (found.status, found.found) == (
        "fails",
        "torch's profiler cannot record hpu: traces will hold no device rows",
    )


def test_analysis_alone_needs_no_torch(told, monkeypatch: pytest.MonkeyPatch) -> None:
    there = machine.find_spec
    monkeypatch.setattr(machine, "find_spec", lambda name: None if name in ("torch", "pyarrow") else there(name))
    code, checks = told()
    assert (code, checks["torch"]["status"]) == (0, "note")
    assert "parquet" in checks["extras"]["found"]
    assert "pip install" in checks["extras"]["advice"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("import os; os._exit(9)", "ended with exit code 9"),
        ("raise ImportError('libsynapse.so')", "ended with exit code 1: ImportError: libsynapse.so"),
    ],
)
def test_a_torch_that_ends_its_process_is_reported(told, monkeypatch, tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "torch.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    code, checks = told()
    assert (code, checks["torch"]["status"], checks["torch"]["found"]) == (1, "fails", found)


@pytest.mark.parametrize(("installed", "status"), [("2.3.1", "fails"), ("2.4.0", "ok"), ("10.0", "ok"), (None, "note")])
def test_lightning_must_not_be_too_old(asked, monkeypatch, installed: str | None, status: str) -> None:
    def version(name: str) -> str:
        if installed is None:
            raise machine.PackageNotFoundError(name)
        return installed

    monkeypatch.setattr(machine, "version", version)
    assert asked()["lightning"].status == status


def test_a_cache_that_cannot_be_written_is_noted(asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    found = asked()["cache"]
    assert (found.status, "XDG_CACHE_HOME" in found.advice) == ("note", True)


def test_a_reader_that_was_switched_off_is_noted(asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HPUPROF_SCAN", "python")
    assert asked()["reader"].status == "note"
    monkeypatch.setenv("HPUPROF_SCAN", "perl")
    assert asked()["reader"].status == "fails"
