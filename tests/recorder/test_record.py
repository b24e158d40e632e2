"""Plain loops: the same machinery without a Trainer."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import needs
import pytest

torch = needs.module("torch", "torch", "recording needs torch")
needs.module("recorder", "lightning.pytorch", "the fits of these tests need lightning")

from recorder.fits import QUIET, files, only, read, spans, steps
from recorder.forked import Programs

import hpuprof
from hpuprof import ConfigError
from hpuprof.recorder.config import RecordConfig

pytestmark = pytest.mark.filterwarnings(*QUIET)


def loop(recording: hpuprof.Recording, number: int) -> None:
    for _ in range(number):
        with recording.region("forward"), recording.region("inner"):
            torch.ones(4, 4).mm(torch.ones(4, 4))
        recording.step()


def test_a_plain_loop(tmp_path: Path) -> None:
    with hpuprof.record(tmp_path / "traces", label="mine") as recording:
        loop(recording, 25)
    (path,) = files(tmp_path)
    assert recording.written == [str(path)]
    assert path.parent.name == "mine-0-async"
    trace = read(path)
    ours = trace["hpuprof"]
    assert (ours["rank"], ours["framework"], ours["steps"], ours["complete"]) == (
        0,
        "pytorch",
        [17, 18, 19, 20, 21, 22],
        True,
    )
    assert len(recording.unprofiled_step_ns) == 3 == len(ours["unprofiled"]["blocks_ns"])
    for _, start, end in steps(trace):
        rows = [r for r in spans(trace, "forward") if start <= r[1] and r[2] <= end]
        assert len(rows) == 1
    assert hpuprof.analyze(tmp_path).headline.sentence


def test_an_error_ends_the_recording(tmp_path: Path) -> None:
    def fails() -> None:
        with hpuprof.record(tmp_path, wait=0, baseline_blocks=0, active=9) as recording:
            loop(recording, 2)
            raise ValueError("mine")

    with pytest.warns(UserWarning, match="cut short after 2 step"), pytest.raises(ValueError, match="mine"):
        fails()
    assert only(tmp_path)["hpuprof"]["complete"] is False
    assert not torch.autograd._profiler_enabled()


def test_wrong_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="record has no option 'actve'") as error:
        hpuprof.record(tmp_path, actve=3)
    assert error.value.hint == "did you mean 'active'?"
    with pytest.raises(ConfigError, match="ranks is 3"):
        hpuprof.record(tmp_path, ranks=3)
    monkeypatch.setenv("HABANA_PROFILE", "1")
    with pytest.raises(ConfigError, match="HABANA_PROFILE"):
        hpuprof.record(tmp_path)


class Odd:
    """Nothing takes it."""


@pytest.mark.parametrize(
    "name",
    [
        "dirpath",
        "label",
        "activities",
        "schedule",
        "on_trace_ready",
        "loggers",
        *(f.name for f in fields(RecordConfig)),
    ],
)
def test_a_wrong_value_of_any_argument_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    for wrong in (Odd(), [Odd()], b"x", -0.5):
        with pytest.raises(ConfigError, match=name) as error:
            hpuprof.record(**{"dirpath": tmp_path, name: wrong})
        assert error.value.hint
    with pytest.raises(ConfigError, match="dirpath is None"):
        hpuprof.record(None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("file", "cannot be written: Not a directory|cannot be written: File exists"),
        ("s3://bucket/traces", "needs a package: .*s3fs.* \\(pip install 'fsspec>=.*' s3fs\\)"),
    ],
)
def test_a_directory_that_cannot_be_written_is_told_once_at_the_line_that_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    for module in ("s3fs", "s3fs.core"):
        monkeypatch.setitem(sys.modules, module, None)
    recording = hpuprof.record(place, wait=0, baseline_blocks=0, active=1)
    named = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    with pytest.warns(RuntimeWarning, match=reason) as caught, recording:
        loop(recording, 3)
    (told,) = [w for w in caught if "traces go to" in str(w.message)]
    assert str(told.message).count("(") == 1, "one remedy"
    assert (told.filename, told.lineno) == (__file__, named)
    assert only(tmp_path / "hpuprof-traces")["hpuprof"]["complete"] is True


def test_ranks_of_a_launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    with hpuprof.record(tmp_path, wait=0, baseline_blocks=0, active=1) as recording:
        loop(recording, 4)
    ours = only(tmp_path)["hpuprof"]
    assert (ours["rank"], ours["world_size"], ours["local_rank"]) == (5, 8, 1)
    assert "_5." in files(tmp_path)[0].name


def test_repeated_recordings_never_share_a_run_directory(tmp_path: Path) -> None:
    for _ in range(2):
        with hpuprof.record(tmp_path, wait=0, baseline_blocks=0, active=1, repeat=2) as recording:
            loop(recording, 6)
    assert [p.parent.name for p in files(tmp_path)] == [
        "hpuprof-0-async",
        "hpuprof-1-async",
        "hpuprof-0-async-2",
        "hpuprof-1-async-2",
    ]


def test_the_end_says_where_the_files_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with hpuprof.record(tmp_path, wait=0, baseline_blocks=0, active=1) as recording:
        loop(recording, 3)
    said = capsys.readouterr().err
    assert f"hpuprof: recorded 1 trace(s); hpuprof analyze {tmp_path}/hpuprof-0-async\nhpuprof: " in said
    assert "unknown" not in said


def test_of_many_windows_the_end_names_where_they_lie(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with hpuprof.record(tmp_path, wait=0, baseline_blocks=0, warmup=0, active=1, repeat=5, analyze=False) as recording:
        loop(recording, 8)
    assert f"hpuprof: recorded 5 trace(s); hpuprof analyze {tmp_path}\n" in capsys.readouterr().err


def test_a_recording_without_steps_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"step\(\) was never called"), hpuprof.record(tmp_path):
        torch.ones(2).add(1)


def test_a_recording_that_is_used_twice_says_so(tmp_path: Path) -> None:
    recording = hpuprof.record(tmp_path, wait=0, baseline_blocks=0, active=1)
    with recording:
        loop(recording, 3)
    with pytest.warns(UserWarning, match="already used and records nothing more"), recording:
        loop(recording, 3)
    assert len(files(tmp_path)) == 1


def test_an_error_in_the_last_step_of_a_window_is_no_whole_window(tmp_path: Path) -> None:
    def fails() -> None:
        with hpuprof.record(tmp_path, wait=0, baseline_blocks=0, active=2) as recording:
            loop(recording, 2)
            raise ValueError("mine")

    with pytest.warns(UserWarning, match="cut short after 2 step"), pytest.raises(ValueError, match="mine"):
        fails()
    assert (only(tmp_path)["hpuprof"]["steps"], only(tmp_path)["hpuprof"]["complete"]) == ([1, 2], False)


@pytest.mark.parametrize(
    ("place", "label", "what"),
    [
        (5, "x", "dirpath is 5"),
        (None, "x", "needs a directory"),
        ("t", "../x", "points outside"),
        ("t", 5, "label is 5"),
    ],
)
def test_places_that_are_none(place: Any, label: Any, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        hpuprof.record(place, label=label)


def test_without_lightning(tmp_path: Path, torch_program: Programs) -> None:
    text = """
