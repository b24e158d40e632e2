"""The compact form of a `RankPartial`: what travels from workers and lies in the cache. Owns the bytes, knows no table by name.

Each table (a field that is a list of structs) becomes a section of its own: columns, integers as differences in the fewest
bytes that hold them, bytes of equal weight side by side, repeated text as numbers into a list, then zlib. A section is
decoded when it is asked for, so that combining a thousand ranks need not build rows that nobody looks at. Everything else
goes into one small section. Decoding gives back equal values of equal types, to the last bit of a float.

A change of the layout raises `CODEC_VERSION`; a change of a table's columns is noticed by their names.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin, overload

import msgspec
import numpy as np
import numpy.typing as npt

from hpuprof.model.arrays import Ints, Mask
from hpuprof.model.partial import RankPartial

CODEC_VERSION = 1
MAGIC = b"hpupart"
_LEVEL = 6  # of zlib: 9 takes twice as long for 1 % less
_CONSTANT, _INTEGERS, _FLOATS, _WHOLE_FLOATS, _TEXTS, _OPTIONAL, _BOOLS, _SCALARS, _NESTED, _HUGE = range(10)
_SCALAR_TYPES = (bool, int, float, str, type(None))

Column = list[Any]

# msgspec learns a struct's fields when it is first asked to decode one; threads that ask at once crash the process now and
# then (seen with 0.22.0 where eight threads look entries up).
_TYPED = threading.Lock()


class CodecError(ValueError):
    """The bytes are no partial, or one of another version."""


def _table_types() -> dict[str, type[msgspec.Struct]]:
    """Return the row type of each field of a partial that is a table."""
    found = {}
    for field in msgspec.structs.fields(RankPartial):
        arguments = get_args(field.type)
        if (
            get_origin(field.type) is list
            and isinstance(arguments[0], type)
            and issubclass(arguments[0], msgspec.Struct)
        ):
            found[field.name] = arguments[0]
    return found


@lru_cache(maxsize=1)
def table_types() -> Mapping[str, type[msgspec.Struct]]:
    """Return the row type of each table of a partial, in the order of its fields."""
    return _table_types()


@cache
def _kinds(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the type of each field; msgspec evaluates annotations anew at each question."""
    return {field.name: field.type for field in msgspec.structs.fields(struct)}


# ------------------------------------------------------------------------------------------------------------------ values


def _dump(value: Any) -> tuple[int, Any]:
    """Encode any value; msgpack ends at 64 bits, so longer integers go through JSON."""
    try:
        return _NESTED, msgspec.msgpack.encode(value)
    except OverflowError:
        return _HUGE, json.dumps(msgspec.to_builtins(value)).encode()


def _load(kind: int, text: bytes, kind_of: Any) -> Any:
    if kind == _HUGE:
        return msgspec.convert(json.loads(text), kind_of)
    with _TYPED:
        return msgspec.msgpack.decode(text, type=kind_of)


def _integers(values: Ints) -> list[Any]:
    """Encode whole numbers as they are or as differences (modulo 2**64), whichever needs fewer bytes each."""
    steps = np.diff(values, prepend=np.int64(0))
    plain, stepped = _width(values), _width(steps)
    chosen, width = (steps, stepped) if stepped < plain else (values, plain)
    narrow = chosen.astype(f"<i{width}")
    return [int(stepped < plain), width, _planes(narrow, width)]


def _width(values: Ints) -> int:
    low, high = int(values.min()), int(values.max())
    return next(w for w in (1, 2, 4, 8) if -(1 << (8 * w - 1)) <= low and high < 1 << (8 * w - 1))


def _planes(values: npt.NDArray[Any], width: int) -> bytes:
    """Put bytes of equal weight side by side; zlib finds more there."""
    return cast(bytes, values.view(np.uint8).reshape(-1, width).T.tobytes())


def _unplanes(text: bytes, kind: str, width: int) -> npt.NDArray[Any]:
    lanes = np.frombuffer(text, np.uint8).reshape(width, -1)
    return np.ascontiguousarray(lanes.T).view(kind).ravel()


