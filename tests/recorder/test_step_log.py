"""The log of steps: what it holds of real loops, and that it never breaks them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hpuprof.recorder.step_log import StepLog
from hpuprof.step_log_format import FIRST, HEADER_BYTES, PROFILED, SUMMARY_BYTES, record_dtype

torch = pytest.importorskip("torch")

import hpuprof
from hpuprof.recorder import phases, step_clock
from hpuprof.recorder.metadata import Who
from hpuprof.recorder.step_clock import FORWARD, INPUT, OTHER, StepClock
from hpuprof.recorder.timed_events import DeviceClock

MS = 1_000_000


def rows_of(folder: Path) -> Any:
    (path,) = folder.glob("*.steps")
    raw = path.read_bytes()[HEADER_BYTES:]
    return np.frombuffer(raw, record_dtype())


def header_of(folder: Path) -> dict[str, Any]:
    (path,) = folder.glob("*.steps")
    header: dict[str, Any] = json.loads(path.read_bytes()[24:HEADER_BYTES].rstrip(b"\0"))
    return header


class Slow(torch.utils.data.Dataset):  # type: ignore[misc]
    def __init__(self, items: int) -> None:
        self.items = items

    def __len__(self) -> int:
        return self.items

    def __getitem__(self, i: int) -> Any:
        time.sleep(0.004 if i % 8 == 7 else 0)
        return torch.randn(8)


def train(recording: Any, batches: int, *, accumulate: int = 1) -> None:
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for i, batch in enumerate(torch.utils.data.DataLoader(Slow(batches), batch_size=1)):
        model(batch).sum().backward()
        if i % accumulate == accumulate - 1:
            optimizer.step()
            optimizer.zero_grad()
        recording.step()


def test_a_plain_loop_logs_every_step_with_its_phases(tmp_path: Path) -> None:
    with hpuprof.record(tmp_path, steps_only=True) as recording:
        train(recording, 40)
    rows = rows_of(tmp_path)
    assert rows["sequence"].tolist() == list(range(1, 41))
    assert rows["step"].tolist() == list(range(40))
    assert rows["flags"][0] == FIRST
    assert not rows["flags"][1:].any()
    for phase in ("input_ns", "forward_ns", "backward_ns", "optimizer_ns"):
        assert (rows[phase][1:] > 0).all(), phase
    parts = sum(rows[p] for p in ("input_ns", "forward_ns", "backward_ns", "optimizer_ns", "other_ns"))
    assert (parts <= rows["wall_ns"]).all()
    waited = rows["input_ns"] > 4 * MS
    assert waited[6:].reshape(-1).sum() >= 4  # the fetch of every eighth item
    assert np.flatnonzero(waited).tolist() == [i for i in range(40) if i % 8 == 7] or waited.sum() >= 5
    assert (rows["start_ns"][1:] - (rows["start_ns"] + rows["wall_ns"])[:-1] == 0).all()
    assert header_of(tmp_path)["ended"] == "whole"


def test_torch_is_left_as_it_was(tmp_path: Path) -> None:
    from torch.utils.data import dataloader

    before = torch.autograd.backward, dataloader._BaseDataLoaderIter.__next__
    with hpuprof.record(tmp_path, steps_only=True):
        assert torch.autograd.backward is not before[0]
    assert (torch.autograd.backward, dataloader._BaseDataLoaderIter.__next__) == before


def test_a_step_is_the_update_where_gradients_accumulate(tmp_path: Path) -> None:
    with hpuprof.record(tmp_path, steps_only=True) as recording:
        train(recording, 24, accumulate=4)
    rows = rows_of(tmp_path)
    assert rows["batches"].tolist() == [4] * 6
    assert rows["step"].tolist() == list(range(6))


def test_a_loop_without_an_optimizer_has_a_step_for_each_batch(tmp_path: Path) -> None:
    with hpuprof.record(tmp_path, steps_only=True) as recording:
        for _ in range(70):
            recording.step()
    assert rows_of(tmp_path)["batches"].tolist() == [1] * 70


@pytest.mark.filterwarnings("ignore:hpuprof")
def test_a_window_holds_whole_updates_with_accumulate(tmp_path: Path) -> None:
    with hpuprof.record(tmp_path, accumulate=4, baseline_blocks=0, wait=1, warmup=1, active=2) as recording:
        train(recording, 32, accumulate=4)
    rows = rows_of(tmp_path)
    assert rows["batches"].tolist() == [4] * 8
    assert [bool(f & PROFILED) for f in rows["flags"]] == [False, True, True, True, True, False, False, False]
    report = hpuprof.analyze(recording.written, cache="off")
    assert report.data.files[0].steps_total == 2
    assert report.steps["wall_ns"].min() > 0


def test_validation_in_a_plain_loop_is_not_input(tmp_path: Path) -> None:
    with hpuprof.record(tmp_path, steps_only=True) as recording:
        train(recording, 4)
        with torch.no_grad():
            for _ in torch.utils.data.DataLoader(Slow(16), batch_size=1):
                pass
        train(recording, 4)
    rows = rows_of(tmp_path)
    assert rows["other_ns"][4] > 8 * MS
    assert rows["input_ns"][4] < 8 * MS


def test_older_steps_are_summarized_and_the_file_is_bounded(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "a.steps", {}, capacity=20, block=10, blocks=2)
    record = [0] * 16
    for i in range(65):
        record[0], record[2] = i, 100 + i
        log.write(record)
    log.close()
    raw = (tmp_path / "a.steps").read_bytes()
    assert len(raw) == HEADER_BYTES + 20 * 128 + 2 * SUMMARY_BYTES
    rows = np.frombuffer(raw[HEADER_BYTES : HEADER_BYTES + 20 * 128], record_dtype())
    assert sorted(rows["sequence"].tolist()) == list(range(46, 66))
    summary = np.frombuffer(raw[HEADER_BYTES + 20 * 128 :], "<i8").reshape(2, -1)
    # first sequence, steps, then of wall_ns: count, sum, min, p10, p50, p90, max
    assert summary[0][:9].tolist() == [41, 10, 10, sum(range(140, 150)), 140, 140, 144, 148, 149]
    assert summary[1][:2].tolist() == [31, 10]


def test_the_log_survives_sigkill(tmp_path: Path) -> None:
    script = (
        "import hpuprof, os, signal, sys\n"
        f"with hpuprof.record({str(tmp_path)!r}, steps_only=True, accumulate=1) as r:\n"
        "    for i in range(30): r.step()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], check=False, env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    )
    assert ended.returncode == -signal.SIGKILL
    assert rows_of(tmp_path)["step"].tolist() == list(range(30))
    assert "ended" not in header_of(tmp_path)


def test_a_log_that_cannot_be_written_warns_once_and_training_goes_on(tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with hpuprof.record(tmp_path, steps_only=True, accumulate=1) as recording:
        recording.step()
        monkeypatch.setattr("hpuprof.recorder.step_log.os.pwrite", full)
        with pytest.warns(RuntimeWarning, match="stopped the log of steps; training and traces continue") as told:
            train(recording, 5)
    assert len(told) == 1


def test_an_error_in_the_loop_leaves_its_last_step_out(tmp_path: Path) -> None:
    def fails() -> None:
        with hpuprof.record(tmp_path, steps_only=True, accumulate=1) as recording:
            train(recording, 5)
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        fails()
    assert len(rows_of(tmp_path)) == 5
    assert header_of(tmp_path)["ended"] == "failed"


def test_phases_interrupt_each_other(tmp_path: Path, monkeypatch: Any) -> None:
    now = [0]
    monkeypatch.setattr(step_clock.time, "perf_counter_ns", lambda: now[0])

    def after(ns: int, call: Any, *arguments: Any) -> None:
        now[0] += ns
        call(*arguments)

    clock = StepClock(str(tmp_path), Who(), batches=1, derives=False)
    clock.step()
    after(5, clock.enter, step_clock.OPTIMIZER)
    after(10, clock.enter, FORWARD)
    after(100, clock.leave, FORWARD)
    after(20, clock.leave, step_clock.OPTIMIZER)
    mark = clock.mark()
    after(1, clock.enter, INPUT)
    after(1000, clock.leave, INPUT)
    after(1, clock.aside, mark)
    after(3, clock.step)
    clock.finish(failed=True)
    row = rows_of(tmp_path)[0]
    names = ("wall_ns", "forward_ns", "optimizer_ns", "input_ns", "other_ns")
    assert [int(row[name]) for name in names] == [1140, 100, 30, 0, 1002]


def test_another_threads_phases_do_not_count(tmp_path: Path) -> None:
    import threading

    clock = StepClock(str(tmp_path), Who(), batches=1, derives=False)
    phases.listen(clock)
    try:
        clock.step()
        thread = threading.Thread(target=lambda: list(torch.utils.data.DataLoader(Slow(16), batch_size=1)))
        thread.start()
        thread.join()
        clock.step()
    finally:
        clock.finish()
        phases.unlisten(clock)
    assert rows_of(tmp_path)[0]["input_ns"] == 0


class Event:
    """A device's timing event; the device is `lag` events behind."""

    made: list[Event] = []  # noqa: RUF012

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.at = -1

    def record(self) -> None:
        Event.made.append(self)
        self.at = len(Event.made)

    def query(self) -> bool:
        return self.at + Event.lag <= len(Event.made)

    def elapsed_time(self, end: Event) -> float:
        return float(end.at - self.at)

    def synchronize(self) -> None:
        raise AssertionError("waited for the device")

    lag = 0


