"""What a predictor is told of the step time without the profiler: the same trace is judged with it and without."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path

import hpuprof
from benchmarks.graph_mode.answer import Answer, answer_of
from benchmarks.graph_mode.case import Case


def answers(case: Case, trace: Path) -> tuple[Answer, Answer]:
    """Return the answers with the step time told, by the trace itself or as a user would, and with it kept back."""
    report = hpuprof.analyze(trace, jobs=1)
    as_it_is = answer_of(report)
    if report.files["unprofiled_step_ns"].notna().any():
        with tempfile.TemporaryDirectory() as folder:
            return as_it_is, answer_of(hpuprof.analyze(_untold(trace, Path(folder)), jobs=1))
    if case.unprofiled is None:
        return as_it_is, as_it_is
    return answer_of(hpuprof.analyze(trace, jobs=1, step_time=f"{case.unprofiled.step_ns:.0f}ns")), as_it_is


def _untold(trace: Path, folder: Path) -> Path:
    """Write the trace, or all ranks' in a folder, without the unprofiled step time; return it."""
    files = sorted(trace.glob("*.json*")) if trace.is_dir() else [trace]
    for file in files:
        text = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
        document = json.loads(text)
        document.get("hpuprof", {}).pop("unprofiled", None)
        (folder / file.name.removesuffix(".gz")).write_text(json.dumps(document), encoding="utf-8")
    return folder if trace.is_dir() else folder / trace.name.removesuffix(".gz")
