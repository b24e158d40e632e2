"""The world's physics on programs of a few instructions, with times worked out by hand (µs in the comments, ns in the code)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.world.edits import DROP_SYNC, in_mode, scaled
from benchmarks.world.host import Run, run, run_ranks
from benchmarks.world.machine import Machine
from benchmarks.world.program import COMM, COMPUTE, SIDE, Builder, Op, Step

US = 1000
BARE = Machine(
    latency_ns=6 * US,
    gap_ns=1 * US,
    event_gap_ns=2 * US,
    graph_gap_ns=500,
    graph_short_factor=1.0,
    graph_middle_factor=1.0,
    graph_call_ns=5 * US,
    graph_node_ns=1 * US,
    copy_call_ns=3 * US,
    copy_work_ns=2 * US,
    wake_ns=2 * US,
)


def machine(**changes: float) -> Machine:
    return replace(BARE, **changes)


def kernels(result: Run) -> list[tuple[str, float, float]]:
    """What ran on the device: name, start and end in µs from the first step's start."""
    zero = result.step_starts_ns[0]
    ran = ((k.instr.name, (k.start_ns - zero) / US, (k.end_ns - zero) / US) for k in result.device)
    return sorted(ran, key=lambda k: (k[1], k[0]))


def one_kernel(*, sync: bool = False, host: int = 10, work: int = 20) -> Step:
    out = Builder()
    out.host(host * US)
    out.launch("k", 4 * US, work * US)
    if sync:
        with out.where(phase="sync"):
            out.sync()
    return Step(tuple(out.instrs))


def test_a_free_running_step_queues_behind_the_device():
    # calls at 10, 24, 38; the first kernel waits 6 for its launch, the others 1 behind the one before
    result = run(one_kernel(), BARE, steps=3, seed="", profile=True)
    assert kernels(result) == [("k", 16, 36), ("k", 37, 57), ("k", 58, 78)]
    assert result.step_ends_ns[-1] == 42 * US
    assert result.drained_ns == 80 * US  # 78, and 2 to wake up


def test_a_sync_in_each_step_serializes_host_latency_and_device():
    # 10 host, 6 latency, 20 kernel, 2 wake-up: 38 a step; the last drain wakes up once more
    result = run(one_kernel(sync=True), BARE, steps=3, seed="")
    assert result.step_starts_ns == [0, 38 * US, 76 * US]
    assert result.drained_ns == 116 * US


def test_a_full_queue_blocks_the_launch_and_the_time_counts_as_blocked():
    # a queue of one: the second call, made at 4, waits until 26; the third, made at 30, until 52; the drain from 56 until 80
    result = run(one_kernel(host=0), machine(queue_limit=1), steps=3, seed="", profile=True)
    assert kernels(result) == [("k", 6, 26), ("k", 32, 52), ("k", 58, 78)]
    assert result.blocked_ns == (22 + 22 + 24) * US
    assert result.step_ends_ns[-1] == 56 * US


def two_streams(first: int, then: int, *, kind: str = "comm", ordered: bool = True) -> Step:
    out = Builder()
    out.launch("a", 1 * US, first * US)
    if ordered:
        out.order(COMPUTE, COMM, 0)
    out.launch("b", 1 * US, then * US, stream=COMM, kind=kind)
    return Step(tuple(out.instrs))


def test_a_stream_waits_for_the_event_of_another():
    # a: 6 to 16; b is ready at 7 but waits for the event at 16, and 2 more
    result = run(two_streams(10, 5), BARE, steps=1, seed="", profile=True)
    assert kernels(result) == [("a", 6, 16), ("b", 18, 23)]


def test_streams_without_events_run_at_once():
    result = run(two_streams(10, 5, ordered=False), BARE, steps=1, seed="", profile=True)
    assert kernels(result) == [("a", 6, 16), ("b", 7, 12)]


def test_a_collective_slows_the_compute_beside_it():
    # b runs 7 to 17 at full speed; a has done 1 by then, does 5 of its work in those 10 at half speed, and 4 more after 17
    result = run(two_streams(10, 10, ordered=False), machine(comm_slows_compute=2.0), steps=1, seed="", profile=True)
    assert kernels(result) == [("a", 6, 21), ("b", 7, 17)]


def meeting(host: int, late: int = 0) -> Step:
    out = Builder()
    out.host(host * US)
    out.launch("reduce", 1 * US, 5 * US, stream=COMM, kind="comm", late_ns=late * US)
    out.sync(COMM)
    return Step(tuple(out.instrs))


def test_a_collective_transfers_when_the_last_rank_has_come():
    # called at 10 and 30, there at 16 and 36; 5 of transfer, and the second rank leaves 3 late
    first, last = run_ranks([meeting(10), meeting(30, late=3)], BARE, steps=1, seed="", profile=True)
    assert kernels(first) == [("reduce", 16, 41)]
    assert kernels(last) == [("reduce", 36, 44)]


