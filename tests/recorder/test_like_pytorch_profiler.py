"""What code written for Lightning's PyTorchProfiler or lightning-habana's HPUProfiler may go on relying on."""

from __future__ import annotations

import gc
import inspect
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import needs
import pytest

torch = needs.module("torch", "torch", "recording needs torch")
pl = needs.module("recorder", "lightning.pytorch", "recording with a Trainer needs lightning")

from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.profilers.pytorch import RegisterRecordFunction
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from recorder.fits import QUIET, Tiny, files, fit, loader, only, read, spans, trainer
from recorder.forked import Programs
from sample_reports import report_of

import hpuprof
from hpuprof import ConfigError, HPUProfiler

pytestmark = pytest.mark.filterwarnings(*QUIET)
SHORT: dict[str, Any] = {"wait": 0, "baseline_blocks": 0, "active": 2, "analyze": False}
STRATEGY = "[pl][profile][Strategy]SingleDeviceStrategy"


class Manual(Tiny):
    """Calls its optimizer itself."""

    automatic_optimization = False

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.optimizers().zero_grad()
        self.manual_backward(self.layer(batch).pow(2).mean())
        self.optimizers().step()


def names(profiler: HPUProfiler) -> list[str]:
    return [event.name for event in profiler.function_events]


def actions(profiler: HPUProfiler, *wanted: str) -> None:
    for name in wanted:
        with profiler.profile(name):
            torch.ones(2)


# ------------------------------------------------------------------------------------------------------ function_events


@pytest.mark.parametrize("module", [Tiny, Manual])
@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2}, {"max_epochs": 2}])
def test_function_events_of_a_fit_are_those_of_its_window(tmp_path: Path, module: Any, options: Any) -> None:
    if module is Manual:
        options = {k: v for k, v in options.items() if k != "accumulate_grad_batches"}  # Lightning refuses it
    profiler, _ = fit(tmp_path, batches=4, module=module(), options=options, filename="perf", **SHORT)
    assert names(profiler).count(f"{STRATEGY}.training_step") == 2
    assert names(profiler).count("ProfilerStep*") == 2, "as torch calls all steps there"
    assert isinstance(profiler.function_events, torch.autograd.profiler_util.EventList)
    assert "aten::addmm" in profiler.function_events.key_averages().table()
    assert (tmp_path / "fit-perf.txt").read_text(encoding="utf-8")


def test_function_events_are_of_the_window_that_ended_last(tmp_path: Path) -> None:
    profiler, _ = fit(tmp_path, batches=8, options={"limit_val_batches": 6}, **SHORT)
    assert f"{STRATEGY}.validation_step" in names(profiler)
    assert f"{STRATEGY}.training_step" not in names(profiler)


def test_a_trial_run_of_few_batches_shows_the_validation_too(tmp_path: Path) -> None:
    profiler, _ = fit(tmp_path, options={"fast_dev_run": 3}, analyze=False)
    assert names(profiler).count(f"{STRATEGY}.validation_step") >= 1
    assert {p.parent.name for p in files(tmp_path)} == {
        "hpuprof-fit-training_step-0-async",
        "hpuprof-fit-validation_step-0-async",
    }


def test_acc_events_keeps_the_events_of_all_windows_in_their_order(tmp_path: Path) -> None:
    profiler, _ = fit(tmp_path, acc_events=True, repeat=2, **SHORT)
    begins = [e.time_range.start for e in profiler.function_events if e.name == f"{STRATEGY}.training_step"]
    assert len(begins) == 4
    assert profiler.function_events is profiler.function_events
    assert len(profiler.function_events.key_averages()) > 10
    once, _ = fit(tmp_path, repeat=2, **SHORT)
    assert names(once).count(f"{STRATEGY}.training_step") == 2


