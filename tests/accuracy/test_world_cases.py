"""Cases of the world: what a clean trace promises a replay, laws of the truth, determinism, defects, and its independence."""

from __future__ import annotations

import ast
import gzip
import itertools
import json
from collections import defaultdict
from dataclasses import replace
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hpuprof
from benchmarks import world
from benchmarks.world.cases import Case, assemble, make_case
from benchmarks.world.draw import FAMILIES, JOBS, draw_machine
from benchmarks.world.edits import in_mode, scaled
from benchmarks.world.host import Run, run
from benchmarks.world.lazy import Bridge, LazyOp, LazyStep, lazy_program
from benchmarks.world.machine import Machine
from benchmarks.world.mixes import MIXED
from benchmarks.world.trace import _waits
from benchmarks.world.training import Shape, build
from sample_traces.generator import kineto

CUDA_SEEDS = range(7)
MODES = ("step", "forward+backward", "optimizer", "module:Net_0", "module:Encoder_0")


@cache
def clean(seed: int) -> Case:
    return make_case(seed, clean=True, family=FAMILIES[seed % 8])


def trace_of(case: Case) -> dict[str, Any]:
    return json.loads(case.traces[0])


def rows(trace: dict[str, Any], cat: str) -> list[dict[str, Any]]:
    return [e for e in trace["traceEvents"] if e.get("cat") == cat]


def ns(us: float) -> int:
    return round(us * 1000)


# ------------------------------------------------------------------------------------------------------------ clean traces


@pytest.mark.parametrize("seed", CUDA_SEEDS)
def test_in_a_clean_trace_every_device_row_starts_exactly_when_it_can(seed):
    """Launch start + latency, the end before it on the stream + gap, or an awaited event + gap: nothing else holds work back."""
    case = clean(seed)
    machine, trace = case.hidden["machine"], trace_of(case)
    own = {
        "kernel": case.hidden["shape"]["launch_ns"],
        "HtoD": 6_000,
        "DtoH": 5_000,
    }  # what a call takes that is not blocked
    calls = {e["args"]["correlation"]: e for e in rows(trace, "cuda_runtime")}
    device = sorted(rows(trace, "kernel") + rows(trace, "gpu_memcpy"), key=lambda e: e["ts"])
    assert len(device) == len([c for c in calls.values() if "Launch" in c["name"] or "Memcpy" in c["name"]])
    waits = [(e["args"], ns(calls[e["args"]["correlation"]]["ts"])) for e in rows(trace, "cuda_sync")]
    end: dict[int, int] = {}
    ends: dict[int, list[tuple[int, int]]] = defaultdict(list)  # stream -> (launch call's start, end) of its rows
    for row in device:
        stream, call = row["tid"], calls[row["args"]["correlation"]]
        called, start = ns(call["ts"]), ns(row["ts"])
        # a launch that finds the queue full blocks first: what its call takes comes after that
        kind = "kernel" if row["cat"] == "kernel" else row["name"].split()[1]
        earliest = [called + ns(call["dur"]) - own[kind] + machine["latency_ns"]]
        earliest += [end[stream] + machine["gap_ns"]] if stream in end else []
        for args, waited_at in waits:
            if args["cuda_sync_kind"] == "Stream Wait Event" and args["stream"] == stream and waited_at < called:
                recorded = ns(calls[args["wait_on_cuda_event_record_corr_id"]]["ts"])
                before = [e for at, e in ends[args["wait_on_stream"]] if at < recorded]
                earliest += [max(before) + machine["gap_ns"]] if before else []
        assert start == max(earliest), row["name"]
        end[stream] = start + ns(row["dur"])
        ends[stream].append((called, end[stream]))


@pytest.mark.parametrize("seed", [*CUDA_SEEDS, 23])
def test_a_clean_profile_runs_as_fast_as_no_profile_and_every_round_is_equal(seed):
    case = clean(seed)
    assert case.noise == 0
    assert {len(set(r)) for r in case.step_ns.values()} == {1}
    # the drain at the end is spread over fewer steps than in the timed block; nothing else differs
    eager = case.step_ns["eager"][0]
    assert eager <= case.hidden["profiled_step_ns"] <= eager * 1.02


def test_the_clean_step_annotation_is_the_step_of_a_host_bound_program():
    case = clean(0)
    steps = [e for e in rows(trace_of(case), "user_annotation") if e["name"].startswith("ProfilerStep#")]
    assert len(steps) == case.hidden["profile"]["steps"]
    durations = {ns(s["dur"]) for s in steps}
    assert len(durations) == 1  # equal to the nanosecond, from the first to the last


