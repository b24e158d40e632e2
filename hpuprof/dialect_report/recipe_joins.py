"""Joins device rows and the calls that enqueue them, by recipe id and handle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import numpy as np
from msgspec import Struct

from hpuprof.dialect_report.facts import CallFacts, Counts, RecipeFacts, by_count
from hpuprof.dialect_report.rows import Key, KeyRows, RawRows, RawTrack
from hpuprof.dialect_report.widths import two_digits
from hpuprof.dialect_report.words import ENQUEUE_WORDS, LAUNCH_WORDS
from hpuprof.model.arrays import Floats

TOLERANCE_US = 1.0
"""A run that begins less than this before its call is no contradiction: stamps of two clocks."""
ROUNDED_US = 0.002
"""Ends of a call and of the one around it that differ by this are the same moment, in rounded stamps."""


def call_facts(raw: RawRows) -> CallFacts:
    """Return which calls there are, and how they nest on their threads; what only overlaps is not inside."""
    nested: Counter[str] = Counter()
    outermost = repeated = 0
    for track in raw.tracks.values():
        open_calls: list[tuple[float, str]] = []
        inside: Counter[str] = Counter()
        for _, end, word in sorted(track.calls, key=lambda call: (call[0], -call[1], call[2])):
            while open_calls and open_calls[-1][0] < end - ROUNDED_US:
                open_calls.pop()
            if open_calls:
                nested[f"{open_calls[-1][1]} > {word}"] += 1
            else:
                repeated += any(count > 1 for count in inside.values())
                inside.clear()
                outermost += 1
            inside[word] += 1
            open_calls.append((end, word))
        repeated += any(count > 1 for count in inside.values())
    return CallFacts(by_count(raw.words), by_count(raw.zero_words), by_count(nested), outermost, repeated)


class Merged(Struct):
    """Rows of one recipe, of all tracks."""

    rows: int
    starts: Floats

    @classmethod
    def of(cls, parts: Iterable[KeyRows]) -> Merged:
        """Add up the rows; without their stamps where some are not kept."""
        found = list(parts)
        rows = sum(part.rows for part in found)
        starts = np.sort(np.concatenate([np.asarray(part.starts, dtype=np.float64) for part in found]))
        return cls(rows, starts if len(starts) == rows else np.empty(0))


def recipe_facts(raw: RawRows, lanes: list[RawTrack], calls: CallFacts) -> RecipeFacts:
    """Return the recipes of a file. `lanes`: the tracks of the device."""
    ran = [(key, rows) for lane in lanes for key, rows in lane.keys.items() if rows.rows]
    words = _joining(raw, calls)
    called = [(key, rows) for word in words for key, rows in raw.calls[word].items()]
    keys = {key for key, _ in (*ran, *called)}
    device, host = (_merged(parts, _handled(ran) & _handled(called)) for parts in (ran, called))
    met = [key for key in device if key in host]
    early = late = whole = 0
    calling, begun = [np.empty(0)], [np.empty(0)]
    lead = 0.0
    middle = ((raw.first or 0.0) + (raw.last or 0.0)) / 2
    for key in met:
        rows, enqueues = device[key], host[key]
        if not enqueues.rows or rows.rows % enqueues.rows:
            continue
        whole += 1
        if not len(rows.starts) or not len(enqueues.starts):
            continue
        first = rows.starts[:: rows.rows // enqueues.rows]
        before = enqueues.starts - first
        wrong = before > TOLERANCE_US
        calling.append(enqueues.starts)
        begun.append(first)
        late += int(np.count_nonzero(wrong & (first > middle)))
        early += int(np.count_nonzero(wrong & (first <= middle)))
        lead = max(lead, float(before.max()))
    begins = np.concatenate(begun)[np.argsort(np.concatenate(calling), kind="stable")]
    behind = begins < np.maximum.accumulate(begins) - TOLERANCE_US
    return RecipeFacts(
        device_rows=sum(rows.rows for rows in device.values()),
        matched_rows=sum(device[key].rows for key in met),
        joined_by=words,
        enqueues=sum(rows.rows for rows in host.values()),
        enqueues_without_rows=sum(rows.rows for key, rows in host.items() if key not in device),
        ids=len({key[0] for key in keys}),
        handles=len({key[1] for key in keys if key[1]}),
        ids_of_several_handles=sum(len(handles) > 1 for handles in raw.handles.values()),
        keys_with_name=len(raw.names_of),
        keys_of_several_names=sum(len(names) > 1 for names in raw.names_of.values()),
        names_of_several_ids=sum(len(found) > 1 for found in raw.ids_of.values()),
        launched=len(met),
        whole=whole,
        runs=len(begins),
        early=early,
        late=late,
        lead_us=two_digits(max(lead, 0.0)),
        out_of_order=int(np.count_nonzero(behind)),
        device=_forms(lane.forms for lane in lanes),
        host=_forms([raw.call_forms]),
    )


def _joining(raw: RawRows, calls: CallFacts) -> list[str]:
    """Return the calls that stand for launches of recipes: Synapse's enqueue, else the bridge's with most of them."""
    said = {word: sum(rows.rows for rows in keys.values()) for word, keys in raw.calls.items()}
    enqueue = [word for word in ENQUEUE_WORDS if said.get(word)]
    if any(calls.nested.get(f"{a} > {b}") for a in enqueue for b in enqueue) or not enqueue:
        chosen = enqueue or [word for word in LAUNCH_WORDS if said.get(word)]
        return [max(chosen, key=lambda word: said[word])] if chosen else []
    return enqueue


def _handled(parts: list[tuple[Key, KeyRows]]) -> set[str]:
    return {key[0] for key, _ in parts if key[1]}


def _merged(parts: list[tuple[Key, KeyRows]], handled: set[str]) -> dict[Key, Merged]:
    """Merge rows of one recipe, as launches are joined: by id and handle, by the id alone where a side has no handle.

    `handled`: ids of which both sides name handles; rows of these without one have the first of their id.
    """
    first = {number: handle for (number, handle), _ in reversed(parts) if handle}
    found: dict[Key, list[KeyRows]] = {}
    for (number, handle), rows in parts:
        key = number, (handle or first[number]) if number in handled else ""
        found.setdefault(key, []).append(rows)
    return {key: Merged.of(rows) for key, rows in found.items()}


def _forms(parts: Iterable[Counter[tuple[str, str]]]) -> dict[str, Counts]:
    found: dict[str, Counter[str]] = {}
    for part in parts:
        for (name, form), rows in part.items():
            found.setdefault(name, Counter())[form] += rows
    return {name: by_count(found[name]) for name in sorted(found)}
