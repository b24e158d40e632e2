"""Windows on their way to a file: what kills, full disks and neighbors leave, and who takes it up."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import needs
import pytest

torch = needs.module("torch", "torch", "recording needs torch")
needs.module("recorder", "lightning.pytorch", "the fits of these tests need lightning")

from click.testing import CliRunner
from msgspec import structs
from msgspec.json import encode as json_of
from recorder.fits import QUIET, files, read
from recorder.forked import Programs

import hpuprof
from hpuprof.cli.main import cli
from hpuprof.recorder import finishing, spool
from hpuprof.recorder.metadata import Who
from hpuprof.recorder.saving import Saving, Window
from hpuprof.recorder.spool import Entry, Job, clear, entries, is_whole, take_up

pytestmark = pytest.mark.filterwarnings(*QUIET)
EXPORT = {
    "schemaVersion": 1,
    "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "a", "ts": 1, "dur": 2, "pid": 1, "tid": 1}],
}
PLAN = {"wait": 0, "baseline_blocks": 0, "warmup": 0, "active": 1}
KILLS = 50

# Kills itself at a random instant after its first window, having noted how many windows torch had exported by then.
KILLED = """
import os, random, signal, sys, threading, time
import torch, hpuprof
from hpuprof.recorder.spool import Entry

seed, commit, exported = int(sys.argv[1]), Entry.commit, []

def die():
    time.sleep(random.Random(seed).random() * 0.5)
    os.kill(os.getpid(), signal.SIGKILL)

def noted(entry):
    commit(entry)
    exported.append(entry.folder.name)
    os.write(log, f"{entry.folder.name}\\n".encode())
    if len(exported) == 1:
        threading.Thread(target=die, daemon=True).start()

