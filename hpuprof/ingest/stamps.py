"""A trace's numbers as written (numbers, text, null) to int64 columns. Owns the exactness of time.

Chrome's unit is the microsecond, with up to three decimals. A double holds such a stamp exactly enough below 2**43 µs
(102 days; Kineto's stamps are relative to a three-month base): splitting it into whole and fraction before scaling
keeps the error under half a nanosecond. Longer stamps with decimals are read from their text.

A stamp beyond 2**62 ns (the year 2116) is invalid: below that, differences of stamps fit into int64.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from hpuprof.model.arrays import Floats, Ints, Mask

_LIMIT_NS = 2**62
_LIMIT_US = _LIMIT_NS / 1000
_EXACT_NS = 2**43 * 1000  # doubles hold microseconds with three decimals below


def _floats(values: list[Any]) -> Floats:
    try:
        numbers = np.array(values, dtype=np.float64)
        if numbers.ndim == 1:
            return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    return np.array([_float(v) for v in values], dtype=np.float64)


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def stamp_ns(values: list[Any]) -> tuple[Ints, Mask]:
    """Convert µs stamps to ns; the mask marks valid ones. Shape of both: `(len(values),)`."""
    micros = _floats(values)
    ok = np.isfinite(micros) & (np.abs(micros) < _LIMIT_US)
    if not ok.all():
        micros = np.where(ok, micros, 0.0)
    whole = np.floor(micros)
    ns = whole.astype(np.int64) * 1000 + np.rint((micros - whole) * 1000).astype(np.int64)
    return ns, ok


def inexact(values: list[Any], ns: Ints) -> bool:
    """Whether stamps parsed as doubles may be off: beyond 2**43 µs, and not written as integers."""
    if not len(ns) or (ns.max() < _EXACT_NS and ns.min() > -_EXACT_NS):
        return False
    return any(type(value) is not int for value in values)


def duration_ns(values: list[Any]) -> tuple[Ints, Mask]:
    """Convert µs durations to ns, clipped to what int64 holds."""
    micros = _floats(values)
    ok = np.isfinite(micros)
    clipped = np.clip(np.where(ok, micros, 0.0), -9e15, 9e15)
    return np.rint(clipped * 1000).astype(np.int64), ok


def exact_ns(raws: list[Any]) -> tuple[Ints, Mask]:
    """Convert the text of µs stamps to ns without a double."""
    ns = np.zeros(len(raws), dtype=np.int64)
    ok = np.ones(len(raws), dtype=bool)
    for i, raw in enumerate(raws):
        text = bytes(raw).strip(b'" ')
        try:
            # Nearly every stamp has three decimals; the others (none, exponents, more digits) take the slow path.
            value = int(text[:-4] + text[-3:]) if text[-4:-3] == b"." else _decimal_ns(text.decode())
            ok[i] = abs(value) < _LIMIT_NS
        except (ValueError, ArithmeticError):
            ok[i] = False
        if ok[i]:
            ns[i] = value
    return ns, ok


def _decimal_ns(text: str) -> int:
    micros = Decimal(text)
    return _LIMIT_NS if micros.adjusted() > 18 else round(micros * 1000)


def int_column(values: list[Any]) -> Ints:
    """Convert identifiers and sizes to int64; anything else becomes -1."""
    try:
        numbers = np.array(values, dtype=np.int64)
        if numbers.ndim == 1:
            return numbers
    except (TypeError, ValueError, OverflowError):
        pass
    return np.array([_int64(v) for v in values], dtype=np.int64)


def _int64(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -(2**63) <= number < 2**63 else -1
