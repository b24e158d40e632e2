"""Counts the raw rows of one file in one pass and bounded memory, before anything is known of its threads.

What lies on a device lane shows only once all names of threads are read, so counts are kept per track. Every table has
a limit; what does not fit goes to a row of its own or is counted in `left_out`.
"""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any, TypeAlias

import msgspec

from hpuprof.dialect_report.values import LONGEST_ID, form, number, plain, recipe_form
from hpuprof.dialect_report.widths import Widths
from hpuprof.dialect_report.words import HOST_WORDS, RECIPE_CALLS, host_word, hw_role, shape
from hpuprof.ingest.dialect_rows import row_rule
from hpuprof.ingest.recipe_rows import identity
from hpuprof.ingest.wire import WholeEvent
from hpuprof.model.schema import HostKind

MAX_TRACKS = 4096
MAX_CATEGORIES = 128
MAX_GROUPS = 64  # of a track
MAX_SIGNATURES = 20_000
MAX_KEYS = 100_000
MAX_STAMPS = 1_000_000
MAX_CALLS = 100_000
MAX_ARROWS = 20_000
LANE_SAMPLE = 4096
"""Rows of a lane whose overlap is looked at."""
OTHERS = "(others)"
_DIALECT = ("hip", "Torch-Compiled Region")

Key: TypeAlias = tuple[str, str]
"""A recipe's id and handle, "" for none."""
Signature: TypeAlias = tuple[int, str, tuple[str, ...], tuple[type, ...]]
"""Track, category, and names and types of arguments."""
ArrowEnd: TypeAlias = tuple[int, str, bool]
"""Track, call or category of the row there ("" for none), and whether it has no length."""


class KeyRows:
    """Rows of one recipe on one track, and when they begin [µs] as far as all of them are kept."""

    __slots__ = ("rows", "starts")

    def __init__(self) -> None:
        self.rows = 0
        self.starts = array("d")


class Group(msgspec.Struct, frozen=True):
    """Alike rows of a track. `event`: the hardware event, None where the row has no such argument."""

    category: str
    event: str | None
    null: bool  # rows named null


class RawTrack:
    """What lies on one thread or lane of the file."""

    def __init__(self, pid: Any, tid: Any) -> None:
        self.pid, self.tid = pid, tid
        self.number = 0
        self.groups: dict[Group, Widths] = {}
        self.keys: dict[Key, KeyRows] = {}
        self.forms: Counter[tuple[str, str]] = Counter()  # argument and form of its value
        self.starts, self.ends = array("d"), array("d")  # of rows that occupy, a sample [µs]
        self.calls: list[tuple[float, float, str]] = []  # start, end and word of calls, a sample
        self.last: tuple[float | None, str, bool] = (None, "", False)  # start, what and whether without length

    def widths(self, group: Group) -> Widths:
        """Return the widths of alike rows."""
        if group not in self.groups and len(self.groups) >= MAX_GROUPS:
            group = Group(OTHERS, None, null=False)
        return self.groups.setdefault(group, Widths())


class Category:
    """Rows of one category: phases, slices without arguments, widths."""

    def __init__(self) -> None:
        self.rows = self.slices = self.null_args = self.no_args = 0
        self.phases: Counter[str] = Counter()
        self.widths = Widths()


