"""Finds what a notebook shows of a result. Views lie above results, so that one is looked up by name when asked for."""

from __future__ import annotations

from importlib import import_module

_VIEWS = "hpuprof.render.notebook"


def notebook_html(result: object, view: str) -> str:
    """Return what a function of `hpuprof.render.notebook` shows of a result: HTML without script, below 30 kB."""
    html: str = getattr(import_module(_VIEWS), view)(result)
    return html
