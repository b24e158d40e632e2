"""Signatures and operator sequences of module calls, grouped by module.

Traces hold the inputs of operators, not of modules. Unless an operator's output depends on data, the module's inputs
determine every shape inside; so the signature of a call comes from its operators, in order, up to the first
data-dependent output shape and up to where calls of the module begin to run different operators.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from hpuprof.analysis.modules import ModuleCalls
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.dynamic_ops import NOISE, OpHits
from hpuprof.model.arrays import Ints, distinct
from hpuprof.model.trace import Detail, Trace

_Kind = TypeVar("_Kind", list[Any], str)
MAX_CALLS = 50_000
"""Calls analyzed; longer recordings are cut to their first ones."""
_AT_ONCE = 1 << 18  # values compared at a time
_PREFIX_OPS = 64  # operators whose dimensions are compared to find the varying one
_TABLE_FIRST = ("aten::embedding", "aten::embedding_bag", "aten::_embedding_bag")  # the weight, then the input
_TYPE_BYTES = tuple(
    (re.compile(names), size)
    for names, size in (
        (r"\bchar$|^bool$|Float8_", 1),
        (r"Half$|BFloat16$|^short", 2),
        (r"complex<double>", 16),
        (r"^double$|^long|complex<float>", 8),
        (r"^float$|^int$", 4),
    )
)  # bytes per element by the profiler's type names; the first match counts


class ModuleShapes(msgspec.Struct, frozen=True, eq=False, dict=True):
    """Signatures of one module's calls, in order of arrival; empty if shapes were not recorded."""

    module: int
    calls: Ints  # positions in ModuleCalls
    keys: list[int]  # of each call: its shapes and strides; distinct ones count up from 0
    trace: Trace
    samples: list[Ints]  # per key: host rows of the operators that inputs determine, of its first call
    dtype_text: str = ""  # the data types seen, if they change under one key

    @property
    def varies(self) -> bool:
        """Whether calls have several signatures."""
        return len(self.samples) > 1

    @cached_property
    def _dimensions(self) -> list[list[_Dimension]]:
        most = None if self.varies else 1
        return [list(islice(_dimensions(self.trace, rows), most)) for rows in self.samples]

    @cached_property
    def _varying(self) -> tuple[int | None, str]:
        return _varying(self._dimensions)

    @property
    def varying(self) -> str:
        """The varying dimension, in words."""
        return self._varying[1]

    @property
    def texts(self) -> list[str]:
        """The signature of each key."""
        column = self._varying[0] or 0
        return [_text(found[column]) if found else "no tensors" for found in self._dimensions]

    @property
    def lengths(self) -> list[int]:
        """The one varying dimension of each key; empty if none or several vary."""
        column = self._varying[0]
        return [] if column is None else [found[column].shape[found[column].at] for found in self._dimensions]

    @property
    def input_bytes(self) -> list[int | None]:
        """Size of the first tensor input of the first operator, of each key."""
        return [_input_bytes(self.trace, rows) for rows in self.samples]


class _Dimension(NamedTuple):
    """One dimension of a tensor that an operator takes."""

    operator: str
    input: int
    shape: list[int]
    at: int


def parse(text: bytes | str, kind: type[_Kind]) -> _Kind:
    """Parse a recorded list or text; an empty one if it is something else."""
    try:
        found = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return kind()
    return found if isinstance(found, kind) else kind()


def detail_codes(details: list[Detail], column: str) -> Ints:
    """Return the code of one column for each detail; the last entry stands for -1."""
    codes: dict[bytes, int] = {}
    return np.array([*(codes.setdefault(getattr(d, column), len(codes)) for d in details), -1], dtype=np.int64)


@lru_cache(maxsize=4096)  # few shapes, many operators
def _tensors(dims: str) -> list[list[int]]:
    """Return the dimensions of each tensor in a recorded `Input Dims`, lists of tensors flattened."""
    out, rest = [], parse(dims, list)[::-1]
    while rest:
        entry = rest.pop()
        if isinstance(entry, list) and entry and all(isinstance(d, list) for d in entry):
            rest += entry[::-1]
        elif isinstance(entry, list):
            out.append([d for d in entry if isinstance(d, int)])
    return out


