"""Predicts what a viewer would make of a trace as it is: whether it loads, and what is lost. Changes nothing.

The rules were found by trying: Perfetto v52 (trace processor), catapult's importer (chrome://tracing),
torch-tb-profiler 0.4.0 and 0.4.3. `docs/reference/timelines.md` lists them; the tests compare them with the viewers.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from hpuprof.errors import NoTracesFoundError, TraceFormatError
from hpuprof.files import scratch_folder
from hpuprof.ingest.decode import DecodeLog
from hpuprof.ingest.discover import looks_like_trace
from hpuprof.ingest.enough_memory import enough_memory
from hpuprof.ingest.hw_csv import is_hw_csv
from hpuprof.ingest.listing import find
from hpuprof.ingest.location import base_name, local_path, shown, state
from hpuprof.ingest.row_reader import RowReader
from hpuprof.ingest.source import ByteSource, reading
from hpuprof.model.partial import FailedFile
from hpuprof.naming import SUFFIXES, is_trace_name
from hpuprof.viewers.file_plan import SLICE, Columns, FilePlan, PlanJob
from hpuprof.viewers.nesting import count_crossing, crossed_in_chrome, dropped_by_perfetto, perfetto_track
from hpuprof.viewers.row_plan import plan_file
from hpuprof.viewers.rows_seen import RowsSeen

PERFETTO, CHROME, TENSORBOARD = VIEWERS = ("Perfetto", "chrome://tracing", "TensorBoard")
TIMELINES = (PERFETTO, CHROME)
FAILS, LOSES, NOTE = "fails", "loses", "note"

_CHROME_LIMIT = 512 << 20  # the longest V8 string
_PERFETTO_LIMIT = 1_000_000_000  # the browser's trace processor has 2 GB (4 GB in 64-bit builds)
_TENSORBOARD_LIMIT = 500_000_000  # larger traces leave its Trace tab blank
_BACKSLASH = re.compile(rb'(?<!\\)(?:\\\\)+"')
_HELD = 1 << 20
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_NOT_FINITE = re.compile(rb"[:,\[]\s*(?:-?Infinity|NaN)\s*[,}\]]")
_TRAILING = re.compile(rb'\}\s*,\s*\](?=\s*(?:,\s*"|\}|\Z))')


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that one viewer would not show as it is in the file."""

    viewer: Annotated[str, Meta(description="Perfetto, chrome://tracing or TensorBoard.")]
    severity: Annotated[
        str, Meta(description="fails: nothing loads; loses: something is missing or drawn wrongly; note.")
    ]
    count: Annotated[int, Meta(description="Affected rows, arrows or places.")]
    text: Annotated[str, Meta(description="What happens and why.")]
    fix: Annotated[str, Meta(description="A command that fixes it, or another way; empty when nothing helps.")]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What the viewers make of one file."""

    path: Annotated[str, Meta(description="The file.")]
    bytes: Annotated[int, Meta(description="Its size unpacked.")]
    rows: Annotated[int, Meta(description="Rows read, metadata included.")]
    verdicts: Annotated[dict[str, str], Meta(description="By viewer: ok, loses or fails.")]
    problems: Annotated[list[Problem], Meta(description="Why, worst first.")]
    error: Annotated[str, Meta(description="Why the file is unreadable; else empty.")] = ""


class _Scanned(ByteSource):
    """A byte source that inspects the text as it passes."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.seen: Counter[str] = Counter()

    def __iter__(self) -> Iterator[bytes]:
        decode = codecs.getincrementaldecoder("utf-8")()
        rest = b""
        for piece in super().__iter__():
            text = rest + piece
            # Inspect together with the next piece what may continue there.
            cut = max(text.rfind(b"{"), 0)
            if len(text) - cut > _HELD:  # no row is that long; a pattern across the cut is not counted
                cut = len(text)
            head, rest = text[:cut], text[cut:]
            self._look(head)
            try:
                decode.decode(piece)
            except UnicodeDecodeError:
                self.seen["utf8"] += 1
                decode.reset()
            yield piece
        self._look(rest)

    def _look(self, text: bytes) -> None:
        if b'\\\\"' in text:
            self.seen["backslash"] += len(_BACKSLASH.findall(text))
        self.seen["control"] += len(_CONTROL.findall(text))
        self.seen["trailing"] += len(_TRAILING.findall(text))
        if b"NaN" in text or b"Infinity" in text:
            self.seen["not_finite"] += len(_NOT_FINITE.findall(text))


