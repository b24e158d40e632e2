"""Step times that other tools wrote down: their own lines, and what an analysis does with them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from builder import TraceBuilder

import hpuprof
from hpuprof.errors import InputError
from hpuprof.ingest.other_timers import find_timers, read_timer
from hpuprof.report.model import Report

MS = 1_000_000

VLLM = {"backend": "vllm", "completed": 100, "median_ttft_ms": 31.2, "median_tpot_ms": 9.5, "median_itl_ms": 9.1}
TRAINER_STATE = {
    "global_step": 200,
    "log_history": [{"loss": 2.1, "step": 100}, {"train_runtime": 40.0, "train_steps_per_second": 5.0, "step": 200}],
}
TRACEML = {
    "schema_version": 1.7,
    "step_time": {"global": {"average": {"input_wait_ms": 80.0, "step_time_ms": 240.0, "h2d_ms": None}}},
    "step_memory": {"global": {"average": {"peak_allocated_bytes": 1.0}}},
}
TRACEML_OLD = {"schema_version": 1.6, "step_time": {"global": {"average": {"total_step_ms": 31.0}}}}
DEEPSPEED = (
    "[2026-05-01 10:00:01,000] [INFO] [logging.py:96:log_dist] [Rank 0] "
    "time (ms) | fwd_microstep: 3.00 | bwd_microstep: 6.00 | bwd_inner_microstep: 5.90 | step_microstep: 2.00\n"
    "[2026-05-01 10:00:01,001] [INFO] [logging.py:96:log_dist] [Rank 0] "
    "time (ms) | fwd: 3.00 | bwd: 6.00 | bwd_inner: 5.90 | bwd_allreduce: 0.00 | step: 2.00\n"
)
MEGATRON = (
    " [2026-05-01 10:00:01] iteration {n}/ 500 | consumed samples: 256 | elapsed time per iteration (ms): {ms} | "
    "learning rate: 1.0E-04 | global batch size: 256 |\n"
)
KNOWN = {
    "vllm.json": (json.dumps(VLLM), 9.1, "vLLM or SGLang serving benchmark"),
    "sglang.jsonl": (json.dumps({"median_tpot_ms": 12.5}) + "\n", 12.5, "vLLM or SGLang serving benchmark"),
    "trainer_state.json": (json.dumps(TRAINER_STATE), 200.0, "Hugging Face trainer_state.json"),
    "final_summary.json": (json.dumps(TRACEML), 240.0, "TraceML final_summary.json"),
    "old_summary.json": (json.dumps(TRACEML_OLD), 31.0, "TraceML final_summary.json"),
    "metrics.csv": (
        "epoch,loss,step,train/batches,train/time\n"
        + "".join(f"0,,{n},{n + 1},{0.5 + 0.025 * n:.3f}\n0,2.9,{n},,\n" for n in range(9, 100, 10)),
        25.0,
        "Lightning CSVLogger and ThroughputMonitor",
    ),
    "deepspeed.log": (DEEPSPEED * 5, 11.0, "DeepSpeed wall_clock_breakdown"),
    "megatron.log": (
        "".join(MEGATRON.format(n=n, ms=900.0 if n < 3 else 250.5) for n in range(8)),
        250.5,
        "Megatron-LM or nanoGPT log",
    ),
    "nanogpt.out": (
        "".join(f"iter {n}: loss 2.9, time {40 + n % 2}.00ms, mfu 3.01%\n" for n in range(9)),
        40.0,
        "Megatron-LM or nanoGPT log",
    ),
    "bar.log": ("\r".join(f" {n}%|##  | {n}/100 [00:01<00:09, 50.00it/s]" for n in range(9)), 20.0, "progress bar"),
    "slow_bar.log": ("\r".join(f" {n}%|#| {n}/9 [00:01<00:09, 1.50s/it]" for n in range(9)), 1500.0, "progress bar"),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_tools_own_lines_give_its_time_per_step(tmp_path: Path, name: str) -> None:
    text, ms, tool = KNOWN[name]
    (tmp_path / name).write_text(text)
    timer = read_timer(tmp_path / name)
    assert (timer.step_ns, timer.tool) == (round(ms * MS), tool)
    assert timer.spread_ns >= 0.02 * timer.step_ns


def test_what_lightnings_simple_profiler_prints(tmp_path: Path) -> None:
    profilers = pytest.importorskip("lightning.pytorch.profilers")
    profiler = profilers.SimpleProfiler()
    profiler.recorded_durations["run_training_batch"] = [0.010, 0.012]
    profiler.recorded_durations["[_TrainingEpochLoop].train_dataloader_next"] = [0.002, 0.004]
    profiler.recorded_durations["optimizer_step"] = [0.005]
    (tmp_path / "fit-report.txt").write_text(profiler.summary())
    timer = read_timer(tmp_path / "fit-report.txt")
    assert (timer.step_ns, timer.tool) == (14 * MS, "Lightning SimpleProfiler")


def test_what_lightnings_csv_logger_writes_of_its_throughput_monitor(tmp_path: Path) -> None:
    loggers = pytest.importorskip("lightning.pytorch.loggers")
    throughput = pytest.importorskip("lightning.fabric.utilities.throughput")
    measured, logger = throughput.Throughput(window_size=4), loggers.CSVLogger(tmp_path, name="", version="")
    for step in range(8):
        measured.update(time=1.0 + 0.02 * step, batches=step + 1, samples=4 * step + 4)
        logger.log_metrics({f"train/{name}": value for name, value in measured.compute().items()}, step=step)
        logger.log_metrics({"loss": 2.5}, step=step)
    logger.save()
    (timer,) = find_timers([tmp_path], other_than=[])
    assert (timer.step_ns, timer.tool) == (20 * MS, "Lightning CSVLogger and ThroughputMonitor")


def test_what_tqdm_prints(tmp_path: Path) -> None:
    tqdm = pytest.importorskip("tqdm")
    written = io.StringIO()
    bar = tqdm.tqdm(total=100, file=written, mininterval=0, miniters=1, ascii=True)
    bar.start_t -= 2.0  # as though the bar had run for two seconds
    for _ in range(10):
        bar.update(1)
    bar.close()
    (tmp_path / "train.log").write_text(written.getvalue())
    assert read_timer(tmp_path / "train.log").tool == "progress bar"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "loss 0.3\n" * 50,
        "{broken",
        '{"median_itl_ms": "9"}',
        "3.0it/s\n2.0it/s\n",
        '{"step_time": {"global": {"average": {"step_time_ms": null}}}}',
        '{"step_time": [], "global": 3}',
        "epoch,step,train/batches,train/time\n0,1,2\n0,2,x,\n",
    ],
)
def test_a_file_without_a_time_per_step_is_refused_and_passed_by(tmp_path: Path, text: str) -> None:
    (tmp_path / "some.log").write_text(text)
    assert find_timers([tmp_path], other_than=[]) == []
    with pytest.raises(InputError, match=r"some\.log: gives no time per step"):
        read_timer(tmp_path / "some.log")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.log"):
        read_timer(tmp_path / "none.log")


def recording(folder: Path) -> Path:
    builder = TraceBuilder()
    for i in range(6):
        builder.step(i, i * 20_000, 20_000)
        builder.host("aten::mm", i * 20_000 + 10, 15_000)
    folder.mkdir(exist_ok=True)
    return builder.write(folder / "h_1.1.pt.trace.json")


def codes(report: Report) -> set[str]:
    return {d.code for d in report.diagnostics}


def base_ns(path: Path, **options: str) -> tuple[float | None, set[str]]:
    report = hpuprof.analyze(path, cache="off", **options).data  # type: ignore[arg-type]
    return report.files[0].unprofiled_step_ns, codes(report)


def test_a_time_beside_the_traces_is_the_step_time_without_the_profiler(tmp_path: Path) -> None:
    recording(tmp_path)
    (tmp_path / "bench.json").write_text(json.dumps({"median_itl_ms": 18.0}))
    step, found = base_ns(tmp_path)
    assert step == 18 * MS
    assert "HP185" in found


@pytest.mark.parametrize("ms", [0.5, 45.0])
def test_a_time_that_cannot_be_of_these_steps_is_said_and_left(tmp_path: Path, ms: float) -> None:
    recording(tmp_path)
    (tmp_path / "bench.json").write_text(json.dumps({"median_itl_ms": ms}))
    step, found = base_ns(tmp_path)
    assert step is None
    assert {"HP185", "HP186"} & found == {"HP186"}


def test_a_file_given_counts_as_a_step_time_given(tmp_path: Path) -> None:
    traces = tmp_path / "traces"
    recording(traces)
    elsewhere = tmp_path / "bench.json"
    elsewhere.write_text(json.dumps({"median_itl_ms": 18.0}))
    given = hpuprof.analyze(traces, cache="off", step_time="18ms").data
    from_file = hpuprof.analyze(traces, cache="off", step_time_from=elsewhere).data
    assert (from_file.graph_mode, from_file.answer) == (given.graph_mode, given.answer)
    assert not {"HP185", "HP186"} & codes(from_file)


def test_a_trace_is_no_timer_and_changes_nothing(tmp_path: Path) -> None:
    recording(tmp_path)
    assert base_ns(tmp_path) == (None, base_ns(tmp_path)[1])
    assert not {"HP185", "HP186"} & base_ns(tmp_path)[1]
