"""`HPUProfiler`: the recorder as Lightning's profiler. Overrides through Lightning's public seams: setup, start, stop, summary, teardown."""

from __future__ import annotations

import os
import pickle
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields
from importlib.util import find_spec
from typing import Any

from hpuprof.errors import ConfigError, MissingDependencyError
from hpuprof.recorder import answer
from hpuprof.recorder.config import (
    RecordConfig,
    activity_names,
    check_flags,
    check_number,
    check_place,
    rank_numbers,
    refuse_habana_profile,
    refuse_unknown,
)
from hpuprof.recorder.engine import Engine
from hpuprof.recorder.metadata import Who
from hpuprof.recorder.outlook import EvaluationOutlook, TrainingOutlook, tuner
from hpuprof.recorder.plain import rank_and_world
from hpuprof.recorder.plan import Outlook

PREFIX = "[pl][profile]"
_EVAL_STEP = re.compile(r"\[Strategy\]\w+\.(validation|test|predict)_step$")
_LOOP_END = re.compile(r"\.on_(train|validation|test|predict)_end$")
_TRAINING = "training_step"
_FLAGS = ("group_by_input_shapes", "export_to_chrome", "record_module_names", "analyze")
_SORT_KEYS = {
    "hpu_time",
    "hpu_time_total",
    "self_hpu_time_total",
    "device_time",
    "device_time_total",
    "self_device_time_total",
    "self_cpu_time_total",  # as torch's own tables call them
    "self_cuda_time_total",
    "xpu_time",
    "xpu_time_total",
    "self_xpu_time_total",
    "device_memory_usage",
    "self_device_memory_usage",
}


def _bases() -> tuple[type, ...]:
    """Return the profiler classes of all Lightning packages that are installed, so that the order of imports never matters."""
    from importlib import import_module

    found, errors = [], []
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if find_spec(name.split(".", maxsplit=1)[0]) is None:
            continue
        try:
            found.append(import_module(f"{name}.profilers.pytorch").PyTorchProfiler)
        except ImportError as error:  # such as an old one that needs the pkg_resources of setuptools below 82
            errors.append(f"{name}: {error}")
    if not found:
        what = f" ({'; '.join(errors)})" if errors else ""
        raise MissingDependencyError(
            f"HPUProfiler needs lightning or pytorch_lightning{what}", hint="pip install 'hpuprof[record]'"
        )
    return tuple(found)


_Base: Any = _bases()


