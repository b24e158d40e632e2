"""Sends each row to its table and classifies it: applies the rules of `dialect_*` once per distinct name."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hpuprof.ingest.columns import Interner, by_start
from hpuprof.ingest.dialect_activities import activity, call_name
from hpuprof.ingest.dialect_rows import device_rule, kernel_name, row_rule, stands_for_another
from hpuprof.ingest.recipe_rows import KEYS, RecipeNotes
from hpuprof.model.arrays import Codes, Mask, kinds_of
from hpuprof.model.schema import Activity, DeviceKind, HostKind
from hpuprof.model.trace import DeviceRows, HostRows, Track


class Collected(Struct, frozen=True, eq=False):
    """Columns of a whole file before classification.

    `host`: rows that can only be host slices; `lane`: rows that are device slices if their track is an engine lane or
    their category says so. `no_dtype`: code of the empty data type. `recipes`: learns where rows that name recipes come
    to lie.
    """

    host: dict[str, npt.NDArray[Any]]
    lane: dict[str, npt.NDArray[Any]]
    names: list[str]
    hw_events: list[str]
    no_dtype: int
    recipes: RecipeNotes


def classify(collected: Collected, cats: list[str], tracks: list[Track]) -> tuple[HostRows, DeviceRows, list[str]]:
    """Send each maybe-device row to its table and classify all rows; also return the engines' names."""
    lane = collected.lane
    on_lane = np.array([t.engine is not None for t in tracks] or [False], dtype=bool)
    rules = [[row_rule(c, lane=flag) for flag in (False, True)] for c in cats]
    to_device = np.array(
        [[bool(r and r.target == "device") for r in pair] for pair in rules] or [[False, False]], dtype=bool
    )
    track, cat = lane["track"].astype(np.int64), lane["cat"].astype(np.int64)
    is_device = to_device[cat, on_lane[track].astype(np.int64)] if len(track) else np.empty(0, dtype=bool)
    rows = np.flatnonzero(is_device)
    rows = rows[by_start(lane["start"][rows], lane["dur"][rows])]
    device, engines = _device_rows({k: v[rows] for k, v in lane.items()}, collected, cats, tracks)
    host = collected.host
    if not is_device.all():
        extra = {k: lane[k][~is_device] for k in host if k in lane}
        nothing = np.full(len(extra["start"]), -1, dtype=np.int32)
        extra |= dict.fromkeys(("shape", "detail", "sequence", "forward_thread"), nothing)
        host = {k: np.concatenate([host.pop(k), extra[k]]) for k in list(host)}
    kinds = np.array([(r[0].kind or 0) if r[0] else 0 for r in rules] or [0], dtype=np.int8)
    ends = np.array([stands_for_another(c) for c in cats] or [False], dtype=bool)
    points = ends[host["cat"]] & (host["dur"] == 0)
    return _host_rows(host, kinds[host.pop("cat")], points, collected), device, engines


def _host_rows(
    columns: dict[str, npt.NDArray[Any]], kind: npt.NDArray[np.int8], points: Mask, collected: Collected
) -> HostRows:
    """Classify host rows of these kinds; `points`: rows that do nothing themselves."""
    names, recipes, name = collected.names, collected.recipes, columns["name"]
    lookup = np.zeros((max(HostKind) + 1, max(len(names), 1)), dtype=np.int8)
    for host_kind in HostKind:
        present = np.zeros(len(names), dtype=bool)
        present[name[kind == host_kind]] = True
        for code in np.flatnonzero(present).tolist():
            text = names[code]
            if host_kind == HostKind.PYTHON and "replay" not in text and "collect" not in text:
                continue
            lookup[host_kind, code] = activity(host_kind, call_name(text))
    activities = lookup[kind, name]
    activities[points] = Activity.NONE
    order = by_start(columns["start"], columns["dur"])

    def ordered(column: str) -> npt.NDArray[Any]:
        return columns.pop(column)[order]  # both would be a large part of a process's memory

    def codes(column: str) -> Codes:
        return ordered(column).astype(np.int32, copy=False)

    if recipes:
        recipes.place("host", {column: ordered(column) for column in KEYS})

    return HostRows(
        start=ordered("start"),
        dur=ordered("dur"),
        name=codes("name"),
        track=codes("track"),
        kind=kind[order],
        activity=activities[order],
        correlation=ordered("correlation"),
        external=ordered("external"),
        shape=codes("shape"),
        detail=codes("detail"),
        sequence=ordered("sequence"),
        forward_thread=ordered("forward_thread"),
        comm=codes("comm"),
    )


