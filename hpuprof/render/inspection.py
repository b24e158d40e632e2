"""What `hpuprof inspect` shows: the files and their health, nothing measured."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from hpuprof.model.tables import GapCauseRow
from hpuprof.render.formats import clean, duration, inert, percent, shorten, size
from hpuprof.render.json import pretty
from hpuprof.render.sections import data_quality
from hpuprof.render.text import MIN_WIDTH
from hpuprof.report.conservation import Ledger, rows_of, times_of
from hpuprof.report.model import Report


def to_json(report: Report) -> str:
    """Return files, steps in short, diagnostics as one JSON document."""
    data = report.data
    keep = ("rank", "stage", "action", "window", "step", "label", "start_ns", "wall_ns", "used", "standing", "excluded")
    document: dict[str, Any] = {
        "files": msgspec.to_builtins(data.files),
        "steps": [{k: getattr(s, k) for k in keep} for s in data.steps],
        "diagnostics": msgspec.to_builtins(data.diagnostics),
    }
    return pretty(document)


def to_text(report: Report, *, width: int = 80) -> str:
    """Return one block per file, then what was lost."""
    lines: list[str] = []
    gaps: defaultdict[tuple[int, str, str, str], list[GapCauseRow]] = defaultdict(list)
    for row in report.data.gap_causes:
        gaps[row.recording].append(row)
    for f in report.data.files:
        who = " ".join(
            w for w in (f"rank {f.rank}", f.stage, f.action, f"window {f.window}" if f.window != "0" else "") if w
        )
        lines.append(shorten(f.path, width))
        steps = [s for s in report.data.steps if s.recording == f.recording]
        out = Counter(s.excluded for s in steps if not s.steady)
        left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(out.items()))
        recur = sum(s.steady for s in steps) - f.steps_used
        device = " ".join(
            w for w in (f.device_name or "", size(f.device_memory_bytes) if f.device_memory_bytes else "") if w
        )
        facts = [
            ("who", f"{who} ({f.provenance})"),
            ("host", (f.host_name or "unknown") + (f", world size {f.world_size}" if f.world_size else "")),
            (
                "device",
                " ".join(w for w in (f.family, f.generation or "", f.mode, f"({device})" if device else "") if w),
            ),
            ("file", f"{size(f.bytes)}, {f.form}, {f.rows:,} events over {duration(f.span_ns)}"),
            ("rows", f"{_sum_of(rows_of(f), _count)}; linked to a launch: {percent(f.linked_fraction)}"),
            *((what, _sum_of(ledger, duration)) for what, ledger in times_of(f, steps, gaps[f.recording])),
            (
                "steps",
                f"{f.steps_used} of {f.steps_total} typical{f', {recur} more recur' if recur else ''}, from "
                f"{f.step_source} {f.step_name}".rstrip()
                + (f"; left out: {left_out}" if left_out else ""),
            ),
            ("unknown", "; ".join(f"{n:,} {c} on {t}" for c, t, n in f.unknown)),
        ]
        for label, text in facts:
            lines += _wrapped(clean(text), f"  {label:<9}", width) if text else []
        lines.append("")
    quality = data_quality(report)
    if quality:
        lines.append("Data quality")
        for line in quality:
            lines += _wrapped(line, "  ", width)
    return inert("\n".join(lines).rstrip("\n") + "\n")


def _count(rows: int) -> str:
    return f"{rows:,}"


def _sum_of(ledger: Ledger, shown: Callable[[int], str]) -> str:
    """Write a ledger: the whole, and the parts that sum to it."""
    parts = " + ".join(f"{shown(part)} {name}" for name, part in ledger.parts.items() if part)
    inner = ", ".join(f"{name} {shown(part)}" for name, part in ledger.inner.items())
    return f"{shown(ledger.whole)} {ledger.name}" + (f" = {parts}" if parts else "") + (f" ({inner})" if inner else "")


def _wrapped(text: str, lead: str, width: int) -> list[str]:
    """Break a long line, between clauses if possible; continuation lines align with the first one's text."""
    room = max(MIN_WIDTH, width) - len(lead)
    lines = [""]
    for clause in text.split("; "):
        if lines[-1] and len(lines[-1]) + 3 + len(clause) <= room:
            lines[-1] += f"; {clause}"
            continue
        if lines[-1]:
            lines[-1] += ";"
        lines += textwrap.wrap(clause, room, break_on_hyphens=False) or [""]
    found = [line for line in lines if line]
    return [(lead if i == 0 else " " * len(lead)) + line for i, line in enumerate(found)]
