"""Undoes `hpuprof.convert`: a converted trace reads like its original.

`convert` adds rows and changes words for a viewer, and records that in each row's `hpuprof` argument: `{"drawn": true}`
for an added row, `{"was": {...}}` for the old values of changed fields, `{"added": [...]}` for added arguments. Added
rows without arguments have the category `DRAWN`.
"""

from __future__ import annotations

from typing import Any

from hpuprof.ingest.wire import NO_ARGS, Event
from hpuprof.naming import CONVERTED_KEY

DRAWN = "hpuprof"
_FIELDS = ("cat", "name", "pid", "tid")
_ARGS = {  # those that are read; `device`, which `convert` adds too, is not
    "External id": ("external_id", -1),
    "external id": ("external_id_old", -1),
    "correlation": ("correlation", -1),
    "Device Type": ("device_type", None),
}


def mark_of(header: dict[str, Any]) -> dict[str, Any] | None:
    """Return `convert`'s record in a trace's metadata; None for a trace that it did not make."""
    mark = header.get(CONVERTED_KEY)
    return mark if isinstance(mark, dict) and isinstance(mark.get("version"), str) else None


def restore_events(events: list[Event]) -> list[Event]:
    """Drop the rows that `convert` added and restore the others."""
    kept = []
    for event in events:
        mark = (event.args or NO_ARGS).mark
        if not isinstance(mark, dict):
            if event.cat != DRAWN:
                kept.append(event)
        elif not mark.get("drawn"):
            _restore(event, mark)
            kept.append(event)
    return kept


def _restore(event: Event, mark: dict[str, Any]) -> None:
    was = mark.get("was")
    if isinstance(was, dict):
        for field in _FIELDS:
            if field in was:
                setattr(event, field, was[field])
        for name, (field, _) in _ARGS.items():
            if name in was:
                setattr(event.args, field, was[name])
    added = mark.get("added")
    for name in added if isinstance(added, list) else ():
        if isinstance(name, str) and name in _ARGS:
            setattr(event.args, *_ARGS[name])


def restore_header(header: dict[str, Any]) -> None:
    """Restore the metadata that `convert` changed."""
    mark = mark_of(header)
    changed = mark.get("header") if mark else None
    for key, value in changed.items() if isinstance(changed, dict) else ():
        if value is None:
            header.pop(key, None)
        else:
            header[key] = value
