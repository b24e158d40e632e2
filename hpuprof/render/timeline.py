"""What `hpuprof merge` and `hpuprof check` say in words. Computes nothing."""

from __future__ import annotations

import textwrap

from hpuprof.render.formats import clean, duration, inert, number, size
from hpuprof.viewers.merging import REWRITTEN, Merged
from hpuprof.viewers.viewer_check import Checked


def merged_text(merged: Merged, *, written: bool = True) -> str:
    """Return one line per fact: what was written (where `written`), what was moved, what was left out and why."""
    ranks = len(merged.ranks)
    lines = [f"clock: {_CLOCKS[merged.clock]}"]
    if written:
        lines.insert(
            0,
            f"wrote {clean(merged.path)} ({size(merged.bytes)}): {ranks} rank{'s' if ranks != 1 else ''} over "
            f"{duration(merged.span_ns)}, {number(merged.slices)} slices, {number(merged.arrows)} arrows, "
            f"{number(merged.counters)} counter samples",
        )
    if merged.moved:
        lines.append(f"{number(merged.moved)} slices that would cross others were moved to separate lanes")
    if merged.critical == 0:
        lines.append("critical cycles: unknown, no rank's steps can be replayed launch by launch")
    lines += [f"left out: {number(n)} {reason}" for reason, n in merged.left_out.items() if reason != REWRITTEN]
    lines += [
        f"{d.code} {clean(d.path)}: {clean(d.text)}" + (f" ({number(d.count)})" if d.count > 1 else "")
        for d in merged.diagnostics
    ]
    return inert("\n".join(lines) + "\n")


def checked_text(checked: list[Checked]) -> str:
    """Return one block per file: a verdict per viewer, the reasons, and what mends them."""
    lines: list[str] = []
    for file in checked:
        if file.error:
            lines += [f"{clean(file.path)}  cannot be read: {clean(file.error)}", ""]
            continue
        lines.append(f"{clean(file.path)}  ({size(file.bytes)} unpacked, {number(file.rows)} rows)")
        for viewer, verdict in file.verdicts.items():
            lines.append(f"  {viewer:<16} {_VERDICTS[verdict]}")
            found = [p for p in file.problems if p.viewer == viewer]
            for problem in found:
                word = "note: " if problem.severity == "note" else ""
                lines.append(_wrapped(f"{word}{number(problem.count)} × {clean(problem.text)}"))
            fixes = dict.fromkeys(p.fix for p in found if p.fix and p.severity != "note")
            lines += [f"      fix: {clean(fix)}" for fix in fixes]
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 78, initial_indent="    - ", subsequent_indent="      ", break_long_words=False)


_VERDICTS = {"ok": "shows all of it", "loses": "loads, but shows some of it incorrectly", "fails": "cannot load it"}
_CLOCKS = {
    "raw": "timestamps as recorded; hosts are offset by the difference between their clocks",
    "collective": "host clocks estimated from collectives",
    "manifest": "offsets from the manifest",
    "offsets": "offsets as given",
    "start of each rank": "none shared; each rank starts at its own zero",
}