def check_paths(paths: Sequence[str | Path]) -> list[Checked]:
    """Check every trace under paths: files as given, directories and patterns searched for traces and merged timelines.

    An unreadable file is reported in its place (`error`). Raises InputError for a missing path, NoTracesFoundError when
    nothing looks like a trace, and TraceFormatError when no file is readable.
    """
    found: dict[str, str] = {}  # path -> why it cannot be inspected
    for given in paths:
        for file in find(given, SUFFIXES):
            if file.explicit or file.problem or looks_like_trace(file.location):
                found.setdefault(file.location, file.problem)
    if not found:
        where = ", ".join(shown(p) for p in paths)
        raise NoTracesFoundError(f"no trace found in {where}", hint="give a directory with *.pt.trace.json[.gz] files")
    checked = []
    errors = []
    for place, problem in found.items():
        try:
            if problem:
                raise TraceFormatError(f"{shown(place)}: {problem}", path=place, hint="check that you may read it")
            with enough_memory(place):
                checked.append(check_file(place))
        except TraceFormatError as error:
            errors.append(error)
            checked.append(_unreadable(place, error))
    if len(errors) == len(checked):
        more = f" (and {len(errors) - 1} more files)" if len(errors) > 1 else ""
        raise TraceFormatError(errors[0].message + more, path=errors[0].path, hint=errors[0].hint)
    return checked


def check_file(path: str | Path) -> Checked:
    """Check one trace file. Raises TraceFormatError when nothing in it can be read."""
    path = str(path)
    with reading(path):
        if is_hw_csv(path):
            return _csv(path)
    source = _Scanned(path)
    reader = RowReader(path, source=source)
    seen = RowsSeen()
    for rows in reader:
        seen.feed(rows)
    with scratch_folder("check") as spool:
        plan = plan_file(PlanJob(path, path, str(Path(spool) / "0")))
        if isinstance(plan, FailedFile):
            raise TraceFormatError(plan.message, path=path, offset=plan.offset or 0, hint=plan.hint)
        columns = Columns.load(plan.spool)
    if len(columns.kind) != seen.rows:
        raise TraceFormatError(f"{shown(path)}: the file changed while it was read", path=path, hint="try again")
    report = _Report(path)
    log = reader.log
    unit = log.header.get("displayTimeUnit")
    _text(report, log, source, seen)
    _lost_rows(report, plan, columns, seen, "ns" if unit == "ns" else "ms")
    if unit and unit not in ("ns", "ms"):
        report.add(CHROME, FAILS, 1, "a displayTimeUnit other than ms or ns aborts loading")
    _viewer_rows(report, seen)
    _tensorboard(report, log, seen, plan)
    _sizes(report, log.bytes_read, first_step=seen.tab.first_step or 0)
    return report.finish(log.bytes_read, seen.rows)


def _csv(path: str) -> Checked:
    report = _Report(path)
    report.add(VIEWERS, FAILS, 1, "a table of the hardware profiler, not a Chrome trace")
    return report.finish(state(path).bytes, 0)


def _unreadable(path: str, error: TraceFormatError) -> Checked:
    report = _Report(path)
    report.add(VIEWERS, FAILS, 1, error.message, fix="")
    return report.finish(0, 0, error=error.message)


