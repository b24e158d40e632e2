"""A CUDA device: streams that run kernels in order, and the rows CUPTI gives for them."""

from __future__ import annotations

from sample_traces.generator import kineto
from sample_traces.generator.rows import Row

from .host import PID, Host, Jitter, Note, Thread
from .model import Call, Kernel
from .names import kernel_name

COMPUTE, COMM = 7, 20
_LAUNCH_LATENCY_NS = 2600
_COPIED_BYTES = {"h2d": 4_194_304, "d2h": 4, "memset": 1024}


class Cuda:
    """One device with a compute and a communication stream. Its owner empties `rows` after each step."""

    def __init__(self, jitter: Jitter, *, world_size: int) -> None:
        self._jitter, self._world = jitter, world_size
        self._free = {COMPUTE: 0, COMM: 0}
        # HTA fails on pandas 3 if correlation ids fit 16 bits and row numbers do not; real ids are larger.
        self._correlation = 400_000
        self.rows: list[Row] = []

    def call(self, call: Call, thread: Thread, host: Host) -> None:
        """Write the call's runtime row and, if it launches something, the device row and both flow rows."""
        self._correlation += 1
        start = thread.now
        dur = self._jitter.take(call.ns)
        if call.waits:
            busy_until = self._free[COMPUTE] if call.waits == "stream" else max(self._free.values())
            dur = max(dur, busy_until + self._jitter.take(1500) - start)
        thread.now = start + dur + self._jitter.take(350)
        if call.kernel is not None:
            self._execute(call.kernel, start, host)
        where, ids = (PID, thread.tid), {"correlation": self._correlation, "external": host.external_id}
        self.rows.append(kineto.runtime(call.name, where, start, dur, **ids))
        if call.kernel is not None:
            self.rows.append(kineto.flow("ac2g", "s", self._correlation, *where, start))

    def close_note(self, note: Note) -> None:
        """Write the annotation's extent on each stream that worked for it."""
        for stream, (first, last) in sorted(note.streams.items()):
            ids = {"External id": self._correlation}
            self.rows.append(Row("X", note.name, 0, stream, first, last - first, "gpu_user_annotation", ids))

    def mark_step(self, thread: Thread, host: Host) -> None:
        """Do nothing: CUDA work is launched at once."""

    def _execute(self, kernel: Kernel, launched: int, host: Host) -> None:
        stream = COMM if kernel.comm else COMPUTE
        earliest = launched + self._jitter.take(_LAUNCH_LATENCY_NS)
        # The communication stream was told to wait for the gradients, which the compute stream makes.
        queued = max(self._free.values()) if kernel.comm else self._free[stream]
        start = max(earliest, queued + self._jitter.take(700))
        dur = self._jitter.take(kernel.ns)
        self._free[stream] = start + dur
        for note in host.notes:
            first_last = note.streams.setdefault(stream, [start, start])
            first_last[0], first_last[1] = min(first_last[0], start), max(first_last[1], start + dur)
        self._write(kernel, stream, start, dur, host)

    def _write(self, kernel: Kernel, stream: int, start: int, dur: int, host: Host) -> None:
        cat, extra = "kernel", self._launch_shape(host.kernel_pick)
        if kernel.kind in _COPIED_BYTES:
            cat = "gpu_memset" if kernel.kind == "memset" else "gpu_memcpy"
            size = _COPIED_BYTES[kernel.kind]
            extra = {"bytes": size, "memory bandwidth (GB/s)": round(size / dur, 6)}
        if kernel.comm:
            elements = (12_595_200, 12_595_200)
            extra = kineto.collective("allreduce", elements, "BFloat16", self._world, members=False) | extra
        args = {"External id": host.external_id, "queued": 0, "correlation": self._correlation, **extra}
        name = kernel_name(kernel.kind, host.kernel_pick)
        host.kernel_pick += 1
        self.rows.append(kineto.device(name, stream, start, dur, args, cat=cat))
        self.rows.append(kineto.flow("ac2g", "f", self._correlation, 0, stream, start))

    @staticmethod
    def _launch_shape(pick: int) -> dict[str, object]:
        grid, block = 1 + pick * 37 % 4096, (128, 256, 384, 512)[pick % 4]
        return {
            "registers per thread": 24 + pick * 7 % 144,
            "shared memory": pick % 3 * 16_384,
            "blocks per SM": round(grid / 132, 6),
            "warps per SM": round(grid * block / 32 / 132, 6),
            "grid": [grid, 1, 1],
            "block": [block, 1, 1],
            "est. achieved occupancy %": pick * 13 % 101,
        }


def device_rows(at: int) -> list[Row]:
    """Return the metadata that names the device and its streams."""
    rows = kineto.process(0, at, "python", "GPU 0", 5_000_000)
    for stream in (COMPUTE, COMM):
        rows += kineto.track(0, stream, at, f"stream {stream} ", stream)
    return rows
