"""A name cannot steer the terminal: not a file's, not one in a trace, not one on the command line, whoever prints it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from builder import TraceBuilder
from limited import Limited

from hpuprof.messages import visible

NAME = "a\x1b]0;PWNED\x07\n::error::b\u202ec\x9bd"
COMMANDS = {
    "analyze": ("{}",),
    "inspect": ("{}",),
    "compare": ("{}", "{}"),
    "export": ("{}", "--table", "nothing\x1b[31m"),
    "merge": ("{}", "-o", "{out}/" + NAME + ".json"),
    "check": ("{file}", "{file}"),
    "convert": ("{}", "-o", "{out}/" + NAME),
    "view": ("{}", "--no-open", "--ranks", NAME),
    "explain": (NAME,),
    "calibrate": ("-o", NAME),
    NAME: (),
}


def raw(text: str) -> list[str]:
    """Return what a terminal would obey, and lines that begin with a name's second half."""
    return re.findall("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text) + re.findall("^::error", text, re.MULTILINE)


@pytest.mark.parametrize("kind", ["good", "empty", "both", "conflict", "strict", "absent"])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c if c.isalpha() else "unknown")
def test_no_name_reaches_the_terminal_raw(command: str, kind: str, limited: Limited, tmp_path: Path):
    folder = tmp_path / f"in{NAME}"
    trace = TraceBuilder(distributedInfo={"rank": 0}, deviceProperties=[{"name": NAME}]).steps(5, 100)
    trace.host(NAME, 10, 5).kernel(NAME, 20, 9, launch=12)
    file = folder / f"0{NAME}.pt.trace.json"
    if kind != "absent":
        folder.mkdir()
        (folder / f"9{NAME}.pt.trace.json").write_text("x" if kind in ("empty", "both", "strict") else '{"a": 1}')
    if kind in ("good", "both", "conflict", "strict"):
        trace.write(file)
    if kind == "conflict":
        trace.write(folder / f"1{NAME}.pt.trace.json")
    words = [word.format(folder, file=file, out=tmp_path) for word in COMMANDS[command]]
    more = ["--strict"] if kind == "strict" and command == "analyze" else []
    done = limited(command, *words, *more, cpu_s=30)
    assert (done.exit in (0, 2, 3), raw(done.stdout + done.stderr)) == (True, []), (done.stdout + done.stderr)[:3000]


def test_hostile_characters_are_shown_and_others_left_alone():
    assert visible(NAME) == r"a\x1b]0;PWNED\x07\n::error::b\u202ec\x9bd"
    assert visible("C:\\new\\täglich 你好 😀 µs") == "C:\\new\\täglich 你好 😀 µs"
    assert visible("half \ud800 of one").encode() == rb"half \ud800 of one"


def test_clicks_lists_of_choices_stay_readable(limited: Limited):
    done = limited("completion")
    assert done.stderr.splitlines()[0].endswith("bash, zsh, fish")