class _Report:
    def __init__(self, path: str) -> None:
        path = self.path = shown(path)  # a URL may contain a password
        self.problems: list[Problem] = []
        name = re.sub(r"(?:\.pt\.trace)?\.(?:json|csv)(?:\.gz)?$", "", path)
        name = name if local_path(path) is not None else base_name(name)
        self.merge = f"hpuprof merge {quote(path)} -o {quote(name + '.merged.json.gz')}"
        # Not next to the trace, where it would be another trace of its rank.
        self.convert = f"hpuprof convert {quote(path)} -o tab"

    def add(self, viewers: str | tuple[str, ...], severity: str, count: int, text: str, fix: str | None = None) -> None:
        """Add a problem if it occurs; by default merging, or for TensorBoard converting, fixes it."""
        for viewer in ((viewers,) if isinstance(viewers, str) else viewers) if count else ():
            remedy = fix if fix is not None else self.convert if viewer == TENSORBOARD else self.merge
            self.problems.append(Problem(viewer=viewer, severity=severity, count=count, text=text, fix=remedy))

    def finish(self, size: int, rows: int, *, error: str = "") -> Checked:
        order = {FAILS: 0, LOSES: 1, NOTE: 2}
        self.problems.sort(key=lambda p: (VIEWERS.index(p.viewer), order[p.severity]))
        verdicts = {}
        for viewer in VIEWERS:
            found = {p.severity for p in self.problems if p.viewer == viewer}
            verdicts[viewer] = FAILS if FAILS in found else LOSES if LOSES in found else "ok"
        return Checked(path=self.path, bytes=size, rows=rows, verdicts=verdicts, problems=self.problems, error=error)


def _text(report: _Report, log: DecodeLog, source: _Scanned, rows: RowsSeen) -> None:
    """Check the text for invalid JSON, and for valid JSON that a viewer cannot read."""
    seen = source.seen
    notes = {note.code: note for note in log.notes}
    add = report.add
    strict = "cannot be parsed, so nothing is shown"
    for code, what in (("HP119", "damaged compression"), ("HP102", "text between the rows that is not JSON")):
        if code in notes:
            add(VIEWERS, FAILS, notes[code].count, f"{what} (byte {notes[code].offset:,}) {strict}")
    if "HP101" in notes:
        between = log.form == "array" and "inside" not in notes["HP101"].text
        where = f"{notes['HP101'].text} (byte {notes['HP101'].offset:,})"
        add(TENSORBOARD, FAILS, 1, where)
        add(TIMELINES, NOTE if between else FAILS, 1, where)
    if log.form == "bare":
        add(VIEWERS, FAILS, 1, "rows without an enclosing array or object")
    if log.form == "array":
        add(TENSORBOARD, FAILS, 1, "a bare list of rows; the tab needs an object with traceEvents")
    if "HP103" in notes:
        count, where = notes["HP103"].count, f"(first at byte {notes['HP103'].offset:,})"
        if seen["not_finite"]:
            add(CHROME, FAILS, seen["not_finite"], f"NaN or Infinity {where} {strict}")
            text = f"NaN or Infinity as a timestamp or counter {where} aborts loading"
            add(PERFETTO, FAILS, rows.seen["timeless"] + rows.seen["counter_null"], text)
            add(TENSORBOARD, LOSES, seen["not_finite"], f"NaN or Infinity {where}: the Trace view stays blank")
        elif seen["control"] and "control" in notes["HP103"].text:
            add(CHROME, FAILS, count, f"raw control characters {where} {strict}")
        elif seen["utf8"] and "UTF-8" in notes["HP103"].text:
            add(CHROME, NOTE, count, f"bytes that are not UTF-8 {where} show as \ufffd")
        elif "half of a pair" in notes["HP103"].text:  # JavaScript's parser takes them
            add(CHROME, NOTE, count, f"characters that are half of a surrogate pair {where} show as \ufffd")
        else:
            add(TIMELINES, FAILS, count, f"{notes['HP103'].text.removeprefix('repaired ')} {where}")
            add(TENSORBOARD, LOSES, count, f"{notes['HP103'].text.removeprefix('repaired ')} {where}")
    add((CHROME, TENSORBOARD), FAILS, seen["trailing"], f"a comma after the last row {strict}")
    text = "strings ending in a backslash make it reject the whole file (\"Expected ',' or '}'\")"
    add(PERFETTO, FAILS, seen["backslash"], text)


