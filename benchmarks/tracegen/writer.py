"""Plays a whole recording step by step and writes it to a file of about the size that was asked for.

Memory holds one step. Host rows go straight to the file; the device's rows, which profilers append after
all host rows, wait in a temporary file beside it.
"""

from __future__ import annotations

import gzip
import io
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sample_traces.generator import gaudi, kineto
from sample_traces.generator.rows import Layout, Row, exact, habana_layout, kineto_layout, whole

from . import cuda, hpu, model
from .host import Host, Jitter, thread_rows

DIALECTS = ("cuda", "hpu_g1", "hpu_g3")
_START_NS = 3_600_000_000_000_000
_OPS_BETWEEN_BUCKETS = 14
_BASE_TIME_NS = 1_735_689_600_000_000_000  # 2025-01-01T00:00:00Z


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What to generate. `size_mb` is the size of the uncompressed text, in units of 10^6 bytes."""

    dialect: str = "cuda"
    size_mb: float = 200
    steps: int = 10
    stacks: bool = False
    integer_us: bool = False
    rank: int = 0
    world_size: int = 8
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Written:
    """What was generated: bytes before compression, rows, and transformer layers per step."""

    text_bytes: int
    rows: int
    layers: int


class Recording:
    """One process and its device, played a step at a time."""

    def __init__(self, spec: Spec) -> None:
        jitter = Jitter(spec.seed * 1000 + spec.rank, integer_us=spec.integer_us)
        if spec.dialect == "cuda":
            self.device: cuda.Cuda | hpu.Hpu = cuda.Cuda(jitter, world_size=spec.world_size)
        else:
            self.device = hpu.Hpu(jitter, generation=1 if spec.dialect == "hpu_g1" else 3)
        self.host = Host(jitter, self.device, _START_NS + 1_000_000, stacks=spec.stacks)

    def step(self, number: int, layers: int) -> tuple[list[Row], list[Row]]:
        """Play training step `number` and return its host rows and its device rows."""
        host, main = self.host, self.host.main
        host.rows, self.device.rows, host.kernel_pick = [], [], 0
        with host.note(f"ProfilerStep#{number}", main), host.frame("train.py(88): train_step", main):
            self._load()
            with host.frame("model.py(142): forward", main):
                for index in range(layers):
                    host.run(model.layer(index), main)
            host.run(model.loss(), main)
            with host.frame("torch/_tensor.py(570): backward", main):
                host.backward(_OPS_BETWEEN_BUCKETS, model.reduce_gradients())
            self.device.mark_step(main, host)
            with host.note("Optimizer.step#AdamW.step", main):
                for node in (model.clip(), model.optimise()):
                    for _ in range(layers):
                        host.run(node, main)
            self.device.mark_step(main, host)
            host.run(model.read_loss(), main)
        return host.rows, self.device.rows

    def finish(self) -> tuple[list[Row], list[Row]]:
        """Play the wait for the device that ends a recording."""
        self.host.rows, self.device.rows = [], []
        self.host.run(model.DEVICE_SYNC, self.host.main)
        return self.host.rows, self.device.rows

    def _load(self) -> None:
        host, main = self.host, self.host.main
        with host.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", main):
            for node in model.load_batch():
                host.run(node, main)
        host.run(model.move_batch(), main)


def _size_of(spec: Spec, layers: int) -> int:
    """Return the bytes of a second step of `layers` layers; a first one may carry compilation."""
    recording, layout = Recording(spec), _layout(spec)
    recording.step(10, layers)
    host, device = recording.step(11, layers)
    return sum(len(layout.row(row)) + len(layout.separator) for row in (*host, *device))


def layers_for(spec: Spec) -> int:
    """Return how many layers give steps of the size that the file needs; never less than one."""
    few, many = _size_of(spec, 2), _size_of(spec, 10)
    per_layer = (many - few) / 8
    fixed = few - 2 * per_layer
    return max(1, round((spec.size_mb * 1e6 / spec.steps - fixed) / per_layer))


def _layout(spec: Spec) -> Layout:
    device: dict[str, object] = {"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84_929_347_584}
    device |= {
        "computeMajor": 9,
        "computeMinor": 0,
        "maxThreadsPerBlock": 1024,
        "warpSize": 32,
        "numSms": 132,
    }
    if spec.dialect != "cuda":
        device = dict(gaudi.PROPERTIES)
    backend = "nccl" if spec.dialect == "cuda" else "hccl"
    header = {
        "schemaVersion": 1,
        "deviceProperties": [device],
        "record_shapes": 1,
        "with_stack": int(spec.stacks),
        "distributedInfo": kineto.distributed(backend, spec.rank, spec.world_size),
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": _BASE_TIME_NS,
    }
    if spec.dialect == "hpu_g1":
        return habana_layout(header, "trace.pt.trace.json")
    return kineto_layout(header, "trace.pt.trace.json", number=whole if spec.integer_us else exact)


def _opening_rows(spec: Spec, recording: Recording) -> list[Row]:
    rows = thread_rows(recording.host, _START_NS)
    if spec.dialect == "cuda":
        return rows + cuda.device_rows(_START_NS)
    return rows + hpu.device_rows(1 if spec.dialect == "hpu_g1" else 3)


class _Sink:
    """Writes rows with separators and counts them."""

    def __init__(self, out: IO[str], layout: Layout) -> None:
        self._out, self._layout = out, layout
        self.rows = self.bytes = 0

    def text(self, text: str) -> None:
        self._out.write(text)
        self.bytes += len(text)

    def add(self, rows: list[Row]) -> None:
        if rows:
            separator = self._layout.separator
            self.text((separator if self.rows else "") + separator.join(map(self._layout.row, rows)))
            self.rows += len(rows)

    def append_spool(self, spool: IO[str], rows: int) -> None:
        spool.seek(0)
        self.text(self._layout.separator)
        for chunk in iter(lambda: spool.read(1 << 22), ""):
            self.text(chunk)
        self.rows += rows


def _open_text(path: Path) -> IO[str]:
    if path.name.endswith(".gz"):
        # mtime and name stay out of the header, so that equal specs give equal files.
        raw = gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=path.open("wb"), mtime=0)
        return io.TextIOWrapper(raw, encoding="ascii", newline="")
    return path.open("w", encoding="ascii", newline="")


def write_trace(spec: Spec, path: Path) -> Written:
    """Write the trace that `spec` describes to `path`, gzipped if so named; equal specs give equal bytes."""
    layers = layers_for(spec)
    recording, layout = Recording(spec), _layout(spec)
    partial = path.with_name(f".partial-{path.name}")
    with (
        tempfile.TemporaryFile("w+", dir=path.parent, encoding="ascii", newline="") as spool,
        _open_text(partial) as out,
    ):
        sink, late = _Sink(out, layout), _Sink(spool, layout)
        sink.text(layout.head)
        sink.add(_opening_rows(spec, recording))
        for number in range(10, 10 + spec.steps):
            host, device = recording.step(number, layers)
            sink.add(host)
            late.add(device)
        host, device = recording.finish()
        sink.add(host)
        late.add(device)
        sink.append_spool(spool, late.rows)
        sink.add(kineto.window(_START_NS, recording.host.main.now + 100_000))
        sink.text(layout.tail)
    os.replace(partial, path)
    return Written(sink.bytes, sink.rows, layers)