import sys
sys.modules["lightning"] = sys.modules["pytorch_lightning"] = None
import hpuprof, torch
with hpuprof.record("traces", wait=0, baseline_blocks=0) as recording:
    for _ in range(6):
        torch.ones(2).add(1)
        recording.step()
assert len(recording.written) == 1
"""
    torch_program(tmp_path, text)
    assert len(files(tmp_path)) == 1


def test_a_schedule_and_an_exporter_of_the_users_own(tmp_path: Path) -> None:
    seen: list[int] = []
    schedule = torch.profiler.schedule(wait=2, warmup=1, active=2, repeat=2)
    with hpuprof.record(tmp_path, schedule=schedule) as recording:
        loop(recording, 12)
    assert [read(p)["hpuprof"]["steps"] for p in files(tmp_path)] == [[3, 4], [8, 9]]
    with hpuprof.record(tmp_path, schedule=schedule, on_trace_ready=lambda p: seen.append(p.step_num)) as recording:
        loop(recording, 12)
    assert (len(seen), recording.written) == (2, [])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"schedule": 3}, "schedule is 3, not callable"),
        ({"schedule": lambda _: None}, "returns None for step 0"),
        ({"on_trace_ready": "x"}, "on_trace_ready is 'x', not callable"),
        ({"label": "../b"}, "label is '../b', which points outside dirpath"),
        ({"record_shapes": "yes"}, "record_shapes is 'yes' (True or False)"),
        ({"shedule": None}, "did you mean 'schedule'?"),
    ],
)
def test_what_is_no_schedule_or_exporter_is_refused(tmp_path: Path, options: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        hpuprof.record(tmp_path, **options)
