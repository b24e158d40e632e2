"""A part that takes less time: what the step gains, by hand and against the drag of the same part."""

from __future__ import annotations

import pytest
from builder import TraceBuilder
from click.testing import CliRunner
from sample_reports import SAMPLES

import hpuprof
from hpuprof.cli.main import cli
from hpuprof.errors import ConfigError
from hpuprof.planning.remedies.faster import matching, wished


def loop(*, wall: float = 250.0, load: float = 0.0) -> TraceBuilder:
    """Eight steps of `wall` µs: loading, then eight operators of 20 µs that launch 30 µs of device work each."""
    out, free = TraceBuilder(), 0.0
    for step in range(8):
        out.step(step, step * wall, wall)
        if load:
            out.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", step * wall + 1, load)
        for at in range(8):
            begin = step * wall + load + 2 + at * 20
            out.host("aten::mm", begin, 20)
            start = max(begin + 14, free + 1)
            out.kernel("gemm", start, 30, launch=begin + 10, call_dur=4)
            free = start + 30
    return out


def plan_with(path, *texts):
    report = hpuprof.analyze(path, jobs=1, cache="off", apply=texts)
    return report.data, {row.remedy: row for row in report.data.plan}


def test_a_wish_is_a_name_and_a_share():
    assert wished("aten::mm=30%") == ("aten::mm=30%", "aten::mm", 0.3)
    assert wished("void f<a=1, 2>(x) = 12.5 %").name == "void f<a=1, 2>(x)"
    for text in ("aten::mm", "aten::mm=30", "=30%", "aten::mm=0%", "aten::mm=101%", "aten::mm=-5%"):
        assert wished(text) is None, text


def test_kernels_of_a_device_that_sets_the_pace(tmp_path):
    path = loop(wall=170).write(tmp_path / "t.json")  # 240 µs a step on the device, which falls behind
    data, rows = plan_with(path, "gemm=50%")
    row = rows["gemm=50%"]
    (part,) = [p for p in data.critical_path if p.what == "gemm"]
    assert (row.order, row.where) == (1, "kernel")
    # A half, unless the host's 170 µs, profiling left out, set the pace before.
    assert 1 - 170 / 240 <= row.gain_ns / row.before_ns <= 0.5
    assert row.alone_high_ns <= row.ceiling_ns
    assert part.kind == "kernel"


@pytest.mark.parametrize("sample", ["hpu_g1_lazy", "hpu_g3_compile", "cpu_1_rank"])
def test_all_of_its_time_is_its_drag(sample):
    data, _ = plan_with(SAMPLES / sample)
    parts = [p for p in data.critical_path if p.kind != "latency" and p.drag_ns][:2]
    assert parts
    for part in parts:
        _, rows = plan_with(SAMPLES / sample, f"{part.what}=50%", f"{part.what}=100%")
        half, whole = rows[f"{part.what}=50%"], rows[f"{part.what}=100%"]
        assert 0 <= half.alone_ns <= whole.alone_ns
        assert whole.alone_ns == pytest.approx(part.drag_ns, rel=0.3, abs=0.02 * whole.before_ns)


def test_names_that_nothing_has(tmp_path):
    path = loop().write(tmp_path / "t.json")
    _, rows = plan_with(path, "aten::mmm=30%", "read_backs")
    assert rows["aten::mmm=30%"].reason == "not_found"
    assert "aten::mm" in rows["aten::mmm=30%"].advice
    with pytest.raises(ConfigError, match="no fix 'aten::mm=300%'"):
        plan_with(path, "aten::mm=300%")


def test_a_part_of_a_name_stands_for_all_that_hold_it_unless_one_has_it_whole(tmp_path):
    path = loop(wall=170).write(tmp_path / "t.json")
    whole, part = plan_with(path, "gemm=50%")[1]["gemm=50%"], plan_with(path, "GEM=50%")[1]["GEM=50%"]
    assert part.alone_ns == whole.alone_ns
    assert (whole.where, part.where) == ("kernel", "kernel")
    both = plan_with(path, "MM=50%")[1]["MM=50%"]
    assert set(both.where.split(" (")[0].split(", ")) == {"aten::mm", "gemm"}
    assert both.alone_ns > whole.alone_ns
    assert matching("mm", ["aten::mm", "aten::addmm", "mm"]) == ["mm"]
    assert matching("MM", ["aten::mm", "aten::addmm", "gelu"]) == ["aten::mm", "aten::addmm"]


def test_modules_are_parts_too_and_of_many_names_two_are_said(tmp_path):
    out = TraceBuilder()
    for begin in (250.0 * step for step in range(8)):
        out.step(int(begin // 250), begin, 250)
        for i, name in enumerate(("Head", "Headroom", "Header")):
            at = begin + 2 + 80 * i
            out.host(f"nn.Module: {name}_0", at, 70, cat="python_function")
            out.host(f"aten::head{i}", at + 2, 60).kernel("gemm", at + 50, 10, launch=at + 20, call_dur=4)
    path = out.write(tmp_path / "t.json")
    _, rows = plan_with(path, "Headroom_0=50%", "headroom=50%", "aten::head=100%", "Head=10%")
    whole, part = rows["Headroom_0=50%"], rows["headroom=50%"]
    assert whole.where == "module"
    assert 0 < whole.alone_ns == part.alone_ns
    assert rows["aten::head=100%"].where == "aten::head0, aten::head1 and 1 more (operator)"
    assert rows["Head=10%"].where.endswith("(module, operator)")


def test_what_was_asked_for_and_is_no_line_is_said_with_its_reason(tmp_path):
    path = loop(load=2000, wall=2300).write(tmp_path / "t.json")
    args = ["plan", str(path), "--quiet", "--apply", "fills", "--apply", "data_loading, tf32", "--faster", "no=5%"]
    shown = CliRunner().invoke(cli, args).output
    assert "1. Load data in workers" in shown
    assert "Not applied\n   tf32, fills: the steps hold no place where it saves 0.2 %.\n" in shown
    report = hpuprof.analyze(path, jobs=1, cache="off", apply=["fills", "data_loading"])
    assert {row.remedy for row in report.data.plan if row.asked} == {"fills", "data_loading"}
    assert [one.fixes for one in report.answer.not_applied] == [["fills"]]
    assert hpuprof.analyze(path, jobs=1, cache="off").answer.not_applied == []


def test_of_fixes_of_the_same_calls_that_are_asked_for_one_is_applied():
    answer = hpuprof.analyze(SAMPLES / "cuda_resnet18", jobs=1, cache="off", apply=["lower_precision", "tf32"]).answer
    (line,) = answer.lines
    (left,) = answer.not_applied
    assert {line.name, *left.fixes} == {"lower_precision", "tf32"}
    assert left.why == "a line above changes the same calls"


def test_the_command_prices_several(tmp_path):
    path = loop(load=2000, wall=2300).write(tmp_path / "t.json")
    shown = (
        CliRunner()
        .invoke(
            cli, ["plan", str(path), "--quiet", "--apply", "data_loading", "--faster", "gemm=10%", "--faster", "no=5%"]
        )
        .output
    )
    assert "1. Load data in workers" in shown
    assert "2. Spend 10 % less time in gemm: kernel" in shown
    assert "Nothing in the steps is called no." in shown
