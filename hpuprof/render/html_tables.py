"""What the HTML page shows, block by block: charts to draw and tables with a text and a sort key for each cell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from hpuprof.model.schema import CAUSE_TEXT
from hpuprof.render import sections as shown
from hpuprof.render.advise import numbers
from hpuprof.render.sections import Section, could_not_say, graph_options, lead_recording
from hpuprof.render.units import duration, measured, number, percent, shorten, size
from hpuprof.report.model import Report

TOP = 500
"""Rows of a table of names that enter the page."""
TOP_RANKS = 1024
TOP_STEPS = 200
_CAUSE = {cause.name.lower(): text for cause, text in CAUSE_TEXT.items()}
_SAYS_NOTHING: dict[str, tuple[Any, ...]] = {"window": ("0",)}
_Format = Callable[[Any], str]
Spec = tuple[str, str] | tuple[str, str, _Format]


@dataclass(frozen=True)
class Column:
    """A column: what it is called, what it means, whether it holds numbers."""

    name: str
    meaning: str = ""
    number: bool = False


@dataclass(frozen=True)
class Cell:
    """One cell: what is shown, what sorts it (None for unknown), and the whole of what was shortened."""

    text: str
    key: float | int | str | None = None
    whole: str = ""


@dataclass(frozen=True)
class HtmlTable:
    """A table. `sorts`: its headers sort; `filters`: a field above it filters rows; `folded`: it opens on demand."""

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    sorts: bool = False
    filters: bool = False
    folded: bool = False

    @staticmethod
    def of_section(section: Section | None, name: str, *, title: str | None = None) -> HtmlTable | None:
        """Return a section of the text report as a table, or None when it has no rows."""
        if section is None or not section.rows:
            return None
        columns = tuple(Column(h, number=a == "r") for h, a in zip(section.header, section.align, strict=True))
        rows = tuple(tuple(Cell(c) for c in row) for row in section.rows)
        return HtmlTable(name, section.title if title is None else title, columns, rows, section.note)

    @staticmethod
    def of_rows(name: str, title: str, rows: Sequence[Any], specs: Sequence[Spec], **how: Any) -> HtmlTable | None:
        """Return rows of a report's table as a table: `specs` names columns, headers, and formats where the name does not tell.

        More than `top` rows (500) are cut, and the note says so.
        """
        top, note = how.pop("top", TOP), how.pop("note", "")
        if not rows:
            return None
        meanings = _meanings(type(rows[0]))
        kept = [(s[0], s[1], s[2] if len(s) > 2 else _format(s[0])) for s in specs if s[0] in meanings]
        unknown = [h for column, h, _ in kept if all(getattr(r, column) is None for r in rows[:top])]
        kept = [
            s for s in kept if any(getattr(r, s[0]) not in _SAYS_NOTHING.get(s[0], (None, "", [])) for r in rows[:top])
        ]
        if unknown:
            note = f"{note} Unknown in this recording: {', '.join(unknown)}.".strip()
        cells = tuple(tuple(_cell(getattr(r, column), form) for column, _, form in kept) for r in rows[:top])
        numeric = [all(not isinstance(line[i].key, str) for line in cells) for i in range(len(kept))]
        cells = tuple(
            tuple(replace(c, text="unknown") if n and c.key is None else c for c, n in zip(line, numeric, strict=True))
            for line in cells
        )
        columns = tuple(
            Column(header, meanings[column], is_number)
            for (column, header, _), is_number in zip(kept, numeric, strict=True)
        )
        if len(rows) > top:
            cut = f"The first {number(top)} of {number(len(rows))} rows; `--json` and `hpuprof export` have all."
            note = f"{note} {cut}".strip()
        how = {"sorts": len(rows) > 1, "filters": len(rows) > 12, **how}
        return HtmlTable(name, title, columns, cells, note, **how)


@dataclass(frozen=True)
class Chart:
    """A figure by name, what it shows in words, and what it cannot show."""

    name: str
    label: str
    caption: str = ""


@dataclass(frozen=True)
class Block:
    """One section of the page. `lists`: headings with lines; `code`: what to type, with what it is."""

    name: str
    title: str
    lead: str = ""
    charts: tuple[Chart, ...] = ()
    tables: tuple[HtmlTable | None, ...] = ()
    lists: tuple[tuple[str, tuple[str, ...]], ...] = ()
    code: tuple[tuple[str, str], ...] = ()
    always: bool = field(default=False)

    def only(self, drawn: set[str]) -> Block:
        """Return the block without charts that were not drawn and tables that have no rows."""
        return replace(
            self,
            charts=tuple(c for c in self.charts if c.name in drawn),
            tables=tuple(t for t in self.tables if t is not None),
            lists=tuple((h, lines) for h, lines in self.lists if lines),
            code=tuple((h, text) for h, text in self.code if text),
        )

    @property
    def empty(self) -> bool:
        """Whether nothing is left to show."""
        return not (self.always or self.charts or self.tables or self.lists or self.code)


@dataclass(frozen=True)
class Tile:
    """One number at the top of the page."""

    metric: str
    label: str
    value: str


def tiles(report: Report) -> list[Tile]:
    """Return the numbers shown beside the headline; unknown ones of the device are shown as unknown."""
    chosen = ("step_time_p50", "unprofiled_step_time", "host_working_fraction", "device_busy_fraction",
              "device_idle_fraction", "exposed_communication_fraction", "input_fraction", "peak_device_memory")  # fmt: skip
    labels = {name: label.strip() for name, label in shown.BUDGET}
    found = []
    for name in chosen:
        metric = report.metrics[name]
        if metric.value is not None or name in ("host_working_fraction", "device_busy_fraction"):
            found.append(Tile(name, labels[name], measured(metric.value, metric.unit)))
    return found[:6]


def budget_table(report: Report) -> HtmlTable:
    """Return the step budget; each label carries its definition."""
    rows = []
    for name, label in shown.BUDGET:
        metric = report.metrics[name]
        if metric.value is not None or name in ("device_busy_fraction", "host_working_fraction"):
            rows.append((Cell(label, name, metric.definition), Cell(measured(metric.value, metric.unit), metric.value)))
    columns = (Column("part of the step"), Column("value", number=True))
    return HtmlTable("budget", "Step budget", columns, tuple(rows), f"Over {report.headline.population}.")


def step_blocks(report: Report) -> list[Block]:
    """Return timeline, step times, engines and idle causes."""
    lead = lead_recording(report.data)
    whose = _whose(report)
    mine = _mine(report)
    steps = [s for s in report.data.steps if lead and shown.is_of(s, lead)]
    idle = HtmlTable.of_section(shown.causes(report), "causes")
    return [
        Block(
            "timeline",
            "Steps in time",
            charts=(
                Chart(
                    "timeline",
                    "Timeline of steps: host working and blocked, device work by kind, device idle by cause, and the longest gaps.",
                    "Steps and the longest gaps lie where they were in time. The parts inside a step are sums over the step, drawn one after the other; they do not show when in the step something ran (`hpuprof view` does). At most 40 steps of 8 ranks.",
                ),
            ),
            tables=(
                HtmlTable.of_rows(
                    "steps",
                    f"Steps{whose}",
                    steps,
                    (
                        ("step", "step"), ("label", "name"), ("wall_ns", "step time"), ("excluded", "left out as"), ("host_working_ns", "host working"),
                        ("host_blocked_ns", "host blocked"), ("input_ns", "input"), ("device_busy_ns", "device busy"), ("device_idle_ns", "device idle"),
                        ("compute_busy_ns", "compute"), ("exposed_communication_ns", "exposed comm."), ("exposed_copy_ns", "exposed copies"), ("launches", "launches"),
                    ),
                    top=TOP_STEPS,
                    folded=True,
                ),
            ),
        ),
        Block(
            "step-times",
            "Step times",
            charts=(Chart("step_times", "Distribution of step times: a point for each step, lines for median and 90th percentile of each rank.", "Hollow points are steps left out of medians (first, last, warm-up, compiling, outliers). At most 32 ranks, 200 steps each."),),
        ),
        Block(
            "engines",
            "Engines",
            charts=(Chart("engines", "Share of the step for which each engine was busy, by rank.", "Busy is the union of an engine's rows: rows at once count once."),),
            tables=(
                HtmlTable.of_rows("engine-table", f"Engines, per step{whose}", [e for e in mine("engines") if not e.lane], (("engine", "engine"), ("lanes", "lanes"), ("rows_per_step", "rows"), ("busy_ns", "busy"), ("busy_fraction", "share of step"))),
                HtmlTable.of_rows("overlap-table", f"Engines at once, per step{whose}", [o for o in mine("overlaps") if o.overlap_ns], (("engine_a", "first"), ("engine_b", "second"), ("overlap_ns", "both busy"), ("fraction_of_a", "of first", percent), ("fraction_of_b", "of second", percent))),
            ),
        ),
        Block(
            "gaps",
            "Device idle time",
            lead="What the host did while the device had nothing to do.",
            charts=(Chart("gap_causes", "Device idle time by cause, as shares of the step.", ""),),
            tables=(
                idle and replace(idle, title="By cause"),
                HtmlTable.of_rows(
                    "gap-operators",
                    f"By what the host was in{whose}",
                    mine("gap_operators"),
                    (("cause", "cause", _cause), ("host_row", "operator", _name), ("within", "within", _name), ("gaps", "pieces"), ("idle_per_step_ns", "idle per step")),
                    folded=True,
                ),
                HtmlTable.of_rows(
                    "gap-table",
                    f"Longest gaps{whose}",
                    sorted(mine("gaps"), key=lambda g: (-g.dur_ns, g.start_ns)),
                    (("step", "step"), ("start_ns", "at"), ("dur_ns", "length"), ("cause", "cause", _cause), ("cause_fraction", "of the gap"), ("host_row", "host row", _name)),
                    folded=True,
                ),
            ),
        ),
    ]  # fmt: skip


def detail_blocks(report: Report) -> list[Block]:
    """Return operators, kernels, actions, launches, threads, memory and precision of the leading recording."""
    whose, mine = _whose(report), _mine(report)
    return [
        Block(
            "operators",
            "Operators and host",
            tables=(
                HtmlTable.of_rows(
                    "operator-table",
                    f"Operators, per step{whose}",
                    mine("operators"),
                    (
                        ("name", "operator", _name), ("count_per_step", "calls"), ("host_total_per_step_ns", "host total"), ("host_self_per_step_ns", "host self"),
                        ("device_total_per_step_ns", "device"), ("host_p50_ns", "call p50"), ("host_p90_ns", "call p90"), ("launches", "launches (all)"), ("shapes", "shapes"), ("top_shape", "most frequent shape", _name),
                    ),
                ),
                HtmlTable.of_rows(
                    "action-table",
                    f"Actions, annotations and modules, per step{whose}",
                    mine("actions"),
                    (("name", "name", _name), ("kind", "kind"), ("count_per_step", "count"), ("host_total_per_step_ns", "host span"), ("device_busy_per_step_ns", "device busy meanwhile"), ("host_p50_ns", "p50"), ("host_p90_ns", "p90")),
                    note="Parts nest, so rows do not add up.",
                ),
                HtmlTable.of_rows(
                    "thread-table",
                    f"Host threads, per step{whose}",
                    mine("threads"),
                    (("role", "role"), ("threads", "threads"), ("traced_ns", "traced work"), ("blocked_ns", "waiting")),
                ),
            ),
        ),
        Block(
            "kernels",
            "Kernels, copies and launches",
            tables=(
                HtmlTable.of_rows(
                    "kernel-table",
                    f"Kernels and copies, per step{whose}",
                    mine("kernels"),
                    (("name", "name", _name), ("engine", "engine"), ("kind", "kind"), ("dtype", "type"), ("count_per_step", "count"), ("total_per_step_ns", "total"), ("p50_ns", "p50"), ("p90_ns", "p90"), ("max_ns", "longest")),
                ),
                HtmlTable.of_rows(
                    "launch-table",
                    f"Launches, per step{whose}",
                    mine("launches"),
                    (("call", "call", _name), ("count_per_step", "count"), ("host_p50_ns", "call p50"), ("latency_p50_ns", "latency p50"), ("latency_p90_ns", "latency p90"), ("short_fraction", "rows < call"), ("queue_mean", "queue mean"), ("queue_max", "queue max")),
                ),
            ),
        ),
    ]  # fmt: skip


def rank_blocks(report: Report) -> list[Block]:
    """Return ranks, collectives and stragglers (where the report has them), memory and precision."""
    whose, mine = _whose(report), _mine(report)
    ranks = report.data.ranks
    return [
        Block(
            "ranks",
            "Ranks",
            charts=(Chart("ranks_by_steps", "Heat map of step times: a row for each rank, a column for each step.", "At most 1,024 ranks and 100 steps."),),
            tables=(
                HtmlTable.of_rows(
                    "rank-table",
                    "Ranks",
                    ranks,
                    (
                        ("rank", "rank"), ("stage", "stage"), ("action", "action"), ("window", "window"), ("steps_used", "steps used"), ("step_p50_ns", "step p50"), ("step_p90_ns", "step p90"), ("host_working_fraction", "host work"),
                        ("host_blocked_fraction", "host blocked"), ("input_fraction", "input"), ("device_busy_fraction", "device busy"), ("exposed_communication_fraction", "exposed comm."), ("bound", "bound"), ("top_cause", "top idle cause", _cause),
                    ),
                    top=TOP_RANKS,
                )
                if len(ranks) > 1
                else None,
            ),
        ),
        Block(
            "collectives",
            "Collectives and stragglers",
            charts=(
                Chart("collectives", "Median times of collectives: call, transfer, waiting.", "The 20 that took longest."),
                Chart("stragglers", "How long each rank waited for others, and others for it.", ""),
            ),
            tables=(
                _every("rank_waits", "Waiting by rank", report),
                _every("collectives", "Collectives", report),
                _every("groups", "Process groups", report),
                _every("clocks", "Clocks of the hosts", report),
            ),
        ),
        Block(
            "memory",
            "Memory",
            charts=(Chart("memory", "Peaks of allocated and reserved memory.", ""),),
            tables=(
                HtmlTable.of_rows(
                    "memory-table",
                    f"Memory, whole file{whose}",
                    mine("memory"),
                    (("space", "space"), ("samples", "samples"), ("peak_allocated_bytes", "peak allocated"), ("peak_reserved_bytes", "peak reserved"), ("allocated_bytes", "allocations"), ("freed_bytes", "frees")),
                ),
            ),
        ),
        Block(
            "precision",
            "Precision",
            charts=(Chart("precision", "Share of each engine's compute time by data type.", ""),),
            tables=(
                HtmlTable.of_rows("precision-table", f"Compute by data type{whose}", mine("precision"), (("engine", "engine"), ("dtype", "type"), ("busy_ns", "busy in used steps"), ("fraction", "share", percent))),
                HtmlTable.of_section(shown.intel(report.data), "intel"),
            ),
        ),
    ]  # fmt: skip


def graph_mode_block(report: Report) -> Block:
    """Return the graph-mode answer at length: options, numbers, obstacles, modules, code."""
    graph, whose, mine = report.graph_mode, _whose(report), _mine(report)
    table = HtmlTable.of_section(graph_options(graph), "graph-options", title="Options, best first")
    labelled = tuple((Cell(label), Cell(value)) for label, value in numbers(graph)) if graph.options else ()
    obstacles = mine("obstacles")
    step = next((m for m in mine("modules") if m.depth < 0), None)
    seen = []
    if step and step.not_seen:
        seen.append(
            f"Looked for and not seen in {step.calls} steps, which proves nothing for others: {', '.join(step.not_seen)}."
        )
    if step and step.not_checked:
        seen.append(f"This recording cannot show {', '.join(step.not_checked)}.")
    return Block(
        "graph-mode",
        "Graph mode",
        lead=graph.sentence,
        always=True,
        charts=(Chart("graph_options", "Predicted step time of each way to use graphs with its 90 % interval, and the step time now.", "Yellow: something must be removed first. `hpuprof advise` prints the same answer."),),
        tables=(
            table and replace(table, columns=tuple(replace(c, meaning=_OPTION_MEANINGS.get(c.name, "")) for c in table.columns)),
            HtmlTable("graph-numbers", "Numbers", (Column("what"), Column("value")), labelled) if labelled else None,
            HtmlTable.of_rows(
                "obstacle-table",
                f"What stands in the way{whose}",
                obstacles,
                (("code", "code"), ("severity", "severity"), ("module", "module", _name), ("where", "where", _name), ("per_step", "per step"), ("text", "what"), ("fix", "what to do"), ("python_line", "line", _name)),
            ),
            HtmlTable.of_rows(
                "module-table",
                f"Modules, forward and backward, per step{whose}",
                [m for m in mine("modules") if m.depth >= 0],
                (("path", "module", _name), ("calls_per_step", "calls"), ("capturable", "capturable"), ("host_per_step_ns", "host"), ("device_per_step_ns", "device"), ("launches_per_step", "launches"), ("signatures", "signatures"), ("max_graphs", "graphs"), ("varying", "varies"), ("blockers", "blockers", ", ".join)),
            ),
            HtmlTable.of_rows(
                "shape-table",
                f"Input signatures that change{whose}",
                mine("shapes"),
                (("module", "module", _name), ("signature", "signature", _name), ("calls", "calls"), ("fraction", "share", percent), ("device_ns", "device")),
                folded=True,
            ),
            HtmlTable.of_rows(
                "constant-table",
                "Constants of the model",
                graph.constants,
                (("name", "constant"), ("value", "value", _plain), ("low", "low", _plain), ("high", "high", _plain), ("unit", "unit"), ("source", "source")),
                folded=True,
            ),
        ),
        lists=(
            ("Evidence", tuple(graph.evidence)),
            ("Taken for granted", tuple(graph.assumptions)),
            ("What the steps could show", tuple(seen)),
        ),
        code=(("Code to type", graph.code), (f"What would sharpen this: {graph.next_measurement}", graph.command)),
    )  # fmt: skip


def could_not_say_block(report: Report) -> list[Block]:
    """Return what the trace could not say, and what was recorded."""
    return [
        Block("could-not-say", "What the trace could not say", lists=(("", tuple(could_not_say(report))),)),
        Block(
            "files",
            "Recorded on",
            tables=(
                HtmlTable.of_section(shown.recorded_on(report.data), "device-table", title="Devices"),
                HtmlTable.of_rows(
                    "file-table",
                    "Files",
                    report.data.files,
                    (("path", "file", _name), ("rank", "rank"), ("host_name", "host", _name), ("bytes", "size", size), ("rows", "rows"), ("device_rows", "device rows"), ("step_source", "steps from"), ("steps_used", "steps used"), ("span_ns", "span"), ("linked_fraction", "linked")),
                    folded=True,
                ),
            ),
        ),
    ]  # fmt: skip


_OPTION_MEANINGS = {
    "captured": "What is captured: step (forward, backward, optimizer), forward+backward, model, modules, or optimizer.",
    "with": "What to call.",
    "speed-up (90 %)": "Step time now over step time then: the median and the interval that holds 90 % of what is believed.",
    "step time": "Predicted step time, the median.",
    "regret": "How much slower than the best option, as a share of it.",
}


def _every(name: str, title: str, report: Report) -> HtmlTable | None:
    """Return a table of the report with all its columns, where the report has it."""
    rows = getattr(report.data, name, None)
    if not rows:
        return None
    skipped = {"stage", "action", "window", "group_ranks", "evidence"}
    columns = [c for c in type(rows[0]).__struct_fields__ if c not in skipped]
    headers = [c.removesuffix("_ns").removesuffix("_fraction").replace("_", " ") for c in columns]
    return HtmlTable.of_rows(f"{name}-table", title, rows, tuple(zip(columns, headers, strict=True)), top=TOP_RANKS)


def _whose(report: Report) -> str:
    lead = lead_recording(report.data)
    return f", rank {lead.rank}" if lead and len(report.data.ranks) > 1 else ""


def _mine(report: Report) -> Callable[[str], list[Any]]:
    lead = lead_recording(report.data)
    return lambda table: [r for r in getattr(report.data, table) if lead and shown.is_of(r, lead)]


def _cell(value: Any, form: _Format) -> Cell:
    if value is None:
        return Cell("")
    if isinstance(value, bool):
        return Cell("yes" if value else "no", int(value))
    text = form(value)
    if isinstance(value, (int, float)):
        return Cell(text, value)
    return Cell(text, text.lower(), value if form is _name and text != value else "")


def _format(column: str) -> _Format:
    if column in ("rank", "step", "last_rank"):
        return str
    for suffix, form in (("_ns", duration), ("_fraction", percent), ("bandwidth", _rate), ("bytes", size)):
        if column.endswith(suffix):
            return form
    return _text


def _text(value: Any) -> str:
    return number(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else str(value)


def _rate(value: float) -> str:
    return f"{size(value)}/s"


def _plain(value: float) -> str:
    return f"{value:,.6g}"


def _name(value: str) -> str:
    return shorten(value.removeprefix("[pl][profile]"), 90)


def _cause(value: str) -> str:
    return _CAUSE.get(value, value)


def _meanings(row: type[msgspec.Struct]) -> dict[str, str]:
    found = {}
    for column, hint in get_type_hints(row, include_extras=True).items():
        if get_origin(hint) is Annotated:
            found[column] = next((m.description or "" for m in get_args(hint)[1:] if isinstance(m, msgspec.Meta)), "")
        else:
            found[column] = ""
    return found
