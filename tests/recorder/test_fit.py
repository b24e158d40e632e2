"""Single-process fits: which steps are recorded, what is in them, which files come out, and that nothing stays behind."""

from __future__ import annotations

import inspect
import re
import shutil
import statistics
import time
import warnings
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import needs
import pytest

torch = needs.module("torch", "torch", "recording needs torch")
pl = needs.module("recorder", "lightning.pytorch", "recording with a Trainer needs lightning")

from recorder.fits import BATCH, QUIET, Tiny, files, fit, loader, only, read, spans, steps, trainer

import hpuprof
from hpuprof import ConfigError, HPUProfiler
from hpuprof.recorder import engine as engine_module
from hpuprof.recorder import warn
from hpuprof.recorder.accelerator import Device

pytestmark = pytest.mark.filterwarnings(*QUIET)
SHORT: dict[str, Any] = {
    "wait": 0,
    "baseline_blocks": 0,
    "active": 2,
    "analyze": False,
}  # one warm-up, two recorded steps


def test_defaults(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tmp_path)
    (path,) = files(tmp_path)
    assert path.parent == tmp_path / "hpuprof-fit-training_step-0-async"
    assert re.fullmatch(r"[A-Za-z0-9-]+_0\.\d{19}\.pt\.trace\.json\.gz", path.name)
    trace = read(path)
    ours = trace["hpuprof"]
    assert (ours["rank"], ours["world_size"], ours["stage"], ours["action"]) == (0, 1, "fit", "training_step")
    assert (ours["window"], ours["window_kind"], ours["steps"], ours["complete"]) == (
        "0-async",
        "async",
        [17, 18, 19, 20, 21, 22],
        True,
    )
    assert len(ours["unprofiled"]["blocks_ns"]) == 3
    assert all(ns > 0 for ns in ours["unprofiled"]["blocks_ns"])
    assert (ours["mode"], ours["device"]["kind"], ours["options"]["active"], ours["framework"]) == (
        "eager",
        "cpu",
        6,
        "lightning",
    )
    assert {"torch", "lightning", "python", "hpuprof"} <= set(ours["versions"])
    assert "Framework" not in trace
    assert [n for n, _, _ in steps(trace)] == [17, 18, 19, 20, 21, 22]
    out = capsys.readouterr().out
    assert "without the profiler (measured): gains count from it." in out
    assert f"More: hpuprof analyze {tmp_path}" in out


def test_the_analyzer_reads_it(tmp_path: Path) -> None:
    fit(tmp_path, analyze=False)
    report = hpuprof.analyze(tmp_path)
    assert "HP110" not in {d.code for d in report.data.diagnostics}
    values = {name: m.value for name, m in report.metrics.items()}
    assert values["step_time_p50"] > 0
    assert values["unprofiled_step_time"] == only(tmp_path)["hpuprof"]["unprofiled"]["step_ns"]


def test_a_step_is_a_batch_with_everything_that_belongs_to_it(tmp_path: Path) -> None:
    fit(tmp_path, **SHORT | {"active": 3})
    trace = only(tmp_path)
    found = steps(trace)
    assert [n for n, _, _ in found] == [1, 2, 3]
    assert all(a[2] <= b[1] + 1 for a, b in pairwise(found))
    for name in (
        BATCH,
        "Optimizer.step#SGD.step",
        "[pl][profile][Strategy]SingleDeviceStrategy.backward",
        "[pl][profile][_TrainingEpochLoop].train_dataloader_next",
    ):
        rows = spans(trace, name)
        assert [sum(s <= a and b <= e for _, a, b in rows) for _, s, e in found] == [1, 1, 1], name
    for _, start, end in found:
        assert next(name for name, at, _ in spans(trace, "[pl][profile]") if start <= at < end) == BATCH


def test_memory_is_sampled_at_the_borders_of_steps(tmp_path: Path) -> None:
    fit(tmp_path, **SHORT)
    trace = only(tmp_path)
    found = [e for e in trace["traceEvents"] if e.get("ph") == "C" and e["name"] == "memory"]
    assert all(e["args"]["resident"] > 1 << 20 for e in found)
    first, last = steps(trace)
    for counter, (_, start, end) in zip(found, [first, last, last], strict=True):
        assert start - 5_000 < counter["ts"] < end + 5_000, "µs; two clocks may differ a little"
    fit(tmp_path / "off", memory_counters=False, **SHORT)
    assert not [e for e in only(tmp_path / "off")["traceEvents"] if e.get("ph") == "C"]


def test_the_sanity_check_and_a_short_validation_loop_change_nothing(tmp_path: Path) -> None:
    options = {"limit_val_batches": 1, "num_sanity_val_steps": 2, "val_check_interval": 3}
    with pytest.warns(UserWarning, match="validation_step loop of fit"):
        fit(tmp_path, options=options, analyze=False)
    trace = only(tmp_path)
    assert trace["hpuprof"]["steps"] == [n for n, _, _ in steps(trace)] == [17, 18, 19, 20, 21, 22]
    assert trace["hpuprof"]["steps_with_validation"] == [17, 20]  # nowhere are six steps without
    assert len(spans(trace, BATCH)) == 6