def test_a_rank_that_never_comes_is_an_error():
    nobody = Builder()
    nobody.host(US)
    with pytest.raises(RuntimeError, match="never"):
        run_ranks([meeting(10), Step(tuple(nobody.instrs))], BARE, steps=1, seed="")


def test_a_scaled_operator_takes_that_much_longer_on_its_side_alone():
    step = phased()
    slow = scaled(step, lambda i: i.phase == "backward", host=2.0, work=3.0)
    plain, changed = (run(s, BARE, steps=1, seed="", profile=True) for s in (step, slow))
    assert changed.step_ends_ns[-1] - plain.step_ends_ns[-1] == 10 * US
    assert [end - start for _, start, end in kernels(changed)] == [20, 60, 20]


def test_a_wait_that_nobody_can_end_is_an_error_and_not_a_hang():
    out = Builder()
    out.add(Op.WAIT, stream=COMPUTE, event="never", ns=0)
    out.launch("k", US, US)
    with pytest.raises(RuntimeError, match="never drains"):
        run(Step(tuple(out.instrs)), BARE, steps=1, seed="")


def phased(*, mid_sync: bool = False, late_sync: bool = False) -> Step:
    """A step of 10 host and a kernel of 20 in each of forward, backward and optimizer, after 7 of loading."""
    out = Builder()
    with out.where(phase="data"):
        out.host(7 * US)
    for phase in ("forward", "backward", "optimizer"):
        with out.where(phase=phase, module=("Net_0",)):
            out.host(10 * US)
            out.launch(phase, 4 * US, 20 * US)
        if phase == "forward" and mid_sync:
            with out.where(phase="sync"):
                out.sync()
    if late_sync:
        with out.where(phase="sync"):
            out.sync()
    return Step(tuple(out.instrs), step_inputs=1, module_inputs={"Net_0": 2})


def test_a_captured_step_is_one_replay_after_the_copies_of_its_inputs():
    program = in_mode(phased(), "step", BARE)
    assert [i.op for i in program.instrs] == [Op.HOST, Op.LAUNCH, Op.GRAPH]
    result = run(program, BARE, steps=1, seed="", profile=True)
    # loading to 7; the copy: called at 7, runs 13 to 15; the replay's call takes 5 + 3 from 10 to 18; ready at 24; gaps of 0.5
    assert result.step_ends_ns[-1] == 18 * US
    assert kernels(result) == [
        ("Memcpy DtoD (Device -> Device)", 13, 15),
        ("forward", 24, 44),
        ("backward", 44.5, 64.5),
        ("optimizer", 65, 85),
    ]
    assert result.drained_ns == 87 * US


def test_long_kernels_in_a_graph_take_their_own_factor():
    result = run(in_mode(phased(), "step", BARE), machine(graph_long_factor=0.5), steps=1, seed="")
    assert result.drained_ns == (24 + 3 * 10 + 2 * 0.5 + 2) * US


def test_a_sync_in_the_middle_cuts_the_step_into_two_graphs():
    program = in_mode(phased(mid_sync=True), "step", BARE)
    assert [i.op for i in program.instrs] == [Op.HOST, Op.LAUNCH, Op.GRAPH, Op.SYNC, Op.GRAPH]
    assert [len(i.nodes) for i in program.instrs if i.op is Op.GRAPH] == [1, 2]
    dropped = in_mode(phased(mid_sync=True), DROP_SYNC, BARE)
    assert [i.op for i in dropped.instrs] == [Op.HOST, Op.LAUNCH, Op.GRAPH]


@pytest.mark.parametrize(
    ("mode", "ops"),
    [
        ("forward+backward", [Op.HOST, Op.LAUNCH, Op.GRAPH, Op.HOST, Op.LAUNCH]),
        ("optimizer", [Op.HOST, *[Op.HOST, Op.LAUNCH] * 2, Op.GRAPH]),
        # two copies of inputs, forward; one copy of the output's gradient, backward; the optimizer is no part of the module
        ("module:Net_0", [Op.HOST, Op.LAUNCH, Op.LAUNCH, Op.GRAPH, Op.LAUNCH, Op.GRAPH, Op.HOST, Op.LAUNCH]),
        ("eager", [Op.HOST, *[Op.HOST, Op.LAUNCH] * 3]),
    ],
)
def test_each_mode_captures_its_region_and_nothing_else(mode, ops):
    assert [i.op for i in in_mode(phased(), mode, BARE).instrs] == ops


