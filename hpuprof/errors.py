"""Owns the exception tree and the exit code of each kind of failure.

Every error has a one-line message (naming the file, if there is one) and a hint. A traceback that reaches a user is a
bug in hpuprof.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from hpuprof.messages import without_secrets

EXIT_OK = 0
EXIT_GATE = 1
EXIT_USAGE = 2
EXIT_INPUT = 3
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_SIGNALLED = 128
"""Plus the number of the signal: 143 for SIGTERM."""
EXIT_BROKEN_PIPE = 141


class HpuprofError(Exception):
    """Base of all errors that hpuprof raises on purpose."""

    code: ClassVar[str] = "error"
    exit_code: ClassVar[int] = EXIT_BUG

    def __init__(self, message: str, *, hint: str = "") -> None:
        message, hint = without_secrets(message), without_secrets(hint)
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders; keyword-only arguments need a helper to come back.
        return _rebuild, (type(self), self.message, dict(self.__dict__))

    def __str__(self) -> str:
        # A traceback and a notebook show this and nothing else; the command line prints message and hint on lines of
        # their own.
        return f"{self.message} ({self.hint})" if self.hint else self.message


def _rebuild(cls: type[HpuprofError], message: str, state: dict[str, object]) -> HpuprofError:
    error = cls.__new__(cls)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class UsageError(HpuprofError):
    """The call was wrong: an argument, an option, a name."""

    code = "usage"
    exit_code = EXIT_USAGE


class ConfigError(UsageError):
    """A setting in the environment or in pyproject.toml is wrong."""

    code = "config"


class ArgumentError(UsageError, TypeError, ValueError):
    """An argument is not what its parameter takes. Also the TypeError or ValueError that Python would raise."""


class UnknownNameError(UsageError, KeyError):
    """A name that is not among the known ones. Also a KeyError, as for any mapping."""

    def __init__(self, what: str, name: object, known: Iterable[str]) -> None:
        known = list(known)
        hint = did_you_mean(str(name), known, f"one of {', '.join(known)}")
        super().__init__(f"no {what} {name!r}", hint=hint)


class OutputError(HpuprofError):
    """The result could not be written."""

    code = "output"
    exit_code = EXIT_USAGE


class MissingDependencyError(HpuprofError):
    """An optional package is needed; the hint names the extra that brings it."""

    code = "missing-dependency"
    exit_code = EXIT_USAGE


class InputError(HpuprofError):
    """The input cannot answer the question."""

    code = "input"
    exit_code = EXIT_INPUT


class NoTracesFoundError(InputError):
    """No possible trace file was found."""

    code = "no-traces"


class TraceFormatError(InputError):
    """A file is not a trace, or nothing could be read from it. `path` and `offset` (bytes) say where."""

    code = "trace-format"

    def __init__(self, message: str, *, path: str, offset: int = 0, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.offset = offset


class NotEnoughMemoryError(TraceFormatError):
    """Memory ran out while a file was read or measured."""

    code = "memory"


_NO_MEMORY = ("failed to map segment", "annot allocate memory", "can't start new thread", "error return without")
"""The last are the words of CPython 3.11 (`ceval.c`, `error`) where no memory is left for a call's frame."""
MAY_LACK_MEMORY = (MemoryError, ImportError, RuntimeError, SystemError)
"""What reading a file raises for lack of memory, if `memory_ran_out` says so; an OSError names its file by itself."""
MEMORY_HINT = "record fewer steps, use fewer workers (--jobs 1), or a machine with more memory"


class RankConflictError(InputError):
    """Two files claim the same rank, stage, action and window; `paths` lists both."""

    code = "rank-conflict"

    def __init__(self, message: str, *, paths: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.paths = paths


class InsufficientDataError(InputError):
    """The traces hold no steps, or no device rows, for what was asked."""

    code = "insufficient-data"


def memory_ran_out(error: BaseException) -> bool:
    """Whether an exception is for lack of memory: also for loading a library, a thread, or a call."""
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, (*MAY_LACK_MEMORY, OSError)) and any(words in str(error) for words in _NO_MEMORY)


def install_command(*extras: str) -> str:
    """Return the command that installs what extras hold, by the packages' own names, which every index has."""
    from importlib.metadata import PackageNotFoundError, requires
    from shlex import quote

    try:
        known = [text.replace("'", '"') for text in requires("hpuprof") or ()]
    except PackageNotFoundError:  # run from its sources
        known = []
    wanted = [f'extra == "{extra}"' for extra in extras]
    names = [text.partition(";")[0].strip() for want in wanted for text in known if want in text]
    return f"pip install {' '.join(map(quote, names))}" if names else f"pip install '.[{','.join(extras)}]'"


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", *, most: int = 3, quote: str = "") -> str:
    """Return a hint: the known names closest to a wrong one, or `otherwise` if none is close."""
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), n=most)
    return f"did you mean {', '.join(f'{quote}{n}{quote}' for n in close)}?" if close else otherwise
