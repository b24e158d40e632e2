"""A CUDA device: streams that run kernels in order, and the rows CUPTI gives for them."""

from __future__ import annotations

from .host import PID, Host, Jitter, Note, Thread
from .model import Call, Kernel
from .names import kernel_name
from .style import Style

COMPUTE, COMM = 7, 20
_LAUNCH_LATENCY_NS = 2600
_COPIED_BYTES = {"h2d": 4_194_304, "d2h": 4, "memset": 1024}


class Cuda:
    """One device with a compute and a communication stream. Its owner empties `rows` after each step."""

    def __init__(self, style: Style, jitter: Jitter, *, world_size: int) -> None:
        self._style, self._jitter, self._world = style, jitter, world_size
        self._free = {COMPUTE: 0, COMM: 0}
        # HTA fails on pandas 3 if correlation ids fit 16 bits and row numbers do not; real ids are larger.
        self._correlation = 400_000
        self.rows: list[str] = []

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
        args = (
            ("External id", host.external_id),
            ("cbid", call.cbid),
            ("correlation", self._correlation),
        )
        self.rows.append(self._style.complete("cuda_runtime", call.name, PID, thread.tid, start, dur, args))
        if call.kernel is not None:
            self.rows.append(self._style.flow("s", "ac2g", self._correlation, PID, thread.tid, start))

    def close_note(self, note: Note) -> None:
        """Write the annotation's extent on each stream that worked for it."""
        for stream, (first, last) in sorted(note.streams.items()):
            args = (("External id", self._correlation),)
            row = self._style.complete("gpu_user_annotation", note.name, 0, stream, first, last - first, args)
            self.rows.append(row)

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
            extra = (("bytes", size), ("memory bandwidth (GB/s)", round(size / dur, 6)))
        if kernel.comm:
            extra = (*self._collective(), *extra)
        args = (
            ("External id", host.external_id),
            ("queued", 0),
            ("device", 0),
            ("context", 1),
            ("stream", stream),
            ("correlation", self._correlation),
            *extra,
        )
        name = kernel_name(kernel.kind, host.kernel_pick)
        host.kernel_pick += 1
        self.rows.append(self._style.complete(cat, name, 0, stream, start, dur, args))
        self.rows.append(self._style.flow("f", "ac2g", self._correlation, 0, stream, start))

    def _launch_shape(self, pick: int) -> tuple[tuple[str, object], ...]:
        grid, block = 1 + pick * 37 % 4096, (128, 256, 384, 512)[pick % 4]
        return (
            ("registers per thread", 24 + pick * 7 % 144),
            ("shared memory", pick % 3 * 16_384),
            ("blocks per SM", round(grid / 132, 6)),
            ("warps per SM", round(grid * block / 32 / 132, 6)),
            ("grid", f"[{grid}, 1, 1]"),
            ("block", f"[{block}, 1, 1]"),
            ("est. achieved occupancy %", pick * 13 % 101),
        )

    def _collective(self) -> tuple[tuple[str, object], ...]:
        return (
            ("Collective name", '"allreduce"'),
            ("In msg nelems", 12_595_200),
            ("Out msg nelems", 12_595_200),
            ("Group size", self._world),
            ("dtype", '"BFloat16"'),
            ("Process Group Name", '"0"'),
            ("Process Group Description", '"default_pg"'),
        )


def device_rows(style: Style, at: int) -> list[str]:
    """Return the metadata that names the device and its streams."""
    rows = [
        style.meta("process_name", 0, 0, at, "name", "python"),
        style.meta("process_labels", 0, 0, at, "labels", "GPU 0"),
        style.meta("process_sort_index", 0, 0, at, "sort_index", 5_000_000),
    ]
    for stream in (COMPUTE, COMM):
        rows.append(style.meta("thread_name", 0, stream, at, "name", f"stream {stream} "))
        rows.append(style.meta("thread_sort_index", 0, stream, at, "sort_index", stream))
    return rows
