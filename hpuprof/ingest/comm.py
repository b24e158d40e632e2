"""Collectives as rows describe them: operation, size, process group, peers. The words are in `dialect_collectives`."""

from __future__ import annotations

import json
import re
from functools import reduce
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hpuprof.ingest.columns import Interner, whole
from hpuprof.ingest.dialect_collectives import collective_op, element_bytes, element_type, is_collective, runs_on_host
from hpuprof.ingest.slice_rows import Slices
from hpuprof.ingest.wire import Args
from hpuprof.model.arrays import Codes
from hpuprof.model.trace import CommNote

_NUMBERS = re.compile(r"\d+")
_NAMED_SIZE = re.compile(r"(?<!\d)(?P<from>\d+)\s*(?P<way>->|<-)\s*(?P<to>\d+)")
"""Point-to-point annotations name their peers: `nccl:send 0->1`, `nccl:recv 1<-0`."""
_MOST_RANKS = 1 << 18
"""Ranks of a group, and of all groups that a file gives by start, stride and size together: the largest jobs known have
some 10^5 accelerators, and a few digits in a file must not create a list of any length."""
_RANK_DIGITS = 9
_MOST_BYTES = 1 << 44
"""16 TiB: a message fits into a device's memory; times the ranks of a group it still fits into 64 bits."""


class _Row(NamedTuple):
    """One row's description of its collective, as text; equal descriptions share a note. Fields as in `Args`."""

    name: int  # code
    collective: str
    in_elements: str
    out_elements: str
    element_type: str
    group_name: str
    group_text: str
    group_ranks: str
    group_size: str
    rank_start: str
    rank_stride: str
    source_rank: str
    target_rank: str
    comm_sequence: str
    input_dims: bytes
    input_types: bytes

    @classmethod
    def of(cls, name: int, args: Args) -> _Row:
        said = (f"{value:.17g}" if type(value) is float else str(value) for value in _said(args))
        return cls._make((name, *said, bytes(args.input_dims), bytes(args.input_types)))


_said = attrgetter(*_Row._fields[1:-2])


class CommNotes:
    """Collect the arguments of rows that belong to collectives; other rows cost one numpy look-up."""

    def __init__(self) -> None:
        self._wanted = np.zeros(0, dtype=bool)  # by code of a name
        self._notes = Interner()
        self.refused = 0  # groups with impossible ranks
        self._listed = 0
        self._groups: dict[tuple[str, str], tuple[int, ...]] = {}

    def codes(self, names: Interner, name: npt.NDArray[Any], slices: Slices) -> Codes:
        """Return the code of each row's note, -1 for rows outside collectives; shape `(rows,)`. `name`: of each row."""
        if len(self._wanted) < len(names):
            new = [isinstance(n, str) and is_collective(n) for n in names.since(len(self._wanted))]
            self._wanted = np.append(self._wanted, new)
        out = np.full(len(name), -1, dtype=np.int32)
        rows = np.flatnonzero(self._wanted[name])
        if len(rows):
            out[rows] = slices.notes(
                rows.tolist(), name[rows].tolist(), lambda code, args: self._notes[_Row.of(code, args)]
            )
        return out

    def take(self, names: list[str]) -> list[CommNote]:
        """Return the notes in order of their codes."""
        return [self._note(names[row.name], row) for row in self._notes]

    def _note(self, name: str, row: _Row) -> CommNote:
        count = _whole(row.group_size)
        members = self._ranks(row.group_ranks, count, _whole(row.rank_start), _whole(row.rank_stride))
        count = count if count <= _MOST_RANKS else -1
        peers = _NAMED_SIZE.search(name)
        op = collective_op(row.collective or name) or ""
        source, target = row.source_rank, row.target_rank
        if peers and op in ("send", "recv"):
            source, target = (peers["from"], peers["to"]) if peers["way"] == "->" else (peers["to"], peers["from"])
        kind = element_type(row.element_type or _first_text(row.input_types))
        wide = element_bytes(kind)
        sizes = [_sized(_whole(n), wide) for n in (row.in_elements, row.out_elements)]
        return CommNote(
            op=op,
            in_bytes=sizes[0] if sizes[0] >= 0 else _bytes(row.input_dims, row.input_types),
            out_bytes=sizes[1],
            dtype=kind,
            group=row.group_name,
            group_text=row.group_text,
            ranks=members,
            group_size=count if count > 0 else len(members) or -1,
            source=_whole(source),
            target=_whole(target),
            sequence=_whole(row.comm_sequence),
            on_host=runs_on_host(name),
        )

    def _ranks(self, text: str, size: int, first: int, stride: int) -> tuple[int, ...]:
        """Return a group's ranks, one shared list for equal rows; if impossible, count them and return none."""
        key = text, f"{size} {first} {stride}"
        if key not in self._groups:
            found = _listed(text) if text and "..." not in text else ()
            if found is None or (not found and size > _MOST_RANKS):
                self.refused += 1
            self._groups[key] = found or self._spread(size, first, stride)
        return self._groups[key]

    def _spread(self, size: int, first: int, stride: int) -> tuple[int, ...]:
        """Return a group's ranks from start, stride and size: writers abbreviate lists of more than 30."""
        if size <= 0 or first < 0 or stride <= 0 or size > _MOST_RANKS:
            return ()
        if self._listed + size > _MOST_RANKS:
            self.refused += 1
            return ()
        self._listed += size
        return tuple(range(first, first + size * stride, stride))


def _whole(value: Any) -> int:
    number = whole(value)
    return -1 if number is None or not -1 <= number < 2**62 else number


def _sized(elements: int, width: int) -> int:
    return elements * width if width and 0 <= elements * width <= _MOST_BYTES else -1


def _listed(text: str) -> tuple[int, ...] | None:
    """Return the ranks of a list; None if one has more digits than any rank."""
    numbers = _NUMBERS.findall(text)
    return tuple(map(int, numbers)) if max(map(len, numbers), default=0) <= _RANK_DIGITS else None


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except (ValueError, RecursionError):
        return None


def _first_text(types: bytes) -> str:
    value = _json(types)
    while isinstance(value, list):
        value = next((v for v in value if v), "")
    return value if isinstance(value, str) and element_bytes(element_type(value)) else ""


def _bytes(dims: bytes, types: bytes) -> int:
    """Return the bytes of the first input (a tensor, or a list of them), -1 if its shape or type is unknown."""
    shape, kind = _json(dims), _json(types)
    if not isinstance(shape, list) or not isinstance(kind, list) or not shape or not kind:
        return -1
    first, typed = shape[0], kind[0]
    tensors = first if isinstance(first, list) and first and isinstance(first[0], list) else [first]
    size = element_bytes(element_type(str(typed)))
    if not size or not first:
        return -1
    total = 0
    for tensor in tensors:
        if not isinstance(tensor, list) or not all(isinstance(n, int) and n >= 0 for n in tensor):
            return -1
        # A product's digits add up: stop at the first impossible factor.
        if max(tensor, default=0) > _MOST_BYTES:
            return -1
        total += reduce(_times, tensor, size)
    return total if total <= _MOST_BYTES else -1


def _times(a: int, b: int) -> int:
    return min(a, _MOST_BYTES + 1) * b
