"""Small hostile and odd files, each through every command that reads traces; see README.md beside this file."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import grown
import pytest
from forks import Done
from limited import Limited

HERE = Path(__file__).parent
CASES = sorted(p.name.removesuffix(".expected.json") for p in HERE.glob("*.expected.json"))
COMMANDS = {
    "analyze": ("analyze", "--json", "--quiet", "{path}"),
    "inspect": ("inspect", "{path}"),
    "merge": ("merge", "{path}", "-o", "{out}/merged.json.gz"),
    "check": ("check", "{path}"),
    "convert": ("convert", "{path}", "-o", "{out}/tab"),
    "export": ("export", "{path}", "--table", "slices", "-o", "{out}/slices.csv"),
}


def run(limited: Limited, command: str, path: Path, out: Path, cpu_s: int, memory_mib: int) -> Done:
    """Run a command; `inspect` finds what `analyze` has read before it, as a user's would."""
    arguments = [word.format(path=path, out=out) for word in COMMANDS[command]]
    return limited(*arguments, cpu_s=cpu_s, memory_mib=memory_mib, environment={"HPUPROF_CACHE": str(out / "cache")})


def said(report: dict) -> list[str]:
    """Return the diagnostics of a report as `CODE` or `CODE xCOUNT`, sorted."""
    found = {(d["code"], d.get("count", 1)) for d in report["diagnostics"]}
    return sorted(code if count == 1 else f"{code} x{count}" for code, count in found)


@pytest.mark.parametrize("name", CASES)
def test_every_command_answers_within_its_limits(name: str, limited: Limited, tmp_path: Path):
    expected = json.loads((HERE / f"{name}.expected.json").read_text())
    (source,) = (p for p in HERE.glob(f"{name}.*") if not p.name.endswith(".expected.json"))
    path = tmp_path / "in" / source.name
    path.parent.mkdir()
    shutil.copy(source, path)
    assert set(expected["exits"]) == set(COMMANDS), "say what each command exits with"
    for command, code in expected["exits"].items():
        done = run(limited, command, path, tmp_path, expected.get("cpu_s", 5), expected.get("memory_mib", 500))
        assert done.exit == code, f"{command}: {done.stderr}"
        for words in expected.get("says", {}).get(command, []):
            assert words in done.stdout + done.stderr
        if command == "analyze" and "diagnostics" in expected:
            assert said(done.report()) == expected["diagnostics"]


@pytest.mark.parametrize("name", CASES)
def test_one_such_file_among_good_ones_costs_the_others_nothing(
    name: str, limited: Limited, tmp_path: Path, good_trace: Path
):
    (source,) = (p for p in HERE.glob(f"{name}.*") if not p.name.endswith(".expected.json"))
    shutil.copy(source, tmp_path / source.name)
    shutil.copy(good_trace, tmp_path / good_trace.name)
    done = limited("analyze", "--json", "--quiet", "-j", "1", tmp_path, memory_mib=1000)
    assert done.exit == 0, done.stderr
    assert good_trace.name in {f["path"] for f in done.report()["files"]}


@pytest.mark.parametrize("case", grown.CASES, ids=lambda c: c.name)
def test_what_grows_is_read_in_time_that_grows_with_it(case: grown.Case, limited: Limited, tmp_path: Path):
    path = tmp_path / case.file_name
    path.write_bytes(case.make(case.size))
    os.utime(path, (1_700_000_000, 1_700_000_000))  # long enough ago to be remembered
    for command in case.commands:
        done = run(limited, command, path, tmp_path, case.cpu_s, case.memory_mib)
        assert done.exit in case.exits, f"{command}: exit {done.exit} after {done.cpu_s:.1f} s: {done.stderr[:500]}"
