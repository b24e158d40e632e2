"""Which fix was applied between two runs: each signature by hand, never without a sign; predicted against achieved."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builder import TraceBuilder
from sample_reports import report_at, report_of

import hpuprof
from hpuprof.comparison.check_line import check_line
from hpuprof.comparison.reports import compare_reports
from hpuprof.comparison.result import Comparison
from hpuprof.comparison.sentences import _rounded, percent
from hpuprof.comparison.signatures import SIGNATURES
from hpuprof.errors import InsufficientDataError
from hpuprof.model.durations import about
from hpuprof.model.plan_rows import PlanRow
from hpuprof.model.tables import UtilisationRow
from hpuprof.planning.remedies import REMEDIES
from hpuprof.render import render
from hpuprof.render.comparison_card import LINES, to_card
from hpuprof.render.comparison_text import compare_sections, dumps, to_markdown, to_text
from hpuprof.report.model import Finding, Report

SINGLE = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
WORKERS = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
SGEMM = "volta_sgemm_128x64_nt"
TF32 = "sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n_tilesize128x128x16"
BF16 = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_nn"
FP8 = "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x64x128"
POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>, std::array<char*, 2ul> >"
    "(int, at::native::AddFunctor<float>, std::array<char*, 2ul>)"
)


ANALYZED: dict[tuple[Any, ...], Report] = {}  # by what `program` was asked for


def program(
    folder: Path,
    *,
    kernels: tuple[str, ...] = (SGEMM,) * 2,
    operators: tuple[str, ...] = ("aten::mm", "aten::relu"),
    loader: str = SINGLE,
    step: float = 1000.0,
    steps: int = 8,
    **header: Any,
) -> Report:
    """A step [µs] with an annotation of the loader, operators of 20 µs each and kernels of 100 µs each, none alike."""
    b = TraceBuilder(**header)
    for i in range(steps):
        at = i * step
        b.step(i, at, step - (i % 3) / 10)
        b.annotation(loader, at + 1, 50)
        for place, name in enumerate(operators):
            b.host(name, at + 60 + 25 * place, 20)
        for place, name in enumerate(kernels):
            b.kernel(name, at + 300 + 105 * place, 100, launch=at + 62 + 25 * (place % max(1, len(operators))))
    asked = (kernels, operators, loader, step, steps, str(header))
    if asked not in ANALYZED:
        ANALYZED[asked] = hpuprof.analyze(b.write(folder / f"{abs(hash(asked))}.json"), jobs=1)
    return ANALYZED[asked]


def edited(report: Report, **tables: Any) -> Report:
    """The report with other tables, or with each row of a table changed by a function."""
    data = report.data
    found = {n: [v(row) for row in getattr(data, n)] if callable(v) else v for n, v in tables.items()}
    return Report(msgspec.structs.replace(data, **found))


def rows(**fields: Any) -> Callable[[Any], Any]:
    """A function that sets fields of a row."""
    return lambda row: msgspec.structs.replace(row, **fields)


def obstacle(report: Report, code: str, per_step: float) -> Any:
    from hpuprof.model.tables import ObstacleRow

    return ObstacleRow(
        code=code, severity="cut", module="Block_0", modules=[], where="forward, aten::item", count=1, steps=1,
        per_step=per_step, text="", fix="", python_line="train.py(12): step", **report.data.files[0].who,
    )  # fmt: skip


def finding(code: str) -> Finding:
    return Finding(code=code, title="x", evidence="", advice="", ranks=[])


def fixes(a: Report, b: Report) -> list[str]:
    return [fix.fix for fix in compare_reports(a, b).applied]


def _by_names(folder: Path, **change: Any) -> tuple[Report, Report]:
    before = {name: value[0] for name, value in change.items()}
    after = {name: value[1] for name, value in change.items()}
    return program(folder, **before), program(folder, **after)


def _by_steps(folder: Path, **change: tuple[int, int]) -> tuple[Report, Report]:
    base = program(folder)
    return tuple(edited(base, steps=rows(**{n: v[side] for n, v in change.items()})) for side in (0, 1))  # type: ignore[return-value]


def _obstacles(folder: Path, code: str) -> tuple[Report, Report]:
    base = edited(program(folder), files=rows(workload="training"))
    return edited(base, obstacles=[obstacle(base, code, 2.0)]), edited(base, obstacles=[obstacle(base, code, 0.1)])


def _of_launches(folder: Path) -> tuple[Report, Report]:
    base = program(folder)
    after = [msgspec.structs.replace(row, call="cudaGraphLaunch", count=8) for row in base.data.launches[1:2]]
    return base, edited(base, launches=after, files=rows(mode="graphs"))


def _of_ranks(folder: Path, code: str) -> tuple[Report, Report]:
    job = report_of("hpu_g3_lazy_8_ranks")
    return edited(job, findings=[finding(code)]), edited(job, findings=[])


def _results(folder: Path) -> tuple[Report, Report]:
    base = edited(program(folder), files=rows(workload="inference"))
    base = edited(base, obstacles=[obstacle(base, "HP302", 1.0)])
    return edited(base, steps=rows(blocked_sync_ns=300_000)), edited(base, steps=rows(blocked_sync_ns=1000))


def _buckets(folder: Path) -> tuple[Report, Report]:
    nccl = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
    return _by_names(folder, kernels=((SGEMM, *(nccl,) * 6), (SGEMM, nccl)))


def _products(folder: Path) -> tuple[Report, Report]:
    base = program(folder)
    row = UtilisationRow(
        name="aten::mm", shape="[[64, 64], [64, 64]]", dtype="bf16", count_per_step=2.0, flops=10**9, bytes=10**6,
        intensity=1000.0, device_per_step_ns=400_000.0, flops_per_second=5e12, peak_fraction=0.2, roofline_fraction=0.2,
        bound="compute", **base.data.files[0].who,
    )  # fmt: skip
    return edited(base, utilisation=[row]), edited(base, utilisation=[rows(device_per_step_ns=200_000.0)(row)])


def _pauses(folder: Path) -> tuple[Report, Report]:
    base = program(folder)
    slow = [
        msgspec.structs.replace(s, excluded="outlier", standing="recurs", used=False, above_ns=800_000)
        if s.step % 4 == 3
        else s
        for s in base.data.steps
    ]
    group = msgspec.structs.replace(base.data.step_groups[0], standing="recurs", reason="slow", steps=2, every=4)
    return edited(base, steps=slow, step_groups=[*base.data.step_groups, group]), base


def _of_collectives(op: str = "", **change: Callable[[int], int]) -> tuple[Report, Report]:
    """Collectives of a job before a change of their fields, and after it. `op`: what they do instead."""
    base = report_of("cpu_2_ranks_ddp")
    if op:
        base = edited(base, collectives=[msgspec.structs.replace(row, op=op) for row in base.data.collectives])
    changed = [
        msgspec.structs.replace(row, **{name: f(getattr(row, name)) for name, f in change.items()})
        for row in base.data.collectives
        if row.bytes
    ]
    same = [row for row in base.data.collectives if row.bytes]
    return edited(base, collectives=same), edited(base, collectives=changed)


def _graph_kernels(folder: Path) -> tuple[Report, Report]:
    """Steps that replay one graph of twelve kernels, and of eight."""
    reports = []
    for kernels in (12, 8):
        b = TraceBuilder()
        for i in range(8):
            at = i * 1000.0
            b.step(i, at, 1000.0 - (i % 3) / 10)
            b.host("cudaGraphLaunch", at + 10, 20, cat="cuda_runtime", correlation=i + 1)
            for k in range(kernels):
                b.device(SGEMM, at + 40 + 900 / kernels * k, 880 / kernels, correlation=i + 1)
        reports.append(hpuprof.analyze(b.write(folder / f"graph_{kernels}.json"), jobs=1))
    return reports[0], reports[1]


def _on_the_cpu(folder: Path) -> tuple[Report, Report]:
    base = program(folder)
    first = base.data.gap_causes[0]
    rows = [msgspec.structs.replace(first, step=s.step, cause="cpu_operator", idle_ns=300_000) for s in base.data.steps]
    return edited(base, gap_causes=rows), edited(base, gap_causes=lambda row: row)


def _of_gathers(**change: tuple[float, float]) -> tuple[Report, Report]:
    """A job that gathers and scatters, with other values in its gathers."""
    base = report_of("cpu_2_ranks_ddp")
    known = next(row for row in base.data.collectives if row.bytes)
    scattered = msgspec.structs.replace(known, op="reduce_scatter", count=40)
    gathered = msgspec.structs.replace(known, op="all_gather", count=80, exposed_fraction=0.8, duration_p50_ns=1000)
    a, b = (
        msgspec.structs.replace(gathered, **{name: values[side] for name, values in change.items()}) for side in (0, 1)
    )
    return edited(base, collectives=[scattered, a]), edited(base, collectives=[scattered, b])


PAIRS: dict[str, Callable[[Path], tuple[Report, Report]]] = {
    "data_loading": lambda p: _by_names(p, loader=(SINGLE, WORKERS)),
    "read_backs": lambda p: _obstacles(p, "HP302"),
    "results": _results,
    "synchronisation": lambda p: _obstacles(p, "HP303"),
    "cpu_operators": _on_the_cpu,
    "flushes": lambda p: _obstacles(p, "HP310"),
    "uploads": lambda p: _by_names(
        p, kernels=((SGEMM, "Memcpy HtoD (Pageable -> Device)"), (SGEMM, "Memcpy HtoD (Pinned -> Device)"))
    ),
    "allocations": lambda p: _by_steps(p, blocked_alloc_ns=(200_000, 1000)),
    "copies": lambda p: _by_steps(p, exposed_copy_ns=(200_000, 1000), copy_busy_ns=(200_000, 200_000)),
    "no_sync": lambda _: _of_collectives(count=lambda n: 4 * n)[::-1],
    "gather_prefetch": lambda _: _of_gathers(exposed_fraction=(0.8, 0.1)),
    "shard_by_layer": lambda _: _of_gathers(count=(8, 80)),
    "gather_once": lambda _: _of_gathers(count=(80, 40)),
    "collectives": lambda p: _by_steps(
        p, exposed_communication_ns=(200_000, 1000), communication_busy_ns=(200_000, 200_000)
    ),
    "buckets": _buckets,
    "gradient_compression": lambda _: _of_collectives(bytes=lambda n: n // 2),
    "exchange_compression": lambda _: _of_collectives("all_to_all", bytes=lambda n: n // 2),
    "lower_precision": lambda p: _by_names(p, kernels=((SGEMM,) * 2, (BF16,) * 2)),
    "fp8": lambda p: _by_names(p, kernels=((BF16,) * 2, (FP8,) * 2)),
    "tf32": lambda p: _by_names(p, kernels=((SGEMM,) * 2, (TF32,) * 2)),
    "faster_products": _products,
    "attention": lambda p: _by_names(
        p,
        operators=(("aten::bmm", "aten::_softmax", "aten::bmm"), ("aten::_scaled_dot_product_flash_attention",)),
    ),
    "layouts": lambda p: _by_names(p, kernels=((SGEMM, *("void cudnn::ops::nchwToNhwcKernel<float>",) * 2), (SGEMM,))),
    "pointwise_fusion": lambda p: _by_names(
        p, kernels=((SGEMM, *(POINTWISE,) * 4), (SGEMM, "triton_poi_fused_add_relu_0"))
    ),
    "graph_breaks": lambda p: _by_names(
        p,
        operators=(
            ("aten::mm", *(f"Torch-Compiled Region: {k}/0" for k in range(4)), "aten::relu"),
            ("aten::mm", "Torch-Compiled Region: 0/0", "aten::relu"),
        ),
    ),
    "graph_kernels": _graph_kernels,
    "recomputation": lambda p: _by_steps(p, recomputed_flops=(10**9, 0)),
    "fills": lambda p: _by_names(
        p,
        operators=(
            ("aten::mm", "aten::relu", *("aten::empty", "aten::fill_") * 3),
            ("aten::mm", "aten::relu", *("aten::empty",) * 3),
        ),
    ),
    "fused_optimizer": lambda p: _by_names(
        p,
        operators=(
            ("aten::mm", "aten::relu", "aten::mul_", "aten::addcmul_", "aten::addcdiv_", "aten::add_"),
            ("aten::mm", "aten::relu", "aten::_fused_adam_"),
        ),
    ),
    "parameter_groups": lambda p: _by_names(
        p,
        operators=(
            ("aten::mm", "aten::relu", *("aten::_fused_adam_",) * 6),
            ("aten::mm", "aten::relu", "aten::_fused_adam_"),
        ),
    ),
    "graphs": _of_launches,
    "pauses": _pauses,
    "keep_pace": lambda p: _of_ranks(p, "HP230"),
    "balance": lambda p: _of_ranks(p, "HP235"),
}


def test_each_remedy_of_the_plan_has_a_signature_and_each_signature_a_pair():
    names = [signature.fix for signature in SIGNATURES]
    assert {remedy.name for remedy in REMEDIES} <= set(names)
    assert names == list(PAIRS)


@pytest.mark.parametrize("fix", PAIRS)
def test_a_fix_is_found_by_its_signs_alone_and_only_in_its_direction(tmp_path, fix):
    a, b = PAIRS[fix](tmp_path)
    assert fixes(a, b) == [fix]
    assert fix not in fixes(b, a)
    assert fixes(a, a) == fixes(b, b) == []
    (found,) = compare_reports(a, b).applied
    assert found.signs
    assert all(sign.text in found.sentence for sign in found.signs)


def test_a_read_that_is_gone_is_told_with_its_place(tmp_path):
    a, b = PAIRS["read_backs"](tmp_path)
    (found,) = compare_reports(a, b).applied
    assert (found.signs[0].a, found.signs[0].b) == (2.0, 0.1)
    assert "(forward, aten::item, Block_0, train.py(12): step): 2 → 0.1 a step" in found.sentence


@pytest.mark.parametrize("sample", ["hpu_g1_lazy", "hpu_g2_eager", "hpu_g3_lazy_8_ranks", "cpu_2_ranks_ddp"])
def test_the_same_run_shows_no_fix_and_is_one_program(samples, sample):
    c = compare_reports(report_of(sample), report_of(sample))
    assert (c.applied, c.check, c.unlike, c.shares, c.replaced) == ([], None, "", [], [])


def line(fix: str, gain: tuple[float, float, float], **more: Any) -> PlanRow:
    low, middle, high = (1000.0 * us for us in gain)
    return PlanRow(
        order=1,
        remedy=fix,
        title=fix,
        where="",
        before_ns=1e6,
        gain_low_ns=low,
        gain_ns=middle,
        gain_high_ns=high,
        alone_low_ns=low,
        alone_ns=middle,
        alone_high_ns=high,
        **more,
    )


def sped_up(folder: Path, step: float = 700.0) -> tuple[Report, Report]:
    """Workers load the data, and the step takes 1000 and then `step` µs."""
    return program(folder), program(folder, loader=WORKERS, step=step)


@pytest.mark.parametrize(
    ("gain", "verdict"),
    [((250, 290, 320), "inside"), ((310, 330, 350), "below"), ((100, 150, 200), "above")],
)
def test_predicted_and_achieved(tmp_path, gain, verdict):
    a, b = sped_up(tmp_path)
    check = compare_reports(edited(a, plan=[line("data_loading", gain)]), b).check
    assert (check.fixes, check.how, check.verdict, check.reason) == (["data_loading"], "alone", verdict, "")
    assert check.predicted.ns == 1000 * gain[1]
    assert check.achieved.ns == pytest.approx(300_000, abs=200)
    assert check.achieved.low_ns <= check.achieved.ns <= check.achieved.high_ns
    assert check.inside == (verdict == "inside")


def test_a_gain_outside_whose_noise_reaches_inside_says_so(tmp_path):
    a, b = sped_up(tmp_path)
    a = edited(a, plan=[line("data_loading", (300.0001, 310, 320))])
    check = compare_reports(a, b).check
    assert (check.verdict, check.within_noise) == ("below", True) or check.verdict == "inside"
    assert "within noise" in check.sentence or check.inside


def test_steps_without_the_profiler_go_before_recorded_ones(tmp_path):
    a, b = sped_up(tmp_path)
    a = edited(a, plan=[line("data_loading", (250, 290, 320))])
    timed = [
        edited(side, files=rows(unprofiled_step_ns=ns, unprofiled_spread_ns=20_000))
        for side, ns in ((a, 900_000), (b, 500_000))
    ]
    check = compare_reports(*timed).check
    assert (check.basis, check.verdict) == ("unprofiled", "above")
    assert (check.achieved.low_ns, check.achieved.ns, check.achieved.high_ns) == (380_000, 400_000, 420_000)


@pytest.mark.parametrize(
    ("reason", "other"),
    [
        ("other_device", rows(device_name="H200")),
        ("other_world_size", rows(world_size=8)),
    ],
)
def test_another_experiment_is_not_scored(tmp_path, reason, other):
    a, b = sped_up(tmp_path)
    a = edited(a, plan=[line("data_loading", (250, 290, 320))], files=rows(device_name="A100", world_size=1))
    b = edited(edited(b, files=rows(device_name="A100", world_size=1)), files=other)
    check = compare_reports(a, b).check
    assert (check.verdict, check.reason, check.inside) == ("not scored", reason, None)


def test_recorded_steps_are_no_test_of_a_fix_that_removes_launches(tmp_path):
    a, b = PAIRS["graphs"](tmp_path)
    a = edited(a, plan=[line("graphs", (1, 2, 3))])
    assert compare_reports(a, b).check.reason == "recorded_only"


def test_without_a_line_of_the_plan_nothing_is_predicted(tmp_path):
    a, b = sped_up(tmp_path)
    check = compare_reports(edited(a, plan=[]), b).check
    assert (check.how, check.predicted.ns, check.reason) == ("not_known", None, "no_estimate")
    assert check.achieved.ns == pytest.approx(300_000, abs=200)


def two_fixes(folder: Path) -> tuple[Report, Report]:
    a, b = program(folder), program(folder, loader=WORKERS, kernels=(BF16,) * 2, step=600.0)
    return edited(a, plan=[line("data_loading", (200, 300, 400)), line("lower_precision", (100, 150, 200))]), b


def test_several_fixes_are_priced_together_where_the_traces_are_at_hand(tmp_path):
    a, b = two_fixes(tmp_path)
    asked = []

    def together(names: Any) -> list[PlanRow]:
        asked.append(list(names))
        return [line("data_loading", (200, 300, 400)), line("lower_precision", (50, 90, 130))]

    check = compare_reports(a, b, together=together).check
    assert asked == [["data_loading", "lower_precision"]]
    assert (check.how, check.predicted.low_ns, check.predicted.ns) == ("together", 250_000, 390_000)
    alone = compare_reports(a, b).check
    assert (alone.how, alone.predicted.ns) == ("sum", 450_000)
    assert "the sum of each alone" in alone.sentence


def test_several_fixes_with_one_unknown_are_not_told_apart(tmp_path):
    a, b = two_fixes(tmp_path)
    check = compare_reports(edited(a, plan=a.data.plan[:1]), b).check
    assert (check.how, check.reason, check.predicted.ns) == ("not_known", "no_estimate", 300_000)
    assert check.sentence.startswith("Several changes at once: A's plan has no estimate of lower_precision")


def test_different_programs_are_said_and_show_no_fix(tmp_path):
    a = program(tmp_path)
    b = program(tmp_path, loader=WORKERS, kernels=("x", "y"), operators=("aten::convolution", "aten::gelu"))
    c = compare_reports(a, b)
    assert c.unlike.startswith("A and B are different programs: they share 0 % of operators, 0 % of kernels")
    assert (c.applied, c.check, c.replaced) == ([], None, [])
    assert c.unlike in c.leads


def test_kernels_replaced_are_matched_by_operator_and_kind(tmp_path):
    operators = ("aten::mm", "aten::relu", "aten::bmm")
    a = program(tmp_path, operators=operators, kernels=(SGEMM, POINTWISE, "volta_sgemm_32x128_nn"))
    b = program(tmp_path, operators=operators, kernels=(BF16, POINTWISE, TF32))
    found = {(r.place, r.kind, r.a, r.b) for r in compare_reports(a, b).replaced}
    assert found == {
        ("aten::mm", "matrix product", SGEMM, BF16),
        ("aten::bmm", "matrix product", "volta_sgemm_32x128_nn", TF32),
    }


def test_shares_have_no_verdict_where_times_have(tmp_path):
    c = compare_reports(*sped_up(tmp_path))
    assert c.verdict == "better"
    judged = {
        x.verdict for x in c.changes if x.group in ("metric", "step") and x.unit in ("fraction", "ratio", "count")
    }
    assert not judged & {"better", "worse"}
    assert any(x.verdict == "changed" for x in c.changes if x.unit == "fraction")


def test_synchronous_windows_are_compared_where_only_they_are_on_both_sides(tmp_path):
    a = edited(program(tmp_path), files=rows(window_kind="sync"))
    with_async = edited(
        a, files=[*a.data.files, msgspec.structs.replace(a.data.files[0], window="1", window_kind="async")]
    )
    c = compare_reports(with_async, a)
    assert c.verdict == "no difference"
    assert (c.a.steps, c.b.steps) == (c.b.steps, c.b.steps)


def _all(samples: Path, tmp_path: Path) -> list[Comparison]:
    pairs = [
        ("hpu_g1_lazy", "hpu_g1_lazy_graph_replay"),
        ("hpu_g1_lazy_graph_replay", "hpu_g1_lazy"),
        ("hpu_g2_eager", "hpu_g3_compile"),
        ("hpu_g1_lazy", "hpu_g2_eager"),
        ("cpu_1_rank", "cpu_2_ranks_ddp"),
    ]
    made = [compare_reports(report_of(a), report_of(b)) for a, b in pairs]
    made += [compare_reports(*sped_up(tmp_path)), compare_reports(*two_fixes(tmp_path))]
    return made


def test_the_parts_sum_to_the_change(samples, tmp_path):
    for c in _all(samples, tmp_path):
        step = c.change("wall_ns", group="step")
        if c.shares:
            assert sum(share.delta for share in c.shares) == pytest.approx(step.delta)
            fractions = [share.fraction for share in c.shares]
            assert None in fractions or sum(fractions) == pytest.approx(1.0)
            assert all(0.0 <= f <= 1.0 + 1e-9 for f in fractions if f is not None)


def test_every_view_says_the_leading_sentences_and_json_holds_them(samples, tmp_path):
    def plain(text: str) -> str:
        return re.sub(r"[^0-9A-Za-z]+", "", text)

    for c in _all(samples, tmp_path):
        document = json.loads(dumps(c))
        texts = [document["sentence"], document["unlike"], document["explanation"]]
        texts += [fix["sentence"] for fix in document["applied"]]
        texts += [document["check"]["sentence"]] if document["check"] else []
        unescaped = to_markdown(c).replace("&#8203;", "").replace("&lt;", "<").replace("&gt;", ">")
        views = [to_text(c), unescaped, *([page_text(c)] if c is not None else [])]
        for text in filter(None, texts):
            assert all(plain(text) in plain(view) for view in views), text


def page_text(c: Comparison) -> str:
    """What the page says, without marks."""
    import html

    page = render(c, ".html")
    body = page[page.index("<body") :]
    return html.unescape(re.sub(r"<[^>]+>", "", body))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_card_is_short_and_prints_only_fields(samples, tmp_path, width):
    for c in _all(samples, tmp_path):
        card = to_card(c, width=width)
        assert len(card.splitlines()) <= LINES * 80 // min(width, 80)
        assert max(map(len, card.splitlines())) <= width
        held = {*re.findall(r"\d[\d.,]*", " ".join(_texts(json.loads(dumps(c)))))}
        assert {*re.findall(r"\d[\d.,]*", " ".join(card.split()))} <= held
        assert c.sentence.split(" (")[0] in " ".join(card.split())


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for each in value.values() for text in _texts(each)]
    if isinstance(value, list):
        return [text for each in value for text in _texts(each)]
    return [value] if isinstance(value, str) else []


def test_a_check_is_one_line_without_names(tmp_path):
    a, b = sped_up(tmp_path)
    a = edited(a, plan=[line("data_loading", (250, 290, 320))])
    text = check_line(compare_reports(a, b, names=("/home/me/secret", "host17")))
    assert "\n" not in text
    assert "secret" not in text
    found = json.loads(text)
    assert found["fixes"] == ["data_loading"]
    assert found["predicted_ns"] == [250_000, 290_000, 320_000]
    assert (found["inside"], found["verdict"], found["basis"]) == (True, "inside", "recorded")
    assert set(found["family"]) <= {"cuda", "cpu", "hpu", "other"}
    with pytest.raises(InsufficientDataError, match="no fix was found"):
        check_line(compare_reports(a, a))


def test_a_comparison_of_the_earlier_version_stays_readable(tmp_path):
    c = compare_reports(*sped_up(tmp_path))
    document = json.loads(dumps(c))
    for name in ("applied", "check", "unlike", "shares", "replaced"):
        del document[name]
    document["comparison_version"] = 2
    (tmp_path / "old.json").write_text(json.dumps(document))
    old = hpuprof.read_comparison(tmp_path / "old.json")
    assert (old.applied, old.check, old.sentence) == ([], None, c.sentence)
    assert to_card(old).startswith("Faster")


def test_real_recordings_with_loader_workers_show_them_and_the_plan_was_right(real_traces):
    folder = real_traces / "resnet50_tb_samples"
    c = compare_reports(*(report_at(folder / f"resnet50_num_workers_{n}") for n in (0, 4)))
    assert (c.check.fixes, c.check.verdict, c.unlike) == (["data_loading"], "inside", "")
    assert len(to_card(c).splitlines()) <= LINES


def test_two_real_runs_of_one_configuration_show_no_fix(real_traces):
    folder = real_traces / "resnet50_tb_samples"
    for workers in (0, 4):
        a, b = sorted((folder / f"resnet50_num_workers_{workers}").glob("*.json.gz"))
        assert compare_reports(report_at(a), report_at(b)).applied == []


def test_more_loader_workers_show_by_the_waits_that_are_gone(tmp_path):
    base = program(tmp_path, loader=WORKERS)
    a, b = (edited(base, steps=rows(blocked_loader_ns=ns)) for ns in (200_000, 1000))
    (found,) = compare_reports(a, b).applied
    assert (found.fix, found.signs[0].a, found.signs[0].b) == ("data_loading", 200_000, 1000)
    assert fixes(b, a) == []


def test_stalls_of_the_machine_are_no_pauses_of_the_program(tmp_path):
    a, b = PAIRS["pauses"](tmp_path)
    stalls = [
        msgspec.structs.replace(row, every=None, steps=1) if row.reason == "slow" else row for row in a.data.step_groups
    ]
    assert fixes(edited(a, step_groups=stalls), b) == []


def test_one_operator_on_a_list_is_no_fused_optimizer_where_graphs_are_replayed(tmp_path):
    before, after = ("aten::mm", "aten::relu", "aten::add_", "aten::mul_"), ("aten::mm", "aten::relu")
    a = program(tmp_path, operators=before)
    b = edited(program(tmp_path, operators=(*after, "aten::_foreach_add_")), files=rows(mode="graphs"))
    assert fixes(a, b) == ["graphs"]
    several = program(tmp_path, operators=(*before, "aten::_foreach_add_", "aten::_foreach_sqrt"))
    assert fixes(a, several) == ["fused_optimizer"]


@pytest.mark.parametrize(("gain", "reason"), [((100, 200, 300), "noise"), ((400, 450, 500), "")])
def test_noise_as_large_as_the_prediction_tells_nothing(tmp_path, gain, reason):
    a, b = sped_up(tmp_path)
    a = edited(a, plan=[line("data_loading", gain)])
    a, b = (
        edited(side, files=rows(unprofiled_step_ns=ns, unprofiled_spread_ns=200_000 + 500_000 * (reason == "noise")))
        for side, ns in ((a, 1_000_000), (b, 900_000))
    )
    assert compare_reports(a, b).check.reason == reason


def test_a_kernel_that_another_replaced_is_told_as_their_part(tmp_path):
    """200 µs of sgemm went, 100 µs of another came: the part is 100 µs shorter, not 200."""
    a = program(tmp_path, kernels=(SGEMM,) * 2)
    b = program(tmp_path, kernels=(BF16,), step=900.0)
    (part,) = [share for share in compare_reports(a, b).shares if share.text.startswith("device busy")]
    assert (part.text, part.delta) == ("device busy, compute", pytest.approx(-100_000, abs=1))


def test_the_plan_of_traces_is_priced_with_the_fixes_that_are_asked_for(samples):
    from hpuprof.api import _plan_with

    rows_of_plan = _plan_with(samples / "hpu_g2_eager", None, 1, ["data_loading"])
    assert [row.remedy for row in rows_of_plan if row.order is not None] == ["data_loading"]


def test_a_gain_that_rounds_to_nothing_has_no_sign():
    assert about(-45_490.0, -4e6, 4e6) == "0 ms (−4 to 4)"


def test_the_tables_hold_each_sign_with_both_numbers(tmp_path):
    a, b = PAIRS["fused_optimizer"](tmp_path)
    c = compare_reports(a, b)
    (section,) = [section for section in compare_sections(c) if section.name == "fixes"]
    assert section.rows[0] == ("fused_optimizer", "fused optimizer operators", "0", "1")
    assert "fused optimizer operators" in page_text(c)
    assert not [s for s in compare_sections(compare_reports(a, a)) if s.name == "fixes"]


NOTHING = {"reason": "no_place", "why": "the steps hold no place where it saves 0.2 %"}


def test_a_fix_without_a_place_is_predicted_to_save_nothing(tmp_path):
    a, b = two_fixes(tmp_path)
    place = PlanRow(order=None, remedy="lower_precision", title="", where="", **NOTHING)
    check = compare_reports(edited(a, plan=[line("data_loading", (200, 410, 420)), place]), b).check
    assert (check.how, check.verdict, check.reason) == ("alone", "inside", "")
    assert (check.predicted.low_ns, check.predicted.ns, check.predicted.high_ns) == (198_000, 410_000, 422_000)
    assert "a step, nothing of it by lower_precision; achieved" in check.sentence
    only = compare_reports(edited(a, plan=[place]), program(tmp_path, kernels=(BF16,) * 2, step=900.0)).check
    assert only.sentence.startswith("Predicted to save nothing by lower_precision; achieved")
    assert only.verdict == "above"


@pytest.mark.parametrize("fetching", [{"input_ns": (300_000, 1000)}, {"input_ns": (1000, 300_000)}])
def test_a_check_is_not_scored_where_loading_or_products_differ_too(tmp_path, fetching):
    a, b = PAIRS["fused_optimizer"](tmp_path)
    a = edited(a, plan=[line("fused_optimizer", (100, 200, 300))])
    before, after = (edited(side, steps=rows(input_ns=fetching["input_ns"][i])) for i, side in enumerate((a, b)))
    assert compare_reports(before, after).check.reason == "other_program"
    fused = ("aten::mm", "aten::relu", "aten::_fused_adam_")
    more = program(tmp_path, operators=fused, kernels=(SGEMM,) * 4, step=900.0)
    assert compare_reports(a, program(tmp_path, operators=fused, step=900.0)).check.reason == ""
    assert compare_reports(a, more).check.reason == "other_program"


def test_two_steps_are_no_test_of_a_prediction(tmp_path):
    a, b = program(tmp_path, steps=2), program(tmp_path, loader=WORKERS, step=700.0, steps=2)
    check = compare_reports(edited(a, plan=[line("data_loading", (250, 290, 320))]), b).check
    assert (check.verdict, check.reason) == ("not scored", "few_steps")


def test_shares_that_are_printed_sum_to_100_per_cent():
    assert _rounded([0.8467, 0.0402, 0.1131]) == pytest.approx([0.847, 0.040, 0.113])
    printed = re.findall(r"([\d.]+) %", explanation_of(_rounded([1 / 3, 1 / 3, 1 / 3])))
    assert sum(map(float, printed)) == pytest.approx(100.0)


def explanation_of(fractions: list[float]) -> str:
    return "; ".join(percent(fraction, sign=False) for fraction in fractions)
