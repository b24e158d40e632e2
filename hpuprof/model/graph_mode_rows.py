"""Rows about graph mode: obstacles, modules, and the input signatures of modules."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from hpuprof.model.recording_rows import Row


class ObstacleRow(Row, frozen=True, kw_only=True):
    """An obstacle to graph mode in the recorded steps; a trace proves presence, never absence."""

    code: Annotated[str, Meta(description="Obstacle code; see `hpuprof explain CODE`.")]
    severity: Annotated[
        str,
        Meta(
            description="blocker (inside a module that has nothing smaller to graph), cut (between modules: graph the "
            "parts before and after), periodic (not in every step), harmless (a notice)."
        ),
    ]
    module: Annotated[
        str,
        Meta(
            description="Innermost module, `(optimizer)`, or `(step)` between modules; instances of one class are "
            "counted together."
        ),
    ]
    modules: Annotated[list[str], Meta(description="Names of all modules in which it was seen, at most 100.")]
    where: Annotated[
        str,
        Meta(description="Part of the step (forward, backward, optimizer, between modules) and the operator or call."),
    ]
    count: Annotated[int, Meta(description="How often, in all steps.")]
    per_step: Annotated[float, Meta(description="count over all steps.")]
    steps: Annotated[int, Meta(description="Steps in which it was seen.")]
    text: Annotated[str, Meta(title="what", description="What, in words.")]
    fix: Annotated[str, Meta(title="what to do", description="What to do, for the device and mode of the run.")]
    python_line: Annotated[
        str | None,
        Meta(
            title="line",
            description="Innermost frame of the user's own code around the first case. None without recorded stacks.",
        ),
    ]


class ModuleRow(Row, frozen=True, kw_only=True):
    """One module, or `(step)`, `(forward)`, `(optimizer)`: can a graph hold it, with what gain? All steps count."""

    module: Annotated[str, Meta(description="Name: python instance (`Block_0`), qualified name, or annotation.")]
    module_path: Annotated[
        str, Meta(title="module", description="The modules enclosing its first call, joined by `/`.")
    ]
    depth: Annotated[int, Meta(description="0 for outermost modules; -1 for `(step)` and `(optimizer)`.")]
    source: Annotated[
        str,
        Meta(description="Where modules came from: python (stacks), range (module ranges), annotation, phase, none."),
    ]
    calls_per_step: Annotated[
        float, Meta(title="calls", description="Calls over all steps, recomputation in backward excluded.")
    ]
    capturable: Annotated[
        str,
        Meta(description="yes, with changes (it works for most calls), or no (something inside cannot be captured)."),
    ]
    blockers: Annotated[list[str], Meta(description="Codes of blockers and cuts in it, modules inside included.")]
    changes: Annotated[list[str], Meta(description="Codes of obstacles that need a change but do not block.")]
    host_per_step_ns: Annotated[
        float,
        Meta(
            title="host",
            description="Host span of its calls and of its backward stretches over all steps [ns], waiting included.",
        ),
    ]
    device_per_step_ns: Annotated[
        float | None,
        Meta(
            title="device",
            description="Device rows launched in them, summed, over all steps [ns]. None when no launch is linked.",
        ),
    ] = None
    launches_per_step: Annotated[
        float | None,
        Meta(
            title="launches", description="Launch calls in them over all steps. None without launch calls in the trace."
        ),
    ] = None
    flops_per_step: Annotated[
        float | None,
        Meta(
            title="operations",
            description="Operations of the matrix operators in them over all steps, recomputation included. None when "
            "one of them lacks its shapes.",
        ),
    ] = None
    critical_per_step_ns: Annotated[
        float | None,
        Meta(
            title="on the cycle",
            description="Time on the critical cycle per step, modules inside included (see `critical_path`) [ns]. None "
            "when the steps cannot be replayed launch by launch.",
        ),
    ] = None
    criticality: Annotated[
        float | None,
        Meta(
            title="critical in",
            description="Share of the prediction's samples in which it lies on the critical cycle, as above.",
        ),
    ] = None
    signatures: Annotated[
        int | None,
        Meta(description="Distinct input signatures (shapes and strides). None when shapes were not recorded."),
    ] = None
    varying: Annotated[
        str,
        Meta(title="varies", description="Which dimension changes between signatures, in words; empty when none does."),
    ] = ""
    max_graphs: Annotated[
        int | None,
        Meta(
            title="graphs",
            description="Smallest cache of graphs that serves 95 % of the calls, keys taken as they come.",
        ),
    ] = None
    memory_bytes: Annotated[
        int | None,
        Meta(
            description="Memory that its graphs would hold [bytes]: an input for each of max_graphs (the first tensor "
            "of its first operator), and one pool (how far allocated memory rose during one of the first calls and its "
            "backward). None without shapes or memory rows."
        ),
    ] = None
    not_seen: Annotated[
        list[str],
        Meta(description="Codes that were checked and not seen in these calls; that does not prove their absence."),
    ]
    not_checked: Annotated[
        list[str],
        Meta(
            description="Codes that this recording could not show (shapes, stacks, launches or a device are missing)."
        ),
    ]


class ShapeRow(Row, frozen=True, kw_only=True):
    """One input signature of a module whose shapes change; the most frequent ones."""

    module: Annotated[str, Meta(description="Name of the module.")]
    signature: Annotated[str, Meta(description="Operator and shape of the tensor that distinguishes it.")]
    calls: Annotated[int, Meta(description="Calls with it.")]
    fraction: Annotated[float, Meta(title="share", description="Share of the module's calls.")]
    device_ns: Annotated[
        float | None,
        Meta(
            description="Device rows launched by a call with it, on average, backward included [ns]. None when no "
            "launch is linked."
        ),
    ]
    input_bytes: Annotated[int | None, Meta(description="First tensor input of the first operator [bytes].")]