@pytest.mark.parametrize(
    ("options", "recorded"),
    [
        ({"val_check_interval": 19}, [19, 20, 21, 22, 23, 24]),
        ({"val_check_interval": 23}, [17, 18, 19, 20, 21, 22]),  # right after the window
        ({"limit_train_batches": 20, "max_epochs": 2}, [20, 21, 22, 23, 24, 25]),
        ({"limit_train_batches": 20, "max_epochs": 2, "check_val_every_n_epoch": 2}, [17, 18, 19, 20, 21, 22]),
        ({"val_check_interval": 21, "check_val_every_n_epoch": None}, [21, 22, 23, 24, 25, 26]),
    ],
)
def test_a_window_goes_where_no_validation_is(tmp_path: Path, options: dict[str, Any], recorded: list[int]) -> None:
    fit(tmp_path, batches=38, options={"limit_val_batches": 1, "num_sanity_val_steps": 0, **options}, analyze=False)
    ours = read(next(p for p in files(tmp_path) if "training_step" in str(p)))["hpuprof"]
    assert (ours["steps"], ours["steps_with_validation"], ours["complete"]) == (recorded, [], True)


def test_the_last_step_ends_before_validation_begins(tmp_path: Path) -> None:
    class Slow(Tiny):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            self.began_ns = time.time_ns()
            time.sleep(0.3)

    module = Slow()
    fit(tmp_path, batches=3, module=module, options={"limit_val_batches": 1, "num_sanity_val_steps": 0}, **SHORT)
    trace = only(tmp_path)
    assert (trace["hpuprof"]["steps"], trace["hpuprof"]["complete"], trace["hpuprof"]["steps_with_validation"]) == (
        [1, 2],
        True,
        [],
    )
    assert [n for n, _, _ in steps(trace)] == [1, 2]
    ended_ns = trace["baseTimeNanoseconds"] + 1000 * max(end for _, _, end in steps(trace))
    assert -(10**10) < ended_ns - module.began_ns < 10**8, "two clocks may differ a little"


def test_a_learning_rate_finder_does_not_use_up_the_recording(tmp_path: Path) -> None:
    from lightning.pytorch.callbacks import LearningRateFinder

    class Tuned(Tiny):
        lr = 0.01

    fit(
        tmp_path,
        module=Tuned(),
        batches=64,
        options={"callbacks": [LearningRateFinder(num_training_steps=10)], "enable_checkpointing": True},
        **SHORT,
    )
    runs = [p.parent.name for p in files(tmp_path) if "training_step" in str(p)]
    assert runs == ["hpuprof-lr_find-fit-training_step-0-async", "hpuprof-fit-training_step-0-async"]
    assert [read(p)["hpuprof"].get("tuner") for p in files(tmp_path) if "training_step" in str(p)] == ["lr_find", None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The recorder's clock, which stands still unless a test adds to `ns`."""
    made = SimpleNamespace(ns=0, time_ns=time.time_ns, perf_counter_ns=lambda: made.ns)
    monkeypatch.setattr(engine_module, "time", made)
    return made


def test_timed_blocks_do_not_count_validation(tmp_path: Path, clock: SimpleNamespace) -> None:
    class Slow(Tiny):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            clock.ns += 5
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch: Any, batch_idx: int) -> None:
            clock.ns += 300

    fit(
        tmp_path,
        batches=12,
        module=Slow(),
        options={"limit_val_batches": 1, "num_sanity_val_steps": 0, "val_check_interval": 2},
        analyze=False,
    )
    timed = only(tmp_path)["hpuprof"]["unprofiled"]
    assert len(timed["blocks_ns"]) == 3
    assert timed["blocks_ns"] == [5 * steps for steps in timed["steps_per_block"]]


def test_validation_of_a_fit_has_a_recording_of_its_own(tmp_path: Path) -> None:
    fit(tmp_path, batches=8, options={"limit_val_batches": 6}, **SHORT)
    by_action = {read(p)["hpuprof"]["action"]: read(p) for p in files(tmp_path)}
    assert set(by_action) == {"training_step", "validation_step"}
    assert len(steps(by_action["validation_step"])) == 2
    assert len(spans(by_action["validation_step"], "[pl][profile][Strategy]SingleDeviceStrategy.validation_step")) == 2
    assert hpuprof.analyze(tmp_path).headline.sentence


def test_repeat_is_honored_one_run_directory_each(tmp_path: Path) -> None:
    fit(tmp_path, **SHORT, repeat=3)
    assert [p.parent.name for p in files(tmp_path)] == [f"hpuprof-fit-training_step-{i}-async" for i in range(3)]
    assert [read(p)["hpuprof"]["steps"] for p in files(tmp_path)] == [[1, 2], [4, 5], [7, 8]]


