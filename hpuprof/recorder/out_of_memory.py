"""Keeps what a CUDA device's memory held when it ran out: torch's snapshot, and a summary that is safe to read.

`hangs/<host>_<rank>.<time>.memory.pickle` is the snapshot, for pytorch.org/memory_viz; `….memory.json` its sums.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from hpuprof.naming import MEMORY
from hpuprof.recorder.hang import put_report
from hpuprof.recorder.metadata import Who
from hpuprof.recorder.warn import tell_once

_HELD = 10  # groups of blocks in a summary
_IN_USE = ("active_allocated", "active_pending_free", "active_awaiting_free")
_LIBRARY = "site-packages"


def observe_out_of_memory(dirpath: str, who: Who, step: Callable[[], int]) -> None:
    """Have the memory of a CUDA device written when it first runs out. `step`: returns the step that runs.

    torch keeps an observer for good, so a process has one, which writes for the latest recording.
    """
    import torch

    attach = getattr(torch._C, "_cuda_attach_out_of_memory_observer", None)  # noqa: SLF001  there is no public name
    if attach is None:
        return
    if not _goes_to:
        attach(_out_of_memory)
    _goes_to[:] = [(dirpath, who, step)]


_goes_to: list[tuple[str, Who, Callable[[], int]]] = []
_written: list[str] = []


def _out_of_memory(device: int, asked_bytes: int, total_bytes: int, free_bytes: int) -> None:
    """Write once for a process: programs that retry run out again and again. The arguments are torch's."""
    import pickle

    import torch

    if _written:
        return
    (dirpath, who, step), now = _goes_to[0], time.time_ns()
    try:
        snapshot = torch.cuda.memory._snapshot()  # noqa: SLF001  as torch documents it
        asked = {"asked_bytes": asked_bytes, "total_bytes": total_bytes, "free_bytes": free_bytes}
        known = {"format": 1, **who.as_metadata(), "time_ns": now, "step": step(), **asked}
        _written.append(str(put_report(dirpath, who, now, f"{MEMORY}.pickle", pickle.dumps(snapshot))))
        put_report(dirpath, who, now, f"{MEMORY}.json", json.dumps(known | summary(snapshot, device)).encode())
    except Exception as error:  # noqa: BLE001  the program's own error comes next
        tell_once(f"torch's memory snapshot could not be written: {error}")
    else:
        tell_once(
            f"the device ran out of memory; hpuprof analyze {dirpath} says where it went, "
            f"{_written[0]} shows it at https://pytorch.org/memory_viz"
        )


def summary(snapshot: Mapping[str, Any], device: int) -> dict[str, Any]:
    """Sum up torch's snapshot of a device's memory [bytes].

    `in_use_bytes`: blocks of tensors; `reserved_bytes`: what torch holds of the device; `largest_unused_bytes`: the
    largest block without a tensor; `held`: the blocks of one place in the program, or of one size where torch recorded
    no places (`torch.cuda.memory._record_memory_history`), the most first.
    """
    segments = [s for s in snapshot.get("segments", ()) if s.get("device", 0) == device]
    blocks = [block for segment in segments for block in segment.get("blocks", ())]
    used = [block for block in blocks if block.get("state") in _IN_USE]
    total: Counter[tuple[str, int]] = Counter()
    count: Counter[tuple[str, int]] = Counter()
    for block in used:
        where = _where(block)
        group = (where, 0 if where else block["size"])
        total[group] += block["size"]
        count[group] += 1
    return {
        "in_use_bytes": sum(block["size"] for block in used),
        "reserved_bytes": sum(segment.get("total_size", 0) for segment in segments),
        "largest_unused_bytes": max((b["size"] for b in blocks if b.get("state") == "inactive"), default=0),
        "held": [
            {"bytes": size, "blocks": count[group], "where": group[0]}
            for group, size in sorted(total.items(), key=lambda item: (-item[1], item[0]))[:_HELD]
        ],
    }


def _where(block: Mapping[str, Any]) -> str:
    """Return the innermost line of the program's own code that allocated a block; empty where torch kept none."""
    frames = [f for f in block.get("frames") or () if str(f.get("filename", "")).endswith(".py")]
    own = [f for f in frames if _LIBRARY not in f["filename"]]
    at = next(iter(own or frames), None)
    return f"{at['filename']}:{at.get('line', 0)} in {at.get('name', '')}" if at else ""
