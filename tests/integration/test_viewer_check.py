"""`hpuprof check` against the viewers: what it says fails must fail, what it says is lost must be lost, and nothing else."""

from __future__ import annotations

import json
import logging
import shutil
import warnings
from pathlib import Path
from typing import Any

import needs
import pytest
from viewers.harness import catapult_all, perfetto, require_catapult, require_perfetto

import hpuprof
from hpuprof.cli.main import main
from hpuprof.viewers.viewer_check import CHROME, PERFETTO, TENSORBOARD


def x(name: Any, ts: float, dur: float, tid: Any = 1, pid: Any = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, **more}


def flow(phase: str, ts: float, tid: int = 1, number: Any = 1, **more: Any) -> dict[str, Any]:
    bound = {"bp": "e"} if phase == "f" else {}
    return {"ph": phase, "cat": "f", "name": "f", "id": number, "pid": 1, "tid": tid, "ts": ts, **bound, **more}


def trace(*events: dict[str, Any]) -> bytes:
    return json.dumps({"traceEvents": [x("a", 1, 5), x("b", 10, 5, tid=2), *events]}).encode()


def without(row: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k != key}


PLAIN = trace()
# name -> text, slices meant, arrows meant, counter samples meant, verdict of Perfetto, of chrome://tracing
CASES: dict[str, tuple[bytes, int, int, int, str, str]] = {
    "plain": (PLAIN, 2, 0, 0, "ok", "ok"),
    "arrows": (trace(flow("s", 2), flow("f", 11, 2)), 2, 1, 0, "ok", "ok"),
    "half overlap": (trace(x("c", 3, 6)), 3, 0, 0, "loses", "loses"),
    "one start, two ends": (trace(flow("s", 2), flow("f", 11, 2), flow("f", 12, 2)), 2, 2, 0, "ok", "loses"),
    "arrow without bp": (trace(flow("s", 2), without(flow("f", 11, 2), "bp")), 2, 1, 0, "loses", "loses"),
    "text arrow id": (trace(flow("s", 2, number="one"), flow("f", 11, 2, "one")), 2, 1, 0, "loses", "ok"),
    "ends in a backslash": (trace(x("C:\\", 20, 1)), 3, 0, 0, "fails", "ok"),
    "argument ends in a backslash": (trace(x("c", 20, 1, args={"p": "C:\\"})), 3, 0, 0, "fails", "ok"),
    "backslash inside": (trace(x("C:\\x", 20, 1, args={"q": '\\"'})), 3, 0, 0, "ok", "ok"),
    "NaN argument": (trace(x("c", 20, 1, args={"v": float("nan")})), 3, 0, 0, "ok", "fails"),
    "NaN stamp": (trace(x("c", float("nan"), 1)), 3, 0, 0, "fails", "fails"),
    "NaN counter": (trace({"ph": "C", "name": "c", "pid": 1, "ts": 1, "args": {"v": float("nan")}}), 2, 0, 1, "fails", "fails"),
    "control character": (PLAIN.replace(b'"a"', b'"a\x01"'), 2, 0, 0, "ok", "fails"),
    "name is null": (trace(x(None, 20, 1)), 3, 0, 0, "ok", "fails"),
    "category is a number": (trace(x("c", 20, 1, cat=4)), 3, 0, 0, "ok", "fails"),
    "unknown color": (trace(x("c", 20, 1, cname="hotpink")), 3, 0, 0, "ok", "fails"),
    "known color": (trace(x("c", 20, 1, cname="good")), 3, 0, 0, "ok", "ok"),
    "metadata without arguments": (trace({"ph": "M", "name": "process_name", "pid": 1}), 2, 0, 0, "ok", "fails"),
    "no duration": (trace(without(x("c", 20, 1), "dur")), 3, 0, 0, "loses", "ok"),
    "counter": (trace({"ph": "C", "name": "c", "pid": 1, "ts": 1, "args": {"v": 1, "w": "2"}}), 2, 0, 2, "ok", "ok"),
    "counter of text": (trace({"ph": "C", "name": "c", "pid": 1, "ts": 1, "args": {"v": "x"}}), 2, 0, 1, "loses", "ok"),
    "bare list": (json.dumps([x("a", 1, 5)]).encode(), 1, 0, 0, "ok", "ok"),
    "open list": (json.dumps([x("a", 1, 5), x("b", 7, 5)]).encode()[:-1], 2, 0, 0, "ok", "ok"),
    "cut in a row": (PLAIN[:-20], 2, 0, 0, "fails", "fails"),
    "object not closed": (PLAIN[:-2], 2, 0, 0, "fails", "fails"),
    "rows alone": (b",\n".join(json.dumps(x("a", 9 * i, 5)).encode() for i in range(3)), 3, 0, 0, "fails", "fails"),
    "trailing comma": (PLAIN[:-2] + b",]}", 2, 0, 0, "ok", "fails"),
}  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    out = {}
    for name, case in CASES.items():
        out[name] = tmp_path / f"{name.replace(' ', '_').replace(',', '')}.pt.trace.json"
        out[name].write_bytes(case[0])
    return out


