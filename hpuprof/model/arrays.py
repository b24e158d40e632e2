"""Types of the arrays that hold a trace, and which of their rows are of some kinds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
"""Times and durations [ns], sizes [bytes], row numbers."""
Codes: TypeAlias = npt.NDArray[np.int32]
"""Places in a table of names."""
Floats: TypeAlias = npt.NDArray[np.float64]
"""Estimates: shares, samples of times [ns]."""
Mask: TypeAlias = npt.NDArray[np.bool_]
"""Which rows."""
_Number = TypeVar("_Number", bound=np.generic)


def int64s(values: npt.NDArray[np.integer]) -> Ints:
    """Return the values as the native part reads them: contiguous, of int64; themselves, if they are."""
    return np.ascontiguousarray(values.astype(np.int64, casting="safe", copy=False))


def keys_fit(tracks: int, span: int) -> bool:
    """Whether all of `track * span + time` are below 2**63, for tracks below `tracks` and times below `span`."""
    return tracks * span < 2**63


def any_of(kinds: npt.NDArray[Any], chosen: Iterable[int | np.int8]) -> Mask:
    """Whether each row is of one of the chosen kinds, a few numbers; much sooner than np.isin."""
    found: Mask = np.zeros(len(kinds), dtype=np.bool_)
    for kind in chosen:
        found |= kinds == kind
    return found


def among(values: npt.NDArray[np.integer], chosen: npt.NDArray[np.integer]) -> Mask:
    """Whether each value is one of many chosen ones: np.isin where numbers lie far apart, without loading numpy.ma."""
    chosen = np.sort(chosen)
    found: Mask = np.zeros(len(values), dtype=np.bool_)
    return chosen.take(chosen.searchsorted(values), mode="clip") == values if len(chosen) else found


def distinct(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """Return the distinct values, ascending: np.unique without its hash table, which numpy 2.3 and later fill first.

    That takes 25 times as long for 100,000 stamps. Neighbors that are equal, as rows of one launch, are sorted once.
    """
    return _changed(np.sort(_changed(values)))


def _changed(values: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    return values[np.append(True, values[1:] != values[:-1])] if len(values) else values


def median(values: npt.ArrayLike, axis: int | None = None) -> Any:
    """Return what np.median does of integers or floats, NaN for none: sooner for few, and without loading numpy.ma."""
    values = np.asarray(values)
    values, axis = (values.ravel(), 0) if axis is None else (values, axis)
    count = values.shape[axis]
    if not count:
        return np.full(np.delete(values.shape, axis), np.nan)[()]
    low, high = (count - 1) // 2, count // 2
    unsure = values.dtype.kind == "f"
    ordered = np.partition(values, (low, high, count - 1) if unsure else (low, high), axis=axis)
    middle = np.add(ordered.take(low, axis), ordered.take(high, axis), dtype=np.float64) / 2
    if not unsure:
        return middle
    last = ordered.take(count - 1, axis)  # NaN, if any value is
    return np.where(np.isnan(last), last, middle)[()]


def percentiles(values: npt.ArrayLike, wanted: npt.ArrayLike) -> Any:
    """Return what np.percentile does of integers or floats along their first axis, without loading numpy.ma."""
    values = np.asarray(values)
    at = (len(values) - 1) * np.true_divide(wanted, 100)
    before = np.floor(at).astype(np.int64)
    after = np.minimum(before + 1, len(values) - 1)
    ordered = np.partition(values, [*np.ravel(before), *np.ravel(after), len(values) - 1], axis=0)
    part = np.reshape(at - before, (*before.shape, *[1] * (values.ndim - 1)))
    low, high = ordered.take(before, axis=0), ordered.take(after, axis=0)
    apart = high - low
    found = np.where(part < 0.5, low + apart * part, high - apart * (1 - part))
    return np.where(np.isnan(ordered[-1]), np.nan, found)[()]


def kinds_of(values: npt.NDArray[np.integer]) -> tuple[Ints, Ints, Ints]:
    """Return the distinct values, ascending, the first position of each, and which of them each value is.

    As np.unique does, but sooner for numbers close to each other, such as codes: without a sort.
    """
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if high - low >= 8 * len(values):
        found, first, which = np.unique(values, return_index=True, return_inverse=True)
        return found.astype(np.int64), first, which
    codes = np.subtract(values, low, dtype=np.int64)
    found, first = first_of(codes, high - low + 1)
    rank = np.empty(high - low + 1, dtype=np.int64)
    rank[found] = np.arange(len(found))
    return found + low, first, rank[codes]


def first_of(codes: npt.NDArray[np.integer], count: int) -> tuple[Ints, Ints]:
    """Return the distinct codes, ascending, and the first position of each, without a sort; all are below `count`."""
    first = np.full(count, -1, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes))[::-1]  # of equal indices the last one counts
    found = np.flatnonzero(first >= 0)
    return found, first[found]


_FEW_CODES = 8
"""A pass for each takes less time than a sort."""


def stable_order(codes: npt.NDArray[np.integer]) -> Ints:
    """Return the order that sorts codes, of equal ones by place; numpy counts rather than compares 16 bits."""
    if len(codes) and codes.min() >= 0 and codes.max() < 2**16:
        if len(codes) > _FEW_CODES > codes.max():
            return np.concatenate([np.flatnonzero(codes == code) for code in range(int(codes.max()) + 1)])
        codes = codes.astype(np.uint16)
    order: Ints = np.argsort(codes, kind="stable")
    return order
