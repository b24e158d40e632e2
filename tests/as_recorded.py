"""Takes what was done for TensorBoard's own tab out of a parsed trace, so that tests see what the profiler wrote."""

from __future__ import annotations

from typing import Any


def as_recorded(trace: dict[str, Any]) -> dict[str, Any]:
    """Return the trace without added rows and with the words that rows had before."""
    rows = []
    for row in trace["traceEvents"]:
        mark = row.get("args", {}).get("hpuprof", {})
        if mark.get("drawn") or row.get("cat") == "hpuprof":
            continue
        args = {k: v for k, v in row.get("args", {}).items() if k != "hpuprof" and k not in mark.get("added", ())}
        was = dict(mark.get("was", {}))
        args |= {k: was.pop(k) for k in list(was) if k in args}
        rows.append({**row, **was, **({"args": args} if "args" in row else {})})
    return {**trace, "traceEvents": rows}
