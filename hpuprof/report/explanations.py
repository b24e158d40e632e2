"""Explains codes: one entry per finding, diagnostic and obstacle, for the command line and the documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.families import FAMILIES, NONE
from hpuprof.graph_mode.obstacle_codes import OBSTACLES
from hpuprof.report.findings import BY_CODE


def explain(code: str) -> dict[str, str] | None:
    """Return a code's entry, or None for an unknown one. Case does not matter."""
    code = code.upper()
    if code in BY_CODE:
        rule = BY_CODE[code]
        return {
            "code": code,
            "title": rule.title,
            "severity": "finding",
            "meaning": rule.meaning,
            "found when": rule.threshold,
            "saves at most": rule.saves,
            "advice": rule.advice + (f" On a server: {rule.serving}" if rule.serving else "") + _on_families(code),
        }
    if code in DIAGNOSTICS:
        entry = DIAGNOSTICS[code]
        return {
            "code": code,
            "title": entry.title,
            "severity": entry.severity,
            "meaning": entry.cause,
            "advice": entry.remedy + _on_families(code),
        }
    if code in OBSTACLES:
        obstacle = OBSTACLES[code]
        on = "".join(f" On {kind}: {text}" for kind, text in obstacle.fixes.items())
        return {
            "code": code,
            "title": obstacle.title,
            "severity": "obstacle",
            "meaning": obstacle.meaning,
            "advice": obstacle.advice + on,
        }
    return None


def _on_families(code: str) -> str:
    """Return what a code means on single families of devices."""
    titles_of: dict[str, list[str]] = {}
    for family in FAMILIES.values():
        texts = (family.advice.get(code), family.advice.get(f"{code}:serving"), family.notes.get(code))
        for where, text in zip(("", " on a server", ""), texts, strict=True):
            if text and family.name != NONE:
                titles_of.setdefault(f"{where}: {text}", []).append(family.title)
    return "".join(f" On {', '.join(titles)}{text}" for text, titles in titles_of.items())


def all_codes() -> list[dict[str, str]]:
    """Return every entry, in order of code."""
    found = [explain(code) for code in sorted([*DIAGNOSTICS, *BY_CODE, *OBSTACLES])]
    return [entry for entry in found if entry]


GROUPS = {
    "HP2": "Findings: what costs time",
    "HP3": "Obstacles: what a graph cannot hold",
    "HP1": "Diagnostics: what a trace cannot show, and what was lost",
}


def by_group(first: Sequence[str] = ()) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """Yield titles and entries by kind of code; `first`: codes found in a run, in a group of their own before all."""
    entries = {entry["code"]: entry for entry in all_codes()}
    if found := [entries[code] for code in first if code in entries]:
        yield "Found here", found
    for prefix, title in GROUPS.items():
        yield title, [entry for code, entry in entries.items() if code.startswith(prefix) and code not in first]
