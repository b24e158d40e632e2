"""Converts one trace file: reads it to understand it, again to rewrite its rows, and puts the result in place whole."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpuprof._version import __version__
from hpuprof.errors import UsageError
from hpuprof.families import FAMILIES
from hpuprof.files import put_in_place, unwritable
from hpuprof.ingest.normalize import base_ns
from hpuprof.ingest.read import read_trace
from hpuprof.ingest.restore import mark_of
from hpuprof.ingest.row_reader import RowReader
from hpuprof.model.trace import Trace
from hpuprof.naming import CONVERTED_KEY
from hpuprof.viewers.output import CLOSING, LEVEL, members, opening
from hpuprof.viewers.tensorboard.added_rows import Tab, plan
from hpuprof.viewers.tensorboard.rewrite import Rewriter
from hpuprof.viewers.tensorboard.spelling import track_number

_NOT_FOR_THE_TAB = ("computeMajor", "computeMinor")  # they trigger advice that is wrong for other vendors' devices

_ROWS_AT_ONCE = 4096  # of the added rows: avoids a copy of all


@dataclass(frozen=True, kw_only=True)
class ConvertedFile:
    """One file of the result: its source, its place, and what was done.

    `run`, `rank`: given by `convert_run`; `rows`: rows of the source in it; `drawn`: rows added; `lost`: rows without a
    time or a name; `steps`: `as recorded`, or `found` where drawn from our own step finder; `linked`: share of device
    work whose launch is known, None without device work; `step_ns`: length of each step as annotated or found,
    `tab_step_ns`: the same as the tab shows it, which ends a step with the device work that it launched and omits some
    at the end [ns]; `problems`: what was wrong with the source, in words.
    """

    source: str = ""
    path: str
    run: str = ""
    rank: int = 0
    bytes: int
    rows: int
    drawn: int
    lost: int
    family: str
    steps: str
    linked: float | None
    step_ns: tuple[int, ...]
    tab_step_ns: tuple[int, ...]
    problems: tuple[str, ...]


PART = ".part"


def convert_file(source: str | Path, target: Path, identity: dict[str, Any]) -> ConvertedFile:
    """Write the future `target` (`.gz` compresses) from the trace `source`. `identity`: facts of the old file name.

    The file appears whole, with `PART` after its name, for the caller to put in place. Raises TraceFormatError for an
    unreadable source, UsageError for a converted trace, OutputError.
    """
    trace = read_trace(source)
    if mark_of(trace.header) is not None:
        raise UsageError(f"{source}: was already converted", hint="convert the trace that it was made from")
    tab = plan(trace)
    rewriter = Rewriter(tab)
    head = _head(trace, tab, identity)
    part = target.with_name(target.name + PART)
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        with put_in_place(part) as raw:
            packed = target.name.endswith(".gz")
            packing = gzip.GzipFile("", "wb", LEVEL, raw, 0) if packed else nullcontext(raw)
            with packing as out:
                out.write(head)
                out.writelines(_joined(source, rewriter, tab))
                out.write(CLOSING)
            size = raw.tell()
    except OSError as error:
        raise unwritable(target, error, "could not be written") from error
    return ConvertedFile(
        path=str(target),
        bytes=size,
        rows=rewriter.rows,
        drawn=len(tab.rows),
        lost=rewriter.lost,
        family=trace.family,
        steps="found" if tab.steps_added else "as recorded",
        linked=tab.linked,
        step_ns=tuple(tab.step_ns),
        tab_step_ns=tuple(tab.tab_step_ns),
        problems=tuple(t.text + ("" if t.offset is None else f" (byte {t.offset})") for t in trace.health.troubles),
    )


def _joined(source: str | Path, rewriter: Rewriter, tab: Tab) -> Iterator[bytes]:
    between = b""
    for piece in filter(None, _pieces(source, rewriter, tab)):
        yield between + piece
        between = b",\n"


def _pieces(source: str | Path, rewriter: Rewriter, tab: Tab) -> Iterator[bytes]:
    for rows in RowReader(source):
        yield members(rewriter.rewrite(rows))
    for at in range(0, len(tab.rows), _ROWS_AT_ONCE):
        yield b",\n".join(tab.rows[at : at + _ROWS_AT_ONCE])


def _head(trace: Trace, tab: Tab, identity: dict[str, Any]) -> bytes:
    """Return the metadata and the event array's beginning: the tab cuts at the last bracket, so it must end there."""
    header = {k: v for k, v in trace.header.items() if k not in ("traceEvents", CONVERTED_KEY)}
    changed: dict[str, Any] = {}
    if "Framework" in header:  # hides the Module view, and the tab fails on torch's current names
        changed["Framework"] = header.pop("Framework")
    devices = _devices(header.get("deviceProperties"), trace, tab)
    if devices is not None and devices != header.get("deviceProperties"):
        changed["deviceProperties"] = header.get("deviceProperties")
        header["deviceProperties"] = devices
    header.setdefault("schemaVersion", 1)
    if "schemaVersion" not in trace.header:
        changed["schemaVersion"] = None
    header["baseTimeNanoseconds"] = base_ns(trace.header) + tab.shift_ns
    header[CONVERTED_KEY] = {
        "for": "tensorboard",
        "version": __version__,
        "family": trace.family,
        "generation": trace.generation,
        "form": trace.form,
        "identity": identity,
        "header": changed,
    }
    return opening(header)


def _devices(given: Any, trace: Trace, tab: Tab) -> list[Any] | None:
    """Return properties for every device that the tab looks up; None if the trace shows no device."""
    if not tab.devices:
        return None
    known = [dict(d) if isinstance(d, dict) else {} for d in given] if isinstance(given, list) else []
    family, devices = FAMILIES[trace.family], []
    for number in range(max(tab.devices, len(known))):
        device = dict(known[number]) if number < len(known) else {}
        if not family.cuda_properties:
            device = {k: v for k, v in device.items() if k not in _NOT_FOR_THE_TAB}
        memory = device.get("totalGlobalMem")
        if not isinstance(memory, (int, float)) or isinstance(memory, bool):
            device.pop("totalGlobalMem", None)
            if isinstance(memory, str) and track_number(memory) is not None:
                device["totalGlobalMem"] = track_number(memory)
        device.setdefault("name", family.title)
        devices.append(device)
    return devices
