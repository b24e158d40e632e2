"""A Gaudi device in lazy mode: ops are collected, a step marker launches them as one recipe on many engines.

Two layouts: `hpu_g1`, the vendor's rows merged into Kineto's file, and `hpu_g3`, rows from a Kineto plugin.
Written from the vendor's published source; no row was seen on hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

from sample_traces.generator import gaudi, kineto
from sample_traces.generator.rows import Row

from .host import PID, Host, Jitter, Note, Thread
from .model import Call, Kernel
from .names import engine_name

_LANES = {engine: lanes for engine, lanes in gaudi.gaudi2_lanes().items() if engine != "nic"}
_SYNAPSE_PID, _SYNAPSE_TID = 22_101, gaudi.SYNAPSE_TID_BASE + 1
_LAUNCH_TID = PID + 512


@dataclass(frozen=True, slots=True)
class Pending:
    """Device work that was accumulated and not launched yet."""

    kernel: Kernel
    pick: int


class Hpu:
    """One card. `rows` holds the device's and the libraries' rows; its owner empties it after each step."""

    def __init__(self, jitter: Jitter, *, generation: gaudi.Generation) -> None:
        self._jitter, self._generation = jitter, generation
        self._free = 0
        self._pending: list[Pending] = []
        self._launches = 0
        self.rows: list[Row] = []

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
        args = gaudi.engine_args("", gaudi.HW_EVENTS["dma"], "", 0)
        for lane in _LANES["dma"][:2]:
            self._activity(lane, name, self._free, dur, args)
        self._free += dur

    def _execute(self, pending: Pending) -> None:
        kernel = pending.kernel
        name = engine_name(kernel.kind, pending.pick)
        matrix = kernel.kind in ("gemm", "flash")
        engine = "mme" if matrix else "tpc"
        node = f"{'g_1_node' if matrix else 'fusedTPCNode'}_{pending.pick}_0"
        recipe = (60_900 + self._launches) % 65_536
        args = gaudi.engine_args(node, gaudi.HW_EVENTS[engine], "bf16", recipe)
        start, last = self._free + self._jitter.take(250), 0
        for lane in _LANES[engine]:
            lane_start = start + self._jitter.take(120)
            dur = self._jitter.take(kernel.ns)
            last = max(last, lane_start + dur)
            self._activity(lane, name, lane_start, dur, args)
        # A matrix product's successor may begin on the other engine before the product has drained.
        self._free = last - self._jitter.take(last - start) // 10 if matrix else last

    def _activity(self, lane: gaudi.Lane, name: str, start: int, dur: int, args: dict[str, object]) -> None:
        self.rows.append(gaudi.engine_row(lane, name, start, start + dur, args, kineto=self._generation == 3))

    def _bridge(self, name: str, thread: Thread, dur: int) -> None:
        self._bridge_rows(name, thread.tid, thread.now, thread.now + dur)
        thread.now += dur + self._jitter.take(400)

    def _bridge_rows(self, name: str, tid: int, start: int, end: int) -> None:
        if self._generation == 3:
            self.rows.append(gaudi.bridge_row(name, PID, tid, start, end))
            return
        self.rows.append(gaudi.bridge_half("B", name, PID, tid, start))
        self.rows.append(gaudi.bridge_half("E", name, PID, tid, end))

    def _logger(self, name: str, start: int, end: int) -> None:
        if self._generation == 1:
            args = gaudi.event_args()
            self.rows.append(gaudi.logger_half("B", name, PID, _LAUNCH_TID, start, args))
            self.rows.append(gaudi.logger_half("E", name, PID, _LAUNCH_TID, end, gaudi.CALL_ENDED))

    def _synapse(self, name: str, thread: Thread, dur: int) -> None:
        start, thread.now = thread.now, thread.now + dur
        kineto_plugin = self._generation == 3
        self.rows.append(gaudi.synapse_row(name, _SYNAPSE_PID, _SYNAPSE_TID, start, thread.now, kineto=kineto_plugin))


def device_rows(generation: gaudi.Generation) -> list[Row]:
    """Return the metadata of the card's engines and of the libraries' own processes; their stamps are 0."""
    rows = gaudi.device_names([lane for lanes in _LANES.values() for lane in lanes], 0)
    rows += kineto.track(_SYNAPSE_PID, _SYNAPSE_TID, 0, "Synapse/*Host Profiler", -1)
    if generation == 1:
        rows += gaudi.source_names("Synapse Logger", PID + gaudi.SYNAPSE_LOGGER_OFFSET)
        rows += gaudi.source_names("Bridge Logs", PID + gaudi.BRIDGE_LOGS_OFFSET)
    return rows