# -------------------------------------------------------------------------------------------------------- laws of the truth

shapes = st.builds(
    Shape,
    blocks=st.integers(1, 2),
    op_host_ns=st.integers(8_000, 30_000),
    kernel_ns=st.integers(1_000, 40_000),
    sync=st.sampled_from(["none", "each-step", "mid-step", "every-5"]),
    buckets=st.integers(0, 2),
    side=st.booleans(),
    inputs_on_device=st.booleans(),
)
blocks = st.sampled_from(["mlp", "convolutional"])
CLEAN = Machine().clean()


def step_ns(program, machine=CLEAN) -> int:
    return run(program, machine, steps=10, seed="law").step_ns()


@settings(max_examples=25)
@given(shapes, blocks, st.sampled_from(["eager", *MODES]))
def test_no_step_is_faster_than_its_device_or_than_the_host_work_left(shape, block, mode):
    program = in_mode(build(shape, block, "law"), mode, CLEAN)
    result = run(program, CLEAN, steps=10, seed="law")
    streams = 3 if shape.side or shape.buckets else 1
    assert result.step_ns() * streams >= result.busy_ns / 10
    # a periodic sync runs in each fifth step only: its host work is left out of the bound
    host = sum(i.ns for i in program.instrs if i.every == 1)
    assert result.step_ns() >= host


@settings(max_examples=15)
@given(shapes, blocks)
def test_more_host_work_or_longer_kernels_never_shorten_a_step(shape, block):
    base = step_ns(build(shape, block, "law"))
    assert step_ns(build(replace(shape, tail_ns=shape.tail_ns + 50_000), block, "law")) >= base
    program = build(shape, block, "law")
    assert step_ns(scaled(program, lambda _: True, work=2.0)) >= base


@settings(max_examples=15)
@given(shapes, blocks)
def test_dropping_a_sync_never_slows_a_captured_step(shape, block):
    program = build(shape, block, "law")
    assert step_ns(in_mode(program, "step:drop-sync", CLEAN)) <= step_ns(in_mode(program, "step", CLEAN))


@settings(max_examples=10)
@given(shapes, blocks, st.integers(0, 200_000))
def test_a_dearer_replay_never_makes_a_captured_step_faster(shape, block, more):
    program = in_mode(build(shape, block, "law"), "step", CLEAN)
    dear = replace(CLEAN, graph_call_ns=CLEAN.graph_call_ns + more)
    assert step_ns(program, dear) >= step_ns(program)


def test_a_device_bound_step_gains_what_gaps_and_kernels_gain_and_no_more():
    shape = Shape(blocks=2, kernel_ns=120_000, inputs_on_device=False)
    same = replace(CLEAN, graph_gap_ns=CLEAN.gap_ns)
    program = build(shape, "mlp", "law")
    eager, graph = step_ns(program, same), step_ns(in_mode(program, "step", same), same)
    assert 0.97 < eager / graph < 1.03


# ----------------------------------------------------------------------------------------- noise, defects, files, independence


def test_equal_seeds_give_equal_cases_and_other_seeds_others(tmp_path):
    first, again, other = (make_case(s, family="synced") for s in (1, 1, 9))
    assert first == again
    assert first.step_ns != other.step_ns
    path = first.write(tmp_path)
    document = json.loads(path.read_text())
    assert document["step_ns"]["eager"]["median"] == document["unprofiled"]["step_ns"]
    assert gzip.decompress((tmp_path / document["trace"]).read_bytes()).decode() == first.traces[0]


@pytest.mark.parametrize("family", [f for f in FAMILIES if f not in MIXED])
def test_hpuprof_reads_each_family_and_finds_its_steps_and_the_unprofiled_time(family, tmp_path):
    case = make_case(8 * 12 + FAMILIES.index(family), family=family)
    case.write(tmp_path)
    report = hpuprof.analyze(tmp_path / f"{case.name}.pt.trace.json.gz", jobs=1)
    read = report.files.iloc[0]
    assert read["family"] == ("hpu" if family == "hpu-lazy" else "cuda")
    assert read["unprofiled_step_ns"] == median(case.step_ns["eager"])
    assert read["steps_total"] == sum(
        str(e.get("name")).startswith("ProfilerStep#") for e in trace_of(case)["traceEvents"] if e.get("ph") == "X"
    )
    assert not read["unknown"]


