"""The one seam from the recorder to the analyzer: what to say of the files that were just recorded."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from hpuprof.recorder.engine import Engine

WAIT_SECONDS = 20.0
METRICS = ("step_time_p50", "device_busy_fraction", "device_idle_fraction", "host_blocked_fraction", "input_fraction", "exposed_communication_fraction")


def summary(paths: list[str]) -> str:
    """Return the analyzer's text for local files; for remote ones, how to get it."""
    local = [p for p in paths if "://" not in p]
    if not local:
        return f"hpuprof wrote {len(paths)} traces; see `hpuprof analyze`\n"
    from hpuprof import api
    from hpuprof.render.text import to_text

    return to_text(api.analyze([Path(p) for p in local], jobs=1))


def print_answer(engine: Engine, *, logger: Any, step: int) -> None:
    """On rank 0, wait for the other ranks' files, print the answer and how to see more, and log headline metrics."""
    if engine.who.rank != min(engine.config.ranks or (0,)):
        return
    unprofiled = sorted(ns // steps for ns, steps in engine.blocks)
    folders = [str(Path(w.path).parent) for w in engine.written if "://" not in w.path]
    if not folders:
        return
    ranks = len(engine.config.ranks) if engine.config.ranks is not None else engine.who.world_size
    missing = _wait(folders, ranks)
    from hpuprof import api

    report = api.analyze([Path(f) for f in folders])
    lines = [report.headline.sentence]
    if unprofiled:
        middle = unprofiled[len(unprofiled) // 2]
        lines.append(f"Without the profiler a step takes {middle / 1e6:.2f} ms (blocks: {', '.join(f'{ns / 1e6:.2f}' for ns in unprofiled)} ms).")
    if missing:
        lines.append(f"{missing} of {ranks} ranks had not written their traces yet.")
    lines.append(f"More: hpuprof analyze {engine.dirpath}")
    print("hpuprof: " + "\n  ".join(lines), flush=True)
    if logger is not None:
        values = {f"hpuprof/{name}": float(m.value) for name, m in report.metrics.items() if name in METRICS and m.value is not None}
        if unprofiled:
            values["hpuprof/unprofiled_step_time"] = float(unprofiled[len(unprofiled) // 2])
        logger.log_metrics(values, step=step)


def _wait(folders: list[str], ranks: int) -> int:
    """Wait until every run directory holds a file of each rank; return how many are missing after the wait."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        missing = max(ranks - sum(1 for p in Path(f).iterdir() if ".pt.trace.json" in p.name and not p.name.startswith(".")) for f in folders)
        if missing <= 0 or time.monotonic() > deadline:
            return max(0, missing)
        time.sleep(0.1)
