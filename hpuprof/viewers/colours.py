"""Colour names that chrome://tracing knows; any other makes it reject the file (catapult, color_scheme.html)."""

from __future__ import annotations

from typing import Any

_NAMES = """
thread_state_uninterruptible thread_state_iowait thread_state_running thread_state_runnable thread_state_sleeping
thread_state_unknown background_memory_dump light_memory_dump detailed_memory_dump vsync_highlight_color generic_work
good bad terrible black grey white yellow olive rail_response rail_animation rail_idle rail_load startup
heap_dump_stack_frame heap_dump_object_type heap_dump_child_node_arrow cq_build_running cq_build_passed
cq_build_failed cq_build_abandoned cq_build_attempt_runnig cq_build_attempt_passed cq_build_attempt_failed
"""
COLOURS = frozenset(_NAMES.split())


def known(colour: Any) -> bool:
    """Whether chrome://tracing knows a row's `cname`, which may be of any JSON type."""
    return isinstance(colour, str) and colour in COLOURS
