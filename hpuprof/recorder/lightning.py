"""`HPUProfiler`: the recorder as Lightning's profiler.

Overrides Lightning's public hooks: setup, start, stop, summary, teardown.
"""

from __future__ import annotations

import os
import pickle
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Any

from hpuprof.errors import ConfigError
from hpuprof.recorder import end_of_fit
from hpuprof.recorder.action_log import ActionLog
from hpuprof.recorder.compatible import (
    METRICS,
    SORT_KEYS,
    MisconfiguredError,
    TorchEvents,
    check_table_kwargs,
    lightning_classes,
    refuse_elsewhere,
    write_flame_graph,
)
from hpuprof.recorder.config import (
    RecordConfig,
    activity_names,
    check_flags,
    check_number,
    check_on_trace_ready,
    check_place,
    check_schedule,
    rank_numbers,
    refuse_habana_profile,
    refuse_unknown,
)
from hpuprof.recorder.engine import Engine
from hpuprof.recorder.lookahead import TRAINING, EvaluationOutlook, TrainingOutlook, steps_left, tuner
from hpuprof.recorder.metadata import Who
from hpuprof.recorder.plain import rank_and_world
from hpuprof.recorder.torch_options import TorchOptions
from hpuprof.recorder.warn import tell, users_line
from hpuprof.recorder.windows import Outlook

PREFIX = "[pl][profile]"
_EVAL_STEP = re.compile(r"\[Strategy\]\w+\.(validation|test|predict)_step$")
_LOOP_END = re.compile(r"\.on_(train|validation|test|predict)_end$")
_LOOPS = {"validate": "validation", "test": "test", "predict": "predict"}
_FLAGS = (
    "group_by_input_shapes",
    "export_to_chrome",
    "record_module_names",
    "analyze",
    "export_to_flame_graph",
    "acc_events",
    "use_hpu",
)
_BY_HAND = "by hand"
_TRAINERS_OWN = ("run_training_epoch", "run_training_batch", "optimizer_step", "save_checkpoint")

_Base: Any = lightning_classes("profilers.pytorch", "PyTorchProfiler")


