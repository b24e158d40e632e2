"""Windows on request and after slow steps; what is written when no step comes, and what the analyzer says of it."""

from __future__ import annotations

import json
import os
import pickle
import signal
import time
from pathlib import Path
from typing import Any

import needs
import pytest

torch = needs.module("torch", "torch", "recording needs torch")
needs.module("recorder", "lightning.pytorch", "the fits of these tests need lightning")

from click.testing import CliRunner
from recorder.fits import QUIET, files, read
from recorder.forked import Programs

import hpuprof
from hpuprof.cli.main import cli
from hpuprof.ingest.hangs import hang_lines, read_hangs
from hpuprof.ingest.memory_reports import OutOfMemory, memory_lines, read_memory_reports
from hpuprof.recorder import out_of_memory as memory
from hpuprof.recorder import watch
from hpuprof.recorder.hang import threads
from hpuprof.recorder.metadata import Who
from hpuprof.recorder.requested_windows import FOLDER, agreed, ask, requests
from hpuprof.recorder.slow_steps import SlowSteps
from hpuprof.recorder.watch import Pulse, Watch

pytestmark = pytest.mark.filterwarnings(*QUIET)
PLAN = {"wait": 0, "baseline_blocks": 0, "warmup": 1, "active": 2}
MS = 1_000_000


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "POLL_S", 0.02)
    monkeypatch.setattr(watch, "_AHEAD_S", 0.2)


def until(true: Any) -> None:
    deadline = time.monotonic() + 60
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert true()


def opened(root: Path) -> list[tuple[str, list[int]]]:
    """Return why each window was opened, and its steps."""
    found = [read(path)["hpuprof"] for path in files(root)]
    return sorted((ours["opened"]["why"], ours["steps"]) for ours in found)


def test_all_ranks_agree_on_one_step_without_a_collective(tmp_path: Path) -> None:
    pulses = [Pulse(), Pulse(), Pulse()]
    watches = [Watch(str(tmp_path), Who(rank=r, world_size=3), p, hang_s=None, at=None) for r, p in enumerate(pulses)]
    for each in watches:
        each.start()
    request = ask(tmp_path, 4, (0, 2))
    number = 0
    while not (watches[0].asked and watches[2].asked):
        for behind, pulse in enumerate(pulses):
            pulse.beat(number - behind)
        number += 1
        time.sleep(0.002)
        assert number < 20_000
    for each in watches:
        each.end()
    assert watches[0].asked == watches[2].asked
    assert watches[0].asked[0].request == request
    assert watches[0].asked[0].step > number - 3, "ahead of every rank"
    assert watches[1].asked == []


def test_only_the_first_proposal_counts(tmp_path: Path) -> None:
    request = ask(tmp_path, 6)
    assert agreed(tmp_path, request) is None
    assert [agreed(tmp_path, request, step).step for step in (50, 60)] == [50, 50]
    assert sorted(p.name.partition("-")[0] for p in (tmp_path / FOLDER).iterdir()) == ["request", "start"]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"number": 5, "steps": 0, "why": "x"}', '{"number": 6, "steps": 1, "why": "x"}']
)
def test_damaged_requests_are_ignored(tmp_path: Path, text: str) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "request-5").write_text(text, encoding="utf-8")
    assert requests(tmp_path, 0) == []


def test_old_requests_are_no_requests_and_are_removed(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "request-5").write_text('{"number": 5, "steps": 1, "why": "trigger"}', encoding="utf-8")
    assert len(requests(tmp_path, 0)) == 1
    assert requests(tmp_path, 5) == []
    ask(tmp_path, 1)
    assert not (tmp_path / FOLDER / "request-5").exists()


def test_a_request_opens_a_window_and_the_plan_goes_on(tmp_path: Path) -> None:
    with hpuprof.record(tmp_path, **PLAN, every_n_steps=4, max_windows=1) as recording:
        request = None
        for step in range(20_000):
            recording.step()
            time.sleep(0.002)
            if step == 20:
                request = ask(tmp_path, 5)
            if step > 20 and len(recording.written) == 2:
                break
    (name,) = {p.parent.name for p in files(tmp_path)} - {"hpuprof-0-async"}
    step = agreed(tmp_path, request).step
    assert name == f"hpuprof-step{step}-async"
    assert opened(tmp_path) == [("plan", [1, 2]), ("trigger", list(range(step + 1, step + 6)))]


def test_files_are_listed_once_they_are_finished_while_the_loop_goes_on(tmp_path: Path) -> None:
    with hpuprof.record(tmp_path, **PLAN) as recording:
        deadline = time.monotonic() + 30
        while not recording.written and time.monotonic() < deadline:
            recording.step()
            time.sleep(0.002)
        assert len(recording.written) == 1, "before the loop ends"
        assert recording._engine._saving._finishing.pending == 0, "and its process is gone"