@pytest.mark.parametrize("module", [Tiny, Manual])
@pytest.mark.parametrize(
    ("stage", "step"), [("validate", "validation_step"), ("test", "test_step"), ("predict", "predict_step")]
)
def test_function_events_of_other_stages(tmp_path: Path, module: Any, stage: str, step: str) -> None:
    profiler = HPUProfiler(tmp_path, "perf", schedule=None, **SHORT)
    loop = trainer(profiler, tmp_path, limit_val_batches=3, limit_test_batches=3, limit_predict_batches=3)
    getattr(loop, stage)(module(), loader())
    assert names(profiler).count(f"{STRATEGY}.{step}") == 2
    assert "step time" in (tmp_path / f"{stage}-perf.txt").read_text(encoding="utf-8")
    assert [p.parent.name for p in files(tmp_path)] == [f"perf-{stage}-{step}-0-async"]


def test_function_events_are_built_when_asked_for_and_forgotten_with_the_next_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    events = torch.profiler.profile.events
    monkeypatch.setattr(torch.profiler.profile, "events", lambda self: built.append(1) or events(self))
    profiler, _ = fit(tmp_path, **SHORT)
    assert built == []
    assert profiler.function_events is profiler.function_events is not None
    assert built == [1]
    profiler.setup("test", log_dir=str(tmp_path))
    assert profiler.function_events is None
    assert HPUProfiler().function_events is None


def test_function_events_are_there_for_an_exporter_of_the_users_own(tmp_path: Path) -> None:
    seen: list[int] = []
    profiler, _ = fit(tmp_path, on_trace_ready=lambda profile: seen.append(len(profile.events())), **SHORT)
    assert seen == [len(profiler.function_events)]


def test_each_rank_has_its_events_and_its_file_and_rank_0_speaks_of_all(tmp_path: Path, program: Programs) -> None:
    text = """
from pathlib import Path
from recorder.fits import Tiny, as_ranks, loader, trainer
from hpuprof import HPUProfiler
as_ranks(*({"NODE_RANK": "0", "LOCAL_RANK": rank, "WORLD_SIZE": "2"} for rank in "01"))
profiler = HPUProfiler("traces", "perf", active=4)
loop = trainer(profiler, Path("."), devices=2, strategy="ddp", limit_val_batches=6)
loop.fit(Tiny(), loader(128), loader(12))
assert any(e.name == "[pl][profile][Strategy]DDPStrategy.validation_step" for e in profiler.function_events)
assert profiler.summary() == Path(f"traces/fit-perf-{loop.local_rank}.txt").read_text()
"""
    out = program(tmp_path, text).stdout
    first, second = (tmp_path / "traces" / f"fit-perf-{rank}.txt" for rank in (0, 1))
    assert "Ranks are missing" not in first.read_text(encoding="utf-8")
    assert second.read_text(encoding="utf-8").startswith("This covers rank 1 only; rank 0 reports on all ranks.\n")
    assert out.count("More: hpuprof analyze traces") == 1
    assert len(files(tmp_path)) == 4


# --------------------------------------------------------------------------------------------------- outside a Trainer


def test_nested_actions_outside_a_trainer_are_recorded_until_described(tmp_path: Path) -> None:
    profiler = HPUProfiler(tmp_path, "perf", schedule=None)
    with profiler.profile("a"):
        a = torch.ones(42)
        with profiler.profile("b"):
            b = torch.zeros(42)
        with profiler.profile("c"):
            _ = a + b
    profiler.describe()
    operators = {f"aten::{name}" for name in ("ones", "zeros", "add", "empty", "fill_", "zero_")}
    assert set(names(profiler)) == {f"[pl][profile]{name}" for name in "abc"} | operators
    assert "aten::zeros" in (tmp_path / "perf.txt").read_text(encoding="utf-8") == profiler.summary()
    trace = only(tmp_path)
    assert (trace["hpuprof"]["steps"], trace["hpuprof"]["complete"]) == ([], True)
    assert len(spans(trace, "[pl][profile]b")) == 1
    assert not torch.autograd._profiler_enabled()


