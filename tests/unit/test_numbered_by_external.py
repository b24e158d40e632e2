"""Files that call the correlation `External id`, and files in which that is an operator's number, as everywhere else."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from hpuprof.analysis.rank_view import RankView


def rows(*, operator: int, calls: tuple[int, int] = (81, 82), correlation: bool = False) -> TraceBuilder:
    """Two launches under one operator, and their kernels."""
    out = TraceBuilder()
    out.host("aten::mm", 0, 20, **{"External id": operator})
    for i, number in enumerate(calls):
        more = {"correlation": 7 + i} if correlation else {}
        ids = {"External id": number, **more}
        out.host("hipModuleLaunchKernel", 2 + 8 * i, 3, cat="cuda_runtime", **ids)
        out.event(ph="X", cat="kernel", name="k", pid=0, tid=0, ts=10 + 20 * i, dur=15, args=ids)
    return out


def test_kernels_are_linked_to_the_calls_with_their_number(tmp_path):
    trace = rows(operator=1537).trace(tmp_path)
    assert RankView.of(trace).links.launch.tolist() == [1, 2]
    assert trace.device.correlation.tolist() == [81, 82]
    assert (trace.device.external < 0).all()
    assert trace.host.external.tolist() == [1537, -1, -1]


@pytest.mark.parametrize(
    "trace",
    [rows(operator=81, calls=(81, 81)), rows(operator=81), rows(operator=1, correlation=True)],
    ids=["the operator's", "one of them an operator's", "beside a correlation"],
)
def test_the_number_of_an_operator_is_no_correlation(tmp_path, trace):
    read = trace.trace(tmp_path)
    assert 81 in read.device.external.tolist()
    assert 81 not in read.device.correlation.tolist()