@pytest.mark.parametrize("name", CASES)
def test_verdicts(files: dict[str, Path], name: str):
    verdicts = hpuprof.check(files[name]).verdicts
    assert (verdicts[PERFETTO], verdicts[CHROME]) == CASES[name][4:]


def test_the_verdicts_are_perfettos(files: dict[str, Path]):
    require_perfetto()
    seen = {}
    for name, path in files.items():
        _, slices, arrows, samples, _, _ = CASES[name]
        try:
            # A NaN in a counter makes it hang.
            found = perfetto(path, *(f"select count(*) from {t}" for t in ("slice", "flow", "counter")), cpu_s=2)
            whole = [rows[0][0] for rows in found] == [slices, arrows, samples]
            seen[name] = "ok" if whole else "loses" if found[0][0][0] else "fails"
        except RuntimeError:
            seen[name] = "fails"
    assert seen == {name: case[4] for name, case in CASES.items()}


SMALL = (
    "dlrm_8_ranks/worker0*",  # whole µs of epoch size: nothing is lost
    "hta/ns_resolution_trace/*",  # decimals of epoch size: 774 rows in Perfetto, 131 in chrome://tracing
    "hta/trace_diff/control/*",  # thread numbers that Perfetto cannot hold: 26 rows fall onto the main thread's
    "hta/critical_path/alexnet/*",
    "hta/mtia_inference_trace/*",
    "hta/amd_trace/*",
    "hpu/g1_*",
)


def half_overlaps(path: Path) -> tuple[int, int]:
    """How many rows Perfetto loses and how many chrome://tracing does, as `check` says."""
    found = [p for p in hpuprof.check(path).problems if "partly overlap" in p.text]
    lost, crossed = (sum(p.count for p in found if p.viewer == viewer) for viewer in (PERFETTO, CHROME))
    return lost, crossed


def viewers_counts(paths: list[Path]) -> list[tuple[int, int]]:
    query = "select ifnull(sum(value), 0) from stats where name = 'slice_drop_overlapping_complete_event'"
    return [(perfetto(p, query)[0][0][0], c["crossed"]) for p, c in zip(paths, catapult_all(paths), strict=True)]


def test_rows_that_cross_are_as_many_as_in_the_viewers(samples: Path):
    require_perfetto()
    require_catapult()
    paths = [next((samples / s).glob("*.json*")) for s in ("lightning_1_rank", "hpu_g1_lazy", "hpu_g2_eager")]
    assert [half_overlaps(p) for p in paths] == viewers_counts(paths)


def test_rows_that_cross_are_as_many_as_in_the_viewers_on_real_traces(real_traces: Path):
    require_perfetto()
    require_catapult()
    paths = [next(real_traces.glob(pattern)) for pattern in SMALL]
    said = [half_overlaps(p) for p in paths]
    assert said == viewers_counts(paths)
    assert said[:3] == [(0, 0), (774, 131), (26, 0)]


def test_merging_mends_stamps_too_large_for_doubles(real_traces: Path, tmp_path: Path):
    (path,) = (real_traces / "hta" / "ns_resolution_trace").iterdir()
    hpuprof.merge(path, tmp_path / "m.json")
    assert hpuprof.check(tmp_path / "m.json").verdicts[PERFETTO] == "ok"