class HPUProfiler(*_Base):  # type: ignore[misc]
    """Record synchronous and asynchronous host-and-device traces of a Lightning run, one file per rank and window.

    The first eight arguments are those of lightning-habana's HPUProfiler. A `schedule` (a callable) replaces the whole
    plan, which by default is: wait, `baseline_blocks` blocks of `baseline_steps` unprofiled steps, then one window of
    `active` steps for each of `asynchronous` and `synchronous`, each after `warmup` steps; `repeat` times.

    Args:
        dirpath: directory or fsspec URL; default: the trainer's log directory.
        filename: prefix of run directories; default `hpuprof`. If given, `describe()` writes the summary to a file of
            this name.
        group_by_input_shapes: group torch's table of operators (see `table_kwargs`) by input shapes too, if
            `record_shapes` is on.
        export_to_chrome: write trace files; if off and without `on_trace_ready`, only time unprofiled steps.
        row_limit: rows of the tables of names in `summary()`; -1 for all.
        sort_by_key: sort key of torch's table of operators, one of AVAILABLE_SORT_KEYS.
        record_module_names: name the modules in the trace, only while a window records.
        schedule: callable from step to ProfilerAction, as `torch.profiler.schedule` returns.
        on_trace_ready: called with the torch profiler instead of writing our file.
        activities: names (`cpu`, `hpu`, `cuda`, `xpu`) or ProfilerActivity members; default: CPU and the accelerator
            present.
        analyze: print the answer on rank 0 at the end of a stage, and log headline metrics of a fit.
        table_kwargs: options of torch's own table of operators. `summary()` appends it when this, `sort_by_key` or
            `group_by_input_shapes` is given.
        export_to_flame_graph: write python stacks next to each trace, `….stacks`, for flamegraph.pl. Turns `with_stack`
            on.
        metric: weight of the stacks, one of METRICS [µs].
        acc_events: `function_events` and torch's table cover all windows of the stage, which stay in memory, instead
            of the last.
        use_hpu: record CPU and HPU, and sort torch's table by HPU time.
        flat: write all traces into `dirpath` itself, as PyTorchProfiler does, not into a directory for each window.
        experimental_config: options for torch's `_ExperimentalConfig`, as a dict or as that object.
        execution_trace_observer: torch's ExecutionTraceObserver, started and stopped with each window.

    The other arguments are those of `RecordConfig`. Raises ConfigError for wrong or unknown arguments and for
    `HABANA_PROFILE=1`. Errors while training only warn and end the recording.

    Outside a Trainer the first action begins a recording, which `describe()`, `summary()` or `teardown()` ends: one
    stretch without steps, written as a trace if there is a `dirpath`.
    """

    AVAILABLE_SORT_KEYS = _Base[0].AVAILABLE_SORT_KEYS | SORT_KEYS
    METRICS = METRICS

    def __init__(
        self,
        dirpath: str | os.PathLike[str] | None = None,
        filename: str | None = None,
        group_by_input_shapes: bool = False,
        export_to_chrome: bool = True,
        row_limit: int = 20,
        sort_by_key: str | None = None,
        record_module_names: bool = False,
        schedule: Callable[[int], Any] | None = None,
        on_trace_ready: Callable[[Any], None] | None = None,
        activities: Sequence[Any] | None = None,
        record_shapes: bool = False,
        with_stack: bool = False,
        profile_memory: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        wait: int = 1,
        warmup: int = 1,
        active: int = 6,
        repeat: int = 1,
        skip_first: int = 0,
        baseline_steps: int = 5,
        baseline_blocks: int = 3,
        asynchronous: bool = True,
        synchronous: bool = True,
        every_n_steps: int | None = None,
        max_windows: int | None = None,
        slow_step_factor: float | None = None,
        slow_step_floor_ms: float = 20.0,
        on_demand: bool = True,
        trigger_signal: str | None = None,
        hang_seconds: float | None = 300.0,
        ranks: list[int] | None = None,
        compress: bool = True,
        memory_counters: bool = True,
        tensorboard: bool = True,
        flat: bool = False,
        step_log: bool = True,
        analyze: bool = True,
        table_kwargs: dict[str, Any] | None = None,
        export_to_flame_graph: bool = False,
        metric: str = "self_cpu_time_total",
        acc_events: bool | None = False,
        use_hpu: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        **profiler_kwargs: Any,
    ) -> None:
        if acc_events is None:
            acc_events = False  # torch's profiler takes None as well
        given = locals()
        self._given_at = users_line()
        super().__init__(
            dirpath=dirpath,
            filename=filename,
            export_to_chrome=export_to_chrome,
            row_limit=row_limit,
            record_module_names=record_module_names,
        )
        self._engines: dict[str, Engine] = {}
        self._current: Engine | None = None
        self._log: ActionLog | None = None
        self._off = False  # after an error outside any engine
        self._routes: dict[str, Callable[[], None] | None] = {}  # by action
        self._said = False
        self._given_dirpath = dirpath
        self._torch_options = TorchOptions(experimental_config, execution_trace_observer, verbose=export_to_flame_graph)
        # Lightning calls `teardown()` even if a check below raises; it needs only the above.
        refuse_elsewhere(profiler_kwargs)
        refuse_unknown(
            profiler_kwargs,
            [name for name in given if name not in ("self", "profiler_kwargs", "__class__")],
            who="HPUProfiler",
        )
        refuse_habana_profile()
        check_place(dirpath, filename, what="filename")
        check_number("row_limit", row_limit, -1)
        check_flags({name: given[name] for name in _FLAGS})
        if sort_by_key is not None and sort_by_key not in sorted(self.AVAILABLE_SORT_KEYS):  # a list cannot be hashed
            raise MisconfiguredError(
                f"sort_by_key is {sort_by_key!r}", hint=f"one of {', '.join(sorted(self.AVAILABLE_SORT_KEYS))}"
            )
        if metric not in METRICS:
            raise ConfigError(f"metric is {metric!r}", hint=f"one of {', '.join(METRICS)}")
        check_schedule(schedule, MisconfiguredError)
        check_on_trace_ready(on_trace_ready)
        check_table_kwargs(table_kwargs)
        self._torch_options.check()
        if use_hpu and activities is None:
            activities = ("cpu", "hpu")
        options: dict[str, Any] = {f.name: given[f.name] for f in fields(RecordConfig)}
        options |= {"activities": activity_names(activities), "ranks": rank_numbers(ranks)}
        options["with_stack"] = with_stack or export_to_flame_graph
        self._config = RecordConfig(**options)
        self._events = TorchEvents(accumulate=acc_events)
        self._answers = end_of_fit.Answers()
        self._sort_by_key = sort_by_key or f"{'hpu' if use_hpu else 'cpu'}_time_total"
        self._group_by_input_shapes = group_by_input_shapes and record_shapes
        self._export_to_flame_graph = export_to_flame_graph
        self._metric = metric
        self._table_kwargs = table_kwargs or {}
        self._table_wanted = table_kwargs is not None or sort_by_key is not None or self._group_by_input_shapes
        self._user_schedule = schedule
        self._user_on_trace_ready = on_trace_ready
        self._analyze = analyze

    # ------------------------------------------------------------------------------------------------ Lightning's hooks

    def setup(self, stage: Any, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """Begin a stage (fit, validate, test, predict): forget the recordings of the stage before."""
        self._finish()
        self._engines, self._off, self._said = {}, False, False
        self._events.clear()
        self._answers = end_of_fit.Answers()
        self.dirpath = self._given_dirpath  # each trainer has its own log directory
        super().setup(stage=getattr(stage, "value", stage), local_rank=local_rank, log_dir=log_dir)

    def start(self, action_name: str) -> None:
        """Begin an action; the start of a batch begins a step."""
        if self._off:
            return
        try:
            route = self._routes[action_name]
        except KeyError:
            route = self._routes[action_name] = self._route(action_name)
        if route is not None:
            try:
                route()
            except Exception as error:  # noqa: BLE001  a recorder must not stop a training run
                self._off, self._current = True, None
                self._finish()
                tell(f"hpuprof stopped recording; training continues: {type(error).__name__}: {error}", RuntimeWarning)
        current, log = self._current, self._log  # other threads' actions come here too
        if log is not None:
            log.enter(action_name)
        if current is not None and current.marking:
            current.enter(PREFIX + action_name)

    def stop(self, action_name: str) -> None:
        """End an action; one that was never started is ignored."""
        current, log = self._current, self._log
        if current is not None and current.marking:
            current.leave(PREFIX + action_name)
        if log is not None:
            log.leave(action_name)
        if action_name.endswith(".on_fit_end") and action_name.startswith("[LightningModule]"):
            self._answer()  # now, while the loggers still write

    @contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        """Record the block as an action. An error that ends a loop also ends and saves its recording."""
        self.start(action_name)
        try:
            yield action_name
        except StopIteration:
            raise  # ends a loop that fetches its own batches
        except BaseException:
            if action_name == "run_training_epoch" or _EVAL_STEP.match(action_name):
                self._finish(failed=True)
            raise
        finally:
            self.stop(action_name)

    @property
    def function_events(self) -> Any:
        """Torch's `EventList` of the last window, or of all windows of the stage with `acc_events`; built on request.

        None when nothing was recorded. Discarded when the next window ends or the next stage begins.
        """
        return self._events.events

    @function_events.setter
    def function_events(self, _: Any) -> None:
        """Accept what Lightning's own constructor sets; there are no events yet."""

    def summary(self) -> str:
        """Return what `hpuprof analyze` says about the stage's files, including host and device time per operator.

        Rank 0 covers the files of all ranks, the others their own. torch's own table of operators follows if requested,
        and outside a Trainer.
        """
        by_hand = self._engines.get(_BY_HAND)
        if by_hand is not None:
            self._finish()
        parts = [end_of_fit.summary(self._answers, list(self._engines.values()), rows=self._row_limit)]
        if self._table_wanted or by_hand is not None:
            parts.append(
                self._events.table(
                    sort_by=self._sort_by_key,
                    row_limit=self._row_limit,
                    by_shape=self._group_by_input_shapes,
                    options=self._table_kwargs,
                )
            )
        return "\n".join(part for part in parts if part)

    def describe(self) -> None:
        """Answer for all ranks, on rank 0, and write the summary to a file if there is a `filename`. Never fails a run.

        Outside a Trainer the summary is logged when there is no file for it.
        """
        self._finish()
        self._answer()
        try:
            if self.filename or self._trainer is None:
                super().describe()
        except Exception as error:  # noqa: BLE001  the run itself succeeded
            tell(f"hpuprof could not describe what it recorded: {error}")
        self.teardown(self._stage)

    def teardown(self, stage: str | None) -> None:
        """End the recording of a stage. The instance can be used again."""
        self._finish()
        cleanup = getattr(self._torch_options.execution_trace_observer, "cleanup", None)
        if cleanup is not None:
            cleanup()  # PyTorchProfiler does; the observer's file is complete only then
        super().teardown(stage=stage)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state |= {
            "_engines": {},
            "_current": None,
            "_routes": {},
            "_log": None,
            "_lightning_module": None,
            "_output_file": None,
            "_write_stream": None,
            "_events": TorchEvents(accumulate=self._events.accumulate),  # torch's events stay in this process
            "_answers": end_of_fit.Answers(),
        }
        # The base class keeps closures of torch's schedule, which cannot be pickled and are unused here.
        state |= {"_schedule": None, "_profiler_kwargs": {}}
        if state["_torch_options"].execution_trace_observer is not None:
            state["_torch_options"] = replace(state["_torch_options"], execution_trace_observer=None)
            tell("execution_trace_observer stays with this profiler; the copy has none")
        for name, otherwise in (
            ("_user_schedule", "wait, warmup, active and repeat"),
            ("_user_on_trace_ready", "hpuprof's own files"),
        ):
            try:
                pickle.dumps(state[name])
            except (pickle.PicklingError, AttributeError, TypeError):
                tell(f"{name.removeprefix('_user_')} cannot be sent to another process, which uses {otherwise} instead")
                state[name] = None
        return state

    # ----------------------------------------------------------------------------------------------------------- inside

    def _route(self, action_name: str) -> Callable[[], None] | None:
        """Return what an action that Lightning begins does to the engines; None, for most, is nothing."""
        if action_name == "run_training_batch":
            return partial(self._begin_step, TRAINING)
        if match := _EVAL_STEP.match(action_name):
            return partial(self._begin_evaluation_step, f"{match[1]}_step")
        if match := _LOOP_END.search(action_name):
            return partial(self._end_loop, match[1])
        if action_name.endswith(".train_dataloader_next"):
            return partial(self._on_training, "resume")
        if action_name.endswith(".on_validation_start"):
            return partial(self._on_training, "pause")
        if action_name.endswith(".on_train_start"):
            return self._forget_tuner
        if action_name.endswith(".on_exception"):
            return partial(self._finish, failed=True)
        if action_name[:1] != "[" and action_name not in _TRAINERS_OWN:
            return self._begin_by_hand
        return None

    def _begin_evaluation_step(self, action: str) -> None:
        if not self._sanity_checking:
            self._begin_step(action)

    def _on_training(self, what: str) -> None:
        """Pause or resume the training loop."""
        engine = self._engines.get(TRAINING)
        if engine is not None:
            getattr(engine, what)()

    def _forget_tuner(self) -> None:
        """Drop the loop of a tuner, run inside the fit before its own."""
        if TRAINING in self._engines and self._engines[TRAINING].finished:
            del self._engines[TRAINING]

    @property
    def _trainer(self) -> Any:
        try:
            return getattr(self._lightning_module, "_trainer", None)
        except ReferenceError:  # Lightning gives a weak reference
            return None

    @property
    def _sanity_checking(self) -> bool:
        return bool(getattr(self._trainer, "sanity_checking", False))

    def _begin_step(self, action: str) -> None:
        engine = self._engines.get(action)
        if engine is None:
            engine = self._engines[action] = self._engine(action)
        logged = self._logged(action)
        if logged and self._log is not None:
            self._log.step(self._number(action), profiled=engine.recording)
        self._follow_step(engine, action)
        if logged:
            self._note(engine)

    def _logged(self, action: str) -> bool:
        """Whether the steps of a loop are logged: those of the stage's own loop."""
        return action == (TRAINING if self._stage == "fit" else f"{_LOOPS.get(self._stage or '')}_step")

    def _note(self, engine: Engine) -> None:
        """Begin the log of steps with the loop's first, in the directory that the engine found usable."""
        if self._log is None and self._config.step_log and self._export_to_chrome and not engine.who.tuner:
            self._log = ActionLog(engine, trains=engine.who.action == TRAINING)
            self._log.step(self._number(engine.who.action))
            engine.step_log = self._log.name
        if self._log is not None and engine.recording:
            self._log.profiled()

    def _follow_step(self, engine: Engine, action: str) -> None:
        if self._current is not engine:
            if engine.finished or (self._current is not None and self._current.recording):
                return  # validation inside an open training window belongs to that window
            self._current = engine
        engine.step(self._number(action))
        if engine.finished and not engine.recording:
            self._current = None

    def _number(self, action: str) -> int | None:
        """Return the number of the current training batch, counted over the whole fit, restarts included."""
        if action != TRAINING:
            return None
        loop = getattr(getattr(self._trainer, "fit_loop", None), "epoch_loop", None)
        count = getattr(loop, "total_batch_idx", None)
        return int(count) if count is not None and count >= 0 else None

    def _begin_by_hand(self) -> None:
        """Begin a recording of actions outside a Trainer, which has no steps."""
        if self._stage is not None or self._current is not None:
            return
        before = self._engines.get(_BY_HAND)
        if self._engines if before is None else not before.finished:
            return  # steps are being followed, or an open action began it
        refused = ""
        if threading.current_thread() is not threading.main_thread():
            refused = (
                "actions outside a Trainer are recorded in the main thread only: torch cannot end them from another"
            )
        elif self._user_schedule is not None:
            refused = "actions outside a Trainer have no steps, so a schedule would record nothing; omit it"
        if refused:
            if not self._said:
                tell(refused)
            self._said = True
            return
        engine = self._engine("")
        engine.whole, engine.windows, engine.schedule = True, True, _one_stretch
        if self._user_on_trace_ready is None and not (self._export_to_chrome and self.dirpath):
            engine.on_trace_ready = _no_file
        self._engines[_BY_HAND] = engine
        engine.step()
        if engine.recording:
            self._current = engine

    def _engine(self, action: str) -> Engine:
        rank, world, local = self._place()
        stage = str(self._stage or "")
        keeps = self._export_to_chrome or self._user_on_trace_ready is not None
        return Engine(
            config=self._config,
            who=Who(rank, world, local, stage, action, "lightning", compiled=self._compiled(), tuner=tuner()),
            dirpath=os.fspath(self.dirpath or "."),
            label=self.filename or "hpuprof",
            schedule=self._user_schedule,
            on_trace_ready=self._user_on_trace_ready,
            available_steps=steps_left(self._trainer, action),
            outlook=self._outlook(action),
            hooks=self._hooks,
            # Validation loops of a fit run between training steps: they contain no block of like steps.
            baseline=action == TRAINING or stage != "fit" or bool(getattr(self._trainer, "fast_dev_run", False)),
            windows=keeps,
            torch_options=self._torch_options,
            given_at=self._given_at,
            on_window=self._window_ended,
        )

    def _window_ended(self, profile: Any, trace: str) -> None:
        self._events.add(profile)
        if self._export_to_flame_graph:
            write_flame_graph(profile, trace, self._metric)

    def _place(self) -> tuple[int, int, int]:
        trainer = self._trainer
        if trainer is None:
            return rank_and_world()
        return int(trainer.global_rank), int(trainer.world_size), int(trainer.local_rank)

    def _compiled(self) -> bool:
        trainer = self._trainer
        module = getattr(trainer, "model", None) if trainer is not None else None
        if module is None:
            return False
        if getattr(getattr(trainer, "lightning_module", None), "_compiler_ctx", None) is not None:
            return True
        return any(type(m).__name__ == "OptimizedModule" for m in module.modules())

    def _outlook(self, action: str) -> Outlook:
        if self._trainer is None:
            return Outlook()
        if action == TRAINING:
            return TrainingOutlook(self._trainer)
        return Outlook() if self._stage == "fit" else EvaluationOutlook(self._trainer, action)

    def _hooks(self) -> AbstractContextManager[Any]:
        from contextlib import nullcontext
        from importlib import import_module

        module = self._lightning_module
        if not self._record_module_names or module is None:
            return nullcontext()
        register: AbstractContextManager[Any] = import_module(_Base[0].__module__).RegisterRecordFunction(module)
        return register

    def _end_loop(self, which: str) -> None:
        action = TRAINING if which == "train" else f"{which}_step"
        engine = self._engines.get(action)
        if engine is None or (which != "train" and not engine.recording and self._stage == "fit"):
            return  # validation loops of a fit run again, but no window spans two of them
        engine.finish()
        if self._log is not None and self._logged(action):
            self._log.finish()
        if self._current is engine:
            self._current = None

    def _finish(self, *, failed: bool = False) -> None:
        self._current = None
        log, self._log = self._log, None
        if log is not None:
            log.finish(failed=failed)
        for engine in self._engines.values():
            engine.finish(failed=failed)

    def _answer(self) -> None:
        """Print the stage's answer once: for the training loop of a fit, else for the only loop."""
        engine = self._engines.get(TRAINING if self._stage == "fit" else f"{_LOOPS.get(self._stage or '')}_step")
        if not self._analyze or self._said or engine is None:
            return
        self._said = True
        self._finish()
        trainer = self._trainer
        fit = self._stage == "fit"  # the loggers of other stages are closed by now
        try:
            end_of_fit.print_answer(
                self._answers,
                engine,
                loggers=list(getattr(trainer, "loggers", None) or []) if fit else [],
                step=int(getattr(trainer, "global_step", 0) or 0),
            )
        except Exception as error:  # noqa: BLE001  the run itself succeeded
            tell(f"hpuprof could not analyze what it recorded: {error}")


def _one_stretch(_: int) -> Any:
    """Record from the first step to the end."""
    from torch.profiler import ProfilerAction

    return ProfilerAction.RECORD_AND_SAVE


def _no_file(_: Any) -> None:
    """Write nothing."""
