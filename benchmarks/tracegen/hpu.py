"""A Gaudi device in lazy mode: ops are collected, a step marker launches them as one recipe on many engines.

Two layouts: `hpu_g1`, the vendor's rows merged into Kineto's file, and `hpu_g3`, rows from a Kineto plugin.
Written from the vendor's published source; no row was seen on hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

from .host import PID, Host, Jitter, Note, Thread
from .model import Call, Kernel
from .names import engine_name
from .style import Pairs, Style

TPC_LANES, MME_LANES, DMA_LANES = 24, 4, 6
_TPC, _MME, _DMA = 7000, 6000, 4000
_LOGGER_PID, _BRIDGE_PID, _SYNAPSE_PID = PID + 10_000, PID + 20_000, 22_101
_LAUNCH_TID = PID + 512
_SYNAPSE_TID = 4_294_966_298
_NO_RECIPE = (
    ("dataType", '""'),
    ("eventHandle", '"0x0"'),
    ("recipeId", 0),
    ("recipeName", '""'),
    ("streamHandle", '"0x0"'),
)
_STREAM = (
    ("eventHandle", '"0xae38000000000004"'),
    ("streamHandle", '"0x29050a40"'),
    ("streamName", '"STREAM_TYPE_COMPUTE"'),
)


@dataclass(frozen=True, slots=True)
class Pending:
    """Device work that was accumulated and not launched yet."""

    kernel: Kernel
    pick: int


class Hpu:
    """One card. `rows` holds the device's and the libraries' rows; its owner empties it after each step."""

    def __init__(self, style: Style, jitter: Jitter, *, generation: int) -> None:
        self._style, self._jitter, self._generation = style, jitter, generation
        self._free = 0
        self._pending: list[Pending] = []
        self._launches = 0
        self.rows: list[str] = []

    def call(self, call: Call, thread: Thread, host: Host) -> None:
        """Collect a kernel, start a copy, or wait; calls that only CUDA knows leave nothing."""
        if call.waits:
            self.mark_step(thread, host)
            self._wait(thread)
        elif call.kernel is None or call.kernel.kind in ("memset", "nccl"):
            return
        elif call.kernel.kind in ("h2d", "d2h"):
            self._copy(call.kernel, thread, host)
        else:
            self._bridge(f"{host.op_name.removeprefix('aten::')}_hpu_lazy", thread, self._jitter.take(6000))
            self._pending.append(Pending(call.kernel, host.kernel_pick))
            host.kernel_pick += 1

    def close_note(self, note: Note) -> None:
        """Write nothing: HPU traces have no device-side annotations."""

    def mark_step(self, thread: Thread, host: Host) -> None:  # noqa: ARG002
        """Launch everything that was collected."""
        if not self._pending:
            return
        self._bridge("SyncTensorsGraphInternal", thread, self._jitter.take(1200 * len(self._pending)))
        launcher = Thread(_LAUNCH_TID, 3, thread.now)
        self._launches += 1
        if self._launches <= 2:
            self._synapse("compileGraph", launcher, self._jitter.take(40_000_000))
        began = launcher.now
        self._synapse("enqueueWithExternalEvents (accel0)", launcher, self._jitter.take(180_000))
        self._logger("synLaunchWithExternalEvents", began, launcher.now + 2000)
        self._bridge_rows("LaunchSyncTensorsGraph", _LAUNCH_TID, began - 3000, launcher.now + 5000)
        self._free = max(self._free, began + self._jitter.take(60_000))
        for pending in self._pending:
            self._execute(pending)
        self._pending.clear()
        thread.now += self._jitter.take(5000)

    def _wait(self, thread: Thread) -> None:
        start = thread.now
        self._synapse("synchronizeStream (accel0)", thread, max(self._jitter.take(2000), self._free + 1000 - start))
        self._logger("synEventSynchronize", start, thread.now)

    def _copy(self, kernel: Kernel, thread: Thread, host: Host) -> None:
        self.mark_step(thread, host)
        start = thread.now
        self._synapse("memcpyAsync (accel0)", thread, self._jitter.take(7000))
        self._logger("synMemCopyAsync", start, thread.now)
        self._free = max(self._free, thread.now) + self._jitter.take(1000)
        dur = self._jitter.take(kernel.ns)
        name = "memcpy_" + kernel.kind.upper()
        cat = "Memcpy" if self._generation == 1 else "gpu_memcpy"
        for lane in range(2):
            row = self._style.complete(cat, name, 0, _DMA + lane, self._free, dur, self._engine_args("DMA", 0, 0))
            self.rows.append(row)
        self._free += dur

    def _execute(self, pending: Pending) -> None:
        kernel = pending.kernel
        name = engine_name(kernel.kind, pending.pick)
        matrix = kernel.kind in ("gemm", "flash")
        first_tid, lanes = (_MME, MME_LANES) if matrix else (_TPC, TPC_LANES)
        args = tuple(self._engine_args("MME" if matrix else "TPC", pending.pick, self._launches))
        cat = "Kernel" if self._generation == 1 else "kernel"
        start, last = self._free + self._jitter.take(250), 0
        for lane in range(lanes):
            lane_start = start + self._jitter.take(120)
            dur = self._jitter.take(kernel.ns)
            last = max(last, lane_start + dur)
            self.rows.append(self._style.complete(cat, name, 0, first_tid + lane, lane_start, dur, args))
        # A matrix product's successor may begin on the other engine before the product has drained.
        self._free = last - self._jitter.take(last - start) // 10 if matrix else last

    def _engine_args(self, engine: str, pick: int, recipe: int) -> Pairs:
        event = {
            "TPC": "TPC_SPU_START_TO_SPU_HALT",
            "MME": "MMEH_WB0_MON_TS_BIT1",
            "DMA": "DBG_DMA_TRC_WR_DATA_LAST",
        }[engine]
        return (
            ("EventName", f'"{"fusedTPCNode" if engine == "TPC" else "g_1_node"}_{pick}_0"'),
            ("HW event name", f'"{event}"'),
            ("dataType", '"bf16"'),
            ("device", 0),
            ("eventHandle", '"0x0"'),
            ("recipeId", (60_900 + recipe) % 65_536),
            ("recipeName", '""'),
            ("streamHandle", '"0x54fa000000000003"'),
        )

    def _bridge(self, name: str, thread: Thread, dur: int) -> None:
        self._bridge_rows(name, thread.tid, thread.now, thread.now + dur)
        thread.now += dur + self._jitter.take(400)

    def _bridge_rows(self, name: str, tid: int, start: int, end: int) -> None:
        if self._generation == 1:
            self._pair(name, _BRIDGE_PID, tid, start, end, (), ())
        else:
            self.rows.append(self._style.complete("privateuse1_runtime", name, PID, tid, start, end - start, ()))

    def _logger(self, name: str, start: int, end: int) -> None:
        if self._generation == 1:
            self._pair(name, _LOGGER_PID, _LAUNCH_TID, start, end, _STREAM, (("status", '"0"'),))

    def _synapse(self, name: str, thread: Thread, dur: int) -> None:
        cat, tid = ("Runtime", _SYNAPSE_TID) if self._generation == 1 else ("hpu_op", 5)
        self.rows.append(self._style.complete(cat, name, _SYNAPSE_PID, tid, thread.now, dur, _NO_RECIPE))
        thread.now += dur

    def _pair(self, name: str, pid: int, tid: int, start: int, end: int, begin: Pairs, finish: Pairs) -> None:
        self.rows.append(self._style.edge("B", "Runtime", name, pid, tid, start, begin))
        self.rows.append(self._style.edge("E", "Runtime", name, pid, tid, end, finish))


def device_rows(style: Style, generation: int) -> list[str]:
    """Return the metadata of the card's engines and of the libraries' own processes; their stamps are 0."""
    rows = [
        style.meta("process_name", 0, 0, 0, "name", "/device:HPU:0"),
        style.meta("process_labels", 0, 0, 0, "labels", "/device:HPU:0"),
        style.meta("process_sort_index", 0, 0, 0, "sort_index", 16_777_216),
    ]
    engines = [(_TPC + i, f"[HD0] TPC {i}") for i in range(TPC_LANES)]
    engines += [(_MME + i, f"[HD0] MME {i}") for i in range(MME_LANES)]
    engines += [(_DMA + i, f"[D0] Internal DMA {i} (DRAM/SRAM)") for i in range(DMA_LANES)]
    for tid, name in engines:
        rows.append(style.meta("thread_name", 0, tid, 0, "name", name))
        rows.append(style.meta("thread_sort_index", 0, tid, 0, "sort_index", tid))
    synapse_tid = _SYNAPSE_TID if generation == 1 else 5
    rows.append(style.meta("thread_name", _SYNAPSE_PID, synapse_tid, 0, "name", "Synapse/*Host Profiler"))
    if generation == 1:
        rows.append(style.meta("process_name", _LOGGER_PID, 0, 0, "name", "Synapse Logger"))
        rows.append(style.meta("process_name", _BRIDGE_PID, 0, 0, "name", "Bridge Logs"))
    return rows