def test_the_verdicts_are_chromes(files: dict[str, Path]):
    require_catapult()
    seen = {}
    for name, result in zip(files, catapult_all(list(files.values())), strict=True):
        if "error" in result or not result["slices"]:
            seen[name] = "fails"
            continue
        whole = (result["slices"], result["flows"]) == CASES[name][1:3] and not result["crossed"]
        seen[name] = "ok" if whole else "loses"
    assert seen == {name: case[5] for name, case in CASES.items()}


def tensorboard(path: Path, **header: Any) -> Any:
    return hpuprof.check(path).verdicts[TENSORBOARD]


@pytest.mark.parametrize(
    ("row", "header", "verdict"),
    [
        (x("c", 20, 1), {}, "ok"),
        (without(x("c", 20, 1), "name"), {}, "fails"),
        (without(x("c", 20, 1), "cat"), {}, "fails"),
        (x("c", 20, 1, tid="main"), {}, "fails"),
        (x("ProfilerStep#one", 20, 1, cat="user_annotation"), {}, "fails"),
        (x("ProfilerStep#1", 20, 1, cat="gpu_user_annotation"), {}, "loses"),
        (x("k", 20, 1, cat="kernel", args={"device": 0}), {}, "loses"),
        (x("k", 20, 1, cat="kernel"), {}, "loses"),
        (x("k", 20, 1, cat="kernel", args={"device": "0"}), {}, "fails"),
        (x("c", "20", 1), {}, "fails"),
        (x("c", 20, 1, args=None), {}, "fails"),
        (x("odd", 20, 1, cat="odd", tid="main", args=None), {}, "ok"),
        (x("k", 20, 1, cat="kernel", args={"device": 64}), {}, "fails"),
        (x("k", 20, 1, cat="kernel", args={"device": 0}), {"traceName": "[Strategy]x"}, "loses"),
        (x("k", 20, 1, cat="hpu_op"), {}, "loses"),
        (x("c", 20, 1), {"Framework": "pytorch-lightning"}, "loses"),
        ({"ph": "i", "name": "[memory]", "pid": 1, "tid": 1, "ts": 2, "args": {"Device Type": 20}}, {}, "loses"),
    ],
)
def test_tensorboard(tmp_path: Path, row: dict[str, Any], header: dict[str, Any], verdict: str):
    path = tmp_path / "node_0.1.pt.trace.json"
    path.write_text(json.dumps({"traceEvents": [x("a", 1, 5), row], **header}))
    assert tensorboard(path) == verdict
    path = path.rename(tmp_path / "trace.json")
    assert tensorboard(path) == "fails"


def stock(path: Path, cache: Path) -> dict[str, Any] | None:
    """What the stock tab's own loader makes of a file; None when it fails."""
    parser = needs.module("tab", "torch_tb_profiler.profiler.data", "needs torch-tb-profiler")
    from torch_tb_profiler.profiler.run_generator import RunGenerator

    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it uses what pandas will drop
            data = parser.RunProfileData.parse("worker", "1", str(path), str(cache))
            profile = RunGenerator("worker", "1", data).generate_run_profile()
    except Exception:  # noqa: BLE001  (a file that it cannot load ends it anyhow)
        return None
    finally:
        logging.disable(logging.NOTSET)
    kernels = 0 if data.kernel_stat is None else int(data.kernel_stat["sum"].sum())
    operators = sum(o.self_device_duration for o in data.op_list_groupby_name)
    return {"kernels": kernels, "operators": operators, "summary": bool(profile.gpu_summary)}


def test_tensorboard_is_told_as_its_own_loader_does_it(samples: Path, tmp_path: Path):
    paths = sorted(
        p for s in ("hpu_g1_lazy", "hpu_g2_eager", "hpu_g3_compile", "cpu_1_rank") for p in (samples / s).iterdir()
    )
    assert [agrees(p, tmp_path) for p in paths] == [True] * 4


def test_tensorboard_is_told_as_its_own_loader_does_it_on_real_traces(real_traces: Path, tmp_path: Path):
    names = [
        "dlrm_8_ranks/worker0*",
        "hta/amd_trace/*",
        "hta/mtia_inf*/*",
        "hpu/g*.json",
        "resnet50*/resnet50_num*_0/*861*",
    ]
    paths = [p for name in names for p in sorted(real_traces.glob(name))]
    assert {p.name: agrees(p, tmp_path) for p in paths} == {p.name: True for p in paths}


