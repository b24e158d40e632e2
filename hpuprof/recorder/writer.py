"""Writes one trace file: the profiler's export plus our metadata and rows, put in place whole.

The export is streamed, never parsed: our key goes before `traceEvents` (TensorBoard allows nothing after it), and
counters and actions of other threads become the first events. A file gets its final name only when complete.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from hpuprof.errors import OutputError
from hpuprof.files import install_protocol, put_in_place, scratch_folder, unwritable
from hpuprof.messages import one_line
from hpuprof.naming import METADATA_KEY, SPOOL, is_trace_name, parse_name
from hpuprof.recorder.named_actions import Span
from hpuprof.recorder.warn import Line, tell

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')
_PIECE = 4 << 20
_TAIL = 64
_CLOCKS_NS = 60_000_000_000


class _Rows(NamedTuple):
    """Rows added to the events: memory over time, and actions of threads that the profiler does not record."""

    counters: list[tuple[int, dict[str, int]]]
    spans: list[Span]
    pid: int

    def written(self, base_ns: int) -> list[bytes]:
        pid = self.pid
        rows = [
            f'{{"ph": "C", "name": "memory", "pid": {pid}, "tid": 0, '
            f'"ts": {_micros(when - base_ns)}, "args": {json.dumps(values)}}}'
            for when, values in self.counters
        ]
        rows += [
            f'{{"ph": "X", "cat": "user_annotation", "name": {json.dumps(span.name)}, '
            f'"pid": {pid}, "tid": {span.thread}, "ts": {_micros(span.start_ns - base_ns)}, '
            f'"dur": {_micros(max(0, span.end_ns - span.start_ns))}, "args": {{}}}}'
            for span in sorted(self.spans, key=lambda span: (span.start_ns, -span.end_ns))
        ]
        return [row.encode() for row in rows]


def _micros(ns: int) -> str:
    micros, rest = divmod(ns, 1000)
    return f"{micros}.{rest:03d}"


def fallbacks() -> list[str]:
    """Return where traces go if their directory cannot be written: the working directory, else a temporary one."""
    folders = [Path(tempfile.gettempdir())]
    with contextlib.suppress(OSError):  # it may be gone
        folders.insert(0, Path.cwd())
    return [str(folder / "hpuprof-traces") for folder in folders]


def usable_directory(dirpath: str, rank: int, given_at: Line | None = None) -> str:
    """Test a directory or URL with an empty file before recording; return it, or a fallback after a warning.

    `given_at`: the user's line that names the directory. Raises OutputError when no directory can be written.
    """
    first: OutputError | None = None
    for place in (dirpath, *fallbacks()):
        try:
            _try(place, f".hpuprof-{rank}-{os.getpid()}")
        except OutputError as error:
            first = first or error
            continue
        if first is not None:
            tell(f"{first}; traces go to {place} instead", RuntimeWarning, at=given_at)
        return place
    assert first is not None
    raise first


def _try(place: str, name: str) -> None:
    try:
        if _remote(place):
            fs, path = _filesystem(place)
            fs.makedirs(path, exist_ok=True)
            fs.pipe_file(f"{path}/{name}", b"")
            fs.rm_file(f"{path}/{name}")
            return
        folder = Path(place.removeprefix("file://"))
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, probe = tempfile.mkstemp(prefix=name, dir=folder)
        os.close(descriptor)
        Path(probe).unlink()
    except OutputError:
        raise
    except Exception as error:  # each fsspec file system raises its own exceptions
        what = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise OutputError(f"{place} cannot be written: {what}", hint="check dirpath and its permissions") from error


def _remote(place: str) -> bool:
    return "://" in place and not place.startswith("file://")


def _filesystem(url: str) -> tuple[Any, str]:
    kind = url.partition("://")[0].lower()
    try:
        import fsspec

        fs, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise OutputError(
            f"{url}: writing to {kind}:// needs a package: {one_line(error)}", hint=install_protocol(kind)
        ) from None
    return fs, str(path).rstrip("/")


def run_directory(folder: str, rank: int, began_ns: int) -> str:
    """Return the run directory, numbered if an earlier run has written there: one directory per run.

    `began_ns`: when this run began. Every rank derives the same number alone: it skips directories that hold its own
    file, or files of other ranks older than this run, with room for clocks that differ. URLs are not listed; their
    files differ by time.
    """
    if "://" in folder:
        return folder
    number, free = 1, Path(folder)
    while free.is_dir() and any(_earlier(name, rank, began_ns) for name in names_in(free)):
        number += 1
        free = Path(f"{folder}-{number}")
    return str(free)


def names_in(folder: Path) -> list[str]:
    """Return the names of a directory's files, and of those that are being finished."""
    names = [path.name for path in folder.iterdir()]
    with contextlib.suppress(OSError):
        names += [f"{path.name}.pt.trace.json" for path in (folder / SPOOL).iterdir()]
    return names


