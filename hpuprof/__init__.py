"""hpuprof: profiling and trace analysis for PyTorch training on Intel Gaudi (HPU) and every device that Kineto knows.

The names below are the interface. They load on first use, so that `import hpuprof` stays light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hpuprof._version import __version__

if TYPE_CHECKING:
    from hpuprof import plots
    from hpuprof.analysis_run import Run
    from hpuprof.api import (
        analyze,
        check,
        check_all,
        compare,
        convert,
        load,
        merge,
        plan,
        read_comparison,
        read_report,
        save,
    )
    from hpuprof.comparison.result import Comparison
    from hpuprof.errors import (
        ConfigError,
        HpuprofError,
        InputError,
        InsufficientDataError,
        MissingDependencyError,
        NotEnoughMemoryError,
        NoTracesFoundError,
        OutputError,
        RankConflictError,
        TraceFormatError,
        UsageError,
    )
    from hpuprof.exporting import export
    from hpuprof.model.clock import ClockOffset
    from hpuprof.recorder.huggingface import HFCallback
    from hpuprof.recorder.lightning import HPUProfiler
    from hpuprof.recorder.plain import Recording, record, steps
    from hpuprof.report.model import Report
    from hpuprof.report.redact import redact
    from hpuprof.viewers.tensorboard.conversion import Conversion

_HOME = {
    "api": "analyze check check_all compare convert load merge plan read_comparison read_report save",
    "comparison.result": "Comparison",
    "exporting": "export",
    "model.clock": "ClockOffset",
    "viewers.tensorboard.conversion": "Conversion",
    "report.model": "Report",
    "report.redact": "redact",
    "analysis_run": "Run",
    "recorder.lightning": "HPUProfiler",
    "recorder.plain": "Recording record steps",
    "recorder.huggingface": "HFCallback",
    "errors": "ConfigError HpuprofError InputError InsufficientDataError MissingDependencyError NoTracesFoundError "
    "NotEnoughMemoryError OutputError RankConflictError TraceFormatError UsageError",
}
_MODULE = {name: f"hpuprof.{module}" for module, names in _HOME.items() for name in names.split()}

__all__ = [
    "ClockOffset",
    "Comparison",
    "ConfigError",
    "Conversion",
    "HFCallback",
    "HPUProfiler",
    "HpuprofError",
    "InputError",
    "InsufficientDataError",
    "MissingDependencyError",
    "NoTracesFoundError",
    "NotEnoughMemoryError",
    "OutputError",
    "RankConflictError",
    "Recording",
    "Report",
    "Run",
    "TraceFormatError",
    "UsageError",
    "__version__",
    "analyze",
    "check",
    "check_all",
    "compare",
    "convert",
    "export",
    "load",
    "merge",
    "plan",
    "plots",
    "read_comparison",
    "read_report",
    "record",
    "redact",
    "save",
    "steps",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "plots":
        return import_module("hpuprof.plots")
    if name in _MODULE:
        return getattr(import_module(_MODULE[name]), name)
    raise AttributeError(f"module 'hpuprof' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
