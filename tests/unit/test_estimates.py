"""What is no estimate is neither made nor written: numbers that are not finite, or not in order."""

from __future__ import annotations

from math import inf, nan

import msgspec
import numpy as np
import pytest
from sample_reports import report_of

import hpuprof
from hpuprof.errors import OutputError
from hpuprof.model.metrics import METRICS
from hpuprof.model.prediction import Bounds, Interval
from hpuprof.report.model import Report
from hpuprof.what_if.uncertainty import interval

NONE = ((nan, 1.0, 2.0), (1.0, nan, 2.0), (0.0, 1.0, inf), (-inf, 0.0, 1.0), (2.0, 1.0, 3.0), (1.0, 3.0, 2.0))


@pytest.mark.parametrize("ends", NONE)
def test_what_is_no_interval_is_unknown(ends):
    assert Interval.of(*ends) is None
    with pytest.raises(ValueError, match="not finite, or not in order"):
        Interval(low=ends[0], median=ends[1], high=ends[2])


def test_bounds_are_numbers_in_order():
    with pytest.raises(ValueError, match="not finite, or not in order"):
        Bounds(low=1.0, high=nan)


@pytest.mark.parametrize("odd", [nan, inf, -inf])
def test_samples_that_are_no_numbers_have_no_interval(odd):
    assert interval(np.array([1.0, odd, 2.0])) is None
    assert interval(np.full(8, 2.0)) == Interval(low=2.0, median=2.0, high=2.0)


@pytest.mark.parametrize("odd", [nan, inf])
def test_a_report_that_could_not_be_read_again_is_not_written(odd, tmp_path):
    data = report_of("hpu_g1_lazy").data
    metrics = [METRICS[0].metric(odd, ""), *data.metrics[1:]]
    with pytest.raises(OutputError, match=r"metrics\[0\] cannot be written as JSON and read again"):
        hpuprof.save(Report(msgspec.structs.replace(data, metrics=metrics)), tmp_path / "report.json")
    assert list(tmp_path.iterdir()) == []