def _lost_rows(report: _Report, plan: FilePlan, columns: Columns, rows: RowsSeen, unit: str) -> None:
    """Count rows that cross others on their thread, as each viewer reads them, and flow arrows that cannot be drawn."""
    start, dur, track = rows.columns()
    complete = ~np.isnan(dur)
    dur = np.where(complete, dur, columns.dur / 1000)  # begin rows last as long as the plan found
    slices = (columns.kind == SLICE) & np.isfinite(start) & np.isfinite(dur)
    start, dur, track, complete = start[slices], dur[slices], track[slices].astype(np.int64), complete[slices]
    dropped = dropped_by_perfetto(rows.drawn_on(track, perfetto_track), start, dur, complete)
    across = crossed_in_chrome(rows.drawn_on(track, lambda pid, tid: (str(pid), str(tid))), start, dur, unit=unit)
    begin, end = columns.start[slices], (columns.start + columns.dur)[slices]
    truly = count_crossing(track, begin, end) if dropped or across else 0
    why = "partly overlap another row of their thread (annotations across python frames, concurrent kernels)"
    more = "partly overlap another row only as it reads them (large timestamps as doubles, thread numbers out of range)"
    for viewer, count, what in (
        (PERFETTO, dropped, "are dropped (v57 and later draw them apart)"),
        (CHROME, across, "are drawn as if they nested"),
    ):
        report.add(viewer, LOSES, min(count, truly), f"rows {why} and {what}")
        report.add(viewer, LOSES, count - min(count, truly), f"rows {more} and {what}")
    further = sum(len(ids) for ids in columns.copies.values())
    report.add(CHROME, LOSES, further, "flow arrows from a start with several ends; only the first is drawn")
    undrawn = plan.counts.get("flow_points_without_partner", 0) + plan.counts.get("flow_points_outside_slices", 0)
    text = "ends of flow arrows whose other end is missing, or that lie in no row; no viewer draws them"
    report.add(TIMELINES, NOTE, undrawn, text, fix="")


def _viewer_rows(report: _Report, rows: RowsSeen) -> None:
    seen, add = rows.seen, report.add
    bad = seen["unnamed"] + seen["name_no_text"] + seen["cat_no_text"]
    add(CHROME, FAILS, bad, "rows whose name or category is not a string abort loading (TypeError)")
    add(CHROME, FAILS, seen["color"], "rows with an unknown color (cname) abort loading")
    add(CHROME, FAILS, seen["metadata_without_args"], "metadata rows without arguments abort loading")
    add(CHROME, LOSES, seen["no_pid"], "rows without a process")
    add(TIMELINES, LOSES, seen["timeless"], "rows without a timestamp", fix="")
    add(PERFETTO, LOSES, seen["endless"], "rows without a duration are dropped")
    add(CHROME, NOTE, seen["endless"], "rows without a duration are drawn to the end")
    far = "rows with a thread or process number below 0 or above 2^32 - 1 are drawn on the main thread or in process 0"
    add(PERFETTO, LOSES, seen["far_id"], far)
    add(PERFETTO, NOTE, seen["text_id"], "process or thread numbers written as text are replaced with other numbers")
    add(PERFETTO, LOSES, seen["counter"], "counters with a non-numeric value")
    ids = seen["flow_text_id"] + seen["flow_without_id"]
    add(PERFETTO, LOSES, ids, "ends of flow arrows whose id is not a number are not drawn")
    add(CHROME, LOSES, seen["flow_without_id"], "ends of flow arrows without an id are not drawn")
    add(TIMELINES, LOSES, seen["flow_unbound"], "ends of flow arrows without bp:'e' bind to no row")
    add(TIMELINES, LOSES, seen["async_without_id"], "asynchronous rows without an id")
    add(CHROME, LOSES, seen["async_without_cat"], "asynchronous rows without a category")
    add(PERFETTO, LOSES, seen["async_legacy"], "asynchronous rows of the old kind (S, T, F) are not drawn")
    contested = sum(len(names) > 1 for names in rows.names.values())
    add(TIMELINES, NOTE, contested, "processes with several names; the last one shows")