def test_every_n_steps_and_max_windows(tmp_path: Path) -> None:
    fit(tmp_path, **SHORT, repeat=0, every_n_steps=10)
    assert [read(p)["hpuprof"]["steps"] for p in files(tmp_path)] == [[1, 2], [11, 12], [21, 22]]
    fit(tmp_path / "few", **SHORT, repeat=0, every_n_steps=5, max_windows=2)
    assert [read(p)["hpuprof"]["steps"] for p in files(tmp_path / "few")] == [[1, 2], [6, 7]]


@pytest.mark.parametrize(
    ("batches", "recorded"), [(12, [5, 6, 7, 8, 9, 10]), (4, [2, 3]), (3, [2]), (2, [1]), (1, [0])]
)
def test_a_short_loop_gets_a_shorter_plan_and_says_so(tmp_path: Path, batches: int, recorded: list[int]) -> None:
    with pytest.warns(UserWarning, match=f"training_step loop of fit has {batches} steps, the schedule needs 23"):
        fit(tmp_path, batches=batches, analyze=False)
    assert only(tmp_path)["hpuprof"]["steps"] == recorded
    assert only(tmp_path)["hpuprof"]["complete"] is True


def test_a_loop_without_room_for_a_window_says_so(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="training_step loop of fit ended before a window began"):
        fit(tmp_path, batches=2, baseline_steps=0, skip_first=5, analyze=False)
    assert files(tmp_path) == []


def test_a_loop_that_ends_early_says_so_and_keeps_what_there_is(tmp_path: Path) -> None:
    class Stops(Tiny):
        def on_train_batch_end(self, *args: Any) -> None:
            self.trainer.should_stop = self.trainer.fit_loop.total_batch_idx == 2

    with pytest.warns(
        UserWarning, match="training_step loop of fit ended during a window, which was cut short after 2 step"
    ):
        fit(tmp_path, module=Stops(), **SHORT | {"active": 9}, options={"min_epochs": 0})
    assert (only(tmp_path)["hpuprof"]["steps"], only(tmp_path)["hpuprof"]["complete"]) == ([1, 2], False)


def test_nothing_stays_hooked(tmp_path: Path) -> None:
    profiler, module = fit(tmp_path, record_module_names=True, **SHORT)
    assert module.recording == [False] + [True] * 2 + [False] * 22
    assert [bool(n) for n in module.hooks_seen] == [True] * 3 + [False] * 22
    assert profiler._current is None
    assert not torch.autograd._profiler_enabled()
    assert any("[pl][module]" in e.get("name", "") for e in only(tmp_path)["traceEvents"])


def test_actions_cost_next_to_nothing_outside_a_window(tmp_path: Path) -> None:
    profiler, _ = fit(tmp_path, **SHORT)
    times = []
    for _ in range(5):
        begin = time.thread_time()
        for _ in range(1000):
            profiler.start("[Callback]X.on_train_batch_start")
            profiler.stop("[Callback]X.on_train_batch_start")
        times.append((time.thread_time() - begin) / 1000)
    assert min(times) < 20e-6


def test_gradient_accumulation(tmp_path: Path) -> None:
    fit(tmp_path, **SHORT | {"active": 4}, options={"accumulate_grad_batches": 2})
    trace = only(tmp_path)
    assert [n for n, _, _ in steps(trace)] == [2, 3, 4, 5]
    inside = [sum(s <= a and b <= e for _, a, b in spans(trace, "Optimizer.step#")) for _, s, e in steps(trace)]
    assert inside == [0, 1, 0, 1]


class Scheduled(pl.callbacks.GradientAccumulationScheduler):
    """Three batches an update in the first epoch, four from then on."""

    def __init__(self) -> None:
        super().__init__(scheduling={0: 3, 1: 4})


@pytest.mark.parametrize(
    ("options", "recorded", "updates", "blocks"),
    [
        ({"accumulate_grad_batches": 8}, [40, 41, 42, 43, 44, 45, 46, 47], [47], [8, 8, 8]),
        ({"accumulate_grad_batches": 4}, [32, 33, 34, 35, 36, 37, 38, 39], [35, 39], [8, 8, 8]),
        ({"accumulate_grad_batches": 32}, [154, 155, 156, 157, 158, 159], [159], [32, 32, 32]),
        # Ten batches an epoch: an update is cut off at its end.
        (
            {"accumulate_grad_batches": 4, "limit_train_batches": 10, "max_epochs": 9},
            [40, 41, 42, 43, 44, 45, 46, 47],
            [43, 47],
            [8, 8, 8],
        ),
        (
            {"callbacks": [Scheduled()], "limit_train_batches": 24, "max_epochs": 3},
            [24, 25, 26, 27, 28, 29, 30, 31],
            [27, 31],
            [6, 6, 6],
        ),
    ],
)
def test_blocks_and_windows_are_whole_optimizer_updates(
    tmp_path: Path, options: dict[str, Any], recorded: list[int], updates: list[int], blocks: list[int]
) -> None:
    fit(tmp_path, batches=200, options=options, analyze=False)
    ours = only(tmp_path)["hpuprof"]
    assert (ours["steps"], ours["steps_with_update"]) == (recorded, updates)
    assert ours["unprofiled"]["steps_per_block"] == blocks
    assert ours["accumulate_grad_batches"] == options.get("accumulate_grad_batches", 4)