def test_outside_a_trainer_each_report_ends_one_recording_and_the_next_action_begins_another(tmp_path: Path) -> None:
    profiler = HPUProfiler(tmp_path)
    for name in ("first", "second"):
        actions(profiler, name)
        assert f"[pl][profile]{name}" in profiler.summary()
    assert [p.parent.name for p in files(tmp_path)] == ["hpuprof-0-async", "hpuprof-0-async-2"]
    profiler.teardown(None)
    fit(tmp_path / "fit", **SHORT)
    assert not torch.autograd._profiler_enabled()


def test_another_thread_begins_no_recording_that_this_one_could_not_end(
    tmp_path: Path,
) -> None:
    profiler = HPUProfiler(tmp_path)
    with pytest.warns(UserWarning, match="are recorded in the main thread only"), ThreadPoolExecutor(1) as other:
        other.submit(actions, profiler, "a").result()
    assert profiler._engines == {}
    actions(profiler, "b")
    profiler.describe()
    assert len(files(tmp_path)) == 1


def test_a_module_registered_by_hand_shows_in_the_events_and_no_file_is_written(tmp_path: Path) -> None:
    profiler = HPUProfiler(
        tmp_path, "perf", export_to_chrome=False, schedule=None, on_trace_ready=None, record_module_names=False
    )
    module = torch.nn.ModuleDict({"layer": torch.nn.Sequential(torch.nn.Linear(1, 1), torch.nn.ReLU())})
    with profiler.profile("a"), RegisterRecordFunction(module):
        module["layer"](torch.ones(1, 1))
    profiler.describe()
    assert {n for n in names(profiler) if n.startswith("[pl][module]")} == {
        "[pl][module]torch.nn.modules.container.Sequential: layer",
        "[pl][module]torch.nn.modules.linear.Linear: layer.0",
        "[pl][module]torch.nn.modules.activation.ReLU: layer.1",
    }
    assert files(tmp_path) == []
    assert "aten::linear" in (tmp_path / "perf.txt").read_text(encoding="utf-8")


def test_a_schedule_outside_a_trainer_is_refused_aloud(tmp_path: Path) -> None:
    profiler = HPUProfiler(tmp_path, schedule=torch.profiler.schedule(wait=0, warmup=0, active=1))
    with pytest.warns(UserWarning, match="have no steps, so a schedule would record nothing; omit it") as told:
        actions(profiler, "a", "a")
    assert len([w for w in told if "hpuprof" in str(w.message)]) == 1
    assert profiler.function_events is None


def test_what_a_trainer_does_before_its_stage_begins_no_recording(tmp_path: Path) -> None:
    profiler = HPUProfiler(tmp_path, **SHORT)
    loop = trainer(profiler, tmp_path)
    loop.strategy.connect(Tiny())
    loop.save_checkpoint(tmp_path / "x.ckpt")
    with profiler.profile("[LightningDataModule]Data.prepare_data"):
        assert not torch.autograd._profiler_enabled()
    assert profiler._engines == {}


# ------------------------------------------------------------------------------------------------------ in a Trainer


def test_two_callbacks_of_one_class_are_told_apart(tmp_path: Path) -> None:
    stops = [EarlyStopping("a", strict=False), EarlyStopping("b", strict=False)]
    options = {"callbacks": stops, "limit_val_batches": 1, "num_sanity_val_steps": 0, "val_check_interval": 1}
    fit(tmp_path, options=options, **SHORT)
    (trace,) = (read(p) for p in files(tmp_path) if "training_step" in str(p))
    for monitor in "ab":
        action = f"[pl][profile][Callback]EarlyStopping{{'monitor': '{monitor}', 'mode': 'min'}}.on_validation_start"
        assert len(spans(trace, action)) == 1, "validation after the first of two recorded steps is inside the window"