def _combinations(parts: tuple[npt.NDArray[Any], ...], sizes: tuple[int, ...]) -> tuple[Any, Any]:
    """Return one row per distinct combination of codes, in code order, and the combination of each row."""
    key = np.zeros(len(parts[0]), dtype=np.int64)
    many = 1
    for part, size in zip(parts, sizes, strict=True):
        if many * size >= 2**62:  # a file may hold so many distinct words that their product overflows
            distinct, key = np.unique(key, return_inverse=True)
            many = len(distinct)
        key = key * size + part
        many *= size
    return kinds_of(key)[1:]


def _device_rows(
    columns: dict[str, npt.NDArray[Any]], collected: Collected, cats: list[str], tracks: list[Track]
) -> tuple[DeviceRows, list[str]]:
    """Classify device rows, given in order of start; also return the engines' names."""
    names, hw_events = collected.names, collected.hw_events or [""]
    engines = Interner()
    track_engine = np.array([engines[t.engine or ""] for t in tracks] or [engines[""]], dtype=np.int64)
    engine_of_track = (
        track_engine[columns["track"].astype(np.int64)] if len(columns["track"]) else np.empty(0, dtype=np.int64)
    )
    # Classify each distinct combination once; a file has few.
    parts = (engine_of_track, columns["cat"], columns["name"], columns["hw"])
    sizes = (len(engines), len(cats), len(names), len(hw_events))
    first, inverse = _combinations(parts, sizes)
    combinations = np.stack([part[first] for part in parts], axis=1).tolist()
    by_code = list(engines)
    code_of = {names[name]: name for _, _, name, _ in combinations}
    kinds, engine_codes, name_codes = [], [], []
    for engine, cat, name, hw in combinations:
        rule = device_rule(engine=by_code[engine], category=cats[cat], name=names[name], hw_event=hw_events[hw])
        kinds.append(int(rule.kind))
        label = by_code[engine] or DeviceKind(rule.kind).name.lower()
        engine_codes.append(engines[label])
        called = kernel_name(names[name], by_code[engine])
        if called not in code_of:
            code_of[called] = len(names)
            names.append(called)
        name_codes.append(code_of[called])
    kind = np.array(kinds, dtype=np.int8)[inverse] if kinds else np.empty(0, dtype=np.int8)
    engine_column = np.array(engine_codes, dtype=np.int32)[inverse] if kinds else np.empty(0, dtype=np.int32)
    name_column = np.array(name_codes, dtype=np.int32)[inverse] if kinds else np.empty(0, dtype=np.int32)
    if collected.recipes:
        collected.recipes.place("device", {column: columns[column] for column in KEYS})
    rows = DeviceRows(
        start=columns["start"],
        dur=columns["dur"],
        name=name_column,
        track=columns["track"].astype(np.int32, copy=False),
        kind=kind,
        engine=engine_column,
        correlation=columns["correlation"].astype(np.int64, copy=False),
        external=columns["external"].astype(np.int64, copy=False),
        bytes=columns["bytes"].astype(np.int64, copy=False),
        dtype=np.where(columns["dtype"] == collected.no_dtype, -1, columns["dtype"]).astype(np.int32, copy=False),
        recipe=np.where(columns["recipe_id"] > 0, columns["recipe_id"], -1).astype(np.int64, copy=False),
        comm=columns["comm"].astype(np.int32, copy=False),
    )
    return rows, list(engines)
