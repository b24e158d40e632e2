"""Options that go to `torch.profiler.profile` as they are: only where this torch, or the vendor's profiler in its place, knows them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from hpuprof.errors import ConfigError
from hpuprof.recorder.warn import tell


@dataclass(frozen=True)
class TorchOptions:
    """`experimental_config`: a dict of options, or torch's own object; `verbose`: python stacks of operators, which flame graphs need."""

    experimental_config: Any = None
    execution_trace_observer: Any = None
    verbose: bool = False

    def arguments(self, profile: Any) -> dict[str, Any]:
        """Return keyword arguments for the class `profile`; what it does not know is left out, with a warning."""
        known = inspect.signature(profile.__init__).parameters
        wanted = {"verbose": True} if self.verbose else {}
        found = {
            "experimental_config": experimental_config(self.experimental_config, **wanted),
            "execution_trace_observer": self.execution_trace_observer,
        }
        given = {name: value for name, value in found.items() if value is not None}
        for name in [name for name in given if name not in known]:
            tell(f"the profiler of this torch has no {name}; it is left out")
            del given[name]
        return given


def experimental_config(given: Any, **wanted: bool) -> Any:
    """Return torch's experimental configuration: what is given (a dict or torch's object), with our `wanted` switches on as well.

    None when nothing is asked for. A dict that turns a wanted switch off has its way. Switches that this torch does not have are left
    out. Raises ConfigError for names in a dict that torch does not know.
    """
    from torch._C._profiler import _ExperimentalConfig as Config

    wanted = {name: on for name, on in wanted.items() if _known(Config, name)}
    if given is None or isinstance(given, dict):
        options = {**wanted, **(given or {})}
        try:
            return Config(**options) if options else None
        except TypeError:
            raise ConfigError(
                f"experimental_config is {given!r}, which this torch does not take",
                hint="names and values of torch._C._profiler._ExperimentalConfig",
            ) from None
    for name in wanted:
        given = _switched_on(Config, given, name)
    return given


def _known(config: Any, name: str) -> bool:
    try:
        config(**{name: True})
    except TypeError:
        return False
    return True


def _switched_on(config: Any, given: Any, name: str) -> Any:
    """Return a copy of a configuration with one switch on. The object shows none of its values, but its pickled state does."""
    off, on = config().__getstate__(), config(**{name: True}).__getstate__()
    merged = config.__new__(config)
    merged.__setstate__(
        tuple(value if a == b else b for a, b, value in zip(off, on, given.__getstate__(), strict=True))
    )
    return merged