def test_a_signal_opens_a_window(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGUSR2)
    with hpuprof.record(tmp_path, **PLAN, trigger_signal="SIGUSR2") as recording:
        for step in range(20_000):
            recording.step()
            time.sleep(0.002)
            if step == 20:
                os.kill(os.getpid(), signal.SIGUSR2)
            if len(recording.written) == 2:
                break
    assert [why for why, _ in opened(tmp_path)] == ["plan", "signal"]
    assert len(opened(tmp_path)[1][1]) == 6
    signal.signal(signal.SIGUSR2, before)


def test_off_means_off(tmp_path: Path) -> None:
    with hpuprof.record(tmp_path, **PLAN, on_demand=False) as recording:
        for _ in range(10):
            recording.step()
        assert recording._engine.finished
        assert recording._engine._watch is None


def test_trigger_says_where_the_window_begins(tmp_path: Path) -> None:
    request = []

    def invoke(*arguments: str) -> Any:
        return CliRunner().invoke(cli, ["trigger", *arguments], catch_exceptions=True)

    result = invoke(str(tmp_path), "--wait", "0")
    assert "answered within" in str(result.exception)
    assert requests(tmp_path, 0)[0].ranks is None
    assert "--ranks" in str(invoke(str(tmp_path), "--ranks", "0,x").exception)
    assert "no such directory" in str(invoke(str(tmp_path / "none")).exception)
    pulse = Pulse()
    watching = Watch(str(tmp_path), Who(), pulse, hang_s=None, at=None)
    watching.start()
    import threading

    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.005):
            pulse.beat(pulse.number + 1)

    threading.Thread(target=beat).start()
    try:
        result = invoke(str(tmp_path), "--ranks", "7,0", "--steps", "3")
    finally:
        stop.set()
        watching.end()
    assert result.exit_code == 0, request
    assert "on ranks 0, 7 and records 3 step(s)" in result.output


def walls(*pattern: int, times: int) -> list[int]:
    return [ms * MS for ms in pattern * times]


@pytest.mark.parametrize(
    ("before", "step", "slow"),
    [
        (walls(100, times=20), 201 * MS, True),
        (walls(100, times=20), 199 * MS, False),  # the factor
        (walls(100, times=9), 900 * MS, False),  # too few to compare
        ([50_000] * 50, 15 * MS, False),  # a toy loop: 300 times the median, and noise of the machine
        (walls(10, 10, 10, 10, 60, times=10), 150 * MS, False),  # slow steps are usual here
        (walls(10, 10, 10, 10, 60, times=10), 170 * MS, True),
    ],
)
def test_a_step_is_slow_beyond_factor_floor_and_spread(before: list[int], step: int, slow: bool) -> None:
    steps = SlowSteps(2.0, 20 * MS)
    assert [steps.add(i, ms) for i, ms in enumerate(before)][-1] is None
    found = steps.add(77, step)
    assert (found is not None) == slow
    if found is not None:
        assert (found.step, found.step_ns, found.as_metadata()["why"]) == (77, step, "slow step")


def test_a_slow_step_says_why_its_window_was_opened(tmp_path: Path) -> None:
    with hpuprof.record(tmp_path, **PLAN, slow_step_factor=3) as recording:
        for step in range(60):
            time.sleep(0.3 if step == 40 else 0.002)
            recording.step()
    second = sorted(read(p)["hpuprof"]["opened"].get("step", -1) for p in files(tmp_path))
    assert second[-1] == 40


# ----------------------------------------------------------------------------------------------------------------- hangs


def frame(line: int) -> dict[str, Any]:
    return {"file": "/home/me/train.py", "line": line, "function": "load_batch"}


def report(root: Path, rank: int, called: int, *, kind: str = "all_reduce", open_: bool = True, world: int = 4) -> None:
    """Write a report as the recorder does; the rank has called so many collectives and waits in the last."""
    entries = [
        {
            "process_group": ["0", "default_pg"],
            "collective_seq_id": n,
            "profiling_name": f"nccl:{kind}",
            "input_sizes": [[64, 32]],
            "retired": n < called or not open_,
        }
        for n in range(1, called + 1)
    ]
    place = root / "hangs" / f"h_{rank}.17.hang"
    place.parent.mkdir(exist_ok=True)
    values = {
        "rank": rank,
        "world_size": world,
        "time_ns": 17,
        "step": 40,
        "since_step_s": 300.5,
        "threads": [
            {
                "name": "MainThread",
                "main": True,
                "frames": [frame(rank + 10), {"file": "/x/site-packages/t.py", "line": 1, "function": "w"}],
            }
        ],
        "groups": [{"name": "0", "backend": "nccl", "ranks": list(range(world)), "called": called}],
        "flight_recorder": {"entries": entries, "version": "2.10"},
    }
    place.write_text(json.dumps(values), encoding="utf-8")


