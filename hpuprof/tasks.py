"""Reduces one file in a worker: looks in the cache, else reads and reduces, and returns compact bytes.

A file that fails to be read or changes meanwhile is read again, a bounded number of times; remaining failures are
reported. A bug in the analysis passes through.
"""

from __future__ import annotations

import time
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from hpuprof._version import __version__
from hpuprof.cache import DEFAULTS, Cache, code_digest
from hpuprof.errors import TraceFormatError, UsageError
from hpuprof.files import IrregularFileError, unreadable_trace
from hpuprof.ingest.discover import TraceFile
from hpuprof.ingest.enough_memory import enough_memory
from hpuprof.ingest.location import State, local_path, shown, state
from hpuprof.model.partial import FailedFile, RankPartial
from hpuprof.model.partial_codec import CodecError, PackedPartial
from hpuprof.model.tables import DiagnosticRow
from hpuprof.options import ReduceOptions
from hpuprof.process_memory import forget_last, unhurried_memory

ATTEMPTS = 3
_PAUSE_S = 0.5  # before the second attempt; twice as long before the third

Result = PackedPartial | FailedFile


class ReduceTask(msgspec.Struct, frozen=True):
    """A callable that travels to workers. `look`: whether to look into the cache, too, and not only write there."""

    cache: Cache
    settings: ReduceOptions = DEFAULTS
    look: bool = True
    version: str = __version__
    code: str = ""

    def __call__(self, file: TraceFile) -> Result:
        """Reduce one file. Raises UsageError on a worker that has another hpuprof than the caller."""
        if self.code and self.code != code_digest():
            raise UsageError(
                f"a worker runs another hpuprof ({__version__}) than this process ({self.version})",
                hint="install the same version on the workers",
            )
        if self.look:
            known = self.cache.look_up(file.path)
            if known is not None:
                with suppress(CodecError):
                    return relabeled(known, file)
        # Loaded where the work is done: a caller with workers of its own starts them sooner.
        from hpuprof.ingest.read import read_trace
        from hpuprof.pipeline import reduce_trace

        result: Result | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(_PAUSE_S * attempt)
            try:
                before = state(file.path)
            except OSError as error:
                result = _unreadable(file, error)
                if not _may_come_back(file, error):
                    break
                continue
            key = self.cache.key(file.path, before)
            forget_last(before.bytes)
            try:
                with enough_memory(file.path), unhurried_memory():
                    result = PackedPartial.of(
                        reduce_trace(read_trace(file.path), replace(file, bytes=before.bytes), self.settings)
                    )
            except TraceFormatError as error:
                result = FailedFile(path=file.name, message=error.message, hint=error.hint, offset=error.offset)
                cause = error.__cause__
                if isinstance(cause, OSError) and _may_come_back(file, cause):
                    continue
            after = _state_or_none(file.path)
            if after == before:
                if key and isinstance(result, PackedPartial):
                    self.cache.put(file.path, key, result)
                return result
            if after is None:  # it was read whole before it vanished
                return result
        if isinstance(result, PackedPartial):
            return _changing(result, file)
        assert result is not None
        return result


class DeepTask(msgspec.Struct, frozen=True):
    """A callable that travels to workers: reduces a file as deep as is asked. `tasks`: one for each depth."""

    tasks: tuple[ReduceTask, ...]

    def __call__(self, item: tuple[TraceFile, int]) -> Result:
        """Reduce a file with the task of a depth."""
        file, depth = item
        return self.tasks[depth](file)


def _state_or_none(place: str) -> State | None:
    try:
        return state(place)
    except OSError:
        return None


def _unreadable(file: TraceFile, error: OSError) -> FailedFile:
    if isinstance(error, FileNotFoundError):
        text = f"{shown(file.path)}: the file vanished after it was found"
        return FailedFile(path=file.name, message=text, hint="keep the traces in place while they are analyzed")
    problem = unreadable_trace(shown(file.path), error)
    return FailedFile(path=file.name, message=problem.message, hint=problem.hint)


def _may_come_back(file: TraceFile, error: OSError) -> bool:
    """Whether to try again: a network may recover, a file that is gone or forbidden on a local disk stays so."""
    lasting = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, IrregularFileError)
    return not isinstance(error, lasting) if local_path(file.path) is not None else not isinstance(error, lasting[:2])


def _changing(result: PackedPartial, file: TraceFile) -> PackedPartial:
    """Add the diagnostic that a file changed at each attempt."""
    partial = result.unpack()
    text = f"the file changed while it was read, {ATTEMPTS} times in a row"
    row = DiagnosticRow.of("HP161", text, ATTEMPTS, path=file.name)
    return PackedPartial.of(msgspec.structs.replace(partial, diagnostics=[*partial.diagnostics, row]))


def relabeled(packed: PackedPartial, file: TraceFile) -> PackedPartial:
    """Give a cached partial the name that the file has in this run."""
    old = packed.file.path
    if old == file.name:
        return packed
    partial: RankPartial = packed.unpack()
    rows = [msgspec.structs.replace(d, path=file.name) if d.path == old else d for d in partial.diagnostics]
    named = msgspec.structs.replace(partial.file, path=file.name)
    named_so = PackedPartial.of(msgspec.structs.replace(partial, file=named, diagnostics=rows))
    named_so.foreign = packed.foreign
    return named_so