def test_a_loop_of_unknown_length_that_ends_early_leaves_its_last_step(tmp_path: Path) -> None:
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self) -> Any:
            return iter(torch.zeros(24, 4))

    with pytest.warns(UserWarning, match="ends before any window began; recording only its last step"):
        trainer(HPUProfiler(tmp_path, analyze=False), tmp_path, 1.0).fit(
            Tiny(), torch.utils.data.DataLoader(Stream(), batch_size=2)
        )
    assert (only(tmp_path)["hpuprof"]["steps"], only(tmp_path)["hpuprof"]["complete"]) == ([11], True)


@pytest.mark.parametrize("batches", [True, 2])
def test_a_fast_run_is_recorded(tmp_path: Path, batches: bool | int) -> None:
    with pytest.warns(UserWarning, match="without wait"):
        fit(tmp_path, options={"fast_dev_run": batches}, analyze=False)
    found = [read(path)["hpuprof"] for path in files(tmp_path)]
    last = int(batches) - 1
    assert sorted((f["action"], f["steps"]) for f in found) == [("training_step", [last]), ("validation_step", [last])]


def test_manual_optimization_and_two_epochs(tmp_path: Path) -> None:
    class Manual(Tiny):
        automatic_optimization = False

        def training_step(self, batch: Any, batch_idx: int) -> None:
            optimizer = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(self.layer(batch).mean())
            optimizer.step()

    fit(tmp_path, batches=3, module=Manual(), **SHORT | {"active": 4}, options={"max_epochs": 2})
    trace = only(tmp_path)
    assert [n for n, _, _ in steps(trace)] == [1, 2, 3, 4]
    assert [sum(s <= a and b <= e for _, a, b in spans(trace, "Optimizer.step#")) for _, s, e in steps(trace)] == [
        1
    ] * 4


def test_compiled_modules(tmp_path: Path) -> None:
    module = Tiny()
    module.layer = torch.compile(module.layer, backend="eager")  # type: ignore[assignment]
    fit(tmp_path, module=module, **SHORT)
    assert only(tmp_path)["hpuprof"]["mode"] == "compile"
    assert len(steps(only(tmp_path))) == 2


@pytest.mark.parametrize(
    ("stage", "action"), [("validate", "validation_step"), ("test", "test_step"), ("predict", "predict_step")]
)
def test_other_stages(tmp_path: Path, stage: str, action: str) -> None:
    profiler = HPUProfiler(tmp_path)
    loop = trainer(profiler, tmp_path, limit_val_batches=25, limit_test_batches=25, limit_predict_batches=25)
    getattr(loop, stage)(
        Tiny(), loader(), **({"return_predictions": False} if stage == "predict" else {"verbose": False})
    )
    trace = only(tmp_path)
    assert files(tmp_path)[0].parent.name == f"hpuprof-{stage}-{action}-0-async"
    assert (trace["hpuprof"]["stage"], trace["hpuprof"]["action"]) == (stage, action)
    assert [n for n, _, _ in steps(trace)] == [17, 18, 19, 20, 21, 22]
    rows = spans(trace, f"[pl][profile][Strategy]SingleDeviceStrategy.{action}")
    assert [sum(s <= a and b <= e for _, a, b in rows) for _, s, e in steps(trace)] == [1] * 6
    assert len(trace["hpuprof"]["unprofiled"]["blocks_ns"]) == 3


def test_only_some_ranks(tmp_path: Path) -> None:
    fit(tmp_path, **SHORT, ranks=[3], slow_step_factor=1.01)
    assert files(tmp_path) == []
    fit(tmp_path, **SHORT, ranks=[0, 3])
    assert len(files(tmp_path)) == 1


def test_a_slow_step_starts_a_window(tmp_path: Path, clock: SimpleNamespace) -> None:
    class Slow(Tiny):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            clock.ns += 1000 if batch_idx == 20 else 5
            return super().training_step(batch, batch_idx)

    fit(tmp_path, batches=40, module=Slow(), **SHORT, slow_step_factor=40.0, slow_step_floor_ms=0)
    first, second = (read(p)["hpuprof"] for p in files(tmp_path))
    assert first["steps"] == [1, 2]
    assert second["steps"] == [22, 23]


def test_slow_steps_do_not_feed_on_their_own_windows(tmp_path: Path, clock: SimpleNamespace) -> None:
    class Slow(Tiny):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            clock.ns += 1000 if batch_idx == 48 else 10 if torch.autograd._profiler_enabled() else 5
            return super().training_step(batch, batch_idx)

    fit(tmp_path, batches=96, module=Slow(), **SHORT | {"active": 30}, slow_step_factor=40.0, slow_step_floor_ms=0)
    assert len(files(tmp_path)) == 2


