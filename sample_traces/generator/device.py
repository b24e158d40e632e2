"""Simulate the engines of one Gaudi card: which lane runs what, when, and which rows the trace shows for it.

Row shapes follow the vendor's bridge 1.19 (``trace_parser.cpp``, ``json_file_parser.cpp``): process id 0
for every rank, thread id ``class * 1000 + lane``, one row for every lane that takes part in a kernel.
Classes on Gaudi2 and 3: 3 PDMA, 4 EDMA, 6 MME, 7 TPC, 14 NIC. The lane number runs on over all engines of
the card. The spelling of the NIC lanes' names is inferred from the class list.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .rows import Args, Row
from .schedule import Activity, Schedule

DEVICE_PID = 0
DEVICE_SORT_INDEX = 0x1000000
TPC_EVENT = "TPC_SPU_START_TO_SPU_HALT"
#: Hardware event names that mean activity; everything else (``*_QMAN_CMD_EXE`` …) only marks a moment.
HW_EVENTS = {"mme": "MMEH_WB0_MON_TS_BIT1", "tpc": TPC_EVENT, "dma": "DBG_DMA_TRC_WR_DATA_LAST"}
MARKER_NS = 200
RECIPE_GAP_NS = 3_000


@dataclass(frozen=True, slots=True)
class Lane:
    """One engine line of the card."""

    engine: str
    tid: int
    name: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """A piece of device work: ``lanes`` lanes of an engine for about ``dur_us``.

    ``after_us`` counts from the end of the kernel before it in the recipe; negative means that the two
    overlap.
    """

    name: str
    node: str
    engine: str
    lanes: int
    dur_us: float
    after_us: float = 1.0
    dtype: str = "bf16"


def gaudi2_lanes() -> dict[str, list[Lane]]:
    """Return the lanes of a Gaudi2: 6 DMA, 24 TPC and 4 MME, as Intel's analyser counts them, and 8 NICs."""
    names = (
        [("dma", 3, f"[D0] PCI DMA {i} (DRAM/HOST)") for i in range(2)]
        + [("dma", 4, f"[D{i}] Internal DMA {i} (DRAM/SRAM)") for i in range(4)]
        + [("tpc", 7, f"[D{i // 6}] TPC {i % 6}") for i in range(24)]
        + [("mme", 6, f"[D{i}] MME") for i in range(4)]
        + [("nic", 14, f"[D{i // 2}] NIC {i}") for i in range(8)]
    )
    lanes: dict[str, list[Lane]] = {"dma": [], "tpc": [], "mme": [], "nic": []}
    for index, (engine, group, name) in enumerate(names, start=10):
        lanes[engine].append(Lane(engine, group * 1000 + index, name))
    return lanes


