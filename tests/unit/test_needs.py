"""What is missing skips a test, unless it was promised."""

import os
import subprocess
import sys
from pathlib import Path

import needs
import pytest
from conftest import MARKS, TESTS, TOGETHER


def test_a_missing_module_skips(monkeypatch):
    monkeypatch.setattr(needs, "REQUIRED", frozenset())
    with pytest.raises(pytest.skip.Exception, match="needs no_such_module"):
        needs.module("tab", "no_such_module.part")


def test_what_was_promised_fails_instead(monkeypatch):
    monkeypatch.setattr(needs, "REQUIRED", needs.promised("tab,browser"))
    with pytest.raises(pytest.fail.Exception, match=r"to be installed \(HPUPROF_TESTS_REQUIRE promises tab: Tensor"):
        needs.module("tab", "no_such_module", "needs it to be installed")
    with pytest.raises(pytest.skip.Exception):
        needs.absent("cluster", "another feature")


def test_what_is_there_is_imported():
    assert needs.module("tab", "json.decoder").JSONDecoder


def test_a_promise_that_nobody_knows_is_refused():
    assert needs.promised("") == frozenset()
    with pytest.raises(pytest.UsageError, match="no such feature: brwoser"):
        needs.promised("brwoser,tab")


def test_a_module_of_tests_without_what_was_promised_is_an_error_of_the_run(tmp_path):
    text = 'import needs\nneeds.module("cluster", "no_such_module")\ndef test_it(): pass\n'
    (tmp_path / "test_it.py").write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-rs",
        "--rootdir",
        str(tmp_path),
        "test_it.py",
    ]
    path = os.pathsep.join([str(Path(needs.__file__).parent), os.environ.get("PYTHONPATH", "")])
    for promise, ends, word in (("", 5, "1 skipped"), ("cluster", 2, "promises cluster: Dask")):
        environment = {**os.environ, "PYTHONPATH": path, "HPUPROF_TESTS_REQUIRE": promise}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, word in done.stdout) == (ends, True), done.stdout


def test_what_is_marked_or_kept_together_is_there():
    places = {place.partition("::") for known in (MARKS, TOGETHER) for of_one in known.values() for place in of_one}
    assert {file for file, _, _ in places if not (TESTS / file).exists()} == set()
    tests = {(file, test) for file, _, test in places if test}
    assert {test for file, test in tests if f"def {test}(" not in (TESTS / file).read_text(encoding="utf-8")} == set()
