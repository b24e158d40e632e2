"""One line of a check for the page of evidence: no names, no paths, numbers of four digits."""

from __future__ import annotations

import msgspec

from hpuprof.comparison.result import Comparison
from hpuprof.errors import InsufficientDataError
from hpuprof.families import FAMILIES
from hpuprof.model.answer import Span

CHECK_VERSION = 1


def check_line(comparison: Comparison) -> str:
    """Return the check of a comparison as one JSON line without its end.

    Holds: version of the form and of hpuprof, families of the devices, names of fixes, how the gain was predicted,
    predicted and achieved gain as low end, middle and high end [ns], mean recorded step of A [ns], verdict. Raises
    InsufficientDataError where no fix was found.
    """
    check = comparison.check
    if check is None:
        raise InsufficientDataError(
            "no fix was found between A and B", hint="compare a recording before a fix with one after it"
        )
    step = comparison.change("wall_ns", group="step")
    line = {
        "check_version": CHECK_VERSION,
        "hpuprof_version": comparison.hpuprof_version,
        "family": _families(comparison),
        "fixes": check.fixes,
        "how": check.how,
        "step_ns": _rounded(step.a if step is not None else None),
        "predicted_ns": _ends(check.predicted),
        "achieved_ns": _ends(check.achieved),
        "basis": check.basis,
        "verdict": check.verdict,
        "inside": check.inside,
        "reason": check.reason,
    }
    return msgspec.json.encode(line).decode()


def _families(comparison: Comparison) -> list[str]:
    """Return the families of both sides; a device that names itself is `other`."""
    named = {*comparison.a.family.split("+"), *comparison.b.family.split("+")} - {""}
    return sorted({family if family in FAMILIES else "other" for family in named})


def _ends(span: Span) -> list[float | None]:
    return [_rounded(ns) for ns in (span.low_ns, span.ns, span.high_ns)]


def _rounded(ns: float | None) -> float | None:
    return None if ns is None else float(f"{ns:.4g}")
