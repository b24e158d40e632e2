"""What host time belongs to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from builder import TraceBuilder

from hpuprof.analysis.rank_view import RankView
from hpuprof.what_if.constants import constants_for
from hpuprof.what_if.launch_model import LaunchModel
from hpuprof.what_if.parts import parts_of
from hpuprof.what_if.step_model import StepModel
from hpuprof.what_if.totals import TotalsModel


@pytest.mark.parametrize("linked", [True, False])
def test_ranges_own_their_time_where_no_operator_begins_or_ends(tmp_path: Path, linked: bool) -> None:
    builder = TraceBuilder().steps(4, 1000)
    for step in range(4):
        at = 1000 * step
        builder.annotation("fetching", at + 100, 300).annotation("inner", at + 200, 50)
        builder.host("aten::mm", at + 500, 20)
        builder.kernel("mm", at + 520, 100, launch=at + 510 if linked else None)
    view = RankView.of(builder.trace(tmp_path))
    kind = LaunchModel if linked else TotalsModel
    model: StepModel | None = kind.of(view, constants_for(view.trace.family, view.trace.mode, None))
    assert model is not None
    parts, segment = parts_of(model), model.schedule.calls.segment
    took = np.bincount(parts.owners.piece, weights=segment[parts.piece_call] * parts.piece_share)
    found = {parts.labels[i]: took[i] / model.schedule.steps / 1000 for i in range(len(took))}
    assert found["fetching", "host range"] == pytest.approx(250)
    assert found["inner", "host range"] == pytest.approx(50)


def test_which_thread_comes_first_in_the_file_decides_nothing(tmp_path: Path) -> None:
    """The main thread holds no operators; another one's run across the beginning of a step."""
    found = []
    for turned in (False, True):
        builder = TraceBuilder().steps(6, 1000)
        for at, took in ((0.25, 1.0), (1.25, 1.001), (806.25, 194.002)):
            builder.host("aten::mm", at, took, thread=(100, 101))
        builder.kernel("gemm", 0.125, 1.0, launch=None)
        if turned:
            builder.events.insert(0, builder.events.pop(6))  # an operator
        view = RankView.of(builder.trace(tmp_path))
        model = TotalsModel.of(view, constants_for(view.trace.family, view.trace.mode, None))
        assert model is not None
        found.append(parts_of(model).labels)
    assert found[0] == found[1]
    assert ("aten::mm", "operator") not in found[0]