def said(root: Path) -> list[str]:
    hangs, problems = read_hangs([root])
    assert problems == []
    return hang_lines(hangs)


def test_who_is_missing_from_which_collective(tmp_path: Path) -> None:
    for rank, called in enumerate((41, 41, 40, 41)):
        report(tmp_path, rank, called, open_=rank != 2)
    assert said(tmp_path) == [
        "No step came for 300 s: 4 of 4 ranks say where they stand.",
        "Rank 2 did not call all_reduce of 64x32, number 41 of group 0, in which each of ranks 0, 1, 3 waits.",
        "Rank 2 stands at /home/me/train.py:12 in load_batch (inside w), step 40.",
    ]


def test_a_dead_rank_is_named(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        report(tmp_path, rank, 41)
    lines = said(tmp_path)
    assert lines[1] == "Rank 2 left no report: dead, stopped, or not recorded."
    assert lines[2] == "Rank 2 left all_reduce of 64x32, number 41 of group 0, in which each of ranks 0, 1, 3 waits."


def test_different_collectives_are_named(tmp_path: Path) -> None:
    report(tmp_path, 0, 41, world=2)
    report(tmp_path, 1, 41, world=2, kind="broadcast")
    assert said(tmp_path)[1] == (
        "Collective number 41 of group 0 differs between ranks: rank 0: all_reduce of 64x32; rank 1: broadcast of 64x32."
    )


def test_a_collective_that_all_called_is_the_networks(tmp_path: Path) -> None:
    for rank in range(2):
        report(tmp_path, rank, 7, world=2)
    assert said(tmp_path)[1] == (
        "Ranks 0, 1 called all_reduce of 64x32, number 7 of group 0, which does not end: check the network and the devices."
    )


def test_analyze_answers_without_traces(tmp_path: Path) -> None:
    for rank, called in enumerate((41, 40)):
        report(tmp_path, rank, called, world=2)
    result = CliRunner().invoke(cli, ["analyze", str(tmp_path)])
    assert result.exit_code == 0
    assert "Rank 1 did not call all_reduce" in result.stdout


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b'{"rank": "x"}', pickle.dumps({"rank": 1})])
def test_damaged_reports_are_told_and_never_unpickled(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "hangs").mkdir()
    (tmp_path / "hangs" / "h_0.17.hang").write_bytes(data)
    hangs, problems = read_hangs([tmp_path])
    assert (hangs, len(problems)) == ([], 1)


@pytest.mark.parametrize("recorder", ["null", "[]", '{"entries": 5}', '{"entries": [{}]}', '"x"'])
def test_other_forms_of_the_flight_recorder_leave_the_counts(tmp_path: Path, recorder: str) -> None:
    for rank, called in enumerate((41, 40)):
        report(tmp_path, rank, called, world=2)
        path = tmp_path / "hangs" / f"h_{rank}.17.hang"
        values = json.loads(path.read_text())
        path.write_text(json.dumps(values | {"flight_recorder": json.loads(recorder)}))
    assert said(tmp_path)[1] == "Rank 1 did not call collective, number 41 of group 0, in which rank 0 waits."


def test_threads_stand_where_they_stand() -> None:
    import threading

    end = threading.Event()

    def waits_here() -> None:
        end.wait(60)

    thread = threading.Thread(target=waits_here, name="waiter")
    thread.start()
    (found,) = [t for t in threads() if t["name"] == "waiter"]
    end.set()
    assert "waits_here" in [f["function"] for f in found["frames"]]


HANGS = """
import os, sys, time
from recorder.fits import as_ranks
as_ranks(*[{"RANK": n, "LOCAL_RANK": n, "WORLD_SIZE": "2"} for n in "01"])
import torch, torch.distributed as dist, hpuprof
from hpuprof.recorder import watch
watch.POLL_S = 0.05
dist.init_process_group("gloo")

def load_batch():
    time.sleep(3)

with hpuprof.record("traces", wait=0, baseline_blocks=0, warmup=0, active=1, hang_seconds=1) as recording:
    for step in range(8):
        if step == 6 and dist.get_rank() == 1:
            load_batch()
        dist.all_reduce(torch.ones(3))
        recording.step()
print("trained", dist.get_rank(), flush=True)
"""