Entry.commit = noted
log = os.open("exported", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
with hpuprof.record("traces", wait=0, baseline_blocks=0, warmup=0, active=1, repeat=2, tensorboard=seed % 2 == 0) as recording:
    while True:
        torch.ones(4, 4).mm(torch.ones(4, 4))
        recording.step()
"""


def left(root: Path) -> list[str]:
    """Return what a run left beside its traces."""
    return [str(p) for p in root.rglob("*") if p.name.startswith(".") and p.name != ".hpuprof-trigger"]


def window(name: str = "0-async") -> Window:
    return Window(name, True, {"rank": 0, "window": name}, [], [])


def exports(text: str) -> Any:
    return lambda path: Path(path).write_text(text, encoding="utf-8")


def saving(rank: int = 0) -> Saving:
    return Saving(label="run", who=Who(rank=rank), compress=True, tensorboard=False, given_at=None)


@pytest.fixture
def abandoned(tmp_path: Path) -> Path:
    """An entry whose writer died after the export."""
    entry = Entry.begin(tmp_path / "run-0-async", job())
    entry.exporting.write_text(json.dumps(EXPORT), encoding="utf-8")
    entry.commit()
    entry.release()
    return entry.folder


def job(name: str = "h_0.17.pt.trace.json.gz") -> Job:
    ours = {"rank": 0, "window": "0-async"}
    return Job(place="traces", run="run-0-async", name=name, rank=0, began_ns=0, host=spool.host(), metadata=ours)


def test_fifty_kills_lose_no_exported_window_and_leave_no_half_file(tmp_path: Path, program: Programs) -> None:
    for seed in range(KILLS):
        root = tmp_path / str(seed)
        root.mkdir()
        done = program.ask(wall_s=60, cwd=root, environment={}, text=KILLED, arguments=[str(seed)])
        assert done.exit == -signal.SIGKILL, done.stderr
        deadline = time.monotonic() + 60
        while entries([root / "traces"]) and time.monotonic() < deadline:
            take_up(entries([root / "traces"]))
        exported = set((root / "exported").read_text().split())
        assert {p.name.partition(".pt.")[0] for p in files(root)} == exported, seed
        assert all(read(p)["hpuprof"]["steps"] for p in files(root)), "every file is whole"
        assert left(root) == [], seed


def test_the_next_start_takes_up_what_was_left(tmp_path: Path, abandoned: Path) -> None:
    with hpuprof.record(tmp_path, **PLAN) as recording:
        recording.step()
    deadline = time.monotonic() + 60
    while abandoned.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert sorted(p.parent.name for p in files(tmp_path)) == ["hpuprof-0-async", "run-0-async"]


def test_analyze_finishes_what_was_left(abandoned: Path) -> None:
    run = abandoned.parents[1]
    result = CliRunner().invoke(cli, ["inspect", str(run)])
    assert result.exit_code == 0, result.output
    assert "finished a window that a run left" in result.output
    assert [p.name for p in files(run)] == ["h_0.17.pt.trace.json.gz"]
    assert not abandoned.parent.exists()


def test_analyze_reads_what_it_cannot_finish(abandoned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    access = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK and access(path, mode))
    run = abandoned.parents[1]
    result = CliRunner().invoke(cli, ["inspect", "--json", str(run)])
    assert result.exit_code == 0, result.output
    assert "h_0.17.pt.trace.json.gz" in result.stdout
    assert files(run) == []
    assert is_whole(abandoned)


def test_what_is_in_work_is_left_alone(tmp_path: Path) -> None:
    entry = Entry.begin(tmp_path, job())
    assert take_up(entries([tmp_path])) == ([], [])
    assert entry.folder.is_dir()
    entry.release()
    assert take_up(entries([tmp_path])) == ([], [])
    assert left(tmp_path) == [], "a half export of a dead writer is no trace"


def test_other_hosts_have_an_hour(tmp_path: Path) -> None:
    entry = Entry.begin(tmp_path, structs.replace(job(), host="elsewhere"))
    entry.release()
    take_up(entries([tmp_path]))
    assert entry.folder.is_dir(), "its lock may not be seen from here"
    os.utime(entry.folder, (0, 0))
    take_up(entries([tmp_path]))
    assert not entry.folder.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"name": 5}',
        '{"place": "", "run": "r", "name": "../h_0.1.pt.trace.json", "rank": 0, "began_ns": 0}',
    ],
)
def test_a_damaged_entry_is_a_problem_and_stays(abandoned: Path, tmp_path: Path, text: str) -> None:
    (abandoned / "job").write_text(text, encoding="utf-8")
    os.utime(abandoned, (0, 0))
    done, problems = take_up(entries([tmp_path]))
    assert (done, len(problems)) == ([], 1)
    assert abandoned.is_dir()


def test_an_entry_writes_nothing_outside_of_its_directory(abandoned: Path, tmp_path: Path) -> None:
    (abandoned / "job").write_bytes(json_of(structs.replace(job(), target=str(tmp_path / "victim"))))
    take_up(entries([tmp_path]))
    assert not (tmp_path / "victim").exists()
    assert [p.name for p in files(tmp_path)] == ["h_0.17.pt.trace.json.gz"]


def test_finishing_again_gives_the_same_file(abandoned: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(abandoned.parents[1], tmp_path / "copy" / "run-0-async")
    take_up(entries([tmp_path]))
    (first,) = files(tmp_path / "run-0-async")
    before = first.read_bytes()
    shutil.copytree(copy / spool.SPOOL, first.parent / spool.SPOOL)
    take_up(entries([tmp_path]))
    assert first.read_bytes() == before


def test_half_files_of_killed_writers_are_cleared(tmp_path: Path) -> None:
    old, young = (tmp_path / "run" / f".h_0.17.pt.trace.json.gz.{c * 8}" for c in "ab")
    old.parent.mkdir()
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    clear(tmp_path)
    assert list(old.parent.iterdir()) == [young]


def test_a_small_disk_is_not_exported_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    usage = shutil.disk_usage
    small = usage(tmp_path)._replace(free=3 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: small if "traces" in str(place) else usage(place))
    places = []

    def export(path: str) -> None:
        places.append(path)
        exports(json.dumps(EXPORT))(path)

    ours = saving()
    target = ours.save(str(tmp_path / "traces"), window(), export)
    ours.collect(wait=True)
    assert places[0].startswith(str(tmp_path / "temporary"))
    assert [written.path for written in ours.written] == [target]
    assert read(Path(target))["hpuprof"]["window"] == "0-async"
    assert left(tmp_path) == []


def test_a_truncated_export_is_no_window(tmp_path: Path) -> None:
    ours = saving()
    with pytest.raises(hpuprof.OutputError, match="truncated"):
        ours.save(str(tmp_path), window(), exports('{"traceEvents": [{"ph"'))
    assert left(tmp_path) == []


def test_a_directory_removed_while_torch_exports(tmp_path: Path) -> None:
    def export(path: str) -> None:
        exports(json.dumps(EXPORT))(path)
        shutil.rmtree(tmp_path / "traces")

    with pytest.raises(hpuprof.OutputError, match="is gone"):
        saving().save(str(tmp_path / "traces"), window(), export)


def test_two_runs_at_once_get_directories_of_their_own(tmp_path: Path) -> None:
    first, second = saving(), saving()
    targets = []

    def both(path: str) -> None:
        exports(json.dumps(EXPORT))(path)
        targets.append(second.save(str(tmp_path), window(), exports(json.dumps(EXPORT))))

    targets.append(first.save(str(tmp_path), window(), both))
    first.collect(wait=True)
    second.collect(wait=True)
    assert sorted(Path(t).parent.name for t in targets) == ["run-0-async", "run-0-async-2"]
    assert sorted(map(str, files(tmp_path))) == sorted(targets)


def test_without_a_process_a_thread_finishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finishing, "PROCESSES", False)
    with hpuprof.record(tmp_path, **PLAN) as recording:
        recording.step()
    assert recording.written == [str(p) for p in files(tmp_path)]
    assert left(tmp_path) == []


TERMINATED = """
import os, signal
import torch, hpuprof

with hpuprof.record("traces", wait=0, baseline_blocks=0, warmup=0, active=1000) as recording:
    for step in range(200):
        torch.ones(4, 4).mm(torch.ones(4, 4))
        recording.step()
        if step == 20:
            os.kill(os.getpid(), signal.SIGTERM)
print("trained")
"""


def test_sigterm_keeps_the_open_window_and_ends_as_without(tmp_path: Path, program: Programs) -> None:
    done = program.ask(wall_s=60, cwd=tmp_path, environment={}, text=TERMINATED, arguments=[])
    assert (done.exit, done.stdout) == (-signal.SIGTERM, "")
    deadline = time.monotonic() + 60
    while entries([tmp_path / "traces"]) and time.monotonic() < deadline:
        time.sleep(0.05)
    (path,) = files(tmp_path)
    ours = read(path)["hpuprof"]
    assert (ours["complete"], ours["steps"]) == (False, list(range(22)))


def test_a_handler_of_the_program_gets_sigterm(tmp_path: Path) -> None:
    seen = []
    before = signal.signal(signal.SIGTERM, lambda *_: seen.append(1))
    try:
        with hpuprof.record(tmp_path, **PLAN) as recording:
            os.kill(os.getpid(), signal.SIGTERM)
            recording.step()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [1]
    assert len(files(tmp_path)) == 1
