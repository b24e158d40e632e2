"""Signatures and operator sequences of module calls, grouped by module.

Traces hold the inputs of operators, not of modules. Unless an operator's output depends on data, the module's inputs
determine every shape inside; so the signature of a call comes from its operators, in order, up to the first
data-dependent output shape and up to where calls of the module begin to run different operators.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from hpuprof.analysis.groups import members
from hpuprof.analysis.modules import ModuleCalls
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.dynamic_ops import NOISE, OpHits
from hpuprof.model.arrays import Ints
from hpuprof.model.trace import Detail, Trace

_Kind = TypeVar("_Kind", list[Any], str)
MAX_CALLS = 50_000
"""Calls analysed; longer recordings are cut to their first ones."""
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


@dataclass(frozen=True, eq=False)
class ModuleShapes:
    """Signatures of one module's calls, in order of arrival; empty if shapes were not recorded."""

    module: int
    calls: Ints  # positions in ModuleCalls
    keys: list[int]  # of each call: its shapes and strides; distinct ones count up from 0
    texts: list[str]  # per key
    lengths: list[int]  # per key: the one varying dimension; empty if none or several vary
    varying: str  # the varying dimension, in words
    input_bytes: list[int | None]  # per key: first tensor input of the first operator
    dtype_text: str  # the data types seen, if they change under one key

    @property
    def varies(self) -> bool:
        """Whether calls have several signatures."""
        return len(self.texts) > 1


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
    name = host.name[rows].astype(np.int64)
    quiet = trace.named(NOISE.__contains__)[name]
    dynamic = hits.dynamic
    # One number per combination of shapes and strides, one more with data types.
    shape, detail = host.shape[rows].astype(np.int64), host.detail[rows].astype(np.int64)
    laid = shape * (len(trace.details) + 2) + detail_codes(trace.details, "strides")[detail]
    typed = laid * (len(trace.details) + 2) + detail_codes(trace.details, "types")[detail]
    depth = view.links.nesting.depth
    out = []
    wanted = np.flatnonzero(~calls.recompute)[:MAX_CALLS]
    for module, places in members(calls.module[wanted]):
        mine = wanted[places]
        mine = mine[np.argsort(calls.start[mine], kind="stable")]
        spans = (np.arange(a, b) for a, b in zip(calls.op_first[mine], calls.op_stop[mine], strict=True))
        operators = [p[(depth[p] == depth[p[:1]]) & ~quiet[p]] for p in spans]
        prefix = common_prefix([name[p] for p in operators])
        for p in operators:
            # An operator with a data-dependent output shape still has inputs that count; what follows does not.
            inside = int(np.searchsorted(dynamic, p[0])) if len(p) else len(dynamic)
            if inside < len(dynamic):
                prefix = min(prefix, int(np.searchsorted(p, dynamic[inside], side="right")))
        used = [p[: max(prefix, 1)] for p in operators]
        if any((shape[p] >= 0).any() for p in used):
            out.append(_signatures(trace, module, mine, _keys(used, laid), _keys(used, typed), [rows[p] for p in used]))
        else:
            out.append(ModuleShapes(module, mine, [], [], [], "", [], ""))
    return out


def common_prefix(sequences: list[Ints]) -> int:
    """Return how many leading elements all sequences share."""
    if not sequences:
        return 0
    first = sequences[0]
    shared = len(first)
    for other in sequences[1:]:
        shared = min(shared, len(other))
        differ = np.flatnonzero(first[:shared] != other[:shared])
        if len(differ):
            shared = int(differ[0])
    return shared


def _keys(used: list[Ints], column: Ints) -> list[int]:
    codes: dict[bytes, int] = {}
    return [codes.setdefault(column[p].tobytes(), len(codes)) for p in used]


def _signatures(
    trace: Trace, module: int, calls: Ints, keys: list[int], typed: list[int], used: list[Ints]
) -> ModuleShapes:
    """Describe one module. `typed`: keys with data types; `used`: host rows of the operators that inputs determine."""
    samples = [used[i] for i in np.unique(keys, return_index=True)[1].tolist()]
    dimensions = [_dimensions(trace, rows) for rows in samples]
    column, varying = _varying(dimensions)
    return ModuleShapes(
        module=module,
        calls=calls,
        keys=keys,
        texts=[_text(found[column or 0]) if found else "no tensors" for found in dimensions],
        lengths=[] if column is None else [found[column].shape[found[column].at] for found in dimensions],
        varying=varying,
        input_bytes=[_input_bytes(trace, rows) for rows in samples],
        dtype_text=_types(trace, keys, used) if len(set(typed)) > len(set(keys)) else "",
    )


def _text(dimension: _Dimension) -> str:
    return f"{dimension.operator} {'×'.join(str(d) for d in dimension.shape)}"


def _dimensions(trace: Trace, rows: Ints) -> list[_Dimension]:
    """Return all dimensions of the tensors that the operators take."""
    host = trace.host
    return [
        _Dimension(trace.names[host.name[row]], number, tensor, at)
        for row in rows[:_PREFIX_OPS].tolist()
        if host.shape[row] >= 0
        for number, tensor in enumerate(_tensors(trace.shapes[host.shape[row]]))
        for at in range(len(tensor))
    ]


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
    alone = len(np.unique(table[:, first])) == len(samples)
    return (first, text) if alone else (None, f"{text}, and others independently")


def _input_bytes(trace: Trace, rows: Ints) -> int | None:
    """Return the size of the first tensor input of a call's operators."""
    host = trace.host
    for row in rows[(host.shape[rows] >= 0) & (host.detail[rows] >= 0)].tolist():
        dims, types = parse(trace.shapes[host.shape[row]], list), parse(trace.details[host.detail[row]].types, list)
        table = trace.names[host.name[row]] in _TABLE_FIRST
        for tensor, kind in list(zip(dims, types, strict=False))[table:]:
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
