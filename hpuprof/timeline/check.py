"""Says what a viewer would make of a trace as it is: whether it loads, and what would be lost. Changes nothing.

The rules were found by trying: Perfetto v52 (trace processor), catapult's importer (chrome://tracing), torch-tb-profiler 0.4.0
and 0.4.3. `docs/viewers.md` lists them; the tests hold them against the viewers.
"""

from __future__ import annotations

import codecs
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta

from hpuprof.errors import TraceFormatError
from hpuprof.ingest import dialects
from hpuprof.ingest.columns import whole
from hpuprof.ingest.decode import EventStream
from hpuprof.ingest.hw_csv import looks_like_hw_csv
from hpuprof.ingest.source import ByteSource, read_head
from hpuprof.ingest.wire import WholeEvent
from hpuprof.model.partial import FailedFile
from hpuprof.model.trace import Ints
from hpuprof.naming import is_trace_name
from hpuprof.timeline.colours import known
from hpuprof.timeline.plan import plan_file
from hpuprof.timeline.planned import SLICE, Columns, FilePlan, PlanJob
from hpuprof.timeline.rows import base_ns

PERFETTO, CHROME, TENSORBOARD = VIEWERS = ("Perfetto", "chrome://tracing", "TensorBoard")
FAILS, LOSES, NOTE = "fails", "loses", "note"
UNSET = msgspec.UNSET

_CHROME_LIMIT = 512 << 20  # a V8 string holds no more
_PERFETTO_LIMIT = 1_000_000_000  # the browser's trace processor has 2 GB (4 GB where it is built for 64 bits)
_TENSORBOARD_LIMIT = 500_000_000  # larger traces leave its Trace tab blank
_BACKSLASH = re.compile(rb'(?<!\\)(?:\\\\)+"')
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_NOT_FINITE = re.compile(rb"[:,\[]\s*(?:-?Infinity|NaN)\s*[,}\]]")
_TRAILING = re.compile(rb'\}\s*,\s*\](?=\s*(?:,\s*"|\}|\Z))')
_STEP = re.compile(r"ProfilerStep#(?!\d+$)")
_KERNEL_CATS = ("kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset")


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that one viewer would not show as it is in the file."""

    viewer: Annotated[str, Meta(description="Perfetto, chrome://tracing or TensorBoard.")]
    severity: Annotated[
        str, Meta(description="fails: nothing loads; loses: something is missing or drawn wrongly; note.")
    ]
    count: Annotated[int, Meta(description="Rows, arrows or places concerned.")]
    text: Annotated[str, Meta(description="What happens and why.")]
    fix: Annotated[str, Meta(description="A command that mends it, or what else to do; empty when nothing helps.")]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """What the viewers make of one file."""

    path: Annotated[str, Meta(description="The file.")]
    bytes: Annotated[int, Meta(description="Its size unpacked.")]
    rows: Annotated[int, Meta(description="Rows read, metadata included.")]
    verdicts: Annotated[dict[str, str], Meta(description="By viewer: ok, loses or fails.")]
    problems: Annotated[list[Problem], Meta(description="Why, worst first.")]


class _Scanned(ByteSource):
    """A byte source that looks at the text on its way."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.seen: Counter[str] = Counter()

    def __iter__(self) -> Iterator[bytes]:
        decode = codecs.getincrementaldecoder("utf-8")()
        rest = b""
        for piece in super().__iter__():
            text = rest + piece
            # What may go on in the next piece is looked at with it.
            cut = text.rfind(b"{") if b"{" in text else 0
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


def check_file(path: str | Path) -> Checked:
    """Check one trace file. Raises TraceFormatError when nothing in it can be read."""
    path = str(path)
    try:
        if looks_like_hw_csv(read_head(path, 4096)):
            return _csv(path)
        source = _Scanned(path)
        stream = EventStream(source, whole=True)
        seen = _Rows()
        for rows in stream:
            seen.feed(rows)  # type: ignore[arg-type]
    except OSError as error:
        raise TraceFormatError(
            f"{path}: cannot be read: {error.strerror or error}",
            path=path,
            hint="check that it exists and that you may read it",
        ) from error
    with tempfile.TemporaryDirectory(prefix="hpuprof-check-") as spool:
        plan = plan_file(PlanJob(path, path, str(Path(spool) / "0")))
        if isinstance(plan, FailedFile):
            raise TraceFormatError(plan.message, path=path, offset=plan.offset or 0, hint=plan.hint)
        columns = Columns.load(plan.spool)
    report = _Report(path)
    _text(report, stream, source, seen)
    _lost_rows(report, plan, columns, base_ns(stream.log.header))
    _viewer_rows(report, seen)
    _tensorboard(report, stream, seen)
    _sizes(report, stream.log.bytes_read)
    return report.finish(stream.log.bytes_read, seen.rows)