def test_a_schedule_and_an_exporter_of_the_users_own(tmp_path: Path) -> None:
    seen = []
    schedule = torch.profiler.schedule(wait=2, warmup=1, active=2, repeat=2)
    fit(tmp_path, schedule=schedule, on_trace_ready=lambda profile: seen.append(profile.step_num), analyze=False)
    assert len(seen) == 2
    assert files(tmp_path) == []
    fit(tmp_path, schedule=schedule, analyze=False)
    assert [read(p)["hpuprof"]["steps"] for p in files(tmp_path)] == [[3, 4], [8, 9]]


def test_a_schedule_that_never_records_says_so(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="had not recorded a step yet"):
        fit(tmp_path, schedule=torch.profiler.schedule(wait=2, warmup=100, active=1), analyze=False)


def test_without_export_only_times_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    profiler, module = fit(tmp_path, export_to_chrome=False)
    assert files(tmp_path) == []
    assert module.recording == [False] * 25
    assert "Without the profiler a step takes" in profiler.summary()
    assert "Without the profiler a step takes" in capsys.readouterr().out


def test_uncompressed(tmp_path: Path) -> None:
    fit(tmp_path, **SHORT, compress=False, filename="perf-logs")
    (path,) = files(tmp_path)
    assert path.name.endswith(".pt.trace.json")
    assert path.parent.name == "perf-logs-fit-training_step-0-async"
    text = path.read_text(encoding="utf-8")
    assert "]" not in text[text.rindex("]") + 1 :]
    assert "traceName" in text[: text.index('"traceEvents"')], "nothing stands behind the events"


def test_shapes_stacks_memory_and_modules(tmp_path: Path) -> None:
    fit(
        tmp_path,
        **SHORT,
        record_shapes=True,
        with_stack=True,
        profile_memory=True,
        with_flops=True,
        with_modules=True,
        group_by_input_shapes=True,
    )
    trace = only(tmp_path)
    assert any("Input Dims" in e.get("args", {}) for e in trace["traceEvents"])
    assert any(e.get("cat") == "python_function" for e in trace["traceEvents"])
    assert any(e.get("name") == "[memory]" for e in trace["traceEvents"])


