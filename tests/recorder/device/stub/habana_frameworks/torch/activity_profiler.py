"""Rebinds `torch.profiler.profile`, `torch.profiler.ProfilerActivity` and the autograd profile, as release 1.19 does.

Where the release does not work with today's torch (None for an unknown activity, one argument too few at the export), this does
what a release for it would have to do.
"""

from enum import Enum

import torch
import torch.profiler

import habana_frameworks.torch.utils._activity_profiler_C as collector
from habana_frameworks.torch.utils.internal import is_lazy

_torch_activity = torch.profiler.ProfilerActivity


class HabanaProfilerActivity(Enum):
    CPU = 1
    CUDA = 2
    HPU = 3


class HabanaAutogradProfile(torch.autograd.profiler.profile):
    def export_chrome_trace(self, path, *rest):
        super().export_chrome_trace(path, *rest)
        collector._export_logs(path)


class HabanaProfile(torch.profiler.profile):
    def __init__(  # the release's keywords and no newer ones
        self,
        *,
        activities=None,
        debug_activities=None,
        schedule=None,
        on_trace_ready=None,
        record_shapes=False,
        profile_memory=False,
        with_stack=False,
        with_flops=False,
        with_modules=False,
        experimental_config=None,
    ):
        activities = (HabanaProfilerActivity.CPU, HabanaProfilerActivity.HPU) if activities is None else activities
        self.hpu_profiling_active = HabanaProfilerActivity.HPU in activities
        collector._setup_activity_profiler_sources(
            False, bool(debug_activities), profile_memory, ["hpu_lazy"] if is_lazy() else ["launch"]
        )
        super().__init__(
            activities=[a for a in map(self._exchange_activity, activities) if a is not None],
            schedule=schedule,
            on_trace_ready=on_trace_ready,
            record_shapes=record_shapes,
            profile_memory=profile_memory,
            with_stack=with_stack,
            with_flops=with_flops,
            with_modules=with_modules,
            experimental_config=experimental_config,
        )

    def _exchange_activity(self, activity):
        return {HabanaProfilerActivity.CPU: _torch_activity.CPU, HabanaProfilerActivity.CUDA: _torch_activity.CUDA}.get(
            activity
        )

    def start_trace(self):
        if self.hpu_profiling_active:
            collector._start_activity_profiler()
        super().start_trace()

    def stop_trace(self):
        super().stop_trace()
        if self.hpu_profiling_active:
            collector._stop_activity_profiler()


torch.profiler.profile = HabanaProfile
torch.profiler.ProfilerActivity = HabanaProfilerActivity
torch.autograd.profiler.profile = HabanaAutogradProfile
