"""Tables as files: CSV, JSON (an array of objects) and Parquet, written piece by piece."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, Protocol, get_args, get_type_hints

import msgspec

from hpuprof.errors import MissingDependencyError, install_command
from hpuprof.files import check_target, whole_file
from hpuprof.render.formats import clean, inert
from hpuprof.render.json import inert_json

Columns = Mapping[str, list[Any]]
_FORMULA = ("=", "+", "-", "@")
"""What a cell begins with that spreadsheets compute (OWASP, "CSV Injection")."""
SUFFIXES = (".csv", ".json", ".parquet")


class TableWriter(Protocol):
    """Takes pieces of one table, all with the same columns."""

    def write(self, piece: Columns) -> None:
        """Append a piece."""

    def close(self) -> None:
        """Finish the table."""


class CsvWriter:
    """Comma-separated values with a header: unknown is an empty cell, nested values are JSON.

    Names come from traces, and spreadsheets and terminals show CSV: control characters are replaced, and an apostrophe
    precedes a name that would be a formula. JSON and Parquet hold names unchanged.
    """

    def __init__(self, out: IO[str], columns: list[str]) -> None:
        self._out = csv.writer(out, lineterminator="\n")
        self._columns = columns
        self._out.writerow(columns)

    def write(self, piece: Columns) -> None:
        """Append a piece."""
        cells = [[self._cell(v) for v in piece[c]] for c in self._columns]
        self._out.writerows(zip(*cells, strict=True))

    def _cell(self, value: Any) -> Any:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, str):
            return _plain(value)
        return json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list, tuple)) else value

    def close(self) -> None:
        """Nothing is left to write."""


@lru_cache(4096)  # names repeat, row after row
def _plain(text: str) -> str:
    text = inert(clean(text))
    return f"'{text}" if text.startswith(_FORMULA) else text


class JsonWriter:
    """One JSON array of objects, one object a line."""

    def __init__(self, out: IO[str], columns: list[str]) -> None:
        self._out = out
        self._columns = columns
        self._before = "[\n"

    def write(self, piece: Columns) -> None:
        """Append a piece."""
        for values in zip(*(piece[c] for c in self._columns), strict=True):
            row = inert_json(msgspec.json.encode(dict(zip(self._columns, values, strict=True))).decode())
            self._out.write(f"{self._before}{row}")
            self._before = ",\n"

    def close(self) -> None:
        """Close the array."""
        self._out.write("[]\n" if self._before == "[\n" else "\n]\n")


class ParquetWriter:
    """Parquet by pyarrow, one row group a piece; nested values are JSON texts."""

    def __init__(self, path: Path, row: type[msgspec.Struct]) -> None:
        try:
            import pyarrow as pa
            from pyarrow import parquet
        except ImportError as error:
            raise MissingDependencyError(
                "writing Parquet needs pyarrow", hint=f"{install_command('parquet')}, or write .csv"
            ) from error
        self._arrow = pa
        types = {int: pa.int64(), float: pa.float64(), bool: pa.bool_(), str: pa.string()}
        self._schema = pa.schema([(name, types.get(kind, pa.string())) for name, kind in kinds(row).items()])
        self._out = parquet.ParquetWriter(path, self._schema)

    def write(self, piece: Columns) -> None:
        """Append a piece."""
        arrow = self._arrow
        arrays = []
        for field in self._schema:
            values = piece[field.name]
            if field.type == arrow.string():
                values = [v if v is None or isinstance(v, str) else json.dumps(v, ensure_ascii=False) for v in values]
            arrays.append(arrow.array(values, type=field.type))
        self._out.write_table(arrow.Table.from_arrays(arrays, schema=self._schema))

    def close(self) -> None:
        """Write the footer."""
        self._out.close()


def kinds(row: type[msgspec.Struct]) -> dict[str, type]:
    """Return each column's type without None: int, float, bool, str, or what it is when nested."""
    out: dict[str, type] = {}
    for name, hint in get_type_hints(row).items():
        choices = [a for a in get_args(hint) if a is not type(None)] if get_args(hint) else [hint]
        plain = [c for c in choices if c in (int, float, bool, str)]
        # A number that may be whole (int | float) is a float; list[str] and dict[str, int] are texts.
        nested = str(hint).startswith(("list[", "dict[", "tuple["))
        out[name] = object if nested or not plain else float if float in plain else plain[0]
    return out


def pieces_of(rows: list[Any], row: type[msgspec.Struct], size: int = 50_000) -> Iterator[Columns]:
    """Yield rows of structs as columns."""
    for low in range(0, len(rows), size):
        part = rows[low : low + size]
        yield {c: [msgspec.to_builtins(getattr(r, c)) for r in part] for c in row.__struct_fields__}


def check_table_target(path: Path, *, force: bool) -> None:
    """Refuse early what writing would refuse late. Raises UsageError, OutputError or MissingDependencyError."""
    check_target(path, force=force, suffixes=SUFFIXES, what="a table")
    if path.suffix == ".parquet":
        from importlib.util import find_spec

        if find_spec("pyarrow") is None:
            raise MissingDependencyError(
                "writing Parquet needs pyarrow", hint=f"{install_command('parquet')}, or write .csv"
            )


@contextmanager
def table_file(path: Path, row: type[msgspec.Struct]) -> Iterator[TableWriter]:
    """Open a table file by its suffix; it appears whole or not at all. Raises OutputError when it cannot be written."""
    with whole_file(path) as out:
        if path.suffix == ".parquet":
            writer: TableWriter = ParquetWriter(Path(out.name), row)
            yield writer
            writer.close()
        else:
            with io.TextIOWrapper(out, encoding="utf-8", newline="") as text:
                writer = _text_writer(text, path.suffix, row)
                yield writer
                writer.close()


def _text_writer(out: IO[str], suffix: str, row: type[msgspec.Struct]) -> TableWriter:
    columns = list(row.__struct_fields__)
    return CsvWriter(out, columns) if suffix == ".csv" else JsonWriter(out, columns)
