"""Numbers as they come, to int64 nanoseconds, exact to the nanosecond."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpuprof.ingest.stamps import duration_ns, exact_ns, inexact, int_column, stamp_ns


def micros(ns: int) -> str:
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"


def exact(*texts: str) -> list[int]:
    ns, ok = exact_ns([msgspec.Raw(t.encode()) for t in texts])
    return [n if good else None for n, good in zip(ns.tolist(), ok.tolist(), strict=True)]


@given(st.lists(st.integers(-(2**43) * 1000 + 1, 2**43 * 1000 - 1), min_size=1))
def test_stamps_below_2_to_43_microseconds_are_exact_through_a_double(ns: list[int]):
    numbers, ok = stamp_ns([json.loads(micros(n)) for n in ns])
    assert ok.all()
    assert numbers.tolist() == ns
    assert not inexact([0.5], numbers)


@given(st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=1))
def test_stamps_of_any_length_are_exact_as_text(ns: list[int]):
    assert exact(*map(micros, ns)) == ns
    assert exact(*(f'"{micros(n)}"' for n in ns)) == ns


@given(st.integers(2**43, 4 * 10**15), st.integers(1, 999))
def test_a_long_stamp_with_decimals_asks_for_its_text_and_a_long_integer_does_not(whole: int, fraction: int):
    for value in (float(f"{whole}.{fraction:03d}"), f"{whole}.{fraction:03d}", whole):
        assert inexact([value], stamp_ns([value])[0]) == (value != whole or type(value) is not int)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1714000000000000.123", 1_714_000_000_000_000_123),
        ("1714000000000000", 1_714_000_000_000_000_000),
        ("1.7140000000000001e+15", 1_714_000_000_000_000_100),
        ("1.500e3", 1_500_000),
        ("-0.5", -500),
        ("-5.250", -5250),
        ("12.3456", 12_346),
        ("12.3", 12_300),
        ('"12.300"', 12_300),
        ("", None),
        ("null", None),
        ("true", None),
        ('"soon"', None),
        ("NaN", None),
        ("1e300", None),
        ("1e999999999999", None),
        ("99999999999999999999.123", None),
    ],
)
def test_the_text_of_a_stamp(text: str, ns: int | None):
    assert exact(text) == [ns]


def test_stamps_that_are_no_numbers_are_masked_and_cost_no_other():
    numbers, ok = stamp_ns([1.5, None, "2.25", "x", [1.0], 10**400, 1e300])
    assert ok.tolist() == [True, False, True, False, False, False, False]
    assert numbers[ok].tolist() == [1500, 2250]


def test_lists_in_every_row_do_not_change_the_shape():
    assert stamp_ns([[1.0], [2.0]])[1].tolist() == [False, False]
    assert int_column([[1], [2]]).tolist() == [-1, -1]


def test_durations_beyond_int64_come_out_largest():
    ns, ok = duration_ns([1.2345, "2", None, 1e30, -3, 0])
    assert ok.tolist() == [True, True, False, True, True, True]
    assert ns[ok].tolist() == [1234, 2000, 9_000_000_000_000_000_000, -3000, 0]


def test_identifiers_keep_64_bits_and_what_is_none_is_minus_one():
    values = [5, "6", None, 2**63 - 1, 2**64 - 1, float("nan"), "0x10", 7.0, {}]
    assert int_column(values).tolist() == [5, 6, -1, 2**63 - 1, -1, -1, -1, 7, -1]
    assert int_column([]).dtype == np.int64
