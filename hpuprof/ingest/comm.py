"""What rows tell of collectives: operation, size, process group, peers. Collects arguments; the words are in `dialects`."""

from __future__ import annotations

import json
import re
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from hpuprof.ingest import dialects
from hpuprof.ingest.columns import Interner, whole
from hpuprof.ingest.wire import Args
from hpuprof.model.arrays import Codes
from hpuprof.model.trace import CommNote

_NUMBERS = re.compile(r"\d+")
_NAMED_SIZE = re.compile(r"(?<!\d)(?P<from>\d+)\s*(?P<way>->|<-)\s*(?P<to>\d+)")
"""Point-to-point annotations name their peers: `nccl:send 0->1`, `nccl:recv 1<-0`."""
_MOST_RANKS = 1 << 18
"""Ranks of a group, and of all groups together that a file tells by start, stride and size: the largest jobs that were told of
have some 10^5 accelerators, and a few digits in a file must not decide how long a list becomes."""
_RANK_DIGITS = 9
_MOST_BYTES = 1 << 44
"""16 TiB: a message holds no more than the memory of a device; times the ranks of a group it still fits into 64 bits."""


class CommNotes:
    """Collect the arguments of rows that belong to collectives; all other rows cost one look-up in numpy."""

    def __init__(self) -> None:
        self._wanted = np.zeros(0, dtype=bool)  # by code of a name
        self._notes = Interner()
        self.refused = 0  # groups whose ranks cannot be true
        self._listed = 0
        self._groups: dict[tuple[str, int, int, int], tuple[int, ...]] = {}

    def codes(self, names: Interner, name: npt.NDArray[Any], args: list[Args]) -> Codes:
        """Return the code of each row's note, -1 for rows that belong to no collective; shape `(rows,)`."""
        if len(self._wanted) < len(names):
            new = [isinstance(n, str) and dialects.is_collective(n) for n in names.since(len(self._wanted))]
            self._wanted = np.append(self._wanted, new)
        out = np.full(len(name), -1, dtype=np.int32)
        rows = np.flatnonzero(self._wanted[name])
        for row in rows.tolist():
            a = args[row]
            key = (
                int(name[row]),
                *map(
                    _plain,
                    (
                        a.collective,
                        a.in_elements,
                        a.out_elements,
                        a.element_type,
                        a.group_name,
                        a.group_text,
                        a.group_ranks,
                        a.group_size,
                        a.rank_start,
                        a.rank_stride,
                        a.source_rank,
                        a.target_rank,
                        a.comm_sequence,
                    ),
                ),
                bytes(a.input_dims),
                bytes(a.input_types),
            )
            out[row] = self._notes[key]
        return out

    def take(self, names: list[str]) -> list[CommNote]:
        """Return the notes in order of their codes."""
        return [self._note(names[key[0]], *key[1:]) for key in self._notes]

    def _note(
        self,
        name: str,
        collective: Any,
        inside: Any,
        outside: Any,
        dtype: Any,
        group: Any,
        text: Any,
        ranks: Any,
        size: Any,
        first: Any,
        stride: Any,
        source: Any,
        target: Any,
        sequence: Any,
        dims: bytes,
        types: bytes,
    ) -> CommNote:
        count = _whole(size)
        members = self._ranks(str(ranks), count, _whole(first), _whole(stride))
        count = count if count <= _MOST_RANKS else -1
        peers = _NAMED_SIZE.search(name)
        op = dialects.collective_op(str(collective) or name) or ""
        if peers and op in ("send", "recv"):
            source, target = (peers["from"], peers["to"]) if peers["way"] == "->" else (peers["to"], peers["from"])
        kind = dialects.element_type(str(dtype) or _first_text(types))
        wide = dialects.element_bytes(kind)
        sizes = [_sized(_whole(n), wide) for n in (inside, outside)]
        return CommNote(
            op=op,
            in_bytes=sizes[0] if sizes[0] >= 0 else _bytes(dims, types),
            out_bytes=sizes[1],
            dtype=kind,
            group=str(group),
            group_text=str(text),
            ranks=members,
            group_size=count if count > 0 else len(members) or -1,
            source=_whole(source),
            target=_whole(target),
            sequence=_whole(sequence),
            on_host=dialects.runs_on_host(name),
        )

    def _ranks(self, text: str, size: int, first: int, stride: int) -> tuple[int, ...]:
        """Return a group's ranks, one list for all rows that tell the same; none, and counted, where they cannot be true."""
        key = text, size, first, stride
        if key not in self._groups:
            found = _listed(text) if text and "..." not in text else ()
            if found is None or (not found and size > _MOST_RANKS):
                self.refused += 1
            self._groups[key] = found or self._spread(size, first, stride)
        return self._groups[key]

    def _spread(self, size: int, first: int, stride: int) -> tuple[int, ...]:
        """Return the ranks of a group that start, stride and size tell: lists of more than 30 are written shortened."""
        if size <= 0 or first < 0 or stride <= 0 or size > _MOST_RANKS:
            return ()
        if self._listed + size > _MOST_RANKS:
            self.refused += 1
            return ()
        self._listed += size
        return tuple(range(first, first + size * stride, stride))


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) else str(value)


def _whole(value: Any) -> int:
    number = whole(value)
    return -1 if number is None or not -1 <= number < 2**62 else number


def _sized(elements: int, width: int) -> int:
    return elements * width if width and 0 <= elements * width <= _MOST_BYTES else -1


def _listed(text: str) -> tuple[int, ...] | None:
    """Return the ranks of a list; None where one has more digits than any rank."""
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
    return value if isinstance(value, str) and dialects.element_bytes(dialects.element_type(value)) else ""


def _bytes(dims: bytes, types: bytes) -> int:
    """Return the bytes of the first input (a tensor, or a list of them), -1 when its shape or type is unknown."""
    shape, kind = _json(dims), _json(types)
    if not isinstance(shape, list) or not isinstance(kind, list) or not shape or not kind:
        return -1
    first, typed = shape[0], kind[0]
    tensors = first if isinstance(first, list) and first and isinstance(first[0], list) else [first]
    size = dialects.element_bytes(dialects.element_type(str(typed)))
    if not size or not first:
        return -1
    total = 0
    for tensor in tensors:
        if not isinstance(tensor, list) or not all(isinstance(n, int) and n >= 0 for n in tensor):
            return -1
        # Digits of a product add up: one factor that cannot be true ends it.
        if max(tensor, default=0) > _MOST_BYTES:
            return -1
        total += reduce(_times, tensor, size)
    return total if total <= _MOST_BYTES else -1


def _times(a: int, b: int) -> int:
    return min(a, _MOST_BYTES + 1) * b
