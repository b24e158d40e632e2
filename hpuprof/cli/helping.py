"""The help of a command: options by group, and examples that can be typed."""

from __future__ import annotations

from typing import Any

import click

OPTION_GROUPS = {
    "What to answer": (
        "apply",
        "faster",
        "step-time",
        "step-time-from",
        "constants",
        "threshold",
        "record-check",
        "assume-run-noise",
        "clock",
        "critical",
        "table",
        "report-dialect",
        "for",
        "device",
        "trial",
        "strict",
    ),
    "Which traces": ("run", "rank-from", "ranks", "steps"),
    "Output": (
        "output",
        "full",
        "brief",
        "json",
        "force",
        "redact",
        "compress",
        "once",
        "port",
        "no-open",
        "quiet",
    ),
    "Gates": ("fail-on", "junit"),
    "Speed": ("jobs", "scheduler", "cache", "table-rows"),
}
"""Long names of options by group, in the order in which help lists the groups; all others stand under Options."""
_GROUP_OF = {name: group for group, names in OPTION_GROUPS.items() for name in names}
_REST = "Options"


class Command(click.Command):
    """A command whose help lists its options by group and ends with examples: what to type, and what it does."""

    def __init__(self, *args: Any, examples: dict[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.examples = examples

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options group by group, then the examples."""
        groups: dict[str, list[tuple[str, str]]] = {name: [] for name in (*OPTION_GROUPS, _REST)}
        for option in (p for p in self.get_params(ctx) if isinstance(p, click.Option)):
            if record := option.get_help_record(ctx):
                groups[_group_of(option)].append(record)
        for name, records in groups.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)
        # A line longer than the terminal can be copied all the same; a wrapped one cannot.
        with formatter.section("Examples"):
            for typed, words in self.examples.items():
                formatter.write(f"{'':{formatter.current_indent}}{typed}\n")
                formatter.indent()
                formatter.write_text(words)
                formatter.dedent()


def _group_of(option: click.Option) -> str:
    names = (name.removeprefix("--") for name in option.opts if name.startswith("--"))
    return next((_GROUP_OF[name] for name in names if name in _GROUP_OF), _REST)