def _csv(path: str) -> Checked:
    report = _Report(path)
    for viewer in VIEWERS:
        report.add(viewer, FAILS, 1, "a table of the hardware profiler, not a Chrome trace")
    return report.finish(Path(path).stat().st_size, 0)


class _Report:
    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[Problem] = []
        name = re.sub(r"(?:\.pt\.trace)?\.(?:json|csv)(?:\.gz)?$", "", path)
        self.merge = f"hpuprof merge {_quoted(path)} -o {_quoted(name + '.merged.json.gz')}"

    def add(self, viewer: str, severity: str, count: int, text: str, fix: str | None = None) -> None:
        """Add a problem unless there is no case of it; merging mends what the two timeline viewers dislike."""
        if not count:
            return
        if fix is None:
            fix = self.merge if viewer != TENSORBOARD else f"hpuprof convert {_quoted(self.path)} --for tensorboard"
        self.problems.append(Problem(viewer=viewer, severity=severity, count=count, text=text, fix=fix))

    def finish(self, size: int, rows: int) -> Checked:
        order = {FAILS: 0, LOSES: 1, NOTE: 2}
        self.problems.sort(key=lambda p: (VIEWERS.index(p.viewer), order[p.severity]))
        verdicts = {}
        for viewer in VIEWERS:
            found = {p.severity for p in self.problems if p.viewer == viewer}
            verdicts[viewer] = FAILS if FAILS in found else LOSES if LOSES in found else "ok"
        return Checked(path=self.path, bytes=size, rows=rows, verdicts=verdicts, problems=self.problems)


class _Rows:
    """Counts what the viewers stumble over, row by row."""

    def __init__(self) -> None:
        self.rows = 0
        self.seen: Counter[str] = Counter()
        self.cats: Counter[str] = Counter()
        self.names: dict[str, set[str]] = {}

    def feed(self, rows: list[WholeEvent]) -> None:
        self.rows += len(rows)
        for row in rows:
            self._common(row)
            phase = _PHASES.get(row.ph) if isinstance(row.ph, str) else None
            if phase:
                getattr(self, f"_{phase}")(row)

    def _common(self, row: WholeEvent) -> None:
        seen = self.seen
        if bytes(row.ts) in (b"", b"null") and row.ph != "M":
            seen["timeless"] += 1
        if not isinstance(row.name, str):
            seen["unnamed" if row.name is UNSET else "name_no_text"] += 1
        if row.cat is not UNSET and not isinstance(row.cat, str):
            seen["cat_no_text"] += 1
        if row.cname is not UNSET and not known(row.cname):
            seen["colour"] += 1
        for value, what in ((row.pid, "pid"), (row.tid, "tid")):
            number = whole(value) if value is not UNSET else None
            if value is UNSET or value is None:
                seen[f"no_{what}"] += 1
            elif number is None:
                seen["text_id"] += 1
            elif not 0 <= number < 2**32:
                seen["far_id"] += 1

    def _slice(self, row: WholeEvent) -> None:
        seen, cat = self.seen, row.cat if isinstance(row.cat, str) else ""
        self.cats[cat.lower()] += 1
        if row.dur is UNSET or row.dur is None:
            seen["endless"] += 1
        if not cat:
            seen["uncategorised"] += 1
        rule = dialects.row_rule(cat, lane=False)
        if rule and rule.target == "host" and whole(row.tid) is None:
            seen["host_tid"] += 1
        if isinstance(row.name, str) and row.name.startswith("ProfilerStep#"):
            seen["step_number"] += bool(_STEP.match(row.name))
            seen["device_step"] += cat.lower() == "gpu_user_annotation"
        if cat.lower() == "kernel":
            device = _args(row).get("device")
            if not isinstance(device, int):
                seen["kernel_without_device"] += 1
            elif device >= 64:
                seen["kernel_device_64"] += 1
        elif cat.lower() in ("cuda_runtime", "cuda_driver", "privateuse1_runtime", "hip_runtime", "xpu_runtime"):
            seen["launches"] += 1

    def _mark(self, row: WholeEvent) -> None:  # noqa: ARG002
        self.seen["marks"] += 1

    def _flow(self, row: WholeEvent) -> None:
        if row.id is UNSET or row.id is None:
            self.seen["flow_without_id"] += 1
        elif not isinstance(row.id, int):
            self.seen["flow_text_id"] += 1
        if row.ph == "f" and row.bp != "e":
            self.seen["flow_unbound"] += 1

    def _counter(self, row: WholeEvent) -> None:
        values = list(_args(row).values())
        self.seen["counter_null"] += None in values
        if not values or not all(isinstance(v, (int, float)) or _numeric(v) for v in values):
            self.seen["counter"] += 1

    def _async(self, row: WholeEvent) -> None:
        if row.id is UNSET and row.id2 is UNSET:
            self.seen["async_without_id"] += 1
        if row.cat is UNSET:
            self.seen["async_without_cat"] += 1
        if row.ph in "STpF":
            self.seen["async_legacy"] += 1

    def _metadata(self, row: WholeEvent) -> None:
        if row.args is UNSET:
            self.seen["metadata_without_args"] += 1
        elif row.name == "process_name":
            self.names.setdefault(str(row.pid), set()).add(str(_args(row).get("name")))

    def _instant(self, row: WholeEvent) -> None:
        if row.name == "[memory]":
            self.seen["memory"] += 1
            if _args(row).get("Device Type") not in (0, 1):
                self.seen["memory_device"] += 1