def _tensorboard(report: _Report, log: DecodeLog, rows: RowsSeen, plan: FilePlan) -> None:
    """Check against torch-tb-profiler 0.4.x, which parses with Python and so accepts NaN and invalid UTF-8."""
    tab, name = rows.tab, base_name(report.path)
    seen, header = tab.seen, log.header

    def add(severity: str, count: int, text: str, fix: str | None = None) -> None:
        report.add(TENSORBOARD, severity, count, text, fix)

    if not is_trace_name(name):
        add(FAILS, 1, "the name does not end in .pt.trace.json[.gz], so the tab does not find it", "rename it")
    add(FAILS, seen["unnamed"], "rows whose name is not a string abort loading")
    add(FAILS, seen["uncategorized"] + seen["endless"], "rows without category or duration abort loading")
    add(FAILS, seen["text_stamp"], "rows whose timestamp is not a number abort loading")
    add(FAILS, seen["args"] + seen["identifiers"], "rows whose arguments it cannot use abort loading")
    add(FAILS, seen["host_tid"], "host rows whose thread is not a number abort loading")
    add(FAILS, seen["step_number"], "ProfilerStep# rows without a number abort loading")
    add(
        FAILS if tab.launches_kernels() else LOSES,
        seen["device_step"],
        "ProfilerStep# rows on the device count as separate steps; if it can link launches, the run is empty",
    )
    add(FAILS, tab.lost_without_device(), "launched kernels without a device number abort loading")
    add(
        FAILS,
        seen["device_no_number"] + seen["device_64"],
        "device numbers that are not integers below 64 abort loading",
    )
    add(LOSES, seen["memory_device"], "memory samples with a device type other than 0 or 1: no memory curve")
    kernels = seen["kernels"]
    if not kernels + seen["copies"]:
        add(LOSES, seen["hidden"], "device rows in a category that it ignores: no device in any view")
    if kernels and tab.without_device():
        add(LOSES, kernels, "kernels without a device number: no GPU summary and no utilization")
    if kernels and not tab.linked():
        what = "launch calls in a category that it ignores" if seen["launches"] else "kernels that name no launch call"
        add(LOSES, seen["launches"] or kernels, f"{what}: operators show no device time")
    overlapping, times = tab.inflated(plan.engines)
    lanes = f"rows of kernels on several lanes: the Kernel view sums them, to {times:.1f} times their actual time"
    add(LOSES, overlapping, lanes)
    if kernels and not seen["host"]:
        add(LOSES, kernels, "kernels without any host operator or step: the Overview's times are meaningless")
    if kernels + seen["copies"] and "]" in str(header.get("traceName", "")):
        add(LOSES, 1, "a ] after the events (traceName): the Trace view stays blank")
    if header.get("Framework") == "pytorch-lightning":
        add(LOSES, 1, "Lightning's Framework entry: no Module view and no Lightning view")
    add(NOTE, seen["loader"], "DataLoader rows recorded as annotations: DataLoader time shows as 0")


def _sizes(report: _Report, size: int, *, first_step: int) -> None:
    smaller = f"{report.merge} --steps {first_step}:{first_step + 2}"
    if size > _CHROME_LIMIT:
        report.add(CHROME, FAILS, 1, "more than 512 MB of text; the browser cannot hold it as one string", smaller)
    if size > _PERFETTO_LIMIT:
        report.add(PERFETTO, LOSES, 1, "more than 1 GB; the browser's 2 GB of memory may not suffice", smaller)
    if size > _TENSORBOARD_LIMIT:
        report.add(TENSORBOARD, LOSES, 1, "more than 500 MB; the Trace view stays blank", smaller)