def test_a_rank_that_hangs_is_found_and_the_run_goes_on(tmp_path: Path, program: Programs) -> None:
    done = program(tmp_path, HANGS)
    assert sorted(line for line in done.stdout.splitlines() if line.startswith("trained")) == ["trained 0", "trained 1"]
    lines = said(tmp_path / "traces")
    assert lines[0].endswith("2 of 2 ranks say where they stand.")
    assert lines[1] == "Rank 1 did not call all_reduce of 3, number 7 of group 0, in which rank 0 waits."
    assert lines[2].startswith("Rank 1 stands at program.py:")
    assert "in load_batch" in lines[2]


GIB = 1 << 30


def block(gib: float, where: str = "", state: str = "active_allocated") -> dict[str, Any]:
    """Return a block as torch's snapshot has it, allocated by a line of the program inside a library."""
    frames = [
        {"filename": "??", "line": 0, "name": "torch::unwind"},
        {"filename": "/x/site-packages/torch/nn/functional.py", "line": 9, "name": "linear"},
        {"filename": "train.py", "line": 88, "name": where},
    ]
    return {"size": int(gib * GIB), "state": state, "frames": frames if where else []}


def segment(*blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    return {"device": device, "total_size": sum(b["size"] for b in blocks), "blocks": list(blocks)}


SNAPSHOT = {
    "segments": [
        segment(block(4, "attention"), block(1, state="inactive"), block(2, "loss")),
        segment(block(4, "attention"), block(1.5, state="inactive"), block(0.5)),
        segment(block(64, "of another device"), device=1),
    ]
}


@pytest.fixture
def out_of_memory(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the observers that are attached; a program of its own, as torch keeps them for good."""
    attached: list[Any] = []
    monkeypatch.setattr(torch._C, "_cuda_attach_out_of_memory_observer", attached.append, raising=False)
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: SNAPSHOT)
    monkeypatch.setattr(memory, "_goes_to", [])
    monkeypatch.setattr(memory, "_written", [])
    return attached


def test_memory_that_runs_out_leaves_torchs_snapshot_and_a_summary(tmp_path: Path, out_of_memory: list[Any]) -> None:
    for place in ("first", "second"):
        memory.observe_out_of_memory(str(tmp_path / place), Who(rank=3), lambda: 40)
    (observer,) = out_of_memory
    with pytest.warns(UserWarning, match="ran out of memory"):
        observer(0, 2 * GIB, 16 * GIB, GIB)
    observer(0, 1, 2, 3)
    summed, kept = sorted(p for p in tmp_path.rglob("*") if p.is_file())
    assert summed.parent == tmp_path / "second" / "hangs"
    assert pickle.loads(kept.read_bytes()) == SNAPSHOT
    result = CliRunner().invoke(cli, ["analyze", str(tmp_path)])
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "Rank 3 ran out of device memory in step 40: 2.0 GiB asked for, 1.0 GiB of 16.0 GiB free.",
        "Tensors held 10.5 GiB; torch kept 2.5 GiB more without a tensor, in pieces of at most 1.5 GiB; others held 2.0 GiB.",
        "The memory is in pieces: with PYTORCH_ALLOC_CONF=expandable_segments:True torch joins them.",
        (
            "Most of it: 8.0 GiB in 2 blocks of train.py:88 in attention; 2.0 GiB in 1 block of train.py:88 in loss; "
            "512.0 MiB in 1 block of 512.0 MiB."
        ),
    ]


def test_a_snapshot_that_cannot_be_taken_is_said_and_raises_nothing(
    tmp_path: Path, out_of_memory: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", lambda: 1 / 0)
    memory.observe_out_of_memory(str(tmp_path), Who(rank=3), lambda: 40)
    with pytest.warns(UserWarning, match="could not be written: division by zero"):
        out_of_memory[0](0, 1, 2, 3)


def test_the_first_rank_that_ran_out_speaks_for_all(tmp_path: Path) -> None:
    (tmp_path / "hangs").mkdir()
    values = dict.fromkeys(OutOfMemory.__struct_fields__, 0) | {"held": [], "asked_bytes": GIB}
    for rank, at in ((0, 9), (1, 7), (1, 5), (2, 8)):
        report = values | {"rank": rank, "time_ns": at, "step": at}
        (tmp_path / "hangs" / f"h_{rank}.{at}.memory.json").write_text(json.dumps(report), encoding="utf-8")
    (tmp_path / "hangs" / "h_9.1.memory.json").write_bytes(b"{")
    reports, problems = read_memory_reports([tmp_path])
    assert len(reports) == 3
    assert "h_9.1.memory.json" in problems[0]
    first, *others = memory_lines(reports)
    assert first.startswith("Rank 1 ran out of device memory in step 7 (and 2 other ranks later): 1.0 GiB asked for")
    assert not any("in pieces:" in line for line in others)
