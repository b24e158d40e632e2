"""Fixes of generated Gaudi programs against the same programs with the fix made: eager and compiled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import hpuprof
from benchmarks.plan import lazy_mode
from hpuprof.model.tables import PlanRow
from sample_traces.generator import to_fix
from sample_traces.generator.export import write_trace
from sample_traces.generator.to_fix import Program

WITHIN = 0.25
"""Share of the true gain by which an estimate may be off."""


def written(program: Program, folder: Path) -> tuple[Path, float]:
    """Write a trace; return it and the true time of a step until host and device are through [ns]."""
    session = to_fix.played(program, steps=12)
    path = folder / "gaudi-host0_20417.1748636011209337418.pt.trace.json.gz"
    write_trace(session, path)
    return path, to_fix.step_ns(session)


Change = Callable[[Program], Program]


def _without(**changes: object) -> Change:
    return lambda program: replace(program, **changes)  # type: ignore[arg-type]


_EAGER, _COMPILED = Program(), Program("compile", 3)
CASES = [
    ("read_backs", _EAGER, _without(reads=0)),
    ("read_backs", replace(_EAGER, reads=3), _without(reads=0)),
    ("read_backs", _COMPILED, _without(reads=0)),
    ("synchronisation", replace(_EAGER, stops=1), _without(stops=0)),
    ("synchronisation", replace(_COMPILED, stops=1), _without(stops=0)),
    ("fused_optimizer", replace(_EAGER, updates=60), _without(updates=3)),
    ("fused_optimizer", replace(_COMPILED, updates=60), _without(updates=3)),
    ("data_loading", replace(_EAGER, fetch_us=4000), _without(fetch_us=700)),
    ("data_loading", replace(_COMPILED, fetch_us=4000), _without(fetch_us=700)),
]


@pytest.mark.parametrize(("remedy", "program", "fix"), CASES)
def test_a_fix_gains_what_the_program_with_it_does(remedy, program, fix, tmp_path):
    path, now = written(program, tmp_path / "now")
    _, then = written(fix(program), tmp_path / "then")
    row = max(estimated(path, remedy, now), key=lambda row: row.alone_ns)
    assert row.alone_ns == pytest.approx(now - then, rel=WITHIN)
    assert row.alone_low_ns <= now - then <= row.alone_high_ns


@pytest.mark.parametrize("share", [0.55, 0.9])
def test_the_interval_of_lower_precision_holds_what_products_in_16_bits_gain(share, tmp_path):
    program = Program("compile", 3, dtype="float32", matrices=4.0)
    path, now = written(program, tmp_path / "now")
    _, then = written(replace(program, dtype="bf16", matrices=4.0 * share), tmp_path / "then")
    (row,) = estimated(path, "lower_precision", now)
    assert row.alone_low_ns <= now - then <= row.alone_high_ns


def estimated(path: Path, remedy: str, now_ns: float) -> list[PlanRow]:
    """Return the rows of a fix with an estimate; the program is not slowed by a profiler."""
    data = hpuprof.analyze(path, jobs=1, cache="off", step_time=f"{now_ns / 1e6}ms").data
    rows = [row for row in data.plan if row.remedy == remedy]
    found = [row for row in rows if row.alone_ns is not None]
    assert found, rows
    return found


@pytest.mark.parametrize("seed", [155, 157, 165])
def test_steps_of_lazy_mode_that_share_the_device_are_whole(seed, tmp_path):
    """The host runs ahead: the work of two steps ends in one of them, and little runs while the other is on the host."""
    path = tmp_path / "lazy_0.1.pt.trace.json"
    path.write_text(lazy_mode.Program.draw(seed).recorded(), encoding="utf-8")
    report = hpuprof.analyze(path, jobs=1, cache="off")
    assert not {"HP106", "HP154"} & {d.code for d in report.data.diagnostics}
    assert all(step.excluded != "lost rows" for step in report.data.steps)
