"""Laws of all reports, however damaged their traces are: numbers are finite, and what is written is read again as it was.

numpy's warnings are errors here, as in all tests: a division by nothing has no meaning, even where no report shows it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from builder import TraceBuilder
from damaged import DAMAGES, damaged
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_reports import report_of

import hpuprof
from hpuprof.errors import InsufficientDataError
from hpuprof.report.model import Report

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted(p.name for p in (ROOT / "sample_traces").glob("*") if list(p.glob("*.json*")) + list(p.glob("*.csv")))
ONE_RANK = [name for name in SAMPLES if len(list((ROOT / "sample_traces" / name).glob("*.pt.trace.json*"))) == 1]
RANKS = "hpu_g3_lazy_8_ranks"


def not_finite(value: Any, at: str = "$") -> Iterator[str]:
    """Yield the places of numbers that are none."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{at}: {value}"
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from not_finite(inner, f"{at}.{key}")


def check(report: Report, folder: Path) -> None:
    """Hold the laws."""
    assert list(not_finite(msgspec.to_builtins(report.data))) == []
    assert hpuprof.read_report(hpuprof.save(report, folder / "report.json")) == report


@pytest.mark.parametrize("sample", SAMPLES)
def test_of_samples(sample: str, tmp_path: Path):
    check(report_of(sample), tmp_path)


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "none"])
@pytest.mark.parametrize("sample", ONE_RANK)
def test_of_damaged_samples(sample: str, damage: str, samples: Path, tmp_path: Path):
    folder = damaged(sorted((samples / sample).glob("*.json*")), DAMAGES[damage], tmp_path)
    report = hpuprof.analyze(folder, jobs=1)
    check(report, folder)
    with suppress(InsufficientDataError):
        compared = hpuprof.compare(report_of(sample), report)
        assert hpuprof.read_comparison(hpuprof.save(compared, folder / "comparison.json")) == compared


@pytest.mark.parametrize("damage", [name for name in DAMAGES if name != "none"])
def test_where_one_rank_is_damaged(damage: str, samples: Path, tmp_path: Path):
    folder = damaged(sorted((samples / RANKS).glob("*.json*"))[:3], DAMAGES[damage], tmp_path, most=1)
    check(hpuprof.analyze(folder, jobs=1), folder)


LENGTHS = st.sampled_from([0.0, 0.001, 0.1, 1.0, 40.0, 1000.0, 1e6])
STREAMS = st.sampled_from([7, 8])
STEPS = st.lists(st.tuples(LENGTHS, LENGTHS, LENGTHS, STREAMS, st.booleans()), min_size=1, max_size=7)


@settings(max_examples=80, derandomize=True)
@given(st.lists(st.tuples(STEPS, st.sampled_from(sorted(DAMAGES))), min_size=1, max_size=3))
def test_of_generated_ranks(tmp_path_factory: pytest.TempPathFactory, ranks):
    """Steps, operators and kernels of any lengths, linked or not, each rank with a damage of its own."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank, (steps, damage) in enumerate(ranks):
        builder, at = TraceBuilder(distributedInfo={"rank": rank, "world_size": len(ranks)}), 1000.0
        for number, (step, operator, kernel, stream, linked) in enumerate(steps):
            builder.step(number, at, step)
            for i in range(4):
                begin = at + i * step / 5
                builder.host("aten::mm", begin, operator)
                launch = begin + operator / 2 if linked else None
                builder.kernel("gemm", begin + operator, kernel, launch=launch, stream=stream)
            at += step
        builder.events = DAMAGES[damage](builder.events)
        builder.write(folder / f"node_{rank}.1.pt.trace.json")
    check(hpuprof.analyze(folder, jobs=1), folder)
