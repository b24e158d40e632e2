"""Codes for what a trace does not show and what was lost while reading: title, cause, remedy. HP1xx."""

from __future__ import annotations

from hpuprof.diagnostics.diagnostic import Diagnostic
from hpuprof.diagnostics.of_runs import OF_RUNS
from hpuprof.diagnostics.reading import OF_READING

DIAGNOSTICS: dict[str, Diagnostic] = {d.code: d for d in sorted((*OF_READING, *OF_RUNS), key=lambda d: d.code)}