class RawRows:
    """Feed it the rows of a file; `tracks`, `categories` and the rest hold what was counted."""

    def __init__(self) -> None:
        self.rows = 0
        self.tracks: dict[tuple[Any, Any], RawTrack] = {}
        self.process_names: dict[Any, str] = {}
        self.thread_names: dict[tuple[Any, Any], str] = {}
        self.categories: dict[str, Category] = {}
        self.signatures: Counter[Signature] = Counter()
        self.words: Counter[str] = Counter()
        self.zero_words: Counter[str] = Counter()
        self.zero_rows: Counter[str] = Counter()  # by category
        self.calls: dict[str, dict[Key, KeyRows]] = {}  # by word
        self.call_forms: Counter[tuple[str, str]] = Counter()
        self.handles: dict[str, set[str]] = {}
        self.names_of: dict[Key, set[str]] = {}
        self.ids_of: dict[str, set[str]] = {}
        self.arrows: Counter[tuple[str, ArrowEnd, ArrowEnd]] = Counter()
        self.hints: set[str] = set()  # words that show the device's family
        self.first: float | None = None
        self.last: float | None = None
        self.no_stamp = 0
        self.left_out: Counter[str] = Counter()
        self._open: dict[tuple[str, Any], list[ArrowEnd | None]] = {}
        self._stamps = MAX_STAMPS
        self._call_rows = MAX_CALLS
        self._key_rows = 0

    def feed(self, row: WholeEvent) -> None:
        """Count one row."""
        self.rows += 1
        phase = row.ph if isinstance(row.ph, str) else ""
        cat = row.cat if isinstance(row.cat, str) else ""
        found = self.categories.get(cat)
        if found is None:
            cat = cat if len(self.categories) < MAX_CATEGORIES and len(cat) <= LONGEST_ID else OTHERS
            found = self.categories.setdefault(cat, Category())
        found.rows += 1
        found.phases[phase if len(phase) == 1 else OTHERS] += 1
        start = number(bytes(row.ts))
        args = self._args(row, found)
        if phase == "M":
            self._name(row, args)
            return
        if start is None:
            self.no_stamp += 1
        else:
            self.first = start if self.first is None else min(self.first, start)
            self.last = start if self.last is None else max(self.last, start)
        track = self._track(row)
        if phase in ("s", "t", "f"):
            self._arrow(row, cat, track, start)
        else:
            self._row(row, cat, found, track, start, args)

    def _row(
        self, row: WholeEvent, cat: str, found: Category, track: RawTrack, start: float | None, args: dict[str, Any]
    ) -> None:
        """Count a row that is no name and no arrow."""
        if args:
            self._signature((track.number, cat, tuple(args), tuple(map(type, args.values()))))
        name = row.name if isinstance(row.name, str) else ""
        event = args.get("HW event name")
        event = None if event is None else event[:256] if isinstance(event, str) else shape(event)
        null = name == "null"
        width = None
        if row.ph == "X":
            width = number(row.dur)
            found.slices += 1
            found.widths.add(width)
            if width == 0:
                self.zero_rows[cat] += 1
        if row.ph in ("X", "B"):
            track.widths(Group(cat, event, null)).add(width)
        word = host_word(name) if _may_call(cat) else ""
        if word or name in HOST_WORDS:
            self.hints.add(word or name)
        elif name.startswith(_DIALECT):
            self.hints.update(w for w in _DIALECT if name.startswith(w))
        elif name.endswith("hpu_lazy"):
            self.hints.add("hpu_lazy")
        if word and row.ph in ("X", "B"):
            self._call(word, track, start, width)
        track.last = (start, word or cat, width == 0)
        if "recipeId" in args or "recipeHandle" in args:
            self._recipe(args, track, start, word, occupies=not null and hw_role(event or "") != "stamp")
        occupies = bool(width) and not null and event is not None and hw_role(event) == "occupies"
        if occupies and width and start is not None and len(track.starts) < LANE_SAMPLE:
            track.starts.append(start)
            track.ends.append(start + width)

    def _args(self, row: WholeEvent, found: Category) -> dict[str, Any]:
        """Return a row's arguments; counts slices that have none."""
        raw = row.args
        if raw is msgspec.UNSET:
            found.no_args += row.ph == "X"
            return {}
        text = bytes(raw)
        if text == b"null":
            found.null_args += row.ph == "X"
            return {}
        try:
            value = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            value = {}
            self.left_out["unreadable arguments"] += 1
        return value if isinstance(value, dict) else {}

    def _name(self, row: WholeEvent, args: dict[str, Any]) -> None:
        name = args.get("name")
        if not isinstance(name, str) or len(self.thread_names) + len(self.process_names) > 4 * MAX_TRACKS:
            return
        if row.name == "process_name":
            self.process_names.setdefault(plain(row.pid), name[:256])
        elif row.name == "thread_name":
            self.thread_names[plain(row.pid), plain(row.tid)] = name[:256]

    def _track(self, row: WholeEvent) -> RawTrack:
        at = plain(row.pid), plain(row.tid)
        track = self.tracks.get(at)
        if track is None:
            at = at if len(self.tracks) < MAX_TRACKS else (OTHERS, OTHERS)
            track = self.tracks.setdefault(at, RawTrack(*at))
            track.number = track.number or len(self.tracks)
        return track

    def _signature(self, signature: Signature) -> None:
        if signature not in self.signatures and (len(self.signatures) >= MAX_SIGNATURES or len(signature[2]) > 64):
            self.left_out["arguments of rows"] += 1
            return
        self.signatures[signature] += 1

    def _call(self, word: str, track: RawTrack, start: float | None, width: float | None) -> None:
        """Count a call into the runtime that hpuprof knows."""
        self.words[word] += 1
        if width == 0:
            self.zero_words[word] += 1
        elif word in RECIPE_CALLS and start is not None and width is not None:
            if self._call_rows:
                self._call_rows -= 1
                track.calls.append((start, start + width, word))
            else:
                self.left_out["calls (nesting)"] += 1

    def _recipe(self, args: dict[str, Any], track: RawTrack, start: float | None, word: str, *, occupies: bool) -> None:
        """Count a row that names a recipe."""
        forms = self.call_forms if word else track.forms
        for name in ("recipeId", "recipeHandle"):
            if name in args:
                forms[name, form(args[name])] += 1
        key = identity(args.get("recipeId"))[:LONGEST_ID], identity(args.get("recipeHandle"))[:LONGEST_ID]
        recipe = args.get("recipeName")
        if isinstance(recipe, str):
            forms["recipeName", recipe_form(recipe)] += 1
        if not key[0]:
            return
        if self._key_rows >= MAX_KEYS:
            self.left_out["recipes"] += 1
            return
        if isinstance(recipe, str) and recipe:
            _remember(self.names_of, key, recipe)
            _remember(self.ids_of, recipe[:256], key[0])
        if key[1]:
            _remember(self.handles, key[0], key[1])
        if word and word not in RECIPE_CALLS:
            return
        keys = self.calls.setdefault(word, {}) if word else track.keys
        rows = keys.get(key)
        if rows is None:
            rows = keys[key] = KeyRows()
            self._key_rows += 1
        if not occupies:
            return
        rows.rows += 1
        if start is not None and self._stamps:
            self._stamps -= 1
            rows.starts.append(start)

    def _arrow(self, row: WholeEvent, cat: str, track: RawTrack, start: float | None) -> None:
        """Count an arrow by the kinds of rows at its ends: the last one of the track, where it begins there."""
        what, zero = track.last[1:] if track.last[0] == start else ("", False)
        at = cat, plain(row.id)
        if at not in self._open and len(self._open) >= MAX_ARROWS:
            self.left_out["arrows"] += 1
            return
        ends = self._open.setdefault(at, [None, None])
        ends[row.ph != "s"] = (track.number, what, zero)
        tail, head = ends
        if tail is not None and head is not None:
            del self._open[at]
            self.arrows[cat, tail, head] += 1

    @property
    def loose_arrows(self) -> int:
        """Arrows with one end."""
        return len(self._open)


def _remember(table: dict[Any, set[str]], key: Any, value: str) -> None:
    """Add a value to a set of at most three: one, several, that is all that is asked."""
    found = table.setdefault(key, set())
    if len(found) < 3:
        found.add(value[:256])


def _may_call(category: str) -> bool:
    """Whether rows of a category are calls into the runtime rather than operators, frames or marks of the user."""
    rule = row_rule(category[:LONGEST_ID], lane=False) if category else None
    return not category or (rule is not None and rule.kind is HostKind.RUNTIME)
