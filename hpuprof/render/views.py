"""How tables are shown, an entry of data each: text and Markdown show a view's columns, the page those and more.

Columns are in order, each as `name` or, if its own title does not fit, `name=title_with_underscores_for_blanks`.
A `+` before a column means: on the page only. A name that is no column of the row is one of `table_view.MADE`.
"""

from __future__ import annotations

from hpuprof.model.tables import FILE_TABLES, ROWS, TABLES, Row
from hpuprof.render.table_view import View

STEPS_ON_PAGE = 200
RANKS_ON_PAGE = 1024

_VIEWS = (
    View(
        "plan",
        "All fixes, with estimates",
        "order=# title where alone_low_ns=alone_at_least alone_ns alone_high_ns=alone_at_most before_ns "
        "gain_low_ns=at_least gain_ns gain_high_ns=at_most after_ns then reason",
        id="plan-table",
        every=True,
        top=None,
    ),
    View(
        "steps",
        "Steps",
        "step label kind wall_ns excluded host_working_ns host_blocked_ns input_ns device_busy_ns device_idle_ns "
        "compute_busy_ns exposed_communication_ns exposed_copy_ns launches",
        id="steps",
        page_top=STEPS_ON_PAGE,
        folded=True,
    ),
    View(
        "step_kinds",
        "Kinds of steps",
        "kind steps time_fraction wall_ns verdict speedup_median",
        page="kind used steps typical time_fraction wall_ns device_busy_ns device_work_ns launches graph_launches "
        "verdict speedup_low speedup_median speedup_high",
        id="kind-table",
        top=None,
    ),
    View(
        "windows",
        "Windows of unlike work, judged apart",
        "windows steps time_ns time_fraction step_time_ns bound first",
        page="windows ranks steps time_ns time_fraction step_time_ns bound sentence first",
        id="window-table",
        every=True,
        top=None,
    ),
    View(
        "run_steps",
        "The whole run, without the profiler",
        "rank steps step_p50_ns step_p10_ns step_p90_ns trend_fraction input_fraction slow_fraction cpus_used",
        page="rank host_name stage action steps clean_steps ended batches_per_step step_p10_ns step_p50_ns step_p90_ns "
        "step_p99_ns trend_fraction input_fraction forward_fraction backward_fraction optimizer_fraction "
        "elsewhere_fraction slow_fraction device_step_ns cpus_used cpus threads switches_per_second faults_per_step "
        "resident_bytes resident_growth_bytes device_growth_bytes near_windows_ns",
        id="run-table",
        every=True,
    ),
    View(
        "run_slow_steps",
        "Slow steps of the run",
        "rank step wall_ns over_ns cause cause_ns switches faults",
        id="run-slow-table",
        every=True,
    ),
    View(
        "step_groups",
        "All steps: typical, recurring, seen once, left out",
        "which=steps steps=count comes=come time_ns above_ns=longer price=of_the_mean",
        page="standing reason kind steps every time_ns time_fraction above_ns cause row cost_ns cost_low_ns "
        "cost_high_ns",
        page_title="All steps",
        page_note="Each step, and all time outside of steps, is in one row. Medians and estimates are of typical "
        "steps; means, percentiles, shares and gates of these and of what recurs.",
        id="group-table",
        top=None,
    ),
    View(
        "engines",
        "Engines, per step",
        "engine lanes rows_per_step busy_ns busy_fraction",
        id="engine-table",
        keep=lambda e: not e.lane,
        top=None,
    ),
    View(
        "overlaps",
        "Engine overlap, per step",
        "engines overlap_ns fraction_of_a fraction_of_b",
        page="engine_a engine_b overlap_ns fraction_of_a fraction_of_b",
        id="overlap-table",
        keep=lambda o: bool(o.overlap_ns),
        top=None,
    ),
    View(
        "gap_operators",
        "By host operation",
        "cause host_row within gaps idle_per_step_ns",
        id="gap-operators",
        folded=True,
    ),
    View(
        "gaps",
        "Longest device idle gaps",
        "step start_ns dur_ns gap_cause=cause host_row",
        page="step start_ns dur_ns cause cause_fraction host_row +python_line",
        page_title="Longest gaps",
        id="gap-table",
        sort=lambda g: (-g.dur_ns, g.start_ns),
        folded=True,
    ),
    View(
        "critical_path",
        "What sets the step time: the critical cycle, per step",
        "what kind cycle_ns fraction criticality drag_ns",
        page="what kind cycle_ns fraction criticality total_ns slack_ns drag_ns",
        page_title="Critical cycle",
        id="critical-table",
        page_note="Rows of all kinds but module add up to the predicted step time; modules show the same times again.",
    ),
    View(
        "sensitivity",
        "Step time if a part were faster",
        "what kind step_100_ns step_50_ns step_0_ns no_gain_below",
        page="what kind total_ns fraction step_100_ns step_75_ns step_50_ns step_25_ns step_0_ns gain_0_low_ns "
        "gain_0_high_ns no_gain_below",
        id="sensitivity-table",
    ),
    View(
        "kernel_sequences",
        "Sequences of kernels, per step",
        "kernels +basis count_per_step device_ns gap_ns launches_saved fused_ns",
        id="sequence-table",
    ),
    View(
        "operators",
        "Operators, per step",
        "name count_per_step host_total_per_step_ns host_self_per_step_ns device_total_per_step_ns +host_p50_ns "
        "+host_p90_ns +launches +shapes +top_shape",
        id="operator-table",
    ),
    View(
        "utilisation",
        "Matrix operators",
        "name +shape dtype count_per_step flops +bytes +intensity device_per_step_ns flops_per_second peak_fraction "
        "+roofline_fraction +bound",
        id="utilisation-table",
    ),
    View(
        "actions",
        "Actions, annotations and modules, per step",
        "name +kind count_per_step host_total_per_step_ns device_busy_per_step_ns +host_p50_ns +host_p90_ns",
        id="action-table",
        page_note="Parts nest, so rows do not add up.",
    ),
    View("threads", "Host threads, per step", "role threads traced_ns blocked_ns", id="thread-table", top=None),
    View(
        "kernels",
        "Kernels and copies, per step",
        "name engine +kind +dtype +operator count_per_step total_per_step_ns p50_ns p90_ns +max_ns",
        id="kernel-table",
    ),
    View(
        "launches",
        "Launches, per step",
        "call count_per_step host_p50_ns latency_p50_ns +latency_p90_ns short_fraction +queue_mean +queue_max",
        id="launch-table",
        top=5,
    ),
    View(
        "ranks",
        "Ranks",
        "who=rank step_p50_ns host_working_fraction input_fraction device_busy_fraction=dev_busy "
        "exposed_communication_fraction=exp._comm bound",
        page="rank stage action window steps_used step_p50_ns step_p90_ns host_working_fraction host_blocked_fraction "
        "input_fraction device_busy_fraction exposed_communication_fraction bound top_cause",
        id="rank-table",
        every=True,
        top=64,
        page_top=RANKS_ON_PAGE,
    ),
    View(
        "step_waits",
        "Step composition",
        "step compute_ns communication_ns waiting_ns input_ns host_ns clock",
        page_top=STEPS_ON_PAGE,
        folded=True,
    ),
    View(
        "rank_waits",
        "Waits between ranks",
        "waiter=rank waiting_fraction=waits blame_fraction=blame steps_late_fraction=late_in_steps cause=cause",
        page="rank host waiting_ns waiting_fraction hidden_waiting_ns blame_ns blame_fraction cause cause_fraction "
        "straggler late_fraction steps_late_fraction bubble_fraction clock",
        page_title="Waiting by rank",
        every=True,
        page_top=RANKS_ON_PAGE,
    ),
    View(
        "rank_cycle",
        "What sets the step time of the job: the critical cycle through the ranks, per step",
        "rank what kind cycle_ns fraction rank_fraction",
        page_title="Critical cycle through the ranks",
        page_note="Where a rank waits in a collective, the cycle goes on with the rank that comes last. Rows add up to "
        "the time from step to step as recorded.",
        every=True,
    ),
    View(
        "suspects",
        "A step would save, if it kept pace",
        "suspect=who ranks low_fraction=at_least saved_fraction=likely high_fraction=at_most steps_fraction "
        "blame_fraction",
        page="kind name ranks named low_fraction saved_fraction high_fraction steps_fraction blame_fraction",
        page_title="Suspects: what a step would save if they kept pace",
        every=True,
        top=6,
    ),
    View(
        "collectives",
        "Collectives",
        "collective=collective,_ranks bytes=bytes count transfer_p50_ns=transfer wait_mean_ns=mean_wait "
        "bus_bandwidth=bus",
        page="op group size bytes dtype count complete duration_p50_ns transfer_p50_ns transfer_p90_ns wait_mean_ns "
        "wait_max_ns last_rank last_fraction exposed_fraction algorithm_bandwidth bus_bandwidth clock",
        every=True,
        page_top=RANKS_ON_PAGE,
    ),
    View(
        "process_groups",
        "Process groups",
        "process_group=group,_ranks role=parallelism sharding collectives complete",
        page="group text size ranks traced role sharding evidence collectives complete mismatched",
        every=True,
        page_top=RANKS_ON_PAGE,
    ),
    View(
        "clocks",
        "Clocks",
        "host offset_ns low_ns=at_least high_ns=at_most drift",
        page="host ranks clock reference offset_ns drift_ppm low_ns high_ns residual_ns matches infeasible_fraction",
        page_title="Clocks of the hosts",
        every=True,
        page_top=RANKS_ON_PAGE,
    ),
    View(
        "memory",
        "Memory, whole file",
        "space samples peak_allocated_bytes peak_reserved_bytes allocated_bytes freed_bytes",
        top=None,
    ),
    View(
        "memory_points",
        "Memory over time",
        "space start_ns allocated_bytes reserved_bytes",
        folded=True,
        on_screen=True,
    ),
    View("precision", "Compute by data type", "engine dtype busy_ns fraction", top=None),
    View(
        "obstacles",
        "Obstacles to graph mode",
        "code severity module per_step event=where",
        page="code severity module where per_step text fix python_line",
        page_title="Obstacles",
        id="obstacle-table",
    ),
    View(
        "modules",
        "Modules, forward and backward, per step",
        "module_path calls_per_step capturable host_per_step_ns +device_per_step_ns +flops_per_step "
        "+critical_per_step_ns +criticality launches_per_step signatures "
        "max_graphs +varying +blockers",
        id="module-table",
        keep=lambda m: m.depth >= 0,
    ),
    View(
        "scopes",
        "Scopes of the model, from names of graph nodes, per step",
        "scope +part rows_per_step device_per_step_ns fraction",
        id="scope-table",
        page_note="A scope's device time is the union of its rows; scopes nest, so rows do not add up.",
    ),
    View(
        "recipes",
        "Recipes, per step",
        "recipe +name runs_per_step device_per_step_ns fraction launched_by +basis +nodes",
        id="recipe-table",
        page_note="A recipe holds the work of many operators: its nodes are hints at what that is.",
    ),
    View(
        "shapes",
        "Varying input signatures",
        "module signature calls fraction device_ns",
        id="shape-table",
        folded=True,
    ),
    View(
        "files",
        "Files",
        "path rank host_name bytes rows device_rows step_source steps_used span_ns linked_fraction",
        id="file-table",
        every=True,
        folded=True,
    ),
)
SHOWN_OTHERWISE = frozenset({"diagnostics", "gap_causes", "intel", "queue"})
"""Tables shown as sentences, sums, a list or a figure."""
OTHERS = tuple(name for name in TABLES if name not in SHOWN_OTHERWISE and name not in {v.table for v in _VIEWS})
"""Tables without an entry above: shown last, with all their columns."""


def _plain(table: str) -> View:
    columns = (name for name in ROWS[table].__struct_fields__ if name not in Row.__struct_fields__)
    title = table.replace("_", " ").capitalize()
    return View(table, title, " ".join(columns), id=f"{table}-table", every=table not in FILE_TABLES, folded=True)


VIEWS = {view.table: view for view in (*_VIEWS, *map(_plain, OTHERS))}
"""Views by table."""

STEPS_ON_HOST = View(
    "steps",
    "Steps",
    "step label kind wall_ns excluded host_working_ns host_blocked_ns input_ns backward_ns optimizer_ns "
    "operators_ns no_operator_ns",
    id="steps",
    page_top=STEPS_ON_PAGE,
    folded=True,
)
"""Steps of a recording without a device."""

CONSTANTS = View(
    "constants",
    "Constants of the model",
    "name=constant value low high unit source",
    id="constant-table",
    every=True,
    folded=True,
)
"""Constants of a prediction; no table of a report."""
