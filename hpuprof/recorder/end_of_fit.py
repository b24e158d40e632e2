"""The only link from the recorder to the analyzer: what to say about the files just recorded."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from statistics import median
from typing import TYPE_CHECKING, Any, TextIO

from hpuprof.naming import is_trace_name, parse_name
from hpuprof.recorder.engine import Engine

if TYPE_CHECKING:
    from hpuprof.report.model import Report

WAIT_SECONDS = 10.0
ANSWER_BYTES = 64 << 20  # of trace files on disk; more would delay the end of the fit
MOST_NAMED = 8  # ranks
MOST_FINDINGS = 3  # on the console; the report lists all
_UNITS = {"ns": "_ns"}  # fractions have it in their names
_OF_THE_RUN = ("step_p50_ns", "step_p90_ns", "input_fraction", "slow_fraction")
"""Columns of the table `run_steps` that go to loggers."""


@dataclass(frozen=True)
class Answered:
    """A report, and notes on which ranks it covers."""

    report: Report
    notes: tuple[str, ...]


class Answers:
    """Reports on the written files: on all ranks' files on the answering rank, on its own files on any other.

    No file is analyzed twice.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], Answered] = {}

    def of(self, engines: list[Engine]) -> Answered | None:
        """Return the report on the files that these loops wrote to disk, None if there are none.

        The answering rank waits for the other ranks' files.
        """
        mine = [Path(w.path) for engine in engines for w in engine.written if "://" not in w.path]
        mine = mine or [_log(engine) for engine in engines if engine.step_log and _log(engine).is_file()]
        if not mine:
            return None
        key = tuple(map(str, mine))
        if key not in self._known:
            self._known[key] = _analyzed(engines[0], mine)
        return self._known[key]


def _analyzed(engine: Engine, mine: list[Path]) -> Answered:
    from hpuprof import api

    rank = engine.who.rank
    ranks = len(engine.config.ranks) if engine.config.ranks is not None else engine.who.world_size
    traces = [path for path in mine if is_trace_name(path.name)]
    folders = list(dict.fromkeys(path.parent for path in traces))
    notes = []
    alone = False
    if engine.whole:
        alone = True
    elif not _answers(engine):
        alone = True
        notes.append(f"This covers rank {rank} only; rank {engine.config.first_rank} reports on all ranks.")
    else:
        missing = _wait(folders, ranks) if folders else []
        if sum(f.stat().st_size for folder in folders for f in folder.iterdir() if f.is_file()) > ANSWER_BYTES:
            alone = True
            if ranks > 1:
                notes.append(f"This covers rank {rank} only: the traces of all ranks are large.")
        if missing:
            names = ", ".join(map(str, missing[:MOST_NAMED])) + (", …" if len(missing) > MOST_NAMED else "")
            notes.append(
                f"{len(missing)} of {ranks} ranks had not written their traces after {WAIT_SECONDS:.0f} s: {names}."
            )
    # In this process: other ranks of the job use the other cores.
    logs = [_log(engine)] if engine.step_log else []
    if logs and not alone:
        logs = sorted(logs[0].parent.glob("*.steps"))
    logs = [log for log in logs if log.is_file()]
    return Answered(api.analyze([*(traces if alone else folders), *logs], jobs=1), tuple(notes))


def _log(engine: Engine) -> Path:
    return Path(engine.dirpath) / engine.step_log


def _answers(engine: Engine) -> bool:
    return engine.who.rank == engine.config.first_rank


def summary(answers: Answers, engines: list[Engine], *, rows: int = -1) -> str:
    """Return the analyzer's text on the files that these loops wrote to disk.

    For URLs, or without files, return what can be said without analysis. `rows`: rows of its tables of names, -1 for
    all.
    """
    engines = [engine for engine in engines if engine.written or engine.blocks]
    said = answers.of(engines)
    if said is not None:
        from hpuprof.render.text import to_text

        return "".join(f"{note}\n" for note in said.notes) + to_text(said.report, top=None if rows < 0 else rows)
    paths = [w.path for engine in engines for w in engine.written]
    lines = [line for engine in engines for line in _unprofiled(engine)]
    if paths:
        lines.append(
            f"hpuprof wrote {len(paths)} traces: {', '.join(paths)}; copy them to a disk and run `hpuprof analyze`."
        )
    return "\n".join(lines) + "\n" if lines else ""


