"""Our own JSON documents, both ways, and their schemas. Same report, same bytes."""

from __future__ import annotations

import re
from functools import cache
from inspect import cleandoc
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar, cast

import msgspec

from hpuprof.errors import InputError, OutputError
from hpuprof.files import cannot_read, read_regular
from hpuprof.model.tables import TABLES
from hpuprof.report.model import SCHEMA_VERSION, Report, ReportData

_FIRST = ("schema_version", "hpuprof_version", "headline", "plan")
_DIGITS = 19  # of the largest number in int64
_LONG = re.compile(rb"[0-9]{%d}" % _DIGITS)
_INTEGERS = re.compile(
    rb'"[^"\\]*(?:\\.[^"\\]*)*"|(?<![0-9.eE+])-?(?P<digits>[0-9]{%d,})(?![0-9.eE])' % _DIGITS, re.DOTALL
)
S = TypeVar("S", bound=msgspec.Struct)
_TYPED = Lock()  # threads in which msgspec learns a struct's fields at the same time may crash (see `partial_codec`)


def _beyond_int64(text: bytes) -> int | None:
    """Return where a JSON text has an integer that int64 does not hold: neither do the tables that are made of it."""
    for number in _INTEGERS.finditer(text) if _LONG.search(text) else ():
        if (digits := number["digits"]) is not None and (len(digits) > _DIGITS or int(digits) >= 2**63):
            return number.start()
    return None


def dumps(report: Report) -> str:
    """Return the whole report as one JSON document, one line per row of a table, ending in a newline."""
    return document(report.data)


def document(data: msgspec.Struct) -> str:
    """Return a structure as one JSON document, one line per row of its lists, ending in a newline.

    The plan follows the headline, all other tables stand last. Raises OutputError for what would be read as something
    else: a number that is not finite becomes null.
    """
    parts = []
    for name in sorted(data.__struct_fields__, key=_place):
        value = getattr(data, name)
        if isinstance(value, list) and value:
            rows = ",\n    ".join(_encoded(row, f"{name}[{i}]") for i, row in enumerate(value))
            parts.append(f'  "{name}": [\n    {rows}\n  ]')
        else:
            parts.append(f'  "{name}": {_encoded(value, name)}')
    return inert_json("{\n" + ",\n".join(parts) + "\n}\n")


def _encoded(value: Any, place: str) -> str:
    """Return a value as JSON. Raises OutputError if it cannot be read again as it is."""
    encoded, kind = msgspec.json.encode(value), cast("Any", type(value))
    try:
        if _decoder(kind).decode(encoded) == value:
            return encoded.decode()
    except msgspec.ValidationError:
        pass
    raise OutputError(f"{place} cannot be written as JSON and read again", hint="a bug in hpuprof: please report it")


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    with _TYPED:
        return msgspec.json.Decoder(kind)


def pretty(value: object, *, indent: int = 1) -> str:
    """Return a value as an indented JSON document, ending in a newline."""
    return msgspec.json.format(msgspec.json.encode(value), indent=indent).decode() + "\n"


def _place(name: str) -> int:
    return _FIRST.index(name) - len(_FIRST) if name in _FIRST else TABLES.index(name) + 1 if name in TABLES else 0


def inert_json(document: str) -> str:
    """Return the same JSON without commands that a CI log would obey (see `hpuprof.render.formats.inert`)."""
    for order in ("##[", "##vso["):  # only texts can hold them
        document = document.replace(order, order.replace("##", "#\\u0023"))
    return document


class Form(msgspec.Struct, Generic[S], frozen=True):
    """One kind of our own JSON documents. `version`: the newest that is known; `word`: what it is the version of."""

    kind: type[S]
    what: str
    word: str
    version: int
    hint: str

    def read(self, path: str | Path) -> S:
        """Return the document in a file. Raises InputError if it is none, or of a newer version."""
        what, field = self.what.split()[0], f"{self.word}_version"
        try:
            text = read_regular(Path(path))
            version = getattr(msgspec.json.decode(text, type=msgspec.defstruct("Head", [(field, int)])), field)
            if version > self.version:
                newer = f"{path}: {self.what} {version} is newer than {self.version}"
                raise InputError(newer, hint="update hpuprof")
            found = msgspec.json.decode(text, type=self.kind)
            if (at := _beyond_int64(text)) is not None:
                raise InputError(f"{path}: not an hpuprof {what}: a number out of range at byte {at:,}", hint=self.hint)
            return found
        except OSError as error:
            hint = f"give a {what} written with -o {what}.json"
            raise InputError(f"{path}: {cannot_read(error)}", hint=hint) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InputError(f"{path}: not an hpuprof {what}: {error}", hint=self.hint) from error

    def schema(self) -> dict[str, Any]:
        """Return the JSON schema of these documents."""
        document: dict[str, Any] = _cleaned(msgspec.json.schema(self.kind))
        title = f"hpuprof {self.what.replace(' ', ', ')} {self.version}"
        return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **document}


REPORTS = Form(
    ReportData, "report schema", "schema", SCHEMA_VERSION, "give a file written with -o report.json or --json"
)


def _cleaned(node: Any) -> Any:
    """Return a schema whose descriptions lack the indentation of the code, which msgspec leaves in before 0.23."""
    if isinstance(node, list):
        return [_cleaned(one) for one in node]
    if not isinstance(node, dict):
        return node
    return {
        name: cleandoc(one) if name == "description" and isinstance(one, str) else _cleaned(one)
        for name, one in node.items()
    }
