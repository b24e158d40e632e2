"""The normalized trace of one file: host rows, device rows, tracks, memory samples and the file's health.

All times are int64 nanoseconds since the trace's first row; `origin_ns` is that row's absolute stamp. Rows are sorted
by start (ties: longer first). Every array of a table has shape `(rows,)`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field

from hpuprof.model.arrays import Codes, Ints, Mask
from hpuprof.model.intervals import EMPTY, Intervals
from hpuprof.model.schema import HostKind

Bytes8: TypeAlias = npt.NDArray[np.int8]
NO_ROWS: Ints = np.empty(0, dtype=np.int64)
NO_CODES: Codes = np.empty(0, dtype=np.int32)


class Detail(NamedTuple):
    """Arguments of operators other than shapes, as JSON text; empty where not recorded. See `HostRows.detail`."""

    types: bytes  # list of a type name per input
    strides: bytes  # list of strides per input
    values: bytes  # list of the text of each input that is no tensor
    stack: bytes = b""  # text: python frames, the innermost first, joined by `;`
    module: bytes = b""  # text: TorchScript's module hierarchy


class _Slices(Struct, frozen=True, eq=False, dict=True):
    start: Ints
    dur: Ints
    name: Codes  # into Trace.names
    track: Codes  # into Trace.tracks
    kind: Bytes8  # HostKind or DeviceKind

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def end(self) -> Ints:
        """Exclusive end of each slice, ns."""
        return self.start + self.dur


class HostRows(_Slices, frozen=True, eq=False):
    """Slices on host threads."""

    activity: Bytes8  # Activity
    correlation: Ints  # -1: none
    external: Ints  # -1: none
    shape: Codes  # into Trace.shapes, -1: not recorded
    detail: Codes  # into Trace.details, -1: not recorded
    sequence: Ints
    """Autograd's sequence number: of the node that an operator makes, or that a backward row runs; -1: none."""
    forward_thread: Ints
    """Profiler's id of the thread that made the node a backward row runs; 0 on forward rows, -1: none."""
    comm: Codes  # into Trace.comms, -1: no row of a collective


class DeviceRows(_Slices, frozen=True, eq=False):
    """Slices on device engines or streams."""

    engine: Codes  # into Trace.engines
    correlation: Ints
    external: Ints
    bytes: Ints  # -1: unknown
    dtype: Codes  # into Trace.dtypes, -1: unknown
    recipe: Ints  # or graph, as Kineto numbers those of CUDA; -1: none
    comm: Codes  # into Trace.comms, -1: no row of a collective


class RecipeRows(Struct, frozen=True, eq=False):
    """Rows of a table that say something of a recipe, a graph that HPU's compiler made. Shapes: `(len(rows),)`."""

    rows: Ints = NO_ROWS  # of Trace.host or Trace.device, ascending
    id: Codes = NO_CODES  # into Recipes.ids, -1: none
    handle: Codes = NO_CODES  # into Recipes.handles, -1: none
    name: Codes = NO_CODES  # into Recipes.names, -1: none
    scope: Codes = NO_CODES  # into Recipes.scopes, -1: none

    def __len__(self) -> int:
        return len(self.rows)


class Recipes(Struct, frozen=True, eq=False):
    """Recipes as rows name them; empty for traces of devices without recipes.

    Host rows are the calls that launch or compile a recipe, device rows what it ran. Ids are short and collide: id and
    handle are the identity, id alone where a side has no handle. Codes of both tables are into the same texts.
    """

    host: RecipeRows = RecipeRows()
    device: RecipeRows = RecipeRows()
    ids: list[str] = field(default_factory=list)
    """Distinct ids, numbers in decimal. `DeviceRows.recipe` has those that are numbers."""
    handles: list[str] = field(default_factory=list)  # distinct handles, numbers in decimal
    names: list[str] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)
    """Paths of modules and operation, `layers/2/attention/matmul`, of the graph's nodes."""


class SyncRows(Struct, frozen=True, eq=False):
    """Waits for the device as the profiler recorded them; no device work. In order of the file."""

    kind: Bytes8  # SyncKind
    correlation: Ints  # of the call that made a stream, or itself, wait; -1: none
    stream: Codes  # into Trace.tracks: the stream that waits or is waited for; -1: none, or no row runs on it
    waits_on: Codes  # into Trace.tracks: the stream of the event; -1: not recorded, or no row runs on it
    record: Ints  # correlation of the call that recorded the event; -1: the trace does not name the event

    def __len__(self) -> int:
        return len(self.kind)


class MemoryRows(Struct, frozen=True, eq=False):
    """Allocator samples. `device`: True for device memory. Unknown totals are -1. Unit: bytes."""

    time: Ints
    device: Mask
    delta: Ints
    allocated: Ints
    reserved: Ints