_PHASES = {
    "X": "slice", "B": "mark", "E": "mark", "s": "flow", "t": "flow", "f": "flow", "C": "counter", "M": "metadata",
    **dict.fromkeys("bneSTpF", "async"), **dict.fromkeys("iI", "instant"),
}  # fmt: skip


def _args(row: WholeEvent) -> dict[str, Any]:
    try:
        args = msgspec.json.decode(row.args) if row.args is not UNSET else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return args if isinstance(args, dict) else {}


def _numeric(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(np.isfinite(float(value)))
    except ValueError:
        return False


def _text(report: _Report, stream: EventStream, source: _Scanned, rows: _Rows) -> None:
    """Check the text: what is no strict JSON, and what is but is not read."""
    log, seen = stream.log, source.seen
    notes = {note.code: note for note in log.notes}
    add = report.add
    strict = "cannot be parsed, so it shows nothing"
    for code, what in (("HP119", "damaged compression"), ("HP102", "text between the rows that is no JSON")):
        if code in notes:
            for viewer in VIEWERS:
                add(viewer, FAILS, notes[code].count, f"{what} (byte {notes[code].offset:,}) {strict}")
    if "HP101" in notes:
        between = log.form == "array" and "inside" not in notes["HP101"].text
        where = f"{notes['HP101'].text} (byte {notes['HP101'].offset:,})"
        add(TENSORBOARD, FAILS, 1, where)
        for viewer in (PERFETTO, CHROME):
            add(viewer, NOTE if between else FAILS, 1, where)
    if log.form == "bare":
        for viewer in VIEWERS:
            add(viewer, FAILS, 1, "rows without an enclosing array or object")
    if log.form == "array":
        add(TENSORBOARD, FAILS, 1, "a bare list of rows; it wants an object with traceEvents")
    if "HP103" in notes:
        count, where = notes["HP103"].count, f"(first at byte {notes['HP103'].offset:,})"
        if seen["not_finite"]:
            add(CHROME, FAILS, seen["not_finite"], f"NaN or Infinity {where} {strict}")
            text = f"NaN or Infinity as a stamp or a counter {where} stops the loading"
            add(PERFETTO, FAILS, rows.seen["timeless"] + rows.seen["counter_null"], text)
            add(TENSORBOARD, LOSES, seen["not_finite"], f"NaN or Infinity {where}: the Trace view stays blank")
        elif seen["control"] and "control" in notes["HP103"].text:
            add(CHROME, FAILS, count, f"raw control characters {where} {strict}")
        elif seen["utf8"] and "UTF-8" in notes["HP103"].text:
            add(CHROME, NOTE, count, f"bytes that are no UTF-8 {where} show as \ufffd")
        else:
            for viewer in (CHROME, PERFETTO):
                add(viewer, FAILS, count, f"{notes['HP103'].text.removeprefix('repaired ')} {where}")
            add(TENSORBOARD, LOSES, count, f"{notes['HP103'].text.removeprefix('repaired ')} {where}")
    for viewer in (CHROME, TENSORBOARD):
        add(viewer, FAILS, seen["trailing"], f"a comma behind the last row {strict}")
    add(
        PERFETTO,
        FAILS,
        seen["backslash"],
        "strings that end in a backslash make it refuse the whole file (\"Expected ',' or '}'\")",
    )


def _lost_rows(report: _Report, plan: FilePlan, columns: Columns, base: int) -> None:
    """Count rows that cross others on their thread, and arrows that cannot be drawn."""
    rows = np.flatnonzero(columns.kind == SLICE)
    keys = {(p.pid, p.tid): i for i, p in enumerate(plan.places)}
    tracks = np.array([keys[p.pid, p.tid] for p in plan.places] or [0], dtype=np.int64)[columns.slot[rows]]
    start, dur = columns.start[rows], columns.dur[rows]
    crossing = _crossing(tracks, start, start + dur)
    why = "half-overlap another row of their thread (annotations across python frames, kernels at one time)"
    report.add(PERFETTO, LOSES, crossing, f"rows {why} and are dropped (since v57 drawn apart)")
    report.add(CHROME, LOSES, crossing, f"rows {why} and are drawn as if they nested")
    # Both read stamps as doubles of µs: exact to the ns up to 2^43 µs, some 100 days.
    whole_us, rest_ns = np.divmod(start - base, 1000)
    rounded = np.rint((whole_us + rest_ns / 1000.0) * 1000.0).astype(np.int64)
    more = _crossing(tracks, rounded, rounded + dur) - crossing if len(rows) else 0
    why = "more half-overlap another row once stamps as large as these are rounded to doubles"
    for viewer in (PERFETTO, CHROME):
        report.add(viewer, LOSES, max(more, 0), f"rows or so {why}")
    further = sum(len(ids) for ids in columns.copies.values())
    report.add(CHROME, LOSES, further, "arrows from a start that has several ends; only the first is drawn")
    undrawn = plan.counts.get("flow_points_without_partner", 0) + plan.counts.get("flow_points_outside_slices", 0)
    for viewer in (PERFETTO, CHROME):
        text = "ends of arrows whose other end is not in the file, or that lie in no row; no viewer draws them"
        report.add(viewer, NOTE, undrawn, text, fix="")


def _crossing(tracks: Ints, start: Ints, end: Ints) -> int:
    """Count rows that begin inside another row of their track and end after it, as a viewer meets them."""
    found, on = 0, -1
    stack: list[int] = []
    order = np.lexsort((np.arange(len(start)), -end, start, tracks))
    for track, low, high in zip(tracks[order].tolist(), start[order].tolist(), end[order].tolist(), strict=True):
        if track != on:
            on, stack = track, []
        while stack and stack[-1] <= low:
            stack.pop()
        if stack and high > stack[-1]:
            found += 1
            continue
        stack.append(high)
    return found


def _viewer_rows(report: _Report, rows: _Rows) -> None:
    seen, add = rows.seen, report.add
    bad = seen["unnamed"] + seen["name_no_text"] + seen["cat_no_text"]
    add(CHROME, FAILS, bad, "rows whose name or category is no text stop the loading (TypeError)")
    add(CHROME, FAILS, seen["colour"], "rows with a colour (cname) that it does not know stop the loading")
    add(CHROME, FAILS, seen["metadata_without_args"], "metadata rows without arguments stop the loading")
    add(CHROME, LOSES, seen["no_pid"], "rows without a process")
    for viewer in (PERFETTO, CHROME):
        add(viewer, LOSES, seen["timeless"], "rows without a time stamp", fix="")
    add(PERFETTO, LOSES, seen["endless"], "rows without a duration are dropped")
    add(CHROME, NOTE, seen["endless"], "rows without a duration are drawn to the end")
    add(PERFETTO, LOSES, seen["far_id"], "process or thread numbers below 0 or of 2^32 and more are lost")
    add(PERFETTO, NOTE, seen["text_id"], "process or thread numbers that are text are replaced with other numbers")
    add(PERFETTO, LOSES, seen["counter"], "counters with a value that is no number")
    ids = seen["flow_text_id"] + seen["flow_without_id"]
    add(PERFETTO, LOSES, ids, "ends of arrows whose id is no number are not drawn")
    add(CHROME, LOSES, seen["flow_without_id"], "ends of arrows without an id are not drawn")
    for viewer in (PERFETTO, CHROME):
        add(viewer, LOSES, seen["flow_unbound"], "ends of arrows without bp:'e' bind to no row")
        add(viewer, LOSES, seen["async_without_id"], "asynchronous rows without an id")
    add(CHROME, LOSES, seen["async_without_cat"], "asynchronous rows without a category")
    add(PERFETTO, LOSES, seen["async_legacy"], "asynchronous rows of the old kind (S, T, F) are not drawn")
    contested = sum(len(names) > 1 for names in rows.names.values())
    for viewer in (PERFETTO, CHROME):
        add(viewer, NOTE, contested, "processes with several names; the last one shows")


def _tensorboard(report: _Report, stream: EventStream, rows: _Rows) -> None:
    """Check what torch-tb-profiler 0.4.x needs. It parses with Python, so it takes NaN and bad UTF-8."""
    seen, name = rows.seen, Path(report.path).name
    header = stream.log.header

    def add(severity: str, count: int, text: str, fix: str | None = None) -> None:
        report.add(TENSORBOARD, severity, count, text, fix)

    if not is_trace_name(name):
        add(FAILS, 1, "the name does not end in .pt.trace.json[.gz], so it is not found", "rename it")
    add(FAILS, seen["unnamed"], "rows without a name lose the whole file")
    add(FAILS, seen["uncategorised"] + seen["endless"], "rows without category or duration lose the whole file")
    add(FAILS, seen["host_tid"], "host rows whose thread is no number lose the whole file")
    add(FAILS, seen["step_number"], "ProfilerStep# rows without a number lose the whole file")
    add(FAILS, seen["device_step"], "ProfilerStep# rows on the device leave the run empty")
    add(FAILS, seen["kernel_without_device"], "kernels without a device number lose the whole file")
    add(FAILS, seen["kernel_device_64"], "devices numbered 64 and more lose the whole file")
    add(LOSES, seen["memory_device"], "memory samples of a device type that is not 0 or 1: no memory curve")
    kernels = sum(rows.cats[c] for c in _KERNEL_CATS)
    hidden = rows.cats["hpu_op"] + rows.cats["mtia_ccp_events"]
    if not kernels:
        add(LOSES, hidden, "device rows of a category that it ignores: no device in any view")
    else:
        add(LOSES, seen["launches"], "launch calls of a category that it ignores: operators show no device time")
        if stream.log.header.get("traceName") and "]" in str(header.get("traceName")):
            add(LOSES, 1, "a ] behind the events (traceName): its Trace view stays blank")
    if header.get("Framework") == "pytorch-lightning":
        add(LOSES, 1, "the Framework entry of Lightning: no Module view, and no Lightning view")
    loader = "user_annotation" in rows.cats
    add(NOTE, int(loader), "DataLoader time counts as 0, as it is an annotation")


def _sizes(report: _Report, size: int) -> None:
    smaller = f"hpuprof merge {_quoted(report.path)} --steps A:B -o part.json.gz"
    if size > _CHROME_LIMIT:
        report.add(CHROME, FAILS, 1, "more than 512 MB of text; the browser cannot hold it as one string", smaller)
    if size > _PERFETTO_LIMIT:
        report.add(PERFETTO, LOSES, 1, "more than 1 GB; the browser's 2 GB of memory may not suffice", smaller)
    if size > _TENSORBOARD_LIMIT:
        report.add(TENSORBOARD, LOSES, 1, "more than 500 MB; its Trace view stays blank", smaller)


def _quoted(text: str) -> str:
    import shlex

    return shlex.quote(text)
