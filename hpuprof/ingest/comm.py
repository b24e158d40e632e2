"""What rows tell of collectives: operation, size, process group, peers. Collects arguments; the words are in `dialects`."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from hpuprof.ingest import dialects
from hpuprof.ingest.columns import Interner, whole
from hpuprof.ingest.wire import Args
from hpuprof.model.trace import Codes, CommNote

_NUMBERS = re.compile(r"\d+")
_NAMED_SIZE = re.compile(r"(?P<from>\d+)\s*(?P<way>->|<-)\s*(?P<to>\d+)")
"""Point-to-point annotations name their peers: `nccl:send 0->1`, `nccl:recv 1<-0`."""


class CommNotes:
    """Collect the arguments of rows that belong to collectives; all other rows cost one look-up in numpy."""

    def __init__(self) -> None:
        self._wanted = np.zeros(0, dtype=bool)  # by code of a name
        self._notes = Interner()

    def codes(self, names: Interner, name: npt.NDArray[Any], args: list[Args]) -> Codes:
        """Return the code of each row's note, -1 for rows that belong to no collective; shape `(rows,)`."""
        if len(self._wanted) < len(names):
            new = [isinstance(n, str) and dialects.is_collective(n) for n in islice(names, len(self._wanted), None)]
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
        return [_note(names[key[0]], *key[1:]) for key in self._notes]


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float)) else str(value)


def _note(
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
    members = _members(str(ranks), count, _whole(first), _whole(stride))
    peers = _NAMED_SIZE.search(name)
    op = dialects.collective_op(str(collective) or name) or ""
    if peers and op in ("send", "recv"):
        source, target = (peers["from"], peers["to"]) if peers["way"] == "->" else (peers["to"], peers["from"])
    kind = dialects.element_type(str(dtype) or _first_text(types))
    wide = dialects.element_bytes(kind)
    sizes = [_whole(n) * wide if wide and _whole(n) >= 0 else -1 for n in (inside, outside)]
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


def _whole(value: Any) -> int:
    number = whole(value)
    return -1 if number is None or not -1 <= number < 2**62 else number


def _members(text: str, size: int, first: int, stride: int) -> tuple[int, ...]:
    """Return a group's ranks; a list of more than 30 is written shortened, then start, stride and size tell it."""
    if text and "..." not in text:
        found = tuple(int(n) for n in _NUMBERS.findall(text))
        if found:
            return found
    if size > 0 and first >= 0 and stride > 0:
        return tuple(range(first, first + size * stride, stride))
    return ()


def _json(raw: bytes) -> Any:
    try:
        return json.loads(raw) if raw else None
    except ValueError:
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
        total += int(np.prod(tensor, dtype=np.int64)) * size
    return total
