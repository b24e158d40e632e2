"""Reduces one trace file to tables in a worker. Everything is picklable and depends on the file alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from hpuprof.analysis.actions import action_rows
from hpuprof.analysis.collective_search import collective_calls
from hpuprof.analysis.counters import counter_rows
from hpuprof.analysis.engines import engine_rows, overlap_rows, precision_rows
from hpuprof.analysis.evidence import degenerate, doubts
from hpuprof.analysis.forward_reductions import forward_reduction_share
from hpuprof.analysis.idle import cause_rows, gap_operator_rows, gap_rows
from hpuprof.analysis.intel import intel_row
from hpuprof.analysis.launches import launch_rows
from hpuprof.analysis.links import linked_share
from hpuprof.analysis.memory import memory_points, memory_rows
from hpuprof.analysis.modules import MAX_DEPTH, backward_windows
from hpuprof.analysis.operators import kernel_rows, operator_rows
from hpuprof.analysis.rank_view import RankView
from hpuprof.analysis.recipe_table import recipe_rows
from hpuprof.analysis.scopes import scope_rows
from hpuprof.analysis.step_groups import group_rows
from hpuprof.analysis.step_kinds import CAPTURE, steps_per_update
from hpuprof.analysis.step_table import kind_rows, step_rows, thread_rows
from hpuprof.analysis.steps import Steps
from hpuprof.analysis.workload import workload
from hpuprof.efficiency.moving import moving_rows
from hpuprof.efficiency.peaks import device_of
from hpuprof.efficiency.utilization import MAX_ROWS, Utilization
from hpuprof.executors import in_background
from hpuprof.families import FAMILIES
from hpuprof.graph_mode.capturability import Capturability, capturability
from hpuprof.graph_mode.predict import Replay, Settings
from hpuprof.graph_mode.predict_kinds import judged_kinds, predict_kinds
from hpuprof.ingest.discover import TraceFile, identity_inside
from hpuprof.ingest.normalize import base_ns
from hpuprof.model.durations import duration
from hpuprof.model.intervals import subtract, union
from hpuprof.model.launch_schedule import PackedParts, PackedSchedule
from hpuprof.model.packed_idle import PackedIdle
from hpuprof.model.partial import RankPartial
from hpuprof.model.prediction import Prediction
from hpuprof.model.tables import DiagnosticRow, FileRow
from hpuprof.model.trace import Trace, Trouble
from hpuprof.naming import METADATA_KEY
from hpuprof.options import ReduceOptions
from hpuprof.planning.greedy import for_remedies, plan_rows
from hpuprof.planning.rank_fixes import rank_fixes
from hpuprof.planning.situation import Measured
from hpuprof.process_memory import return_memory
from hpuprof.what_if.constants import read_profile
from hpuprof.what_if.critical_rows import critical_tables
from hpuprof.what_if.critical_walk import CriticalSlice, Places, critical_slices, places
from hpuprof.what_if.criticality import Base
from hpuprof.what_if.cycle_mean import UnsettledError
from hpuprof.what_if.launch_model import LaunchModel, recorded_steps
from hpuprof.what_if.part_columns import pack_parts
from hpuprof.what_if.parts import parts_of
from hpuprof.what_if.recipe_model import RecipeModel
from hpuprof.what_if.uncertainty import REPLAY_LIMIT

DEFAULTS = ReduceOptions()
_MANY_BYTES = 64 << 20
"""Host rows from here on are judged while they are measured; by judgment: it saves wall time, and takes memory."""


class RankWalk(msgspec.Struct, frozen=True, eq=False):
    """A rank's numbers, its own critical cycle, and where the calls and rows of its steps lie."""

    partial: RankPartial
    slices: list[CriticalSlice] = msgspec.field(default_factory=list)
    places: Places | None = None


def reduce_trace(trace: Trace, file: TraceFile, settings: ReduceOptions = DEFAULTS) -> RankPartial:
    """Measure one trace. All numbers of a report come from here or are combined from here."""
    return _reduced(trace, file, settings)[0]


