"""The benchmark that holds the plan against programs that were changed: its parts, and one program from run to table."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import needs
import pytest

ROOT = Path(__file__).resolve().parents[2]

needs.module("torch", "torch")
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("no benchmarks beside the tests", allow_module_level=True)

import torch

from benchmarks.graph_mode.case import Case, Rounds, write_case
from benchmarks.plan_truth import score
from benchmarks.plan_truth.__main__ import main
from benchmarks.plan_truth.programs import RANGE, Edit, Program, programs
from benchmarks.plan_truth.run import Running, run
from hpuprof.model.tables import PlanRow


class Stub:
    """What a step asks a device, without one."""

    target = "cpu"

    def __init__(self) -> None:
        self.spun: list[int] = []

    def spin(self, ns: int) -> None:
        self.spun.append(ns)

    def on_thread(self, work: Callable[[], None]) -> None:
        work()

    def totals(self) -> tuple[int, float]:
        return 0, 0.0

    def running(self) -> contextlib.nullcontext[None]:
        return contextlib.nullcontext()

    def __getattr__(self, name: str) -> Any:
        known = ("part", "host_begin", "host_end", "next_upload", "next_read", "configure", "synchronize")
        if name in known:
            return lambda *_: None
        raise AttributeError(name)


def first(name: str) -> Program:
    return next(p for p in programs() if name in p.name)


def test_a_program_runs_with_what_is_added_to_it() -> None:
    setup, device = first("injected").setup, Stub()
    assert setup is not None
    step = Running(replace(setup, kernel=0.5, host=0.1, batch=0.0), device, unit_ns=1_000_000)
    with torch.profiler.profile() as profiler:
        step.eager()
    layers = len(step.layers)
    assert device.spun == [round(0.5e6 / layers)] * layers
    ranges = [e for e in profiler.events() if e.name == RANGE]
    assert len(ranges) == layers
    assert sum(e.cpu_time_total for e in ranges) >= 0.1e6 / 1000 * 0.99


@pytest.mark.filterwarnings("ignore:.*no accelerator is available")
def test_a_device_that_is_no_clock_runs_the_edits_that_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None
) -> None:
    for steps in ("STEPS", "SETTLE"):  # how long they take is of no interest here
        monkeypatch.setattr(f"benchmarks.plan_truth.run.{steps}", 1)
    program = first("cnn, host")
    case = run(replace(program, edits=program.edits[2:]), Stub(), tmp_path, how_often=1)
    tried = {e.name for e in program.edits[2:] if not e.name.startswith(("graphs", "kernels"))}
    assert set(case.step_time) == {"eager", *tried}
    assert (tmp_path / case.trace).is_file()


def test_rows_hold_prices_against_ratios_of_neighboring_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"title": "", "where": "", "before_ns": 100.0}
    plan = [
        PlanRow(order=1, remedy="read_backs", alone_low_ns=30, alone_ns=40, alone_high_ns=45, **known),
        PlanRow(order=None, remedy="uploads", alone_low_ns=0, alone_ns=0, alone_high_ns=1, **known),
    ]
    answer = type("Answer", (), {"base_step_ns": 100.0})
    told: Any = type(
        "Report", (), {"data": type("Data", (), {"plan": plan, "sensitivity": [], "graph_mode": answer})()}
    )
    monkeypatch.setattr(score.hpuprof, "analyze", lambda *_, **__: told)
    (tmp_path / "t").mkdir()
    edits = (Edit("dropped", None, "read_backs"), Edit("pinned", None, "uploads"), Edit("larger", None, "buckets"))
    times = {"dropped": [60.0, 130.0, 45.0], "pinned": [100.0, 200.0, 90.0], "larger": [50.0, 100.0, 45.0]}
    beside = {name: [100.0, 200.0, 90.0] for name in times}
    rounds = {name: Rounds(0, 0, 0, took) for name, took in times.items()} | {"eager": Rounds(100, 90, 200)}
    write_case(Case("p", "plan_truth", "cpu", "t", rounds, hidden={"beside": beside}), tmp_path)
    text = list(score.report([Program("p", None, edits)], tmp_path))
    assert text[2].split(" | ")[1:] == ["dropped", "0.00", "0.00 (0.00–0.00)", "0.00 (0.00–0.00)", "+0%", "0.00 / 0.00", "yes", "1 |"]  # fmt: skip
    assert "| +100% |" in text[4], "what the plan does not show gains nothing"
    assert "| all | 3 | 33.3% | 50% | 67% | 67% |" in text
    assert text[-1] == "| p | read_backs | 2 of 3 | 10.0% |"


# What a child runs instead of `-m benchmarks.plan_truth`: how long edits take is of no interest here, so nothing waits for quiet.
HASTY = (
    "import sys; from benchmarks.plan_truth import run; from benchmarks.plan_truth.__main__ import main; "
    "run.PATIENCE_S = 0; run.STEPS = run.SETTLE = 2; sys.exit(main())"
)


@pytest.mark.parametrize("name", ["cnn, host, injected"])
def test_one_program_from_run_to_table(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nshift 2\nexec {sys.executable} -c '{HASTY}' \"$@\"\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    code = main(["-o", str(tmp_path), "--only", name, "--rounds", "1"])
    out, err = capfd.readouterr()
    if "cannot be built" in err:
        needs.absent("compiler", err)
    assert code == 0, err
    assert f"{name}: measured" in err
    (program,) = [p for p in programs() if p.name == name]
    case = msgspec.json.decode((tmp_path / f"{program.file}.json").read_bytes(), type=Case)
    assert set(case.step_time) == {"eager", *(e.name for e in program.edits)}
    rows = {row.edit: row for row in score.score(program, case, tmp_path)}
    spins = [rows[f"host spin {left}"] for left in ("gone", "halved")]
    gone, halved = (1 - row.said_ns / row.now_ns for row in spins)
    assert gone > halved > 0.02, "the range is found in the recording, and has a price"
    lines = [line for line in out.splitlines() if line.startswith(f"| {name} |")]
    assert [line.split(" | ")[1] for line in lines] == [e.name for e in program.edits]
    assert "no price" not in out