@pytest.mark.parametrize(("lag", "late"), [(0, 0), (2, 2), (100, None)])
def test_device_time_is_read_late_and_never_waited_for(lag: int, late: int | None, monkeypatch: Any) -> None:
    monkeypatch.setattr(Event, "made", [])
    monkeypatch.setattr(Event, "lag", lag)
    device: Any = SimpleNamespace(kind="cuda", module=lambda: SimpleNamespace(Event=Event))
    clock, read = DeviceClock(device), {}
    for sequence in range(1, 30):
        clock.mark(sequence)
        read[sequence] = dict(clock.finished())
    times = {k: v for found in read.values() for k, v in found.items()}
    if late is None:
        assert not times
    else:
        assert times == dict.fromkeys(range(1, 29 - late), MS)


def test_a_forked_child_leaves_the_log_alone(tmp_path: Path) -> None:
    log = StepLog(tmp_path / "a.steps", {})
    log.write([0] * 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        log.close(ended="child")
        os._exit(0)
    os.waitpid(child, 0)
    assert b"child" not in (tmp_path / "a.steps").read_bytes()
    log.close(ended="whole")
    assert b"whole" in (tmp_path / "a.steps").read_bytes()


def test_other_time_swallows_the_phases_within(tmp_path: Path) -> None:
    clock = StepClock(str(tmp_path), Who(), batches=1, derives=False)
    clock.step()
    clock.enter(OTHER)
    clock.enter(INPUT)
    time.sleep(0.002)
    clock.leave(INPUT)
    clock.leave(OTHER)
    clock.step()
    clock.finish()
    row = rows_of(tmp_path)[0]
    assert row["input_ns"] == 0
    assert row["other_ns"] > 2 * MS
