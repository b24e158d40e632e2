"""A titled table of text cells: what sections are made of, and what text and Markdown lay out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Section:
    """A titled table. `align`: `l` or `r` per column; the first left column may be shortened. `note` stands below.

    `name`: what code calls it, where code does.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    align: str
    note: str = ""
    name: str = ""
