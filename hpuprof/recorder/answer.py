"""The one seam from the recorder to the analyzer: what to say of the files that were just recorded."""

from __future__ import annotations

import time
from pathlib import Path
from shlex import quote
from statistics import median
from typing import Any

from hpuprof.naming import is_trace_name
from hpuprof.recorder.engine import Engine

WAIT_SECONDS = 20.0
ANSWER_BYTES = 64 << 20  # of trace files as they are on disk; more would hold up the end of the fit
_UNITS = {"ns": "_ns"}  # fractions have it in their names
METRICS = (
    "step_time_p50",
    "device_busy_fraction",
    "device_idle_fraction",
    "host_blocked_fraction",
    "input_fraction",
    "exposed_communication_fraction",
)


def summary(engines: list[Engine], *, rows: int = -1) -> str:
    """Return the analyzer's text for the local files of this rank; what can be said without it for the others.

    `rows`: rows of its tables of names, -1 for all.
    """
    paths = [w.path for engine in engines for w in engine.written]
    local = [Path(p) for p in paths if "://" not in p]
    if local:
        from hpuprof import api
        from hpuprof.render.text import to_text

        return to_text(api.analyze(local, jobs=1), top=None if rows < 0 else rows)
    lines = [line for engine in engines for line in _unprofiled(engine)]
    if paths:
        lines.append(
            f"hpuprof wrote {len(paths)} traces: {', '.join(paths)}; copy them to a disk and run `hpuprof analyze`."
        )
    return "\n".join(lines) + "\n" if lines else ""


def print_answer(engine: Engine, *, loggers: list[Any], step: int) -> None:
    """On rank 0, wait for the other ranks' files, print the answer and how to see more, and log headline metrics."""
    if engine.who.rank != min(engine.config.ranks or (0,)):
        return
    values: dict[str, float] = {}
    lines = []
    folders = [Path(w.path).parent for w in engine.written if "://" not in w.path]
    if folders:
        ranks = len(engine.config.ranks) if engine.config.ranks is not None else engine.who.world_size
        missing = _wait(folders, ranks)
        from hpuprof import api

        mine = [Path(w.path) for w in engine.written]
        large = sum(f.stat().st_size for folder in folders for f in folder.iterdir()) > ANSWER_BYTES
        # In this process: a worker process would run the user's script again, or inherit the device.
        report = api.analyze(mine if large else list(folders), jobs=1)
        lines.append(report.headline.sentence)
        if large and ranks > 1:
            lines.append(f"That is rank {engine.who.rank} alone: the traces of all ranks are large.")
        if missing:
            lines.append(f"{missing} of {ranks} ranks had not written their traces after {WAIT_SECONDS:.0f} s.")
        values = {
            f"hpuprof/{name}{_UNITS.get(m.unit, '')}": float(m.value)
            for name, m in report.metrics.items()
            if name in METRICS and m.value is not None
        }
    lines += _unprofiled(engine)
    if folders:
        lines.append(f"More: hpuprof analyze {' '.join(quote(f) for f in _where(engine, folders))}")
    elif engine.written:
        lines.append(f"The traces are in {engine.dirpath}; copy them to a disk and run `hpuprof analyze`.")
    if not lines:
        return
    print("hpuprof: " + "\n  ".join(lines), flush=True)
    if engine.blocks:
        values["hpuprof/unprofiled_step_time_ns"] = float(median(ns // steps for ns, steps in engine.blocks))
    for logger in loggers if values else []:
        logger.log_metrics(values, step=step)


def _unprofiled(engine: Engine) -> list[str]:
    times = sorted(ns // steps for ns, steps in engine.blocks)
    if not times:
        return []
    return [
        f"Without the profiler a step takes {median(times) / 1e6:.2f} ms (blocks: {', '.join(f'{ns / 1e6:.2f}' for ns in times)} ms)."
    ]


def _where(engine: Engine, folders: list[Path]) -> list[str]:
    """Return what to analyse: the directory when it holds nothing but this run, else this run's own directories."""
    try:
        alone = {
            p for p in Path(engine.dirpath).iterdir() if p.is_dir() and p.name.startswith(engine.label + "-")
        } <= set(folders)
    except OSError:
        alone = True
    return [engine.dirpath] if alone else [str(f) for f in folders]


def _wait(folders: list[Path], ranks: int) -> int:
    """Wait until every run directory holds a file of each rank; return how many are missing after the wait."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        missing = max(
            ranks - sum(1 for p in f.iterdir() if is_trace_name(p.name) and not p.name.startswith(".")) for f in folders
        )
        if missing <= 0 or time.monotonic() > deadline:
            return max(0, missing)
        time.sleep(0.1)
