"""Our profiler beside other people's, in processes of their own: what goes wrong between two of torch's profilers is a segmentation fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import needs
import pytest

needs.module("torch", "torch", "recording needs torch")
needs.module("recorder", "lightning.pytorch", "the fits of these tests need lightning")

from recorder.fits import files, read
from recorder.forked import Programs

HEAD = """
import gc, json, sys, threading, warnings
import torch, torch.profiler as tp, hpuprof
from hpuprof.recorder import session
told = []
warnings.simplefilter("always")
warnings.showwarning = lambda message, *rest: told.append(str(message))
def mine(**options):
    return tp.profile(activities=[tp.ProfilerActivity.CPU], on_trace_ready=lambda p: p.export_chrome_trace("mine.json"), **options)
def work():
    torch.ones(8, 8).mm(torch.ones(8, 8))
def ours(name="traces", **options):
    return hpuprof.record(name, **{"baseline_blocks": 0, "wait": 0, "active": 3, **options})
"""
Run = Callable[[str], list[str]]
END = """
assert not session._replaced and "partial" not in repr(torch.autograd.profiler._enable_profiler)
print(json.dumps([t for t in told if "hpuprof" in t and "accelerator" not in t]))
"""


@pytest.fixture
def run(program: Programs, tmp_path: Path) -> Run:
    """`run(text)` runs a program and returns what hpuprof warned of."""

    def told(text: str) -> list[str]:
        found = json.loads(program(tmp_path, HEAD + text + END).stdout.splitlines()[-1])
        assert isinstance(found, list)
        return found

    return told


def recorded(tmp_path: Path) -> list[list[int]]:
    return [read(path)["hpuprof"]["steps"] for path in files(tmp_path / "traces")]


def of_mine(tmp_path: Path) -> int:
    """Rows of operators in the user's own trace."""
    rows = json.loads((tmp_path / "mine.json").read_text(encoding="utf-8"))["traceEvents"]
    return sum(row.get("name") == "aten::mm" for row in rows)


def test_a_profiler_that_runs_is_waited_for_and_a_later_window_recorded(tmp_path: Path, run: Run) -> None:
    told = run(
        """
p = mine(); p.start()
with ours() as r:
    for i in range(12):
        work(); r.step()
        if i == 4: p.stop()
""",
    )
    assert recorded(tmp_path) == [[7, 8, 9]]
    assert of_mine(tmp_path) == 5
    assert len(told) == 1
    assert "another torch profiler holds this process's profiler" in told[0]


@pytest.mark.parametrize("kind", ["mine()", "torch.autograd.profiler.profile()", "torch.autograd.profiler.emit_itt()"])
def test_other_ways_to_profile_leave_the_program_alive(tmp_path: Path, run: Run, kind: str) -> None:
    told = run(f"with {kind}, ours() as r:\n    for i in range(9): work(); r.step()\n")
    assert recorded(tmp_path) == []
    assert "nothing was recorded (another torch profiler held the profiler)" in told[-1]


def test_a_profiler_in_another_thread_is_waited_for(tmp_path: Path, run: Run) -> None:
    run(
        """
go, gone = threading.Event(), threading.Event()
def other():
    with mine(): work(); go.set(); gone.wait()
t = threading.Thread(target=other); t.start(); go.wait()
with ours() as r:
    for i in range(9):
        work(); r.step()
        if i == 2: gone.set(); t.join()
""",
    )
    assert recorded(tmp_path) == [[5, 6, 7]]
    assert of_mine(tmp_path) == 1


def test_a_profiler_that_warms_up_is_waited_for(tmp_path: Path, run: Run) -> None:
    run(
        """
p = mine(schedule=tp.schedule(wait=0, warmup=3, active=2, repeat=1)); p.start()
with ours() as r:
    for i in range(14): work(); p.step(); r.step()
""",
    )
    assert recorded(tmp_path) == [[6, 7, 8]]
    assert of_mine(tmp_path) == 2


@pytest.mark.parametrize(("at", "kept"), [(0, [[5, 6, 7]]), (2, [[7, 8, 9]]), (3, [[1, 2, 3]])])
def test_a_profiler_that_starts_inside_our_window_gets_the_profiler(
    tmp_path: Path, run: Run, at: int, kept: list[list[int]]
) -> None:
    told = run(
        f"""
with ours(active=4 if {at} == 3 else 3) as r:
    for i in range(14):
        work()
        if i == {at}: p = mine(); p.start()
        work(); r.step()
        if i == {at} + 2: p.stop()
""",
    )
    assert recorded(tmp_path) == kept
    assert of_mine(tmp_path) == 5
    assert any("another torch profiler was started during a window of hpuprof" in t for t in told)
    complete = [read(path)["hpuprof"]["complete"] for path in files(tmp_path / "traces")]
    assert complete == [at != 3]


