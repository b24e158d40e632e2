"""What the tab needs of a trace's own rows: its categories and names, and missing identifiers.

Every member of a row is kept. Changes are noted in the row itself (see `hpuprof.ingest.restore`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from hpuprof.ingest.dialect_collectives import is_collective_annotation, tab_collective
from hpuprof.ingest.dialect_rows import TAB_CATEGORIES, TAB_MISREADS
from hpuprof.ingest.stamps import duration_ns, exact_ns
from hpuprof.ingest.wire import WholeEvent
from hpuprof.viewers.file_plan import arguments, text
from hpuprof.viewers.tensorboard.added_rows import Tab
from hpuprof.viewers.tensorboard.spelling import micros, shortened, track_number

UNSET = msgspec.UNSET
_DEVICE_TYPE = re.compile(rb'"Device Type"\s*:\s*(-?\d+)')
_STEP = "ProfilerStep#"
_MOST_DIGITS = 4300
"""Digits of an integer that Python reads (`sys.int_info.default_max_str_digits`)."""
_HUGE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(?<![0-9.eE+-])-?[0-9]{%d,}(?![0-9.eE])' % _MOST_DIGITS, re.DOTALL)


_Numbers: TypeAlias = dict[tuple[str, str, int], int]


@dataclass(frozen=True)
class _Change:
    """The changes to rows of one category and name; None keeps the value."""

    cat: str | None = None
    name: str | None = None
    was: dict[str, Any] | None = None
    kernel: bool = False
    call: bool = False
    operator: bool = False


_AS_IT_IS = _Change()
_NO_TIME = msgspec.Raw(b"0")
_NUMBERS = (int, float, str)


class Rewriter:
    """Rewrites a trace's rows. `lost` counts rows that no viewer can read: without time, name or length."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.rows = 0
        self.lost = 0
        self._changes: dict[tuple[str, str], _Change] = {}
        self._threads: dict[str, int | None] = {}

    def rewrite(self, rows: list[WholeEvent]) -> list[WholeEvent]:
        """Change the next rows of the file and return those to write."""
        stamps, timed = exact_ns([row.ts for row in rows])
        stamps -= self.tab.shift_ns
        lengths, known = duration_ns(
            [row.dur if row.ph == "X" and row.dur.__class__ in _NUMBERS else None for row in rows]
        )
        lengths[~known] = -1
        times = zip(rows, stamps.tolist(), timed.tolist(), lengths.tolist(), strict=True)
        kept = [row for row, stamp, good, length in times if self._row(row, stamp if good else None, length)]
        self.rows += len(kept)
        self.lost += len(rows) - len(kept)
        return kept

    def _row(self, row: WholeEvent, stamp: int | None, length: int) -> bool:
        """Change a row; return whether a viewer can read it."""
        if row.args is not UNSET and len(memoryview(row.args)) > _MOST_DIGITS:
            row.args = msgspec.Raw(_HUGE.sub(_as_text, bytes(row.args)))
        if row.ph == "M" or not isinstance(row.ph, str) or not row.ph:
            row.ts = _NO_TIME  # names apply to the whole trace
            return bool(row.ph) and isinstance(row.name, str)
        if stamp is None:
            return False
        row.ts = msgspec.Raw(micros(stamp))
        if not isinstance(row.name, str):
            row.name = text(row.name)
        if row.ph == "X":
            return self._slice(row, stamp, length)
        if row.ph == "i" and row.name == "[memory]":
            self._memory(row)
        elif isinstance(row.cat, str) and row.cat.lower() == "forward_backward":
            row.cat = "fwdbwd"
        return True

    def _slice(self, row: WholeEvent, stamp: int, length: int) -> bool:
        if length < 0:
            return False
        if isinstance(row.cat, str):
            key = row.cat, row.name
            change = self._changes.get(key)
            if change is None:
                change = self._changes[key] = self._change(*key)
        else:
            change = _Change(cat="unknown", was={"cat": _plain(row.cat)})
        was = dict(change.was) if change.was else {}
        added: dict[str, int] = {}
        if change.cat is not None:
            row.cat = change.cat
        if change.name is not None:
            row.name = change.name
        row.dur = msgspec.Raw(shortened(length) if change.operator else micros(length))
        if change.operator:
            self._thread(row, was)
            self._amend(row, self.tab.amended.operators, stamp, was, added)
        elif change.kernel:
            self._kernel(row, stamp, was, added)
        elif change.call:
            self._amend(row, self.tab.amended.calls, stamp, was, added)
            if b'xternal id"' not in _args(row) and "External id" not in added:
                added["External id"] = 0
        # The tab divides the profiler's own row into slices of 1 µs or more.
        if length < 1000 and row.cat == "Trace":
            was.setdefault("cat", "Trace")
            row.cat = "plain_trace"
        if was or added:
            _note(row, was, added)
        return True

    def _change(self, word: str, title: str) -> _Change:
        """Decide once for all rows of one category and name."""
        lower = word.lower()
        if lower in ("user_annotation", "cpu_op", "operator"):
            return self._annotation(word, title)
        if lower == "python_function":
            return _Change(operator=True)
        if self.tab.direct or lower in ("trace", "python"):
            spelled = TAB_CATEGORIES.get(lower)
            if spelled is not None:
                return _Change(
                    cat=spelled,
                    was=None if spelled == word else {"cat": word},
                    kernel=spelled in ("Kernel", "gpu_memcpy", "gpu_memset"),
                    call=spelled == "Runtime",
                    operator=spelled == "Python",
                )
        if lower in TAB_MISREADS:
            return _Change(cat=f"plain_{lower}", was={"cat": word})
        return _AS_IT_IS

    def _annotation(self, word: str, title: str) -> _Change:
        """Map steps, fetching, optimizer and collectives to operators; the tab ignores other annotations."""
        cat, name = word, title
        if title.startswith(_STEP):
            numbered = title[len(_STEP) :].isdecimal()
            cat = "plain_step" if self.tab.steps_added or not numbered else "cpu_op"
        elif word.lower() != "user_annotation":
            cat = "cpu_op"
        elif is_collective_annotation(title):
            alias = tab_collective(title)
            cat, name = ("cpu_op", alias) if alias else (word, title)
        elif title.startswith(("enumerate(DataLoader)#", "Optimizer.")):
            cat = "cpu_op"
        was = {} if cat == word else {"cat": word}
        if name != title:
            was["name"] = title
        return _Change(
            cat=cat if cat != word else None,
            name=name if name != title else None,
            was=was or None,
            operator=cat in ("cpu_op", "user_annotation"),
        )

    def _thread(self, row: WholeEvent, was: dict[str, Any]) -> None:
        """Give operators a numbered thread."""
        tid = str(_plain(row.tid))
        if tid not in self._threads:
            known = (isinstance(row.tid, int) and not isinstance(row.tid, bool)) or tid.isdecimal()
            self._threads[tid] = None if known else 900_000 + len(self._threads)
        stand_in = self._threads[tid]
        if stand_in is not None:
            was["tid"], row.tid = _plain(row.tid), stand_in

    def _amend(
        self, row: WholeEvent, numbers: _Numbers, stamp: int, was: dict[str, Any], added: dict[str, int]
    ) -> None:
        external = numbers.get(_key(row, stamp)) if numbers else None
        if external is not None:
            _set(row, "External id", external, was, added)

    def _kernel(self, row: WholeEvent, stamp: int, was: dict[str, Any], added: dict[str, int]) -> None:
        """Give a kernel its device number, equal to its process, and both identifiers."""
        key = _key(row, stamp) if self.tab.amended.device else None
        args = _args(row)
        device = track_number(str(row.pid)) or 0  # rows far from the others may name anything
        if isinstance(row.pid, str):
            was["pid"], row.pid = row.pid, device
        if b'"device":%d' % device not in args.replace(b": ", b":"):
            _set(row, "device", device, was, added)
        external = self.tab.amended.device.get(key) if key else None
        if external is not None:
            _set(row, "External id", external, was, added)
        elif b'xternal id"' not in args:
            added["External id"] = 0
        if b'"correlation"' not in args:
            added["correlation"] = -1

    def _memory(self, row: WholeEvent) -> None:
        match = _DEVICE_TYPE.search(_args(row))
        if match is None or match[1] not in (b"0", b"1"):
            was: dict[str, Any] = {}
            added: dict[str, int] = {}
            _set(row, "Device Type", 1, was, added)
            _note(row, was, added)


