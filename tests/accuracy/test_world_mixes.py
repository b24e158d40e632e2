"""Cases of several kinds of steps, graphs that are there, hosts that run ahead: what happens, and what their traces show."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from dataclasses import replace
from functools import cache
from statistics import median, quantiles
from typing import Any

import pytest

from benchmarks.world import edits, mixes
from benchmarks.world.cases import Case, make_case
from benchmarks.world.draw import draw_machine
from benchmarks.world.host import run
from benchmarks.world.machine import Machine
from benchmarks.world.program import COMM, COMPUTE, Builder, Instr, Mix, Op, Step
from benchmarks.world.trace import Source, cuda_trace
from benchmarks.world.training import Shape, build

US = 1000
BARE = Machine(latency_ns=6 * US, gap_ns=US, event_gap_ns=2 * US, wake_ns=2 * US)


@cache
def case(family: str, seed: int) -> Case:
    return make_case(seed, family=family)


def rows(text: str, cat: str) -> list[dict[str, Any]]:
    return [e for e in json.loads(text)["traceEvents"] if e.get("cat") == cat]


def host_only(us: int, phase: str = "forward") -> Step:
    return Step((Instr(Op.HOST, ns=us * US, phase=phase),))


def device_bound(kernels: int = 3) -> Step:
    """A step of 2 for the host and 30 for the device, per kernel."""
    out = Builder()
    for _ in range(kernels):
        out.launch("k", 2 * US, 30 * US)
    return Step(tuple(out.instrs))


def test_a_mix_runs_its_kinds_in_their_order_and_each_has_its_own_time():
    mix = Mix({"short": host_only(10), "long": host_only(40)}, ("long", "short", "short"))
    result = run(mix, BARE, steps=7, seed="")
    assert result.taken_ns() == [40 * US, 10 * US, 10 * US, 40 * US, 10 * US, 10 * US, 40 * US]
    assert mixes.by_kind(result, mix) == {"short": 10 * US, "long": 40 * US}
    assert mixes.heaviest([mixes.by_kind(result, mix)], mix) == "long"
    assert mixes.heaviest([{"short": 21, "long": 40}], mix) == "short"  # there are twice as many


def test_an_accumulating_step_is_the_update_without_optimizer():
    order = case(mixes.ACCUMULATION, 3).hidden["order"]
    text = case(mixes.ACCUMULATION, 3).traces[0]
    steps = {
        r["name"]: (r["ts"], r["ts"] + r["dur"]) for r in rows(text, "user_annotation") if "ProfilerStep" in r["name"]
    }
    updates = [r["ts"] for r in rows(text, "user_annotation") if r["name"].startswith("Optimizer.step")]
    updated = [int(name.split("#")[1]) for name, (start, end) in steps.items() if any(start < u < end for u in updates)]
    assert updated == json.loads(text)["hpuprof"]["steps_with_update"]
    assert len(updated) == pytest.approx(len(steps) / len(order), abs=1)
    assert json.loads(text)["hpuprof"]["accumulate_grad_batches"] == len(order)


def test_steps_with_validation_take_longer_and_only_their_training_is_captured():
    hidden = case(mixes.VALIDATION, 3).hidden
    eager, step = hidden["kinds_ns"]["eager"], hidden["kinds_ns"]["step"]
    assert eager["validated"] > 1.2 * eager["train"]
    gained = {kind: eager[kind] - step[kind] for kind in eager}
    assert gained["validated"] == pytest.approx(gained["train"], rel=0.25)


@pytest.mark.parametrize("family", mixes.MIXED)
def test_the_truth_of_a_mix_is_that_of_the_kind_most_time_goes_to(family):
    made, hidden = case(family, 3), case(family, 3).hidden
    assert median(made.step_ns["eager"]) == hidden["kinds_ns"]["eager"][hidden["heaviest"]]
    shares = {k: n / len(hidden["order"]) for k, n in Counter(hidden["order"]).items()}
    for mode, kinds in hidden["kinds_ns"].items():
        assert hidden["mix_ns"][mode] == pytest.approx(sum(kinds[k] * share for k, share in shares.items()), rel=0.05)


def test_a_server_labels_prefills_by_their_size_and_reads_each_token_back():
    seeds = (s for s in range(40) if "_generation_" in case(mixes.SERVING, s).traces[0])
    made = case(mixes.SERVING, next(seeds))
    labels = {r["name"] for r in rows(made.traces[0], "user_annotation") if "_generation_" in r["name"]}
    assert len({name for name in labels if "generation_0" in name}) == 2  # two prefills of different sizes
    assert "execute_context_0(0)_generation_8(8)" in labels
    assert not rows(made.traces[0], "user_annotation")[0]["name"].startswith("Optimizer")
    waits = [r for r in rows(made.traces[0], "cuda_runtime") if r["name"] == "cudaStreamSynchronize"]
    assert len(waits) == made.hidden["profile"]["steps"]


def test_graphs_that_are_there_have_many_sizes_and_their_kernels_the_number_of_their_launch():
    sizes: set[int] = set()
    for seed in range(6):
        text = case(mixes.GRAPHS, seed).traces[0]
        launched = {r["args"]["correlation"] for r in rows(text, "cuda_runtime") if r["name"] == "cudaGraphLaunch"}
        found = Counter(r["args"]["correlation"] for r in rows(text, "kernel"))
        assert all(number in launched for number, count in found.items() if count > 1)
        sizes |= {found[number] for number in launched}
    assert len(sizes) > 3


def test_pieces_keep_every_kernel_and_take_the_host_work_away():
    out = Builder()
    with out.where(phase="forward"):
        for path in (("Net_0", "A"), ("Net_0", "B"), ("Net_0", "B", "C")):
            with out.where(module=path):
                out.host(10 * US)
                out.launch(path[-1], 4 * US, 20 * US)
    pieces = edits.in_pieces(Step(tuple(out.instrs)), {("Net_0", "B"): "b"}, BARE)
    assert [(i.op, [n.name for n in i.nodes]) for i in pieces.instrs] == [
        (Op.HOST, []), (Op.LAUNCH, []), (Op.GRAPH, ["B", "C"]),
    ]  # fmt: skip


def test_work_launched_before_the_recording_has_no_launch_or_no_row_at_all():
    def kernels(machine: Machine) -> tuple[list[int], set[int]]:
        seen = run(device_bound(), machine, steps=2, seed="", profile=True, lead=4, drained=False)
        text = cuda_trace(seen, machine, Source(), "")
        return [r["args"]["correlation"] for r in rows(text, "kernel")], {
            r["args"]["correlation"] for r in rows(text, "cuda_runtime")
        }

    ran, launched = kernels(BARE)
    # 4 steps launch in 24; by then the first kernel runs: it began before the window, the other eleven are seen
    assert len(ran) == 11 + 6
    assert len([number for number in ran if number not in launched]) == 11
    ran, launched = kernels(replace(BARE, unseen_lead=True))
    assert len(ran) == 6
    assert launched.issuperset(ran)


def test_a_host_that_runs_ahead_has_a_steps_work_done_long_after_the_step():
    late = []
    for seed in (0, 3):
        text = case("ahead", seed).traces[0]
        step = max(r["ts"] + r["dur"] for r in rows(text, "user_annotation") if "ProfilerStep" in r["name"])
        last = max(r["ts"] + r["dur"] for r in rows(text, "kernel"))
        late.append((last - step) * US / median(case("ahead", seed).step_ns["eager"]))
    assert max(late) > 1.5


def test_waits_that_are_not_resolved_tell_no_event():
    out = Builder()
    out.launch("a", US, 10 * US)
    out.order(COMPUTE, COMM, 0)
    out.launch("b", US, 10 * US, stream=COMM)

    def told(machine: Machine) -> int:
        seen = run(Step(tuple(out.instrs)), machine, steps=1, seed="", profile=True)
        waits = [r["args"] for r in rows(cuda_trace(seen, machine, Source(), ""), "cuda_sync")]
        (wait,) = (a for a in waits if a["cuda_sync_kind"] == "Stream Wait Event")
        assert (wait["wait_on_stream"] == -1) == (wait["wait_on_cuda_event_record_corr_id"] == -1)
        return int(wait["wait_on_stream"])

    assert told(BARE) == COMPUTE
    assert told(replace(BARE, unresolved_events=True)) == -1


def test_machines_are_drawn_as_they_were_measured():
    drawn = [draw_machine(random.Random(i), "plain") for i in range(2000)]
    assert 2.3 < median(m.cost_multiple for m in drawn) < 2.7
    assert 6.2 < quantiles((m.cost_multiple for m in drawn), n=20)[-1] < 7.8
    assert 180 < sum(m.graph_gap_ns for m in drawn) / len(drawn) < 220
    assert max(m.graph_gap_ns for m in drawn) <= 600
    assert [drawn[0].graph_factor(ns) for ns in (5_999, 6_000, 19_999, 20_000)] == [
        drawn[0].graph_short_factor, *[drawn[0].graph_middle_factor] * 2, drawn[0].graph_long_factor,
    ]  # fmt: skip
    groups = defaultdict(list)
    for m in drawn:
        for name in ("short", "middle", "long"):
            groups[name].append(getattr(m, f"graph_{name}_factor"))
    assert {n: (round(min(v), 2), round(max(v), 2)) for n, v in groups.items()} == {
        "short": (0.84, 1.0), "middle": (0.90, 0.99), "long": (0.99, 1.01),
    }  # fmt: skip


def test_rows_that_launch_nothing_share_the_host_time_of_an_operator():
    def rows_and_time(views: int) -> tuple[int, int]:
        step = build(Shape(blocks=1, views=views), "mlp", "views")
        return sum(i.op is Op.BEGIN for i in step.instrs), sum(i.ns for i in step.instrs)

    (few, short), (many, long) = rows_and_time(0), rows_and_time(4)
    launches = mixes.launches(build(Shape(blocks=1), "mlp", "views"))
    uploads = 3  # at most: these are no operators
    assert 4 * (launches - uploads) <= many - few <= 4 * launches
    assert long == pytest.approx(short, rel=0.02)
