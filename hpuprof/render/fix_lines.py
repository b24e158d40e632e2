"""Fixes and findings of an answer as lines, for every view. Texts arrive ready."""

from __future__ import annotations

from hpuprof.model.answer import Fix
from hpuprof.report.model import Finding, Report


def sentence_of(finding: Finding) -> str:
    """Return a finding as a sentence."""
    return f"{finding.code} {finding.title}: {finding.evidence}."


def titled(fix: Fix) -> str:
    """Return what to do and where."""
    return f"{fix.what}: {fix.place.where}" if fix.place.where else fix.what


def priced(fix: Fix) -> str:
    """Return what a fix saves, with its effort and evidence."""
    return "; ".join(filter(None, (fix.saves, fix.terms)))


def todo(fix: Fix) -> str:
    """Return what to do about a finding: its price where it has one, else the advice."""
    return fix.advice or fix.saves


def explained(report: Report, fix: Fix) -> list[Finding]:
    """Return the findings that a fix explains, without the one that it is."""
    found = {f.code: f for f in report.findings}
    return [found[code] for code in fix.explains if code in found and code != fix.finding]
