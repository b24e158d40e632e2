"""Signatures and operator sequences of module calls, grouped by module.

Traces hold the inputs of operators, not of modules. Unless an operator's output depends on data, the module's inputs
determine every shape inside; so the signature of a call comes from its operators, in order, up to the first
data-dependent output shape and up to where calls of the module begin to run different operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from hpuprof.analysis.groups import members
from hpuprof.analysis.modules import ModuleCalls
from hpuprof.analysis.rank_view import RankView
from hpuprof.graph_mode.dynamic_ops import NOISE, SHAPE_AND_READ_RULES, OpHits, named
from hpuprof.model.arrays import Ints
from hpuprof.model.trace import Detail, Trace

MAX_CALLS = 50_000
"""Calls analysed; longer recordings are cut to their first ones."""
_PREFIX_OPS = 64  # operators whose dimensions are compared to find the varying one
_TABLE_FIRST = frozenset(
    {"aten::embedding", "aten::embedding_bag", "aten::_embedding_bag"}
)  # the weight, then the input
TYPE_BYTES = {
    name: size
    for size, names in {
        1: ("unsigned char", "signed char", "bool", "c10::Float8_e4m3fn", "c10::Float8_e5m2"),
        2: ("c10::Half", "c10::BFloat16", "short", "short int"),
        4: ("float", "int"),
        8: ("double", "long int", "long", "c10::complex<float>"),
        16: ("c10::complex<double>",),
    }.items()
    for name in names
}
"""Bytes per element by the profiler's type names."""


@dataclass(frozen=True, eq=False)
class Roots:
    """A call's operators that lie in no other operator of the call: positions in links.nesting, per call."""

    position: list[Ints]
    owner: Ints  # innermost call around each operator of links.nesting, -1 for none
    depth: Ints  # of each operator of links.nesting


@dataclass(frozen=True, eq=False)
class ModuleShapes:
    """Signatures of one module's calls, in order of arrival. Keys are None if shapes were not recorded."""

    module: int
    calls: Ints  # positions in ModuleCalls
    keys: list[int] | None  # shapes and strides; equal numbers mean equal signatures
    texts: list[str]  # per distinct key
    lengths: Ints | None  # per call, the one varying dimension; None if none or several vary
    varying: str  # the varying dimension, in words
    input_bytes: list[int | None]  # per distinct key: first tensor input of the first operator
    dtype_text: str  # the data types seen, if they change under one key


def find_roots(view: RankView, calls: ModuleCalls) -> Roots:
    """Return the outermost operators of each call."""
    nesting = view.links.nesting
    depth = nesting.depth
    none = np.empty(0, dtype=np.int64)
    position = [none] * len(calls)
    has = np.flatnonzero(calls.op_stop > calls.op_first)
    # Sorted by level, then place, so that a call's operators of one level are a range.
    count = len(depth) + 1
    order = np.argsort(depth, kind="stable")
    keys = depth[order] * count + order
    base = depth[calls.op_first[has]] * count
    first, stop = np.searchsorted(keys, base + calls.op_first[has]), np.searchsorted(keys, base + calls.op_stop[has])
    for call, a, b in zip(has.tolist(), first.tolist(), stop.tolist(), strict=True):
        position[call] = order[a:b]
    return Roots(position, calls.nesting.innermost(nesting.track, nesting.start), depth)


def parse(text: bytes | str) -> Any:
    """Parse a recorded list; an empty list if it is not one."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return []


def detail_codes(details: list[Detail], column: str) -> Ints:
    """Return the code of one column for each detail; the last entry stands for -1."""
    codes: dict[bytes, int] = {}
    return np.array([*(codes.setdefault(getattr(d, column), len(codes)) for d in details), -1], dtype=np.int64)


def flat_dims(dims: Any) -> list[list[int]]:
    """Return the dimensions of each tensor in a recorded `Input Dims`, lists of tensors flattened."""
    out: list[list[int]] = []
    for entry in dims if isinstance(dims, list) else []:
        if isinstance(entry, list) and entry and all(isinstance(d, list) for d in entry):
            out += flat_dims(entry)
        elif isinstance(entry, list):
            out.append([d for d in entry if isinstance(d, int)])
    return out


def module_shapes(view: RankView, calls: ModuleCalls, roots: Roots, hits: OpHits) -> list[ModuleShapes]:
    """Return the signatures of every module's calls, recomputation in backward left out."""
    trace, host, rows = view.trace, view.trace.host, view.links.nesting.rows
    name = host.name[rows].astype(np.int64)
    shape = host.shape[rows].astype(np.int64)
    detail = host.detail[rows].astype(np.int64)
    # One number per combination of shapes and strides, one more with data types.
    laid = shape * (len(trace.details) + 2) + detail_codes(trace.details, "strides")[detail]
    typed = laid * (len(trace.details) + 2) + detail_codes(trace.details, "types")[detail]
    quiet = named(trace, NOISE)[name]
    dynamic = hits.position[[SHAPE_AND_READ_RULES[i].code == "HP301" for i in hits.rule.tolist()]]
    columns = _Columns(trace, rows, shape, laid, typed)
    out = []
    wanted = np.flatnonzero(~calls.recompute)[:MAX_CALLS]
    for module, places in members(calls.module[wanted]):
        mine = wanted[places]
        mine = mine[np.argsort(calls.start[mine], kind="stable")]
        operators = [p[~quiet[p]] for p in (roots.position[c] for c in mine.tolist())]
        prefix = common_prefix([name[p] for p in operators])
        for p in operators:
            # An operator with a data-dependent output shape still has inputs that count; what follows does not.
            inside = int(np.searchsorted(dynamic, p[0])) if len(p) else len(dynamic)
            if inside < len(dynamic):
                prefix = min(prefix, int(np.searchsorted(p, dynamic[inside], side="right")))
        used = [p[: max(prefix, 1)] for p in operators]
        recorded = any((shape[p] >= 0).any() for p in used)
        out.append(
            _one(columns, module, mine, used) if recorded else ModuleShapes(module, mine, None, [], None, "", [], "")
        )
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


