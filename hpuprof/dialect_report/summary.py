"""The summary of several files: one for each kind of file, with what they say of the assumptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from hpuprof._version import __version__
from hpuprof.dialect_report.assumption import Judgment, Verdict
from hpuprof.dialect_report.assumptions import ASSUMPTIONS
from hpuprof.dialect_report.facts import Facts

ORDER: tuple[Verdict, ...] = ("contradicted", "confirmed", "not seen")
"""What several files say together is the first one that any of them says."""
JUDGED = "hpu"
"""The family of devices that the assumptions are about."""


class Judged(Struct, frozen=True):
    """What the files of one kind say of an assumption: the figure is of the first file with that verdict."""

    id: str
    verdict: Verdict
    figure: str
    files: int


class FileKind(Struct, frozen=True):
    """Files that look alike. `facts`: of the first one; `least`, `most`: rows of a file."""

    files: int
    least: int
    most: int
    facts: Facts
    assumptions: list[Judged]


class DialectSummary(Struct, frozen=True):
    """What the files look like. `unreadable`: files by kind of error."""

    version: str
    kinds: list[FileKind]
    unreadable: dict[str, int]


def summary(files: Iterable[Facts | str]) -> DialectSummary:
    """Fold files that look alike into one kind; a text is the kind of error that a file could not be read for."""
    kinds: dict[object, list[tuple[Facts, list[Judgment]]]] = {}
    counts: dict[object, list[int]] = {}
    unreadable: Counter[str] = Counter()
    for facts in files:
        if isinstance(facts, str):
            unreadable[facts] += 1
            continue
        key = _look(facts)
        said = [assumption.judge(facts) for assumption in ASSUMPTIONS] if facts.family == JUDGED else []
        members = kinds.setdefault(key, [])
        members.append((facts if not members else members[0][0], said))
        counts.setdefault(key, []).append(facts.rows)
    found = [
        FileKind(len(members), min(counts[key]), max(counts[key]), members[0][0], _judged([s for _, s in members]))
        for key, members in kinds.items()
    ]
    found.sort(key=lambda kind: -kind.most)
    return DialectSummary(__version__, found, dict(sorted(unreadable.items())))


def _look(facts: Facts) -> object:
    """Return what files of one kind share: names of categories, engines and events, and forms, not figures."""
    return (
        facts.form,
        facts.compressed,
        facts.family,
        facts.generation,
        tuple(sorted(facts.header)),
        tuple(sorted(category.name for category in facts.categories)),
        tuple((engine.engine, tuple(sorted(event.name for event in engine.events))) for engine in facts.engines),
        tuple((name, tuple(sorted(forms))) for name, forms in facts.recipes.device.items()),
        facts.clock.base,
    )


def _judged(files: Sequence[list[Judgment]]) -> list[Judged]:
    out = []
    for i, assumption in enumerate(ASSUMPTIONS if files and files[0] else ()):
        said = [judgments[i] for judgments in files]
        verdict = min((judgment.verdict for judgment in said), key=ORDER.index)
        alike = [judgment for judgment in said if judgment.verdict == verdict]
        out.append(Judged(assumption.id, verdict, alike[0].figure, len(alike)))
    return out
