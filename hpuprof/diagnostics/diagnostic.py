"""What a diagnostic is made of."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Severity = Literal["info", "warning", "error"]


class Diagnostic(Struct, frozen=True, kw_only=True):
    """A code and its explanation. `lossy`: rows or files were lost (fails `--strict`)."""

    code: str
    severity: Severity
    title: str
    cause: str
    remedy: str
    lossy: bool = False
