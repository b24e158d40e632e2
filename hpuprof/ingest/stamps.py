"""Numbers of a trace, as they really come (numbers, text, null), to int64 columns. Owns the exactness of time.

Chrome's unit is the microsecond, with up to three decimals. A double holds such a stamp exactly enough below 2**43 µs
(102 days; Kineto's stamps are relative to a three-month base): splitting it into whole and fraction before scaling keeps the
error under half a nanosecond. Longer stamps with decimals are read from their text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from hpuprof.model.trace import Ints

Mask = npt.NDArray[np.bool_]


def _floats(values: list[Any]) -> npt.NDArray[np.float64]:
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_float(v) for v in values], dtype=np.float64)


def _float(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def stamp_ns(values: list[Any]) -> tuple[Ints, Mask]:
    """Convert µs stamps to ns; the mask tells which were numbers. Shape of both: `(len(values),)`."""
    micros = _floats(values)
    ok = np.isfinite(micros) & (np.abs(micros) < 9e15)
    if not ok.all():
        micros = np.where(ok, micros, 0.0)
    whole = np.floor(micros)
    ns = whole.astype(np.int64) * 1000 + np.rint((micros - whole) * 1000).astype(np.int64)
    return ns, ok


def duration_ns(values: list[Any]) -> tuple[Ints, Mask]:
    """Convert µs durations to ns; durations beyond what int64 holds come out as the largest."""
    micros = _floats(values)
    ok = np.isfinite(micros)
    clipped = np.clip(np.where(ok, micros, 0.0), -9e15, 9e15)
    return np.rint(clipped * 1000).astype(np.int64), ok


def exact_ns(raws: list[Any]) -> tuple[Ints, Mask]:
    """Convert the text of µs stamps to ns without going through a double."""
    ns = np.zeros(len(raws), dtype=np.int64)
    ok = np.ones(len(raws), dtype=bool)
    for i, raw in enumerate(raws):
        whole, _, fraction = bytes(raw).strip(b'" ').partition(b".")
        try:
            value = int(whole) * 1000
            ns[i] = value + int((fraction + b"000")[:3])
        except (ValueError, OverflowError):
            number = _float(bytes(raw).strip(b'" ') or None)
            ok[i] = np.isfinite(number) and abs(number) < 9e15
            ns[i] = round(number * 1000) if ok[i] else 0
    return ns, ok


def int_column(values: list[Any]) -> Ints:
    """Convert identifiers and sizes to int64; what is no such number becomes -1."""
    try:
        return np.array(values, dtype=np.int64)
    except (TypeError, ValueError, OverflowError):
        return np.array([_int64(v) for v in values], dtype=np.int64)


def _int64(value: Any) -> int:
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if -(2**63) <= number < 2**63 else -1
