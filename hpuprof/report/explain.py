"""Explains codes: one entry for each finding and diagnostic, the same in the command line and the documents."""

from __future__ import annotations

from hpuprof.diagnostics import DIAGNOSTICS
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
            "advice": rule.advice,
        }
    if code in DIAGNOSTICS:
        entry = DIAGNOSTICS[code]
        return {
            "code": code,
            "title": entry.title,
            "severity": entry.severity,
            "meaning": entry.cause,
            "advice": entry.remedy,
        }
    return None


def all_codes() -> list[dict[str, str]]:
    """Return every entry, in order of code."""
    found = [explain(code) for code in sorted([*DIAGNOSTICS, *BY_CODE])]
    return [entry for entry in found if entry]