def _reduced(trace: Trace, file: TraceFile, settings: ReduceOptions) -> tuple[RankPartial, Replay | None]:
    """Measure one trace; return what was replayed of it, too."""
    rows_bytes = sum(column.nbytes for column in msgspec.structs.asdict(trace.host).values())
    return_memory(rows_bytes)
    view = RankView.of(trace)
    timer = _fitting_timer(view.steps, settings)
    row = _file_row(view, file, settings, timer)
    problems = degenerate(view)
    return_memory(rows_bytes)
    judging = in_background(lambda: _judge(view, row, settings), worth=rows_bytes >= _MANY_BYTES)
    operators, operator_count = operator_rows(view)
    kernels, kernel_count = kernel_rows(view)
    scopes, scope_count = scope_rows(view)
    recipes, recipe_count = recipe_rows(view)
    launches, queue = launch_rows(view)
    calls, call_count = collective_calls(view)
    counters, counter_count = counter_rows(view)
    intel = intel_row(view)
    matrix = Utilization.of(view)
    utilisation, utilization_count, impossible = matrix.rows()
    moving, moving_count = moving_rows(view, matrix.peak, MAX_ROWS - len(utilisation))
    judged = judging()
    return_memory(rows_bytes)
    capture, predictions, replay, base = judged.capture, judged.predictions, judged.replay, judged.base
    predicted = predictions[0].base_step_ns if predictions else 0.0
    step_ns = predicted or row.unprofiled_step_ns or _recorded_ns(view.steps)
    played, modules = replay.model if replay else None, matrix.with_flops(capture.modules)
    critical = critical_tables(base, played, modules, view.modules, step_ns)
    cut = [
        *_cut(operator_count, len(operators), "operators"),
        *_cut(kernel_count, len(kernels), "kernels"),
        *_cut(scope_count, len(scopes), "scopes"),
        *_cut(recipe_count, len(recipes), "recipes"),
        *_cut(capture.found["obstacles"], len(capture.obstacles), "obstacles to graph mode"),
        *_cut(capture.found["modules"], len(capture.modules), "modules"),
        *_cut(utilization_count + moving_count, len(utilisation) + len(moving), "operators with shapes"),
        *_cut(capture.found["shapes"], len(capture.shapes), "shapes"),
        *_cut(counter_count, len(counters), "hardware counters", kept="first"),
        *_cut(call_count, len(calls), "collective calls", kept="first"),
    ]
    partial = RankPartial(
        file=row,
        inside={k: v for k, v in identity_inside(trace.header).items() if isinstance(v, (int, str))},
        sound=all(t.code == "HP154" for t in problems),
        steps=step_rows(view, matrix.step_columns()),
        step_kinds=kind_rows(view),
        step_groups=group_rows(view),
        gap_causes=cause_rows(view),
        gaps=gap_rows(view),
        gap_operators=gap_operator_rows(view),
        threads=thread_rows(view),
        engines=engine_rows(view),
        overlaps=overlap_rows(view),
        actions=action_rows(view),
        operators=operators,
        kernels=kernels,
        launches=launches,
        queue=queue,
        memory=memory_rows(trace),
        memory_points=memory_points(view),
        precision=precision_rows(view),
        intel=[intel] if intel else [],
        obstacles=capture.obstacles,
        modules=critical.modules,
        scopes=scopes,
        recipes=recipes,
        shapes=capture.shapes,
        utilisation=utilisation + moving,
        critical_path=critical.critical_path,
        sensitivity=critical.sensitivity,
        kernel_sequences=critical.kernel_sequences,
        counters=counters,
        diagnostics=[
            DiagnosticRow.of(t.code, t.text, t.count, path=file.name, offset=t.offset)
            for t in (
                *trace.health.troubles,
                *problems,
                *impossible,
                *cut,
                *judged.deep,
                *critical.troubles,
                *_timer_troubles(timer, row, settings),
                *doubts(view),
            )
        ],
        prediction=predictions[0] if predictions else None,
        kind_predictions={k.name: p for k, p in zip(judged_kinds(view)[1:], predictions[1:], strict=bool(predictions))},
        calls=calls.pack(),
        parts=_parts(base, predictions[0].schedule if predictions else None, replay),
        schedule=None if predictions or view.steps.kinds[0].name == CAPTURE else recorded_steps(view),
        idle=_idle(view, file),
    )
    if not settings.predict:
        return partial, replay
    situation = None
    if replay is not None and (settings.plan or settings.joint):
        situation = for_remedies(partial, replay, Measured(calls, matrix))
    if settings.joint and situation is not None and predictions[0].skeletons:
        partial = msgspec.structs.replace(partial, fixes=rank_fixes(situation, row.family, settings.apply))
    if not settings.plan:
        return partial, replay
    plan = plan_rows(partial, replay, situation, row.family, settings.apply)
    return msgspec.structs.replace(partial, plan=plan), replay


