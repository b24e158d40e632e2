"""Write a profiled lazy run as the Gaudi bridge's first generation of writers leaves it: four processes, engine lanes, no correlations."""

from __future__ import annotations

import random
from typing import Any

from sample_traces.generator import gaudi, kineto
from sample_traces.generator.rows import Row, document

from .cuda_trace import BASE_NS, TRACE_NAME, recorded
from .lazy import AUTOGRAD, LAUNCH, MAIN, WAITER, LazyRow, LazyRun
from .lazy_program import LazyMachine

PID = 14_734
TIDS = {MAIN: PID, AUTOGRAD: PID + 411, LAUNCH: PID + 77, WAITER: PID + 78}
START_NS = 3_801_442_181_530_417
_CARD = gaudi.gaudi2_lanes()
_LANES = {"MME": _CARD["mme"][:1], "TPC": _CARD["tpc"][:4], "DMA": _CARD["dma"][2:3], "PDMA": _CARD["dma"][:1]}
_CATS = {"op": "cpu_op", "annotation": "user_annotation", "python": "python_function"}


def trace(run: LazyRun, machine: LazyMachine, *, unprofiled: dict[str, Any] | None, seed: str) -> dict[str, Any]:
    """Return the whole trace document of a profiled lazy run. `unprofiled`: what goes into our own metadata, None for none."""
    zero = START_NS - run.step_starts_ns[0]
    rng = random.Random(seed)

    used = {a.engine for a in run.device}
    lanes = [lane for engine, of_engine in _LANES.items() if engine in used for lane in of_engine]
    rows = kineto.process(PID, 0, "python", "CPU")
    rows += gaudi.source_names("Synapse Logger", PID + gaudi.SYNAPSE_LOGGER_OFFSET)
    rows += gaudi.source_names("Bridge Logs", PID + gaudi.BRIDGE_LOGS_OFFSET)
    for tid in TIDS.values():
        rows += kineto.track(PID, tid, 0, f"thread {tid} (python)")
    rows += gaudi.device_names(lanes, 0)
    for index, row in enumerate(sorted(run.rows, key=lambda r: (r.start_ns, -r.end_ns))):
        tid, start, end = TIDS[row.thread], row.start_ns + zero, row.end_ns + zero
        if row.kind in _CATS:
            args = kineto.numbered(index + 1, index, row.args)
            rows.append(Row("X", row.name, PID, tid, start, end - start, _CATS[row.kind], args))
        elif row.kind == "bridge":
            rows += [gaudi.bridge_half(ph, row.name, PID, tid, at) for ph, at in (("B", start), ("E", end))]
        else:
            rows.append(gaudi.logger_half("B", row.name, PID, tid, start, _syn_args(row)))
            rows.append(gaudi.logger_half("E", row.name, PID, tid, end, gaudi.CALL_ENDED))
    for ran in run.device:
        for lane in _LANES[ran.engine]:
            args = gaudi.engine_args(f"g_0_{ran.name}", gaudi.HW_EVENTS[lane.engine], "bf16", ran.recipe)
            rows.append(gaudi.engine_row(lane, ran.name, ran.start_ns + zero, ran.end_ns + zero, args, kineto=False))
    if machine.shuffled:
        # B and E rows of equal stamps must keep their order within a track: shuffle whole tracks against each other.
        tracks: dict[tuple[object, object], list[Row]] = {}
        for each in rows:
            tracks.setdefault((each.pid, each.tid), []).append(each)
        shuffled = list(tracks.values())
        rng.shuffle(shuffled)
        rows = [each for track in shuffled for each in track]
    header = {
        "schemaVersion": 1,
        "deviceProperties": [gaudi.PROPERTIES],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": BASE_NS,
        "hpuprof": recorded("hpu", "lazy", PID, unprofiled),
    }
    return document(header, rows, TRACE_NAME, whole_microseconds=machine.whole_microseconds)


def _syn_args(row: LazyRow) -> dict[str, Any]:
    if row.name == "synLaunchWithExternalEvents":
        return gaudi.launch_args(row.args["recipe"], row.args["tensors"])
    if row.name == "synMemCopyAsync":
        return gaudi.upload_args(1 << 18)
    return gaudi.event_args()
