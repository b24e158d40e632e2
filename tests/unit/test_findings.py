"""Each finding fires at its threshold, is silent just below it, and findings stand in the order of what they could save."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.families import NONE
from hpuprof.model.partial import RankPartial
from hpuprof.model.schema import Cause
from hpuprof.model.tables import MemoryRow, OperatorRow, PrecisionRow, RankRow, UtilisationRow
from hpuprof.ranks.rank_tables import across_ranks
from hpuprof.report.findings import find
from hpuprof.report.rule import Context
from hpuprof.report.step_findings import MOVE_LESS, OVERLAP, PIN, TENSOR_PARALLEL

WALL = 1000
Case = tuple[RankPartial, dict[str, float], dict[Cause, int]]


@pytest.fixture(scope="module")
def quiet(tmp_path_factory) -> RankPartial:
    """A recording of one rank in which nothing is worth a finding: steps of 1000 µs, the device busy for most of each."""
    b = TraceBuilder()
    for i in range(6):
        at = 1000 * i
        b.step(i, at, 1000)
        for k in range(9):
            b.kernel(f"gemm_{k}", at + 20 + 108 * k, 105, launch=at + 5 + 108 * k)
    return b.reduce(tmp_path_factory.mktemp("quiet"))


def found(part: RankPartial, values: dict[str, float], idle: dict[Cause, int]) -> list[str]:
    row = msgspec.convert(dict.fromkeys(RankRow.__struct_fields__) | BASE, RankRow)
    main = [(row, part)]
    shares = {cause: ns / WALL for cause, ns in idle.items()} if part.sound else {}
    return [f.code for f in find(Context(main, values, shares, across_ranks(main, clock="raw", manifest=None)))]


BASE = {"rank": 0, "stage": "", "action": "", "window": "0", "steps_used": 4, "steps_total": 6, "step_p50_ns": WALL, "step_p90_ns": WALL, "bound": "device"}  # fmt: skip


def idles(cause: Cause) -> Callable[[RankPartial, int], Case]:
    return lambda part, share: (part, {}, {cause: share})


def compiles(part: RankPartial, step: int) -> Case:
    steps = [msgspec.structs.replace(s, compile_ns=5 if s.step == step else 0) for s in part.steps]
    return msgspec.structs.replace(part, steps=steps), {}, {}


def short(part: RankPartial, share: int) -> Case:
    return part, {"short_launch_fraction": share / WALL}, {}


def allocates(part: RankPartial, share: int) -> Case:
    steps = [msgspec.structs.replace(s, blocked_alloc_ns=share * s.wall_ns // WALL) for s in part.steps]
    return msgspec.structs.replace(part, steps=steps), {}, {}


def full_precision(part: RankPartial, low: int) -> Case:
    rows = [
        PrecisionRow(engine="MME", dtype=dtype, busy_ns=ns, fraction=ns / WALL)
        for dtype, ns in (("bf16", low), ("fp32", WALL - low))
    ]
    return msgspec.structs.replace(part, precision=rows), {"compute_fraction": 1.0}, {}


def fills_memory(part: RankPartial, share: int) -> Case:
    unknown = dict.fromkeys(MemoryRow.__struct_fields__)
    mine = {"rank": 0, "stage": "", "action": "", "window": "0", "space": "device", "samples": 1, "allocated_bytes": 0}
    row = msgspec.convert(unknown | mine | {"freed_bytes": 0, "peak_allocated_bytes": share}, MemoryRow)
    file = msgspec.structs.replace(part.file, device_memory_bytes=WALL)
    return msgspec.structs.replace(part, memory=[row], file=file), {}, {}


def one_kernel(part: RankPartial, share: int) -> Case:
    wall = sum(s.wall_ns for s in part.steps if s.steady)
    first, *others = part.kernels
    return (
        msgspec.structs.replace(part, kernels=[msgspec.structs.replace(first, total_ns=share * wall // WALL), *others]),
        {},
        {},
    )


def at_the_roof(part: RankPartial, left: int) -> Case:
    """A kernel of half the step at so many thousandths less than its operator's roofline."""
    part = one_kernel(part, 500)[0]
    row = msgspec.convert(
        dict.fromkeys(UtilisationRow.__struct_fields__)
        | {"name": "aten::mm", "shape": "", "count_per_step": 1.0, "flops": 1, "device_per_step_ns": 1.0}
        | BASE
        | {"roofline_fraction": 1.0 - left / WALL},
        UtilisationRow,
    )
    kernels = [msgspec.structs.replace(kernel, operator="aten::mm") for kernel in part.kernels]
    others = [msgspec.structs.replace(row, name="aten::add", roofline_fraction=0.0)]
    others += [
        msgspec.structs.replace(row, roofline_fraction=None),
        msgspec.structs.replace(row, device_per_step_ns=None),
    ]
    return msgspec.structs.replace(part, kernels=kernels, utilisation=[row, *others]), {}, {}