class HPUProfiler(*_Base):  # type: ignore[misc]
    """Record synchronous and asynchronous host-and-device traces of a Lightning run, one file per rank and window.

    The first eight arguments are those of lightning-habana's HPUProfiler. `schedule` (a callable) replaces the whole plan of waiting,
    timing and windows; without it the plan is: wait, `baseline_blocks` blocks of `baseline_steps` unprofiled steps, then one window of
    `active` steps for each of `asynchronous` and `synchronous`, each after `warmup` steps; `repeat` times.

    Args:
        dirpath: directory or fsspec URL; default: the trainer's log directory.
        filename: start of the names of run directories; default `hpuprof`.
        group_by_input_shapes: accepted for compatibility; `hpuprof analyze` groups shapes when `record_shapes` is on.
        export_to_chrome: write trace files; off, nothing is recorded and only the unprofiled step times are measured, unless `on_trace_ready` is given.
        row_limit: rows of the tables of names in `summary()`; -1 for all.
        sort_by_key: accepted for compatibility; must be one of AVAILABLE_SORT_KEYS.
        record_module_names: name the modules in the trace, while a window records and no longer.
        schedule: callable from step to ProfilerAction, as `torch.profiler.schedule` returns.
        on_trace_ready: called with the torch profiler instead of writing our file.
        activities: names (`cpu`, `hpu`, `cuda`, `xpu`) or ProfilerActivity members; default: CPU and the accelerator that is there.
        analyze: print the answer on rank 0 at the end of fit, and log headline metrics.

    The other arguments are those of `RecordConfig`. Raises ConfigError for wrong or unknown arguments and for `HABANA_PROFILE=1`.
    Errors while training only warn and end the recording.
    """

    AVAILABLE_SORT_KEYS = _Base[0].AVAILABLE_SORT_KEYS | _SORT_KEYS

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
        ranks: list[int] | None = None,
        compress: bool = True,
        memory_counters: bool = True,
        tensorboard: bool = True,
        analyze: bool = True,
        **profiler_kwargs: Any,
    ) -> None:
        given = locals()
        check_place(dirpath, filename, what="filename")
        check_number("row_limit", row_limit, -1)
        check_flags({name: given[name] for name in _FLAGS})
        super().__init__(
            dirpath=dirpath,
            filename=filename,
            export_to_chrome=export_to_chrome,
            row_limit=row_limit,
            record_module_names=record_module_names,
        )
        self._engines: dict[str, Engine] = {}
        self._current: Engine | None = None
        self._off = False  # something went wrong that no engine could answer for
        self._told = False
        self._given_dirpath = dirpath
        refuse_unknown(
            profiler_kwargs,
            [name for name in given if name not in ("self", "profiler_kwargs", "__class__")],
            who="HPUProfiler",
        )
        refuse_habana_profile()
        if sort_by_key is not None and sort_by_key not in self.AVAILABLE_SORT_KEYS:
            raise ConfigError(
                f"sort_by_key is {sort_by_key!r}", hint=f"one of {', '.join(sorted(self.AVAILABLE_SORT_KEYS))}"
            )
        if schedule is not None and not callable(schedule):
            raise ConfigError(
                f"schedule is {schedule!r}, not callable",
                hint="give torch.profiler.schedule(...), or wait, warmup, active and repeat",
            )
        if on_trace_ready is not None and not callable(on_trace_ready):
            raise ConfigError(
                f"on_trace_ready is {on_trace_ready!r}, not callable", hint="a function that takes a torch profiler"
            )
        options: dict[str, Any] = {f.name: given[f.name] for f in fields(RecordConfig)}
        options |= {"activities": activity_names(activities), "ranks": rank_numbers(ranks)}
        self._config = RecordConfig(**options)
        if sort_by_key is not None:
            self._sort_by_key = sort_by_key
        self._group_by_input_shapes = group_by_input_shapes
        self._user_schedule = schedule
        self._user_on_trace_ready = on_trace_ready
        self._analyze = analyze

    # ---------------------------------------------------------------------------------------------------- Lightning's seams

    def setup(self, stage: Any, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """Begin a stage (fit, validate, test, predict): forget the recordings of the stage before."""
        self._finish()
        self._engines, self._off, self._told = {}, False, False
        self.dirpath = self._given_dirpath  # each trainer has a log directory of its own
        super().setup(stage=getattr(stage, "value", stage), local_rank=local_rank, log_dir=log_dir)

    def start(self, action_name: str) -> None:
        """Begin an action; the start of a batch begins a step."""
        if self._off:
            return
        try:
            self._follow(action_name)
        except Exception as error:  # noqa: BLE001  a recorder must not stop a training run
            self._off, self._current = True, None
            self._finish()
            warnings.warn(
                f"hpuprof stops recording, training goes on: {type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
        current = self._current  # other threads' actions come here too
        if current is not None:
            current.enter(PREFIX + action_name)

    def stop(self, action_name: str) -> None:
        """End an action; an action that was never started is ignored."""
        current = self._current
        if current is not None:
            current.leave(PREFIX + action_name)
        if action_name.endswith(".on_fit_end") and action_name.startswith("[LightningModule]"):
            self._answer()  # now, while the loggers still write

    @contextmanager
    def profile(self, action_name: str) -> Iterator[str]:
        """Record the block as an action. An error that ends a loop also ends its recording: what is there is saved."""
        self.start(action_name)
        try:
            yield action_name
        except StopIteration:
            raise  # ends a loop that takes its batches itself
        except BaseException:
            if action_name == "run_training_epoch" or _EVAL_STEP.match(action_name):
                self._finish(failed=True)
            raise
        finally:
            self.stop(action_name)

    def summary(self) -> str:
        """Return what `hpuprof analyze` says of this rank's files of the stage, host and device time per operator included."""
        return answer.summary(list(self._engines.values()), rows=self._row_limit)

    def describe(self) -> None:
        """Write or log the summary; at the end of fit, rank 0 answers for all ranks. Neither can make a run fail."""
        self._finish()
        self._answer()
        try:
            if self.filename or (self._analyze and self._local_rank in (None, 0)):
                super().describe()
        except Exception as error:  # noqa: BLE001  the run is over and well
            warnings.warn(f"hpuprof could not describe what it recorded: {error}", stacklevel=2)
        self.teardown(self._stage)

    def teardown(self, stage: str | None) -> None:
        """End the recording of a stage. The instance can be used again."""
        self._finish()
        super().teardown(stage=stage)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state |= {
            "_engines": {},
            "_current": None,
            "_lightning_module": None,
            "_output_file": None,
            "_write_stream": None,
        }
        # The base class keeps closures of torch's schedule, which do not cross process borders and are not used here.
        state |= {"_schedule": None, "_profiler_kwargs": {}}
        for name, otherwise in (
            ("_user_schedule", "wait, warmup, active and repeat"),
            ("_user_on_trace_ready", "our own files"),
        ):
            try:
                pickle.dumps(state[name])
            except (pickle.PicklingError, AttributeError, TypeError):
                warnings.warn(
                    f"hpuprof: the given {name.removeprefix('_user_')} cannot be sent to another process; {otherwise} are used there",
                    stacklevel=2,
                )
                state[name] = None
        return state

    # ---------------------------------------------------------------------------------------------------------------- inside

    def _follow(self, action_name: str) -> None:
        """Drive the engines by what Lightning begins."""
        if action_name == "run_training_batch":
            self._begin_step(_TRAINING)
        elif action_name.endswith("_step"):
            match = _EVAL_STEP.match(action_name)
            if match and not self._sanity_checking:
                self._begin_step(f"{match[1]}_step")
        elif action_name.endswith("_end"):
            match = _LOOP_END.search(action_name)
            if match:
                self._end_loop(match[1])
        elif action_name.endswith(".train_dataloader_next"):
            if _TRAINING in self._engines:
                self._engines[_TRAINING].resume()
        elif action_name.endswith(".on_validation_start"):
            if _TRAINING in self._engines:
                self._engines[_TRAINING].pause()
        elif action_name.endswith(".on_train_start"):
            if _TRAINING in self._engines and self._engines[_TRAINING].finished:
                del self._engines[_TRAINING]  # that was a tuner's loop, inside the fit and before its own
        elif action_name.endswith(".on_exception"):
            self._finish(failed=True)

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
        if self._current is not engine:
            if engine.finished or (self._current is not None and self._current.recording):
                return  # validation inside an open training window belongs to that window
            self._current = engine
        engine.step(self._number(action))
        if engine.finished and not engine.recording:
            self._current = None

    def _number(self, action: str) -> int | None:
        """Return the number of the training batch that begins, counted over the whole fit, restarts included."""
        if action != _TRAINING:
            return None
        loop = getattr(getattr(self._trainer, "fit_loop", None), "epoch_loop", None)
        count = getattr(loop, "total_batch_idx", None)
        return int(count) if count is not None and count >= 0 else None

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
            available_steps=self._available(action),
            outlook=self._outlook(action),
            hooks=self._hooks,
            # The validation loops of a fit come again, with training between them: nothing there is a block of like steps.
            baseline=action == _TRAINING or stage != "fit",
            windows=keeps,
        )

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

    def _available(self, action: str) -> float:
        """Return how many steps the loop will run, as far as the trainer knows."""
        trainer = self._trainer
        if trainer is None:
            return float("inf")
        try:
            if action == _TRAINING:
                done = trainer.fit_loop.epoch_loop.total_batch_idx
                epochs = (
                    trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs >= 0 else float("inf")
                )
                left = float(trainer.num_training_batches) * epochs - max(0, done)
                if trainer.max_steps is not None and trainer.max_steps >= 0:
                    left = min(left, (trainer.max_steps - trainer.global_step) * float(trainer.accumulate_grad_batches))
                return float(left)
            counts = {
                "validation_step": trainer.num_val_batches,
                "test_step": trainer.num_test_batches,
                "predict_step": trainer.num_predict_batches,
            }[action]
            return float(sum(counts) if isinstance(counts, (list, tuple)) else counts)
        except (AttributeError, TypeError, ValueError):
            return float("inf")

    def _outlook(self, action: str) -> Outlook:
        if self._trainer is None:
            return Outlook()
        if action == _TRAINING:
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
        action = _TRAINING if which == "train" else f"{which}_step"
        engine = self._engines.get(action)
        if engine is None or (which != "train" and not engine.recording and self._stage == "fit"):
            return  # validation loops of a fit come again, but a window never reaches over the end of one
        engine.finish()
        if self._current is engine:
            self._current = None

    def _finish(self, *, failed: bool = False) -> None:
        self._current = None
        for engine in self._engines.values():
            engine.finish(failed=failed)

    def _answer(self) -> None:
        training = self._engines.get(_TRAINING)
        if not self._analyze or self._told or training is None:
            return
        self._told = True
        self._finish()
        trainer = self._trainer
        try:
            answer.print_answer(
                training,
                loggers=list(getattr(trainer, "loggers", None) or []),
                step=int(getattr(trainer, "global_step", 0) or 0),
            )
        except Exception as error:  # noqa: BLE001  the run is over and well
            warnings.warn(f"hpuprof could not analyse what it recorded: {error}", stacklevel=2)
