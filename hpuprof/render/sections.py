"""What a report shows to a person, section by section: chosen rows as text cells. Text and Markdown lay it out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.model.metrics import BUDGET, IDLE
from hpuprof.model.prediction import GraphMode, Interval
from hpuprof.model.schema import CAUSE_TEXT
from hpuprof.model.tables import DiagnosticRow, RankRow, Row
from hpuprof.render.formats import clean, duration, measured, number, percent, size
from hpuprof.render.rank_sections import across_ranks
from hpuprof.render.section import Section
from hpuprof.report.model import GateResult, Report, ReportData
from hpuprof.report.recordings import lead_recording

TOP = 10
SMALLEST_SHARE = 0.0005
"""Causes of less idle time than this share of the step would show as 0.0 %."""
R = TypeVar("R", bound=Row)
_CAUSE = {cause.name.lower(): text for cause, text in CAUSE_TEXT.items()}


def sections(report: Report, *, top: int | None = TOP) -> list[Section]:
    """Return the sections in reading order, tables cut to `top` rows (None: all); those without rows are left out."""
    data = report.data
    lead = lead_recording(data)
    found = [
        gates(data.gates),
        graph_options(data.graph_mode, 3),
        _budget(report),
        causes(report),
        _ranks(data),
        *across_ranks(data, top),
        recorded_on(data),
    ]
    if lead:
        found += [
            _gaps(data, lead, top),
            _actions(data, lead, top),
            _operators(data, lead, top),
            _kernels(data, lead, top),
            _engines(data, lead),
            _overlaps(data, lead),
            _precision(data, lead),
        ]
        found += [_obstacles(data, lead, top), _modules(data, lead, top)]
        found += [_launches(data, lead), _threads(data, lead), _memory(data, lead), intel(data, lead)]
    return [section for section in found if section and section.rows]


def ratio(value: float) -> str:
    """Format a speed-up."""
    return f"{value:.2f}×"


def span(interval: Interval) -> str:
    """Format a speed-up with its 90 % interval."""
    return f"{ratio(interval.median)} ({interval.low:.2f}–{interval.high:.2f})"


def graph_options(graph: GraphMode, top: int | None = None) -> Section:
    """Return the ways to use graphs, best first; without rows when there is no prediction."""
    rows = [
        (
            o.region + (", no sync" if o.drops_sync else "") + (", async" if o.asynchronous else ""),
            o.api.replace("torch.cuda.", "").replace("torch.xpu.", ""),
            span(o.speedup),
            duration(o.step_time_ns.median),
            percent(o.regret),
        )
        for o in graph.options[:top]
    ]
    base = {"unprofiled": "the step time without the profiler", "given": "the given step time"}.get(
        graph.base or "", "the recorded step time less what profiling is believed to cost"
    )
    note = f"Against {base}, {duration(graph.base_step_ns)}; `hpuprof advise` tells more."
    return Section(
        "Would graph mode help?",
        ("captured", "with", "speed-up (90 %)", "step time", "regret"),
        tuple(rows),
        "llrrr",
        note,
    )


def is_of(row: Row, lead: RankRow) -> bool:
    """Whether a row belongs to a recording."""
    return (row.rank, row.stage, row.action, row.window) == (lead.rank, lead.stage, lead.action, lead.window)


def _of(rows: Sequence[R], lead: RankRow) -> list[R]:
    return [r for r in rows if is_of(r, lead)]


def _whose(data: ReportData, lead: RankRow) -> str:
    return f", rank {lead.rank}" if len(data.ranks) > 1 else ""


def gates(results: Sequence[GateResult]) -> Section:
    """Show how each gate went."""
    rows = tuple((clean(g.gate), g.outcome, clean(g.text)) for g in results)
    return Section("Gates", ("fails when", "outcome", "because"), rows, "lll", name="gates")


def _budget(report: Report) -> Section:
    values = report.metrics
    rows = []
    for spec in BUDGET:
        metric = values[spec.name]
        if metric.value is not None or spec.shown_unknown:
            rows.append((spec.label, measured(metric.value, metric.unit)))
    return Section("Step budget", ("", ""), tuple(rows), "lr", note=f"Over {report.headline.population}.")


def causes(report: Report) -> Section:
    """Return device idle time by cause."""
    metrics = [(cause.name.lower(), report.metrics[name].value) for cause, name in IDLE.items()]
    shown = sorted(((v, n) for n, v in metrics if v), key=lambda pair: (-pair[0], pair[1]))
    rows = tuple((_CAUSE[name], percent(value)) for value, name in shown if value >= SMALLEST_SHARE)
    return Section("Device idle, by what the host did meanwhile", ("cause", "share of step"), rows, "lr")


def _ranks(data: ReportData) -> Section | None:
    if len(data.ranks) < 2:
        return None
    rows = []
    for r in data.ranks[:64]:
        who = " ".join(w for w in (str(r.rank), r.stage, r.action) if w) + (f" #{r.window}" if r.window != "0" else "")
        rows.append(
            (
                who,
                duration(r.step_p50_ns),
                percent(r.host_working_fraction),
                percent(r.input_fraction),
                percent(r.device_busy_fraction),
                percent(r.exposed_communication_fraction),
                r.bound,
            )
        )
    note = f"{len(data.ranks) - 64} more in --json." if len(data.ranks) > 64 else ""
    return Section(
        "Ranks",
        ("rank", "step p50", "host work", "input", "dev busy", "exp. comm", "bound"),
        tuple(rows),
        "lrrrrrl",
        note,
    )


def recorded_on(data: ReportData) -> Section | None:
    """Return the kinds of devices and modes in the files."""
    kinds = sorted({(f.family, f.generation or "", f.mode, f.step_source, f.device_name or "") for f in data.files})
    rows = tuple(
        (clean(" ".join(w for w in (family, generation) if w)), mode, source, clean(device))
        for family, generation, mode, source, device in kinds
    )
    return Section("Recorded on", ("device", "mode", "steps from", "name"), rows, "llll")


def _gaps(data: ReportData, lead: RankRow, top: int | None) -> Section:
    gaps = sorted(_of(data.gaps, lead), key=lambda g: (-g.dur_ns, g.start_ns))[:top]
    rows = tuple(
        (
            str(g.step),
            duration(g.start_ns),
            duration(g.dur_ns),
            f"{_CAUSE[g.cause]} ({percent(g.cause_fraction)})",
            clean(g.host_row or "").removeprefix("[pl][profile]"),
        )
        for g in gaps
    )
    return Section(
        f"Longest device idle gaps{_whose(data, lead)}", ("step", "at", "length", "cause", "host row"), rows, "rrrll"
    )


def _actions(data: ReportData, lead: RankRow, top: int | None) -> Section:
    # What an action costs on the device shows in a synchronous window only.
    drained = next(
        (
            f
            for f in data.files
            if f.window_kind == "sync" and (f.rank, f.stage, f.action) == (lead.rank, lead.stage, lead.action)
        ),
        None,
    )
    whose = next(
        (
            r
            for r in data.ranks
            if drained
            and (r.rank, r.stage, r.action, r.window) == (drained.rank, drained.stage, drained.action, drained.window)
        ),
        lead,
    )
    rows = tuple(
        (
            clean(a.name).removeprefix("[pl][profile]"),
            number(a.count_per_step),
            duration(a.host_total_per_step_ns),
            duration(a.device_busy_per_step_ns),
        )
        for a in _of(data.actions, whose)[:top]
    )
    note = "From the synchronous window: an action's span covers its device work." if whose is not lead else ""
    header = ("name", "count", "host span", "device busy meanwhile")
    return Section(f"Actions, annotations and modules, per step{_whose(data, lead)}", header, rows, "lrrr", note)


def _operators(data: ReportData, lead: RankRow, top: int | None) -> Section:
    rows = tuple(
        (
            clean(o.name),
            number(o.count_per_step),
            duration(o.host_total_per_step_ns),
            duration(o.host_self_per_step_ns),
            duration(o.device_total_per_step_ns),
        )
        for o in _of(data.operators, lead)[:top]
    )
    return Section(
        f"Operators, per step{_whose(data, lead)}",
        ("operator", "calls", "host total", "host self", "device"),
        rows,
        "lrrrr",
    )


def _kernels(data: ReportData, lead: RankRow, top: int | None) -> Section:
    rows = tuple(
        (
            clean(k.name),
            k.engine,
            number(k.count_per_step),
            duration(k.total_per_step_ns),
            duration(k.p50_ns),
            duration(k.p90_ns),
        )
        for k in _of(data.kernels, lead)[:top]
    )
    return Section(
        f"Kernels and copies, per step{_whose(data, lead)}",
        ("name", "engine", "count", "total", "p50", "p90"),
        rows,
        "llrrrr",
    )


def _engines(data: ReportData, lead: RankRow) -> Section:
    rows = tuple(
        (e.engine, str(e.lanes), number(e.rows_per_step), duration(e.busy_ns), percent(e.busy_fraction))
        for e in _of(data.engines, lead)
        if not e.lane
    )
    return Section(
        f"Engines, per step{_whose(data, lead)}", ("engine", "lanes", "rows", "busy", "share of step"), rows, "lrrrr"
    )


def _launches(data: ReportData, lead: RankRow) -> Section:
    rows = tuple(
        (
            clean(x.call),
            number(x.count_per_step),
            duration(x.host_p50_ns),
            duration(x.latency_p50_ns),
            percent(x.short_fraction),
        )
        for x in _of(data.launches, lead)[:5]
    )
    return Section(
        f"Launches, per step{_whose(data, lead)}",
        ("call", "count", "call p50", "latency p50", "rows < call"),
        rows,
        "lrrrr",
    )


def _overlaps(data: ReportData, lead: RankRow) -> Section:
    rows = tuple(
        (f"{o.engine_a} and {o.engine_b}", duration(o.overlap_ns), percent(o.fraction_of_a), percent(o.fraction_of_b))
        for o in _of(data.overlaps, lead)
        if o.overlap_ns
    )
    return Section(
        f"Engines at once, per step{_whose(data, lead)}",
        ("engines", "both busy", "of first", "of second"),
        rows,
        "lrrr",
    )


def _threads(data: ReportData, lead: RankRow) -> Section:
    rows = tuple(
        (t.role, str(t.threads), duration(t.traced_ns), duration(t.blocked_ns)) for t in _of(data.threads, lead)
    )
    return Section(
        f"Host threads, per step{_whose(data, lead)}", ("role", "threads", "traced work", "waiting"), rows, "lrrr"
    )


def _precision(data: ReportData, lead: RankRow) -> Section:
    rows = tuple(
        (p.engine, clean(p.dtype), duration(p.busy_ns), percent(p.fraction)) for p in _of(data.precision, lead)
    )
    return Section(
        f"Compute by data type{_whose(data, lead)}", ("engine", "type", "busy in used steps", "share"), rows, "llrr"
    )


def _memory(data: ReportData, lead: RankRow) -> Section:
    rows = tuple(
        (
            m.space,
            number(m.samples),
            size(m.peak_allocated_bytes),
            size(m.peak_reserved_bytes),
            size(m.allocated_bytes),
            size(m.freed_bytes),
        )
        for m in _of(data.memory, lead)
    )
    header = ("space", "samples", "peak allocated", "peak reserved", "allocations", "frees")
    return Section(f"Memory, whole file{_whose(data, lead)}", header, rows, "lrrrrr")


def intel(data: ReportData, lead: RankRow | None) -> Section:
    """Return the quantities of Intel's own tool."""
    rows = []
    for i in _of(data.intel, lead) if lead else []:
        rows = [
            ("device ratio (D / W)", percent(i.device_ratio)),
            ("device/host overlap degree", percent(i.overlap_degree)),
            ("graph build (of host)", percent(i.graph_build_fraction)),
            ("data loader (of host)", percent(i.dataloader_fraction)),
            ("input time (of host)", percent(i.input_fraction)),
            ("compile time (of host)", percent(i.compile_fraction)),
            ("MME / TPC / DMA", " / ".join(duration(x) for x in (i.mme_ns, i.tpc_ns, i.dma_ns))),
            ("MME/TPC overlap", duration(i.mme_tpc_overlap_ns)),
            ("MME lower precision ratio", percent(i.mme_low_precision_ratio)),
        ]
    note = "By the formulas of Intel's tool, over all steps; the step budget above is the stricter measure."
    return Section("As habana_perf_tool counts", ("", "value"), tuple(rows), "lr", note)


