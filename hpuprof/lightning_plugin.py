"""Makes `Trainer(profiler="hpu")` work: `import hpuprof.lightning_plugin` before the trainer is made.

Lightning keeps profiler names in a table inside a function, so none can be registered. This module wraps that function
in every installed Lightning package, for the string "hpu" only.
"""

from __future__ import annotations

from functools import wraps
from importlib import import_module
from importlib.util import find_spec
from typing import Any

NAME = "hpu"


def install() -> list[str]:
    """Wrap the trainer's profiler set-up of each installed Lightning package once; return the names of the packages."""
    done = []
    for package in ("lightning.pytorch", "pytorch_lightning"):
        if find_spec(package.split(".", maxsplit=1)[0]) is None:
            continue
        try:
            setup: Any = import_module(f"{package}.trainer.setup")
        except ImportError:  # installed, but of no use here
            continue
        original = setup._init_profiler  # noqa: SLF001
        if not getattr(original, "knows_hpu", False):
            setup._init_profiler = _wrap(original)  # noqa: SLF001
        done.append(package)
    return done


def _wrap(original: Any) -> Any:
    @wraps(original)
    def init_profiler(trainer: Any, profiler: Any) -> Any:
        if isinstance(profiler, str) and profiler.lower() == NAME:
            from hpuprof.recorder.lightning import HPUProfiler

            profiler = HPUProfiler()
        return original(trainer, profiler)

    init_profiler.knows_hpu = True  # type: ignore[attr-defined]
    return init_profiler


install()
