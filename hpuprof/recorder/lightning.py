"""`HPUProfiler`: the recorder as Lightning's profiler. Overrides through Lightning's public seams: setup, start, stop, summary, teardown."""

from __future__ import annotations

import os
import re
import sys
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from importlib.util import find_spec
from typing import Any

from hpuprof.errors import ConfigError, HpuprofError, MissingDependencyError
from hpuprof.recorder import answer
from hpuprof.recorder.config import RecordConfig, activity_names, refuse_habana_profile, refuse_unknown
from hpuprof.recorder.engine import Engine, Who
from hpuprof.recorder.plain import rank_and_world

PREFIX = "[pl][profile]"
_STEP_ACTION = re.compile(r"(?:^|\.)(training_step|validation_step|test_step|predict_step)$")
_LOOP_END = re.compile(r"\.on_(train|validation|test|predict)_end$")
_EVAL_LOOP = {"validation_step": "validation", "test_step": "test", "predict_step": "predict"}
_TRAINING = "training_step"
_SORT_KEYS = {"hpu_time", "hpu_time_total", "self_hpu_time_total", "device_time", "device_time_total", "self_device_time_total"}


def _bases() -> tuple[type, ...]:
    """Return Lightning's profiler classes: of whichever package is there, of both when both are in use."""
    names = [n for n in ("lightning.pytorch", "pytorch_lightning") if find_spec(n.split(".", maxsplit=1)[0]) is not None]
    loaded = [n for n in names if n in sys.modules]
    wanted = loaded or names[:1]
    if not wanted:
        raise MissingDependencyError("HPUProfiler needs lightning or pytorch_lightning", hint="pip install 'hpuprof[record]'")
    from importlib import import_module

    return tuple(import_module(f"{name}.profilers.pytorch").PyTorchProfiler for name in wanted)


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
        export_to_chrome: write trace files; off, only the unprofiled step times are measured and `on_trace_ready` is called.
        row_limit: accepted for compatibility.
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
        active: int = 3,
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
        analyze: bool = True,
        **profiler_kwargs: Any,
    ) -> None:
        given = locals()
        options: dict[str, Any] = {f.name: given[f.name] for f in fields(RecordConfig)}
        refuse_unknown(profiler_kwargs, [*options, "dirpath", "filename", "schedule", "on_trace_ready", "analyze", "record_module_names"], who="HPUProfiler")
        refuse_habana_profile()
        if sort_by_key is not None and sort_by_key not in self.AVAILABLE_SORT_KEYS:
            raise ConfigError(f"sort_by_key is {sort_by_key!r}", hint=f"one of {', '.join(sorted(self.AVAILABLE_SORT_KEYS))}")
        if schedule is not None and not callable(schedule):
            raise ConfigError(f"schedule is {schedule!r}, not callable", hint="give torch.profiler.schedule(...), or wait, warmup, active and repeat")
        options["activities"] = activity_names(activities)
        options["ranks"] = tuple(ranks) if ranks is not None else None
        self._config = RecordConfig(**options)
        super().__init__(
            dirpath=dirpath,
            filename=filename,
            export_to_chrome=export_to_chrome,
            row_limit=row_limit,
            sort_by_key=sort_by_key,
            record_module_names=record_module_names,
        )
        self._group_by_input_shapes = group_by_input_shapes
        self._user_schedule = schedule
        self._user_on_trace_ready = on_trace_ready
        self._analyze = analyze
        self._log_dir: str | None = None
        self._engines: dict[str, Engine] = {}
        self._current: Engine | None = None

    # ---------------------------------------------------------------------------------------------------- Lightning's seams

    def setup(self, stage: Any, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """Begin a stage (fit, validate, test, predict): forget the recordings of the stage before."""
        super().setup(stage=getattr(stage, "value", stage), local_rank=local_rank, log_dir=log_dir)
        self._log_dir = log_dir
        self._engines, self._current = {}, None

    def start(self, action_name: str) -> None:
        """Begin an action; the start of a batch begins a step."""
        if action_name == "run_training_batch":
            self._begin_step(_TRAINING)
        elif action_name.endswith("_step"):
            match = _STEP_ACTION.search(action_name)
            if match and match[1] in _EVAL_LOOP and not self._sanity_checking:
                self._begin_step(match[1])
        elif action_name.endswith("_end"):
            match = _LOOP_END.search(action_name)
            if match:
                self._end_loop(match[1])
        if self._current is not None:
            self._current.enter(PREFIX + action_name)

    def stop(self, action_name: str) -> None:
        """End an action; an action that was never started is ignored."""
        if self._current is not None:
            self._current.leave(PREFIX + action_name)

    def summary(self) -> str:
        """Return what `hpuprof analyze` says of this rank's files of the stage, host and device time per operator included."""
        paths = [w.path for engine in self._engines.values() for w in engine.written]
        if not paths:
            return ""
        return answer.summary(paths)

    def describe(self) -> None:
        """Write or log the summary; at the end of fit, rank 0 answers for all ranks."""
        self._finish()
        super().describe()

    def teardown(self, stage: str | None) -> None:
        """End the recording of a stage. The instance can be used again."""
        self._finish()
        super().teardown(stage=stage)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state |= {"_engines": {}, "_current": None, "_lightning_module": None, "_output_file": None, "_write_stream": None}
        # The base class keeps closures of torch's schedule, which do not cross process borders and are not used here.
        state |= {"_schedule": None, "_profiler_kwargs": {}}
        return state

    # ---------------------------------------------------------------------------------------------------------------- inside

    @property
    def _trainer(self) -> Any:
        module = getattr(self, "_lightning_module", None)
        return getattr(module, "_trainer", None) if module is not None else None

    @property
    def _sanity_checking(self) -> bool:
        return bool(getattr(self._trainer, "sanity_checking", False))

    def _begin_step(self, action: str) -> None:
        engine = self._engines.get(action)
        if engine is None:
            engine = self._engines[action] = self._engine(action)
        if self._current is not engine:
            if self._current is not None and self._current.recording:
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
        stage = getattr(self._stage, "value", self._stage) or ""
        return Engine(
            config=self._config,
            who=Who(rank, world, local, str(stage), action, framework="lightning", compiled=self._compiled()),
            dirpath=os.fspath(self.dirpath or self._log_dir or "."),
            label=self.filename or "hpuprof",
            schedule=self._user_schedule,
            on_trace_ready=self._user_on_trace_ready if self._user_on_trace_ready or self._export_to_chrome else _drop,
            available_steps=self._available(action),
            hooks=self._hooks,
            baseline=action == _TRAINING,
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
                epochs = trainer.max_epochs if trainer.max_epochs is not None and trainer.max_epochs >= 0 else float("inf")
                left = float(trainer.num_training_batches) * epochs - max(0, done)
                if trainer.max_steps is not None and trainer.max_steps >= 0:
                    left = min(left, (trainer.max_steps - trainer.global_step) * float(trainer.accumulate_grad_batches))
                return float(left)
            counts = {"validation_step": trainer.num_val_batches, "test_step": trainer.num_test_batches, "predict_step": trainer.num_predict_batches}[action]
            return float(sum(counts) if isinstance(counts, (list, tuple)) else counts)
        except (AttributeError, TypeError, ValueError):
            return float("inf")

    @property
    def _stage_name(self) -> str:
        return str(getattr(self._stage, "value", self._stage) or "")

    def _hooks(self) -> AbstractContextManager[Any]:
        from contextlib import nullcontext

        module = getattr(self, "_lightning_module", None)
        if not self._record_module_names or module is None:
            return nullcontext()
        from importlib import import_module

        register: AbstractContextManager[Any] = import_module(_Base[0].__module__).RegisterRecordFunction(module)
        return register

    def _end_loop(self, which: str) -> None:
        action = _TRAINING if which == "train" else f"{which}_step"
        engine = self._engines.get(action)
        if engine is None or (which != "train" and not engine.recording and self._stage_name == "fit"):
            return  # validation loops of a fit come again, but a window never reaches over the end of one
        engine.finish()
        if self._current is engine:
            self._current = None

    def _finish(self) -> None:
        for engine in self._engines.values():
            engine.finish()
        self._current = None
        training = self._engines.get(_TRAINING)
        if not self._analyze or training is None or not training.written or training.answered:
            return
        training.answered = True
        try:
            answer.print_answer(training, logger=getattr(self._trainer, "logger", None), step=int(getattr(self._trainer, "global_step", 0) or 0))
        except (HpuprofError, OSError) as error:
            warnings.warn(f"hpuprof could not analyse what it recorded: {error}", stacklevel=2)


def _drop(_: Any) -> None:
    """Stand in for an exporter when nothing is to be exported."""
