"""What is named on the command line and is no file: pipes, sockets, devices, directories, names too long, other people's names."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import pytest
from limited import Limited

READERS = {
    "analyze": ("analyze", "{}"),
    "inspect": ("inspect", "{}"),
    "compare": ("compare", "{}", "{good}"),
    "export": ("export", "{}", "--table", "steps"),
    "merge": ("merge", "{}", "-o", "{out}/merged.json"),
    "check": ("check", "{}"),
    "view": ("view", "{}", "--no-open"),
    "convert": ("convert", "{}", "-o", "{out}/tab"),
    "constants": ("analyze", "{good}", "--constants", "{}"),
    "manifest": ("analyze", "{good}", "--clock", "manifest:{}"),
}
WRITERS = {
    "report": ("analyze", "{good}", "-o", "{}"),
    "junit": ("analyze", "{good}", "--junit", "{}"),
    "table": ("export", "{good}", "--table", "steps", "-o", "{}"),
    "timeline": ("merge", "{good}", "-o", "{}"),
    "tab": ("convert", "{good}", "-o", "{}"),
}


def run(limited: Limited, words: tuple[str, ...], place: Path, good: Path, out: Path):
    return limited(*(word.format(place, good=good, out=out) for word in words), wall_s=60)


@pytest.mark.parametrize("command", READERS)
def test_a_pipe_is_refused_and_not_waited_for(command: str, limited: Limited, tmp_path: Path, good_trace: Path):
    place = tmp_path / "pipe.json"
    os.mkfifo(place)
    done = run(limited, READERS[command], place, good_trace, tmp_path)
    assert (done.exit, "not a regular file but a pipe" in done.stderr) == (
        2 if "good" in READERS[command][1] else 3,
        True,
    )


@pytest.mark.parametrize("command", READERS)
def test_sockets_devices_and_long_names_are_refused_by_their_kind(
    command: str, limited: Limited, tmp_path: Path, good_trace: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("s.json")
        for place, words in (
            (tmp_path / "s.json", "not a regular file but a socket"),
            (Path("/dev/zero"), "not a regular file but a device"),
            (tmp_path / ("x" * 300), "File name too long"),
        ):
            done = run(limited, READERS[command], place, good_trace, tmp_path)
            assert done.exit in (2, 3), done.stderr
            assert words in done.stderr


@pytest.mark.parametrize("command", WRITERS)
def test_a_name_too_long_to_write_is_refused(command: str, limited: Limited, tmp_path: Path, good_trace: Path):
    suffix = {"table": ".csv", "tab": ""}.get(command, ".json")
    done = run(limited, WRITERS[command], tmp_path / ("x" * 300 + suffix), good_trace, tmp_path)
    assert (done.exit, "File name too long" in done.stderr) == (2, True)


def test_settings_that_are_no_table_are_no_bug(limited: Limited, tmp_path: Path, good_trace: Path):
    for text, code in (("tool = 1", 0), ("[tool.hpuprof]\njobs = [1]", 2), ("[tool.hpuprof]\njobs = inf", 2)):
        (tmp_path / "pyproject.toml").write_text(text)
        assert limited("inspect", good_trace, cwd=tmp_path).exit == code, text
    (tmp_path / "pyproject.toml").unlink()
    os.mkfifo(tmp_path / "pyproject.toml")
    assert limited("inspect", good_trace, cwd=tmp_path, wall_s=60).exit == 0


@pytest.mark.parametrize("command", ["compare", "export", "constants", "manifest"])
def test_json_that_is_too_deep_is_no_bug(command: str, limited: Limited, tmp_path: Path, good_trace: Path):
    deep = '{"schema_version": 1, "hpuprof_version": "0", "host": {"offset_ns": 1, "x": %s}}' % (
        "[" * 10**5 + "]" * 10**5
    )
    (tmp_path / "deep.json").write_text(deep)
    done = run(limited, READERS[command], tmp_path / "deep.json", good_trace, tmp_path)
    assert (done.exit in (2, 3), "deep.json" in done.stderr) == (True, True), done.stderr


@pytest.mark.parametrize("entry", ["1e308", '{"offset_ns": 1, "drift_ppm": 1e300, "reference_ns": 1}'])
def test_a_clock_that_no_clock_can_be_is_refused(entry: str, limited: Limited, tmp_path: Path, good_trace: Path):
    (tmp_path / "m.json").write_text(f'{{"7": {entry}}}')
    done = limited("merge", good_trace, "-o", tmp_path / "o.json", "--clock", f"manifest:{tmp_path / 'm.json'}")
    assert (done.exit, "m.json: not a clock manifest: '7': offset_ns" in done.stderr) == (2, True)


@pytest.mark.parametrize("command", [("merge", "{}", "-o", "{out}/m.json"), ("check", "{}")])
@pytest.mark.parametrize("full", ["0", "0.out", "0.begin", "0.end"])
def test_full_temporary_folders_are_named_and_not_the_output(run, command, full, tmp_path, good_trace, monkeypatch):
    """Writing to /dev/full fails as on a full disk."""
    scratch = tmp_path / "scratch" / "hpuprof-x"
    scratch.mkdir(parents=True)
    (scratch / full).symlink_to("/dev/full")
    for module in ("merging", "viewer_check"):
        monkeypatch.setattr(f"hpuprof.viewers.{module}.scratch_folder", lambda _: contextlib.nullcontext(scratch))
    code, _, err = run(*(word.format(good_trace, out=tmp_path) for word in command))
    if command[0] == "check" and full != "0":
        assert code == 0
        return
    assert code == 2
    assert err.startswith(f"hpuprof: {scratch.parent}: temporary files cannot be written: No space left on device\n"), (
        err
    )
    assert "TMPDIR" in err
    assert not (tmp_path / "m.json").exists()


@pytest.mark.parametrize("command", ["merge", "check"])
def test_a_temporary_folder_that_is_none_is_named(run, command, tmp_path, good_trace, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "none"))
    target = ["-o", tmp_path / "m.json"] if command == "merge" else []
    code, _, err = run(command, good_trace, *target)
    assert (code, f"{tmp_path / 'none'}: temporary files cannot be written" in err) == (2, True), err