class Actions(Tiny):
    """Marks its own parts: nested, of the same name, unbalanced, and from another thread."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        import threading

        profiler = self.trainer.profiler
        with profiler.profile("outer"), profiler.profile("same"), profiler.profile("same"):
            loss = super().training_step(batch, batch_idx)
        profiler.start("granular")
        profiler.stop("granular")
        profiler.stop("never started")
        profiler.start("never stopped")

        def work() -> None:
            for _ in range(20):
                with profiler.profile("outer"), profiler.profile("threaded"):
                    pass

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return loss


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_actions_of_the_users_own(tmp_path: Path, kind: str) -> None:
    fit(tmp_path, module=Actions(), **SHORT, asynchronous=kind == "async")
    trace = only(tmp_path)
    (_, start, end), _ = steps(trace)
    (outer, *_), (a, b, *_) = (
        [r for r in spans(trace, f"[pl][profile]{name}") if start <= r[1] <= end] for name in ("outer", "same")
    )
    assert outer[1] <= a[1] <= b[1] <= b[2] <= a[2] <= outer[2]
    assert len(spans(trace, "[pl][profile]granular")) == 2
    assert len(spans(trace, "[pl][profile]never stopped")) == 2
    assert spans(trace, "[pl][profile]never started") == []
    threaded = spans(trace, "[pl][profile]threaded")  # 3 threads, 20 times, in each of two steps
    assert len(threaded) == 120
    assert all(any(s <= a <= b <= e for _, s, e in steps(trace)) for _, a, b in threaded)
    assert trace["hpuprof"]["actions_of_other_threads"] == {"kept": 240, "lost": 0}


class Drained(Device):
    """A CPU that passes for a device and counts how often it is drained."""

    log: ClassVar[list[bool]] = []

    def drain(self) -> None:
        self.log.append(torch.autograd._profiler_enabled())


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    Drained.log = []
    monkeypatch.setattr(engine_module, "find_device", lambda: Drained("xpu"))
    return Drained.log


def test_both_windows(tmp_path: Path, device: list[bool]) -> None:
    fit(tmp_path, batches=30, active=2, analyze=False)
    traces = [read(p)["hpuprof"] for p in files(tmp_path)]
    assert [(t["window"], t["steps"]) for t in traces] == [("0-async", [17, 18]), ("0-sync", [20, 21])]
    assert [p.parent.name for p in files(tmp_path)] == [
        "hpuprof-fit-training_step-0-async",
        "hpuprof-fit-training_step-0-sync",
    ]
    assert device[:6] == [False] * 6  # both ends of three blocks, and no more until the synchronous window
    assert device.count(True) > 50  # the borders of actions in the synchronous window
    assert hpuprof.analyze(tmp_path).headline.sentence


@pytest.mark.parametrize("batches", [25, 20])
def test_the_asynchronous_window_is_drained_after_its_last_step_only(
    tmp_path: Path, device: list[bool], batches: int
) -> None:
    fit(tmp_path, batches=batches, synchronous=False, analyze=False)
    assert device == [False] * 6 + [True]
    assert len(steps(only(tmp_path))) == 6


def test_max_windows_counts_both_kinds(tmp_path: Path, device: list[bool]) -> None:
    fit(tmp_path, **SHORT, max_windows=1)
    assert [read(p)["hpuprof"]["window"] for p in files(tmp_path)] == ["0-async"]


def test_a_device_that_cannot_be_recorded_is_said_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warn, "_warned", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(tmp_path, **SHORT, activities=["hpu"], repeat=2)
    told = [str(w.message) for w in caught if "hpuprof" in str(w.message)]
    assert told == ["hpuprof: cannot record hpu here; the trace will contain CPU rows only"]
    assert len(files(tmp_path)) == 2


def test_no_accelerator_is_said_once_unless_the_cpu_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warn, "_warned", set())
    with pytest.warns(UserWarning, match="no accelerator is available; the trace will contain CPU rows only"):
        fit(tmp_path, **SHORT)
    monkeypatch.setattr(warn, "_warned", set())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(tmp_path, **SHORT, activities=["cpu"])
    assert not [w for w in caught if "hpuprof" in str(w.message)]


def test_one_instance_many_times(tmp_path: Path) -> None:
    profiler = HPUProfiler(**SHORT)
    for name in ("a", "b", "b"):
        trainer(profiler, tmp_path / name).fit(Tiny(), loader())
    assert [str(p.parent.relative_to(tmp_path)) for p in files(tmp_path)] == [
        "a/hpuprof-fit-training_step-0-async",
        "b/hpuprof-fit-training_step-0-async",
        "b/hpuprof-fit-training_step-0-async-2",
    ]
    trainer(profiler, tmp_path / "c", limit_test_batches=10).test(Tiny(), loader(), verbose=False)
    assert [p.parent.name for p in files(tmp_path / "c")] == ["hpuprof-test-test_step-0-async"]
    assert "step time" in profiler.summary()


def test_the_answer_names_this_run_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        fit(tmp_path, **SHORT | {"analyze": True})
    first, second = re.findall(r"More: hpuprof analyze (.*)", capsys.readouterr().out)
    assert first == str(tmp_path)
    assert second == f"{tmp_path}/hpuprof-fit-training_step-0-async-2"


def test_large_traces_are_answered_for_by_one_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from hpuprof.recorder import end_of_fit

    monkeypatch.setattr(end_of_fit, "ANSWER_BYTES", 100)
    fit(tmp_path, **SHORT | {"analyze": True})
    out = capsys.readouterr().out
    assert "hpuprof: CPU-only recording: the step is" in out
    assert "covers rank" not in out  # there is only one


def test_default_directory_and_logger(tmp_path: Path) -> None:
    from lightning.pytorch.loggers import CSVLogger

    profiler = HPUProfiler()
    logger = CSVLogger(tmp_path, name="runs")
    trainer(profiler, tmp_path, logger=logger, log_every_n_steps=100).fit(Tiny(), loader())
    (path,) = files(tmp_path)
    assert path.parent.parent == Path(logger.log_dir)
    header = (Path(logger.log_dir) / "metrics.csv").read_text(encoding="utf-8").splitlines()[0].split(",")
    assert {
        "hpuprof/step_time_p50_ns",
        "hpuprof/unprofiled_step_time_ns",
        "hpuprof/host_blocked_fraction",
        "hpuprof/run_step_p50_ns",
        "hpuprof/run_input_fraction",
    } <= set(header)


@pytest.mark.parametrize("plain", [True, False])
def test_one_flat_directory_if_asked_for(tmp_path: Path, plain: bool) -> None:
    ours = tmp_path / "traces"
    for batches in (25, 30):  # a second run into the same directory
        trainer(
            HPUProfiler(ours, flat=True, compress=not plain, analyze=False), tmp_path, limit_train_batches=batches
        ).fit(Tiny(), loader())
    traces = sorted(path for path in ours.iterdir() if path.suffix != ".steps")
    assert len(traces) == 2
    ending = ".pt.trace.json" if plain else ".pt.trace.json.gz"
    assert all(path.is_file() and path.name.endswith(ending) for path in traces)
    data = hpuprof.analyze(ours, cache="off").data
    assert data.answer.base.source == "unprofiled"
    assert len(data.files) == 1, "of the newest run"
    assert "HP127" in {row.code for row in data.diagnostics}


def test_describe_and_summary(tmp_path: Path) -> None:
    profiler, _ = fit(tmp_path, filename="perf", **SHORT)
    text = (tmp_path / "fit-perf.txt").read_text(encoding="utf-8")
    assert text == profiler.summary()
    assert "aten::addmm" in text
    assert "step time, median" in text


def test_used_by_hand(tmp_path: Path) -> None:
    profiler = HPUProfiler(tmp_path, **SHORT)
    profiler.setup("fit", local_rank=None, log_dir=str(tmp_path))
    for _ in range(4):
        with profiler.profile("run_training_batch"):
            torch.ones(2).add(1)
    profiler.describe()
    profiler.teardown("fit")
    assert only(tmp_path)["hpuprof"]["steps"] == [1, 2]


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()])
@pytest.mark.parametrize("callbacks", [False, True])
def test_an_error_in_training(tmp_path: Path, error: BaseException, callbacks: bool) -> None:
    class Fails(Tiny):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 3:
                raise error
            return super().training_step(batch, batch_idx)

    expected = SystemExit if isinstance(error, KeyboardInterrupt) else RuntimeError
    module = Fails()
    profiler = HPUProfiler(tmp_path, **SHORT | {"active": 9}, record_module_names=True)
    with pytest.warns(UserWarning, match="cut short after 3 step"), pytest.raises(expected):
        trainer(profiler, tmp_path, callbacks=[pl.Callback()] if callbacks else None).fit(module, loader())
    assert (only(tmp_path)["hpuprof"]["steps"], only(tmp_path)["hpuprof"]["complete"]) == ([1, 2, 3], False)
    assert not torch.autograd._profiler_enabled()
    assert not module.layer._forward_hooks
    assert profiler._current is None


def test_an_error_in_the_last_step_of_a_window_is_no_whole_window(tmp_path: Path) -> None:
    class Fails(Tiny):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 2:
                raise ValueError("mine")
            return super().training_step(batch, batch_idx)

    with pytest.warns(UserWarning, match="cut short after 2 step"), pytest.raises(ValueError, match="mine"):
        fit(tmp_path, module=Fails(), **SHORT)
    assert (only(tmp_path)["hpuprof"]["steps"], only(tmp_path)["hpuprof"]["complete"]) == ([1, 2], False)


def test_an_error_in_a_prediction(tmp_path: Path) -> None:
    class Fails(Tiny):
        def predict_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 3:
                raise RuntimeError("boom")
            return super().predict_step(batch, batch_idx)

    with (
        pytest.warns(UserWarning, match="predict_step loop of predict ended during"),
        pytest.raises(RuntimeError, match="boom"),
    ):
        trainer(HPUProfiler(tmp_path, **SHORT | {"active": 9}), tmp_path).predict(Fails(), loader())
    assert not torch.autograd._profiler_enabled()
    assert len(files(tmp_path)) == 1


def gives_up(tmp_path: Path, match: str, **arguments: Any) -> Tiny:
    """Fit with a recorder that fails: one warning, and the training completes."""
    module = Tiny()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fit(
            arguments.pop("root", tmp_path),
            module=module,
            options={"default_root_dir": tmp_path},
            **{**SHORT, "repeat": 3, **arguments},
        )
    told = [str(w.message) for w in caught if "hpuprof" in str(w.message) and "no accelerator" not in str(w.message)]
    assert len(told) == 1
    assert re.search(match, told[0])
    assert len(module.recording) == 25
    assert module.recording[-1] is False
    assert not torch.autograd._profiler_enabled()
    assert not module.layer._forward_hooks
    return module


def test_an_export_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any, path: str) -> None:
        raise RuntimeError("no export today")

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", fails)
    gives_up(tmp_path, "stopped recording; training continues: RuntimeError: no export today", record_module_names=True)


def test_a_profiler_that_cannot_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Any) -> None:
        raise RuntimeError("no start today")

    monkeypatch.setattr(torch.profiler.profile, "start", fails)
    gives_up(tmp_path, "no start today")


def test_an_exporter_of_the_user_that_fails(tmp_path: Path) -> None:
    def fails(profile: Any) -> None:
        raise ValueError("not mine")

    gives_up(tmp_path, "ValueError: not mine", on_trace_ready=fails)


@pytest.mark.parametrize("place", ["file", "no-such-protocol://bucket/traces"])
def test_what_cannot_be_written_is_found_before_the_window_and_the_files_go_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    profiler = HPUProfiler(place, **SHORT)
    named = inspect.currentframe().f_lineno - 1  # type: ignore[union-attr]
    with pytest.warns(RuntimeWarning, match="cannot be written.*traces go to .*hpuprof-traces instead") as caught:
        trainer(profiler, tmp_path).fit(Tiny(), loader())
    assert [w.lineno for w in caught if "traces go to" in str(w.message)] == [named]
    assert only(tmp_path / "hpuprof-traces")["hpuprof"]["steps"] == [1, 2]


def test_a_directory_that_goes_away_before_the_window_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(Tiny):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            if batch_idx == 1:
                shutil.rmtree(tmp_path / "traces")
                (tmp_path / "traces").write_text("", encoding="utf-8")
            return super().training_step(batch, batch_idx)

    monkeypatch.chdir(tmp_path)
    with pytest.warns(
        RuntimeWarning, match="could not be written.*the trace was written to .*hpuprof-traces.* instead"
    ):
        fit(tmp_path / "traces", module=Breaks(), options={"default_root_dir": tmp_path}, **SHORT)
    assert only(tmp_path / "hpuprof-traces")["hpuprof"]["complete"] is True


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.chdir(tmp_path)

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        gives_up(tmp_path, "cut short|could not be written|export", root=tmp_path / "full")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(tmp_path) == []


def test_warnings_point_at_the_users_line(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="has 3 steps") as caught:
        fit(tmp_path, batches=3, analyze=False)
    assert {Path(w.filename).name for w in caught if "hpuprof" in str(w.message)} == {"fits.py"}


def test_an_error_of_our_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hpuprof.recorder.lightning.steps_left", lambda trainer, action: 1 / 0)
    gives_up(tmp_path, "ZeroDivisionError")


def test_an_answer_that_fails_does_not_fail_the_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import hpuprof.api

    def fails(*_: Any, **__: Any) -> None:
        raise KeyError("odd trace")

    monkeypatch.setattr(hpuprof.api, "analyze", fails)
    with pytest.warns(UserWarning, match="could not analyze"), pytest.warns(UserWarning, match="could not describe"):
        fit(tmp_path, filename="perf", **SHORT | {"analyze": True})


def test_a_file_for_the_summary_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "fit-perf.txt").mkdir()
    with pytest.warns(UserWarning, match="could not describe"):
        fit(tmp_path, filename="perf", **SHORT)


def test_wrong_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, hint in (
        ({"wiat": 1}, "did you mean 'wait'?"),
        ({"record_shape": True}, "did you mean 'record_shapes'?"),
        ({"sort_by": "x"}, "did you mean 'sort_by_key'?"),
        ({"sort_by_key": "time"}, "cpu_time_total"),
        ({"schedule": 3}, "wait, warmup, active"),
        ({"ranks": 3}, "[0, 7]"),
        ({"active": 0}, "1 or more"),
        ({"activities": ["gpu"]}, "hpu"),
        ({"activities": 5}, "hpu"),
        ({"row_limit": "x"}, "whole number"),
        ({"dirpath": 5}, "directory or URL"),
        ({"filename": 5}, "run directories"),
        ({"filename": "../../esc"}, "dirpath sets the place"),
        ({"filename": "/esc"}, "dirpath sets the place"),
        ({"compress": "no"}, "True or False"),
        ({"record_shapes": "yes"}, "True or False"),
        ({"analyze": 1}, "True or False"),
        ({"on_trace_ready": "print"}, "takes a torch profiler"),
    ):
        with pytest.raises(ConfigError) as error:
            HPUProfiler(**arguments)  # type: ignore[arg-type]
        assert hint in error.value.hint
    for key in ("hpu_time_total", "self_cpu_time_total"):
        assert HPUProfiler(sort_by_key=key)._sort_by_key == key
    monkeypatch.setenv("HABANA_PROFILE", "1")
    with pytest.raises(ConfigError, match="HABANA_PROFILE=1") as error:
        HPUProfiler()
    assert "unset HABANA_PROFILE" in error.value.hint


def test_urls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fsspec = needs.module("remote", "fsspec", "URLs need fsspec")
    profiler = HPUProfiler(f"memory://{tmp_path.name}/traces", **SHORT | {"analyze": True})
    trainer(profiler, tmp_path).fit(Tiny(), loader())
    assert len(fsspec.filesystem("memory").glob(f"/{tmp_path.name}/traces/*/*.pt.trace.json.gz")) == 1
    assert "wrote 1 traces: memory://" in profiler.summary()
    assert "The traces are in memory://" in capsys.readouterr().out


def test_pickled(tmp_path: Path) -> None:
    import pickle

    profiler, _ = fit(tmp_path, **SHORT)
    again = pickle.loads(pickle.dumps(profiler))
    trainer(again, tmp_path / "again").fit(Tiny(), loader())
    assert len(files(tmp_path)) == 2
    own = HPUProfiler(schedule=torch.profiler.schedule(wait=1, warmup=1, active=1))
    with pytest.warns(UserWarning, match="schedule cannot be sent to another process"):
        assert pickle.loads(pickle.dumps(own))._user_schedule is None


def test_overhead_after_the_last_window_is_small(tmp_path: Path) -> None:
    class Timed(Tiny):
        def __init__(self) -> None:
            super().__init__()
            self.at: list[float] = []

        def on_train_batch_start(self, *args: Any) -> None:
            self.at.append(time.thread_time())

    def tail(profiler: Any, name: str) -> float:
        module = Timed()
        trainer(profiler, tmp_path / name, 60).fit(module, loader())
        return statistics.median(b - a for a, b in pairwise(module.at[10:]))

    # Each beside one without, as other tests come and go.
    pairs = [(tail(None, f"bare{i}"), tail(HPUProfiler(tmp_path / f"t{i}", **SHORT), f"ours{i}")) for i in range(3)]
    bare, ours = map(min, zip(*pairs, strict=True))
    assert ours < bare * 2 + 200e-6, pairs


def test_row_limit_cuts_the_tables_of_the_summary(tmp_path: Path) -> None:
    def operators(row_limit: int) -> int:
        profiler, _ = fit(tmp_path / str(row_limit), **SHORT, row_limit=row_limit)
        table = profiler.summary().split("\nOperators")[1].split("\n\n")[0]
        return len(table.splitlines()) - 2  # title and header

    assert operators(2) == 2
    assert operators(-1) > 20