def print_answer(answers: Answers, engine: Engine, *, loggers: list[Any], step: int, to: TextIO | None = None) -> None:
    """On the answering rank, wait for the other ranks' files, print the answer, and log headline metrics.

    `loggers`: Lightning's, or with TensorBoard's `add_scalar`; `to`: where to print, default: stdout.
    """
    if not _answers(engine):
        return
    values: dict[str, float] = {}
    lines = []
    said = answers.of([engine])
    if said is not None:
        from hpuprof.model.metrics import METRICS
        from hpuprof.render.fix_lines import priced, titled

        logged = {spec.name for spec in METRICS if spec.logged}
        answer = said.report.answer
        lines += [
            answer.bound_sentence,
            *filter(None, (answer.run, answer.base.sentence)),
            *(f"{fix.line}. {titled(fix)}: {priced(fix)}" for fix in answer.lines),
            *filter(None, (answer.nothing, answer.end.sentence, answer.caution)),
            *(f"{other.finding} {titled(other)}." for other in answer.others[:MOST_FINDINGS]),
            *said.notes,
        ]
        values = {
            f"hpuprof/{name}{_UNITS.get(m.unit, '')}": float(m.value)
            for name, m in said.report.metrics.items()
            if name in logged and m.value is not None
        }
        for row in said.report.data.run_steps:
            if row.path == engine.step_log:
                of_run = {f"hpuprof/run_{name}": getattr(row, name) for name in _OF_THE_RUN}
                values |= {name: float(value) for name, value in of_run.items() if value is not None}
    if said is None or said.report.answer.base.source != "unprofiled":  # else the answer states it
        lines += _unprofiled(engine)
    if said is not None:
        folders = [Path(w.path).parent for w in engine.written if "://" not in w.path]
        lines.append(f"More: hpuprof analyze {' '.join(quote(f) for f in _where(engine, folders))}")
    elif engine.written:
        lines.append(f"The traces are in {engine.dirpath}; copy them to a disk and run `hpuprof analyze`.")
    if not lines:
        return
    from hpuprof.render.formats import clean

    print("hpuprof: " + "\n  ".join(map(clean, lines)), flush=True, file=to)
    if engine.blocks:
        values["hpuprof/unprofiled_step_time_ns"] = float(median(ns // steps for ns, steps in engine.blocks))
    for logger in loggers if values else []:
        if hasattr(logger, "log_metrics"):
            logger.log_metrics(values, step=step)
            continue
        for name, value in values.items():
            logger.add_scalar(name, value, step)


def _unprofiled(engine: Engine) -> list[str]:
    times = sorted(ns // steps for ns, steps in engine.blocks)
    if not times:
        return []
    blocks = ", ".join(f"{ns / 1e6:.2f}" for ns in times)
    return [f"Without the profiler a step takes {median(times) / 1e6:.2f} ms (blocks: {blocks} ms)."]


def _where(engine: Engine, folders: list[Path]) -> list[str]:
    """Return what to analyze: the directory when it holds only this run, else this run's own directories."""
    try:
        alone = {
            p for p in Path(engine.dirpath).iterdir() if p.is_dir() and p.name.startswith(engine.label + "-")
        } <= set(folders)
    except OSError:
        alone = True
    return [engine.dirpath] if alone else [str(f) for f in folders]


def _wait(folders: list[Path], ranks: int) -> list[int]:
    """Wait until every run directory has a file of each rank; return the ranks that are still missing."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        missing: set[int] = set()
        for folder in folders:
            names = [p.name for p in folder.iterdir() if is_trace_name(p.name) and not p.name.startswith(".")]
            if len(names) < ranks:
                missing |= set(range(ranks)) - {parse_name(name).number for name in names}
        if not missing or time.monotonic() > deadline:
            return sorted(missing)
        time.sleep(0.1)
