"""What `hpuprof inspect` shows: the files and their health, nothing measured."""

from __future__ import annotations

import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import msgspec

from hpuprof.model.tables import FileRow, GapCauseRow, StepRow
from hpuprof.render.formats import clean, duration, inert, percent, shorten, size
from hpuprof.render.json import pretty
from hpuprof.render.sections import data_quality
from hpuprof.render.text import MIN_WIDTH
from hpuprof.report.conservation import Ledger, rows_of, times_of
from hpuprof.report.model import Report

LEAST_FOLDED = 3
"""Files with the same facts that are shown as one."""


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
    """Return one block per file, ranks that are alike in one, then what was lost."""
    lines: list[str] = []
    gaps: defaultdict[tuple[int, str, str, str], list[GapCauseRow]] = defaultdict(list)
    for row in report.data.gap_causes:
        gaps[row.recording].append(row)
    alike: dict[object, list[FileRow]] = {}
    for file in report.data.files:
        steps = [s for s in report.data.steps if s.recording == file.recording]
        key = (file.stage, file.action, file.window, file.host_name, _device(file), file.form, _linked(file))
        alike.setdefault((*key, _steps(file, steps), _unknown(file)), []).append(file)
    for files in alike.values():
        for file in files if len(files) < LEAST_FOLDED else files[:1]:
            steps = [s for s in report.data.steps if s.recording == file.recording]
            lines.append(shorten(file.path, width))
            facts = [
                ("who", f"{_who(file)} ({file.provenance})"),
                (
                    "host",
                    (file.host_name or "unknown") + (f", world size {file.world_size}" if file.world_size else ""),
                ),
                ("device", _device(file)),
                ("file", f"{size(file.bytes)}, {file.form}, {file.rows:,} events over {duration(file.span_ns)}"),
                ("rows", f"{_sum_of(rows_of(file), _count)}; {_linked(file)}"),
                *((what, _sum_of(ledger, duration)) for what, ledger in times_of(file, steps, gaps[file.recording])),
                ("steps", _steps(file, steps)),
                ("unknown", _unknown(file)),
            ]
            if len(files) >= LEAST_FOLDED:
                facts.append(("alike", _alike(files[1:])))
            for label, text in facts:
                lines += _wrapped(clean(text), f"  {label:<9}", width) if text else []
            lines.append("")
    quality = data_quality(report)
    if quality:
        lines.append("Data quality")
        for line in quality:
            lines += _wrapped(line, "  ", width)
    return inert("\n".join(lines).rstrip("\n") + "\n")


def _who(file: FileRow) -> str:
    window = f"window {file.window}" if file.window != "0" else ""
    return " ".join(filter(None, (f"rank {file.rank}", file.stage, file.action, window)))


def _device(file: FileRow) -> str:
    memory = size(file.device_memory_bytes) if file.device_memory_bytes else ""
    device = " ".join(filter(None, (file.device_name or "", memory)))
    return " ".join(filter(None, (file.family, file.generation or "", file.mode, f"({device})" if device else "")))


def _linked(file: FileRow) -> str:
    return f"linked to a launch: {percent(file.linked_fraction)}"


def _steps(file: FileRow, steps: Sequence[StepRow]) -> str:
    out = Counter(s.excluded for s in steps if not s.steady)
    left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(out.items()))
    recur = sum(s.steady for s in steps) - file.steps_used
    used = f"{file.steps_used} of {file.steps_total} typical{f', {recur} more recur' if recur else ''}"
    source = f"{used}, from {file.step_source} {file.step_name}".rstrip()
    return source + (f"; left out: {left_out}" if left_out else "")


def _unknown(file: FileRow) -> str:
    return "; ".join(f"{n:,} {c} on {t}" for c, t, n in file.unknown)


def _alike(files: Sequence[FileRow]) -> str:
    """Say which ranks have the same facts, and how far their sizes differ."""
    events, sizes = [file.rows for file in files], [file.bytes for file in files]
    ranks = ", ".join(
        str(first) if first == last else f"{first}–{last}" for first, last in _runs([file.rank for file in files])
    )
    return f"ranks {ranks}: {min(events):,} to {max(events):,} events, {size(min(sizes))} to {size(max(sizes))} each"


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of consecutive numbers."""
    for _, run in groupby(enumerate(sorted(numbers)), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield members[0], members[-1]


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
