"""A run that is told to end leaves nothing behind; what a killed one left goes with the next."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpuprof.files import scratch_folder

ROOT = Path(__file__).resolve().parents[2]


MERGE = """
import sys
import crashing
from hpuprof.cli.main import run
from hpuprof.viewers import merging

merging.plan_file = crashing.plan_and_stay
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
