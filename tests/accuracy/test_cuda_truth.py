"""The CUDA measurement as far as a CPU allows: the plan, the models, the command, its crash safety. It needs torch; graphs need a GPU."""

from __future__ import annotations

import gzip
import json
import sys
from collections import Counter
from pathlib import Path

import msgspec
import needs
import pytest

needs.module("torch", "torch")

import torch

import hpuprof
from benchmarks.graph_mode import cuda_truth
from benchmarks.graph_mode.case import Case
from benchmarks.graph_mode.cuda import measure, modes
from benchmarks.graph_mode.cuda.workloads import BY_NAME, WORKLOADS
from hpuprof.model.prediction import MachineProfile

MODELS = [(w.name, w.batches) for w in WORKLOADS]


# --------------------------------------------------------------------------------------------------------------- the plan


def test_the_plan_holds_every_configuration_once():
    order = cuda_truth.plan(MODELS)
    assert len(order) == len(set(order)) == 13 * 4 * 3 * 2


@pytest.mark.parametrize("length", [26, 52, 104])
def test_a_plan_cut_short_lacks_a_little_of_everything(length):
    order = cuda_truth.plan(MODELS)[:length]
    for column in range(4):
        counts = Counter(c[column] for c in order if column != 1) or Counter(
            BY_NAME[c[0]].batches.index(c[1]) for c in order
        )
        assert max(counts.values()) <= 2 * min(counts.values()), (column, counts)
    assert len({c[0] for c in order}) == 13


def test_after_four_turns_each_model_has_met_every_batch_and_sync_and_both_optimizers():
    order = cuda_truth.plan(MODELS)[: 4 * 13]
    for name, batches in MODELS:
        mine = [c for c in order if c[0] == name]
        assert {c[1] for c in mine} == set(batches)
        assert {c[2] for c in mine} == set(cuda_truth.SYNCS)
        assert {c[3] for c in mine} == set(cuda_truth.OPTIMIZERS)


# -------------------------------------------------------------------------------------------------------------- the models


@pytest.mark.parametrize("workload", [w for w in WORKLOADS if w.parameters], ids=lambda w: w.name)
def test_models_have_as_many_parameters_as_published(workload):
    with torch.device("meta"):
        model = workload.build(1, False)
    assert round(sum(p.numel() for p in model.parameters()) / 1000) == workload.parameters


# ----------------------------------------------------------------------------------------------------------------- measuring


pytestmark = pytest.mark.usefixtures("one_thread")


def setting(name: str = "mlp-mnist", **changes) -> modes.Setting:
    fields = {"batch": 2, "sync": "each-step", "optimizer": "adamw-fused", "device": "cpu", "tiny": True, **changes}
    return modes.Setting(BY_NAME[name], **fields)


def test_a_case_on_the_cpu_has_eager_times_a_readable_trace_and_a_reason_for_each_graph_mode(tmp_path):
    case = measure.measure(setting(), tmp_path, steps=12, rounds=3)
    written = tmp_path / "cpu-mlp-mnist-b2-each-step-adamw-fused.json"
    assert msgspec.json.decode(written.read_bytes(), type=Case) == case
    assert list(case.step_time) == ["eager"]
    assert len(case.step_time["eager"].rounds) == 3
    graphs = ["step", "forward+backward", "optimizer", "module:Mlp_0", "compile:reduce-overhead"]
    assert case.hidden["skipped"] == dict.fromkeys(graphs, "needs a CUDA device")
    report = hpuprof.analyze(tmp_path / case.trace, jobs=1)
    read = report.files.iloc[0]
    assert read["steps_total"] == measure.PROFILED_STEPS
    assert read["unprofiled_step_ns"] == case.unprofiled.step_ns


def test_a_decoding_step_has_no_backward_modes():
    for mode in ("forward+backward", "optimizer", "module:LlamaDecode_0"):
        with pytest.raises(modes.UnsupportedError, match="no backward pass"):
            modes.runner(setting("llama-decode", device="cuda"), mode)


def test_the_sync_pattern_reads_back_in_the_steps_that_it_names(monkeypatch):
    reads: list[int] = []
    for sync, expected in (("none", []), ("each-step", [0, 1, 2, 3]), ("every-10", [])):
        step = modes.runner(setting(sync=sync), "eager")
        monkeypatch.setattr(torch.Tensor, "item", lambda self: reads.append(1) or 0.0)
        for i in range(4):
            step(i)
        monkeypatch.undo()
        assert len(reads) == len(expected), sync
        reads.clear()


def test_a_failed_capture_ends_the_building_of_modes_and_taints_the_case(tmp_path, monkeypatch):
    real = modes.runner
    asked: list[str] = []

    def runner(chosen, mode):
        asked.append(mode)
        if mode == "step":
            return real(chosen, "eager")
        if mode == "forward+backward":
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nmore")
        return real(chosen, mode)

    monkeypatch.setattr(measure, "runner", runner)
    case = measure.measure(setting("lstm"), tmp_path, steps=10, rounds=1)
    assert asked == ["eager", "step", "forward+backward"]
    assert list(case.step_time) == ["eager", "step"]
    assert case.hidden["tainted"] == "forward+backward"
    assert (
        case.hidden["skipped"]["forward+backward"]
        == "RuntimeError: CUDA error: operation not permitted when stream is capturing"
    )
    assert case.hidden["skipped"]["optimizer"] == "not tried after forward+backward had failed"