def test_collectives_of_hooks_come_after_a_modules_graph_but_inside_a_steps():
    out = Builder()
    for _ in range(2):
        with out.where(phase="backward", module=("Net_0",)):
            out.launch("grad", 4 * US, 10 * US)
        with out.where(phase="collective"):
            out.order(COMPUTE, COMM, 0)
            out.launch("reduce", 4 * US, 8 * US, stream=COMM, kind="comm")
    step = Step(tuple(out.instrs))
    module = run(in_mode(step, "module:Net_0", BARE), BARE, steps=1, seed="", profile=True)
    whole = run(in_mode(step, "step", BARE), BARE, steps=1, seed="", profile=True)

    def starts(result: Run, name: str) -> list[float]:
        return [start for n, start, _ in kernels(result) if n == name]

    grads = [end for n, _, end in kernels(module) if n == "grad"]
    assert min(starts(module, "reduce")) == max(grads) + 2  # the first bucket waits for the whole backward graph
    first = next(end for n, _, end in kernels(whole) if n == "grad")
    assert min(starts(whole, "reduce")) == first + 2  # overlap is kept


def test_branches_of_a_graph_run_at_once_and_join():
    out = Builder()
    with out.where(phase="forward"):
        out.launch("a", US, 10 * US)
        out.order(COMPUTE, SIDE, 0)
        out.launch("side", US, 30 * US, stream=SIDE)
        out.launch("b", US, 10 * US)
        out.order(SIDE, COMPUTE, 0)
        out.launch("c", US, 10 * US)
    result = run(in_mode(Step(tuple(out.instrs)), "step", BARE), BARE, steps=1, seed="", profile=True)
    # replay called for 5 + 4, ready at 15: a to 25, side 27 to 57, b 25.5 to 35.5, c two after side
    assert kernels(result) == [("a", 15, 25), ("b", 25.5, 35.5), ("side", 27, 57), ("c", 59, 69)]


def test_profiling_lengthens_host_rows_and_calls_but_no_kernel():
    out = Builder()
    with out.row("aten::add", "cpu_op"):
        out.host(10 * US)
        out.launch("k", 4 * US, 20 * US)
    step, slow = Step(tuple(out.instrs)), machine(op_cost_ns=10 * US, runtime_cost_ns=2 * US)
    seen, plain = run(step, slow, steps=1, seed="", profile=True), run(step, slow, steps=1, seed="")
    # the step's own row 10, the operator's 10, the call's 2
    assert seen.step_ends_ns[-1] - plain.step_ends_ns[-1] == 22 * US
    assert [end - start for _, start, end in kernels(seen)] == [20]


def test_garbage_collection_follows_host_work_so_graphs_have_less_of_it():
    step, collected = phased(), machine(gc_every_ns=60 * US, gc_pause_ns=1000 * US)
    eager = run(step, collected, steps=20, seed="")
    graph = run(in_mode(step, "step", collected), collected, steps=20, seed="")
    assert eager.gc_pauses == 11  # 37 of host work a step; the limit is passed after 64 of these 740
    assert graph.gc_pauses == 2  # 7 a step; passed after 63 of 140


@pytest.mark.parametrize(
    ("kernel", "gains"),
    [  # speed-up of capture: no sync, a sync in each 10th step, in each step, and in each step with three more inside it
        (2, (3.70, 3.58, 2.61, 2.51)),
        (5, (1.86, 1.83, 1.54, 1.51)),
        (9, (1.12, 1.11, 1.00, 0.99)),
        (12, (1.00, 1.00, 1.00, 0.99)),
        (20, (1.00, 1.00, 1.00, 1.00)),
    ],
)
def test_an_earlier_simulation_of_400_kernels_is_reproduced(kernel, gains):
    """10 µs of host work for each of 400 kernels, 500 µs outside, replay 10, latency 5, gap 1, two input copies."""
    plain = Machine(
        latency_ns=5 * US, gap_ns=US, graph_gap_ns=US, graph_short_factor=1.0, graph_middle_factor=1.0, graph_call_ns=10 * US, graph_node_ns=0,
        copy_call_ns=5 * US, copy_work_ns=2 * US, wake_ns=0,
    )  # fmt: skip
    found = []
    for every, inside in ((0, ()), (10, ()), (1, ()), (1, (99, 199, 299))):
        out = Builder()
        with out.where(phase="data"):
            out.host(500 * US)
        for i in range(400):
            with out.where(phase="forward"):
                out.host(6 * US)
                out.launch("k", 4 * US, kernel * US)
            if i in inside:
                with out.where(phase="sync"):
                    out.sync()
        if every:
            with out.where(phase="sync", every=every):
                out.sync()
        step = Step(tuple(out.instrs), step_inputs=2)
        eager, graph = (run(in_mode(step, m, plain), plain, steps=50, seed="").step_ns() for m in ("eager", "step"))
        found.append(eager / graph)
    assert found == pytest.approx(gains, abs=0.05)
