"""The readable sections of a report: chosen rows as text cells, which text and Markdown lay out."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from hpuprof.diagnostics import DIAGNOSTICS
from hpuprof.model.metrics import BUDGET, IDLE, Metric, MetricSpec
from hpuprof.model.prediction import GraphMode, GraphOption, Interval
from hpuprof.model.tables import DiagnosticRow, ModuleRow, ObstacleRow, RankRow
from hpuprof.render.column_words import CAUSE
from hpuprof.render.formats import clean, duration, measured, percent
from hpuprof.render.table_view import Section
from hpuprof.render.views import OTHERS, VIEWS
from hpuprof.report.headline import SMALLEST_SHARE
from hpuprof.report.model import GateResult, Report, ReportData
from hpuprof.report.recordings import lead_recording

TOP = 10
_MODULE = re.compile(r"^torch\.\w+\.")
"""What interfaces to graphs are in; `torch.compile` is in none."""
_CLOCK_NOTE = {
    "collective": "Host clocks estimated from collectives.",
    "raw": "Timestamps of all hosts used as recorded.",
    "manifest": "Host clocks from the manifest.",
    "one host": "All ranks share one host's clock.",
}


def sections(report: Report, *, top: int | None = TOP) -> list[Section]:
    """Return the sections in reading order, tables cut to `top` rows (None: all); those without rows are left out."""
    data = report.data
    lead = lead_recording(data)
    found = [
        gates(data.gates),
        graph_options(data.graph_mode, 3),
        _budget(report),
        causes(report),
        _view("windows", data, lead, top),
        _view("run_steps", data, lead, top),
        _view("run_slow_steps", data, lead, top),
        _ranks(data),
        _waiting(data, top),
        _view("rank_cycle", data, lead, top),
        _view("collectives", data, lead, top),
        _view("process_groups", data, lead, top),
        _clocks(data, top),
        recorded_on(data),
    ]
    if lead:
        found += [
            *(_several(name, data, lead) for name in ("step_kinds", "step_groups")),
            _view("gaps", data, lead, top),
            _actions(data, lead, top),
            *(
                _view(n, data, lead, top)
                for n in (
                    *("critical_path", "sensitivity", "operators", "utilisation"),
                    *("kernels", "kernel_sequences", "engines", "overlaps", "precision"),
                )
            ),
            _obstacles(data, lead, top),
            _modules(data, lead, top),
            *(_view(n, data, lead, top) for n in ("scopes", "recipes")),
            *(_view(n, data, lead, top) for n in ("launches", "threads", "memory", *OTHERS)),
            intel(data, lead),
        ]
    return [section for section in found if section and section.rows]


def ratio(value: float) -> str:
    """Format a speed-up."""
    return f"{value:.2f}×"


def span(interval: Interval) -> str:
    """Format a speed-up with its 90 % interval."""
    if interval.at_most:
        return f"at most {ratio(interval.high)} (≥ {interval.low:.2f})"
    return f"{ratio(interval.median)} ({interval.low:.2f}–{interval.high:.2f})"


def captured(option: GraphOption) -> str:
    """Name an option: its region, how it is launched, what must go from the program first."""
    gone = [*(["sync"] if option.drops_sync else []), *option.blocked_by]
    return option.region + (", async" if option.asynchronous else "") + (f" without {', '.join(gone)}" if gone else "")


def graph_options(graph: GraphMode, top: int | None = None) -> Section:
    """Return the ways to use graphs, those that need changes of the program last; no rows without a prediction."""
    rows = [
        (
            captured(o),
            _MODULE.sub("", o.api),
            span(o.speedup),
            duration(o.step_time_ns.median),
            percent(o.regret),
        )
        for o in graph.options[:top]
    ]
    base = {"unprofiled": "measured without the profiler", "given": "as given"}.get(
        graph.base or "", "recorded step minus estimated profiling overhead"
    )
    note = (
        f"Relative to {duration(graph.base_step_ns)} ({base}). Best first; options that need changes come last. "
        "Details: `hpuprof advise`."
    )
    return Section(
        "Would graph mode help?",
        ("captured", "with", "speed-up (90 %)", "step time", "vs best"),
        tuple(rows),
        "llrrr",
        note,
    )


def _view(name: str, data: ReportData, lead: RankRow | None, top: int | None) -> Section | None:
    view = VIEWS[name]
    return view.section(view.rows(data, lead), top=top, whose=whose(data, lead))


def _several(name: str, data: ReportData, lead: RankRow) -> Section | None:
    """Return the kinds or groups of steps; a single one needs no table."""
    section = _view(name, data, lead, None)
    return section if section and len(section.rows) > 1 else None


def whose(data: ReportData, lead: RankRow | None) -> str:
    """Return the suffix of titles of one recording's tables: its rank, if the report has several."""
    return f", rank {lead.rank}" if lead and len(data.ranks) > 1 else ""


def gates(results: Sequence[GateResult]) -> Section:
    """Show how each gate went."""
    rows = tuple((clean(g.gate), g.outcome, clean(g.text)) for g in results)
    return Section("Gates", ("fails when", "outcome", "reason"), rows, "lll", name="gates")


def reported(report: Report, specs: Sequence[MetricSpec]) -> list[tuple[MetricSpec, Metric]]:
    """Return those metrics that are known, or are shown as unknown."""
    mean, typical = (report.metrics[name].value for name in ("step_time_mean", "typical_step_time_mean"))
    found = [(spec, report.metrics[spec.name]) for spec in specs if mean != typical or not spec.only_apart]
    return [(spec, metric) for spec, metric in found if metric.value is not None or spec.shown_unknown]