def test_a_lost_context_is_told_from_other_failures():
    assert measure.lost(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert not measure.lost(RuntimeError("CUDA out of memory"))


def test_compacting_keeps_what_an_analysis_reads():
    kernel = {
        "cat": "kernel",
        "name": "k" * 500,
        "args": {"stream": 7, "correlation": 9, "queued": 0, "grid": [1, 1, 1], "context": 1},
    }
    op = {"cat": "cpu_op", "name": "aten::add", "args": {"Input Dims": [[2]], "Ev Idx": 4, "External id": 3}}
    document = {"traceEvents": [kernel, op]}
    measure.compact(document)
    assert kernel["args"] == {"stream": 7, "correlation": 9, "grid": [1, 1, 1]}
    assert len(kernel["name"]) == 120
    assert op["args"] == {"Input Dims": [[2]], "External id": 3}


# --------------------------------------------------------------------------------------------------------------- the command


def command(out: Path, *more: str) -> int:
    return cuda_truth.main(
        ["-o", str(out), "--device", "cpu", "--tiny", "--steps", "10", "--rounds", "1", "--minutes", "3", *more]
    )


def test_the_command_writes_cases_an_index_and_the_machine_s_constants(tmp_path, capsys):
    assert command(tmp_path, "--models", "mlp-mnist,dlrm", "--max-configs", "2", "--no-stacks") == 0
    index = json.loads((tmp_path / "index.json").read_text())
    assert len(index["cases"]) == 2
    assert (index["failed"], index["not_run"], index["workers"]) == ([], [], 1)
    machine = msgspec.json.decode((tmp_path / "machine.json").read_bytes(), type=MachineProfile)
    assert (machine.device, "profiler_op" in {c.name for c in machine.constants}) == ("cpu", True)
    for name in index["cases"]:
        case = json.loads((tmp_path / "cases" / f"{name}.json").read_text())
        assert json.loads(gzip.decompress((tmp_path / "cases" / case["trace"]).read_bytes()))["hpuprof"]["unprofiled"]
    assert "2 cases" in capsys.readouterr().out


def test_a_relative_folder_is_the_callers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stub = Stub(monkeypatch, [([{"event": "done", "name": "a"}], 0)])
    assert command(Path("here")) == 0
    assert stub.option(0, "-o") == str(tmp_path / "here")
    assert (tmp_path / "here" / "index.json").is_file()


def test_no_time_left_means_nothing_is_run(tmp_path):
    assert command(tmp_path, "--models", "mlp-mnist", "--minutes", "0") == 1
    assert json.loads((tmp_path / "index.json").read_text())["workers"] == 0


class Stub:
    """A worker that prints events and ends with a code, in place of one that measures."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, runs: list[tuple[list[dict], int]]) -> None:
        self.commands: list[list[str]] = []
        real = cuda_truth.subprocess.Popen

        def popen(asked, **keep):
            events, code = runs[len(self.commands)]
            self.commands.append(asked)
            text = "\n".join(json.dumps(e) for e in events)
            return real([sys.executable, "-c", f"import sys; print({text!r}); sys.exit({code})"], **keep)

        monkeypatch.setattr(cuda_truth.subprocess, "Popen", popen)

    def option(self, run: int, name: str) -> str:
        asked = self.commands[run][::-1]
        return asked[asked.index(name) - 1]  # of several, the last one counts


def test_a_worker_that_dies_is_followed_by_one_that_starts_behind_it(tmp_path, monkeypatch):
    first = [
        {"event": "start", "position": 0, "name": "a"},
        {"event": "done", "name": "a"},
        {"event": "start", "position": 1, "name": "b"},
    ]
    stub = Stub(
        monkeypatch,
        [(first, 139), ([{"event": "start", "position": 2, "name": "c"}, {"event": "done", "name": "c"}], 0)],
    )
    assert command(tmp_path) == 0
    assert [stub.option(0, "--worker"), stub.option(1, "--worker")] == ["-1", "2"]
    index = json.loads((tmp_path / "index.json").read_text())
    assert index["cases"] == ["a", "c"]
    assert index["failed"] == [{"name": "b", "reason": "the worker ended with code 139"}]


def test_a_mode_that_failed_with_a_model_is_not_tried_again(tmp_path, monkeypatch):
    first = [
        {"event": "start", "position": 4, "name": "a"},
        {"event": "done", "name": "a"},
        {"event": "tainted", "name": "a", "mode": "lstm=step"},
    ]
    stub = Stub(monkeypatch, [(first, cuda_truth.ANOTHER_WORKER), ([], 0)])
    assert command(tmp_path) == 0
    assert stub.option(1, "--skip") == "lstm=step"
    assert stub.option(1, "--worker") == "5"
    assert json.loads((tmp_path / "index.json").read_text())["failed"] == []


def test_a_worker_that_hangs_is_ended(tmp_path, monkeypatch):
    real = cuda_truth.subprocess.Popen
    runs = iter([("import time; time.sleep(600)", 1.0), ("pass", 600.0)])

    def begin(_, **keep):
        code, patience = next(runs)
        monkeypatch.setattr(cuda_truth, "HUNG_S", patience)
        return real([sys.executable, "-c", code], **keep)

    monkeypatch.setattr(cuda_truth.subprocess, "Popen", begin)
    assert command(tmp_path) == 1
    assert json.loads((tmp_path / "index.json").read_text())["failed"] == [
        {"name": "constants", "reason": "no sign of life for 1 s"}
    ]
