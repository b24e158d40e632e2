"""Errors for what was lost while reading: nothing could be read at all, or `strict` allows no loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.errors import InputError, TraceFormatError
from hpuprof.model.partial import FailedFile
from hpuprof.model.tables import DiagnosticRow


def all_failed(failed: Sequence[FailedFile]) -> TraceFormatError:
    """Return the error to raise when every file failed: that of the first one, and how many more there are."""
    first, more = failed[0], f" (and {len(failed) - 1} more files)" if len(failed) > 1 else ""
    return TraceFormatError(first.message + more, path=first.path, offset=first.offset or 0, hint=first.hint)


def refuse_losses(diagnostics: Iterable[DiagnosticRow], doing: str) -> None:
    """Raise InputError if anything was lost. `doing`: the verb for the hint, such as analyse."""
    lost = [d for d in diagnostics if DIAGNOSTICS[d.code].lossy]
    if lost:
        raise InputError(
            f"{lost[0].path or 'the input'}: {lost[0].text} ({lost[0].code}); {len(lost)} such problems in all",
            hint=f"leave out --strict to {doing} what could be read",
        )
