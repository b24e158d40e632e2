"""Rewrites a trace's rows as they stream by: the tab's categories and names, and missing identifiers.

A row that needs no change keeps its text. Changes are noted in the row itself (see `hpuprof.ingest.restore`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from hpuprof.ingest.dialect_collectives import is_collective_annotation, tab_collective
from hpuprof.ingest.dialect_rows import TAB_CATEGORIES, TAB_MISREADS
from hpuprof.ingest.recover import loose_json
from hpuprof.ingest.stamps import exact_ns
from hpuprof.ingest.wire import RawEvent
from hpuprof.viewers.tensorboard.added_rows import Tab
from hpuprof.viewers.tensorboard.spelling import micros, shortened, track_number

_NUMBER = re.compile(rb"-?[0-9][0-9.eE+-]*")
_DEVICE_TYPE = re.compile(rb'"Device Type"\s*:\s*(-?\d+)')
_STEP = "ProfilerStep#"
_MOST_DIGITS = 4300
"""Digits of an integer that Python reads (`sys.int_info.default_max_str_digits`)."""
_HUGE = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(?<![0-9.eE+-])-?[0-9]{%d,}(?![0-9.eE])' % _MOST_DIGITS, re.DOTALL)


_Numbers: TypeAlias = dict[tuple[str, str, int], int]


@dataclass(frozen=True)
class _Change:
    """The changes to rows of one category and name; None keeps the value."""

    cat: bytes | None = None
    name: bytes | None = None
    was: dict[str, Any] | None = None
    kernel: bool = False
    call: bool = False
    operator: bool = False


_AS_IT_IS = _Change()
_NO_TIME = msgspec.Raw(b"0")


class Rewriter:
    """Rewrites a trace's events. `lost` counts rows that no viewer can read: without time, name or length."""

    def __init__(self, tab: Tab) -> None:
        self.tab = tab
        self.rows = 0
        self.lost = 0
        self._changes: dict[tuple[bytes, bytes], _Change] = {}
        self._threads: dict[bytes, bytes | None] = {}

    def rewrite(self, rows: Iterable[RawEvent]) -> Iterator[bytes]:
        """Yield each row as JSON text."""
        for row in rows:
            text = self._row(row)
            text = None if text is None else _readable(text)
            if text is None:
                self.lost += 1
            else:
                self.rows += 1
                yield text

    def _row(self, row: RawEvent) -> bytes | None:
        phase = row.ph
        if phase == "M" or not isinstance(phase, str) or not phase:
            row.ts = _NO_TIME  # names apply to the whole trace
            return _text(row) if phase and bytes(row.name).startswith(b'"') else None
        stamp = _ns(row.ts)
        if stamp is None:
            return None
        stamp -= self.tab.shift_ns
        row.ts = msgspec.Raw(micros(stamp))
        if not bytes(row.name).startswith(b'"'):
            plain = _plain(row.name)
            row.name = msgspec.Raw(msgspec.json.encode("" if plain is None else str(plain)))
        if phase == "X":
            return self._slice(row, stamp)
        if phase == "i" and bytes(row.name) == b'"[memory]"':
            self._memory(row)
        elif bytes(row.cat).lower() == b'"forward_backward"':
            row.cat = msgspec.Raw(b'"fwdbwd"')
        return _text(row)

    def _slice(self, row: RawEvent, stamp: int) -> bytes | None:
        length = _ns(row.dur)
        if length is None or length < 0:
            return None
        key = bytes(row.cat), bytes(row.name)
        change = self._changes.get(key)
        if change is None:
            change = self._changes[key] = self._change(*key)
        was = dict(change.was) if change.was else {}
        added: dict[str, int] = {}
        if change.cat is not None:
            row.cat = msgspec.Raw(change.cat)
        if change.name is not None:
            row.name = msgspec.Raw(change.name)
        row.dur = msgspec.Raw(shortened(length) if change.operator else micros(length))
        if change.operator:
            self._thread(row, was)
            self._amend(row, self.tab.amended.operators, stamp, was, added)
        elif change.kernel:
            self._kernel(row, stamp, was, added)
        elif change.call:
            self._amend(row, self.tab.amended.calls, stamp, was, added)
            if b'xternal id"' not in bytes(row.args) and "External id" not in added:
                added["External id"] = 0
        # The tab divides the profiler's own row into slices of 1 µs or more.
        if length < 1000 and bytes(row.cat) == b'"Trace"':
            was.setdefault("cat", "Trace")
            row.cat = msgspec.Raw(b'"plain_trace"')
        if was or added:
            _note(row, was, added)
        return _text(row)

    def _change(self, cat: bytes, name: bytes) -> _Change:
        """Decide once for all rows of one category and name."""
        word = _plain(cat)
        if not isinstance(word, str):
            return _Change(cat=b'"unknown"', was={"cat": word})
        title = str(_plain(name))
        lower = word.lower()
        if lower in ("user_annotation", "cpu_op", "operator"):
            return self._annotation(word, title)
        if lower == "python_function":
            return _Change(operator=True)
        if self.tab.direct or lower in ("trace", "python"):
            spelled = TAB_CATEGORIES.get(lower)
            if spelled is not None:
                return _Change(
                    cat=_quoted(spelled),
                    was=None if spelled == word else {"cat": word},
                    kernel=spelled in ("Kernel", "gpu_memcpy", "gpu_memset"),
                    call=spelled == "Runtime",
                    operator=spelled == "Python",
                )
        if lower in TAB_MISREADS:
            return _Change(cat=_quoted(f"plain_{lower}"), was={"cat": word})
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
            cat=_quoted(cat) if cat != word else None,
            name=_quoted(name) if name != title else None,
            was=was or None,
            operator=cat in ("cpu_op", "user_annotation"),
        )

    def _thread(self, row: RawEvent, was: dict[str, Any]) -> None:
        """Give operators a numbered thread."""
        tid = bytes(row.tid)
        if tid not in self._threads:
            plain = _plain(row.tid)
            known = (isinstance(plain, int) and not isinstance(plain, bool)) or (
                isinstance(plain, str) and plain.isdecimal()
            )
            self._threads[tid] = None if known else b"%d" % (900_000 + len(self._threads))
        stand_in = self._threads[tid]
        if stand_in is not None:
            was["tid"] = _plain(row.tid)
            row.tid = msgspec.Raw(stand_in)

    def _amend(self, row: RawEvent, numbers: _Numbers, stamp: int, was: dict[str, Any], added: dict[str, int]) -> None:
        external = numbers.get(_key(row, stamp)) if numbers else None
        if external is not None:
            _set(row, "External id", external, was, added)

    def _kernel(self, row: RawEvent, stamp: int, was: dict[str, Any], added: dict[str, int]) -> None:
        """Give a kernel its device number, equal to its process, and both identifiers."""
        key = _key(row, stamp) if self.tab.amended.device else None
        args = bytes(row.args)
        pid = _plain(row.pid)
        device = track_number(str(pid)) or 0  # rows far from the others may name anything
        if isinstance(pid, str):
            was["pid"], row.pid = pid, msgspec.Raw(b"%d" % device)
        if b'"device":%d' % device not in args.replace(b": ", b":"):
            _set(row, "device", device, was, added)
        external = self.tab.amended.device.get(key) if key else None
        if external is not None:
            _set(row, "External id", external, was, added)
        elif b'xternal id"' not in args:
            added["External id"] = 0
        if b'"correlation"' not in args:
            added["correlation"] = -1

    def _memory(self, row: RawEvent) -> None:
        match = _DEVICE_TYPE.search(bytes(row.args))
        if match is None or match[1] not in (b"0", b"1"):
            was: dict[str, Any] = {}
            added: dict[str, int] = {}
            _set(row, "Device Type", 1, was, added)
            _note(row, was, added)


