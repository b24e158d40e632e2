"""What `hpuprof merge` and `hpuprof check` say: sentences and JSON. Computes nothing."""

from __future__ import annotations

import msgspec

from hpuprof.render.units import clean, duration, number, size
from hpuprof.timeline.merge import Merged


def merged_json(merged: Merged) -> str:
    """Return what was merged as one JSON document."""
    return msgspec.json.format(msgspec.json.encode(merged), indent=1).decode() + "\n"


def merged_text(merged: Merged) -> str:
    """Return one line per fact: what was written, what was moved, what was left out and why."""
    ranks = len(merged.ranks)
    lines = [
        f"wrote {clean(merged.path)} ({size(merged.bytes)}): {ranks} rank{'s' if ranks != 1 else ''} over "
        f"{duration(merged.span_ns)}, {number(merged.slices)} slices, {number(merged.arrows)} arrows, "
        f"{number(merged.counters)} counter samples",
        f"clock: {_CLOCKS[merged.clock]}",
    ]
    if merged.moved:
        lines.append(f"{number(merged.moved)} slices that would have crossed others lie on lanes of their own")
    lines += [f"left out: {number(n)} {reason}" for reason, n in merged.left_out.items() if "(" not in reason]
    lines += [
        f"{d.code} {clean(d.path)}: {clean(d.text)}" + (f" ({number(d.count)})" if d.count > 1 else "")
        for d in merged.diagnostics
    ]
    return "\n".join(lines) + "\n"


_CLOCKS = {
    "raw": "stamps as recorded; ranks of different hosts may be off by their clocks' difference",
    "manifest": "offsets from the manifest",
    "offsets": "offsets as given",
    "start of each rank": "none in common; each rank is drawn from its own start",
}