def _whole(coded: Sequence[Any]) -> Ints:
    differences, width, text = coded
    values = _unplanes(text, f"<i{width}", width).astype(np.int64)
    return np.cumsum(values, dtype=np.int64) if differences else values


# ----------------------------------------------------------------------------------------------------------------- columns


def _encode_column(values: Column) -> list[Any]:
    """Encode one column of a table, at least one value long."""
    kinds = set(map(type, values))
    if len(kinds) == 1 and not kinds - set(_SCALAR_TYPES):
        kind = next(iter(kinds))
        if kind is not float and values.count(values[0]) == len(values) and not _is_huge(values[0]):
            return [_CONSTANT, values[0]]
        return _encode_alike(values, kind)
    if len(kinds) == 2 and type(None) in kinds and not kinds - set(_SCALAR_TYPES):
        present = [v is not None for v in values]
        mask = np.packbits(np.array(present)).tobytes()
        return [_OPTIONAL, len(values), mask, _encode_column([v for v in values if v is not None])]
    kind_of, text = _dump(values)
    # Mixed scalars come back as they were; nested values need the column's type to become structs and tuples again.
    return [_SCALARS if kind_of == _NESTED and kinds <= set(_SCALAR_TYPES) else kind_of, text]


def _is_huge(value: Any) -> bool:
    return type(value) is int and not -(1 << 63) <= value < 1 << 63


def _encode_alike(values: Column, kind: type) -> list[Any]:
    if kind is int:
        if _is_huge(min(values)) or _is_huge(max(values)):
            return [_HUGE, json.dumps(values).encode()]
        return [_INTEGERS, _integers(np.array(values, dtype=np.int64))]
    if kind is float:
        numbers = np.array(values, dtype="<f8")
        with np.errstate(invalid="ignore"):
            whole = numbers.astype(np.int64) if np.all(np.abs(numbers) < 2**53) else None
        if whole is not None and np.array_equal(whole.astype("<f8").view(np.int64), numbers.view(np.int64)):
            return [_WHOLE_FLOATS, _integers(whole)]
        return [_FLOATS, _planes(numbers, 8)]
    if kind is bool:
        return [_BOOLS, len(values), np.packbits(np.array(values)).tobytes()]
    texts = list(dict.fromkeys(values))
    place = {text: i for i, text in enumerate(texts)}
    return [_TEXTS, texts, _integers(np.array([place[v] for v in values], dtype=np.int64))]


def _decode_column(coded: Sequence[Any], count: int, kind_of: Any, types: frozenset[type] | None = None) -> Column:
    """Return the values of a column. `types`: those that its scalars must be of; nested ones are, because msgspec decodes them so."""
    values = _values(coded, count, kind_of)
    if types is not None and coded[0] not in (_NESTED, _HUGE) and not types.issuperset(map(type, values)):
        raise CodecError("a column with values of another type")
    return values


def _values(coded: Sequence[Any], count: int, kind_of: Any) -> Column:
    kind = coded[0]
    if kind == _CONSTANT:
        return [coded[1]] * count
    if kind == _INTEGERS:
        return cast(Column, _whole(coded[1]).tolist())
    if kind == _WHOLE_FLOATS:
        return cast(Column, _whole(coded[1]).astype(np.float64).tolist())
    if kind == _FLOATS:
        return cast(Column, _unplanes(coded[1], "<f8", 8).tolist())
    if kind == _BOOLS:
        return cast(Column, _bits(coded[2], _same(coded[1], count)).tolist())
    if kind == _TEXTS:
        texts = coded[1]
        return [texts[i] for i in _whole(coded[2]).tolist()]
    if kind == _OPTIONAL:
        present = _bits(coded[2], _same(coded[1], count))
        rest = iter(_decode_column(coded[3], int(present.sum()), kind_of))
        return [next(rest) if there else None for there in present.tolist()]
    if kind == _SCALARS:
        return cast(Column, msgspec.msgpack.decode(coded[1]))
    return cast(Column, _load(kind, coded[1], list[kind_of]))


