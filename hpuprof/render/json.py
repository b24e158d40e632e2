"""The report as JSON, both ways, and its schema. Same report, same bytes."""

from __future__ import annotations

from typing import Any

import msgspec

from hpuprof.errors import InputError
from hpuprof.model.tables import TABLES
from hpuprof.report.model import SCHEMA_VERSION, Report, ReportData

_FIRST = ("schema_version", "hpuprof_version", "headline", "plan")


def dumps(report: Report) -> str:
    """Return the whole report as one JSON document, one line per row of a table, ending in a newline."""
    return document(report.data)


def document(data: msgspec.Struct) -> str:
    """Return a structure as one JSON document, one line per row of its lists, ending in a newline.

    The plan follows the headline, all other tables stand last.
    """
    parts = []
    for name in sorted(data.__struct_fields__, key=_place):
        value = getattr(data, name)
        if isinstance(value, list) and value:
            rows = ",\n    ".join(msgspec.json.encode(row).decode() for row in value)
            parts.append(f'  "{name}": [\n    {rows}\n  ]')
        else:
            parts.append(f'  "{name}": {msgspec.json.encode(value).decode()}')
    return inert_json("{\n" + ",\n".join(parts) + "\n}\n")


def _place(name: str) -> int:
    return _FIRST.index(name) - len(_FIRST) if name in _FIRST else TABLES.index(name) + 1 if name in TABLES else 0


def inert_json(document: str) -> str:
    """Return the same JSON without commands that a CI log would obey (see `hpuprof.render.formats.inert`)."""
    for order in ("##[", "##vso["):  # only texts can hold them
        document = document.replace(order, order.replace("##", "#\\u0023"))
    return document


def loads(text: bytes | str, *, name: str = "report") -> Report:
    """Read what `dumps` wrote. Raises InputError if it is not a report, or has a newer schema."""
    try:
        head = msgspec.json.decode(text, type=_Head)
        if head.schema_version > SCHEMA_VERSION:
            raise InputError(
                f"{name}: report schema {head.schema_version} is newer than {SCHEMA_VERSION}", hint="update hpuprof"
            )
        return Report(msgspec.json.decode(text, type=ReportData))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{name}: not an hpuprof report: {error}", hint="give a file written with -o report.json or --json"
        ) from error


class _Head(msgspec.Struct):
    schema_version: int


def schema() -> dict[str, Any]:
    """Return the JSON schema of a report."""
    document: dict[str, Any] = msgspec.json.schema(ReportData)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"hpuprof report, schema {SCHEMA_VERSION}",
        **document,
    }