def test_a_job_of_several_ranks_is_replayed_exactly_where_nothing_varies(tmp_path):
    case = make_case(16, family=JOBS, clean=True)
    case.write(tmp_path)
    report = hpuprof.analyze(tmp_path / case.name, jobs=1)
    assert sorted(r.rank for r in report.data.ranks) == list(range(case.hidden["shape"]["ranks"]))
    assert report.graph_mode.replay_error < 1e-3
    true = median(case.step_ns["eager"]) / median(case.step_ns["step"])
    said = next(o for o in report.graph_mode.options if o.region == "step" and not o.drops_sync)
    assert said.speedup.low * 0.95 <= true <= said.speedup.high * 1.05


def defective(**defects: Any) -> tuple[Case, Case]:
    """The same run written with and without defects."""
    machine, shape = Machine(host_sigma=0.05), Shape(blocks=1)
    program = build(shape, "mlp", "defects")

    def made(name: str, machine: Machine) -> Case:
        return assemble(Case(name, "defects", shape.sync, "mlp", {"seed": 1}), [program], machine, {"steps": 6})

    return made("plain", machine), made("bad", replace(machine, **defects))


def test_lost_flows_leave_rows_without_correlation():
    plain, bad = defective(lost_flows=0.2)
    kernels = rows(trace_of(bad), "kernel")
    lost = [e for e in kernels if "correlation" not in e["args"]]
    assert len(kernels) == len(rows(trace_of(plain), "kernel"))
    assert 0.1 < len(lost) / len(kernels) < 0.35
    calls = {e["args"].get("correlation") for e in rows(trace_of(bad), "cuda_runtime")}
    assert {e["args"]["correlation"] for e in kernels if e not in lost} <= calls


def test_a_clock_offset_moves_device_rows_only():
    plain, bad = defective(clock_offset_ns=-3000)
    moved = {
        ns(b["ts"]) - ns(a["ts"])
        for a, b in zip(rows(trace_of(plain), "kernel"), rows(trace_of(bad), "kernel"), strict=True)
    }
    assert moved == {-3000}
    assert rows(trace_of(plain), "cpu_op") == rows(trace_of(bad), "cpu_op")


def test_shuffled_and_rounded_rows_are_the_same_rows():
    plain, bad = defective(shuffled=True, whole_microseconds=True)
    assert len(trace_of(plain)["traceEvents"]) == len(trace_of(bad)["traceEvents"])
    stamps = [e["ts"] for e in trace_of(bad)["traceEvents"] if e.get("ph") == "X"]
    assert all(isinstance(s, int) for s in stamps)
    assert stamps != sorted(stamps)
    assert sorted(s // 1 for s in stamps) == sorted(
        int(e["ts"]) for e in trace_of(plain)["traceEvents"] if e.get("ph") == "X"
    )


def test_the_profiler_inflates_the_trace_but_not_the_truth():
    plain, bad = defective(op_cost_ns=5000, runtime_cost_ns=3000)
    assert plain.step_ns == bad.step_ns
    assert bad.hidden["profiled_step_ns"] > 1.2 * plain.hidden["profiled_step_ns"]


def test_machines_of_the_defects_family_have_defects():
    import random

    drawn = [draw_machine(random.Random(i), "defects") for i in range(20)]
    assert all(m.lost_flows > 0 and m.shuffled for m in drawn)
    assert len({m.graph_call_ns for m in drawn}) > 15  # constants are drawn, not fixed


def test_the_generator_shares_no_code_with_the_analysis():
    simulation = list(Path(world.__file__).parent.glob("*.py"))
    spelling = list(Path(kineto.__file__).parent.glob("*.py"))
    assert min(len(simulation), len(spelling)) > 5
    for path in simulation + spelling:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(n.split(".")[0] == "hpuprof" for n in names), path.name


# ---------------------------------------------------------------------------------------------------------------- lazy mode

US = 1000
CARD = Machine(latency_ns=6 * US, gap_ns=2 * US, wake_ns=2 * US, queue_limit=8)
BRIDGE = Bridge(
    sync_ns=5 * US, collect_op_ns=1 * US, hand_over_ns=4 * US, launch_ns=10 * US, syn_launch_ns=3 * US, replay_ns=20 * US, hash_ns=0,
    copy_op_ns=2 * US, copy_work_ns=1 * US, event_ns=3 * US, to_autograd_ns=1 * US, from_autograd_ns=1 * US,
)  # fmt: skip