@pytest.mark.parametrize(
    ("stage", "limits", "words"),
    [
        ("fit", {"limit_train_batches": 4, "limit_val_batches": 7}, "training_step loop of fit has 4 steps"),
        ("fit", {"limit_train_batches": 25, "limit_val_batches": 4}, "validation_step loop of fit has 4 steps"),
        ("validate", {"limit_val_batches": 4}, "validation_step loop of validate has 4 steps"),
        ("test", {"limit_test_batches": 4}, "test_step loop of test has 4 steps"),
        ("predict", {"limit_predict_batches": 4}, "predict_step loop of predict has 4 steps"),
    ],
)
def test_a_loop_too_short_for_the_plan_is_warned_about(tmp_path: Path, stage: str, limits: Any, words: str) -> None:
    loop = trainer(HPUProfiler(tmp_path, analyze=False), tmp_path, num_sanity_val_steps=0, **limits)
    with pytest.warns(UserWarning, match=f"{words}, the schedule needs"):
        getattr(loop, stage)(Tiny(), *([loader(), loader()] if stage == "fit" else [loader()]))


def test_with_several_loggers_the_trace_goes_to_the_first_ones_directory(tmp_path: Path) -> None:
    loggers = [CSVLogger(tmp_path, name="first"), CSVLogger(tmp_path, name="second")]
    trainer(HPUProfiler(**SHORT), tmp_path, logger=loggers, log_every_n_steps=100).fit(Tiny(), loader())
    (path,) = files(tmp_path)
    assert path.parent == tmp_path / "first" / "version_0" / "hpuprof-fit-training_step-0-async"


def test_teardown_closes_the_file_of_the_summary(tmp_path: Path) -> None:
    class Looks(pl.Callback):
        def on_fit_end(self, trainer: Any, *_: Any) -> None:
            assert trainer.profiler._output_file is None

    profiler, _ = fit(tmp_path, filename="perf", options={"callbacks": [Looks()]}, **SHORT)
    assert profiler._output_file is None


def test_a_profiler_that_has_recorded_can_be_copied(tmp_path: Path) -> None:
    profiler = HPUProfiler(tmp_path, "perf", schedule=None)
    profiler.start("on_train_start")
    torch.ones(1)
    profiler.describe()
    assert deepcopy(profiler).function_events is None
    assert profiler.function_events


def test_the_name_hpu_makes_one_and_others_stay_what_they_were(tmp_path: Path) -> None:
    import hpuprof.lightning_plugin  # noqa: F401

    assert isinstance(pl.Trainer(profiler="HPU", logger=False, accelerator="cpu").profiler, HPUProfiler)
    assert isinstance(
        pl.Trainer(profiler="pytorch", logger=False, accelerator="cpu").profiler, pl.profilers.PyTorchProfiler
    )
    with pytest.raises(MisconfigurationException, match="it can only be one of"):
        pl.Trainer(profiler="unknown", logger=False, accelerator="cpu")


# ---------------------------------------------------------------------------------------------------------- arguments


def test_table_kwargs_shape_the_table_of_torch_below_the_summary(tmp_path: Path) -> None:
    def dashes(table_kwargs: Any) -> int:
        profiler = HPUProfiler(tmp_path, "perf", table_kwargs=table_kwargs)
        actions(profiler, "a")
        profiler.describe()
        return profiler.summary().count("-")

    assert dashes({"max_name_column_width": 1}) < dashes({"max_name_column_width": 5}) < dashes(None)