def _same(said: int, count: int) -> int:
    if said != count:
        raise CodecError(f"a column of {said} values in a table of {count} rows")
    return count


@cache
def _scalar_types(struct: type[msgspec.Struct]) -> dict[str, frozenset[type]]:
    """Return the types of scalars that each field may hold; an integer may stand for a float, and stays one."""
    return {name: frozenset(_scalars(kind)) for name, kind in _kinds(struct).items()}


def _scalars(kind: Any) -> Iterator[type]:
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        for part in get_args(kind):
            yield from _scalars(part)
    elif get_origin(kind) is Literal:
        yield from map(type, get_args(kind))
    elif kind in _SCALAR_TYPES:
        yield from (float, int) if kind is float else (kind,)


def _bits(text: bytes, count: int) -> Mask:
    return np.unpackbits(np.frombuffer(text, np.uint8), count=count).astype(np.bool_)


# ------------------------------------------------------------------------------------------------------------------ tables


def _encode_table(rows: Sequence[msgspec.Struct], row_type: type[msgspec.Struct]) -> bytes:
    names = row_type.__struct_fields__
    columns = [_encode_column([getattr(row, name) for row in rows]) for name in names] if rows else []
    return zlib.compress(msgspec.msgpack.encode([list(names), columns]), _LEVEL)