@dataclass(frozen=True, eq=False)
class _Columns:
    """Recorded attributes of each operator of links.nesting, as codes of shape `(operators,)`."""

    trace: Trace
    rows: Ints  # host rows
    shape: Ints
    laid: Ints  # shapes and strides
    typed: Ints  # as `laid`, data types included


def _one(columns: _Columns, module: int, calls: Ints, used: list[Ints]) -> ModuleShapes:
    """Return the signatures of one module; `used`: the operators of each call that its inputs determine."""
    trace, rows, shape = columns.trace, columns.rows, columns.shape
    keys, typed = _keys(used, columns.laid), _keys(used, columns.typed)
    first_seen: dict[int, int] = {}
    for i, key in enumerate(keys):
        first_seen.setdefault(key, i)
    samples = [used[i] for i in first_seen.values()]
    dims = [
        [
            (trace.names[int(trace.host.name[rows[p]])], flat_dims(parse(trace.shapes[int(shape[p])])))
            for p in s[:_PREFIX_OPS]
            if shape[p] >= 0
        ]
        for s in samples
    ]
    column, varying = _varying(dims)
    lengths = None
    if column is not None:
        by_key = {key: _vector(d)[column] for key, d in zip(first_seen, dims, strict=True)}
        lengths = np.array([by_key[k] for k in keys], dtype=np.int64)
    texts = [_text(d, column) for d in dims]
    sizes = [_input_bytes(trace, s, rows, shape) for s in samples]
    types = _types_text(trace, used, rows, keys) if len(set(typed)) > len(set(keys)) else ""
    return ModuleShapes(module, calls, keys, texts, lengths, varying, sizes, types)


def _keys(used: list[Ints], column: Ints) -> list[int]:
    codes: dict[bytes, int] = {}
    return [codes.setdefault(column[p].tobytes(), len(codes)) for p in used]


def _vector(dims: list[tuple[str, list[list[int]]]]) -> list[int]:
    return [d for _, tensors in dims for tensor in tensors for d in tensor]


def _places(dims: list[tuple[str, list[list[int]]]]) -> list[str]:
    return [
        f"dimension {d} of input {i} of {name}"
        for name, tensors in dims
        for i, tensor in enumerate(tensors)
        for d in range(len(tensor))
    ]


def _varying(dims: list[list[tuple[str, list[list[int]]]]]) -> tuple[int | None, str]:
    """Return the index and place of the dimension that alone distinguishes the signatures, if there is one."""
    if len(dims) < 2:
        return None, ""
    vectors = [_vector(d) for d in dims]
    if len({len(v) for v in vectors}) > 1:
        return None, "the number of dimensions changes"
    table = np.array(vectors, dtype=np.int64)
    changing = np.flatnonzero((table != table[0]).any(axis=0))
    if not len(changing):
        return None, "strides change"
    first = int(changing[0])
    place = _places(dims[0])[first]
    if len(np.unique(table[:, first])) == len(dims):
        return first, place
    return None, f"{place}, and others independently"


def _text(dims: list[tuple[str, list[list[int]]]], column: int | None) -> str:
    """Write the tensor that distinguishes a signature, else the first one."""
    at = 0
    first = ""
    for name, tensors in dims:
        for tensor in tensors:
            text = f"{name} {'×'.join(str(d) for d in tensor)}"
            if tensor and not first:
                first = text
            if column is not None and at <= column < at + len(tensor):
                return text
            at += len(tensor)
    return first or "no tensors"


def _input_bytes(trace: Trace, used: Ints, rows: Ints, shape: Ints) -> int | None:
    """Return the size of the first tensor input of a call's operators."""
    for p in used.tolist():
        detail = int(trace.host.detail[rows[p]])
        if shape[p] < 0 or detail < 0:
            continue
        dims, types = parse(trace.shapes[int(shape[p])]), parse(trace.details[detail].types)
        if not isinstance(dims, list) or not isinstance(types, list):
            continue
        table = trace.names[int(trace.host.name[rows[p]])] in _TABLE_FIRST
        for tensor, kind in list(zip(dims, types, strict=False))[table:]:
            if isinstance(tensor, list) and tensor and all(isinstance(d, int) for d in tensor) and kind in TYPE_BYTES:
                return int(np.prod(tensor, dtype=np.int64)) * TYPE_BYTES[kind]
    return None


def _types_text(trace: Trace, used: list[Ints], rows: Ints, keys: list[int]) -> str:
    seen: dict[int, dict[str, None]] = {}
    for key, p in zip(keys, used, strict=True):
        for position in p[:1].tolist():
            detail = int(trace.host.detail[rows[position]])
            kinds = parse(trace.details[detail].types) if detail >= 0 else []
            seen.setdefault(key, {})[str(kinds[0]) if kinds else "?"] = None
    return next((", ".join(kinds) for kinds in seen.values() if len(kinds) > 1), "inside the module")
