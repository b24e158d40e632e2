"""Reads the time per step that other tools wrote down: profilers' reports, training logs, benchmarks of servers.

A trace alone does not hold the step time without the profiler; what lies next to it often does. Formats are
recognized by their content, not by their names:

- Lightning `SimpleProfiler` report: mean of `run_training_batch` and of fetching its batch;
- Lightning `CSVLogger` with `ThroughputMonitor`: time and batches of training, from row to row;
- TraceML `final_summary.json`: the mean step of all ranks, with its wait for input;
- Hugging Face `trainer_state.json`: `train_steps_per_second` of the whole training;
- vLLM and SGLang serving benchmarks: `median_itl_ms`, else `median_tpot_ms`: a decode step each;
- DeepSpeed `wall_clock_breakdown`: forward, backward and step, without the loader;
- Megatron-LM and nanoGPT logs: time per iteration;
- progress bars of tqdm and rich in a log: `3.21it/s`, `1.02s/it`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from hpuprof.errors import InputError
from hpuprof.files import cannot_read, is_regular, read_regular
from hpuprof.model.arrays import median

SUFFIXES = (".txt", ".log", ".out", ".json", ".jsonl", ".csv")
MOST_BYTES = 16 << 20
MOST_FILES = 64
"""Larger files and more of a directory are not looked at: what times steps is small, and lies next to the traces."""
FEWEST = 3
"""Lines of a log that must give a time: the first ones hold warm-up."""
MEAN_SPREAD = 0.02
"""Relative standard deviation of a step time of which only the mean is known; heuristic: runs differ by about that."""


class Timer(Struct, frozen=True):
    """A step time that another tool measured: `tool` names it and `path` the file; times in ns."""

    step_ns: int
    spread_ns: int
    tool: str
    path: str


def find_timers(folders: Sequence[Path], *, other_than: Collection[str]) -> list[Timer]:
    """Return the step times in files of folders; traces (`other_than`) and files that give none are left out."""
    traces = {Path(path).resolve() for path in other_than}
    files = [file for folder in folders for file in _small_files(folder, traces)]
    return [timer for file in files if (timer := _timer(file)) is not None]


def read_timer(path: str | Path) -> Timer:
    """Return the step time that a file gives. Raises InputError where it gives none."""
    try:
        text = read_regular(Path(path)).decode("utf-8", "replace")
    except OSError as error:
        raise InputError(
            f"{path}: {cannot_read(error)}", hint="give a report or log of a tool that times steps"
        ) from error
    timer = _parsed(text, str(path))
    if timer is None:
        known = ", ".join(tool for tool, _ in READERS)
        raise InputError(f"{path}: gives no time per step", hint=f"known are: {known}; or give --step-time 12.3ms")
    return timer


def _small_files(directory: Path, traces: Collection[Path]) -> list[Path]:
    named = sorted(path for path in directory.iterdir() if path.suffix in SUFFIXES and is_regular(path))
    others = [path for path in named if path.resolve() not in traces]
    return [path for path in others[:MOST_FILES] if path.stat().st_size <= MOST_BYTES]


def _timer(file: Path) -> Timer | None:
    try:
        return _parsed(read_regular(file).decode("utf-8", "replace"), file.name)
    except OSError:
        return None


def _parsed(text: str, path: str) -> Timer | None:
    for tool, read in READERS:
        found = read(text)
        if found is not None and found[0] > 0:
            step, spread = found
            return Timer(round(step), round(max(spread, MEAN_SPREAD * step)), tool, path)
    return None


_ROW = re.compile(r"^\|\s*(?P<action>[^|]+?)\s*\|\s*(?P<mean>[\d.eE+-]+)\s*\|", re.MULTILINE)


def _simple_profiler(text: str) -> tuple[float, float] | None:
    if "Mean duration (s)" not in text:
        return None
    means = {row["action"]: float(row["mean"]) for row in _ROW.finditer(text) if _number(row["mean"])}
    batch = means.get("run_training_batch")
    if batch is None:
        return None
    loading = next((mean for action, mean in means.items() if action.endswith("train_dataloader_next")), 0.0)
    return 1e9 * (batch + loading), 0.0


def _throughput_rows(text: str) -> tuple[float, float] | None:
    """Take what `ThroughputMonitor` logs: seconds and batches since training, or its next epoch, began."""
    lines = text.splitlines()
    if not lines or not {"train/time", "train/batches"} <= set(lines[0].split(",")):
        return None
    import csv

    cells = [(row["train/time"], row["train/batches"]) for row in csv.DictReader(lines)]
    rows = [(float(time), float(batches)) for time, batches in cells if _number(time) and _number(batches)]
    steps = [(then - since, n - before) for (since, before), (then, n) in pairwise(rows)]
    return _of_lines(1e9 * time / batches for time, batches in steps if time > 0 and batches > 0)


def _traceml(text: str) -> tuple[float, float] | None:
    found = _document(text) if '"step_time"' in text else None
    for name in ("step_time", "global", "average"):
        found = found.get(name) if isinstance(found, dict) else None
    if not isinstance(found, dict):
        return None
    ms: Any = found.get("step_time_ms", found.get("total_step_ms"))  # until version 1.7 of its schema
    return (1e6 * ms, 0.0) if _positive(ms) else None


def _trainer_state(text: str) -> tuple[float, float] | None:
    state = _document(text) if '"log_history"' in text else None
    history = state.get("log_history") if isinstance(state, dict) else None
    rates = [
        entry["train_steps_per_second"]
        for entry in (history if isinstance(history, list) else [])
        if isinstance(entry, dict) and _positive(entry.get("train_steps_per_second"))
    ]
    return (1e9 / rates[-1], 0.0) if rates else None


def _serving_benchmark(text: str) -> tuple[float, float] | None:
    given = [name for name in ("median_itl_ms", "median_tpot_ms") if name in text]
    for line in (text, *reversed(text.splitlines()[-8:])) if given else ():
        found = _document(line)
        if isinstance(found, dict):
            for name in given:
                if _positive(found.get(name)):
                    return 1e6 * found[name], 0.0
    return None


_DEEPSPEED = re.compile(
    r"time \(ms\) \|.*?\bfwd: (?P<fwd>[\d.]+) \|.*?\bbwd: (?P<bwd>[\d.]+) \|.*?(?<!micro)\bstep: (?P<step>[\d.]+)"
)
_ITERATION = re.compile(
    r"elapsed time per iteration \(ms\): (?P<ms>[\d.]+)|\biter \d+: loss [\d.eE+-]+, time (?P<own>[\d.]+)ms"
)
_BAR = re.compile(r"(?P<value>\d+(?:\.\d+)?)\s?(?P<unit>it/s|s/it|ms/it|steps?/s|s/step)\b")
_IN_NS: dict[str, Callable[[float], float]] = {
    "it/s": lambda value: 1e9 / value,
    "step/s": lambda value: 1e9 / value,
    "steps/s": lambda value: 1e9 / value,
    "s/it": lambda value: 1e9 * value,
    "s/step": lambda value: 1e9 * value,
    "ms/it": lambda value: 1e6 * value,
}


def _deepspeed(text: str) -> tuple[float, float] | None:
    return _of_lines(1e6 * sum(map(float, m.groups())) for m in _DEEPSPEED.finditer(text))


def _iterations(text: str) -> tuple[float, float] | None:
    return _of_lines(1e6 * float(m["ms"] or m["own"]) for m in _ITERATION.finditer(text))


def _progress_bar(text: str) -> tuple[float, float] | None:
    """Take the last rate of each bar: bars tell a moving mean, so that earlier ones hold warm-up."""
    bars = [line for line in re.split(r"[\r\n]+", text) if "%|" in line or "it/s" in line or "s/it" in line]
    return _of_lines(
        _IN_NS[m["unit"]](float(m["value"])) for line in bars for m in _BAR.finditer(line) if float(m["value"]) > 0
    )


def _of_lines(times: Iterator[float]) -> tuple[float, float] | None:
    """Return median and spread of the later half of the times in a log [ns]; None for too few."""
    found = list(times)
    if len(found) < FEWEST:
        return None
    late = np.array(found[len(found) // 2 :])
    middle = float(median(late))
    return middle, float(1.4826 * median(np.abs(late - middle)))


def _number(text: str | None) -> bool:
    try:
        return float(text or "") >= 0
    except ValueError:
        return False


def _positive(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 1e12


def _document(text: str) -> Any:
    try:
        return json.loads(text) if text.lstrip().startswith("{") else None
    except (ValueError, RecursionError):
        return None


READERS: tuple[tuple[str, Callable[[str], tuple[float, float] | None]], ...] = (
    ("Lightning SimpleProfiler", _simple_profiler),
    ("Lightning CSVLogger and ThroughputMonitor", _throughput_rows),
    ("TraceML final_summary.json", _traceml),
    ("Hugging Face trainer_state.json", _trainer_state),
    ("vLLM or SGLang serving benchmark", _serving_benchmark),
    ("DeepSpeed wall_clock_breakdown", _deepspeed),
    ("Megatron-LM or nanoGPT log", _iterations),
    ("progress bar", _progress_bar),
)
"""What is read, the most exact first: the name of the tool, and the reader of step time and spread [ns]."""