def _obstacles(data: ReportData, lead: RankRow, top: int | None) -> Section:
    mine = _of(data.obstacles, lead)
    lines = any(o.python_line for o in mine[:top])
    rows = tuple(
        (
            o.code,
            o.severity,
            clean(o.module),
            number(o.per_step),
            clean((o.text if o.code in ("HP307", "HP308", "HP309") else o.where).replace("aten::", "")),
            *([clean((o.python_line or "").rpartition("/")[2])] if lines else []),
        )
        for o in mine[:top]
    )
    step = next((m for m in _of(data.modules, lead) if m.depth < 0), None)
    if step and not rows:
        rows = (("–", "–", step.module, "0", "nothing seen"),)
    note = ""
    if step and step.not_seen:
        note = f"Looked for and not seen in {step.calls} steps, which proves nothing for others: {', '.join(step.not_seen)}."
    if step and step.not_checked:
        note += f" This recording cannot show {', '.join(step.not_checked)}."
    return Section(
        f"What stands in the way of graph mode{_whose(data, lead)}",
        ("code", "severity", "module", "per step", "where", *(["line"] if lines else [])),
        rows,
        "lllrll"[: 5 + lines],
        note.strip(),
    )


def _modules(data: ReportData, lead: RankRow, top: int | None) -> Section:
    mine = [m for m in _of(data.modules, lead) if m.source in ("python", "range", "annotation") and m.depth >= 0]
    rows = tuple(
        (
            clean(m.module_path),
            number(m.calls_per_step),
            m.capturable,
            duration(m.host_per_step_ns),
            number(m.launches_per_step),
            number(m.signatures),
            number(m.max_graphs),
        )
        for m in mine[:top]
    )
    header = ("module", "calls", "capturable", "host", "launches", "signatures", "graphs")
    return Section(f"Modules, forward and backward, per step{_whose(data, lead)}", header, rows, "lrlrrrr")