def module_shapes(view: RankView, calls: ModuleCalls, hits: OpHits) -> list[ModuleShapes]:
    """Return the signatures of every module's calls, recomputation in backward left out."""
    trace, host, rows = view.trace, view.trace.host, view.links.nesting.rows
    wanted = np.flatnonzero(~calls.recompute)[:MAX_CALLS]
    if not len(wanted):
        return []
    wanted = wanted[np.lexsort((calls.start[wanted], calls.module[wanted]))]
    starts = np.flatnonzero(np.append([True], np.diff(calls.module[wanted]) != 0))
    own = _OwnOperators.of(view, calls, wanted, hits)
    mine = rows[own.position]
    # One number per combination of shapes and strides, one more with data types.
    shape, detail = host.shape[mine].astype(np.int64), host.detail[mine].astype(np.int64)
    laid = shape * (len(trace.details) + 2) + detail_codes(trace.details, "strides")[detail]
    typed = laid * (len(trace.details) + 2) + detail_codes(trace.details, "types")[detail]
    prefix = alike_until(host.name[mine], own.low, own.count, starts)
    # An operator with a data-dependent output shape still has inputs that count; what follows does not.
    prefix = np.minimum(prefix, np.minimum.reduceat(own.until_dynamic, starts))
    calls_each = np.diff(starts, append=len(wanted))
    length = np.minimum(np.repeat(np.maximum(prefix, 1), calls_each), own.count)
    shaped = np.append([0], np.cumsum(shape >= 0))
    known = np.add.reduceat(shaped[own.low + length] - shaped[own.low], starts) > 0
    constant = alike_until(typed, own.low, length, starts) == np.maximum.reduceat(length, starts)
    out = []
    low, stop = own.low.tolist(), (own.low + length).tolist()
    groups = (starts, calls_each, calls.module[wanted[starts]], known, constant)
    for first, count, module, has_shapes, alike in zip(*(column.tolist() for column in groups), strict=True):
        which = wanted[first : first + count]
        if not has_shapes:
            out.append(ModuleShapes(module, which, [], trace, []))
        elif alike:
            out.append(ModuleShapes(module, which, [0] * count, trace, [mine[low[first] : stop[first]]]))
        else:
            spans = [slice(low[i], stop[i]) for i in range(first, first + count)]
            used = [mine[span] for span in spans]
            out.append(_signatures(trace, module, which, _keys(spans, laid), _keys(spans, typed), used))
    return out


class _OwnOperators(msgspec.Struct, frozen=True, eq=False):
    """Operators at the top of calls: those of call i are `position[low[i] : low[i] + count[i]]`, in links.nesting."""

    position: Ints
    low: Ints
    count: Ints
    until_dynamic: Ints  # how many there are to the first one with a data-dependent output shape, itself included

    @classmethod
    def of(cls, view: RankView, calls: ModuleCalls, wanted: Ints, hits: OpHits) -> _OwnOperators:
        nesting, dynamic = view.links.nesting, hits.dynamic
        size = len(nesting.rows)
        loud = np.flatnonzero(~view.trace.operators_named(NOISE.__contains__)[view.trace.host.name[nesting.rows]])
        # By depth, then place: what lies at one depth in a call is in one piece.
        key = np.sort(nesting.depth[loud] * size + loud)
        position = key % max(1, size)
        first, stop = calls.op_first[wanted], calls.op_stop[wanted]
        base = np.append(nesting.depth, 0)[first] * size
        low, high = np.searchsorted(key, base + first), np.searchsorted(key, base + stop)
        until = np.full(len(wanted), len(key))
        having = np.flatnonzero(high > low)
        inside = np.searchsorted(dynamic, position[low[having]])
        having, inside = having[inside < len(dynamic)], inside[inside < len(dynamic)]
        until[having] = np.searchsorted(key, base[having] + dynamic[inside], side="right") - low[having]
        return cls(position, low, high - low, until)


def alike_until(column: npt.NDArray[np.integer], low: Ints, count: Ints, starts: Ints) -> Ints:
    """Return by group of sequences how many leading values all of them share.

    Args:
        column: values.
        low: where each sequence begins in it.
        count: values of each.
        starts: first sequence of each group.
    """
    shared: Ints = np.minimum.reduceat(count, starts)
    group = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(low)))
    length, first = shared[group], low[starts][group]
    reach = np.cumsum(length)
    cuts = distinct(np.append(np.searchsorted(reach, np.arange(0, reach[-1], _AT_ONCE)), len(low)))
    for a, b in zip(cuts.tolist()[:-1], cuts.tolist()[1:], strict=True):
        each = length[a:b]
        at = np.arange(int(each.sum())) - np.repeat(reach[a:b] - reach[a] - each + each[0], each)
        unlike = np.flatnonzero(column[np.repeat(low[a:b], each) + at] != column[np.repeat(first[a:b], each) + at])
        np.minimum.at(shared, np.repeat(group[a:b], each)[unlike], at[unlike])
    return shared