def _earlier(name: str, rank: int, began_ns: int) -> bool:
    if name.startswith(".") or not is_trace_name(name):
        return False
    parts = parse_name(name)
    return parts.number == rank or (parts.span is not None and parts.span < began_ns - _CLOCKS_NS)


def write_trace(
    exported: Path,
    target: str,
    metadata: dict[str, Any],
    counters: list[tuple[int, dict[str, int]]],
    *,
    spans: list[Span] | None = None,
    rewrite: Callable[[Path, Path], Path | None] | None = None,
    pid: int | None = None,
) -> int:
    """Move the exported trace to `target` (a path or fsspec URL; `.gz` compresses); return its size in bytes.

    `counters`: (unix time in ns, values) pairs, written as Chrome counter rows on the trace's own clock, like `spans`.
    `rewrite` gets the complete, uncompressed file and the final path, and returns the file to put there, or None to
    keep it. `pid`: the recorded process; default: this one. Raises OutputError.
    """
    remote = _remote(target)
    ours = _Rows(counters, spans or [], os.getpid() if pid is None else pid)
    final = Path(target.removeprefix("file://"))
    try:
        with scratch_folder("record") if remote else contextlib.nullcontext(final.parent) as folder:
            place = folder / final.name
            folder.mkdir(parents=True, exist_ok=True)
            with put_in_place(place) as out:
                part = Path(out.name)
                better = None
                if rewrite is not None:
                    _write(out, exported, metadata, ours, packed=False)
                    better = rewrite(part, place)
                if better is not None:
                    better.replace(part)
                else:
                    _write(out, exported, metadata, ours, packed=target.endswith(".gz"))
                part.chmod(0o644)
                size = part.stat().st_size
            if remote:
                _upload(place, target)
        return size
    except OSError as error:
        raise unwritable(target, error, "the trace could not be written") from error


def _write(out: BinaryIO, exported: Path, metadata: dict[str, Any], ours: _Rows, *, packed: bool) -> None:
    """Write the trace, replacing any earlier attempt."""
    out.seek(0)
    out.truncate()
    with exported.open("rb") as source:
        if packed:
            with gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=5, mtime=0) as compressed:
                _copy(source, compressed, metadata, ours)
        else:
            _copy(source, out, metadata, ours)
    out.flush()


def _copy(source: BinaryIO, out: Any, metadata: dict[str, Any], ours: _Rows) -> None:
    head = b""
    match = None
    while match is None:
        piece = source.read(_PIECE)
        if not piece:
            break
        head += piece
        match = _EVENTS.search(head)
    if match is None:
        raise OutputError("the profiler exported no trace events", hint="record at least one step")
    base = _BASE.search(head, 0, match.start())
    rows = ours.written(int(base[1]) if base else 0)
    out.write(head[: match.start()])
    out.write(json.dumps(METADATA_KEY).encode() + b": " + json.dumps(metadata, sort_keys=True).encode() + b",\n")
    out.write(head[match.start() : match.end()])
    rest = head[match.end() :]
    if rows:
        empty = rest.lstrip().startswith(b"]")
        out.write(b"\n" + b",\n".join(rows) + (b"\n" if empty else b",\n"))
    out.write(rest)
    tail = rest[-_TAIL:]
    while piece := source.read(_PIECE):
        out.write(piece)
        tail = (tail + piece)[-_TAIL:]
    if not tail.rstrip().endswith(b"}"):  # the profiler does not report a full disk
        raise OutputError(
            "the profiler's export is truncated", hint="check the free space for temporary files (TMPDIR)"
        )


def whole(export: Path) -> bool:
    """Whether a JSON document seems complete: the profiler does not report a full disk. Raises OSError."""
    with export.open("rb") as handle:
        handle.seek(max(0, export.stat().st_size - _TAIL))
        return handle.read().rstrip().endswith(b"}")


def _upload(place: Path, target: str) -> None:
    try:
        fs, path = _filesystem(target)
        fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        fs.put_file(str(place), path + ".part")
        fs.mv(path + ".part", path)
    except (OSError, OutputError):
        raise
    except Exception as error:  # each fsspec file system raises its own exceptions
        raise OutputError(
            f"{target}: the trace could not be written: {type(error).__name__}: {error}",
            hint="check the URL and its permissions",
        ) from error