def _budget(report: Report) -> Section:
    rows = tuple((spec.label, measured(metric.value, metric.unit)) for spec, metric in reported(report, BUDGET))
    return Section("Step budget", ("", ""), rows, "lr", note=f"Over {report.headline.population}.")


def idle_shares(report: Report) -> list[tuple[float, str]]:
    """Return the shares of the step that the device idled, and the causes, largest first; those that show at all."""
    metrics = [(report.metrics[name].value, cause.name.lower()) for cause, name in IDLE.items()]
    return sorted(((v, n) for v, n in metrics if v and v >= SMALLEST_SHARE), key=lambda pair: (-pair[0], pair[1]))


def causes(report: Report) -> Section:
    """Return device idle time by cause."""
    rows = tuple((CAUSE[name], percent(value)) for value, name in idle_shares(report))
    return Section("Device idle time, by what the host was doing", ("cause", "share of step"), rows, "lr")


def _ranks(data: ReportData) -> Section | None:
    view, rows = VIEWS["ranks"], data.ranks
    return None if len(rows) < 2 else view.section(rows, top=None, note=_rest(len(rows), view.top))


def _rest(rows: int, shown: int | None, what: str = "more") -> str:
    return "" if shown is None or rows <= shown else f"{rows - shown} {what} in --json."


def _waiting(data: ReportData, top: int | None) -> Section | None:
    rows = [r for r in data.rank_waits if r.waiting_ns is not None]
    rows.sort(key=lambda r: (-(r.blame_ns or 0), r.rank))
    clock = _CLOCK_NOTE.get(rows[0].clock or "", "") if rows else ""
    return VIEWS["rank_waits"].section(rows, top=top, note=f"{clock} {_rest(len(rows), top, 'more ranks')}".rstrip())


def _clocks(data: ReportData, top: int | None) -> Section | None:
    rows = data.clocks
    return None if len(rows) < 2 else VIEWS["clocks"].section(rows, top=top, note=_rest(len(rows), top))


def recorded_on(data: ReportData) -> Section | None:
    """Return the kinds of devices and modes in the files."""
    kinds = sorted({(f.family, f.generation or "", f.mode, f.step_source, f.device_name or "") for f in data.files})
    rows = tuple(
        (clean(" ".join(w for w in (family, generation) if w)), mode, source, clean(device))
        for family, generation, mode, source, device in kinds
    )
    return Section("Recorded on", ("device", "mode", "steps from", "name"), rows, "llll")


def _actions(data: ReportData, lead: RankRow, top: int | None) -> Section | None:
    # What an action costs on the device shows in a synchronous window only.
    drained = next(
        (
            f
            for f in data.files
            if f.window_kind == "sync" and (f.rank, f.stage, f.action) == (lead.rank, lead.stage, lead.action)
        ),
        None,
    )
    of = next((r for r in data.ranks if drained and r.recording == drained.recording), lead)
    note = "From the synchronous window, where an action's span covers its device work." if of is not lead else ""
    view = VIEWS["actions"]
    return view.section(view.rows(data, of), top=top, whose=whose(data, lead), note=note)


def intel(data: ReportData, lead: RankRow | None) -> Section:
    """Return the quantities of Intel's own tool."""
    rows = []
    for i in (i for i in data.intel if lead and i.recording == lead.recording):
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
    note = "Computed with the formulas of Intel's tool, over all steps; the step budget above is stricter."
    return Section("By habana_perf_tool's definitions", ("", "value"), tuple(rows), "lr", note)


def whole_step(data: ReportData, lead: RankRow | None) -> ModuleRow | None:
    """Return the row of the whole step."""
    return next((m for m in data.modules if lead and m.recording == lead.recording and m.depth < 0), None)


def looked_for(step: ModuleRow | None, steps: int) -> list[str]:
    """Return which obstacles were checked but not seen, and which a recording cannot show."""
    found = []
    if step and step.not_seen:
        codes = ", ".join(step.not_seen)
        found.append(f"Checked but not seen in {steps} steps (other steps may differ): {codes}.")
    if step and step.not_checked:
        found.append(f"Not detectable in this recording: {', '.join(step.not_checked)}.")
    return found


def _obstacles(data: ReportData, lead: RankRow, top: int | None) -> Section | None:
    view, step = VIEWS["obstacles"], whole_step(data, lead)
    rows, note = view.rows(data, lead), " ".join(looked_for(step, lead.steps_total))
    if any(o.python_line for o in rows[:top]):
        view = replace(view, columns=f"{view.columns} file_line=line")
    section = view.section(rows, top=top, whose=whose(data, lead), note=note)
    if section is None and step:
        header = tuple(view.headers(ObstacleRow).values())
        nothing = ("–", "–", step.module, "0", "nothing seen")
        section = Section(f"{view.title}{whose(data, lead)}", header, (nothing,), "lllrl", note)
    return section


def _modules(data: ReportData, lead: RankRow, top: int | None) -> Section | None:
    view = VIEWS["modules"]
    rows = [m for m in view.rows(data, lead) if m.source in ("python", "range", "annotation")]
    return view.section(rows, top=top, whose=whose(data, lead))


def data_quality(report: Report) -> list[str]:
    """Return one line per diagnostic code, with counts summed over files, most severe first."""
    return [f"{code} {text}" for code, text in data_quality_by_code(report)]


def data_quality_by_code(report: Report) -> list[tuple[str, str]]:
    """Return the lines of `data_quality` as code and text."""
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
