"""Write a profiled lazy run as the Gaudi bridge's first generation of writers leaves it: four processes, engine lanes, no correlations."""

from __future__ import annotations

import random
from typing import Any

from .lazy import AUTOGRAD, LAUNCH, MAIN, WAITER, LazyRow, LazyRun
from .lazy_program import LazyMachine

PID = 14_734
SYNAPSE_LOGGER, BRIDGE_LOGS = PID + 10_000, PID + 20_000
TIDS = {MAIN: PID, AUTOGRAD: PID + 411, LAUNCH: PID + 77, WAITER: PID + 78}
START_NS = 3_801_442_181_530_417
_LANES = {"MME": [(6040, "[D0] MME")], "TPC": [(7016 + i, f"[D0] TPC {i}") for i in range(4)],
          "DMA": [(4012, "[D0] Internal DMA 0 (DRAM/SRAM)")], "PDMA": [(3010, "[D0] PCI DMA 0 (DRAM/HOST)")]}  # fmt: skip
_CATS = {"op": "cpu_op", "annotation": "user_annotation", "python": "python_function"}
_HW = {
    "MME": "MMEH_WB0_MON_TS_BIT1",
    "TPC": "TPC_SPU_START_TO_SPU_HALT",
    "DMA": "DBG_DMA_TRC_WR_DATA_LAST",
    "PDMA": "DBG_DMA_TRC_WR_DATA_LAST",
}


def trace(run: LazyRun, machine: LazyMachine, *, unprofiled: dict[str, Any] | None, seed: str) -> dict[str, Any]:
    """Return the whole trace document of a profiled lazy run. `unprofiled`: what goes into our own metadata, None for none."""
    zero = START_NS - run.step_starts_ns[0]
    rng = random.Random(seed)

    def micros(ns: int) -> float | int:
        return (ns + zero) // 1000 if machine.whole_microseconds else (ns + zero) / 1000

    def span(start: int, end: int) -> dict[str, float | int]:
        if machine.whole_microseconds:
            return {"ts": micros(start), "dur": (end + zero) // 1000 - (start + zero) // 1000}
        return {"ts": micros(start), "dur": (end - start) / 1000}

    events: list[dict[str, Any]] = []
    used = {a.engine for a in run.device}
    processes = (
        (PID, "python"),
        (SYNAPSE_LOGGER, "Synapse Logger"),
        (BRIDGE_LOGS, "Bridge Logs"),
        (0, "/device:HPU:0"),
    )
    lanes = [lane for engine, of_engine in _LANES.items() if engine in used for lane in of_engine]
    events += [_name("process_name", pid, 0, name) for pid, name in processes]
    events += [_name("thread_name", PID, tid, f"thread {tid} (python)") for tid in TIDS.values()]
    events += [_name("thread_name", 0, tid, name) for tid, name in lanes]
    for index, row in enumerate(sorted(run.rows, key=lambda r: (r.start_ns, -r.end_ns))):
        tid = TIDS[row.thread]
        if row.kind in _CATS:
            cat = _CATS[row.kind]
            args = {"External id": index + 1, "Record function id": 0, **row.args, "Ev Idx": index}
            events.append(
                {
                    "ph": "X",
                    "cat": cat,
                    "name": row.name,
                    "pid": PID,
                    "tid": tid,
                    **span(row.start_ns, row.end_ns),
                    "args": args,
                }
            )
            continue
        pid, args = (BRIDGE_LOGS, {}) if row.kind == "bridge" else (SYNAPSE_LOGGER, _syn_args(row))
        common = {"cat": "Runtime", "name": row.name, "pid": pid, "tid": tid}
        events.append({"ph": "B", **common, "ts": micros(row.start_ns), "args": args})
        events.append({"ph": "E", **common, "ts": micros(row.end_ns)})
    for ran in run.device:
        args = {"EventName": f"g_0_{ran.name}", "HW event name": _HW[ran.engine], "dataType": "bf16", "eventHandle": "0x0",
                "recipeId": ran.recipe, "recipeName": "", "streamHandle": "0x54fa000000000002" if ran.recipe else "0x54fa000000000001"}  # fmt: skip
        cat = {"PDMA": "Memcpy", "DMA": "Runtime"}.get(ran.engine, "Kernel")
        for tid, _ in _LANES[ran.engine]:
            events.append(
                {
                    "ph": "X",
                    "cat": cat,
                    "name": ran.name,
                    "pid": 0,
                    "tid": tid,
                    **span(ran.start_ns, ran.end_ns),
                    "args": args,
                }
            )
    if machine.shuffled:
        # B and E rows of equal stamps must keep their order within a track: shuffle whole tracks against each other.
        tracks: dict[tuple[object, object], list[dict[str, Any]]] = {}
        for event in events:
            tracks.setdefault((event["pid"], event["tid"]), []).append(event)
        shuffled = list(tracks.values())
        rng.shuffle(shuffled)
        events = [e for track in shuffled for e in track]
    own: dict[str, Any] = {"rank": 0, "world_size": 1, "local_rank": 0, "host": "des", "pid": PID, "stage": "train", "action": "",
                           "framework": "pytorch", "device": "hpu", "run_mode": "lazy"}  # fmt: skip
    if unprofiled is not None:
        own["unprofiled"] = unprofiled
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"name": "GAUDI2", "totalGlobalMem": 102_106_132_480}],
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": 1_727_743_122_000_000_000,
        "hpuprof": own,
        "traceEvents": events,
        "traceName": "des.pt.trace.json",
    }


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "ts": 0.0, "args": {"name": name}}


def _syn_args(row: LazyRow) -> dict[str, Any]:
    if row.name == "synLaunchWithExternalEvents":
        return {
            "eventHandleList": "0", "flags": "0", "numberOfEvents": "0", "numberOfTensors": str(row.args["tensors"]),
            "pRecipeHandle": f"0x{row.args['recipe'] * 64 + 0x7F000000:x}", "pWorkspace": "0x1001600020800000",
            "streamHandle": "0x31a40c40", "streamName": "STREAM_TYPE_COMPUTE",
        }  # fmt: skip
    if row.name == "synMemCopyAsync":
        return {
            "direction": "0",
            "size": "0x40000",
            "streamHandle": "0x31a409d0",
            "streamName": "STREAM_TYPE_COPY_HOST_TO_DEVICE",
        }
    return {"eventHandle": "0x62b0000000000011", "streamHandle": "0x31a40c40", "streamName": "STREAM_TYPE_COMPUTE"}