def _set(row: RawEvent, name: str, value: int, was: dict[str, Any], added: dict[str, int]) -> None:
    """Set an argument and note its old value."""
    args = _plain(row.args)
    if not isinstance(args, dict):
        args = {}
    if name == "External id" and "external id" in args:  # before torch 1.11; the tab checks it first
        name = "external id"
    if name not in args:
        added[name] = value
        return
    if args[name] != value:
        was[name] = args[name]
        args[name] = value
        row.args = msgspec.Raw(msgspec.json.encode(args))


def _note(row: RawEvent, was: dict[str, Any], added: dict[str, int]) -> None:
    """Record in a row's arguments what was added and changed."""
    mark: dict[str, Any] = {"was": was} if was else {}
    if added:
        mark["added"] = list(added)
    extra = msgspec.json.encode({**added, "hpuprof": mark})
    args = bytes(row.args).strip()
    if not args.startswith(b"{"):
        row.args = msgspec.Raw(extra)
        return
    body = args[1:-1].strip()
    row.args = msgspec.Raw(b"{" + body + b"," + extra[1:] if body else extra)


def _text(row: RawEvent) -> bytes:
    return msgspec.json.encode(row)


def _readable(text: bytes) -> bytes:
    """Return JSON that Python's parser, which the tab uses, accepts: UTF-8, and overlong integers as text."""
    if not text.isascii():
        text = text.decode("utf-8", "replace").encode()
    if len(text) > _MOST_DIGITS:
        text = _HUGE.sub(lambda found: found[0] if found[0].startswith(b'"') else b'"%s"' % found[0], text)
    return text


def _quoted(text: str) -> bytes:
    return msgspec.json.encode(text)


def _plain(raw: Any) -> Any:
    """Return a value as reading the trace gives it; None if missing or invalid."""
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):  # numbers out of range, bytes that are not UTF-8
        return loose_json(_readable(bytes(raw)))


def _ns(raw: Any) -> int | None:
    """Return µs, possibly quoted, as ns; None if not a number."""
    text = bytes(raw).strip(b'" ')
    if text[-4:-3] == b"." and text[:-4].isdigit() and text[-3:].isdigit():
        return int(text[:-4] + text[-3:])
    if not _NUMBER.fullmatch(text):
        return None
    values, good = exact_ns([text])
    return int(values[0]) if good[0] else None


def _key(row: RawEvent, stamp: int) -> tuple[str, str, int]:
    return str(_plain(row.pid)), str(_plain(row.tid)), stamp
