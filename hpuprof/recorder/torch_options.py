"""Options for `torch.profiler.profile`, if this torch, or the vendor's replacement profiler, knows them."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from hpuprof.errors import ConfigError
from hpuprof.recorder.warn import tell


@dataclass(frozen=True)
class TorchOptions:
    """`experimental_config`: a dict or torch's object; `verbose`: python stacks of operators, for flame graphs."""

    experimental_config: Any = None
    execution_trace_observer: Any = None
    verbose: bool = False

    def check(self) -> None:
        """Raise ConfigError for a value that torch cannot take."""
        from torch._C._profiler import _ExperimentalConfig as Config

        if not isinstance(self.experimental_config, (dict, Config, type(None))):
            raise ConfigError(
                f"experimental_config is {self.experimental_config!r}",
                hint="a dict of options of torch's _ExperimentalConfig, or one of these",
            )
        observer = self.execution_trace_observer
        if observer is not None and not (callable(getattr(observer, "start", None)) and hasattr(observer, "stop")):
            raise ConfigError(
                f"execution_trace_observer is {observer!r}", hint="a torch.profiler.ExecutionTraceObserver"
            )

    def arguments(self, profile: Any, *, cuda: bool = False) -> dict[str, Any]:
        """Return keyword arguments for the class `profile`; unknown ones are dropped with a warning.

        `cuda`: the device is CUDA's, so ask for the events that streams wait for unless a configuration is given.
        """
        known = inspect.signature(profile.__init__).parameters
        config = self.experimental_config
        wanted = {"verbose": True} if self.verbose else {}
        if cuda and "experimental_config" in known and (config is None or isinstance(config, dict)):
            wanted["enable_cuda_sync_events"] = True
        found = {
            "experimental_config": experimental_config(config, **wanted),
            "execution_trace_observer": self.execution_trace_observer,
        }
        given = {name: value for name, value in found.items() if value is not None}
        for name in [name for name in given if name not in known]:
            tell(f"this torch's profiler has no {name}; hpuprof ignores it")
            del given[name]
        return given


def experimental_config(given: Any, **wanted: bool) -> Any:
    """Return torch's experimental configuration: the given one plus our `wanted` switches.

    None when nothing is requested. A dict may turn a wanted switch off. Switches that this torch lacks are dropped.
    Raises ConfigError for names in a dict that torch does not know.
    """
    from torch._C._profiler import _ExperimentalConfig as Config

    wanted = {name: on for name, on in wanted.items() if _known(Config, name)}
    if given is None or isinstance(given, dict):
        options = {**wanted, **(given or {})}
        try:
            return Config(**options) if options else None
        except TypeError:
            raise ConfigError(
                f"experimental_config is {given!r}, which this torch does not accept",
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
    """Return a copy of a configuration with one switch on; only its pickled state shows its values."""
    off, on = config().__getstate__(), config(**{name: True}).__getstate__()
    merged = config.__new__(config)
    merged.__setstate__(
        tuple(value if a == b else b for a, b, value in zip(off, on, given.__getstate__(), strict=True))
    )
    return merged