def lazy_step(*, work: int, host: int = 10, marks: tuple[str, ...] = ("optimizer",), **more: Any) -> LazyStep:
    ops = tuple(
        LazyOp(f"aten::{p}", host * US, work * US, "MME", p, ("Net_0",)) for p in ("forward", "backward", "optimizer")
    )
    return LazyStep(ops, frozenset(marks), inputs=0, loader_ns=0, tail_ns=0, **more)


def run_lazy(step: LazyStep, mode: str, *, bridge: Bridge = BRIDGE, max_graphs: int = 10, **how: Any) -> Run:
    return run(lazy_program(step, bridge, mode, max_graphs), CARD, seed="", **how)


def lazy_ns(step: LazyStep, mode: str, steps: int = 20, **more: Any) -> int:
    return run_lazy(step, mode, steps=steps, **more).drained_ns


def test_a_device_bound_lazy_run_is_fill_then_one_recipe_after_the_other():
    # main: 3 x 10, 2 around autograd, flush 5, collect 3: 40; handed over at 44; called at 51; ready at 57; 300 on the device
    assert lazy_ns(lazy_step(work=100), "eager", steps=1) == (57 + 300 + 2) * US
    assert lazy_ns(lazy_step(work=100), "eager", steps=3) == (57 + 3 * 300 + 2 * 2 + 2) * US


def test_a_host_bound_lazy_run_takes_the_main_threads_time_each_step():
    # nothing on the device to speak of: each step adds the main thread's 40
    one, eleven = (lazy_ns(lazy_step(work=0), "eager", steps=n) for n in (1, 11))
    assert eleven - one == 10 * 40 * US


def test_main_runs_one_launch_ahead_of_a_slow_launch_thread_and_then_waits():
    # flush at 37, handed over at 44, launched until 147; the next flush, at 77, waits for that: 150; the one after until 257: 260
    slow = replace(BRIDGE, launch_ns=100 * US)
    result = run_lazy(lazy_step(work=0), "eager", bridge=slow, steps=4)
    assert result.step_starts_ns == [0, 40 * US, 150 * US, 260 * US]


def test_a_synchronous_replay_costs_its_caller_and_an_asynchronous_one_the_launch_thread():
    # synchronous: flush 5, replay 20, event 3; asynchronous: hand-over 4, then the wait for the replay before, 20 + 3 a step
    def per_step(mode: str) -> int:
        return lazy_ns(lazy_step(work=0), mode, steps=12) - lazy_ns(lazy_step(work=0), mode, steps=2)

    assert per_step("step") == 10 * 28 * US
    assert per_step("step:asynchronous") == 10 * 27 * US


def test_each_mark_step_inside_a_region_is_a_replay_of_its_own():
    one = run_lazy(lazy_step(work=10), "step", steps=4)
    three = run_lazy(lazy_step(work=10, marks=("forward", "backward", "optimizer")), "step", steps=4)
    assert (one.graphs, three.graphs) == (4, 12)


def test_module_cacher_keeps_the_first_shapes_and_runs_later_ones_eagerly():
    step = lazy_step(work=0, shapes=(1.0, 1.0, 1.0), order=(0, 1, 2))
    names = [
        [r.name for r in run_lazy(step, "module:Net_0", steps=6, profile=True, max_graphs=m).rows] for m in (1, 2, 3)
    ]
    # forward and backward are a graph each; six steps meet three shapes twice
    assert [n.count("ExecuteCachedGraph") for n in names] == [4, 8, 12]


def test_lazy_rows_carry_recipes_and_no_correlations():
    trace = trace_of(clean(15))
    kernels = rows(trace, "Kernel")
    assert kernels
    assert all("correlation" not in e["args"] and e["args"]["recipeId"] > 0 for e in kernels)
    bridge = {e["name"] for e in rows(trace, "Runtime")}
    assert {
        "SyncTensorsGraphInternal",
        "LaunchSyncTensorsGraph",
        "synLaunchWithExternalEvents",
        "synEventRecord",
    } <= bridge
    assert any(n.endswith("_hpu_lazy") for n in bridge)


def test_the_thread_that_waits_for_recipes_waits_for_one_at_a_time():
    slow = run_lazy(lazy_step(work=300, marks=("forward", "backward", "optimizer")), "eager", steps=4, profile=True)
    waits = _waits(slow)
    assert len(waits) == 12
    assert all(before.end_ns <= then.start_ns for before, then in itertools.pairwise(waits))
