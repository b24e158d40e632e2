"""American spelling, as PyTorch's, in texts and names; in what the tool prints, the words that engineers use for these things."""

from __future__ import annotations

import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpuprof.model.schema import Cause
from hpuprof.model.tables import TABLES

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(
    path for folder in ("hpuprof", "examples", "notebooks", "docs") for path in (ROOT / folder).rglob("*.py")
)
PAGES = sorted(
    path
    for pattern in ("render/templates/report.[cj]s*", "render/templates/*.j2", "tensorboard_plugin/static/*")
    for path in (ROOT / "hpuprof").glob(pattern)
)
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "examples").glob("*.md"),
        *(path for path in (ROOT / "docs").rglob("*.md") if "evidence" not in path.parts),
    ]
)

_STEMS = (
    *("categor", "custom", "emphas", "general", "initial", "maxim", "minim", "normal", "optim", "organ", "parallel"),
    *("priorit", "quant", "recogn", "serial", "special", "stabil", "summar", "synchron", "util", "vector", "visual"),
)
AMERICAN = {
    r"analys(?=ed|er|ing|able|e(?!s))": "analyz",
    r"behaviour": "behavior",
    r"catalogue": "catalog",
    r"centre": "center",
    r"colour": "color",
    r"defence": "defense",
    r"favour": "favor",
    r"grey": "gray",
    r"honour": "honor",
    r"(?<!re)judgement": "judgment",
    r"(?:lab|mod|trav|sign|tunn)ell(?:ed|ing)": "labeled, modeling",
    r"licence": "license",
    r"neighbour": "neighbor",
    r"programme(?![drs])": "program",
    r"towards": "toward",
    r"whilst": "while",
    rf"(?:{'|'.join(_STEMS)})is(?=e|ing|ation)": "…ize, …ization",
}
"""British forms within a word, and what replaces them."""
NAMES = {
    "CAUSE_COLOURS": "exported by hpuprof.plots",
    "UtilisationRow": "a type in the report's JSON schema",
    "hardware_flops_utilisation": "a metric: JSON, gates",
    "model_flops_utilisation": "a metric: JSON, gates",
    "synchronisation": "a fix: `--apply`, JSON",
    "find_synchronisation": "finds the places of that fix",
    "idle_synchronise_fraction": "the metric of a cause of idle time: JSON, gates; the column `cause` has `synchronise`",
    "SYNCHRONISE": "the same in code",
    "utilisation": "a table: `report.utilisation`, JSON, export",
    "labelledby": "`aria-labelledby`, as HTML spells it",
    "grey": "a color that Chrome's viewer reserves by this name",
}
"""Public names that keep their spelling, as programs and files of others hold them."""
SAY = {
    r"analyse": "analyze",
    r"are waited for|is waited for": "is late, is the straggler",
    r"besides?(?!, off)": "in addition, at the same time, next to",
    r"by judge?ment": "heuristic",
    r"comput\w+ while": "overlap",
    r"drained": "synchronized, idle",
    r"joint points": "regions, graph breaks",
    r"late one": "straggler, slow rank",
    r"matrix rows": "kernels of matrix products",
    r"mends?|mended|mending": "fix, repair",
    r"multipl\w+ matrices in": "mixed precision",
    r"nobody": "no rank, not known",
    r"only communicat\w+": "exposed communication",
    r"play(?:s|ed)?": "simulate, replay",
    r"pric(?:e|es|ed|ing)": "estimate",
    r"reads? (?:nothing|norms|values) back": "synchronization point, .item()",
    r"remed(?:y|ies)": "fix",
    r"told(?! apart)": "reported, known, shown",
    r"uploads?": "host-to-device copy",
    r"what nobody waits for": "queued work",
    r"work that waits": "queued work",
}
"""Words that nobody uses aloud for these things, and those that the tool prints instead."""
_UNSAID = re.compile(r"(?<![A-Za-z])(?:told|tells|nobody|besides?)(?![A-Za-z])", re.IGNORECASE)
"""Words for which others stand everywhere: given, reported, shows, no rank, next to, in the background."""
_STAYS = re.compile(r"`beside`|\bbeside(?=, off|\|off)|--cache beside|^beside$|--parts beside|not_told(?:_apart)?")
"""An option's value, options of benchmarks, and two reasons in reports."""
_BRITISH = re.compile("|".join(f"(?:{form})" for form in AMERICAN), re.IGNORECASE)
_WORD = re.compile(r"\w+")
_CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)|[\w/]+\.md|^## [a-z_]+$", re.DOTALL | re.MULTILINE)
"""Code, links, and the names of tables above their columns."""


