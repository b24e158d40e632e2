"""A run that is told to end leaves nothing behind; what a killed one left goes with the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpuprof.files import scratch_folder, whole_file, write_whole

ROOT = Path(__file__).resolve().parents[2]


MERGE = """
import signal
import sys
import crashing
from hpuprof.cli.main import run
from hpuprof.viewers import merging

merging.plan_file = crashing.plan_and_stay
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # tests that are started by nohup ignore it
run()
"""


def started(samples: Path, folder: Path) -> subprocess.Popen[bytes]:
    """Start a merge that does not end by itself; return when each of its two workers has planned a file."""
    (folder / "tmp").mkdir()
    (folder / "out").mkdir()
    (folder / "merge.py").write_text(MERGE, encoding="utf-8")
    words = ["merge", str(samples / "hpu_g3_lazy_8_ranks"), "-j", "2", "-o", str(folder / "out" / "merged.json.gz")]
    process = subprocess.Popen(
        [sys.executable, str(folder / "merge.py"), *words],
        env={**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
        stderr=subprocess.PIPE,
    )
    while len(list((folder / "tmp").glob("hpuprof-merge-*/*.planned"))) < 2:
        assert process.poll() is None
        time.sleep(0.02)
    return process


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_run_that_is_ended_removes_what_it_made(number: int, code: int, samples: Path, tmp_path: Path):
    with started(samples, tmp_path) as process:
        process.send_signal(number)
        _, told = process.communicate(timeout=300)
    assert (process.returncode, told) == (code, b"")
    assert list((tmp_path / "tmp").iterdir()) == list((tmp_path / "out").iterdir()) == []


def test_what_a_killed_run_left_is_removed_by_the_next_one(
    samples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with started(samples, tmp_path) as process:
        (left,) = (tmp_path / "tmp").glob("hpuprof-merge-*")
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
        with scratch_folder("check"):
            assert left.is_dir(), "somebody works in it"
        process.kill()
        process.wait()
    with scratch_folder("check") as mine, scratch_folder("merge"):
        assert (left.exists(), mine.is_dir()) == (False, True)
    assert not mine.exists()


def left_by_a_kill(target: Path) -> Path:
    """Return the temporary file of a process that was killed while it wrote."""
    program = (
        "import os, signal, sys, pathlib\n"
        "from hpuprof.files import whole_file\n"
        "with whole_file(pathlib.Path(sys.argv[1])) as out:\n"
        "    out.write(b'half')\n"
        "    out.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program, str(target)], env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False
    )
    (left,) = target.parent.iterdir()
    return left


def test_what_a_killed_writer_left_is_removed_by_the_next_one(tmp_path: Path):
    target = tmp_path / "a[1].csv"
    left = left_by_a_kill(target)
    others = [
        tmp_path / name for name in (".a[1].csv.notours", ".b.csv.01234567", ".a1.csv.01234567", "a[1].csv.01234567")
    ]
    for other in others:
        other.touch()
        os.utime(other, (0, 0))
    write_whole(target, "new")
    assert left.read_text() == "half", "it may be just made"
    os.utime(left, (0, 0))
    write_whole(target, "newer")
    assert sorted(tmp_path.iterdir()) == sorted([target, *others])
    assert target.read_text() == "newer"


def test_what_another_process_writes_is_not_removed(tmp_path: Path):
    target = tmp_path / "a.csv"
    with whole_file(target) as slow:
        (mine,) = tmp_path.iterdir()
        os.utime(mine, (0, 0))
        write_whole(target, "quick")
        assert mine.exists()
        slow.write(b"slow")
    assert target.read_text() == "slow"
    assert list(tmp_path.iterdir()) == [target]