def _set(row: WholeEvent, name: str, value: int, was: dict[str, Any], added: dict[str, int]) -> None:
    """Set an argument and note its old value."""
    args = arguments(row)
    if name == "External id" and "external id" in args:  # before torch 1.11; the tab checks it first
        name = "external id"
    if name not in args:
        added[name] = value
        return
    if args[name] != value:
        was[name] = args[name]
        args[name] = value
        row.args = msgspec.Raw(msgspec.json.encode(args))


def _note(row: WholeEvent, was: dict[str, Any], added: dict[str, int]) -> None:
    """Record in a row's arguments what was added and changed."""
    mark: dict[str, Any] = {"was": was} if was else {}
    if added:
        mark["added"] = list(added)
    extra = msgspec.json.encode({**added, "hpuprof": mark})
    args = _args(row).strip()
    if not args.startswith(b"{"):
        row.args = msgspec.Raw(extra)
        return
    body = args[1:-1].strip()
    row.args = msgspec.Raw(b"{" + body + b"," + extra[1:] if body else extra)


def _as_text(found: re.Match[bytes]) -> bytes:
    """Quote a number that Python's parser, which the tab uses, refuses."""
    return found[0] if found[0].startswith(b'"') else b'"%s"' % found[0]


def _args(row: WholeEvent) -> bytes:
    return b"" if row.args is UNSET else bytes(row.args)


def _plain(value: Any) -> Any:
    """Return a value as reading the trace gives it: None if missing."""
    return None if value is UNSET else value


def _key(row: WholeEvent, stamp: int) -> tuple[str, str, int]:
    return str(_plain(row.pid)), str(_plain(row.tid)), stamp
