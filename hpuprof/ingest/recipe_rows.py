"""Recipes that rows name: id, handle and name of a compiled graph, and the scope of the graph's node, as `RecipeRows`.

Ids and handles are compared as texts without blanks around them. A number, its text and its hexadecimal text
(`60914`, `"60914"`, `"0xedf2"`) are one value: writers print unsigned handles in decimal or hexadecimal. None is what
is empty, 0, negative, or neither text nor whole number of 64 bits.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct

from hpuprof.ingest.columns import Interner
from hpuprof.ingest.dialect_scopes import scope_of
from hpuprof.ingest.wire import NO_ARGS, Args
from hpuprof.model.arrays import Codes, Ints, Mask
from hpuprof.model.trace import RecipeRows, Recipes

_DECIMAL = re.compile(r"[+-]?[0-9]{1,20}")
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]{1,16}")
_TABLES = ("host", "device")


def identity(value: Any) -> str:
    """Return an id or handle as the text to compare it by, empty for none."""
    if isinstance(value, str):
        text = value.strip()
        base = 10 if _DECIMAL.fullmatch(text) else 16 if _HEXADECIMAL.fullmatch(text) else 0
        if not base:
            return text
        value = int(text, base)
    elif isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if type(value) is int and 0 < value < 2**64 else ""


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _recipe(number: Any, handle: Any, name: Any) -> tuple[str, str, str]:
    return identity(number), identity(handle), _text(name)


def _scope(event: Any, sources: Any) -> str:
    return scope_of(_text(event), _text(sources))


class Key(Struct, frozen=True):
    """Several arguments of a row that together name something. `read`: makes one text, or a tuple of texts, of them."""

    column: str
    arguments: Callable[[Args], tuple[Any, ...]]
    read: Callable[..., Any]


RECIPE = Key("recipe", attrgetter("recipe_id", "recipe_handle", "recipe_name"), _recipe)
NODE = Key("node", attrgetter("event_name", "original_nodes"), _scope)
KEYS = {key.column: key for key in (RECIPE, NODE)}
NOTHING = {key.column: key.arguments(NO_ARGS) for key in (RECIPE, NODE)}
"""What rows say that have none of the arguments."""


class RecipeNotes:
    """Collect the recipes and nodes that the rows of one file name; `take()` them once rows are in order."""

    def __init__(self) -> None:
        self.texts = {column: Interner() for column in KEYS}
        self._numbers = array("q")  # by code of a recipe: the id as a number, -1 where it is none of 63 bits
        self._placed: dict[str, tuple[Ints, dict[str, Codes]]] = {}

    def __bool__(self) -> bool:
        return any(self.texts.values())

    @property
    def handles(self) -> bool:
        """Whether any row names a handle."""
        return any(handle for _, handle, _ in self.texts["recipe"])

    def numbers(self, recipes: Codes) -> Ints:
        """Return the ids of rows as numbers, -1 for none. `recipes`: codes, -1 for none."""
        for number, *_ in self.texts["recipe"].since(len(self._numbers)):
            short = number.isdecimal() and number.isascii() and len(number) <= 20
            self._numbers.append(int(number) if short and int(number) < 2**63 else -1)
        return np.append(np.frombuffer(self._numbers, dtype=np.int64), -1)[recipes]

    def place(self, table: str, columns: dict[str, Codes]) -> None:
        """Take the codes of a table's rows, in their order; -1: none."""
        rows = np.flatnonzero((columns["recipe"] >= 0) | (columns["node"] >= 0))
        self._placed[table] = rows, {column: codes[rows] for column, codes in columns.items()}

    def drop(self, table: str, bad: Mask) -> None:
        """Follow the table's rows where some are dropped."""
        if table in self._placed:
            rows, columns = self._placed[table]
            left = ~bad[rows]
            self._placed[table] = (np.cumsum(~bad) - 1)[rows[left]], {c: codes[left] for c, codes in columns.items()}

    def take(self) -> Recipes:
        """Return the rows of both tables that name something."""
        if not self:
            return Recipes()
        ids, handles, names, scopes = (Interner() for _ in range(4))
        recipes = _codes((ids, handles, names), self.texts["recipe"])
        nodes = _codes((scopes,), [(scope,) for scope in self.texts["node"]])
        found = []
        for table in _TABLES:
            rows, columns = self._placed[table]
            said = [codes[columns["recipe"]] for codes in recipes] + [codes[columns["node"]] for codes in nodes]
            named = np.logical_or.reduce([codes >= 0 for codes in said])
            found.append(RecipeRows(rows[named], *(codes[named] for codes in said)))
        host, device = found
        return Recipes(
            host=host, device=device, ids=list(ids), handles=list(handles), names=list(names), scopes=list(scopes)
        )


def _codes(texts: tuple[Interner, ...], keys: Iterable[tuple[str, ...]]) -> list[Codes]:
    """Return for each text of a key the codes that keys have, -1 for an empty one and, last, for no key."""
    codes = [[words[text] if text else -1 for words, text in zip(texts, key, strict=True)] for key in keys]
    return list(np.array([*codes, [-1] * len(texts)], dtype=np.int32).T.copy())
