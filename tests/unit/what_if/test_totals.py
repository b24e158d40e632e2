"""Steps from the totals of their stages."""

from __future__ import annotations

from pathlib import Path

import pytest
from builder import TraceBuilder

from hpuprof.analysis.rank_view import RankView
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.play import Sample, pace
from hpuprof.what_if.totals import TotalsModel


@pytest.mark.parametrize("waits", [False, True])
def test_each_step_is_played_as_long_as_it_was_recorded(tmp_path: Path, waits: bool) -> None:
    """Device work is that of the step that launches it, not of the one before: four steps, their kernels in µs."""
    builder, recorded, at = TraceBuilder(), [], 0
    for number, kernel in enumerate((900, 100, 500, 50)):
        length = kernel + 300
        builder.step(number, at, length).host("aten::mm", at + 10, 100).kernel("gemm", at + 60, kernel)
        if waits:
            builder.host("cudaDeviceSynchronize", at + 120, kernel - 40, cat="cuda_runtime")
        recorded.append(1000.0 * length)
        at += length
    view = RankView.of(builder.trace(tmp_path))
    model = TotalsModel.of(view, constants_for(view.trace.family, view.trace.mode))
    assert model.stages.waiting is waits
    chosen = [at for at, used in zip(recorded, view.steps.used, strict=True) if used]
    assert pace(model.recorded, Sample.unchanged()).step_times.tolist() == [chosen]