class CounterRows(Struct, frozen=True, eq=False):
    """Samples of hardware counters, in order of time."""

    time: Ints
    counter: Codes  # into names
    value: npt.NDArray[np.float64]  # in the counter's own unit
    names: list[tuple[int, str]]  # device number, and the counter's name


class Track(Struct, frozen=True):
    """One row of the viewer: a host thread or a device lane."""

    pid: str
    tid: str
    process: str = ""
    thread: str = ""
    engine: str | None = None  # HPU lanes: MME, TPC, DMA, NIC, other
    os_thread: str = ""  # joins bridge tracks to the python thread they ran on
    threadless: bool = False  # calls of a vendor's host profiler, on a track that is no OS thread's
    caller: str = ""  # OS thread that made a threadless track's calls, where it is known

    @property
    def label(self) -> str:
        """Return a short name for tables."""
        return self.thread or f"{self.pid}/{self.tid}"

    @property
    def runs_on(self) -> str:
        """Return the OS thread that the rows ran on, where known."""
        return self.caller or self.os_thread


class CommNote(Struct, frozen=True):
    """What one row records about its collective; -1 and empty where it records nothing."""

    op: str = ""  # all_reduce, all_gather, ... ; empty: the row does not say
    in_bytes: int = -1
    out_bytes: int = -1
    dtype: str = ""
    group: str = ""
    group_text: str = ""
    ranks: tuple[int, ...] = ()
    group_size: int = -1
    source: int = -1
    target: int = -1
    sequence: int = -1
    on_host: bool = False  # the row is the execution itself, by a library that runs on the host


class Trouble(Struct, frozen=True):
    """A problem or omission while reading: diagnostic code, count, words, offset of the first case."""

    code: str
    count: int
    text: str
    offset: int | None = None


class Health(Struct, frozen=True):
    """Rows read, ignored and unknown."""

    rows: int = 0
    host_rows: int = 0
    device_rows: int = 0
    ignored: dict[str, int] = field(default_factory=dict)  # by rule: known and ignored
    unknown: tuple[tuple[str, str, int], ...] = ()  # category, thread name, number of rows
    set_aside: dict[str, int] = field(default_factory=dict)  # all rows that are no slices of host or device, by reason
    troubles: tuple[Trouble, ...] = ()


class Trace(Struct, frozen=True, eq=False, dict=True):
    """One normalized trace file."""

    host: HostRows
    device: DeviceRows
    syncs: SyncRows
    memory: MemoryRows
    names: list[str]
    tracks: list[Track]
    engines: list[str]
    dtypes: list[str]
    shapes: list[str]
    categories: dict[str, int]  # rows by category as written
    header: dict[str, object]
    origin_ns: int
    family: str  # hpu, cuda, rocm, xpu, mtia, cpu
    generation: str | None  # G1, G2, G3 for HPU
    mode: str  # eager, lazy, lazy+graphs, compile, graphs, compile+graphs
    form: str  # object, array, bare, csv
    health: Health
    details: list[Detail] = field(default_factory=list)
    comms: list[CommNote] = field(default_factory=list)
    paused: Intervals = EMPTY  # when the profiler made the program wait
    recipes: Recipes = Recipes()
    counters: CounterRows | None = None

    def named(self, fits: Callable[[str], object]) -> Mask:
        """Mark the name codes whose names fit; a column of names as its index marks rows."""
        return np.array([bool(fits(name)) for name in self.names] or [False], dtype=bool)

    def operators_named(self, fits: Callable[[str], object]) -> Mask:
        """Mark the name codes of operators whose names fit; module calls and other rows can have many more names."""
        found = np.zeros(max(1, len(self.names)), dtype=bool)
        found[[code for code in self._operator_names if fits(self.names[code])]] = True
        return found

    @cached_property
    def _operator_names(self) -> list[int]:
        codes = self.host.name.compress(self.host.kind == HostKind.OP)
        names: list[int] = np.flatnonzero(np.bincount(codes)).tolist()
        return names

    def host_named(self, fits: Callable[[str], object]) -> Mask:
        """Mark the host rows whose names fit."""
        named = self.named(fits)
        return named.take(self.host.name) if named.any() else np.zeros(len(self.host), dtype=bool)

    @property
    def first_device(self) -> dict[str, Any]:
        """What the header says of the first device: its name, its memory; empty where nothing."""
        devices = self.header.get("deviceProperties")
        return devices[0] if isinstance(devices, list) and devices and isinstance(devices[0], dict) else {}

    @property
    def device_memory_bytes(self) -> int | None:
        """What the header says of the first device's memory; None where that is nothing or no size."""
        size = self.first_device.get("totalGlobalMem")
        return int(size) if isinstance(size, (int, float)) and 0 < size < 2**62 else None

    @cached_property
    def end_ns(self) -> int:
        """The last end of any row, ns since the first row."""
        ends = [int(rows.end.max()) for rows in (self.host, self.device) if len(rows)]
        return max(ends, default=0)
