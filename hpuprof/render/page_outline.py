"""The plan of the report's page, as data: blocks in reading order, charts with captions, tables by name."""

from __future__ import annotations

from dataclasses import dataclass

from hpuprof.render.html_tables import Chart
from hpuprof.render.views import OTHERS


@dataclass(frozen=True)
class Outline:
    """One block of the page. `charts`: of `CHARTS`; `tables`: of `views.VIEWS` or of `html_blocks.MADE_TABLES`."""

    name: str
    title: str
    charts: str = ""
    tables: str = ""
    lead: str = ""


BEFORE_GRAPH_MODE = (
    Outline("windows", "Windows", tables="windows"),
    Outline("timeline", "Steps in time", "timeline", "step_kinds step_groups steps"),
    Outline("step-times", "Step times", "step_times"),
    Outline(
        "run",
        "The whole run",
        tables="run_steps run_slow_steps",
        lead="All steps of each rank as the recorder logged them, without the profiler.",
    ),
    Outline("engines", "Engines", "engines", "engines overlaps"),
    Outline(
        "gaps",
        "Device idle time",
        "gap_causes",
        "idle_causes gap_operators gaps",
        lead="What the host was doing while the device was idle.",
    ),
    Outline(
        "critical",
        "What sets the step time",
        "sensitivity",
        "critical_path sensitivity",
        lead="The events that set the time from step to step, and what a faster part would give.",
    ),
    Outline(
        "remedies",
        "All fixes",
        tables="plan",
        lead="Each simulated on the recorded steps, without the profiler: alone, and those of the plan after the lines "
        "above them.",
    ),
    Outline("operators", "Operators and host", tables="operators utilisation actions threads"),
    Outline("kernels", "Kernels, copies and launches", tables="kernels kernel_sequences scopes recipes launches"),
    Outline("ranks", "Ranks", "ranks_by_steps waiting_by_steps", "ranks step_waits"),
    Outline(
        "collectives",
        "Collectives and stragglers",
        "collectives stragglers",
        "rank_waits suspects rank_cycle collectives process_groups clocks",
    ),
    Outline("memory", "Memory", "memory_over_time memory", "memory memory_points"),
    Outline("precision", "Precision", "precision", "precision intel"),
)
AFTER_GRAPH_MODE = (
    Outline("other-tables", "More tables", tables=" ".join(OTHERS)),
    Outline("files", "Recorded on", tables="devices files"),
)

_CHARTS = (
    Chart(
        "timeline",
        "Timeline of steps: host working and blocked, device work by kind, device idle by cause, and the longest gaps.",
        "Steps and the longest gaps are drawn at their true times. Lanes marked summed show each step's totals in a "
        "fixed order (work first, then waiting or idle time, largest cause first), not when something ran "
        "(`hpuprof view` shows that). At most 40 steps of 8 ranks.",
    ),
    Chart(
        "step_times",
        "Distribution of step times: a point for each step, lines for median and 90th percentile of each rank.",
        "Diamonds are steps that recur but are not typical; hollow points are left out (first, last, warm-up, "
        "compiling, validation, seen once). At most 32 ranks, 200 steps each.",
    ),
    Chart(
        "engines",
        "Share of the step for which each engine was busy, by rank.",
        "Busy is the union of an engine's rows: overlapping rows count once.",
    ),
    Chart(
        "gap_causes",
        "Device idle time by cause, as shares of the step.",
    ),
    Chart(
        "sensitivity",
        "Small multiples: predicted step time with 100, 75, 50, 25 and 0 % of the time of one operator, kernel or host "
        "range each, with the 90 % interval of the gain.",
        "Where a line is flat on the left, still faster gains nothing; one that is flat everywhere is not worth "
        "optimizing. The 12 that could gain most.",
    ),
    Chart(
        "ranks_by_steps",
        "Heat map of step times: a row for each rank, a column for each step.",
        "At most 1,024 ranks, 100 steps and 30,000 cells.",
    ),
    Chart(
        "waiting_by_steps",
        "Heat map of waiting: a row for each rank, a column for each step.",
        "Waiting is the time a rank computes nothing until the last rank reaches the collective (`waiting_ns` of "
        "`step_waits`); the others wait for a rank that is dark where they are bright. "
        "Empty where clocks are not aligned. At most 1,024 ranks, 100 steps and 30,000 cells.",
    ),
    Chart(
        "collectives",
        "Median times of collectives: call, transfer, waiting.",
        "The 20 that took longest.",
    ),
    Chart(
        "stragglers",
        "How long each rank waited for others, and others for it.",
    ),
    Chart(
        "memory_over_time",
        "Memory over time: the largest totals allocated (lines) and reserved (dots) in each slice of the steps.",
        "A slice without a memory row repeats the last total. Reserved memory above 4 times the peak allocation "
        "(or the device's limit) is hidden until clicked in the legend. At most 8 ranks, largest peaks first.",
    ),
    Chart(
        "memory",
        "Peaks of allocated and reserved memory.",
        "At most 64 ranks.",
    ),
    Chart(
        "precision",
        "Share of each engine's compute time by data type.",
    ),
    Chart(
        "graph_options",
        "Predicted step time of each way to use graphs with its 90 % interval, and the step time now.",
        "Yellow: an obstacle must be removed first. `hpuprof advise` prints the same answer.",
    ),
)
CHARTS = {chart.name: chart for chart in _CHARTS}
"""What each figure shows in words, and what it cannot show."""

OPTION_MEANINGS = {
    "captured": (
        "What is captured: step (forward, backward, optimizer), forward+backward, model, modules, or optimizer; "
        "without: waits inside the step (sync) or obstacles, by code, that must go first."
    ),
    "with": "API to use.",
    "speed-up (90 %)": ("Step time now over predicted step time: median and 90 % interval."),
    "step time": "Predicted step time, the median.",
    "vs best": "How much slower than the best option that needs changes, or that needs none; a share of its step time.",
}
"""What the columns of the options' table mean."""