class Device:
    """A card that runs recipes one after the other, and copies and collectives beside them."""

    def __init__(self, schedule: Schedule, rng: random.Random, *, kineto: bool) -> None:
        self.lanes = gaudi2_lanes()
        self.rows: list[Row] = []
        self.free_ns = 0
        self._used: set[int] = set()
        self._schedule = schedule
        self._rng = rng
        self._kineto = kineto

    def run(self, ready_ns: int, recipe: int, kernels: list[Kernel]) -> tuple[int, int]:
        """Run a recipe once it is launched and the card is free; return when its work began and ended."""
        cursor = max(ready_ns, self.free_ns + RECIPE_GAP_NS)
        self._marker(cursor, recipe)
        began = ended = 0
        for kernel in kernels:
            start = max(cursor + round(kernel.after_us * 1000), began)
            end = self._kernel(start, kernel, recipe)
            began, cursor, ended = began or start, end, max(ended, end)
        self.free_ns = ended
        return began, ended

    def copy(self, ready_ns: int, name: str, dur_us: float, *, after_compute: bool = False) -> int:
        """Run a copy between host and device on a PCI DMA lane; return its end."""
        start = max(ready_ns, self.free_ns + RECIPE_GAP_NS) if after_compute else ready_ns
        lane = self.lanes["dma"][0 if name.endswith("H2D") or name == "memcpy" else 1]
        end = start + self._jitter(dur_us)
        self._emit(lane, name, start, end, self._args("", HW_EVENTS["dma"], "", 0))
        return end

    def collective(self, start_ns: int, end_ns: int, name: str) -> None:
        """Show a collective on the NIC lanes from this rank's arrival to the common end, waiting included."""
        for lane in self.lanes["nic"]:
            self._emit(
                lane, name, start_ns, end_ns - round(self._rng.random() * 1500), self._args(name, "", "", 0)
            )

    def metadata(self, ts_ns: int) -> list[Row]:
        """Return the names of the device process and of every lane that was used."""
        rows = [
            Row("M", "process_name", DEVICE_PID, 0, ts_ns, args={"name": "/device:HPU:0"}),
            Row("M", "process_labels", DEVICE_PID, 0, ts_ns, args={"labels": "/device:HPU:0"}),
            Row("M", "process_sort_index", DEVICE_PID, 0, ts_ns, args={"sort_index": DEVICE_SORT_INDEX}),
        ]
        for lane in (lane for lanes in self.lanes.values() for lane in lanes):
            if lane.tid in self._used:
                rows.append(Row("M", "thread_name", DEVICE_PID, lane.tid, ts_ns, args={"name": lane.name}))
                rows.append(
                    Row("M", "thread_sort_index", DEVICE_PID, lane.tid, ts_ns, args={"sort_index": -1})
                )
        return rows

    def _jitter(self, us: float) -> int:
        return round(us * 1000 * (0.97 + 0.06 * self._rng.random()))

    def _kernel(self, start: int, kernel: Kernel, recipe: int) -> int:
        """Spread a kernel over its lanes, which start and end at slightly different times; return its end."""
        dur, ended = self._jitter(kernel.dur_us), start
        pool = self.lanes[kernel.engine]
        lanes = pool[2:] if kernel.engine == "dma" else pool
        for position, lane in enumerate(lanes[: kernel.lanes]):
            begin = start + position * 40
            end = start + dur - (round(self._rng.random() * 0.04 * dur) if position else 0)
            args = self._args(kernel.node, HW_EVENTS[kernel.engine], kernel.dtype, recipe)
            self._emit(lane, kernel.name, begin, end, args)
            ended = max(ended, end)
        return ended

    def _marker(self, ts_ns: int, recipe: int) -> None:
        """Write the row of a command being fetched: shown by the profiler, but no work of the engine."""
        lane = self.lanes["tpc"][0]
        args = self._args("", "TPC_QMAN_CMD_EXE", "", recipe)
        self._rows_for(lane, "TPC_QMAN_CMD_EXE", ts_ns, ts_ns + MARKER_NS, args)

    def _emit(self, lane: Lane, name: str, start: int, end: int, args: Args) -> None:
        self._schedule.activities.append(Activity(lane.engine, start, end))
        self._rows_for(lane, name, start, end, args)

    def _rows_for(self, lane: Lane, name: str, start: int, end: int, args: Args) -> None:
        self._used.add(lane.tid)
        cat = self._category(lane.engine, name)
        if cat == "Kernel":
            args = {**args, "device": 0}
        self.rows.append(Row("X", name, DEVICE_PID, lane.tid, start, end - start, cat, args))

    def _category(self, engine: str, name: str) -> str:
        """Return the row's category, in the spelling of the JSON merge or of the Kineto plug-in."""
        if engine in ("mme", "tpc"):
            return "kernel" if self._kineto else "Kernel"
        if name.startswith("memcpy"):
            return "gpu_memcpy" if self._kineto else "Memcpy"
        return "hpu_op" if self._kineto else "Runtime"

    @staticmethod
    def _args(node: str, hw_event: str, dtype: str, recipe: int) -> dict[str, object]:
        args: dict[str, object] = {"EventName": node} if node else {}
        if hw_event:
            args["HW event name"] = hw_event
        stream = "0x54fa000000000002" if recipe else "0x54fa000000000001"
        return args | {
            "dataType": dtype,
            "eventHandle": "0x0",
            "recipeId": recipe,
            "recipeName": "",
            "streamHandle": stream,
        }