def agrees(path: Path, cache: Path) -> bool:
    problems = [p for p in hpuprof.check(path).problems if p.viewer == TENSORBOARD]
    said = [p.text for p in problems if "does not find it" not in p.text]
    found = stock(path, cache)
    if found is None:
        return any(p.severity == "fails" and "does not find it" not in p.text for p in problems)
    return (
        not any(p.severity == "fails" and "does not find it" not in p.text for p in problems)
        and any("no GPU summary" in t for t in said) == (found["kernels"] > 0 and not found["summary"])
        and any("no device time" in t for t in said) == (found["kernels"] > 0 and not found["operators"])
    )


def test_lanes_of_one_kernel_are_told_as_the_sum_that_the_tab_makes_of_them(samples: Path, tmp_path: Path):
    (path,) = (samples / "hpu_g3_compile").iterdir()
    (said,) = [p for p in hpuprof.check(path).problems if "the Kernel view sums them" in p.text]
    hpuprof.convert(path, tmp_path / "tab")
    (converted,) = (tmp_path / "tab").rglob("*.json.gz")
    before, after = stock(path, tmp_path), stock(converted, tmp_path)
    assert before is not None
    assert after is not None
    assert f"to {before['kernels'] / after['kernels']:.0f}." in said.text
    assert after["operators"] > 0 == before["operators"]


def test_a_folder_is_checked_and_one_broken_file_costs_only_itself(samples: Path, tmp_path: Path):
    for path in (samples / "cpu_2_ranks_ddp").iterdir():
        shutil.copy(path, tmp_path)
    (tmp_path / "a_broken.pt.trace.json").write_text("hello")
    (tmp_path / "notes.json").write_text("{}")
    hpuprof.merge(samples / "cpu_1_rank", tmp_path / "merged.json")
    checked = hpuprof.check_all(tmp_path)
    assert [(Path(c.path).name[:8], c.verdicts[CHROME]) for c in checked] == [
        ("a_broken", "fails"), ("host0_81", "ok"), ("host0_81", "ok"), ("merged.j", "ok"),
    ]  # fmt: skip
    assert [bool(c.error) for c in checked] == [True, False, False, False]
    assert [c.path for c in hpuprof.check_all([tmp_path / "merged.json", tmp_path])][1:] == [
        c.path for c in checked[:3]
    ]


def test_merging_mends_what_check_finds(files: dict[str, Path], tmp_path: Path):
    for name, path in files.items():
        out = tmp_path / "merged.json"
        hpuprof.merge(path, out)
        verdicts = hpuprof.check(out).verdicts
        assert (verdicts[PERFETTO], verdicts[CHROME]) == ("ok", "ok"), name


def test_merged_real_and_sample_traces_pass(samples: Path, tmp_path: Path):
    for folder in sorted(p for p in samples.iterdir() if p.is_dir() and p.name != "generator"):
        hpuprof.merge(folder, tmp_path / "m.json")
        checked = hpuprof.check(tmp_path / "m.json")
        assert [p for p in checked.problems if p.viewer != TENSORBOARD] == [], folder.name


def test_the_command(files: dict[str, Path], capsys: pytest.CaptureFixture[str], tmp_path: Path):
    assert main(["check", str(files["half overlap"])]) == 0
    text = capsys.readouterr().out
    assert "Perfetto         loads, but shows some of it incorrectly" in text
    assert f"hpuprof merge {files['half overlap']} -o " in text
    assert main(["check", "--json", str(files["plain"]), str(files["cut in a row"])]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [f["verdicts"][PERFETTO] for f in document["files"]] == ["ok", "fails"]
    (tmp_path / "junk.json").write_text("hello")
    assert main(["check", str(tmp_path / "junk.json")]) == 3
    assert main(["check", str(tmp_path / "absent.json")]) == 3
    capsys.readouterr()
    assert main(["check", str(tmp_path / "junk.json"), str(files["plain"])]) == 0
    assert "junk.json  cannot be read: " in capsys.readouterr().out
    assert main(["check", str(tmp_path / "*open*.json")]) == 0
    assert main(["check"]) == 2