def rank_walk(trace: Trace, file: TraceFile) -> RankWalk:
    """Return the critical cycle at its recorded times, and what the cycle through all ranks needs.

    The cycle is empty where `critical_path` is, or rows are not linked.
    """
    partial, replay = _reduced(trace, file, ReduceOptions(plan=False, joint=False))
    base = _base(replay)
    if base is None or replay is None or not isinstance(replay.model, LaunchModel | RecipeModel):
        return RankWalk(partial)
    where = places(replay.model)
    try:
        slices = critical_slices(base, where)
    except UnsettledError:
        slices = []
    return RankWalk(partial, slices, where)


class _Judged(msgspec.Struct, frozen=True, eq=False):
    """What graph mode would do; `base`: of what sets the step time, None where playing the steps misses it."""

    capture: Capturability
    predictions: list[Prediction]
    replay: Replay | None
    base: Base | None
    deep: list[Trouble]


def _judge(view: RankView, row: FileRow, settings: ReduceOptions) -> _Judged:
    """Find obstacles to graph mode, predict step times of each kind, and count the module calls left out."""
    calls = view.modules
    windows = backward_windows(view, calls)
    capture = capturability(view, calls, windows)
    given = settings.step_time_ns
    known = Settings(
        unprofiled_ns=given or row.unprofiled_step_ns,
        spread_ns=None if given else row.unprofiled_spread_ns,
        given=given is not None,
        measured=read_profile(settings.constants),
        joint=settings.joint,
    )
    predictions, replay = predict_kinds(view, calls, windows, known) if settings.predict else ([], None)
    deep = f"{calls.left_out:,} module calls inside {MAX_DEPTH} others"
    return _Judged(
        capture,
        predictions,
        replay,
        _base(replay) if settings.plan else None,
        [Trouble("HP175", calls.left_out, deep)] if calls.left_out else [],
    )


def _base(replay: Replay | None) -> Base | None:
    """Return what shows what sets the step time; None where playing the steps misses the recorded time."""
    if replay is None or replay.model.error > REPLAY_LIMIT:
        return None
    return Base.of(replay.model, replay.model.sample(replay.drawn))


def _parts(base: Base | None, packed: PackedSchedule | None, replay: Replay | None) -> PackedParts | None:
    """Return what the packed steps are made of, for the critical cycle through all ranks."""
    if packed is None or replay is None:
        return None
    return pack_parts(base.parts if base else parts_of(replay.model), replay.model.schedule, packed)


def _idle(view: RankView, file: TraceFile) -> PackedIdle | None:
    """Pack the idle time of the device in the steady steps; None for devices of which no job is reported."""
    trace, steady = view.trace, view.steps.steady_timed()
    base = base_ns(trace.header)
    if not FAMILIES[trace.family].engine_lanes or not view.device_traced or not base:
        return None
    host = identity_inside(trace.header).get("host") or file.parts.host or ""
    idle = subtract(union(steady.start, steady.end), view.device.busy)
    return PackedIdle.of(idle, union(steady.start, steady.end), origin_ns=trace.origin_ns, host=str(host), base_ns=base)


def _cut(found: int, shown: int, what: str, *, kept: str = "largest") -> list[Trouble]:
    """Return a diagnostic where a table holds fewer rows than were found."""
    where = "beyond" if kept == "largest" else "after"
    return [Trouble("HP123", found - shown, f"{what} {where} the {kept} {shown}")] if found > shown else []


