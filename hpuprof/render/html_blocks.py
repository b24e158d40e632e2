"""What the HTML page shows, block by block: charts to draw, tables, lists and code. Every value arrives ready."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hpuprof.model.metrics import BUDGET, TILES
from hpuprof.render import sections as shown
from hpuprof.render.advice import numbers
from hpuprof.render.formats import measured
from hpuprof.render.html_columns import COLUMNS
from hpuprof.render.html_tables import Block, Cell, Chart, Column, HtmlTable, Tile
from hpuprof.render.sections import could_not_say, graph_options
from hpuprof.report.model import Report
from hpuprof.report.recordings import lead_recording

TOP_RANKS = 1024
TOP_STEPS = 200


def tiles(report: Report) -> list[Tile]:
    """Return the numbers shown beside the headline; unknown ones of the device are shown as unknown."""
    found = []
    for spec in TILES:
        metric = report.metrics[spec.name]
        if metric.value is not None or spec.shown_unknown:
            found.append(Tile(spec.name, spec.label.strip(), measured(metric.value, metric.unit)))
    return found[:6]


def budget_table(report: Report) -> HtmlTable:
    """Return the step budget; each label carries its definition."""
    rows = []
    for spec in BUDGET:
        metric = report.metrics[spec.name]
        if metric.value is not None or spec.shown_unknown:
            label = Cell(spec.label, spec.name, metric.definition)
            rows.append((label, Cell(measured(metric.value, metric.unit), metric.value)))
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
                    "Steps and the longest gaps lie where they were in time. In the lanes called summed, the parts of a step are its sums in a fixed order (work first, then waiting or idle time, the largest cause first); they do not show when in the step something ran (`hpuprof view` does). At most 40 steps of 8 ranks.",
                ),
            ),
            tables=(
                HtmlTable.of_rows(
                    "steps",
                    f"Steps{whose}",
                    steps,
                    COLUMNS["steps-on-host" if any(s.no_operator_ns is not None for s in steps) else "steps"],
                    top=TOP_STEPS,
                    folded=True,
                ),
            ),
        ),
        Block(
            "step-times",
            "Step times",
            charts=(
                Chart(
                    "step_times",
                    "Distribution of step times: a point for each step, lines for median and 90th percentile of each rank.",
                    "Hollow points are steps left out of medians (first, last, warm-up, compiling, validation, outliers). At most 32 ranks, 200 steps each.",
                ),
            ),
        ),
        Block(
            "engines",
            "Engines",
            charts=(
                Chart(
                    "engines",
                    "Share of the step for which each engine was busy, by rank.",
                    "Busy is the union of an engine's rows: rows at once count once.",
                ),
            ),
            tables=(
                HtmlTable.of_rows(
                    "engine-table",
                    f"Engines, per step{whose}",
                    [e for e in mine("engines") if not e.lane],
                    COLUMNS["engine-table"],
                ),
                HtmlTable.of_rows(
                    "overlap-table",
                    f"Engines at once, per step{whose}",
                    [o for o in mine("overlaps") if o.overlap_ns],
                    COLUMNS["overlap-table"],
                ),
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
                    COLUMNS["gap-operators"],
                    folded=True,
                ),
                HtmlTable.of_rows(
                    "gap-table",
                    f"Longest gaps{whose}",
                    sorted(mine("gaps"), key=lambda g: (-g.dur_ns, g.start_ns)),
                    COLUMNS["gap-table"],
                    folded=True,
                ),
            ),
        ),
    ]


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
                    COLUMNS["operator-table"],
                ),
                HtmlTable.of_rows(
                    "action-table",
                    f"Actions, annotations and modules, per step{whose}",
                    mine("actions"),
                    COLUMNS["action-table"],
                    note="Parts nest, so rows do not add up.",
                ),
                HtmlTable.of_rows(
                    "thread-table",
                    f"Host threads, per step{whose}",
                    mine("threads"),
                    COLUMNS["thread-table"],
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
                    COLUMNS["kernel-table"],
                ),
                HtmlTable.of_rows(
                    "launch-table",
                    f"Launches, per step{whose}",
                    mine("launches"),
                    COLUMNS["launch-table"],
                ),
            ),
        ),
    ]


def rank_blocks(report: Report) -> list[Block]:
    """Return ranks, collectives and stragglers (where the report has them), memory and precision."""
    whose, mine = _whose(report), _mine(report)
    ranks = report.data.ranks
    return [
        Block(
            "ranks",
            "Ranks",
            charts=(
                Chart(
                    "ranks_by_steps",
                    "Heat map of step times: a row for each rank, a column for each step.",
                    "At most 1,024 ranks, 100 steps and 30,000 cells.",
                ),
                Chart(
                    "waiting_by_steps",
                    "Heat map of waiting: a row for each rank, a column for each step.",
                    "Waiting is the time in which a rank computed nothing until the last rank came to the collective (`waiting_ns` of `step_waits`); a rank that is dark where the others are bright is the one they wait for. Empty where clocks are unrelated. At most 1,024 ranks, 100 steps and 30,000 cells.",
                ),
            ),
            tables=(
                HtmlTable.of_rows(
                    "rank-table",
                    "Ranks",
                    ranks,
                    COLUMNS["rank-table"],
                    top=TOP_RANKS,
                )
                if len(ranks) > 1
                else None,
                HtmlTable.of_rows(
                    "step_waits-table",
                    f"Steps by what they consist of{whose}",
                    mine("step_waits"),
                    COLUMNS["step_waits-table"],
                    top=TOP_STEPS,
                    folded=True,
                ),
            ),
        ),
        Block(
            "collectives",
            "Collectives and stragglers",
            charts=(
                Chart(
                    "collectives", "Median times of collectives: call, transfer, waiting.", "The 20 that took longest."
                ),
                Chart("stragglers", "How long each rank waited for others, and others for it.", ""),
            ),
            tables=(
                _across("rank_waits", "Waiting by rank", report),
                _across("collectives", "Collectives", report),
                _across("process_groups", "Process groups", report),
                _across("clocks", "Clocks of the hosts", report),
            ),
        ),
        Block(
            "memory",
            "Memory",
            charts=(
                Chart(
                    "memory_over_time",
                    "Memory over time: the largest totals allocated (lines) and reserved (dots) in each slice of the steps.",
                    "A slice without a memory row holds the last total. Reserved memory of more than 4 times what was ever allocated (on HPU the device's limit) is hidden until it is clicked in the legend. At most 8 ranks, the largest peaks first.",
                ),
                Chart("memory", "Peaks of allocated and reserved memory.", "At most 64 ranks."),
            ),
            tables=(
                HtmlTable.of_rows(
                    "memory-table",
                    f"Memory, whole file{whose}",
                    mine("memory"),
                    COLUMNS["memory-table"],
                ),
                HtmlTable.of_rows(
                    "memory_points-table",
                    f"Memory over time{whose}",
                    mine("memory_points"),
                    COLUMNS["memory_points-table"],
                    folded=True,
                    on_screen=True,
                ),
            ),
        ),
        Block(
            "precision",
            "Precision",
            charts=(Chart("precision", "Share of each engine's compute time by data type.", ""),),
            tables=(
                HtmlTable.of_rows(
                    "precision-table", f"Compute by data type{whose}", mine("precision"), COLUMNS["precision-table"]
                ),
                HtmlTable.of_section(shown.intel(report.data, lead_recording(report.data)), "intel"),
            ),
        ),
    ]


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
        charts=(
            Chart(
                "graph_options",
                "Predicted step time of each way to use graphs with its 90 % interval, and the step time now.",
                "Yellow: something must be removed first. `hpuprof advise` prints the same answer.",
            ),
        ),
        tables=(
            table
            and replace(
                table, columns=tuple(replace(c, meaning=_OPTION_MEANINGS.get(c.name, "")) for c in table.columns)
            ),
            HtmlTable("graph-numbers", "Numbers", (Column("what"), Column("value")), labelled) if labelled else None,
            HtmlTable.of_rows(
                "obstacle-table",
                f"What stands in the way{whose}",
                obstacles,
                COLUMNS["obstacle-table"],
            ),
            HtmlTable.of_rows(
                "module-table",
                f"Modules, forward and backward, per step{whose}",
                [m for m in mine("modules") if m.depth >= 0],
                COLUMNS["module-table"],
            ),
            HtmlTable.of_rows(
                "shape-table",
                f"Input signatures that change{whose}",
                mine("shapes"),
                COLUMNS["shape-table"],
                folded=True,
            ),
            HtmlTable.of_rows(
                "constant-table",
                "Constants of the model",
                graph.constants,
                COLUMNS["constant-table"],
                folded=True,
            ),
        ),
        lists=(
            ("Evidence", tuple(graph.evidence)),
            ("Taken for granted", tuple(graph.assumptions)),
            ("What the steps could show", tuple(seen)),
        ),
        code=(("Code to type", graph.code), (f"What would sharpen this: {graph.next_measurement}", graph.command)),
    )


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
                    COLUMNS["file-table"],
                    folded=True,
                ),
            ),
        ),
    ]


_OPTION_MEANINGS = {
    "captured": "What is captured: step (forward, backward, optimizer), forward+backward, model, modules, or optimizer.",
    "with": "What to call.",
    "speed-up (90 %)": "Step time now over step time then: the median and the interval that holds 90 % of what is believed.",
    "step time": "Predicted step time, the median.",
    "regret": "How much slower than the best option, as a share of it.",
}


def _across(name: str, title: str, report: Report) -> HtmlTable | None:
    """Return a table over all ranks, where the report has it."""
    rows = getattr(report.data, name, [])
    return HtmlTable.of_rows(f"{name}-table", title, rows, COLUMNS[f"{name}-table"], top=TOP_RANKS)


def _whose(report: Report) -> str:
    lead = lead_recording(report.data)
    return f", rank {lead.rank}" if lead and len(report.data.ranks) > 1 else ""


def _mine(report: Report) -> Callable[[str], list[Any]]:
    lead = lead_recording(report.data)
    return lambda table: [r for r in getattr(report.data, table) if lead and shown.is_of(r, lead)]