def test_a_profiler_of_another_thread_inside_our_window_gets_an_error(tmp_path: Path, run: Run) -> None:
    run(
        """
def other():
    try:
        with mine(): work()
    except RuntimeError as error: errors.append(str(error))
errors = []
with ours() as r:
    for i in range(6):
        work()
        if i in (0, 2): t = threading.Thread(target=other); t.start(); t.join()
        r.step()
assert len(errors) == 2 and "Profiler is already enabled: hpuprof" in errors[0], errors
""",
    )
    assert recorded(tmp_path) == [[1, 2, 3]]


def test_what_lightnings_own_profiler_does_to_others_is_survived(tmp_path: Path, run: Run) -> None:
    run(
        """
with ours(repeat=2) as r:
    for i in range(14):
        work()
        if i == 2:
            if torch.autograd._profiler_enabled(): torch.autograd._disable_profiler()
            p = mine(); p.start()
        r.step()
        if i == 3: p.stop()
""",
    )
    assert recorded(tmp_path) == [[6, 7, 8], [10, 11, 12]]


def test_two_recordings_take_turns(tmp_path: Path, run: Run) -> None:
    told = run(
        """
with ours() as r, ours("second") as q:
    for i in range(12): work(); r.step(); q.step()
""",
    )
    assert recorded(tmp_path) == [[1, 2, 3]]
    assert [read(path)["hpuprof"]["steps"] for path in files(tmp_path / "second")] == [[5, 6, 7]]
    assert "another recording of hpuprof holds this" in told[0]


def test_a_users_schedule_skips_what_it_cannot_have_and_a_block_that_was_disturbed_is_dropped(
    tmp_path: Path, run: Run
) -> None:
    run(
        """
with ours(baseline_blocks=3, baseline_steps=3) as r:
    for i in range(20):
        work()
        if i == 4: p = mine(); p.start()
        r.step()
        if i == 5: p.stop()
""",
    )
    (path,) = files(tmp_path / "traces")
    assert len(read(path)["hpuprof"]["unprofiled"]["blocks_ns"]) == 2


FIT = """
from recorder.fits import Tiny, loader, trainer
class Own(torch.nn.Module): pass
import lightning.pytorch as pl
class Starts(pl.Callback):
    def on_train_start(self, *_):
        self.p = mine(); self.p.start()
    def on_train_batch_end(self, tr, *_):
        if tr.fit_loop.total_batch_idx == 9: self.p.stop()
trainer(hpuprof.HPUProfiler("traces", analyze=False, {options}), ".", 40, callbacks=[Starts()]).fit(Tiny(), loader())
"""


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ("active=3", [[26, 27, 28]]),
        ("schedule=tp.schedule(wait=3, warmup=1, active=4, repeat=2)", [[12, 13, 14, 15]]),
    ],
)
def test_a_fit_with_a_profiler_of_the_users_own(tmp_path: Path, run: Run, options: str, steps: list[list[int]]) -> None:
    told = run(FIT.replace("{options}", options))
    assert recorded(tmp_path) == steps
    assert len(told) == 1


def test_a_script_that_ends_inside_a_window_ends_well(tmp_path: Path, program: Programs) -> None:
    program(tmp_path, HEAD + "r = ours().__enter__()\nfor i in range(3): work(); r.step()\n")
    (path,) = files(tmp_path / "traces")
    assert (read(path)["hpuprof"]["steps"], read(path)["hpuprof"]["complete"]) == ([1, 2, 3], False)


@pytest.mark.parametrize("later", ["pass", "with mine(): work()"])
def test_a_recording_that_is_used_in_another_thread_than_it_was_begun_in(tmp_path: Path, run: Run, later: str) -> None:
    told = run(
        f"""
def other(r):
    for i in range(3): work(); r.step()
with ours(warmup=0) as r:
    t = threading.Thread(target=other, args=(r,)); t.start(); t.join()
{later}
""",
    )
    assert "the window began in another thread" in told[-1]
