"""Every command that the tool or its documents print is one that the tool takes; the cheap ones are run."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
from pathlib import Path

import click
import pytest

from hpuprof.cli.main import cli, main

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]
SOURCES = sorted((ROOT / "hpuprof").rglob("*.py"))
SAMPLES = sorted(p.name for p in (ROOT / "sample_traces").iterdir() if p.is_dir() and p.name != "generator")
STANDS_FOR = {"CODE": "HP203", "NAME": "kernels", "N": "3", "HPxxx": "HP203", "A:B": "2:5"}
QUOTED = re.compile(r"`(hpuprof [^`]+)`")
BARE = re.compile(r"^\s*(?:fix: |\$ )(hpuprof [a-z]+[^\n#|>&]*)", re.MULTILINE)


def in_text(text: str) -> list[str]:
    whole = re.sub(r"(?<=\S)\n +(?=\S)", " ", text)  # sentences are wrapped
    return [*QUOTED.findall(whole), *BARE.findall(text)]


def in_source(path: Path) -> list[str]:
    """Return what strings of a module print; what is put into them stands as a word."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(p.value) if isinstance(p, ast.Constant) else "HP203" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            text = node.value
        else:
            continue
        found += QUOTED.findall(text)
        if re.match(r"hpuprof (advise|analyze|calibrate|check|convert|doctor|export|inspect|merge|view) ", text):
            found += re.split(r",? then ", text.split("  #")[0])
    return found


def words_of(printed: str) -> list[str]:
    words = shlex.split(printed.split("  #", maxsplit=1)[0].rstrip(" ,.;"), comments=False)
    return [STANDS_FOR.get(word, word) for word in words[1:]]


def refused(printed: str) -> str:
    """Return why a command would be called wrongly; one without any path or code is a mention, of which options count alone."""
    words = words_of(printed)
    if not words or words[0] in ("COMMAND", "--help", "--version"):
        return ""
    try:
        command = cli.get_command(click.Context(cli), words[0])
        if command is None:
            return f"no command {words[0]}"
        mention = click.Context(command, resilient_parsing=True)
        values, rest, _ = command.make_parser(mention).parse_args(list(words[1:]))
        known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)} | {"--help", "-h"}
        unknown = [w for w in words[1:] if w.startswith("-") and w.split("=")[0] not in known]
        if unknown:
            return f"no option {unknown[0]}"
        given = [values.get(p.name) for p in command.params if isinstance(p, click.Argument)]
        if rest or any(isinstance(value, (str, tuple)) and value for value in given):
            command.make_context(words[0], list(words[1:]))
    except click.exceptions.Exit:
        return ""
    except click.ClickException as error:
        return error.format_message()
    return ""


def wrong(printed: list[str]) -> dict[str, str]:
    return {text: why for text in printed if (why := refused(text))}


def test_commands_in_documents_are_taken():
    found = {str(p.relative_to(ROOT)): in_text(p.read_text(encoding="utf-8")) for p in DOCUMENTS}
    assert sum(map(len, found.values())) > 60
    assert {name: bad for name, printed in found.items() if (bad := wrong(printed))} == {}


def test_commands_in_hints_and_messages_are_taken():
    found = {str(p.relative_to(ROOT)): in_source(p) for p in SOURCES}
    assert sum(map(len, found.values())) > 40
    assert {name: bad for name, printed in found.items() if (bad := wrong(printed))} == {}


def test_the_collector_finds_what_is_wrong():
    assert wrong(["hpuprof convert FILE --for tensorboard"]) == {
        "hpuprof convert FILE --for tensorboard": "Missing option '-o' / '--output'."
    }
    assert set(wrong(["hpuprof analise x", "hpuprof check --nonsense"])) == {
        "hpuprof analise x",
        "hpuprof check --nonsense",
    }
    assert in_text("      fix: hpuprof merge a.json -o b.json\n") == ["hpuprof merge a.json -o b.json"]


@pytest.mark.parametrize("sample", SAMPLES)
def test_commands_in_reports_of_samples_are_taken(sample: str, capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    for words in (["analyze"], ["advise"], ["inspect"], ["check"]):
        main([*words, str(ROOT / "sample_traces" / sample)])
        printed = capsys.readouterr()
        assert wrong(in_text(printed.out + printed.err)) == {}


@pytest.mark.parametrize("sample", ["hpu_g1_lazy", "lightning_1_rank", "hpu_synapse_logger"])
def test_commands_that_check_prints_mend_what_they_are_for(sample, tmp_path: Path, capsys, monkeypatch):
    shutil.copytree(ROOT / "sample_traces" / sample, tmp_path / "in")
    monkeypatch.chdir(tmp_path)
    assert main(["check", "in"]) == 0
    printed = dict.fromkeys(t for t in in_text(capsys.readouterr().out) if " merge " in t or " convert " in t)
    assert {text: main(words_of(text)) for text in printed} == dict.fromkeys(printed, 0)
    assert any((tmp_path / "in").glob("*.merged.json.gz"))
    assert any((tmp_path / "tab").rglob("*.pt.trace.json.gz"))


STAND_INS = {
    "traces/": "hpu_g3_lazy_8_ranks",
    "traces": "hpu_g3_lazy_8_ranks",
    "rank0.pt.trace.json": "hpu_g1_lazy",
    "broken.json": "hpu_synapse_logger",
}


@pytest.mark.parametrize("document", ["docs/reference/timelines.md"])
def test_commands_for_viewers_run_on_samples(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    ran = 0
    for text in re.findall(
        r"^\$ (hpuprof (?:merge|check) .*)$", (ROOT / document).read_text(encoding="utf-8"), re.MULTILINE
    ):
        words = shlex.split(text.split("  #")[0])[1:]
        sample = [str(ROOT / "sample_traces" / STAND_INS[word]) if word in STAND_INS else word for word in words]
        assert main(sample) == 0, text
        ran += 1
    assert ran >= 3