class PackedPartial:
    """A `RankPartial` in its compact form; tables are decoded when asked for.

    `file`, `inside` and `sound` are those of the partial; `foreign`: see `from_bytes`. Pickles as its bytes.
    """

    __slots__ = ("_head", "_rest", "_tables", "foreign")
    foreign: bool
    _rest: bytes
    _tables: dict[str, tuple[int, bytes]]
    _head: dict[str, Any] | None

    def __init__(self, rest: bytes, tables: dict[str, tuple[int, bytes]], *, foreign: bool = False) -> None:
        self._rest, self._tables, self.foreign, self._head = rest, tables, foreign, None

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_bytes, (self.to_bytes(), self.foreign)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedPartial) and (self._rest, self._tables) == (other._rest, other._tables)

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def of(cls, partial: RankPartial) -> PackedPartial:
        """Pack a partial."""
        types = table_types()
        rest = {f: _dump(getattr(partial, f)) for f in RankPartial.__struct_fields__ if f not in types}
        tables = {}
        for name, row_type in types.items():
            rows = getattr(partial, name)
            tables[name] = (len(rows), _encode_table(rows, row_type))
        return cls(zlib.compress(msgspec.msgpack.encode(rest), _LEVEL), tables)

    @classmethod
    def from_bytes(cls, text: bytes, *, foreign: bool = False) -> PackedPartial:
        """Read what `to_bytes` wrote. Raises CodecError when it is nothing of the kind, or of another version.

        `foreign`: from a place where others write; values of other types than the columns' raise CodecError when they are decoded.
        """
        if not text.startswith(MAGIC):
            raise CodecError("no packed partial")
        try:
            version, rest, tables = msgspec.msgpack.decode(
                text[len(MAGIC) :], type=tuple[int, bytes, dict[str, tuple[int, bytes]]]
            )
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise CodecError(f"no packed partial: {error}") from error
        if version != CODEC_VERSION:
            raise CodecError(f"a packed partial of version {version}, not {CODEC_VERSION}")
        if tables.keys() != table_types().keys():
            raise CodecError("a packed partial with other tables")
        if min(count for count, _ in tables.values()) < 0:
            raise CodecError("a packed partial with less than no rows")
        return cls(rest, tables, foreign=foreign)

    def refuse_larger(self, *, most_bytes: int, most_rows: int) -> None:
        """Raise CodecError where decoding would need more than that, before it does; `most_bytes`: of all sections, inflated."""
        if sum(count for count, _ in self._tables.values()) > most_rows:
            raise CodecError(f"a packed partial of more than {most_rows:,} rows")
        left = most_bytes
        for text in (self._rest, *(text for _, text in self._tables.values())):
            left -= _inflated_bytes(text, left)
        for text in self.calls.columns.values():  # deflated once more, behind a byte that says how
            left -= _inflated_bytes(text[1:], left)

    def to_bytes(self) -> bytes:
        """Return the compact form. Equal partials give equal bytes."""
        return MAGIC + msgspec.msgpack.encode((CODEC_VERSION, self._rest, self._tables))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if self._head is None:
            kinds = _kinds(RankPartial)
            with _explained():
                coded = msgspec.msgpack.decode(zlib.decompress(self._rest), type=dict[str, tuple[int, bytes]])
                head = {key: _load(kind, text, kinds[key]) for key, (kind, text) in coded.items()}
                if head.keys() != kinds.keys() - table_types().keys():
                    raise CodecError("a packed partial with other fields")
                self._head = head
        if name in self._head:
            return self._head[name]
        raise AttributeError(name)

    def rows(self, name: str) -> int:
        """Return the number of rows of a table without decoding it."""
        return self._tables[name][0]

    def table(self, name: str, **stamp: Any) -> list[Any]:
        """Return a table's rows. `stamp`: values for columns that every row is to have instead of its own."""
        count, text = self._tables[name]
        if not count:
            return []
        row_type = table_types()[name]
        kinds = _kinds(row_type)
        types = _scalar_types(row_type) if self.foreign else {}
        with _explained():
            names, coded = msgspec.msgpack.decode(zlib.decompress(text))
            if tuple(names) != row_type.__struct_fields__:
                raise CodecError(f"the table {name} has other columns")
            columns = [
                [stamp[n]] * count if n in stamp else _decode_column(c, count, kinds[n], types.get(n))
                for n, c in zip(names, coded, strict=True)
            ]
            return [row_type(**dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]

    def unpack(self, *, lazy: Iterable[str] = ()) -> RankPartial:
        """Return the partial. Tables named in `lazy` are decoded anew at each look instead of being held."""
        late = frozenset(lazy)
        tables = {n: Rows(self, n) if n in late else self.table(n) for n in self._tables}
        rest = {f: getattr(self, f) for f in RankPartial.__struct_fields__ if f not in tables}
        return RankPartial(**rest, **cast(dict[str, Any], tables))


def _inflated_bytes(text: bytes, most: int) -> int:
    """Return how long a deflated text is, at most `most`. Raises CodecError for a longer one, before it is inflated."""
    with _explained():
        inflate = zlib.decompressobj()
        size = len(inflate.decompress(text, most + 1)) if most >= 0 else 1
        if size > most:
            raise CodecError("a packed partial that inflates to too much")
        if not inflate.eof:
            raise CodecError("a packed partial that is cut short")
    return size


def _from_bytes(text: bytes, foreign: bool) -> PackedPartial:  # noqa: FBT001 pickle gives positions
    return PackedPartial.from_bytes(text, foreign=foreign)


class Rows(Sequence[Any]):
    """A table that is decoded at each look: costs time instead of memory."""

    __slots__ = ("_name", "_packed")

    def __init__(self, packed: PackedPartial, name: str) -> None:
        self._packed, self._name = packed, name

    def __len__(self) -> int:
        return self._packed.rows(self._name)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._packed.table(self._name))

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        return self._packed.table(self._name)[index]


class _explained:  # noqa: N801 reads as a word where it is used
    """Turn whatever damaged bytes raise into a CodecError."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        damage = (
            *(zlib.error, msgspec.MsgspecError, ValueError, TypeError, KeyError, IndexError, EOFError),
            *(AttributeError, ArithmeticError, RecursionError, MemoryError),
        )
        if isinstance(error, damage) and not isinstance(error, CodecError):
            raise CodecError(f"a damaged packed partial: {error}") from error