def _keys(spans: list[slice], column: Ints) -> list[int]:
    codes: dict[bytes, int] = {}
    return [codes.setdefault(column[span].tobytes(), len(codes)) for span in spans]


def _signatures(
    trace: Trace, module: int, calls: Ints, keys: list[int], typed: list[int], used: list[Ints]
) -> ModuleShapes:
    """Describe one module. `typed`: keys with data types; `used`: host rows of the operators that inputs determine."""
    first = dict(zip(reversed(keys), reversed(range(len(keys))), strict=True))
    samples = [used[first[key]] for key in range(len(first))]
    types = _types(trace, keys, used) if len(set(typed)) > len(set(keys)) else ""
    return ModuleShapes(module, calls, keys, trace, samples, types)


def _text(dimension: _Dimension) -> str:
    return f"{dimension.operator} {'×'.join(str(d) for d in dimension.shape)}"


def _dimensions(trace: Trace, rows: Ints) -> Iterator[_Dimension]:
    """Yield all dimensions of the tensors that the operators take."""
    host = trace.host
    for row in rows[:_PREFIX_OPS].tolist():
        if host.shape[row] >= 0:
            for number, tensor in enumerate(_tensors(trace.shapes[host.shape[row]])):
                for at in range(len(tensor)):
                    yield _Dimension(trace.names[host.name[row]], number, tensor, at)


def _varying(samples: list[list[_Dimension]]) -> tuple[int | None, str]:
    """Return the index and place of the dimension that alone distinguishes the signatures, if there is one."""
    if len(samples) < 2:
        return None, ""
    if len({len(found) for found in samples}) > 1:
        return None, "the number of dimensions changes"
    table = np.array([[d.shape[d.at] for d in found] for found in samples], dtype=np.int64)
    changing = np.flatnonzero((table != table[0]).any(axis=0))
    if not len(changing):
        return None, "strides change"
    first = int(changing[0])
    place = samples[0][first]
    text = f"dimension {place.at} of input {place.input} of {place.operator}"
    alone = len(distinct(table[:, first])) == len(samples)
    return (first, text) if alone else (None, f"{text}, and others independently")


def _input_bytes(trace: Trace, rows: Ints) -> int | None:
    """Return the size of the first tensor input of a call's operators."""
    host = trace.host
    for row in rows:  # mostly the first one shows
        shape, detail = int(host.shape[row]), int(host.detail[row])
        if shape < 0 or detail < 0:
            continue
        table = trace.names[host.name[row]] in _TABLE_FIRST
        size = _first_bytes(trace.shapes[shape], trace.details[detail].types, int(table))
        if size is not None:
            return size
    return None


@lru_cache(maxsize=4096)
def _first_bytes(dims: str, types: bytes, leave: int) -> int | None:
    """Return the size of the first tensor of recorded inputs, some left out."""
    for tensor, kind in list(zip(parse(dims, list), parse(types, list), strict=False))[leave:]:
        size = next((size for names, size in _TYPE_BYTES if names.search(str(kind))), 0)
        if size and isinstance(tensor, list) and tensor and all(isinstance(d, int) for d in tensor):
            return int(np.prod(tensor, dtype=np.int64)) * size
    return None


def _types(trace: Trace, keys: list[int], used: list[Ints]) -> str:
    """Return the types of the first input of the calls of one key that has several."""
    seen: dict[int, dict[str, None]] = {}
    for key, rows in zip(keys, used, strict=True):
        detail = int(trace.host.detail[rows[0]]) if len(rows) else -1
        kinds = parse(trace.details[detail].types, list) if detail >= 0 else []
        seen.setdefault(key, {})[str(kinds[0]) if kinds else "?"] = None
    return next((", ".join(kinds) for kinds in seen.values() if len(kinds) > 1), "inside the module")