def test_the_table_of_torch_follows_in_a_fit_when_it_was_asked_for(tmp_path: Path) -> None:
    assert "Self CPU %" not in fit(tmp_path, **SHORT)[0].summary()
    for asked in (
        {"table_kwargs": {}},
        {"sort_by_key": "self_cpu_time_total"},
        {"sort_by_key": "hpu_time_total"},
        {"group_by_input_shapes": True, "record_shapes": True},
    ):
        text = fit(tmp_path, **SHORT | asked)[0].summary()
        assert "Self CPU %" in text
        assert ("Input Shapes" in text) == ("record_shapes" in asked)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (
            {"table_kwargs": {"row_limit": 3}},
            KeyError,
            "table_kwargs has 'row_limit' (pass it to HPUProfiler",
        ),
        ({"table_kwargs": {"sort_by": "x"}}, KeyError, "sort_by_key"),
        ({"table_kwargs": {"self": 1}}, KeyError, "table_kwargs has no option 'self' (known: header, "),
        ({"table_kwargs": {"nope": 1}}, KeyError, "max_name_column_width"),
        ({"sort_by_key": "nope"}, MisconfigurationException, "cpu_time_total"),
        ({"schedule": 3}, MisconfigurationException, "not callable (give torch.profiler.schedule(...)"),
        ({"schedule": lambda _: 3}, MisconfigurationException, "returns 3 for step 0, which is not a ProfilerAction"),
        ({"on_trace_ready": 3}, ConfigError, "a function that takes a torch profiler"),
        ({"row_limit": "x"}, ConfigError, "row_limit is 'x' (a whole number of -1 or more)"),
        ({"dirpath": 5}, ConfigError, "dirpath is 5 (a directory or URL"),
        ({"filename": 5}, ConfigError, "filename is 5"),
        ({"filename": "../out"}, ConfigError, "a plain name; dirpath sets the place"),
        ({"compress": "no"}, ConfigError, "compress is 'no' (True or False)"),
        ({"acc_events": 1}, ConfigError, "acc_events is 1 (True or False)"),
        ({"metric": "time"}, ConfigError, "self_cpu_time_total"),
        ({"activities": ["gpu"]}, ConfigError, "activities has an unknown activity 'gpu' (one of cpu"),
        ({"experimental_config": 5}, ConfigError, "experimental_config is 5 (a dict"),
        ({"execution_trace_observer": 5}, ConfigError, "ExecutionTraceObserver"),
        ({"table_kwargs": 5}, ConfigError, "table_kwargs is 5 (a dict"),
        ({"sort_by_key": [5]}, MisconfigurationException, "sort_by_key is [5] (one of"),
        ({"emit_nvtx": True}, ConfigError, "Nsight Systems with Lightning's PyTorchProfiler(emit_nvtx=True)"),
        ({"use_cuda": True}, ConfigError, "activities=['cpu', 'cuda']"),
        ({"use_cpu": False}, ConfigError, "activities=['cpu']"),
        ({"record_shape": True}, ConfigError, "did you mean 'record_shapes'?"),
    ],
)
def test_what_is_refused_shows_reason_and_remedy_and_is_the_error_that_was_raised_before(
    arguments: Any, error: type[Exception], words: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)) as refused:
        HPUProfiler(**arguments)
    assert isinstance(refused.value, error)


def test_a_wrong_value_of_any_argument_is_refused_by_its_name() -> None:
    for name in inspect.signature(HPUProfiler).parameters:
        for wrong in (object(), [object()], b"x", -1.5) if name != "profiler_kwargs" else ():
            with pytest.raises(ConfigError, match=name):
                HPUProfiler(**{name: wrong})


def test_events_are_accumulated_or_not_as_torch_says_it() -> None:
    assert HPUProfiler(acc_events=None)._events.accumulate is False
    assert HPUProfiler(acc_events=True)._events.accumulate is True


def test_what_was_refused_leaves_nothing_to_tear_down(monkeypatch: pytest.MonkeyPatch) -> None:
    ignored: list[str] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: ignored.append(str(told.exc_value)))
    with pytest.raises(ConfigError):
        HPUProfiler(wiat=1)
    gc.collect()
    assert ignored == []


def test_habana_profile_is_refused_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HABANA_PROFILE", "1")
    with pytest.raises(AssertionError, match="unset HABANA_PROFILE"):
        HPUProfiler()