def british(text: str, *, code: bool = False) -> Iterator[str]:
    """Yield the words of a text that Americans spell otherwise. `code`: names stand in it bare, else in backticks."""
    prose = text if code else _CODE.sub(" ", text)
    for word in _WORD.findall(prose):
        if _BRITISH.search(word) and not (word in NAMES and (code or "_" in word)):
            yield word


def strings(path: Path) -> Iterator[tuple[str, bool]]:
    """Yield a module's texts, and whether each is a docstring."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, id(node) in said


def is_name(text: str) -> bool:
    """Whether a text of code is a name, or a list of tables, columns or colors."""
    words = text.split()
    return len(words) == 1 or set(words) <= set(TABLES) or "=" in words[-1] or {"terrible", "yellow"} <= set(words)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_code_is_spelled_as_in_america_and_says_engineers_words(path):
    """Texts, docstrings, comments and names; the words are those of the package."""
    texts = [text for text, _ in strings(path)]
    found = [word for text in texts for word in british(text, code=is_name(text))]
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type in (tokenize.NAME, tokenize.COMMENT):
            found += british(token.string, code=token.type == tokenize.NAME)
            texts.append(token.string)
    if path.is_relative_to(ROOT / "hpuprof"):
        found += [word for text in texts for word in unsaid(text)]
    assert found == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_pages_are_spelled_as_in_america(path):
    assert list(british(path.read_text(encoding="utf-8"), code=True)) == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_documents_are_spelled_as_in_america(path):
    assert list(british(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda p: p.stem)
def test_notebooks_are_spelled_as_in_america(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert [word for cell in cells for word in british("".join(cell["source"]))] == []


@pytest.mark.parametrize(
    "path", [p for p in SOURCES if p.is_relative_to(ROOT / "hpuprof")], ids=lambda p: str(p.relative_to(ROOT))
)
def test_what_is_printed_is_in_engineers_words(path):
    """Texts of more than a word that are no docstrings, but for commands: those are their help."""
    help_texts = path.is_relative_to(ROOT / "hpuprof" / "cli")
    for text, docstring in strings(path):
        if " " in text and (help_texts or not docstring) and not is_name(text):
            prose = re.sub(r"`[^`]*`", " ", text)
            for word, instead in SAY.items():
                assert not re.search(rf"\b(?:{word})\b", prose, re.IGNORECASE), f"{text!r}: say {instead}"


def unsaid(text: str) -> list[str]:
    """Return the words of a text or a name that are left out everywhere."""
    return _UNSAID.findall(_STAYS.sub(" ", text))


@pytest.mark.parametrize("path", sorted((ROOT / "docs").rglob("*.md")), ids=lambda p: str(p.relative_to(ROOT)))
def test_documents_are_in_engineers_words(path):
    assert unsaid(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "What it told nobody, and a _told_of_timers Beside it besides",
            ["told", "nobody", "told", "Beside", "besides"],
        ),
        ("untold, goldtold, `beside`, auto, beside, off", []),
    ],
)
def test_words_left_out_are_found(text, found):
    assert unsaid(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It analyses and Analysed the colour of neighbours", ["Analysed", "colour", "neighbours"]),
        ("analyses, otherwise precise, raise, exercise, promised, advised, labels", []),
        ("labelled modelling synchronisation utilised", ["labelled", "modelling", "synchronisation", "utilised"]),
        ("`utilisation` is a name, [utilization](utilisation.md) a page, utilisation a word", ["utilisation"]),
    ],
)
def test_forms_are_found(text, found):
    assert list(british(text)) == found


def test_names_that_stay_are_in_use():
    code = {
        word
        for path in [*SOURCES, *PAGES]
        for text in [path.read_text(encoding="utf-8")]
        for word in _WORD.findall(text)
    }
    built = {f"idle_{cause.name.lower()}_fraction" for cause in Cause}
    assert set(NAMES) - code - built == set()
