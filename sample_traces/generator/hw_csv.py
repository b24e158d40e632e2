"""Make a sample of the hardware profiler's CSV: a row for each edge of an engine's activity, on a Gaudi3.

Columns, engine names and the event descriptions of TPC and MME follow a published hardware trace of a
Gaudi3 (Synapse's trace analyser). That trace has no DMA rows: the last-write event is documented, the name
of the first-write event that begins a copy is inferred.
"""

from __future__ import annotations

import random
from pathlib import Path

from .rows import write_text
from .schedule import Activity, Schedule

COLUMNS = (
    "Name,Trace Source,Engine,Event type,Timestamp[usec],recipeHandle,streamHandle,Recipe ID,Recipe "
    "name,Context ID,Device,Operation,"
    "Data Type,HW Event port,HW Event description,SPMU value,BMON min,BMON avg,BMON max,BMON matches,BMON "
    "configured cycles,"
    "NIC Packets amount,Misc"
)
_EMPTY_TAIL = ("",) * 8
_RECIPE = ("0x560a1e2c7b40", "0x3b1e000000000004", "41207", "hpuprof_sample.recipe")
#: Engine class, node, operation, lanes, duration and gap before it, in nanoseconds; a negative gap overlaps
#: the one before.
_NODES = (
    ("dma", "sample_memcpy_0", "memcpy", 2, 2_400, 0),
    ("tpc", "sample_cast_1", "cast_f32_to_bf16", 64, 900, 350),
    ("mme", "sample_gemm_2", "GEMM", 8, 14_200, 240),
    ("tpc", "sample_gelu_3", "gelu_fwd_bf16", 64, 3_100, -2_600),
    ("tpc", "sample_reduce_4", "reduce_sum_fwd_bf16", 8, 700, 1_900),
    ("dma", "sample_memcpy_5", "memcpy", 1, 1_200, 400),
)
#: Port and description of the begin and end events.
_EDGES = {
    "tpc": (("1", "TPC_SPU_START"), ("2", "TPC_SPU_START_TO_SPU_HALT")),
    "mme": (("8", "SB0_START_EVT"), ("18", "WB0_END")),
    "dma": (("4", "DBG_DMA_TRC_WR_DATA_FIRST"), ("5", "DBG_DMA_TRC_WR_DATA_LAST")),
}


def hardware_csv(folder: Path) -> Schedule:
    """Write ``hpu_hw_csv`` and return what happened in it; there are no steps in this format."""
    rng, schedule = random.Random(9101), Schedule()
    rows: list[tuple[int, str]] = []
    cursor = 612_440_118_000_000
    for engine, node, operation, lanes, dur_ns, gap_ns in _NODES:
        cursor += gap_ns
        ended = cursor
        for lane in range(lanes):
            start = cursor + lane * 13
            end = start + dur_ns - round(rng.random() * dur_ns * 0.08)
            name = _lane_name(engine, lane)
            if engine == "tpc":
                rows.append(
                    (start - 2, _row(node, name, "INSTANT", start - 2, operation, ("0", "TPC_QMAN_CMD_EXE")))
                )
            begin_edge, end_edge = _EDGES[engine]
            rows.append((start, _row(node, name, "BEGIN", start, operation, begin_edge)))
            rows.append((end, _row(node, name, "END", end, operation, end_edge)))
            schedule.activities.append(Activity(engine, start, end))
            ended = max(ended, end)
        cursor = ended
    rows += [(t, _counter(t, value)) for t, value in ((612_440_118_004_180, 3), (612_440_118_012_044, 1))]
    text = "\n".join([COLUMNS, *(line for _, line in sorted(rows))]) + "\n"
    write_text(folder / "sample_hw_prof_accel0_001.csv", text)
    return schedule


def _lane_name(engine: str, lane: int) -> str:
    if engine == "dma":
        return f"[D0] SPDMA {lane}"
    return f"[HD{lane % 8}] MME" if engine == "mme" else f"[HD{lane // 8}] TPC {lane % 8}"


def _stamp(ns: int) -> str:
    return f"{ns // 1000}.{ns % 1000 * 1000:06d}"


def _row(node: str, engine: str, event: str, ns: int, operation: str, edge: tuple[str, str]) -> str:
    fields = (
        node,
        "HW",
        engine,
        event,
        _stamp(ns),
        *_RECIPE,
        "0",
        "accel0",
        operation,
        "bf16",
        *edge,
        *_EMPTY_TAIL,
    )
    return ",".join(fields)


def _counter(ns: int, value: int) -> str:
    """Return a counter row: no activity of the engine."""
    name = "[3] TPC stalled on stores"
    head = (
        name,
        "HW",
        "[HD0] TPC 0",
        "COUNTER",
        _stamp(ns),
        "",
        "",
        "",
        "",
        "",
        "accel0",
        "",
        "",
        "",
        "SPMU",
        str(value),
    )
    return ",".join((*head, *_EMPTY_TAIL[1:]))