def test_arguments_that_lightning_habana_passed_on_are_taken(tmp_path: Path) -> None:
    profiler = HPUProfiler(tmp_path, use_hpu=True, emit_nvtx=False)
    assert (profiler._config.activities, profiler._sort_by_key) == (("cpu", "hpu"), "hpu_time_total")
    assert HPUProfiler(use_hpu=True, activities=["cpu"])._config.activities == ("cpu",)


def test_a_flame_graph_lies_beside_each_trace(tmp_path: Path) -> None:
    fit(tmp_path, export_to_flame_graph=True, **SHORT)
    (path,) = files(tmp_path)
    (stacks,) = tmp_path.rglob("*.stacks")
    assert stacks == path.parent / (path.name.removesuffix(".pt.trace.json.gz") + ".stacks")
    lines = stacks.read_text(encoding="utf-8").splitlines()
    assert lines
    assert all(re.fullmatch(r"\S+ \d+", line) for line in lines)
    assert any("fits.py" in line for line in lines)
    assert hpuprof.load(tmp_path).ranks == [0]


def test_an_execution_trace_is_complete_after_the_fit(tmp_path: Path) -> None:
    import json

    observer = torch.profiler.ExecutionTraceObserver().register_callback(str(tmp_path / "et.json"))
    fit(tmp_path, execution_trace_observer=observer, **SHORT)
    nodes = json.loads((tmp_path / "et.json").read_text(encoding="utf-8"))["nodes"]
    assert any(node["name"] == "aten::addmm" for node in nodes)
    with pytest.warns(UserWarning, match="the copy has none"):
        assert deepcopy(HPUProfiler(execution_trace_observer=observer))._torch_options.execution_trace_observer is None


# ------------------------------------------------------------------------------------------------------------- console


def test_a_fit_says_its_answer_once_and_briefly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="lightning.pytorch"):
        fit(tmp_path)
    out = capsys.readouterr().out
    assert out.count("CPU-only recording: the step is") == 1
    # How many fixes and findings a fit of a few steps has is the machine's noise; each kind has its limit.
    lines = out.splitlines()
    fixes = [line for line in lines if re.match(r"  \d\. ", line)]
    findings = [line for line in lines if re.match(r"  HP\d{3} ", line)]
    assert len(fixes) <= 3
    assert len(findings) <= 3
    assert len(lines) - len(fixes) - len(findings) <= 5
    assert "CPU-only recording" not in caplog.text


def test_other_stages_say_their_answer_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trainer(HPUProfiler(tmp_path), tmp_path, limit_test_batches=25).test(Tiny(), loader(), verbose=False)
    assert f"More: hpuprof analyze {tmp_path}" in capsys.readouterr().out


def test_the_most_important_findings_are_part_of_the_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, samples: Path
) -> None:
    found = report_of("hpu_g3_lazy_8_ranks")
    monkeypatch.setattr("hpuprof.api.analyze", lambda *_, **__: found)
    fit(tmp_path)
    lines = capsys.readouterr().out.splitlines()
    assert found.findings
    assert [line.split()[0] for line in lines if line.startswith("  HP")] == ["HP201"], (
        "the first line tells the others"
    )
    assert any("Rank 5 holds up all 8 ranks" in line for line in lines)


def test_warnings_point_at_the_line_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "fit-perf.txt").mkdir()
    with pytest.warns(UserWarning, match="could not describe") as told:
        fit(tmp_path, filename="perf", **SHORT)
    places = {Path(w.filename).name for w in told if "could not describe" in str(w.message)}
    assert places == {"fits.py"}


def test_a_warning_tells_the_remedy_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise hpuprof.OutputError("no room", hint="make some")

    monkeypatch.setattr("hpuprof.recorder.finishing.PROCESSES", False)
    monkeypatch.setattr("hpuprof.recorder.spool.write_trace", full)
    with pytest.warns(RuntimeWarning, match="no room") as told:
        fit(tmp_path, **SHORT)
    (text,) = (str(w.message) for w in told if "no room" in str(w.message))
    assert text.count("make some") == 1
