"""Read and write ``manifest.json``: what each sample is, its files, and what an analysis must find."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

LICENCE = "MIT"

#: What the keys under ``expected`` mean. All times are integer nanoseconds; lists have one entry for each
#: step.
DEFINITIONS: dict[str, str] = {
    "steps_total": (
        "Number of steps. Traces with [pl][profile]run_training_batch rows: one for each such row, from "
        "its start to the start of the "
        "next; the last ends where its own row ends. Lightning traces without such rows: the same of "
        "validation_step, test_step or predict_step rows. Other traces: one for each ProfilerStep#N row, from "
        "its start to its end."
    ),
    "step_source": "The rule that gave the steps: lightning or profiler_step; null if the format has none.",
    "last_step_is_partial": "The profiler stopped inside the last step.",
    "step_wall_ns": "Length of each step.",
    "step_until_done_ns": (
        "The same until all device work that the step launched is done, from where the step before it was done: "
        "what the stock TensorBoard tab shows."
    ),
    "device_busy_ns": "Union of all device activity (compute, communication, copy; no markers) in the step.",
    "compute_busy_ns": "The same for MME and TPC lanes only.",
    "communication_busy_ns": "The same for NIC lanes only; a row includes the waiting for other ranks.",
    "copy_busy_ns": "The same for DMA lanes only.",
    "exposed_communication_ns": "Communication minus compute (difference of the two unions) in the step.",
    "mme_ns": "Union of the MME lanes, clipped to the step; tpc_ns, dma_ns and nic_ns alike.",
    "compile_ns": "Union of the compileGraph rows, clipped to the step.",
    "bound": "What limits the step: host, device, input or communication.",
    "main_idle_cause": (
        "What the host was doing during most of the device's idle time: data_loader, blocking_read, "
        "h2d_copy, compilation, collective, "
        "operator_launch, python, optimizer, callback or unknown; device_latency where work was enqueued, "
        "launch_thread where it was handed over and not yet enqueued."
    ),
    "unprofiled_step_ns": "Mean step of a long run without the profiler, until host and device are through.",
    "fixes": (
        "Of each: the remedy, a part of what its line says of the place, and by how much the mean step of a long run "
        "of the program with it is shorter [ns]."
    ),
    "measured_step_ns": (
        "Step time without the profiler by what was captured in graphs (eager: nothing), of the recorded program itself: "
        "the median and each round, in turns."
    ),
    "story": "What a correct analysis must conclude, in a sentence.",
    "rows_per_category": "Number of rows for each cat; rows without one count under ph:<phase>.",
    "per_file": "The same numbers for each file, where a sample has files of different stages or ranks.",
    "per_rank": "The same numbers for each rank.",
}


def file_entries(folder: Path, root: Path) -> list[dict[str, object]]:
    """Return path, hash and size of every file of a sample, sorted by path."""
    entries = []
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        content = path.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        entries.append({"path": path.relative_to(root).as_posix(), "sha256": digest, "bytes": len(content)})
    return entries


def update(path: Path, samples: Iterable[Mapping[str, object]]) -> None:
    """Replace the entries of the given samples by name, keep all others, and sort."""
    known: dict[str, Mapping[str, object]] = {}
    if path.exists():
        known = {sample["name"]: sample for sample in json.loads(path.read_text(encoding="utf-8"))["samples"]}
    for sample in samples:
        known[str(sample["name"])] = sample
    document = {"definitions": DEFINITIONS, "samples": [known[name] for name in sorted(known)]}
    path.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