def could_not_say(report: Report) -> list[str]:
    """Return one line per diagnostic code, with counts summed over files, most severe first."""
    return [f"{code} {text}" for code, text in unsaid(report)]


def unsaid(report: Report) -> list[tuple[str, str]]:
    """Return what `could_not_say` does, each code apart from its words."""
    order = {"error": 0, "warning": 1, "info": 2}
    groups: dict[tuple[int, str], list[DiagnosticRow]] = {}
    for row in report.data.diagnostics:
        groups.setdefault((order[row.severity], row.code), []).append(row)
    lines = []
    for (_, code), rows in sorted(groups.items()):
        first = rows[0]
        paths = sorted({r.path for r in rows if r.path})
        if len(report.data.files) + sum(1 for r in report.data.diagnostics if r.code in ("HP114", "HP120")) <= 1:
            where = ""
        elif len(paths) == 1:
            where = f" [{clean(paths[0])}]"
        else:
            where = f" [{len(paths)} files, first {clean(paths[0])}]" if paths else ""
        at = f", first at byte {first.offset:,}" if first.offset is not None else ""
        total = sum(r.count for r in rows)
        amount = f"{total:,} × " if total > 1 and code in ("HP101", "HP102", "HP103", "HP111", "HP112", "HP115") else ""
        lines.append((code, f"{DIAGNOSTICS[code].title}: {amount}{clean(first.text)}{at}{where}"))
    return lines