LONGEST, SHORTEST = 1.1, 0.1
"""Shares of the recorded step between which a step without the profiler lies; heuristic: else it is of another unit."""

Timed = tuple[int, int, str]
"""A step time that another tool measured, its spread [ns], and the tool and file."""


def _fitting_timer(steps: Steps, settings: ReduceOptions) -> Timed | None:
    """Return the first step time of another tool that can be of these steps; None without one, or with a given one."""
    if settings.step_time_ns is not None:
        return None
    recorded = _recorded_ns(steps)
    return next((t for t in settings.timers if SHORTEST * recorded <= t[0] <= LONGEST * recorded), None)


def _recorded_ns(steps: Steps) -> float:
    """Return the mean of the used steps as recorded [ns]; 0 without any."""
    used = steps.used_timed()
    return float(np.mean(used.end - used.start)) if len(used) else 0.0


def _timer_troubles(fitting: Timed | None, row: FileRow, settings: ReduceOptions) -> Iterator[Trouble]:
    """Yield which step time of another tool is used, and those that cannot be of these steps."""
    if settings.step_time_ns is not None:
        return
    for timer in settings.timers:
        said = f"{duration(timer[0])} a step by {timer[2]}"
        if timer is fitting and row.unprofiled_step_ns == timer[0]:
            yield Trouble("HP185", 1, said)
        elif timer is not fitting and fitting is None:
            yield Trouble("HP186", 1, f"{said}: not between a tenth and 1.1 times of the recorded step")


def _file_row(view: RankView, file: TraceFile, settings: ReduceOptions, timer: Timed | None) -> FileRow:
    trace, steps = view.trace, view.steps
    inside = identity_inside(trace.header)
    busy = view.device.busy
    outside = subtract(busy, union(steps.timed.start, steps.timed.end)).total_ns
    own = trace.header.get(METADATA_KEY)
    recorded: dict[str, Any] = own if isinstance(own, dict) else {}
    timed = recorded.get("unprofiled")
    timed = timed if isinstance(timed, dict) else {}
    for name, step_ns, spread_ns in settings.logged:
        if name == recorded.get("step_log"):  # the whole run, not the few steps before the window
            timed = {"step_ns": step_ns, "spread_ns": spread_ns}
    if not timed and timer is not None:
        timed = {"step_ns": timer[0], "spread_ns": timer[1]}
    work = workload(trace)
    return FileRow(
        path=file.name,
        bytes=file.bytes,
        provenance="",
        host_name=str(inside["host"]) if "host" in inside else None,
        world_size=int(inside["world_size"]) if str(inside.get("world_size", "")).isdigit() else None,
        device_name=device_of(trace),
        device_memory_bytes=trace.device_memory_bytes,
        family=trace.family,
        generation=trace.generation,
        mode=trace.mode,
        workload=work.kind,
        server=work.server,
        forward_reduction_fraction=forward_reduction_share(view),
        form=trace.form,
        rows=trace.health.rows,
        host_rows=trace.health.host_rows,
        device_rows=trace.health.device_rows,
        origin_ns=trace.origin_ns,
        span_ns=trace.end_ns,
        step_source=steps.source,
        step_name=steps.name,
        steps_total=steps.window.count,
        steps_used=steps.window.used,
        steps_per_update=steps_per_update(trace, steps.kind_names()),
        linked_fraction=linked_share(view.links),
        device_busy_ns=busy.total_ns if view.device_traced else None,
        device_outside_ns=outside if view.device_traced else None,
        window_kind=str(recorded["window_kind"]) if recorded.get("window_kind") else None,
        opened=_opened(recorded),
        unprofiled_step_ns=_whole(timed.get("step_ns"), least=1),
        unprofiled_spread_ns=_whole(timed.get("spread_ns"), least=0),
        ignored=trace.health.ignored,
        set_aside=trace.health.set_aside,
        unknown=list(trace.health.unknown),
        categories=dict(sorted(trace.categories.items())),
    )


def _opened(recorded: dict[str, Any]) -> str | None:
    opened = recorded.get("opened")
    return str(opened["why"]) if isinstance(opened, dict) and opened.get("why") else None


def _whole(value: object, *, least: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**62 else None
