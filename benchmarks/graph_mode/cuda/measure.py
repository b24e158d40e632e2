"""Time the modes of one setting in interleaved rounds, profile the eager one, and write both as a case."""

from __future__ import annotations

import gc
import gzip
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.graph_mode import case as layout

from .modes import EAGER, Runner, Setting, UnsupportedError, modes_of, module_mode, runner

PROFILED_STEPS = 8
BLOCK_S = 0.75
SETTLE = 3  # steps before anything is timed
DROPPED_ARGS = {
    "Record function id", "Ev Idx", "registers per thread", "shared memory", "blocks per SM", "warps per SM",
    "est. achieved occupancy %", "queued", "memory bandwidth (GB/s)", "cbid", "context", "Trace name", "Trace iteration",
}  # fmt: skip


def measure(
    setting: Setting,
    out: Path,
    *,
    steps: int = 20,
    rounds: int = 3,
    compiled: bool = True,
    stacks: bool = False,
    skip: frozenset[str] = frozenset(),
) -> layout.Case:
    """Measure a setting and write `<name>.json` and its trace; return the case. Modes that fail are listed with the reason.

    Every mode runs `steps` steps per round without a profiler (fewer, but ten, where a block would last longer than `BLOCK_S`), in turns,
    the device drained at both ends of each block. `stacks`: a second trace with Python stacks. `skip`: modes known to fail. A failed capture
    may leave the allocator in its private pool, so no further mode is tried after one and `hidden.tainted` names it: the process should
    end. Raises what eager mode raises: without it there is no case.
    """
    drain = torch.cuda.synchronize if setting.device == "cuda" else (lambda: None)
    runners: dict[str, Runner] = {}
    skipped: dict[str, str] = {}
    captured_bytes: dict[str, int] = {}
    tainted = ""
    for mode in modes_of(setting, compiled=compiled):
        if mode in skip or tainted:
            skipped[mode] = f"not tried after {tainted} had failed" if tainted else "failed before with this model"
            continue
        before = _reserved(setting)
        try:
            runners[mode] = made = runner(setting, mode)
            for i in range(SETTLE):
                made(i)
            drain()
            captured_bytes[mode] = _reserved(setting) - before
        except UnsupportedError as error:
            skipped[mode] = str(error)
        except Exception as error:
            if mode == EAGER or lost(error):
                raise
            skipped[mode] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            runners.pop(mode, None)
            tainted = mode
            del error
            if setting.device == "cuda":
                torch.cuda.set_stream(
                    torch.cuda.default_stream()
                )  # a capture that failed may have left its own stream current
            _free(setting)
    began = time.perf_counter_ns()
    runners[EAGER](0)
    drain()
    steps = min(steps, max(10, int(BLOCK_S * 1e9 / (time.perf_counter_ns() - began))))
    rounds_ns: dict[str, list[int]] = {mode: [] for mode in runners}
    for _ in range(rounds):
        for mode, run in runners.items():
            run(0)
            drain()
            began = time.perf_counter_ns()
            for i in range(steps):
                run(i)
            drain()
            rounds_ns[mode].append((time.perf_counter_ns() - began) // steps)
    eager = runners[EAGER]
    unprofiled = layout.unprofiled(rounds_ns[EAGER], steps)
    out.mkdir(parents=True, exist_ok=True)
    trace, profiled_ns = _profile(setting, eager, out, unprofiled, stacks=False)
    hidden: dict[str, Any] = {
        "model": module_mode(setting).removeprefix("module:"),
        "batch": setting.batch,
        "optimizer": setting.optimizer,
        "tiny": setting.tiny,
        "device": torch.cuda.get_device_name() if setting.device == "cuda" else "cpu",
        "torch": str(torch.__version__),
        "cuda": torch.version.cuda,
        "profiled_step_ns": profiled_ns,
        "skipped": skipped,
        "tainted": tainted,
        "reserved_bytes": captured_bytes,
    }
    if stacks:
        hidden["trace_with_stacks"] = _profile(setting, eager, out, unprofiled, stacks=True)[0]
    truth = {mode: layout.rounds(times) for mode, times in rounds_ns.items()}
    told = layout.Unprofiled(unprofiled["step_ns"], unprofiled["spread_ns"])
    noise, model = max(times.spread for times in truth.values()), setting.workload.name
    about = (setting.name, setting.device, model, trace, truth, told, noise, setting.sync, model, hidden)
    case = layout.Case(*about)
    layout.write_case(case, out)
    runners.clear()
    _free(setting)
    return case


def _profile(setting: Setting, run: Runner, out: Path, unprofiled: dict[str, Any], *, stacks: bool) -> tuple[str, int]:
    """Record `PROFILED_STEPS` steps; return the trace's name and the time per profiled step in nanoseconds."""
    from torch.profiler import ProfilerActivity, profile, schedule

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if setting.device == "cuda" else [])
    own = {"rank": 0, "world_size": 1, "stage": "train", "device": setting.device, "unprofiled": unprofiled}
    name = f"{setting.name}{'-stacks' if stacks else ''}.pt.trace.json.gz"
    spent: list[int] = []
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / "trace.json"
        plan = schedule(wait=0, warmup=2, active=PROFILED_STEPS, repeat=1)
        # `repeat=1` and the hook: exporting after the context would write the next, empty cycle.
        with profile(
            activities=activities, schedule=plan, record_shapes=True, with_stack=stacks,
            on_trace_ready=lambda p: p.export_chrome_trace(str(raw)),
        ) as profiler:  # fmt: skip
            for i in range(2 + PROFILED_STEPS):
                began = time.perf_counter_ns()
                run(i)
                spent.append(time.perf_counter_ns() - began)
                if i == 1 + PROFILED_STEPS:
                    profiler.add_metadata_json("hpuprof", json.dumps(own))
                profiler.step()
        document = json.loads(raw.read_text(encoding="utf-8", errors="replace"))
    document.setdefault("hpuprof", own)
    compact(document)
    (out / name).write_bytes(gzip.compress(json.dumps(document, separators=(",", ":")).encode(), 9, mtime=0))
    return name, sum(spent[2:]) // PROFILED_STEPS


def compact(document: dict[str, Any]) -> None:
    """Drop, in place, what no analysis reads: occupancy figures, indices, and long template arguments of kernel names."""
    for event in document["traceEvents"]:
        args = event.get("args")
        if isinstance(args, dict):
            for key in DROPPED_ARGS & args.keys():
                del args[key]
        if event.get("cat") == "kernel" and len(event["name"]) > 120:
            event["name"] = event["name"][:120]


def lost(error: BaseException) -> bool:
    """Whether the CUDA context is lost: nothing that follows in this process would work."""
    text = str(error)
    sticky = (
        "illegal memory access",
        "device-side assert",
        "unspecified launch failure",
        "illegal instruction",
        "misaligned address",
    )
    return any(s in text for s in sticky)


def _reserved(setting: Setting) -> int:
    return torch.cuda.memory_reserved() if setting.device == "cuda" else 0


def _free(setting: Setting) -> None:
    gc.collect()
    if setting.device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
