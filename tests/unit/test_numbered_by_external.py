"""Files that call the correlation `External id`, and files in which that is an operator's number, as everywhere else."""

from __future__ import annotations

import pytest
from builder import TraceBuilder

from hpuprof.analysis.rank_view import RankView


def rows(
    *, operator: int, calls: tuple[int | None, ...] = (81, 82), kernels: tuple[int, ...] = (81, 82), **more: int
) -> TraceBuilder:
    """Launches under one operator, and kernels, with their numbers; `more`: a correlation of calls, or of kernels."""
    out = TraceBuilder()
    out.host("aten::mm", 0, 20, **{"External id": operator})
    for i, number in enumerate(calls):
        ids = {} if number is None else {"External id": number}
        ids |= {"correlation": more["called"] + i} if "called" in more else {}
        out.host("hipModuleLaunchKernel", 2 + 4 * i, 3, cat="cuda_runtime", **ids)
    for i, number in enumerate(kernels):
        ids = {"External id": number} | ({"correlation": more["ran"] + i} if "ran" in more else {})
        out.event(ph="X", cat="kernel", name="k", pid=0, tid=0, ts=30 + 20 * i, dur=15, args=ids)
    return out


def test_kernels_are_linked_to_the_calls_with_their_number(tmp_path):
    trace = rows(operator=1537).trace(tmp_path)
    assert RankView.of(trace).links.launch.tolist() == [1, 2]
    assert trace.device.correlation.tolist() == [81, 82]
    assert (trace.device.external < 0).all()
    assert trace.host.external.tolist() == [1537, -1, -1]
    assert trace.host.correlation.tolist() == [-1, 81, 82]


@pytest.mark.parametrize(
    "trace",
    [
        rows(operator=1537, calls=(81, None, None, 82)),
        rows(operator=1537, kernels=(81, 99, 82)),
        rows(operator=-1),
    ],
    ids=["calls without a number", "a kernel of no call", "operators without numbers"],
)
def test_what_has_no_number_hinders_nothing(tmp_path, trace):
    linked = RankView.of(trace.trace(tmp_path)).links.launch
    assert (linked[[0, -1]] >= 0).all()


@pytest.mark.parametrize(
    "trace",
    [
        rows(operator=81, calls=(81, 81), kernels=(81, 81)),
        rows(operator=1537, calls=(81, 81, 82)),
        rows(operator=81),
        rows(operator=82),
        rows(operator=1, called=7, ran=7),
        rows(operator=1, called=7),
        rows(operator=1, ran=7),
        rows(operator=1, calls=(7, 8)),
    ],
    ids=[
        "the operator's",
        "two calls of one number",
        "an operator's too",
        "of the last",
        "beside a correlation",
        "of calls alone",
        "of kernels alone",
        "other numbers",
    ],
)
def test_other_numbers_are_no_correlations(tmp_path, trace):
    read = trace.trace(tmp_path)
    assert 81 in read.device.external.tolist()
    assert 81 not in read.device.correlation.tolist()
    assert 81 not in read.host.correlation.tolist()
