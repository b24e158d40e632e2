"""How the stock TensorBoard tab treats a trace's rows: mirrors its loader, row by row.

The rules are those of torch-tb-profiler 0.4.3 (`profiler/trace.py`, `event_parser.py`, `gpu_metrics_parser.py`,
`tensor_cores_parser.py`); the tests compare with that loader. It knows a dozen categories and ignores all others.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import numpy as np

from hpuprof.ingest.columns import whole
from hpuprof.ingest.wire import WholeEvent
from hpuprof.model.intervals import union
from hpuprof.viewers.nesting import perfetto_ns

UNSET = msgspec.UNSET
_OPERATORS = ("cpu_op", "operator", "python")
_KERNELS = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")
_ANNOTATIONS = ("user_annotation", "gpu_user_annotation")
_KNOWN = frozenset([*_OPERATORS, *_KERNELS, *_ANNOTATIONS, "runtime", "trace", "memory", "python_function"])
_LAUNCHES = frozenset(["cuda_runtime", "cuda_driver", "privateuse1_runtime", "hip_runtime", "xpu_runtime"])
_COLLECTIVES = frozenset(
    f"{library}:{what}"
    for library in ("nccl", "gloo")
    for what in ("broadcast", "reduce", "all_reduce", "all_gather", "reduce_scatter")
)
_DEVICES = 64
_LONGEST_US = 2**53  # int64 holds it in ns, and a double exactly


class _Args(msgspec.Struct):
    """The arguments by which the loader joins rows."""

    device: Any = None
    correlation: Any = None
    external: Any = msgspec.field(default=None, name="External id")
    external_old: Any = msgspec.field(default=None, name="external id")
    module: Any = msgspec.field(default=None, name="Python module id")
    device_type: Any = msgspec.field(default=None, name="Device Type")

    @property
    def external_id(self) -> Any:
        return self.external if self.external_old is None else self.external_old


_decode = msgspec.json.Decoder(_Args).decode


class StockTab:
    """Counts, by reason, the rows that abort loading or that a view omits."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.launched: dict[str, str] = {}  # correlation -> External id of the call; see `_named`
        self.first_step: int | None = None
        self.operators: set[str] = set()
        self.others: set[str] = set()  # External ids of rows that are not operators in its tables: steps and modules
        self.kernels: Counter[tuple[str, bool]] = Counter()  # (correlation, whether it has a device number)
        self.lanes: dict[tuple[str, str, str], list[tuple[float, float]]] = {}  # (pid, tid, name) -> stamps, lengths

    def feed(self, row: WholeEvent, ts: float) -> None:
        """Take one row; `ts` is its stamp in µs."""
        if not isinstance(row.name, str):
            self.seen["unnamed"] += 1
        elif row.ph == "X":
            self._slice(row, row.name, ts)
        elif row.ph == "i" and row.name == "[memory]":
            args = self._args(row)
            self.seen["memory_device"] += args is not None and args.device_type not in (0, 1)

    def _args(self, row: WholeEvent) -> _Args | None:
        try:
            return _Args() if row.args is UNSET else _decode(row.args)
        except (msgspec.DecodeError, UnicodeDecodeError):
            self.seen["args"] += 1
            return None

    def _slice(self, row: WholeEvent, name: str, ts: float) -> None:
        if not isinstance(row.cat, str):
            self.seen["uncategorized"] += 1
            return
        cat = row.cat.lower()
        self.seen["launches"] += cat in _LAUNCHES
        self.seen["hidden"] += cat in ("hpu_op", "mtia_ccp_events")
        if cat not in _KNOWN:
            return
        if cat in _ANNOTATIONS and not name.startswith("ProfilerStep#") and name not in _COLLECTIVES:
            self.seen["loader"] += name.startswith(("enumerate(DataLoader)#", "enumerate(DataPipe)#"))
            return
        if not isinstance(row.dur, (int, float)):
            self.seen["endless"] += 1
        elif bytes(row.ts)[:1] == b'"' or not np.isfinite(ts):
            self.seen["text_stamp"] += 1
        args = self._args(row)
        if args is None:
            return
        joined = (args.correlation if cat in (*_KERNELS, "runtime") else None, args.external_id)
        if cat != "python_function" and not all(isinstance(i, (int, float, str, type(None))) for i in joined):
            self.seen["identifiers"] += 1
        else:
            self._node(row, cat, name, ts, args)

    def _node(self, row: WholeEvent, cat: str, name: str, ts: float, args: _Args) -> None:
        seen = self.seen
        step = name.startswith("ProfilerStep#") and cat in (*_ANNOTATIONS, "cpu_op", "operator")
        module = cat == "python_function" and args.module is not None
        if cat == "kernel":
            self._kernel(row, name, ts, args)
        elif cat in _KERNELS:
            seen["copies"] += 1
        elif cat == "runtime":
            self.launched[_named(args.correlation)] = _named(args.external_id)
        if step:
            number = whole(name.split("#")[1])
            seen["step_number"] += number is None
            if number is not None:
                self.first_step = number if self.first_step is None else min(number, self.first_step)
            seen["device_step"] += cat == "gpu_user_annotation"
        if step or module or cat in _OPERATORS or cat in _ANNOTATIONS:
            seen["host"] += step or cat in _OPERATORS
            seen["host_tid"] += whole(None if row.tid is UNSET else row.tid) is None
            (self.others if step or module else self.operators).add(_named(None if module else args.external_id))

    def _kernel(self, row: WholeEvent, name: str, ts: float, args: _Args) -> None:
        seen, device = self.seen, args.device
        seen["kernels"] += 1
        if device is not None and not isinstance(device, int):
            seen["device_no_number"] += 1
        elif device is not None and not -_DEVICES <= device < _DEVICES:
            seen["device_64"] += 1
        self.kernels[_named(args.correlation), device is not None] += 1
        if isinstance(row.dur, (int, float)) and abs(row.dur) < _LONGEST_US and np.isfinite(ts):
            self.lanes.setdefault((str(row.pid), str(row.tid), name), []).append((ts, float(row.dur)))

    def lost_without_device(self) -> int:
        """Count launched kernels without a device number; they abort loading, unlaunched ones do not."""
        known = self.operators | self.others | {_named(0)}
        return sum(
            count
            for (correlation, numbered), count in self.kernels.items()
            if not numbered and correlation in self.launched and self.launched[correlation] in known
        )

    def launches_kernels(self) -> bool:
        """Whether any kernel belongs to a launch call."""
        return any(correlation in self.launched for correlation, _ in self.kernels)

    def without_device(self) -> bool:
        """Whether no kernel has a device number: no GPU summary."""
        return not any(numbered for _, numbered in self.kernels)

    def linked(self) -> int:
        """Count kernels whose operator it finds."""
        return sum(
            count for (c, _), count in self.kernels.items() if c in self.launched and self.launched[c] in self.operators
        )

    def inflated(self, engines: dict[tuple[str, str], str | None]) -> tuple[int, float]:
        """Return how many kernel rows overlap others of their kernel on an engine, and how often its sum counts time.

        `engines`: of (process, thread). An HPU kernel has a row on each of 24 or 64 lanes, which the Kernel view sums.
        """
        groups: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
        for (pid, tid, name), rows in self.lanes.items():
            if engine := engines.get((pid, tid)):
                groups.setdefault((pid, engine, name), []).extend(rows)
        total = ran = overlapping = 0
        for rows in groups.values():
            micros = np.array(rows)
            start = perfetto_ns(micros[:, 0])
            end = start + perfetto_ns(micros[:, 1])
            order = np.argsort(start, kind="stable")
            overlapping += int((start[order][1:] < np.maximum.accumulate(end[order])[:-1]).sum())
            total += int((end - start).sum())
            ran += union(start, end).total_ns
        return overlapping, total / ran if ran else 1.0


def _named(identifier: Any) -> str:
    """Return an identifier as text, as `Interner` has it; 7 and 7.0 are one, as in the loader, but not 7 and "7"."""
    same = isinstance(identifier, bool) or (isinstance(identifier, float) and identifier.is_integer())
    return repr(int(identifier) if same else identifier)