def one_operator(part: RankPartial, share: int, **other: str) -> Case:
    """Steps on the CPU alone, of which an operator takes so many thousandths by itself."""
    steps = [msgspec.structs.replace(s, launches=0) for s in part.steps]
    wall = sum(s.wall_ns for s in steps if s.steady)
    values = dict.fromkeys(OperatorRow.__struct_fields__, 0) | BASE | {"name": "aten::svd", "top_shape": None, **other}
    values |= {"count_per_step": 2.0, "host_p50_ns": 3_000, "host_self_ns": share * wall // WALL}
    row = msgspec.convert(values, OperatorRow)
    file = msgspec.structs.replace(part.file, family=NONE)
    return msgspec.structs.replace(part, steps=steps, operators=[row], kernels=[], file=file), {}, {}


def no_operator(part: RankPartial, share: int) -> Case:
    return one_operator(part, 0)[0], {"no_operator_fraction": share / WALL}, {}


def test_an_operator_of_a_program_on_the_cpu_is_named_with_its_calls(quiet):
    part, _, _ = one_operator(quiet, 500)
    row = msgspec.convert(dict.fromkeys(RankRow.__struct_fields__) | BASE, RankRow)
    main = [(row, part)]
    [finding] = find(Context(main, {}, {}, across_ranks(main, clock="raw", manifest=None)))
    assert finding.evidence == "aten::svd takes 50.0 % of the step by itself, 2 calls of 3.00 µs"
    assert finding.share_fraction == pytest.approx(0.5)


def test_a_wait_for_other_ranks_and_a_program_that_launches_have_no_such_operator(quiet):
    assert found(*one_operator(quiet, 500, name="c10d::allreduce_")) == []
    part, _, _ = one_operator(quiet, 500)
    steps = [msgspec.structs.replace(s, launches=1) for s in part.steps]
    assert "HP223" not in found(msgspec.structs.replace(part, steps=steps), {}, {})


@pytest.mark.parametrize(
    ("code", "case", "fires", "silent"),
    [
        ("HP204", idles(Cause.H2D_COPY), 30, 29),
        ("HP205", compiles, 1, 0),
        ("HP207", short, 500, 499),
        ("HP208", idles(Cause.OPTIMIZER), 50, 49),
        ("HP209", idles(Cause.CALLBACK), 30, 29),
        ("HP210", full_precision, 499, 500),
        ("HP211", allocates, 10, 9),
        ("HP211", allocates, 249, 9),
        ("HP213", idles(Cause.PYTHON), 100, 99),
        ("HP215", idles(Cause.SYNCHRONISE), 30, 29),
        ("HP216", fills_memory, 901, 900),
        ("HP217", idles(Cause.FIRST_USE), 50, 49),
        ("HP220", idles(Cause.CPU_OPERATOR), 50, 49),
        ("HP222", one_kernel, 300, 299),
        ("HP222", at_the_roof, 301, 299),
        ("HP223", one_operator, 300, 299),
        ("HP224", no_operator, 500, 499),
    ],
)
def test_a_finding_fires_at_its_threshold_and_not_below(quiet, code, case, fires, silent):
    assert found(*case(quiet, fires)) == [code]
    assert found(*case(quiet, silent)) == []


def test_a_kernel_saves_at_most_what_the_roofline_leaves(quiet):
    (part, _, _) = at_the_roof(quiet, 400)
    row = msgspec.convert(dict.fromkeys(RankRow.__struct_fields__) | BASE, RankRow)
    main = [(row, part)]
    [finding] = find(Context(main, {}, {}, across_ranks(main, clock="raw", manifest=None)))
    assert finding.evidence.startswith("gemm_0 takes 50.0 % of the step, 1 run of 105.0 µs, at 60.0 % of what")
    assert finding.share_fraction == pytest.approx(0.2)


def test_an_allocator_that_takes_a_quarter_of_the_step_is_the_finding(quiet):
    assert found(*allocates(quiet, 250)) == ["HP218"]


def test_steps_of_allocations_and_frees_get_the_allocator_and_graphs_only_for_what_it_leaves(tmp_path):
    b = TraceBuilder()
    for i in range(8):
        b.step(i, 1000 * i, 1000)
        for at in range(1000 * i, 1000 * i + 1000, 100):
            b.host("hipMalloc", at, 5, cat="hip_runtime").kernel("gemm", at + 12, 4, launch=at + 6, call_dur=3)
            b.host("hipFree", at + 18, 80, cat="hip_runtime")
    report = hpuprof.analyze(b.write(tmp_path / "t.json"))
    assert report.findings[0].code == "HP218"
    # Of 100 µs from launch to launch 85 allocate and free; the other 15 are for 4 of the device.
    assert report.graph_mode.verdict == "likely"
    assert "the host needs 3.75 times the device's time" in report.graph_mode.sentence
    assert "takes 85 % of the step and is no launch overhead; the allocator comes first" in report.graph_mode.sentence


PAGEABLE, PINNED, WITHIN = (
    "Memcpy HtoD (Pageable -> Device)",
    "Memcpy HtoD (Pinned -> Device)",
    "Memcpy DtoD (Device -> Device)",
)


@pytest.mark.parametrize(
    ("name", "computing", "evidence", "advice"),
    [
        (PAGEABLE, 0, "80.0 % of the step, the device only copied; 100.0 % of the copying is of pageable", PIN),
        (PINNED, 15, "80.0 % of the step, the device only copied; it computed for 15.0 %", OVERLAP),
        (PINNED, 5, "80.0 % of the step, the device only copied; it computed for 5.0 %", MOVE_LESS),
        (WITHIN, 15, "80.0 % of the step, the device only copied; 100.0 % of the copying is within its", MOVE_LESS),
    ],
)
def test_a_device_that_mostly_copies(tmp_path, name, computing, evidence, advice):
    b = TraceBuilder()
    for at in range(0, 800, 100):
        b.step(at // 100, at, 100).kernel(name, at, 80, launch=at, call="cudaMemcpyAsync", cat="gpu_memcpy")
        b.kernel("gemm", at + 80, computing, launch=at + 10)
    report = hpuprof.analyze(b.write(tmp_path / "t.json"))
    assert report.headline.sentence.startswith("Copy-bound: for 80.0 % of the step, the device only copied; the device")
    finding = next(f for f in report.findings if f.code == "HP219")
    assert evidence in finding.evidence
    assert finding.advice == advice


def test_findings_stand_in_the_order_of_what_they_could_save(quiet):
    idle = {
        Cause.SYNCHRONISE: 40,
        Cause.OPTIMIZER: 300,
        Cause.H2D_COPY: 40,
        Cause.PYTHON: 120,
        Cause.OPERATOR_LAUNCH: 130,
    }
    assert found(quiet, {"short_launch_fraction": 0.6}, idle) == [
        "HP208",  # 0.3
        "HP201",  # 0.13, as much as the next: the smaller code first
        "HP207",
        "HP213",  # 0.12
        "HP204",  # 0.04
        "HP215",
    ]


def test_device_rows_that_are_not_sound_support_no_finding_about_the_device(quiet, tmp_path):
    alone = TraceBuilder().steps(6, 1000).host("aten::mm", 1500, 10).reduce(tmp_path)
    assert not alone.sound
    assert found(alone, {"short_launch_fraction": 0.9}, {Cause.PYTHON: 500, Cause.H2D_COPY: 500}) == []


def reduces(tmp_path, launched: int, *, backward: bool = True):
    """A step of 1000 µs: forward, backward from 500 to 700, an all-reduce of 250 µs launched at some instant."""
    b = TraceBuilder()
    for at in range(0, 8000, 1000):
        b.step(at // 1000, at, 1000).host("aten::mm", at + 10, 50)
        if backward:
            b.host("autograd::engine::evaluate_function: MmBackward0", at + 500, 200)
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
        b.kernel("gemm", at + 20, 100, launch=at + 12).kernel(name, at + 740, 250, launch=at + launched)
    report = hpuprof.analyze(b.write(tmp_path / "t.json"))
    return report.data.files[0], next(f for f in report.findings if f.code == "HP206")


@pytest.mark.parametrize(("launched", "share"), [(300, 1.0), (600, 0.0), (720, 0.0)])
def test_an_all_reduce_that_forward_launches_is_no_gradient(tmp_path, launched, share):
    """Before backward, inside it, and after it: as without overlap of gradients."""
    file, finding = reduces(tmp_path, launched)
    assert file.forward_reduction_fraction == share
    assert (finding.advice == TENSOR_PARALLEL) == (share == 1)
    assert ("DDP" in finding.advice) == (share == 0)


def test_without_backward_there_are_no_gradients(tmp_path):
    file, finding = reduces(tmp_path, 600, backward=False)
    assert (file.workload, file.forward_reduction_fraction) == ("inference", None)
    assert finding.advice == TENSOR_PARALLEL


def test_the_line_of_python_is_named_where_stacks_are_recorded(tmp_path):
    """The device idles for 500 of 1000 µs, 400 of them in a line of the user's and 100 in none."""
    b = TraceBuilder()
    for at in range(0, 8000, 1000):
        b.step(at // 1000, at, 1000).kernel("gemm", at + 10, 490, launch=at + 5)
        b.host("/home/me/train.py(41): training_step", at + 520, 400, cat="python_function")
        b.host("torch/nn/modules/module.py(1): _call_impl", at + 530, 380, cat="python_function")
    report = hpuprof.analyze(b.write(tmp_path / "t.json"))
    finding = next(f for f in report.findings if f.code == "HP213")
    assert finding.evidence.endswith("longest in train.py(41): training_step")
    assert "Record with stacks" not in finding.advice
    assert report.data.gaps[0].python_line == "/home/me/train.py(41): training_step"
