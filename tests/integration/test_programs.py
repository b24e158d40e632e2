"""Programs of every kind use worker processes, which load nothing of them: each runs once, and stderr stays empty."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Without a guard. `once` holds a line for each time that this runs.
PROGRAM = """
import os, sys
open({once!r}, "a").write("line\\n")
sys.path[:0] = {path!r}
import crashing
from hpuprof.executors import Journal, run_all
class Item(int): pass
def main():
    journal = Journal()
    found = sorted(run_all(crashing.double, [3, 1, 2], jobs=2, journal=journal))
    open({answer!r}, "w").write(repr((found, dict(journal.notes))))
"""
ANSWER = "([(0, 6), (1, 2), (2, 4)], {})"
CALLS = {
    "here": "main()",
    "in a thread": "import threading; thread = threading.Thread(target=main); thread.start(); thread.join()",
    "in a daemon": "import multiprocessing; process = multiprocessing.get_context('fork').Process(target=main, daemon=True)\n"
    "process.start(); process.join()",
    "without stdin and stderr": "os.close(0); os.close(2); main()",
    "elsewhere": "os.chdir('elsewhere'); sys.path.insert(0, ''); main()",
}


@pytest.fixture
def text(tmp_path: Path) -> str:
    """The program, which finds hpuprof by its own search path, with modules of our names where it runs."""
    (tmp_path / "elsewhere").mkdir()
    for name in ("hpuprof", "pickle", "typing"):
        (tmp_path / "elsewhere" / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    path = [str(ROOT), str(ROOT / "tests")]
    return PROGRAM.format(once=str(tmp_path / "once"), answer=str(tmp_path / "answer"), path=path)


def check(tmp_path: Path, *command: str, cwd: str = "", given: str = "", printed: bool = False) -> None:
    """Run Python with a command; `given`: on stdin; `printed`: it may write on stdout."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, *command],
        input=given,
        cwd=tmp_path / cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr.strip("\n")) == (0, "")
    assert printed or done.stdout == ""
    assert (tmp_path / "answer").read_text() == ANSWER
    assert (tmp_path / "once").read_text() == "line\n"


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_script_runs_once(text: str, tmp_path: Path, call: str) -> None:
    (tmp_path / "script.py").write_text(text + call)
    check(tmp_path, "script.py")


def test_a_script_runs_among_modules_of_our_names(text: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(text + "main()")
    check(tmp_path, "../script.py", cwd="elsewhere")


def test_a_program_without_a_file(text: str, tmp_path: Path) -> None:
    check(tmp_path, "-c", text + "main()")


def test_a_program_on_stdin(text: str, tmp_path: Path) -> None:
    check(tmp_path, "-", given=text + "main()")


def test_a_session(text: str, tmp_path: Path) -> None:
    check(tmp_path, "-i", "-c", text + "sys.ps1 = ''", given="main()\n")


def test_a_program_in_an_archive(text: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "program.pyz", "w") as archive:
        archive.writestr("__main__.py", text + "main()")
    check(tmp_path, "program.pyz")


def test_a_program_in_the_debugger(text: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(text + "main()")
    check(tmp_path, "-m", "pdb", "-c", "continue", "script.py", given="quit\n", printed=True)


def test_an_analysis_runs_a_script_once(samples: Path, tmp_path: Path) -> None:
    script = f"""
import hpuprof
print("line")
report = hpuprof.analyze({str(samples / "hpu_g3_lazy_8_ranks")!r}, jobs=2, progress=lambda name: None)
assert [row for row in report.data.diagnostics if row.code == "HP162"] == []
print(report.headline.sentence)
"""
    (tmp_path / "script.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    one, two = (
        subprocess.run([sys.executable, "-c", text], env=environment, capture_output=True, text=True, check=True)
        for text in (script, script.replace("jobs=2", "jobs=1"))
    )
    assert one.stdout.startswith("line\n")
    assert (one.stdout, one.stderr) == (two.stdout, "")
